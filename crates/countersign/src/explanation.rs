//! Explanations as people read them: each rule that was asked, what it found and answered, why, and how long it took.

use countersign_policy::{Answer, Deciding, Effect, Explanation, Finding, Step};

use crate::output::Facts;

/// Adds what was decided, by whom, and every rule that was asked.
pub(crate) fn add(explanation: &Explanation, facts: &mut Facts) {
    let verdict = match explanation.effect {
        Effect::Approve => "approved",
        Effect::Deny => "denied",
        Effect::Pending => "undecided",
    };
    facts.add("verdict", verdict);
    match &explanation.by {
        Some(Deciding::Rule { name, policy }) if policy.is_empty() => {
            facts.add("decided by", &format!("rule {name}"));
        }
        Some(Deciding::Rule { name, policy }) => {
            facts.add("decided by", &format!("rule {name} of policy {policy}"));
        }
        Some(Deciding::Person { actor, reason }) => {
            facts.add("decided by", &actor.to_string());
            facts.add("reason", reason);
        }
        Some(Deciding::Profile) => {
            facts.add("decided by", "nobody: the signer could never sign it")
        }
        None if explanation.retry => facts.add(
            "decided by",
            "nobody: evidence could not be had; it is asked for again",
        ),
        None => facts.add(
            "decided by",
            "nobody yet; waiting for `countersign csr approve` or `deny`",
        ),
    }
    facts.add("code", explanation.code.as_str());
    let at = match explanation.effect {
        Effect::Approve | Effect::Deny => "decided at",
        Effect::Pending => "judged at",
    };
    facts.add(at, &explanation.at.to_string());
    facts.add("took", &duration(explanation.micros));
    facts.add("policy", &format!("generation {}", explanation.generation));
    if let Some(seconds) = explanation.lifetime {
        facts.add("lifetime", &format!("at most {seconds} s were granted"));
    }
    if explanation.steps.is_empty() {
        facts.add("rules asked", "none");
    }
    for (index, step) in explanation.steps.iter().enumerate() {
        let label = if index == 0 { "rules asked" } else { "" };
        facts.add(label, &line(step));
        if !step.saw.is_empty() {
            facts.add("", &format!("  saw {}", step.saw));
        }
    }
}

/// The word for what a rule found.
pub(crate) fn finding_word(finding: Finding) -> &'static str {
    match finding {
        Finding::Match => "match",
        Finding::Absent => "absent",
        Finding::Mismatch => "mismatch",
        Finding::Unavailable => "unavailable",
        Finding::Skipped => "not asked",
    }
}

fn line(step: &Step) -> String {
    let rule = match step.policy.as_str() {
        "" => step.rule.clone(),
        policy => format!("{policy}/{}", step.rule),
    };
    let finding = finding_word(step.finding);
    let answer = match step.answer {
        Answer::Approve => ", approve",
        Answer::Deny => ", deny",
        Answer::Abstain => "",
    };
    let reason = match step.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    let took = match duration(step.micros) {
        none if none.is_empty() => none,
        took => format!(" [{took}]"),
    };
    let kind = &step.kind;
    format!("{rule} ({kind}) {finding}{answer}{reason}{took}")
}

/// Nothing for nothing.
fn duration(micros: u64) -> String {
    match micros {
        0 => String::new(),
        1..=9_999 => format!("{micros} µs"),
        10_000..=9_999_999 => format!("{} ms", micros / 1000),
        _ => format!("{} s", micros / 1_000_000),
    }
}
