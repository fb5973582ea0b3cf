//! Files that hold secrets: readable by their owner alone, complete or absent, never overwritten.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
pub(crate) use countersign_authority::private_file::read_of_any_mode;
pub use countersign_authority::private_file::{FileFault, read};

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

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_authority::private_file::LIMIT;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    const CAPACITY: usize = 64 * 1024 + 1;

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
