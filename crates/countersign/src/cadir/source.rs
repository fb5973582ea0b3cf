//! A directory to take over, read and checked as a whole before anything is written anywhere.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, ensure};
use countersign_authority::Chain;
use countersign_keys::ForeignKey;
use countersign_pki::Crl;

use super::chain::{Lists, read_chain};
use super::holdings::pem_files;
use super::{
    CERTIFICATES, CRLS, Holdings, INFRA_CRLS, INFRA_INVENTORY, INVENTORY, KEY, MAX_SERIAL,
    Problems, REQUESTS, SERIAL, SIGNED, serial_file,
};

/// What was found.
pub(crate) struct Source {
    folder: PathBuf,
    pub(crate) key: ForeignKey,
    /// `ca_crt.pem`, byte for byte: agents may pin its digest.
    pub(crate) chain_pem: Vec<u8>,
    pub(crate) chain: Chain,
    pub(crate) lists: Lists,
    pub(crate) holdings: Holdings,
    /// `None`: they are too large to be counted.
    pub(crate) next_serial: Option<u64>,
    /// Names and files of the requests that wait.
    pub(crate) requests: Vec<(String, PathBuf)>,
    pub(crate) infrastructure: Option<Infrastructure>,
    pub(crate) problems: Problems,
    state: Vec<FileState>,
}

/// The infra CRL, where a site has listed names for it.
pub(crate) struct Infrastructure {
    /// `infra_inventory.txt`.
    pub(crate) names: Vec<u8>,
    /// The CA's own infra CRL, if there is one.
    pub(crate) own: Option<Crl>,
}

/// Enough to see that somebody has written.
type FileState = Option<(u64, SystemTime)>;

impl Source {
    /// Reads the directory.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        ensure!(
            folder.is_dir(),
            "{} is no directory: name Puppet Server's cadir (`puppet config print cadir --section server`)",
            folder.display()
        );
        for file in REQUIRED {
            let path = folder.join(file);
            ensure!(
                path.try_exists()?,
                "{} is missing: {} is no complete CA directory of a Puppet Server",
                path.display(),
                folder.display()
            );
        }
        let state = states(folder);
        let mut problems = Problems::default();
        let key_file = folder.join(KEY);
        let key = ForeignKey::read(&key_file).context("the CA's key cannot be taken over")?;
        let chain_file = folder.join(CERTIFICATES);
        let chain_pem = read_bounded(&chain_file, MAX_BUNDLE)?;
        let chain = read_chain(&chain_file, &chain_pem, key.spki_der(), &mut problems)?;
        let crl_file = folder.join(CRLS);
        let crls = read_bounded(&crl_file, MAX_BUNDLE)?;
        let lists = Lists::read(&crl_file, &crls, &chain, &mut problems)?;
        let holdings = Holdings::read(folder, &chain, &lists.own, &mut problems)?;
        let next_serial = next_serial(&folder.join(SERIAL), &holdings, &mut problems)?;
        let infrastructure = Infrastructure::read(folder, &chain, &mut problems)?;
        Ok(Self {
            requests: pem_files(&folder.join(REQUESTS))?,
            folder: folder.to_owned(),
            key,
            chain_pem,
            chain,
            lists,
            holdings,
            next_serial,
            infrastructure,
            problems,
            state,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Fails if somebody has written since the directory was read.
    pub(crate) fn ensure_unchanged(&self) -> Result<()> {
        ensure!(
            states(&self.folder) == self.state,
            "{} was changed while it was taken over: stop Puppet Server and run this again",
            self.folder.display()
        );
        Ok(())
    }
}

impl Infrastructure {
    fn read(folder: &Path, chain: &Chain, problems: &mut Problems) -> Result<Option<Self>> {
        let file = folder.join(INFRA_INVENTORY);
        if !file.try_exists()? {
            return Ok(None);
        }
        let names = read_bounded(&file, MAX_BUNDLE)?;
        // `puppetserver ca setup` makes an empty one that nobody uses.
        if names.trim_ascii().is_empty() {
            return Ok(None);
        }
        let crls = folder.join(INFRA_CRLS);
        let own = if crls.try_exists()? {
            let text = read_bounded(&crls, MAX_BUNDLE)?;
            match Lists::read(&crls, &text, chain, &mut Problems::default()) {
                Ok(lists) => Some(lists.own),
                Err(error) => {
                    problems.add(&crls, format!("its number does not go on: {error:#}"));
                    None
                }
            }
        } else {
            None
        };
        Ok(Some(Self { names, own }))
    }
}

/// What comes after everything that was ever given out.
fn next_serial(file: &Path, holdings: &Holdings, problems: &mut Problems) -> Result<Option<u64>> {
    let written = serial_file::read(&read_bounded(file, MAX_SERIAL_FILE)?)
        .with_context(|| format!("{} holds no serial in hexadecimal", file.display()))?;
    let limit = |number: &u64| i64::try_from(*number).is_ok();
    let Some(written) = written.to_u64().filter(limit) else {
        problems.add(
            file,
            "its serial is too large to be counted on; new certificates get random ones",
        );
        return Ok(None);
    };
    let after = holdings
        .highest(written.max(MAX_SERIAL))
        .map_or(1, |highest| highest.saturating_add(1));
    if after > written {
        problems.add(
            file,
            format!(
                "serials up to {:04X} were given out already; going on after them",
                after.saturating_sub(1)
            ),
        );
    }
    Ok(Some(written.max(after)))
}

/// Reads a file that has a sensible size.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let unreadable = || format!("{} cannot be read", path.display());
    let facts = fs::metadata(path).with_context(unreadable)?;
    ensure!(facts.is_file(), "{} is no file", path.display());
    let mut content = Vec::new();
    File::open(path)
        .with_context(unreadable)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut content)
        .with_context(unreadable)?;
    ensure!(
        content.len() as u64 <= limit,
        "{} is longer than {limit} octets",
        path.display()
    );
    Ok(content)
}

fn states(folder: &Path) -> Vec<FileState> {
    let names = [SERIAL, INVENTORY, CRLS, SIGNED, REQUESTS];
    let state = |name: &str| {
        let facts = fs::metadata(folder.join(name)).ok()?;
        Some((facts.len(), facts.modified().ok()?))
    };
    names.into_iter().map(state).collect()
}

/// Puppet Server does not start without them either.
const REQUIRED: [&str; 5] = [CERTIFICATES, KEY, CRLS, SERIAL, INVENTORY];
const MAX_BUNDLE: u64 = 256 * 1024 * 1024; // a CRL with millions of entries
const MAX_SERIAL_FILE: u64 = 1024;
