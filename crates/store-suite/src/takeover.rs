//! What comes from elsewhere: certificates of another authority, its counter of serials, the CRLs above the issuer.

use countersign_authority::store::{Change, CommitFault, Precondition, Store, Write};
use countersign_authority::{
    AncestorCrl, CrlRecord, CrlScope, IssuerId, LedgerEntry, Revocation, Revoked,
};
use countersign_pki::{RevocationReason, Serial};

use super::ledger::holds;
use super::sample::{assert_same, crl, enrol, renew, write};
use super::{Enrolment, Ground, Sample};

/// An imported certificate is in the ledger field by field: with or without its bytes, revoked or not, retired or not.
pub async fn an_imported_certificate_comes_back_field_by_field(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let revoked = Revoked {
        at: Sample::time(3),
        reason: RevocationReason::KeyCompromise,
    };
    let mut listed = Vec::new();
    for (number, (der, revoked, retired)) in [
        (b"certificate".to_vec(), None, None),
        (Vec::new(), None, None),
        (b"revoked".to_vec(), Some(revoked), None),
        (Vec::new(), Some(revoked), Some(Sample::time(4))),
        (b"retired".to_vec(), None, Some(Sample::time(5))),
    ]
    .into_iter()
    .enumerate()
    {
        let mut entry = foreign(&sample, &format!("host-{number}"));
        (entry.der, entry.revoked, entry.retired) = (der, revoked, retired);
        write(&*store, vec![Write::Import(entry.clone())]).await;
        let found = store.certificate(&entry.issuer, &entry.serial).await;
        assert_same(found.unwrap(), Some(entry.clone()));
        let newest = store.newest_certificate(&entry.issuer, &entry.name).await;
        let shown = entry.retired.is_none().then_some(entry.serial);
        assert_eq!(newest.unwrap().map(|newest| newest.serial), shown);
        listed.extend(entry.revoked.map(|revoked| Revocation {
            issuer: entry.issuer.clone(),
            serial: entry.serial,
            revoked,
            not_after: entry.not_after,
            listed: true,
        }));
    }
    let (_, mut revocations) = store
        .revocations(&Sample::issuer(), Sample::time(0))
        .await
        .unwrap();
    revocations.sort_by_key(|one| one.not_after);
    listed.sort_by_key(|one| one.not_after);
    assert_eq!(revocations, listed);
    assert!(
        store.open_intents().await.unwrap().is_empty(),
        "nothing of it waits to be signed"
    );
}

/// What was taken over can be revoked and retired like any other.
pub async fn an_imported_certificate_is_revoked_and_retired_like_any_other(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let entry = foreign(&sample, "a");
    write(&*store, vec![Write::Import(entry.clone())]).await;
    let revocation = Revocation {
        issuer: entry.issuer.clone(),
        serial: entry.serial,
        revoked: Revoked {
            at: Sample::time(9),
            reason: RevocationReason::Superseded,
        },
        not_after: entry.not_after,
        listed: true,
    };
    let retire = Write::Retire {
        issuer: entry.issuer.clone(),
        name: "a".to_owned(),
        at: Sample::time(10),
    };
    write(&*store, vec![Write::Revoke(revocation.clone()), retire]).await;
    let found = store.certificate(&entry.issuer, &entry.serial).await;
    let found = found.unwrap().unwrap();
    assert_eq!(found.revoked, Some(revocation.revoked));
    assert_eq!(found.retired, Some(Sample::time(10)));
}

/// A serial that is in the ledger, or was burned, is not imported, and nothing of the change is.
pub async fn an_imported_serial_must_be_free(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let taken = enrol(&*store, &sample, "taken").await.intent;
    let burned = sample.enrolment("burned");
    store.commit(burned.intend(&sample)).await.unwrap();
    let void = Write::VoidIntent {
        issuer: Sample::issuer(),
        serial: burned.intent.serial,
    };
    write(&*store, vec![void]).await;
    for serial in [taken.serial, burned.intent.serial] {
        let first = foreign(&sample, "first");
        let second = LedgerEntry {
            serial,
            ..foreign(&sample, "second")
        };
        let refused = store
            .commit(Change {
                writes: vec![Write::Import(first.clone()), Write::Import(second)],
                ..Change::default()
            })
            .await;
        assert!(
            matches!(&refused, Err(CommitFault::DuplicateSerial { serial: refused, .. }) if *refused == serial),
            "{refused:?}"
        );
        let found = store.certificate(&first.issuer, &first.serial).await;
        assert!(found.unwrap().is_none(), "the whole change is refused");
    }
    let elsewhere = LedgerEntry {
        issuer: other_issuer(),
        serial: taken.serial,
        ..foreign(&sample, "elsewhere")
    };
    write(&*store, vec![Write::Import(elsewhere)]).await;
}

