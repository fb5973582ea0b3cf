//! A token that may replace the name's certificate: the old one is revoked with the approval of the new one.

use countersign_pki::{RevocationReason, UnixTime};
use countersign_policy::Requester;
use tokio::sync::MutexGuard;
use tracing::warn;

use crate::crl::Publish;
use crate::engine::Core;
use crate::model::{LedgerEntry, Revision, Revocation, Revoked};
use crate::revocation::Revocations;
use crate::signer::Signer;
use crate::store::{Change, Write};

/// Certificates that are about to be replaced. Nobody else revokes anything of its issuer meanwhile.
pub(crate) struct Revoking<'a> {
    covers: MutexGuard<'a, Revision>,
    revocations: &'a Revocations,
    entries: Vec<LedgerEntry>,
    due: Vec<(LedgerEntry, Revocation)>,
    /// Whether the name has one certificate at a time.
    retires: bool,
}

impl Revoking<'_> {
    /// Puts the end of the old certificate before what the change writes of the new one, which must not end with it.
    pub(crate) fn write(&self, change: &mut Change, actor: &Requester, at: UnixTime) {
        let rest = std::mem::take(&mut change.writes);
        for (entry, due) in &self.due {
            change.writes.push(Write::Revoke(due.clone()));
            let detail = "its name's enrolment token may replace it";
            let audit = entry.revoked_by(actor, due.revoked).detail(detail);
            change.audit.push(audit);
        }
        if let Some(entry) = self.entries.first().filter(|_| self.retires) {
            change.retire(&entry.issuer, &entry.name, actor, at);
        }
        change.writes.extend(rest);
    }
}

impl Core {
    /// Prepares to replace a certificate.
    pub(crate) async fn revoking(
        &self,
        replaced: &[LedgerEntry],
        signer: Option<&Signer>,
    ) -> Option<Revoking<'_>> {
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
            entries: replaced.to_vec(),
            retires: signer.is_some_and(|signer| signer.one_certificate_per_name),
        })
    }

    /// The old certificates are revoked: every door knows, and the CRL follows.
    pub(crate) async fn revoked_for_another(&self, revoking: Revoking<'_>, revision: Revision) {
        let Revoking {
            mut covers,
            revocations,
            due,
            entries: _,
            retires: _,
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
