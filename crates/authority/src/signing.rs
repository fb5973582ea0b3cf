//! From an approval to a certificate on record: draft, signature, record.

use std::sync::Arc;

use countersign_pki::CheckedCsr;
use countersign_policy::{Approval, Wishes};

use tracing::info;

use crate::audit::AuditEntry;
use crate::engine::{Authority, Core};
use crate::faults::Broken;
use crate::issuance::{Draft, Intended, Issued};
use crate::model::{RequestId, RequestState, Revision};
use crate::profile::{Drafting, Validity};
use crate::signer::Signer;
use crate::store::{Change, CommitFault, Precondition, RequestUpdate, Write};
use crate::telemetry::Honored;
use crate::token::TokenId;

/// What a draft is made from.
pub(crate) struct DraftFor<'a> {
    pub(crate) id: RequestId,
    pub(crate) csr: &'a CheckedCsr,
    pub(crate) key: &'a str,
    pub(crate) wishes: &'a Wishes,
    pub(crate) validity: Validity,
}

impl Authority {
    /// Runs in a task of its own, so that a client who hangs up cannot stop it between its commits.
    pub(crate) async fn carry_through<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Broken> + Send + 'static,
    {
        tokio::spawn(work).await.unwrap_or_else(|ended| {
            Err(if ended.is_panic() {
                Broken::Defect
            } else {
                Broken::ShuttingDown
            }
            .into())
        })
    }
}

impl Core {
    pub(crate) fn draft(
        &self,
        approval: Approval,
        signer: &Signer,
        of: DraftFor<'_>,
    ) -> Result<Draft, Broken> {
        let issuer = self.issuer(&signer.issuer)?;
        let drafting = Drafting {
            request: of.id,
            csr: of.csr,
            key: of.key,
            wishes: of.wishes,
            signer: &signer.name,
            issuer: &issuer,
            serial: self.new_serial(&signer.issuer)?,
            // It may have been replaced since the validity was found.
            validity: of.validity.within(&issuer),
            owner: self.owner.clone(),
            lease_until: self.clock.now().plus_seconds(self.limits.lease_seconds),
        };
        Ok(signer.profile.draft(approval, drafting)?)
    }

    /// Signs what is intended and puts it on record, unless a signer elsewhere has settled the request meanwhile. On
    /// failure the intent stays open for recovery.
    pub(crate) async fn complete(
        &self,
        intended: Intended,
        retained: bool,
    ) -> Result<(Issued, Revision), Broken> {
        let unsettled = Precondition::RequestIn {
            id: intended.intent().request,
            state: RequestState::Approved,
        };
        self.complete_while(vec![unsettled], intended, retained)
            .await
    }

    /// The same, but only while something more is still true; else the intent is voided.
    pub(crate) async fn complete_while(
        &self,
        conditions: Vec<Precondition>,
        intended: Intended,
        retained: bool,
    ) -> Result<(Issued, Revision), Broken> {
        let intent = intended.intent();
        let (issuer, serial, request) = (intent.issuer.clone(), intent.serial, intent.request);
        let by = Arc::clone(intended.issuer());
        let signature = self.sign(&by, intended.to_be_signed()).await?;
        let sealed = intended.seal(&signature)?;
        let update = RequestUpdate {
            certificate: Some((issuer.clone(), serial)),
            ..RequestUpdate::to_state(request, RequestState::Issued, retained)
        };
        let audit = AuditEntry::own(self.clock.now(), "issue", format!("{issuer}/{serial}"))
            .request(&request)
            .certname(&sealed.intent().name)
            .key(&sealed.intent().key_fingerprint)
            .serial(&serial);
        let mut preconditions = conditions;
        preconditions.push(Precondition::IntentOpen {
            issuer,
            serial,
            owner: Some(self.owner.clone()),
        });
        preconditions.push(Precondition::RequestExists { id: request });
        let mut writes = vec![sealed.record(), Write::UpdateRequest(update)];
        let intent = sealed.intent();
        writes.extend(
            intent
                .explanation
                .token
                .as_ref()
                .map(|used| Write::TokenIssued {
                    id: TokenId::known(used.id.clone()),
                    certname: used.certname.clone(),
                    key_fingerprint: intent.key_fingerprint,
                    serial,
                }),
        );
        let change = Change {
            preconditions,
            writes,
            audit: vec![audit],
        };
        match self.commit(change).await {
            Ok(committed) => {
                let issued = Issued::after_durable_commit(sealed);
                let intent = issued.intent();
                if let Some(asked) = issued.asked_seconds() {
                    let honored = Honored::of(asked, intent.not_before, intent.not_after);
                    self.telemetry.lifetime(&intent.signer, honored);
                }
                info!(
                    issuer = %intent.issuer, serial = %intent.serial, signer = %intent.signer,
                    name = ?intent.name, request = %request, "issued"
                );
                Ok((issued, committed.revision))
            }
            Err(fault @ CommitFault::Conflict { .. }) => {
                // The request was deleted or settled from outside, or somebody voided the intent, or a condition ended: the name must
                // not stay taken.
                self.void(sealed.intent(), None).await?;
                Err(commit_broken(fault))
            }
            Err(fault) => Err(commit_broken(fault)),
        }
    }
}

/// A commit fault that the caller cannot act upon.
pub(crate) fn commit_broken(fault: CommitFault) -> Broken {
    match fault {
        CommitFault::Store(fault) => fault.into(),
        // A random serial of 127 bits that is taken, or an intent that somebody voided: try again.
        CommitFault::DuplicateSerial { .. } | CommitFault::Conflict { .. } => Broken::Contended,
    }
}

/// How often a change is tried anew when others were faster.
pub(crate) const MAX_TRIES: usize = 8;
