//! A request arrives: examined, decided, stored and, if a rule approves it, signed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::{
    Approval, Deciding, Effect, Evidence, Executable, Execution, Explanation, Finding, ListFile,
    Outcome, PersonDecision, Policy, Query, Request, Requester, SignerName, Step, Verdict,
    WebhookAnswer, Wishes, decide,
};

use tokio::time::Instant;
use tracing::info;

use crate::audit::AuditEntry;
use crate::engine::{Authority, Core, Rules};
use crate::evidence::{Busy, Claim};
use crate::faults::{Broken, SubmitFault};
use crate::issuance::{Draft, Intended, Issued};
use crate::model::{Door, RequestId, RequestRecord, RequestState, Revision};
use crate::profile::ProfileFault;
use crate::signer::{OnWaiting, Signer};
use crate::signing::{DraftFor, MAX_TRIES, commit_broken};
use crate::store::{Change, CommitFault, Past, Precondition, RequestFilter, RequestUpdate, Write};
use crate::telemetry::{DecisionOutcome, ExecutionOutcome, NOBODY, settled_by};

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
    /// Judges and settles a request; once more if other rules came in force before its intent was on record. What an
    /// executable has said is kept: it is asked once for a request.
    async fn submit(&self, mut submission: Submission) -> Result<Submitted, SubmitFault> {
        let now = self.clock.now();
        let id = self.new_request_id(now)?;
        let mut claim = None;
        let mut executed = Executed::new();
        for _ in 0..MAX_TRIES {
            let rules = self.rules.load_full();
            if claim.is_none() {
                claim = self.claim(&submission, &rules).await?;
            }
            let judged = self.judge(&submission, &rules, now, &mut executed).await?;
            let (state, explanation) = match &judged.verdict {
                Verdict::Approve(approval) => {
                    (RequestState::Approved, approval.explanation().clone())
                }
                Verdict::Deny(explanation) => (RequestState::Denied, explanation.clone()),
                Verdict::Pending(explanation) => (RequestState::Pending, explanation.clone()),
            };
            let mut stored = Stored {
                submission,
                id,
                state,
                explanation,
                failure: judged.unsignable.as_ref().map(ToString::to_string),
                now,
            };
            if let Some(submitted) = self.settle(&mut stored, judged, &rules).await? {
                return Ok(submitted);
            }
            info!(request = %id, "other rules came in force meanwhile; the request is judged anew");
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
        rules: &Rules,
        now: UnixTime,
        executed: &mut Executed,
    ) -> Result<Judged, Broken> {
        let policy = &rules.policy;
        let unsignable = rules.signer(&submission.signer).and_then(|signer| {
            signer
                .profile
                .examine(&submission.csr, &submission.key, &submission.wishes)
                .err()
        });
        let asking = match &unsignable {
            Some(_) => Asking::WithoutRunning,
            None => Asking::InEarnest(executed),
        };
        let verdict = self.decide(policy, submission, asking, now).await?;
        let automatic = matches!(verdict, Verdict::Approve(_));
        let verdict = match &unsignable {
            Some(fault) => Verdict::Pending(unsignable_explanation(fault, policy, now)),
            None => verdict,
        };
        Ok(Judged {
            verdict,
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
                }))
            }
        }
    }

    /// Asks the policy, fetching what it needs until it knows enough.
    async fn decide(
        &self,
        policy: &Policy,
        submission: &Submission,
        mut asking: Asking<'_>,
        now: UnixTime,
    ) -> Result<Verdict, Broken> {
        let mut evidence = Evidence::none().with_person(submission.decision.clone());
        loop {
            let request = Request {
                csr: &submission.csr,
                key: &submission.key,
                door: submission.door.as_str(),
                signer: &submission.signer,
                requester: &submission.requester,
                wishes: &submission.wishes,
                at: now,
                renewal: false,
            };
            match decide(policy, &request, &evidence, now) {
                Outcome::Done(verdict) => return Ok(verdict),
                Outcome::Need(queries) => {
                    for query in queries {
                        evidence = self
                            .answer(query, submission, &mut asking, evidence)
                            .await?;
                    }
                }
            }
        }
    }

    async fn answer(
        &self,
        query: Query,
        submission: &Submission,
        asking: &mut Asking<'_>,
        evidence: Evidence,
    ) -> Result<Evidence, Broken> {
        Ok(match query {
            // A request that is only now arriving has been seen by nobody.
            Query::Person => evidence.with_person(None),
            Query::AutosignFile(path) => {
                let begun = Instant::now();
                let file = self.evidence.file(&path).await;
                evidence.with_file(path, file, micros_since(begun))
            }
            Query::Execution(Executable { path, .. }) => {
                let begun = Instant::now();
                let execution = match asking {
                    Asking::InEarnest(executed) => match executed.get(&path) {
                        Some(said) => said.clone(),
                        None => {
                            let said = self.execute(&path, submission).await?;
                            executed.insert(path.clone(), said.clone());
                            said
                        }
                    },
                    Asking::WithoutRunning => Execution::Approved,
                };
                evidence.with_execution(path, execution, micros_since(begun))
            }
            Query::Allowlist(path) => {
                let why = format!("{} cannot be read yet", path.display());
                evidence.with_list(path, ListFile::Unusable(why), 0)
            }
            Query::Webhook(webhook) => {
                let reason = "webhooks cannot be asked yet".to_owned();
                evidence.with_webhook(webhook, WebhookAnswer::Unavailable { reason }, 0)
            }
            Query::Machine => evidence.with_machine(Err(NOT_YET.to_owned()), 0),
            Query::Window => evidence.with_window(Err(NOT_YET.to_owned()), 0),
            Query::Ledger => evidence.with_ledger(Err(NOT_YET.to_owned()), 0),
        })
    }

    async fn execute(&self, path: &Path, submission: &Submission) -> Result<Execution, Broken> {
        let request = submission.csr.to_pem();
        let begun = Instant::now();
        let executed = self.evidence.execute(path, &submission.key, request);
        let executed = executed.await;
        let outcome = match &executed {
            Ok(Execution::Approved) => ExecutionOutcome::Approved,
            Ok(Execution::Declined(_)) => ExecutionOutcome::Declined,
            Ok(Execution::Unavailable(_)) => ExecutionOutcome::Busy,
            Err(Busy) => ExecutionOutcome::Busy,
        };
        self.telemetry.executed(outcome, begun.elapsed());
        executed.map_err(|Busy| Broken::Busy)
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
            .map_err(Broken::from)?;
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
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
            let submission = &stored.submission;
            replaces = self
                .what_is_in_the_way(submission, signer, Looking::Back)
                .await?;
            let waits = |old: &RequestRecord| old.state == RequestState::Pending;
            if stored.state == RequestState::Denied && replaces.as_ref().is_some_and(waits) {
                // What a rule denies takes nobody's place.
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

fn micros_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)
}

