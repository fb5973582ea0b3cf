//! The CRL of the site's own machines: for agents, a short list of the servers that they must no longer talk to.
//!
//! Which machines those are stands in a file that the operator keeps, one certname a line. It is looked at whenever a
//! CRL may have to be made, so that a change takes effect without a restart. The authority itself goes on checking
//! everybody against everything.
//!
//! Names join the list by that file, and nobody leaves it by that file: a line that is gone, or a file of which half is
//! written, must not make a stolen key good again.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign_pki::{Crl, RevokedEntry, Serial};
use tracing::{info, warn};

use crate::crl::{Replaced, Scheduled};
use crate::engine::{Authority, Core};
use crate::faults::Broken;
use crate::issuer::{Issuer, IssuerId};
use crate::model::{CrlScope, Revision};
use crate::revocation::Revocations;
use crate::signing::MAX_TRIES;
use crate::store::StoreFault;

/// The operator's file, and how far the list follows it.
#[derive(Debug)]
pub(crate) struct Infrastructure {
    inventory: PathBuf,
    /// The names in it; `None` until it was read.
    names: Option<BTreeSet<String>>,
    is_readable: bool,
    /// Every revocation up to this revision was looked at with these names.
    covers: Option<Revision>,
}

impl Authority {
    /// From now on agents are served the list of the site's own machines, whose certnames stand in the file
    /// `inventory`, one a line. Until the file is there, nobody joins the list.
    pub async fn serve_infra_crl(
        &self,
        issuer: &IssuerId,
        inventory: PathBuf,
    ) -> Result<(), Broken> {
        let core = Arc::clone(&self.core);
        let id = issuer.clone();
        self.carry_through(async move { core.serve_infra_crl(&id, inventory).await })
            .await
    }
}

impl Core {
    async fn serve_infra_crl(&self, id: &IssuerId, inventory: PathBuf) -> Result<(), Broken> {
        let issuer = self.issuer(id)?;
        let Some(revocations) = self.revocations.get(id) else {
            return Ok(());
        };
        let mut publishing = revocations.publishing.lock().await;
        let scope = CrlScope::Infrastructure;
        if let Some(record) = self.store.crl(id, scope).await? {
            revocations.publish(issuer, record);
        }
        *publishing = Some(Infrastructure {
            inventory,
            names: None,
            is_readable: true,
            covers: None,
        });
        self.publish_infra_crl(issuer, revocations, &mut publishing)
            .await
    }

    /// Makes the list anew if it does not say what it should, or is old.
    pub(crate) async fn publish_infra_crl(
        &self,
        issuer: &Issuer,
        revocations: &Revocations,
        infrastructure: &mut Option<Infrastructure>,
    ) -> Result<(), Broken> {
        let Some(infrastructure) = infrastructure else {
            return Ok(());
        };
        let scope = CrlScope::Infrastructure;
        infrastructure.look().await;
        for _ in 0..MAX_TRIES {
            let covers = *revocations.revoking.lock().await;
            let published = revocations.published(scope).load_full();
            let is_due = self.is_old(published.as_deref());
            if infrastructure.covers >= Some(covers) && !is_due {
                return Ok(());
            }
            let list = published
                .as_ref()
                .and_then(|crl| Crl::parse(&crl.record.der).ok());
            let listed: BTreeSet<Serial> = list
                .as_ref()
                .map(|crl| crl.serials().collect())
                .unwrap_or_default();
            // After a restore its number is ahead of the list: agents may have seen all those in between.
            let number = published.as_ref().map(|crl| crl.record.number);
            let is_due = is_due || list.and_then(|crl| crl.number()) != number;
            // Whoever is on the list stays there, until the index says otherwise.
            let mut wanted = listed.clone();
            if let Some(names) = &infrastructure.names {
                wanted.extend(self.serials_of(issuer, names).await?);
            }
            let entries = revocations.entries(self.clock.now(), |serial| wanted.contains(serial));
            let same = |entries: &[RevokedEntry]| {
                entries.len() == listed.len() && entries.iter().all(|e| listed.contains(&e.serial))
            };
            if is_due || !same(&entries) {
                let scheduled = Scheduled { scope, covers };
                match self
                    .replace_crl(issuer, revocations, scheduled, &entries)
                    .await?
                {
                    Replaced::ByUs => {}
                    Replaced::ByOthers => continue,
                }
            }
            infrastructure.covers = Some(covers);
            return Ok(());
        }
        Err(Broken::Contended)
    }

    /// The certificates of the names, ended ones left out.
    async fn serials_of(
        &self,
        issuer: &Issuer,
        names: &BTreeSet<String>,
    ) -> Result<BTreeSet<Serial>, StoreFault> {
        // Entries stay on a list for a day longer than their certificates.
        let alive_at = self.clock.now().minus_seconds(crate::crl::DAY);
        let mut serials = BTreeSet::new();
        for name in names {
            let all = self.store.certificates_of(issuer.id(), name, alive_at);
            serials.extend(all.await?.iter().map(|entry| entry.serial));
        }
        Ok(serials)
    }
}

impl Infrastructure {
    /// Reads the file. What cannot be read changes nothing: a machine must
    /// not leave the list because a disk failed or a file is just being replaced.
    async fn look(&mut self) {
        let path = self.inventory.clone();
        let reading = tokio::task::spawn_blocking(move || read(&path));
        let why = match tokio::time::timeout(LOOK, reading).await {
            Ok(Ok(Ok(names))) => {
                if !self.is_readable {
                    info!(path = %self.inventory.display(), "the infrastructure inventory can be read again");
                }
                self.is_readable = true;
                if self.names.as_ref() != Some(&names) {
                    self.names = Some(names);
                    self.covers = None;
                }
                return;
            }
            Ok(Ok(Err(why))) => why,
            Ok(Err(_)) | Err(_) => "its disk does not answer".to_owned(),
        };
        if self.is_readable {
            warn!(path = %self.inventory.display(), why, "the infrastructure inventory cannot be read; the infrastructure CRL keeps to the names that are known");
        }
        self.is_readable = false;
    }
}

fn read(path: &Path) -> Result<BTreeSet<String>, String> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err("there is no such file; write one certname a line".to_owned());
        }
        Err(error) => return Err(error.to_string()),
    };
    let mut text = String::new();
    let limit = u64::try_from(MAX_INVENTORY).unwrap_or(u64::MAX);
    file.take(limit.saturating_add(1))
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() > MAX_INVENTORY {
        return Err(format!("it is longer than {MAX_INVENTORY} bytes"));
    }
    let names = text.lines().map(str::trim);
    let names = names.filter(|name| !name.is_empty() && !name.starts_with('#'));
    Ok(names.map(str::to_owned).collect())
}

const LOOK: Duration = Duration::from_secs(5);
const MAX_INVENTORY: usize = 1024 * 1024; // tens of thousands of names; a site has a handful of such machines
