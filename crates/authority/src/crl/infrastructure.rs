//! The CRL of the site's own machines: for agents, a short list of the servers that they must no longer talk to.
//!
//! Which machines those are stands in a file that the operator keeps, one certname a line. It is looked at whenever a
//! CRL may have to be made, so that a change takes effect without a restart. The authority itself goes on checking
//! everybody against everything.
//!
//! Names join the list by that file, and nobody leaves it by that file: a line that is gone, or a file of which half is
//! written, must not make a stolen key good again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign_pki::{Crl, RevokedEntry, Serial};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::task::{JoinError, JoinHandle};
use tracing::{info, warn};

use crate::crl::{Replaced, Scheduled};
use crate::detached::run_detached;
use crate::engine::Core;
use crate::faults::EngineError;
use crate::issuer::Issuers;
use crate::issuer::{Issuer, IssuerId};
use crate::issuing::MAX_TRIES;
use crate::ledger::revocation::Revocations;
use crate::model::{CrlScope, Revision};
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
    /// A look at the file that took too long, and may still take.
    reading: Option<JoinHandle<Read>>,
}

/// The names in the file, or why it could not be read.
type Read = Result<BTreeSet<String>, String>;

impl Issuers {
    /// From now on agents are served the list of the site's own machines, whose certnames stand in the file
    /// `inventory`, one a line. Until the file is there, nobody joins the list.
    pub async fn serve_infra_crl(
        &self,
        issuer: &IssuerId,
        inventory: PathBuf,
    ) -> Result<(), EngineError> {
        let core = Arc::clone(&self.core);
        let id = issuer.clone();
        run_detached(async move { core.serve_infra_crl(&id, inventory).await }).await
    }
}

impl Core {
    async fn serve_infra_crl(&self, id: &IssuerId, inventory: PathBuf) -> Result<(), EngineError> {
        let issuer = self.issuer(id)?;
        let Some(revocations) = self.revocations.get(id) else {
            return Ok(());
        };
        let mut publishing = revocations.publishing.lock().await;
        let scope = CrlScope::Infrastructure;
        revocations.serve_from(self.clock.now());
        if let Some(record) = self.store.crl(id, scope).await? {
            revocations.publish(&issuer, record);
        }
        *publishing = Some(Infrastructure::new(inventory));
        self.publish_infra_crl(&issuer, revocations, &mut publishing)
            .await
    }

    /// Makes the list anew if it does not say what it should, or is old.
    pub(crate) async fn publish_infra_crl(
        &self,
        issuer: &Issuer,
        revocations: &Revocations,
        infrastructure: &mut Option<Infrastructure>,
    ) -> Result<(), EngineError> {
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
        Err(EngineError::Contended)
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
    fn new(inventory: PathBuf) -> Self {
        Self {
            inventory,
            names: None,
            is_readable: true,
            covers: None,
            reading: None,
        }
    }

    /// Reads the file. What cannot be read changes nothing: a machine must
    /// not leave the list because a disk failed or a file is just being replaced.
    async fn look(&mut self) {
        if let Some(reading) = self.reading.take() {
            if !reading.is_finished() {
                // One thread waits for the disk; a second would wait, too.
                self.reading = Some(reading);
                return self.learn(Err(NO_ANSWER.to_owned()));
            }
            // Old news, for a disk that is always that slow.
            self.learn(found(reading.await));
        }
        let path = self.inventory.clone();
        let mut reading = tokio::task::spawn_blocking(move || read(&path));
        match tokio::time::timeout(LOOK, &mut reading).await {
            Ok(read) => self.learn(found(read)),
            Err(_) => {
                self.reading = Some(reading);
                self.learn(Err(NO_ANSWER.to_owned()));
            }
        }
    }

    fn learn(&mut self, read: Read) {
        match read {
            Ok(names) => {
                if !self.is_readable {
                    info!(path = %self.inventory.display(), "the infrastructure inventory can be read again");
                }
                self.is_readable = true;
                if self.names.as_ref() != Some(&names) {
                    self.names = Some(names);
                    self.covers = None;
                }
            }
            Err(why) => {
                if self.is_readable {
                    warn!(path = %self.inventory.display(), why, "the infrastructure inventory cannot be read; the infrastructure CRL keeps to the names that are known");
                }
                self.is_readable = false;
            }
        }
    }
}

fn found(ended: Result<Read, JoinError>) -> Read {
    ended.unwrap_or_else(|_| Err(NO_ANSWER.to_owned()))
}

fn read(path: &Path) -> Read {
    // Not blocking: to open a pipe would wait for whoever writes to it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => {
            return Err("there is no such file; write one certname a line".to_owned());
        }
        Err(error) => return Err(error.to_string()),
    };
    let facts = file.metadata().map_err(|error| error.to_string())?;
    if !facts.is_file() {
        return Err("it is no regular file".to_owned());
    }
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

const NO_ANSWER: &str = "its disk does not answer";
const LOOK: Duration = Duration::from_secs(5);
const MAX_INVENTORY: usize = 1024 * 1024; // tens of thousands of names; a site has a handful of such machines

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "puppet01\n").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for (path, expected) in [
            (&*pipe, Err("it is no regular file")),
            (folder.path(), Err("it is no regular file")),
            (Path::new("/dev/zero"), Err("it is no regular file")),
            (&*file, Ok("puppet01")),
            (&*link, Ok("puppet01")),
        ] {
            let expected = expected.map(|name| BTreeSet::from([name.to_owned()]));
            let expected = expected.map_err(str::to_owned);
            assert_eq!(read(path), expected, "{}", path.display());
        }
    }

    #[tokio::test]
    async fn no_look_begins_while_one_is_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inventory");
        std::fs::write(&path, "new\n").unwrap();
        let (answer, disk) = mpsc::sync_channel::<()>(1);
        let mut inventory = Infrastructure::new(path);
        inventory.reading = Some(tokio::task::spawn_blocking(move || {
            disk.recv().unwrap();
            Ok(BTreeSet::from(["old".to_owned()]))
        }));
        for _ in 0..3 {
            let looked = tokio::time::timeout(LOOK, inventory.look());
            looked.await.unwrap();
            assert_eq!((&inventory.names, inventory.is_readable), (&None, false));
        }
        answer.send(()).unwrap();
        while !inventory.reading.as_ref().unwrap().is_finished() {
            tokio::task::yield_now().await;
        }
        inventory.look().await;
        let names = Some(BTreeSet::from(["new".to_owned()]));
        assert_eq!((inventory.names, inventory.is_readable), (names, true));
    }
}
