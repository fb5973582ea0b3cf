//! Enrolment tokens: what is kept of them, who may use one, and many who try at once.

use countersign_authority::store::{Change, CommitFault, Precondition, Store, StoreFault, Write};
use countersign_authority::{
    FoundToken, ListedToken, Revision, TokenRecord, TokenStanding, TokenStatus, TokenUseRecord,
};
use countersign_pki::{Fingerprint, fingerprint_sha256};
use countersign_policy::TokenUseState;

use super::inventory::{holds, one_won};
use super::sample::write;
use super::together::at_once;
use super::{Ground, Sample};

/// Everything of a token is kept, and everything of one that says little; the store adds when it was written.
pub async fn a_token_comes_back_field_by_field(ground: &dyn Ground) {
    let (mut store, sample) = (ground.open().await, Sample::default());
    let ended = |standing| TokenRecord {
        standing,
        failed_uses: 3,
        ..sample.token("ended.example.com")
    };
    let at = Sample::time(7);
    for token in [
        sample.token("web01.example.com"),
        sample.glob_token(1000),
        ended(TokenStanding::Locked { at }),
        ended(TokenStanding::Revoked {
            at,
            superseded_by: None,
        }),
        ended(TokenStanding::Revoked {
            at,
            superseded_by: Some(Sample::token_id(9)),
        }),
    ] {
        let committed = write(&*store, vec![Write::PutToken(token.clone())]).await;
        let expected = TokenRecord {
            version: committed.revision,
            ..token
        };
        drop(store);
        store = ground.open().await;
        let found = found(&*store, &expected, &key(1)).await;
        let untouched = FoundToken {
            record: expected.clone(),
            is_stale: false,
            same: None,
            other: None,
        };
        assert_eq!(found, untouched);
        assert_eq!(listed(&*store, &expected).await.record, expected);
    }
    let nobody = Sample::token_id(1000);
    assert_eq!(store.token(&nobody, "a", &key(1)).await.unwrap(), None);
    let listed = store.listed_token(&nobody, Sample::time(0)).await;
    assert_eq!(listed.unwrap(), None);
    assert!(store.token_uses(&nobody, 10).await.unwrap().is_empty());
}

/// A second token with the public part of another is refused, and the first is as it was.
pub async fn an_id_is_stored_once(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let token = put(&*store, sample.token("a")).await;
    let second = |idempotency_key| TokenRecord {
        id: token.id.clone(),
        idempotency_key,
        ..sample.token("b")
    };
    for order in [None, Some("new".to_owned()), token.idempotency_key.clone()] {
        let refused = store.commit(of(vec![Write::PutToken(second(order))])).await;
        assert!(
            matches!(
                &refused,
                Err(CommitFault::Store(StoreFault::Failed { source }))
                    if source.to_string().contains(token.id.as_str())
            ),
            "{refused:?}"
        );
    }
    assert_eq!(found(&*store, &token, &key(1)).await.record, token);
}

/// A name for an order is its client's; while a token of it is on record, there is no other.
pub async fn an_order_is_carried_out_once(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let ordered = |by: &str, order: &str| TokenRecord {
        created_by: by.to_owned(),
        idempotency_key: Some(order.to_owned()),
        ..sample.token("a")
    };
    let none = Precondition::TokenNotOrdered {
        created_by: "one".to_owned(),
        idempotency_key: "order".to_owned(),
    };
    let outcomes = at_once(&store, |number| Change {
        // The unique key alone is enough.
        preconditions: Vec::from_iter((number % 2 == 0).then(|| none.clone())),
        ..of(vec![Write::PutToken(ordered("one", "order"))])
    })
    .await;
    one_won(&outcomes, &none);
    assert!(!holds(&*store, none.clone()).await);
    let winner = store.token_ordered("one", "order").await.unwrap().unwrap();
    for (by, order) in [("one", "another"), ("two", "order")] {
        assert_eq!(store.token_ordered(by, order).await.unwrap(), None);
        let token = put(&*store, ordered(by, order)).await;
        let found = store.token_ordered(by, order).await.unwrap();
        assert_eq!(found, Some(token.id));
    }
    for _ in 0..2 {
        put(&*store, sample.glob_token(2)).await;
    }
    write(&*store, vec![Write::ForgetToken { id: winner }]).await;
    assert!(holds(&*store, none).await);
}

