//! What people do to a request that waits: approve it, deny it, delete it.

use std::sync::Arc;

use countersign_pki::{CheckedCsr, UnixTime, fingerprint_sha256};
use countersign_policy::{
    Approval, Evidence, Explanation, Outcome, PersonDecision, PersonVerdict, Request, Requester,
    Verdict, decide,
};

use tracing::info;

use crate::audit::AuditEntry;
use crate::engine::{Authority, Core, Rules};
use crate::faults::{ActFault, Broken};
use crate::issuance::Intended;
use crate::judgement::use_token;
use crate::model::{Door, RequestRecord, RequestState, Revision};
use crate::signing::{DraftFor, commit_broken};
use crate::store::{Change, CommitFault, Past, Precondition, RequestFilter, RequestUpdate, Write};
use crate::telemetry::{DecisionOutcome, PERSON};
use crate::token::{TokenId, masked_tokens};

/// A person's act on a request.
#[derive(Clone, Debug)]
pub struct Act {
    /// The door.
    pub door: Door,
    /// The request's name there.
    pub key: String,
    /// Who acts.
    pub actor: Requester,
    /// The reason given.
    pub reason: String,
    /// The version the person saw; `None`: whatever it is now.
    pub expected: Option<Revision>,
    /// The door's data, if the act changes them.
    pub attachment: Option<Vec<u8>>,
    /// A lifetime in seconds that the person chose.
    pub lifetime: Option<u64>,
    /// What happens when the signer could never sign it.
    pub on_unsignable: OnUnsignable,
}

/// What an approval does to a request that its signer could never sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnsignable {
    /// The approval is refused and nothing changes.
    Refuse,
    /// The approval is recorded, and the request marked as failed.
    RecordFailure,
}

impl Authority {
    /// A person approves a waiting request; it is signed before this returns.
    pub async fn approve(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let core = Arc::clone(&self.core);
        let door = act.door.clone();
        let acted = self
            .carry_through(async move { core.approve(act).await })
            .await;
        self.report_act(&door, &acted);
        acted
    }

    /// A person denies a waiting request.
    pub async fn deny(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let core = Arc::clone(&self.core);
        let door = act.door.clone();
        let acted = self
            .carry_through(async move { core.deny(act).await })
            .await;
        self.report_act(&door, &acted);
        acted
    }

    /// Forgets a request and frees its name. Its certificate, if any, stays in the ledger.
    pub async fn delete(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let core = Arc::clone(&self.core);
        self.carry_through(async move { core.delete(act).await })
            .await
    }

    /// Changes a door's own data of a request, without deciding anything.
    pub async fn attach(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let core = Arc::clone(&self.core);
        self.carry_through(async move { core.attach(act).await })
            .await
    }
}

impl Authority {
    fn report_act(&self, door: &Door, acted: &Result<RequestRecord, ActFault>) {
        if let Some(outcome) = DecisionOutcome::of_act(acted) {
            self.core.telemetry.decided(door, outcome, PERSON);
        }
    }
}

