//! Faults between intent and record, without the death of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_authority::store::Past;
use countersign_authority::{IssuerId, KeyStore, RequestState, SignFault, Signature, SubmitFault};
use countersign_pki::SignatureAlgorithm;
use futures_util::future::BoxFuture;

use crate::world::{self, DOOR, TestClock, issuer_id, submission};

/// Keys that can be switched off, or made to lie.
struct Faulty<K> {
    keys: K,
    fails: AtomicBool,
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
        message: Vec<u8>,
    ) -> BoxFuture<'_, Result<Signature, SignFault>> {
        let issuer = issuer.clone();
        Box::pin(async move {
            if self.fails.load(Ordering::SeqCst) {
                return Err(SignFault::Failed { issuer });
            }
            let mut signature = self.keys.sign(&issuer, message).await?;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_fails_or_lies_costs_a_serial_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    world::prepare(folder.path()).await;
    let keys = Arc::new(Faulty {
        keys: world::keys(folder.path()),
        fails: AtomicBool::new(false),
        lies: AtomicBool::new(false),
    });
    let store = Arc::new(world::store(folder.path()));
    let authority =
        world::authority(folder.path(), store, keys.clone(), TestClock::new(), true).await;

    for (name, fault) in [("failing", &keys.fails), ("lying", &keys.lies)] {
        fault.store(true, Ordering::SeqCst);
        let refused = authority.submit(submission(name)).await;
        assert!(
            matches!(refused, Err(SubmitFault::Broken(_))),
            "{name}: {refused:?}"
        );
        assert!(
            authority
                .newest_certificate(&issuer_id(), name)
                .await
                .unwrap()
                .is_none(),
            "{name}"
        );
        let record = authority
            .request_at(&DOOR, name, Past::Ignore)
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
        let entry = authority
            .newest_certificate(&issuer_id(), name)
            .await
            .unwrap();
        assert!(entry.is_some(), "{name}: signed when the key is back");
        assert_eq!(authority.recover().await.unwrap(), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crl_that_failed_is_published_by_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    world::prepare(folder.path()).await;
    let keys = Arc::new(Faulty {
        keys: world::keys(folder.path()),
        fails: AtomicBool::new(false),
        lies: AtomicBool::new(false),
    });
    let store = Arc::new(world::store(folder.path()));
    let authority =
        world::authority(folder.path(), store, keys.clone(), TestClock::new(), true).await;
    let listed = || {
        let crl = authority.crl(&issuer_id()).unwrap();
        countersign_pki::Crl::parse(&crl.record.der)
            .unwrap()
            .entries()
            .len()
    };
    let reason = countersign_pki::RevocationReason::KeyCompromise;
    let actor = world::act("x").actor;
    for (round, name) in ["first", "second"].into_iter().enumerate() {
        let issued = authority
            .submit(submission(name))
            .await
            .unwrap()
            .issued
            .unwrap();
        keys.fails.store(true, Ordering::SeqCst);
        let failed = authority
            .revoke_name(&issuer_id(), name, reason, &actor)
            .await;
        assert!(failed.is_err(), "an incomplete CRL was acknowledged");
        assert!(
            authority.is_revoked(&issuer_id(), &issued.intent().serial),
            "it is revoked all the same"
        );
        assert_eq!(listed(), round);
        keys.fails.store(false, Ordering::SeqCst);
        if round == 0 {
            assert_eq!(
                authority
                    .revoke_name(&issuer_id(), name, reason, &actor)
                    .await
                    .unwrap(),
                0
            );
        } else {
            authority.refresh_crls().await.unwrap();
        }
        assert_eq!(listed(), round + 1);
    }
}
