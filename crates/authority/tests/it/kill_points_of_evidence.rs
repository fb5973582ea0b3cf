//! The process dies at every step of an approval that uses something up: a machine that enrols once, a build window, and a
//! machine whose request had waited. Afterwards it is used and there is a certificate, or it is not and there is none.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_authority::store::Store;
use countersign_authority::store::{
    AuditReads as _, InventoryReads as _, LedgerReads as _, RequestReads as _,
};
use countersign_authority::{Authority, OnExisting, RequestState};
use countersign_pki::{Serial, UnixTime};
use countersign_policy::{Machine, Policy};

use crate::kill_points::{FOLDER, PART, STEP, acknowledge, copy, run};
use crate::site::{agent, new_key, object, rules_of, window};
use crate::tripwire::{Fuse, TripKeys, TripStore};
use crate::world::{self, START, TestClock, World, act, issuer_id};

const THIS_TEST: &str =
    "kill_points_of_evidence::nothing_acknowledged_is_lost_at_any_kill_point_of_what_is_used_up";
const RULES: &str = "- {name: known, approve: {machine: {once: true}}}\n\
                     - {name: build, approve: {window: {}}}";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_at_any_kill_point_of_what_is_used_up() {
    if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
        return child(&folder).await;
    }
    let prepared = prepared().await;
    let (mut step, mut second_deaths) = (0, 0);
    loop {
        let left = copy(prepared.path());
        let acknowledged = run(THIS_TEST, "life", left.path(), step);
        check(copy(left.path()).path(), &acknowledged, &format!("{step}")).await;
        for next in 0.. {
            let again = copy(left.path());
            let recovery = run(THIS_TEST, "recovery", again.path(), next);
            check(again.path(), &acknowledged, &format!("{step}, then {next}")).await;
            if recovery.contains_key("done") {
                break;
            }
            second_deaths += 1;
        }
        if acknowledged.contains_key("done") {
            break;
        }
        step += 1;
    }
    // Three approvals (2 commits, 1 signature), a request that waits, a new machine, and a commit that finds the name of
    // that request taken; twice a step.
    assert_eq!(step, 24, "is the tripwire still in the path?");
    // Each approval was left with an open intent at several steps, and its recovery has at least as many.
    assert!(second_deaths >= 3 * 3 * 6, "{second_deaths}");
}

/// A folder with a machine that may enrol once, and a window for one certificate.
async fn prepared() -> tempfile::TempDir {
    let World {
        folder, authority, ..
    } = World::new(false).await;
    add_machine(&authority, "once").await;
    let (admin, window) = (act("").actor, window("built", UnixTime(START)));
    authority
        .inventory
        .open_window(window, &admin)
        .await
        .unwrap();
    drop(authority);
    // It waits until the database is closed.
    drop(world::store(folder.path()));
    folder
}

async fn add_machine(authority: &Authority, name: &str) {
    let (admin, machine) = (act("").actor, Machine::named(name, UnixTime(START)));
    let added = authority
        .inventory
        .add_machine(machine, OnExisting::Refuse, &admin);
    added.await.map(drop).unwrap();
}

async fn child(folder: &Path) {
    let step = std::env::var(STEP).unwrap().parse().unwrap();
    let fuse = Fuse::unlit();
    let store = Arc::new(TripStore(Arc::new(world::store(folder)), fuse.clone()));
    let keys = Arc::new(TripKeys(world::keys(folder), fuse.clone()));
    match std::env::var(PART).unwrap().as_str() {
        "life" => {
            let authority = start(folder, store, keys).await;
            fuse.light(step);
            short_life(&authority).await;
        }
        "recovery" => {
            fuse.light(step);
            start(folder, store, keys).await;
        }
        other => panic!("there is no part {other}"),
    }
    acknowledge("done");
}

