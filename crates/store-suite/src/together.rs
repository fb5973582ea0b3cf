//! Whole or not at all, and many callers at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_authority::store::{
    Change, CommitFault, Past, Precondition, RequestFilter, Store, Write,
};
use countersign_authority::{Door, RequestState, Revision};
use futures_util::future::join_all;

use super::sample::insert;
use super::{Ground, Sample};

/// If a later precondition fails, what would have been written is not, nor is it told.
pub async fn a_failed_precondition_leaves_nothing(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    insert(&*store, &sample.request("taken")).await;
    let before = trace(&*store).await;
    let mut change = sample.enrolment("a").intend(&sample);
    let failing = Precondition::KeyFree {
        door: Sample::door(),
        key: "taken".to_owned(),
    };
    change.preconditions.push(failing.clone());
    let refused = store.commit(change).await;
    assert!(
        matches!(&refused, Err(CommitFault::Conflict { precondition }) if *precondition == failing)
    );
    assert_eq!(trace(&*store).await, before);
}

/// If a later write fails, the earlier ones of the change are undone.
pub async fn a_failed_write_leaves_nothing(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolment = sample.enrolment("a");
    store.commit(enrolment.intend(&sample)).await.unwrap();
    let before = trace(&*store).await;
    let failing = [
        Write::Intend(enrolment.intent.clone()),
        Write::InsertRequest(sample.request("a")),
        Write::DeleteRequest(sample.request("b").id),
        Write::Record {
            issuer: Sample::issuer(),
            serial: Sample::serial(1000),
            der: vec![1],
        },
        Write::Revoke(enrolment.revocation(
            Sample::time(0),
            countersign_pki::RevocationReason::Unspecified,
        )),
    ];
    for write in failing {
        let mut change = sample.enrolment("b").intend(&sample);
        change.writes.push(write);
        assert!(store.commit(change).await.is_err());
        assert_eq!(trace(&*store).await, before);
    }
    store
        .commit(sample.enrolment("b").intend(&sample))
        .await
        .unwrap();
}

/// Of many who want one name at the same time, one gets it and the others are told why not.
pub async fn one_of_many_conflicting_changes_wins(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Arc::new(Sample::default()));
    for key in ["a", "b", "c"] {
        let free = Precondition::KeyFree {
            door: Sample::door(),
            key: key.to_owned(),
        };
        let outcomes = at_once(&store, |_| Change {
            preconditions: vec![free.clone()],
            writes: vec![Write::InsertRequest(sample.request(key))],
            audit: vec![],
        })
        .await;
        let won: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| outcome.as_ref().ok())
            .collect();
        assert_eq!(won.len(), 1);
        let told = outcomes.iter().filter(
            |outcome| matches!(outcome, Err(CommitFault::Conflict { precondition }) if *precondition == free),
        );
        assert_eq!(told.count(), CALLERS - 1);
        let stored = store
            .request_at(&Sample::door(), key, Past::Ignore)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(stored.version, won[0].revision);
    }
}

/// Of many who are about to sign for one name at the same time, one may.
pub async fn one_of_many_intents_for_a_name_wins(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let request = sample.request("a");
    insert(&*store, &request).await;
    let outcomes = at_once(&store, |_| Change {
        preconditions: vec![Precondition::NewestCertificate {
            issuer: Sample::issuer(),
            name: "a".to_owned(),
            serial: None,
        }],
        writes: vec![Write::Intend(sample.intent(&request))],
        audit: vec![],
    })
    .await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert_eq!(store.open_intents().await.unwrap().len(), 1);
}

/// Changes that are committed side by side do not share their faults, and what one began to write is undone.
pub async fn a_conflict_fails_alone(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    insert(&*store, &sample.request("taken")).await;
    let outcomes = at_once(&store, |number| {
        let mut names = vec![format!("free-{number}")];
        if !number.is_multiple_of(2) {
            names.push("taken".to_owned());
        }
        let insert = |name: &String| Write::InsertRequest(sample.request(name));
        write_of(names.iter().map(insert).collect())
    })
    .await;
    for (number, outcome) in outcomes.iter().enumerate() {
        assert_eq!(
            outcome.is_ok(),
            number.is_multiple_of(2),
            "{number}: {outcome:?}"
        );
    }
    let stored = store.requests(RequestFilter::default()).await.unwrap();
    assert_eq!(stored.len(), CALLERS / 2 + 1);
}

/// A read that begins after an acknowledgement sees what was acknowledged.
pub async fn a_commit_is_visible_when_it_is_acknowledged(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Arc::new(Sample::default()));
    let callers = (0..16).map(|caller| {
        let (store, sample) = (Arc::clone(&store), Arc::clone(&sample));
        tokio::spawn(async move {
            for round in 0..20 {
                let enrolment = sample.enrolment(&format!("{caller}-{round}"));
                let intended = store
                    .commit(enrolment.intend(&sample))
                    .await
                    .unwrap()
                    .revision;
                let seen = store.request(enrolment.request.id).await.unwrap().unwrap();
                assert_eq!(
                    (seen.version, seen.state),
                    (intended, RequestState::Approved)
                );
                let recorded = store
                    .commit(enrolment.record(&sample))
                    .await
                    .unwrap()
                    .revision;
                let entry = store
                    .certificate(&Sample::issuer(), &enrolment.intent.serial)
                    .await
                    .unwrap();
                assert_eq!(entry.unwrap().der, enrolment.der());
                let seen = store.request(enrolment.request.id).await.unwrap().unwrap();
                assert_eq!((seen.version, seen.state), (recorded, RequestState::Issued));
            }
        })
    });
    for ended in join_all(callers).await {
        ended.unwrap();
    }
}

