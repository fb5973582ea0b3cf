//! The key that seals the audit log. It is never an issuer's, and signs nothing else.

use std::path::Path;

use countersign_authority::SealKey;
use countersign_pki::pem;

use crate::file_keys::LoadFault;
use countersign_private_keys::PrivateKey;
use countersign_private_keys::private_file;

/// A private key for seals: P-256, unless the operator put another kind in place.
pub struct AuditKey(PrivateKey);

impl AuditKey {
    /// Reads a key that [`FileKeys::generate_file`](crate::FileKeys::generate_file) has made.
    ///
    /// # Errors
    /// If others could read the file, or it does not hold exactly one usable, unencrypted key.
    pub fn load(path: &Path) -> Result<Self, LoadFault> {
        let text = private_file::read(path).map_err(|source| LoadFault::File { source })?;
        let key = PrivateKey::from_pem(&text).map_err(|source| LoadFault::Key {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self(key))
    }

    /// The public half as PEM, for those who verify.
    #[must_use]
    pub fn public_pem(&self) -> String {
        pem::encode("PUBLIC KEY", self.0.spki_der())
    }
}

impl SealKey for AuditKey {
    fn spki_der(&self) -> &[u8] {
        self.0.spki_der()
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.0.sign(message).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileKeys, KeySpec};
    use countersign_pki::{SignatureAlgorithm, verify};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_file_is_read_and_its_signatures_verify_with_what_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit-key.pem");
        FileKeys::generate_file(&path, KeySpec::P256).unwrap();
        let key = AuditKey::load(&path).unwrap();
        let signature = key.sign(b"message").unwrap();
        let limits = pem::PemLimits::BUNDLE;
        let shown = pem::decode_first(key.public_pem().as_bytes(), &limits);
        let spki = shown.unwrap().unwrap().der;
        let algorithm = SignatureAlgorithm::for_issuer_key(&spki).unwrap();
        verify(algorithm, &spki, b"message", &signature).unwrap();

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(AuditKey::load(&path).is_err(), "others could read it");
    }
}
