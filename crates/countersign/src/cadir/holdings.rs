//! Every certificate that a directory knows of: from its inventory, its signed files and its CRL.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use countersign_authority::{Chain, Revoked};
use countersign_pki::{Certificate, Crl, Serial, UnixTime, pem};

use super::source::read_bounded;
use super::{INVENTORY, Problems, Row, SIGNED};
use crate::progress::Progress;

/// One certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) serial: Serial,
    pub(crate) name: String,
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
    /// Where it is.
    pub(crate) file: Option<PathBuf>,
    /// Whether it is the one of its name that Puppet Server shows: the one in the file of that name.
    pub(crate) is_shown: bool,
    pub(crate) revoked: Option<Revoked>,
}

impl Holding {
    /// Whether nothing is known but that it is revoked.
    pub(crate) fn is_nameless(name: &str) -> bool {
        name.starts_with(NAMELESS)
    }

    /// The certificate itself, read again: a large directory is not kept in memory.
    pub(crate) fn certificate(&self) -> Result<Option<Certificate>> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let certificate =
            read_certificate(file).with_context(|| format!("{} cannot be read", file.display()))?;
        ensure!(
            certificate.serial() == self.serial,
            "{} was changed meanwhile: stop Puppet Server and run this again",
            file.display()
        );
        Ok(Some(certificate))
    }
}

/// Whether a certificate is the one that its name shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Yes,
    No,
}

/// All of them, in the order in which they were issued as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    pub(crate) all: Vec<Holding>,
    by_serial: HashMap<Serial, usize>,
}

impl Holdings {
    pub(crate) fn read(
        folder: &Path,
        chain: &Chain,
        own: &Crl,
        problems: &mut Problems,
    ) -> Result<Self> {
        let mut holdings = Self::default();
        holdings.read_inventory(&folder.join(INVENTORY), chain, problems)?;
        holdings.read_signed(&folder.join(SIGNED), chain, problems)?;
        holdings.read_revoked(own, chain);
        Ok(holdings)
    }

    /// Where there is nothing but the list of what was revoked.
    pub(crate) fn of_revoked(own: &Crl, chain: &Chain) -> Self {
        let mut holdings = Self::default();
        holdings.read_revoked(own, chain);
        holdings
    }

    /// The largest serial up to a limit; larger ones were not counted.
    pub(crate) fn highest(&self, limit: u64) -> Option<u64> {
        let numbers = self.all.iter().filter_map(|one| one.serial.to_u64());
        numbers.filter(|number| *number <= limit).max()
    }

    fn read_inventory(
        &mut self,
        file: &Path,
        chain: &Chain,
        problems: &mut Problems,
    ) -> Result<()> {
        let own_name = chain.issuing.subject().first_common_name();
        Row::read_all(file, |line, row| match row {
            // A server that made its own authority has a line for it. It is none of its certificates.
            Ok(row) if Some(row.name.as_str()) == own_name => {}
            Ok(row) => {
                let holding = Holding {
                    serial: row.serial,
                    name: row.name,
                    not_before: row.not_before,
                    not_after: row.not_after,
                    file: None,
                    is_shown: false,
                    revoked: None,
                };
                if let Err(known) = self.add(holding) {
                    problems.add_line(
                        file,
                        line,
                        format!(
                            "serial {} was given to {:?} before",
                            known.serial, known.name
                        ),
                    );
                }
            }
            Err(fault) => problems.add_line(file, line, fault),
        })
        .with_context(|| format!("{} cannot be read", file.display()))
    }