/// From a minute before its first second up to its last, as long as a use is left and nothing was done about it. The
/// write by itself asks the same as the precondition.
pub async fn a_token_is_usable_within_its_time_and_its_uses(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let standing = |standing| TokenRecord {
        standing,
        ..sample.token("a")
    };
    let at = Sample::time(5);
    let superseded_by = None;
    let [begins, ends] = [Sample::time(0), Sample::time(100)];
    for (token, at, expected) in [
        (sample.token("a"), begins.minus_seconds(61), false),
        (sample.token("a"), begins.minus_seconds(60), true),
        (sample.token("a"), begins, true),
        (sample.token("a"), ends.minus_seconds(1), true),
        (sample.token("a"), ends, false),
        (sample.token("a"), ends.plus_seconds(1), false),
        (standing(TokenStanding::Locked { at }), begins, false),
        (
            standing(TokenStanding::Revoked { at, superseded_by }),
            begins,
            false,
        ),
        (sample.glob_token(2), begins, true),
        (
            TokenRecord {
                uses: 1,
                ..sample.glob_token(2)
            },
            begins,
            true,
        ),
        (
            TokenRecord {
                uses: 2,
                ..sample.glob_token(2)
            },
            begins,
            false,
        ),
    ] {
        let token = put(&*store, token).await;
        let used = TokenUseRecord {
            at,
            ..sample.token_use(&token, "a", &key(1))
        };
        let case = format!("{token:?} {at}");
        assert_eq!(holds(&*store, usable(&used)).await, expected, "{case}");
        let outcome = store.commit(of(vec![Write::UseToken(used.clone())])).await;
        assert_eq!(outcome.is_ok(), expected, "{case}");
        assert!(expected || lost(&outcome, &usable(&used)), "{outcome:?}");
        let found = found(&*store, &token, &key(1)).await;
        let counted = token.uses + u32::from(expected);
        assert_eq!(
            (found.record.uses, found.same.is_some()),
            (counted, expected)
        );
    }
    let unknown = sample.token_use(&sample.token("a"), "a", &key(1));
    assert!(!holds(&*store, usable(&unknown)).await);
    let refused = store.commit(of(vec![Write::UseToken(unknown)])).await;
    assert!(refused.is_err());
}

/// Everything of a use is kept. Whoever looks is told of their own use and of the first of somebody else.
pub async fn a_use_comes_back_field_by_field(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let token = put(&*store, sample.glob_token(5)).await;
    let uses = [
        sample.token_use(&token, "a.example.com", &key(1)),
        TokenUseRecord {
            state: TokenUseState::Issued,
            request: None,
            serial: Some(Sample::serial(4)),
            ..sample.token_use(&token, "b.example.com", &key(1))
        },
        sample.token_use(&token, "a.example.com", &key(2)),
    ];
    for (count, used) in (1..).zip(&uses) {
        let committed = write(&*store, vec![Write::UseToken(used.clone())]).await;
        let found = found(&*store, &token, &key(1)).await.record;
        assert_eq!((found.uses, found.version), (count, committed.revision));
    }
    drop(store);
    let store = ground.open().await;
    assert_eq!(store.token_uses(&token.id, 10).await.unwrap(), uses);
    assert_eq!(store.token_uses(&token.id, 2).await.unwrap(), uses[..2]);
    for (certname, number, same, other) in [
        ("a.example.com", 1, Some(0), 1),
        ("b.example.com", 1, Some(1), 0),
        ("a.example.com", 2, Some(2), 0),
        ("b.example.com", 2, None, 0),
    ] {
        let found = store.token(&token.id, certname, &key(number)).await;
        let found = found.unwrap().unwrap();
        let same: Option<&TokenUseRecord> = same.map(|index: usize| &uses[index]);
        assert_eq!(found.same.as_ref(), same, "{certname} {number}");
        assert_eq!(
            found.other,
            Some(uses[other].clone()),
            "{certname} {number}"
        );
    }
}

