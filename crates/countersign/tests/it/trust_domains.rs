//! A certificate of one issuer gives no identity at another door.

use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;

use crate::site::{
    JSON, REQUESTS, Site, TEXT, approved, kubernetes_request, kubernetes_request_for,
    puppet_request,
};

#[test]
fn trust_domains_do_not_mix() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("countersign.yaml");
    std::fs::write(
        &config,
        "signers:\n  - name: example.com/vpn\n    usages: [digital signature, client auth]\n",
    )
    .unwrap();
    let site = Site::start(&["--autosign", "true", "--config", config.to_str().unwrap()]);

    // An agent of the Puppet fleet, a user of the Kubernetes door, and a client of a third signer.
    let puppet = site.anonymous();
    let path = "/puppet-ca/v1/certificate_request/web01";
    assert_eq!(
        puppet
            .call("PUT", path, &[TEXT], puppet_request("web01").as_bytes())
            .unwrap()
            .status,
        200
    );
    let agent = puppet
        .call("GET", "/puppet-ca/v1/certificate/web01", &[], b"")
        .unwrap()
        .body;
    let user = kubernetes_certificate(&site, kubernetes_request("jane"));
    let vpn = kubernetes_certificate(
        &site,
        kubernetes_request_for("laptop", "example.com/vpn", keys::p256_b()),
    );

    let (puppet_admin, puppet_admin_key) = site.admin_pair();
    let (kubernetes_admin, kubernetes_admin_key) = site.kubernetes_admin_pair();
    let agent_key = keys::p256_a().pkcs8_pem().as_bytes().to_vec();
    let user_key = keys::p256_b().pkcs8_pem().as_bytes().to_vec();

    // At the other door they do not even get past the handshake.
    for (who, certificate, key) in [
        ("the Puppet administrator", &puppet_admin, &puppet_admin_key),
        ("a Puppet agent", &agent, &agent_key),
        ("a client of a third signer", &vpn, &user_key),
    ] {
        let client = HttpsClient::new(
            site.kubernetes(),
            &site.kubernetes_ca(),
            Some((certificate, key)),
        )
        .unwrap();
        let answer = client.call("GET", REQUESTS, &[], b"");
        assert!(answer.is_err(), "{who} at the Kubernetes door: {answer:?}");
    }
    for (who, certificate, key) in [
        (
            "the Kubernetes administrator",
            &kubernetes_admin,
            &kubernetes_admin_key,
        ),
        ("a Kubernetes user", &user, &user_key),
        ("a client of a third signer", &vpn, &user_key),
    ] {
        let client =
            HttpsClient::new(site.puppet(), &site.puppet_ca(), Some((certificate, key))).unwrap();
        let answer = client.call("GET", "/puppet-ca/v1/certificate_statuses/all", &[], b"");
        assert!(answer.is_err(), "{who} at the Puppet door: {answer:?}");
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

fn kubernetes_certificate(site: &Site, object: serde_json::Value) -> Vec<u8> {
    use base64::Engine as _;
    let admin = site.kubernetes_admin();
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
