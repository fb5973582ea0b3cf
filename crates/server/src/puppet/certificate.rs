//! `certificate`: what agents fetch.

use axum::response::Response;
use countersign_pki::pem;
use http::HeaderMap;

use super::{PuppetDoor, answer, conditional, faults};

impl PuppetDoor {
    /// The issuer's chain for the name `ca`, else the newest certificate of the name: valid, ended or revoked alike.
    /// Agents take 404 for "not signed yet", and only that.
    pub(super) async fn get_certificate(&self, name: &str, headers: &HeaderMap) -> Response {
        let now = self.authority().now();
        if name == "ca" {
            if conditional::is_current(headers, self.shared.chain_modified, now) {
                return answer::not_modified();
            }
            return answer::ok(self.shared.chain.clone());
        }
        match self.authority().ledger.shown(self.issuer(), name).await {
            // It was recorded right after it was decided.
            Ok(Some(shown)) if conditional::is_current(headers, shown.decided, now) => {
                answer::not_modified()
            }
            Ok(Some(shown)) => answer::ok(pem::encode("CERTIFICATE", &shown.der)),
            Ok(None) => answer::not_found(format!("Could not find certificate {name}")),
            Err(fault) => faults::store(&fault),
        }
    }
}
