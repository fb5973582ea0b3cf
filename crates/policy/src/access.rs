//! Access reviews: may the sender of a request do something else, which stands for the right to its certificate?
//!
//! A cluster says by roles and bindings who may do what. A rule that asks for such a right, as a SubjectAccessReview
//! (`authorization.k8s.io/v1`) does for the CSR's user, leaves the decision to whoever binds roles.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evidence::Query;
use crate::kinds::{Checked, Found, Looking};
use crate::reason::ReasonCode;
use crate::request::{Identity, Requester};
use crate::rules::RuleEffect;
use crate::verdict::Finding;

/// What somebody may do, or may not: the resource attributes of a SubjectAccessReview. What is empty is not narrowed down;
/// an empty group is the core group.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(default)]
pub struct AccessQuestion {
    /// The API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The part of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// What is done to it.
    pub verb: String,
    /// The one object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Where it is; empty: everywhere, or in no namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

impl fmt::Display for AccessQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            resource,
            subresource,
            verb,
            name,
            namespace,
        } = self;
        write!(f, "{verb} {resource}")?;
        for (lead, part) in [
            ("/", subresource),
            (" of ", group),
            (" named ", name),
            (" in namespace ", namespace),
        ] {
            if !part.is_empty() {
                write!(f, "{lead}{part}")?;
            }
        }
        Ok(())
    }
}

/// What a review came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "said", rename_all = "camelCase")]
pub enum AccessAnswer {
    /// The sender may.
    Allowed {
        /// By which binding, in the reviewer's words.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// Nothing lets the sender.
    NotAllowed {
        /// In the reviewer's words.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// Nobody could say.
    Unavailable {
        /// Why not.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
}

impl AccessAnswer {
    /// In words, if there are any.
    pub fn reason(&self) -> &str {
        match self {
            Self::Allowed { reason }
            | Self::NotAllowed { reason }
            | Self::Unavailable { reason } => reason,
        }
    }

    /// Whether two answers come to the same, whatever their words.
    pub fn is_same(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// A review as it is kept with a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AccessEvidence")]
pub struct RecordedAccess {
    /// What was asked.
    pub question: AccessQuestion,
    /// What came of it.
    pub answer: AccessAnswer,
}

impl Looking<'_> {
    pub(crate) fn subject_access(&self, question: &Arc<AccessQuestion>) -> Found {
        // A role may be bound at any time: who may not now may later.
        if let Some(stand_in) = self.stand_in(MATCHED, NOT_ALLOWED) {
            let retry = stand_in.finding != Finding::Match;
            return Ok(Checked { retry, ..stand_in });
        }
        let Some(said) = self.evidence.access(question) else {
            return Err(vec![Query::SubjectAccess(Arc::clone(question))]);
        };
        let who = who(self.request.requester);
        let checked = match &said.value {
            AccessAnswer::Allowed { .. } => {
                Checked::matching(MATCHED, format!("{who} may {question}"))
            }
            AccessAnswer::NotAllowed { .. } => Checked {
                retry: is_user(self.request.requester),
                ..Checked::absent(NOT_ALLOWED, format!("{who} may not {question}"))
            },
            AccessAnswer::Unavailable { reason } => {
                let reason = format!("whether {who} may {question} cannot be known: {reason}");
                Checked::unavailable(ReasonCode::AccessUnavailable, reason)
            }
        };
        let checked = Checked {
            micros: said.micros,
            saw: match said.value.reason() {
                "" => question.to_string(),
                reason => format!("{question}: {reason}"),
            },
            ..checked
        };
        let approves = checked.finding == Finding::Match && self.rule.effect == RuleEffect::Approve;
        match approves && !self.asks_for_token() {
            true => self.with_token(checked),
            false => Ok(checked),
        }
    }

    /// Who shows an enrolment token gets by a role what the token is for, once, and uses it up; nothing else. A role that is
    /// bound to all bearers would else make many certificates of a token for one.
    pub(crate) fn with_token(&self, allowed: Checked) -> Found {
        let token = self.token()?;
        Ok(match token.finding {
            Finding::Match => Checked {
                reason: format!("{}; {}", allowed.reason, token.reason),
                uses: token.uses,
                ..allowed
            },
            Finding::Absent | Finding::Skipped => allowed,
            Finding::Mismatch | Finding::Unavailable => Checked {
                reason: format!("{}, but {}", allowed.reason, token.reason),
                saw: allowed.saw,
                // Not a word against the request: roles never deny.
                ending: None,
                ..token
            },
        })
    }
}

fn is_user(requester: &Requester) -> bool {
    matches!(requester.identity, Identity::User { .. })
}

/// Whoever asked, without the address: explanations of this are read by others.
fn who(requester: &Requester) -> Cow<'_, str> {
    match &requester.identity {
        Identity::User { username, .. } => Cow::Borrowed(username),
        Identity::Certname { certname } => Cow::Borrowed(certname),
        Identity::Anonymous => Cow::Borrowed("an anonymous sender"),
        Identity::Authority => Cow::Borrowed("the authority itself"),
    }
}

const MATCHED: ReasonCode = ReasonCode::SubjectAccess;
const NOT_ALLOWED: ReasonCode = ReasonCode::AccessNotAllowed;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_a_sentence() {
        let create = AccessQuestion {
            resource: "certificatesigningrequests".to_owned(),
            verb: "create".to_owned(),
            ..AccessQuestion::default()
        };
        for (question, words) in [
            (create.clone(), "create certificatesigningrequests"),
            (
                AccessQuestion {
                    group: "certificates.k8s.io".to_owned(),
                    subresource: "nodeclient".to_owned(),
                    ..create.clone()
                },
                "create certificatesigningrequests/nodeclient of certificates.k8s.io",
            ),
            (
                AccessQuestion {
                    name: "a".to_owned(),
                    namespace: "b".to_owned(),
                    ..create
                },
                "create certificatesigningrequests named a in namespace b",
            ),
        ] {
            assert_eq!(question.to_string(), words);
        }
    }
}
