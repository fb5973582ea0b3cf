//! The decision itself: one pure function.

use countersign_pki::{AltName, UnixTime};

use crate::evidence::{AutosignFile, Evidence, Execution, PersonDecision, PersonVerdict, Query};
use crate::request::Request;
use crate::rules::{Policy, Rule, RuleKind};
use crate::verdict::{Approval, Deciding, Effect, Explanation, Finding, Step, Verdict};

/// What a call of [`decide`] came to.
#[derive(Debug)]
pub enum Outcome {
    /// It cannot say before these are answered; call again with the answers added.
    Need(Vec<Query>),
    /// Decided.
    Done(Verdict),
}

/// Applies `policy` to `request` with what is known.
///
/// A person's word, once given, settles the request. Otherwise the rules of the request's signer are
/// asked in order; the first that approves ends it. When all abstain, the request waits for a person.
/// Same arguments, same outcome.
pub fn decide(
    policy: &Policy,
    request: &Request<'_>,
    evidence: &Evidence,
    now: UnixTime,
) -> Outcome {
    if let Some(Some(decision)) = evidence.person() {
        return Outcome::Done(by_person(policy, decision));
    }
    let mut steps = Vec::new();
    let reserved = reserved_name(policy, request);
    for rule in policy.rules_for(request.signer) {
        let step = match ask(rule, request, evidence, reserved) {
            Asked::Answered(step) => step,
            Asked::Needs(query) => return Outcome::Need(vec![query]),
        };
        let (approves, unavailable) = (
            step.finding == Finding::Match,
            step.finding == Finding::Unavailable,
        );
        steps.push(step);
        if unavailable {
            // What cannot be asked might have denied: nobody further down approves in its place.
            break;
        }
        if approves {
            return Outcome::Done(Verdict::Approve(Approval::new(Explanation {
                effect: Effect::Approve,
                by: Some(Deciding::Rule {
                    name: rule.name.clone(),
                }),
                at: now,
                generation: policy.generation,
                steps,
            })));
        }
    }
    if evidence.person().is_none() {
        return Outcome::Need(vec![Query::Person]);
    }
    Outcome::Done(Verdict::Pending(Explanation {
        effect: Effect::Pending,
        by: None,
        at: now,
        generation: policy.generation,
        steps,
    }))
}

fn by_person(policy: &Policy, decision: &PersonDecision) -> Verdict {
    let explanation = |effect| Explanation {
        effect,
        by: Some(Deciding::Person {
            actor: decision.actor.clone(),
            reason: decision.reason.clone(),
        }),
        at: decision.at,
        generation: policy.generation,
        steps: Vec::new(),
    };
    match decision.verdict {
        PersonVerdict::Approve => Verdict::Approve(Approval::new(explanation(Effect::Approve))),
        PersonVerdict::Deny => Verdict::Deny(explanation(Effect::Deny)),
    }
}

/// What came of asking a rule.
enum Asked {
    Answered(Step),
    Needs(Query),
}

fn ask(rule: &Rule, request: &Request<'_>, evidence: &Evidence, reserved: Option<&str>) -> Asked {
    let answered = |finding, reason| {
        Asked::Answered(Step {
            rule: rule.name.clone(),
            kind: rule.kind.word().to_owned(),
            finding,
            reason,
        })
    };
    if let Some(name) = reserved {
        let reason = format!("{name} is a name of the authority itself; only a person approves it");
        return answered(Finding::Mismatch, reason);
    }
    let (path, apex) = match &rule.kind {
        RuleKind::Always => return answered(Finding::Match, String::new()),
        RuleKind::AutosignFile { path, apex } => (path, *apex),
    };
    let shown = path.display();
    match evidence.file(path) {
        None => Asked::Needs(Query::AutosignFile(path.clone())),
        Some(AutosignFile::Missing) => answered(Finding::Absent, format!("there is no {shown}")),
        Some(AutosignFile::Unusable(why)) => answered(Finding::Unavailable, why.clone()),
        Some(AutosignFile::List(list)) => match list.matching(request.key, apex) {
            Some(pattern) => answered(Finding::Match, format!("{pattern} in {shown}")),
            None => answered(Finding::Absent, format!("not on the list {shown}")),
        },
        Some(AutosignFile::Executable) => match evidence.execution(path) {
            None => Asked::Needs(Query::Execution(path.clone())),
            Some(Execution::Approved) => {
                answered(Finding::Match, format!("{shown} ended with status 0"))
            }
            Some(Execution::Declined(why)) => answered(Finding::Absent, format!("{shown} {why}")),
        },
    }
}

fn reserved_name<'a>(policy: &'a Policy, request: &Request<'_>) -> Option<&'a str> {
    if policy.reserved_names.is_empty() {
        return None;
    }
    let reserved = |name: &str| policy.reserved_names.get(name).map(String::as_str);
    let is_reserved = |name: &str| reserved(&name.trim_end_matches('.').to_ascii_lowercase());
    let names = request.csr.subject().common_names().chain([request.key]);
    let alt_names = request.csr.alt_names().iter();
    names.into_iter().find_map(is_reserved).or_else(|| {
        alt_names.into_iter().find_map(|name| match name {
            AltName::Dns(name) => is_reserved(name),
            AltName::Ip(address) => reserved(&address.to_canonical().to_string()),
            AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => None,
        })
    })
}
