//! A request that waits is judged again: because its sender asks again, or because its evidence may be there by now.
//!
//! What an executable has said of a request stays said. A person's word is never overruled: only what nobody has decided
//! is judged again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use countersign_pki::{CheckedCsr, Fingerprint, masked};
use countersign_policy::{Explanation, Identity, Step, Verdict};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::engine::Core;
use crate::evidence::evaluation::{Asking, Evaluated, Gathered};
use crate::faults::{EngineError, SubmitFault};
use crate::issuer::signer::Signer;
use crate::issuing::{
    Case, Conflict, Decided, MAX_TRIES, Order, Outcome, PlannedValidity, Standing,
};
use crate::model::{Door, RequestRecord, RequestState};
use crate::request::Requests;
use crate::request::submission::{Submission, Submitted};
use crate::rules::Rules;
use crate::store::Past;
use crate::telemetry::{DecisionOutcome, settled_by};

/// What has to be the same for a request to be the one that waits.
pub(crate) struct SameRequest {
    door: Door,
    sender: Identity,
    key_fingerprint: Fingerprint,
    csr: CheckedCsr,
}

impl Requests {
    /// Judges requests again that wait for evidence which may still appear: some of them, and others the next time.
    /// Answers how many were settled.
    ///
    /// # Errors
    /// If the store fails; what was settled before stays settled.
    pub async fn reconsider_waiting(&self) -> Result<usize, EngineError> {
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
    pub async fn reconsider_access(&self) -> Result<usize, EngineError> {
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
    ) -> Result<usize, EngineError> {
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
                Some(Err(_)) => return Err(EngineError::Defect),
            }
        }
    }
}

impl Core {
    /// Whether one that waits is settled by now.
    async fn reconsider_one(&self, record: RequestRecord) -> Result<bool, EngineError> {
        // Its sender is asking at this moment: that is enough.
        let Some(_claim) = self.claims.claim(&record.door, &record.key) else {
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
            Err(fault @ EngineError::Store(_)) => Err(fault),
            // One that cannot be judged must not keep the others waiting.
            Err(fault) => {
                warn!(request = %id, %fault, "cannot be judged again");
                Ok(false)
            }
        }
    }

    /// What to look for if the submission's name turns out to be taken by a request that waits. A rule that a setting stands
    /// for is asked once per request; a policy of documents is asked again.
    pub(crate) fn may_ask_again(&self, submission: &Submission) -> Option<SameRequest> {
        let rules = self.rules.load();
        let mut of_signer = rules.policy.rules_for(&submission.signer);
        let has_documents = of_signer.any(|rule| !rule.policy.is_empty());
        has_documents.then(|| SameRequest {
            door: submission.door.name.clone(),
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
        let Some(_claim) = self.claims.claim(&same.door, key) else {
            return Ok(None);
        };
        let waiting = self.store.request_at(&same.door, key, Past::Ignore);
        let waiting = waiting.await.map_err(EngineError::from)?;
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
    ) -> Result<Option<Submitted>, EngineError> {
        let csr = CheckedCsr::trusted_from_store(&record.csr_der).map_err(|source| {
            EngineError::StoredRequest {
                id: record.id,
                source,
            }
        })?;
        for _ in 0..MAX_TRIES {
            let rules = self.rules.load_full();
            let signer = rules.signer(&record.signer);
            let signer = signer.as_deref();
            let case = record.case(signer, &csr);
            let Some(decision) = self
                .judge_again(&record, case, signer, &rules, &mut gathered)
                .await?
            else {
                return Ok(None);
            };
            let _turn = match self.renew_in_turn(case, signer, &decision).await {
                Ok(turn) => turn,
                Err(SubmitFault::Engine(fault)) => return Err(fault),
                // It goes on waiting.
                Err(_) => return Ok(None),
            };
            let told = (decision.explanation.clone(), decision.uses_token());
            let order = Order {
                case,
                decision,
                standing: Standing::Waiting {
                    record: &record,
                    attachment: None,
                    person: None,
                },
                rules: &rules,
                gathered: &gathered,
                at: self.clock.now(),
                validity: PlannedValidity::Asked(case.wishes.expiration_seconds),
            };
            match self.carry_out(order).await {
                Ok(outcome) => return Ok(self.told_again(&record, told.0, outcome)),
                Err(Conflict::Rules | Conflict::Evidence | Conflict::Serial) => {}
                Err(Conflict::Certificate) if told.1 => {}
                Err(Conflict::Name | Conflict::Certificate | Conflict::Request) => {
                    let current = self.store.request(record.id).await?;
                    match current.filter(|current| current.state == RequestState::Pending) {
                        Some(current) => record = current,
                        None => return Ok(None),
                    }
                }
                Err(Conflict::Revoked | Conflict::Overtaken) => break,
                Err(Conflict::Engine(fault)) => return Err(fault),
            }
        }
        Err(EngineError::Contended)
    }

    /// What the rules say of a request by now. `None`: what they said before.
    async fn judge_again(
        &self,
        record: &RequestRecord,
        case: Case<'_>,
        signer: Option<&Signer>,
        rules: &Rules,
        gathered: &mut Gathered,
    ) -> Result<Option<Decided>, EngineError> {
        let is_unsignable = signer.is_some_and(|signer| {
            let examined = signer.profile.examine(case.csr, case.key, case.wishes);
            signer.administrators_only || examined.is_err()
        });
        if is_unsignable {
            return Ok(None);
        }
        let evaluated = self.evaluate(rules, case, None, Asking::InEarnest, gathered);
        let Evaluated { verdict, evidence } = evaluated.await?;
        let state = match &verdict {
            Verdict::Approve(_) => RequestState::Approved,
            Verdict::Deny(_) => RequestState::Denied,
            Verdict::Pending(explanation)
                if same_answers(explanation, &record.explanation)
                    && evidence.executions == record.evidence.executions =>
            {
                return Ok(None);
            }
            Verdict::Pending(_) => RequestState::Pending,
        };
        Ok(Some(Decided::of(verdict, evidence, state)))
    }

    /// Counts and logs what judging again came to. `None`: it still waits.
    fn told_again(
        &self,
        record: &RequestRecord,
        explanation: Explanation,
        outcome: Outcome,
    ) -> Option<Submitted> {
        let state = outcome.state;
        let (decided, waits) = match state {
            RequestState::Issued => (DecisionOutcome::Issued, false),
            RequestState::Approved => (DecisionOutcome::Approved, false),
            RequestState::Denied => (DecisionOutcome::Denied, false),
            RequestState::Pending | RequestState::Failed | RequestState::Undecided => {
                (DecisionOutcome::Pending, true)
            }
        };
        self.telemetry
            .decided(&record.door, decided, settled_by(&explanation));
        let reason = explanation.to_string();
        info!(
            door = %record.door, name = record.key, request = %record.id, outcome = decided.word(),
            source = record.requester.source.map(tracing::field::display),
            code = %explanation.code, reason, "judged again"
        );
        (!waits).then(|| Submitted::of(outcome, explanation.code))
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

/// A message as it is kept: without the secret of a token.
pub(crate) fn as_stored(csr: &CheckedCsr) -> CheckedCsr {
    let kept = masked(csr).and_then(|der| CheckedCsr::trusted_from_store(&der).ok());
    kept.unwrap_or_else(|| csr.clone())
}

/// Whether two requests of one key ask for the same; their signatures may differ.
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
