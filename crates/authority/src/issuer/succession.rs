//! An issuer that goes on with another key or certificate, and one that comes while others work.
//!
//! Its name, its ledger, its revocations and the count of its serials go on. What is drafted from now on names the new
//! certificate; what was drafted before is signed with the key before, which the key store keeps for a while.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use tracing::info;

use crate::audit::AuditEntry;
use crate::crl::Publish;
use crate::detached::run_detached;
use crate::engine::{Core, counter};
use crate::faults::EngineError;
use crate::issuer::Issuers;
use crate::issuer::keystore::SignFault;
use crate::issuer::{Issuer, IssuerId};
use crate::issuing::commit_broken;
use crate::ledger::revocation::Revocations;
use crate::store::Change;

impl Issuers {
    /// Puts an issuer in the place of the one of its name. The key store must have the new key, and still have the one
    /// before. The replacement is on record before it is in force; an error says that it is not.
    pub async fn replace(&self, issuer: Issuer) -> Result<(), EngineError> {
        let core = Arc::clone(&self.core);
        run_detached(async move { core.replace_issuer(issuer).await }).await
    }

    /// Takes one more issuer. The key store must have its key. Whatever the store knows of it counts: its revocations, the
    /// count of its serials. It signs when a signer of the rules in force names it. The same one may be added again after
    /// an error.
    ///
    /// # Errors
    /// If the store does not answer, or there is another issuer of that name.
    pub async fn add(&self, issuer: Issuer) -> Result<(), EngineError> {
        let core = Arc::clone(&self.core);
        run_detached(async move { core.add_issuer(issuer).await }).await
    }

    /// Publishes what follows from a replacement that is in force: the CRLs of the issuer, with its new key and beside those
    /// of the CAs that are above it now. It may be called again until it succeeds.
    pub async fn announce(&self, id: &IssuerId) -> Result<(), EngineError> {
        let (core, id) = (Arc::clone(&self.core), id.clone());
        run_detached(async move { core.announce_issuer(&id).await }).await
    }
}

impl Core {
    async fn add_issuer(&self, issuer: Issuer) -> Result<(), EngineError> {
        let id = issuer.id().clone();
        if let Some(next) = counter(&*self.store, &issuer).await? {
            // Of an earlier try that was cut short, if there is one: that has gone on counting.
            let _known = self.serials.add(id.clone(), AtomicU64::new(next));
        }
        let (subject, until) = (
            issuer.certificate().subject().to_string(),
            issuer.not_after(),
        );
        let fingerprint = issuer.certificate().fingerprint();
        let added = self.issuers.add(id.clone(), ArcSwap::from_pointee(issuer));
        if added.is_err() && self.issuer(&id)?.certificate().fingerprint() != fingerprint {
            return Err(EngineError::Defect);
        }
        let _new = self.revocations.add(id.clone(), Revocations::default());
        let unknown = || SignFault::UnknownIssuer { issuer: id.clone() };
        let revocations = self.revocations.get(&id).ok_or_else(unknown)?;
        self.load_revocations_of(&id, revocations).await?;
        info!(issuer = %id, subject, %until, "one more issuer");
        Ok(())
    }

    async fn replace_issuer(&self, issuer: Issuer) -> Result<(), EngineError> {
        let id = issuer.id().clone();
        let unknown = || SignFault::UnknownIssuer { issuer: id.clone() };
        let slot = self.issuers.get(&id).ok_or_else(unknown)?;
        let (before, after) = (slot.load_full(), issuer.certificate());
        let detail = format!(
            "certificate {} in place of {}",
            after.fingerprint().to_hex(),
            before.certificate().fingerprint().to_hex()
        );
        let entry = AuditEntry::own(self.clock.now(), "replace-issuer", id.to_string())
            .serial(&after.serial())
            .detail(&detail);
        let change = Change {
            audit: vec![entry],
            ..Change::default()
        };
        self.commit(change).await.map_err(commit_broken)?;
        let issuer = Arc::new(issuer);
        slot.store(Arc::clone(&issuer));
        info!(issuer = %id, subject = %issuer.certificate().subject(), until = %issuer.not_after(), "goes on with another CA certificate");
        Ok(())
    }

    async fn announce_issuer(&self, id: &IssuerId) -> Result<(), EngineError> {
        let unknown = || SignFault::UnknownIssuer { issuer: id.clone() };
        let revocations = self.revocations.get(id).ok_or_else(unknown)?;
        self.load_ancestors(&*self.issuer(id)?, revocations).await?;
        let covers = *revocations.revoking.lock().await;
        self.publish_crl(id, covers, Publish::Always).await
    }
}
