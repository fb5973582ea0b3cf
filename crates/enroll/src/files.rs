//! How files are installed: whole or not at all, with their owner and mode from the first moment they can be seen.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::Path;

use countersign_private_keys::private_file::FileFault;

use crate::error::{EnrolError, Result};
use crate::folder::{Entry, Folder, led_elsewhere, set_mode};

/// Whose files they are, and who may read the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Their user; none: who runs this.
    pub user: Option<u32>,
    /// Their group.
    pub group: Option<u32>,
    /// The mode of the key.
    pub key_mode: u32,
}

/// What kind of file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A private key: it is never replaced.
    Key,
    /// What anybody may read: it is replaced.
    Public,
}

/// What a file may hold that is nobody else's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    Token,
    /// A group may be meant to read it.
    Key,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Now,
    /// It was as it should be, or, for a key, it was there.
    Before,
}

impl Ownership {
    /// From `USER[:GROUP]`, names or numbers.
    ///
    /// # Errors
    /// If there is no such user or group.
    pub fn parse(owner: Option<&str>, key_mode: u32) -> Result<Self> {
        let (user, group) = match owner.map(|text| text.split_once(':').unwrap_or((text, ""))) {
            None => (None, None),
            Some((user, group)) => {
                let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
                let (user, own_group) = user_of(user, &passwd)?;
                let group = match group {
                    "" => own_group,
                    name => {
                        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
                        Some(group_of(name, &groups)?)
                    }
                };
                (Some(user), group)
            }
        };
        Ok(Self {
            user,
            group,
            key_mode,
        })
    }

    /// Puts `content` under `path`, which is below `base` or in it. After a crash there is what was there before, or all of
    /// the new.
    pub(crate) fn install(
        &self,
        base: &Path,
        path: &Path,
        content: &[u8],
        kind: Kind,
    ) -> Result<Written> {
        self.place(base, path, content, kind)
            .map_err(|source| failed("write", path, source))
    }

    fn place(&self, base: &Path, path: &Path, content: &[u8], kind: Kind) -> io::Result<Written> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let inside = match folder_of(path) == base {
            true => Path::new(name),
            false => path
                .strip_prefix(base)
                .map_err(|_| io::ErrorKind::InvalidFilename)?,
        };
        let adopt = |open: &File, name: &OsStr| self.adopt(open, name);
        let folder = Folder::named(base, &adopt)?.holding(inside, &adopt)?;
        // One writer at a time, so that what a crash left behind can be told from what somebody is writing.
        folder.lock();
        if self.is_done(&folder, name, content, kind)? {
            return Ok(Written::Before);
        }
        folder.replace(name, |file| {
            self.own(file)?;
            set_mode(file, self.mode(kind))?;
            file.write_all(content)
        })?;
        Ok(Written::Now)
    }

    fn is_done(
        &self,
        folder: &Folder,
        name: &OsStr,
        content: &[u8],
        kind: Kind,
    ) -> io::Result<bool> {
        let Some(mut entry) = folder.entry(name)? else {
            return Ok(false);
        };
        match (kind, &entry) {
            (Kind::Key, Entry::File(_)) => Ok(true),
            (Kind::Key, Entry::Other) => Err(led_elsewhere(name, "key")),
            (Kind::Public, Entry::Other) => Ok(false),
            (Kind::Public, Entry::File(file)) => {
                let facts = file.metadata()?;
                let is_right = facts.mode() & 0o777 == self.mode(kind)
                    && self.user.is_none_or(|user| user == facts.uid())
                    && self.group.is_none_or(|group| group == facts.gid());
                Ok(is_right && entry.has(content)?)
            }
        }
    }

    fn mode(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Key => self.key_mode,
            Kind::Public => 0o644,
        }
    }

    /// A folder that was missing is made so that the owner of the files in it can use it.
    fn adopt(&self, open: &File, name: &OsStr) -> io::Result<()> {
        let mode = match name == PRIVATE_KEYS {
            true => 0o750,
            false => 0o755,
        };
        set_mode(open, mode)?;
        self.own(open)
    }

    fn own(&self, open: &File) -> io::Result<()> {
        match self.user.is_some() || self.group.is_some() {
            true => fchown(open, self.user, self.group),
            false => Ok(()),
        }
    }
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// A file's content; `None` if there is none.
///
/// # Errors
/// If it is there and cannot be read.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, error)),
    }
}

