//! Files that hold secrets, and how they are read: only if nobody but their owner may.
//!
//! Here, because issuers' keys and the keys of webhooks are read in crates that do not know each other.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Why a secret file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileFault {
    /// Group or others could read the secret.
    #[error("{} is accessible by group or others (mode {mode:04o}); run `chmod 600 {}`", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A directory, device or pipe.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// Longer than any secret of ours.
    #[error("{} is longer than {limit} octets", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
    /// Nothing is overwritten.
    #[error("{} exists already and is not overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {act} {}", path.display())]
    Io {
        /// What was tried: read or write.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
}

/// Reads a secret, unless anyone but the owner may.
///
/// # Errors
/// If the file is exposed, too long, no file, or unreadable.
pub fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, FileFault> {
    read_if(path, |mode| mode & 0o077 == 0)
}

/// Reads a secret of another program, whose mode is that program's business.
///
/// # Errors
/// If the file is too long, no file, or unreadable.
pub fn read_of_any_mode(path: &Path) -> Result<Zeroizing<Vec<u8>>, FileFault> {
    read_if(path, |_| true)
}

fn read_if(path: &Path, is_closed: impl Fn(u32) -> bool) -> Result<Zeroizing<Vec<u8>>, FileFault> {
    let failed = |source| FileFault::Io {
        act: "read",
        path: path.to_owned(),
        source,
    };
    // Looked at before it is opened, because opening a pipe waits for its writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(FileFault::NotAFile {
            path: path.to_owned(),
        });
    }
    let file = File::open(path).map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    let mode = facts.mode() & 0o7777;
    if !is_closed(mode) {
        return Err(FileFault::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    // The buffer is as large as it will ever be: a growing one leaves copies behind.
    let mut content = Zeroizing::new(Vec::with_capacity(CAPACITY));
    file.take(LIMIT.saturating_add(1))
        .read_to_end(&mut content)
        .map_err(failed)?;
    if content.len() >= CAPACITY {
        return Err(FileFault::TooLarge {
            path: path.to_owned(),
            limit: LIMIT,
        });
    }
    Ok(content)
}

/// The longest file that is read, in octets: twenty times the largest key.
pub const LIMIT: u64 = 64 * 1024;
const CAPACITY: usize = 64 * 1024 + 1;
