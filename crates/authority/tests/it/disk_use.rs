//! What somebody without any right can make the authority write is bounded, and nothing that matters is lost by that.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use countersign_authority::{
    Authority, Limits, RequestRecord, RequestState, Retention, Submission, SubmitFault, TokenOrder,
};
use countersign_keys::LeafKey;
use countersign_pki::{
    Attribute, CheckedCsr, CsrLimits, Oid, RawValue, StringKind, SubjectBuilder, oid,
};
use countersign_policy::{Policy, Requester};

use crate::profiles;
use crate::site::{Site, agent, new_key, rules_of};
use crate::tokens::{N1, TOKEN_RULE, bringing, csr_with_text, token_site};
use crate::world::{self, TEST, TestClock, agent_signer, with_csr};

const NOBODY: &str = "- {name: nobody, deny: {cel: 'true'}}";

/// A request with this many octets in an attribute of this kind.
fn padded(name: &str, kind: Oid, octets: usize) -> CheckedCsr {
    let subject = SubjectBuilder::new().push(oid::COMMON_NAME, name, StringKind::Utf8);
    let length = u16::try_from(octets).unwrap().to_be_bytes();
    let length = match length {
        [0, short] => vec![0x81, short],
        [high, low] => vec![0x82, high, low],
    };
    let value = [&[0x04], &length[..], &vec![b'-'; octets]].concat();
    let attribute = Attribute {
        oid: kind,
        values: vec![RawValue::from_der(&value).unwrap()],
    };
    let key = LeafKey::generate().unwrap();
    let der = key.signed_request(&subject.build(), &[], &[attribute]);
    CheckedCsr::check(&der.unwrap(), &CsrLimits::STANDARD).unwrap()
}

fn from(source: IpAddr, submission: Submission) -> Submission {
    Submission {
        requester: Requester::anonymous(Some(source)),
        ..submission
    }
}

fn address(network: u16, host: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host))
}

