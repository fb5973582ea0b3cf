//! `/status/v1`: how clients find out whether a server is up and what it can do.

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::{COMPATIBLE_VERSION, answer};

/// All services, or one. `puppetserver ca` reads the version of `ca` to choose between bulk and single calls.
pub(super) fn services(service: Option<&str>) -> Response {
    let ca = json!({
        "service_version": COMPATIBLE_VERSION,
        "service_status_version": 1,
        "detail_level": "info",
        "state": "running",
        "status": {},
        "active_alerts": [],
    });
    let (status, body) = match service {
        None | Some("") => (StatusCode::OK, json!({ "ca": ca })),
        Some("ca") => (StatusCode::OK, ca),
        Some(other) => {
            let message = format!("No status function registered for service {other}");
            (
                StatusCode::NOT_FOUND,
                json!({ "kind": "service-not-found", "msg": message }),
            )
        }
    };
    answer::with(status, answer::JSON, body.to_string())
}

/// One word. Agents with a `server_list` probe `server` (`master` before) to choose their authority.
pub(super) fn simple(service: Option<&str>) -> Response {
    match service {
        None | Some("" | "ca" | "server" | "master") => {
            answer::with(StatusCode::OK, answer::SENTENCE, "running")
        }
        Some(other) => {
            let sentence = format!("not found: {}", countersign_pki::terminal_safe(other));
            answer::with(StatusCode::NOT_FOUND, answer::SENTENCE, sentence)
        }
    }
}
