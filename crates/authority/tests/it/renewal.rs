//! Holders renew their certificates.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_authority::profile::{Authorization, OtherNames};
use countersign_authority::store::{Change, RequestFilter, Store, Write};
use countersign_authority::{
    Authority, IssuerId, KeyStore, LedgerEntry, Profile, ProfileFault, RenewFault, RequestId,
    RequestState, SignFault, Signature,
};
use countersign_keys::FileKeys;
use countersign_pki::{
    AltName, Certificate, CheckedCsr, CsrLimits, Fingerprint, KeyFault, RevocationReason, Serial,
    SignatureAlgorithm, UnixTime, Weakness, fingerprint_sha256, oid,
};
use countersign_policy::{Effect, Explanation};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::adoption::Before;
use crate::profiles::{self, AgentSettings};

use crate::world::{self, START, TestClock, World, act, agent_signer, issuer_id, submission};

pub(crate) const DAY: u64 = 86_400;
const LIFETIME: u64 = 90 * DAY;
/// After so long a renewed certificate is renewed once more: more than a twentieth of its life.
const PAUSE: i64 = 5 * 86_400;

async fn issue(authority: &Authority, csr: &CsrBuilder, name: &str) -> Certificate {
    let der = csr.sign(keys::p256_a());
    let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
    let submitted = authority
        .requests
        .submit(world::with_csr(name, csr))
        .await
        .unwrap();
    Certificate::parse(submitted.issued.unwrap().der()).unwrap()
}

async fn renew(
    authority: &Authority,
    serial: Serial,
    lifetime: u64,
) -> Result<Certificate, RenewFault> {
    let renewed = authority
        .ledger
        .renew(&issuer_id(), &serial, lifetime, &act("x").actor)
        .await?;
    Ok(Certificate::parse(renewed.der()).unwrap())
}

