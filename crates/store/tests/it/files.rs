//! The store's files: who may use them, who may read them, and which schemas open.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use countersign_authority::store::{AgeFilter, Change, MachineFilter, RequestFilter, Write};
use countersign_authority::{CrlScope, RequestState, Revision, Store, TokenFilter, TokenStatus};
use countersign_pki::{RevocationReason, fingerprint_sha256};
use countersign_store::suite::Sample;
use countersign_store::{OpenFault, SqliteStore};
use rusqlite::Connection;

use crate::ground::TemporaryFile;

#[test]
fn a_second_opener_is_refused_and_told_which_file_to_look_at() {
    let ground = TemporaryFile::new();
    let first = ground.store();
    assert!(first.is_exclusive());
    let fault = SqliteStore::open(&ground.path()).err().expect("a refusal");
    assert!(matches!(fault, OpenFault::InUse { .. }));
    let sentence = fault.to_string();
    assert!(sentence.contains("countersign.db is in use"), "{sentence}");
    assert!(sentence.contains("countersign.db.lock"), "{sentence}");
    drop(first);
    ground.store();
}

/// A program that is being started has copies of our files for a moment; they must not keep the lock.
#[test]
fn a_closed_store_opens_again_while_programs_are_started() {
    let ground = TemporaryFile::new();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    Command::new("true").status().unwrap();
                }
            });
        }
        let refused = (0..100).find_map(|_| SqliteStore::open(&ground.path()).err());
        ended.store(true, Ordering::Relaxed);
        assert!(refused.is_none(), "{refused:?}");
    });
}

#[test]
fn nobody_else_can_read_the_files() {
    let ground = TemporaryFile::new();
    let _store = ground.store();
    let folder = ground.path().parent().unwrap().read_dir().unwrap();
    let mut seen = 0;
    for file in folder {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?} has mode {mode:o}", file.file_name());
        seen += 1;
    }
    assert_eq!(seen, 4, "database, log, index and lock");
}

#[test]
fn the_database_has_a_write_ahead_log_and_large_pages() {
    let ground = TemporaryFile::new();
    drop(ground.store());
    let connection = Connection::open(ground.path()).unwrap();
    let pragma =
        |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, String>(0));
    assert_eq!(pragma("journal_mode").unwrap(), "wal");
    let size: i64 = connection
        .pragma_query_value(None, "page_size", |row| row.get(0))
        .unwrap();
    assert_eq!(size, 8192);
}

#[test]
fn a_newer_schema_is_refused_with_a_sentence() {
    let ground = TemporaryFile::new();
    drop(ground.store());
    let connection = Connection::open(ground.path()).unwrap();
    connection
        .execute(
            "INSERT INTO schema_migrations (number, checksum) VALUES (4000, '')",
            [],
        )
        .unwrap();
    drop(connection);
    let sentence = SqliteStore::open(&ground.path())
        .err()
        .expect("a refusal")
        .to_string();
    assert!(
        sentence.contains("countersign.db has schema 4000"),
        "{sentence}"
    );
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let ground = TemporaryFile::new();
    let text = "this is somebody's letter, ".repeat(100);
    fs::write(ground.path(), &text).unwrap();
    let fault = SqliteStore::open(&ground.path()).err().expect("a refusal");
    assert!(matches!(fault, OpenFault::Sqlite { .. }), "{fault}");
    assert_eq!(fs::read_to_string(ground.path()).unwrap(), text);
}

#[test]
fn a_missing_directory_is_named() {
    let ground = TemporaryFile::new();
    let path = ground
        .path()
        .with_file_name("missing")
        .join("countersign.db");
    let fault = SqliteStore::open(&path).err().expect("a refusal");
    assert!(
        fault.to_string().contains("missing/countersign.db"),
        "{fault}"
    );
}

/// A store as each released schema left it, with one of everything, opens and shows what it holds.
#[tokio::test]
async fn every_earlier_schema_opens_and_reads() {
    let mut fixtures: Vec<_> = fs::read_dir("tests/fixtures")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    fixtures.sort();
    assert!(fixtures.len() >= 6, "{fixtures:?}");
    for fixture in fixtures {
        println!("{}", fixture.display());
        let text = fs::read_to_string(&fixture).unwrap();
        let has_evidence = text.contains("INSERT INTO policies");
        let has_tokens = text.contains("INSERT INTO tokens");
        let has_objects = text.contains("INSERT INTO objects");
        opens_and_reads(&text, has_evidence, has_tokens).await;
        history_goes_on(&text, has_objects).await;
    }
}

