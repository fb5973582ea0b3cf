//! Opens the store that the configuration names.
//!
//! A data directory belongs to one store. One whose store is elsewhere says so in a file, so that no command takes it for
//! an authority that has forgotten everything.

use std::fs;
use std::io;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use countersign_authority::{Entropy as _, Store, Telemetry};
use countersign_keys::SystemEntropy;
use countersign_store::postgres::Address;
use countersign_store::{PostgresStore, SqliteStore};
use tracing::info;

use crate::config::StoreKind;
use crate::data_folder::{DataFolder, Secrecy, write};
use crate::settings::Settings;
use crate::witness;

/// The store of a server that starts.
pub(crate) async fn open(
    settings: &Settings,
    telemetry: Arc<dyn Telemetry>,
) -> Result<Arc<dyn Store>> {
    let folder = &settings.folder;
    match &settings.config.store {
        StoreKind::Sqlite => {
            ensure_here(folder)?;
            witness::refuse_missing(folder)?;
            let store = SqliteStore::open_observed(&folder.database(), telemetry)?;
            Ok(Arc::new(store))
        }
        StoreKind::Postgres(address) => {
            if folder.database().try_exists()? {
                bail!(
                    "{} holds this authority's state: start with --store sqlite, or with --data naming another directory",
                    folder.database().display()
                );
            }
            let store = open_postgres(address, telemetry).await?;
            keep_place(folder, address)?;
            Ok(Arc::new(store))
        }
    }
}

/// Refuses where the state is not in the data directory.
pub(crate) fn ensure_here(folder: &DataFolder) -> Result<()> {
    if let Some(place) = elsewhere(folder)? {
        bail!(
            "the state of this authority is in {place}: start the server with that store, and use the commands that ask a running server"
        );
    }
    Ok(())
}

/// Where the state is, for people.
pub(crate) fn place(folder: &DataFolder) -> Result<String> {
    let here = || folder.database().display().to_string();
    Ok(elsewhere(folder)?.unwrap_or_else(here))
}

/// The URL of the store, if it is not in the data directory.
fn elsewhere(folder: &DataFolder) -> Result<Option<String>> {
    let file = folder.store_elsewhere();
    match fs::read_to_string(&file) {
        Ok(place) => Ok(Some(place.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

async fn open_postgres(address: &Address, telemetry: Arc<dyn Telemetry>) -> Result<PostgresStore> {
    let mut name = [0; 16];
    SystemEntropy.fill(&mut name)?;
    let name = name.iter().map(|octet| format!("{octet:02x}")).collect();
    let store = PostgresStore::open_observed(address.clone(), name, telemetry).await?;
    info!(database = %address, "the store is open");
    Ok(store)
}

fn keep_place(folder: &DataFolder, address: &Address) -> Result<()> {
    let (file, text) = (folder.store_elsewhere(), format!("{address}\n"));
    if fs::read_to_string(&file).is_ok_and(|known| known == text) {
        return Ok(());
    }
    write(&file, text.as_bytes(), Secrecy::Public)?;
    Ok(())
}
