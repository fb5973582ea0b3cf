//! A request that waits is judged again: because its sender asks again, or because its evidence may be there by now.
//!
//! What an executable has said of a request stays said. A person's word is never overruled: only what nobody has decided
//! is judged again.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use countersign_pki::{CheckedCsr, Fingerprint, masked};
use countersign_policy::{Explanation, Identity, Step, Verdict};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::audit::AuditEntry;
use crate::engine::{Authority, Core};
use crate::faults::{Broken, SubmitFault};
use crate::issuance::{Intended, Issued};
use crate::judgement::{
    Asking, Case, Gathered, Times, is_about_evidence, issued_name, used, uses_token,
};
use crate::model::{Door, RequestId, RequestRecord, RequestState, Revision};
use crate::signer::Signer;
use crate::signing::{DraftFor, MAX_TRIES, commit_broken};
use crate::store::{Change, CommitFault, Past, Precondition, RequestUpdate, Write};
use crate::submission::{Submission, Submitted, trimmed};
use crate::telemetry::{DecisionOutcome, settled_by};
use crate::token::rejected;

/// What has to be the same for a request to be the one that waits.
pub(crate) struct SameRequest {
    door: Door,
    sender: Identity,
    key_fingerprint: Fingerprint,
    csr: CheckedCsr,
}

impl Authority {
    /// Judges requests again that wait for evidence which may still appear: some of them, and others the next time.
    /// Answers how many were settled.
    ///
    /// # Errors
    /// If the store fails; what was settled before stays settled.
    pub async fn reconsider_waiting(&self) -> Result<usize, Broken> {
        let after = self.core.reconsidered.load(Ordering::Relaxed);
        let store = &self.core.store;
        let mut page = store.worth_asking_again(Some(after), AT_A_TIME).await?;
        if page.len() < AT_A_TIME && after > 0 {
            // The end: the next ones are those at the beginning again.
            let rest = AT_A_TIME.saturating_sub(page.len());
            let first = store.worth_asking_again(None, rest).await?;
            page.extend(first.into_iter().filter(|(place, _)| *place <= after));
        }
        let Some((last, _)) = page.last() else {
            return Ok(0);
        };
        self.core.reconsidered.store(*last, Ordering::Relaxed);
        let waiting = page.into_iter().map(|(_, record)| record);
        self.reconsider_these(waiting).await
    }

    /// Judges requests again whose senders have other rights by now, all of them. Answers how many were settled.
    ///
    /// # Errors
    /// If the store fails; what was settled before stays settled.
    pub async fn reconsider_access(&self) -> Result<usize, Broken> {
        let (mut after, mut settled) = (None, 0_usize);
        loop {
            let page = self.core.store.worth_asking_again(after, AT_A_TIME).await?;
            let is_last = page.len() < AT_A_TIME;
            after = page.last().map(|(place, _)| *place);
            let waiting = page.into_iter().map(|(_, record)| record);
            // Nobody outside is asked about the others.
            let concerned = waiting.filter(|record| self.core.has_other_rights(record));
            settled = settled.saturating_add(self.reconsider_these(concerned).await?);
            if is_last {
                return Ok(settled);
            }
        }
    }

    async fn reconsider_these(
        &self,
        mut waiting: impl Iterator<Item = RequestRecord>,
    ) -> Result<usize, Broken> {
        let (mut judging, mut settled) = (JoinSet::new(), 0_usize);
        loop {
            while judging.len() < TOGETHER
                && let Some(record) = waiting.next()
            {
                let core = Arc::clone(&self.core);
                judging.spawn(async move { core.reconsider_one(record).await });
            }
            match judging.join_next().await {
                None => return Ok(settled),
                Some(Ok(judged)) => settled = settled.saturating_add(usize::from(judged?)),
                Some(Err(_)) => return Err(Broken::Defect),
            }
        }
    }
}

