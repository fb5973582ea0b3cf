//! Refusals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TokenId;

/// A refusal.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorBody {
    /// What is wrong.
    pub error: ErrorMembers,
    /// The token that the same order led to before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<TokenId>,
}

/// What is wrong.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ErrorMembers {
    #[expect(missing_docs, reason = "its type says it, in the document too")]
    pub code: Code,
    /// A sentence for people.
    pub message: String,
}

/// A word for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "the words say it, in the document too")]
pub enum Code {
    Unauthenticated,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    BodyTooLarge,
    BodyTooSlow,
    Invalid,
    Conflict,
    TooMany,
    Unsignable,
    Unavailable,
    Internal,
}
