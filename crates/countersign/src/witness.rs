//! `witness.json`: what is remembered of the database outside of it, so that an older one in its place is noticed.

use std::fs;
use std::io;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_api::Checkpoint;
use countersign_authority::{
    Audit, CrlScope, IssuerId, SealHead, SealKey, Store, Witness, WitnessedCrl,
};
use countersign_server::enrol::{checkpoint_of, head_of};
use serde::{Deserialize, Serialize};

use crate::audit_keys;
use crate::data_folder::{DataFolder, Secrecy, write};
use crate::stores;

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct WitnessFile {
    epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoint: Option<Checkpoint>,
    crls: Vec<CrlLine>,
    signature: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct CrlLine {
    issuer: String,
    scope: String,
    number: u64,
}

/// Refuses a start without the database that was here, before one is made in its place.
pub(crate) fn refuse_missing(folder: &DataFolder) -> Result<()> {
    let (database, file) = (folder.database(), folder.witness());
    if file.try_exists()? && !database.try_exists()? {
        bail!(
            "{} is missing, and this authority had one (see {}): put it back, or restore a backup to another directory with `countersign restore`",
            database.display(),
            file.display()
        );
    }
    Ok(())
}

/// Refuses a database that is not the one that was here, or one that went on from it.
pub(crate) async fn compare(folder: &DataFolder, store: &dyn Store) -> Result<()> {
    let Some(witness) = read(folder)? else {
        return Ok(());
    };
    let Some(found) = witness.disagreement(store).await? else {
        return Ok(());
    };
    let database = stores::place(folder)?;
    bail!(
        "{database} is not the database that this authority used last, or somebody has changed it: {found} (see {}). With it, certificates, revocations and uses of tokens would be forgotten. Put the newer one back; if it is lost, `countersign restore --in-place` goes on from this one as from a backup",
        folder.witness().display()
    );
}

/// The newest seal that is remembered; `None` if nothing is.
pub(crate) fn checkpoint(folder: &DataFolder) -> Result<Option<SealHead>> {
    Ok(read(folder)?.and_then(|witness| witness.seal))
}

/// Remembers the state of the store now.
pub(crate) async fn keep(folder: &DataFolder, audit: &Audit, key: &dyn SealKey) -> Result<()> {
    let witness = audit.witness().await?;
    if read(folder).is_ok_and(|known| known.as_ref() == Some(&witness)) {
        return Ok(());
    }
    let signature = witness.signature(key);
    let file = WitnessFile {
        epoch: witness.epoch,
        checkpoint: witness.seal.as_ref().map(checkpoint_of),
        crls: witness
            .crls
            .iter()
            .map(|crl| CrlLine {
                issuer: crl.issuer.to_string(),
                scope: crl.scope.word().to_owned(),
                number: crl.number,
            })
            .collect(),
        signature: STANDARD.encode(signature.context("the audit key failed to sign")?),
    };
    let path = folder.witness();
    let mut text = serde_json::to_vec_pretty(&file)?;
    text.push(b'\n');
    // It waits for the disk.
    let written = move || write(&path, &text, Secrecy::Public);
    tokio::task::spawn_blocking(written).await??;
    Ok(())
}

/// Forgets what was remembered: the database goes on from an earlier state, which somebody has decided.
pub(crate) fn forget(folder: &DataFolder) -> Result<()> {
    let path = folder.witness();
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn read(folder: &DataFolder) -> Result<Option<Witness>> {
    let path = folder.witness();
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let unusable = || {
        format!(
            "{} was changed, or not made with the audit key of this directory: put the right one back; without one, `countersign restore --in-place` goes on from the database as from a backup",
            path.display()
        )
    };
    let (witness, signature) = parsed(&text).with_context(unusable)?;
    let keys = audit_keys::of_folder(folder)?;
    let is_ours = |spki: &Vec<u8>| witness.is_signed_by(spki, &signature);
    ensure!(keys.iter().any(is_ours), unusable());
    Ok(Some(witness))
}

fn parsed(text: &[u8]) -> Result<(Witness, Vec<u8>)> {
    let file: WitnessFile = serde_json::from_slice(text)?;
    let crls = file.crls.iter().map(|line| {
        Ok(WitnessedCrl {
            issuer: IssuerId::parse(&line.issuer)?,
            scope: CrlScope::from_word(&line.scope).context("an unknown kind of CRL")?,
            number: line.number,
        })
    });
    let witness = Witness {
        epoch: file.epoch,
        seal: file.checkpoint.as_ref().map(head_of).transpose()?,
        crls: crls.collect::<Result<_>>()?,
    };
    Ok((witness, STANDARD.decode(&file.signature)?))
}
