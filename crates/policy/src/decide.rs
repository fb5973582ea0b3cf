//! The decision itself: one pure function.

use countersign_pki::{AltName, UnixTime};

use crate::evidence::{Evidence, PersonDecision, PersonVerdict, Query};
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
        let step = ask(rule, reserved);
        let approves = step.finding == Finding::Match;
        steps.push(step);
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

fn ask(rule: &Rule, reserved: Option<&str>) -> Step {
    let (finding, reason) = match (reserved, &rule.kind) {
        (Some(name), _) => (
            Finding::Mismatch,
            format!("{name} is a name of the authority itself; only a person approves it"),
        ),
        (None, RuleKind::Always) => (Finding::Match, String::new()),
    };
    Step {
        rule: rule.name.clone(),
        kind: rule.kind.word().to_owned(),
        finding,
        reason,
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
