//! Connections that break in the middle of a commit, at the moment that a go-between chooses.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use countersign_authority::Revision;
use countersign_authority::store::{AuditReads as _, Store as _};
use countersign_store::PostgresStore;
use countersign_store_suite::Sample;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::{A_WHILE, commit, remark, session};
use crate::ground::Database;

const PASSES: u8 = 0;
/// The commit arrives, its answer does not.
const DEAF: u8 = 1;
/// The commit does not arrive.
const MUTE: u8 = 2;

/// The store's own name, which the last part of each of its transactions says twice: in its row and to the others.
const PROCESS: &str = "the-process-that-doubts";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_became_of_a_commit_is_found_out() {
    let ground = Database::new();
    let folder = tempfile::tempdir().unwrap();
    let fate = Arc::new(AtomicU8::new(PASSES));
    let target = socket(ground.server.socket_folder(), ground.server.port());
    let listener = UnixListener::bind(socket(folder.path(), 5432)).unwrap();
    tokio::spawn(go_between(listener, target, Arc::clone(&fate)));

    let place = folder.path().to_string_lossy().replace('/', "%2F");
    let url = format!("postgres://postgres@{place}:5432/{}", ground.name);
    let store = PostgresStore::open(url.parse().unwrap(), PROCESS.to_owned()).await;
    let (store, sample) = (store.unwrap(), Sample::default());
    let mut expected = Vec::new();
    for (round, what) in [PASSES, DEAF, PASSES, MUTE, DEAF, DEAF, PASSES]
        .into_iter()
        .enumerate()
    {
        fate.store(what, Ordering::SeqCst);
        let text = format!("{round}");
        let committed = timeout(
            Duration::from_secs(60),
            store.commit(remark(&sample, &text)),
        );
        let committed = committed.await.unwrap().unwrap();
        assert_eq!(fate.load(Ordering::SeqCst), PASSES, "it happened");
        expected.push((committed.revision, text));
    }
    let stored = store.audit(Revision::default(), 100).await.unwrap();
    let stored: Vec<_> = stored
        .into_iter()
        .map(|(revision, entry)| (revision, entry.subject))
        .collect();
    assert_eq!(
        stored, expected,
        "each once, at the revision that was acknowledged"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_ended_in_the_middle_of_a_commit_is_replaced() {
    let ground = Database::new();
    let (store, sample) = (Arc::new(ground.store().await), Sample::default());
    store.commit(remark(&sample, "before")).await.unwrap();
    let other = session(&ground).await;
    let held = "BEGIN; SELECT * FROM store_state FOR UPDATE";
    other.batch_execute(held).await.unwrap();
    let waiting = commit(&store, remark(&sample, "during"));
    sleep(A_WHILE).await;
    let ended = ground.sql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE wait_event_type = 'Lock' AND datname = current_database()",
    );
    assert_eq!(ended, "1");
    other.batch_execute("ROLLBACK").await.unwrap();
    waiting.await.unwrap().unwrap();
    let stored = store.audit(Revision::default(), 10).await.unwrap();
    let subjects: Vec<_> = stored.into_iter().map(|(_, entry)| entry.subject).collect();
    assert_eq!(subjects, ["before", "during"]);
}

fn socket(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!(".s.PGSQL.{port}"))
}

async fn go_between(listener: UnixListener, target: PathBuf, fate: Arc<AtomicU8>) {
    while let Ok((client, _)) = listener.accept().await {
        let server = UnixStream::connect(&target).await.unwrap();
        tokio::spawn(pass_on(client, server, Arc::clone(&fate)));
    }
}

/// Passes everything on, until a transaction ends whose fate is to be lost.
async fn pass_on(mut client: UnixStream, mut server: UnixStream, fate: Arc<AtomicU8>) {
    let (mut up, mut down) = ([0; 65536], [0; 65536]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(count @ 1..) = read else { return };
                let octets = &up[..count];
                let is_end = occurrences(octets, PROCESS) == 2;
                let what = if is_end { fate.swap(PASSES, Ordering::SeqCst) } else { PASSES };
                if what == MUTE {
                    return;
                }
                server.write_all(octets).await.unwrap();
                if what == DEAF {
                    // Until the server has done it, and said so to nobody.
                    sleep(A_WHILE).await;
                    return;
                }
            }
            read = server.read(&mut down) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&down[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn occurrences(octets: &[u8], text: &str) -> usize {
    let windows = octets.windows(text.len());
    windows.filter(|window| *window == text.as_bytes()).count()
}
