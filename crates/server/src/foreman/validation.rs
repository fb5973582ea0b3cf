//! `validate`: whether a request that somebody else signs has a token, which is then used up.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use countersign_authority::{CarriedToken, SubmitFault, Validation};
use countersign_pki::CheckedCsr;
use countersign_policy::Requester;
use tracing::{debug, info};

use super::admission::TrustedHost;
use super::{ForemanDoor, SPEC, answer};
use crate::limits::TooMany;
use countersign_authority::shown;

/// `POST /puppet/ca/validate`: the name is the one in the request itself.
pub(super) async fn validate(
    State(door): State<ForemanDoor>,
    Extension(host): Extension<TrustedHost>,
    body: Bytes,
) -> Response {
    if let Err(fault) = door.admit_rate(&host.actor.requester) {
        debug!(%fault, "not taken");
        return answer::too_many(fault);
    }
    if !door.authority().tokens.enabled() {
        return answer::not_implemented(
            "Enrolment tokens are not enabled; set tokens.enabled: true in the configuration of Countersign",
        );
    }
    let csr = match CheckedCsr::from_pem(&body, &door.puppet.csr_limits()) {
        Ok(csr) => csr,
        Err(fault) => {
            let fault = shown(&fault.to_string());
            info!(fault, actor = %host.actor.requester, "a request to validate cannot be read");
            return answer::rejected(format!("certificate request not acceptable: {fault}"));
        }
    };
    let carried = door.authority().tokens.carried(&csr);
    if let Err(fault) = door.admit_token(&host.actor.requester, &carried) {
        // The host that has the right one must not wait for whoever guesses.
        match door.authority().tokens.has_good(&csr, name_of(&csr)).await {
            Ok(true) => {}
            Ok(false) => {
                debug!(%fault, "not taken");
                return answer::too_many(fault);
            }
            Err(fault) => return answer::store(VALIDATE, &fault),
        }
    }
    let actor = &host.actor.requester;
    let validated = door
        .authority()
        .tokens
        .validate(&SPEC, csr, door.puppet.signer(), actor.clone())
        .await;
    match validated {
        Ok(Validation::Approved) => answer::done(),
        // What was wrong is on record, and nobody else's business.
        Ok(Validation::Refused { id, reason }) => {
            info!(request = %id, %reason, %actor, "validation refused");
            if reason.is_token_failure() {
                door.token_failed(actor, &carried);
            }
            answer::rejected(format!("certificate request not authorised (request {id})"))
        }
        Err(SubmitFault::Denied { id, .. }) => {
            answer::rejected(format!("certificate request not authorised (request {id})"))
        }
        Err(SubmitFault::Duplicate { .. }) => {
            answer::rejected("certificate request not authorised".to_owned())
        }
        Err(
            fault @ (SubmitFault::TooManyWaiting { .. }
            | SubmitFault::NoRoomToWait { .. }
            | SubmitFault::TooManyRenewals { .. }
            | SubmitFault::InProgress { .. }
            | SubmitFault::Forbidden(_)),
        ) => answer::failed(VALIDATE, &fault),
        Err(SubmitFault::Engine(fault)) => answer::broken(VALIDATE, &fault),
    }
}

impl ForemanDoor {
    /// Counted for the host that asks: the one that wants a certificate is not known here.
    fn admit_rate(&self, host: &Requester) -> Result<(), TooMany> {
        match (&self.limits, host.source) {
            (Some(limits), Some(source)) => limits.admit(source, None, self.authority().now()),
            (Some(_), None) | (None, _) => Ok(()),
        }
    }

    /// Wrong tokens count for each of them, so that one host's do not keep others from being validated.
    fn admit_token(&self, host: &Requester, carried: &CarriedToken) -> Result<(), TooMany> {
        match (&self.limits, host.source) {
            (Some(limits), Some(source)) => {
                limits.admit_token(source, carried, self.authority().now())
            }
            (Some(_), None) | (None, _) => Ok(()),
        }
    }

    fn token_failed(&self, host: &Requester, carried: &CarriedToken) {
        if let (Some(limits), Some(source)) = (&self.limits, host.source) {
            limits.token_failed(source, carried, self.authority().now());
        }
    }
}

fn name_of(csr: &CheckedCsr) -> &str {
    csr.subject().first_common_name().unwrap_or_default()
}

const VALIDATE: &str = "validate CSR";
