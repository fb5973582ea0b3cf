//! Every certificate that a directory knows of: from its inventory, its signed files and its CRL.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use countersign_authority::{Chain, Revoked};
use countersign_pki::{Certificate, Crl, Serial, UnixTime, pem};

use super::fault::in_full;
use super::source::read_bounded;
use super::{CadirFault, CertificateFileFault, INVENTORY, Problems, ReadFault, Row, SIGNED};

/// One certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Its serial.
    pub serial: Serial,
    /// The name it was issued for.
    pub name: String,
    /// The start of its validity.
    pub not_before: UnixTime,
    /// The end of its validity.
    pub not_after: UnixTime,
    /// Where it is.
    pub file: Option<PathBuf>,
    /// Whether it is the one of its name that Puppet Server shows: the one in the file of that name.
    pub is_shown: bool,
    /// Its revocation.
    pub revoked: Option<Revoked>,
}

impl Holding {
    /// Whether nothing is known but that it is revoked.
    #[must_use]
    pub fn is_nameless(name: &str) -> bool {
        name.starts_with(NAMELESS)
    }

    /// The certificate itself, read again: a large directory is not kept in memory.
    ///
    /// # Errors
    /// If it is no longer there as it was.
    pub fn certificate(&self) -> Result<Option<Certificate>, CadirFault> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let path = || file.clone();
        let certificate = read_certificate(file).map_err(|source| CadirFault::Certificate {
            path: path(),
            source,
        })?;
        match certificate.serial() == self.serial {
            true => Ok(Some(certificate)),
            false => Err(CadirFault::ChangedFile { path: path() }),
        }
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
pub struct Holdings {
    /// In that order.
    pub all: Vec<Holding>,
    by_serial: HashMap<Serial, usize>,
}

impl Holdings {
    pub(super) fn read(
        folder: &Path,
        chain: &Chain,
        own: &Crl,
        problems: &mut Problems,
        each_file: &mut dyn FnMut(usize),
    ) -> Result<Self, CadirFault> {
        let mut holdings = Self::default();
        holdings.read_inventory(&folder.join(INVENTORY), chain, problems)?;
        holdings.read_signed(&folder.join(SIGNED), chain, problems, each_file)?;
        holdings.read_revoked(own, chain);
        Ok(holdings)
    }

    /// Where there is nothing but the list of what was revoked.
    #[must_use]
    pub fn of_revoked(own: &Crl, chain: &Chain) -> Self {
        let mut holdings = Self::default();
        holdings.read_revoked(own, chain);
        holdings
    }

    /// The largest serial up to a limit; larger ones were not counted.
    pub(super) fn highest(&self, limit: u64) -> Option<u64> {
        let numbers = self.all.iter().filter_map(|one| one.serial.to_u64());
        numbers.filter(|number| *number <= limit).max()
    }

    fn read_inventory(
        &mut self,
        file: &Path,
        chain: &Chain,
        problems: &mut Problems,
    ) -> Result<(), ReadFault> {
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
        .map_err(|source| ReadFault::Io {
            path: file.to_owned(),
            source,
        })
    }

    fn read_signed(
        &mut self,
        folder: &Path,
        chain: &Chain,
        problems: &mut Problems,
        each_file: &mut dyn FnMut(usize),
    ) -> Result<(), CadirFault> {
        let files = pem_files(folder)?;
        let mut foreign = 0_usize;
        let mut misnamed = Vec::new();
        for (name, file) in &files {
            each_file(files.len());
            let certificate = match read_certificate(file) {
                Ok(certificate) => certificate,
                Err(fault) => {
                    problems.add(file, format!("left out: {}", in_full(&fault)));
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
        if foreign > 0 && foreign == files.len() {
            return Err(CadirFault::ForeignCertificates {
                folder: folder.to_owned(),
            });
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
pub(super) fn pem_files(folder: &Path) -> Result<Vec<(String, PathBuf)>, ReadFault> {
    let unreadable = |source| ReadFault::Io {
        path: folder.to_owned(),
        source,
    };
    if !folder.try_exists().map_err(unreadable)? {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
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

fn read_certificate(file: &Path) -> Result<Certificate, CertificateFileFault> {
    let text = read_bounded(file, MAX_CERTIFICATE)?;
    let block = pem::decode_first(&text, &pem::PemLimits::BUNDLE)?;
    let block = block.filter(|block| block.label == "CERTIFICATE");
    let block = block.ok_or(CertificateFileFault::Empty)?;
    Ok(Certificate::parse(&block.der)?)
}

/// Begins the name of a certificate of which only its serial is known. No certname has a blank.
const NAMELESS: &str = "serial ";
const MAX_CERTIFICATE: u64 = 256 * 1024; // with the text that openssl writes above it
