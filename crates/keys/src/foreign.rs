//! An issuer's key that somebody brings along.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use zeroize::Zeroizing;

use crate::file_keys::LoadFault;
use crate::private_file::{self, FileFault};
use crate::private_key::PrivateKey;

/// A private key on its way from a file of somebody else's into a file of ours. It signs nothing meanwhile.
pub struct ForeignKey(PrivateKey);

impl ForeignKey {
    /// Reads a key in PKCS#8, PKCS#1 or SEC 1, whoever else may read the file: it is not ours.
    ///
    /// # Errors
    /// If the file cannot be read or does not hold exactly one usable, unencrypted key.
    pub fn read(path: &Path) -> Result<Self, LoadFault> {
        let failed = |source| LoadFault::File {
            source: FileFault::Io {
                act: "read",
                path: path.to_owned(),
                source,
            },
        };
        // As large as it will ever be: a growing buffer leaves copies behind.
        let mut text = Zeroizing::new(Vec::with_capacity(CAPACITY));
        let file = File::open(path).map_err(failed)?;
        file.take(LIMIT).read_to_end(&mut text).map_err(failed)?;
        PrivateKey::from_pem(&text)
            .map(Self)
            .map_err(|source| LoadFault::Key {
                path: path.to_owned(),
                source,
            })
    }

    /// The public half as `SubjectPublicKeyInfo` DER.
    #[must_use]
    pub fn spki_der(&self) -> &[u8] {
        self.0.spki_der()
    }

    /// Writes the key to a new file with mode 0600, as PKCS#8; an existing file is never touched.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), LoadFault> {
        let text = self.0.to_pkcs8_pem().map_err(|source| LoadFault::Key {
            path: path.to_owned(),
            source,
        })?;
        private_file::write_new(path, text.as_bytes()).map_err(|source| LoadFault::File { source })
    }
}

/// An RSA key of 16384 bits has 13 KiB.
const LIMIT: u64 = 64 * 1024;
const CAPACITY: usize = 64 * 1024 + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileKeys, KeySpec};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_that_others_may_read_is_taken_over_into_a_file_they_may_not() {
        let folder = tempfile::tempdir().unwrap();
        let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
        FileKeys::generate_file(&theirs, KeySpec::P256).unwrap();
        std::fs::set_permissions(&theirs, std::fs::Permissions::from_mode(0o644)).unwrap();
        let key = ForeignKey::read(&theirs).unwrap();
        key.write_new(&ours).unwrap();
        assert_eq!(ours.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ForeignKey::read(&ours).unwrap().spki_der(), key.spki_der());
        assert!(key.write_new(&ours).is_err(), "nothing is overwritten");
        assert!(ForeignKey::read(&folder.path().join("gone")).is_err());
    }
}
