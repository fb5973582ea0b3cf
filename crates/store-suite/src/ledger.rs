//! The ledger: intents, certificates, revocations and published lists.

use countersign_authority::store::{Change, CommitFault, Precondition, Store, Write};
use countersign_authority::{
    CrlScope, Intent, IssuerId, LedgerEntry, ListedCertificate, Owner, Revoked,
};
use countersign_pki::{RevocationReason, Serial};

use super::sample::{assert_same, crl, enrol, renew, write};
use super::{Ground, Sample};

/// Everything the intent said is in the ledger entry, with the certificate.
pub async fn an_intent_becomes_a_certificate_field_by_field(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolment = sample.enrolment("a");
    let (issuer, serial) = (Sample::issuer(), enrolment.intent.serial);
    store.commit(enrolment.intend(&sample)).await.unwrap();
    assert_same(
        store.open_intents().await.unwrap(),
        vec![enrolment.intent.clone()],
    );
    assert!(store.certificate(&issuer, &serial).await.unwrap().is_none());
    assert!(
        store
            .newest_certificate(&issuer, "a")
            .await
            .unwrap()
            .is_none()
    );

    let recorded = store.commit(enrolment.record(&sample)).await.unwrap();
    assert!(store.open_intents().await.unwrap().is_empty());
    let Intent {
        issuer,
        request,
        signer,
        name,
        key_fingerprint,
        not_before,
        not_after,
        explanation,
        ..
    } = enrolment.intent.clone();
    let der = enrolment.der();
    let expected = LedgerEntry {
        issuer: issuer.clone(),
        serial,
        request,
        signer,
        name,
        key_fingerprint,
        not_before,
        not_after,
        der,
        explanation,
        revoked: None,
        retired: None,
    };
    assert_same(
        store.certificate(&issuer, &serial).await.unwrap(),
        Some(expected.clone()),
    );
    assert_same(
        store.newest_certificate(&issuer, "a").await.unwrap(),
        Some(expected),
    );
    let answered = store.request(enrolment.request.id).await.unwrap().unwrap();
    assert_eq!(
        (answered.version, answered.certificate),
        (recorded.revision, Some((issuer, serial)))
    );
    assert!(
        store
            .certificate(&other_issuer(), &serial)
            .await
            .unwrap()
            .is_none()
    );
}

/// The precondition sees the newest issued certificate, and any open intent, of that name and issuer only.
pub async fn the_newest_certificate_is_checked_with_open_intents(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let newest = async |name: &str, serial: Option<Serial>| {
        let precondition = Precondition::NewestCertificate {
            issuer: Sample::issuer(),
            name: name.to_owned(),
            serial,
        };
        holds(&*store, precondition).await
    };
    assert!(newest("a", None).await);
    let first = sample.enrolment("a");
    assert!(!newest("a", Some(first.intent.serial)).await);
    store.commit(first.intend(&sample)).await.unwrap();
    assert!(!newest("a", None).await, "an intent is open");
    assert!(newest("b", None).await);
    store.commit(first.record(&sample)).await.unwrap();
    assert!(!newest("a", None).await);
    assert!(newest("a", Some(first.intent.serial)).await);

    let second = renew(&*store, &sample, &first).await;
    assert!(!newest("a", Some(first.intent.serial)).await);
    assert!(newest("a", Some(second.intent.serial)).await);
    let third = sample.intent(&first.request);
    write(&*store, vec![Write::Intend(third.clone())]).await;
    assert!(
        !newest("a", Some(second.intent.serial)).await,
        "an intent is open"
    );
    write(
        &*store,
        vec![Write::VoidIntent {
            issuer: third.issuer,
            serial: third.serial,
        }],
    )
    .await;
    assert!(newest("a", Some(second.intent.serial)).await);
}

