//! The life of a request: submitted, decided, signed, recorded.

use std::fmt;
use std::sync::Arc;

use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::{
    Approval, Deciding, Effect, Evidence, Explanation, Finding, Outcome, PersonDecision,
    PersonVerdict, Policy, Query, Request, Requester, SignerName, Step, Verdict, Wishes, decide,
};

use crate::engine::{Authority, Core};
use crate::faults::{ActFault, Broken, SubmitFault};
use crate::issuance::{Draft, Intended, Issued};
use crate::model::{AuditEntry, Door, RequestId, RequestRecord, RequestState, Revision};
use crate::profile::{Drafting, ProfileFault, Validity};
use crate::signer::Signer;
use crate::store::{Change, CommitFault, Past, Precondition, RequestUpdate, Write};

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
    /// Whether rules decide for this signer, or only people.
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
    /// Takes a request: examined, decided, recorded and, if a rule approved it, signed. When this
    /// returns, what it says is durable.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, SubmitFault> {
        let core = Arc::clone(&self.core);
        self.carry_through(async move { core.submit(submission).await })
            .await
    }

    /// A person approves a waiting request; it is signed before this returns.
    pub async fn approve(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let core = Arc::clone(&self.core);
        self.carry_through(async move { core.approve(act).await })
            .await
    }

    /// A person denies a waiting request.
    pub async fn deny(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let core = Arc::clone(&self.core);
        self.carry_through(async move { core.deny(act).await })
            .await
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

    /// Runs in a task of its own, so that a client who hangs up cannot stop it between its commits.
    pub(crate) async fn carry_through<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Broken> + Send + 'static,
    {
        tokio::spawn(work)
            .await
            .unwrap_or_else(|_| Err(Broken::ShuttingDown.into()))
    }
}

impl Core {
    async fn submit(&self, submission: Submission) -> Result<Submitted, SubmitFault> {
        let now = self.clock.now();
        let id = self.new_request_id(now)?;
        let policy = self.policy.load_full();
        let signer = self.signers.get(&submission.signer);
        let automatic = policy.is_automatic_for(&submission.signer);

        let unsignable = signer.and_then(|signer| {
            signer
                .profile
                .examine(&submission.csr, &submission.key, &submission.wishes)
                .err()
        });
        let verdict = match &unsignable {
            Some(fault) => Verdict::Pending(unsignable_explanation(fault, &policy, now)),
            None => {
                let evidence = Evidence::none().with_person(submission.decision.clone());
                self.decide(&policy, &submission, evidence, now)
            }
        };
        let failure = unsignable.as_ref().map(ToString::to_string);

        let (state, explanation, approval) = match verdict {
            Verdict::Approve(approval) => (
                RequestState::Approved,
                approval.explanation().clone(),
                Some(approval),
            ),
            Verdict::Deny(explanation) => (RequestState::Denied, explanation, None),
            Verdict::Pending(explanation) => (RequestState::Pending, explanation, None),
        };
        let mut stored = Stored {
            submission,
            id,
            state,
            explanation,
            failure,
            now,
        };
        match (approval, signer) {
            (Some(approval), Some(signer)) => {
                let issued = self.submit_approved(&mut stored, approval, signer).await?;
                let version = issued.1;
                Ok(Submitted {
                    id,
                    state: RequestState::Issued,
                    version,
                    issued: Some(issued.0),
                    unsignable: None,
                    automatic,
                })
            }
            (Some(_) | None, _) => {
                let version = self.insert(&mut stored, signer, None).await?;
                Ok(Submitted {
                    id,
                    state,
                    version,
                    issued: None,
                    unsignable,
                    automatic,
                })
            }
        }
    }

    /// Asks the policy, fetching what it needs until it knows enough.
    fn decide(
        &self,
        policy: &Policy,
        submission: &Submission,
        mut evidence: Evidence,
        now: UnixTime,
    ) -> Verdict {
        loop {
            let request = Request {
                csr: &submission.csr,
                key: &submission.key,
                door: submission.door.as_str(),
                signer: &submission.signer,
                requester: &submission.requester,
                wishes: &submission.wishes,
                at: now,
            };
            match decide(policy, &request, &evidence, now) {
                Outcome::Done(verdict) => return verdict,
                Outcome::Need(queries) => {
                    for query in queries {
                        match query {
                            // A request that is only now arriving has been seen by nobody.
                            Query::Person => evidence = evidence.with_person(None),
                        }
                    }
                }
            }
        }
    }

    async fn submit_approved(
        &self,
        stored: &mut Stored,
        approval: Approval,
        signer: &Signer,
    ) -> Result<(Issued, Revision), SubmitFault> {
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
        self.insert(stored, Some(signer), Some(&draft)).await?;
        let completed = self
            .complete(
                Intended::after_durable_commit(draft),
                stored.submission.retained,
            )
            .await?;
        drop(flight);
        Ok(completed)
    }