/// An authority on a folder whose agents' profile has these settings.
async fn with_profile(
    folder: &std::path::Path,
    clock: Arc<TestClock>,
    profile: Profile,
) -> Authority {
    let (store, keys) = (world::store(folder), world::keys(folder));
    let profiles = vec![(agent_signer(), profile, true)];
    let policy = world::policy(true);
    world::authority_with(
        folder,
        Arc::new(store),
        Arc::new(keys),
        clock,
        policy,
        profiles,
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_repeats_or_narrows() {
    let folder = tempfile::tempdir().unwrap();
    world::prepare(folder.path()).await;
    let clock = TestClock::new();
    let generous = AgentSettings {
        lifetime: 30 * DAY,
        alt_names: OtherNames::DnsAndIp,
        authorization: Authorization::Copied,
    };
    let profile = profiles::agent(generous);
    let authority = with_profile(folder.path(), clock.clone(), profile.clone()).await;
    let role = oid::registered_oid("pp_auth_role").unwrap();
    let csr = CsrBuilder::new("web01")
        .dns("www.example.com")
        .extension(&role, "compiler");
    let first = issue(&authority, &csr, "web01").await;
    clock.advance(1000);

    for lifetime in [LIFETIME, DAY] {
        let renewed = renew(&authority, first.serial(), lifetime).await.unwrap();
        assert_ne!(renewed.serial(), first.serial());
        assert_eq!(renewed.subject().der(), first.subject().der());
        assert_eq!(renewed.spki_der(), first.spki_der());
        assert_eq!(renewed.extensions(), first.extensions());
        let now = UnixTime(START).plus_seconds(1000);
        let end = now.plus_seconds(lifetime.min(30 * DAY));
        assert_eq!(renewed.not_after(), end, "never longer than approved");
        let again = renew(&authority, renewed.serial(), LIFETIME).await.unwrap();
        assert_eq!(again.not_after(), end, "nor by renewing what was renewed");
    }
    drop(authority);

    // The signer grants less than before: what it would refuse today is not repeated.
    let strict = profiles::agent(world::settings());
    let authority = with_profile(folder.path(), clock.clone(), strict).await;
    let refused = renew(&authority, first.serial(), LIFETIME).await;
    assert!(
        matches!(refused, Err(RenewFault::Unsignable { .. })),
        "{refused:?}"
    );
    drop(authority);

    // The signer grants more than before: that is for new requests.
    let admin = profiles::admin(generous);
    let authority = with_profile(folder.path(), clock.clone(), admin).await;
    let refused = renew(&authority, first.serial(), LIFETIME).await;
    assert!(
        matches!(refused, Err(RenewFault::Wider { .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_on_record_with_its_decision() {
    let world = World::new(true).await;
    let first = issue(&world.authority, &CsrBuilder::new("web01"), "web01").await;
    let renewed = renew(&world.authority, first.serial(), LIFETIME)
        .await
        .unwrap();
    let entry = world
        .authority
        .ledger
        .newest(&issuer_id(), "web01")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(entry.serial, renewed.serial());
    assert_eq!(entry.explanation.effect, Effect::Approve);
    let said = entry.explanation.to_string();
    let expected = format!(
        "approved by rule renewal (repeats certificate {})",
        first.serial()
    );
    assert_eq!(said, expected);
    let record = world
        .authority
        .requests
        .get(entry.request)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(record.state, RequestState::Issued);
    assert_eq!(record.explanation, entry.explanation);
    assert_eq!(record.certificate, Some((issuer_id(), renewed.serial())));
    assert!(!record.live);
    assert!(
        !world
            .authority
            .ledger
            .is_revoked(&issuer_id(), &first.serial())
    );

    // All three fall with their name.
    world.clock.advance(PAUSE);
    renew(&world.authority, first.serial(), LIFETIME)
        .await
        .unwrap();
    let (reason, actor) = (RevocationReason::KeyCompromise, act("x").actor);
    let revoked = world
        .authority
        .ledger
        .revoke_name(&issuer_id(), "web01", reason, &actor)
        .await
        .unwrap();
    assert_eq!(revoked, 3);
    for serial in [first.serial(), renewed.serial()] {
        let refused = renew(&world.authority, serial, LIFETIME).await;
        assert!(
            matches!(refused, Err(RenewFault::Revoked { .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ended_or_is_unknown_is_not_renewed() {
    let world = World::new(true).await;
    let first = issue(&world.authority, &CsrBuilder::new("web01"), "web01").await;
    let unknown = renew(&world.authority, Serial::random_from([9; 16]), DAY).await;
    assert!(
        matches!(unknown, Err(RenewFault::Unknown { .. })),
        "{unknown:?}"
    );
    world
        .clock
        .advance(first.not_after().seconds_since(world.authority.now()) + 1);
    let ended = renew(&world.authority, first.serial(), DAY).await;
    assert!(matches!(ended, Err(RenewFault::Ended { .. })), "{ended:?}");
}

/// Keys that hold one signature back, or refuse it.
struct Gate {
    keys: FileKeys,
    holds_next: AtomicBool,
    fails_next: AtomicBool,
    reached: Semaphore,
    opened: Semaphore,
}

impl KeyStore for Gate {
    fn algorithm(&self, issuer: &IssuerId) -> Result<SignatureAlgorithm, SignFault> {
        self.keys.algorithm(issuer)
    }

    fn public_key(&self, issuer: &IssuerId) -> Result<Vec<u8>, SignFault> {
        self.keys.public_key(issuer)
    }

    fn sign(
        &self,
        issuer: &IssuerId,
        public_key: &[u8],
        message: Vec<u8>,
    ) -> BoxFuture<'_, Result<Signature, SignFault>> {
        let (issuer, public_key) = (issuer.clone(), public_key.to_vec());
        Box::pin(async move {
            if self.holds_next.swap(false, Ordering::SeqCst) {
                self.reached.add_permits(1);
                self.opened.acquire().await.unwrap().forget();
            }
            if self.fails_next.swap(false, Ordering::SeqCst) {
                return Err(SignFault::Failed { issuer });
            }
            self.keys.sign(&issuer, &public_key, message).await
        })
    }

    fn verify_each(&self, issuer: &IssuerId) -> bool {
        self.keys.verify_each(issuer)
    }
}

/// An authority with one certificate, whose next signature may be held back.
async fn gated(folder: &std::path::Path) -> (Authority, Arc<Gate>, Arc<dyn Store>, Serial) {
    world::prepare(folder).await;
    let store: Arc<dyn Store> = Arc::new(world::store(folder));
    let gate = Arc::new(Gate {
        keys: world::keys(folder),
        holds_next: AtomicBool::new(false),
        fails_next: AtomicBool::new(false),
        reached: Semaphore::new(0),
        opened: Semaphore::new(0),
    });
    let (keys, clock) = (gate.clone(), TestClock::new());
    let authority = world::authority(folder, store.clone(), keys, clock, true).await;
    let submitted = authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    let serial = submitted.issued.unwrap().intent().serial;
    (authority, gate, store, serial)
}

/// Nothing came of a renewal: no certificate, no intent, a record that says so.
async fn assert_came_to_nothing(store: &dyn Store) {
    assert!(store.open_intents().await.unwrap().is_empty());
    let all = store.certificates_of(&issuer_id(), "web01", UnixTime(0));
    assert_eq!(all.await.unwrap().len(), 1);
    let records = store.requests(RequestFilter::default()).await.unwrap();
    let states: Vec<RequestState> = records.iter().map(|record| record.state).collect();
    assert_eq!(states, [RequestState::Issued, RequestState::Failed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_stays_out_also_when_its_renewal_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, gate, store, serial) = gated(folder.path()).await;
    gate.holds_next.store(true, Ordering::SeqCst);
    let renewing = tokio::spawn({
        let authority = authority.clone();
        async move { renew(&authority, serial, LIFETIME).await }
    });
    gate.reached.acquire().await.unwrap().forget();
    let (reason, actor) = (RevocationReason::KeyCompromise, act("x").actor);
    authority
        .ledger
        .revoke_name(&issuer_id(), "web01", reason, &actor)
        .await
        .unwrap();
    gate.opened.add_permits(1);
    let refused = renewing.await.unwrap();
    assert!(
        matches!(refused, Err(RenewFault::Revoked { .. })),
        "{refused:?}"
    );
    assert_came_to_nothing(&*store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_failed_is_not_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, gate, store, serial) = gated(folder.path()).await;
    gate.fails_next.store(true, Ordering::SeqCst);
    let failed = renew(&authority, serial, LIFETIME).await;
    assert!(matches!(failed, Err(RenewFault::Engine(_))), "{failed:?}");
    assert_eq!(store.open_intents().await.unwrap().len(), 1);
    assert_eq!(authority.recover().await.unwrap(), 0);
    assert_came_to_nothing(&*store).await;
    renew(&authority, serial, LIFETIME).await.unwrap();
}

/// A certificate that came from another authority has no request here.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_over_is_renewed_from_the_certificate_itself() {
    let origin = World::new(true).await;
    let csr = CsrBuilder::new("web01").extension(&oid::registered_oid("pp_role").unwrap(), "web");
    let old = issue(&origin.authority, &csr, "web01").await;
    let store = world::store_beside(origin.folder.path());
    let entry = origin
        .authority
        .ledger
        .get(&issuer_id(), &old.serial())
        .await
        .unwrap()
        .unwrap();
    let taken_over = Change {
        writes: vec![
            Write::Import(entry),
            Write::CountSerials {
                issuer: issuer_id(),
                next: 5,
            },
        ],
        ..Change::default()
    };
    store.commit(taken_over).await.unwrap();
    let keys = Arc::new(world::keys(origin.folder.path()));
    let folder = origin.folder.path();
    let authority =
        world::authority(folder, Arc::new(store), keys, origin.clock.clone(), false).await;

    let renewed = renew(&authority, old.serial(), LIFETIME).await.unwrap();
    assert_eq!(renewed.serial(), Serial::try_from(5).unwrap(), "counted");
    assert_eq!(renewed.extensions(), old.extensions());
    assert_eq!(renewed.spki_der(), old.spki_der());
    origin.clock.advance(PAUSE);
    let again = renew(&authority, renewed.serial(), LIFETIME).await.unwrap();
    assert_eq!(again.serial(), Serial::try_from(6).unwrap());
    let actor = act("x").actor;
    let reason = RevocationReason::KeyCompromise;
    let issuer = issuer_id();
    let revoked = authority
        .ledger
        .revoke_name(&issuer, "web01", reason, &actor);
    assert_eq!(revoked.await.unwrap(), 3, "with everything renewed from it");
    let refused = renew(&authority, old.serial(), LIFETIME).await;
    assert!(
        matches!(refused, Err(RenewFault::Revoked { .. })),
        "{refused:?}"
    );
}

/// An authority that has taken over what the other's issuer signed.
async fn taken_over(origin: &World, entries: Vec<LedgerEntry>) -> Authority {
    let store = world::store_beside(origin.folder.path());
    let taken_over = Change {
        writes: entries.into_iter().map(Write::Import).collect(),
        ..Change::default()
    };
    store.commit(taken_over).await.unwrap();
    let keys = Arc::new(world::keys(origin.folder.path()));
    let (folder, clock) = (origin.folder.path(), origin.clock.clone());
    world::authority(folder, Arc::new(store), keys, clock, false).await
}

fn entry_of(certificate: &Certificate) -> LedgerEntry {
    LedgerEntry {
        issuer: issuer_id(),
        serial: certificate.serial(),
        request: RequestId::in_sequence(UnixTime(START), 1, [0; 6]),
        signer: agent_signer(),
        name: "web01".to_owned(),
        key_fingerprint: fingerprint_sha256(certificate.spki_der()),
        not_before: certificate.not_before(),
        not_after: certificate.not_after(),
        retired: None,
        der: certificate.der().to_vec(),
        explanation: Explanation::new(Effect::Approve, UnixTime(START), 0),
        revoked: None,
    }
}

/// Old authorities wrote the name into the subject alone, and in another type of text.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_without_alternative_names_that_was_taken_over_is_renewed() {
    let origin = World::new(true).await;
    let old = Before::plain(77, "web01").sign(&origin).await;
    assert_eq!(old.alt_names(), []);
    let authority = taken_over(&origin, vec![entry_of(&old)]).await;
    let renewed = renew(&authority, old.serial(), LIFETIME).await.unwrap();
    assert_eq!(renewed.subject().first_common_name(), Some("web01"));
    assert_eq!(renewed.alt_names(), [AltName::Dns("web01".to_owned())]);
    assert_eq!(renewed.spki_der(), old.spki_der());
    let again = renew(&authority, renewed.serial(), LIFETIME).await;
    assert_eq!(again.unwrap().alt_names(), renewed.alt_names());
}

/// Of some there is no more than the line of an inventory: the certificate itself is what its holder shows.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_known_from_an_inventory_only_is_renewed() {
    let origin = World::new(true).await;
    let old = Before::plain(77, "web01").sign(&origin).await;
    let line = LedgerEntry {
        der: Vec::new(),
        key_fingerprint: Fingerprint::from_bytes([0; 32]),
        retired: Some(UnixTime(START)),
        ..entry_of(&old)
    };
    let authority = taken_over(&origin, vec![line]).await;
    let (actor, issuer) = (act("x").actor, issuer_id());
    let unseen = renew(&authority, old.serial(), LIFETIME).await;
    assert!(
        matches!(unseen, Err(RenewFault::NoRequest { .. })),
        "{unseen:?}"
    );
    // Another one with its serial is another one.
    let other = Before {
        name: "web02",
        ..Before::plain(77, "web01")
    };
    let other = other.sign(&origin).await;
    let refused = authority
        .ledger
        .renew_shown(&issuer, &other, LIFETIME, &actor);
    assert!(matches!(refused.await, Err(RenewFault::NoRequest { .. })));
    let renewed = authority
        .ledger
        .renew_shown(&issuer, &old, LIFETIME, &actor);
    let renewed = Certificate::parse(renewed.await.unwrap().der()).unwrap();
    assert_eq!(renewed.spki_der(), old.spki_der());
    let shown = authority.ledger.newest(&issuer, "web01").await;
    assert_eq!(shown.unwrap().unwrap().serial, renewed.serial());
}

/// An imported CA, or a version that knew nothing of such keys, has certified one for which anybody could sign.
#[tokio::test(flavor = "multi_thread")]
async fn a_weak_key_that_was_taken_over_is_not_renewed() {
    let weak = keys::roca_spki_der();
    let origin = World::new(true).await;
    let old = Before {
        spki_der: &weak,
        ..Before::plain(77, "web01")
    };
    let old = old.sign(&origin).await;
    let authority = taken_over(&origin, vec![entry_of(&old)]).await;
    let refused = renew(&authority, old.serial(), LIFETIME).await;
    let Err(RenewFault::Unsignable { fault, .. }) = &refused else {
        panic!("{refused:?}");
    };
    let weakness = Weakness::Key(KeyFault::Roca);
    assert_eq!(*fault, ProfileFault::Weak { weakness });
}

/// One agent made thousands of certificates in seconds, each of which is on the CRL when its name is revoked.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_renewed_a_few_times_in_a_while() {
    let world = World::new(true).await;
    let first = issue(&world.authority, &CsrBuilder::new("web01"), "web01").await;
    let renewals = (0..20).map(|_| {
        let (authority, serial) = (world.authority.clone(), first.serial());
        tokio::spawn(async move { renew(&authority, serial, LIFETIME).await.unwrap() })
    });
    let renewed = futures_util::future::join_all(renewals).await;
    let serials: BTreeSet<_> = renewed
        .iter()
        .map(|one| one.as_ref().unwrap().serial())
        .collect();
    assert_eq!(serials.len(), AT_ONCE, "the others get one it has");
    assert!(!serials.contains(&first.serial()));
    let second = *serials.first().unwrap();
    for _ in 0..3 {
        let again = renew(&world.authority, second, LIFETIME).await.unwrap();
        assert!(serials.contains(&again.serial()));
    }
    let count = async || {
        let all = world.authority.ledger.of_name(&issuer_id(), "web01").await;
        all.unwrap().len()
    };
    assert_eq!(count().await, 1 + AT_ONCE);

    // Shorter ones are to be made from now on: what it has lives too long.
    let short = renew(&world.authority, second, DAY).await.unwrap();
    assert!(!serials.contains(&short.serial()));
    assert_eq!(count().await, 2 + AT_ONCE);
    // A renewal that was revoked is nobody's answer.
    let (reason, actor) = (RevocationReason::Superseded, act("x").actor);
    let serials: BTreeSet<_> = serials.into_iter().chain([short.serial()]).collect();
    for serial in &serials {
        let ledger = &world.authority.ledger;
        let issuer = issuer_id();
        let revoked = ledger.revoke_serial(&issuer, serial, reason, &actor);
        revoked.await.unwrap();
    }
    let third = renew(&world.authority, first.serial(), LIFETIME)
        .await
        .unwrap();
    assert!(!serials.contains(&third.serial()));
    world.clock.advance(PAUSE);
    let fourth = renew(&world.authority, third.serial(), LIFETIME)
        .await
        .unwrap();
    assert_ne!(fourth.serial(), third.serial());
}

/// So many renewals are granted at once.
const AT_ONCE: usize = 4;