/// Before there was a history, nothing of it is on record; from then on everything is.
async fn history_goes_on(fixture: &str, has_objects: bool) {
    let ground = TemporaryFile::new();
    let connection = Connection::open(ground.path()).unwrap();
    connection.execute_batch(fixture).unwrap();
    drop(connection);
    let store = ground.store();
    let (states, horizon) = match has_objects {
        // A retained request was stored and issued, an object came, and another request.
        true => (4, Revision(0)),
        false => (0, Revision(4)),
    };
    assert_eq!(store.states_horizon().await.unwrap(), horizon);
    let found = store.states(Revision(0), 10).await.unwrap();
    assert_eq!(found.len(), states);
    let key = Sample::object_key("reader");
    assert_eq!(store.object(&key).await.unwrap().is_some(), has_objects);
    let tokens = store.bootstrap_tokens(None, 10).await.unwrap();
    assert_eq!(tokens.len(), usize::from(has_objects));
    let object = Sample::default().object(key);
    let change = Change {
        writes: vec![Write::PutObject(object)],
        ..Change::default()
    };
    let at = store.commit(change).await.unwrap().revision;
    let found = store.states(horizon, 10).await.unwrap();
    assert_eq!(found.len(), states + 1);
    assert_eq!(found.last().unwrap().revision, at);
}

/// Whether policies, evidence, an inventory and tokens are in it depends on its age.
async fn opens_and_reads(fixture: &str, has_evidence: bool, has_tokens: bool) {
    let ground = TemporaryFile::new();
    let connection = Connection::open(ground.path()).unwrap();
    connection.execute_batch(fixture).unwrap();
    drop(connection);
    let store = ground.store();
    let requests = store.requests(RequestFilter::default()).await.unwrap();
    let keys: Vec<&str> = requests
        .iter()
        .map(|request| request.key.as_str())
        .collect();
    assert_eq!(keys, ["agent.example.com", "waiting.example.com"]);
    let issuer = Sample::issuer();
    let entry = store
        .newest_certificate(&issuer, "agent.example.com")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        requests[0].certificate,
        Some((issuer.clone(), entry.serial))
    );
    assert_eq!(entry.revoked.unwrap().reason, RevocationReason::Superseded);
    let (complete_to, revoked) = store.revocations(&issuer, Sample::time(0)).await.unwrap();
    assert_eq!((complete_to, revoked.len()), (Revision(4), 1));
    assert_eq!(
        store
            .crl(&issuer, CrlScope::Full)
            .await
            .unwrap()
            .unwrap()
            .number,
        1
    );
    assert_eq!(store.open_intents().await.unwrap().len(), 1);
    assert_eq!(
        store.changes(Revision::default(), 100).await.unwrap().len(),
        6
    );
    assert_eq!(
        store.audit(Revision::default(), 100).await.unwrap().len(),
        3
    );
    let next = store.commit(Change::default()).await.unwrap();
    assert_eq!(next.revision, Revision(5));
    let retire = Write::Retire {
        issuer: issuer.clone(),
        name: "agent.example.com".to_owned(),
        at: Sample::time(20),
    };
    let change = Change {
        writes: vec![retire],
        ..Change::default()
    };
    store.commit(change).await.unwrap();
    let newest = store.newest_certificate(&issuer, "agent.example.com").await;
    assert!(newest.unwrap().is_none(), "what later schemas added works");
    // What upkeep asks is answered from what was there before.
    assert_eq!(store.epoch().await.unwrap(), 0);
    let ledger = store.ledger(&issuer, None, 10).await.unwrap();
    assert_eq!(ledger.len(), 1);
    assert_eq!(store.next_serial(&issuer).await.unwrap(), None);
    assert!(store.ancestor_crls(&issuer).await.unwrap().is_empty());
    let old = AgeFilter {
        door: Sample::door(),
        state: RequestState::Issued,
        before: Sample::time(1000),
        after: None,
        limit: 10,
    };
    assert_eq!(store.requests_before(old).await.unwrap().len(), 1);
    let inventory = MachineFilter {
        limit: 10,
        ..MachineFilter::default()
    };
    let machines = store.machines(inventory).await.unwrap();
    let machines: Vec<_> = machines.into_iter().map(|record| record.machine).collect();
    let windows = store.windows(None, 10).await.unwrap();
    let policy = store.newest_policy().await.unwrap();
    let seals = store.seals(0, 10).await.unwrap();
    let key = fingerprint_sha256(b"key");
    let allowed = store.is_allowed(
        "https://decider.example.com/",
        "waiting.example.com",
        &key,
        Sample::time(0),
    );
    assert_eq!(allowed.await.unwrap(), has_evidence);
    let tokens = TokenFilter::newest(Sample::time(10), 10);
    let tokens = store.tokens(tokens).await.unwrap();
    assert_eq!(tokens.len(), usize::from(has_tokens));
    for listed in tokens {
        assert_eq!(listed.status, TokenStatus::Reserved);
        let uses = store.token_uses(&listed.record.id, 10).await.unwrap();
        assert_eq!((uses.len(), uses[0].key_fingerprint), (1, key));
    }
    if has_evidence {
        assert_eq!(machines, [Sample::machine("waiting.example.com")]);
        assert_eq!(windows, [Sample::window("waiting.example.com")]);
        assert_eq!(policy.unwrap().text, "text");
        assert_eq!(seals.len(), 1);
        let mut evidence = Sample::evidence();
        // Reviews of rights are on record since.
        evidence.access.clear();
        assert_eq!(requests[1].evidence, evidence);
    } else {
        assert!(machines.is_empty() && windows.is_empty());
        assert!(policy.is_none() && seals.is_empty());
        assert!(requests.iter().all(|request| request.evidence.is_empty()));
    }
}
