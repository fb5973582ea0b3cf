//! Many who use, give back and end one token at the same moment: what the store acknowledges adds up.

use std::sync::Arc;

use countersign_authority::store::TokenReads as _;
use countersign_authority::store::{Change, CommitFault, Precondition, Write};
use countersign_authority::{Revision, Store, TokenId, TokenRecord, TokenStanding, TokenUseRecord};
use countersign_pki::{Fingerprint, UnixTime, fingerprint_sha256};
use countersign_policy::{TokenBinding, TokenTerms, TokenUseState};
use countersign_store::SqliteStore;

use crate::ground::TemporaryFile;

const NOW: UnixTime = UnixTime(1_800_000_000);
const CALLERS: usize = 64;

fn id() -> TokenId {
    TokenId::parse("aaaqeayeaudaocaj").unwrap()
}

async fn store_with_token(ground: &TemporaryFile, max_uses: u32) -> Arc<SqliteStore> {
    let store = Arc::new(ground.store());
    let record = TokenRecord {
        id: id(),
        mac: [7; 32],
        mac_key_id: String::new(),
        terms_mac: None,
        binding: TokenBinding::Glob("*.dmz.example.com".to_owned()),
        not_before: NOW,
        expires_at: NOW.plus_seconds(3600),
        max_uses,
        uses: 0,
        standing: TokenStanding::Active,
        terms: TokenTerms::default(),
        created_by: "admin".to_owned(),
        external_ref: String::new(),
        note: String::new(),
        created_at: NOW,
        failed_uses: 0,
        epoch: 0,
        idempotency_key: None,
        version: Revision::default(),
    };
    write(&store, vec![Write::PutToken(record)]).await.unwrap();
    store
}

async fn write(store: &SqliteStore, writes: Vec<Write>) -> Result<Revision, CommitFault> {
    let change = Change {
        writes,
        ..Change::default()
    };
    store
        .commit(change)
        .await
        .map(|committed| committed.revision)
}

fn name(number: usize) -> String {
    format!("h{number}.dmz.example.com")
}

fn key(number: usize) -> Fingerprint {
    fingerprint_sha256(&number.to_be_bytes())
}

/// The write alone, without the precondition that goes with it: it must hold by itself.
async fn use_up(store: &SqliteStore, number: usize) -> Result<Revision, CommitFault> {
    let used = TokenUseRecord {
        token: id(),
        certname: name(number),
        key_fingerprint: key(number),
        state: TokenUseState::Reserved,
        request: None,
        serial: None,
        at: NOW,
        retry_until: NOW.plus_seconds(1800),
    };
    write(store, vec![Write::UseToken(used)]).await
}

async fn release(store: &SqliteStore, number: usize) -> Result<Revision, CommitFault> {
    let released = Write::ReleaseToken {
        id: id(),
        certname: name(number),
        key_fingerprint: key(number),
        request: None,
    };
    write(store, vec![released]).await
}

/// Each caller on a task of its own; the revisions of those who came through. The others were too late, and hear that.
async fn at_once<F>(callers: impl Iterator<Item = F>) -> Vec<Revision>
where
    F: Future<Output = Result<Revision, CommitFault>> + Send + 'static,
{
    let tasks: Vec<_> = callers.map(tokio::spawn).collect();
    let mut revisions = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(revision) => revisions.push(revision),
            Err(CommitFault::Conflict { precondition }) => assert!(
                matches!(
                    precondition,
                    Precondition::TokenUsable { .. } | Precondition::TokenReserved { .. }
                ),
                "{precondition:?}"
            ),
            Err(fault) => panic!("{fault}"),
        }
    }
    revisions
}

async fn uses(store: &SqliteStore) -> usize {
    let listed = store.listed_token(&id(), NOW).await.unwrap().unwrap();
    let rows = store.token_uses(&id(), 1000).await.unwrap();
    assert_eq!(usize::try_from(listed.record.uses).unwrap(), rows.len());
    rows.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_one_time_token_authorises_once_in_the_store() {
    for max_uses in [1, 10] {
        let ground = TemporaryFile::new();
        let store = store_with_token(&ground, max_uses).await;
        let callers = (0..CALLERS).map(|number| {
            let store = Arc::clone(&store);
            async move { use_up(&store, number).await }
        });
        let used = at_once(callers).await.len();
        assert_eq!(used, usize::try_from(max_uses).unwrap());
        assert_eq!(uses(&store).await, used);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_name_and_key_use_a_token_once() {
    let ground = TemporaryFile::new();
    let store = store_with_token(&ground, 10).await;
    let callers = (0..CALLERS).map(|_| {
        let store = Arc::clone(&store);
        async move { use_up(&store, 1).await }
    });
    assert_eq!(at_once(callers).await.len(), 1);
    assert_eq!(uses(&store).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_token_that_has_ended_is_not_used_after_that() {
    for round in 0..8 {
        let ground = TemporaryFile::new();
        let store = store_with_token(&ground, 1000).await;
        let ending = {
            let (store, round) = (Arc::clone(&store), round);
            tokio::spawn(async move {
                // The more rounds, the more come first.
                while store.token_uses(&id(), 1000).await.unwrap().len() < round {
                    tokio::task::yield_now().await;
                }
                let standing = TokenStanding::Revoked {
                    at: NOW,
                    superseded_by: None,
                };
                write(&store, vec![Write::EndToken { id: id(), standing }]).await
            })
        };
        let callers = (0..CALLERS).map(|number| {
            let store = Arc::clone(&store);
            async move { use_up(&store, number).await }
        });
        let used = at_once(callers).await;
        let end = ending.await.unwrap().unwrap();
        assert!(used.iter().all(|revision| *revision < end), "round {round}");
        assert_eq!(uses(&store).await, used.len(), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_given_back_can_be_used_once_more() {
    let ground = TemporaryFile::new();
    let store = store_with_token(&ground, 3).await;
    let callers = (0..CALLERS).map(|number| {
        let store = Arc::clone(&store);
        async move {
            // Eight keys come and go; whoever gives back what is gone already is told.
            match number % 2 {
                0 => use_up(&store, number % 8).await,
                _ => release(&store, (number - 1) % 8).await,
            }
        }
    });
    at_once(callers).await;
    let left = uses(&store).await;
    assert!(left <= 3, "{left}");
    for number in 0..8 {
        let _is_none = release(&store, number).await;
    }
    assert_eq!(uses(&store).await, 0);
    let callers = (0..CALLERS).map(|number| {
        let store = Arc::clone(&store);
        async move { use_up(&store, number).await }
    });
    assert_eq!(at_once(callers).await.len(), 3);
}