/// The ledger is read in the order of recording, retired and imported ones included, intents and other issuers not.
pub async fn the_ledger_is_read_in_order_and_in_pages(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let first = enrol(&*store, &sample, "b").await;
    let mut expected = vec![first.intent.serial];
    write(
        &*store,
        vec![Write::Import(LedgerEntry {
            issuer: other_issuer(),
            ..foreign(&sample, "elsewhere")
        })],
    )
    .await;
    let imported = foreign(&sample, "a");
    expected.push(imported.serial);
    write(&*store, vec![Write::Import(imported)]).await;
    let open = sample.enrolment("open");
    store.commit(open.intend(&sample)).await.unwrap();
    expected.push(renew(&*store, &sample, &first).await.intent.serial);
    let retire = Write::Retire {
        issuer: Sample::issuer(),
        name: "b".to_owned(),
        at: Sample::time(10),
    };
    write(&*store, vec![retire]).await;

    let issuer = Sample::issuer();
    for limit in [1, 2, 3, 10] {
        let (mut read, mut after) = (Vec::new(), None);
        loop {
            let page = store.ledger(&issuer, after, limit).await.unwrap();
            assert!(page.len() <= limit);
            let Some((place, _)) = page.last() else { break };
            assert!(after.is_none_or(|after| after < *place));
            after = Some(*place);
            read.extend(page.into_iter().map(|(_, entry)| entry.serial));
        }
        assert_eq!(read, expected, "pages of {limit}");
    }
    let unused = IssuerId::parse("unused").unwrap();
    assert!(store.ledger(&unused, None, 10).await.unwrap().is_empty());
    let far = store.ledger(&issuer, Some(u64::MAX), 10).await.unwrap();
    assert!(far.is_empty());
}

/// A counter moves past every serial that is intended or imported, never back, and only where serials are counted.
pub async fn counted_serials_move_forward(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let next = async || store.next_serial(&Sample::issuer()).await.unwrap();
    intend_serial(&*store, &sample, Sample::issuer(), 1).await;
    assert_eq!(next().await, None, "random until it is said otherwise");

    let count = |next| Write::CountSerials {
        issuer: Sample::issuer(),
        next,
    };
    write(&*store, vec![count(100)]).await;
    assert_eq!(next().await, Some(100));
    write(&*store, vec![count(50)]).await;
    assert_eq!(next().await, Some(100), "never back");

    intend_serial(&*store, &sample, Sample::issuer(), 100).await;
    assert_eq!(next().await, Some(101));
    intend_serial(&*store, &sample, Sample::issuer(), 7).await;
    assert_eq!(next().await, Some(101), "an earlier one does not move it");
    intend_serial(&*store, &sample, other_issuer(), 500).await;
    assert_eq!(next().await, Some(101), "another issuer's neither");

    let imported = LedgerEntry {
        serial: Serial::try_from(400).unwrap(),
        ..foreign(&sample, "imported")
    };
    write(&*store, vec![Write::Import(imported)]).await;
    assert_eq!(next().await, Some(401));
    let random = LedgerEntry {
        serial: Serial::random_from([0x5a; 16]),
        ..foreign(&sample, "random")
    };
    write(&*store, vec![Write::Import(random)]).await;
    assert_eq!(next().await, Some(401), "one that was not counted");
    assert_eq!(store.next_serial(&other_issuer()).await.unwrap(), None);

    let failed = Change {
        preconditions: vec![Precondition::RequestExists {
            id: sample.request("nobody").id,
        }],
        writes: vec![count(9000)],
        audit: vec![],
    };
    assert!(store.commit(failed).await.is_err());
    assert_eq!(
        next().await,
        Some(401),
        "a change that fails counts nothing"
    );
    drop(store);
    let store = ground.open().await;
    assert_eq!(
        store.next_serial(&Sample::issuer()).await.unwrap(),
        Some(401)
    );
}

