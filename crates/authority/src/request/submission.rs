//! A request arrives: examined, decided, stored and, if a rule approves it, signed.

use std::fmt;
use std::sync::Arc;

use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::{
    Deciding, Effect, Explanation, Finding, PersonDecision, PersonVerdict, Policy, ReasonCode,
    RecordedEvidence, Requester, SignerName, Step, TokenFacts, Verdict, Wishes,
};

use tracing::info;

use crate::authorisation::actor::Actor;
use crate::detached::run_detached;
use crate::door::DoorSpec;
use crate::engine::Core;
use crate::evidence::evaluation::{Asking, Evaluated, Gathered, is_stopped};
use crate::faults::{EngineError, SubmitFault};
use crate::issuer::signer::{OnWaiting, Signer};
use crate::issuing::stages::Issued;
use crate::issuing::{
    Arriving, Case, Conflict, Decided, MAX_TRIES, Order, Outcome, PlannedValidity, Recorded,
    Standing, StoredRequest, issued_name,
};
use crate::model::{LedgerEntry, RequestId, RequestRecord, RequestState, Revision};
use crate::profile::ProfileFault;
use crate::request::Requests;
use crate::request::claims::Claim;
use crate::request::confirmation::Confirmation;
use crate::rules::Rules;
use crate::store::{Past, RequestFilter};
use crate::telemetry::{DecisionOutcome, NOBODY, TokenEvent, settled_by};
use crate::token::{
    BearerToken, LookedUp, Presented, Recalled, masked_tokens, objection, report_rejection,
};

/// A request as a door hands it over.
#[derive(Debug)]
pub struct Submission {
    /// The door.
    pub door: &'static DoorSpec,
    /// Its name there.
    pub key: String,
    /// The verified message.
    pub csr: CheckedCsr,
    /// The signer asked for; one that is not ours is recorded, and never signed here.
    pub signer: SignerName,
    /// Who sent it.
    pub requester: Requester,
    /// What it asks for beside the message.
    pub wishes: Wishes,
    /// The door's own data.
    pub attachment: Vec<u8>,
    /// The token that its sender showed, in place of one in the message.
    pub bearer: Option<BearerToken>,
    /// A decision that comes with it (an administrator enrolling somebody).
    pub decision: Option<Decision>,
}

/// What somebody decides in the moment of asking.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Who.
    pub actor: Actor,
    /// What.
    pub verdict: PersonVerdict,
    /// Why, for the record.
    pub reason: String,
    /// Where it is stored elsewhere, whether it is: no key is used before.
    pub confirmation: Option<Confirmation>,
}

impl Submission {
    pub(crate) fn case<'a>(
        &'a self,
        id: RequestId,
        now: UnixTime,
        signer: Option<&Signer>,
    ) -> Case<'a> {
        let name = issued_name(signer, &self.csr, &self.key);
        Case {
            id,
            door: &self.door.name,
            key: &self.key,
            csr: &self.csr,
            signer: &self.signer,
            requester: &self.requester,
            wishes: &self.wishes,
            created: now,
            name,
        }
    }
}

/// What became of a submission.
#[derive(Debug)]
pub struct Submitted {
    /// Its identity.
    pub id: RequestId,
    /// Where it stands.
    pub state: RequestState,
    /// Its version.
    pub version: Revision,
    /// Its certificate, if it was issued at once.
    pub issued: Option<Issued>,
    /// Why its signer could never sign it; it is stored all the same.
    pub unsignable: Option<ProfileFault>,
    /// Whether a rule approves such a request; a policy executable that was not run counts as one that would.
    pub automatic: bool,
    /// Why it stands there, in one word; empty while nothing settled it.
    pub code: ReasonCode,
    /// Whether a token came with it that is wrong, although that is not why it stands there.
    pub wrong_token: bool,
    /// `None`: nothing of it was stored.
    stored: Option<StoredRequest>,
    /// The certificate that its key has had before and gets again.
    before: Option<Box<LedgerEntry>>,
}