async fn start(
    folder: &Path,
    store: Arc<dyn Store>,
    keys: Arc<dyn countersign_authority::KeyStore>,
) -> Authority {
    let authority = world::authority(folder, store, keys, TestClock::new(), false).await;
    authority.set_rules(authority.rules().with_policy(Policy {
        generation: 1,
        rules: rules_of(&folder.join("policy.yaml"), RULES),
        ..Policy::default()
    }));
    authority
}

/// Enrols by a machine and by a window at once, and by a machine that is added while the request waits.
async fn short_life(authority: &Authority) {
    let key = new_key();
    for (name, asked) in [
        ("once", agent("once", &key)),
        ("built", object("object", "built", &key)),
    ] {
        let issued = authority
            .requests
            .submit(asked)
            .await
            .unwrap()
            .issued
            .unwrap();
        acknowledge(&format!("{name} {}", issued.intent().serial));
    }
    let waits = authority
        .requests
        .submit(agent("later", &key))
        .await
        .unwrap();
    assert_eq!(waits.state, RequestState::Pending);
    acknowledge("waits");
    add_machine(authority, "later").await;
    acknowledge("added");
    let again = authority
        .requests
        .submit(agent("later", &key))
        .await
        .unwrap();
    let issued = again.issued.unwrap();
    acknowledge(&format!("later {}", issued.intent().serial));
}

async fn check(folder: &Path, acknowledged: &HashMap<String, String>, step: &str) {
    let store = Arc::new(world::store(folder));
    let keys = Arc::new(world::keys(folder));
    let authority = start(folder, store.clone(), keys).await;
    assert!(store.open_intents().await.unwrap().is_empty(), "{step}");
    for name in ["once", "built", "later"] {
        let serials = serials(&authority, name).await;
        if let Some(shown) = acknowledged.get(name) {
            assert_eq!(
                serials,
                [Serial::parse_hex(shown).unwrap()],
                "{step}: {name}"
            );
        }
        let is_used = is_used(&authority, name).await;
        assert_eq!(
            serials.len(),
            usize::from(is_used == Some(true)),
            "{step}: {name}"
        );

        // Another key, at another door, for a signer that does not mind a second certificate.
        let asked = object(&format!("again-{name}"), name, &new_key());
        let state = authority.requests.submit(asked).await.unwrap().state;
        let expected = match is_used {
            Some(false) => RequestState::Issued,
            Some(true) | None => RequestState::Pending,
        };
        assert_eq!(state, expected, "{step}: {name}");
        let count = self::serials(&authority, name).await.len();
        assert_eq!(count, usize::from(is_used.is_some()), "{step}: {name}");
    }
    for (word, name) in [("waits", "later"), ("once", "once"), ("built", "object")] {
        if acknowledged.contains_key(word) {
            let all = store.requests(Default::default()).await.unwrap();
            assert!(all.iter().any(|one| one.key == name), "{step}: {name}");
        }
    }
    let machine = store.machine("later").await.unwrap();
    if acknowledged.contains_key("added") {
        assert!(machine.is_some(), "{step}");
    }
    // Each use of the window is told once.
    let audit = store.audit(Default::default(), 10_000).await.unwrap();
    let used = audit
        .iter()
        .filter(|(_, entry)| entry.action == "window.used");
    assert_eq!(used.count(), 1, "{step}");
}

async fn serials(authority: &Authority, name: &str) -> Vec<Serial> {
    let all = authority.ledger.of_name(&issuer_id(), name).await.unwrap();
    all.into_iter().map(|entry| entry.serial).collect()
}

/// Whether the evidence for a name is used up; `None`: there is none.
async fn is_used(authority: &Authority, name: &str) -> Option<bool> {
    if name == "built" {
        let window = authority.inventory.window(name).await.unwrap()?;
        return Some(window.issuances == window.max_issuances);
    }
    let record = authority.inventory.machine(name).await.unwrap()?;
    assert_eq!(record.request.is_some(), record.machine.enrolled.is_some());
    Some(record.request.is_some())
}
