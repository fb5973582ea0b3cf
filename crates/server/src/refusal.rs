//! What the log says of calls that were refused, at every door alike: who, what, and why.
//!
//! An answer brings its reason along; what is written is bounded and counted where the log is written, by its `source`.

use axum::response::Response;
use countersign_authority::shown;
use http::{Method, StatusCode, Uri};
use tracing::info;

use crate::peer::Peer;

/// Why a call was refused, as its sender is told. An extension of the answer.
#[derive(Clone)]
struct Reason(String);

/// The answer with its reason, for the log.
pub(crate) fn because(mut answer: Response, reason: impl Into<String>) -> Response {
    if is_refusal(answer.status()) {
        answer.extensions_mut().insert(Reason(reason.into()));
    }
    answer
}

/// Notes an answer that refuses.
pub(crate) fn note(peer: &Peer, method: &Method, uri: &Uri, answer: &Response) {
    let status = answer.status();
    if !is_refusal(status) {
        return;
    }
    let reason = answer.extensions().get::<Reason>();
    let reason = reason.map(|Reason(text)| shown(text));
    info!(
        source = %peer.address.ip().to_canonical(),
        caller = peer.shown_name(),
        method = shown(method.as_str()),
        path = shown(uri.path()),
        status = status.as_u16(),
        reason,
        "refused"
    );
}

/// What is not there yet, has changed meanwhile or is not served is no refusal: clients ask for such things all the time.
fn is_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::NOT_ACCEPTABLE
    )
}
