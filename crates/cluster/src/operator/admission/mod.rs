//! Admission of the operator's objects: what the rules of their definitions cannot see, which is whether the
//! CertificateAuthority that an object names exists.
//!
//! [`examine`] is a plain function: it answers a review, or says which CertificateAuthority has to be looked for. Nothing is
//! in the way of what is being deleted, and a change to an object is judged by what it changes: an object that was stored
//! before its CertificateAuthority went, or before there was a webhook, can be worked on and finalized.
//!
//! Whoever reaches the listener may send anything. Only the few fields that count are kept of an object, and they are let
//! go before the API server is asked.

mod examination;
mod message;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::debug;

use self::examination::{Step, examine};
use self::message::Review;
use super::calls::{Calls, Kind};
use super::metrics::OperatorMetrics;

/// A kind of objects that the API server asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionKind {
    /// A Certificate.
    Certificate,
    /// A CertificateAuthority.
    CertificateAuthority,
    /// A SigningPolicy.
    SigningPolicy,
}

impl AdmissionKind {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::Certificate,
        Self::CertificateAuthority,
        Self::SigningPolicy,
    ];

    /// Where the API server asks about it: the path of openvox-operator.
    pub fn path(self) -> &'static str {
        match self {
            Self::Certificate => "/validate-openvox-voxpupuli-org-v1alpha1-certificate",
            Self::CertificateAuthority => {
                "/validate-openvox-voxpupuli-org-v1alpha1-certificateauthority"
            }
            Self::SigningPolicy => "/validate-openvox-voxpupuli-org-v1alpha1-signingpolicy",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Certificate => Kind::Certificate,
            Self::CertificateAuthority => Kind::CertificateAuthority,
            Self::SigningPolicy => Kind::SigningPolicy,
        }
        .word()
    }
}

/// A review that cannot even be answered: nobody knows which one it is.
#[derive(Debug, thiserror::Error)]
pub enum ReviewFault {
    /// It is not an AdmissionReview.
    #[error("the body is not an AdmissionReview")]
    Unreadable(#[from] serde_json::Error),
    /// It asks for nothing.
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
}

/// Answers a review. A CertificateAuthority is looked for at the API server itself, since what a watch has seen may be
/// older than the object in question.
pub(crate) async fn review(
    kind: AdmissionKind,
    body: &[u8],
    namespaces: &[String],
    calls: &Calls,
    metrics: &OperatorMetrics,
) -> Result<Vec<u8>, ReviewFault> {
    let answered = answer(kind, body, namespaces, calls).await;
    let word = answered
        .as_ref()
        .map_or("unreadable", |(_, answer)| answer.word());
    metrics.reviewed(kind.word(), word);
    let (uid, answer) = answered?;
    if let Answer::Denied { code, message, .. } = &answer {
        debug!(kind = kind.word(), code, message, "denied at admission");
    }
    Ok(answer.review(&uid).to_string().into_bytes())
}

/// The answer, and to which review.
async fn answer(
    kind: AdmissionKind,
    body: &[u8],
    namespaces: &[String],
    calls: &Calls,
) -> Result<(String, Answer), ReviewFault> {
    let (uid, step) = {
        let review: Review<'_> = serde_json::from_slice(body)?;
        let request = review.request.ok_or(ReviewFault::NoRequest)?;
        if request.uid.is_empty() {
            return Err(ReviewFault::NoRequest);
        }
        let step = match review.api_version == REVIEW_VERSION {
            true => examine(kind, &request, namespaces),
            false => Step::Answer(Answer::unreadable(format!(
                "an AdmissionReview of {REVIEW_VERSION} is needed, not of {}",
                shown(&review.api_version)
            ))),
        };
        (request.uid, step)
    };
    let answer = match step {
        Step::Answer(answer) => answer,
        Step::LookFor(reference) => {
            let looked = timeout(
                PATIENCE,
                calls.get(Kind::CertificateAuthority, &reference.to),
            );
            let found = match looked.await {
                Ok(found) => found
                    .map(|found| found.is_some())
                    .map_err(|fault| fault.to_string()),
                Err(_) => Err(format!(
                    "the API server does not answer within {} s",
                    PATIENCE.as_secs()
                )),
            };
            reference.answer(found)
        }
    };
    Ok((uid, answer))
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Allowed,
    Denied {
        code: u16,
        reason: &'static str,
        message: String,
    },
}

impl Answer {
    /// As openvox-operator's webhooks deny.
    fn forbidden(message: String) -> Self {
        Self::Denied {
            code: 403,
            reason: "Forbidden",
            message,
        }
    }

    fn unreadable(message: String) -> Self {
        Self::Denied {
            code: 400,
            reason: "BadRequest",
            message,
        }
    }

    /// As it is counted.
    fn word(&self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied { code: 400, .. } => "invalid",
            Self::Denied { code: 503, .. } => "unavailable",
            Self::Denied { .. } => "denied",
        }
    }

    fn review(&self, uid: &str) -> Value {
        let response = match self {
            Self::Allowed => json!({"uid": uid, "allowed": true}),
            Self::Denied {
                code,
                reason,
                message,
            } => json!({
                "uid": uid,
                "allowed": false,
                "status": {
                    "status": "Failure", "code": code, "reason": reason, "message": message,
                },
            }),
        };
        json!({"apiVersion": REVIEW_VERSION, "kind": "AdmissionReview", "response": response})
    }
}

/// Enough of a text to recognise it by.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

const REVIEW_VERSION: &str = "admission.k8s.io/v1";
/// Less than the five seconds for which the API server waits as it is installed.
const PATIENCE: Duration = Duration::from_secs(3);
/// As long as the longest name.
const MAX_SHOWN: usize = 253;
