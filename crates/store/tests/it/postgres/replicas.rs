//! Several processes that share a database.

use std::sync::Arc;
use std::time::Duration;

use countersign_authority::Revision;
use countersign_authority::store::{
    AuditReads as _, Change, CommitFault, LedgerReads as _, ObjectReads as _, Past, Precondition,
    RequestReads as _, Store as _, TokenReads as _, Write,
};
use countersign_pki::fingerprint_sha256;
use countersign_store::PostgresStore;
use countersign_store_suite::Sample;
use futures_util::future::join_all;
use tokio::time::timeout;

use super::{A_WHILE, Outcome, commit, remark, session};
use crate::ground::Database;

async fn replicas(ground: &Database, number: usize) -> Vec<Arc<PostgresStore>> {
    let mut replicas = Vec::new();
    for _ in 0..number {
        replicas.push(Arc::new(ground.store().await));
    }
    replicas
}

/// Commits of all replicas at the same time.
async fn at_once(
    replicas: &[Arc<PostgresStore>],
    number: usize,
    change: impl Fn(usize) -> Change,
) -> Vec<Outcome> {
    let commits = (0..number).zip(replicas.iter().cycle());
    let commits = commits.map(|(number, store)| commit(store, change(number)));
    let commits: Vec<_> = commits.collect();
    join_all(commits)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

fn won(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.is_ok()).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revision_is_not_seen_before_the_one_before_it() {
    let ground = Database::new();
    let (store, sample) = (Arc::new(ground.store().await), Sample::default());
    let first = store
        .commit(remark(&sample, "first"))
        .await
        .unwrap()
        .revision;
    for end in ["COMMIT", "ROLLBACK"] {
        // Another process has its revision, and does not come to an end.
        let other = session(&ground).await;
        let held = "BEGIN; UPDATE store_state SET revision = revision + 1 WHERE one = 1";
        other.batch_execute(held).await.unwrap();
        let mut waiting = commit(&store, remark(&sample, end));
        assert!(timeout(A_WHILE, &mut waiting).await.is_err(), "it waits");
        let seen = store.audit(first, 10).await.unwrap();
        assert!(seen.iter().all(|(_, entry)| entry.subject != end));
        let before = *store.revisions().borrow();
        other.batch_execute(end).await.unwrap();
        let committed = waiting.await.unwrap().unwrap().revision;
        let next = if end == "COMMIT" { 2 } else { 1 };
        assert_eq!(committed, Revision(before.0 + next), "{end}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_holds_a_name_stops_nobody_else() {
    let ground = Database::new();
    let (store, sample) = (Arc::new(ground.store().await), Sample::default());
    let enrolment = sample.enrolment("a");
    store.commit(enrolment.intend(&sample)).await.unwrap();
    let other = session(&ground).await;
    let held = "BEGIN; SELECT * FROM intents FOR UPDATE";
    other.batch_execute(held).await.unwrap();
    for number in 0..10 {
        let name = format!("other-{number}");
        let committed = commit(&store, sample.enrolment(&name).intend(&sample));
        timeout(Duration::from_secs(20), committed)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
    other.batch_execute("COMMIT").await.unwrap();
    store.commit(enrolment.record(&sample)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replica_sees_every_commit_in_one_order() {
    let ground = Database::new();
    let (replicas, sample) = (replicas(&ground, 3).await, Sample::default());
    let writing = at_once(&replicas, 300, |number| {
        remark(&sample, &number.to_string())
    });
    let following = replicas.iter().map(|store| async {
        let mut revisions = store.revisions();
        let mut seen = Vec::new();
        while seen.len() < 300 {
            let since = seen.last().copied().unwrap_or_default();
            let page = store.audit(since, 7).await.unwrap();
            if page.is_empty() {
                revisions.changed().await.unwrap();
            }
            seen.extend(page.into_iter().map(|(revision, _)| revision));
        }
        seen
    });
    let (outcomes, seen) = tokio::join!(writing, join_all(following));
    let mut committed: Vec<Revision> = outcomes
        .into_iter()
        .map(|it| it.unwrap().revision)
        .collect();
    committed.sort_unstable();
    committed.dedup();
    assert_eq!(committed.len(), 300);
    for seen in seen {
        assert_eq!(seen, committed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_on_several_replicas_gets_a_name() {
    let ground = Database::new();
    let (replicas, sample) = (replicas(&ground, 3).await, Sample::default());
    for name in ["a", "b", "c", "d"] {
        // Half of them want to store a request, half to sign for one that is stored with its intent.
        let outcomes = at_once(&replicas, 48, |number| {
            let free = Precondition::KeyFree {
                door: Sample::door(),
                key: name.to_owned(),
            };
            let write = if number % 2 == 0 {
                Write::InsertRequest(sample.request(name))
            } else {
                Write::Intend(sample.enrolment(name).held(&sample).intent)
            };
            Change {
                preconditions: vec![free],
                writes: vec![write],
                ..Change::default()
            }
        })
        .await;
        assert_eq!(won(&outcomes), 1, "{name}");
        let told = |outcome: &Outcome| {
            matches!(
                outcome,
                Err(CommitFault::Conflict {
                    precondition: Precondition::KeyFree { .. }
                })
            )
        };
        assert_eq!(outcomes.iter().filter(|outcome| told(outcome)).count(), 47);
        for store in &replicas {
            let found = store.request_at(&Sample::door(), name, Past::Ignore).await;
            assert!(found.unwrap().is_some());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_spent_once_over_all_replicas() {
    let ground = Database::new();
    let (replicas, sample) = (replicas(&ground, 3).await, Sample::default());
    for (max_uses, with_precondition) in [(1, true), (1, false), (5, true), (5, false)] {
        let token = sample.glob_token(max_uses);
        let put = Change {
            writes: vec![Write::PutToken(token.clone())],
            ..Change::default()
        };
        replicas[0].commit(put).await.unwrap();
        let outcomes = at_once(&replicas, 60, |number| {
            let key = fingerprint_sha256(&number.to_be_bytes());
            let used = sample.token_use(&token, "a", &key);
            let usable = Precondition::TokenUsable {
                id: used.token.clone(),
                certname: used.certname.clone(),
                key_fingerprint: used.key_fingerprint,
                at: used.at,
            };
            Change {
                preconditions: if with_precondition {
                    vec![usable]
                } else {
                    vec![]
                },
                writes: vec![Write::UseToken(used)],
                ..Change::default()
            }
        })
        .await;
        assert_eq!(won(&outcomes), usize::try_from(max_uses).unwrap());
        let uses = replicas[1].token_uses(&token.id, 100).await.unwrap();
        assert_eq!(uses.len(), won(&outcomes));
    }
}

/// What a precondition speaks of is not changed by another replica before the commit: the change that renews relies on a
/// certificate that the other revokes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_that_was_committed_first_is_seen_by_every_renewal() {
    let ground = Database::new();
    let (replicas, sample) = (replicas(&ground, 2).await, Sample::default());
    for number in 0..40 {
        let enrolment = sample.enrolment(&format!("{number}"));
        replicas[0].commit(enrolment.intend(&sample)).await.unwrap();
        replicas[0].commit(enrolment.record(&sample)).await.unwrap();
        let revoke = Change {
            writes: vec![Write::Revoke(enrolment.revocation(
                Sample::time(1),
                countersign_pki::RevocationReason::KeyCompromise,
            ))],
            ..Change::default()
        };
        let renew = Change {
            preconditions: vec![Precondition::Unrevoked {
                issuer: Sample::issuer(),
                serial: enrolment.intent.serial,
            }],
            ..Change::default()
        };
        let (revoked, renewed) = (commit(&replicas[0], revoke), commit(&replicas[1], renew));
        let revoked = revoked.await.unwrap().unwrap().revision;
        if let Ok(renewed) = renewed.await.unwrap() {
            assert!(renewed.revision < revoked);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_without_a_notification_is_noticed() {
    let ground = Database::new();
    let (store, sample) = (ground.store().await, Sample::default());
    store.commit(remark(&sample, "first")).await.unwrap();
    let mut revisions = store.revisions();
    let before = *revisions.borrow_and_update();
    ground.sql("UPDATE store_state SET revision = revision + 1");
    timeout(Duration::from_secs(10), revisions.changed())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(*revisions.borrow(), Revision(before.0 + 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_at_another_replica() {
    let ground = Database::new();
    let (replicas, sample) = (replicas(&ground, 2).await, Sample::default());
    let put = |name: &str| Change {
        writes: vec![Write::PutObject(sample.object(Sample::object_key(name)))],
        ..Change::default()
    };
    let mut expected = Vec::new();
    for number in 0..20 {
        let store = &replicas[number % 2];
        expected.push(
            store
                .commit(put(&number.to_string()))
                .await
                .unwrap()
                .revision,
        );
    }
    let mut seen: Vec<Revision> = Vec::new();
    for number in 0.. {
        let since = seen.last().copied().unwrap_or_default();
        let page = replicas[number % 2].states(since, 3).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page.into_iter().map(|state| state.revision));
    }
    assert_eq!(seen, expected);
}

/// The name that an intent takes is seen by the counting of certificates on another replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_counted_with_those_that_another_replica_records() {
    let ground = Database::new();
    let (replicas, sample) = (replicas(&ground, 2).await, Sample::default());
    for number in 0..40 {
        let name = format!("{number}");
        let enrolment = sample.enrolment(&name);
        replicas[0].commit(enrolment.intend(&sample)).await.unwrap();
        let counted = Change {
            preconditions: vec![Precondition::IssuedCount {
                issuer: Sample::issuer(),
                name: name.clone(),
                count: 0,
            }],
            ..Change::default()
        };
        let recorded = commit(&replicas[0], enrolment.record(&sample));
        let counted = commit(&replicas[1], counted);
        let recorded = recorded.await.unwrap().unwrap().revision;
        if let Ok(counted) = counted.await.unwrap() {
            assert!(
                counted.revision < recorded,
                "it counted none, and came later"
            );
        }
        let found = replicas[1]
            .newest_certificate(&Sample::issuer(), &name)
            .await;
        assert!(found.unwrap().is_some());
    }
}