async fn waiting(limits: Limits) -> (tempfile::TempDir, Authority) {
    let folder = tempfile::tempdir().unwrap();
    world::prepare(folder.path()).await;
    let store = Arc::new(world::store(folder.path()));
    let keys = Arc::new(world::keys(folder.path()));
    let signers = vec![(agent_signer(), profiles::agent(world::settings()), true)];
    let authority = world::authority_limited(
        folder.path(),
        store,
        keys,
        TestClock::new(),
        world::policy(false),
        signers,
        limits,
    );
    let authority = authority.await;
    (folder, authority)
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_attributes_of_what_is_rejected_are_not_kept() {
    let site = Site::new(NOBODY).await;
    let unknown = Oid::from_arcs(&[1, 2, 3, 4, 5]);
    for (number, kind) in [unknown, oid::CHALLENGE_PASSWORD].into_iter().enumerate() {
        let name = format!("m{number}.example.com");
        let csr = padded(&name, kind, 20_000);
        let (key, fingerprint) = (csr.key_fingerprint(), csr.fingerprint().to_hex());
        let denied = site.ask(with_csr(&name, csr)).await;
        assert_eq!(denied.state, RequestState::Denied);
        assert!(denied.csr_der.len() < 1000, "{}", denied.csr_der.len());
        let kept = CheckedCsr::trusted_from_store(&denied.csr_der).unwrap();
        assert_eq!(kept.key_fingerprint(), key);
        assert_eq!(kept.subject().common_names().last(), Some(name.as_str()));
        let told = site.told("request").await;
        assert_eq!(
            told[number].1.csr_sha256.as_deref(),
            Some(fingerprint.as_str())
        );
    }
    // What is short and known tells what the sender meant.
    let csr = padded("n.example.com", oid::CHALLENGE_PASSWORD, 200);
    let whole = csr.der().to_vec();
    let denied = site.ask(with_csr("n.example.com", csr)).await;
    assert_eq!(denied.csr_der, whole);
}

/// It waited whole, because a person may approve it; what a rule turns away later is not kept longer than what a rule
/// turns away at once.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_attributes_of_what_waited_are_not_kept_when_a_rule_denies_it() {
    let site = Site::new("- {name: later, approve: {cel: 'false'}}").await;
    let name = "m0.example.com";
    let csr = padded(name, Oid::from_arcs(&[1, 2, 3, 4, 5]), 20_000);
    let waiting = site.ask(with_csr(name, csr.clone())).await;
    assert_eq!(waiting.state, RequestState::Pending);
    assert_eq!(waiting.csr_der, csr.der());
    site.apply(2, NOBODY);
    let denied = site.ask(with_csr(name, csr.clone())).await;
    assert_eq!(
        (denied.id, denied.state),
        (waiting.id, RequestState::Denied)
    );
    assert!(denied.csr_der.len() < 1000, "{}", denied.csr_der.len());
    let kept = CheckedCsr::trusted_from_store(&denied.csr_der).unwrap();
    assert_eq!(kept.key_fingerprint(), csr.key_fingerprint());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_bounded_in_bytes() {
    let limits = Limits {
        pending_bytes: 200_000,
        ..Limits::STANDARD
    };
    let (_folder, authority) = waiting(limits).await;
    let unknown = Oid::from_arcs(&[1, 2, 3, 4, 5]);
    let mut taken = 0;
    for network in 0..20 {
        for host in 0..3 {
            let name = format!("m{network}-{host}.example.com");
            let asked = from(
                address(network, host),
                with_csr(&name, padded(&name, unknown, 9_000)),
            );
            match authority.requests.submit(asked).await {
                Ok(submitted) => {
                    assert_eq!(submitted.state, RequestState::Pending);
                    taken += 1;
                }
                Err(SubmitFault::NoRoomToWait { limit: 20_000 }) => {
                    assert!(host == 2 || network > 9)
                }
                Err(SubmitFault::NoRoomToWait { limit: 200_000 }) => assert!(network > 9),
                Err(fault) => panic!("{fault}"),
            }
        }
    }
    assert!((20..=22).contains(&taken), "{taken} wait");
    let ask = async |name: &str| {
        let csr = padded(name, unknown, 9_000);
        let asked = from(address(30, 0), with_csr(name, csr));
        authority.requests.submit(asked).await
    };
    let refused = ask("last.example.com").await;
    assert!(
        matches!(refused, Err(SubmitFault::NoRoomToWait { limit: 200_000 })),
        "{refused:?}"
    );
    // A request that is signed or denied does not need the room.
    authority.set_rules(authority.rules().with_policy(world::policy(true)));
    let signed = ask("signed.example.com").await.unwrap();
    assert_eq!(signed.state, RequestState::Issued);
    let denying = Policy {
        rules: rules_of(Path::new("/policy.yaml"), NOBODY),
        ..world::policy(false)
    };
    authority.set_rules(authority.rules().with_policy(denying));
    let denied = ask("denied.example.com").await.unwrap();
    assert_eq!(denied.state, RequestState::Denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_turned_away_is_bounded_in_bytes() {
    let site = Site::new(NOBODY).await;
    for number in 0..6 {
        let name = format!("m{number}.example.com");
        let denied = site.ask(agent(&name, &new_key())).await;
        assert_eq!(denied.state, RequestState::Denied);
    }
    let newest = site.rejections().await.into_iter().take(3);
    let newest: Vec<RequestRecord> = newest.collect();
    let sizes = newest.iter().map(|one| one.csr_der.len());
    let room = u64::try_from(sizes.sum::<usize>()).unwrap();
    let requests = site.authority().requests.clone();
    requests.trim_rejections(100, room).await.unwrap();
    let kept = site.rejections().await;
    let names: Vec<&str> = kept.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(
        names,
        ["m5.example.com", "m4.example.com", "m3.example.com"]
    );
    // One octet less, and the oldest of them has no room.
    requests.trim_rejections(100, room - 1).await.unwrap();
    assert_eq!(site.rejections().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_counted_by_network() {
    let limits = Limits {
        pending_per_source: 2,
        ..Limits::STANDARD
    };
    let (_folder, authority) = waiting(limits).await;
    let ask = async |name: &str, source| {
        let asked = from(source, agent(name, &new_key()));
        authority.requests.submit(asked).await
    };
    ask("a.example.com", address(1, 1)).await.unwrap();
    ask("b.example.com", address(1, 2)).await.unwrap();
    let third = ask("c.example.com", address(1, 3)).await;
    assert!(
        matches!(third, Err(SubmitFault::TooManyWaiting { limit: 2, .. })),
        "{third:?}"
    );
    ask("c.example.com", address(2, 3)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_denials_of_a_source_are_one_entry_of_the_audit_log() {
    let site = Site::new(NOBODY).await;
    let ask = async |number: u32, source| {
        let name = format!("m{number}.example.com");
        let denied = site.ask(from(source, agent(&name, &new_key()))).await;
        assert_eq!(denied.state, RequestState::Denied);
    };
    for number in 0..50 {
        ask(number, address(1, u16::try_from(number).unwrap())).await;
    }
    assert_eq!(site.told("request").await.len(), 10, "the first ones");
    assert!(site.told("request").await[0].1.certname.as_deref() == Some("m0.example.com"));
    ask(50, address(2, 1)).await;
    assert_eq!(site.told("request").await.len(), 11, "the first of another");
    let tell = async |site: &Site| {
        let told = site.authority().requests.tell_repeated_denials().await;
        told.unwrap();
        site.told("repeat").await
    };
    assert_eq!(tell(&site).await, [], "not yet");

    // A process that ends in between takes no count with it.
    site.world.clock.advance(60);
    let site = site.restart(NOBODY).await;
    site.world.clock.advance(3600);
    let told = tell(&site).await;
    let [(_, entry)] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(entry.actor.source, Some(address(1, 0)));
    assert_eq!(entry.subject, "test");
    let start = crate::site::start();
    let words = format!(
        "40 more were turned away, the first at {start}, the last at {start}, for \"m49.example.com\""
    );
    assert_eq!(entry.detail, words);
    assert_eq!(tell(&site).await.len(), 1, "once");
}

/// Whoever shows the right secret of a token that another key has used is told every time, however many are turned away.
#[tokio::test(flavor = "multi_thread")]
async fn a_theft_of_a_token_does_not_hide_among_repeated_denials() {
    let site = token_site(&format!("{TOKEN_RULE}\n{NOBODY}")).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let used = site.ask(bringing(N1, &new_key(), &token)).await;
    assert_eq!(used.state, RequestState::Issued);
    for number in 0..15 {
        let name = format!("m{number}.example.com");
        site.ask(agent(&name, &new_key())).await;
        let theft = site.ask(bringing(N1, &new_key(), &token)).await;
        assert_eq!(theft.explanation.code.as_str(), "token_key_mismatch");
    }
    let told = site.told("request").await;
    let of = |code: &str| told.iter().filter(|(_, e)| e.reason == code).count();
    assert_eq!(of("token_key_mismatch"), 15);
    assert_eq!(site.told("token.rejected").await.len(), 15);
    assert_eq!(told.len(), 1 + 15 + 10);
}

/// Ten requests with garbage, or many more, and whatever retention says.
#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_theft_is_kept_for_thirty_days() {
    let site = token_site(&format!("{TOKEN_RULE}\n{NOBODY}")).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    site.ask(bringing(N1, &new_key(), &token)).await;
    let theft = site.ask(bringing(N1, &new_key(), &token)).await;
    assert_eq!(theft.explanation.code.as_str(), "token_key_mismatch");
    let is_there = async || {
        let all = site.rejections().await;
        all.iter().any(|one| one.id == theft.id)
    };
    let garbage = csr_with_text(N1, &new_key(), "garbage", &[]);
    for _ in 0..25 {
        site.ask(with_csr(N1, garbage.clone())).await;
    }
    assert!(is_there().await, "pushed out by garbage");
    for _ in 0..25 {
        site.ask(bringing(N1, &new_key(), &token)).await;
    }
    assert!(is_there().await, "pushed out by other thefts");
    let requests = site.authority().requests.clone();
    requests.trim_rejections(0, 0).await.unwrap();
    assert!(is_there().await, "pushed out by what others sent");
    assert_eq!(
        site.rejections().await.len(),
        20,
        "first and last of the name"
    );
    let gone = Retention {
        door: &TEST,
        state: RequestState::Denied,
        seconds: 0,
    };
    site.world.clock.advance(30 * 86_400);
    requests.collect(std::slice::from_ref(&gone)).await.unwrap();
    assert!(is_there().await, "forgotten too early");
    site.world.clock.advance(2);
    requests.collect(&[gone]).await.unwrap();
    assert!(!is_there().await);
}