impl Core {
    /// Whether one that waits is settled by now.
    async fn reconsider_one(&self, record: RequestRecord) -> Result<bool, Broken> {
        // Its sender is asking at this moment: that is enough.
        let Some(_claim) = self.evidence.claim(&record.door, &record.key) else {
            return Ok(false);
        };
        let id = record.id;
        // As it is now: what was asked since is not asked again.
        let current = self.store.request(id).await?;
        let waits = |record: &RequestRecord| record.state == RequestState::Pending;
        let Some(record) = current.filter(waits) else {
            return Ok(false);
        };
        let gathered = Gathered::recorded_unasked(&record.evidence);
        match self.reconsider(record, gathered).await {
            Ok(settled) => Ok(settled.is_some()),
            Err(fault @ Broken::Store(_)) => Err(fault),
            // One that cannot be judged must not keep the others waiting.
            Err(fault) => {
                warn!(request = %id, %fault, "cannot be judged again");
                Ok(false)
            }
        }
    }

    /// What to look for if the submission's name turns out to be taken by a request that waits. Puppet's own setting is
    /// asked once per request, as Puppet Server does; a policy of rules is asked again.
    pub(crate) fn may_ask_again(&self, submission: &Submission) -> Option<SameRequest> {
        let rules = self.rules.load();
        let mut of_signer = rules.policy.rules_for(&submission.signer);
        let has_documents = of_signer.any(|rule| !rule.policy.is_empty());
        has_documents.then(|| SameRequest {
            door: submission.door.clone(),
            sender: submission.requester.identity.clone(),
            key_fingerprint: submission.csr.key_fingerprint(),
            csr: as_stored(&submission.csr),
        })
    }

    /// Judges the request that waits under a name again, if it is the same. `None`: it is another one, or still waits.
    pub(crate) async fn ask_again(
        &self,
        key: &str,
        same: SameRequest,
    ) -> Result<Option<Submitted>, SubmitFault> {
        let Some(_claim) = self.evidence.claim(&same.door, key) else {
            return Ok(None);
        };
        let waiting = self.store.request_at(&same.door, key, Past::Ignore);
        let waiting = waiting.await.map_err(Broken::from)?;
        let is_same = |record: &RequestRecord| {
            record.state == RequestState::Pending
                // What its door shows is its sender's: somebody else who has the message gets nothing by it.
                && (!record.retained || is_same_user(&record.requester.identity, &same.sender))
                && record.key_fingerprint == same.key_fingerprint
                && CheckedCsr::trusted_from_store(&record.csr_der)
                    .is_ok_and(|waiting| asks_the_same(&waiting, &same.csr))
        };
        match waiting.filter(is_same) {
            Some(record) => {
                let gathered = Gathered::recorded(&record.evidence);
                Ok(self.reconsider(record, gathered).await?)
            }
            None => Ok(None),
        }
    }

    /// Judges a request on record again. `None`: it still waits, or somebody else has changed it.
    async fn reconsider(
        &self,
        mut record: RequestRecord,
        mut gathered: Gathered,
    ) -> Result<Option<Submitted>, Broken> {
        let csr = CheckedCsr::trusted_from_store(&record.csr_der).map_err(|source| {
            Broken::StoredRequest {
                id: record.id,
                source,
            }
        })?;
        for _ in 0..MAX_TRIES {
            let judged = self.judge_again(&record, &csr, &mut gathered).await?;
            let Judged::Conflict { is_stale } = judged else {
                return Ok(judged.submitted());
            };
            if is_stale {
                let current = self.store.request(record.id).await?;
                match current.filter(|current| current.state == RequestState::Pending) {
                    Some(current) => record = current,
                    None => return Ok(None),
                }
            }
        }
        Err(Broken::Contended)
    }

