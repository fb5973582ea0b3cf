//! Old requests are forgotten, by state and age; certificates never are.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use countersign_authority::store::{Past, RequestFilter};
use countersign_authority::{
    Act, AuditEntry, Authority, Collected, DecisionOutcome, Door, DoorSpec, PlainKeeper,
    RequestState, Retention, Telemetry, WhenEnded,
};
use countersign_keys::LeafKey;
use countersign_pki::AltName;

use crate::kill_points;
use crate::tripwire::{Fuse, TripStore};
use crate::world::{self, DOOR, TEST, TestClock, World, act, client_signer, issuer_id, submission};

const HOUR: u64 = 3600;

fn keep(state: RequestState, seconds: u64) -> Retention {
    Retention {
        door: &TEST,
        state,
        seconds,
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
    let all = authority
        .requests
        .list(RequestFilter::default())
        .await
        .unwrap();
    all.into_iter().map(|record| record.key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_as_old_as_its_arrival_and_what_was_decided_as_its_decision() {
    let World {
        authority, clock, ..
    } = &World::new(false).await;
    for name in ["waits", "denied"] {
        authority.requests.submit(submission(name)).await.unwrap();
    }
    clock.advance(2 * HOUR as i64);
    authority.requests.deny(act("denied")).await.unwrap();
    authority
        .requests
        .submit(submission("young"))
        .await
        .unwrap();

    let rules = [
        keep(RequestState::Pending, HOUR),
        keep(RequestState::Denied, HOUR),
    ];
    let collected = authority.requests.collect(&rules).await.unwrap();
    assert_eq!(collected, forgotten(RequestState::Pending, 1));
    assert_eq!(names(authority).await, ["denied", "young"]);

    // To the second: what is exactly as old as it may get stays.
    clock.advance(HOUR as i64);
    let collected = authority.requests.collect(&rules).await.unwrap();
    assert_eq!(collected, Collected::default());
    clock.advance(1);
    let collected = authority.requests.collect(&rules).await.unwrap();
    let both = [
        (DOOR, RequestState::Pending, 1),
        (DOOR, RequestState::Denied, 1),
    ];
    assert_eq!(collected.requests, both);

    let audit = authority
        .audit
        .after(Default::default(), 1000)
        .await
        .unwrap();
    let entries = audit.into_iter().map(|(_, entry)| entry);
    let collected: Vec<_> = entries
        .filter(|entry| entry.action == "collect")
        .map(|entry| entry.subject)
        .collect();
    assert_eq!(collected, ["test/waits", "test/young", "test/denied"]);
    // A denial that is forgotten does not hold any more.
    authority
        .requests
        .submit(submission("denied"))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_outlives_its_request_and_keeps_its_name() {
    let World {
        authority, clock, ..
    } = &World::new(true).await;
    let issued = authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    let serial = issued.issued.unwrap().intent().serial;
    clock.advance(2 * HOUR as i64);
    let rules = [keep(RequestState::Issued, HOUR)];
    let collected = authority.requests.collect(&rules).await.unwrap();
    assert_eq!(collected, forgotten(RequestState::Issued, 1));
    assert!(authority.requests.get(issued.id).await.unwrap().is_none());

    let entry = authority.ledger.get(&issuer_id(), &serial).await.unwrap();
    assert_eq!(entry.unwrap().name, "web01");
    let again = authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap_err();
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
        authority.requests.submit(one).await.unwrap();
    }
    let mut elsewhere = submission("elsewhere");
    static OTHER: DoorSpec = DoorSpec::plain(Door::named("other"));
    elsewhere.door = &OTHER;
    authority.requests.submit(elsewhere).await.unwrap();
    clock.advance(10);
    for state in [
        RequestState::Denied,
        RequestState::Failed,
        RequestState::Approved,
        RequestState::Issued,
    ] {
        let collected = authority.requests.collect(&[keep(state, 1)]).await.unwrap();
        assert_eq!(collected, Collected::default(), "{state:?}");
    }
    let pending = [keep(RequestState::Pending, 1)];
    let collected = authority.requests.collect(&pending).await.unwrap();
    assert_eq!(collected, forgotten(RequestState::Pending, 150));
    assert_eq!(names(authority).await, ["elsewhere"]);
    let freed = authority.requests.at(&DOOR, "host7", Past::Include).await;
    assert!(freed.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_goes_at_once_where_the_door_says_so() {
    let World {
        authority, clock, ..
    } = &World::new(false).await;
    let mut short = submission("short");
    short.signer = client_signer();
    short.wishes.usages = vec!["client auth".to_owned()];
    authority.requests.submit(short).await.unwrap();
    let mut waits = submission("waits");
    waits.signer = client_signer();
    authority.requests.submit(waits).await.unwrap();
    let lived = Act {
        lifetime: Some(600),
        ..act("short")
    };
    let entry = authority
        .requests
        .approve(lived)
        .await
        .unwrap()
        .into_recorded()
        .certificate
        .unwrap();
    let left = entry.not_after.0 - authority.now().0;
    static CLEANED: DoorSpec = DoorSpec {
        name: DOOR,
        retained: false,
        when_ended: WhenEnded::Goes,
        keeper: &PlainKeeper,
    };
    let rules = |door| {
        [RequestState::Issued, RequestState::Pending].map(|state| Retention {
            door,
            ..keep(state, 10 * HOUR)
        })
    };
    clock.advance(left);
    for (passed, door, goes) in [
        (0, &CLEANED, 0),
        (1, &TEST, 0),
        (0, &CLEANED, 1),
        (0, &CLEANED, 0),
    ] {
        clock.advance(passed);
        let collected = authority.requests.collect(&rules(door)).await.unwrap();
        assert_eq!(collected, forgotten(RequestState::Issued, goes));
    }
    let kept = authority
        .ledger
        .get(&entry.issuer, &entry.serial)
        .await
        .unwrap();
    assert!(kept.is_some(), "the ledger forgets nothing");
    let audit = authority
        .audit
        .after(Default::default(), 1000)
        .await
        .unwrap();
    let (_, last) = audit.last().unwrap();
    assert_eq!(last.action, "collect");
    assert!(last.detail.contains("certificate ended"), "{}", last.detail);
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

    authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap_err();
    let mut waiting = ["one", "two", "three"].map(submission);
    for one in &mut waiting {
        one.signer = client_signer();
        one.wishes.usages = vec!["client auth".to_owned()];
    }
    for one in waiting {
        authority.requests.submit(one).await.unwrap();
    }
    authority.requests.approve(act("one")).await.unwrap();
    authority.requests.deny(act("two")).await.unwrap();
    authority.requests.approve(act("nobody")).await.unwrap_err();
    authority
        .requests
        .submit(submission("ca.example.com"))
        .await
        .unwrap();
    let other = AltName::Dns("other.example".to_owned());
    let widened = world::csr(&LeafKey::generate().unwrap(), "wide", &[other]);
    let widened = world::with_csr("wide", widened);
    authority.requests.submit(widened).await.unwrap();
    let serial = authority.ledger.newest(&issuer_id(), "web01").await;
    let serial = serial.unwrap().unwrap().serial;
    let actor = act("x").actor;
    let renewed = authority
        .ledger
        .renew(&issuer_id(), &serial, 3600, &actor)
        .await;
    renewed.unwrap();
    clock.advance(10);
    let rules = [keep(RequestState::Pending, 1)];
    authority.requests.collect(&rules).await.unwrap();

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

const THIS_TEST: &str = "collection::a_collection_that_is_killed_is_ended_by_the_next";
/// More than are taken at a time, so that one part is on record before the next begins, however the store groups them.
const OLD: usize = 66;

/// Dies at one step after the other of a collection. What is gone is gone with its entry in the audit log, what is left is whole, and
/// the next collection takes the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_collection_that_is_killed_is_ended_by_the_next() {
    let rules = [keep(RequestState::Pending, HOUR)];
    if let Some(folder) = std::env::var_os(kill_points::FOLDER).map(PathBuf::from) {
        let (fuse, clock) = (Fuse::unlit(), TestClock::new());
        clock.advance(2 * HOUR as i64);
        let store = Arc::new(TripStore(Arc::new(world::store(&folder)), fuse.clone()));
        let keys = Arc::new(world::keys(&folder));
        let authority = world::authority(&folder, store, keys, clock, false).await;
        fuse.light(std::env::var(kill_points::STEP).unwrap().parse().unwrap());
        authority.requests.collect(&rules).await.unwrap();
        return kill_points::acknowledge("done");
    }
    let world = World::new(false).await;
    for number in 0..OLD {
        let one = submission(&format!("old{number}"));
        world.authority.requests.submit(one).await.unwrap();
    }
    world.clock.advance(2 * HOUR as i64);
    let young = submission("young");
    world.authority.requests.submit(young).await.unwrap();
    let World { folder, clock, .. } = world;
    let mut partly = 0;
    for step in (0..).step_by(3) {
        let left = kill_points::copy(folder.path());
        let ended = kill_points::run(THIS_TEST, "collect", left.path(), step).contains_key("done");
        let World { authority, .. } = &World::on(left, clock.clone(), false).await;
        let left = names(authority).await;
        let gone = OLD + 1 - left.len();
        assert_eq!(collections(authority).await, gone, "{step}: {left:?}");
        assert_eq!(gone == OLD, left == ["young"], "{step}");
        partly += usize::from(gone > 0 && gone < OLD);
        let rest = authority.requests.collect(&rules).await.unwrap();
        let count = u64::try_from(OLD - gone).unwrap();
        assert_eq!(rest, forgotten(RequestState::Pending, count), "{step}");
        assert_eq!(names(authority).await, ["young"], "{step}");
        assert_eq!(collections(authority).await, OLD, "{step}");
        if ended {
            break;
        }
    }
    assert!(partly > 0, "no collection was killed in the middle");
}

async fn collections(authority: &Authority) -> usize {
    let audit = authority
        .audit
        .after(Default::default(), 1000)
        .await
        .unwrap();
    let is_collection = |entry: &AuditEntry| entry.action == "collect";
    audit
        .iter()
        .filter(|(_, entry)| is_collection(entry))
        .count()
}