impl Submitted {
    /// What the rules, or a person, made of a request.
    pub(crate) fn of(outcome: Outcome, code: ReasonCode) -> Self {
        let Outcome {
            id,
            state,
            version,
            issued,
            stored,
        } = outcome;
        Self {
            id,
            state,
            version,
            issued,
            unsignable: None,
            automatic: true,
            code,
            wrong_token: false,
            stored: Some(stored),
            before: None,
        }
    }

    /// A request whose key gets the certificate again that it has had before.
    fn again(entry: Box<LedgerEntry>) -> Self {
        Self {
            id: entry.request,
            state: RequestState::Issued,
            version: Revision::default(),
            issued: None,
            unsignable: None,
            automatic: true,
            code: ReasonCode::TokenRetry,
            wrong_token: false,
            stored: None,
            before: Some(entry),
        }
    }

    /// The certificate that its key has had before, if it gets that one again.
    pub fn before(&self) -> Option<&LedgerEntry> {
        self.before.as_deref()
    }

    /// Request and certificate as they are on record, without reading them back. `None`: its key gets a certificate again,
    /// and the request itself was not stored.
    pub fn into_recorded(self) -> Option<Recorded> {
        let recorded = self.stored?.finished(self.state, self.version, self.issued);
        let before = self.before.map(|entry| *entry);
        Some(Recorded {
            certificate: recorded.certificate.or(before),
            ..recorded
        })
    }
}

/// What occupies a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// A request that waits, or is being signed.
    Requested,
    /// A certificate.
    Signed,
    /// A revoked certificate.
    Revoked,
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "requested",
            Self::Signed => "signed",
            Self::Revoked => "revoked",
        })
    }
}

impl Requests {
    /// Takes a request: examined, decided, recorded and, if a rule approved it, signed. When this
    /// returns, what it says is durable.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, SubmitFault> {
        let core = Arc::clone(&self.core);
        let door = submission.door.name.clone();
        let submitted = run_detached(async move {
            core.authorise_submission(&submission).await?;
            core.submit(submission).await
        })
        .await;
        if let Err(fault) = &submitted {
            let outcome = DecisionOutcome::of_submit_fault(fault);
            self.core.telemetry.decided(&door, outcome, NOBODY);
        }
        submitted
    }
}

impl Core {
    /// Takes a request; where the same one waits already, that one is judged again.
    async fn submit(&self, submission: Submission) -> Result<Submitted, SubmitFault> {
        let again = self.may_ask_again(&submission);
        let submitted = match self.submit_new(&submission).await {
            Err(SubmitFault::Duplicate {
                key,
                duplicate: Duplicate::Requested,
            }) => {
                let settled = match again {
                    Some(again) => self.ask_again(&key, again).await?,
                    None => None,
                };
                settled.ok_or(SubmitFault::Duplicate {
                    key,
                    duplicate: Duplicate::Requested,
                })
            }
            other => other,
        };
        if let Err(SubmitFault::Duplicate { duplicate, .. }) = &submitted {
            self.note_second_key(&submission, *duplicate).await;
        }
        submitted
    }

