//! `certificate` and `certificate_revocation_list`: what agents fetch.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use countersign_authority::CrlState;
use countersign_pki::pem;
use http::HeaderMap;
use tracing::error;

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
        match self
            .authority()
            .newest_certificate(self.issuer(), name)
            .await
        {
            // It was recorded right after the decision that it carries.
            Ok(Some(entry)) if conditional::is_current(headers, entry.explanation.at, now) => {
                answer::not_modified()
            }
            Ok(Some(entry)) => answer::ok(pem::encode("CERTIFICATE", &entry.der)),
            Ok(None) => answer::not_found(format!("Could not find certificate {name}")),
            Err(fault) => faults::store(&fault),
        }
    }

    /// The published list, from memory and without copying it.
    pub(super) fn get_crl(&self, headers: &HeaderMap) -> Response {
        let Some(published) = self.authority().crl(self.issuer()) else {
            error!(issuer = %self.issuer(), "no revocation list is published");
            return answer::internal("there is no revocation list yet");
        };
        // Lists say one second less than the time they were made at.
        let made = published.record.this_update.plus_seconds(1);
        if conditional::is_current(headers, made, self.authority().now()) {
            return answer::not_modified();
        }
        answer::ok(Bytes::from_owner(CrlText(published)))
    }
}

struct CrlText(Arc<CrlState>);

impl AsRef<[u8]> for CrlText {
    fn as_ref(&self) -> &[u8] {
        self.0.pem.as_bytes()
    }
}
