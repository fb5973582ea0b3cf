//! Administrators look, sign, revoke and delete.

use countersign_authority::Submission;
use countersign_authority::profile::{Authorization, OtherNames};
use countersign_pki::{CheckedCsr, Crl, Oid, RevocationReason, pem};
use countersign_policy::{Requester, Wishes};
use countersign_server::puppet;
use countersign_testkit::keys;

use super::{Fleet, V1, agent, known};
use crate::exchange::Call;
use crate::world::{PUPPET_AGENT, START, Setup, signer_name};

#[tokio::test]
async fn requests_are_shown_and_deleted() {
    let fleet = Fleet::of(Setup::STRICT).await;
    let line = format!("GET {V1}/certificate_request/web01");
    let none = fleet.call(&fleet.admin, &line).await;
    assert_eq!(
        (none.status, none.text()),
        (404, "Could not find certificate_request web01")
    );
    let text = agent("web01")
        .challenge_password("secret")
        .sign_pem(keys::p256_a());
    fleet.put("web01", text.clone()).await;
    let shown = fleet.call(&fleet.admin, &line).await;
    assert_eq!(
        (shown.status, shown.content_type(), shown.text()),
        (200, "text/plain", text.as_str())
    );

    let line = format!("DELETE {V1}/certificate_request/web01");
    assert_eq!(fleet.call(&fleet.nobody, &line).await.status, 403);
    assert_eq!(fleet.call(&fleet.admin, &line).await.status, 204);
    let gone = fleet.call(&fleet.admin, &line).await;
    assert_eq!(
        (gone.status, gone.text()),
        (404, "No certificate request for web01")
    );
    assert_eq!(fleet.put("web01", text).await.status, 200);
}

#[tokio::test]
async fn states_are_set_in_the_order_of_the_reference() {
    let fleet = Fleet::of(Setup::STRICT).await;
    fleet.enrol(&agent("web01"), "web01").await;
    let line = format!("PUT {V1}/certificate_status/web01");
    let sign = r#"{"desired_state":"signed"}"#;
    for (headers, body, status, sentence) in [
        (&[][..], "", 400, "Request body is not JSON."),
        (&[], "null", 400, "Request body is not JSON."),
        (
            &[("content-type", "text/plain")],
            "{}",
            400,
            "Missing required parameter \"desired_state\"",
        ),
        (
            &[("content-type", "text/plain")],
            sign,
            415,
            "Unsupported media type.",
        ),
        (
            &[("accept", "text/html")],
            sign,
            406,
            "No acceptable resource available.",
        ),
        (
            &[],
            r#"{"desired_state":"revoked"}"#,
            409,
            "Cannot revoke certificate for host web01 without a signed certificate",
        ),
        (
            &[("content-type", "text/pson; charset=utf-8")],
            r#"{"desired_state":"signed","cert_ttl":"600"}"#,
            204,
            "",
        ),
        (
            &[],
            sign,
            409,
            "Cannot sign certificate for host web01 without a certificate request",
        ),
    ] {
        let call = Call::new(&fleet.admin, &line).body(body);
        let call = headers
            .iter()
            .fold(call, |call, (name, value)| call.header(name, value));
        let answer = call.send(&fleet.door).await;
        assert_eq!(
            (answer.status, answer.text()),
            (status, sentence),
            "{headers:?} {body}"
        );
    }
    let unknown = fleet.sign("nobody").await;
    assert_eq!(
        (unknown.status, unknown.text()),
        (404, "Invalid certificate subject.")
    );
    let certificate = fleet.certificate("web01").await;
    assert_eq!(certificate.not_before(), START.minus_seconds(86_400));
    assert_eq!(certificate.not_after(), START.plus_seconds(600));
}

