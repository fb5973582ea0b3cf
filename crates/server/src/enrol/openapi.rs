//! `/openapi.json`: the interface's description of itself (OpenAPI 3.1), for people and for generators of clients.
//!
//! It is written by hand; a test holds it against the routes and against answers.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

/// Anybody may read it: it tells nothing about this authority.
pub(super) async fn document() -> Response {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

pub(super) const PATH: &str = "/openapi.json";

const DOCUMENT: &str = include_str!("openapi.json");