/// The precondition counts every recorded certificate of that name and issuer, and no intent, open or void.
pub async fn certificates_of_a_name_are_counted_without_intents(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let counted = async |issuer: IssuerId, name: &str| {
        let mut counts = Vec::new();
        for count in 0..4 {
            let (issuer, name) = (issuer.clone(), name.to_owned());
            let precondition = Precondition::IssuedCount {
                issuer,
                name,
                count,
            };
            if holds(&*store, precondition).await {
                counts.push(count);
            }
        }
        counts
    };
    assert_eq!(counted(Sample::issuer(), "a").await, [0]);
    let first = sample.enrolment("a");
    store.commit(first.intend(&sample)).await.unwrap();
    assert_eq!(counted(Sample::issuer(), "a").await, [0]);
    store.commit(first.record(&sample)).await.unwrap();
    assert_eq!(counted(Sample::issuer(), "a").await, [1]);
    let second = renew(&*store, &sample, &first).await;
    assert_eq!(counted(Sample::issuer(), "a").await, [2]);

    let third = sample.intent(&first.request);
    let (issuer, serial) = (third.issuer.clone(), third.serial);
    write(&*store, vec![Write::Intend(third)]).await;
    assert_eq!(counted(Sample::issuer(), "a").await, [2]);
    write(&*store, vec![Write::VoidIntent { issuer, serial }]).await;
    assert_eq!(counted(Sample::issuer(), "a").await, [2]);
    let revocation = second.revocation(Sample::time(10), RevocationReason::Superseded);
    write(&*store, vec![Write::Revoke(revocation)]).await;
    assert_eq!(
        counted(Sample::issuer(), "a").await,
        [2],
        "revoked ones too"
    );
    assert_eq!(counted(Sample::issuer(), "aa").await, [0]);
    assert_eq!(counted(other_issuer(), "a").await, [0]);
}

/// A certificate enters the ledger only through an intent that is open and its owner's.
pub async fn a_record_needs_an_open_intent_of_its_owner(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolment = sample.enrolment("a");
    let Intent { issuer, serial, .. } = enrolment.intent.clone();
    let open_to = |owner| Precondition::IntentOpen {
        issuer: issuer.clone(),
        serial,
        owner,
    };
    let record = |preconditions| Change {
        preconditions,
        writes: vec![Write::Record {
            issuer: issuer.clone(),
            serial,
            der: enrolment.der(),
        }],
        audit: vec![],
    };
    let void = || Change {
        writes: vec![Write::VoidIntent {
            issuer: issuer.clone(),
            serial,
        }],
        ..Change::default()
    };
    let refused = async |change, expected| {
        let outcome = store.commit(change).await;
        assert!(
            matches!(&outcome, Err(CommitFault::Conflict { precondition }) if *precondition == expected),
            "{outcome:?}"
        );
    };
    refused(record(vec![]), open_to(None)).await;
    refused(record(vec![open_to(None)]), open_to(None)).await;
    refused(void(), open_to(None)).await;

    store.commit(enrolment.intend(&sample)).await.unwrap();
    let stranger = Some(Owner("another-process".to_owned()));
    refused(record(vec![open_to(stranger.clone())]), open_to(stranger)).await;
    assert!(store.certificate(&issuer, &serial).await.unwrap().is_none());

    store
        .commit(record(vec![open_to(Some(Sample::owner()))]))
        .await
        .unwrap();
    refused(record(vec![]), open_to(None)).await;
    refused(void(), open_to(None)).await;
    assert!(store.certificate(&issuer, &serial).await.unwrap().is_some());
}

/// Anyone may void an intent; its serial is never used again and its certificate never recorded.
pub async fn a_voided_serial_stays_burned(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolment = sample.enrolment("a");
    let Intent { issuer, serial, .. } = enrolment.intent.clone();
    store.commit(enrolment.intend(&sample)).await.unwrap();
    let void = Change {
        preconditions: vec![Precondition::IntentOpen {
            issuer: issuer.clone(),
            serial,
            owner: None,
        }],
        writes: vec![Write::VoidIntent {
            issuer: issuer.clone(),
            serial,
        }],
        audit: vec![],
    };
    store.commit(void).await.unwrap();
    assert!(store.open_intents().await.unwrap().is_empty());
    assert!(matches!(
        store.commit(enrolment.record(&sample)).await,
        Err(CommitFault::Conflict { .. })
    ));
    let again = Change {
        writes: vec![Write::Intend(enrolment.intent.clone())],
        ..Change::default()
    };
    assert!(matches!(
        store.commit(again).await,
        Err(CommitFault::DuplicateSerial { .. })
    ));
    assert!(store.certificate(&issuer, &serial).await.unwrap().is_none());
}

