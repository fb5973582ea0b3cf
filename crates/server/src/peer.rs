//! Who is at the other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use countersign_authority::{Authority, IssuerId, shown};
use countersign_pki::{Certificate, UnixTime};
use countersign_policy::SignerName;
use tokio_util::sync::CancellationToken;

/// The other end of a connection; every request carries it as an extension.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where the connection comes from.
    pub address: SocketAddr,
    pub(crate) certificate: Presented,
    /// Tells an answer that goes on that its connection, or the server, is about to end.
    pub(crate) closing: CancellationToken,
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

impl Presented {
    /// Whether it proves who is there.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Self::Known(_) | Self::Foreign(_) => true,
            Self::Nothing | Self::Unknown => false,
        }
    }
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
        Self::new(address, Presented::Nothing)
    }

    /// A peer with a certificate of the ledger.
    pub fn with_client(address: SocketAddr, client: KnownClient) -> Self {
        Self::new(address, Presented::Known(Arc::new(client)))
    }

    fn new(address: SocketAddr, certificate: Presented) -> Self {
        Self {
            address,
            certificate,
            closing: CancellationToken::new(),
        }
    }

    /// For the log: the name in the certificate, whether or not it counts.
    pub(crate) fn shown_name(&self) -> String {
        let certificate = match &self.certificate {
            Presented::Nothing => return "anonymous".to_owned(),
            Presented::Unknown => return "unknown certificate".to_owned(),
            Presented::Known(client) => &client.certificate,
            Presented::Foreign(certificate) => certificate,
        };
        let name = certificate.subject().first_common_name();
        shown(name.unwrap_or("certificate without a name"))
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
                if ended
                    || authority
                        .ledger
                        .is_revoked(&client.issuer, &certificate.serial())
                {
                    PeerIdentity::Refused
                } else {
                    PeerIdentity::Client(client)
                }
            }
        }
    }
}
