//! CAs that somebody else runs: a real Puppet Server, and another Countersign.

use std::fs;

use base64::Engine as _;
use countersign_pki::{Crl, pem};
use countersign_testkit::puppet_server::{PuppetServer, PuppetServerSettings};
use serde_json::json;

use super::{BASE64, Behind, Stage, condition};

/// With a list of who is signed at once, and renewals.
fn puppet_server(stage: &Stage) -> PuppetServer {
    let folder = stage.folder.path().join("puppetserver");
    fs::create_dir(&folder).unwrap();
    let list = stage.file("autosign.conf", "*.auto.example.com\n");
    let settings = PuppetServerSettings {
        autosign: list.display().to_string(),
        ca_conf:
            "allow-subject-alt-names: true\nallow-auto-renewal: true\nauto-renewal-cert-ttl: 60d\nenable-infra-crl: true"
                .to_owned(),
        ..PuppetServerSettings::below(&folder)
    };
    PuppetServer::start(&folder, settings).unwrap_or_else(|fault| panic!("{fault}"))
}

#[test]
fn a_real_puppet_server_signs_at_once_by_hand_and_again() {
    let stage = Stage::start();
    let server = puppet_server(&stage);
    let operator = stage.operator(&[]);
    let url = format!("https://localhost:{}/", server.address().port());
    let external = json!({"external": {"url": url, "caSecretRef": "far-trust"}});
    stage.create("CertificateAuthority", "far", external);
    let waiting = stage.object("CertificateAuthority", "far", |it| {
        !condition(it, "CAReady").is_empty()
    });
    assert_eq!(waiting["status"]["phase"], "Pending");
    let bundle = String::from_utf8(server.ca_bundle().unwrap()).unwrap();
    stage.put_secret("far-trust", &[("ca_crt.pem", &bundle)]);
    let ca = stage.in_phase("CertificateAuthority", "far", "External");
    assert_eq!(condition(&ca, "CAReady"), "True ExternalCA");
    assert_eq!(ca["status"]["caSecretName"], "far-trust");
    assert!(ca["status"]["serviceName"].is_null() && ca["status"]["signingSecretName"].is_null());

    // On the list.
    let names = ["web.auto.example.com", "www.auto.example.com"];
    stage.create(
        "Certificate",
        "web",
        json!({"authorityRef": "far", "certname": names[0], "dnsAltNames": names}),
    );
    // Not on it: an administrator signs there.
    stage.create(
        "Certificate",
        "db",
        json!({"authorityRef": "far", "certname": "db.example.com"}),
    );
    stage.in_phase("Certificate", "web", "Signed");
    let first = stage.pair("web");
    assert_eq!(first.alt_names().len(), 2);
    stage.object("Certificate", "db", |it| {
        it["status"]["phase"] == "Requesting"
    });
    let command = server.command().unwrap();
    let signed = countersign_testkit::deadline::ask_again(super::PATIENCE, || {
        let finished = command
            .run("sign", &["--certname", "db.example.com"])
            .unwrap();
        finished.success().then_some(())
    });
    assert!(signed.is_some(), "{}", operator.log());
    stage.in_phase("Certificate", "db", "Signed");
    stage.pair("db");

    // Renewed by the certificate itself, and the trust of the spec.
    stage.patch(
        "Certificate",
        "web",
        json!({"spec": {"renewBefore": "99999d"}}),
    );
    stage.object("Certificate", "web", |it| {
        condition(it, "CertSigned") == "True CertificateRenewed"
    });
    let renewed = stage.pair("web");
    assert_ne!(renewed.serial(), first.serial());
    assert_eq!(renewed.key_fingerprint(), first.key_fingerprint());
    assert!(
        renewed.not_after() < first.not_after(),
        "Puppet Server shortens it to 60 days"
    );

    // Nothing is revoked at a CA that is somebody else's.
    stage.delete("Certificate", "web");
    stage.is_gone("Certificate", "web");
    let listed = command.run("list", &["--all"]).unwrap();
    let line = listed.stdout.lines().find(|line| line.contains(names[0]));
    assert!(line.is_some(), "{listed}");
    let (_, value) = stage.secret("far-ca-crl").unwrap();
    assert!(value("ca_crl.pem").starts_with("-----BEGIN X509 CRL-----"));
    assert!(
        stage.events("far").contains(&"CRLRefreshed".to_owned()),
        "{:?}",
        stage.events("far")
    );

    // With the short list, there is no call for the full one: a list that the Secret has is not replaced by an earlier one.
    let revoked = command.run("revoke", &["--certname", "db.example.com"]);
    assert!(revoked.as_ref().unwrap().success(), "{revoked:?}");
    let anybody = server.anonymous().unwrap();
    let list = |name: &str| {
        let path = format!("/puppet-ca/v1/certificate_revocation_list/{name}");
        let answer = anybody.call("GET", &path, &[], b"").unwrap();
        (answer.status, answer.text())
    };
    assert_eq!(list("full").0, 403);
    let (status, served) = list("ca");
    assert_eq!(status, 200);
    let full = fs::read_to_string(server.cadir().join("ca_crl.pem")).unwrap();
    let [short, whole] = [&served, &full].map(|text| {
        let block = pem::decode_first(text.as_bytes(), &pem::PemLimits::BUNDLE);
        Crl::parse(&block.unwrap().unwrap().der).unwrap()
    });
    assert_eq!((short.entries().len(), whole.entries().len()), (0, 1));
    assert!(short.number() < whole.number());
    let data = json!({"data": {"ca_crl.pem": BASE64.encode(&full)}});
    let path = "/api/v1/namespaces/puppet/secrets/far-ca-crl";
    assert_eq!(stage.call("PATCH", path, Some(&data)).0, 200);
    let refresh = json!({"spec": {"crlRefreshInterval": "10s"}});
    stage.patch("CertificateAuthority", "far", refresh);
    stage.object("CertificateAuthority", "far", |it| {
        condition(it, "CRLRefresh") == "False OlderList"
    });
    let (_, value) = stage.secret("far-ca-crl").unwrap();
    assert_eq!(value("ca_crl.pem"), full);
}

#[test]
fn another_countersign_is_an_external_authority_with_a_client_certificate() {
    let stage = Stage::start();
    let behind = Behind::start(&stage, "");
    let _operator = stage.operator(&[]);
    let read = |name: &str| behind.installation.read(name);
    stage.put_secret("far-trust", &[("ca_crt.pem", &read("admin/ca.pem"))]);
    stage.put_secret(
        "far-client",
        &[
            ("tls.crt", &read("admin/admin.pem")),
            ("tls.key", &read("admin/admin-key.pem")),
        ],
    );
    let external = json!({"external": {
        "url": behind.url(), "caSecretRef": "far-trust", "tlsSecretRef": "far-client",
    }});
    stage.create("CertificateAuthority", "far", external);
    stage.in_phase("CertificateAuthority", "far", "External");
    stage.create(
        "Certificate",
        "web",
        json!({"authorityRef": "far", "certname": "web.example.com"}),
    );
    stage.object("Certificate", "web", |it| {
        it["status"]["phase"] == "Requesting"
    });
    let signed = countersign_testkit::deadline::ask_again(super::PATIENCE, || {
        let finished = behind
            .installation
            .run(&["ca", "sign", "--certname", "web.example.com"]);
        finished.success().then_some(())
    });
    assert!(signed.is_some());
    stage.in_phase("Certificate", "web", "Signed");
    stage.pair("web");
}
