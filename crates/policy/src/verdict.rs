//! Verdicts, and the explanation that every verdict carries.

use std::fmt;

use countersign_pki::UnixTime;
use serde::{Deserialize, Serialize};

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

/// The permission to issue one certificate. It is neither `Clone` nor constructible by hand: it comes
/// out of [`crate::decide`], or out of the record of an earlier decision, and is used up by the draft.
#[derive(Debug)]
pub struct Approval {
    explanation: Explanation,
}

impl Approval {
    pub(crate) fn new(explanation: Explanation) -> Self {
        Self { explanation }
    }

    /// Takes an approval up again whose decision is on record, after its first intent was voided.
    ///
    /// `None` if what is on record is not an approval.
    pub fn from_recorded_decision(explanation: Explanation) -> Option<Self> {
        (explanation.effect == Effect::Approve).then_some(Self { explanation })
    }

    /// Why it was approved.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }
}

/// Every rule that was asked, what it saw and what it said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The rules asked, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
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
            Some(Deciding::Rule { name }) => write!(f, "{effect} by rule {name}")?,
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

/// The three outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Deciding {
    /// A rule of the policy.
    Rule {
        /// Its name.
        name: String,
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

/// One rule's part in a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The rule's name.
    pub rule: String,
    /// Its kind.
    pub kind: String,
    /// What it found.
    pub finding: Finding,
    /// In words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What a rule found in its evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}
