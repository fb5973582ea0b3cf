//! Issuers: a CA certificate chain, and the facts about it that issuing needs.

use std::borrow::Borrow;
use std::fmt;

use countersign_pki::{Certificate, SignatureAlgorithm, UnixTime, pem};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::chain::{Chain, key_id};

/// The name of an issuer, for example `puppet`: a file-name-safe word.
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
}

/// How the serials of an issuer's certificates are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serials {
    /// Counted if the store counts them, as it does for an authority that was taken over from a Puppet Server; else
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
        })
    }

    /// The same with its serials chosen in this way.
    #[must_use]
    pub fn with_serials(self, serials: Serials) -> Self {
        Self { serials, ..self }
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
