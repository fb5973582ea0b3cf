//! A directory to take over, read and checked as a whole before anything is written anywhere.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use countersign_authority::Chain;
use countersign_pki::Crl;

use super::chain::{Lists, read_chain};
use super::fault::in_full;
use super::holdings::pem_files;
use super::{
    CERTIFICATES, CRLS, CadirFault, Holdings, INFRA_CRLS, INFRA_INVENTORY, INVENTORY, KEY,
    MAX_SERIAL, Problems, REQUESTS, ReadFault, SERIAL, SIGNED, serial_file,
};

/// What was found.
pub struct Source {
    folder: PathBuf,
    /// `ca_crt.pem`, byte for byte: agents may pin its digest.
    pub chain_pem: Vec<u8>,
    /// The same, verified.
    pub chain: Chain,
    /// What the CA and those above have revoked.
    pub lists: Lists,
    /// Every certificate.
    pub holdings: Holdings,
    /// `None`: they are too large to be counted.
    pub next_serial: Option<u64>,
    /// Names and files of the requests that wait.
    pub requests: Vec<(String, PathBuf)>,
    /// The infra CRL.
    pub infrastructure: Option<Infrastructure>,
    /// What is wrong, without being a reason not to go on.
    pub problems: Problems,
    state: Vec<FileState>,
}

/// The infra CRL, where a site has listed names for it.
pub struct Infrastructure {
    /// `infra_inventory.txt`.
    pub names: Vec<u8>,
    /// The CA's own infra CRL, if there is one.
    pub own: Option<Crl>,
}

/// Enough to see that somebody has written.
type FileState = Option<(u64, SystemTime)>;

impl Source {
    /// Reads the directory of the key whose public half this is. `each_file` is called for every certificate that is read,
    /// with how many there are.
    ///
    /// # Errors
    /// If going on would lose a certificate or a revocation.
    pub fn read(
        folder: &Path,
        spki_der: &[u8],
        each_file: &mut dyn FnMut(usize),
    ) -> Result<Self, CadirFault> {
        let state = states(folder);
        let mut problems = Problems::default();
        let chain_file = folder.join(CERTIFICATES);
        let chain_pem = read_bounded(&chain_file, MAX_BUNDLE)?;
        let chain = read_chain(&chain_file, &chain_pem, spki_der, &mut problems)?;
        let crl_file = folder.join(CRLS);
        let crls = read_bounded(&crl_file, MAX_BUNDLE)?;
        let lists = Lists::read(&crl_file, &crls, &chain, &mut problems)?;
        let holdings = Holdings::read(folder, &chain, &lists.own, &mut problems, each_file)?;
        let next_serial = next_serial(&folder.join(SERIAL), &holdings, &mut problems)?;
        let infrastructure = Infrastructure::read(folder, &chain, &mut problems)?;
        Ok(Self {
            requests: pem_files(&folder.join(REQUESTS))?,
            folder: folder.to_owned(),
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

    /// The directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Says whether somebody has written since the directory was read.
    ///
    /// # Errors
    /// If somebody has.
    pub fn ensure_unchanged(&self) -> Result<(), CadirFault> {
        match states(&self.folder) == self.state {
            true => Ok(()),
            false => Err(CadirFault::Changed {
                folder: self.folder.clone(),
            }),
        }
    }
}

/// Says whether a directory has everything without which Puppet Server does not start either, the key included.
///
/// # Errors
/// Names the first thing that is missing.
pub fn ensure_complete(folder: &Path) -> Result<(), CadirFault> {
    if !folder.is_dir() {
        return Err(CadirFault::NoDirectory {
            folder: folder.to_owned(),
        });
    }
    for path in REQUIRED.map(|file| folder.join(file)) {
        if !exists(&path)? {
            return Err(CadirFault::Missing {
                path,
                folder: folder.to_owned(),
            });
        }
    }
    Ok(())
}

impl Infrastructure {
    fn read(
        folder: &Path,
        chain: &Chain,
        problems: &mut Problems,
    ) -> Result<Option<Self>, CadirFault> {
        let file = folder.join(INFRA_INVENTORY);
        if !exists(&file)? {
            return Ok(None);
        }
        let names = read_bounded(&file, MAX_BUNDLE)?;
        // `puppetserver ca setup` makes an empty one that nobody uses.
        if names.trim_ascii().is_empty() {
            return Ok(None);
        }
        let crls = folder.join(INFRA_CRLS);
        let own = if exists(&crls)? {
            let text = read_bounded(&crls, MAX_BUNDLE)?;
            match Lists::read(&crls, &text, chain, &mut Problems::default()) {
                Ok(lists) => Some(lists.own),
                Err(fault) => {
                    let why = in_full(&fault);
                    problems.add(&crls, format!("its number does not go on: {why}"));
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
fn next_serial(
    file: &Path,
    holdings: &Holdings,
    problems: &mut Problems,
) -> Result<Option<u64>, CadirFault> {
    let written = serial_file::read(&read_bounded(file, MAX_SERIAL_FILE)?);
    let written = written.map_err(|source| CadirFault::Serial {
        path: file.to_owned(),
        source,
    })?;
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
///
/// # Errors
/// If it is longer than `limit`, no file, or unreadable.
pub fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, ReadFault> {
    let unreadable = |source| ReadFault::Io {
        path: path.to_owned(),
        source,
    };
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        let path = path.to_owned();
        return Err(ReadFault::NotAFile { path });
    }
    let mut content = Vec::new();
    File::open(path)
        .map_err(unreadable)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut content)
        .map_err(unreadable)?;
    match content.len() as u64 <= limit {
        true => Ok(content),
        false => Err(ReadFault::TooLong {
            path: path.to_owned(),
            limit,
        }),
    }
}

fn exists(path: &Path) -> Result<bool, ReadFault> {
    path.try_exists().map_err(|source| ReadFault::Io {
        path: path.to_owned(),
        source,
    })
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
