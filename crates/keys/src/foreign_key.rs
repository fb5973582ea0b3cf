//! Another authority's key on its way in, and ours on its way out.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use countersign_pki::SignatureAlgorithm;

use crate::file_keys::{GenerateFault, LoadFault};
use countersign_private_keys::PrivateKey;
use countersign_private_keys::private_file::{self, FileFault};

/// An issuer's key in a file that other programs use too, so that its mode is their business.
///
/// It signs nothing. It can be looked at from the outside and be copied into a file of its own.
pub struct ForeignKey {
    key: PrivateKey,
}

/// Who may read a copy of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFor {
    /// Its owner alone (0600), as this authority wants it.
    Owner,
    /// Its owner and group (0640), as Puppet Server has it.
    OwnerAndGroup,
}

impl ForeignKey {
    /// Reads a PEM file: PKCS#8, PKCS#1 or SEC 1, not encrypted. The key has proven itself by a signature.
    ///
    /// # Errors
    /// If the file is unreadable or holds no usable key.
    pub fn read(path: &Path) -> Result<Self, LoadFault> {
        let text =
            private_file::read_of_any_mode(path).map_err(|source| LoadFault::File { source })?;
        let key = PrivateKey::from_pem(&text).map_err(|source| LoadFault::Key {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { key })
    }

    /// The algorithm that the key signs with.
    #[must_use]
    pub fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }

    /// The public half as `SubjectPublicKeyInfo`.
    #[must_use]
    pub fn spki_der(&self) -> &[u8] {
        self.key.spki_der()
    }

    /// Writes the key as PKCS#8 to a new file; an existing one is never touched.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn copy_to(&self, path: &Path, readers: CopyFor) -> Result<(), GenerateFault> {
        let text = self
            .key
            .to_pkcs8_pem()
            .map_err(|source| GenerateFault::Key {
                path: path.to_owned(),
                source,
            })?;
        let file = |source| GenerateFault::File { source };
        private_file::write_new(path, text.as_bytes()).map_err(file)?;
        match readers {
            CopyFor::Owner => Ok(()),
            CopyFor::OwnerAndGroup => open_to_group(path).map_err(|source| {
                file(FileFault::Io {
                    act: "write",
                    path: path.to_owned(),
                    source,
                })
            }),
        }
    }
}

fn open_to_group(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o640))?;
    File::open(path)?.sync_all()
}