#[tokio::test]
async fn revoked_stays_out() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    fleet.enrol(&agent("web01"), "web01").await;
    let serial = fleet.certificate("web01").await.serial();
    let crl = || async {
        let answer = fleet
            .call(
                &fleet.nobody,
                &format!("GET {V1}/certificate_revocation_list/ca"),
            )
            .await;
        let block = pem::decode_first(&answer.body, &pem::PemLimits::REQUEST)
            .unwrap()
            .unwrap();
        let crl = Crl::parse(&block.der).unwrap();
        let entries: Vec<_> = crl.entries().iter().map(|e| (e.serial, e.reason)).collect();
        (crl.number(), entries)
    };
    assert_eq!(crl().await, (Some(0), vec![]));
    for _ in 0..2 {
        assert_eq!(fleet.revoke("web01").await.status, 204);
        assert_eq!(
            crl().await,
            (Some(1), vec![(serial, RevocationReason::KeyCompromise)])
        );
    }
    let answer = fleet.enrol(&agent("web01"), "web01").await;
    assert_eq!(
        (answer.status, answer.text()),
        (
            400,
            "web01 already has a revoked certificate; ignoring certificate request"
        )
    );
    assert_eq!(fleet.certificate("web01").await.serial(), serial);
    assert_eq!(
        fleet.names("?state=revoked").await,
        [known("web01", "revoked")]
    );
}

#[tokio::test]
async fn status_objects() {
    let setup = Setup {
        alt_names: OtherNames::DnsAndIp,
        authorization: Authorization::Copied,
        ..Setup::STRICT
    };
    let fleet = Fleet::of(setup).await;
    let csr = agent("web01")
        .dns("b.example.com")
        .ip("2001:db8::1".parse().unwrap())
        .extension(&Oid::parse("1.3.6.1.4.1.34380.1.3.13").unwrap(), "compiler")
        .extension(&Oid::parse("1.3.6.1.4.1.34380.1.3.99").unwrap(), "x");
    let der = csr.sign(keys::p256_a());
    fleet
        .put("web01", pem::encode("CERTIFICATE REQUEST", &der))
        .await;
    let line = format!("GET {V1}/certificate_status/web01");
    let requested = fleet.call(&fleet.admin, &line).await;
    assert_eq!(
        (requested.status, requested.content_type()),
        (200, "application/json;charset=UTF-8")
    );
    let object = requested.json();
    assert_eq!(object["name"], "web01");
    assert_eq!(object["state"], "requested");
    assert_eq!(object["fingerprint"], countersign_pki::sha256_colon(&der));
    assert_eq!(
        object["fingerprints"]["SHA1"],
        countersign_pki::sha1_colon(&der)
    );
    assert_eq!(object["fingerprints"]["SHA256"], object["fingerprint"]);
    assert_eq!(
        object["fingerprints"]["SHA512"],
        countersign_pki::sha512_colon(&der)
    );
    assert_eq!(object["fingerprints"]["default"], object["fingerprint"]);
    assert_eq!(
        object["dns_alt_names"],
        serde_json::json!(["DNS:b.example.com"])
    );
    assert_eq!(
        object["subject_alt_names"],
        serde_json::json!(["IP:2001:db8:0:0:0:0:0:1", "DNS:b.example.com"])
    );
    assert_eq!(
        object["authorization_extensions"],
        serde_json::json!({"pp_auth_role": "compiler", "1.3.6.1.4.1.34380.1.3.99": "x"})
    );
    for absent in ["serial_number", "not_before", "not_after"] {
        assert!(object.get(absent).is_none(), "{absent}");
    }

    fleet.sign("web01").await;
    let certificate = fleet.certificate("web01").await;
    let signed = fleet.call(&fleet.admin, &line).await;
    assert_eq!(signed.json()["state"], "signed");
    assert_eq!(
        signed.json()["fingerprint"],
        certificate.fingerprint().to_string()
    );
    assert_eq!(signed.json()["not_before"], "2026-01-01T03:04:05UTC");
    assert_eq!(signed.json()["not_after"], "2031-01-01T03:04:05UTC");
    // The whole number, not a float of it and not text.
    let integer = format!("\"serial_number\":{},", certificate.serial().to_decimal());
    assert!(signed.text().contains(&integer), "{}", signed.text());

    let unknown = fleet
        .call(&fleet.admin, &format!("GET {V1}/certificate_status/nobody"))
        .await;
    assert_eq!(
        (unknown.status, unknown.text()),
        (404, "Resource not found.")
    );
    for (accept, status, content_type) in [
        ("pson", 200, "pson;charset=UTF-8"),
        ("text/pson", 200, "text/pson;charset=UTF-8"),
        ("text/html", 406, "text/plain; charset=UTF-8"),
    ] {
        let answer = Call::new(&fleet.admin, &line)
            .header("accept", accept)
            .send(&fleet.door)
            .await;
        assert_eq!(
            (answer.status, answer.content_type()),
            (status, content_type),
            "{accept}"
        );
    }
}

