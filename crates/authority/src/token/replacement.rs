//! A token that may replace the name's certificate: the old one is revoked with the approval of the new one.

use countersign_pki::RevocationReason;
use tokio::sync::MutexGuard;
use tracing::warn;

use crate::crl::Publish;
use crate::engine::Core;
use crate::ledger::revocation::Revocations;
use crate::model::{LedgerEntry, Revision, Revocation, Revoked};

/// Certificates that are about to be replaced. Nobody else revokes anything of its issuer meanwhile.
pub(crate) struct Revoking<'a> {
    covers: MutexGuard<'a, Revision>,
    revocations: &'a Revocations,
    due: Vec<(LedgerEntry, Revocation)>,
}

impl Revoking<'_> {
    /// What is to be revoked.
    pub(crate) fn due(&self) -> &[(LedgerEntry, Revocation)] {
        &self.due
    }
}

impl Core {
    /// Prepares to replace a certificate.
    pub(crate) async fn revoking(&self, replaced: &[LedgerEntry]) -> Option<Revoking<'_>> {
        let issuer = &replaced.first()?.issuer;
        let revocations = self.revocations.get(issuer)?;
        let covers = revocations.revoking.lock().await;
        let now = self.clock.now();
        let revoked = Revoked {
            at: now,
            reason: RevocationReason::Superseded,
        };
        let live = replaced.iter().filter(|entry| entry.not_after >= now);
        let due = live.filter_map(|entry| {
            let due = revocations.due(entry, revoked)?;
            Some((entry.clone(), due))
        });
        Some(Revoking {
            due: due.collect(),
            covers,
            revocations,
        })
    }

    /// The old certificates are revoked: every door knows, and the CRL follows.
    pub(crate) async fn revoked_for_another(&self, revoking: Revoking<'_>, revision: Revision) {
        let Revoking {
            mut covers,
            revocations,
            due,
        } = revoking;
        let Some((entry, _)) = due.first().cloned() else {
            return;
        };
        *covers = revision;
        revocations.add(due.into_iter().map(|(_, due)| due).collect());
        drop(covers);
        if let Err(fault) = self
            .publish_crl(&entry.issuer, revision, Publish::IfBehind)
            .await
        {
            warn!(issuer = %entry.issuer, %fault, "the CRL was not published; upkeep makes up for it");
        }
    }
}
