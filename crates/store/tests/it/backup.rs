//! Copies of a store that is in use, and stores that go on from one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_authority::store::{
    AuditReads as _, InventoryReads as _, IssuerReads as _, ObjectReads as _, RequestReads as _,
    TokenReads as _,
};
use countersign_authority::store::{Change, CommitFault, Precondition, RequestFilter, Write};
use countersign_authority::{
    BootstrapStatus, CrlRecord, CrlScope, PolicyVersion, Revision, Store, TokenFilter, TokenId,
    TokenRecord, TokenStanding, TokenStatus,
};
use countersign_pki::fingerprint_sha256;
use countersign_store::backup::{self, CRL_NUMBERS_SKIPPED, CopyFault, SERIALS_SKIPPED};
use countersign_store::{OpenFault, SqliteStore};
use countersign_store_suite::Sample;

use crate::ground::TemporaryFile;

/// Writers go on while it is copied, and everything acknowledged before the copy began is in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_busy_store_holds_everything_acknowledged_before() {
    let ground = TemporaryFile::new();
    let store = Arc::new(ground.store());
    let sample = Arc::new(Sample::default());
    let enrol = async |store: &SqliteStore, sample: &Sample, name: &str| {
        let enrolment = sample.enrolment(name);
        store.commit(enrolment.intend(sample)).await.unwrap();
        store.commit(enrolment.record(sample)).await.unwrap();
    };
    for number in 0..200 {
        enrol(&store, &sample, &format!("before-{number}")).await;
    }
    let acknowledged = *store.revisions().borrow();
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (store, sample, stop) = (Arc::clone(&store), Arc::clone(&sample), Arc::clone(&stop));
        async move {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                enrol(&store, &sample, &format!("during-{number}")).await;
                number += 1;
            }
        }
    });
    let copies = TemporaryFile::new();
    for _ in 0..5 {
        let (from, to) = (ground.path(), copies.path());
        let copied = tokio::task::spawn_blocking(move || backup::copy(&from, &to));
        let copied = copied.await.unwrap().unwrap();
        assert!(copied.revision >= acknowledged);
        assert_eq!(copied.schema, backup::known_schema());
        let mode = fs::metadata(copies.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let copy = copies.store();
        assert_eq!(*copy.revisions().borrow(), copied.revision);
        let held = copy.requests(RequestFilter::default()).await.unwrap();
        let before = held.iter().filter(|one| one.key.starts_with("before-"));
        assert_eq!(before.count(), 200);
        drop(copy);
        fs::remove_file(copies.path()).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    load.await.unwrap();
}

/// A restored store never gives out again what the lost one may have given out after the copy.
#[tokio::test]
async fn a_store_that_goes_on_from_a_copy_skips_ahead() {
    let (ground, copies) = (TemporaryFile::new(), TemporaryFile::new());
    let store = ground.store();
    let crl = |scope, number| CrlRecord {
        issuer: Sample::issuer(),
        scope,
        number,
        covers: Revision(1),
        this_update: Sample::time(0),
        next_update: Sample::time(1),
        der: b"list".to_vec(),
    };
    let writes = vec![
        Write::CountSerials {
            issuer: Sample::issuer(),
            next: 42,
        },
        Write::PutCrl(crl(CrlScope::Full, 7)),
        Write::PutCrl(crl(CrlScope::Infrastructure, 3)),
        Write::PutMachine(Sample::machine("web01")),
        Write::PutWindow(Sample::window("web01")),
        Write::PutPolicy(PolicyVersion {
            generation: 5,
            digest: fingerprint_sha256(b"text"),
            loaded: Sample::time(1),
            text: "text".to_owned(),
        }),
    ];
    let change = Change {
        writes,
        ..Change::default()
    };
    let last = store.commit(change).await.unwrap().revision;
    assert_eq!(store.epoch().await.unwrap(), 0);
    drop(store);

    let issuer = Sample::issuer();
    let (serials, numbers) = (u64::from(SERIALS_SKIPPED), u64::from(CRL_NUMBERS_SKIPPED));
    let mut from = ground.path();
    // A backup of what was restored is restored again.
    for round in 1..=2 {
        let to = copies.path().with_extension(format!("{round}.db"));
        backup::copy(&from, &to).unwrap();
        let resumed = backup::resume(&to, Sample::time(50)).unwrap();
        assert_eq!(resumed.epoch, round);
        assert_eq!(resumed.serials, [(issuer.clone(), 42 + round * serials)]);
        assert_eq!(
            resumed.crls,
            [
                (issuer.clone(), CrlScope::Full, 7 + round * numbers),
                (
                    issuer.clone(),
                    CrlScope::Infrastructure,
                    3 + round * numbers
                ),
            ]
        );
        let restored = SqliteStore::open(&to).unwrap();
        assert_eq!(restored.epoch().await.unwrap(), round);
        let next = restored.next_serial(&issuer).await.unwrap();
        assert_eq!(next, Some(42 + round * serials));
        let list = restored
            .crl(&issuer, CrlScope::Full)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (list.number, list.covers),
            (7 + round * numbers, Revision(0))
        );
        let policy = restored.newest_policy().await.unwrap().unwrap();
        assert!(
            policy.generation > 5 + 1000 * round,
            "{}",
            policy.generation
        );
        assert_eq!(
            (policy.text.as_str(), policy.loaded),
            ("text", Sample::time(50))
        );
        assert_eq!(policy.digest, fingerprint_sha256(b"text"));
        assert!(restored.policy_version(5).await.unwrap().is_some());
        let machine = restored.machine("web01").await.unwrap().unwrap().machine;
        assert_eq!(machine, Sample::machine("web01"));
        // It may have been used since the copy was made.
        assert_eq!(restored.window("web01").await.unwrap(), None);
        let audit = restored.audit(last, 10).await.unwrap();
        assert_eq!(audit.last().unwrap().1.action, "restore");
        let revision = restored.commit(Change::default()).await.unwrap().revision;
        assert!(revision.0 > last.0 + round * 1_000_000, "{revision}");
        from = to;
    }
}