    fn read_signed(&mut self, folder: &Path, chain: &Chain, problems: &mut Problems) -> Result<()> {
        let files = pem_files(folder)?;
        let bar = Progress::of(files.len(), "reading certificates");
        let mut foreign = 0_usize;
        let mut misnamed = Vec::new();
        for (name, file) in &files {
            bar.step();
            let certificate = match read_certificate(file) {
                Ok(certificate) => certificate,
                Err(error) => {
                    problems.add(file, format!("left out: {error:#}"));
                    continue;
                }
            };
            if let Err(fault) = certificate.verify_signed_by(chain.issuing.spki_der()) {
                foreign = foreign.saturating_add(1);
                problems.add(file, format!("left out: not signed by this CA: {fault}"));
                continue;
            }
            match certificate.subject().first_common_name() {
                Some(own) if own == name => {
                    self.add_file(name, file, &certificate, Shown::Yes, problems);
                }
                Some(own) => {
                    let own = own.to_owned();
                    problems.add(
                        file,
                        format!("its certificate is for {own:?}, and is kept under that name"),
                    );
                    misnamed.push((own, file, certificate));
                }
                None => problems.add(file, "left out: its certificate has no name"),
            }
        }
        // After the others: a copy under another name must not take the original's place.
        for (own, file, certificate) in misnamed {
            self.add_file(&own, file, &certificate, Shown::No, problems);
        }
        drop(bar);
        if foreign > 0 && foreign == files.len() {
            bail!(
                "none of the certificates in {} is signed by the CA in {}: the directory is mixed up of two authorities",
                folder.display(),
                super::CERTIFICATES
            );
        }
        Ok(())
    }

    fn add_file(
        &mut self,
        name: &str,
        file: &Path,
        certificate: &Certificate,
        shown: Shown,
        problems: &mut Problems,
    ) {
        let holding = Holding {
            serial: certificate.serial(),
            name: name.to_owned(),
            not_before: certificate.not_before(),
            not_after: certificate.not_after(),
            file: Some(file.to_owned()),
            is_shown: shown == Shown::Yes,
            revoked: None,
        };
        let known = self.by_serial.get(&holding.serial).copied();
        match known.and_then(|index| self.all.get_mut(index)) {
            None => {
                let _is_new = self.add(holding);
            }
            Some(Holding {
                file: Some(first), ..
            }) => problems.add(
                file,
                format!("left out: its serial is that of {}", first.display()),
            ),
            // The certificate itself knows best.
            Some(line) => *line = holding,
        }
    }

    fn read_revoked(&mut self, own: &Crl, chain: &Chain) {
        for entry in own.entries() {
            let revoked = Revoked {
                at: entry.at,
                reason: entry.reason,
            };
            let known = self.by_serial.get(&entry.serial).copied();
            match known.and_then(|index| self.all.get_mut(index)) {
                Some(holding) => {
                    holding.revoked.get_or_insert(revoked);
                }
                // Whose it was nobody knows; until the authority itself ends it stays on the list.
                None => {
                    let _is_new = self.add(Holding {
                        serial: entry.serial,
                        name: format!("{NAMELESS}{}", entry.serial),
                        not_before: entry.at,
                        not_after: chain.issuing.not_after(),
                        file: None,
                        is_shown: false,
                        revoked: Some(revoked),
                    });
                }
            }
        }
    }

    /// Adds a certificate, unless its serial is taken; then the answer is whose it is.
    fn add(&mut self, holding: Holding) -> Result<(), Holding> {
        let index = self.all.len();
        match self.by_serial.get(&holding.serial) {
            Some(known) => Err(self.all.get(*known).cloned().unwrap_or(holding)),
            None => {
                self.by_serial.insert(holding.serial, index);
                self.all.push(holding);
                Ok(())
            }
        }
    }
}

/// The files of a folder that end in `.pem`, by their names without it, in order. Others are litter of interrupted
/// writes. A folder that is missing is empty.
pub(crate) fn pem_files(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let unreadable = || format!("{} cannot be read", folder.display());
    if !folder.try_exists().with_context(unreadable)? {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.and_then(|name| name.strip_suffix(".pem"))
            && path.is_file()
        {
            files.push((name.to_owned(), path));
        }
    }
    files.sort();
    Ok(files)
}

fn read_certificate(file: &Path) -> Result<Certificate> {
    let text = read_bounded(file, MAX_CERTIFICATE)?;
    let block = pem::decode_first(&text, &pem::PemLimits::BUNDLE)?;
    let block = block.filter(|block| block.label == "CERTIFICATE");
    let block = block.context("it holds no certificate")?;
    Ok(Certificate::parse(&block.der)?)
}

/// Begins the name of a certificate of which only its serial is known. No certname has a blank.
const NAMELESS: &str = "serial ";
const MAX_CERTIFICATE: u64 = 256 * 1024; // with the text that openssl writes above it
