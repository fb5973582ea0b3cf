//! What Foreman asks a smart proxy when it is registered: which features it has, and in which version.

use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use super::{ForemanDoor, answer};

/// `GET /features`.
pub(super) async fn names() -> Response {
    answer::json(&[PUPPET_CA])
}

/// `GET /v2/features`. Foreman counts what is `running`, and tells its templates the URL.
pub(super) async fn details(State(door): State<ForemanDoor>) -> Response {
    answer::json(&json!({
        PUPPET_CA: {
            "http_enabled": false,
            "https_enabled": true,
            "settings": {"puppet_url": &*door.puppet_url},
            "state": "running",
            "capabilities": [],
        },
    }))
}

/// `GET /version`.
pub(super) async fn version() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    answer::json(&json!({"version": version, "modules": {PUPPET_CA: version}}))
}

/// The smart proxy's name for its Puppet CA module.
const PUPPET_CA: &str = "puppetca";
