//! A CA that is being made or taken over: a marker stands in the data directory until its files and records are whole.
//!
//! No server starts and no backup is made while it stands. Whoever runs the command again begins anew.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use countersign_authority::IssuerId;
use countersign_store::{OpenFault, SqliteStore};

use super::refusal::Refusal;
use crate::data_folder::{DataFolder, Secrecy, write};
use crate::signers;

pub(super) struct Unfinished {
    marker: PathBuf,
    root: PathBuf,
}

impl Unfinished {
    /// Removes what a command that was cut short has left: database, keys and certificates of the Puppet issuer.
    pub(super) fn clear(folder: &DataFolder) -> Result<()> {
        if !folder.import_marker().try_exists()? {
            return Ok(());
        }
        let database = folder.database();
        // Whoever else is at it holds the lock. No server starts on it, so what is there comes from that command.
        match SqliteStore::open(&database) {
            Ok(store) => drop(store),
            Err(OpenFault::InUse { .. }) => return Err(Refusal::Running.into()),
            Err(other) => return Err(other.into()),
        }
        for suffix in ["", "-wal", "-shm"] {
            let mut file = database.clone().into_os_string();
            file.push(suffix);
            remove_if_there(fs::remove_file(&file))
                .with_context(|| format!("cannot remove {}", file.display()))?;
        }
        let leftovers = folder.issuer(&IssuerId::parse(signers::PUPPET_ISSUER)?, "");
        remove_if_there(fs::remove_dir_all(&leftovers))
            .with_context(|| format!("cannot remove {}", leftovers.display()))
    }

    pub(super) fn begin(folder: &DataFolder) -> Result<Self> {
        let marker = folder.import_marker();
        write(&marker, MARKER.as_bytes(), Secrecy::Public)?;
        Ok(Self {
            marker,
            root: folder.root().to_owned(),
        })
    }

    /// Everything that makes up the CA is on disk.
    pub(super) fn finish(self) -> Result<()> {
        fs::remove_file(&self.marker)
            .and_then(|()| File::open(&self.root)?.sync_all())
            .with_context(|| format!("cannot remove {}", self.marker.display()))
    }
}

fn remove_if_there(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

const MARKER: &str =
    "A CA is being made or taken over here, or that was cut short. The same command begins anew.\n";
