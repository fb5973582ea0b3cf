//! Issuers: a CA certificate chain, and the facts about it that issuing needs.

pub(crate) mod chain;
pub(crate) mod keystore;
pub(crate) mod per_issuer;
pub(crate) mod signer;
pub(crate) mod succession;

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use countersign_pki::{Certificate, SignatureAlgorithm, UnixTime, pem};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::engine::Core;
use crate::issuer::chain::{Chain, key_id};
use crate::ledger::adoption::Adoption;

/// Issuers and what they publish.
#[derive(Clone)]
pub struct Issuers {
    pub(crate) core: Arc<Core>,
}

impl Issuers {
    /// An issuer by name, as it is now.
    pub fn get(&self, id: &IssuerId) -> Option<Arc<Issuer>> {
        self.core.issuers.get(id).map(ArcSwap::load_full)
    }

    /// A certificate as its holder shows it to others, in PEM: followed by the CAs below the root. Under a root it stands
    /// alone.
    pub fn with_intermediates(&self, issuer: &IssuerId, der: &[u8]) -> String {
        let mut text = pem::encode("CERTIFICATE", der);
        if let Some(issuer) = self.get(issuer)
            && !(issuer.ancestors().is_empty() && issuer.previous().is_empty())
            && let Ok(leaf) = Certificate::parse(der)
        {
            text.push_str(&issuer.intermediates_of(&leaf));
        }
        text
    }

    /// Every issuer.
    pub fn all(&self) -> impl Iterator<Item = Arc<Issuer>> {
        self.core.issuers.values().map(ArcSwap::load_full)
    }
}

/// The name of an issuer: a file-name-safe word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IssuerId(String);

