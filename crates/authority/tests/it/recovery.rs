//! Faults between intent and record, without the death of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_authority::store::Past;
use countersign_authority::{IssuerId, KeyStore, RequestState, SignFault, Signature, SubmitFault};
use countersign_pki::SignatureAlgorithm;
use futures_util::future::BoxFuture;

use crate::profiles;
use crate::world::{self, DOOR, TestClock, issuer_id, submission};

/// Keys that can be switched off, or made to lie.
pub(crate) struct Faulty<K> {
    keys: K,
    pub(crate) fails: AtomicBool,
    lies: AtomicBool,
}

impl<K: KeyStore> KeyStore for Faulty<K> {
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
            if self.fails.load(Ordering::SeqCst) {
                return Err(SignFault::Failed { issuer });
            }
            let mut signature = self.keys.sign(&issuer, &public_key, message).await?;
            if self.lies.load(Ordering::SeqCst) {
                signature.0.reverse();
            }
            Ok(signature)
        })
    }

    fn verify_each(&self, _issuer: &IssuerId) -> bool {
        true
    }
}

/// A folder with an issuer whose keys can be broken.
pub(crate) async fn faulty() -> (tempfile::TempDir, Arc<Faulty<countersign_keys::FileKeys>>) {
    let folder = tempfile::tempdir().unwrap();
    world::prepare(folder.path()).await;
    let keys = Faulty {
        keys: world::keys(folder.path()),
        fails: AtomicBool::new(false),
        lies: AtomicBool::new(false),
    };
    (folder, Arc::new(keys))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_fails_or_lies_costs_a_serial_and_nothing_else() {
    let (folder, keys) = faulty().await;
    let store = Arc::new(world::store(folder.path()));
    let authority =
        world::authority(folder.path(), store, keys.clone(), TestClock::new(), true).await;

    for (name, fault) in [("failing", &keys.fails), ("lying", &keys.lies)] {
        fault.store(true, Ordering::SeqCst);
        let refused = authority.requests.submit(submission(name)).await;
        assert!(
            matches!(refused, Err(SubmitFault::Engine(_))),
            "{name}: {refused:?}"
        );
        assert!(
            authority
                .ledger
                .newest(&issuer_id(), name)
                .await
                .unwrap()
                .is_none(),
            "{name}"
        );
        let record = authority
            .requests
            .at(&DOOR, name, Past::Ignore)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            record.state,
            RequestState::Approved,
            "{name}: the approval is on record"
        );

        fault.store(false, Ordering::SeqCst);
        assert_eq!(authority.recover().await.unwrap(), 1, "{name}");
        let entry = authority.ledger.newest(&issuer_id(), name).await.unwrap();
        assert!(entry.is_some(), "{name}: signed when the key is back");
        assert_eq!(authority.recover().await.unwrap(), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crl_that_failed_is_published_by_the_next_call() {
    let (folder, keys) = faulty().await;
    let store = Arc::new(world::store(folder.path()));
    let authority =
        world::authority(folder.path(), store, keys.clone(), TestClock::new(), true).await;
    let listed = || {
        let crl = authority.issuers.crl(&issuer_id()).unwrap();
        countersign_pki::Crl::parse(&crl.record.der)
            .unwrap()
            .entries()
            .len()
    };
    let reason = countersign_pki::RevocationReason::KeyCompromise;
    let actor = world::act("x").actor;
    for (round, name) in ["first", "second"].into_iter().enumerate() {
        let issued = authority
            .requests
            .submit(submission(name))
            .await
            .unwrap()
            .issued
            .unwrap();
        keys.fails.store(true, Ordering::SeqCst);
        let failed = authority
            .ledger
            .revoke_name(&issuer_id(), name, reason, &actor)
            .await;
        assert!(failed.is_err(), "an incomplete CRL was acknowledged");
        assert!(
            authority
                .ledger
                .is_revoked(&issuer_id(), &issued.intent().serial),
            "it is revoked all the same"
        );
        assert_eq!(listed(), round);
        keys.fails.store(false, Ordering::SeqCst);
        if round == 0 {
            assert_eq!(
                authority
                    .ledger
                    .revoke_name(&issuer_id(), name, reason, &actor)
                    .await
                    .unwrap(),
                0
            );
        } else {
            authority.issuers.refresh_crls().await.unwrap();
        }
        assert_eq!(listed(), round + 1);
    }
}

/// What was approved under a wider profile is not signed under a narrower one, nor once it has ended.
#[tokio::test(flavor = "multi_thread")]
async fn recovery_examines_anew_and_never_widens_or_outlives() {
    use countersign_authority::profile::OtherNames;

    let (folder, keys) = faulty().await;
    let clock = TestClock::new();
    let start = async |alt_names| {
        let settings = profiles::AgentSettings {
            alt_names,
            lifetime: 3600,
            ..world::settings()
        };
        let profiles = vec![(world::agent_signer(), profiles::agent(settings), true)];
        let store = Arc::new(world::store(folder.path()));
        let policy = world::policy(true);
        world::authority_with(
            folder.path(),
            store,
            keys.clone(),
            clock.clone(),
            policy,
            profiles,
        )
        .await
    };
    let wide = world::csr(
        &countersign_keys::LeafKey::generate().unwrap(),
        "wide",
        &[countersign_pki::AltName::Dns("other".to_owned())],
    );

    let authority = start(OtherNames::DnsAndIp).await;
    keys.fails.store(true, Ordering::SeqCst);
    for request in [
        world::with_csr("wide", wide),
        submission("late"),
        submission("good"),
    ] {
        authority.requests.submit(request).await.unwrap_err();
    }
    drop(authority);
    keys.fails.store(false, Ordering::SeqCst);

    // `late` is given up first, because its hour is over; then the narrow profile meets `wide`.
    let authority = start(OtherNames::Refused).await;
    let state = async |name: &str| {
        let found = authority
            .requests
            .at(&DOOR, name, Past::Include)
            .await
            .unwrap()
            .unwrap();
        (found.state, found.failure)
    };
    assert_eq!(
        state("good").await.0,
        RequestState::Issued,
        "one that fails holds up no other"
    );
    let (wide, why) = state("wide").await;
    assert_eq!(wide, RequestState::Failed);
    assert!(why.unwrap().contains("DNS:other"));
    assert!(
        authority
            .ledger
            .newest(&issuer_id(), "wide")
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_have_ended_is_not_signed_any_more() {
    let (folder, keys) = faulty().await;
    let clock = TestClock::new();
    let store = Arc::new(world::store(folder.path()));
    let authority =
        world::authority(folder.path(), store, keys.clone(), clock.clone(), false).await;
    authority.requests.submit(submission("late")).await.unwrap();
    keys.fails.store(true, Ordering::SeqCst);
    let act = countersign_authority::Act {
        lifetime: Some(3600),
        ..world::act("late")
    };
    authority.requests.approve(act).await.unwrap_err();
    keys.fails.store(false, Ordering::SeqCst);
    clock.advance(3601);
    assert_eq!(authority.recover().await.unwrap(), 0);
    let record = authority
        .requests
        .at(&DOOR, "late", Past::Include)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(record.state, RequestState::Failed);
    assert!(
        authority
            .ledger
            .newest(&issuer_id(), "late")
            .await
            .unwrap()
            .is_none()
    );
}

/// A request for a signer that is not ours stays unsigned when a signer of that name is declared later.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_approval_for_a_foreign_signer_is_not_signed_when_the_signer_becomes_ours() {
    let folder = tempfile::tempdir().unwrap();
    world::prepare(folder.path()).await;
    let start = async |profiles| {
        let (store, keys) = (world::store(folder.path()), world::keys(folder.path()));
        let policy = world::policy(false);
        let (store, keys) = (Arc::new(store), Arc::new(keys));
        world::authority_with(
            folder.path(),
            store,
            keys,
            TestClock::new(),
            policy,
            profiles,
        )
        .await
    };
    let authority = start(Vec::new()).await;
    authority
        .requests
        .submit(submission("early"))
        .await
        .unwrap();
    authority
        .requests
        .approve(world::act("early"))
        .await
        .unwrap();
    drop(authority);
    let profile = profiles::agent(world::settings());
    let authority = start(vec![(world::agent_signer(), profile, true)]).await;
    assert_eq!(authority.recover().await.unwrap(), 0);
    assert!(
        authority
            .ledger
            .newest(&issuer_id(), "early")
            .await
            .unwrap()
            .is_none()
    );
}

/// A clock that was ahead, at start or while a CRL was made, costs no revocation.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_ahead_loses_no_revocation() {
    let world = world::World::new(true).await;
    let issued = world
        .authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap()
        .issued
        .unwrap();
    let serial = issued.intent().serial;
    let reason = countersign_pki::RevocationReason::KeyCompromise;
    let actor = world::act("x").actor;
    world
        .authority
        .ledger
        .revoke_name(&issuer_id(), "web01", reason, &actor)
        .await
        .unwrap();

    let ahead = 6 * 365 * 86_400;
    world.clock.advance(ahead);
    let world = world.restart(true).await;
    world.authority.issuers.refresh_crls().await.unwrap();
    world.clock.advance(-ahead);
    assert!(world.authority.ledger.is_revoked(&issuer_id(), &serial));
    world.authority.issuers.refresh_crls().await.unwrap();
    let crl = world.authority.issuers.crl(&issuer_id()).unwrap();
    let parsed = countersign_pki::Crl::parse(&crl.record.der).unwrap();
    assert!(
        parsed.serials().any(|listed| listed == serial),
        "the entry is back on the CRL"
    );
    assert!(parsed.this_update() <= world.authority.now());
}
