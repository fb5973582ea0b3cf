//! The engine's refusals in Puppet's words.

use axum::response::Response;
use countersign_authority::store::StoreFault;
use countersign_authority::{
    ActFault, EngineError, ProfileFault, RequestId, RevokeFault, SignFault,
};
use countersign_pki::{AltName, CsrFault, terminal_safe};
use http::StatusCode;
use tracing::{error, warn};

use super::{Call, answer};
use crate::readiness::CANNOT_STORE;

/// Why an approved request is not signed, in the sentences that Puppet Server uses and administrators search for.
pub(super) fn unsignable(certname: &str, fault: &ProfileFault) -> String {
    match fault {
        ProfileFault::AltNames { names, .. } => format!(
            "CSR '{certname}' contains extra subject alternative names ({}), which are disallowed. To allow subject \
             alternative names, set allow-subject-alt-names to true in your ca.conf file. Then restart the \
             puppetserver and try signing this certificate again.",
            extra_names(certname, names)
        ),
        ProfileFault::AuthorizationExtension { .. } => format!(
            "CSR '{certname}' contains an authorization extension, which is disallowed. To allow authorization \
             extensions, set allow-authorization-extensions to true in your ca.conf file. Then restart the \
             puppetserver and try signing this certificate again."
        ),
        ProfileFault::Extensions { oids } => {
            let oids: Vec<String> = oids.iter().map(ToString::to_string).collect();
            format!(
                "Found extensions that are not permitted: {}",
                oids.join(", ")
            )
        }
        ProfileFault::ExtensionValue { oid } => {
            format!("Found an extension whose value is not text: {oid}")
        }
        ProfileFault::Weak { .. }
        | ProfileFault::UsageNotPermitted { .. }
        | ProfileFault::UsageMissing { .. }
        | ProfileFault::Organization { .. }
        | ProfileFault::Organizations { .. }
        | ProfileFault::OrganizationNotPermitted { .. }
        | ProfileFault::OrganizationMissing { .. }
        | ProfileFault::CommonName { .. }
        | ProfileFault::NameRequired { .. }
        | ProfileFault::NameNotPermitted { .. }
        | ProfileFault::TokenInExtension { .. }
        | ProfileFault::Nameless => {
            format!("CSR '{certname}' cannot be signed: {fault}")
        }
    }
}

/// A request that cannot be read or does not verify.
pub(super) fn unreadable(fault: &CsrFault) -> Response {
    if fault.is_bad_signature() {
        return answer::bad_request(
            "CSR contains a public key that does not correspond to the signing key".to_owned(),
        );
    }
    answer::bad_request(format!(
        "The certificate request is not acceptable: {fault}"
    ))
}

/// The sender learns that it was denied and under which number to ask, not by what.
pub(super) fn denied(id: RequestId) -> Response {
    let sentence =
        format!("The certificate request was denied. Ask the administrator about request {id}.");
    answer::refused(StatusCode::FORBIDDEN, answer::SENTENCE, sentence)
}

/// What a token was refused for stays with the authority: whoever tries tokens learns nothing from the answer. Never 400,
/// which agents take for a reason to look for their certificate.
pub(super) fn not_authorised(id: RequestId) -> Response {
    let sentence = format!("certificate request not authorised (request {id})");
    answer::refused(StatusCode::FORBIDDEN, answer::SENTENCE, sentence)
}

/// The sender learns that it may come back, and under which number to ask, not what is missing.
pub(super) fn undecided(id: RequestId) -> Response {
    answer::unavailable(&format!(
        "the certificate request cannot be decided at the moment. Ask the administrator about request {id}."
    ))
}

/// An administrator's act on a request that was not carried out, other than for the request's content.
pub(super) fn act(call: &Call<'_>, fault: &ActFault) -> Response {
    match fault {
        ActFault::Forbidden(needed) => call.forbidden(needed),
        ActFault::Engine(fault @ EngineError::StoredRequest { .. }) => {
            answer::conflict(format!("{fault}; delete it, and its sender may ask again"))
        }
        ActFault::Engine(fault) => broken(fault),
        ActFault::Unsignable { key, fault } => answer::conflict(unsignable(key, fault)),
        ActFault::NotFound { key, .. } => {
            answer::conflict(format!("There is no certificate request for {key}."))
        }
        ActFault::AlreadyDecided { .. } | ActFault::Conflict { .. } => {
            answer::conflict(format!("The {fault}."))
        }
    }
}

