//! Intents that hold their request: it is stored with its certificate, once, or without if there will be none.

use std::sync::Arc;

use countersign_authority::store::{
    Change, CommitFault, Past, Precondition, RequestFilter, Store, Write,
};
use countersign_authority::{DeferredRequest, Intent, RequestRecord, RequestState, Revision};

use super::ledger::holds;
use super::sample::{Enrolment, assert_same, write};
use super::{Ground, Sample};

/// It can be read by identity and by name, and its name is taken; no list shows it yet.
pub async fn a_request_that_its_intent_holds_is_found_and_occupies_its_name(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let (held, revision) = begin(&*store, &sample, "a").await;
    let expected = RequestRecord {
        version: revision,
        ..held.request.clone()
    };
    let by_id = store.request(held.request.id).await.unwrap();
    assert_same(by_id, Some(expected.clone()));
    for past in [Past::Ignore, Past::Include] {
        let found = store.request_at(&Sample::door(), "a", past).await.unwrap();
        assert_same(found, Some(expected.clone()));
    }
    assert!(!holds(&*store, free("a")).await);
    assert!(holds(&*store, free("b")).await);
    let listed = store.requests(RequestFilter::default()).await.unwrap();
    assert!(listed.is_empty(), "{listed:?}");
    assert!(audited(&*store).await.is_empty());

    // Of two with one name, one is kept.
    let second = sample.enrolment("a").held(&sample);
    let refused = store.commit(intend(&second.intent)).await.unwrap_err();
    assert!(
        matches!(
            refused,
            CommitFault::Conflict {
                precondition: Precondition::KeyFree { .. }
            }
        ),
        "{refused}"
    );
    drop(store);
    let store = ground.open().await;
    let open = store.open_intents().await.unwrap();
    let [open] = open.as_slice() else {
        panic!("{open:?}");
    };
    let kept = open.deferred.as_ref().unwrap();
    assert_same(&*kept.request, &expected);
    assert_eq!(kept.audit, held.intent.deferred.as_ref().unwrap().audit);
}

/// Certificate, request and its audit entries are there at once, and the name is free.
pub async fn a_certificate_is_recorded_with_the_request_that_its_intent_holds(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let (held, _) = begin(&*store, &sample, "a").await;
    let change = Change {
        writes: vec![record(&held)],
        audit: vec![sample.audit("issue", "a")],
        ..Change::default()
    };
    let issue = change.audit.clone();
    let revision = store.commit(change).await.unwrap().revision;
    let issued = RequestRecord {
        version: revision,
        state: RequestState::Issued,
        live: false,
        certificate: Some((held.intent.issuer.clone(), held.intent.serial)),
        ..held.request.clone()
    };
    let found = store.request(held.request.id).await.unwrap();
    assert_same(found, Some(issued));
    let entry = store.certificate(&held.intent.issuer, &held.intent.serial);
    assert_eq!(entry.await.unwrap().unwrap().der, held.der());
    let log = audited(&*store).await;
    assert!(log.iter().all(|(at, _)| *at == revision));
    let told: Vec<_> = log.into_iter().map(|(_, entry)| entry).collect();
    let before = &held.intent.deferred.as_ref().unwrap().audit;
    assert_eq!(told, [before.as_slice(), &issue].concat());
    assert!(store.open_intents().await.unwrap().is_empty());
    assert!(holds(&*store, free("a")).await);
}

/// It is listed as it stands and keeps its name; its intent stays open and is completed as any other.
pub async fn what_waits_for_a_key_is_stored_without_its_certificate(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let (held, _) = begin(&*store, &sample, "a").await;
    let (issuer, serial) = (held.intent.issuer.clone(), held.intent.serial);
    let shown = write(&*store, vec![Write::StoreIntended { issuer, serial }]).await;
    let listed = store.requests(RequestFilter::default()).await.unwrap();
    let expected = RequestRecord {
        version: shown.revision,
        ..held.request.clone()
    };
    assert_same(listed, vec![expected]);
    assert!(!holds(&*store, free("a")).await);
    assert_eq!(audited(&*store).await.len(), 1);
    let open = store.open_intents().await.unwrap();
    assert!(open[0].deferred.is_none());
    store.commit(held.record(&sample)).await.unwrap();
    let found = store.request(held.request.id).await.unwrap().unwrap();
    assert_eq!(found.state, RequestState::Issued);
    assert_eq!(audited(&*store).await.len(), 2);
}

/// The request is on record, with its audit entries, before its serial is burned.
pub async fn a_burned_serial_leaves_the_request_as_it_stood(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let (held, _) = begin(&*store, &sample, "a").await;
    let (issuer, serial) = (held.intent.issuer.clone(), held.intent.serial);
    let voided = write(&*store, vec![Write::VoidIntent { issuer, serial }]).await;
    let expected = RequestRecord {
        version: voided.revision,
        ..held.request.clone()
    };
    let found = store.request(held.request.id).await.unwrap();
    assert_same(found, Some(expected));
    assert_eq!(audited(&*store).await.len(), 1);
    assert!(store.open_intents().await.unwrap().is_empty());
    let again = Intent {
        deferred: None,
        ..held.intent
    };
    let refused = store.commit(intend(&again)).await.unwrap_err();
    assert!(
        matches!(refused, CommitFault::DuplicateSerial { .. }),
        "{refused}"
    );
}

/// Every state of such a request is history.
pub async fn an_intent_holds_no_request_that_its_door_retains(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let Enrolment {
        request,
        mut intent,
    } = sample.enrolment("a").held(&sample);
    intent.deferred = Some(Arc::new(DeferredRequest {
        request: Arc::new(RequestRecord {
            retained: true,
            ..request
        }),
        audit: Vec::new(),
    }));
    assert!(store.commit(intend(&intent)).await.is_err());
    assert!(store.open_intents().await.unwrap().is_empty());
}

async fn begin(store: &dyn Store, sample: &Sample, key: &str) -> (Enrolment, Revision) {
    let held = sample.enrolment(key).held(sample);
    let committed = store.commit(intend(&held.intent)).await.unwrap();
    (held, committed.revision)
}

fn intend(intent: &Intent) -> Change {
    Change {
        writes: vec![Write::Intend(intent.clone())],
        ..Change::default()
    }
}

fn record(held: &Enrolment) -> Write {
    Write::Record {
        issuer: held.intent.issuer.clone(),
        serial: held.intent.serial,
        der: held.der(),
    }
}

fn free(key: &str) -> Precondition {
    Precondition::KeyFree {
        door: Sample::door(),
        key: key.to_owned(),
    }
}

async fn audited(store: &dyn Store) -> Vec<(Revision, countersign_authority::AuditEntry)> {
    store.audit(Revision::default(), 100).await.unwrap()
}
