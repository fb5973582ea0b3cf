//! What a rule may consult. Supplied by the caller; never fetched here.

use countersign_pki::UnixTime;
use serde::{Deserialize, Serialize};

use crate::request::Requester;

/// A fact that a decision still lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// Has a person approved or denied this request?
    Person,
}

/// What is known so far. A fact that was never asked for is `None`.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    person: Option<Option<PersonDecision>>,
}

impl Evidence {
    /// Nothing is known.
    pub fn none() -> Self {
        Self::default()
    }

    /// Records the answer to [`Query::Person`]: the decision, or that nobody has decided.
    #[must_use]
    pub fn with_person(mut self, decision: Option<PersonDecision>) -> Self {
        self.person = Some(decision);
        self
    }

    pub(crate) fn person(&self) -> Option<Option<&PersonDecision>> {
        self.person.as_ref().map(Option::as_ref)
    }
}

/// A person's word on one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersonDecision {
    /// What was decided.
    pub verdict: PersonVerdict,
    /// Who decided.
    pub actor: Requester,
    /// When.
    pub at: UnixTime,
    /// The reason given, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Approve or deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PersonVerdict {
    /// The certificate may be signed.
    Approve,
    /// It may not.
    Deny,
}
