//! What is said of a request whose message cannot be read: G09.

use countersign_pki::UnixTime;

use crate::node::check::CheckId;
use crate::node::rule::{Outcome, Profile};
use crate::reason::ReasonCode;
use crate::request::SignerName;
use crate::rules::{Policy, Rule, RuleKind};
use crate::verdict::{Answer, Deciding, Effect, Explanation, Finding, Step};

/// Judges a request whose message cannot be read, and says why. Nothing can be known of it, so no rule approves it; a rule
/// about nodes says what its preset does, and denies where G09 is strict.
pub fn judge_unreadable(
    policy: &Policy,
    signer: &SignerName,
    why: &str,
    now: UnixTime,
) -> Explanation {
    let mut explanation = Explanation {
        code: ReasonCode::CsrMalformed,
        ..Explanation::new(Effect::Pending, now, policy.generation)
    };
    for rule in policy.rules_for(signer) {
        let outcomes = rule.kinds.iter().filter_map(outcome);
        let Some(outcome) = outcomes.into_iter().next() else {
            continue;
        };
        // Whether the rule is meant for such a request cannot be known.
        let denies = outcome == Outcome::Deny && rule.when.is_none();
        explanation.retry |= outcome == Outcome::Retry;
        explanation.steps.push(step(rule, outcome, denies, why));
        if denies {
            let (name, policy) = (rule.name.clone(), rule.policy.as_ref().to_owned());
            explanation.effect = Effect::Deny;
            explanation.by = Some(Deciding::Rule { name, policy });
            explanation.retry = false;
            break;
        }
    }
    explanation
}

fn step(rule: &Rule, outcome: Outcome, denies: bool, why: &str) -> Step {
    let finding = match outcome {
        Outcome::Ignore => Finding::Skipped,
        Outcome::Deny | Outcome::Pend | Outcome::Retry | Outcome::Unavailable | Outcome::Skip => {
            Finding::Mismatch
        }
    };
    let reason = format!("{}: the request cannot be read: {why}", CheckId::G09);
    Step {
        policy: rule.policy.as_ref().to_owned(),
        answer: match denies {
            true => Answer::Deny,
            false => Answer::Abstain,
        },
        code: ReasonCode::Check(CheckId::G09),
        failed: vec![CheckId::G09.as_str().to_owned()],
        ..Step::new(&rule.name, &rule.kind_words(), finding, reason)
    }
}

/// What G09 comes to; `None`: the kind does not make it.
fn outcome(kind: &RuleKind) -> Option<Outcome> {
    let profile = match kind {
        RuleKind::NodeClient(rule) => Profile {
            preset: rule.preset,
            compat: rule.compat,
            checks: &rule.checks,
            names: None,
        },
        RuleKind::NodeServing(rule) => Profile {
            preset: rule.preset,
            compat: rule.compat,
            checks: &rule.checks,
            names: Some(&rule.names),
        },
        RuleKind::Always
        | RuleKind::Cel(_)
        | RuleKind::Allowlist(_)
        | RuleKind::Window
        | RuleKind::Token
        | RuleKind::SubjectAccess(_)
        | RuleKind::SigningPolicy
        | RuleKind::Machine(_)
        | RuleKind::Executable(_)
        | RuleKind::Webhook(_)
        | RuleKind::AutosignFile { .. } => return None,
    };
    profile
        .has(CheckId::G09)
        .then(|| profile.outcome(CheckId::G09))
}
