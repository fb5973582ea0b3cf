//! The history of what doors show: every state, once, in commit order, and no gap that nobody is told of.

use countersign_authority::store::LiveRequest;
use std::collections::BTreeMap;
use tokio::sync::mpsc;

use countersign_authority::store::{Change, RequestUpdate, Store, Write};
use countersign_authority::{
    Door, RequestRecord, RequestState, Revision, State, StateChange, StateChangeKind,
};

use super::sample::{assert_same, insert, untouched, write};
use super::{Ground, Sample};

const DOOR: Door = Door::named("kubernetes");

/// Each write to a retained request leaves its state under the commit's revision, its deletion too.
pub async fn every_state_of_a_retained_request_is_on_record(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut request = retained(&sample, "a");
    let mut expected = Vec::new();
    request.version = insert(&*store, &request).await.revision;
    expected.push((StateChangeKind::Added, request.clone()));
    for (state, attachment) in [
        (RequestState::Approved, b"one".as_slice()),
        (RequestState::Issued, b"two"),
    ] {
        request.state = state;
        request.attachment = attachment.to_vec();
        let update = RequestUpdate {
            attachment: Some(attachment.to_vec()),
            ..untouched(&request)
        };
        request.version = write(&*store, vec![Write::UpdateRequest(update)])
            .await
            .revision;
        expected.push((StateChangeKind::Modified, request.clone()));
        let found = store.request(request.id).await.unwrap().unwrap();
        assert_same(found, request.clone());
    }
    let deletion = Write::DeleteRequest(request.id);
    request.version = write(&*store, vec![deletion]).await.revision;
    expected.push((StateChangeKind::Deleted, request));
    assert_eq!(states(&*store).await, shown(expected));
}

/// Requests that their door does not retain, and those that never had their name, have no history.
pub async fn what_no_door_shows_has_no_history(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut passing = retained(&sample, "a");
    passing.retained = false;
    let mut nameless = retained(&sample, "b");
    nameless.live = false;
    for request in [&passing, &nameless] {
        insert(&*store, request).await;
    }
    let update = Write::UpdateRequest(untouched(&passing));
    write(&*store, vec![update]).await;
    for request in [passing, nameless] {
        write(&*store, vec![Write::DeleteRequest(request.id)]).await;
    }
    assert_eq!(states(&*store).await, Vec::<String>::new());
}

/// A retained request that gives up its name is gone from its door.
pub async fn a_released_name_is_a_deletion(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut request = retained(&sample, "a");
    request.version = insert(&*store, &request).await.revision;
    let added = (StateChangeKind::Added, request.clone());
    request.live = false;
    let update = Write::UpdateRequest(untouched(&request));
    request.version = write(&*store, vec![update]).await.revision;
    let expected = vec![added, (StateChangeKind::Deleted, request.clone())];
    assert_eq!(states(&*store).await, shown(expected.clone()));
    write(&*store, vec![Write::DeleteRequest(request.id)]).await;
    assert_eq!(states(&*store).await, shown(expected));
}