/// Every serial that is in the ledger counts: intended, burned, retired and imported ones. Random ones do not, nor those
/// that leave a counter no room, nor those of others.
pub async fn the_highest_serial_that_can_be_counted_on_from(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let issuer = Sample::issuer();
    let highest = async || store.highest_serial(&issuer).await.unwrap();
    assert_eq!(highest().await, None);
    let import = async |serial: Serial| {
        let entry = LedgerEntry {
            serial,
            ..foreign(&sample, &serial.to_hex())
        };
        write(&*store, vec![Write::Import(entry)]).await;
    };
    import(Serial::random_from([0x5a; 16])).await;
    assert_eq!(highest().await, None, "one that was not counted");
    intend_serial(&*store, &sample, other_issuer(), 900).await;
    assert_eq!(highest().await, None, "another issuer's");

    intend_serial(&*store, &sample, issuer.clone(), 0xff).await;
    assert_eq!(highest().await, Some(0xff));
    // Compared as numbers, not as bytes.
    import(Serial::try_from(0x0100).unwrap()).await;
    import(Serial::try_from(0xfe).unwrap()).await;
    assert_eq!(highest().await, Some(0x0100));
    let retire = Write::Retire {
        issuer: issuer.clone(),
        name: "0100".to_owned(),
        at: Sample::time(10),
    };
    write(&*store, vec![retire]).await;
    assert_eq!(highest().await, Some(0x0100), "retired");
    intend_serial(&*store, &sample, issuer.clone(), 0x0101).await;
    let void = Write::VoidIntent {
        issuer: issuer.clone(),
        serial: Serial::try_from(0x0101).unwrap(),
    };
    write(&*store, vec![void]).await;
    assert_eq!(highest().await, Some(0x0101), "burned");

    let limit = u64::try_from(i64::MAX).unwrap();
    for (serial, is_counted) in [
        (u64::MAX, false),
        (limit + 1, false),
        (limit, false),
        (limit - 1, true),
    ] {
        import(Serial::try_from(serial).unwrap()).await;
        let expected = if is_counted { serial } else { 0x0101 };
        assert_eq!(highest().await, Some(expected), "{serial:x}");
    }
}

/// A revocation that was taken off the CRLs stays a revocation.
pub async fn an_unlisted_revocation_stays(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let revoked = enrol(&*store, &sample, "a").await;
    let valid = enrol(&*store, &sample, "b").await;
    let revocation = revoked.revocation(Sample::time(9), RevocationReason::Superseded);
    write(&*store, vec![Write::Revoke(revocation.clone())]).await;
    let unlist = |serial| Write::Unlist {
        issuer: Sample::issuer(),
        serial,
    };
    // One that is unlisted, not revoked, or not there, is no fault.
    for serial in [
        revoked.intent.serial,
        valid.intent.serial,
        Serial::try_from(4711).unwrap(),
    ] {
        write(&*store, vec![unlist(serial)]).await;
    }
    let (_, all) = store
        .revocations(&Sample::issuer(), Sample::time(0))
        .await
        .unwrap();
    let unlisted = Revocation {
        listed: false,
        ..revocation
    };
    assert_eq!(all, [unlisted]);
    assert!(!holds(&*store, unrevoked(&revoked)).await);
    assert!(holds(&*store, unrevoked(&valid)).await);
}

/// Revoked once more, what was taken off the CRLs is on them again, with the time and the reason it had.
pub async fn an_unlisted_revocation_is_listed_again_by_the_next(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolment = enrol(&*store, &sample, "a").await;
    let serial = enrolment.intent.serial;
    let first = enrolment.revocation(Sample::time(9), RevocationReason::Superseded);
    let unlist = Write::Unlist {
        issuer: Sample::issuer(),
        serial,
    };
    write(&*store, vec![Write::Revoke(first.clone()), unlist]).await;
    let second = enrolment.revocation(Sample::time(11), RevocationReason::KeyCompromise);
    write(&*store, vec![Write::Revoke(second)]).await;
    let (_, all) = store
        .revocations(&Sample::issuer(), Sample::time(0))
        .await
        .unwrap();
    assert_eq!(all, [first]);
}

/// An issuer has one CRL of each scope, each with a number of its own.
pub async fn crls_are_kept_by_scope(ground: &dyn Ground) {
    let store = ground.open().await;
    let infrastructure = CrlRecord {
        scope: CrlScope::Infrastructure,
        number: 70,
        der: b"infrastructure".to_vec(),
        ..crl(1)
    };
    write(&*store, vec![Write::PutCrl(crl(1))]).await;
    let of = async |scope| store.crl(&Sample::issuer(), scope).await.unwrap();
    assert_same(of(CrlScope::Full).await, Some(crl(1)));
    assert_same(of(CrlScope::Infrastructure).await, None);
    let number = |scope, number| Precondition::CrlNumber {
        issuer: Sample::issuer(),
        scope,
        number,
    };
    assert!(holds(&*store, number(CrlScope::Infrastructure, None)).await);

    write(&*store, vec![Write::PutCrl(infrastructure.clone())]).await;
    write(&*store, vec![Write::PutCrl(crl(2))]).await;
    assert_same(of(CrlScope::Full).await, Some(crl(2)));
    assert_same(of(CrlScope::Infrastructure).await, Some(infrastructure));
    assert!(holds(&*store, number(CrlScope::Infrastructure, Some(70))).await);
    assert!(!holds(&*store, number(CrlScope::Full, Some(70))).await);
    assert!(holds(&*store, number(CrlScope::Full, Some(2))).await);
}

