//! The issuers' keys, with each issuer's own rule on which signatures are verified before release.

use std::collections::BTreeSet;

use countersign_authority::{IssuerId, KeyStore, SignFault, Signature};
use countersign_keys::FileKeys;
use countersign_pki::SignatureAlgorithm;
use futures_util::future::BoxFuture;

/// Keys from files.
pub(crate) struct IssuerKeys {
    pub(crate) files: FileKeys,
    /// Issuers that are configured to verify every signature.
    pub(crate) verify_all: BTreeSet<IssuerId>,
}

impl KeyStore for IssuerKeys {
    fn algorithm(&self, issuer: &IssuerId) -> Result<SignatureAlgorithm, SignFault> {
        self.files.algorithm(issuer)
    }

    fn public_key(&self, issuer: &IssuerId) -> Result<Vec<u8>, SignFault> {
        self.files.public_key(issuer)
    }

    fn sign(
        &self,
        issuer: &IssuerId,
        public_key: &[u8],
        message: Vec<u8>,
    ) -> BoxFuture<'_, Result<Signature, SignFault>> {
        self.files.sign(issuer, public_key, message)
    }

    fn verify_each(&self, issuer: &IssuerId) -> bool {
        self.verify_all.contains(issuer) || self.files.verify_each(issuer)
    }
}
