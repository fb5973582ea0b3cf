//! The audit log in pages, and its seals.

use countersign_authority::store::{Change, CommitFault, Precondition, Store, Write};
use countersign_authority::{
    AuditEntry, AuditFilter, AuditOrder, AuditPlace, AuditQuery, AuditRecord, Revision, Seal,
    SealHead,
};
use countersign_pki::fingerprint_sha256;

use super::{Ground, Sample};

/// Pages of any size go through the whole log in either order, also inside a commit.
pub async fn pages_of_the_audit_log_are_complete_in_either_order(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut expected: Vec<(AuditPlace, AuditEntry)> = Vec::new();
    for count in [1_u64, 3, 2, 5] {
        expected.extend(commit(&*store, &sample, count, "request").await);
    }
    for order in [AuditOrder::OldestFirst, AuditOrder::NewestFirst] {
        for limit in 1..=12 {
            let mut found = Vec::new();
            let mut query = query(order, limit, 1000);
            loop {
                let page = store.audit_page(query.clone()).await.unwrap();
                assert!(page.records.len() <= limit);
                assert_eq!(page.looked_at, page.records.len());
                found.extend(page.records.iter().map(read));
                match page.reached {
                    Some(reached) => query.after = Some(reached),
                    None => break,
                }
            }
            if order == AuditOrder::NewestFirst {
                found.reverse();
            }
            assert_eq!(found, expected, "{order:?}, limit {limit}");
        }
    }
}

/// A filter is applied where the entries are, a page looks at no more than it may, and says how far it came.
pub async fn filtered_pages_look_at_a_bounded_part(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut rare = Vec::new();
    for number in 0_u32..30 {
        let action = if number.is_multiple_of(10) {
            "revoke"
        } else {
            "request"
        };
        let written = commit(&*store, &sample, 1, action).await;
        if action == "revoke" {
            rare.extend(written);
        }
    }
    let mut query = query(AuditOrder::OldestFirst, 100, 7);
    query.filter.event = Some("revoke".to_owned());
    let (mut found, mut looks) = (Vec::new(), Vec::new());
    loop {
        let page = store.audit_page(query.clone()).await.unwrap();
        looks.push(page.looked_at);
        found.extend(page.records.iter().map(read));
        match page.reached {
            Some(reached) => query.after = Some(reached),
            None => break,
        }
    }
    assert_eq!(found, rare);
    assert_eq!(looks, [7, 7, 7, 7, 2]);
}

/// A seal comes back as it was, and only the one that follows the newest is taken.
pub async fn a_seal_follows_the_newest_and_comes_back_field_by_field(ground: &dyn Ground) {
    let store = ground.open().await;
    assert_eq!(store.last_seal().await.unwrap(), None);
    assert_eq!(store.seals(0, 10).await.unwrap(), []);
    let seals: Vec<Seal> = (1..=3).map(sample_seal).collect();
    for seal in &seals {
        let before = seal.head.number - 1;
        store.commit(sealing(before, seal)).await.unwrap();
        assert_eq!(store.last_seal().await.unwrap().as_ref(), Some(&seal.head));
        // The one who was slower.
        let refused = store.commit(sealing(before, seal)).await.unwrap_err();
        assert!(
            matches!(
                refused,
                CommitFault::Conflict {
                    precondition: Precondition::LastSeal { number }
                } if number == before
            ),
            "{refused}"
        );
    }
    assert_eq!(store.seals(0, 10).await.unwrap(), seals);
    assert_eq!(store.seals(1, 1).await.unwrap(), seals[1..2]);
    assert_eq!(store.seals(3, 10).await.unwrap(), []);
    drop(store);
    let store = ground.open().await;
    assert_eq!(store.seals(0, 10).await.unwrap(), seals);
}

fn query(order: AuditOrder, limit: usize, look_at: usize) -> AuditQuery {
    AuditQuery {
        filter: AuditFilter::default(),
        order,
        after: None,
        limit,
        look_at,
    }
}

async fn commit(
    store: &dyn Store,
    sample: &Sample,
    count: u64,
    action: &'static str,
) -> Vec<(AuditPlace, AuditEntry)> {
    let entries: Vec<AuditEntry> = (0..count)
        .map(|number| sample.audit(action, &format!("puppet/\"ä\"{number}")))
        .collect();
    let change = Change {
        audit: entries.clone(),
        ..Change::default()
    };
    let revision = store.commit(change).await.unwrap().revision;
    let places = (0..count).map(|seq| AuditPlace { revision, seq });
    places.zip(entries).collect()
}

fn read(record: &AuditRecord) -> (AuditPlace, AuditEntry) {
    (record.place, record.entry().unwrap())
}

fn sealing(before: u64, seal: &Seal) -> Change {
    Change {
        preconditions: vec![Precondition::LastSeal { number: before }],
        writes: vec![Write::Seal(seal.clone())],
        ..Change::default()
    }
}

fn sample_seal(number: u64) -> Seal {
    let place = |seq| AuditPlace {
        revision: Revision(number * 10),
        seq,
    };
    let hashes: Vec<_> = (0..number)
        .map(|n| fingerprint_sha256(&n.to_be_bytes()))
        .collect();
    Seal {
        head: SealHead {
            number,
            first: place(1),
            last: place(number),
            count: number,
            previous: fingerprint_sha256(b"previous"),
            hash: fingerprint_sha256(b"last"),
            at: Sample::time(7),
            key_id: fingerprint_sha256(b"key"),
            signature: vec![0, 1, 0xff],
        },
        hashes,
    }
}