fn failed(act: &'static str, path: &Path, source: io::Error) -> EnrolError {
    let path = path.to_owned();
    EnrolError::File(FileFault::Io { act, path, source })
}

/// What to say about a secret in a file that others can read.
pub(crate) fn exposure(path: &Path, secret: Secret) -> Option<String> {
    let mode = fs::metadata(path).ok()?.mode();
    let (what, others) = match secret {
        Secret::Token => ("token", 0o077),
        Secret::Key => ("key", 0o007),
    };
    (mode & others != 0).then(|| {
        format!(
            "others can read the {what} in {path}: run `chmod 600 {path}`",
            path = path.display()
        )
    })
}

fn user_of(name: &str, passwd: &str) -> Result<(u32, Option<u32>)> {
    if name.is_empty() {
        let what = "--owner names no user: write USER or USER:GROUP";
        return Err(EnrolError::Arguments(what.to_owned(), None));
    }
    if let Ok(number) = name.parse() {
        return Ok((number, None));
    }
    let fields = line_of(name, passwd);
    let numbers = fields.and_then(|fields| {
        let user = fields.get(2)?.parse().ok()?;
        Some((user, fields.get(3)?.parse().ok()))
    });
    numbers.ok_or_else(|| unknown("user", name, "/etc/passwd"))
}

fn group_of(name: &str, groups: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let number = line_of(name, groups).and_then(|fields| fields.get(2)?.parse().ok());
    number.ok_or_else(|| unknown("group", name, "/etc/group"))
}

/// The fields of the line that begins with a name (passwd(5), group(5)).
fn line_of<'a>(name: &str, table: &'a str) -> Option<Vec<&'a str>> {
    let mut lines = table
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|fields| fields.first() == Some(&name))
}

fn unknown(what: &str, name: &str, file: &str) -> EnrolError {
    let what = format!(
        "--owner: there is no {what} {name:?} in {file}; one from elsewhere is given by number"
    );
    EnrolError::Arguments(what, None)
}

