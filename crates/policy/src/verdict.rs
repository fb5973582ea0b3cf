//! Verdicts, and the explanation that every verdict carries.

use std::fmt;

use countersign_pki::UnixTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reason::ReasonCode;
use crate::request::Requester;

/// The end of a decision.
#[derive(Debug)]
pub enum Verdict {
    /// Sign it.
    Approve(Approval),
    /// Do not, and say so.
    Deny(Explanation),
    /// Nobody has decided; wait for a person.
    Pending(Explanation),
}

impl Verdict {
    /// Notes how long the decision took in all.
    pub fn took(&mut self, micros: u64) {
        let explanation = match self {
            Self::Approve(approval) => &mut approval.explanation,
            Self::Deny(explanation) | Self::Pending(explanation) => explanation,
        };
        explanation.micros = micros;
    }

    /// What it rests on that can be used up; nothing but an approval uses anything.
    pub fn uses(&self) -> &[Use] {
        match self {
            Self::Approve(approval) => approval.uses(),
            Self::Deny(_) | Self::Pending(_) => &[],
        }
    }

    /// Why.
    pub fn explanation(&self) -> &Explanation {
        match self {
            Self::Approve(approval) => &approval.explanation,
            Self::Deny(explanation) | Self::Pending(explanation) => explanation,
        }
    }
}

/// The permission to issue one certificate. It is neither `Clone` nor constructible by hand: it comes
/// out of [`crate::decide`], or out of the record of an earlier decision, and is used up by the draft.
#[derive(Debug)]
pub struct Approval {
    explanation: Explanation,
    uses: Vec<Use>,
}

impl Approval {
    pub(crate) fn new(explanation: Explanation, uses: Vec<Use>) -> Self {
        Self { explanation, uses }
    }

    /// Takes an approval up again whose decision is on record, after its first intent was voided.
    ///
    /// `None` if what is on record is not an approval by a rule or a person.
    pub fn from_recorded_decision(explanation: Explanation) -> Option<Self> {
        let decided = match &explanation.by {
            Some(Deciding::Rule { .. } | Deciding::Person { .. }) => true,
            Some(Deciding::Profile) | None => false,
        };
        (decided && explanation.effect == Effect::Approve).then_some(Self {
            explanation,
            uses: Vec::new(),
        })
    }

    /// Why it was approved.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }

    /// What it rests on that can be used up. It counts only if the use is written in the same commit; an approval that is
    /// on record has been counted.
    pub fn uses(&self) -> &[Use] {
        &self.uses
    }
}

/// Evidence that an approval uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// An inventory record.
    Machine {
        /// Its name.
        name: String,
        /// Whether it must not have been used before.
        once: bool,
    },
    /// A build window.
    Window {
        /// Its name.
        certname: String,
        /// Whether this is the last certificate that it is good for.
        closes: bool,
        /// Whether it wants a token, which is used as well.
        with_token: bool,
    },
    /// An enrolment token.
    Token {
        /// Its public part.
        id: String,
        /// The name that it is used for.
        name: String,
        /// Whether the certificate that the name has is to be replaced.
        replaces: bool,
    },
}

impl Use {
    /// The token, if it is one.
    pub fn token(&self) -> Option<TokenUsed> {
        match self {
            Self::Token { id, name, .. } => Some(TokenUsed {
                id: id.clone(),
                certname: name.clone(),
            }),
            Self::Machine { .. } | Self::Window { .. } => None,
        }
    }
}

/// Every rule that was asked, what it saw and what it said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// What came out.
    pub effect: Effect,
    /// What settled it; absent while nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Deciding>,
    /// When it was decided.
    pub at: UnixTime,
    /// The generation of the policy that decided.
    pub generation: u64,
    /// The reason in one word, for programs; empty while nothing settled it.
    #[serde(default, skip_serializing_if = "ReasonCode::is_none")]
    #[schemars(with = "String")]
    pub code: ReasonCode,
    /// Whether it waits for evidence that may still appear, and is worth asking again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
    /// Whether a rule whose evidence could not be had ended it: those behind it were not asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// The longest lifetime in seconds that was granted, where that is less than the signer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<u64>,
    /// The enrolment token that the approval used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenUsed>,
    /// How long the whole decision took.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub micros: u64,
    /// The rules asked, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

impl Explanation {
    /// An explanation with no rule in it.
    pub fn new(effect: Effect, at: UnixTime, generation: u64) -> Self {
        Self {
            effect,
            by: None,
            at,
            generation,
            code: ReasonCode::None,
            retry: false,
            stopped: false,
            lifetime: None,
            token: None,
            micros: 0,
            steps: Vec::new(),
        }
    }
}

