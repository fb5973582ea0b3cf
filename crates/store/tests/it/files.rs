//! The store's files: who may use them, who may read them, and which schemas open.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use countersign_authority::store::{AgeFilter, Change, MachineFilter, Past, RequestFilter, Write};
use countersign_authority::store::{
    AuditReads as _, InventoryReads as _, IssuerReads as _, LedgerReads as _, ObjectReads as _,
    RequestReads as _, TokenReads as _,
};
use countersign_authority::{CrlScope, RequestState, Revision, Store, TokenFilter, TokenStatus};
use countersign_pki::{
    Attribute, CheckedCsr, RequestTemplate, RevocationReason, SignatureAlgorithm, StringKind,
    SubjectBuilder, fingerprint_sha256, masked, oid, seal,
};
use countersign_store::{OpenFault, SqliteStore};
use countersign_store_suite::Sample;
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
    assert_eq!(size, 4096);
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
    let mut paths: Vec<_> = fs::read_dir("tests/fixtures")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 7, "{paths:?}");
    for path in &paths {
        println!("{}", path.display());
        let fixture = Fixture::read(path);
        opens_and_reads(&fixture).await;
        history_goes_on(&fixture).await;
    }
    let newest = Fixture::read(paths.last().unwrap());
    assert!(newest.has_held, "an intent that holds its request");
    what_an_intent_holds_is_read_and_stored(&newest).await;
}

/// A request with this in its challenge password. Nobody signed it.
fn request_with(password: &str) -> Vec<u8> {
    // The generator of P-256 is a public key like any other.
    let spki = "3059301306072a8648ce3d020106082a8648ce3d030107034200\
                046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296\
                4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5";
    let octets = (0..spki.len()).step_by(2);
    let octets = octets.map(|at| u8::from_str_radix(&spki[at..at + 2], 16).unwrap());
    let spki: Vec<u8> = octets.collect();
    let subject = SubjectBuilder::new().push(oid::COMMON_NAME, "a", StringKind::Utf8);
    let template = RequestTemplate {
        subject_der: &subject.build(),
        spki_der: &spki,
        extensions: &[],
        attributes: &[Attribute::of_text(oid::CHALLENGE_PASSWORD, password)],
    };
    let unsigned = template.to_be_signed().unwrap();
    seal(&unsigned, SignatureAlgorithm::EcdsaP256Sha256, &[0]).unwrap()
}

/// What an earlier schema kept of a mistyped token is overwritten before anything is backed up, and addresses are counted
/// as networks.
#[tokio::test]
async fn secrets_that_an_earlier_schema_kept_are_masked() {
    let secret = "eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q";
    let text = fs::read_to_string("tests/fixtures/schema-0010.sql").unwrap();
    let ground = TemporaryFile::new();
    let connection = Connection::open(ground.path()).unwrap();
    connection.execute_batch(&text).unwrap();
    let csr = request_with(&format!("ott2.aaaqeayeaudaocaj.{secret}.zqthxay"));
    let update = "UPDATE requests SET csr = ?1, source = '2001:db8::7', state = 'pending', live = 1
                  WHERE key = 'waiting.example.com'";
    connection.execute(update, [&csr]).unwrap();
    drop(connection);
    let store = ground.store();
    let found = store.request_at(&Sample::door(), "waiting.example.com", Past::Ignore);
    let found = found.await.unwrap().unwrap();
    let kept = CheckedCsr::trusted_from_store(&csr).unwrap();
    assert_eq!(Some(found.csr_der), masked(&kept));
    let neighbour = "2001:db8::ffff".parse().unwrap();
    let waiting = store.pending_from(neighbour, 10).await.unwrap();
    assert_eq!(waiting.number, 1);
    assert!(waiting.bytes >= u64::try_from(csr.len()).unwrap());
    let copy = ground.path().with_extension("copy");
    countersign_store::backup::copy(&ground.path(), &copy).unwrap();
    drop(store);
    for path in [ground.path(), copy] {
        let octets = fs::read(&path).unwrap();
        let part = &secret.as_bytes()[..16];
        let is_there = octets.windows(part.len()).any(|window| window == part);
        assert!(!is_there, "{path:?}");
    }
}