    /// Stores a new request, with its intent if it has one. Finds out what is in the way on conflict.
    async fn insert(
        &self,
        stored: &mut Stored,
        signer: Option<&Signer>,
        draft: Option<&Draft>,
    ) -> Result<Revision, SubmitFault> {
        let mut replaces: Option<RequestRecord> = None;
        for _ in 0..MAX_TRIES {
            let change = stored.change(signer, draft, replaces.as_ref());
            match self.store.commit(change).await {
                Ok(committed) => return Ok(committed.revision),
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
            replaces = self.what_is_in_the_way(stored, signer).await?;
        }
        Err(Broken::Contended.into())
    }

    /// The denied request of another key that a new one may replace; an error for anything else.
    async fn what_is_in_the_way(
        &self,
        stored: &Stored,
        signer: Option<&Signer>,
    ) -> Result<Option<RequestRecord>, SubmitFault> {
        let key = stored.submission.key.clone();
        let live = self
            .store
            .request_at(&stored.submission.door, &key, Past::Ignore);
        if let Some(record) = live.await.map_err(Broken::from)? {
            if record.state != RequestState::Denied {
                return Err(SubmitFault::Duplicate {
                    key,
                    duplicate: Duplicate::Requested,
                });
            }
            // A person's denial holds for the name and key it was given for.
            if record.key_fingerprint == stored.submission.csr.key_fingerprint() || record.retained
            {
                return Err(SubmitFault::Denied { key, id: record.id });
            }
            return Ok(Some(record));
        }
        let Some(signer) = signer.filter(|signer| signer.one_certificate_per_name) else {
            return Ok(None);
        };
        let newest = self.store.newest_certificate(&signer.issuer, &key);
        let duplicate = match newest.await.map_err(Broken::from)? {
            Some(entry) if entry.revoked.is_some() => Duplicate::Revoked,
            Some(_) => Duplicate::Signed,
            None => Duplicate::Requested,
        };
        Err(SubmitFault::Duplicate { key, duplicate })
    }

    async fn approve(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let (record, explanation) = self.judged(&act, PersonVerdict::Approve).await?;
        let csr = CheckedCsr::trusted_from_store(&record.csr_der).map_err(|source| {
            Broken::StoredRequest {
                id: record.id,
                source,
            }
        })?;
        let signer = self.signers.get(&record.signer);
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
        let mut update = RequestUpdate {
            id: record.id,
            state: RequestState::Approved,
            live: record.live,
            explanation: Some(explanation.clone()),
            failure: None,
            certificate: None,
            attachment: act.attachment.clone(),
        };
        let mut audit = vec![act.audit("approve", &record, self.clock.now(), act.reason.clone())];
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
                    .validity(asked, self.clock.now(), issuer)
                    .map_err(Broken::from)?;
                let approval = Approval::from_recorded_decision(explanation);
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
        let mut writes = vec![Write::UpdateRequest(update)];
        writes.extend(
            draft
                .iter()
                .map(|draft| Write::Intend(draft.intent().clone())),
        );
        self.commit_act(&act, &record, writes, audit).await?;
        if let Some(draft) = draft {
            self.complete(Intended::after_durable_commit(draft), record.retained)
                .await?;
        }
        drop(flight);
        self.reread(&record).await
    }

    async fn deny(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let (record, explanation) = self.judged(&act, PersonVerdict::Deny).await?;
        let update = RequestUpdate {
            id: record.id,
            state: RequestState::Denied,
            live: record.live,
            explanation: Some(explanation),
            failure: None,
            certificate: None,
            attachment: act.attachment.clone(),
        };
        let audit = vec![act.audit("deny", &record, self.clock.now(), act.reason.clone())];
        self.commit_act(&act, &record, vec![Write::UpdateRequest(update)], audit)
            .await?;
        self.reread(&record).await
    }

    async fn delete(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let record = self.find(&act).await?;
        let audit = vec![act.audit("delete", &record, self.clock.now(), act.reason.clone())];
        self.commit_act(&act, &record, vec![Write::DeleteRequest(record.id)], audit)
            .await?;
        Ok(record)
    }

    async fn attach(&self, act: Act) -> Result<RequestRecord, ActFault> {
        let record = self.find(&act).await?;
        let update = RequestUpdate {
            id: record.id,
            state: record.state,
            live: record.live,
            explanation: None,
            failure: None,
            certificate: None,
            attachment: act.attachment.clone(),
        };
        self.commit_act(
            &act,
            &record,
            vec![Write::UpdateRequest(update)],
            Vec::new(),
        )
        .await?;
        self.reread(&record).await
    }

    /// The waiting request of an act, and what a person's word on it comes to.
    async fn judged(
        &self,
        act: &Act,
        verdict: PersonVerdict,
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
            reason: act.reason.clone(),
        };
        let request = Request {
            csr: &csr,
            key: &record.key,
            door: record.door.as_str(),
            signer: &record.signer,
            requester: &record.requester,
            wishes: &record.wishes,
            at: record.created,
        };
        let evidence = Evidence::none().with_person(Some(decision));
        match decide(&self.policy.load(), &request, &evidence, now) {
            Outcome::Done(Verdict::Approve(approval)) => {
                Ok((record, approval.explanation().clone()))
            }
            Outcome::Done(Verdict::Deny(explanation) | Verdict::Pending(explanation)) => {
                Ok((record, explanation))
            }
            Outcome::Need(_) => Err(Broken::Contended.into()),
        }
    }