/// A second use by the same name and key is a conflict, however many are left, and counts for nothing.
pub async fn one_name_and_key_use_a_token_once(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let token = put(&*store, sample.glob_token(5)).await;
    let first = sample.token_use(&token, "a", &key(1));
    write(&*store, vec![Write::UseToken(first.clone())]).await;
    let before = found(&*store, &token, &key(1)).await;
    let again = TokenUseRecord {
        at: Sample::time(11),
        ..first.clone()
    };
    assert!(!holds(&*store, usable(&again)).await);
    let outcome = store.commit(of(vec![Write::UseToken(again.clone())])).await;
    assert!(lost(&outcome, &usable(&again)), "{outcome:?}");
    assert_eq!(found(&*store, &token, &key(1)).await, before);
    for other in [
        sample.token_use(&token, "a", &key(2)),
        sample.token_use(&token, "b", &key(1)),
    ] {
        assert!(holds(&*store, usable(&other)).await);
        write(&*store, vec![Write::UseToken(other)]).await;
    }
    // In one change, too.
    let twice = sample.token_use(&token, "c", &key(1));
    let writes = vec![Write::UseToken(twice.clone()), Write::UseToken(twice)];
    assert!(store.commit(of(writes)).await.is_err());
    assert_eq!(found(&*store, &token, &key(1)).await.record.uses, 3);
}

/// A use that has its certificate says which; one that is not on record says nothing, nor does its token change.
pub async fn the_certificate_of_a_use_is_noted(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let token = put(&*store, sample.token("a")).await;
    let used = sample.token_use(&token, "a", &key(1));
    let committed = write(&*store, vec![Write::UseToken(used.clone())]).await;
    let issued = |certname: &str, number, serial| Write::TokenIssued {
        id: token.id.clone(),
        certname: certname.to_owned(),
        key_fingerprint: key(number),
        serial: Sample::serial(serial),
    };
    write(&*store, vec![issued("b", 1, 4), issued("a", 2, 4)]).await;
    let still = found(&*store, &token, &key(1)).await;
    assert_eq!(still.record.version, committed.revision);
    assert_eq!(still.same, Some(used.clone()));
    assert!(holds(&*store, reserved(&used)).await);

    let committed = write(&*store, vec![issued("a", 1, 4)]).await;
    let noted = TokenUseRecord {
        state: TokenUseState::Issued,
        serial: Some(Sample::serial(4)),
        ..used.clone()
    };
    for _ in 0..2 {
        let found = found(&*store, &token, &key(1)).await;
        assert_eq!(found.same, Some(noted.clone()));
        assert_eq!(
            (found.record.uses, found.record.version),
            (1, committed.revision)
        );
        assert!(!holds(&*store, reserved(&used)).await);
        // Once more the same is no change.
        write(&*store, vec![issued("a", 1, 4)]).await;
    }
}

/// A use whose certificate was not signed can be given back, and then somebody else may use the token.
pub async fn a_use_is_given_back_while_it_is_reserved(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let token = put(&*store, sample.token("a")).await;
    let [first, second] = [1, 2].map(|number| sample.token_use(&token, "a", &key(number)));
    let release = |used: &TokenUseRecord| Write::ReleaseToken {
        id: used.token.clone(),
        certname: used.certname.clone(),
        key_fingerprint: used.key_fingerprint,
        request: used.request,
    };
    let fails = async |used: &TokenUseRecord| {
        assert!(!holds(&*store, reserved(used)).await);
        let outcome = store.commit(of(vec![release(used)])).await;
        assert!(lost(&outcome, &reserved(used)), "{outcome:?}");
    };
    fails(&first).await;
    write(&*store, vec![Write::UseToken(first.clone())]).await;
    fails(&second).await;
    assert!(!holds(&*store, usable(&second)).await);
    let committed = write(&*store, vec![release(&first)]).await;
    let free = found(&*store, &token, &key(1)).await;
    assert_eq!((free.same.clone(), free.other.clone()), (None, None));
    assert_eq!(
        (free.record.uses, free.record.version),
        (0, committed.revision)
    );
    assert_eq!(listed(&*store, &token).await.status, TokenStatus::Active);
    fails(&first).await;
    // Whoever saw the first use does not give back the next one of the same key, whose request goes on.
    let again = sample.token_use(&token, "a", &key(1));
    write(&*store, vec![Write::UseToken(again.clone())]).await;
    fails(&first).await;
    write(&*store, vec![release(&again)]).await;

    let issued = Write::TokenIssued {
        id: token.id.clone(),
        certname: "a".to_owned(),
        key_fingerprint: key(2),
        serial: Sample::serial(4),
    };
    write(&*store, vec![Write::UseToken(second.clone()), issued]).await;
    fails(&second).await;
    assert_eq!(found(&*store, &token, &key(2)).await.record.uses, 1);
    // One that was taken back meanwhile stays so.
    let token = put(&*store, sample.token("a")).await;
    let used = sample.token_use(&token, "a", &key(1));
    let revoked = TokenStanding::Revoked {
        at: Sample::time(20),
        superseded_by: None,
    };
    let writes = vec![Write::UseToken(used.clone()), end(&token, &revoked)];
    write(&*store, writes).await;
    write(&*store, vec![release(&used)]).await;
    let record = listed(&*store, &token).await;
    assert_eq!((record.record.standing, record.record.uses), (revoked, 0));
    assert_eq!(record.status, TokenStatus::Revoked);
}

