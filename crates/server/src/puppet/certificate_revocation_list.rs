//! `certificate_revocation_list`: what is revoked, along the whole chain, and newer lists of the CAs above.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use countersign_authority::{AncestorCrlFault, CrlState};
use http::{HeaderMap, StatusCode};
use tracing::{error, info};

use super::{Call, PuppetDoor, answer, conditional, faults};

impl PuppetDoor {
    /// The lists that agents are given.
    pub(super) fn get_crl(&self, headers: &HeaderMap) -> Response {
        let published = self.authority().issuers.served_crl(self.issuer());
        self.give(published, headers)
    }

    /// The same with everything that is revoked, whatever agents are given.
    pub(super) fn get_full_crl(&self, headers: &HeaderMap) -> Response {
        let published = self.authority().issuers.crl(self.issuer());
        self.give(published, headers)
    }

    /// Published lists, from memory and without copying them.
    fn give(&self, published: Option<Arc<CrlState>>, headers: &HeaderMap) -> Response {
        let Some(published) = published else {
            error!(issuer = %self.issuer(), "no revocation list is published");
            return answer::internal("there is no revocation list yet");
        };
        if conditional::is_current(headers, published.modified, self.authority().now()) {
            return answer::not_modified();
        }
        answer::ok(Bytes::from_owner(CrlText(published)))
    }

    /// Takes newer lists of the CAs above the issuer.
    pub(super) async fn put_crls(&self, call: &Call<'_>, body: &[u8]) -> Response {
        let (actor, lists) = (call.actor(), body.to_vec());
        let taken = self
            .authority()
            .issuers
            .put_ancestor_crls(self.issuer(), lists, &actor)
            .await;
        let fault = match taken {
            Ok(_) => {
                let told = "Successfully updated CRLs.";
                return answer::with(StatusCode::OK, answer::SENTENCE, told);
            }
            Err(fault) => fault,
        };
        info!(%fault, %actor, "the submitted CRLs were not taken");
        match fault {
            AncestorCrlFault::Engine(fault) => faults::broken(&fault),
            AncestorCrlFault::Forbidden(needed) => call.forbidden(&needed),
            AncestorCrlFault::UnknownIssuer { .. } => {
                error!(%fault, "the door's issuer is unknown");
                answer::internal("the issuer is not known")
            }
            refused => answer::bad_request(sentence(&refused)),
        }
    }
}

/// The reference's sentence for a refusal; what it leaves open is said behind it.
fn sentence(fault: &AncestorCrlFault) -> String {
    match fault {
        AncestorCrlFault::Nothing => "No valid CRLs submitted.".to_owned(),
        AncestorCrlFault::WithoutKeyId { .. } => {
            "One or more submitted CRLs do not have an authority key identifier.".to_owned()
        }
        AncestorCrlFault::SameNumber { .. } | AncestorCrlFault::WithoutNumber { .. } => {
            "Could not determine newest CRL.".to_owned()
        }
        AncestorCrlFault::Delta { .. } => "Cannot support delta CRL.".to_owned(),
        invalid => format!("Invalid certs and/or CRLs: {invalid}"),
    }
}

struct CrlText(Arc<CrlState>);

impl AsRef<[u8]> for CrlText {
    fn as_ref(&self) -> &[u8] {
        self.0.pem.as_bytes()
    }
}

/// Some 200 000 entries: whoever refreshes one list may send the whole file back.
pub(super) const MAX_BODY: usize = 16 * 1024 * 1024;
