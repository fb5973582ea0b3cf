//! Works on one request: judges it, writes the decision, or says why there is none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use countersign_authority::{Clock as _, Confirmation, SystemClock};
use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::{
    ClusterQuery, Effect, Evidence, Finding, Outcome, PodFacts, Policy, Preset, Query, Request,
    Rule, RuleKind, Step, Verdict, decide, judge_unreadable, object_names,
};
use futures_util::future::join_all;
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::api::{CallFault, segment};
use crate::controllers::{CSRS, Controller, Next, Rules, Shared};
use crate::delivery::{Delivery, Sight};
use crate::events::{About, Admission, EventBudget, Told};
use crate::gather::{handed_over, name_of};
use crate::index::{KUBELET_CLIENT, Switch, Watched};
use crate::objects::CsrObject;
use crate::plan::{
    Action, NewCondition, Part, Reason, Stage, Status, patch_of, plan, shortened, whole_with,
    with_certificate, with_condition,
};
use crate::queue::Pause;
use crate::resources::Hold;
use crate::signing::{Attempt, SignedCertificate, Signer, Signing, Spending};

impl Shared {
    /// Does whatever is to be done with a request now.
    pub(crate) async fn work_on(self: &Arc<Self>, name: &str) -> Next {
        if name.contains('/') {
            return self.work_on_pod(name).await;
        }
        let request = self.index().request(name);
        self.deliveries.look(name, request.as_deref().map(sight));
        if let Some(next) = self.revoke_lost(name).await {
            return next;
        }
        let Some(request) = request else {
            self.ahead.forget(name);
            self.forget(name);
            return Next::Done;
        };
        let stage = Stage::of(&request);
        if stage != Stage::Undecided {
            self.ahead.forget(name);
        }
        match stage {
            Stage::Undecided if self.does(Controller::Approver) => self.judge(&request).await,
            Stage::Approved if self.does(Controller::Signer) => {
                self.forget(name);
                self.sign(&request).await
            }
            Stage::Undecided | Stage::Approved | Stage::Over => {
                self.forget(name);
                Next::Done
            }
        }
    }

    async fn judge(self: &Arc<Self>, request: &CsrObject) -> Next {
        let rules = self.rules();
        match rules.hold(&request.spec.signer) {
            Hold::No => {}
            Hold::NoRules => {
                // Somebody else's signer.
                self.forget(&request.name);
                return Next::Done;
            }
            // Other rules wake it.
            Hold::Quietly => return Next::Done,
            Hold::Because(why) => return self.wait(request, &why).await,
        }
        let mut asked = BTreeSet::new();
        let beside = self.index().approved_beside(request);
        let verdict = match &request.spec.message {
            Ok(csr) => self.evaluate(request, csr, None, &rules, &mut asked).await,
            Err(why) => Some(unreadable(&rules.policy, request, why)),
        };
        let Some(verdict) = verdict else {
            warn!(name = %request.name, "the policy asks for ever");
            return Next::Again(Pause::Evidence);
        };
        let explanation = verdict.explanation();
        let why = Reason::of(explanation);
        self.metrics
            .decided(explanation.effect, &why.rule, &why.code);
        match plan(&verdict) {
            Action::Decide(condition) => {
                let turn = self.turn(&asked).await;
                if turn.is_some() && self.index().approved_beside(request) != beside {
                    debug!(name = %request.name, "another request for the node was approved meanwhile");
                    return Next::Again(Pause::Fault);
                }
                if let Some(next) = self.spend_token(request, &verdict, &condition).await {
                    return next;
                }
                let signing = match verdict {
                    Verdict::Approve(_)
                        if !uses_token(&verdict) && self.ahead.is_worthwhile(request) =>
                    {
                        WhenApproved::SignAhead
                    }
                    Verdict::Approve(_) | Verdict::Deny(_) | Verdict::Pending(_) => {
                        WhenApproved::Sign
                    }
                };
                self.decide(request, &condition, signing, turn).await
            }
            Action::Wait { why, retry } => {
                self.index().wait(request, &asked);
                let told = self.tell(&About::request(request), request, &why).await;
                match retry {
                    true => Next::Again(Pause::Evidence),
                    false => told.next(),
                }
            }
        }
    }

