//! Answers in the forms that Puppet's clients know.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::Response;
use countersign_authority::masked_tokens;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};

use crate::access::Needed;
use crate::body::BodyFault;
use crate::limits::TooMany;
use crate::refusal::because;
use countersign_authority::shown;

/// PEM, and nothing at all.
pub(super) const PLAIN: &str = "text/plain";
/// Sentences about requests.
pub(super) const SENTENCE: &str = "text/plain; charset=utf-8";
/// Sentences about certificates' status.
pub(super) const STATUS_SENTENCE: &str = "text/plain; charset=UTF-8";
pub(super) const JSON: &str = "application/json; charset=utf-8";

pub(super) fn with(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A refusal. What its sender is told is in the log, too.
pub(super) fn refused(
    status: StatusCode,
    content_type: &'static str,
    sentence: impl Into<String>,
) -> Response {
    let sentence = masked(sentence.into());
    because(with(status, content_type, sentence.clone()), sentence)
}

pub(super) fn ok(body: impl Into<Body>) -> Response {
    with(StatusCode::OK, PLAIN, body)
}

pub(super) fn not_modified() -> Response {
    with(StatusCode::NOT_MODIFIED, PLAIN, Body::empty())
}

pub(super) fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

pub(super) fn not_found(sentence: String) -> Response {
    with(StatusCode::NOT_FOUND, PLAIN, masked(sentence))
}

pub(super) fn bad_request(sentence: String) -> Response {
    refused(StatusCode::BAD_REQUEST, SENTENCE, sentence)
}

pub(super) fn conflict(sentence: String) -> Response {
    with(StatusCode::CONFLICT, STATUS_SENTENCE, masked(sentence))
}

/// A sentence that may repeat what somebody sent: a secret taken for a name stays one.
pub(super) fn masked(sentence: String) -> String {
    match masked_tokens(&sentence) {
        Cow::Borrowed(_) => sentence,
        Cow::Owned(masked) => masked,
    }
}

/// A path that the rules admit and nothing serves.
pub(super) fn unrouted() -> Response {
    with(
        StatusCode::NOT_FOUND,
        "text/html;charset=utf-8",
        "Not Found",
    )
}

/// The reference's sentences, and one more where a role would have helped.
pub(super) fn forbidden(path: &str, method: &Method, needed: Option<&Needed>) -> Response {
    let path = shown(path);
    let method = method.as_str().to_ascii_lowercase();
    let mut sentence = format!(
        "Forbidden request: {path} (method :{method}). Please see the server logs for details."
    );
    if let Some(needed) = needed {
        let needed = needed.to_string();
        let needed = needed.strip_prefix('t').unwrap_or(&needed);
        sentence.push_str(&format!(" T{needed}."));
    }
    let answer = with(StatusCode::FORBIDDEN, SENTENCE, masked(sentence));
    let needed = needed.map(ToString::to_string);
    because(answer, needed.unwrap_or_else(|| NOBODY_MAY.to_owned()))
}

/// Agents wait as long as `Retry-After` says and try again.
pub(super) fn too_many(fault: TooMany) -> Response {
    let TooMany { scope, retry_after } = fault;
    let sentence = format!("Too many {scope}. Try again in {retry_after} seconds.");
    let mut response = refused(StatusCode::TOO_MANY_REQUESTS, SENTENCE, sentence);
    let seconds = HeaderValue::from(retry_after);
    response.headers_mut().insert(RETRY_AFTER, seconds);
    response
}

pub(super) fn method_not_allowed(allowed: &'static str) -> Response {
    let mut response = with(
        StatusCode::METHOD_NOT_ALLOWED,
        STATUS_SENTENCE,
        "Method not allowed.",
    );
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

pub(super) fn internal(what: &str) -> Response {
    with(
        StatusCode::INTERNAL_SERVER_ERROR,
        SENTENCE,
        format!("Internal Server Error: {what}"),
    )
}

/// Agents sleep as long as they are told and try again.
pub(super) fn unavailable(what: &str) -> Response {
    let body = format!("Service Unavailable: {what}");
    let mut response = with(StatusCode::SERVICE_UNAVAILABLE, SENTENCE, body);
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
    response
}

/// A body that is too long, too slow or cut off.
pub(super) fn bad_body(fault: BodyFault) -> Response {
    let (status, sentence) = match fault {
        BodyFault::TooLong { limit } => (
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("The request body is longer than {limit} bytes."),
        ),
        BodyFault::TooSlow => (
            StatusCode::REQUEST_TIMEOUT,
            "The request body did not arrive in time.".to_owned(),
        ),
        BodyFault::BrokenOff => (
            StatusCode::BAD_REQUEST,
            "The request body is incomplete.".to_owned(),
        ),
    };
    refused(status, SENTENCE, sentence)
}

/// Where no role would have helped.
const NOBODY_MAY: &str = "the caller may not do this";
const RETRY_SECONDS: &str = "10";