#[tokio::test]
async fn listings_are_filtered_and_complete() {
    let fleet = Fleet::of(Setup::STRICT).await;
    for name in ["c-waiting", "a-waiting", "signed", "revoked"] {
        fleet.enrol(&agent(name), name).await;
    }
    fleet.sign("signed").await;
    fleet.sign("revoked").await;
    fleet.revoke("revoked").await;
    let waiting = [
        known("a-waiting", "requested"),
        known("c-waiting", "requested"),
    ];
    let signed = [
        known("countersign-admin", "signed"),
        known("signed", "signed"),
    ];
    assert_eq!(fleet.names("?state=requested").await, waiting);
    assert_eq!(fleet.names("?state=signed").await, signed);
    assert_eq!(
        fleet.names("?state=revoked").await,
        [known("revoked", "revoked")]
    );
    for everything in ["", "?state=", "?state=bogus", "?environment=production"] {
        assert_eq!(fleet.names(everything).await.len(), 5, "{everything}");
    }
    let missing = fleet
        .call(&fleet.admin, &format!("GET {V1}/certificate_statuses/"))
        .await;
    assert_eq!(
        (missing.status, missing.text()),
        (400, "Missing URL Segment")
    );
    let method = fleet
        .call(&fleet.admin, &format!("PUT {V1}/certificate_statuses/x"))
        .await;
    assert_eq!((method.status, method.header("allow")), (405, Some("GET")));
}

#[tokio::test]
async fn a_listing_longer_than_a_page_is_one_array() {
    let fleet = Fleet::of(Setup::STRICT).await;
    let csr = agent("n").sign(keys::ed25519());
    for number in 0..501 {
        let name = format!("n{number:04}");
        let submission = Submission {
            door: &puppet::SPEC,
            key: name,
            csr: CheckedCsr::trusted_from_store(&csr).unwrap(),
            signer: signer_name(PUPPET_AGENT),
            requester: Requester::authority(),
            wishes: Wishes::default(),
            attachment: Vec::new(),
            bearer: None,
            decision: None,
        };
        fleet.authority().requests.submit(submission).await.unwrap();
    }
    let names = fleet.names("").await;
    assert_eq!(names.len(), 502);
    assert_eq!(names[500], known("n0500", "requested"));
    assert_eq!(names[501], known("countersign-admin", "signed"));
}

#[tokio::test]
async fn many_are_signed_at_once() {
    let fleet = Fleet::of(Setup::STRICT).await;
    for name in ["a", "b", "c"] {
        fleet.enrol(&agent(name), name).await;
    }
    fleet.enrol(&agent("wide").dns("x"), "wide").await;
    let post = |path: &'static str, body: &'static str| {
        let call = Call::new(&fleet.admin, &format!("POST {V1}/{path}")).body(body);
        async { call.send(&fleet.door).await }
    };
    let named = post(
        "sign",
        r#"{"certnames":["b","nobody","wide","b","../x","Up"]}"#,
    )
    .await;
    assert_eq!(
        (named.status, named.content_type()),
        (200, "application/json")
    );
    assert_eq!(
        named.text(),
        r#"{"signed":["b"],"no-csr":["nobody","../x","Up"],"signing-errors":["wide"]}"#
    );
    let nothing = r#"{"signed":[],"no-csr":[],"signing-errors":[]}"#;
    for body in [
        "{}",
        "",
        "nonsense",
        r#"{"certnames":null}"#,
        r#"{"certnames":[]}"#,
    ] {
        let answer = post("sign", body).await;
        assert_eq!((answer.status, answer.text()), (200, nothing), "{body}");
    }
    for body in [r#"{"certnames":[42]}"#, r#"{"certnames":"a"}"#] {
        let answer = post("sign", body).await;
        assert_eq!(
            (answer.status, answer.json()["kind"].as_str()),
            (422, Some("schema-violation")),
            "{body}"
        );
    }
    let all = post("sign/all", "{}").await;
    assert_eq!(
        all.text(),
        r#"{"signed":["a","c"],"no-csr":[],"signing-errors":["wide"]}"#
    );
    assert_eq!(
        fleet.names("?state=requested").await,
        [known("wide", "requested")]
    );
}