/// Requests and objects of one commit and of many are one history.
pub async fn requests_and_objects_are_one_history(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut expected = Vec::new();
    for round in 0..3 {
        let (first, second) = (
            retained(&sample, &format!("{round}a")),
            retained(&sample, &format!("{round}b")),
        );
        let object = sample.object(Sample::object_key(&round.to_string()));
        let writes = vec![
            Write::InsertRequest(first),
            Write::PutObject(object.clone()),
            Write::InsertRequest(second),
            Write::PutObject(object.clone()),
        ];
        let at = write(&*store, writes).await.revision;
        let name = object.key.to_string();
        expected.extend([
            (at, StateChangeKind::Added, format!("{round}a")),
            (at, StateChangeKind::Added, name.clone()),
            (at, StateChangeKind::Added, format!("{round}b")),
            (at, StateChangeKind::Modified, name.clone()),
        ]);
        let removal = Write::DeleteObject { key: object.key };
        let at = write(&*store, vec![removal]).await.revision;
        expected.push((at, StateChangeKind::Deleted, name));
    }
    let whole = store.states(Revision::default(), 100).await.unwrap();
    assert_eq!(whole.iter().map(summary).collect::<Vec<_>>(), expected);
    assert!(
        whole
            .iter()
            .all(|state| state.state.version() == state.revision)
    );
    // What is not there leaves no state when it is deleted.
    let removal = Write::DeleteObject {
        key: Sample::object_key("0"),
    };
    let at = write(&*store, vec![removal]).await.revision;
    assert!(store.states(at, 1).await.unwrap().is_empty());
    for limit in 1..=16 {
        let mut found: Vec<StateChange> = Vec::new();
        loop {
            let since = found.last().map(|state| state.revision);
            let page = store
                .states(since.unwrap_or_default(), limit)
                .await
                .unwrap();
            let commits = page.chunk_by(|one, next| one.revision == next.revision);
            assert!(page.len() <= limit || commits.count() == 1, "limit {limit}");
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_same(found, whole.clone());
    }
}

/// A listing and the history after its revision are the whole story.
pub async fn the_history_goes_on_from_a_listing(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut requests = Vec::new();
    for name in ["c", "a", "b", "d"] {
        let mut request = retained(&sample, name);
        request.version = insert(&*store, &request).await.revision;
        requests.push(request);
    }
    insert(&*store, &sample.request("another door's")).await;
    let mut nameless = retained(&sample, "e");
    nameless.live = false;
    insert(&*store, &nameless).await;
    write(&*store, vec![Write::DeleteRequest(requests[3].id)]).await;
    requests.truncate(3);
    requests.sort_by(|one, other| one.key.cmp(&other.key));
    let (at, found) = live(&*store).await;
    assert_eq!(at, *store.revisions().borrow());
    assert_same(found, requests);

    let names = |found: Vec<RequestRecord>| -> BTreeMap<String, Revision> {
        let names = found.into_iter();
        names.map(|found| (found.key, found.version)).collect()
    };
    let mut cache = names(live(&*store).await.1);
    let update = Write::UpdateRequest(untouched(&store_request(&*store, "b").await));
    let deletion = Write::DeleteRequest(store_request(&*store, "a").await.id);
    write(&*store, vec![update]).await;
    write(&*store, vec![deletion]).await;
    insert(&*store, &retained(&sample, "f")).await;
    for state in store.states(at, 100).await.unwrap() {
        let (version, kind, name) = summary(&state);
        match kind {
            StateChangeKind::Deleted => cache.remove(&name),
            StateChangeKind::Added | StateChangeKind::Modified => cache.insert(name, version),
        };
    }
    assert_eq!(cache, names(live(&*store).await.1));
}

/// What occupies names, put together.
async fn live(store: &dyn Store) -> (Revision, Vec<RequestRecord>) {
    let (sender, mut pages) = mpsc::channel::<Vec<LiveRequest>>(1);
    let taking = async {
        let mut found = Vec::new();
        while let Some(page) = pages.recv().await {
            found.extend(page.into_iter().map(|live| live.record));
        }
        found
    };
    let (at, found) = tokio::join!(store.live_requests(&DOOR, sender), taking);
    (at.unwrap(), found)
}

/// What is forgotten is the oldest, whole commits of it, and the horizon says so; what is current stays.
pub async fn trimming_moves_the_horizon(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    assert_eq!(store.states_horizon(usize::MAX).await.unwrap(), Revision(0));
    let mut commits = Vec::new();
    for number in 0..4 {
        let names = [format!("{number}a"), format!("{number}b")];
        let requests = names.map(|name| Write::InsertRequest(retained(&sample, &name)));
        let object = Write::PutObject(sample.object(Sample::object_key(&number.to_string())));
        let writes = requests.into_iter().chain([object]).collect();
        commits.push(write(&*store, writes).await.revision);
    }
    let whole = store.states(Revision::default(), 100).await.unwrap();
    for (before, left) in [
        (commits[0], 12),
        (commits[2], 6),
        (commits[1], 6),
        (Revision(commits[2].0 + 1), 3),
    ] {
        trim(&*store, before).await;
        let found = store.states(Revision::default(), 100).await.unwrap();
        assert_same(found, whole[whole.len() - left..].to_vec());
    }
    assert_eq!(store.states_horizon(usize::MAX).await.unwrap(), commits[2]);
    // Nobody forgets what is not yet there.
    let trimmed = trim(&*store, Revision(u64::MAX)).await;
    assert!(states(&*store).await.is_empty());
    let horizon = store.states_horizon(usize::MAX).await.unwrap();
    assert!(
        commits[3] <= horizon && horizon < trimmed,
        "{horizon} {trimmed}"
    );
    assert_eq!(live(&*store).await.1.len(), 8);
    assert_eq!(store.objects().await.unwrap().1.len(), 4);
}

/// Much history is forgotten in parts, and each part moves the horizon.
pub async fn trimming_goes_in_parts(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let object = sample.object(Sample::object_key("a"));
    let put = |count: usize| {
        let writes = (0..count).map(|_| Write::PutObject(object.clone()));
        write(&*store, writes.collect())
    };
    for size in [2000, 100, 300, 300, 1] {
        put(size).await;
    }
    let last = put(1).await.revision;
    let (mut parts, mut left) = (0, 2702);
    while store.states_horizon(usize::MAX).await.unwrap().0 + 1 < last.0 {
        trim(&*store, last).await;
        parts += 1;
        let states = store.states(Revision::default(), 3000).await.unwrap();
        assert!(states.len() < left);
        left = states.len();
    }
    assert!(parts > 1 && left == 1, "{parts} {left}");
}

/// Revisions that the history forgot are not given out again, and what was kept is there after a start.
pub async fn the_history_outlives_a_start(ground: &dyn Ground) {
    let sample = Sample::default();
    let mut last = Revision::default();
    for round in 0..3 {
        let store = ground.open().await;
        let kept = usize::from(round > 0);
        assert_eq!(states(&*store).await.len(), kept);
        for name in ["a", "b"] {
            let request = retained(&sample, name);
            let added = insert(&*store, &request).await.revision;
            let gone = write(&*store, vec![Write::DeleteRequest(request.id)])
                .await
                .revision;
            assert!(last < added && added < gone);
            last = gone;
        }
        trim(&*store, last).await;
        assert_eq!(states(&*store).await.len(), 1);
        last = *store.revisions().borrow();
    }
}

/// A change that fails leaves no state, and one of another in its group stays.
pub async fn a_failed_change_leaves_no_state(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let kept = retained(&sample, "a");
    insert(&*store, &kept).await;
    let failing = Change {
        writes: vec![
            Write::PutObject(sample.object(Sample::object_key("a"))),
            Write::InsertRequest(retained(&sample, "b")),
            Write::InsertRequest(retained(&sample, "a")),
        ],
        ..Change::default()
    };
    let good = Change {
        writes: vec![Write::PutObject(sample.object(Sample::object_key("b")))],
        ..Change::default()
    };
    let (failed, committed) = tokio::join!(store.commit(failing), store.commit(good));
    assert!(failed.is_err());
    let found = store.states(Revision::default(), 100).await.unwrap();
    let names: Vec<_> = found.iter().map(|state| summary(state).2).collect();
    assert_eq!(names, ["a".to_owned(), Sample::object_key("b").to_string()]);
    assert_eq!(found[1].revision, committed.unwrap().revision);
}

fn retained(sample: &Sample, name: &str) -> RequestRecord {
    RequestRecord {
        retained: true,
        ..sample.request_at(DOOR, name)
    }
}

async fn store_request(store: &dyn Store, name: &str) -> RequestRecord {
    let past = countersign_authority::store::Past::Ignore;
    store.request_at(&DOOR, name, past).await.unwrap().unwrap()
}

async fn trim(store: &dyn Store, before: Revision) -> Revision {
    write(store, vec![Write::TrimStates { before }])
        .await
        .revision
}

fn summary(change: &StateChange) -> (Revision, StateChangeKind, String) {
    let name = match &change.state {
        State::Request(request) => request.key.clone(),
        State::Object(object) => object.key.to_string(),
    };
    (change.revision, change.kind, name)
}

/// The whole history, one line each.
async fn states(store: &dyn Store) -> Vec<String> {
    let found = store.states(Revision::default(), 100).await.unwrap();
    found.iter().map(|state| format!("{state:?}")).collect()
}

fn shown(expected: Vec<(StateChangeKind, RequestRecord)>) -> Vec<String> {
    let lines = expected.into_iter().map(|(kind, request)| {
        let change = StateChange {
            revision: request.version,
            kind,
            state: State::Request(Box::new(request)),
        };
        format!("{change:?}")
    });
    lines.collect()
}
