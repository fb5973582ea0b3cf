//! The key that seals the audit log, and the public keys that verify it.
//!
//! `audit.pem` keeps the public half of every key that was ever used here, the newest first: a log that was sealed with
//! several is verified with all of them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use countersign_authority::SealKey as _;
use countersign_keys::{AuditKey, FileKeys, KeySpec};
use countersign_pki::pem;
use tracing::{info, warn};

use crate::data_folder::{DataFolder, Secrecy, create_folder, write};

/// The key of a data directory; makes one where there is none.
pub(crate) fn prepare(folder: &DataFolder) -> Result<AuditKey> {
    let (private, public) = (folder.audit(PRIVATE), folder.audit(PUBLIC));
    let mut known = match public.try_exists()? {
        true => public_keys(&public)?,
        false => Vec::new(),
    };
    if !private.try_exists()? {
        create_folder(&folder.audit("")).context("cannot create the folder of the audit key")?;
        FileKeys::generate_file(&private, KeySpec::P256)?;
        match known.is_empty() {
            true => info!("audit key made"),
            false => warn!(
                "{} was missing: the audit log is sealed with a new key from here on",
                private.display()
            ),
        }
    }
    let key = AuditKey::load(&private)?;
    if known.first().map(Vec::as_slice) != Some(key.spki_der()) {
        known.retain(|spki| spki != key.spki_der());
        let earlier: String = known
            .iter()
            .map(|spki| pem::encode("PUBLIC KEY", spki))
            .collect();
        let text = key.public_pem() + &earlier;
        write(&public, text.as_bytes(), Secrecy::Public)?;
    }
    Ok(key)
}

/// The public keys that verify the log of a data directory.
pub(crate) fn of_folder(folder: &DataFolder) -> Result<Vec<Vec<u8>>> {
    public_keys(&folder.audit(PUBLIC))
}

/// The public keys of a PEM file.
pub(crate) fn public_keys(path: &Path) -> Result<Vec<Vec<u8>>> {
    let text = fs::read(path).with_context(|| {
        format!(
            "cannot read the audit log's public key {}: a server that runs there for the first time makes it",
            path.display()
        )
    })?;
    let blocks = pem::decode_all(&text, &pem::PemLimits::BUNDLE)
        .with_context(|| format!("{} is not PEM", path.display()))?;
    let keys = blocks
        .into_iter()
        .filter(|block| block.label == "PUBLIC KEY");
    let keys: Vec<Vec<u8>> = keys.map(|block| block.der).collect();
    ensure!(!keys.is_empty(), "{} holds no public key", path.display());
    Ok(keys)
}

const PRIVATE: &str = "audit-key.pem";
const PUBLIC: &str = "audit.pem";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_one_that_was_lost_leaves_its_public_half() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = DataFolder::new(temporary.path().join("data"));
        assert!(of_folder(&folder).is_err());
        let first = prepare(&folder).unwrap().spki_der().to_vec();
        assert_eq!(prepare(&folder).unwrap().spki_der(), first);
        assert_eq!(of_folder(&folder).unwrap(), std::slice::from_ref(&first));

        fs::remove_file(folder.audit(PRIVATE)).unwrap();
        let second = prepare(&folder).unwrap().spki_der().to_vec();
        assert_ne!(second, first);
        assert_eq!(of_folder(&folder).unwrap(), [second.clone(), first]);

        fs::remove_file(folder.audit(PUBLIC)).unwrap();
        prepare(&folder).unwrap();
        assert_eq!(of_folder(&folder).unwrap(), [second]);
    }
}
