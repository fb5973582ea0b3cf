//! A decision that is stored elsewhere while its certificate is being prepared: the key waits for it, and what is not
//! confirmed leaves no certificate, whoever ends first.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use countersign_authority::store::{LedgerReads as _, Past};
use countersign_authority::{
    Authority, Confirmation, Confirmer, Decision, EngineError, RequestState, Submission,
    SubmitFault,
};
use countersign_policy::PersonVerdict;
use countersign_store::SqliteStore;

use crate::kill_points::copy;
use crate::recovery::faulty;
use crate::world::{self, DOOR, TestClock, issuer_id};

fn unconfirmed(name: &str) -> (Confirmer, Submission) {
    let (confirmer, confirmation) = Confirmation::pending();
    let decision = Decision {
        actor: world::administrator(),
        verdict: PersonVerdict::Approve,
        reason: "as stored elsewhere".to_owned(),
        confirmation: Some(confirmation),
    };
    let submission = Submission {
        decision: Some(decision),
        ..world::submission(name)
    };
    (confirmer, submission)
}

async fn is_certified(authority: &Authority, name: &str) -> bool {
    let newest = authority.ledger.newest(&issuer_id(), name).await.unwrap();
    newest.is_some()
}

async fn state(authority: &Authority, name: &str) -> Option<RequestState> {
    let found = authority.requests.at(&DOOR, name, Past::Include).await;
    found.unwrap().map(|record| record.state)
}

async fn until_intended(store: &SqliteStore) {
    while store.open_intents().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_signed_before_it_is_confirmed_nor_after_a_crash_without() {
    let (folder, keys) = faulty().await;
    let store = Arc::new(world::store(folder.path()));
    let clock = TestClock::new();
    let authority =
        world::authority(folder.path(), store.clone(), keys, clock.clone(), false).await;
    let (confirmer, submission) = unconfirmed("a");
    let submitting = {
        let authority = authority.clone();
        tokio::spawn(async move { authority.requests.submit(submission).await })
    };
    until_intended(&store).await;
    assert!(!is_certified(&authority, "a").await);
    assert_eq!(authority.recover().await.unwrap(), 0, "it is under way");

    // As if the process had been killed now.
    let left = copy(folder.path());
    let (left_store, left_keys) = (world::store(left.path()), world::keys(left.path()));
    let (left_store, left_keys) = (Arc::new(left_store), Arc::new(left_keys));
    let next = world::authority(left.path(), left_store.clone(), left_keys, clock, true).await;
    assert!(left_store.open_intents().await.unwrap().is_empty());
    assert!(!is_certified(&next, "a").await, "nobody has confirmed it");
    assert_eq!(state(&next, "a").await, Some(RequestState::Undecided));
    let again = next.requests.submit(world::submission("a")).await.unwrap();
    assert!(again.issued.is_some(), "its name is free");

    confirmer.confirm();
    let submitted = submitting.await.unwrap().unwrap();
    assert!(submitted.issued.is_some());
    assert!(is_certified(&authority, "a").await);
    assert_eq!(state(&authority, "a").await, Some(RequestState::Issued));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_withdrawn_is_void_and_its_name_is_free_at_once() {
    let (folder, keys) = faulty().await;
    let store = Arc::new(world::store(folder.path()));
    let authority = world::authority(
        folder.path(),
        store.clone(),
        keys.clone(),
        TestClock::new(),
        true,
    )
    .await;
    // A key that was asked would say so.
    keys.fails.store(true, Ordering::SeqCst);
    let (confirmer, submission) = unconfirmed("a");
    drop(confirmer);
    let refused = authority.requests.submit(submission).await;
    let Err(SubmitFault::Engine(EngineError::Contended)) = refused else {
        panic!("{refused:?}")
    };
    assert!(store.open_intents().await.unwrap().is_empty());
    assert!(!is_certified(&authority, "a").await);
    assert_eq!(state(&authority, "a").await, Some(RequestState::Undecided));

    // Confirmed, but not signed: the approval is stored elsewhere, and whoever stored it asks again.
    let (confirmer, submission) = unconfirmed("a");
    confirmer.confirm();
    let refused = authority.requests.submit(submission).await;
    let Err(SubmitFault::Engine(EngineError::Sign(_))) = refused else {
        panic!("{refused:?}")
    };
    keys.fails.store(false, Ordering::SeqCst);
    assert_eq!(authority.recover().await.unwrap(), 0);
    assert!(store.open_intents().await.unwrap().is_empty());
    assert!(!is_certified(&authority, "a").await);
    let (confirmer, submission) = unconfirmed("a");
    confirmer.confirm();
    let submitted = authority.requests.submit(submission).await.unwrap();
    assert!(submitted.issued.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_change_before_it_is_confirmed_void_it() {
    let (folder, keys) = faulty().await;
    let store = Arc::new(world::store(folder.path()));
    let authority =
        world::authority(folder.path(), store.clone(), keys, TestClock::new(), true).await;
    let (confirmer, submission) = unconfirmed("a");
    let submitting = {
        let authority = authority.clone();
        tokio::spawn(async move { authority.requests.submit(submission).await })
    };
    until_intended(&store).await;
    let rules = authority.rules();
    authority.set_rules(rules.with_policy((*rules.policy).clone()));
    confirmer.confirm();
    let submitted = submitting.await.unwrap();
    let Err(SubmitFault::Engine(EngineError::Contended)) = submitted else {
        panic!("{submitted:?}")
    };
    assert!(store.open_intents().await.unwrap().is_empty());
    assert!(!is_certified(&authority, "a").await);
    assert_eq!(state(&authority, "a").await, Some(RequestState::Undecided));
    let (confirmer, submission) = unconfirmed("a");
    confirmer.confirm();
    let submitted = authority.requests.submit(submission).await.unwrap();
    assert!(submitted.issued.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_that_retains_requests_shows_nothing_that_is_not_confirmed() {
    let (folder, keys) = faulty().await;
    let store = Arc::new(world::store(folder.path()));
    let authority =
        world::authority(folder.path(), store.clone(), keys, TestClock::new(), false).await;
    for is_confirmed in [false, true] {
        let (confirmer, submission) = unconfirmed("a");
        match is_confirmed {
            true => confirmer.confirm(),
            false => drop(confirmer),
        }
        let kept = Submission {
            door: &world::RETAINING,
            ..submission
        };
        let submitted = authority.requests.submit(kept).await;
        assert_eq!(submitted.is_ok(), is_confirmed, "{submitted:?}");
        let expected = is_confirmed.then_some(RequestState::Issued);
        assert_eq!(state(&authority, "a").await, expected);
    }
}