    /// Where a verdict depends on what else was approved for a node: the turn to write it.
    async fn turn(&self, asked: &BTreeSet<ClusterQuery>) -> Option<OwnedMutexGuard<()>> {
        let beside = asked.iter().find_map(|query| match query {
            ClusterQuery::Requests { node, signer } => Some((signer, node)),
            _ => None,
        });
        let (signer, node) = beside?;
        Some(self.node_locks.lock(signer, node).await)
    }

    /// Says why a request waits for something that is told by other rules.
    async fn wait(&self, request: &CsrObject, why: &Reason) -> Next {
        self.index().wait(request, &BTreeSet::new());
        self.tell(&About::request(request), request, why)
            .await
            .next()
    }

    /// Where a token approves: uses it up, before anything says that the request is approved. What happens instead, if that
    /// cannot be.
    async fn spend_token(
        &self,
        request: &CsrObject,
        verdict: &Verdict,
        condition: &NewCondition,
    ) -> Option<Next> {
        if !uses_token(verdict) {
            return None;
        }
        let approval = (condition.reason.as_str(), condition.message.as_str());
        let spending = match &self.settings.signer {
            Some(signer) => {
                let undecided = handed_over(request, approval, Attempt::Later);
                signer.spend_token(undecided).await
            }
            None => Spending::Refused("nobody here knows tokens".to_owned()),
        };
        let reason = |words: &str| Reason {
            rule: condition.reason.clone(),
            code: "token".to_owned(),
            words: shortened(&format!("waiting for a person ({words})")),
        };
        match spending {
            Spending::Spent => None,
            Spending::Again(why) => {
                warn!(name = %request.name, reason = %why, "its token was not used up yet");
                Some(Next::Again(Pause::Evidence))
            }
            Spending::Refused(why) => Some(self.wait(request, &reason(&why)).await),
        }
    }