/// A copy has tokens that were used since it was made: none of them is good for anything, as if each had been taken back.
#[tokio::test]
async fn tokens_from_before_a_restore_are_revoked() {
    let (ground, copies) = (TemporaryFile::new(), TemporaryFile::new());
    let sample = Sample::default();
    let key = fingerprint_sha256(b"key");
    let mut from = ground.path();
    let mut earlier: Vec<TokenId> = Vec::new();
    for epoch in 0..3 {
        if epoch > 0 {
            let to = copies.path().with_extension(format!("{epoch}.db"));
            backup::copy(&from, &to).unwrap();
            backup::resume(&to, Sample::time(10)).unwrap();
            from = to;
        }
        let store = SqliteStore::open(&from).unwrap();
        assert_eq!(with_status(&store, None).await, earlier);
        assert_eq!(
            with_status(&store, Some(TokenStatus::Revoked)).await,
            earlier
        );
        assert_eq!(store.active_tokens(Sample::time(10), 10).await.unwrap(), 0);
        for id in &earlier {
            let found = store.token(id, "a", &key).await.unwrap().unwrap();
            assert!(found.is_stale && found.record.epoch < epoch);
            assert!(!is_used(&store, &sample, &found.record).await);
            let unchanged = store.token(id, "a", &key).await.unwrap().unwrap();
            assert_eq!(unchanged, found);
        }

        let tokens = mint_one_of_each(&store, &sample).await;
        let open = tokens.last().unwrap();
        let found = store.token(&open.id, "a", &key).await.unwrap().unwrap();
        assert!(!found.is_stale && found.record.epoch == epoch);
        let active = store.active_tokens_of("a", Sample::time(10)).await;
        let active: Vec<_> = active.unwrap().into_iter().map(|one| one.id).collect();
        assert_eq!(active, std::slice::from_ref(&open.id));
        assert_eq!(store.active_tokens(Sample::time(10), 10).await.unwrap(), 2);
        for (status, count) in [
            (TokenStatus::Active, 2),
            (TokenStatus::Reserved, 1),
            (TokenStatus::Locked, 1),
            (TokenStatus::Revoked, 1 + earlier.len()),
        ] {
            let found = with_status(&store, Some(status)).await;
            assert_eq!(found.len(), count, "{status:?}");
        }
        earlier.splice(0..0, tokens.into_iter().map(|token| token.id).rev());
        assert!(is_used(&store, &sample, &found.record).await);
        assert_eq!(with_status(&store, None).await, earlier);
    }
}

