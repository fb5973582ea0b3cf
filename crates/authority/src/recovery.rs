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
use crate::engine::{Authority, Core};
use crate::faults::Broken;
use crate::issuance::{Draft, Intended};
use crate::issuer::IssuerId;
use crate::model::{Intent, RequestRecord, RequestState};
use crate::profile::Validity;
use crate::signing::{DraftFor, commit_broken};
use crate::store::{Change, CommitFault, Precondition, RequestUpdate, Write};

impl Authority {
    /// Voids abandoned intents and signs what they were for. Returns how many requests were completed.
    /// Run at start and from time to time; only a store that does not answer ends it early.
    pub async fn recover(&self) -> Result<usize, Broken> {
        let core = Arc::clone(&self.core);
        self.carry_through(async move { core.recover().await })
            .await
    }
}

/// When an issuer whose key failed is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    until: UnixTime,
    seconds: u64,
}

impl Core {
    async fn recover(&self) -> Result<usize, Broken> {
        let mut completed = 0;
        for intent in self.store.open_intents().await? {
            if !self.is_abandoned(&intent) || self.is_patient_with(&intent.issuer) {
                continue;
            }
            match self.redo(&intent).await {
                Ok(done) => completed += usize::from(done),
                Err(Broken::Store(fault)) => return Err(fault.into()),
                Err(fault) => {
                    warn!(issuer = %intent.issuer, serial = %intent.serial, request = %intent.request, %fault, "not completed");
                    if matches!(fault, Broken::Sign(_)) {
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

    /// Replaces an abandoned intent by a new one and carries that through, or ends the matter.
    async fn redo(&self, intent: &Intent) -> Result<bool, Broken> {
        let Some(record) = self.store.request(intent.request).await? else {
            return self.void(intent, None).await.map(|()| false);
        };
        if record.state != RequestState::Approved {
            return self.void(intent, None).await.map(|()| false);
        }
        let draft = match self.redraft(&record, intent) {
            Redrafted::Draft(draft) => *draft,
            Redrafted::Never(reason) => {
                warn!(door = %record.door, name = ?record.key, request = %record.id, reason, "failed");
                return self
                    .void(intent, Some((&record, reason)))
                    .await
                    .map(|()| false);
            }
            // Its signer or issuer is not configured: it waits for the day it is again.
            Redrafted::NotNow => return Ok(false),
            Redrafted::Broken(fault) => return Err(fault),
        };
        let flight = self.in_flight(&draft);
        let change = Change {
            preconditions: vec![
                open(intent),
                Precondition::RequestAt {
                    id: record.id,
                    version: record.version,
                },
            ],
            // The update changes nothing but the version, so that of two who try only one succeeds.
            writes: vec![
                Write::VoidIntent {
                    issuer: intent.issuer.clone(),
                    serial: intent.serial,
                },
                Write::UpdateRequest(RequestUpdate::none(&record)),
                Write::Intend(draft.intent().clone()),
            ],
            audit: vec![self.voided(intent, "its owner did not complete it")],
        };
        match self.commit(change).await {
            Ok(_) => {}
            // Completed or taken up by somebody else meanwhile.
            Err(CommitFault::Conflict { .. }) => return Ok(false),
            Err(other) => return Err(commit_broken(other)),
        }
        self.complete(Intended::after_durable_commit(draft), record.retained)
            .await?;
        drop(flight);
        self.patience
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&intent.issuer);
        Ok(true)
    }

    /// The certificate of an approval on record, once more: examined as if it came in now.
    fn redraft(&self, record: &RequestRecord, intent: &Intent) -> Redrafted {
        let Some(signer) = self.signer(&record.signer) else {
            return Redrafted::NotNow;
        };
        if !self.issuers.contains_key(&signer.issuer) {
            return Redrafted::NotNow;
        }
        if intent.not_after <= self.clock.now() {
            return Redrafted::Never("it would have ended before it was signed".to_owned());
        }
        let csr = match CheckedCsr::trusted_from_store(&record.csr_der) {
            Ok(csr) => csr,
            Err(fault) => {
                return Redrafted::Never(format!("the stored request cannot be read: {fault}"));
            }
        };
        if let Err(fault) = signer.profile.examine(&csr, &record.key, &record.wishes) {
            return Redrafted::Never(fault.to_string());
        }
        let Some(approval) = Approval::from_recorded_decision(record.explanation.clone()) else {
            return Redrafted::Never("its approval is not on record".to_owned());
        };
        let of = DraftFor {
            id: record.id,
            csr: &csr,
            key: &record.key,
            wishes: &record.wishes,
            validity: Validity {
                not_before: intent.not_before,
                not_after: intent.not_after,
            },
        };
        match self.draft(approval, &signer, of) {
            Ok(draft) => Redrafted::Draft(Box::new(draft)),
            Err(Broken::Draft(fault)) => Redrafted::Never(fault.to_string()),
            Err(fault) => Redrafted::Broken(fault),
        }
    }

    /// Burns the serial of an intent; with a record and a reason, the request has failed for good.
    pub(crate) async fn void(
        &self,
        intent: &Intent,
        failed: Option<(&RequestRecord, String)>,
    ) -> Result<(), Broken> {
        let void = Write::VoidIntent {
            issuer: intent.issuer.clone(),
            serial: intent.serial,
        };
        let mut change = Change {
            preconditions: vec![open(intent)],
            writes: vec![void],
            audit: vec![self.voided(intent, "its request is not to be signed any more")],
        };
        if let Some((record, reason)) = failed {
            let unchanged = Precondition::RequestAt {
                id: record.id,
                version: record.version,
            };
            change.preconditions.push(unchanged);
            change.audit.push(AuditEntry {
                action: "fail".into(),
                subject: format!("{}/{}", record.door, record.key),
                ..self.voided(intent, &reason)
            });
            change.writes.push(Write::UpdateRequest(RequestUpdate {
                state: RequestState::Failed,
                failure: Some(reason),
                ..RequestUpdate::none(record)
            }));
        }
        match self.commit(change).await {
            Ok(_) | Err(CommitFault::Conflict { .. }) => Ok(()),
            Err(other) => Err(commit_broken(other)),
        }
    }

    fn voided(&self, intent: &Intent, why: &str) -> AuditEntry {
        let subject = format!("{}/{}", intent.issuer, intent.serial);
        AuditEntry::own(self.clock.now(), "void", subject)
            .request(&intent.request)
            .certname(&intent.name)
            .key(&intent.key_fingerprint)
            .serial(&intent.serial)
            .detail(why)
    }
}

/// What can be made of an approval whose first intent was abandoned.
enum Redrafted {
    Draft(Box<Draft>),
    Never(String),
    NotNow,
    Broken(Broken),
}

fn open(intent: &Intent) -> Precondition {
    Precondition::IntentOpen {
        issuer: intent.issuer.clone(),
        serial: intent.serial,
        owner: None,
    }
}

/// The first pause after a key failed, in seconds; doubled each time.
const FIRST_PAUSE: u64 = 5;
const LONGEST_PAUSE: u64 = 300;
