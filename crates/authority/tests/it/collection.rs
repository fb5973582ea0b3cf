//! Old requests are forgotten, by state and age; certificates never are.

use std::sync::{Arc, Mutex};

use countersign_authority::store::{Past, RequestFilter};
use countersign_authority::{
    Authority, Collected, DecisionOutcome, Door, Held, RequestState, Retention, Telemetry,
};
use countersign_keys::LeafKey;
use countersign_pki::AltName;

use crate::world::{self, DOOR, TestClock, World, act, client_signer, issuer_id, submission};

const HOUR: u64 = 3600;

fn keep(state: RequestState, seconds: u64) -> Retention {
    Retention {
        door: DOOR,
        state,
        seconds,
        hold: Held::never,
    }
}

fn forgotten(state: RequestState, count: u64) -> Collected {
    let requests = (count > 0).then_some((DOOR, state, count));
    Collected {
        requests: requests.into_iter().collect(),
        windows: 0,
    }
}

async fn names(authority: &Authority) -> Vec<String> {
    let all = authority.requests(RequestFilter::default()).await.unwrap();
    all.into_iter().map(|record| record.key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_as_old_as_its_arrival_and_what_was_decided_as_its_decision() {
    let World {
        authority, clock, ..
    } = &World::new(false).await;
    for name in ["waits", "denied"] {
        authority.submit(submission(name)).await.unwrap();
    }
    clock.advance(2 * HOUR as i64);
    authority.deny(act("denied")).await.unwrap();
    authority.submit(submission("young")).await.unwrap();

    let rules = [
        keep(RequestState::Pending, HOUR),
        keep(RequestState::Denied, HOUR),
    ];
    let collected = authority.collect(&rules).await.unwrap();
    assert_eq!(collected, forgotten(RequestState::Pending, 1));
    assert_eq!(names(authority).await, ["denied", "young"]);

    // To the second: what is exactly as old as it may get stays.
    clock.advance(HOUR as i64);
    let collected = authority.collect(&rules).await.unwrap();
    assert_eq!(collected, Collected::default());
    clock.advance(1);
    let collected = authority.collect(&rules).await.unwrap();
    let both = [
        (DOOR, RequestState::Pending, 1),
        (DOOR, RequestState::Denied, 1),
    ];
    assert_eq!(collected.requests, both);

    let audit = authority.audit(Default::default(), 1000).await.unwrap();
    let entries = audit.into_iter().map(|(_, entry)| entry);
    let collected: Vec<_> = entries
        .filter(|entry| entry.action == "collect")
        .map(|entry| entry.subject)
        .collect();
    assert_eq!(collected, ["test/waits", "test/young", "test/denied"]);
    // A denial that is forgotten does not hold any more.
    authority.submit(submission("denied")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_outlives_its_request_and_keeps_its_name() {
    let World {
        authority, clock, ..
    } = &World::new(true).await;
    let issued = authority.submit(submission("web01")).await.unwrap();
    let serial = issued.issued.unwrap().intent().serial;
    clock.advance(2 * HOUR as i64);
    let rules = [keep(RequestState::Issued, HOUR)];
    let collected = authority.collect(&rules).await.unwrap();
    assert_eq!(collected, forgotten(RequestState::Issued, 1));
    assert!(authority.request(issued.id).await.unwrap().is_none());

    let entry = authority.certificate(&issuer_id(), &serial).await.unwrap();
    assert_eq!(entry.unwrap().name, "web01");
    let again = authority.submit(submission("web01")).await.unwrap_err();
    assert!(again.to_string().contains("signed"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_touch_only_their_door_and_state_and_many_pages_are_collected() {
    let World {
        authority, clock, ..
    } = &World::new(false).await;
    for number in 0..150 {
        let mut one = submission(&format!("host{number}"));
        one.signer = client_signer();
        authority.submit(one).await.unwrap();
    }
    let mut elsewhere = submission("elsewhere");
    elsewhere.door = Door::named("other");
    authority.submit(elsewhere).await.unwrap();
    clock.advance(10);
    for state in [
        RequestState::Denied,
        RequestState::Failed,
        RequestState::Approved,
        RequestState::Issued,
    ] {
        let collected = authority.collect(&[keep(state, 1)]).await.unwrap();
        assert_eq!(collected, Collected::default(), "{state:?}");
    }
    let pending = [keep(RequestState::Pending, 1)];
    let collected = authority.collect(&pending).await.unwrap();
    assert_eq!(collected, forgotten(RequestState::Pending, 150));
    assert_eq!(names(authority).await, ["elsewhere"]);
    let freed = authority.request_at(&DOOR, "host7", Past::Include).await;
    assert!(freed.unwrap().is_none());
}

/// Writes down what it is told.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Telemetry for Notes {
    fn decided(&self, door: &Door, outcome: DecisionOutcome, rule: &str) {
        let note = format!("{door} {} {rule}", outcome.word());
        self.0.lock().unwrap().push(note);
    }

    fn collected(&self, door: &Door, state: RequestState, count: u64) {
        let note = format!("{door} forgot {count} {}", state.word());
        self.0.lock().unwrap().push(note);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_decision_is_reported_with_what_settled_it() {
    let folder = tempfile::tempdir().unwrap();
    world::prepare(folder.path()).await;
    let notes = Arc::new(Notes::default());
    let clock = TestClock::new();
    let authority = world::authority_observed(folder.path(), clock.clone(), notes.clone()).await;

    authority.submit(submission("web01")).await.unwrap();
    authority.submit(submission("web01")).await.unwrap_err();
    let mut waiting = ["one", "two", "three"].map(submission);
    for one in &mut waiting {
        one.signer = client_signer();
        one.wishes.usages = vec!["client auth".to_owned()];
    }
    for one in waiting {
        authority.submit(one).await.unwrap();
    }
    authority.approve(act("one")).await.unwrap();
    authority.deny(act("two")).await.unwrap();
    authority.approve(act("nobody")).await.unwrap_err();
    authority
        .submit(submission("ca.example.com"))
        .await
        .unwrap();
    let other = AltName::Dns("other.example".to_owned());
    let widened = world::csr(&LeafKey::generate().unwrap(), "wide", &[other]);
    let widened = world::with_csr("wide", widened);
    authority.submit(widened).await.unwrap();
    let serial = authority.newest_certificate(&issuer_id(), "web01").await;
    let serial = serial.unwrap().unwrap().serial;
    let actor = act("x").actor;
    let renewed = authority.renew(&issuer_id(), &serial, 3600, &actor).await;
    renewed.unwrap();
    clock.advance(10);
    let rules = [keep(RequestState::Pending, 1)];
    authority.collect(&rules).await.unwrap();

    assert_eq!(
        *notes.0.lock().unwrap(),
        [
            "test issued autosign",
            "test duplicate none",
            "test pending none",
            "test pending none",
            "test pending none",
            "test issued person",
            "test denied person",
            "test pending none",
            "test unsignable profile",
            "test issued renewal",
            "test forgot 3 pending",
        ]
    );
}