    async fn find(&self, act: &Act) -> Result<RequestRecord, ActFault> {
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

    async fn commit_act(
        &self,
        act: &Act,
        record: &RequestRecord,
        writes: Vec<Write>,
        audit: Vec<AuditEntry>,
    ) -> Result<Revision, ActFault> {
        let preconditions = vec![Precondition::RequestAt {
            id: record.id,
            version: record.version,
        }];
        match self
            .store
            .commit(Change {
                preconditions,
                writes,
                audit,
            })
            .await
        {
            Ok(committed) => Ok(committed.revision),
            Err(CommitFault::Conflict { .. }) => Err(ActFault::Conflict {
                key: act.key.clone(),
            }),
            Err(other) => Err(commit_broken(other).into()),
        }
    }

    async fn reread(&self, record: &RequestRecord) -> Result<RequestRecord, ActFault> {
        let found = self.store.request(record.id).await.map_err(Broken::from)?;
        found.ok_or_else(|| ActFault::NotFound {
            door: record.door.to_string(),
            key: record.key.clone(),
        })
    }

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
            issuer,
            serial: self.new_serial()?,
            validity: of.validity,
            owner: self.owner.clone(),
            lease_until: self.clock.now().plus_seconds(self.limits.lease_seconds),
        };
        Ok(signer.profile.draft(approval, drafting)?)
    }

    /// Signs what is intended and puts it on record. On failure the intent stays open for recovery.
    pub(crate) async fn complete(
        &self,
        intended: Intended,
        retained: bool,
    ) -> Result<(Issued, Revision), Broken> {
        let intent = intended.intent();
        let (issuer, serial, request) = (intent.issuer.clone(), intent.serial, intent.request);
        let signature = self.sign(&issuer, intended.to_be_signed()).await?;
        let sealed = intended.seal(&signature)?;
        let update = RequestUpdate {
            id: request,
            state: RequestState::Issued,
            live: retained,
            explanation: None,
            failure: None,
            certificate: Some((issuer.clone(), serial)),
            attachment: None,
        };
        let audit = AuditEntry {
            at: self.clock.now(),
            actor: Requester::authority(),
            action: "issue".into(),
            subject: format!("{issuer}/{serial}"),
            request: Some(request.to_string()),
            detail: sealed.intent().name.clone(),
        };
        let change = Change {
            preconditions: vec![
                Precondition::IntentOpen {
                    issuer,
                    serial,
                    owner: Some(self.owner.clone()),
                },
                Precondition::RequestExists { id: request },
            ],
            writes: vec![sealed.record(), Write::UpdateRequest(update)],
            audit: vec![audit],
        };
        match self.store.commit(change).await {
            Ok(committed) => Ok((Issued::after_durable_commit(sealed), committed.revision)),
            Err(fault) => Err(commit_broken(fault)),
        }
    }
}

/// What a draft is made from.
pub(crate) struct DraftFor<'a> {
    pub(crate) id: RequestId,
    pub(crate) csr: &'a CheckedCsr,
    pub(crate) key: &'a str,
    pub(crate) wishes: &'a Wishes,
    pub(crate) validity: Validity,
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
    fn change(
        &self,
        signer: Option<&Signer>,
        draft: Option<&Draft>,
        replaces: Option<&RequestRecord>,
    ) -> Change {
        let s = &self.submission;
        let mut change = Change::default();
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
                change.writes.push(Write::UpdateRequest(RequestUpdate {
                    id: old.id,
                    state: old.state,
                    live: false,
                    explanation: None,
                    failure: None,
                    certificate: None,
                    attachment: None,
                }));
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
        change.audit.push(AuditEntry {
            at: self.now,
            actor: s.requester.clone(),
            action: "request".into(),
            subject: format!("{}/{}", s.door, s.key),
            request: Some(self.id.to_string()),
            detail: self.explanation.to_string(),
        });
        change
    }
}

impl Act {
    fn audit(
        &self,
        action: &'static str,
        record: &RequestRecord,
        at: UnixTime,
        detail: String,
    ) -> AuditEntry {
        AuditEntry {
            at,
            actor: self.actor.clone(),
            action: action.into(),
            subject: format!("{}/{}", record.door, record.key),
            request: Some(record.id.to_string()),
            detail,
        }
    }
}

fn unsignable_explanation(fault: &ProfileFault, policy: &Policy, now: UnixTime) -> Explanation {
    Explanation {
        effect: Effect::Pending,
        by: Some(Deciding::Profile),
        at: now,
        generation: policy.generation,
        steps: vec![Step {
            rule: "profile".to_owned(),
            kind: "profile".to_owned(),
            finding: Finding::Mismatch,
            reason: fault.to_string(),
        }],
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