pub(super) fn revoke(call: &Call<'_>, certname: &str, fault: &RevokeFault) -> Response {
    match fault {
        RevokeFault::Forbidden(needed) => call.forbidden(needed),
        RevokeFault::NoCertificate { .. } => answer::conflict(without_certificate(certname)),
        RevokeFault::UnknownIssuer { .. } => {
            error!(%fault, "the door's issuer is unknown");
            answer::internal("the issuer is not known")
        }
        RevokeFault::Engine(fault) => broken(fault),
    }
}

pub(super) fn without_certificate(certname: &str) -> String {
    format!("Cannot revoke certificate for host {certname} without a signed certificate")
}

/// The machinery failed: whether it is worth trying again is all that a client is told.
pub(super) fn broken(fault: &EngineError) -> Response {
    match fault {
        EngineError::Store(fault) => store(fault),
        EngineError::Sign(SignFault::Overloaded { .. })
        | EngineError::Contended
        | EngineError::ShuttingDown => {
            warn!(%fault, "not served for now");
            answer::unavailable(&fault.to_string())
        }
        EngineError::Sign(_)
        | EngineError::Draft(_)
        | EngineError::Defect
        | EngineError::Entropy(_)
        | EngineError::Encode(_)
        | EngineError::Serials(_)
        | EngineError::StoredRequest { .. } => {
            error!(error = fault as &dyn std::error::Error, "request failed");
            answer::internal(&fault.to_string())
        }
    }
}

pub(super) fn store(fault: &StoreFault) -> Response {
    match fault {
        StoreFault::Full | StoreFault::ReadOnly | StoreFault::Overloaded | StoreFault::Stopped => {
            // Whoever asks may be anybody: the log alone says what is wrong with the disk.
            warn!(%fault, "not served for now");
            answer::unavailable(CANNOT_STORE)
        }
        StoreFault::Corrupt { .. } | StoreFault::Failed { .. } => {
            error!(error = fault as &dyn std::error::Error, "store failed");
            answer::internal(&fault.to_string())
        }
    }
}

/// The names beside the own one, addresses first, as the JVM writes them. Nothing is left when the request merely
/// repeats its own name.
fn extra_names(certname: &str, names: &[AltName]) -> String {
    let is_extra = |name: &&AltName| !matches!(name, AltName::Dns(own) if own == certname);
    let is_address = |name: &&AltName| matches!(name, AltName::Ip(_));
    let extra = || names.iter().filter(is_extra);
    let ordered = extra()
        .filter(is_address)
        .chain(extra().filter(|name| !is_address(name)));
    let texts: Vec<String> = ordered.map(AltName::to_puppet_text).collect();
    terminal_safe(&texts.join(", ")).into_owned()
}

#[cfg(test)]
mod tests {
    use countersign_authority::IssuerId;
    use http::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn what_may_pass_is_worth_another_try_and_what_may_not_is_not() {
        let issuer = || IssuerId::parse("puppet").unwrap();
        let failed = || StoreFault::Failed {
            source: "disk I/O error at sector 7".into(),
        };
        for (fault, status) in [
            (EngineError::Store(StoreFault::Full), 503),
            (EngineError::Store(StoreFault::ReadOnly), 503),
            (EngineError::Store(StoreFault::Overloaded), 503),
            (EngineError::Store(StoreFault::Stopped), 503),
            (
                EngineError::Sign(SignFault::Overloaded { issuer: issuer() }),
                503,
            ),
            (EngineError::Contended, 503),
            (EngineError::Defect, 500),
            (EngineError::ShuttingDown, 503),
            (
                EngineError::Store(StoreFault::Corrupt { what: "request" }),
                500,
            ),
            (EngineError::Store(failed()), 500),
            (
                EngineError::Sign(SignFault::Failed { issuer: issuer() }),
                500,
            ),
        ] {
            let response = broken(&fault);
            assert_eq!(response.status().as_u16(), status, "{fault}");
            assert_eq!(
                response.headers().contains_key(RETRY_AFTER),
                status == 503,
                "{fault}"
            );
        }
    }

    #[tokio::test]
    async fn causes_stay_in_the_log() {
        let response = store(&StoreFault::Failed {
            source: "disk I/O error at sector 7".into(),
        });
        let body = axum::body::to_bytes(response.into_body(), 1024)
            .await
            .unwrap();
        assert_eq!(body, "Internal Server Error: the store failed");
        let response = store(&StoreFault::Full);
        let body = axum::body::to_bytes(response.into_body(), 1024)
            .await
            .unwrap();
        assert_eq!(
            body,
            "Service Unavailable: the authority cannot use its store at the moment"
        );
    }
}
