//! A request arrives: examined, decided, stored and, if a rule approves it, signed.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::{
    Approval, Deciding, Effect, Explanation, Finding, PersonDecision, Policy, RecordedEvidence,
    Requester, SignerName, Step, TokenFacts, Verdict, Wishes,
};

use tracing::info;

use crate::engine::{Authority, Core, Rules};
use crate::evidence::Claim;
use crate::faults::{Broken, SubmitFault};
use crate::issuance::{Draft, Intended, Issued};
use crate::judgement::{Asking, Case, Gathered, is_about_evidence, is_stopped, issued_name};
use crate::model::{Door, LedgerEntry, RequestId, RequestRecord, RequestState, Revision};
use crate::profile::ProfileFault;
use crate::signer::{OnWaiting, Signer};
use crate::signing::{DraftFor, MAX_TRIES, commit_broken};
use crate::store::{CommitFault, Past, RequestFilter, Write};
use crate::storing::Stored;
use crate::telemetry::{DecisionOutcome, NOBODY};
use crate::token::{LookedUp, Presented, Recalled, masked_tokens};

/// A request as a door hands it over.
#[derive(Debug)]
pub struct Submission {
    /// The door.
    pub door: Door,
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
    /// Whether it keeps its name once issued.
    pub retained: bool,
    /// The door's own data.
    pub attachment: Vec<u8>,
    /// A decision that comes with it (an administrator enrolling somebody).
    pub decision: Option<PersonDecision>,
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
            door: &self.door,
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
    pub code: Cow<'static, str>,
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

impl Authority {
    /// Takes a request: examined, decided, recorded and, if a rule approved it, signed. When this
    /// returns, what it says is durable.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, SubmitFault> {
        let core = Arc::clone(&self.core);
        let door = submission.door.clone();
        let submitted = self
            .carry_through(async move { core.submit(submission).await })
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
        match self.submit_new(submission).await {
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
        }
    }

    /// Judges and settles a request; once more if other rules came in force or its evidence was used up before its intent
    /// was on record. What an executable or a decider has said is kept: it is asked once for a request.
    async fn submit_new(&self, mut submission: Submission) -> Result<Submitted, SubmitFault> {
        let now = self.clock.now();
        let id = self.new_request_id(now)?;
        let mut claim = None;
        let mut gathered = Gathered::default();
        for _ in 0..MAX_TRIES {
            let rules = self.rules.load_full();
            let presented = self.present(&rules, &submission.csr, &submission.requester);
            gathered.presented = presented.await;
            gathered.looked_up = LookedUp::default();
            if claim.is_none() {
                claim = self.claim(&submission, &rules, &gathered.presented).await?;
            }
            let signer = rules.signer(&submission.signer);
            let case = submission.case(id, now, signer.as_deref());
            let was_used = match self.recall(&rules, case, &gathered.presented).await? {
                Recalled::Certificate(entry) => {
                    return self.deliver_again(submission, id, now, &entry).await;
                }
                Recalled::Nothing { was_used } => was_used,
            };
            let judged = self.judge(&submission, id, &rules, now, &mut gathered);
            let judged = judged.await?;
            let token = judged.evidence.token.as_ref().and_then(TokenFacts::known);
            if !was_used && token.is_some_and(|token| token.same.is_some()) {
                // The same key was faster, and has what this one is to have.
                continue;
            }
            let state = match &judged.verdict {
                Verdict::Approve(_) => RequestState::Approved,
                Verdict::Deny(_) => RequestState::Denied,
                // Who keeps its name waits for the evidence; who does not comes back by itself.
                stopped if is_stopped(stopped) && !submission.retained => RequestState::Undecided,
                Verdict::Pending(_) => RequestState::Pending,
            };
            let mut stored = Stored {
                explanation: judged.verdict.explanation().clone(),
                evidence: judged.evidence.clone(),
                failure: judged.unsignable.as_ref().map(shown_fault),
                uses: judged.verdict.uses().to_vec(),
                gathered: gathered.clone(),
                certificate: None,
                submission,
                id,
                state,
                now,
            };
            if let Some(submitted) = self.settle(&mut stored, judged, &rules).await? {
                return Ok(submitted);
            }
            info!(request = %id, "rules or evidence have changed meanwhile; the request is judged anew");
            submission = stored.submission;
        }
        Err(Broken::Contended.into())
    }