/// Open, recorded or void: a serial is taken at its issuer, and free at others.
pub async fn a_serial_is_used_once_per_issuer(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let issued = enrol(&*store, &sample, "a").await;
    let open = sample.enrolment("b");
    store.commit(open.intend(&sample)).await.unwrap();
    for taken in [issued.intent.serial, open.intent.serial] {
        let intent = Intent {
            serial: taken,
            ..sample.intent(&sample.request("c"))
        };
        let elsewhere = Intent {
            issuer: other_issuer(),
            ..intent.clone()
        };
        let refused = store
            .commit(Change {
                writes: vec![Write::Intend(intent)],
                ..Change::default()
            })
            .await;
        assert!(
            matches!(&refused, Err(CommitFault::DuplicateSerial { issuer, serial }) if *issuer == Sample::issuer() && *serial == taken),
            "{refused:?}"
        );
        write(&*store, vec![Write::Intend(elsewhere)]).await;
    }
}

/// A second revocation changes neither time nor reason.
pub async fn the_first_revocation_stands(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolled = enrol(&*store, &sample, "a").await;
    let first = enrolled.revocation(Sample::time(10), RevocationReason::KeyCompromise);
    let revoked = write(&*store, vec![Write::Revoke(first.clone())])
        .await
        .revision;
    let second = enrolled.revocation(Sample::time(20), RevocationReason::Superseded);
    write(&*store, vec![Write::Revoke(second)]).await;
    let entry = store
        .certificate(&Sample::issuer(), &first.serial)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        entry.revoked,
        Some(Revoked {
            at: Sample::time(10),
            reason: RevocationReason::KeyCompromise
        })
    );
    assert_eq!(entry.der, enrolled.der());
    let (complete_to, listed) = store
        .revocations(&Sample::issuer(), Sample::time(0))
        .await
        .unwrap();
    assert_eq!(listed, [first]);
    assert!(complete_to >= revoked);
}

/// Neither an unknown serial nor an intent can be revoked.
pub async fn only_what_is_in_the_ledger_can_be_revoked(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let open = sample.enrolment("a");
    store.commit(open.intend(&sample)).await.unwrap();
    for never_issued in [open, sample.enrolment("b")] {
        let revocation = never_issued.revocation(Sample::time(0), RevocationReason::Unspecified);
        let change = Change {
            writes: vec![Write::Revoke(revocation)],
            ..Change::default()
        };
        assert!(matches!(
            store.commit(change).await,
            Err(CommitFault::Store(_))
        ));
    }
    assert!(
        store
            .revocations(&Sample::issuer(), Sample::time(0))
            .await
            .unwrap()
            .1
            .is_empty()
    );
}

/// A revocation is listed to the last second of its certificate, for its own issuer, with every reason.
pub async fn revocations_are_listed_until_the_certificate_ends(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut expected = Vec::new();
    for code in (0..=10).filter(|code| *code != 7) {
        let enrolled = enrol(&*store, &sample, &format!("host-{code}")).await;
        let revocation = enrolled.revocation(
            Sample::time(code.into()),
            RevocationReason::from_code(code).unwrap(),
        );
        write(&*store, vec![Write::Revoke(revocation.clone())]).await;
        expected.push(revocation);
    }
    enrol(&*store, &sample, "valid").await;
    expected.sort_by_key(|revocation| revocation.not_after);
    let listed = async |issuer: IssuerId, alive_at| {
        let (_, mut listed) = store.revocations(&issuer, alive_at).await.unwrap();
        listed.sort_by_key(|revocation| revocation.not_after);
        listed
    };
    assert_eq!(listed(Sample::issuer(), Sample::time(0)).await, expected);
    assert!(listed(other_issuer(), Sample::time(0)).await.is_empty());
    let ends = expected[4].not_after;
    assert_eq!(listed(Sample::issuer(), ends).await, expected[4..]);
    assert_eq!(
        listed(Sample::issuer(), ends.plus_seconds(1)).await,
        expected[5..]
    );
}

/// Of two who publish after the same list, one is told.
pub async fn the_number_of_the_crl_guards_its_publication(ground: &dyn Ground) {
    let store = ground.open().await;
    let publish = |after, number| Change {
        preconditions: vec![Precondition::CrlNumber {
            issuer: Sample::issuer(),
            scope: CrlScope::Full,
            number: after,
        }],
        writes: vec![Write::PutCrl(crl(number))],
        audit: vec![],
    };
    assert!(
        store
            .crl(&Sample::issuer(), CrlScope::Full)
            .await
            .unwrap()
            .is_none()
    );
    assert!(matches!(
        store.commit(publish(Some(0), 1)).await,
        Err(CommitFault::Conflict { .. })
    ));
    store.commit(publish(None, 1)).await.unwrap();
    assert!(matches!(
        store.commit(publish(None, 2)).await,
        Err(CommitFault::Conflict { .. })
    ));
    assert_same(
        store.crl(&Sample::issuer(), CrlScope::Full).await.unwrap(),
        Some(crl(1)),
    );
    store.commit(publish(Some(1), 2)).await.unwrap();
    assert!(matches!(
        store.commit(publish(Some(1), 2)).await,
        Err(CommitFault::Conflict { .. })
    ));
    assert_same(
        store.crl(&Sample::issuer(), CrlScope::Full).await.unwrap(),
        Some(crl(2)),
    );
    assert!(
        store
            .crl(&other_issuer(), CrlScope::Full)
            .await
            .unwrap()
            .is_none()
    );
}

