//! Bootstrap tokens: kept, listed, taken back and forgotten.

use countersign_authority::store::{Change, CommitFault, Precondition, Store, Write};
use countersign_authority::{BootstrapId, BootstrapRecord, BootstrapToken};

use super::sample::write;
use super::{Ground, Sample};

/// What is kept comes back, and an id is one token's.
pub async fn a_bootstrap_token_comes_back_field_by_field(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let (full, bare) = (sample.bootstrap_token(), sample.endless_bootstrap_token());
    for record in [&full, &bare] {
        assert!(!stands(&*store, &record.id).await);
        write(&*store, vec![Write::PutBootstrapToken(record.clone())]).await;
        let found = store.bootstrap_token(&record.id).await.unwrap().unwrap();
        assert_eq!(found, fresh(record));
        assert!(stands(&*store, &record.id).await);
    }
    let again = BootstrapRecord {
        id: full.id.clone(),
        ..sample.bootstrap_token()
    };
    let change = Change {
        writes: vec![Write::PutBootstrapToken(again)],
        ..Change::default()
    };
    let taken = store.commit(change).await.unwrap_err();
    let free = Precondition::BootstrapTokenFree {
        id: full.id.clone(),
    };
    assert!(
        matches!(&taken, CommitFault::Conflict { precondition } if *precondition == free),
        "{taken}"
    );
    let found = store.bootstrap_token(&full.id).await.unwrap();
    assert_eq!(found, Some(fresh(&full)));
    let unknown = sample.bootstrap_token().id;
    assert_eq!(store.bootstrap_token(&unknown).await.unwrap(), None);
}

/// Pages are newest first and go on behind the last one that was seen.
pub async fn pages_of_bootstrap_tokens_come_newest_first(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut expected = Vec::new();
    for _ in 0..7 {
        let record = sample.bootstrap_token();
        write(&*store, vec![Write::PutBootstrapToken(record.clone())]).await;
        expected.insert(0, fresh(&record));
    }
    for limit in 1..=8 {
        let mut found: Vec<BootstrapToken> = Vec::new();
        loop {
            let after = found.last().map(|token| token.record.id.clone());
            let page = store.bootstrap_tokens(after, limit).await.unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_eq!(found, expected);
    }
}

/// The first revocation stands, and what is over is found and forgotten.
pub async fn a_bootstrap_token_is_taken_back_once_and_forgotten(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let (ending, endless) = (sample.bootstrap_token(), sample.endless_bootstrap_token());
    let kept = sample.endless_bootstrap_token();
    for record in [&ending, &endless, &kept] {
        write(&*store, vec![Write::PutBootstrapToken(record.clone())]).await;
    }
    for number in [20, 30] {
        let (id, at) = (endless.id.clone(), Sample::time(number));
        write(&*store, vec![Write::RevokeBootstrapToken { id, at }]).await;
    }
    let found = store.bootstrap_token(&endless.id).await.unwrap().unwrap();
    assert_eq!(found.record.revoked_at, Some(Sample::time(20)));
    assert!(!stands(&*store, &endless.id).await);
    for (before, expected) in [
        (20, vec![]),
        (21, vec![endless.id.clone()]),
        (100, vec![endless.id.clone()]),
        (101, vec![ending.id.clone(), endless.id.clone()]),
        (1_000_000, vec![ending.id.clone(), endless.id.clone()]),
    ] {
        let before = Sample::time(before);
        let over = store.bootstrap_tokens_over(before, 10).await.unwrap();
        assert_eq!(over, expected, "{before}");
    }
    let first = store.bootstrap_tokens_over(Sample::time(101), 1).await;
    assert_eq!(first.unwrap(), std::slice::from_ref(&ending.id));
    for id in [ending.id, endless.id] {
        write(&*store, vec![Write::ForgetBootstrapToken { id }]).await;
    }
    let left = store.bootstrap_tokens(None, 10).await.unwrap();
    assert_eq!(left, [fresh(&kept)]);
}

fn fresh(record: &BootstrapRecord) -> BootstrapToken {
    BootstrapToken {
        record: record.clone(),
        is_stale: false,
    }
}

async fn stands(store: &dyn Store, id: &BootstrapId) -> bool {
    let id = id.clone();
    let change = Change {
        preconditions: vec![Precondition::BootstrapTokenStands { id }],
        ..Change::default()
    };
    store.commit(change).await.is_ok()
}
