//! Entries leave the CRL before their time, because an administrator said so.
//!
//! What is taken off a CRL stays revoked: the authority itself goes on refusing it. Only those who know nothing but the
//! CRL see it as good again. Who revokes it once more puts it back.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use countersign_pki::{Crl, Serial, UnixTime};
use countersign_policy::Requester;
use tracing::info;

use crate::audit::AuditEntry;
use crate::authorisation::actor::Actor;
use crate::crl::Publish;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::faults::{EngineError, RevokeFault};
use crate::issuer::IssuerId;
use crate::issuing::commit_broken;
use crate::ledger::Ledger;
use crate::ledger::revocation::Revocations;
use crate::model::{CrlScope, LedgerEntry, Revocation};
use crate::store::{Change, StoreFault, Write};

impl Ledger {
    /// Takes certificates off the published CRL and publishes the next one, if any of them was on it; answers with how
    /// many were. They stay revoked here.
    pub async fn unlist(
        &self,
        issuer: &IssuerId,
        serials: BTreeSet<Serial>,
        actor: &Actor,
    ) -> Result<usize, RevokeFault> {
        let core = Arc::clone(&self.core);
        let (issuer, actor) = (issuer.clone(), actor.clone());
        run_detached(async move {
            core.authorise_unlisting(&issuer, &actor).await?;
            core.unlist(&issuer, &serials, &actor.requester).await
        })
        .await
    }

    /// What stands on the published CRL, as the index knows it.
    pub fn on_crl(&self, issuer: &IssuerId) -> Vec<Revocation> {
        let revocations = self.core.revocations.get(issuer);
        revocations.map(Revocations::listed).unwrap_or_default()
    }

    /// Every certificate of a name: ended, revoked and retired ones included, newest first.
    pub async fn of_name(
        &self,
        issuer: &IssuerId,
        name: &str,
    ) -> Result<Vec<LedgerEntry>, StoreFault> {
        self.core
            .store
            .certificates_of(issuer, name, UnixTime(i64::MIN))
            .await
    }
}

impl Core {
    async fn unlist(
        &self,
        issuer: &IssuerId,
        serials: &BTreeSet<Serial>,
        actor: &Requester,
    ) -> Result<usize, RevokeFault> {
        let Some(revocations) = self.revocations.get(issuer) else {
            return Err(RevokeFault::UnknownIssuer {
                issuer: issuer.clone(),
            });
        };
        let mut covers = revocations.revoking.lock().await;
        let mut leaving = revocations.listed();
        leaving.retain(|one| serials.contains(&one.serial));
        if leaving.is_empty() {
            return Ok(0);
        }
        let now = self.clock.now();
        let mut change = Change::default();
        for one in &leaving {
            change.writes.push(Write::Unlist {
                issuer: issuer.clone(),
                serial: one.serial,
            });
            let subject = format!("{issuer}/{}", one.serial);
            let entry = AuditEntry::new(now, actor.clone(), "unlist", subject);
            change.audit.push(entry.serial(&one.serial));
        }
        let committed = self.commit(change).await;
        *covers = committed.map_err(commit_broken)?.revision;
        let reached = *covers;
        {
            let mut index = revocations
                .index
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            for one in &leaving {
                info!(%issuer, serial = %one.serial, %actor, "taken off the CRL");
                if let Some(entry) = index.get_mut(&one.serial) {
                    entry.listed = false;
                }
            }
        }
        drop(covers);
        self.publish_crl(issuer, reached, Publish::IfBehind)
            .await
            .map_err(|fault: EngineError| RevokeFault::from(fault))?;
        Ok(leaving.len())
    }
}

impl Revocations {
    fn listed(&self) -> Vec<Revocation> {
        let published = self.published(CrlScope::Full).load_full();
        let Some(crl) = published.and_then(|state| Crl::parse(&state.record.der).ok()) else {
            return Vec::new();
        };
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let known = crl.serials().filter_map(|serial| index.get(&serial));
        known.filter(|one| one.listed).cloned().collect()
    }
}
