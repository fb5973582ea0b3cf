//! Certificates from before a CA was imported count, and get an entry in the ledger when they are first seen.

use countersign_authority::{
    Adoption, AuditEntry, AuditRecord, Door, Issuer, KeyStore as _, Retired,
};
use countersign_pki::{
    AltName, Certificate, CertificateTemplate, Extension, RevocationReason, Serial, StringKind,
    SubjectBuilder, UnixTime, ext, fingerprint_sha256, oid, seal,
};
use countersign_testkit::keys;

use crate::renewal::DAY;
use crate::sealing::whole_log;
use crate::world::{self, START, World, act, administrator, agent_signer, issuer_id};

/// What the issuer's key has signed without this authority.
pub(crate) struct Before<'a> {
    pub(crate) serial: u64,
    pub(crate) name: &'a str,
    pub(crate) spki_der: &'a [u8],
    pub(crate) not_before: UnixTime,
    pub(crate) extensions: Vec<Extension>,
}

impl<'a> Before<'a> {
    /// As authorities of old made them: without alternative names.
    pub(crate) fn plain(serial: u64, name: &'a str) -> Self {
        Self {
            serial,
            name,
            spki_der: keys::p256_b().spki_der(),
            not_before: UnixTime(START).minus_seconds(30 * DAY),
            extensions: vec![ext::extended_key_usage(&[
                oid::EKU_SERVER_AUTH,
                oid::EKU_CLIENT_AUTH,
            ])],
        }
    }

    pub(crate) async fn sign(&self, world: &World) -> Certificate {
        let issuer = world.authority.issuers.get(&issuer_id()).unwrap();
        let subject = SubjectBuilder::new();
        let subject = subject.push(oid::COMMON_NAME, self.name, StringKind::Printable);
        let template = CertificateTemplate {
            serial: Serial::try_from(self.serial).unwrap(),
            algorithm: issuer.algorithm(),
            issuer_name_der: issuer.certificate().subject().der(),
            not_before: self.not_before,
            not_after: UnixTime(START).plus_seconds(100 * DAY),
            subject_der: &subject.build(),
            spki_der: self.spki_der,
            extensions: &self.extensions,
        };
        let text = template.to_be_signed().unwrap();
        let keys = world::keys(world.folder.path());
        let public_key = keys.public_key(&issuer_id()).unwrap();
        let signature = keys.sign(&issuer_id(), &public_key, text.clone()).await;
        let der = seal(&text, issuer.algorithm(), &signature.unwrap().0).unwrap();
        Certificate::parse(&der).unwrap()
    }
}

