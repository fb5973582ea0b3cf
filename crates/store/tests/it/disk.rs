//! A disk that is full, refuses, or loses the file: a clear fault while it lasts, service afterwards, nothing half-written.

use std::fs;
use std::path::Path;
use std::process::Command;

use countersign_authority::store::RequestReads as _;
use countersign_authority::store::{Change, CommitFault, Past, StoreFault, Write};
use countersign_authority::{Revision, Store};
use countersign_store::SqliteStore;
use countersign_store_suite::Sample;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::child;
use crate::ground::TemporaryFile;

/// Enough for the store to start in, and soon full.
const SMALL_DISK: &str = "size=4m";

/// A real file system without space, in a mount namespace of the child's own. Needs root or user namespaces.
#[test]
fn a_full_disk_is_reported_and_service_returns() {
    if let Some(path) = child::store_path() {
        return fill_the_disk(&path);
    }
    let ground = TemporaryFile::new();
    let folder = ground.path().parent().expect("a folder").to_owned();
    let script = format!("mount -t tmpfs -o {SMALL_DISK} none \"$FOLDER\" && exec \"$@\"");
    let namespaces: [&[&str]; 2] = [&["unshare", "-m"], &["unshare", "-rm"]];
    let shell = ["sh", "-c", &script, "sh"];
    for namespace in namespaces {
        let wrapper = [namespace, &shell].concat();
        let possible = Command::new(wrapper[0])
            .args(&wrapper[1..])
            .arg("true")
            .env("FOLDER", &folder)
            .output()
            .is_ok_and(|output| output.status.success());
        if possible {
            let mut command = child::command(
                &wrapper,
                "disk::a_full_disk_is_reported_and_service_returns",
                &ground.path(),
            );
            child::passes(command.env("FOLDER", &folder));
            assert!(!ground.path().exists(), "the child had a disk of its own");
            return;
        }
    }
    panic!("a small disk cannot be mounted here: the test needs root or user namespaces");
}

/// The child's part, on a small disk.
fn fill_the_disk(path: &Path) {
    let ballast = path.with_file_name("ballast");
    fs::write(&ballast, vec![0; 1 << 20]).unwrap();
    break_and_mend(
        path,
        || {},
        || fs::remove_file(&ballast).unwrap(),
        |fault| matches!(fault, StoreFault::Full),
    );
}

/// A write that the system refuses, which needs no rights at all: a limit on the size of files.
#[test]
fn a_refused_write_is_reported_and_service_returns() {
    if let Some(path) = child::store_path() {
        return limit_the_files(&path);
    }
    let ground = TemporaryFile::new();
    // The shell passes the ignored signal on; without that the first refused write would end the child.
    let wrapper = ["sh", "-c", "trap '' XFSZ && exec \"$@\"", "sh"];
    child::passes(&mut child::command(
        &wrapper,
        "disk::a_refused_write_is_reported_and_service_returns",
        &ground.path(),
    ));
}

/// The child's part, where SIGXFSZ is ignored.
fn limit_the_files(path: &Path) {
    let unlimited = getrlimit(Resource::Fsize);
    let limited = Rlimit {
        current: Some(2 << 20),
        ..unlimited
    };
    break_and_mend(
        path,
        || setrlimit(Resource::Fsize, limited).unwrap(),
        || setrlimit(Resource::Fsize, unlimited).unwrap(),
        |fault| matches!(fault, StoreFault::Failed { .. }),
    );
}

/// Moved away, the file would take commits that the next start does not find.
#[tokio::test]
async fn a_moved_file_is_reported_and_service_returns() {
    let ground = TemporaryFile::new();
    let (store, sample) = (ground.store(), Sample::default());
    commit(&store, &sample, "before").await.unwrap();
    for file in ["countersign.db", "countersign.db-wal"] {
        let place = ground.path().with_file_name(file);
        let elsewhere = place.with_extension("away");
        fs::rename(&place, &elsewhere).unwrap();
        for _ in 0..2 {
            let refused = commit(&store, &sample, file).await;
            assert!(
                matches!(refused, Err(CommitFault::Store(StoreFault::ReadOnly))),
                "{refused:?}"
            );
        }
        assert!(is_stored(&store, "before").await, "reading goes on");
        // Another file in its place is not the store.
        fs::copy(&elsewhere, &place).unwrap();
        let refused = commit(&store, &sample, file).await;
        assert!(
            matches!(refused, Err(CommitFault::Store(StoreFault::ReadOnly))),
            "{refused:?}"
        );
        fs::rename(&elsewhere, &place).unwrap();
        assert!(!is_stored(&store, file).await);
        commit(&store, &sample, file).await.unwrap();
    }
    drop(store);
    let store = ground.store();
    for key in ["before", "countersign.db", "countersign.db-wal"] {
        assert!(is_stored(&store, key).await);
    }
}

/// Commits until the disk refuses, checks that it goes on refusing, mends it, and checks what is stored.
fn break_and_mend(
    path: &Path,
    breaks: impl FnOnce(),
    mends: impl FnOnce(),
    expected: impl Fn(&StoreFault) -> bool,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (store, sample) = (SqliteStore::open(path).unwrap(), Sample::default());
        breaks();
        let mut stored = Vec::new();
        let mut refused = Vec::new();
        for _ in 0..10_000 {
            // What was refused is tried again: another name may fit, if its index pages need not be split.
            let key = stored.len().to_string();
            match commit(&store, &sample, &key).await {
                Ok(revision) => {
                    assert!(
                        refused.is_empty(),
                        "a smaller commit may fit, an equal one does not"
                    );
                    stored.push((key, revision));
                }
                Err(CommitFault::Store(fault)) => {
                    assert!(expected(&fault), "{fault:?}");
                    refused.push(key);
                }
                Err(other) => panic!("{other:?}"),
            }
            if refused.len() == 5 {
                break;
            }
        }
        assert_eq!(refused.len(), 5, "the disk refused");
        assert!(is_stored(&store, &stored[0].0).await, "reading goes on");
        mends();
        for key in ["after", "and-again"] {
            let revision = commit(&store, &sample, key).await.unwrap();
            assert!(stored.iter().all(|(_, earlier)| *earlier < revision));
            stored.push((key.to_owned(), revision));
        }
        drop(store);
        let store = SqliteStore::open(path).unwrap();
        for (key, revision) in &stored {
            let request = store
                .request_at(&Sample::door(), key, Past::Ignore)
                .await
                .unwrap();
            assert_eq!(request.expect("an acknowledged request").version, *revision);
        }
        for key in &refused {
            assert!(
                !is_stored(&store, key).await,
                "{key} was refused and is stored"
            );
        }
    });
}

/// Stores a request of 20 KiB, once: of one that its door shows, the history has a copy.
async fn commit(store: &SqliteStore, sample: &Sample, key: &str) -> Result<Revision, CommitFault> {
    let mut request = sample.request(key);
    request.attachment = vec![0x5a; 20 << 10];
    request.retained = false;
    let writes = vec![Write::InsertRequest(request)];
    store
        .commit(Change {
            writes,
            ..Change::default()
        })
        .await
        .map(|committed| committed.revision)
}

async fn is_stored(store: &SqliteStore, key: &str) -> bool {
    store
        .request_at(&Sample::door(), key, Past::Include)
        .await
        .unwrap()
        .is_some()
}