    /// Decides a request and carries the decision out; once more if other rules came in force, its evidence was used up or
    /// its name was taken before that was on record. What an executable or a decider has said is kept: it is asked once
    /// for a request.
    async fn submit_new(&self, submission: &Submission) -> Result<Submitted, SubmitFault> {
        let now = self.clock.now();
        let id = self.new_request_id(now)?;
        let mut claim = None;
        let mut gathered = Gathered::default();
        let mut replaces = None;
        for _ in 0..MAX_TRIES {
            let rules = self.rules.load_full();
            let presented = self.present(&rules, &submission.csr, submission.bearer.as_ref());
            gathered.presented = presented.await;
            gathered.looked_up = LookedUp::default();
            if claim.is_none() {
                claim = self
                    .claim_if_slow(submission, &rules, &gathered.presented)
                    .await?;
            }
            let signer = rules.signer(&submission.signer);
            let signer = signer.as_deref();
            let case = submission.case(id, now, signer);
            let was_used = match self.recall(&rules, case, &gathered.presented).await? {
                Recalled::Certificate(entry) => {
                    return self.deliver_again(submission, id, now, entry).await;
                }
                Recalled::Nothing { was_used } => was_used,
            };
            let judged = self.judge(submission, case, signer, &rules, &mut gathered);
            let Judged {
                decision,
                automatic,
                unsignable,
            } = judged.await?;
            let token = decision.evidence.as_ref().and_then(|e| e.token.as_ref());
            let token = token.and_then(TokenFacts::known);
            if !was_used && token.is_some_and(|token| token.same.is_some()) {
                // The same key was faster, and has what this one is to have.
                continue;
            }
            if decision.state == RequestState::Pending {
                self.find_room(submission, signer).await?;
            }
            let brought = submission.decision.as_ref();
            let arriving = Arriving {
                retained: submission.door.retained,
                attachment: &submission.attachment,
                replaces: replaces.as_ref(),
                certificate: None,
                confirmation: brought.and_then(|brought| brought.confirmation.as_ref()),
            };
            let _turn = self.renew_in_turn(case, signer, &decision).await?;
            let told = Told::of(&decision);
            let order = Order {
                case,
                decision,
                standing: Standing::Arriving(arriving),
                rules: &rules,
                gathered: &gathered,
                at: now,
                validity: PlannedValidity::Asked(case.wishes.expiration_seconds),
            };
            match self.carry_out(order).await {
                Ok(outcome) => {
                    told.report(
                        self,
                        case,
                        &gathered,
                        told.outcome(&outcome, unsignable.as_ref()),
                    );
                    if outcome.issued.is_none() {
                        let state = outcome.state.word();
                        let reason = told.explanation.to_string();
                        info!(
                            door = %case.door, name = case.key, request = %id, state,
                            source = case.requester.source.map(tracing::field::display),
                            code = %told.explanation.code, reason, "stored"
                        );
                    }
                    let wrong_token = told.has_wrong_token();
                    return Ok(Submitted {
                        unsignable,
                        automatic,
                        wrong_token,
                        ..Submitted::of(outcome, told.explanation.code)
                    });
                }
                Err(Conflict::Rules | Conflict::Evidence) => replaces = None,
                // It was approved to replace the name's certificate, or because there is none: that was another one.
                Err(Conflict::Certificate) if told.uses_token => replaces = None,
                Err(Conflict::Name | Conflict::Certificate | Conflict::Request) => {
                    replaces = self.make_way(submission, signer, &told).await?;
                }
                Err(Conflict::Serial) => {}
                Err(Conflict::Revoked | Conflict::Overtaken) => break,
                Err(Conflict::Engine(fault)) => return Err(fault.into()),
            }
            info!(
                request = %id, source = case.requester.source.map(tracing::field::display),
                "rules, evidence or name have changed meanwhile; the request is decided anew"
            );
        }
        Err(EngineError::Contended.into())
    }

    /// The request that one whose name is taken may replace. An error for anything else.
    async fn make_way(
        &self,
        submission: &Submission,
        signer: Option<&Signer>,
        told: &Told,
    ) -> Result<Option<RequestRecord>, SubmitFault> {
        let key = || submission.key.clone();
        if told.is_aside && !submission.door.retained {
            let denied = self.denied_before(submission).await?;
            let id = denied.ok_or(EngineError::Contended)?;
            return Err(SubmitFault::Denied { key: key(), id });
        }
        let looking = match told.uses_token {
            true => Looking::BackWithToken,
            false => Looking::Back,
        };
        let replaces = self.find_conflict(submission, signer, looking).await?;
        let waits = |old: &RequestRecord| old.state == RequestState::Pending;
        let is_rejected = matches!(told.state, RequestState::Denied | RequestState::Undecided);
        if is_rejected && replaces.as_ref().is_some_and(waits) {
            // What a rule turns away takes nobody's place.
            return Err(SubmitFault::Duplicate {
                key: key(),
                duplicate: Duplicate::Requested,
            });
        }
        Ok(replaces)
    }

