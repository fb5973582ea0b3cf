//! Which certificates of an imported CA count although nobody has listed them: what `ca import` has noted beside it.

use std::fs;
use std::io;

use anyhow::{Context as _, Result};
use countersign_authority::{Adoption, IssuerId};
use countersign_pki::{Certificate, Fingerprint, UnixTime, fingerprint_sha256};
use countersign_policy::SignerName;
use serde::{Deserialize, Serialize};

use crate::data_folder::{self, DataFolder, Secrecy};
use crate::signers;

/// The file's content.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Noted {
    /// SHA-256 of the CA's public key, in hexadecimal.
    key_sha256: String,
    taken_over: UnixTime,
}

/// Notes that what the CA has signed up to now counts.
pub(crate) fn write(
    folder: &DataFolder,
    issuer: &IssuerId,
    ca: &Certificate,
    now: UnixTime,
) -> Result<()> {
    let noted = Noted {
        key_sha256: fingerprint_sha256(ca.spki_der()).to_hex(),
        taken_over: now,
    };
    let mut text = serde_json::to_string_pretty(&noted)?;
    text.push('\n');
    data_folder::write(
        &folder.issuer(issuer, FILE),
        text.as_bytes(),
        Secrecy::Public,
    )?;
    Ok(())
}

/// What was noted; nothing, if the CA was not imported, or whoever did so wanted nothing of it.
pub(crate) fn read(folder: &DataFolder, issuer: &IssuerId) -> Result<Option<Adoption>> {
    let path = folder.issuer(issuer, FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", path.display()));
        }
    };
    let unreadable = || format!("{} cannot be understood", path.display());
    let noted: Noted = serde_json::from_slice(&text).with_context(unreadable)?;
    Ok(Some(Adoption {
        key: Fingerprint::from_hex(&noted.key_sha256).with_context(unreadable)?,
        taken_over: noted.taken_over,
        signer: SignerName::parse(signers::PUPPET_AGENT)?,
    }))
}

const FILE: &str = "adopts.json";