impl Explanation {
    /// The sentence, and what each rule that was asked said: for readers who see nothing else, at most 1 KiB.
    pub fn in_short(&self) -> String {
        let mut text = self.to_string();
        for (index, step) in self.steps.iter().enumerate() {
            let lead = if index == 0 { "; asked: " } else { ", " };
            let said = match (step.answer, step.finding) {
                (Answer::Approve, _) => "approve",
                (Answer::Deny, _) => "deny",
                (Answer::Abstain, Finding::Unavailable) => "unavailable",
                (Answer::Abstain, Finding::Skipped) => "not asked",
                (Answer::Abstain, _) => "abstain",
            };
            let next = format!("{lead}{}: {said}", step.rule);
            if text.len().saturating_add(next.len()) > MAX_SHORT {
                text.push_str(", …");
                break;
            }
            text.push_str(&next);
        }
        text
    }

    /// Whether evidence that could not be had ended it, and asking again may help.
    pub fn is_stopped(&self) -> bool {
        self.effect == Effect::Pending && self.retry && self.stopped
    }
}

impl fmt::Display for Explanation {
    /// One sentence, for a condition message or a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.effect {
            Effect::Approve => "approved",
            Effect::Deny => "denied",
            Effect::Pending => "waiting for a person",
        };
        match &self.by {
            Some(Deciding::Rule { name, .. }) => write!(f, "{effect} by rule {name}")?,
            Some(Deciding::Person { actor, .. }) => write!(f, "{effect} by {actor}")?,
            Some(Deciding::Profile) => write!(f, "{effect}: no rule was asked")?,
            None => write!(f, "{effect}")?,
        }
        match self.steps.last() {
            Some(step) if !step.reason.is_empty() => write!(f, " ({})", step.reason),
            Some(_) | None => Ok(()),
        }
    }
}

/// The use of an enrolment token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenUsed {
    /// The token's public part.
    pub id: String,
    /// The name that it was used for.
    pub certname: String,
}

/// The three outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// May be signed.
    Approve,
    /// May not be signed.
    Deny,
    /// Undecided.
    Pending,
}

/// What settled a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Deciding {
    /// A rule of the policy.
    Rule {
        /// Its name.
        name: String,
        /// The policy document it stands in.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        policy: String,
    },
    /// A person, or the authority acting for itself.
    Person {
        /// Who.
        actor: Requester,
        /// The reason given.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The signer's profile: it could never sign this, so nobody was asked.
    Profile,
}

impl Deciding {
    /// A rule that stands in no document.
    pub fn rule(name: &str) -> Self {
        Self::Rule {
            name: name.to_owned(),
            policy: String::new(),
        }
    }
}

/// One rule's part in a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The policy document the rule stands in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// The rule's name.
    pub rule: String,
    /// Its kind; several are joined by a plus sign.
    pub kind: String,
    /// What it found.
    pub finding: Finding,
    /// What it answered.
    #[serde(default, skip_serializing_if = "Answer::is_abstain")]
    pub answer: Answer,
    /// The reason in one word, for programs.
    #[serde(default, skip_serializing_if = "ReasonCode::is_none")]
    #[schemars(with = "String")]
    pub code: ReasonCode,
    /// The reason in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it looked at.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub saw: String,
    /// The checks of it that failed, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// How long its evidence took to get.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub micros: u64,
}

impl Step {
    /// A step of a rule that stands in no document.
    pub fn new(rule: &str, kind: &str, finding: Finding, reason: String) -> Self {
        Self {
            policy: String::new(),
            rule: rule.to_owned(),
            kind: kind.to_owned(),
            finding,
            answer: Answer::Abstain,
            code: ReasonCode::None,
            reason,
            saw: String::new(),
            failed: Vec::new(),
            micros: 0,
        }
    }
}

/// What a rule answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Sign it.
    Approve,
    /// Do not.
    Deny,
    /// It does not say.
    #[default]
    Abstain,
}

impl Answer {
    fn is_abstain(&self) -> bool {
        *self == Self::Abstain
    }
}

/// What a rule found in its evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// It speaks for the request.
    Match,
    /// It has nothing to say.
    Absent,
    /// It speaks against the request.
    Mismatch,
    /// It could not be had.
    Unavailable,
    /// The rule was not asked: its condition does not hold.
    Skipped,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands a reference over"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

const MAX_SHORT: usize = 1024;
