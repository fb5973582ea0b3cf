//! How the engine asks for a signature. Keys themselves live behind this trait.

use countersign_pki::SignatureAlgorithm;
use futures_util::future::BoxFuture;

use crate::issuer::IssuerId;

/// Holds issuers' private keys and signs with them.
pub trait KeyStore: Send + Sync {
    /// The algorithm of an issuer's key.
    fn algorithm(&self, issuer: &IssuerId) -> Result<SignatureAlgorithm, SignFault>;

    /// The issuer's public key as `SubjectPublicKeyInfo` DER: of the key it has now.
    fn public_key(&self, issuer: &IssuerId) -> Result<Vec<u8>, SignFault>;

    /// Signs `message` with the key of the issuer that has this public half. An issuer's key may be replaced at any time,
    /// and what names the one before it must be signed by that one.
    fn sign(
        &self,
        issuer: &IssuerId,
        public_key: &[u8],
        message: Vec<u8>,
    ) -> BoxFuture<'_, Result<Signature, SignFault>>;

    /// Whether signatures of this issuer's key must each be verified before release: true for keys
    /// whose hardware or transport may fail silently, and where checking is cheap (RSA).
    fn verify_each(&self, issuer: &IssuerId) -> bool;
}

/// A signature value, as it stands in a certificate's BIT STRING.
#[derive(Debug)]
pub struct Signature(pub Vec<u8>);

/// Why there is no signature.
#[derive(Debug, thiserror::Error)]
pub enum SignFault {
    /// No key of that name.
    #[error("there is no key for issuer {issuer}")]
    UnknownIssuer {
        /// The issuer asked for.
        issuer: IssuerId,
    },
    /// The queue of the signing threads is full.
    #[error("the signing queue of issuer {issuer} is full")]
    Overloaded {
        /// The issuer asked for.
        issuer: IssuerId,
    },
    /// The issuer has another key by now.
    #[error("the key of issuer {issuer} was replaced")]
    Replaced {
        /// The issuer asked for.
        issuer: IssuerId,
    },
    /// The key refused or broke.
    #[error("the key of issuer {issuer} failed to sign")]
    Failed {
        /// The issuer asked for.
        issuer: IssuerId,
    },
    /// What came back does not verify with the issuer's public key.
    #[error("the signature made for issuer {issuer} does not verify; it was not released")]
    Unverifiable {
        /// The issuer asked for.
        issuer: IssuerId,
    },
}
