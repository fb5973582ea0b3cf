//! `certificate_renewal`: the holder of an agent's certificate gets another like it.

use axum::response::Response;
use countersign_authority::{RenewFault, Renewed};
use countersign_pki::{CheckedCsr, oid, pem};
use http::StatusCode;
use tracing::{info, warn};

use super::{Call, PuppetDoor, answer, faults};
use crate::peer::PeerIdentity;

/// Whether agents may renew their certificates without anybody being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewals {
    /// They may not; to them the path does not exist.
    Refused,
    /// They may.
    Granted {
        /// How long what they get lives, in seconds, unless their certificate was made for less.
        lifetime: u64,
    },
}

impl Renewals {
    /// The lifetime of the first certificate of an agent that says it will renew: it need not live long. Puppet agents
    /// say so by an attribute of their request.
    pub(super) fn first_lifetime(self, csr: &CheckedCsr) -> Option<u64> {
        let Self::Granted { lifetime } = self else {
            return None;
        };
        let mut attributes = csr.attributes_of(&oid::PP_AUTH_AUTO_RENEW);
        let says_so = attributes.any(|attribute| {
            let mut values = attribute.values.iter();
            values.any(|value| value.text().as_deref() == Some("true"))
        });
        says_so.then_some(lifetime)
    }
}

impl PuppetDoor {
    /// Renews the certificate of the connection, and no other: what a header says about certificates is not looked at.
    pub(super) async fn renew(&self, call: &Call<'_>) -> Response {
        let Renewals::Granted { lifetime } = self.renewals() else {
            // Agents take exactly this for "not enabled here".
            return answer::not_found("Not Found".to_owned());
        };
        // `access` admits nobody without a certificate that counts.
        let PeerIdentity::Client(client) = call.peer.identity(self.authority()) else {
            let sentence = "No valid certificate found in renewal request";
            return answer::refused(StatusCode::BAD_REQUEST, answer::PLAIN, sentence);
        };
        // Only agents' own: an administrator's rights do not go on by themselves, nor do the server's.
        let is_marked = client.certificate.extension(&oid::PP_CLI_AUTH).is_some();
        if is_marked || client.signer != self.shared.signer {
            warn!(source = %call.peer.address.ip(), caller = %call.caller, signer = %client.signer, "not a certificate to be renewed here");
            return refused("This certificate is not renewed here.");
        }
        let serial = client.certificate.serial();
        let actor = call.actor();
        match self
            .authority()
            .ledger
            .renew_shown(self.issuer(), &client.certificate, lifetime, &actor)
            .await
        {
            Ok(renewed) => {
                let said = match &renewed {
                    Renewed::New(_) => "renewed",
                    Renewed::Recent(_) => "renewed a short while ago",
                };
                info!(source = %call.peer.address.ip(), caller = %call.caller, %serial, renewed = %renewed.serial(), "{said}");
                answer::ok(pem::encode("CERTIFICATE", renewed.der()))
            }
            Err(RenewFault::Forbidden(needed)) => call.forbidden(&needed),
            Err(RenewFault::Engine(fault)) => faults::broken(&fault),
            Err(
                fault @ (RenewFault::Unknown { .. }
                | RenewFault::Revoked { .. }
                | RenewFault::Ended { .. }),
            ) => {
                info!(source = %call.peer.address.ip(), caller = %call.caller, %fault, "not renewed");
                refused("Certificate present, but it is not valid.")
            }
            Err(
                fault @ (RenewFault::NoRequest { .. }
                | RenewFault::NoSigner { .. }
                | RenewFault::Unsignable { .. }
                | RenewFault::Wider { .. }),
            ) => {
                warn!(source = %call.peer.address.ip(), caller = %call.caller, %fault, "not renewed");
                refused("The authority no longer issues such a certificate. Submit a new request.")
            }
        }
    }
}

fn refused(sentence: &'static str) -> Response {
    answer::refused(StatusCode::FORBIDDEN, answer::PLAIN, sentence)
}