/// Nothing of an earlier schema vouches for the terms of a token under a key, so an open one is revoked, and the audit log
/// says so. A token without a key has nothing to lose.
#[tokio::test]
async fn open_tokens_of_an_earlier_schema_are_revoked_where_they_have_a_key() {
    let fixture = Fixture::read(Path::new("tests/fixtures/schema-0010.sql"));
    for (key_id, status) in [("key", TokenStatus::Revoked), ("", TokenStatus::Active)] {
        let ground = TemporaryFile::new();
        let connection = Connection::open(ground.path()).unwrap();
        connection.execute_batch(&fixture.text).unwrap();
        let update = "UPDATE tokens SET max_uses = 2, phase = 'open', mac_key_id = ?1";
        assert_eq!(connection.execute(update, [key_id]).unwrap(), 1);
        connection
            .execute("DELETE FROM bootstrap_tokens", [])
            .unwrap();
        drop(connection);
        let store = ground.store();
        let tokens = TokenFilter::newest(Sample::time(10), 10);
        let tokens = store.tokens(tokens).await.unwrap();
        let [token] = tokens.as_slice() else {
            panic!("{tokens:?}");
        };
        assert_eq!(token.status, status, "{key_id:?}");
        let before = Revision(4);
        let told = store.audit(before, 100).await.unwrap();
        if status == TokenStatus::Active {
            assert_eq!(told, []);
            continue;
        }
        let [(at, entry)] = told.as_slice() else {
            panic!("{told:?}");
        };
        let id = token.record.id.as_str();
        assert_eq!(*at, Revision(5));
        assert_eq!(entry.action, "token.revoked");
        assert_eq!(entry.subject, format!("token/{id}"));
        assert_eq!(entry.token.as_deref(), Some(id));
        assert!(entry.detail.ends_with("mint another"), "{}", entry.detail);
        // The next commit does not write over the entry.
        let next = store.commit(Change::default()).await.unwrap();
        assert_eq!(next.revision, Revision(6));
    }
}

/// A store as text. What is in it depends on its age.
struct Fixture {
    text: String,
    /// Policies, what decisions rest on, an inventory, a seal.
    has_evidence: bool,
    has_tokens: bool,
    has_objects: bool,
    /// Reviews of rights among what a decision rests on.
    has_access: bool,
    /// An intent that holds its request, beside the one whose request is stored.
    has_held: bool,
    /// A bootstrap token under a key, whose record has no MAC over its terms: it is taken back by a commit of its own.
    has_unverifiable: bool,
}

impl Fixture {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let has = |words: &str| text.contains(words);
        Self {
            has_evidence: has("INSERT INTO policies"),
            has_tokens: has("INSERT INTO tokens"),
            has_objects: has("INSERT INTO objects"),
            has_access: has("\"access\":"),
            has_held: has("INSERT INTO intents"),
            has_unverifiable: has("INSERT INTO bootstrap_tokens") && !has("terms_mac"),
            text,
        }
    }

    /// A store of today in its place.
    fn open(&self, ground: &TemporaryFile) -> SqliteStore {
        let connection = Connection::open(ground.path()).unwrap();
        connection.execute_batch(&self.text).unwrap();
        drop(connection);
        ground.store()
    }
}

