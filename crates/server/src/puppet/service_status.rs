//! `/status/v1`: how clients find out whether a server is up and what it can do.

use axum::response::Response;
use http::StatusCode;
use serde_json::json;
use tracing::warn;

use super::{COMPATIBLE_VERSION, PuppetDoor, answer};
use crate::readiness;

impl PuppetDoor {
    /// All services, or one. `puppetserver ca` reads the version of `ca` to choose between bulk and single calls.
    pub(super) async fn services(&self, service: Option<&str>) -> Response {
        let state = self.state().await;
        let ca = json!({
            "service_version": COMPATIBLE_VERSION,
            "service_status_version": 1,
            "detail_level": "info",
            "state": state.name(),
            "status": {},
            "active_alerts": [],
        });
        let (status, body) = match service {
            None | Some("") => (state.status(), json!({ "ca": ca })),
            Some("ca") => {
                let mut named = ca;
                if let Some(members) = named.as_object_mut() {
                    members.insert("service_name".to_owned(), json!("ca"));
                }
                (state.status(), named)
            }
            Some(other) => {
                let message = format!("No status information found for service {other}");
                (
                    StatusCode::NOT_FOUND,
                    json!({ "kind": "service-not-found", "msg": message }),
                )
            }
        };
        answer::with(status, answer::JSON, body.to_string())
    }

    /// One word. Agents with a `server_list` probe `server` (`master` before) to choose their authority.
    pub(super) async fn simple(&self, service: Option<&str>) -> Response {
        match service {
            None | Some("" | "ca" | "server" | "master") => {
                let state = self.state().await;
                answer::with(state.status(), answer::SENTENCE, state.name())
            }
            Some(other) => {
                let sentence = format!("not found: {}", countersign_pki::terminal_safe(other));
                answer::with(StatusCode::NOT_FOUND, answer::SENTENCE, sentence)
            }
        }
    }

    async fn state(&self) -> ServiceState {
        match readiness::probe(&self.authority().requests).await {
            Ok(()) => ServiceState::Running,
            Err(fault) => {
                warn!(%fault, "the store does not answer");
                ServiceState::Error
            }
        }
    }
}

/// The states of Puppet Server's services that an authority can be in.
#[derive(Clone, Copy)]
enum ServiceState {
    Running,
    Error,
}

impl ServiceState {
    fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Error => "error",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Running => StatusCode::OK,
            Self::Error => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
