//! What anybody may fetch, conditionally or not.

use countersign_pki::{Crl, pem};

use super::{Fleet, V1, agent};
use crate::exchange::Call;
use crate::world::Setup;

#[tokio::test]
async fn chain_and_revocation_list_are_served_unchanged() {
    let fleet = Fleet::of(Setup::STRICT).await;
    let chain = fleet
        .authority()
        .issuers
        .get(&fleet.world.puppet_issuer())
        .unwrap()
        .chain_pem()
        .to_vec();
    // Old agents append an environment, and send what they like as Accept.
    for line in [
        "/certificate/ca",
        "/certificate/ca?environment=production&fail_on_404=true",
    ] {
        let answer = Call::new(&fleet.nobody, &format!("GET {V1}{line}"))
            .header("accept", "s")
            .send(&fleet.door)
            .await;
        assert_eq!((answer.status, answer.content_type()), (200, "text/plain"));
        assert_eq!(answer.body, chain);
    }
    let answer = fleet
        .call(
            &fleet.nobody,
            &format!("GET {V1}/certificate_revocation_list/ca"),
        )
        .await;
    assert_eq!((answer.status, answer.content_type()), (200, "text/plain"));
    let block = pem::decode_first(&answer.body, &pem::PemLimits::REQUEST)
        .unwrap()
        .unwrap();
    assert_eq!(block.label, "X509 CRL");
    assert_eq!(Crl::parse(&block.der).unwrap().number(), Some(0));
}

#[tokio::test]
async fn conditional_requests() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    fleet.enrol(&agent("web01"), "web01").await;
    fleet.world.clock.advance(3600);
    // Everything was written at 03:04:05; now it is 04:04:05.
    for path in [
        "certificate/ca",
        "certificate/web01",
        "certificate_revocation_list/ca",
    ] {
        for (since, status) in [
            ("Fri, 02 Jan 2026 03:04:06 GMT", 304),
            ("02 Jan 2026 04:04:05 GMT", 304),
            ("Fri, 02 Jan 2026 03:04:05 GMT", 200),
            ("Thu, 01 Jan 2026 03:04:05 GMT", 200),
            ("Fri, 02 Jan 2026 04:04:06 GMT", 200),
            ("not a date", 200),
        ] {
            let answer = Call::new(&fleet.nobody, &format!("GET {V1}/{path}"))
                .header("if-modified-since", since)
                .send(&fleet.door)
                .await;
            assert_eq!(
                (answer.status, answer.content_type()),
                (status, "text/plain"),
                "{path} {since}"
            );
            assert_eq!(answer.body.is_empty(), status == 304);
        }
    }
    // A revocation makes the list newer than the agent's copy.
    fleet.revoke("web01").await;
    let answer = Call::new(
        &fleet.nobody,
        &format!("GET {V1}/certificate_revocation_list/ca"),
    )
    .header("if-modified-since", "Fri, 02 Jan 2026 04:00:00 GMT")
    .send(&fleet.door)
    .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn status_calls() {
    let fleet = Fleet::of(Setup::STRICT).await;
    for path in ["simple", "simple/ca", "simple/server", "simple/master"] {
        let answer = fleet
            .call(&fleet.nobody, &format!("GET /status/v1/{path}"))
            .await;
        assert_eq!((answer.status, answer.text()), (200, "running"), "{path}");
        assert_eq!(answer.content_type(), "text/plain; charset=utf-8");
    }
    let unknown = fleet
        .call(&fleet.nobody, "GET /status/v1/simple/jruby")
        .await;
    assert_eq!((unknown.status, unknown.text()), (404, "not found: jruby"));
    let services = fleet
        .call(&fleet.nobody, "GET /status/v1/services?level=info")
        .await;
    assert_eq!(
        (services.status, services.content_type()),
        (200, "application/json; charset=utf-8")
    );
    let mut ca = serde_json::json!({
        "service_version": "8.4.0", "service_status_version": 1, "detail_level": "info",
        "state": "running", "status": {}, "active_alerts": [],
    });
    assert_eq!(services.json(), serde_json::json!({ "ca": ca }));
    ca["service_name"] = "ca".into();
    assert_eq!(
        fleet
            .call(&fleet.nobody, "GET /status/v1/services/ca")
            .await
            .json(),
        ca
    );
    let unknown = fleet.call(&fleet.nobody, "GET /status/v1/services/x").await;
    assert_eq!(
        (unknown.status, unknown.json()["kind"].as_str()),
        (404, Some("service-not-found"))
    );
}
