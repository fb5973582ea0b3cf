//! What a decider's answer says, if it says anything that counts.

use countersign_authority::Question;
use countersign_pki::terminal_safe;
use countersign_policy::WebhookAnswer;
use http::StatusCode;
use serde_json::{Map, Value};

use crate::json;

/// Why an answer does not count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerFault {
    #[error("is not one JSON object without repeated names")]
    Json {
        #[source]
        source: serde_json::Error,
    },
    #[error("has a {member} that is not text")]
    NotText { member: &'static str },
    #[error("has no decision")]
    NoDecision,
    #[error("has the unknown decision {said:?}: allow, deny and pend are known")]
    UnknownDecision { said: String },
    #[error("allows without repeating {member}")]
    NoEcho { member: &'static str },
    #[error("repeats another {member} than it was asked about")]
    OtherEcho { member: &'static str },
    #[error("has constraints that are not an object")]
    Constraints,
    #[error("has the unknown constraint {name:?}")]
    UnknownConstraint { name: String },
    #[error("has a ttl_seconds that is not a whole number between 1 and {limit}")]
    Lifetime { limit: u64 },
    #[error("has the constraint profile {said:?}, but the request is for {signer:?}")]
    Profile { said: String, signer: String },
}

/// Status mode: 200 allows, 404 denies, nothing else is an answer.
pub(crate) fn of_status(status: StatusCode) -> Option<WebhookAnswer> {
    let reason = String::new();
    match status {
        StatusCode::OK => Some(WebhookAnswer::Allow {
            reason,
            ttl_seconds: None,
        }),
        StatusCode::NOT_FOUND => Some(WebhookAnswer::Deny { reason }),
        _ => None,
    }
}

/// JSON mode. An answer that allows must repeat what it was asked about; one that does not must at least not repeat
/// anything else. Members that are not known are left alone, constraints that are not known are not: they would narrow
/// what is allowed, and cannot be kept.
pub(crate) fn of_json(body: &[u8], question: &Question<'_>) -> Result<WebhookAnswer, AnswerFault> {
    let said = json::object(body).map_err(|source| AnswerFault::Json { source })?;
    let decision = text(&said, "decision")?.ok_or(AnswerFault::NoDecision)?;
    let reason = text(&said, "reason")?.map(shown).unwrap_or_default();
    let csr = question.csr.fingerprint().to_hex();
    let echoes = [("request_id", question.request_id), ("csr_sha256", &csr)];
    for (member, asked) in echoes {
        match text(&said, member)? {
            Some(echo) if echo != asked => return Err(AnswerFault::OtherEcho { member }),
            Some(_) => {}
            None if decision == "allow" => return Err(AnswerFault::NoEcho { member }),
            None => {}
        }
    }
    match decision {
        "allow" => Ok(WebhookAnswer::Allow {
            reason,
            ttl_seconds: lifetime(&said, question.signer)?,
        }),
        "deny" => Ok(WebhookAnswer::Deny { reason }),
        "pend" => Ok(WebhookAnswer::Pend { reason }),
        other => Err(AnswerFault::UnknownDecision { said: shown(other) }),
    }
}

/// The lifetime that the constraints leave, after making sure that there is nothing else in them to be kept.
fn lifetime(said: &Map<String, Value>, signer: &str) -> Result<Option<u64>, AnswerFault> {
    let constraints = match said.get("constraints") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(constraints)) => constraints,
        Some(_) => return Err(AnswerFault::Constraints),
    };
    let known = |name: &str| matches!(name, "ttl_seconds" | "profile");
    if let Some(name) = constraints.keys().find(|name| !known(name)) {
        return Err(AnswerFault::UnknownConstraint { name: shown(name) });
    }
    match text(constraints, "profile")? {
        Some(profile) if profile != signer => {
            return Err(AnswerFault::Profile {
                said: shown(profile),
                signer: signer.to_owned(),
            });
        }
        Some(_) | None => {}
    }
    match constraints.get("ttl_seconds") {
        None | Some(Value::Null) => Ok(None),
        Some(seconds) => seconds
            .as_u64()
            .filter(|seconds| (1..=MAX_LIFETIME).contains(seconds))
            .map(Some)
            .ok_or(AnswerFault::Lifetime {
                limit: MAX_LIFETIME,
            }),
    }
}

/// A member's text; `null` is as good as nothing.
fn text<'a>(
    said: &'a Map<String, Value>,
    member: &'static str,
) -> Result<Option<&'a str>, AnswerFault> {
    match said.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(AnswerFault::NotText { member }),
    }
}

/// A stranger's text as it may be stored and shown.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(MAX_REASON).collect();
    terminal_safe(&cut).into_owned()
}

/// Characters of a decider's reason that are kept.
const MAX_REASON: usize = 256;
/// A hundred years; a longer lifetime is a slip of units.
const MAX_LIFETIME: u64 = 100 * 366 * 86_400;
