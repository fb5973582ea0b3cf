//! What must not happen to enrolment tokens, whatever others do meanwhile.

use std::sync::Arc;
use std::time::Duration;

use countersign_authority::{RequestState, SubmitFault, TokenOrder, TokenText, Validation};
use countersign_pki::{CheckedCsr, Oid, RevocationReason, ext};
use countersign_policy::{Identity, ReasonCode, Requester, TokenBinding};

use crate::site::{Site, agent, allow, kept, new_key, silence};
use crate::tokens::{N1, N2, TOKEN_RULE, bringing, csr_with, enable, token_site};
use crate::world::{TEST, act, agent_signer, issuer_id, with_csr};

async fn validated(site: &Site, csr: CheckedCsr) -> Validation {
    let (signer, caller) = (agent_signer(), act("").actor.requester);
    let said = site
        .authority()
        .tokens
        .validate(&TEST, csr, &signer, caller);
    said.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_who_is_being_judged_does_not_keep_the_holder_waiting() {
    let rules = "- {name: token, approve: {token: {}}}\n- {name: slow, approve: {executable: {path: FOLDER/slow, timeout: 20s}}}";
    let site = Arc::new(token_site(rules).await);
    site.program("slow", "sleep 5; exit 1");
    let token = site.mint(TokenOrder::exact(N1)).await;
    let stranger = {
        let site = Arc::clone(&site);
        tokio::spawn(async move {
            site.authority()
                .requests
                .submit(agent(N1, &new_key()))
                .await
        })
    };
    let runs = async {
        while site.runs().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ran = tokio::time::timeout(Duration::from_secs(10), runs).await;
    ran.expect("the program did not run");
    let issued = site.ask(bringing(N1, &new_key(), &token)).await;
    assert_eq!(issued.state, RequestState::Issued);
    assert!(!stranger.is_finished());
    let stranger = stranger.await.unwrap();
    assert!(
        matches!(stranger, Err(SubmitFault::Duplicate { .. })),
        "{stranger:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_while_rules_are_asked() {
    let rules =
        "- {name: both, approve: {token: {}, webhook: {url: 'https://decider.example.com/v'}}}";
    let site = token_site(rules).await;
    site.deciders.say(allow(None));
    let order = TokenOrder {
        ttl_seconds: Some(60),
        ..TokenOrder::exact(N1)
    };
    let token = site.mint(order).await;
    let clock = Arc::clone(&site.world.clock);
    site.deciders
        .meanwhile(move || Box::pin(async move { clock.advance(61) }));
    let late = site.ask(bringing(N1, &new_key(), &token)).await;
    assert_eq!(
        (late.state, late.explanation.code.as_str()),
        (RequestState::Denied, "token_expired")
    );
    assert_eq!(site.token(token.id()).await.listed.record.uses, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_went_back_brings_no_token_back() {
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    site.world.clock.advance(3600);
    // Anything that is written says what time it is.
    site.ask(agent(N2, &new_key())).await;
    site.world.clock.advance(-301);
    let refused = site.ask(bringing(N1, &new_key(), &token)).await;
    assert_eq!(
        (refused.state, refused.explanation.code.as_str()),
        (RequestState::Undecided, "store_unavailable")
    );
    let bearer = site.authority().tokens.bearer(token.expose()).await;
    assert_eq!(bearer.unwrap(), None);
    assert_eq!(site.token(token.id()).await.listed.record.uses, 0);
    let site = site.restart(TOKEN_RULE).await;
    enable(site.authority());
    let refused = site.ask(bringing(N1, &new_key(), &token)).await;
    assert_eq!(refused.state, RequestState::Undecided);
    site.world.clock.advance(1);
    let issued = site.ask(bringing(N1, &new_key(), &token)).await;
    assert_eq!(issued.state, RequestState::Issued);
}

#[tokio::test(flavor = "multi_thread")]
async fn validation_follows_the_rules_and_knows_no_reserved_names() {
    let rules = "- {name: not-this, deny: {allowlist: {names: [bad.example.com]}}}\n- {name: token, approve: {token: {}}}";
    let site = token_site(rules).await;
    let glob = TokenOrder {
        max_uses: Some(9),
        ..TokenOrder::bound(TokenBinding::Glob("*.example.com".to_owned()))
    };
    let token = site.mint(glob).await;
    let key = new_key();
    for (name, reason) in [
        ("ca.example.com", "reserved_name"),
        ("bad.example.com", "allowlist"),
    ] {
        let csr = csr_with(name, &key, &token, &[]);
        let said = validated(&site, csr);
        let Validation::Refused { id, reason: told } = said.await else {
            panic!("{name} was approved");
        };
        assert_eq!(told.as_str(), reason, "{name}");
        assert_eq!(site.record(id).await.state, RequestState::Denied);
    }
    assert_eq!(site.token(token.id()).await.listed.record.uses, 0);
    // What was signed here is not signed elsewhere as well.
    let issued = site.ask(bringing(N1, &key, &token)).await;
    assert_eq!(issued.state, RequestState::Issued);
    let csr = csr_with(N1, &key, &token, &[]);
    let said = validated(&site, csr);
    assert!(
        matches!(said.await, Validation::Refused { reason, .. } if reason == ReasonCode::TokenExhausted)
    );
    // What was validated and cleaned away since is not validated again.
    let token = site.mint(TokenOrder::exact(N2)).await;
    let validate = || validated(&site, csr_with(N2, &key, &token, &[]));
    assert_eq!(validate().await, Validation::Approved);
    assert_eq!(validate().await, Validation::Approved);
    let (issuer, admin) = (issuer_id(), act("").actor);
    let names = vec![N2.to_owned()];
    let cleaned =
        site.authority()
            .ledger
            .clean(&issuer, names, RevocationReason::KeyCompromise, &admin);
    cleaned.await.unwrap();
    assert!(
        matches!(validate().await, Validation::Refused { reason, .. } if reason == ReasonCode::TokenRevoked)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waited_replaces_what_its_token_may_replace() {
    let rules =
        "- {name: both, approve: {token: {}, webhook: {url: 'https://decider.example.com/v'}}}";
    let site = token_site(rules).await;
    site.deciders.say(allow(None));
    let token = site.mint(TokenOrder::exact("alice")).await;
    let bearing = async |object: &str, token: &TokenText| {
        let mut asking = kept(object, crate::world::csr(&new_key(), "alice", &[]));
        asking.requester = Requester {
            identity: Identity::User {
                username: format!("system:bootstrap:{}", token.id()),
                groups: Vec::new(),
                uid: String::new(),
                extra: Default::default(),
            },
            source: None,
        };
        let bearer = site.authority().tokens.bearer(token.expose()).await;
        asking.bearer = bearer.unwrap();
        assert!(asking.bearer.is_some());
        asking
    };
    let old = site.ask(bearing("csr-1", &token).await).await;
    let (issuer, serial) = old.certificate.unwrap();
    let order = TokenOrder {
        allow_replace: true,
        ..TokenOrder::exact("alice")
    };
    let token = site.mint(order).await;
    site.deciders.say(silence());
    let waiting = site.ask(bearing("csr-2", &token).await).await;
    assert_eq!(waiting.state, RequestState::Pending);
    assert!(!site.authority().ledger.is_revoked(&issuer, &serial));
    site.deciders.say(allow(None));
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        1
    );
    assert_eq!(site.record(waiting.id).await.state, RequestState::Issued);
    assert!(site.authority().ledger.is_revoked(&issuer, &serial));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_an_extension_that_is_copied_is_not_signed() {
    let site = token_site("- {name: a, approve: {always: {}}}").await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let role = Oid::parse("1.3.6.1.4.1.34380.1.1.13").unwrap();
    let role = ext::utf8_extension(role, token.expose(), false);
    let other = site.mint(TokenOrder::exact(N2)).await;
    let asked = site
        .ask(with_csr(N2, csr_with(N2, &new_key(), &other, &[role])))
        .await;
    assert_eq!(
        (asked.state, asked.explanation.code.as_str()),
        (RequestState::Pending, "unsignable")
    );
    let secret = token.expose().split('.').nth(2).unwrap();
    assert!(!format!("{asked:?}").contains(secret));
}
