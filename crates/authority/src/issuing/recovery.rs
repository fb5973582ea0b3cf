//! What an earlier process, or a failed store or key, left between intent and record.
//!
//! An intent whose owner is dead, or whose lease has ended, is voided: its serial is burned and never
//! reused. The approval it rested on is on record, so the request is drafted anew in the same commit,
//! with the validity it was first given. What can no longer be signed as it was approved is marked as
//! failed; one such request never holds up another.

use std::sync::{Arc, PoisonError};

use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::Approval;
use tracing::warn;

use crate::audit::AuditEntry;
use crate::detached::run_detached;
use crate::engine::{Authority, Core};
use crate::evidence::evaluation::Gathered;
use crate::faults::EngineError;
use crate::issuer::IssuerId;
use crate::issuing::{
    Conflict, Decided, Order, PlannedValidity, Standing, commit_broken, void, voided,
};
use crate::model::{Intent, RequestRecord, RequestState};
use crate::profile::Validity;
use crate::rules::Rules;
use crate::store::{CommitFault, Precondition, RequestUpdate, Write};

impl Authority {
    /// Voids abandoned intents and signs what they were for. Returns how many requests were completed.
    /// Run at start and from time to time; only a store that does not answer ends it early.
    pub async fn recover(&self) -> Result<usize, EngineError> {
        let core = Arc::clone(&self.core);
        run_detached(async move { core.recover().await }).await
    }
}

/// When an issuer whose key failed is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    until: UnixTime,
    seconds: u64,
}

impl Core {
    async fn recover(&self) -> Result<usize, EngineError> {
        let mut completed = 0;
        for intent in self.store.open_intents().await? {
            if !self.is_abandoned(&intent) || self.is_patient_with(&intent.issuer) {
                continue;
            }
            match self.redo(&intent).await {
                Ok(done) => completed += usize::from(done),
                Err(EngineError::Store(fault)) => return Err(fault.into()),
                Err(fault) => {
                    warn!(issuer = %intent.issuer, serial = %intent.serial, request = %intent.request, %fault, "not completed");
                    if matches!(fault, EngineError::Sign(_)) {
                        self.be_patient_with(&intent.issuer);
                    }
                }
            }
        }
        Ok(completed)
    }

    fn is_abandoned(&self, intent: &Intent) -> bool {
        if intent.owner == self.owner {
            return !self.is_in_flight(&intent.issuer, &intent.serial);
        }
        self.store.is_exclusive() || intent.lease_until < self.clock.now()
    }

    /// Each attempt costs a serial, so a key that fails is asked less and less often.
    fn be_patient_with(&self, issuer: &IssuerId) {
        let now = self.clock.now();
        let mut patience = self.patience.lock().unwrap_or_else(PoisonError::into_inner);
        let before = patience
            .get(issuer)
            .map_or(FIRST_PAUSE, |known| known.seconds);
        let seconds = before.saturating_mul(2).min(LONGEST_PAUSE);
        patience.insert(
            issuer.clone(),
            Patience {
                until: now.plus_seconds(before),
                seconds,
            },
        );
    }

    fn is_patient_with(&self, issuer: &IssuerId) -> bool {
        let patience = self.patience.lock().unwrap_or_else(PoisonError::into_inner);
        patience
            .get(issuer)
            .is_some_and(|known| self.clock.now() < known.until)
    }

