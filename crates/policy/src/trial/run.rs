//! Deciding a case, and whether that is what was expected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_pki::{CheckedCsr, UnixTime};

use crate::access::AccessAnswer;
use crate::decide::{Outcome, decide};
use crate::document::PolicySet;
use crate::evidence::{AutosignFile, Evidence, Query};
use crate::facts::{Execution, LedgerFacts, ListFile, PodFacts, WebhookAnswer};
use crate::node::{RequestState, judge_unreadable, request_state_of};
use crate::request::Request;
use crate::rules::Policy;
use crate::signing_policy::SigningPolicies;
use crate::token::MachineSubject;
use crate::trial::Case;
use crate::trial::request::Seal;
use crate::trial::setting::{PolicySource, Scene};
use crate::verdict::{Deciding, Effect, Explanation, Verdict};

/// What a trial needs that this crate does not get by itself.
pub struct Material<'a> {
    /// The policies of the files that cases name.
    pub policies: &'a BTreeMap<PathBuf, PolicySet>,
    /// What is in the lists that rules name.
    pub lists: &'a BTreeMap<PathBuf, ListFile>,
    /// What is at the path of an `autosign` setting.
    pub autosign: &'a BTreeMap<PathBuf, AutosignFile>,
    /// The signers whose certificates name machines in a way of their own.
    pub machine_subjects: &'a [MachineSubject],
    /// Signs messages that are written as fields.
    pub seal: Seal<'a>,
    /// The clock where a file says nothing.
    pub now: UnixTime,
}

/// What became of a case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The decision; `None` where the request could not even be made.
    pub explanation: Option<Explanation>,
    /// Why the request could not be read or made, where that is so.
    pub remark: Option<String>,
    /// Every way in which it is not what was expected, in words; empty if it is.
    pub failures: Vec<String>,
}

impl Case {
    /// Decides it.
    pub fn run(&self, material: &Material<'_>) -> CaseResult {
        match self.decided(material) {
            Ok((explanation, remark)) => CaseResult {
                failures: self.failures(&explanation),
                explanation: Some(explanation),
                remark,
            },
            Err(why) => CaseResult {
                explanation: None,
                remark: None,
                failures: vec![why],
            },
        }
    }

    /// The policy that is tried.
    pub fn policy_set<'a>(&'a self, material: &'a Material<'_>) -> Option<&'a PolicySet> {
        match &self.policy {
            PolicySource::Inline(set) => Some(set),
            PolicySource::File(path) => material.policies.get(path),
        }
    }

    fn decided(&self, material: &Material<'_>) -> Result<(Explanation, Option<String>), String> {
        let Some(set) = self.policy_set(material) else {
            return Err("the policy was not read".to_owned());
        };
        let now = self.scene.now.unwrap_or(material.now);
        let (signing_policies, faults) = SigningPolicies::of_objects(&self.scene.objects);
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let policy = Policy {
            signing_policies: Arc::new(signing_policies),
            rules: set.clone().into_rules(),
            machine_subjects: material.machine_subjects.to_vec(),
            ..Policy::default()
        };
        let asked = &self.request;
        let is_judged = policy.judges_nodes_for(&asked.signer);
        let written = asked.csr.checked(is_judged, material.seal);
        let csr = match written.map_err(|why| format!("the request cannot be made: {why}"))? {
            Ok(csr) => csr,
            Err(fault) => {
                let remark = format!("the request cannot be read: {fault}");
                let judged = judge_unreadable(&policy, &asked.signer, &fault.to_string(), now);
                return Ok((judged, Some(remark)));
            }
        };
        let in_message = csr.subject().common_names().last().unwrap_or_default();
        let of_pod = asked.pod.as_ref().map(PodFacts::username);
        let request = Request {
            key: key(asked.name.as_deref(), &csr),
            name: of_pod.as_deref().unwrap_or(in_message),
            csr: &csr,
            door: &asked.door,
            signer: &asked.signer,
            requester: &asked.requester,
            wishes: &asked.wishes,
            at: asked.created.unwrap_or(now),
            renewal: asked.renewal,
            pod: asked.pod.as_ref(),
        };
        let has_certificate = asked
            .certificate
            .as_ref()
            .is_some_and(|text| !text.is_empty());
        let state = RequestState {
            deleting: asked.deleting,
            ..request_state_of(&asked.conditions, has_certificate)
        };
        self.scene
            .decided(&policy, &request, &asked.ledger, state, material)
            .map(|explanation| (explanation, None))
            .ok_or_else(|| "the decision does not come to an end".to_owned())
    }

    fn failures(&self, came: &Explanation) -> Vec<String> {
        let mut failures = Vec::new();
        if !self.expect.contains(&came.effect) {
            let right: Vec<&str> = self.expect.iter().copied().map(word).collect();
            let (right, came) = (right.join(" or "), word(came.effect));
            failures.push(format!("expected {right}, got {came}"));
        }
        if let Some(expected) = &self.rule {
            let by = match &came.by {
                Some(Deciding::Rule { name, .. }) => Some(name),
                Some(Deciding::Person { .. } | Deciding::Profile) | None => None,
            };
            match by {
                Some(name) if name == expected => {}
                Some(name) => failures.push(format!("expected rule {expected}, got rule {name}")),
                None => failures.push(format!("expected rule {expected}, but no rule decided")),
            }
        }
        if let Some(expected) = self.reason.as_ref().filter(|r| **r != came.code.as_str()) {
            let got = match came.code.as_str() {
                "" => "none",
                code => code,
            };
            failures.push(format!("expected reason {expected}, got {got}"));
        }
        for check in &self.checks {
            let mut steps = came.steps.iter();
            if !steps.any(|step| step.failed.contains(check)) {
                failures.push(format!("expected check {check} to fail, but it did not"));
            }
        }
        if let Some(expected) = self.retry.filter(|expected| *expected != came.retry) {
            failures.push(format!("expected retry {expected}, got {}", came.retry));
        }
        failures
    }
}

