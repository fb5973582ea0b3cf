//! What travels on the wire beside the answers.

use std::time::Duration;

use crate::site::{Site, TEXT, puppet_request};

/// Ruby's HTTP client takes an idle socket that becomes readable for one that is being closed, and
/// waits for its end before its next request: a session ticket after an answer costs agents 30 seconds.
#[test]
fn no_tls_record_follows_an_answer() {
    let site = Site::start(&["--autosign", "true"]);
    let mut connection = site.anonymous().connect().unwrap();
    let request = puppet_request("web01");
    let calls: [(&str, &str, &[u8]); 3] = [
        (
            "PUT",
            "/puppet-ca/v1/certificate_request/web01",
            request.as_bytes(),
        ),
        ("GET", "/puppet-ca/v1/certificate/web01", b""),
        ("GET", "/puppet-ca/v1/certificate_revocation_list/ca", b""),
    ];
    for (method, path, body) in calls {
        let answer = connection.call(method, path, &[TEXT], body).unwrap();
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
        assert!(
            connection.is_quiet_for(Duration::from_millis(500)).unwrap(),
            "after {method} {path}"
        );
    }
}

#[test]
fn revocation_is_checked_on_every_request_of_an_open_connection() {
    let site = Site::start(&["--autosign", "true"]);
    let anonymous = site.anonymous();
    let path = "/puppet-ca/v1/certificate_request/web01";
    anonymous
        .call("PUT", path, &[TEXT], puppet_request("web01").as_bytes())
        .unwrap();
    let certificate = anonymous
        .call("GET", "/puppet-ca/v1/certificate/web01", &[], b"")
        .unwrap()
        .body;
    let key = countersign_testkit::keys::p256_a().pkcs8_pem().as_bytes();
    let client = countersign_testkit::https::HttpsClient::new(
        site.puppet(),
        &site.puppet_ca(),
        Some((&certificate, key)),
    )
    .unwrap();

    // The same name's certificate may see its own request: with none on record that is a 404, not a 403.
    let mut connection = client.connect().unwrap();
    let mut own = || connection.call("GET", path, &[], b"").unwrap().status;
    assert_eq!(own(), 404);
    let revoke = br#"{"desired_state":"revoked"}"#;
    let status = "/puppet-ca/v1/certificate_status/web01";
    let json = [("Content-Type", "application/json")];
    assert_eq!(
        site.admin()
            .call("PUT", status, &json, revoke)
            .unwrap()
            .status,
        204
    );
    assert_eq!(own(), 403, "the connection outlived the revocation");
}
