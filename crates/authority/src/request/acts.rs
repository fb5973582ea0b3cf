//! What people do to a request that waits: approve it, deny it, delete it.

use std::sync::Arc;

use countersign_pki::{CheckedCsr, UnixTime, fingerprint_sha256};
use countersign_policy::{
    self as policy, Approval, Evidence, Explanation, PersonDecision, PersonVerdict, Request, Use,
    decide,
};

use tracing::info;

use crate::audit::AuditEntry;
use crate::authorisation::actor::Actor;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::evidence::evaluation::Gathered;
use crate::faults::{ActFault, EngineError};
use crate::issuer::signer::Signer;
use crate::issuing::{
    Case, Conflict, Decided, Order, Outcome, Person, PlannedValidity, Standing, commit_broken,
};
use crate::model::{Door, RequestRecord, RequestState, Revision};
use crate::request::Requests;
use crate::rules::Rules;
use crate::store::{Change, CommitFault, Past, Precondition, RequestFilter, RequestUpdate, Write};
use crate::telemetry::{DecisionOutcome, PERSON};
use crate::token::masked_tokens;

/// A person's act on a request.
#[derive(Clone, Debug)]
pub struct Act {
    /// The door.
    pub door: Door,
    /// The request's name there.
    pub key: String,
    /// Who acts.
    pub actor: Actor,
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

impl Requests {
    /// A person approves a waiting request; it is signed before this returns.
    pub async fn approve(&self, act: Act) -> Result<Outcome, ActFault> {
        let core = Arc::clone(&self.core);
        let door = act.door.clone();
        let acted =
            run_detached(async move { core.approve(core.authorise_approval(act).await?).await })
                .await;
        self.report_act(&door, &acted);
        acted
    }

    /// A person denies a waiting request.
    pub async fn deny(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let core = Arc::clone(&self.core);
        let door = act.door.clone();
        let acted = run_detached(async move {
            core.authorise_act("deny", &act).await?;
            core.deny(act).await
        })
        .await;
        self.report_act(&door, &acted);
        Ok(acted?.into_recorded().request)
    }

    /// Forgets a request and frees its name. Its certificate, if any, stays in the ledger.
    pub async fn delete(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let core = Arc::clone(&self.core);
        run_detached(async move { core.delete(core.authorise_deletion(act).await?).await }).await
    }

    /// Changes a door's own data of a request, without deciding anything.
    pub async fn attach(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let core = Arc::clone(&self.core);
        run_detached(async move {
            core.authorise_act("attach", &act).await?;
            core.attach(act).await
        })
        .await
    }
}

impl Requests {
    fn report_act(&self, door: &Door, acted: &Result<Outcome, ActFault>) {
        if let Some(outcome) = DecisionOutcome::of_act(acted) {
            self.core.telemetry.decided(door, outcome, PERSON);
        }
    }
}

impl Core {
    async fn approve(&self, act: Act) -> Result<Outcome, ActFault> {
        let rules = self.rules.load_full();
        let (record, csr) = self.waiting(&act).await?;
        let signer = rules.signer(&record.signer);
        let signer = signer.as_deref();
        let case = record.case(signer, &csr);
        let mut explanation =
            self.ask_person(&act, &record, case, PersonVerdict::Approve, &rules)?;
        let examine = |signer: &Signer| signer.profile.examine(&csr, &record.key, &record.wishes);
        let unsignable = signer.and_then(|signer| examine(signer).err());
        let mut gathered = Gathered::default();
        let mut uses = Vec::new();
        match (&unsignable, act.on_unsignable) {
            (Some(fault), OnUnsignable::Refuse) => {
                return Err(ActFault::Unsignable {
                    key: act.key,
                    fault: fault.clone(),
                });
            }
            (Some(_), OnUnsignable::RecordFailure) => {}
            (None, _) => {
                // Whoever signs it, its token is used up by it.
                explanation.token = self.still_good_token(&rules, &record, &csr).await?;
                gathered.looked_up.retry_window = rules.tokens.retry_window;
                uses.extend(explanation.token.iter().map(|used| Use::Token {
                    id: used.id.clone(),
                    name: used.certname.clone(),
                    replaces: false,
                }));
            }
        }
        let decision = Decided {
            state: match &unsignable {
                Some(_) => RequestState::Failed,
                None => RequestState::Approved,
            },
            failure: unsignable.as_ref().map(ToString::to_string),
            approval: match &unsignable {
                Some(_) => None,
                None => Approval::from_recorded_decision(explanation.clone()),
            },
            explanation,
            evidence: None,
            uses,
        };
        self.decide_by_person(&act, &record, case, decision, &rules, &gathered)
            .await
    }

    async fn deny(&self, act: Act) -> Result<Outcome, ActFault> {
        let rules = self.rules.load_full();
        let (record, csr) = self.waiting(&act).await?;
        let case = record.case(None, &csr);
        let explanation = self.ask_person(&act, &record, case, PersonVerdict::Deny, &rules)?;
        let decision = Decided {
            state: RequestState::Denied,
            explanation,
            evidence: None,
            failure: None,
            uses: Vec::new(),
            approval: None,
        };
        let gathered = Gathered::default();
        self.decide_by_person(&act, &record, case, decision, &rules, &gathered)
            .await
    }