impl Scene {
    /// Decides a request with what is in the scene. `None` only if the policy asked for the same thing for ever.
    pub fn decide(
        &self,
        policy: &Policy,
        request: &Request<'_>,
        ledger: &LedgerFacts,
        material: &Material<'_>,
    ) -> Option<Explanation> {
        self.decided(policy, request, ledger, RequestState::default(), material)
    }

    fn decided(
        &self,
        policy: &Policy,
        request: &Request<'_>,
        ledger: &LedgerFacts,
        state: RequestState,
        material: &Material<'_>,
    ) -> Option<Explanation> {
        let now = self.now.unwrap_or(material.now);
        let answers = self.answers.iter();
        let none = Evidence::none().with_request_state(state);
        let mut evidence = answers.fold(none, |evidence, (rule, finding)| {
            evidence.with_stand_in(rule, *finding)
        });
        // Each question is asked once: there cannot be more rounds than questions.
        for _ in 0..MAX_ROUNDS {
            let queries = match decide(policy, request, &evidence, now) {
                Outcome::Need(queries) => queries,
                Outcome::Done(Verdict::Approve(approval)) => {
                    return Some(approval.explanation().clone());
                }
                Outcome::Done(Verdict::Deny(explanation) | Verdict::Pending(explanation)) => {
                    return Some(explanation);
                }
            };
            for query in queries {
                evidence = self.answered(evidence, query, request, ledger, material);
            }
        }
        None
    }

    fn answered(
        &self,
        evidence: Evidence,
        query: Query,
        request: &Request<'_>,
        ledger: &LedgerFacts,
        material: &Material<'_>,
    ) -> Evidence {
        let now = self.now.unwrap_or(material.now);
        let name = request.name.trim_end_matches('.').to_lowercase();
        let unread = |path: &Path| format!("{} was not read", path.display());
        match query {
            Query::Person => evidence.with_person(None),
            Query::AutosignFile(path) => {
                let found = material.autosign.get(&path).cloned();
                let found = found.unwrap_or_else(|| AutosignFile::Unusable(unread(&path)));
                evidence.with_file(path, found, 0)
            }
            Query::Allowlist(path) => {
                let found = material.lists.get(&path).cloned();
                let found = found.unwrap_or_else(|| ListFile::Unusable(unread(&path)));
                evidence.with_list(path, found, 0)
            }
            Query::Execution(program) => {
                let said = Execution::Unavailable("is not run here".to_owned());
                evidence.with_execution(program.path, said, 0)
            }
            Query::Webhook(webhook) => {
                let reason = "it is not asked here".to_owned();
                evidence.with_webhook(webhook, WebhookAnswer::Unavailable { reason }, 0)
            }
            Query::Machine => {
                let found = self.readable("Machine", &name).map(|()| {
                    let known = self.machines.iter().find(|known| known.name() == name);
                    known.map(|known| known.at(now))
                });
                evidence.with_machine(found, 0)
            }
            Query::Window => {
                let found = self.readable("BuildWindow", &name).map(|()| {
                    let known = self.windows.iter().find(|known| known.certname == name);
                    known.cloned()
                });
                evidence.with_window(found, 0)
            }
            Query::Ledger => evidence.with_ledger(Ok(ledger.clone()), 0),
            Query::Token => {
                let found = self.token.clone();
                evidence.with_token(found.ok_or_else(|| NO_TOKENS.to_owned()), 0)
            }
            Query::SubjectAccess(question) => {
                let reason = "nobody is asked here".to_owned();
                evidence.with_access(question, AccessAnswer::Unavailable { reason }, 0)
            }
            Query::Cluster(query) => {
                let fact = self.cluster_fact(&query, request, now);
                evidence.with_cluster(query, fact, 0)
            }
        }
    }

    fn readable(&self, kind: &str, name: &str) -> Result<(), String> {
        match self.is_unreadable(kind, name) {
            true => Err(format!("{kind}/{name} cannot be read")),
            false => Ok(()),
        }
    }
}

/// The request's name at its door: what is said, else what the message says.
fn key<'a>(said: Option<&'a str>, csr: &'a CheckedCsr) -> &'a str {
    let in_message = csr.subject().first_common_name();
    said.or(in_message).unwrap_or_default()
}

fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::Approve => "approve",
        Effect::Deny => "deny",
        Effect::Pending => "pending",
    }
}

/// A policy has at most a thousand rules, each with a condition and a few kinds.
const MAX_ROUNDS: usize = 10_000;
const NO_TOKENS: &str = "enrolment tokens are looked up by the server only: give an answer for this rule, or let `countersign token \
                         check` ask the server";
