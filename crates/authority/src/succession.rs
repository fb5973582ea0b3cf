//! An issuer that goes on with another key or certificate.
//!
//! Its name, its ledger, its revocations and the count of its serials go on. What is drafted from now on names the new
//! certificate; what was drafted before is signed with the key before, which the key store keeps for a while.

use std::sync::Arc;

use tracing::info;

use crate::audit::AuditEntry;
use crate::crl::Publish;
use crate::engine::{Authority, Core};
use crate::faults::Broken;
use crate::issuer::{Issuer, IssuerId};
use crate::keystore::SignFault;
use crate::signing::commit_broken;
use crate::store::Change;

impl Authority {
    /// Puts an issuer in the place of the one of its name. The key store must have the new key, and still have the one
    /// before. The replacement is on record before it is in force; an error says that it is not.
    pub async fn replace_issuer(&self, issuer: Issuer) -> Result<(), Broken> {
        let core = Arc::clone(&self.core);
        self.carry_through(async move { core.replace_issuer(issuer).await })
            .await
    }

    /// Publishes what follows from a replacement that is in force: the CRLs of the issuer, with its new key and beside those
    /// of the CAs that are above it now. It may be called again until it succeeds.
    pub async fn announce_issuer(&self, id: &IssuerId) -> Result<(), Broken> {
        let (core, id) = (Arc::clone(&self.core), id.clone());
        self.carry_through(async move { core.announce_issuer(&id).await })
            .await
    }
}

impl Core {
    async fn replace_issuer(&self, issuer: Issuer) -> Result<(), Broken> {
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

    async fn announce_issuer(&self, id: &IssuerId) -> Result<(), Broken> {
        let unknown = || SignFault::UnknownIssuer { issuer: id.clone() };
        let revocations = self.revocations.get(id).ok_or_else(unknown)?;
        self.load_ancestors(&*self.issuer(id)?, revocations).await?;
        let covers = *revocations.revoking.lock().await;
        self.publish_crl(id, covers, Publish::Always).await
    }
}
