//! `kill -9` while tokens are used: a use that was acknowledged is there afterwards, and no token was used twice.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use countersign_authority::store::TokenReads as _;
use countersign_authority::store::{Change, CommitFault, Write};
use countersign_authority::{Store, TokenFilter, TokenId, TokenRecord};
use countersign_pki::{Fingerprint, fingerprint_sha256};
use countersign_store::SqliteStore;
use countersign_store_suite::Sample;
use futures_util::future::join_all;

use crate::child;
use crate::crash::{ROUND, run_and_kill};
use crate::ground::TemporaryFile;

const ROUNDS: u64 = 8;
const CALLERS: u32 = 16;
const RIVALS: u8 = 3;
const THIS_TEST: &str = "token_crash::an_acknowledged_use_of_a_token_is_there_and_there_once";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledged_use_of_a_token_is_there_and_there_once() {
    if let Some(path) = child::store_path() {
        return use_tokens_until_killed(&path).await;
    }
    let ground = TemporaryFile::new();
    let mut acknowledged: Vec<(TokenId, Fingerprint)> = Vec::new();
    for round in 0..ROUNDS {
        let before = acknowledged.len();
        acknowledged.extend(run_and_kill(THIS_TEST, &ground, round, parse));
        assert!(acknowledged.len() > before, "round {round}");
        check(&ground.store(), &acknowledged).await;
    }
}

async fn check(store: &SqliteStore, acknowledged: &[(TokenId, Fingerprint)]) {
    let sample = Sample::default();
    for (id, key) in acknowledged {
        let found = store.token(id, "a", key).await.unwrap().unwrap();
        assert!(found.same.is_some(), "a use of {id} was lost");
        // Nobody else has the token, nor can anybody have it now.
        assert_eq!((found.record.uses, &found.other), (1, &None));
        let late = fingerprint_sha256(b"late");
        let used = sample.token_use(&found.record, "a", &late);
        let refused = store.commit(of(Write::UseToken(used))).await;
        assert!(
            matches!(refused, Err(CommitFault::Conflict { .. })),
            "{refused:?}"
        );
    }
    // Nothing half, of those that nobody was told of either: what a token counts is on record.
    let everything = TokenFilter::newest(Sample::time(10), 1_000_000);
    let tokens = store.tokens(everything).await.unwrap();
    assert!(tokens.len() >= acknowledged.len());
    for listed in tokens {
        let uses = store.token_uses(&listed.record.id, 10).await.unwrap();
        assert_eq!(usize::try_from(listed.record.uses).unwrap(), uses.len());
        assert!(uses.len() <= 1);
    }
}

/// The child's part: callers who mint tokens that several want at once, until the process dies.
async fn use_tokens_until_killed(path: &Path) {
    let round: u32 = std::env::var(ROUND).expect("the round").parse().unwrap();
    let store = Arc::new(SqliteStore::open(path).unwrap());
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let first = (round * CALLERS + caller) << 16;
            tokio::spawn(use_tokens_for_ever(Arc::clone(&store), first))
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

async fn use_tokens_for_ever(store: Arc<SqliteStore>, first: u32) {
    let sample = Sample::default();
    for number in first.. {
        let token = TokenRecord {
            id: Sample::token_id(number),
            idempotency_key: None,
            ..sample.token("a")
        };
        store
            .commit(of(Write::PutToken(token.clone())))
            .await
            .unwrap();
        let rivals = (0..RIVALS).map(|rival| {
            let key = fingerprint_sha256(&[rival]);
            let used = sample.token_use(&token, "a", &key);
            let store = Arc::clone(&store);
            async move {
                let used = store.commit(of(Write::UseToken(used))).await;
                used.is_ok().then_some(key)
            }
        });
        let winners: Vec<_> = join_all(rivals).await.into_iter().flatten().collect();
        let [winner] = winners.as_slice() else {
            panic!("{} of them used {}", winners.len(), token.id);
        };
        let line = format!("used {} {}\n", token.id, winner.to_hex());
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

/// What the child reports of a use.
fn parse(line: &str) -> Option<(TokenId, Fingerprint)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [.., "used", id, key] = words.as_slice() else {
        return None;
    };
    let rival = |rival| fingerprint_sha256(&[rival]);
    let key = (0..RIVALS)
        .map(rival)
        .find(|known| known.to_hex() == *key)?;
    Some((TokenId::parse(id)?, key))
}

fn of(write: Write) -> Change {
    Change {
        writes: vec![write],
        ..Change::default()
    }
}
