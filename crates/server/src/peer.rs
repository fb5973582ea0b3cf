//! Who is at the other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use countersign_authority::{Authority, IssuerId};
use countersign_pki::{Certificate, UnixTime};
use countersign_policy::SignerName;

/// The other end of a connection; every request carries it as an extension.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where the connection comes from.
    pub address: SocketAddr,
    pub(crate) certificate: Presented,
}

/// What came with the handshake.
#[derive(Clone, Debug)]
pub(crate) enum Presented {
    /// No certificate.
    Nothing,
    /// One of this trust domain that the ledger knows.
    Known(Arc<KnownClient>),
    /// One of another authority, at a listener for its clients.
    Foreign(Arc<Certificate>),
    /// One that does not count here: not of this trust domain, or the ledger does not know it.
    Unknown,
}

/// A client certificate that the ledger knows.
#[derive(Debug)]
pub struct KnownClient {
    /// Who issued it.
    pub issuer: IssuerId,
    /// The signer that the ledger names for it.
    pub signer: SignerName,
    /// The certificate.
    pub certificate: Certificate,
}

/// What a connection's certificate is worth for one request.
#[derive(Clone, Copy, Debug)]
pub enum PeerIdentity<'a> {
    /// Nothing was shown.
    Anonymous,
    /// It is good.
    Client(&'a KnownClient),
    /// It does not count: of another trust domain, unknown to the ledger, ended or revoked.
    Refused,
}

impl Peer {
    /// A peer without a certificate.
    pub fn anonymous(address: SocketAddr) -> Self {
        Self {
            address,
            certificate: Presented::Nothing,
        }
    }

    /// A peer with a certificate of the ledger.
    pub fn with_client(address: SocketAddr, client: KnownClient) -> Self {
        Self {
            address,
            certificate: Presented::Known(Arc::new(client)),
        }
    }

    /// The name in a certificate of another authority, at a listener for its clients, as long as it is valid. One with
    /// several names is nobody's.
    pub(crate) fn foreign_name(&self, now: UnixTime) -> Option<&str> {
        let Presented::Foreign(certificate) = &self.certificate else {
            return None;
        };
        let has_ended = now < certificate.not_before() || now > certificate.not_after();
        let mut names = certificate.subject().common_names();
        let name = names.next().filter(|_| !has_ended)?;
        names.next().is_none().then_some(name)
    }

    /// The identity behind a request, checked for this request: connections live longer than
    /// certificates and revocations allow.
    pub fn identity(&self, authority: &Authority) -> PeerIdentity<'_> {
        match &self.certificate {
            Presented::Nothing => PeerIdentity::Anonymous,
            Presented::Unknown | Presented::Foreign(_) => PeerIdentity::Refused,
            Presented::Known(client) => {
                let certificate = &client.certificate;
                let now = authority.now();
                let ended = now < certificate.not_before() || now > certificate.not_after();
                if ended || authority.is_revoked(&client.issuer, &certificate.serial()) {
                    PeerIdentity::Refused
                } else {
                    PeerIdentity::Client(client)
                }
            }
        }
    }
}