const NOT_YET: &str = "cannot be looked up yet";

/// What executables have said of a request.
type Executed = BTreeMap<PathBuf, Execution>;

/// Whether an executable is really run, unless it was, or taken to say yes: what only people can sign asks nobody.
enum Asking<'a> {
    InEarnest(&'a mut Executed),
    WithoutRunning,
}

/// What profile and policy say of a request.
struct Judged {
    verdict: Verdict,
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
    failure: Option<String>,
    now: UnixTime,
}

impl Stored {
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
                    | RequestState::Failed => Write::UpdateRequest(RequestUpdate {
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
            // A denial by rule occupies no name: the next request is decided anew.
            live: self.state != RequestState::Denied || s.retained,
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
            failure: self.failure.clone(),
            certificate: None,
            attachment: s.attachment.clone(),
        }));
        change.writes.extend(
            draft
                .iter()
                .map(|draft| Write::Intend(draft.intent().clone())),
        );
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

fn unsignable_explanation(fault: &ProfileFault, policy: &Policy, now: UnixTime) -> Explanation {
    let step = Step::new("profile", "profile", Finding::Mismatch, fault.to_string());
    Explanation {
        by: Some(Deciding::Profile),
        code: "unsignable".into(),
        steps: vec![step],
        ..Explanation::new(Effect::Pending, now, policy.generation)
    }
}
