//! Enrolment tokens, as their acceptance cases say.

use std::sync::Arc;

use countersign_authority::{
    Authority, OnWaiting, Signer, Submission, SubmitFault, TokenDetail, TokenId, TokenOrder,
    TokenSettings, TokenStatus, TokenText, Validation,
};
use countersign_authority::{RequestRecord, RequestState};
use countersign_keys::LeafKey;
use countersign_pki::{
    AltName, Attribute, Carrier, CheckedCsr, CsrLimits, Extension, Oid, RawValue, RevocationReason,
    StringKind, SubjectBuilder, ext, oid,
};
use countersign_policy::{Identity, ReasonCode, Requester, TokenBinding, TokenUseState};

use crate::profiles;
use crate::site::{Site, agent, allow, kept, new_key, silence};
use crate::world::{TEST, act, agent_signer, issuer_id, with_csr};

pub(crate) const N1: &str = "n1.example.com";
pub(crate) const N2: &str = "n2.example.com";
pub(crate) const TOKEN_RULE: &str = "- {name: token, approve: {token: {}}}";

/// A site where tokens are in use.
pub(crate) async fn token_site(rules: &str) -> Site {
    let site = Site::new(rules).await;
    enable(site.authority());
    site
}

pub(crate) fn enable(authority: &Authority) {
    authority.set_rules(authority.rules().with_tokens(settings()));
}

pub(crate) fn settings() -> TokenSettings {
    TokenSettings {
        enabled: true,
        ..TokenSettings::standard()
    }
}

impl Site {
    pub(crate) async fn mint(&self, order: TokenOrder) -> TokenText {
        let admin = act("").actor;
        let minted = self.authority().tokens.mint(order, &admin, None).await;
        minted.unwrap().token
    }

    pub(crate) async fn token(&self, id: &TokenId) -> TokenDetail {
        self.authority().tokens.get(id).await.unwrap().unwrap()
    }

    async fn status(&self, token: &TokenText) -> TokenStatus {
        self.token(token.id()).await.listed.status
    }

    /// The codes and token ids of what the audit log says was rejected.
    async fn rejected_tokens(&self) -> Vec<(String, Option<String>)> {
        let told = self.told("token.rejected").await.into_iter();
        told.map(|(_, entry)| (entry.reason.into_owned(), entry.token))
            .collect()
    }
}

/// A request of a key with a token in its challenge password.
pub(crate) fn bringing(name: &str, key: &LeafKey, token: &TokenText) -> Submission {
    with_csr(name, csr_with(name, key, token, &[]))
}

pub(crate) fn csr_with(
    name: &str,
    key: &LeafKey,
    token: &TokenText,
    extensions: &[Extension],
) -> CheckedCsr {
    csr_with_text(name, key, token.expose(), extensions)
}

/// A request with anything in its challenge password.
pub(crate) fn csr_with_text(
    name: &str,
    key: &LeafKey,
    text: &str,
    extensions: &[Extension],
) -> CheckedCsr {
    let subject = SubjectBuilder::new().push(oid::COMMON_NAME, name, StringKind::Utf8);
    let text = text.as_bytes();
    let value = [&[0x13, u8::try_from(text.len()).unwrap()], text].concat();
    let password = Attribute {
        oid: oid::CHALLENGE_PASSWORD,
        values: vec![RawValue::from_der(&value).unwrap()],
    };
    let der = key.signed_request(&subject.build(), extensions, &[password]);
    CheckedCsr::check(&der.unwrap(), &CsrLimits::STANDARD).unwrap()
}

fn alt_names(names: &[&str]) -> Extension {
    let names: Vec<_> = names
        .iter()
        .map(|n| AltName::Dns((*n).to_owned()))
        .collect();
    ext::subject_alt_name(&names, false)
}