/// A token that was taken back stays as it was then. One is locked only while it has a use left, and can still be taken
/// back.
pub async fn the_first_end_of_a_token_stands(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let locked = |at| TokenStanding::Locked {
        at: Sample::time(at),
    };
    let revoked = |at, by: Option<u32>| TokenStanding::Revoked {
        at: Sample::time(at),
        superseded_by: by.map(Sample::token_id),
    };
    for (used, ends, expected) in [
        (false, vec![revoked(1, Some(7))], revoked(1, Some(7))),
        (
            false,
            vec![revoked(1, None), revoked(2, Some(7))],
            revoked(1, None),
        ),
        (false, vec![revoked(1, None), locked(2)], revoked(1, None)),
        (false, vec![locked(1)], locked(1)),
        (false, vec![locked(1), locked(2)], locked(1)),
        (false, vec![locked(1), revoked(2, None)], revoked(2, None)),
        (true, vec![locked(1)], TokenStanding::Active),
        (true, vec![locked(1), revoked(2, None)], revoked(2, None)),
    ] {
        let token = put(&*store, sample.token("a")).await;
        if used {
            let used = sample.token_use(&token, "a", &key(1));
            write(&*store, vec![Write::UseToken(used)]).await;
        }
        for standing in &ends {
            let before = found(&*store, &token, &key(1)).await.record;
            let committed = write(&*store, vec![end(&token, standing)]).await;
            let after = found(&*store, &token, &key(1)).await.record;
            let changed = before.standing != after.standing;
            let version = if changed {
                committed.revision
            } else {
                before.version
            };
            assert_eq!(after.version, version, "{ends:?}");
        }
        let record = found(&*store, &token, &key(1)).await.record;
        assert_eq!(record.standing, expected, "{used} {ends:?}");
    }
    let token = put(&*store, sample.token("a")).await;
    let none = store
        .commit(of(vec![end(&token, &TokenStanding::Active)]))
        .await;
    assert!(none.is_err(), "it is no end");
    // One that is not there stays away.
    write(&*store, vec![end(&sample.token("b"), &locked(1))]).await;
}

/// Each misuse counts, also those of one change and those of a token that was used.
pub async fn misuses_are_counted(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let token = put(&*store, sample.token("a")).await;
    let fail = || Write::FailToken {
        id: token.id.clone(),
    };
    write(&*store, vec![fail(), fail()]).await;
    let used = sample.token_use(&token, "a", &key(1));
    let committed = write(&*store, vec![Write::UseToken(used), fail()]).await;
    let outcomes = at_once(&store, |_| of(vec![fail()])).await;
    assert!(outcomes.iter().all(Result::is_ok));
    let record = found(&*store, &token, &key(1)).await.record;
    let all = u32::try_from(outcomes.len()).unwrap() + 3;
    assert_eq!((record.failed_uses, record.uses), (all, 1));
    assert!(record.version > committed.revision);
    let nobody = Write::FailToken {
        id: Sample::token_id(1000),
    };
    write(&*store, vec![nobody]).await;
}