    /// Evidence outside the store may be slow, and is asked once for a request: not for one whose name is taken.
    async fn claim(
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
            let claimed = self.evidence.claim_soon(&submission.door, &own).await;
            return match claimed {
                Some(claim) => Ok(Some(claim)),
                None => Err(SubmitFault::InProgress { key }),
            };
        }
        let claimed = self.evidence.claim(&submission.door, &submission.key);
        let claim = claimed.ok_or(SubmitFault::Duplicate { key, duplicate })?;
        // A token may take the name from whoever has it; one that is wrong is worth more to know than who has the name.
        if !(presented.is_something() && rules.policy.wants_tokens_for(&submission.signer)) {
            let signer = rules.signer(&submission.signer);
            self.what_is_in_the_way(submission, signer.as_deref(), Looking::Ahead)
                .await?;
        }
        Ok(Some(claim))
    }

    /// What profile and policy say of a request.
    async fn judge(
        &self,
        submission: &Submission,
        id: RequestId,
        rules: &Rules,
        now: UnixTime,
        gathered: &mut Gathered,
    ) -> Result<Judged, Broken> {
        let policy = &rules.policy;
        let unsignable = rules.signer(&submission.signer).and_then(|signer| {
            signer
                .profile
                .examine(&submission.csr, &submission.key, &submission.wishes)
                .err()
        });
        let asking = match &unsignable {
            Some(_) => Asking::AsIfTheyAgreed,
            None => Asking::InEarnest,
        };
        let signer = rules.signer(&submission.signer);
        let case = submission.case(id, now, signer.as_deref());
        let decision = submission.decision.clone();
        let reached = self.reach(rules, case, decision, asking, gathered).await?;
        let automatic = matches!(reached.verdict, Verdict::Approve(_));
        let mut reached = reached;
        let is_noted = reached
            .evidence
            .token
            .as_ref()
            .is_some_and(|t| *t != TokenFacts::Missing);
        if gathered.presented.is_something() && !is_noted {
            // Nobody asked for it. A person who approves the request later uses it up all the same.
            let (facts, _) = self.token_facts(rules, case, &gathered.presented).await;
            reached.evidence.token = facts.ok();
        }
        let (verdict, evidence) = match &unsignable {
            Some(fault) => (
                Verdict::Pending(unsignable_explanation(fault, policy, now)),
                // Should it ever be signed, its token is used up by that.
                RecordedEvidence {
                    token: reached.evidence.token,
                    ..RecordedEvidence::default()
                },
            ),
            None => (reached.verdict, reached.evidence),
        };
        Ok(Judged {
            verdict,
            evidence,
            automatic,
            unsignable,
        })
    }

    /// Answers a request with a certificate that its key has had before.
    async fn deliver_again(
        &self,
        submission: Submission,
        id: RequestId,
        now: UnixTime,
        entry: &LedgerEntry,
    ) -> Result<Submitted, SubmitFault> {
        let submitted = |id, version| Submitted {
            id,
            state: RequestState::Issued,
            version,
            issued: None,
            unsignable: None,
            automatic: true,
            code: Cow::Borrowed("token_retry"),
        };
        if !submission.retained {
            return Ok(submitted(entry.request, Revision::default()));
        }
        // Where each request keeps its own name, the answer is another request with the same certificate.
        let mut stored = Stored {
            explanation: entry.explanation.clone(),
            evidence: RecordedEvidence::default(),
            failure: None,
            uses: Vec::new(),
            gathered: Gathered::default(),
            certificate: Some((entry.issuer.clone(), entry.serial)),
            submission,
            id,
            state: RequestState::Issued,
            now,
        };
        let rules = self.rules.load_full();
        let inserted = self.insert(&mut stored, None, None, &rules).await?;
        stored.report(self, DecisionOutcome::Issued);
        Ok(submitted(id, inserted.unwrap_or_default()))
    }

    /// Puts on record what a judgement comes to. `None`: it was made by rules that are no longer in force, and nothing
    /// was written.
    async fn settle(
        &self,
        stored: &mut Stored,
        judged: Judged,
        rules: &Arc<Rules>,
    ) -> Result<Option<Submitted>, SubmitFault> {
        let (id, state) = (stored.id, stored.state);
        let signer = rules.signer(&stored.submission.signer);
        let signer = signer.as_deref();
        let Judged {
            verdict,
            evidence: _,
            automatic,
            unsignable,
        } = judged;
        let approval = match verdict {
            Verdict::Approve(approval) => Some(approval),
            Verdict::Deny(_) | Verdict::Pending(_) => None,
        };
        match (approval, signer) {
            (Some(approval), Some(signer)) => {
                let issued = self.submit_approved(stored, approval, signer, rules);
                let Some((issued, version)) = issued.await? else {
                    return Ok(None);
                };
                stored.report(self, DecisionOutcome::Issued);
                Ok(Some(Submitted {
                    id,
                    state: RequestState::Issued,
                    version,
                    issued: Some(issued),
                    unsignable: None,
                    automatic,
                    code: stored.explanation.code.clone(),
                }))
            }
            (Some(_) | None, _) => {
                if state == RequestState::Pending {
                    self.find_room(&stored.submission, signer).await?;
                }
                let Some(version) = self.insert(stored, signer, None, rules).await? else {
                    return Ok(None);
                };
                let outcome = match (state, &unsignable) {
                    (_, Some(_)) => DecisionOutcome::Unsignable,
                    (RequestState::Denied, None) => DecisionOutcome::Denied,
                    (RequestState::Approved, None) => DecisionOutcome::Approved,
                    (RequestState::Issued, None) => DecisionOutcome::Issued,
                    (RequestState::Failed, None) => DecisionOutcome::Failed,
                    (RequestState::Undecided, None) => DecisionOutcome::Undecided,
                    (RequestState::Pending, None) => DecisionOutcome::Pending,
                };
                stored.report(self, outcome);
                let s = &stored.submission;
                info!(door = %s.door, name = ?s.key, request = %id, state = state.word(), "stored");
                Ok(Some(Submitted {
                    id,
                    state,
                    version,
                    issued: None,
                    unsignable,
                    automatic,
                    code: stored.explanation.code.clone(),
                }))
            }
        }
    }

    /// `None`: the rules that approved it are no longer in force.
    async fn submit_approved(
        &self,
        stored: &mut Stored,
        approval: Approval,
        signer: &Signer,
        rules: &Arc<Rules>,
    ) -> Result<Option<(Issued, Revision)>, SubmitFault> {
        let issuer = self.issuer(&signer.issuer)?;
        let asked = stored.submission.wishes.expiration_seconds;
        let validity = signer
            .profile
            .validity(asked, stored.now, &issuer)
            .map_err(Broken::from)?
            .at_most(stored.explanation.lifetime, stored.now);
        let draft = self.draft(
            approval,
            signer,
            DraftFor {
                id: stored.id,
                csr: &stored.submission.csr,
                key: &stored.submission.key,
                wishes: &stored.submission.wishes,
                validity,
            },
        )?;
        let flight = self.in_flight(&draft);
        let inserted = self.insert(stored, Some(signer), Some(&draft), rules);
        if inserted.await?.is_none() {
            return Ok(None);
        }
        let completed = self
            .complete(
                Intended::after_durable_commit(draft),
                stored.submission.retained,
            )
            .await?;
        drop(flight);
        Ok(Some(completed))
    }

    /// Whether one more request from this address may wait. A limit, not a boundary: what arrives at the same moment is
    /// not counted. Whatever else is in the way is told first, so that a host that asks again hears what it always heard.
    async fn find_room(
        &self,
        submission: &Submission,
        signer: Option<&Signer>,
    ) -> Result<(), SubmitFault> {
        let limit = self.limits.pending_per_source;
        let (Some(source_address), 1..) = (submission.requester.source, limit) else {
            return Ok(());
        };
        let waiting = self.store.pending_from(source_address, limit).await;
        if waiting.map_err(Broken::from)? < limit {
            return Ok(());
        }
        let in_the_way = self.what_is_in_the_way(submission, signer, Looking::Ahead);
        match in_the_way.await? {
            Some(old) if old.state == RequestState::Pending => Ok(()),
            Some(_) | None => Err(SubmitFault::TooManyWaiting {
                source_address,
                limit,
            }),
        }
    }

    /// Stores a new request, with its intent if it has one. Finds out what is in the way on conflict. `None`: it was
    /// approved by rules or rights that are no longer in force, and is not stored.
    pub(crate) async fn insert(
        &self,
        stored: &mut Stored,
        signer: Option<&Signer>,
        draft: Option<&Draft>,
        rules: &Arc<Rules>,
    ) -> Result<Option<Revision>, SubmitFault> {
        let mut replaces: Option<RequestRecord> = None;
        let mut revoking = self.revoking(stored.replaced(), signer).await;
        for _ in 0..MAX_TRIES {
            let now = self.clock.now();
            let mut change = stored.change(signer, draft, replaces.as_ref(), now);
            if let Some(revoking) = &revoking {
                revoking.write(&mut change, &stored.submission.requester, stored.now);
            }
            let is_approved = stored.state == RequestState::Approved;
            if is_approved && !Arc::ptr_eq(rules, &self.rules.load()) {
                return Ok(None);
            }
            let requester = &stored.submission.requester;
            if is_approved && self.reviews_differently(requester, &stored.evidence) {
                return Ok(None);
            }
            match self.commit(change).await {
                Ok(committed) => {
                    if let Some(revoking) = revoking.take() {
                        self.revoked_for_another(revoking, committed.revision).await;
                    }
                    return Ok(Some(committed.revision));
                }
                // It was there when the rule looked; what the rule says now is another matter.
                Err(CommitFault::Conflict { precondition })
                    if is_about_evidence(&precondition)
                        || stored.rests_on_newest(&precondition) =>
                {
                    return Ok(None);
                }
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
            let submission = &stored.submission;
            if stored.is_aside() {
                let (key, denied) = (
                    submission.key.clone(),
                    self.denied_before(submission).await?,
                );
                let id = denied.ok_or(Broken::Contended)?;
                return Err(SubmitFault::Denied { key, id });
            }
            let looking = match stored.uses_token() {
                true => Looking::BackWithToken,
                false => Looking::Back,
            };
            replaces = self.what_is_in_the_way(submission, signer, looking).await?;
            let waits = |old: &RequestRecord| old.state == RequestState::Pending;
            let is_rejected =
                matches!(stored.state, RequestState::Denied | RequestState::Undecided);
            if is_rejected && replaces.as_ref().is_some_and(waits) {
                // What a rule turns away takes nobody's place.
                let (key, duplicate) = (submission.key.clone(), Duplicate::Requested);
                return Err(SubmitFault::Duplicate { key, duplicate });
            }
        }
        Err(Broken::Contended.into())
    }

    /// The request that a new one may replace: one that was denied for another key or, if the signer lets it, one that
    /// waits. An error for anything else.
    async fn what_is_in_the_way(
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
        let live = self.store.request_at(&submission.door, &key, Past::Ignore);
        let live = live.await.map_err(Broken::from)?;
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
                match newest.await.map_err(Broken::from)? {
                    // What the token replaces was another one when it was looked up.
                    Some(_) if with_token => return Err(Broken::Contended.into()),
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
    async fn denied_before(&self, submission: &Submission) -> Result<Option<RequestId>, Broken> {
        let denied = RequestFilter {
            door: Some(submission.door.clone()),
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
    verdict: Verdict,
    evidence: RecordedEvidence,
    /// Whether a rule approves such a request.
    automatic: bool,
    unsignable: Option<ProfileFault>,
}

/// When one looks for what occupies a name: before anything was tried, or after a commit was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looking {
    Ahead,
    Back,
    /// After a commit was refused that an enrolment token has approved.
    BackWithToken,
}

/// Keeps what rules turn away under one name bounded.
pub(crate) fn trimmed(door: &Door, key: &str) -> Write {
    Write::TrimRejections {
        of: Some((door.clone(), key.to_owned())),
        keep: MAX_REJECTIONS_OF_A_NAME,
    }
}

/// A fault that names what was asked for, in which somebody may have put a secret.
fn shown_fault(fault: &ProfileFault) -> String {
    masked_tokens(&fault.to_string()).into_owned()
}

fn unsignable_explanation(fault: &ProfileFault, policy: &Policy, now: UnixTime) -> Explanation {
    let step = Step::new("profile", "profile", Finding::Mismatch, shown_fault(fault));
    Explanation {
        by: Some(Deciding::Profile),
        code: "unsignable".into(),
        steps: vec![step],
        ..Explanation::new(Effect::Pending, now, policy.generation)
    }
}

/// Agents that were turned away come back every few minutes.
const MAX_REJECTIONS_OF_A_NAME: usize = 10;
