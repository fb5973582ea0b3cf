//! A certificate of one issuer gives no identity at another door.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use countersign_pki::pem::{self, PemLimits};
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{AlertDescription, ClientConfig, ClientConnection, Error, RootCertStore};

use crate::site::{JSON, REQUESTS, Site, approved, kubernetes_request, kubernetes_request_for};

#[test]
fn trust_domains_do_not_mix() {
    let site = Site::configured(
        "signers:\n  - name: example.com/vpn\n    usages: [digital signature, client auth]\n\
         access: [{certname: ops01, role: read}, {group: developers, role: read}]\n",
        &["--autosign", "true"],
    );

    // An agent of the Puppet fleet, a user of the Kubernetes door, and a client of a third signer.
    assert_eq!(site.ask("web01").status, 200);
    let agent = site.certificate("web01").body;
    assert_eq!(site.ask("ops01").status, 200);
    let reader = site.certificate("ops01").body;
    let user = kubernetes_certificate(&site, kubernetes_request("jane"));
    let vpn = kubernetes_certificate(
        &site,
        kubernetes_request_for("laptop", "example.com/vpn", keys::p256_b()),
    );

    let (puppet_admin, puppet_admin_key) = site.admin_pair();
    let (kubernetes_admin, kubernetes_admin_key) = site.kubernetes_admin_pair();
    let agent_key = keys::p256_a().pkcs8_pem().as_bytes().to_vec();
    let user_key = keys::p256_b().pkcs8_pem().as_bytes().to_vec();

    // At the Kubernetes door they are nobody. Who shows nothing is nobody in particular, who has no right.
    for (who, pair, code, reason) in [
        ("nobody", None, 403, "Forbidden"),
        (
            "the Puppet administrator",
            Some((&*puppet_admin, &*puppet_admin_key)),
            401,
            "Unauthorized",
        ),
        (
            "a Puppet agent",
            Some((&*agent, &*agent_key)),
            401,
            "Unauthorized",
        ),
        (
            "who reads at the Puppet door",
            Some((&*reader, &*agent_key)),
            401,
            "Unauthorized",
        ),
        (
            "a client of a third signer",
            Some((&*vpn, &*user_key)),
            401,
            "Unauthorized",
        ),
    ] {
        let client = HttpsClient::new(site.kubernetes(), &site.kubernetes_ca(), pair).unwrap();
        let answer = client.call("GET", REQUESTS, &[], b"").unwrap();
        assert_eq!(answer.status, code, "{who}: {}", answer.text());
        let status: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(status["reason"], reason, "{who}");
        let health = client.call("GET", "/readyz", &[], b"").unwrap();
        assert_eq!(health.status, 200, "{who}: {}", health.text());
        let native = client.call("GET", "/enrol/v1/requests", &[], b"").unwrap();
        assert_eq!(native.status, 401, "{who}: {}", native.text());
    }
    // The native interface there knows the door's own users, by the roles of their groups alone.
    for (who, certificate, key, status) in [
        ("a user whose group reads", &user, &user_key, 200),
        (
            "the administrator",
            &kubernetes_admin,
            &kubernetes_admin_key,
            403,
        ),
    ] {
        let pair = Some((&**certificate, &**key));
        let client = HttpsClient::new(site.kubernetes(), &site.kubernetes_ca(), pair).unwrap();
        let native = client.call("GET", "/enrol/v1/requests", &[], b"").unwrap();
        assert_eq!(native.status, status, "{who}: {}", native.text());
    }
    let native = site.holder(&reader, &agent_key);
    let native = native.call("GET", "/enrol/v1/requests", &[], b"").unwrap();
    assert_eq!(native.status, 200, "{}", native.text());
    assert_eq!(
        site.kubernetes_admin()
            .call("GET", REQUESTS, &[], b"")
            .unwrap()
            .status,
        200
    );

    // At the Puppet door they do not get past the handshake.
    for (who, certificate, key) in [
        (
            "the Kubernetes administrator",
            &kubernetes_admin,
            &kubernetes_admin_key,
        ),
        ("a Kubernetes user", &user, &user_key),
        ("a client of a third signer", &vpn, &user_key),
    ] {
        let refused = handshake(site.puppet(), &site.puppet_ca(), certificate, key);
        let alert = Error::AlertReceived(AlertDescription::UnknownCA);
        assert_eq!(refused, Err(alert), "{who} at the Puppet door");
    }
    for (who, certificate, key) in [
        ("the administrator", &puppet_admin, &puppet_admin_key),
        ("an agent", &agent, &agent_key),
    ] {
        let accepted = handshake(site.puppet(), &site.puppet_ca(), certificate, key);
        assert_eq!(accepted, Ok(()), "{who} at the Puppet door");
    }

    // At their own door, those who are no administrators have no more than their own.
    let client =
        HttpsClient::new(site.puppet(), &site.puppet_ca(), Some((&agent, &agent_key))).unwrap();
    let statuses = client
        .call("GET", "/puppet-ca/v1/certificate_statuses/all", &[], b"")
        .unwrap();
    assert_eq!(statuses.status, 403);
    let client = HttpsClient::new(
        site.kubernetes(),
        &site.kubernetes_ca(),
        Some((&user, &user_key)),
    )
    .unwrap();
    let listed = client.call("GET", REQUESTS, &[], b"").unwrap();
    assert_eq!(listed.status, 403, "{}", listed.text());
    assert!(
        listed.text().contains("User \\\"jane\\\" cannot list"),
        "{}",
        listed.text()
    );
}