impl IssuerId {
    /// Accepts lower-case letters, digits, `-` and `.`; never a path.
    pub fn parse(name: &str) -> Result<Self, IssuerFault> {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if name.len() <= 253
            && name.starts_with(edge)
            && name.ends_with(edge)
            && name.chars().all(legal)
        {
            Ok(Self(name.to_owned()))
        } else {
            Err(IssuerFault::BadName)
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IssuerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for IssuerId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A CA certificate with its chain to a root.
#[derive(Debug)]
pub struct Issuer {
    id: IssuerId,
    chain: Chain,
    chain_pem: Vec<u8>,
    algorithm: SignatureAlgorithm,
    key_id: Vec<u8>,
    serials: Serials,
    /// CA certificates that it signed with before, newest first.
    previous: Vec<Certificate>,
    /// What it takes over when it sees it.
    adoption: Option<Adoption>,
}

/// How the serials of an issuer's certificates are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serials {
    /// Counted if the store counts them, as it does for an authority that was taken over from elsewhere; else
    /// random.
    #[default]
    AsRecorded,
    /// Counted; from 1 on, if the store has not counted them before.
    Sequential,
    /// Random, whatever the store has counted.
    Random,
}

impl Issuer {
    /// Reads the chain file of an issuer. The issuing certificate is the one with the issuer's public key, at whatever
    /// place; from it the file must lead to a self-signed root, each signature verified. Certificates beside that way
    /// are left alone. The bytes are kept as they are: doors serve them unchanged.
    pub fn from_chain(
        id: IssuerId,
        chain_pem: Vec<u8>,
        algorithm: SignatureAlgorithm,
        public_key: &[u8],
    ) -> Result<Self, IssuerFault> {
        let (chain, beside) = Chain::read(&chain_pem, public_key)?;
        for certificate in beside {
            warn!(issuer = %id, subject = %certificate.subject(), serial = %certificate.serial(), "this certificate of the chain file is no part of the way to the root; it is served and not used");
        }
        let key_id = key_id(&chain.issuing)?;
        Ok(Self {
            id,
            chain,
            chain_pem,
            algorithm,
            key_id,
            serials: Serials::default(),
            previous: Vec::new(),
            adoption: None,
        })
    }

    /// The same with its serials chosen in this way.
    #[must_use]
    pub fn with_serials(self, serials: Serials) -> Self {
        Self { serials, ..self }
    }

    /// The same with the CA certificates that it had before. What they signed counts as its own; the ledger is asked all the
    /// same.
    #[must_use]
    pub fn with_previous(self, previous: Vec<Certificate>) -> Self {
        Self { previous, ..self }
    }

    /// The same, if it takes over what it had signed before it was an issuer here. At first it does not.
    #[must_use]
    pub fn with_adoption(self, adoption: Option<Adoption>) -> Self {
        Self { adoption, ..self }
    }

    /// What it takes over when it sees it.
    pub fn adoption(&self) -> Option<&Adoption> {
        self.adoption.as_ref()
    }

    /// The CA certificates that it had before, newest first.
    pub fn previous(&self) -> &[Certificate] {
        &self.previous
    }

    /// Whether it has signed a certificate, with the key it has or with one it had.
    pub fn has_signed(&self, certificate: &Certificate) -> bool {
        let by = |ca: &Certificate| certificate.verify_signed_by(ca.spki_der()).is_ok();
        by(self.certificate()) || self.previous.iter().any(by)
    }

    /// What those who meet its certificates are to trust: the chain, and the CA certificates that it had before.
    pub fn trust_pem(&self) -> String {
        self.known().map(Certificate::to_pem).collect()
    }

    /// Every CA certificate that matters to it: its own, those above, those before.
    fn known(&self) -> impl Iterator<Item = &Certificate> {
        let own = std::iter::once(self.certificate()).chain(self.ancestors());
        own.chain(&self.previous)
    }

    /// What the holder of one of its certificates shows beside it: the CAs above, without the root, which others have. Of a
    /// certificate that it signed before it had its present chain, those of that time.
    pub fn intermediates_of(&self, certificate: &Certificate) -> String {
        let mut text = String::new();
        let mut below = certificate;
        // Each step is one up; there are no more steps than certificates.
        for _ in self.known() {
            match self.known().find(|ca| is_above(ca, below)) {
                Some(ca) if !ca.is_self_issued() => {
                    text.push_str(&ca.to_pem());
                    below = ca;
                }
                Some(_) | None => break,
            }
        }
        text
    }

    /// How its serials are chosen.
    pub fn serials(&self) -> Serials {
        self.serials
    }

    /// Its name.
    pub fn id(&self) -> &IssuerId {
        &self.id
    }

    /// The issuing certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.chain.issuing
    }

    /// The CAs above it, from the one that signed the issuing certificate to the root. None if that is a root itself.
    pub fn ancestors(&self) -> &[Certificate] {
        &self.chain.ancestors
    }

    /// The chain file, byte for byte.
    pub fn chain_pem(&self) -> &[u8] {
        &self.chain_pem
    }

    /// The algorithm it signs with.
    pub fn algorithm(&self) -> SignatureAlgorithm {
        self.algorithm
    }

    /// The key identifier that issued certificates carry as authority key identifier.
    pub fn key_id(&self) -> &[u8] {
        &self.key_id
    }

    /// The end of the issuer's own validity; no leaf outlives it.
    pub fn not_after(&self) -> UnixTime {
        self.certificate().not_after()
    }
}

/// Whether a CA is the one that a certificate says has signed it. CAs of one name are told apart by their keys.
fn is_above(ca: &Certificate, certificate: &Certificate) -> bool {
    let same_key = |id: &[u8]| key_id(ca).is_ok_and(|own| own == id);
    ca.subject().der() == certificate.issuer().der()
        && certificate.authority_key_id().is_none_or(same_key)
}

/// Why a chain cannot serve as an issuer.
#[derive(Debug, thiserror::Error)]
pub enum IssuerFault {
    /// The name has characters that are not allowed in one.
    #[error("an issuer's name consists of lower-case letters, digits, '-' and '.'")]
    BadName,
    /// The file is not PEM.
    #[error("the chain is not readable as PEM")]
    Pem {
        /// What is wrong with it.
        source: pem::PemFault,
    },
    /// No certificate in the file.
    #[error("the chain holds no certificate")]
    NoCertificate,
    /// More certificates than a chain has.
    #[error("the chain holds more than {limit} certificates")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// A certificate does not parse.
    #[error("certificate {place} of the chain is malformed")]
    Certificate {
        /// Which, counted from one.
        place: usize,
        /// What is wrong with it.
        source: countersign_pki::CertFault,
    },
    /// None of the certificates has the issuer's key.
    #[error(
        "no certificate of the chain has the issuer's key: certificate and key belong to different issuers"
    )]
    ForeignKey,
    /// A certificate on the way to the root may not sign others.
    #[error("the certificate of {subject} in the chain is not a CA certificate")]
    NotACa {
        /// Whose.
        subject: String,
    },
    /// The chain ends before it reaches a root.
    #[error(
        "the chain is not complete: it lacks the certificate of {issuer}, who signed that of {subject}"
    )]
    Incomplete {
        /// The last one that is there.
        subject: String,
        /// The next one, which is not.
        issuer: String,
    },
}
