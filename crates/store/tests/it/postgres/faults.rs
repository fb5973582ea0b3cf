//! A database that is away, in the way, or not ours.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use countersign_authority::Revision;
use countersign_authority::store::{AuditReads as _, CommitFault, Store as _, StoreFault};
use countersign_store::PostgresStore;
use countersign_store_suite::Sample;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::postgres::{Postgres, PostgresSettings};
use tokio::time::{Instant, sleep, timeout};

use super::{commit, remark, session};
use crate::ground::Database;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_refused_is_there_when_the_server_dies() {
    let mut server = Postgres::start(PostgresSettings::default()).unwrap();
    let url = server.socket_url("postgres", "postgres");
    let open = async |name: &str| {
        let store = PostgresStore::open(url.parse().unwrap(), name.to_owned()).await;
        Arc::new(store.unwrap())
    };
    let replicas = [open("a").await, open("b").await];
    let sample = Arc::new(Sample::default());
    let writers: Vec<_> = (0..8)
        .map(|writer: usize| {
            let store = Arc::clone(&replicas[writer % 2]);
            let sample = Arc::clone(&sample);
            tokio::spawn(async move {
                let mut said = BTreeMap::new();
                let until = Instant::now() + Duration::from_secs(6);
                let mut round = 0;
                while Instant::now() < until {
                    round += 1;
                    let text = format!("{writer}-{round}");
                    let outcome = store.commit(remark(&sample, &text)).await;
                    if outcome.is_err() {
                        sleep(Duration::from_millis(20)).await;
                    }
                    said.insert(text, outcome);
                }
                said
            })
        })
        .collect();
    for _ in 0..2 {
        sleep(Duration::from_secs(1)).await;
        server.kill9();
        sleep(Duration::from_millis(300)).await;
        server.restart().unwrap();
    }
    let mut said = BTreeMap::new();
    for writer in writers {
        said.extend(writer.await.unwrap());
    }
    // What is still under way in the database ends with its session.
    let stored = open("c").await.audit(Revision::default(), 1_000_000).await;
    let stored = stored.unwrap();
    let revisions: HashSet<Revision> = stored.iter().map(|(revision, _)| *revision).collect();
    assert_eq!(revisions.len(), stored.len(), "each commit has one entry");
    let stored: BTreeMap<String, Revision> = stored
        .into_iter()
        .map(|(revision, entry)| (entry.subject, revision))
        .collect();
    let (mut committed, mut refused) = (0, 0);
    for (text, outcome) in said {
        match outcome {
            Ok(acknowledged) => {
                committed += 1;
                assert_eq!(stored.get(&text), Some(&acknowledged.revision), "{text}");
            }
            Err(fault) => {
                refused += 1;
                assert!(!stored.contains_key(&text), "{text}: {fault:?}");
            }
        }
    }
    assert!(committed > 100, "{committed} committed, {refused} refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_hangs_is_told_in_time_and_comes_back() {
    let mut server = Postgres::start(PostgresSettings::default()).unwrap();
    let url = server.socket_url("postgres", "postgres");
    let store = PostgresStore::open(url.parse().unwrap(), "a".to_owned()).await;
    let (store, sample) = (Arc::new(store.unwrap()), Sample::default());
    store.commit(remark(&sample, "before")).await.unwrap();

    server.pause();
    let waiting = commit(&store, remark(&sample, "short"));
    sleep(Duration::from_secs(1)).await;
    server.resume();
    let short = timeout(Duration::from_secs(30), waiting).await;
    short.unwrap().unwrap().unwrap();

    server.pause();
    let begun = Instant::now();
    let outcome = store.commit(remark(&sample, "long")).await;
    assert!(matches!(outcome, Err(CommitFault::Store(_))), "{outcome:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
    server.resume();
    store.commit(remark(&sample, "after")).await.unwrap();
    let stored = store.audit(Revision::default(), 10).await.unwrap();
    let subjects: Vec<_> = stored.into_iter().map(|(_, entry)| entry.subject).collect();
    assert_eq!(subjects, ["before", "short", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_nobody_gives_back_is_told_as_overload() {
    let ground = Database::new();
    let (store, sample) = (ground.store().await, Sample::default());
    let other = session(&ground).await;
    let held = "BEGIN; SELECT * FROM store_state FOR UPDATE";
    other.batch_execute(held).await.unwrap();
    let begun = Instant::now();
    let outcome = store.commit(remark(&sample, "a")).await;
    assert!(
        matches!(outcome, Err(CommitFault::Store(StoreFault::Overloaded))),
        "{outcome:?}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    other.batch_execute("COMMIT").await.unwrap();
    store.commit(remark(&sample, "b")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_who_wait_for_each_other_are_sorted_out() {
    let ground = Database::new();
    let (store, sample) = (Arc::new(ground.store().await), Sample::default());
    let enrolment = sample.enrolment("a");
    store.commit(enrolment.intend(&sample)).await.unwrap();
    // Somebody who locks in another order than the stores do.
    let other = session(&ground).await;
    let held = "BEGIN; SELECT * FROM intents FOR UPDATE";
    other.batch_execute(held).await.unwrap();
    let waiting = commit(&store, enrolment.record(&sample));
    let is_waiting = || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        (ground.sql(waiting) != "0").then_some(())
    };
    ask_again(Duration::from_secs(10), is_waiting).unwrap();
    // One of the two is ended; ours is tried again.
    let _ = other
        .batch_execute("SELECT * FROM store_state FOR UPDATE")
        .await;
    let _ = other.batch_execute("ROLLBACK").await;
    waiting.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_may_not_be_written_says_so() {
    let ground = Database::new();
    let sample = Sample::default();
    ground.store().await;
    let set = |value: &str| {
        ground.sql(&format!(
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE;
             ALTER DATABASE {} SET default_transaction_read_only = {value}",
            ground.name
        ))
    };
    let store = ground.store().await;
    set("on");
    // Sessions that there are do not hear of it.
    ground.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'countersign' AND datname = current_database()");
    let outcome = store.commit(remark(&sample, "a")).await;
    assert!(
        matches!(outcome, Err(CommitFault::Store(StoreFault::ReadOnly))),
        "{outcome:?}"
    );
    set("off");
    ground.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'countersign' AND datname = current_database()");
    store.commit(remark(&sample, "b")).await.unwrap();
    assert_eq!(store.audit(Revision::default(), 10).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_is_not_known_is_refused() {
    let ground = Database::new();
    ground.store().await;
    let opened = async || {
        let opened = PostgresStore::open(ground.address(), "other".to_owned()).await;
        opened.err().unwrap().to_string()
    };
    ground.sql("INSERT INTO schema_migrations (number, checksum) VALUES (99, 'later')");
    let said = opened().await;
    assert!(
        said.contains("has schema 99, this program knows schemas up to 1"),
        "{said}"
    );
    ground.sql("DELETE FROM schema_migrations WHERE number = 99; UPDATE schema_migrations SET checksum = 'other'");
    let said = opened().await;
    assert!(said.contains("another schema step 1"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_start_on_an_empty_database_at_once() {
    let ground = Database::new();
    let starts = (0..6).map(|_| ground.store());
    let stores = futures_util::future::join_all(starts).await;
    let sample = Sample::default();
    for store in &stores {
        store.commit(remark(&sample, "a")).await.unwrap();
    }
    assert_eq!(ground.sql("SELECT count(*) FROM schema_migrations"), "1");
}

/// Whatever else is in the database, names mean our tables and the server's own functions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_schema_is_not_looked_into() {
    let ground = Database::new();
    ground.sql(&format!(
        "CREATE TABLE IF NOT EXISTS public.audit (revision bigint, seq bigint, entry text);
         CREATE OR REPLACE FUNCTION public.octet_length(bytea) RETURNS integer LANGUAGE sql AS 'SELECT 1 / 0';
         CREATE OR REPLACE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT 1 / 0';
         ALTER DATABASE {} SET search_path = public, pg_catalog, countersign",
        ground.name
    ));
    let (store, sample) = (ground.store().await, Sample::default());
    store
        .commit(sample.enrolment("a").intend(&sample))
        .await
        .unwrap();
    store.commit(remark(&sample, "a")).await.unwrap();
    assert_eq!(ground.sql("SELECT count(*) FROM public.audit"), "0");
    ground.sql(&format!(
        "ALTER DATABASE {} RESET search_path; DROP TABLE public.audit;
         DROP FUNCTION public.octet_length(bytea); DROP FUNCTION public.pg_notify(text, text)",
        ground.name
    ));
}
