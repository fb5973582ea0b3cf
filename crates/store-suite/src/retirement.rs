//! Retirement: certificates that stay in the ledger and no longer count as their name's.

use countersign_authority::IssuerId;
use countersign_authority::store::{Precondition, Store, Write};
use countersign_pki::{RevocationReason, Serial};

use super::ledger::holds;
use super::sample::{enrol, renew, write};
use super::{Ground, Sample};

/// A retired name has no newest certificate, also not an older one, and the next one is its newest.
pub async fn a_retired_name_is_free_again(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let first = enrol(&*store, &sample, "a").await;
    renew(&*store, &sample, &first).await;
    let other = enrol(&*store, &sample, "b").await;
    write(&*store, vec![retire(Sample::issuer(), "a")]).await;

    assert_eq!(newest(&*store, "a").await, None);
    assert!(holds(&*store, newest_is("a", None)).await);
    assert_eq!(newest(&*store, "b").await, Some(other.intent.serial));
    let listed = async || {
        let page = store.newest_certificates(&Sample::issuer(), None, 10).await;
        let entries = page.unwrap().into_iter();
        entries.map(|entry| entry.name).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, ["b"]);

    write(&*store, vec![Write::DeleteRequest(first.request.id)]).await;
    let again = enrol(&*store, &sample, "a").await;
    assert_eq!(newest(&*store, "a").await, Some(again.intent.serial));
    assert!(holds(&*store, newest_is("a", Some(again.intent.serial))).await);
    assert_eq!(listed().await, ["a", "b"]);
}

/// What was retired is counted, found by serial and by name, and can be revoked.
pub async fn retired_certificates_stay_in_the_ledger(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolled = enrol(&*store, &sample, "a").await;
    let serial = enrolled.intent.serial;
    write(&*store, vec![retire(Sample::issuer(), "a")]).await;
    let count = Precondition::IssuedCount {
        issuer: Sample::issuer(),
        name: "a".to_owned(),
        count: 1,
    };
    assert!(holds(&*store, count).await);
    let found = store.certificate(&Sample::issuer(), &serial).await.unwrap();
    assert_eq!(found.unwrap().der, enrolled.der());
    let all = store.certificates_of(&Sample::issuer(), "a", Sample::time(0));
    assert_eq!(all.await.unwrap().len(), 1);

    let revocation = enrolled.revocation(Sample::time(10), RevocationReason::KeyCompromise);
    write(&*store, vec![Write::Revoke(revocation.clone())]).await;
    let revoked = store.revocations(&Sample::issuer(), Sample::time(0)).await;
    assert_eq!(revoked.unwrap().1, [revocation]);
    assert_eq!(newest(&*store, "a").await, None);
}

/// An intent that is open is not retired: the certificate it becomes is its name's newest.
pub async fn an_open_intent_outlives_a_retirement(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let begun = sample.enrolment("a");
    store.commit(begun.intend(&sample)).await.unwrap();
    write(&*store, vec![retire(Sample::issuer(), "a")]).await;
    assert!(!holds(&*store, newest_is("a", None)).await);
    store.commit(begun.record(&sample)).await.unwrap();
    assert_eq!(newest(&*store, "a").await, Some(begun.intent.serial));
}

/// A retirement that finds nothing is no fault, and the first time stands.
pub async fn a_retirement_without_certificates_changes_nothing(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolled = enrol(&*store, &sample, "a").await;
    write(&*store, vec![retire(Sample::issuer(), "a")]).await;
    let read = async || {
        let found = store.certificate(&Sample::issuer(), &enrolled.intent.serial);
        format!("{:?}", found.await.unwrap())
    };
    let before = read().await;
    for (issuer, name) in [
        (Sample::issuer(), "a"),
        (Sample::issuer(), "nobody"),
        (IssuerId::parse("kubernetes").unwrap(), "a"),
    ] {
        write(&*store, vec![retire(issuer, name)]).await;
    }
    assert_eq!(read().await, before);
}

/// The precondition holds for what is on record and not revoked, and for nothing else.
pub async fn an_unrevoked_certificate_is_checked_by_serial(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolment = sample.enrolment("a");
    let unrevoked = |issuer| Precondition::Unrevoked {
        issuer,
        serial: enrolment.intent.serial,
    };
    assert!(!holds(&*store, unrevoked(Sample::issuer())).await);
    store.commit(enrolment.intend(&sample)).await.unwrap();
    assert!(
        !holds(&*store, unrevoked(Sample::issuer())).await,
        "intended"
    );
    store.commit(enrolment.record(&sample)).await.unwrap();
    assert!(holds(&*store, unrevoked(Sample::issuer())).await);
    let elsewhere = IssuerId::parse("kubernetes").unwrap();
    assert!(!holds(&*store, unrevoked(elsewhere)).await);
    write(&*store, vec![retire(Sample::issuer(), "a")]).await;
    assert!(holds(&*store, unrevoked(Sample::issuer())).await, "retired");
    let revocation = enrolment.revocation(Sample::time(10), RevocationReason::Superseded);
    write(&*store, vec![Write::Revoke(revocation)]).await;
    assert!(
        !holds(&*store, unrevoked(Sample::issuer())).await,
        "revoked"
    );
}

fn retire(issuer: IssuerId, name: &str) -> Write {
    Write::Retire {
        issuer,
        name: name.to_owned(),
        at: Sample::time(5),
    }
}

fn newest_is(name: &str, serial: Option<Serial>) -> Precondition {
    Precondition::NewestCertificate {
        issuer: Sample::issuer(),
        name: name.to_owned(),
        serial,
    }
}

async fn newest(store: &dyn Store, name: &str) -> Option<Serial> {
    let entry = store.newest_certificate(&Sample::issuer(), name).await;
    entry.unwrap().map(|entry| entry.serial)
}
