//! The process dies at every step of approvals that get no certificate at once: the key fails, or a signer elsewhere is
//! faster while the key signs. Its successor, which dies at every step too, signs what may still be signed, and ends what
//! may not. Afterwards each request stands where it was said to stand, and no intent is left open.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_authority::store::{LedgerReads as _, RequestReads as _};
use countersign_authority::{Authority, RequestRecord, RequestState, Settlement, Submission};
use countersign_pki::UnixTime;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::kill_points::{FOLDER, PART, STEP, acknowledge, copy, run};
use crate::tripwire::{Fuse, Step, TripKeys, TripStore, Wire};
use crate::world::{self, TestClock, issuer_id};

const THIS_TEST: &str =
    "kill_points_unsigned::nothing_acknowledged_is_lost_at_any_kill_point_of_what_is_not_signed";
/// What `brief` and `late` get, in seconds: it is over when a successor starts.
const SHORT: u64 = 300;
const LATER: i64 = 600;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_at_any_kill_point_of_what_is_not_signed() {
    if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
        return child(&folder).await;
    }
    let prepared = tempfile::tempdir().unwrap();
    world::prepare(prepared.path()).await;
    let (mut step, mut second_deaths) = (0, 0);
    loop {
        let left = copy(prepared.path());
        let acknowledged = run(THIS_TEST, "life", left.path(), step);
        check(copy(left.path()).path(), &acknowledged, &format!("{step}")).await;
        for next in 0.. {
            let again = copy(left.path());
            let recovered = run(THIS_TEST, "recovery", again.path(), next).contains_key("done");
            check(again.path(), &acknowledged, &format!("{step}, then {next}")).await;
            if recovered {
                break;
            }
            second_deaths += 1;
        }
        if acknowledged.contains_key("done") {
            break;
        }
        step += 1;
    }
    // Twice a step: `auto` and `brief` (intent, signature, request shown unsigned), `late` (arrival, intent, signature), and
    // `theirs` (arrival, intent, signature with the settlement within it, refused record, void).
    assert_eq!(
        step,
        2 * (3 + 3 + 3 + 6),
        "is the tripwire still in the path?"
    );
    // At the end `auto` is signed, and `brief` and `late` are given up, at each step from their own approval on.
    assert!(second_deaths >= 200, "{second_deaths}");
}

/// Keys that fail, or that sign only once somebody else has been faster.
#[derive(Clone, Default)]
struct Obstacle(Arc<State>);

#[derive(Default)]
struct State {
    fails: AtomicBool,
    is_shut: AtomicBool,
    reached: Notify,
    open: Notify,
}

impl Wire for Obstacle {
    fn before(&self, _: Step) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            if self.0.is_shut.load(Ordering::SeqCst) {
                self.0.reached.notify_one();
                self.0.open.notified().await;
            }
            !self.0.fails.load(Ordering::SeqCst)
        })
    }

    fn after(&self, _: Step) -> bool {
        true
    }
}

async fn child(folder: &Path) {
    let step = std::env::var(STEP).unwrap().parse().unwrap();
    let (fuse, obstacle, clock) = (Fuse::unlit(), Obstacle::default(), TestClock::new());
    let store = Arc::new(TripStore(Arc::new(world::store(folder)), fuse.clone()));
    let keys = TripKeys(world::keys(folder), obstacle.clone());
    let keys = Arc::new(TripKeys(keys, fuse.clone()));
    match std::env::var(PART).unwrap().as_str() {
        "life" => {
            let authority = world::authority(folder, store, keys, clock, true).await;
            fuse.light(step);
            short_life(&authority, &obstacle).await;
        }
        "recovery" => {
            clock.advance(LATER);
            fuse.light(step);
            world::authority(folder, store, keys, clock, true).await;
        }
        other => panic!("there is no part {other}"),
    }
    acknowledge("done");
}

