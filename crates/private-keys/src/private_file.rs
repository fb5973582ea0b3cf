//! Files that hold secrets: readable by their owner alone, complete or absent, never overwritten.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
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

/// Reads a secret that an administrator handed over and keeps: its group may read it, as where volumes are mounted for a
/// program that is not root, and nobody else.
///
/// # Errors
/// If the file is exposed, too long, no file, or unreadable.
pub fn read_of_group(path: &Path) -> Result<Zeroizing<Vec<u8>>, FileFault> {
    read_if(path, |mode| mode & 0o037 == 0)
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

/// Writes a secret with mode 0600. Afterwards the file is complete and durable under its name, or there is none.
///
/// # Errors
/// If a file of that name exists, or the operating system refuses.
pub fn write_new(path: &Path, content: &[u8]) -> Result<(), FileFault> {
    let failed = |source| FileFault::Io {
        act: "write",
        path: path.to_owned(),
        source,
    };
    let exists = || FileFault::Exists {
        path: path.to_owned(),
    };
    // Only to be quick about the usual refusal; the link below is what decides.
    if fs::symlink_metadata(path).is_ok() {
        return Err(exists());
    }
    let draft = Draft::beside(path).map_err(failed)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft.0)
        .map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    // A rename would replace a file that appeared meanwhile; a link refuses.
    fs::hard_link(&draft.0, path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => exists(),
        _ => failed(source),
    })?;
    drop(draft);
    File::open(directory_of(path))
        .and_then(|directory| directory.sync_all())
        .map_err(failed)
}

/// The name under which a file grows; gone at the end, however that comes.
struct Draft(PathBuf);

impl Draft {
    fn beside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut tag = [0; 8];
        rand::fill(&mut tag).map_err(|_| io::Error::other("the random source failed"))?;
        let mut draft = std::ffi::OsString::from(".");
        draft.push(name);
        draft.push(format!(".{:016x}", u64::from_be_bytes(tag)));
        Ok(Self(directory_of(path).join(draft)))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.0.display(), %error, "cannot remove temporary file");
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// The longest file that is read, in octets: twenty times the largest key.
const LIMIT: u64 = 64 * 1024;
const CAPACITY: usize = 64 * 1024 + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn names(directory: &Path) -> Vec<String> {
        fs::read_dir(directory)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn written_files_are_private_and_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        write_new(&path, b"secret").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(read(&path).unwrap().as_slice(), b"secret");
        assert_eq!(names(directory.path()), ["key.pem"]);
    }

    #[test]
    fn nothing_is_overwritten_or_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        write_new(&path, b"first").unwrap();
        assert!(matches!(
            write_new(&path, b"second"),
            Err(FileFault::Exists { .. })
        ));
        assert_eq!(read(&path).unwrap().as_slice(), b"first");
        let dangling = directory.path().join("link.pem");
        std::os::unix::fs::symlink(directory.path().join("nowhere"), &dangling).unwrap();
        assert!(matches!(
            write_new(&dangling, b"x"),
            Err(FileFault::Exists { .. })
        ));
        assert!(matches!(
            write_new(&directory.path().join("no/key"), b"x"),
            Err(FileFault::Io { act: "write", .. })
        ));
        assert_eq!(names(directory.path()).len(), 2);
    }

    #[test]
    fn one_of_many_racing_writers_wins() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        let winners = std::thread::scope(|scope| {
            let path = &path;
            let writers: Vec<_> = (0..8_u8)
                .map(|n| scope.spawn(move || write_new(path, &[n; 100]).is_ok().then_some(n)))
                .collect();
            writers
                .into_iter()
                .filter_map(|w| w.join().unwrap())
                .collect::<Vec<_>>()
        });
        assert_eq!(winners.len(), 1);
        assert_eq!(
            read(&path).unwrap().as_slice(),
            [*winners.first().unwrap(); 100]
        );
        assert_eq!(names(directory.path()), ["key.pem"]);
    }

    #[test]
    fn exposed_and_odd_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        write_new(&path, b"secret").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601, 0o644] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let text = read(&path).unwrap_err().to_string();
            assert!(
                text.contains(&format!("chmod 600 {}", path.display())),
                "{text}"
            );
            assert!(text.contains(&format!("{mode:04o}")), "{text}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(read(&path).unwrap().as_slice(), b"secret");
        assert!(matches!(
            read(directory.path()),
            Err(FileFault::NotAFile { .. })
        ));
        assert!(matches!(
            read(&directory.path().join("none")),
            Err(FileFault::Io { act: "read", .. })
        ));
        let large = directory.path().join("large");
        write_new(&large, &vec![b'a'; CAPACITY]).unwrap();
        assert!(matches!(
            read(&large),
            Err(FileFault::TooLarge { limit: LIMIT, .. })
        ));
        let full = directory.path().join("full");
        write_new(&full, &vec![b'a'; CAPACITY - 1]).unwrap();
        assert_eq!(read(&full).unwrap().len(), CAPACITY - 1);
    }
}
