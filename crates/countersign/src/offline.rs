//! The authority without its listeners: for commands that work on the files of a stopped server.
//!
//! Whatever they do goes through the engine, so that it is decided, recorded and audited like everything else. The
//! store's lock keeps a server out meanwhile, and these commands out while a server runs.

use std::sync::Arc;

use anyhow::Result;
use countersign_authority::{Authority, IssuerId, Rules, Store, Unobserved};
use countersign_store::{OpenFault, SqliteStore};

use crate::commands::ca::Refusal;
use crate::settings::Settings;
use crate::stores;
use crate::{serve, signers, upkeep, witness};

/// A stopped server's authority.
pub(crate) struct Offline {
    pub(crate) authority: Authority,
    /// The Puppet issuer, which all these commands are about.
    pub(crate) issuer: IssuerId,
}

impl Offline {
    /// Opens what an earlier start or `ca setup` has made; creates nothing.
    pub(crate) async fn open(settings: &Settings) -> Result<Self> {
        let issuer = IssuerId::parse(signers::PUPPET_ISSUER)?;
        if !settings.folder.issuer(&issuer, "ca_crt.pem").try_exists()? {
            return Err(Refusal::error(format!(
                "CA not initialized. Please set up your CA in {} with `countersign ca setup`, or name another directory with --data.",
                settings.folder.root().display()
            ))
            .into());
        }
        // On an older database these commands would publish CRLs without later revocations.
        stores::ensure_here(&settings.folder)?;
        witness::refuse_missing(&settings.folder)?;
        let store = store(settings)?;
        witness::compare(&settings.folder, &*store).await?;
        Self::start(settings, store).await
    }

    /// The authority on a store that was opened before.
    pub(crate) async fn start(settings: &Settings, store: Arc<dyn Store>) -> Result<Self> {
        // Nothing is decided by rules here.
        let policy = signers::policy(&settings.config, &settings.names)?;
        let rules = Rules::new(policy, signers::all(&settings.config)?);
        let (authority, _) =
            serve::start_authority(settings, store, rules, Arc::new(Unobserved)).await?;
        let offline = Self {
            authority,
            issuer: IssuerId::parse(signers::PUPPET_ISSUER)?,
        };
        offline.publish(settings)?;
        Ok(offline)
    }

    /// Writes the CRL files anew, as a running server does by itself.
    pub(crate) fn publish(&self, settings: &Settings) -> Result<()> {
        upkeep::write_crls(&self.authority.issuers, &settings.folder)
    }
}

/// The store, unless a server has it.
pub(crate) fn store(settings: &Settings) -> Result<Arc<dyn Store>> {
    stores::ensure_here(&settings.folder)?;
    match SqliteStore::open(&settings.folder.database()) {
        Ok(store) => Ok(Arc::new(store)),
        Err(OpenFault::InUse { .. }) => Err(Refusal::Running.into()),
        Err(other) => Err(other.into()),
    }
}