/// Renewals of a name are listed from the newest, without those that ended.
pub async fn certificates_of_a_name_are_listed_newest_first(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let first = enrol(&*store, &sample, "a").await;
    let second = renew(&*store, &sample, &first).await;
    enrol(&*store, &sample, "aa").await;
    let third = renew(&*store, &sample, &first).await;
    write(&*store, vec![Write::Intend(sample.intent(&first.request))]).await;
    let listed = async |alive_at| {
        let entries = store
            .certificates_of(&Sample::issuer(), "a", alive_at)
            .await
            .unwrap();
        entries
            .into_iter()
            .map(|entry| entry.serial)
            .collect::<Vec<_>>()
    };
    let [first, second, third] = [first, second, third].map(|enrolment| enrolment.intent);
    assert_eq!(
        listed(Sample::time(0)).await,
        [third.serial, second.serial, first.serial]
    );
    assert_eq!(
        listed(second.not_after).await,
        [third.serial, second.serial]
    );
    assert_eq!(listed(third.not_after.plus_seconds(1)).await, []);
    let newest = store
        .newest_certificate(&Sample::issuer(), "a")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(newest.serial, third.serial);
}

/// One entry per name, the newest, names in byte order.
pub async fn pages_of_newest_certificates_are_ordered_and_complete(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut expected = Vec::new();
    for name in ["b", "a", "B", "ä", "a.b", "z", "c"] {
        let first = enrol(&*store, &sample, name).await;
        let newest = renew(&*store, &sample, &first).await;
        expected.push((name.to_owned(), newest.intent.serial));
    }
    store
        .commit(sample.enrolment("only-intended").intend(&sample))
        .await
        .unwrap();
    expected.sort();
    for limit in [1, 2, 3, 7, 50] {
        let mut found: Vec<(String, Serial)> = Vec::new();
        loop {
            let after = found.last().map(|(name, _)| name.clone());
            let page = store
                .newest_certificates(&Sample::issuer(), after.clone(), limit)
                .await
                .unwrap();
            assert!(page.len() <= limit);
            let listed = store
                .listed_certificates(&Sample::issuer(), after, limit)
                .await
                .unwrap();
            let short: Vec<_> = page.iter().cloned().map(ListedCertificate::from).collect();
            assert_eq!(listed, short);
            if page.is_empty() {
                break;
            }
            found.extend(page.into_iter().map(|entry| (entry.name, entry.serial)));
        }
        assert_eq!(found, expected, "pages of {limit}");
    }
    assert!(
        store
            .newest_certificates(&other_issuer(), None, 5)
            .await
            .unwrap()
            .is_empty()
    );
}

/// Recovery works through what was left open in the order it began.
pub async fn open_intents_are_listed_oldest_first(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut expected = Vec::new();
    for key in ["c", "a", "b"] {
        let enrolment = sample.enrolment(key);
        store.commit(enrolment.intend(&sample)).await.unwrap();
        expected.push(enrolment.intent);
    }
    enrol(&*store, &sample, "done").await;
    assert_same(store.open_intents().await.unwrap(), expected);
}

/// Whether a change that relies on this alone is committed.
pub(super) async fn holds(store: &dyn Store, precondition: Precondition) -> bool {
    let change = Change {
        preconditions: vec![precondition.clone()],
        ..Change::default()
    };
    match store.commit(change).await {
        Ok(_) => true,
        Err(CommitFault::Conflict {
            precondition: failed,
        }) => {
            assert_eq!(failed, precondition);
            false
        }
        Err(other) => panic!("{other:?}"),
    }
}

fn other_issuer() -> IssuerId {
    IssuerId::parse("kubernetes").unwrap()
}
