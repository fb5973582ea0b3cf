//! Many writers, and watches that come and go: each sees exactly what happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_authority::{Revision, State, StateChange, StateChangeKind};
use serde_json::{Value, json};

use super::stream::{in_short, version};
use super::{Api, CSRS, manifest, with_condition};

/// Reproducible chance.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

const WRITERS: u64 = 6;
const WATCHERS: u64 = 12;
const WRITES: u64 = 60;
/// Few, so that they are created, changed and deleted again and again.
const NAMES: u64 = 12;

/// Creates, labels, decides or deletes an object; whether it is there is left to chance.
async fn write(api: &Api, dice: &mut Dice) {
    let name = format!("csr-{}", dice.roll(NAMES));
    let path = format!("{CSRS}/{name}");
    match dice.roll(5) {
        0 | 1 => {
            let mut object = manifest(&name);
            object["metadata"]["labels"] = json!({"team": dice.roll(3).to_string()});
            api.call("POST", CSRS).json(&object).send().await;
        }
        2 => {
            let patch = json!({"metadata": {"labels": {"team": dice.roll(3).to_string()}}});
            let call = api.call("PATCH", &path);
            let call = call.body("application/merge-patch+json", patch.to_string());
            call.send().await;
        }
        3 => {
            let object = api.get(&path).await;
            if object.status == 200 {
                let decided = with_condition(&object.value(), "Approved");
                let path = format!("{path}/approval");
                api.call("PUT", &path).json(&decided).send().await;
            }
        }
        _ => {
            api.call("DELETE", &path).send().await;
        }
    }
}

/// What a watch saw: where it began, and every event.
type Seen = (u64, Vec<(String, String, u64)>);

/// Follows for a while from somewhere, again and again; the last time to the end.
async fn follow(api: &Api, mut dice: Dice, selector: &str, done: &AtomicBool) -> Vec<Seen> {
    let mut seen: Vec<Seen> = Vec::new();
    let mut known = vec![api.version().await];
    loop {
        let is_last = done.load(Ordering::SeqCst);
        let end = match is_last {
            true => api.version().await,
            false => 0,
        };
        let at = usize::try_from(dice.roll(known.len() as u64)).unwrap();
        let start = known[at];
        let query = format!("resourceVersion={start}&timeoutSeconds=1&{selector}");
        let mut stream = api.watch(&query).await;
        let mut events = Vec::new();
        let wanted = dice.roll(40);
        // Bookmarks are not asked for: the last watch ends by its time.
        while let Some(event) = match is_last || (events.len() as u64) < wanted {
            true => stream.next().await,
            false => None,
        } {
            events.push(in_short(&event));
        }
        known.extend(events.iter().map(|(_, _, version)| *version));
        seen.push((start, events));
        if is_last {
            let (_, events) = seen.last().unwrap();
            assert!(events.iter().all(|(_, _, version)| *version <= end));
            return seen;
        }
    }
}

/// What the store says happened.
async fn truth(api: &Api, since: u64) -> Vec<StateChange> {
    let (mut all, mut since) = (Vec::new(), Revision(since));
    loop {
        let page = api
            .world
            .authority
            .objects
            .states(since, 100)
            .await
            .unwrap();
        let Some(last) = page.last() else {
            return all;
        };
        since = last.revision;
        all.extend(page);
    }
}

fn told(change: &StateChange) -> (String, String, u64) {
    let State::Request(record) = &change.state else {
        panic!("an object nobody made");
    };
    let kind = match change.kind {
        StateChangeKind::Added => "ADDED",
        StateChangeKind::Modified => "MODIFIED",
        StateChangeKind::Deleted => "DELETED",
    };
    (kind.to_owned(), record.key.clone(), change.revision.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_watch_sees_every_event_once_and_in_order() {
    let api = Arc::new(Api::start().await);
    let begun = api.version().await;
    let done = Arc::new(AtomicBool::new(false));
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|number| {
            let (api, done) = (Arc::clone(&api), Arc::clone(&done));
            let dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (number + 1));
            tokio::spawn(async move { follow(&api, dice, "", &done).await })
        })
        .collect();
    // One that selects: its events, put together, are what a selecting list shows.
    let red = {
        let (api, done) = (Arc::clone(&api), Arc::clone(&done));
        tokio::spawn(async move { follow(&api, Dice(77), "labelSelector=team%3D1", &done).await })
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let api = Arc::clone(&api);
            tokio::spawn(async move {
                let mut dice = Dice(0x1234_5678_9abc_def1 ^ (number + 1));
                for _ in 0..WRITES {
                    write(&api, &mut dice).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);

    let truth: Vec<_> = truth(&api, begun).await.iter().map(told).collect();
    assert!(truth.len() > 100, "little happened: {}", truth.len());
    let mut whole = 0;
    for watcher in watchers {
        let seen = watcher.await.unwrap();
        whole += 1;
        for (at, (start, events)) in seen.iter().enumerate() {
            let after: Vec<_> = truth
                .iter()
                .filter(|(_, _, version)| version > start)
                .collect();
            let prefix: Vec<_> = after.iter().take(events.len()).copied().collect();
            assert_eq!(events.iter().collect::<Vec<_>>(), prefix, "after {start}");
            if at + 1 == seen.len() {
                assert_eq!(events.len(), after.len(), "the last goes to the end");
            }
        }
    }
    assert_eq!(whole, WATCHERS);

    let list = api.get(CSRS).await.ok();
    let listed = versions(&list);
    let mut folded = BTreeMap::new();
    for (kind, name, version) in &truth {
        fold(&mut folded, kind, name, *version);
    }
    assert_eq!(folded, listed);

    let seen = red.await.unwrap();
    let list = api
        .get(&format!("{CSRS}?labelSelector=team%3D1"))
        .await
        .ok();
    let (start, events) = seen.last().unwrap();
    let exact =
        format!("{CSRS}?labelSelector=team%3D1&resourceVersionMatch=Exact&resourceVersion={start}");
    let mut folded = versions(&api.get(&exact).await.ok());
    for (kind, name, version) in events {
        match kind.as_str() {
            "ADDED" => assert!(!folded.contains_key(name), "{name} is there"),
            _ => assert!(folded.contains_key(name), "{name} is not there"),
        }
        fold(&mut folded, kind, name, *version);
    }
    assert_eq!(folded, versions(&list));
}

fn versions(list: &Value) -> BTreeMap<String, u64> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            let name = item["metadata"]["name"].as_str().unwrap();
            (name.to_owned(), version(item))
        })
        .collect()
}

fn fold(objects: &mut BTreeMap<String, u64>, kind: &str, name: &str, version: u64) {
    match kind {
        "DELETED" => objects.remove(name),
        _ => objects.insert(name.to_owned(), version),
    };
}
