//! Who calls, as far as a client certificate of the Puppet issuer proves it.

use std::fmt;

use countersign_authority::{Actor, Authority, IssuerId};
use countersign_pki::{Certificate, oid};
use countersign_policy::{Identity, Requester};

use crate::access::{Access, Grant};
use crate::peer::{KnownClient, Peer, PeerIdentity};

/// The other end of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Showed no certificate.
    Nobody,
    /// Showed one that counts for nothing: ended, revoked, not in the ledger, or of another trust domain.
    Refused,
    /// Holds the certificate of a name.
    Agent { certname: String },
    /// Holds an administrator's certificate.
    Administrator { certname: String },
}

impl Caller {
    /// Judged anew for every request, because connections outlive certificates and revocations.
    pub(crate) fn of(peer: &Peer, authority: &Authority, issuer: &IssuerId) -> Self {
        let client = match peer.identity(authority) {
            PeerIdentity::Anonymous => return Self::Nobody,
            PeerIdentity::Refused => return Self::Refused,
            PeerIdentity::Client(client) => client,
        };
        match client.certificate.subject().first_common_name() {
            Some(certname) if client.issuer == *issuer => {
                let certname = certname.to_owned();
                if is_administrator(client) {
                    Self::Administrator { certname }
                } else {
                    Self::Agent { certname }
                }
            }
            Some(_) | None => Self::Refused,
        }
    }

    /// The name of a certificate that counts.
    pub(crate) fn certname(&self) -> Option<&str> {
        match self {
            Self::Agent { certname } | Self::Administrator { certname } => Some(certname),
            Self::Nobody | Self::Refused => None,
        }
    }

    /// What the caller may do beside what everybody with its certificate may. Judged anew for every request.
    pub(crate) fn grant(&self, access: &Access) -> Grant {
        match self {
            Self::Nobody | Self::Refused => Grant::NOTHING,
            Self::Agent { certname } => access.of_certname(certname),
            Self::Administrator { .. } => Grant::ADMIN,
        }
    }

    /// The caller as the engine judges it.
    pub(crate) fn actor(&self, peer: &Peer, access: &Access) -> Actor {
        Actor::with_roles(self.requester(peer), self.grant(access))
    }

    /// The caller as the engine records it.
    pub(crate) fn requester(&self, peer: &Peer) -> Requester {
        let identity = match self.certname() {
            Some(certname) => Identity::Certname {
                certname: certname.to_owned(),
            },
            None => Identity::Anonymous,
        };
        Requester {
            identity,
            source: Some(peer.address.ip().to_canonical()),
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("anonymous"),
            Self::Refused => f.write_str("refused certificate"),
            Self::Agent { certname } | Self::Administrator { certname } => f.write_str(certname),
        }
    }
}

/// Both must hold: the mark in the certificate, and the ledger's word that the signer which alone sets it issued it.
fn is_administrator(client: &KnownClient) -> bool {
    client.signer.as_str() == ADMIN_SIGNER && has_mark(&client.certificate)
}

fn has_mark(certificate: &Certificate) -> bool {
    certificate
        .extension(&oid::PP_CLI_AUTH)
        .is_some_and(|extension| extension.value == MARK)
}

const ADMIN_SIGNER: &str = "countersign.dev/puppet-admin";

/// `true` as a DER `UTF8String`.
const MARK: [u8; 6] = [0x0c, 4, b't', b'r', b'u', b'e'];
