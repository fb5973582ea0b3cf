//! A directory that Puppet Server can start on, written from nothing.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::{INVENTORY, REQUESTS, Row, SERIAL, SIGNED, WriteFault, serial_file};

/// The directory, as long as it is being written.
#[derive(Debug)]
pub struct Target {
    folder: PathBuf,
}

/// `inventory.txt`, line by line.
pub struct Inventory {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Target {
    /// Begins in a directory that is new or empty.
    ///
    /// # Errors
    /// If it is neither, or cannot be made.
    pub fn create(folder: &Path) -> Result<Self, WriteFault> {
        let unusable = |source| WriteFault::Create {
            path: folder.to_owned(),
            source,
        };
        create_folder(folder).map_err(unusable)?;
        let mut entries = fs::read_dir(folder).map_err(unusable)?;
        if entries.next().is_some() {
            return Err(WriteFault::NotEmpty {
                folder: folder.to_owned(),
            });
        }
        for name in [SIGNED, REQUESTS] {
            create_folder(&folder.join(name)).map_err(unusable)?;
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Where a file of the directory is; the key is written there by those who hold it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The next serial.
    ///
    /// # Errors
    /// If the file is there or cannot be written.
    pub fn write_serial(&self, next: u64) -> Result<(), WriteFault> {
        self.write(SERIAL, serial_file::written(next).as_bytes())
    }

    /// A file that everybody may read.
    ///
    /// # Errors
    /// If it is there or cannot be written.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), WriteFault> {
        let path = self.path(name);
        let written = create_public(&path).and_then(|mut file| file.write_all(content));
        written.map_err(|source| WriteFault::Write { path, source })
    }

    /// `signed/NAME.pem` or `requests/NAME.pem`. A name that is no file name is refused.
    ///
    /// # Errors
    /// If it is none, is there, or cannot be written.
    pub fn write_named(&self, folder: &str, name: &str, content: &str) -> Result<(), WriteFault> {
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            return Err(WriteFault::FileName {
                name: name.to_owned(),
            });
        }
        self.write(&format!("{folder}/{name}.pem"), content.as_bytes())
    }

    /// Begins the inventory.
    ///
    /// # Errors
    /// If it is there or cannot be written.
    pub fn inventory(&self) -> Result<Inventory, WriteFault> {
        let path = self.path(INVENTORY);
        match create_public(&path) {
            Ok(file) => Ok(Inventory {
                file: BufWriter::new(file),
                path,
            }),
            Err(source) => Err(WriteFault::Write { path, source }),
        }
    }

    /// Returns when everything is on disk. One call for the whole file system is quicker than one for each of ten
    /// thousands of files.
    ///
    /// # Errors
    /// If it cannot be brought there.
    pub fn finish(self) -> Result<(), WriteFault> {
        let synced = File::open(&self.folder).and_then(|folder| Ok(rustix::fs::syncfs(&folder)?));
        synced.map_err(|source| WriteFault::Sync {
            folder: self.folder,
            source,
        })
    }
}

impl Inventory {
    /// Adds a line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn push(&mut self, row: &Row) -> Result<(), WriteFault> {
        let written = writeln!(self.file, "{row}");
        written.map_err(|source| self.fault(source))
    }

    /// Writes what is not written yet.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> Result<(), WriteFault> {
        let flushed = self.file.flush();
        flushed.map_err(|source| self.fault(source))
    }

    fn fault(&self, source: io::Error) -> WriteFault {
        WriteFault::Write {
            path: self.path.clone(),
            source,
        }
    }
}

/// A new file that everybody may read, whatever the umask.
fn create_public(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    Ok(file)
}

fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o750).create(path)
}
