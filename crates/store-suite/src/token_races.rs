//! Many who use, replace or take back one token at the same time.

use countersign_authority::store::{Change, CommitFault, Precondition, Write};
use countersign_authority::{Revision, TokenStanding, TokenUseRecord};

use super::inventory::one_won;
use super::together::at_once;
use super::tokens::{end, found, key, of, put, usable};
use super::{Ground, Sample};

/// Of many names and keys that use one token at the same time, as many get it as it is good for, and the others are told.
pub async fn as_many_of_many_keys_as_a_token_is_good_for_use_it(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    for (max_uses, with_precondition) in [(1, true), (1, false), (7, true), (7, false)] {
        let token = put(&*store, sample.glob_token(max_uses)).await;
        let outcomes = at_once(&store, |number| {
            let number = u32::try_from(number).unwrap();
            use_of(
                &sample.token_use(&token, "a", &key(number)),
                with_precondition,
            )
        })
        .await;
        let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(won, usize::try_from(max_uses).unwrap());
        let told = outcomes.iter().filter(|outcome| {
            matches!(
                outcome,
                Err(CommitFault::Conflict {
                    precondition: Precondition::TokenUsable { .. }
                })
            )
        });
        assert_eq!(told.count(), outcomes.len() - won);
        assert_eq!(found(&*store, &token, &key(0)).await.record.uses, max_uses);
        let uses = store.token_uses(&token.id, 100).await.unwrap();
        assert_eq!(uses.len(), won);
    }
}

/// Of many tries of one name and key, one is a use, also where the token is good for more.
pub async fn one_of_many_tries_with_one_key_uses_a_token(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    for (max_uses, with_precondition) in [(1, true), (1, false), (7, true), (7, false)] {
        let token = put(&*store, sample.glob_token(max_uses)).await;
        let used = sample.token_use(&token, "a", &key(1));
        let outcomes = at_once(&store, |_| use_of(&used, with_precondition)).await;
        one_won(&outcomes, &usable(&used));
        assert_eq!(store.token_uses(&token.id, 10).await.unwrap(), [used]);
        assert_eq!(found(&*store, &token, &key(1)).await.record.uses, 1);
    }
}

/// Of many tokens that shall take the place of a name's only one, one does.
pub async fn one_of_many_tokens_takes_the_place_of_another(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let old = put(&*store, sample.token("a")).await;
    let only = Precondition::ActiveTokens {
        certname: "a".to_owned(),
        ids: vec![old.id.clone()],
        at: Sample::time(10),
    };
    let outcomes = at_once(&store, |_| {
        let new = sample.token("a");
        let superseded = TokenStanding::Revoked {
            at: Sample::time(10),
            superseded_by: Some(new.id.clone()),
        };
        Change {
            preconditions: vec![only.clone()],
            ..of(vec![end(&old, &superseded), Write::PutToken(new)])
        }
    })
    .await;
    one_won(&outcomes, &only);
    let active = store.active_tokens_of("a", Sample::time(10)).await.unwrap();
    let [new] = active.as_slice() else {
        panic!("{active:?}");
    };
    let ended = TokenStanding::Revoked {
        at: Sample::time(10),
        superseded_by: Some(new.id.clone()),
    };
    let old = found(&*store, &old, &key(1)).await.record;
    assert_eq!(old.standing, ended);
}

/// Uses and a revocation at the same time: what was acknowledged came before it, and nothing came after.
pub async fn a_token_is_not_used_once_it_is_taken_back(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    for round in 0..8 {
        let token = put(&*store, sample.glob_token(1000)).await;
        let revoked = TokenStanding::Revoked {
            at: Sample::time(10),
            superseded_by: None,
        };
        let outcomes = at_once(&store, |number| {
            if number == round * 7 {
                return of(vec![end(&token, &revoked)]);
            }
            let key = key(u32::try_from(number).unwrap());
            use_of(&sample.token_use(&token, "a", &key), number % 2 == 0)
        })
        .await;
        let record = found(&*store, &token, &key(0)).await.record;
        assert_eq!(record.standing, revoked);
        let acknowledged: Vec<Revision> = outcomes
            .iter()
            .filter_map(|outcome| outcome.as_ref().ok())
            .map(|committed| committed.revision)
            .collect();
        assert_eq!(acknowledged.iter().max(), Some(&record.version));
        let uses = store.token_uses(&token.id, 100).await.unwrap();
        assert_eq!(uses.len(), acknowledged.len() - 1);
        assert_eq!(usize::try_from(record.uses).unwrap(), uses.len());
    }
}

fn use_of(used: &TokenUseRecord, with_precondition: bool) -> Change {
    Change {
        preconditions: Vec::from_iter(with_precondition.then(|| usable(used))),
        ..of(vec![Write::UseToken(used.clone())])
    }
}