/// Numbers of ancestors' CRLs are compared by magnitude; only a higher one replaces what is kept, and is told.
pub async fn an_ancestors_crl_is_replaced_by_a_higher_number_alone(ground: &dyn Ground) {
    let store = ground.open().await;
    let issuer = Sample::issuer();
    let kept = async || {
        let kept = store.ancestor_crls(&issuer).await.unwrap();
        kept.into_iter().map(|crl| crl.number).collect::<Vec<_>>()
    };
    let large = vec![0x7f; 20];
    let steps: [(&[u8], bool); 9] = [
        (&[], true),
        (&[0x09], true),
        (&[0x09], false),
        (&[0x08], false),
        (&[0xff], true),
        (&[0x01, 0x00], true),
        (&[0xfe], false),
        (&large, true),
        (&[0xff, 0xff], false),
    ];
    let mut newest: &[u8] = &[];
    for (number, replaces) in steps {
        put_ancestor(&*store, &issuer, ancestor(b"root", number, 1)).await;
        if replaces {
            newest = number;
        }
        assert_eq!(kept().await, [newest], "after {number:?}");
    }

    // Others have numbers of their own, and come in their position.
    put_ancestor(&*store, &issuer, ancestor(b"policy", &[1], 0)).await;
    put_ancestor(&*store, &other_issuer(), ancestor(b"root", &[2], 0)).await;
    assert_eq!(
        store.ancestor_crls(&issuer).await.unwrap(),
        [ancestor(b"policy", &[1], 0), ancestor(b"root", &large, 1)]
    );
    assert_eq!(
        store.ancestor_crls(&other_issuer()).await.unwrap(),
        [ancestor(b"root", &[2], 0)]
    );
    let unused = IssuerId::parse("unused").unwrap();
    assert!(store.ancestor_crls(&unused).await.unwrap().is_empty());
}

/// Lists without a number replace each other, until one with a number comes.
pub async fn an_ancestors_crl_without_a_number_gives_way(ground: &dyn Ground) {
    let store = ground.open().await;
    let issuer = Sample::issuer();
    let list = |number: &[u8], der: &[u8]| AncestorCrl {
        der: der.to_vec(),
        ..ancestor(b"root", number, 0)
    };
    for (number, der, replaces) in [
        (&[][..], &b"first"[..], true),
        (&[], b"first", false),
        (&[], b"second", true),
        (&[1], b"numbered", true),
        (&[], b"third", false),
    ] {
        put_ancestor(&*store, &issuer, list(number, der)).await;
        let kept = store.ancestor_crls(&issuer).await.unwrap();
        assert_eq!(kept == [list(number, der)], replaces || der == b"first");
    }
}

/// A certificate that another authority signed.
fn foreign(sample: &Sample, name: &str) -> LedgerEntry {
    let Enrolment { request: _, intent } = sample.enrolment(name);
    LedgerEntry {
        issuer: intent.issuer,
        serial: intent.serial,
        request: intent.request,
        signer: intent.signer,
        name: intent.name,
        key_fingerprint: intent.key_fingerprint,
        not_before: intent.not_before,
        not_after: intent.not_after,
        der: b"signed elsewhere".to_vec(),
        explanation: intent.explanation,
        revoked: None,
        retired: None,
    }
}

async fn intend_serial(store: &dyn Store, sample: &Sample, issuer: IssuerId, serial: u64) {
    let mut intent = sample.enrolment(&format!("counted-{serial}")).intent;
    intent.serial = Serial::try_from(serial).unwrap();
    intent.issuer = issuer;
    write(store, vec![Write::Intend(intent)]).await;
}

fn unrevoked(enrolment: &Enrolment) -> Precondition {
    Precondition::Unrevoked {
        issuer: enrolment.intent.issuer.clone(),
        serial: enrolment.intent.serial,
    }
}

async fn put_ancestor(store: &dyn Store, issuer: &IssuerId, crl: AncestorCrl) {
    let issuer = issuer.clone();
    write(store, vec![Write::PutAncestorCrl { issuer, crl }]).await;
}

fn ancestor(key_id: &[u8], number: &[u8], position: u32) -> AncestorCrl {
    AncestorCrl {
        key_id: key_id.to_vec(),
        number: number.to_vec(),
        position,
        der: [b"list ", number].concat(),
    }
}

fn other_issuer() -> IssuerId {
    IssuerId::parse("kubernetes").unwrap()
}