    async fn judge_again(
        &self,
        record: &RequestRecord,
        csr: &CheckedCsr,
        gathered: &mut Gathered,
    ) -> Result<Judged, Broken> {
        let now = self.clock.now();
        let rules = self.rules.load_full();
        let signer = rules.signer(&record.signer);
        let is_unsignable = signer.as_deref().is_some_and(|signer| {
            let examined = signer.profile.examine(csr, &record.key, &record.wishes);
            examined.is_err()
        });
        if is_unsignable {
            return Ok(Judged::Waits);
        }
        let case = record.case(signer.as_deref(), csr);
        let reached = self.reach(&rules, case, None, Asking::InEarnest, gathered);
        let reached = reached.await?;
        let explanation = reached.verdict.explanation().clone();
        let uses = reached.verdict.uses().to_vec();
        let evidence = reached.evidence;
        let (state, action) = match &reached.verdict {
            Verdict::Approve(_) => (RequestState::Approved, "approve"),
            Verdict::Deny(_) => (RequestState::Denied, "deny"),
            Verdict::Pending(_)
                if same_answers(&explanation, &record.explanation)
                    && evidence.executions == record.evidence.executions =>
            {
                return Ok(Judged::Waits);
            }
            Verdict::Pending(_) => (RequestState::Pending, "reconsider"),
        };
        let draft = match (reached.verdict, signer.as_deref()) {
            (Verdict::Approve(approval), Some(signer)) => {
                let issuer = self.issuer(&signer.issuer)?;
                let asked = record.wishes.expiration_seconds;
                let validity = signer.profile.validity(asked, now, &issuer)?;
                let of = DraftFor {
                    id: record.id,
                    csr,
                    key: &record.key,
                    wishes: &record.wishes,
                    validity: validity.at_most(explanation.lifetime, now),
                };
                Some(self.draft(approval, signer, of)?)
            }
            (Verdict::Approve(_) | Verdict::Deny(_) | Verdict::Pending(_), _) => None,
        };
        let mut change = Change {
            preconditions: vec![Precondition::RequestAt {
                id: record.id,
                version: record.version,
            }],
            writes: vec![Write::UpdateRequest(RequestUpdate {
                state,
                live: record.live && (state != RequestState::Denied || record.retained),
                explanation: Some(explanation.clone()),
                evidence: Some(evidence.clone()),
                ..RequestUpdate::none(record)
            })],
            audit: vec![
                AuditEntry::on(record, now, record.requester.clone(), action)
                    .decided(&explanation)
                    .detail(explanation.to_string()),
            ],
        };
        let serial = draft.as_ref().map(|draft| &draft.intent().serial);
        let times = Times {
            decided: explanation.at,
            now: self.clock.now(),
        };
        used(&uses, case, gathered, times, serial, &mut change);
        if state == RequestState::Denied {
            rejected(case, &explanation, gathered, now, &mut change);
        }
        if state == RequestState::Denied && !record.retained {
            change.writes.push(trimmed(&record.door, &record.key));
        }
        change.audit.append(&mut gathered.audit.clone());
        let flight = draft.as_ref().map(|draft| self.in_flight(draft));
        let replaced = gathered.replaced(&uses);
        let mut revoking = self.revoking(replaced, signer.as_deref()).await;
        if let Some(draft) = &draft {
            change.writes.push(Write::Intend(draft.intent().clone()));
            if let Some(signer) = signer.as_deref().filter(|s| s.one_certificate_per_name) {
                change.preconditions.push(Precondition::NewestCertificate {
                    issuer: signer.issuer.clone(),
                    name: record.key.clone(),
                    serial: replaced.first().map(|entry| entry.serial),
                });
            }
        }
        if let Some(revoking) = &revoking {
            revoking.write(&mut change, &record.requester, now);
        }
        let is_outdated = state == RequestState::Approved
            && (!Arc::ptr_eq(&rules, &self.rules.load())
                || self.reviews_differently(&record.requester, &evidence));
        if is_outdated {
            return Ok(Judged::Conflict { is_stale: false });
        }
        let version = match self.commit(change).await {
            Ok(committed) => committed.revision,
            Err(CommitFault::Conflict { precondition }) => {
                let is_newest = matches!(precondition, Precondition::NewestCertificate { .. });
                let is_stale =
                    !(is_about_evidence(&precondition) || is_newest && uses_token(&uses));
                return Ok(Judged::Conflict { is_stale });
            }
            Err(other) => return Err(commit_broken(other)),
        };
        if let Some(revoking) = revoking.take() {
            self.revoked_for_another(revoking, version).await;
        }
        gathered.audit.clear();
        let settled = |state, version, issued| {
            Judged::Settled(Box::new(Settled {
                id: record.id,
                state,
                version,
                issued,
                code: explanation.code.clone(),
            }))
        };
        let (outcome, judged) = match (state, draft) {
            (_, Some(draft)) => {
                let intended = Intended::after_durable_commit(draft);
                let (issued, version) = self.complete(intended, record.retained).await?;
                let judged = settled(RequestState::Issued, version, Some(issued));
                (DecisionOutcome::Issued, judged)
            }
            (RequestState::Approved, None) => {
                (DecisionOutcome::Approved, settled(state, version, None))
            }
            (RequestState::Denied, None) => {
                (DecisionOutcome::Denied, settled(state, version, None))
            }
            (_, None) => (DecisionOutcome::Pending, Judged::Waits),
        };
        drop(flight);
        self.telemetry
            .decided(&record.door, outcome, settled_by(&explanation));
        info!(door = %record.door, name = ?record.key, request = %record.id, outcome = outcome.word(), "judged again");
        Ok(judged)
    }
}

