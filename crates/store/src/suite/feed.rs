//! The change feed, the audit log, revisions, and what a new start finds.

use countersign_authority::store::{Change, Changed, ChangedThing, Past, Store, Write};
use countersign_authority::{AuditEntry, CrlScope, Revision};
use countersign_pki::RevocationReason;

use super::sample::{assert_same, crl, enrol, insert, untouched, write};
use super::{Ground, Sample};

/// Each commit's entries stand under its revision, in the order of its writes.
pub async fn changes_come_in_commit_order(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolment = sample.enrolment("a");
    let (id, door, key) = (enrolment.request.id, Sample::door(), "a".to_owned());
    let (issuer, serial) = (enrolment.intent.issuer.clone(), enrolment.intent.serial);
    let intended = store
        .commit(enrolment.intend(&sample))
        .await
        .unwrap()
        .revision;
    let recorded = store
        .commit(enrolment.record(&sample))
        .await
        .unwrap()
        .revision;
    let revocation = enrolment.revocation(Sample::time(0), RevocationReason::Unspecified);
    let revoked = write(&*store, vec![Write::Revoke(revocation)])
        .await
        .revision;
    let listed = write(&*store, vec![Write::PutCrl(crl(1))]).await.revision;
    let deleted = write(&*store, vec![Write::DeleteRequest(id)])
        .await
        .revision;
    let request = || ChangedThing::Request {
        id,
        door: door.clone(),
        key: key.clone(),
    };
    let expected = [
        (intended, request()),
        (
            recorded,
            ChangedThing::Certificate {
                issuer: issuer.clone(),
                serial,
            },
        ),
        (recorded, request()),
        (
            revoked,
            ChangedThing::Revocation {
                issuer: issuer.clone(),
                serial,
            },
        ),
        (listed, ChangedThing::Crl { issuer }),
        (
            deleted,
            ChangedThing::RequestDeleted {
                id,
                door: door.clone(),
                key: key.clone(),
            },
        ),
    ]
    .map(|(revision, what)| Changed { revision, what });
    assert!(expected.is_sorted_by_key(|changed| changed.revision));
    assert_eq!(
        store.changes(Revision::default(), 100).await.unwrap(),
        expected
    );
    assert_eq!(store.changes(recorded, 100).await.unwrap(), expected[3..]);
    assert_eq!(store.changes(deleted, 100).await.unwrap(), []);
}