/// A reader that follows the audit log while others commit gets every commit once, in order: none appears behind it.
pub async fn a_reader_sees_no_gaps_while_writers_run(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Arc::new(Sample::default()));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (store, sample) = (Arc::clone(&store), Arc::clone(&sample));
            tokio::spawn(async move {
                let mut committed = Vec::new();
                for round in 0..50 {
                    let change = Change {
                        audit: vec![sample.audit("request", &format!("{writer}-{round}"))],
                        ..Change::default()
                    };
                    committed.push(store.commit(change).await.unwrap().revision);
                }
                committed
            })
        })
        .collect();
    let follower = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            let mut revisions = store.revisions();
            let mut followed = Vec::new();
            while followed.len() < 8 * 50 {
                let since = followed.last().copied().unwrap_or_default();
                let page = store.audit(since, 7).await.unwrap();
                if page.is_empty() {
                    revisions.changed().await.unwrap();
                }
                followed.extend(page.into_iter().map(|(revision, _)| revision));
            }
            followed
        }
    });
    let mut committed = BTreeSet::new();
    for writer in writers {
        let revisions = writer.await.unwrap();
        assert!(revisions.is_sorted_by(|one, next| one < next));
        committed.extend(revisions);
    }
    assert_eq!(
        follower.await.unwrap(),
        committed.into_iter().collect::<Vec<_>>()
    );
}

/// A listing that reaches over several doors is of one moment: what a commit moves from one to the other is at either.
pub async fn a_listing_shows_one_moment(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Arc::new(Sample::default()));
    let mover = {
        let (store, sample) = (Arc::clone(&store), Arc::clone(&sample));
        let mut here = sample.request_at(Door::named("a"), "nomad");
        insert(&*store, &here).await;
        tokio::spawn(async move {
            for _ in 0..MOVES {
                let door = if here.door == Door::named("a") {
                    Door::named("b")
                } else {
                    Door::named("a")
                };
                let there = sample.request_at(door, "nomad");
                let writes = vec![
                    Write::DeleteRequest(here.id),
                    Write::InsertRequest(there.clone()),
                ];
                store.commit(write_of(writes)).await.unwrap();
                here = there;
            }
        })
    };
    while !mover.is_finished() {
        let listed = store.requests(RequestFilter::default()).await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
    }
    mover.await.unwrap();
}

/// A look-up that may answer with the past does not miss a present that began meanwhile.
pub async fn a_name_is_looked_up_at_one_moment(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Arc::new(Sample::default()));
    let mut past = sample.request("a");
    past.live = false;
    insert(&*store, &past).await;
    let occupant = {
        let (store, sample) = (Arc::clone(&store), Arc::clone(&sample));
        tokio::spawn(async move {
            for _ in 0..MOVES {
                // The occupant is older than a request that never held the name: only its being live tells.
                let occupant = sample.request("a");
                let mut newer = sample.request("a");
                newer.live = false;
                let both = [occupant.clone(), newer.clone()].map(Write::InsertRequest);
                store.commit(write_of(both.into())).await.unwrap();
                let gone = [occupant.id, newer.id].map(Write::DeleteRequest);
                store.commit(write_of(gone.into())).await.unwrap();
            }
        })
    };
    while !occupant.is_finished() {
        let found = store
            .request_at(&Sample::door(), "a", Past::Include)
            .await
            .unwrap()
            .unwrap();
        assert!(found.live || found.id == past.id, "{found:?}");
    }
    occupant.await.unwrap();
}

/// Commits from many tasks at the same time.
pub(super) async fn at_once(
    store: &Arc<dyn Store>,
    change: impl Fn(usize) -> Change,
) -> Vec<Result<countersign_authority::store::Committed, CommitFault>> {
    let tasks: Vec<_> = (0..CALLERS)
        .map(|number| {
            let (store, change) = (Arc::clone(store), change(number));
            tokio::spawn(async move { store.commit(change).await })
        })
        .collect();
    join_all(tasks)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

fn write_of(writes: Vec<Write>) -> Change {
    Change {
        writes,
        ..Change::default()
    }
}

/// Everything a change could have left.
async fn trace(store: &dyn Store) -> String {
    format!(
        "{:?} {:?} {:?}",
        store.requests(RequestFilter::default()).await.unwrap(),
        store.open_intents().await.unwrap(),
        store.audit(Revision::default(), 1000).await.unwrap(),
    )
}

const CALLERS: usize = 64;
const MOVES: usize = 300; // without a snapshot, enough to be seen half-way