    /// Evidence outside the store may be slow, and is asked once for a request: not for one whose name is taken.
    async fn claim_if_slow(
        &self,
        submission: &Submission,
        rules: &Rules,
        presented: &Presented,
    ) -> Result<Option<Claim<'_>>, SubmitFault> {
        if !rules.policy.asks_outside_for(&submission.signer) {
            return Ok(None);
        }
        let key = submission.key.clone();
        let duplicate = Duplicate::Requested;
        if presented.verified().is_some() {
            // Whoever else asks under the name must not keep the holder of its token waiting; only its own key does.
            let own = format!("{key} by {}", submission.csr.key_fingerprint().to_hex());
            let claimed = self.claims.claim_soon(&submission.door.name, &own).await;
            return match claimed {
                Some(claim) => Ok(Some(claim)),
                None => Err(SubmitFault::InProgress { key }),
            };
        }
        let claimed = self.claims.claim(&submission.door.name, &submission.key);
        let claim = claimed.ok_or(SubmitFault::Duplicate { key, duplicate })?;
        // A token may take the name from whoever has it; one that is wrong is worth more to know than who has the name.
        if !(presented.is_something() && rules.policy.wants_tokens_for(&submission.signer)) {
            let signer = rules.signer(&submission.signer);
            self.find_conflict(submission, signer.as_deref(), Looking::Ahead)
                .await?;
        }
        Ok(Some(claim))
    }

    /// What profile and policy say of a request.
    async fn judge(
        &self,
        submission: &Submission,
        case: Case<'_>,
        signer: Option<&Signer>,
        rules: &Rules,
        gathered: &mut Gathered,
    ) -> Result<Judged, EngineError> {
        let unsignable = signer.and_then(|signer| {
            let examined = signer.profile.examine(case.csr, case.key, case.wishes);
            examined.err()
        });
        let asking = match &unsignable {
            Some(_) => Asking::AsIfTheyAgreed,
            None => Asking::InEarnest,
        };
        let decision = submission.decision.as_ref().map(|brought| PersonDecision {
            verdict: brought.verdict,
            actor: brought.actor.requester.clone(),
            at: case.created,
            reason: brought.reason.clone(),
        });
        let evaluated = self.evaluate(rules, case, decision, asking, gathered);
        let Evaluated {
            verdict,
            mut evidence,
        } = evaluated.await?;
        let automatic = matches!(verdict, Verdict::Approve(_));
        let mut wrong_token = None;
        let is_noted = |facts: &TokenFacts| *facts != TokenFacts::Missing;
        if gathered.presented.is_something() && !evidence.token.as_ref().is_some_and(is_noted) {
            // Nobody asked for it. A person who approves the request later uses it up all the same.
            let looking = self.token_facts(rules, case, &gathered.presented);
            let (facts, looked_up) = looking.await;
            evidence.token = facts.ok();
            if unsignable.is_some() && rules.policy.wants_tokens_for(case.signer) {
                // A wrong one counts all the same.
                let facts = evidence.token.as_ref();
                wrong_token =
                    facts.and_then(|facts| objection(&rules.policy, facts, case, case.created));
                gathered.looked_up = looked_up;
            }
        }
        let decision = match &unsignable {
            Some(fault) => {
                let mut explanation = unsignable_explanation(fault, &rules.policy, case.created);
                // What it is refused for stays the last word.
                explanation.steps.splice(0..0, wrong_token);
                // Should it ever be signed, its token is used up by that.
                let evidence = RecordedEvidence {
                    token: evidence.token,
                    ..RecordedEvidence::default()
                };
                let verdict = Verdict::Pending(explanation);
                let failure = Some(shown_fault(fault));
                Decided {
                    failure,
                    ..Decided::of(verdict, evidence, RequestState::Pending)
                }
            }
            None => {
                let state = match &verdict {
                    Verdict::Approve(_) => RequestState::Approved,
                    Verdict::Deny(_) => RequestState::Denied,
                    // Who keeps its name waits for the evidence; who does not comes back by itself.
                    stopped if is_stopped(stopped) && !submission.door.retained => {
                        RequestState::Undecided
                    }
                    Verdict::Pending(_) => RequestState::Pending,
                };
                Decided::of(verdict, evidence, state)
            }
        };
        Ok(Judged {
            decision,
            automatic,
            unsignable,
        })
    }

    /// Answers a request with a certificate that its key has had before.
    async fn deliver_again(
        &self,
        submission: &Submission,
        id: RequestId,
        now: UnixTime,
        entry: Box<LedgerEntry>,
    ) -> Result<Submitted, SubmitFault> {
        if !submission.door.retained {
            return Ok(Submitted::again(entry));
        }
        // Where each request keeps its own name, the answer is another request with the same certificate.
        let decision = Decided {
            state: RequestState::Issued,
            explanation: entry.explanation.clone(),
            evidence: Some(RecordedEvidence::default()),
            failure: None,
            uses: Vec::new(),
            approval: None,
        };
        let gathered = Gathered::default();
        let (case, told) = (submission.case(id, now, None), Told::of(&decision));
        let arriving = Arriving {
            retained: true,
            attachment: &submission.attachment,
            replaces: None,
            certificate: Some(&entry),
            confirmation: None,
        };
        let rules = self.rules.load_full();
        let order = Order {
            case,
            decision,
            standing: Standing::Arriving(arriving),
            rules: &rules,
            gathered: &gathered,
            at: now,
            validity: PlannedValidity::Asked(None),
        };
        match self.carry_out(order).await {
            Ok(outcome) => {
                told.report(self, case, &gathered, DecisionOutcome::Issued);
                Ok(Submitted {
                    before: Some(entry),
                    ..Submitted::of(outcome, ReasonCode::TokenRetry)
                })
            }
            Err(Conflict::Name | Conflict::Request) => {
                self.make_way(submission, None, &told).await?;
                Err(EngineError::Contended.into())
            }
            Err(
                Conflict::Rules
                | Conflict::Evidence
                | Conflict::Certificate
                | Conflict::Revoked
                | Conflict::Serial
                | Conflict::Overtaken,
            ) => Err(EngineError::Contended.into()),
            Err(Conflict::Engine(fault)) => Err(fault.into()),
        }
    }

    /// Whether one more request may wait. Whatever else is in the way is told first, so that a host that asks again hears what
    /// it always heard.
    async fn find_room(
        &self,
        submission: &Submission,
        signer: Option<&Signer>,
    ) -> Result<(), SubmitFault> {
        let Some(fault) = self.take_room(submission).await? else {
            return Ok(());
        };
        let in_the_way = self.find_conflict(submission, signer, Looking::Ahead);
        match in_the_way.await? {
            Some(old) if old.state == RequestState::Pending => Ok(()),
            Some(_) | None => Err(fault),
        }
    }

    /// The request that a new one may replace: one that was denied for another key or, if the signer lets it, one that
    /// waits. An error for anything else.
    async fn find_conflict(
        &self,
        submission: &Submission,
        signer: Option<&Signer>,
        looking: Looking,
    ) -> Result<Option<RequestRecord>, SubmitFault> {
        let key = submission.key.clone();
        let duplicate = |duplicate| SubmitFault::Duplicate {
            key: key.clone(),
            duplicate,
        };
        let unique = signer.filter(|signer| signer.one_certificate_per_name);
        let live = self
            .store
            .request_at(&submission.door.name, &key, Past::Ignore);
        let live = live.await.map_err(EngineError::from)?;
        // Who waits for a name must not keep it from the one who has a token for it.
        let with_token = looking == Looking::BackWithToken;
        let replaces =
            with_token || signer.is_some_and(|signer| signer.on_waiting == OnWaiting::Replace);
        match (&live, unique) {
            // Its door shows it, under a name that anybody may choose: nobody takes it away by asking.
            (Some(record), _) if record.retained && record.state == RequestState::Pending => {
                return Err(duplicate(Duplicate::Requested));
            }
            (Some(record), _) if record.state == RequestState::Pending && replaces => {}
            (Some(record), _) if record.state != RequestState::Denied => {
                return Err(duplicate(Duplicate::Requested));
            }
            (Some(record), _) if record.retained => {
                return Err(SubmitFault::Denied { key, id: record.id });
            }
            (None, Some(signer)) => {
                let newest = self.store.newest_certificate(&signer.issuer, &key);
                match newest.await.map_err(EngineError::from)? {
                    // What the token replaces was another one when it was looked up.
                    Some(_) if with_token => return Err(EngineError::Contended.into()),
                    Some(entry) if entry.revoked.is_some() => {
                        return Err(duplicate(Duplicate::Revoked));
                    }
                    Some(_) => return Err(duplicate(Duplicate::Signed)),
                    None => {}
                }
            }
            (Some(_), _) | (None, None) => {}
        }
        if let Some(id) = self.denied_before(submission).await? {
            return Err(SubmitFault::Denied { key, id });
        }
        match (live, looking, unique) {
            (Some(replaceable), _, _) => Ok(Some(replaceable)),
            // An intent for the name is open.
            (None, Looking::Back | Looking::BackWithToken, Some(_)) => {
                Err(duplicate(Duplicate::Requested))
            }
            (None, Looking::Back | Looking::BackWithToken | Looking::Ahead, _) => Ok(None),
        }
    }

    /// A person's denial holds for the name and key it was given for, whoever asked since, until it is deleted.
    async fn denied_before(
        &self,
        submission: &Submission,
    ) -> Result<Option<RequestId>, EngineError> {
        let denied = RequestFilter {
            door: Some(submission.door.name.clone()),
            key: Some(submission.key.clone()),
            states: vec![RequestState::Denied],
            ..RequestFilter::default()
        };
        let same_key = submission.csr.key_fingerprint();
        let denied = self.store.requests(denied).await?;
        let mut denied = denied.iter().filter(|past| {
            past.key_fingerprint == same_key
                && matches!(past.explanation.by, Some(Deciding::Person { .. }))
        });
        Ok(denied.next().map(|past| past.id))
    }
}