/// Every write about a token is a change of it.
pub async fn a_token_that_changed_since_it_was_read_is_a_conflict(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let token = put(&*store, sample.token("a")).await;
    let at = |version| Precondition::TokenAt {
        id: token.id.clone(),
        version,
    };
    let used = sample.token_use(&token, "a", &key(1));
    let (id, certname, key_fingerprint) = (|| token.id.clone(), || "a".to_owned(), key(1));
    let mut version = token.version;
    for change in [
        Write::FailToken { id: id() },
        Write::UseToken(used.clone()),
        Write::ReleaseToken {
            id: id(),
            certname: certname(),
            key_fingerprint,
            request: used.request,
        },
        Write::UseToken(used),
        Write::TokenIssued {
            id: id(),
            certname: certname(),
            key_fingerprint,
            serial: Sample::serial(1),
        },
        end(
            &token,
            &TokenStanding::Revoked {
                at: Sample::time(1),
                superseded_by: None,
            },
        ),
    ] {
        assert!(holds(&*store, at(version)).await, "{change:?}");
        let words = format!("{change:?}");
        let next = write(&*store, vec![change]).await.revision;
        assert!(!holds(&*store, at(version)).await, "{words}");
        version = next;
    }
    assert!(holds(&*store, at(version)).await);
    write(&*store, vec![Write::ForgetToken { id: id() }]).await;
    assert!(!holds(&*store, at(version)).await);
    assert!(!holds(&*store, at(Revision(0))).await);
}

/// Nothing is left of a token that is forgotten; others stay.
pub async fn a_forgotten_token_is_gone_with_its_uses(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let [gone, stays] = [sample.token("a"), sample.token("a")];
    for token in [&gone, &stays] {
        let used = sample.token_use(token, "a", &key(1));
        let writes = vec![Write::PutToken(token.clone()), Write::UseToken(used)];
        write(&*store, writes).await;
    }
    let forget = || Write::ForgetToken {
        id: gone.id.clone(),
    };
    write(&*store, vec![forget()]).await;
    let found = store.token(&gone.id, "a", &key(1)).await.unwrap();
    assert_eq!(found, None);
    assert!(store.token_uses(&gone.id, 10).await.unwrap().is_empty());
    assert_eq!(store.token_uses(&stays.id, 10).await.unwrap().len(), 1);
    write(&*store, vec![forget()]).await;
}

/// Stores a token; gives it back as it is then.
pub(super) async fn put(store: &dyn Store, token: TokenRecord) -> TokenRecord {
    let committed = write(store, vec![Write::PutToken(token.clone())]).await;
    TokenRecord {
        version: committed.revision,
        ..token
    }
}

/// A public key, by number.
pub(super) fn key(number: u32) -> Fingerprint {
    fingerprint_sha256(&number.to_be_bytes())
}

pub(super) fn end(token: &TokenRecord, standing: &TokenStanding) -> Write {
    Write::EndToken {
        id: token.id.clone(),
        standing: standing.clone(),
    }
}

/// A change of writes alone.
pub(super) fn of(writes: Vec<Write>) -> Change {
    Change {
        writes,
        ..Change::default()
    }
}

pub(super) fn usable(used: &TokenUseRecord) -> Precondition {
    Precondition::TokenUsable {
        id: used.token.clone(),
        certname: used.certname.clone(),
        key_fingerprint: used.key_fingerprint,
        at: used.at,
    }
}

fn reserved(used: &TokenUseRecord) -> Precondition {
    Precondition::TokenReserved {
        id: used.token.clone(),
        certname: used.certname.clone(),
        key_fingerprint: used.key_fingerprint,
        request: used.request,
    }
}

/// Whether a change was in conflict with this.
fn lost<T>(outcome: &Result<T, CommitFault>, with: &Precondition) -> bool {
    matches!(outcome, Err(CommitFault::Conflict { precondition }) if precondition == with)
}

/// A token as the name `a` with this key sees it.
pub(super) async fn found(store: &dyn Store, token: &TokenRecord, key: &Fingerprint) -> FoundToken {
    store.token(&token.id, "a", key).await.unwrap().unwrap()
}

async fn listed(store: &dyn Store, token: &TokenRecord) -> ListedToken {
    let listed = store.listed_token(&token.id, Sample::time(10)).await;
    listed.unwrap().unwrap()
}
