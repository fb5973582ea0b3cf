//! Nobody is served but hosts on the list.

use countersign_authority::Actor;
use countersign_pki::RevocationReason;
use countersign_server::Peer;

use super::{FOREMAN, Site};
use crate::exchange::{Answer, Call};

/// Every call there is, and one that there is not.
const CALLS: [&str; 12] = [
    "GET /puppet/ca",
    "GET /puppet/ca/autosign",
    "POST /puppet/ca/autosign/web01",
    "DELETE /puppet/ca/autosign/web01",
    "POST /puppet/ca/validate",
    "POST /puppet/ca/web01",
    "DELETE /puppet/ca/web01",
    "GET /features",
    "GET /v2/features",
    "GET /version",
    "PUT /puppet/ca/web01",
    "GET /",
];

async fn every_call(site: &Site, peer: &Peer) -> Vec<Answer> {
    let mut answers = Vec::new();
    for line in CALLS {
        answers.push(site.call_from(peer, line).await);
    }
    answers
}

#[track_caller]
fn all_forbidden(answers: &[Answer], sentence: &str) {
    for (answer, line) in answers.iter().zip(CALLS) {
        assert_eq!(answer.status, 403, "{line}: {}", answer.text());
        assert_eq!(answer.content_type(), "text/plain; charset=utf-8", "{line}");
        assert!(answer.text().contains(sentence), "{}", answer.text());
    }
}

#[tokio::test]
async fn strangers_agents_and_administrators_are_refused_everywhere() {
    let site = Site::start().await;
    let agent = site.world.puppet_agent("web01").await;
    let kubernetes = site.world.kubernetes_admin().await;
    for (peer, sentence) in [
        (
            &site.world.anonymous(),
            "No client SSL certificate supplied",
        ),
        (&agent, "Untrusted client web01 attempted to access /"),
        // Somebody who may do everything elsewhere may do nothing here.
        (&site.admin, "Check foreman.trusted_hosts"),
        (&kubernetes, "does not count here"),
    ] {
        all_forbidden(&every_call(&site, peer).await, sentence);
    }
}

#[tokio::test]
async fn an_empty_list_refuses_every_caller_and_changes_are_in_force_at_once() {
    let site = Site::start().await;
    assert_eq!(site.call("GET /features").await.status, 200);
    site.trusted.set(&[]);
    all_forbidden(&every_call(&site, &site.foreman).await, "Untrusted client");
    site.trusted.set(&[FOREMAN.to_owned()]);
    assert_eq!(site.call("GET /features").await.status, 200);
}

#[tokio::test]
async fn a_revoked_certificate_ends_with_the_revocation() {
    let site = Site::start().await;
    let issuer = site.world.puppet_issuer();
    let authority = &site.world.authority;
    let (reason, actor) = (RevocationReason::KeyCompromise, Actor::authority());
    let revoked = authority
        .ledger
        .revoke_name(&issuer, FOREMAN, reason, &actor);
    revoked.await.unwrap();
    all_forbidden(
        &every_call(&site, &site.foreman).await,
        "does not count here",
    );
}

#[tokio::test]
async fn what_is_not_served_is_text_and_secrets_in_paths_are_not_repeated() {
    let site = Site::start().await;
    for line in [
        "PUT /puppet/ca/web01",
        "GET /puppet/ca/web01",
        "GET /puppet/ca/validate",
        "GET /puppet-ca/v1/certificate/ca",
        "GET /",
    ] {
        let answer = site.call(line).await;
        assert_eq!(answer.status, 404, "{line}");
        assert!(answer.content_type().starts_with("text/plain"), "{line}");
    }
    let token = countersign_testkit::csr::TOKEN;
    let secret = token.split('.').nth(2).unwrap();
    let agent = site.world.puppet_agent("web01").await;
    for line in [
        format!("POST /puppet/ca/autosign/{token}"),
        format!("POST /puppet/ca/{token}"),
        format!("DELETE /puppet/ca/autosign/{token}"),
        format!("DELETE /puppet/ca/{token}"),
        format!("GET /{}", token.replacen('.', "%2e", 1)),
        format!("DELETE /puppet/ca/{}", token.replace('.', "%2E")),
        format!("DELETE /puppet/ca/{}", token.replacen('.', "%252e", 1)),
        format!("POST /puppet/ca/{}", token.replacen('.', "%252e", 1)),
        format!(
            "POST /puppet/ca/autosign/{}",
            token.replacen("ott1", "%256ftt1", 1)
        ),
    ] {
        for peer in [&site.foreman, &agent] {
            let answer = site.call_from(peer, &line).await;
            assert!(!answer.text().contains(secret), "{line}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn bodies_and_rates_are_bounded() {
    let site = Site::start().await;
    let long = Call::new(&site.foreman, "POST /puppet/ca/validate").body(vec![b'x'; 64 * 1024 + 1]);
    let answer = long.send(&site.proxy).await;
    assert_eq!(answer.status, 413, "{}", answer.text());
    let mut last = site.validate("").await;
    for _ in 0..100 {
        last = site.validate("").await;
    }
    assert_eq!(last.status, 429, "{}", last.text());
    assert!(last.header("retry-after").is_some());
    // What Foreman does besides goes on.
    assert_eq!(site.call("GET /puppet/ca").await.status, 200);
}