/// No list shows it, and its name is taken. It is stored with its certificate.
async fn what_an_intent_holds_is_read_and_stored(fixture: &Fixture) {
    let ground = TemporaryFile::new();
    let store = fixture.open(&ground);
    let open = store.open_intents().await.unwrap();
    let [_, intent] = open.as_slice() else {
        panic!("{open:?}");
    };
    let held = intent.deferred.clone().unwrap();
    assert_eq!(held.request.key, "held.example.com");
    assert_eq!(held.request.id, intent.request);
    assert_eq!(held.audit.len(), 1);
    let found = store.request_at(&Sample::door(), "held.example.com", Past::Ignore);
    assert_eq!(found.await.unwrap().unwrap().id, intent.request);
    let change = Change {
        writes: vec![Write::Record {
            issuer: intent.issuer.clone(),
            serial: intent.serial,
            der: b"certificate".to_vec(),
        }],
        ..Change::default()
    };
    let at = store.commit(change).await.unwrap().revision;
    let stored = store.request(intent.request).await.unwrap().unwrap();
    assert_eq!((stored.state, stored.version), (RequestState::Issued, at));
    let told = store.audit(Revision::default(), 100).await.unwrap();
    assert_eq!(told.last(), Some(&(at, held.audit[0].clone())));
}

/// Before there was a history, nothing of it is on record; from then on everything is.
async fn history_goes_on(fixture: &Fixture) {
    let ground = TemporaryFile::new();
    let store = fixture.open(&ground);
    let has_objects = fixture.has_objects;
    let (states, horizon) = match has_objects {
        // A retained request was stored and issued, an object came, and another request.
        true => (4, Revision(0)),
        false => (0, Revision(4)),
    };
    assert_eq!(store.states_horizon(usize::MAX).await.unwrap(), horizon);
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

async fn opens_and_reads(fixture: &Fixture) {
    let ground = TemporaryFile::new();
    let store = fixture.open(&ground);
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
    let taken_back = u64::from(fixture.has_unverifiable);
    let (complete_to, revoked) = store.revocations(&issuer, Sample::time(0)).await.unwrap();
    assert_eq!((complete_to, revoked.len()), (Revision(4 + taken_back), 1));
    assert_eq!(
        store
            .crl(&issuer, CrlScope::Full)
            .await
            .unwrap()
            .unwrap()
            .number,
        1
    );
    let open = store.open_intents().await.unwrap();
    assert_eq!(open.len(), 1 + usize::from(fixture.has_held));
    assert_eq!(open[0].name, "waiting.example.com");
    assert!(open[0].deferred.is_none());
    let told = store.audit(Revision::default(), 100).await.unwrap();
    assert_eq!(told.len(), 3 + usize::from(fixture.has_unverifiable));
    if fixture.has_unverifiable {
        let (at, entry) = told.last().unwrap();
        assert_eq!(*at, Revision(5));
        assert_eq!(entry.action, "bootstrap_token.revoked");
        assert!(entry.detail.ends_with("mint another"), "{}", entry.detail);
        let tokens = store.bootstrap_tokens(None, 10).await.unwrap();
        let token = tokens.first().unwrap();
        assert_eq!(entry.token.as_deref(), Some(token.record.id.as_str()));
        assert!(token.record.revoked_at.is_some());
    }
    let next = store.commit(Change::default()).await.unwrap();
    assert_eq!(next.revision, Revision(5 + taken_back));
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
    assert_eq!(allowed.await.unwrap(), fixture.has_evidence);
    let tokens = TokenFilter::newest(Sample::time(10), 10);
    let tokens = store.tokens(tokens).await.unwrap();
    assert_eq!(tokens.len(), usize::from(fixture.has_tokens));
    for listed in tokens {
        assert_eq!(listed.status, TokenStatus::Reserved);
        let uses = store.token_uses(&listed.record.id, 10).await.unwrap();
        assert_eq!((uses.len(), uses[0].key_fingerprint), (1, key));
    }
    if fixture.has_evidence {
        assert_eq!(machines, [Sample::machine("waiting.example.com")]);
        assert_eq!(windows, [Sample::window("waiting.example.com")]);
        assert_eq!(policy.unwrap().text, "text");
        assert_eq!(seals.len(), 1);
        let mut evidence = Sample::evidence();
        if !fixture.has_access {
            evidence.access.clear();
        }
        assert_eq!(requests[1].evidence, evidence);
    } else {
        assert!(machines.is_empty() && windows.is_empty());
        assert!(policy.is_none() && seals.is_empty());
        assert!(requests.iter().all(|request| request.evidence.is_empty()));
    }
}