/// What profile and policy say of a request.
struct Judged {
    decision: Decided,
    /// Whether a rule approves such a request.
    automatic: bool,
    unsignable: Option<ProfileFault>,
}

/// What is told of a decision once it is carried out.
pub(crate) struct Told {
    state: RequestState,
    explanation: Explanation,
    pub(crate) uses_token: bool,
    is_aside: bool,
}

impl Told {
    pub(crate) fn of(decision: &Decided) -> Self {
        Self {
            state: decision.state,
            explanation: decision.explanation.clone(),
            uses_token: decision.uses_token(),
            is_aside: decision.is_aside(),
        }
    }

    fn has_wrong_token(&self) -> bool {
        let Explanation { code, steps, .. } = &self.explanation;
        let is_wrong = |step: &Step| step.code.is_token_failure();
        *code == ReasonCode::Unsignable && steps.iter().any(is_wrong)
    }

    fn outcome(&self, outcome: &Outcome, unsignable: Option<&ProfileFault>) -> DecisionOutcome {
        match (outcome.state, unsignable) {
            (_, Some(_)) => DecisionOutcome::Unsignable,
            (RequestState::Denied, None) => DecisionOutcome::Denied,
            (RequestState::Approved, None) => DecisionOutcome::Approved,
            (RequestState::Issued, None) => DecisionOutcome::Issued,
            (RequestState::Failed, None) => DecisionOutcome::Failed,
            (RequestState::Undecided, None) => DecisionOutcome::Undecided,
            (RequestState::Pending, None) => DecisionOutcome::Pending,
        }
    }