/// An authority whose issuer was imported now.
async fn imported() -> World {
    let world = World::new(true).await;
    let before = world.authority.issuers.get(&issuer_id()).unwrap();
    let key = before.certificate().spki_der();
    let issuer = Issuer::from_chain(
        issuer_id(),
        before.chain_pem().to_vec(),
        before.algorithm(),
        key,
    );
    let issuer = issuer.unwrap().with_adoption(Some(Adoption {
        key: fingerprint_sha256(key),
        taken_over: UnixTime(START),
        signer: agent_signer(),
    }));
    world.authority.issuers.replace(issuer).await.unwrap();
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_imported_ca_had_signed_is_on_record_when_it_is_first_seen() {
    let world = imported().await;
    let (ledger, issuer, admin) = (&world.authority.ledger, issuer_id(), administrator());
    let old = Before::plain(77, "web01").sign(&world).await;
    assert!(ledger.get(&issuer, &old.serial()).await.unwrap().is_none());
    let entry = ledger.adopt(&issuer, &old).await.unwrap().unwrap();
    assert_eq!((entry.name.as_str(), &*entry.der), ("web01", old.der()));
    assert_eq!(entry.signer, agent_signer());
    let again = ledger.adopt(&issuer, &old).await.unwrap().unwrap();
    assert_eq!(again.request, entry.request, "it is on record once");
    let found = ledger.newest(&issuer, "web01").await.unwrap().unwrap();
    assert_eq!(found.serial, old.serial());
    let records = world
        .authority
        .audit
        .page(whole_log())
        .await
        .unwrap()
        .records;
    let audited: Vec<AuditEntry> = records.iter().filter_map(AuditRecord::entry).collect();
    let serial = Some(old.serial().to_string());
    let of_it = audited.iter().filter(|entry| entry.serial == serial);
    let actions: Vec<&str> = of_it.map(|entry| &*entry.action).collect();
    assert_eq!(actions, ["import"]);

    // It is a certificate like any other: revoked by name, renewed, retired.
    let holder = act("x").actor;
    let renewed = ledger.renew_shown(&issuer, &old, DAY, &holder).await;
    let renewed = Certificate::parse(renewed.unwrap().der()).unwrap();
    assert_eq!(renewed.alt_names(), [AltName::Dns("web01".to_owned())]);
    let reason = RevocationReason::KeyCompromise;
    let revoked = ledger.revoke_name(&issuer, "web01", reason, &admin);
    assert_eq!(revoked.await.unwrap(), 2);
    assert!(ledger.is_revoked(&issuer, &old.serial()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_seen_late_takes_nothing_from_what_its_name_has_got_since() {
    let world = imported().await;
    let (ledger, issuer, admin) = (&world.authority.ledger, issuer_id(), administrator());
    let submitted = world.authority.requests.submit(world::submission("web01"));
    let newer = submitted.await.unwrap().issued.unwrap().intent().serial;
    let old = Before::plain(77, "web01").sign(&world).await;
    assert!(ledger.adopt(&issuer, &old).await.unwrap().is_some());
    let newest = ledger.newest(&issuer, "web01").await.unwrap().unwrap();
    assert_eq!(newest.serial, newer);
    let reason = RevocationReason::KeyCompromise;
    let revoked = ledger.revoke_name(&issuer, "web01", reason, &admin);
    assert_eq!(revoked.await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_the_imported_key_had_signed_before_is_taken_over() {
    let world = imported().await;
    let (issuer, admin) = (issuer_id(), administrator());
    let mark = ext::utf8_extension(oid::PP_CLI_AUTH, "true", false);
    let later = Before {
        not_before: UnixTime(START).plus_seconds(1),
        ..Before::plain(1, "web01")
    };
    let ca = Before {
        extensions: vec![ext::basic_constraints_ca()],
        ..Before::plain(2, "web01")
    };
    world.clock.advance(60);
    for (what, before) in [("later", later), ("a CA", ca)] {
        let certificate = before.sign(&world).await;
        let adopted = world.authority.ledger.adopt(&issuer, &certificate).await;
        assert!(adopted.unwrap().is_none(), "{what}");
    }
    // Another CA's with the same name, and one of an issuer that takes nothing over.
    let other = World::new(true).await;
    let foreign = Before::plain(3, "web01").sign(&other).await;
    for world in [&world, &other] {
        let adopted = world.authority.ledger.adopt(&issuer, &foreign).await;
        assert!(adopted.unwrap().is_none());
    }
    // A mark of administrators makes nobody one.
    let marked = Before {
        extensions: vec![mark],
        ..Before::plain(4, "root")
    };
    let marked = marked.sign(&world).await;
    let adopted = world.authority.ledger.adopt(&issuer, &marked).await;
    assert_eq!(adopted.unwrap().unwrap().signer, agent_signer());
    // Of what ended, nobody is interested in what it was.
    let ended = Before::plain(5, "web05").sign(&world).await;
    world.clock.advance(101 * i64::try_from(DAY).unwrap());
    let adopted = world.authority.ledger.adopt(&issuer, &ended).await;
    assert!(adopted.unwrap().is_none());
    let door = Door::LOCAL;
    let retired = world
        .authority
        .ledger
        .retire(&issuer, "web05", &door, &admin);
    assert_eq!(retired.await.unwrap(), Retired::Nothing);
}