/// Clients that followed the store find that what they saw is not on record, and bootstrap tokens may have been taken back.
#[tokio::test]
async fn the_history_and_bootstrap_tokens_begin_anew_with_a_restore() {
    let (ground, copies) = (TemporaryFile::new(), TemporaryFile::new());
    let (store, sample) = (ground.store(), Sample::default());
    let key = Sample::object_key("reader");
    let (object, token) = (sample.object(key.clone()), sample.endless_bootstrap_token());
    let writes = vec![
        Write::PutObject(object.clone()),
        Write::PutBootstrapToken(token.clone()),
    ];
    let change = Change {
        writes,
        ..Change::default()
    };
    let last = store.commit(change).await.unwrap().revision;
    assert_eq!(store.states(Revision(0), 10).await.unwrap().len(), 1);
    drop(store);
    let to = copies.path();
    backup::copy(&ground.path(), &to).unwrap();
    backup::resume(&to, Sample::time(50)).unwrap();

    let store = SqliteStore::open(&to).unwrap();
    assert!(store.states(Revision(0), 10).await.unwrap().is_empty());
    let horizon = store.states_horizon(usize::MAX).await.unwrap();
    let now = *store.revisions().borrow();
    assert_eq!(horizon, now);
    assert!(horizon > last);
    let found = store.object(&key).await.unwrap().unwrap();
    assert_eq!((found.version, found.body), (last, object.body));
    let found = store.bootstrap_token(&token.id).await.unwrap().unwrap();
    assert!(found.is_stale && found.record.epoch == 0);
    assert_eq!(found.status(Sample::time(10)), BootstrapStatus::Revoked);
    let over = store.bootstrap_tokens_over(Sample::time(1000), 10).await;
    assert_eq!(over.unwrap(), [token.id]);
    let newer = sample.endless_bootstrap_token();
    let change = Change {
        writes: vec![Write::PutBootstrapToken(newer.clone())],
        ..Change::default()
    };
    store.commit(change).await.unwrap();
    let found = store.bootstrap_token(&newer.id).await.unwrap().unwrap();
    assert_eq!(found.status(Sample::time(10)), BootstrapStatus::Active);
}

/// One that was used, one that is locked, one that was taken back, one that is good for more, and one that is unused.
async fn mint_one_of_each(store: &SqliteStore, sample: &Sample) -> Vec<TokenRecord> {
    let at = Sample::time(1);
    let standing = |standing| TokenRecord {
        standing,
        ..sample.token("a")
    };
    let superseded_by = None;
    let tokens = vec![
        sample.token("a"),
        standing(TokenStanding::Locked { at }),
        standing(TokenStanding::Revoked { at, superseded_by }),
        sample.glob_token(5),
        sample.token("a"),
    ];
    let mut writes: Vec<_> = tokens.iter().cloned().map(Write::PutToken).collect();
    for index in [0, 3] {
        let other = fingerprint_sha256(b"other key");
        let used = sample.token_use(&tokens[index], "a", &other);
        writes.push(Write::UseToken(used));
    }
    let change = Change {
        writes,
        ..Change::default()
    };
    store.commit(change).await.unwrap();
    tokens
}