    /// Counts what was decided.
    pub(crate) fn report(
        &self,
        core: &Core,
        case: Case<'_>,
        gathered: &Gathered,
        outcome: DecisionOutcome,
    ) {
        let rule = settled_by(&self.explanation);
        core.telemetry.decided(case.door, outcome, rule);
        if self.uses_token {
            core.telemetry.token(TokenEvent::Consumed, "");
        } else {
            report_rejection(core, &self.explanation, gathered, self.explanation.at);
        }
    }
}

/// When one looks for what occupies a name: before anything was tried, or after a commit was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looking {
    Ahead,
    Back,
    /// After a commit was refused that an enrolment token has approved.
    BackWithToken,
}

/// A fault that names what was asked for, in which somebody may have put a secret.
fn shown_fault(fault: &ProfileFault) -> String {
    masked_tokens(&fault.to_string()).into_owned()
}

fn unsignable_explanation(fault: &ProfileFault, policy: &Policy, now: UnixTime) -> Explanation {
    let step = Step::new("profile", "profile", Finding::Mismatch, shown_fault(fault));
    Explanation {
        by: Some(Deciding::Profile),
        code: ReasonCode::Unsignable,
        steps: vec![step],
        ..Explanation::new(Effect::Pending, now, policy.generation)
    }
}