    /// Asks the policy, fetching what it needs until it knows enough; `None` if it never does.
    pub(crate) async fn evaluate(
        self: &Arc<Self>,
        request: &CsrObject,
        csr: &CheckedCsr,
        pod: Option<&PodFacts>,
        rules: &Rules,
        asked: &mut BTreeSet<ClusterQuery>,
    ) -> Option<Verdict> {
        let switched = self.switched_policy(request, &rules.policy).await;
        let policy = switched
            .as_ref()
            .map_or(&rules.policy, |(policy, _)| policy);
        let spec = &request.spec;
        let as_judged = Request {
            csr,
            key: &request.name,
            name: name_of(request, csr),
            door: DOOR,
            signer: &spec.signer,
            requester: &spec.requester,
            wishes: &spec.wishes,
            at: request.created,
            renewal: false,
            pod,
        };
        let now = SystemClock.now();
        let begun = Instant::now();
        let mut evidence = Evidence::none().with_person(None);
        for _ in 0..MAX_ROUNDS {
            let queries = match decide(policy, &as_judged, &evidence, now) {
                Outcome::Done(mut verdict) => {
                    verdict.took(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
                    return Some(with_step(verdict, switched.map(|(_, step)| step)));
                }
                Outcome::Need(queries) => queries,
            };
            asked.extend(queries.iter().filter_map(|query| match query {
                Query::Cluster(query) => Some(query.clone()),
                _ => None,
            }));
            // From now on: what changes after it was looked at wakes the request again.
            if pod.is_none() {
                self.index().wait(request, asked);
            }
            let answers = queries
                .into_iter()
                .map(|query| self.gather(query, request, csr, rules));
            for add in join_all(answers).await {
                evidence = add(evidence);
            }
        }
        None
    }

    /// Where the cluster's own switch says that node client certificates are not approved: the policy without the rules
    /// that would, and what is to be said in their place.
    async fn switched_policy(
        self: &Arc<Self>,
        request: &CsrObject,
        policy: &Policy,
    ) -> Option<(Policy, Step)> {
        if request.spec.signer.as_str() != KUBELET_CLIENT {
            return None;
        }
        // csrapproving does not know the switch, nor do rules that decide as it does.
        let is_concerned = |rule: &Rule| {
            rule.kinds.iter().any(|kind| match kind {
                RuleKind::NodeClient(it) => it.preset != Preset::KubeControllerManager,
                _ => false,
            })
        };
        let concerned = policy
            .rules_for(&request.spec.signer)
            .find(|rule| is_concerned(rule))?;
        let why = match self.switch().await {
            Switch::On => return None,
            Switch::Off => "says so".to_owned(),
            Switch::Broken(why) => format!("cannot be understood: {why}"),
        };
        let (namespace, name) = (object_names::SWITCH_NAMESPACE, object_names::SWITCH);
        let reason = format!(
            "node client certificates are not approved: ConfigMap {namespace}/{name} {why}"
        );
        let mut step = Step::new(&concerned.name, NODE_CLIENT, Finding::Absent, reason);
        step.policy = concerned.policy.as_ref().to_owned();
        step.failed = vec!["C05".to_owned()];
        let mut policy = policy.clone();
        policy.rules.retain(|rule| !is_concerned(rule));
        Some((policy, step))
    }

    async fn switch(self: &Arc<Self>) -> Switch {
        self.discover().await;
        if !self.index().has_group(object_names::MACHINE_GROUP) {
            return Switch::On;
        }
        self.start_watch(Watched::Switch);
        self.first_read(&Watched::Switch).await;
        let watched = self.watched();
        self.index().switch(&watched).unwrap_or(Switch::On)
    }

    /// Writes a decision, for exactly the state that was judged. What it approves is signed from the API server's answer,
    /// without waiting for the watch to bring the same; everything up to the use of the key is done while it is written.
    async fn decide(
        &self,
        request: &CsrObject,
        condition: &NewCondition,
        when_approved: WhenApproved,
        turn: Option<OwnedMutexGuard<()>>,
    ) -> Next {
        let Some(status) = with_condition(request, condition) else {
            return Next::Done;
        };
        let (confirmer, confirmation) = Confirmation::pending();
        let writing = async {
            let decided = self.write(Part::APPROVAL, request, &status).await;
            self.ahead.wrote(request, &decided);
            // It is in the index: whoever is next sees it.
            drop(turn);
            match &decided {
                Ok(Some(decided)) if Stage::of(decided) == Stage::Approved => confirmer.confirm(),
                Ok(_) | Err(_) => drop(confirmer),
            }
            decided
        };
        let signing = async {
            let signer = self.signer_of(request)?;
            let approval = (condition.reason.as_str(), condition.message.as_str());
            let attempt = Attempt::First(&confirmation);
            match when_approved {
                WhenApproved::SignAhead => {
                    Some(signer.sign(handed_over(request, approval, attempt)).await)
                }
                WhenApproved::Sign => None,
            }
        };
        let (decided, signing) = tokio::join!(writing, signing);
        let decided = match decided {
            Ok(decided) => decided,
            Err(fault) => {
                let would = format!("would be {}", condition.kind);
                if let Some(why) = unwritten(&fault, &condition.reason, &would) {
                    self.tell(&About::request(request), request, &why).await;
                }
                return after(&fault).1;
            }
        };
        let age = SystemClock.now().seconds_since(request.created);
        self.metrics.decided_after(age);
        info!(
            name = %request.name, signer = %request.spec.signer, requester = %request.spec.requester,
            decision = condition.kind, rule = %condition.reason, "decided"
        );
        match (decided, signing) {
            (Some(decided), _) if Stage::of(&decided) != Stage::Approved => Next::Done,
            (Some(decided), Some(signing)) => self.answer(&decided, signing).await,
            (Some(decided), None) => self.sign(&decided).await,
            (None, _) => Next::Done,
        }
    }

    /// Who signs such a request here, if somebody does.
    fn signer_of(&self, request: &CsrObject) -> Option<&dyn Signer> {
        let signer = self.settings.signer.as_deref()?;
        let is_ours = self.does(Controller::Signer) && signer.serves(&request.spec.signer);
        is_ours.then_some(signer)
    }

    async fn sign(&self, request: &CsrObject) -> Next {
        let Some(signer) = self.signer_of(request) else {
            return Next::Done;
        };
        let Some(body) = &request.body else {
            return Next::Done;
        };
        let approved = handed_over(request, approval_of(&body.status), Attempt::Later);
        let signing = signer.sign(approved).await;
        self.answer(request, signing).await
    }

    /// Writes what came of an approved request.
    async fn answer(&self, request: &CsrObject, signing: Signing) -> Next {
        match signing {
            Signing::NotMine => Next::Done,
            Signing::Later(why) => {
                warn!(name = %request.name, signer = %request.spec.signer, reason = %why, "not signed yet");
                Next::Again(Pause::Evidence)
            }
            Signing::Certificate(certificate) => self.deliver(request, certificate).await,
            Signing::Failed { reason, message } => self.fail(request, reason, message).await,
        }
    }

    async fn deliver(&self, request: &CsrObject, certificate: SignedCertificate) -> Next {
        let Some(status) = with_certificate(request, &certificate.pem) else {
            return Next::Done;
        };
        let delivery = Delivery::new(&request.uid, certificate.id, certificate.pem);
        self.deliveries.begin(&request.name, delivery);
        if let Some(next) = self.revoke_lost(&request.name).await {
            return next;
        }
        let written = self.write(Part::CERTIFICATE, request, &status).await;
        self.deliveries.wrote(&request.name, &written);
        let Err(fault) = written else {
            return Next::Done;
        };
        if let Some(why) = unwritten(&fault, "", "would get its certificate") {
            self.tell(&About::approved(request), request, &why).await;
        }
        match &fault {
            CallFault::Invalid(why) => self.take_back(request, why).await,
            // The watch tells how it was when it was deleted, and wakes it.
            CallFault::NotFound => Next::Done,
            other => after(other).1,
        }
    }

    /// The API server has refused a certificate for good.
    async fn take_back(&self, request: &CsrObject, why: &str) -> Next {
        // An earlier write whose answer was lost may have brought it.
        let found = match self.api.get(&path_of(request)).await {
            Ok(found) => found.and_then(|found| CsrObject::read(found, Some(request))),
            Err(_) => return Next::Again(Pause::Fault),
        };
        let Some(found) = found.filter(|found| found.uid == request.uid) else {
            return Next::Done;
        };
        self.deliveries.look(&request.name, Some(sight(&found)));
        if Stage::of(&found) != Stage::Approved {
            return self.revoke_lost(&request.name).await.unwrap_or(Next::Done);
        }
        self.deliveries.refused(&request.name);
        if let Some(next) = self.revoke_lost(&request.name).await {
            return next;
        }
        let message = format!("the API server refused its certificate, which is revoked: {why}");
        self.fail(&found, CERTIFICATE_REFUSED.to_owned(), shortened(&message))
            .await
    }

    /// Says that a request will get no certificate.
    async fn fail(&self, request: &CsrObject, reason: String, message: String) -> Next {
        let condition = NewCondition {
            kind: "Failed",
            reason,
            message,
        };
        let Some(status) = with_condition(request, &condition) else {
            return Next::Done;
        };
        let Err(fault) = self.write(Part::FAILURE, request, &status).await else {
            return Next::Done;
        };
        if let Some(why) = unwritten(&fault, "", "would be marked as failed") {
            self.tell(&About::approved(request), request, &why).await;
        }
        after(&fault).1
    }

    /// The watch tells that a request was deleted, and how it was then.
    pub(crate) fn deleted(&self, object: &Value) {
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        let Some(name) = name.filter(|name| self.deliveries.has_begun(name)) else {
            return;
        };
        let known = self.index().request(name);
        if let Some(last) = CsrObject::read(object.clone(), known.as_deref()) {
            self.deliveries.deleted(name, sight(&last));
        }
    }

    /// Puts a request with another status, or patches it where only that is permitted. Returns what it is now, unless it is
    /// gone by then.
    async fn write(
        &self,
        part: Part,
        request: &CsrObject,
        status: &Status,
    ) -> Result<Option<Arc<CsrObject>>, CallFault> {
        let path = format!("{}/{}", path_of(request), part.subresource);
        let written = self.put_or_patch(&path, part, request, status).await;
        let (outcome, next) = match &written {
            Ok(_) => ("written", Next::Done),
            Err(fault) => after(fault),
        };
        self.metrics.wrote(part.subresource, outcome);
        if next == Next::Done {
            self.forget(&request.name);
        }
        match written {
            Ok(object) => {
                let (state, woken) = self.index().written(object);
                self.queue.wake_all(&woken);
                Ok(state)
            }
            Err(fault) => {
                match &fault {
                    CallFault::Conflict | CallFault::Exists | CallFault::NotFound => {
                        debug!(name = %request.name, what = part.subresource, outcome, "not written");
                    }
                    CallFault::Invalid(_)
                    | CallFault::Forbidden(_)
                    | CallFault::Status { .. }
                    | CallFault::Unreachable(_) => {
                        warn!(name = %request.name, what = part.subresource, %fault, "not written");
                    }
                }
                Err(fault)
            }
        }
    }

    async fn put_or_patch(
        &self,
        path: &str,
        part: Part,
        request: &CsrObject,
        status: &Status,
    ) -> Result<Value, CallFault> {
        if !self.patches.load(Ordering::Relaxed)
            && let Some(whole) = whole_with(request, status)
        {
            match self.api.put_text(path, whole).await {
                Err(CallFault::Forbidden(_)) => {}
                answered => return answered,
            }
        }
        let patched = self
            .api
            .patch(path, &patch_of(part, request, status))
            .await?;
        self.patches.store(true, Ordering::Relaxed);
        Ok(patched)
    }

    /// Says once why a request waits.
    async fn tell(&self, about: &About<'_>, request: &CsrObject, why: &Reason) -> Told {
        let told = self.tell_of(about, why).await;
        if told == Told::Now {
            info!(
                name = %request.name, signer = %request.spec.signer, requester = %request.spec.requester,
                rule = %why.rule, code = %why.code, reason = %why.words, "waiting"
            );
        }
        told
    }

    /// Writes an Event, unless it has been told before or there are too many.
    pub(crate) async fn tell_of(&self, about: &About<'_>, why: &Reason) -> Told {
        let name = about.name(why);
        let admission = self.events().admits(&name, Instant::now());
        match admission {
            Admission::Told => return Told::Before,
            Admission::TooMany => {
                self.metrics.suppressed_event();
                return Told::Later;
            }
            Admission::Write => {}
        }
        let now: UnixTime = SystemClock.now();
        let event = about.event(&name, why, &self.settings.instance, now);
        match self.api.post(&about.path(), &event).await {
            Ok(_) | Err(CallFault::Exists) => {}
            Err(fault) => {
                debug!(event = %name, %fault, "the event cannot be written");
                if !matches!(fault, CallFault::Forbidden(_) | CallFault::Invalid(_)) {
                    self.events().take_back(&name);
                    return Told::Later;
                }
            }
        }
        Told::Now
    }

    fn events(&self) -> std::sync::MutexGuard<'_, EventBudget> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of a request that could not be written, after an outcome for the metrics.
fn after(fault: &CallFault) -> (&'static str, Next) {
    match fault {
        // The watch brings the state that is to be judged instead.
        CallFault::Conflict | CallFault::Exists => ("conflict", Next::Again(Pause::Fault)),
        CallFault::NotFound => ("gone", Next::Done),
        CallFault::Invalid(_) => ("refused", Next::Done),
        CallFault::Forbidden(_) => ("forbidden", Next::Again(Pause::Evidence)),
        CallFault::Status { .. } | CallFault::Unreachable(_) => {
            ("failed", Next::Again(Pause::Fault))
        }
    }
}

/// What is told of a write that the API server turned down: the rule that has decided, and what would become of the request.
fn unwritten(fault: &CallFault, rule: &str, would: &str) -> Option<Reason> {
    let (code, but, why) = match fault {
        CallFault::Forbidden(why) => (FORBIDDEN, "that is forbidden", why),
        CallFault::Invalid(why) => (REFUSED, "the API server refuses that", why),
        CallFault::Conflict
        | CallFault::Exists
        | CallFault::NotFound
        | CallFault::Status { .. }
        | CallFault::Unreachable(_) => return None,
    };
    Some(Reason {
        rule: rule.to_owned(),
        code: code.to_owned(),
        words: shortened(&format!("{code}: {would}, but {but}: {why}")),
    })
}

/// It as whoever delivers a certificate sees it.
fn sight(request: &CsrObject) -> Sight<'_> {
    Sight {
        uid: &request.uid,
        is_over: Stage::of(request) == Stage::Over,
        certificate: request.certificate.as_deref(),
    }
}

fn path_of(request: &CsrObject) -> String {
    format!("{CSRS}/{}", segment(&request.name))
}

/// Whether an approved request is made ready for the key while its approval is being written.
#[derive(Clone, Copy, Debug)]
enum WhenApproved {
    SignAhead,
    Sign,
}

/// What becomes of a request whose message cannot be read: no rule approves it.
fn unreadable(policy: &Policy, request: &CsrObject, why: &str) -> Verdict {
    let now = SystemClock.now();
    let explanation = judge_unreadable(policy, &request.spec.signer, why, now);
    match explanation.effect {
        Effect::Deny => Verdict::Deny(explanation),
        Effect::Approve | Effect::Pending => Verdict::Pending(explanation),
    }
}

fn uses_token(verdict: &Verdict) -> bool {
    verdict.uses().iter().any(|one| one.token().is_some())
}

/// The verdict with what is to be said in the place of rules that were left out.
fn with_step(verdict: Verdict, step: Option<Step>) -> Verdict {
    match (verdict, step) {
        (Verdict::Pending(mut explanation), Some(step)) => {
            explanation.steps.push(step);
            Verdict::Pending(explanation)
        }
        (verdict, _) => verdict,
    }
}

fn approval_of(status: &Status) -> (&str, &str) {
    let conditions = status.get("conditions").and_then(Value::as_array);
    let approved = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Approved");
    let text = |key: &str| {
        let found = approved.and_then(|condition| condition.get(key)?.as_str());
        found.unwrap_or_default()
    };
    (text("reason"), text("message"))
}

/// The code of what could not be written for want of a permission.
const FORBIDDEN: &str = "W02";
/// The code of what the API server did not take.
const REFUSED: &str = "W03";
/// The reason of the condition of a request whose certificate the API server did not take.
const CERTIFICATE_REFUSED: &str = "CertificateRefused";
/// What rules see as `request.door`.
const DOOR: &str = "cluster";
/// More rounds than there are kinds of evidence: a policy that needs more asks for ever.
const MAX_ROUNDS: usize = 32;
const NODE_CLIENT: &str = "nodeClient";
