//! Revisions, the audit log in their order, and what a new start finds.

use countersign_authority::store::{Change, Past, Store, Write};
use countersign_authority::{AuditEntry, CrlScope, Revision};
use countersign_pki::RevocationReason;

use super::sample::{assert_same, crl, enrol, insert, untouched, write};
use super::{Ground, Sample};

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