async fn serial_of(site: &Site, record: &RequestRecord) -> String {
    let (issuer, serial) = record.certificate.clone().unwrap();
    let entry = site.authority().ledger.get(&issuer, &serial).await;
    entry.unwrap().unwrap().serial.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a01_a02_a_token_signs_once_and_its_key_may_ask_again() {
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    assert_eq!(site.status(&token).await, TokenStatus::Active);
    let key = new_key();
    let first = site.ask(bringing(N1, &key, &token)).await;
    assert_eq!(first.state, RequestState::Issued);
    let serial = serial_of(&site, &first).await;
    let used = first.explanation.token.clone().unwrap();
    assert_eq!(
        (used.id.as_str(), used.certname.as_str()),
        (token.id().as_str(), N1)
    );
    let detail = site.token(token.id()).await;
    assert_eq!(detail.listed.record.uses, 1);
    assert_eq!(detail.listed.status, TokenStatus::Issued);
    assert_eq!(detail.uses[0].state, TokenUseState::Issued);
    assert_eq!(detail.uses[0].serial.unwrap().to_string(), serial);
    let consumed = site.told("token.consumed").await;
    let [(_, entry)] = consumed.as_slice() else {
        panic!("{consumed:?}");
    };
    assert_eq!(entry.token.as_deref(), Some(token.id().as_str()));
    assert_eq!(entry.serial.as_deref(), Some(serial.as_str()));
    assert_eq!(
        entry.spki_sha256.as_deref(),
        Some(&*first.key_fingerprint.to_hex())
    );

    site.world.clock.advance(10);
    let again = site
        .authority()
        .requests
        .submit(bringing(N1, &key, &token))
        .await
        .unwrap();
    assert_eq!(
        (again.state, again.code.as_str()),
        (RequestState::Issued, "token_retry")
    );
    assert_eq!(site.certificates(N1).await, 1);
    assert_eq!(site.token(token.id()).await.listed.record.uses, 1);
    let retries = site.told("token.retry").await;
    assert_eq!(retries.len(), 1);
    assert_eq!(retries[0].1.serial.as_deref(), Some(serial.as_str()));

    // Also with other wishes: what it had is what it gets, and that is told.
    let wishes = with_csr(N1, csr_with(N1, &key, &token, &[alt_names(&[N1])]));
    site.authority().requests.submit(wishes).await.unwrap();
    assert_eq!(site.certificates(N1).await, 1);
    let told = site.told("token.retry").await;
    assert!(told[1].1.detail.contains("something else"), "{told:?}");

    // After its time the token says nothing, but the certificate is the key's all the same.
    site.world.clock.advance(1801);
    let late = site
        .authority()
        .requests
        .submit(bringing(N1, &key, &token))
        .await
        .unwrap();
    assert_eq!(late.state, RequestState::Issued);
    assert_eq!(site.told("token.retry").await.len(), 2);
    assert_eq!(site.status(&token).await, TokenStatus::Exhausted);

    // What was revoked or cleaned away is not to be had again.
    let admin = act("").actor;
    let issuer = issuer_id();
    let cleaned = site.authority().ledger.clean(
        &issuer,
        vec![N1.to_owned()],
        RevocationReason::KeyCompromise,
        &admin,
    );
    cleaned.await.unwrap();
    let gone = site.ask(bringing(N1, &key, &token)).await;
    assert_eq!(
        (gone.state, gone.explanation.code.as_str()),
        (RequestState::Denied, "token_exhausted")
    );
    assert_eq!(site.certificates(N1).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a03_another_key_is_told_no_even_after_the_end() {
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let first = site.ask(bringing(N1, &new_key(), &token)).await;
    for seconds in [0, 7 * 86_400] {
        site.world.clock.advance(seconds);
        let thief = site.ask(bringing(N1, &new_key(), &token)).await;
        assert_eq!(thief.state, RequestState::Denied);
        assert_eq!(thief.explanation.code.as_str(), "token_key_mismatch");
    }
    assert_eq!(site.certificates(N1).await, 1);
    let kept = site.record(first.id).await;
    assert_eq!(kept.state, RequestState::Issued);
    let rejected = site.rejected_tokens().await;
    let expected = (
        "token_key_mismatch".to_owned(),
        Some(token.id().to_string()),
    );
    assert_eq!(rejected, [expected.clone(), expected]);
    // One that was used is never locked.
    for _ in 0..6 {
        site.ask(bringing(N1, &new_key(), &token)).await;
    }
    assert!(site.told("token.locked").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a04_a_token_of_one_name_is_nothing_to_another() {
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let other = site.ask(bringing(N2, &new_key(), &token)).await;
    assert_eq!(
        (other.state, other.explanation.code.as_str()),
        (RequestState::Denied, "token_certname_mismatch")
    );
    assert_eq!(site.token(token.id()).await.listed.record.failed_uses, 1);
    assert_eq!(site.status(&token).await, TokenStatus::Active);
    let rightful = site.ask(bringing(N1, &new_key(), &token)).await;
    assert_eq!(rightful.state, RequestState::Issued);
}

#[tokio::test(flavor = "multi_thread")]
async fn a05_an_expired_token_is_not_used() {
    let site = token_site(TOKEN_RULE).await;
    let order = TokenOrder {
        ttl_seconds: Some(60),
        ..TokenOrder::exact(N1)
    };
    let token = site.mint(order).await;
    site.world.clock.advance(61);
    let late = site.ask(bringing(N1, &new_key(), &token)).await;
    assert_eq!(
        (late.state, late.explanation.code.as_str()),
        (RequestState::Denied, "token_expired")
    );
    assert_eq!(site.token(token.id()).await.listed.record.uses, 0);
    assert_eq!(site.status(&token).await, TokenStatus::Expired);
}

#[tokio::test(flavor = "multi_thread")]
async fn five_misuses_lock_a_token() {
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    for _ in 0..5 {
        let other = site.ask(bringing(N2, &new_key(), &token)).await;
        assert_eq!(other.explanation.code.as_str(), "token_certname_mismatch");
    }
    assert_eq!(site.status(&token).await, TokenStatus::Locked);
    assert_eq!(site.told("token.locked").await.len(), 1);
    let locked = site.ask(bringing(N1, &new_key(), &token)).await;
    assert_eq!(
        (locked.state, locked.explanation.code.as_str()),
        (RequestState::Denied, "token_locked")
    );
    // A wrong secret locks nobody out: its id is public.
    let token = site.mint(TokenOrder::exact(N1)).await;
    let id: [u8; 10] = data_of(token.id().as_str());
    for byte in 0..8 {
        let forged = TokenText::new(id, [byte; 32]);
        let refused = site.ask(bringing(N1, &new_key(), &forged)).await;
        assert_eq!(refused.explanation.code.as_str(), "token_unknown");
    }
    assert_eq!(site.status(&token).await, TokenStatus::Active);
}

/// The bytes of a base32 text.
fn data_of(text: &str) -> [u8; 10] {
    let alphabet = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bits = 0_u128;
    for byte in text.bytes() {
        let five = alphabet.iter().position(|b| *b == byte).unwrap();
        bits = (bits << 5) | five as u128;
    }
    bits.to_be_bytes()[6..].try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a09_alternative_names_must_be_listed() {
    let site = token_site(TOKEN_RULE).await;
    let mut settings = crate::world::settings();
    settings.alt_names = countersign_authority::profile::OtherNames::DnsAndIp;
    site.authority()
        .set_rules(site.authority().rules().with_signers(vec![Signer {
            name: agent_signer(),
            profile: profiles::agent(settings),
            issuer: issuer_id(),
            one_certificate_per_name: true,
            administrators_only: false,
            on_waiting: OnWaiting::Refuse,
        }]));
    let token = site.mint(TokenOrder::exact(N1)).await;
    let key = new_key();
    let more = with_csr(
        N1,
        csr_with(N1, &key, &token, &[alt_names(&[N1, "alias.example.com"])]),
    );
    let more = site.ask(more).await;
    assert_eq!(
        (more.state, more.explanation.code.as_str()),
        (RequestState::Denied, "token_san_not_allowed")
    );
    let detail = site.token(token.id()).await.listed;
    assert_eq!(
        (detail.status, detail.record.failed_uses),
        (TokenStatus::Active, 1)
    );
    let order = TokenOrder {
        allowed_sans: vec!["DNS:Alias.example.com".to_owned()],
        ..TokenOrder::exact(N1)
    };
    let token = site.mint(order).await;
    let csr = csr_with(N1, &key, &token, &[alt_names(&[N1, "alias.example.com"])]);
    assert_eq!(
        site.ask(with_csr(N1, csr)).await.state,
        RequestState::Issued
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_without_a_token_it_waits_and_is_seen() {
    let site = token_site(TOKEN_RULE).await;
    let waiting = site.ask(agent(N1, &new_key())).await;
    assert_eq!(
        (waiting.state, waiting.explanation.code.as_str()),
        (RequestState::Pending, "token_missing")
    );
    let seen = site.rejections().await;
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].explanation.code.as_str(), "token_missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a14_unknown_and_wrong_are_one() {
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let wrong = TokenText::new(data_of(token.id().as_str()), [7; 32]);
    let unknown = TokenText::new([9; 10], [7; 32]);
    for token in [wrong, unknown] {
        let refused = site.ask(bringing(N1, &new_key(), &token)).await;
        assert_eq!(
            (refused.state, refused.explanation.code.as_str()),
            (RequestState::Denied, "token_unknown")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a20_minting_again_supersedes() {
    let site = token_site(TOKEN_RULE).await;
    let first = site.mint(TokenOrder::exact(N1)).await;
    let second = site.mint(TokenOrder::exact(N1)).await;
    assert_eq!(site.status(&first).await, TokenStatus::Revoked);
    let kept = TokenOrder {
        keep_existing: true,
        ..TokenOrder::exact(N1)
    };
    site.mint(kept).await;
    assert_eq!(site.status(&second).await, TokenStatus::Active);
    let key = new_key();
    let old = site.ask(bringing(N1, &key, &first)).await;
    assert_eq!(old.explanation.code.as_str(), "token_revoked");
    assert_eq!(
        site.ask(bringing(N1, &key, &second)).await.state,
        RequestState::Issued
    );
    let superseded = site.told("token.superseded").await;
    assert_eq!(superseded.len(), 1);
    assert_eq!(superseded[0].1.token.as_deref(), Some(first.id().as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a23_a_valid_token_takes_the_place_of_a_stranger_who_waits() {
    let site = token_site(TOKEN_RULE).await;
    let stranger = site.ask(agent(N1, &new_key())).await;
    assert_eq!(stranger.state, RequestState::Pending);
    let token = site.mint(TokenOrder::exact(N1)).await;
    let key = new_key();
    let rightful = site.ask(bringing(N1, &key, &token)).await;
    assert_eq!(rightful.state, RequestState::Issued);
    assert!(
        site.authority()
            .requests
            .get(stranger.id)
            .await
            .unwrap()
            .is_none()
    );
    let replaced = site.told("replace").await;
    let entry = &replaced[0].1;
    assert_eq!(
        entry.spki_sha256.as_deref(),
        Some(&*stranger.key_fingerprint.to_hex())
    );
    assert!(entry.detail.contains(&rightful.key_fingerprint.to_hex()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a26_a_token_for_a_domain() {
    let site = token_site(TOKEN_RULE).await;
    let order = TokenOrder {
        max_uses: Some(2),
        ..TokenOrder::bound(TokenBinding::Glob("*.dmz.example.com".to_owned()))
    };
    let token = site.mint(order).await;
    for (name, code) in [
        ("dmz.example.com", "token_certname_mismatch"),
        ("a.dmz.example.com", "token"),
        ("x.b.dmz.example.com", "token"),
        ("c.dmz.example.com", "token_exhausted"),
    ] {
        let asked = site.ask(bringing(name, &new_key(), &token)).await;
        assert_eq!(asked.explanation.code.as_str(), code, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_certificate_is_replaced_only_if_the_token_says_so() {
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let old = site.ask(bringing(N1, &new_key(), &token)).await;
    let (issuer, serial) = old.certificate.unwrap();
    let token = site.mint(TokenOrder::exact(N1)).await;
    let key = new_key();
    let refused = site.ask(bringing(N1, &key, &token)).await;
    assert_eq!(
        (refused.state, refused.explanation.code.as_str()),
        (RequestState::Denied, "existing_certificate")
    );
    let order = TokenOrder {
        allow_replace: true,
        ..TokenOrder::exact(N1)
    };
    let token = site.mint(order).await;
    let new = site.ask(bringing(N1, &key, &token)).await;
    assert_eq!(new.state, RequestState::Issued);
    assert!(site.authority().ledger.is_revoked(&issuer, &serial));
    let newest = site
        .authority()
        .ledger
        .newest(&issuer, N1)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        Some((newest.issuer.clone(), newest.serial)),
        new.certificate
    );
    assert!(newest.revoked.is_none());
    let entry = site
        .authority()
        .ledger
        .get(&issuer, &serial)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(entry.revoked.unwrap().reason, RevocationReason::Superseded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_approves_uses_the_token_up() {
    let rules =
        "- {name: both, approve: {token: {}, webhook: {url: 'https://decider.example.com/v'}}}";
    let site = token_site(rules).await;
    site.deciders.say(crate::site::pend());
    let token = site.mint(TokenOrder::exact(N1)).await;
    let key = new_key();
    let waiting = site.ask(bringing(N1, &key, &token)).await;
    assert_eq!(waiting.state, RequestState::Pending);
    assert_eq!(site.status(&token).await, TokenStatus::Active);
    let approved = site.authority().requests.approve(act(N1)).await.unwrap();
    assert_eq!(approved.state, RequestState::Issued);
    assert_eq!(site.status(&token).await, TokenStatus::Issued);
    assert_eq!(site.told("token.consumed").await.len(), 1);
    // Deleting a request leaves its token alone.
    let token = site.mint(TokenOrder::exact(N2)).await;
    site.ask(bringing(N2, &key, &token)).await;
    site.authority().requests.delete(act(N2)).await.unwrap();
    assert_eq!(site.status(&token).await, TokenStatus::Active);
}

#[tokio::test(flavor = "multi_thread")]
async fn a17_a_silent_webhook_leaves_the_token_alone() {
    let rules =
        "- {name: both, approve: {token: {}, webhook: {url: 'https://decider.example.com/v'}}}";
    let site = token_site(rules).await;
    site.deciders.say(silence());
    let token = site.mint(TokenOrder::exact(N1)).await;
    let key = new_key();
    let undecided = site.ask(bringing(N1, &key, &token)).await;
    assert_eq!(
        (undecided.state, undecided.explanation.code.as_str()),
        (RequestState::Undecided, "webhook_error")
    );
    assert_eq!(site.status(&token).await, TokenStatus::Active);
    site.deciders.say(allow(None));
    assert_eq!(
        site.ask(bringing(N1, &key, &token)).await.state,
        RequestState::Issued
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cleaning_a_name_takes_its_tokens_back() {
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let admin = act("").actor;
    let issuer = issuer_id();
    let cleaned = site.authority().ledger.clean(
        &issuer,
        vec![N1.to_owned()],
        RevocationReason::KeyCompromise,
        &admin,
    );
    assert_eq!(cleaned.await.unwrap(), [N1]);
    assert_eq!(site.status(&token).await, TokenStatus::Revoked);
    assert_eq!(site.told("token.revoked").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a21_a22_validation_for_somebody_else() {
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let key = new_key();
    let validate = |csr: CheckedCsr| {
        let caller = act("").actor.requester;
        let authority = site.authority().clone();
        async move {
            authority
                .tokens
                .validate(&TEST, csr, &agent_signer(), caller)
                .await
                .unwrap()
        }
    };
    let other = validate(csr_with(N2, &key, &token, &[])).await;
    let Validation::Refused { id, reason } = other else {
        panic!("approved");
    };
    assert_eq!(reason, ReasonCode::TokenCertnameMismatch);
    assert_eq!(site.record(id).await.state, RequestState::Denied);
    for _ in 0..2 {
        let csr = csr_with(N1, &key, &token, &[]);
        assert_eq!(validate(csr).await, Validation::Approved);
    }
    assert_eq!(site.told("token.consumed").await.len(), 1);
    let thief = validate(csr_with(N1, &new_key(), &token, &[])).await;
    assert!(
        matches!(thief, Validation::Refused { reason, .. } if reason == ReasonCode::TokenKeyMismatch)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bearer_of_a_token() {
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact("alice")).await;
    let borne = site
        .authority()
        .tokens
        .bearer(token.expose())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(borne.id(), token.id());
    let forged = TokenText::new(data_of(token.id().as_str()), [1; 32]);
    assert!(
        site.authority()
            .tokens
            .bearer(forged.expose())
            .await
            .unwrap()
            .is_none()
    );
    let key = new_key();
    let asking = |object: &str, name: &str, key: &LeafKey| {
        let mut asking = kept(object, crate::world::csr(key, name, &[]));
        asking.requester = Requester {
            identity: Identity::User {
                username: format!("system:bootstrap:{}", token.id()),
                groups: vec!["system:bootstrappers".to_owned()],
                uid: String::new(),
                extra: Default::default(),
            },
            source: None,
        };
        asking.bearer = Some(borne.clone());
        asking
    };
    // Who only says so has shown nothing.
    let mut says_so = asking("csr-9", "alice", &key);
    says_so.bearer = None;
    if let Identity::User { extra, .. } = &mut says_so.requester.identity {
        let id = token.id().to_string();
        extra.insert("countersign.dev/enrolment-token".to_owned(), vec![id]);
    }
    let says_so = site.ask(says_so).await;
    assert_eq!(
        (says_so.state, says_so.explanation.code.as_str()),
        (RequestState::Pending, "token_missing")
    );
    let other = site.ask(asking("csr-0", "bob", &key)).await;
    assert_eq!(
        (other.state, other.explanation.code.as_str()),
        (RequestState::Denied, "token_certname_mismatch")
    );
    let issued = site.ask(asking("csr-1", "alice", &key)).await;
    assert_eq!(issued.state, RequestState::Issued);
    // The same key gets the same certificate under another name of the door.
    let again = site.ask(asking("csr-2", "alice", &key)).await;
    assert_eq!(
        (again.state, &again.certificate),
        (RequestState::Issued, &issued.certificate)
    );
    let second = site.ask(asking("csr-3", "alice", &new_key())).await;
    assert_eq!(
        (second.state, second.explanation.code.as_str()),
        (RequestState::Denied, "token_key_mismatch")
    );
    assert!(
        site.authority()
            .tokens
            .bearer(token.expose())
            .await
            .unwrap()
            .is_some()
    );
    site.world.clock.advance(1801);
    assert!(
        site.authority()
            .tokens
            .bearer(token.expose())
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_stay_secret_in_the_store() {
    let site = token_site("- {name: nobody, approve: {cel: 'false'}}").await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let waiting = site.ask(bringing(N1, &new_key(), &token)).await;
    assert_eq!(waiting.state, RequestState::Pending);
    let secret = token.expose().split('.').nth(2).unwrap().to_owned();
    let folder = site.world.folder.path().to_owned();
    let shown = format!("{waiting:?}");
    assert!(!shown.contains(&secret));
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        files += 1;
        assert!(!bytes.windows(secret.len()).any(|w| w == secret.as_bytes()));
    }
    assert!(files >= 3);
}

/// Mistyped, cut off or without what is in front of it: in the files of the store, and in a backup of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_secret_of_a_mistyped_token_is_not_stored() {
    let site = token_site("- {name: nobody, approve: {cel: 'false'}}").await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let secret = token.expose().split('.').nth(2).unwrap().to_owned();
    let texts = [
        token.expose().replacen("ott1.", "ott2.", 1),
        token.expose().replacen("ott1.", "0tt1.", 1),
        token.expose().replacen("ott1.", "ott1:", 1),
        token.expose().replacen("ott1.", "", 1),
        secret.clone(),
    ];
    for (number, text) in texts.iter().enumerate() {
        let name = format!("n{number}.example.com");
        let csr = csr_with_text(&name, &new_key(), text, &[]);
        site.ask(with_csr(&name, csr)).await;
        // The place that a certificate would show to everybody.
        let name = format!("p{number}.example.com");
        let preshared = ext::utf8_extension(oid::PP_PRESHARED_KEY, text, false);
        let subject = SubjectBuilder::new().push(oid::COMMON_NAME, &name, StringKind::Utf8);
        let der = new_key().signed_request(&subject.build(), &[preshared], &[]);
        let csr = CheckedCsr::check(&der.unwrap(), &CsrLimits::STANDARD).unwrap();
        site.ask(with_csr(&name, csr)).await;
        let approved = site.authority().requests.approve(act(&name)).await;
        let der = site.authority().ledger.newest(&issuer_id(), &name).await;
        let der = der.unwrap().unwrap_or_else(|| panic!("{approved:?}")).der;
        let part = &secret.as_bytes()[..8];
        assert!(!der.windows(8).any(|w| w == part), "{text}");
    }
    let folder = site.world.folder.path().to_owned();
    let backup = folder.join("backup.db");
    countersign_store::backup::copy(&folder.join("countersign.db"), &backup).unwrap();
    let part = &secret.as_bytes()[..16];
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap_or_default();
        files += 1;
        assert!(!bytes.windows(part.len()).any(|w| w == part), "{path:?}");
    }
    assert!(files >= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a12_a_preshared_key_is_a_carrier() {
    let site = token_site(TOKEN_RULE).await;
    site.authority()
        .set_rules(site.authority().rules().with_tokens(TokenSettings {
            sources: vec![Carrier::PresharedKey],
            ..settings()
        }));
    let token = site.mint(TokenOrder::exact(N1)).await;
    let subject = SubjectBuilder::new().push(oid::COMMON_NAME, N1, StringKind::Utf8);
    let carrier = ext::utf8_extension(oid::PP_PRESHARED_KEY, token.expose(), false);
    let der = new_key()
        .signed_request(&subject.build(), &[carrier], &[])
        .unwrap();
    let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
    let issued = site.ask(with_csr(N1, csr)).await;
    assert_eq!(issued.state, RequestState::Issued);
    let (issuer, serial) = issued.certificate.unwrap();
    let entry = site
        .authority()
        .ledger
        .get(&issuer, &serial)
        .await
        .unwrap()
        .unwrap();
    let secret = token.expose().split('.').nth(2).unwrap();
    assert!(
        !entry
            .der
            .windows(secret.len())
            .any(|w| w == secret.as_bytes())
    );
    let certificate = countersign_pki::Certificate::parse(&entry.der).unwrap();
    let has = |oid: &Oid| certificate.extensions().iter().any(|e| e.oid == *oid);
    assert!(!has(&oid::PP_PRESHARED_KEY));
}

/// What goes past the list of permitted extensions because a token travels there is in no certificate, whatever follows the
/// token's public part.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_the_carriers_clothes_reaches_a_certificate() {
    let site = token_site(TOKEN_RULE).await;
    for (number, rest) in ["admin", "", "short.of.a-secret", &"b".repeat(26)]
        .into_iter()
        .enumerate()
    {
        let name = format!("m{number}.example.com");
        let token = site
            .mint(TokenOrder {
                allowed_extensions: Some([].into()),
                ..TokenOrder::exact(&name)
            })
            .await;
        let text = format!("ott1.{}.{rest}", token.id());
        let disguised = ext::utf8_extension(oid::PP_PRESHARED_KEY, &text, false);
        let csr = csr_with(&name, &new_key(), &token, &[disguised]);
        let issued = site.ask(with_csr(&name, csr)).await;
        assert_eq!(issued.state, RequestState::Issued, "{rest}");
        let (issuer, serial) = issued.certificate.unwrap();
        let entry = site.authority().ledger.get(&issuer, &serial).await;
        let der = entry.unwrap().unwrap().der;
        let certificate = countersign_pki::Certificate::parse(&der).unwrap();
        let mut extensions = certificate.extensions().iter();
        assert!(
            !extensions.any(|e| e.oid == oid::PP_PRESHARED_KEY),
            "{rest}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a06_one_token_and_many_keys_give_one_certificate() {
    let site = Arc::new(token_site(TOKEN_RULE).await);
    let token = Arc::new(site.mint(TokenOrder::exact(N1)).await);
    let tries = (0..50).map(|_| {
        let (site, token) = (Arc::clone(&site), Arc::clone(&token));
        tokio::spawn(async move {
            site.authority()
                .requests
                .submit(bringing(N1, &new_key(), &token))
                .await
        })
    });
    let mut issued = 0;
    for tried in futures_util::future::join_all(tries).await {
        match tried.unwrap() {
            Ok(submitted) if submitted.state == RequestState::Issued => issued += 1,
            Ok(submitted) => {
                assert_eq!(
                    (submitted.state, submitted.code.as_str()),
                    (RequestState::Denied, "token_key_mismatch")
                );
            }
            Err(fault) => panic!("{fault}"),
        }
    }
    assert_eq!(issued, 1);
    assert_eq!(site.certificates(N1).await, 1);
    assert_eq!(site.told("token.consumed").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a07_one_token_and_one_key_give_one_serial() {
    let site = Arc::new(token_site(TOKEN_RULE).await);
    let token = Arc::new(site.mint(TokenOrder::exact(N1)).await);
    let key = Arc::new(new_key());
    let tries = (0..50).map(|_| {
        let (site, token, key) = (Arc::clone(&site), Arc::clone(&token), Arc::clone(&key));
        tokio::spawn(async move {
            site.authority()
                .requests
                .submit(bringing(N1, &key, &token))
                .await
        })
    });
    for tried in futures_util::future::join_all(tries).await {
        match tried.unwrap() {
            Ok(submitted) => {
                assert_eq!(submitted.state, RequestState::Issued, "{}", submitted.code)
            }
            Err(SubmitFault::InProgress { .. }) => {}
            Err(fault) => panic!("{fault}"),
        }
    }
    assert_eq!(site.certificates(N1).await, 1);
}