    /// Carries out what a person has decided of a request that waits.
    async fn decide_by_person(
        &self,
        act: &Act,
        record: &RequestRecord,
        case: Case<'_>,
        decision: Decided,
        rules: &Arc<Rules>,
        gathered: &Gathered,
    ) -> Result<Outcome, ActFault> {
        let (state, code) = (decision.state, decision.explanation.code.clone());
        let order = Order {
            case,
            decision,
            standing: Standing::Waiting {
                record,
                attachment: act.attachment.clone(),
                person: Some(Person {
                    actor: &act.actor.requester,
                    reason: &act.reason,
                }),
            },
            rules,
            gathered,
            at: self.clock.now(),
            validity: PlannedValidity::Asked(act.lifetime.or(record.wishes.expiration_seconds)),
        };
        match self.carry_out(order).await {
            Ok(outcome) => {
                let (door, actor) = (&record.door, &act.actor);
                let reason = masked_tokens(&act.reason);
                let reason = Some(&*reason).filter(|reason| !reason.is_empty());
                let word = state.word();
                match state {
                    // Whoever was turned away asks why, and is looked for by address.
                    RequestState::Denied => info!(
                        %door, name = record.key, request = %record.id, %actor, state = word,
                        source = record.requester.source.map(tracing::field::display),
                        %code, reason, "decided"
                    ),
                    RequestState::Pending
                    | RequestState::Approved
                    | RequestState::Issued
                    | RequestState::Failed
                    | RequestState::Undecided => {
                        info!(%door, name = record.key, request = %record.id, %actor, state = word, reason, "decided");
                    }
                }
                Ok(outcome)
            }
            Err(
                Conflict::Rules
                | Conflict::Evidence
                | Conflict::Name
                | Conflict::Certificate
                | Conflict::Request,
            ) => Err(ActFault::Conflict {
                key: act.key.clone(),
            }),
            // A signer elsewhere was faster: the approval stands, and what it was for is settled.
            Err(Conflict::Overtaken) => {
                let now = self.reread(record).await?;
                match now.state {
                    RequestState::Issued | RequestState::Failed => Ok(Outcome::of(now)),
                    RequestState::Pending
                    | RequestState::Approved
                    | RequestState::Denied
                    | RequestState::Undecided => Err(EngineError::Contended.into()),
                }
            }
            Err(Conflict::Serial | Conflict::Revoked) => Err(EngineError::Contended.into()),
            Err(Conflict::Engine(fault)) => Err(fault.into()),
        }
    }

    async fn delete(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let denied = RequestFilter {
            door: Some(act.door.clone()),
            key: Some(act.key.clone()),
            states: vec![RequestState::Denied],
            ..RequestFilter::default()
        };
        // A name may be free and a key of it still denied: that is lifted with the rest.
        let denied = self
            .store
            .requests(denied)
            .await
            .map_err(EngineError::from)?;
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

    /// The request of an act, which must wait, and its message.
    async fn waiting(&self, act: &Act) -> Result<(RequestRecord, CheckedCsr), ActFault> {
        let record = self.find(act).await?;
        if record.state != RequestState::Pending {
            return Err(ActFault::AlreadyDecided {
                key: act.key.clone(),
                state: record.state,
            });
        }
        let csr = CheckedCsr::trusted_from_store(&record.csr_der).map_err(|source| {
            EngineError::StoredRequest {
                id: record.id,
                source,
            }
        })?;
        Ok((record, csr))
    }

    /// What a person's decision comes to. Why the rules left it to a person stays beside what the person said.
    fn ask_person(
        &self,
        act: &Act,
        record: &RequestRecord,
        case: Case<'_>,
        verdict: PersonVerdict,
        rules: &Rules,
    ) -> Result<Explanation, EngineError> {
        let now = self.clock.now();
        let decision = PersonDecision {
            verdict,
            actor: act.actor.requester.clone(),
            at: now,
            reason: masked_tokens(&act.reason).into_owned(),
        };
        let request = Request {
            name: &record.key,
            ..case.request()
        };
        let evidence = Evidence::none().with_person(Some(decision));
        let explanation = match decide(&rules.policy, &request, &evidence, now) {
            policy::Outcome::Done(verdict) => verdict.explanation().clone(),
            policy::Outcome::Need(_) => return Err(EngineError::Contended),
        };
        Ok(Explanation {
            steps: record.explanation.steps.clone(),
            ..explanation
        })
    }

    pub(crate) async fn find(&self, act: &Act) -> Result<RequestRecord, ActFault> {
        let found = self
            .store
            .request_at(&act.door, &act.key, Past::Ignore)
            .await
            .map_err(EngineError::from)?;
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
                    info!(%door, name = record.key, request = %record.id, %actor, %action, "decided");
                }
                Ok(committed.revision)
            }
            Err(CommitFault::Conflict { .. }) => Err(ActFault::Conflict {
                key: act.key.clone(),
            }),
            Err(other) => Err(commit_broken(other).into()),
        }
    }

    pub(crate) async fn reread(&self, record: &RequestRecord) -> Result<RequestRecord, ActFault> {
        let found = self
            .store
            .request(record.id)
            .await
            .map_err(EngineError::from)?;
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
        AuditEntry::on(record, at, self.actor.requester.clone(), action)
            .message(&fingerprint_sha256(&record.csr_der))
            .detail(detail)
    }
}