impl Core {
    async fn approve(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let rules = self.rules.load_full();
        let judged = self.judged(&act, PersonVerdict::Approve, &rules);
        let (record, mut explanation) = judged.await?;
        let csr = CheckedCsr::trusted_from_store(&record.csr_der).map_err(|source| {
            Broken::StoredRequest {
                id: record.id,
                source,
            }
        })?;
        let signer = rules.signer(&record.signer);
        let signer = signer.as_deref();
        let unsignable = signer.and_then(|signer| {
            signer
                .profile
                .examine(&csr, &record.key, &record.wishes)
                .err()
        });
        if let (Some(fault), OnUnsignable::Refuse) = (&unsignable, act.on_unsignable) {
            return Err(ActFault::Unsignable {
                key: act.key,
                fault: fault.clone(),
            });
        }
        let mut change = Change::default();
        if unsignable.is_none() {
            explanation.token = self.still_good_token(&rules, &record, &csr).await?;
        }
        let mut update = RequestUpdate {
            state: RequestState::Approved,
            explanation: Some(explanation.clone()),
            attachment: act.attachment.clone(),
            ..RequestUpdate::none(&record)
        };
        let approved = act.audit("approve", &record, self.clock.now(), act.reason.clone());
        let mut audit = vec![approved.decided(&explanation)];
        let draft = match (signer, unsignable) {
            (Some(_), Some(fault)) => {
                update.state = RequestState::Failed;
                update.failure = Some(fault.to_string());
                audit.push(act.audit("fail", &record, self.clock.now(), fault.to_string()));
                None
            }
            (Some(signer), None) => {
                let issuer = self.issuer(&signer.issuer)?;
                let asked = act.lifetime.or(record.wishes.expiration_seconds);
                let validity = signer
                    .profile
                    .validity(asked, self.clock.now(), &issuer)
                    .map_err(Broken::from)?;
                let approval = Approval::from_recorded_decision(explanation.clone());
                let drafted = approval.map(|approval| {
                    let of = DraftFor {
                        id: record.id,
                        csr: &csr,
                        key: &record.key,
                        wishes: &record.wishes,
                        validity,
                    };
                    self.draft(approval, signer, of)
                });
                drafted.transpose()?
            }
            (None, _) => None,
        };
        let flight = draft.as_ref().map(|draft| self.in_flight(draft));
        change.writes.push(Write::UpdateRequest(update));
        change.writes.extend(
            draft
                .iter()
                .map(|draft| Write::Intend(draft.intent().clone())),
        );
        change.audit = audit;
        if let Some(used) = &explanation.token {
            // Whoever signs it, the token is used up by it.
            let (id, name) = (TokenId::known(used.id.clone()), &used.certname);
            let serial = draft.as_ref().map(|draft| &draft.intent().serial);
            let (case, window) = (record.case(signer, &csr), rules.tokens.retry_window);
            use_token(
                id,
                name,
                case,
                self.clock.now(),
                window,
                serial,
                &mut change,
            );
        }
        self.commit_act(&act, &record, change).await?;
        if let Some(draft) = draft {
            let intended = Intended::after_durable_commit(draft);
            match self.complete(intended, record.retained).await {
                Ok(_) => {}
                // A signer elsewhere was faster: the approval stands, and what it was for is settled.
                Err(Broken::Contended) if self.is_settled(&record).await? => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        drop(flight);
        self.reread(&record).await
    }

    async fn deny(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let rules = self.rules.load_full();
        let judged = self.judged(&act, PersonVerdict::Deny, &rules);
        let (record, explanation) = judged.await?;
        let denied = act.audit("deny", &record, self.clock.now(), act.reason.clone());
        let audit = vec![denied.decided(&explanation)];
        let update = RequestUpdate {
            state: RequestState::Denied,
            explanation: Some(explanation),
            attachment: act.attachment.clone(),
            ..RequestUpdate::none(&record)
        };
        let writes = vec![Write::UpdateRequest(update)];
        self.commit_act(&act, &record, written(writes, audit))
            .await?;
        self.reread(&record).await
    }

    async fn delete(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let denied = RequestFilter {
            door: Some(act.door.clone()),
            key: Some(act.key.clone()),
            states: vec![RequestState::Denied],
            ..RequestFilter::default()
        };
        // A name may be free and a key of it still denied: that is lifted with the rest.
        let denied = self.store.requests(denied).await.map_err(Broken::from)?;
        let record = match (self.find(&act).await, denied.first()) {
            (Err(ActFault::NotFound { .. }), Some(past)) => past.clone(),
            (found, _) => found?,
        };
        let audit = vec![act.audit("delete", &record, self.clock.now(), act.reason.clone())];
        let others = denied
            .iter()
            .map(|past| past.id)
            .filter(|id| *id != record.id);
        let writes = [record.id]
            .into_iter()
            .chain(others)
            .map(Write::DeleteRequest);
        let change = written(writes.collect(), audit);
        self.commit_act(&act, &record, change).await?;
        Ok(record)
    }

    async fn attach(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let record = self.find(&act).await?;
        let update = RequestUpdate {
            attachment: act.attachment.clone(),
            ..RequestUpdate::none(&record)
        };
        let writes = vec![Write::UpdateRequest(update)];
        self.commit_act(&act, &record, written(writes, Vec::new()))
            .await?;
        self.reread(&record).await
    }

    /// The waiting request of an act, and what a person's word on it comes to.
    async fn judged(
        &self,
        act: &Act,
        verdict: PersonVerdict,
        rules: &Rules,
    ) -> Result<(RequestRecord, Explanation), ActFault> {
        let record = self.find(act).await?;
        if record.state != RequestState::Pending {
            return Err(ActFault::AlreadyDecided {
                key: act.key.clone(),
                state: record.state,
            });
        }
        let csr = CheckedCsr::trusted_from_store(&record.csr_der).map_err(|source| {
            Broken::StoredRequest {
                id: record.id,
                source,
            }
        })?;
        let now = self.clock.now();
        let decision = PersonDecision {
            verdict,
            actor: act.actor.clone(),
            at: now,
            reason: masked_tokens(&act.reason).into_owned(),
        };
        let request = Request {
            csr: &csr,
            key: &record.key,
            name: &record.key,
            door: record.door.as_str(),
            signer: &record.signer,
            requester: &record.requester,
            wishes: &record.wishes,
            at: record.created,
            renewal: false,
        };
        let evidence = Evidence::none().with_person(Some(decision));
        let explanation = match decide(&rules.policy, &request, &evidence, now) {
            Outcome::Done(Verdict::Approve(approval)) => approval.explanation().clone(),
            Outcome::Done(Verdict::Deny(explanation) | Verdict::Pending(explanation)) => {
                explanation
            }
            Outcome::Need(_) => return Err(Broken::Contended.into()),
        };
        // Why the rules left it to a person stays beside what the person said.
        let explanation = Explanation {
            steps: record.explanation.steps.clone(),
            ..explanation
        };
        Ok((record, explanation))
    }

    pub(crate) async fn find(&self, act: &Act) -> Result<RequestRecord, ActFault> {
        let found = self
            .store
            .request_at(&act.door, &act.key, Past::Ignore)
            .await
            .map_err(Broken::from)?;
        let record = found.ok_or_else(|| ActFault::NotFound {
            door: act.door.to_string(),
            key: act.key.clone(),
        })?;
        match act.expected {
            Some(version) if version != record.version => Err(ActFault::Conflict {
                key: act.key.clone(),
            }),
            Some(_) | None => Ok(record),
        }
    }

    pub(crate) async fn commit_act(
        &self,
        act: &Act,
        record: &RequestRecord,
        mut change: Change,
    ) -> Result<Revision, ActFault> {
        change.preconditions.push(Precondition::RequestAt {
            id: record.id,
            version: record.version,
        });
        let action = change.audit.first().map(|entry| entry.action.clone());
        match self.commit(change).await {
            Ok(committed) => {
                if let Some(action) = action {
                    let (door, actor) = (&record.door, &act.actor);
                    info!(%door, name = ?record.key, request = %record.id, %actor, %action, "decided");
                }
                Ok(committed.revision)
            }
            Err(CommitFault::Conflict { .. }) => Err(ActFault::Conflict {
                key: act.key.clone(),
            }),
            Err(other) => Err(commit_broken(other).into()),
        }
    }

    async fn is_settled(&self, record: &RequestRecord) -> Result<bool, ActFault> {
        let now = self.reread(record).await?;
        Ok(matches!(
            now.state,
            RequestState::Issued | RequestState::Failed
        ))
    }

    pub(crate) async fn reread(&self, record: &RequestRecord) -> Result<RequestRecord, ActFault> {
        let found = self.store.request(record.id).await.map_err(Broken::from)?;
        found.ok_or_else(|| ActFault::NotFound {
            door: record.door.to_string(),
            key: record.key.clone(),
        })
    }
}

fn written(writes: Vec<Write>, audit: Vec<AuditEntry>) -> Change {
    Change {
        writes,
        audit,
        ..Change::default()
    }
}

impl Act {
    pub(crate) fn audit(
        &self,
        action: &'static str,
        record: &RequestRecord,
        at: UnixTime,
        detail: String,
    ) -> AuditEntry {
        AuditEntry::on(record, at, self.actor.clone(), action)
            .message(&fingerprint_sha256(&record.csr_der))
            .detail(detail)
    }
}