    /// Replaces an abandoned intent by a new one and carries that through, or ends it.
    async fn redo(&self, intent: &Intent) -> Result<bool, EngineError> {
        let record = match &intent.deferred {
            Some(deferred) => Some(RequestRecord::clone(&deferred.request)),
            None => self.store.request(intent.request).await?,
        };
        let is_approved = |record: &RequestRecord| record.state == RequestState::Approved;
        let Some(record) = record.filter(is_approved) else {
            return self.void(intent).await.map(|()| false);
        };
        let rules = self.rules.load_full();
        let (csr, approval) = match self.still_signable(&record, intent, &rules) {
            Ok(signable) => signable,
            Err(Hindrance::Never(reason)) => {
                return self.fail(intent, &record, reason).await.map(|()| false);
            }
            // Its signer or issuer is not configured: it waits for the day it is again.
            Err(Hindrance::NotNow) => return Ok(false),
        };
        let signer = rules.signer(&record.signer);
        let order = Order {
            case: record.case(signer.as_deref(), &csr),
            decision: Decided {
                state: RequestState::Approved,
                explanation: record.explanation.clone(),
                evidence: None,
                failure: None,
                uses: Vec::new(),
                approval: Some(approval),
            },
            standing: Standing::Abandoned {
                record: &record,
                intent,
            },
            rules: &rules,
            gathered: &Gathered::default(),
            at: self.clock.now(),
            validity: PlannedValidity::Fixed(Validity {
                not_before: intent.not_before,
                not_after: intent.not_after,
            }),
        };
        match self.carry_out(order).await {
            Ok(_) => {
                self.patience
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&intent.issuer);
                Ok(true)
            }
            // Completed or taken up by somebody else meanwhile.
            Err(
                Conflict::Rules
                | Conflict::Evidence
                | Conflict::Name
                | Conflict::Certificate
                | Conflict::Request
                | Conflict::Revoked,
            ) => Ok(false),
            Err(Conflict::Serial | Conflict::Overtaken) => Err(EngineError::Contended),
            Err(Conflict::Engine(EngineError::Draft(fault))) => {
                let reason = fault.to_string();
                self.fail(intent, &record, reason).await.map(|()| false)
            }
            Err(Conflict::Engine(fault)) => Err(fault),
        }
    }

    /// The approval on record, once more: examined as if the request came in now.
    fn still_signable(
        &self,
        record: &RequestRecord,
        intent: &Intent,
        rules: &Rules,
    ) -> Result<(CheckedCsr, Approval), Hindrance> {
        let never = |reason: String| Hindrance::Never(reason);
        let signer = rules.signer(&record.signer).ok_or(Hindrance::NotNow)?;
        if !self.issuers.contains_key(&signer.issuer) {
            return Err(Hindrance::NotNow);
        }
        if intent.not_after <= self.clock.now() {
            return Err(never("it would have ended before it was signed".to_owned()));
        }
        let csr = CheckedCsr::trusted_from_store(&record.csr_der)
            .map_err(|fault| never(format!("the stored request cannot be read: {fault}")))?;
        let examined = signer.profile.examine(&csr, &record.key, &record.wishes);
        examined.map_err(|fault| never(fault.to_string()))?;
        let approval = Approval::from_recorded_decision(record.explanation.clone());
        let approval = approval.ok_or_else(|| never("its approval is not on record".to_owned()))?;
        Ok((csr, approval))
    }

    /// Burns the serial of an intent whose request can no longer be signed as it was approved.
    async fn fail(
        &self,
        intent: &Intent,
        record: &RequestRecord,
        reason: String,
    ) -> Result<(), EngineError> {
        warn!(door = %record.door, name = record.key, request = %record.id, reason, "failed");
        let now = self.clock.now();
        let mut change = void(intent, now, "its request is not to be signed any more");
        if intent.deferred.is_none() {
            change.preconditions.push(Precondition::RequestAt {
                id: record.id,
                version: record.version,
            });
        }
        let failed = AuditEntry {
            action: "fail".into(),
            subject: format!("{}/{}", record.door, record.key),
            ..voided(intent, now, &reason)
        };
        change.audit.push(failed);
        change.writes.push(Write::UpdateRequest(RequestUpdate {
            state: RequestState::Failed,
            failure: Some(reason),
            ..RequestUpdate::none(record)
        }));
        match self.commit(change).await {
            Ok(_) | Err(CommitFault::Conflict { .. }) => Ok(()),
            Err(other) => Err(commit_broken(other)),
        }
    }
}

/// Why an approval whose first intent was abandoned is not signed.
enum Hindrance {
    Never(String),
    NotNow,
}

/// The first pause after a key failed, in seconds; doubled each time.
const FIRST_PAUSE: u64 = 5;
const LONGEST_PAUSE: u64 = 300;