/// Puppet's name for a folder that only its owner and group look into.
pub(crate) const PRIVATE_KEYS: &str = "private_keys";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::with_causes;

    const OWN: Ownership = Ownership {
        user: None,
        group: None,
        key_mode: 0o640,
    };

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn files_are_whole_and_have_their_modes() {
        let temporary = tempfile::tempdir().unwrap();
        let base = temporary.path().join("a");
        let key = base.join("private_keys/x.pem");
        let public = base.join("x.pem");
        let install_key = |content: &[u8]| OWN.install(&base, &key, content, Kind::Key).unwrap();
        assert_eq!(install_key(b"one"), Written::Now);
        assert_eq!((mode(&key), mode(key.parent().unwrap())), (0o640, 0o750));
        // A key is never replaced.
        assert_eq!(install_key(b"two"), Written::Before);
        assert_eq!(fs::read(&key).unwrap(), b"one");

        fs::write(public.with_file_name(".x.pem.new"), b"left by a crash").unwrap();
        for (content, written) in [
            (b"one", Written::Now),
            (b"one", Written::Before),
            (b"two", Written::Now),
        ] {
            assert_eq!(
                OWN.install(&base, &public, content, Kind::Public).unwrap(),
                written
            );
            assert_eq!(
                (fs::read(&public).unwrap(), mode(&public)),
                (content.to_vec(), 0o644)
            );
        }
        assert_eq!(fs::read_dir(temporary.path().join("a")).unwrap().count(), 2);
    }

    /// What the owner of the folder may have planted under every name that is made or used below it. Nothing is written through
    /// a link; the folder itself may be one.
    #[test]
    fn no_link_below_the_folder_is_followed() {
        let temporary = tempfile::tempdir().unwrap();
        let (real, base) = (temporary.path().join("real"), temporary.path().join("ssl"));
        let (elsewhere, victim) = (
            temporary.path().join("elsewhere"),
            temporary.path().join("victim"),
        );
        let reset = || {
            let _absent_at_first = fs::remove_dir_all(&real);
            let _absent_at_first = fs::remove_dir_all(&elsewhere);
            let _absent_at_first = fs::remove_file(&base);
            fs::create_dir_all(real.join("sub")).unwrap();
            fs::create_dir(&elsewhere).unwrap();
            fs::write(&victim, b"precious").unwrap();
            symlink(&real, &base).unwrap();
        };
        let nowhere = temporary.path().join("nowhere");
        for (planted, target, file, kind, is_written) in [
            ("certs", &elsewhere, "certs/x.pem", Kind::Public, false),
            ("certs", &nowhere, "certs/x.pem", Kind::Public, false),
            ("certs", &victim, "certs/x.pem", Kind::Public, false),
            (
                "sub/certs",
                &elsewhere,
                "sub/certs/x.pem",
                Kind::Public,
                false,
            ),
            (
                "private_keys",
                &elsewhere,
                "private_keys/x.pem",
                Kind::Key,
                false,
            ),
            // A link in the place of a file is replaced, and one in the place of a key is somebody's business.
            ("x.pem", &victim, "x.pem", Kind::Public, true),
            ("x.pem", &nowhere, "x.pem", Kind::Public, true),
            ("x.pem", &victim, "x.pem", Kind::Key, false),
            ("x.pem", &nowhere, "x.pem", Kind::Key, false),
            (".x.pem.new", &victim, "x.pem", Kind::Public, true),
            (".x.pem.new", &nowhere, "x.pem", Kind::Key, true),
        ] {
            reset();
            symlink(target, real.join(planted)).unwrap();
            let file = base.join(file);
            let case = format!("{planted} to {}: {}", target.display(), file.display());
            let done = OWN.install(&base, &file, b"content", kind);
            assert_eq!(done.is_ok(), is_written, "{case}: {done:?}");
            assert_eq!(fs::read(&victim).unwrap(), b"precious", "{case}");
            assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "{case}");
            assert!(!nowhere.exists(), "{case}");
            match done {
                Ok(_) => {
                    assert!(fs::symlink_metadata(&file).unwrap().is_file(), "{case}");
                    assert_eq!(fs::read(&file).unwrap(), b"content", "{case}");
                }
                Err(fault) => assert!(with_causes(&fault).contains("symbolic"), "{fault:?}"),
            }
        }
        // Nor is one made into what is missing of the folder that was named.
        reset();
        fs::remove_dir_all(&real).unwrap();
        OWN.install(&base, &base.join("x.pem"), b"content", Kind::Public)
            .unwrap_err();
        assert!(!real.exists());
        // Nothing outside of the folder is meant.
        reset();
        let above = base.join("../victim");
        OWN.install(&base, &above, b"content", Kind::Public)
            .unwrap_err();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    /// Only the superuser can give files away; for anybody else they stay their own.
    #[test]
    fn everything_that_is_made_belongs_to_the_owner() {
        let own = rustix::process::geteuid();
        let (user, group) = match own.is_root() {
            true => (4711, 4712),
            false => (own.as_raw(), rustix::process::getegid().as_raw()),
        };
        let owned = Ownership {
            user: Some(user),
            group: Some(group),
            ..OWN
        };
        let temporary = tempfile::tempdir().unwrap();
        let base = temporary.path().join("a/ssl");
        let file = base.join("certs/x.pem");
        let install = |content: &[u8]| owned.install(&base, &file, content, Kind::Public).unwrap();
        assert_eq!(install(b"one"), Written::Now);
        assert_eq!(install(b"one"), Written::Before);
        for path in ["a", "a/ssl", "a/ssl/certs", "a/ssl/certs/x.pem"] {
            let facts = fs::metadata(temporary.path().join(path)).unwrap();
            assert_eq!((facts.uid(), facts.gid()), (user, group), "{path}");
        }
        let above = fs::metadata(temporary.path()).unwrap();
        assert_eq!(above.uid(), own.as_raw());
    }

    #[test]
    fn owners_are_found_by_name_or_number() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\npuppet:x:52:54::/var:/bin/false\n";
        assert_eq!(user_of("puppet", passwd).unwrap(), (52, Some(54)));
        assert_eq!(user_of("77", passwd).unwrap(), (77, None));
        assert_eq!(group_of("ssl", "ssl:x:9:a,b\n").unwrap(), 9);
        for fault in [
            user_of("nobody", passwd).unwrap_err(),
            user_of("", passwd).unwrap_err(),
            group_of("ssl", "").unwrap_err(),
        ] {
            assert!(fault.to_string().contains("--owner"), "{fault}");
        }
    }
}