/// A reader that goes on after the last revision it saw misses nothing, whatever the limit.
pub async fn pages_of_changes_never_split_a_commit(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut number = 0;
    for size in [1, 3, 2, 5, 1, 1, 4] {
        let names: Vec<String> = (number..number + size)
            .map(|number| number.to_string())
            .collect();
        number += size;
        write(
            &*store,
            names
                .iter()
                .map(|name| Write::InsertRequest(sample.request(name)))
                .collect(),
        )
        .await;
    }
    let whole = store.changes(Revision::default(), 1000).await.unwrap();
    assert_eq!(whole.len(), 17);
    for limit in 1..=18 {
        let mut found: Vec<Changed> = Vec::new();
        loop {
            let since = found
                .last()
                .map(|changed| changed.revision)
                .unwrap_or_default();
            let page = store.changes(since, limit).await.unwrap();
            let revisions = page
                .chunk_by(|one, next| one.revision == next.revision)
                .count();
            assert!(
                page.len() <= limit || revisions == 1,
                "{} entries with limit {limit}",
                page.len()
            );
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_eq!(found, whole, "limit {limit}");
    }
}

/// Audit entries are those of committed changes, whole and in order.
pub async fn audit_entries_come_in_commit_order_and_whole(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut expected: Vec<(Revision, AuditEntry)> = Vec::new();
    for number in 0..5 {
        let mut entries = vec![
            sample.audit("request", "puppet/a"),
            sample.audit("approve", "puppet/\"ä\""),
        ];
        entries[1].request = Some(sample.request("a").id.to_string());
        entries[1].detail = format!("for the {number}th time");
        let change = Change {
            audit: entries.clone(),
            ..Change::default()
        };
        let revision = store.commit(change).await.unwrap().revision;
        expected.extend(entries.into_iter().map(|entry| (revision, entry)));
    }
    assert_eq!(
        store.audit(Revision::default(), 100).await.unwrap(),
        expected
    );
    assert_eq!(
        store.audit(expected[3].0, 100).await.unwrap(),
        expected[4..]
    );
    assert_eq!(
        store.audit(Revision::default(), 3).await.unwrap(),
        expected[..2]
    );
    assert_eq!(
        store.audit(Revision::default(), 1).await.unwrap(),
        expected[..2]
    );
    assert_eq!(store.audit(expected[9].0, 1).await.unwrap(), []);
}

/// Whoever waits for revisions hears of each commit, after it is visible.
pub async fn revisions_wake_their_receivers(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut revisions = store.revisions();
    let before = *revisions.borrow_and_update();
    for key in ["a", "b"] {
        let committed = insert(&*store, &sample.request(key)).await.revision;
        revisions.changed().await.unwrap();
        let heard = *revisions.borrow_and_update();
        assert_eq!(heard, committed);
        assert!(heard > before);
        assert!(
            store
                .request_at(&Sample::door(), key, Past::Ignore)
                .await
                .unwrap()
                .is_some()
        );
    }
    assert_eq!(*store.revisions().borrow(), *revisions.borrow());
}

/// What was acknowledged is there after the next start.
pub async fn reopening_keeps_everything(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolled = enrol(&*store, &sample, "a").await;
    let revocation = enrolled.revocation(Sample::time(3), RevocationReason::KeyCompromise);
    write(
        &*store,
        vec![Write::Revoke(revocation), Write::PutCrl(crl(7))],
    )
    .await;
    let open = sample.enrolment("b");
    store.commit(open.intend(&sample)).await.unwrap();
    let before = everything(&*store, &enrolled).await;
    drop(store);
    let store = ground.open().await;
    assert_same(everything(&*store, &enrolled).await, before);
    store.commit(open.record(&sample)).await.unwrap();
}

/// Revisions grow over deletions, refusals and restarts.
pub async fn revisions_are_not_given_out_twice(ground: &dyn Ground) {
    let sample = Sample::default();
    let mut last = Revision::default();
    for _ in 0..3 {
        let store = ground.open().await;
        assert_eq!(*store.revisions().borrow(), last);
        let request = sample.request("a");
        let unknown = Write::UpdateRequest(untouched(&sample.request("b")));
        let inserted = insert(&*store, &request).await.revision;
        assert!(inserted > last);
        assert!(
            store
                .commit(Change {
                    writes: vec![unknown],
                    ..Change::default()
                })
                .await
                .is_err()
        );
        let deleted = write(&*store, vec![Write::DeleteRequest(request.id)])
            .await
            .revision;
        assert!(deleted > inserted);
        let empty = store.commit(Change::default()).await.unwrap().revision;
        assert!(empty > deleted);
        last = empty;
    }
}

async fn everything(store: &dyn Store, enrolled: &super::Enrolment) -> Vec<String> {
    let issuer = Sample::issuer();
    vec![
        format!("{:?}", *store.revisions().borrow()),
        format!(
            "{:?}",
            store.changes(Revision::default(), 100).await.unwrap()
        ),
        format!("{:?}", store.audit(Revision::default(), 100).await.unwrap()),
        format!(
            "{:?}",
            store.request(enrolled.request.id).await.unwrap().unwrap()
        ),
        format!(
            "{:?}",
            store
                .certificate(&issuer, &enrolled.intent.serial)
                .await
                .unwrap()
                .unwrap()
        ),
        format!(
            "{:?}",
            store.revocations(&issuer, Sample::time(0)).await.unwrap()
        ),
        format!(
            "{:?}",
            store.crl(&issuer, CrlScope::Full).await.unwrap().unwrap()
        ),
        format!("{:?}", store.open_intents().await.unwrap()),
    ]
}