/// Whether a token can be used; then it was.
async fn is_used(store: &SqliteStore, sample: &Sample, token: &TokenRecord) -> bool {
    let used = sample.token_use(token, "a", &fingerprint_sha256(b"key"));
    let usable = Precondition::TokenUsable {
        id: token.id.clone(),
        certname: used.certname.clone(),
        key_fingerprint: used.key_fingerprint,
        at: used.at,
    };
    let check = Change {
        preconditions: vec![usable.clone()],
        ..Change::default()
    };
    let checked = store.commit(check).await;
    let change = Change {
        writes: vec![Write::UseToken(used)],
        ..Change::default()
    };
    let written = store.commit(change).await;
    for outcome in [&checked, &written] {
        assert!(
            match outcome {
                Ok(_) => checked.is_ok() && written.is_ok(),
                Err(CommitFault::Conflict { precondition }) => *precondition == usable,
                Err(_) => false,
            },
            "{checked:?} {written:?}"
        );
    }
    written.is_ok()
}

/// The tokens with a status, page by page.
async fn with_status(store: &SqliteStore, status: Option<TokenStatus>) -> Vec<TokenId> {
    let mut found = Vec::new();
    let mut filter = TokenFilter {
        status,
        ..TokenFilter::newest(Sample::time(10), 3)
    };
    loop {
        let page = store.tokens(filter.clone()).await.unwrap();
        let Some(last) = page.last() else {
            return found;
        };
        filter.after = Some(last.record.id.clone());
        found.extend(page.into_iter().map(|listed| listed.record.id));
    }
}

#[test]
fn what_is_no_store_is_not_copied() {
    let (ground, copies) = (TemporaryFile::new(), TemporaryFile::new());
    let missing = backup::copy(&ground.path(), &copies.path()).unwrap_err();
    assert!(matches!(missing, CopyFault::Source { .. }), "{missing}");
    assert!(!copies.path().exists() && !ground.path().exists());

    let other = rusqlite::Connection::open(ground.path()).unwrap();
    other.execute_batch("CREATE TABLE letters (text)").unwrap();
    drop(other);
    let foreign = backup::copy(&ground.path(), &copies.path()).unwrap_err();
    assert!(
        matches!(foreign, CopyFault::Schema(OpenFault::Foreign { .. })),
        "{foreign}"
    );

    let (ground, copies) = (TemporaryFile::new(), TemporaryFile::new());
    drop(ground.store());
    fs::write(copies.path(), b"somebody's").unwrap();
    let taken = backup::copy(&ground.path(), &copies.path()).unwrap_err();
    assert!(matches!(taken, CopyFault::Target { .. }), "{taken}");
    assert_eq!(fs::read(copies.path()).unwrap(), b"somebody's");
}

/// Damage inside the pages is found, by the copy and by whoever goes on from one.
#[tokio::test]
async fn a_damaged_store_is_found_out() {
    let (ground, copies) = (TemporaryFile::new(), TemporaryFile::new());
    let (store, sample) = (ground.store(), Sample::default());
    for number in 0..200 {
        let enrolment = sample.enrolment(&format!("host-{number}"));
        store.commit(enrolment.intend(&sample)).await.unwrap();
    }
    drop(store);
    backup::copy(&ground.path(), &copies.path()).unwrap();
    let mut bytes = fs::read(copies.path()).unwrap();
    let middle = bytes.len() / 2 / 8192 * 8192;
    bytes[middle..middle + 8192].fill(0x5a);
    fs::write(copies.path(), bytes).unwrap();
    let copied = backup::copy(&copies.path(), &copies.path().with_extension("2.db"));
    assert!(
        matches!(copied, Err(CopyFault::Damaged { .. })),
        "{copied:?}"
    );
    let resumed = backup::resume(&copies.path(), Sample::time(1));
    assert!(
        matches!(
            resumed,
            Err(OpenFault::Damaged { .. } | OpenFault::Sqlite { .. })
        ),
        "{resumed:?}"
    );
}
