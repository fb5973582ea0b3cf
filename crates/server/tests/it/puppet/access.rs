//! Who may call what, by which path.

use countersign_authority::store::StoreFault;
use countersign_server::Peer;
use countersign_server::puppet::RequestsShown::ToAnybody;

use super::{Fleet, V1, agent};
use crate::world::{PUPPET_ADMIN, PUPPET_AGENT, Setup};

/// Who, in the columns of the table below: nobody, agent web01, the administrator's mark without the signer's word, the
/// signer's word without the mark, the Kubernetes administrator, the administrator.
async fn callers(fleet: &Fleet) -> [Peer; 6] {
    let agent = fleet.world.puppet_agent("web01").await;
    let marked = fleet.world.as_if_signed_by(PUPPET_AGENT, &fleet.admin);
    let unmarked = fleet.world.as_if_signed_by(PUPPET_ADMIN, &agent);
    let kubernetes = fleet.world.kubernetes_admin().await;
    [
        fleet.nobody.clone(),
        agent,
        marked,
        unmarked,
        kubernetes,
        fleet.admin.clone(),
    ]
}

#[tokio::test]
async fn trust_domains_do_not_mix_and_rules_hold() {
    let fleet = Fleet::of(Setup::STRICT).await;
    fleet.enrol(&agent("waiting"), "waiting").await;
    let callers = callers(&fleet).await;
    for (line, expected) in [
        (
            "GET /puppet-ca/v1/certificate/ca",
            [200, 200, 200, 200, 200, 200],
        ),
        (
            "GET /puppet-ca/v1/certificate/web01",
            [200, 200, 200, 200, 200, 200],
        ),
        (
            "HEAD /puppet-ca/v1/certificate/ca",
            [403, 403, 403, 403, 403, 403],
        ),
        (
            "POST /puppet-ca/v1/certificate/ca",
            [403, 403, 403, 403, 403, 403],
        ),
        (
            "GET /puppet-ca/v1/certificate/a/b",
            [404, 404, 404, 404, 404, 404],
        ),
        (
            "GET /puppet-ca/v1/certificate/a%20b",
            [404, 404, 404, 404, 404, 404],
        ),
        (
            "GET /puppet-ca/v1/certificate_request/waiting",
            [403, 403, 403, 403, 403, 200],
        ),
        (
            "GET /puppet-ca/v1/certificate_request/web01",
            [403, 404, 403, 404, 403, 404],
        ),
        (
            "PUT /puppet-ca/v1/certificate_request/web01",
            [400, 400, 400, 400, 400, 400],
        ),
        (
            "PUT /puppet-ca/v1/certificate_request/%2A",
            [404, 404, 404, 404, 404, 404],
        ),
        (
            "DELETE /puppet-ca/v1/certificate_request/none",
            [403, 403, 403, 403, 403, 404],
        ),
        (
            "GET /puppet-ca/v1/certificate_revocation_list/ca",
            [200, 200, 200, 200, 200, 200],
        ),
        (
            "GET /puppet-ca/v1/certificate_revocation_list/full",
            [200, 200, 200, 200, 200, 200],
        ),
        (
            "GET /puppet-ca/v1/certificate_revocation_list/x",
            [403, 403, 403, 403, 403, 403],
        ),
        (
            "PUT /puppet-ca/v1/certificate_revocation_list",
            [403, 403, 403, 403, 403, 400],
        ),
        (
            "PUT /puppet-ca/v1/certificate_revocation_list/",
            [403, 403, 403, 403, 403, 403],
        ),
        (
            "GET /puppet-ca/v1/certificate_revocation_list",
            [403, 403, 403, 403, 403, 403],
        ),
        (
            "GET /puppet-ca/v1/certificate_status/web01",
            [403, 403, 403, 403, 403, 200],
        ),
        (
            "PUT /puppet-ca/v1/certificate_status/web01",
            [403, 403, 403, 403, 403, 400],
        ),
        (
            "POST /puppet-ca/v1/certificate_status/web01",
            [403, 403, 403, 403, 403, 403],
        ),
        (
            "OPTIONS /puppet-ca/v1/certificate_status/web01",
            [403, 403, 403, 403, 403, 403],
        ),
        (
            "GET /puppet-ca/v1/certificate_statuses/x",
            [403, 403, 403, 403, 403, 200],
        ),
        ("POST /puppet-ca/v1/sign", [403, 403, 403, 403, 403, 200]),
        (
            "POST /puppet-ca/v1/certificate_renewal",
            [403, 404, 404, 404, 403, 404],
        ),
        ("GET /puppet-ca/v1/nothing", [403, 403, 403, 403, 403, 403]),
        ("GET /status/v1/services", [200, 200, 200, 200, 200, 200]),
        ("GET /status/v1/other", [403, 403, 403, 403, 403, 403]),
        ("GET /", [403, 403, 403, 403, 403, 403]),
    ] {
        for (peer, status) in callers.iter().zip(expected) {
            let answer = fleet.call(peer, line).await;
            assert_eq!(answer.status, status, "{line} by {peer:?}");
            assert_eq!(answer.header("x-puppet-version"), Some("8.4.0"), "{line}");
        }
    }
    let forbidden = fleet
        .call(&fleet.nobody, "GET /puppet-ca/v1/certificate_status/web01")
        .await;
    assert_eq!(
        forbidden.text(),
        "Forbidden request: /puppet-ca/v1/certificate_status/web01 (method :get). \
         Please see the server logs for details. This call needs the role read."
    );
    let unruled = fleet.call(&fleet.admin, "GET /").await;
    assert_eq!(
        unruled.text(),
        "Forbidden request: / (method :get). Please see the server logs for details."
    );
    let unrouted = fleet
        .call(&fleet.nobody, "GET /puppet-ca/v1/certificate/a/b")
        .await;
    assert_eq!(
        (unrouted.text(), unrouted.content_type()),
        ("Not Found", "text/html;charset=utf-8")
    );
}