/// A handshake in TLS 1.2, where the client learns within it what the server makes of its certificate.
fn handshake(
    address: SocketAddr,
    ca_pem: &[u8],
    certificate_pem: &[u8],
    key_pem: &[u8],
) -> Result<(), Error> {
    let certificates = |text: &[u8]| -> Vec<CertificateDer<'static>> {
        let blocks = pem::decode_all(text, &PemLimits::BUNDLE).unwrap();
        let ders = blocks.into_iter().map(|block| block.der);
        ders.map(CertificateDer::from).collect()
    };
    let mut roots = RootCertStore::empty();
    for root in certificates(ca_pem) {
        roots.add(root).unwrap();
    }
    let key = pem::decode_first(key_pem, &PemLimits::BUNDLE).unwrap();
    let key = PrivatePkcs8KeyDer::from(key.unwrap().der);
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates(certificate_pem), PrivateKeyDer::Pkcs8(key))
        .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut tcp = TcpStream::connect(address).unwrap();
    let deadline = Some(Duration::from_secs(30));
    tcp.set_read_timeout(deadline).unwrap();
    tcp.set_write_timeout(deadline).unwrap();
    while tls.is_handshaking() {
        if let Err(fault) = tls.complete_io(&mut tcp) {
            let fault = fault.downcast::<Error>();
            return Err(fault.expect("a fault of TLS, not of the connection"));
        }
    }
    Ok(())
}

fn kubernetes_certificate(site: &Site, object: serde_json::Value) -> Vec<u8> {
    certificate_by(&site.kubernetes_admin(), object)
}

/// What the signer makes of a request that an administrator creates and approves.
pub(crate) fn certificate_by(admin: &HttpsClient, object: serde_json::Value) -> Vec<u8> {
    use base64::Engine as _;
    let created = admin
        .call("POST", REQUESTS, &[JSON], object.to_string().as_bytes())
        .unwrap();
    assert_eq!(created.status, 201, "{}", created.text());
    let created: serde_json::Value = serde_json::from_slice(&created.body).unwrap();
    let name = created["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("{REQUESTS}/{name}/approval");
    let done = admin
        .call(
            "PUT",
            &path,
            &[JSON],
            approved(created).to_string().as_bytes(),
        )
        .unwrap();
    assert_eq!(done.status, 200, "{}", done.text());
    let shown = admin
        .call("GET", &format!("{REQUESTS}/{name}"), &[], b"")
        .unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.body).unwrap();
    let certificate = shown["status"]["certificate"].as_str().unwrap();
    base64::engine::general_purpose::STANDARD
        .decode(certificate)
        .unwrap()
}