/// What came of judging again.
impl RequestRecord {
    /// The request as it is judged.
    pub(crate) fn case<'a>(&'a self, signer: Option<&Signer>, csr: &'a CheckedCsr) -> Case<'a> {
        Case {
            id: self.id,
            door: &self.door,
            key: &self.key,
            csr,
            signer: &self.signer,
            requester: &self.requester,
            wishes: &self.wishes,
            created: self.created,
            name: issued_name(signer, csr, &self.key),
        }
    }
}

enum Judged {
    Settled(Box<Settled>),
    Waits,
    /// Rules, rights or evidence changed meanwhile, or the request did.
    Conflict {
        is_stale: bool,
    },
}

struct Settled {
    id: RequestId,
    state: RequestState,
    version: Revision,
    issued: Option<Issued>,
    code: Cow<'static, str>,
}

impl Judged {
    fn submitted(self) -> Option<Submitted> {
        match self {
            Self::Settled(settled) => Some(Submitted {
                id: settled.id,
                state: settled.state,
                version: settled.version,
                issued: settled.issued,
                unsignable: None,
                automatic: true,
                code: settled.code,
            }),
            Self::Waits | Self::Conflict { .. } => None,
        }
    }
}

/// Whether two are one, whatever each was known by.
fn is_same_user(one: &Identity, other: &Identity) -> bool {
    match (one, other) {
        (
            Identity::User { username, .. },
            Identity::User {
                username: other, ..
            },
        ) => username == other,
        (one, other) => one == other,
    }
}

/// Whether two requests of one key ask for the same; their signatures may differ.
/// A message as it is kept: without the secret of a token.
pub(crate) fn as_stored(csr: &CheckedCsr) -> CheckedCsr {
    let kept = masked(csr).and_then(|der| CheckedCsr::trusted_from_store(&der).ok());
    kept.unwrap_or_else(|| csr.clone())
}

pub(crate) fn asks_the_same(one: &CheckedCsr, other: &CheckedCsr) -> bool {
    one.subject() == other.subject()
        && one.extensions() == other.extensions()
        && one.attributes() == other.attributes()
}

/// Whether two explanations differ in nothing but their times: such a change is not worth a commit.
fn same_answers(one: &Explanation, other: &Explanation) -> bool {
    let essence = |step: &Step| {
        let rule = (step.policy.clone(), step.rule.clone());
        (rule, step.finding, step.code.clone())
    };
    one.retry == other.retry
        && one.steps.len() == other.steps.len()
        && one
            .steps
            .iter()
            .map(essence)
            .eq(other.steps.iter().map(essence))
}

/// A bounded amount of memory and time for one pass.
const AT_A_TIME: usize = 256;
/// A decider that is slow must not keep the others waiting.
const TOGETHER: usize = 16;