#[tokio::test]
async fn a_revoked_administrator_is_out_on_an_open_connection() {
    let fleet = Fleet::of(Setup::STRICT).await;
    let line = format!("GET {V1}/certificate_statuses/all");
    assert_eq!(fleet.call(&fleet.admin, &line).await.status, 200);
    let revoked = fleet.revoke("countersign-admin?force=true").await;
    assert_eq!(revoked.status, 204, "{}", revoked.text());
    assert_eq!(fleet.call(&fleet.admin, &line).await.status, 403);
    // What anybody may fetch, it still may.
    assert_eq!(
        fleet
            .call(&fleet.admin, &format!("GET {V1}/certificate/ca"))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn an_administrator_whose_certificate_ended_is_out() {
    let fleet = Fleet::of(Setup::STRICT).await;
    fleet.world.clock.advance(5 * 365 * 86_400 + 1);
    assert_eq!(
        fleet
            .call(&fleet.admin, &format!("GET {V1}/certificate_statuses/all"))
            .await
            .status,
        403
    );
}

#[tokio::test]
async fn hostile_paths() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    fleet.enrol(&agent("web01"), "web01").await;
    for (path, status) in [
        ("//puppet-ca//v1/certificate///web01", 200),
        ("/puppet-ca/v1/certificate/web01;x=/../y", 200),
        ("/puppet-ca/v1/certificate/%77eb01", 200),
        ("/puppet-ca/v1/certificate/%2577eb01", 404),
        ("/puppet-ca/v1/certificate%2Fweb01", 200),
        ("/puppet-ca/v1/certificate/../certificate_status/web01", 400),
        (
            "/puppet-ca/v1/certificate/%2e%2e/certificate_status/web01",
            400,
        ),
        (
            "/puppet-ca/v1/certificate/..%2fcertificate_status%2fweb01",
            400,
        ),
        ("/puppet-ca/v1/certificate//certificate_status/web01", 404),
        ("/puppet-ca/v1/certificate/./web01", 400),
        ("/puppet-ca/v1/certificate/web01%00", 404),
        ("/puppet-ca/v1/certificate/web01%0a", 404),
        ("/puppet-ca/v1/certificate/%ff", 400),
        ("/puppet-ca/v1/certificate/%zz", 400),
        ("/puppet-ca/v1/certificate/%", 400),
        ("/puppet-ca/v1/CERTIFICATE/web01", 403),
        ("/PUPPET-CA/v1/certificate/web01", 403),
        ("/puppet-ca/v1%2f%2e%2e%2fstatus/v1/simple", 400),
        ("/puppet-ca/v1/certificate_status%2fweb01", 403),
        ("/puppet-ca/v1/certificate_status;/web01", 403),
        ("/puppet-ca/v1/%1b[31m", 403),
    ] {
        let answer = fleet.call(&fleet.nobody, &format!("GET {path}")).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(!answer.text().contains(['\u{1b}', '\0']), "{path}");
    }
    let long = format!("GET {V1}/certificate/{}", "a".repeat(16_000));
    assert_eq!(fleet.call(&fleet.nobody, &long).await.status, 404);
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_an_error_and_nobody_learns_which() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    let running = |state: &str, status: u16| {
        let state = state.to_owned();
        [
            ("/status/v1/simple", status, state.clone()),
            ("/status/v1/simple/ca", status, state.clone()),
            ("/status/v1/simple/server", status, state),
        ]
    };
    for (path, status, body) in running("running", 200) {
        let answer = fleet.call(&fleet.nobody, &format!("GET {path}")).await;
        assert_eq!((answer.status, answer.text()), (status, &*body), "{path}");
    }
    fleet.world.store.set(Some(|| StoreFault::Full));
    for (path, status, body) in running("error", 503) {
        let answer = fleet.call(&fleet.nobody, &format!("GET {path}")).await;
        assert_eq!((answer.status, answer.text()), (status, &*body), "{path}");
    }
    let services = fleet.call(&fleet.nobody, "GET /status/v1/services").await;
    assert_eq!(services.status, 503);
    assert_eq!(services.json()["ca"]["state"], "error");
    let ca = fleet
        .call(&fleet.nobody, "GET /status/v1/services/ca")
        .await;
    assert_eq!((ca.status, &ca.json()["state"]), (503, &"error".into()));

    let put = fleet.enrol(&agent("web01"), "web01").await;
    assert_eq!(put.status, 503);
    assert_eq!(
        put.text(),
        "Service Unavailable: the authority cannot use its store at the moment"
    );
    fleet.world.store.set(None);
    assert_eq!(fleet.enrol(&agent("web01"), "web01").await.status, 200);
}

/// Where requests are public, everybody sees the same of them, and only of those that hold no secret.
#[tokio::test]
async fn public_requests_are_shown_to_anybody_unless_they_may_hold_a_secret() {
    let public = |door: countersign_server::puppet::PuppetDoor| door.with_requests_shown(ToAnybody);
    let fleet = Fleet::behind(Setup::STRICT, public).await;
    fleet.enrol(&agent("plain"), "plain").await;
    let secret = agent("secret").challenge_password("let-me-in");
    fleet.enrol(&secret, "secret").await;
    let callers = callers(&fleet).await;
    for (line, expected) in [
        ("GET /puppet-ca/v1/certificate_request/plain", [200; 6]),
        (
            "GET /puppet-ca/v1/certificate_request/secret",
            [404, 404, 404, 404, 404, 200],
        ),
        ("GET /puppet-ca/v1/certificate_request/absent", [404; 6]),
        (
            "HEAD /puppet-ca/v1/certificate_request/plain",
            [403, 403, 403, 403, 403, 403],
        ),
        (
            "DELETE /puppet-ca/v1/certificate_request/absent",
            [403, 403, 403, 403, 403, 404],
        ),
        (
            "GET /puppet-ca/v1/certificate_requests",
            [403, 403, 403, 403, 403, 404],
        ),
    ] {
        let mut found = Vec::new();
        for caller in &callers {
            found.push(fleet.call(caller, line).await.status);
        }
        assert_eq!(found, expected, "{line}");
    }
}
