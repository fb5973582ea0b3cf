//! What an earlier process, or a failed store or key, left between intent and record.
//!
//! An intent whose owner is dead, or whose lease has ended, is voided: its serial is burned and never
//! reused. The approval it rested on is on record, so the request is drafted anew, with the validity it
//! was first given.

use std::sync::Arc;

use countersign_pki::CheckedCsr;
use countersign_policy::{Approval, Requester};

use crate::engine::{Authority, Core};
use crate::faults::Broken;
use crate::issuance::Intended;
use crate::model::{AuditEntry, Intent, RequestRecord, RequestState};
use crate::profile::Validity;
use crate::signing::{DraftFor, commit_broken};
use crate::store::{Change, CommitFault, Precondition, RequestUpdate, Write};

impl Authority {
    /// Voids abandoned intents and signs what was approved. Returns how many requests were completed.
    /// Run at start and from time to time.
    pub async fn recover(&self) -> Result<usize, Broken> {
        let core = Arc::clone(&self.core);
        self.carry_through(async move { core.recover().await })
            .await
    }
}

impl Core {
    async fn recover(&self) -> Result<usize, Broken> {
        let mut completed = 0;
        for intent in self.store.open_intents().await? {
            if self.is_abandoned(&intent) {
                completed += usize::from(self.redo(&intent).await?);
            }
        }
        for record in self.store.approved_without_intent().await? {
            completed += usize::from(self.sign_approved(&record, None).await?);
        }
        Ok(completed)
    }

    fn is_abandoned(&self, intent: &Intent) -> bool {
        if intent.owner == self.owner {
            return !self.is_in_flight(&intent.issuer, &intent.serial);
        }
        self.store.is_exclusive() || intent.lease_until < self.clock.now()
    }

    async fn redo(&self, intent: &Intent) -> Result<bool, Broken> {
        let change = Change {
            preconditions: vec![Precondition::IntentOpen {
                issuer: intent.issuer.clone(),
                serial: intent.serial,
                owner: None,
            }],
            writes: vec![Write::VoidIntent {
                issuer: intent.issuer.clone(),
                serial: intent.serial,
            }],
            audit: vec![AuditEntry {
                at: self.clock.now(),
                actor: Requester::authority(),
                action: "void".into(),
                subject: format!("{}/{}", intent.issuer, intent.serial),
                request: Some(intent.request.to_string()),
                detail: "its owner did not complete it".to_owned(),
            }],
        };
        match self.store.commit(change).await {
            Ok(_) => {}
            // Completed or voided meanwhile.
            Err(CommitFault::Conflict { .. }) => return Ok(false),
            Err(other) => return Err(commit_broken(other)),
        }
        let validity = Validity {
            not_before: intent.not_before,
            not_after: intent.not_after,
        };
        match self.store.request(intent.request).await? {
            Some(record) => self.sign_approved(&record, Some(validity)).await,
            None => Ok(false),
        }
    }

    /// Drafts, signs and records a request whose approval is on record.
    async fn sign_approved(
        &self,
        record: &RequestRecord,
        validity: Option<Validity>,
    ) -> Result<bool, Broken> {
        let Some(signer) = self.signers.get(&record.signer) else {
            return Ok(false);
        };
        if record.state != RequestState::Approved {
            return Ok(false);
        }
        let Some(approval) = Approval::from_recorded_decision(record.explanation.clone()) else {
            return Ok(false);
        };
        let csr = CheckedCsr::trusted_from_store(&record.csr_der).map_err(|source| {
            Broken::StoredRequest {
                id: record.id,
                source,
            }
        })?;
        let validity = match validity {
            Some(validity) => validity,
            None => {
                let issuer = self.issuer(&signer.issuer)?;
                let asked = record.wishes.expiration_seconds;
                signer.profile.validity(asked, self.clock.now(), issuer)?
            }
        };
        let of = DraftFor {
            id: record.id,
            csr: &csr,
            key: &record.key,
            wishes: &record.wishes,
            validity,
        };
        let draft = self.draft(approval, signer, of)?;
        let _flight = self.in_flight(&draft);
        let change = Change {
            preconditions: vec![Precondition::RequestAt {
                id: record.id,
                version: record.version,
            }],
            // The update changes nothing but the version, so that of two who try only one succeeds.
            writes: vec![
                Write::UpdateRequest(RequestUpdate::none(record)),
                Write::Intend(draft.intent().clone()),
            ],
            audit: Vec::new(),
        };
        match self.store.commit(change).await {
            Ok(_) => {}
            Err(CommitFault::Conflict { .. }) => return Ok(false),
            Err(other) => return Err(commit_broken(other)),
        }
        self.complete(Intended::after_durable_commit(draft), record.retained)
            .await?;
        Ok(true)
    }
}
