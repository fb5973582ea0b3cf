//! A request arrives: examined, decided, stored and, if a rule approves it, signed.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::{
    Approval, Deciding, Effect, Explanation, Finding, PersonDecision, Policy, RecordedEvidence,
    Requester, SignerName, Step, Use, Verdict, Wishes,
};

use tracing::info;

use crate::audit::AuditEntry;
use crate::engine::{Authority, Core, Rules};
use crate::evidence::Claim;
use crate::faults::{Broken, SubmitFault};
use crate::issuance::{Draft, Intended, Issued};
use crate::judgement::{Asking, Case, Gathered, is_about_evidence, is_stopped, issued_name, used};
use crate::model::{Door, RequestId, RequestRecord, RequestState, Revision};
use crate::profile::ProfileFault;
use crate::signer::{OnWaiting, Signer};
use crate::signing::{DraftFor, MAX_TRIES, commit_broken};
use crate::store::{Change, CommitFault, Past, Precondition, RequestFilter, RequestUpdate, Write};
use crate::telemetry::{DecisionOutcome, NOBODY, settled_by};

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
    fn case<'a>(&'a self, id: RequestId, now: UnixTime, signer: Option<&Signer>) -> Case<'a> {
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
            if claim.is_none() {
                claim = self.claim(&submission, &rules).await?;
            }
            let judged = self.judge(&submission, id, &rules, now, &mut gathered);
            let judged = judged.await?;
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
                failure: judged.unsignable.as_ref().map(ToString::to_string),
                uses: judged.verdict.uses().to_vec(),
                gathered: gathered.clone(),
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
    ) -> Result<Option<Claim<'_>>, SubmitFault> {
        if !rules.policy.asks_outside_for(&submission.signer) {
            return Ok(None);
        }
        let key = submission.key.clone();
        let duplicate = Duplicate::Requested;
        let claimed = self.evidence.claim(&submission.door, &submission.key);
        let claim = claimed.ok_or(SubmitFault::Duplicate { key, duplicate })?;
        let signer = rules.signer(&submission.signer);
        self.what_is_in_the_way(submission, signer.as_deref(), Looking::Ahead)
            .await?;
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
        let (verdict, evidence) = match &unsignable {
            Some(fault) => (
                Verdict::Pending(unsignable_explanation(fault, policy, now)),
                RecordedEvidence::default(),
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
            .validity(asked, stored.now, issuer)
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
    /// approved by rules that are no longer in force, and is not stored.
    async fn insert(
        &self,
        stored: &mut Stored,
        signer: Option<&Signer>,
        draft: Option<&Draft>,
        rules: &Arc<Rules>,
    ) -> Result<Option<Revision>, SubmitFault> {
        let mut replaces: Option<RequestRecord> = None;
        for _ in 0..MAX_TRIES {
            let change = stored.change(signer, draft, replaces.as_ref());
            let is_approved = stored.state == RequestState::Approved;
            if is_approved && !Arc::ptr_eq(rules, &self.rules.load()) {
                return Ok(None);
            }
            match self.commit(change).await {
                Ok(committed) => return Ok(Some(committed.revision)),
                // It was there when the rule looked; what the rule says now is another matter.
                Err(CommitFault::Conflict { precondition }) if is_about_evidence(&precondition) => {
                    return Ok(None);
                }
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
            let submission = &stored.submission;
            replaces = self
                .what_is_in_the_way(submission, signer, Looking::Back)
                .await?;
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
        let replaces = signer.is_some_and(|signer| signer.on_waiting == OnWaiting::Replace);
        match (&live, unique) {
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
            (None, Looking::Back, Some(_)) => Err(duplicate(Duplicate::Requested)),
            (None, Looking::Back | Looking::Ahead, _) => Ok(None),
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
}

/// A submission on its way into the store.
struct Stored {
    submission: Submission,
    id: RequestId,
    state: RequestState,
    explanation: Explanation,
    evidence: RecordedEvidence,
    failure: Option<String>,
    /// What its approval uses up.
    uses: Vec<Use>,
    /// What was asked for it.
    gathered: Gathered,
    now: UnixTime,
}

impl Stored {
    fn is_rejected(&self) -> bool {
        matches!(self.state, RequestState::Denied | RequestState::Undecided)
    }

    fn report(&self, core: &Core, outcome: DecisionOutcome) {
        let rule = settled_by(&self.explanation);
        let door = &self.submission.door;
        core.telemetry.decided(door, outcome, rule);
    }

    fn change(
        &self,
        signer: Option<&Signer>,
        draft: Option<&Draft>,
        replaces: Option<&RequestRecord>,
    ) -> Change {
        let s = &self.submission;
        let mut change = Change::default();
        change.preconditions.push(Precondition::NotDenied {
            door: s.door.clone(),
            key: s.key.clone(),
            key_fingerprint: s.csr.key_fingerprint(),
        });
        match replaces {
            None => change.preconditions.push(Precondition::KeyFree {
                door: s.door.clone(),
                key: s.key.clone(),
            }),
            Some(old) => {
                change.preconditions.push(Precondition::RequestAt {
                    id: old.id,
                    version: old.version,
                });
                change.writes.push(match old.state {
                    // Agents ask every few minutes: what they replace is not kept.
                    RequestState::Pending => Write::DeleteRequest(old.id),
                    RequestState::Approved
                    | RequestState::Denied
                    | RequestState::Issued
                    | RequestState::Failed
                    | RequestState::Undecided => Write::UpdateRequest(RequestUpdate {
                        live: false,
                        ..RequestUpdate::none(old)
                    }),
                });
            }
        }
        if let Some(signer) = signer.filter(|signer| signer.one_certificate_per_name) {
            change.preconditions.push(Precondition::NewestCertificate {
                issuer: signer.issuer.clone(),
                name: s.key.clone(),
                serial: None,
            });
        }
        change.writes.push(Write::InsertRequest(RequestRecord {
            id: self.id,
            door: s.door.clone(),
            key: s.key.clone(),
            // What a rule turns away occupies no name: the next request is decided anew.
            live: !self.is_rejected() || s.retained,
            retained: s.retained,
            version: Revision::default(),
            state: self.state,
            signer: s.signer.clone(),
            csr_der: s.csr.der().to_vec(),
            key_fingerprint: s.csr.key_fingerprint(),
            requester: s.requester.clone(),
            wishes: s.wishes.clone(),
            created: self.now,
            explanation: self.explanation.clone(),
            evidence: self.evidence.clone(),
            failure: self.failure.clone(),
            certificate: None,
            attachment: s.attachment.clone(),
        }));
        change.writes.extend(
            draft
                .iter()
                .map(|draft| Write::Intend(draft.intent().clone())),
        );
        if self.is_rejected() && !s.retained {
            change.writes.push(trimmed(&s.door, &s.key));
        }
        // As of when the rules looked: a window may have opened since the request arrived.
        let (case, decided) = (s.case(self.id, self.now, signer), self.explanation.at);
        used(&self.uses, case, &self.gathered, decided, &mut change);
        change.audit.extend(self.gathered.audit.iter().cloned());
        if let Some(old) = replaces.filter(|old| old.state == RequestState::Pending) {
            change.audit.push(
                AuditEntry::on(old, self.now, s.requester.clone(), "replace")
                    .detail(format!("request {} takes its place", self.id)),
            );
        }
        let subject = format!("{}/{}", s.door, s.key);
        change.audit.push(
            AuditEntry::new(self.now, s.requester.clone(), "request", subject)
                .request(&self.id)
                .certname(&s.key)
                .key(&s.csr.key_fingerprint())
                .message(&s.csr.fingerprint())
                .decided(&self.explanation)
                .detail(self.explanation.to_string()),
        );
        change
    }
}

/// Keeps what rules turn away under one name bounded.
pub(crate) fn trimmed(door: &Door, key: &str) -> Write {
    Write::TrimRejections {
        of: Some((door.clone(), key.to_owned())),
        keep: MAX_REJECTIONS_OF_A_NAME,
    }
}

fn unsignable_explanation(fault: &ProfileFault, policy: &Policy, now: UnixTime) -> Explanation {
    let step = Step::new("profile", "profile", Finding::Mismatch, fault.to_string());
    Explanation {
        by: Some(Deciding::Profile),
        code: "unsignable".into(),
        steps: vec![step],
        ..Explanation::new(Effect::Pending, now, policy.generation)
    }
}

/// Agents that were turned away come back every few minutes.
const MAX_REJECTIONS_OF_A_NAME: usize = 10;
