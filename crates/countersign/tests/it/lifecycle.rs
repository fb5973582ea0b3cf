//! Certificates are renewed over the wire, and names cleaned from the command line.

use countersign_pki::Certificate;
use countersign_testkit::https::{Answer, HttpsClient};
use countersign_testkit::keys;

use crate::installation::Installation;
use crate::site::{Site, TEXT, read_certificate};

const RENEWAL: &str = "/puppet-ca/v1/certificate_renewal";
const DAY: i64 = 86_400;

#[test]
fn an_agent_renews_with_its_certificate_alone_if_the_configuration_says_so() {
    let renewals = "puppet: {auto_renewal: true, auto_renewal_cert_ttl: 7d}\n";
    let site = Site::configured(renewals, &["--autosign", "true"]);
    assert_eq!(site.ask("web01").status, 200);
    let first = site.certificate("web01");
    assert!(days(&read_certificate(&first.body)) > 365);

    let renewed = renew(&site, Some(&first.body)).unwrap();
    assert_eq!(renewed.status, 200, "{}", renewed.text());
    let certificate = read_certificate(&renewed.body);
    assert_eq!(days(&certificate), 7 + 1, "backdated by one");
    // What was renewed is an identity, and so is what it was renewed from.
    for holder in [&renewed.body, &first.body] {
        assert_eq!(renew(&site, Some(holder)).unwrap().status, 200);
    }
    assert_eq!(renew(&site, None).unwrap().status, 403);
    let admin = site.admin();
    let refused = admin.call("POST", RENEWAL, &[TEXT], b"").unwrap();
    assert_eq!(refused.status, 403, "{}", refused.text());

    let body = br#"{"certnames":["web01"]}"#;
    let cleaned = admin.call("PUT", "/puppet-ca/v1/clean", &[], body).unwrap();
    assert_eq!(cleaned.text(), "Successfully cleaned all certs.");
    assert!(
        renew(&site, Some(&renewed.body)).is_err(),
        "a revoked certificate fails the handshake"
    );

    // Without the setting, agents are told that there is no such thing.
    let site = site.kill_and_restart(&["--autosign", "true"]);
    assert_eq!(site.ask("web01").status, 200);
    let off = renew(&site, Some(&site.certificate("web01").body)).unwrap();
    assert_eq!((off.status, off.text().as_str()), (404, "Not Found"));
}

#[test]
fn ca_clean_has_the_output_and_the_codes_of_puppetserver_ca() {
    let installation = Installation::new();
    let server = installation.serve(&[]);
    for (name, key) in [
        ("a.example", keys::p256_a()),
        ("b.example", keys::p256_b()),
        ("waiting.example", keys::p384()),
    ] {
        assert_eq!(installation.submit(&server, name, key), 200);
    }
    let signed = installation.run(&["ca", "sign", "--certname", "a.example,b.example"]);
    assert!(signed.success(), "{signed}");

    let missing = |name: &str| format!("Error:\n    Could not find files to clean for {name}\n");
    let cleaned = |name: &str| format!("Cleaned files related to {name}\n");
    let revoked = |name: &str| format!("Certificate for {name} has been revoked\n");
    let a = revoked("a.example") + &cleaned("a.example");
    let b = revoked("b.example") + &cleaned("b.example");
    for (names, code, stdout, stderr) in [
        ("a.example", 0, a.clone(), String::new()),
        // The ledger knows it still, as Puppet's inventory does.
        ("a.example", 0, a, String::new()),
        (
            "waiting.example",
            24,
            cleaned("waiting.example"),
            String::new(),
        ),
        (
            "waiting.example",
            1,
            String::new(),
            missing("waiting.example"),
        ),
        ("gone.example,b.example", 1, b, missing("gone.example")),
    ] {
        let finished = installation.run(&["ca", "clean", "--certname", names]);
        assert_eq!(finished.code, Some(code), "{names} {finished}");
        assert_eq!(finished.stdout, stdout, "{names}");
        assert_eq!(finished.stderr, stderr, "{names}");
    }
    let listed = installation.json(&["ca", "list", "--all", "--format", "json"]);
    assert_eq!(listed["requested"], serde_json::json!([]));
    assert_eq!(listed["revoked"], serde_json::json!([]));
    for (name, key) in [
        ("a.example", keys::p256_a()),
        ("waiting.example", keys::p384()),
    ] {
        assert_eq!(installation.submit(&server, name, key), 200, "{name}");
    }
}

/// Asks for a renewal as the holder of a certificate for the key of all Puppet requests here.
fn renew(site: &Site, certificate: Option<&[u8]>) -> std::io::Result<Answer> {
    let key = keys::p256_a().pkcs8_pem();
    let pair = certificate.map(|certificate| (certificate, key.as_bytes()));
    HttpsClient::new(site.puppet(), &site.puppet_ca(), pair)?.call("POST", RENEWAL, &[TEXT], b"")
}

fn days(certificate: &Certificate) -> i64 {
    certificate
        .not_after()
        .seconds_since(certificate.not_before())
        / DAY
}
