//! A directory that Puppet Server can start on, written from nothing.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use countersign_keys::{CopyFor, ForeignKey};
use countersign_pki::pem;

use super::{INVENTORY, KEY, PUBLIC_KEY, REQUESTS, Row, SERIAL, SIGNED, serial_file};
use crate::data_folder::create_new;

/// The directory, as long as it is being written.
#[derive(Debug)]
pub(crate) struct Target {
    folder: PathBuf,
}

/// `inventory.txt`, line by line.
pub(crate) struct Inventory {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Target {
    /// Begins in a directory that is new or empty.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let unusable = || format!("cannot create {}", folder.display());
        create_folder(folder).with_context(unusable)?;
        let is_empty = fs::read_dir(folder)
            .with_context(unusable)?
            .next()
            .is_none();
        ensure!(
            is_empty,
            "{} is not empty: name a new directory, nothing is overwritten",
            folder.display()
        );
        for name in [SIGNED, REQUESTS] {
            create_folder(&folder.join(name)).with_context(unusable)?;
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// The key and its public half.
    pub(crate) fn write_key(&self, key: &ForeignKey) -> Result<()> {
        key.copy_to(&self.folder.join(KEY), CopyFor::OwnerAndGroup)?;
        let public = pem::encode("PUBLIC KEY", key.spki_der());
        self.write(PUBLIC_KEY, public.as_bytes())
    }

    pub(crate) fn write_serial(&self, next: u64) -> Result<()> {
        self.write(SERIAL, serial_file::written(next).as_bytes())
    }

    /// A file that everybody may read.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        create_new(&path, MODE)
            .and_then(|mut file| file.write_all(content))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// `signed/NAME.pem` or `requests/NAME.pem`. A name that is no file name is refused.
    pub(crate) fn write_named(&self, folder: &str, name: &str, content: &str) -> Result<()> {
        ensure!(
            !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']),
            "{name:?} cannot be the name of a file"
        );
        self.write(&format!("{folder}/{name}.pem"), content.as_bytes())
    }

    pub(crate) fn inventory(&self) -> Result<Inventory> {
        let path = self.folder.join(INVENTORY);
        let file =
            create_new(&path, MODE).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Inventory {
            file: BufWriter::new(file),
            path,
        })
    }

    /// Returns when everything is on disk. One call for the whole file system is quicker than one for each of ten
    /// thousands of files.
    pub(crate) fn finish(self) -> Result<()> {
        let synced = File::open(&self.folder).and_then(|folder| Ok(rustix::fs::syncfs(&folder)?));
        synced.with_context(|| format!("cannot write {} to disk", self.folder.display()))
    }
}

impl Inventory {
    pub(crate) fn push(&mut self, row: &Row) -> Result<()> {
        writeln!(self.file, "{row}")
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        let flushed = self.file.flush();
        flushed.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o750).create(path)
}

/// Everybody may read.
const MODE: u32 = 0o644;
