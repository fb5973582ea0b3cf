//! Answers as a smart proxy gives them: JSON or nothing where it went well, text where it did not.

use axum::body::Body;
use axum::response::Response;
use countersign_authority::store::StoreFault;
use countersign_authority::{EngineError, shown};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tracing::{error, warn};

use crate::body::BodyFault;
use crate::limits::TooMany;
use crate::refusal::because;

/// It is done, and there is nothing to say: Foreman reads an empty body as `true`.
pub(super) fn done() -> Response {
    with(StatusCode::OK, JSON, Body::empty())
}

pub(super) fn json(body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(text) => with(StatusCode::OK, JSON, text),
        Err(_) => internal(),
    }
}

/// JSON that comes in parts.
pub(super) fn stream(body: Body) -> Response {
    with(StatusCode::OK, JSON, body)
}

/// JSON with a secret in it.
pub(super) fn secret_json(body: &impl Serialize) -> Response {
    let mut response = json(body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What the smart proxy answers whenever something was not done.
pub(super) fn failed(what: &str, why: &dyn std::fmt::Display) -> Response {
    // A secret that was mistaken for a name may stand in the reason.
    let why = shown(&format!("Failed to {what}: {why}"));
    refused(StatusCode::NOT_ACCEPTABLE, why)
}

/// The same where the machinery failed: whoever asks is told no more than that.
pub(super) fn broken(what: &str, fault: &EngineError) -> Response {
    match fault {
        EngineError::Store(fault) => store(what, fault),
        EngineError::Contended | EngineError::ShuttingDown | EngineError::Sign(_) => {
            warn!(%fault, "not served for now");
            failed(what, fault)
        }
        EngineError::Draft(_)
        | EngineError::Defect
        | EngineError::Entropy(_)
        | EngineError::Encode(_)
        | EngineError::Serials(_)
        | EngineError::StoredRequest { .. } => {
            error!(error = fault as &dyn std::error::Error, "request failed");
            failed(what, fault)
        }
    }
}

pub(super) fn store(what: &str, fault: &StoreFault) -> Response {
    error!(
        error = fault as &dyn std::error::Error,
        "the store did not answer"
    );
    failed(what, &crate::readiness::CANNOT_STORE)
}

pub(super) fn forbidden(why: String) -> Response {
    refused(StatusCode::FORBIDDEN, why)
}

/// A request that is not to be signed.
pub(super) fn rejected(why: String) -> Response {
    with(StatusCode::NOT_FOUND, TEXT, why)
}

pub(super) fn not_implemented(why: &'static str) -> Response {
    with(StatusCode::NOT_IMPLEMENTED, TEXT, why)
}

/// A path or a method that is not served.
pub(super) async fn unrouted() -> Response {
    with(
        StatusCode::NOT_FOUND,
        TEXT,
        "This smart proxy has no such call",
    )
}

pub(super) fn internal() -> Response {
    with(
        StatusCode::INTERNAL_SERVER_ERROR,
        TEXT,
        "The request could not be served; see the authority's log",
    )
}

pub(super) fn too_many(fault: TooMany) -> Response {
    let seconds = HeaderValue::from(fault.retry_after);
    let mut response = refused(StatusCode::TOO_MANY_REQUESTS, fault.to_string());
    response.headers_mut().insert(RETRY_AFTER, seconds);
    response
}

/// A body that is too long, too slow or cut off.
pub(super) fn bad_body(fault: BodyFault) -> Response {
    let status = match fault {
        BodyFault::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BodyFault::TooSlow => StatusCode::REQUEST_TIMEOUT,
        BodyFault::BrokenOff => StatusCode::BAD_REQUEST,
    };
    refused(status, fault.to_string())
}

/// A refusal. What its sender is told is in the log, too.
fn refused(status: StatusCode, why: String) -> Response {
    because(with(status, TEXT, why.clone()), why)
}

fn with(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
