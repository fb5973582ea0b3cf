//! `kill -9` while states are written, deleted and forgotten: the history that is left tells what is there, and no revision
//! comes twice.

use countersign_authority::store::LiveRequest;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;

use countersign_authority::store::{Change, RequestUpdate, Write};
use countersign_authority::store::{ObjectReads as _, RequestReads as _};
use countersign_authority::{
    Door, RequestId, RequestRecord, RequestState, Revision, State, StateChangeKind, Store,
};
use countersign_pki::fingerprint_sha256;
use countersign_store::SqliteStore;
use countersign_store_suite::Sample;

use crate::child;
use crate::crash::{ROUND, run_and_kill};
use crate::ground::TemporaryFile;

const ROUNDS: u64 = 8;
const CALLERS: u32 = 8;
const DOOR: Door = Door::named("kubernetes");
const THIS_TEST: &str = "state_crash::the_history_tells_what_is_there_after_the_process_is_killed";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_tells_what_is_there_after_the_process_is_killed() {
    if let Some(path) = child::store_path() {
        return change_until_killed(&path).await;
    }
    let ground = TemporaryFile::new();
    let mut last_round = Revision::default();
    for round in 0..ROUNDS {
        let acknowledged = run_and_kill(THIS_TEST, &ground, round, parse);
        assert!(!acknowledged.is_empty(), "round {round}");
        let store = ground.store();
        // What earlier rounds saw was never given out again.
        let mut revisions: Vec<_> = acknowledged.iter().map(|(_, at)| *at).collect();
        assert!(revisions.iter().all(|at| *at > last_round));
        revisions.sort();
        assert!(
            revisions.is_sorted_by(|one, next| one < next),
            "{revisions:?}"
        );
        check(&store, &acknowledged).await;
        last_round = *store.revisions().borrow();
    }
}

/// Every name that is there, with its version.
type Seen = BTreeMap<String, Revision>;

async fn check(store: &SqliteStore, acknowledged: &[(String, Revision)]) {
    let (sender, mut pages) = mpsc::channel::<Vec<LiveRequest>>(1);
    let taking = async {
        let mut requests = Vec::new();
        while let Some(page) = pages.recv().await {
            requests.extend(page.into_iter().map(|live| live.record));
        }
        requests
    };
    let (at, requests) = tokio::join!(store.live_requests(&DOOR, sender), taking);
    let at = at.unwrap();
    let (_, objects) = store.objects().await.unwrap();
    let requests = requests.into_iter().map(|one| (one.key, one.version));
    let objects = objects
        .into_iter()
        .map(|one| (one.key.to_string(), one.version));
    let there: Seen = requests.chain(objects).collect();
    let horizon = store.states_horizon(usize::MAX).await.unwrap();
    let states = store.states(Revision::default(), usize::MAX).await.unwrap();
    assert!(states.is_sorted_by_key(|state| state.revision));
    assert!(
        states
            .iter()
            .all(|state| horizon < state.revision && state.revision <= at)
    );
    let known: Vec<_> = states
        .iter()
        .map(|state| (name(&state.state), state.revision))
        .collect();
    for (name, at) in acknowledged {
        assert!(
            *at <= horizon || known.contains(&(name.clone(), *at)),
            "the state of {name} at {at} was lost"
        );
    }
    // What was there at the horizon, as far as nothing happened to it since, and what happened since.
    let mut told: Seen = there
        .iter()
        .filter(|(_, version)| **version <= horizon)
        .map(|(name, version)| (name.clone(), *version))
        .collect();
    for state in &states {
        assert_eq!(state.state.version(), state.revision);
        match state.kind {
            StateChangeKind::Deleted => told.remove(&name(&state.state)),
            StateChangeKind::Added | StateChangeKind::Modified => {
                told.insert(name(&state.state), state.revision)
            }
        };
    }
    assert_eq!(told, there);
}

/// The child's part: callers who make, change and delete requests and objects, and one who forgets, until the process dies.
async fn change_until_killed(path: &Path) {
    let round: u32 = std::env::var(ROUND).expect("the round").parse().unwrap();
    let store = Arc::new(SqliteStore::open(path).unwrap());
    let mut callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let prefix = format!("{round}-{caller}");
            tokio::spawn(change_for_ever(Arc::clone(&store), prefix))
        })
        .collect();
    callers.push(tokio::spawn(forget_for_ever(store)));
    for caller in callers {
        caller.await.unwrap();
    }
}

async fn change_for_ever(store: Arc<SqliteStore>, prefix: String) {
    let sample = Sample::default();
    for number in 0_u32.. {
        let name = format!("{prefix}-{number}");
        let digest = fingerprint_sha256(name.as_bytes());
        let [random @ .., _, _, _, _, _, _] = *digest.as_bytes();
        let [id @ .., _, _, _, _, _, _, _, _, _, _] = random;
        let request = RequestRecord {
            id: RequestId::from_bytes(id),
            retained: true,
            ..sample.request_at(DOOR, &name)
        };
        let key = Sample::object_key(&name);
        let approved = RequestUpdate::to_state(request.id, RequestState::Approved, true);
        let request_id = request.id;
        let object = sample.object(key.clone());
        let mut changes = vec![
            (name.clone(), Write::InsertRequest(request)),
            (key.to_string(), Write::PutObject(object.clone())),
            (name.clone(), Write::UpdateRequest(approved)),
            (key.to_string(), Write::PutObject(object)),
        ];
        if number.is_multiple_of(2) {
            changes.push((name, Write::DeleteRequest(request_id)));
            changes.push((key.to_string(), Write::DeleteObject { key }));
        }
        for (name, write) in changes {
            let change = Change {
                writes: vec![write],
                ..Change::default()
            };
            let at = store.commit(change).await.unwrap().revision;
            let line = format!("acknowledged {name} {at}\n");
            std::io::stdout().write_all(line.as_bytes()).unwrap();
        }
    }
}

/// Keeps a part of the history only.
async fn forget_for_ever(store: Arc<SqliteStore>) {
    let mut revisions = store.revisions();
    let mut trimmed = *revisions.borrow();
    loop {
        revisions.changed().await.unwrap();
        let last = *revisions.borrow_and_update();
        if last.0 < trimmed.0 + 100 {
            continue;
        }
        trimmed = last;
        let before = Revision(last.0 - 50);
        let change = Change {
            writes: vec![Write::TrimStates { before }],
            ..Change::default()
        };
        store.commit(change).await.unwrap();
    }
}

fn name(state: &State) -> String {
    match state {
        State::Request(request) => request.key.clone(),
        State::Object(object) => object.key.to_string(),
    }
}

/// What the child reports of a commit.
fn parse(line: &str) -> Option<(String, Revision)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [.., "acknowledged", name, revision] = words.as_slice() else {
        return None;
    };
    Some(((*name).to_owned(), Revision(revision.parse().ok()?)))
}