async fn short_life(authority: &Authority, keys: &Obstacle) {
    let requests = &authority.requests;
    keys.0.fails.store(true, Ordering::SeqCst);
    requests
        .submit(world::submission("auto"))
        .await
        .unwrap_err();
    acknowledge("auto");
    let mut brief = world::submission("brief");
    brief.wishes.expiration_seconds = Some(SHORT);
    requests.submit(brief).await.unwrap_err();
    acknowledge("brief");
    requests.submit(by_hand("late")).await.unwrap();
    acknowledge("asked late");
    let mut late = world::act("late");
    late.lifetime = Some(SHORT);
    requests.approve(late).await.unwrap_err();
    acknowledge("late");

    keys.0.fails.store(false, Ordering::SeqCst);
    let kept = Submission {
        door: &world::RETAINING,
        ..by_hand("theirs")
    };
    requests.submit(kept).await.unwrap();
    acknowledge("stored");
    keys.0.is_shut.store(true, Ordering::SeqCst);
    let approving = {
        let authority = authority.clone();
        tokio::spawn(async move { authority.requests.approve(world::act("theirs")).await })
    };
    keys.0.reached.notified().await;
    let certified = Settlement::Certified {
        not_before: authority.now(),
        not_after: authority.now().plus_seconds(3600),
        detail: "from elsewhere".to_owned(),
    };
    let settled = requests.settle(world::act("theirs"), vec![certified]).await;
    settled.unwrap();
    acknowledge("settled");
    keys.0.open.notify_one();
    let approved = approving.await.unwrap().unwrap();
    assert!(approved.issued.is_none());
}

fn by_hand(name: &str) -> Submission {
    let mut one = world::submission(name);
    one.signer = world::client_signer();
    one.wishes.usages = vec!["client auth".to_owned()];
    one
}

async fn check(folder: &Path, acknowledged: &HashMap<String, String>, step: &str) {
    let store = Arc::new(world::store(folder));
    let keys = Arc::new(world::keys(folder));
    let clock = TestClock::new();
    clock.advance(2 * LATER);
    drop(world::authority(folder, store.clone(), keys, clock, true).await);
    assert!(
        store.open_intents().await.unwrap().is_empty(),
        "step {step}"
    );
    let mut requests: HashMap<String, RequestRecord> = HashMap::new();
    for record in store.requests(Default::default()).await.unwrap() {
        let twice = requests.insert(record.key.clone(), record);
        assert!(twice.is_none(), "step {step}: {twice:?}");
    }
    let was_said = |what: &str| acknowledged.contains_key(what);
    let stands = |name: &str| requests.get(name).map(|record| record.state);
    // Who was told of a fault was promised nothing; what was approved by then goes on all the same.
    let signed = |name: &str| match stands(name) {
        None => assert!(!was_said(name), "step {step}: {name} is gone"),
        state => assert_eq!(state, Some(RequestState::Issued), "step {step}: {name}"),
    };
    signed("auto");
    for (name, before) in [("brief", "brief"), ("late", "asked")] {
        match stands(name) {
            None => assert!(!was_said(before), "step {step}: {name} is gone"),
            Some(RequestState::Pending) => {
                assert!(name == "late" && !was_said(name), "step {step}");
            }
            state => assert_eq!(state, Some(RequestState::Failed), "step {step}: {name}"),
        }
    }
    let theirs = requests.get("theirs");
    match theirs.map(|record| (record.state, &record.certificate)) {
        None => assert!(!was_said("stored"), "step {step}"),
        Some((RequestState::Pending, None)) => assert!(!was_said("settled"), "step {step}"),
        Some((RequestState::Issued, None)) => {}
        // It died with its intent open and nobody else had been faster.
        Some((RequestState::Issued, Some(_))) => assert!(!was_said("settled"), "step {step}"),
        other => panic!("step {step}: {other:?}"),
    }
    // Whatever says that it has a certificate has one, nothing else has, and nothing has two.
    for name in ["auto", "brief", "late", "theirs"] {
        let all = store.certificates_of(&issuer_id(), name, UnixTime(0)).await;
        let serials: Vec<_> = all.unwrap().iter().map(|entry| entry.serial).collect();
        let record = requests.get(name);
        let own = record.and_then(|record| record.certificate.clone());
        let own: Vec<_> = own.into_iter().map(|(_, serial)| serial).collect();
        assert_eq!(serials, own, "step {step}: {name}");
    }
}
