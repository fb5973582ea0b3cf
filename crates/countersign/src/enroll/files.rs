//! How files are installed: whole or not at all, with their owner and mode from the first moment they can be seen.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::fs::{FlockOperation, flock};

use crate::data_folder::create_new;

/// Whose files they are, and who may read the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ownership {
    pub(super) user: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) key_mode: u32,
}

/// What kind of file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A private key: it is never replaced.
    Key,
    /// What anybody may read: it is replaced.
    Public,
}

/// What a file may hold that is nobody else's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secret {
    Token,
    /// A group may be meant to read it.
    Key,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Now,
    /// It was as it should be, or, for a key, it was there.
    Before,
}

impl Ownership {
    /// From `USER[:GROUP]`, names or numbers.
    pub(super) fn parse(owner: Option<&str>, key_mode: u32) -> Result<Self> {
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

    /// Puts `content` under `path`. After a crash there is what was there before, or all of the new.
    pub(super) fn install(&self, path: &Path, content: &[u8], kind: Kind) -> Result<Written> {
        self.place(path, content, kind)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn place(&self, path: &Path, content: &[u8], kind: Kind) -> io::Result<Written> {
        let folder = folder_of(path);
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        self.create_folder(folder)?;
        let open_folder = File::open(folder)?;
        // One writer at a time, so that what a crash left behind can be told from what somebody is writing. File systems
        // without locks have one writer by other means, or take their chance.
        let _unlocked_where_there_are_no_locks = flock(&open_folder, FlockOperation::LockExclusive);
        if self.is_done(path, content, kind)? {
            return Ok(Written::Before);
        }
        let mut draft = std::ffi::OsString::from(".");
        draft.push(name);
        draft.push(".new");
        let draft = folder.join(draft);
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let written = self.write_draft(&draft, content, kind);
        if let Err(error) = written.and_then(|()| fs::rename(&draft, path)) {
            let _told_below = fs::remove_file(&draft);
            return Err(error);
        }
        open_folder.sync_all()?;
        Ok(Written::Now)
    }

    fn is_done(&self, path: &Path, content: &[u8], kind: Kind) -> io::Result<bool> {
        let facts = match fs::symlink_metadata(path) {
            Ok(facts) => facts,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let is_right = facts.is_file()
            && facts.mode() & 0o777 == self.mode(kind)
            && self.user.is_none_or(|user| user == facts.uid())
            && self.group.is_none_or(|group| group == facts.gid());
        Ok(kind == Kind::Key || (is_right && fs::read(path)? == content))
    }

    fn write_draft(&self, draft: &Path, content: &[u8], kind: Kind) -> io::Result<()> {
        // For its owner alone until it has the right one.
        let mut file = create_new(draft, 0o600)?;
        if self.user.is_some() || self.group.is_some() {
            fchown(&file, self.user, self.group)?;
        }
        file.set_permissions(fs::Permissions::from_mode(self.mode(kind)))?;
        file.write_all(content)?;
        file.sync_all()
    }

    fn mode(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Key => self.key_mode,
            Kind::Public => 0o644,
        }
    }

    /// A folder that is missing is made so that the owner of the files in it can use it.
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        if let Some(above) = folder
            .parent()
            .filter(|above| !above.as_os_str().is_empty())
        {
            self.create_folder(above)?;
        }
        let mode = match folder.file_name() {
            Some(name) if name == PRIVATE_KEYS => 0o750,
            Some(_) | None => 0o755,
        };
        match DirBuilder::new().mode(mode).create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            made => made?,
        }
        let open = File::open(folder)?;
        open.set_permissions(fs::Permissions::from_mode(mode))?;
        if self.user.is_some() || self.group.is_some() {
            fchown(&open, self.user, self.group)?;
        }
        Ok(())
    }
}

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// A file's content; `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// What to say about a secret in a file that others can read.
pub(super) fn exposure(path: &Path, secret: Secret) -> Option<String> {
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
    ensure!(
        !name.is_empty(),
        "--owner names no user: write USER or USER:GROUP"
    );
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

fn unknown(what: &str, name: &str, file: &str) -> anyhow::Error {
    anyhow!("--owner: there is no {what} {name:?} in {file}; one from elsewhere is given by number")
}

/// Puppet's name for a folder that only its owner and group look into.
pub(super) const PRIVATE_KEYS: &str = "private_keys";

#[cfg(test)]
mod tests {
    use super::*;

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
        let key = temporary.path().join("a/private_keys/x.pem");
        let public = temporary.path().join("a/x.pem");
        assert_eq!(OWN.install(&key, b"one", Kind::Key).unwrap(), Written::Now);
        assert_eq!((mode(&key), mode(key.parent().unwrap())), (0o640, 0o750));
        // A key is never replaced.
        assert_eq!(
            OWN.install(&key, b"two", Kind::Key).unwrap(),
            Written::Before
        );
        assert_eq!(fs::read(&key).unwrap(), b"one");

        fs::write(public.with_file_name(".x.pem.new"), b"left by a crash").unwrap();
        for (content, written) in [
            (b"one", Written::Now),
            (b"one", Written::Before),
            (b"two", Written::Now),
        ] {
            assert_eq!(
                OWN.install(&public, content, Kind::Public).unwrap(),
                written
            );
            assert_eq!(
                (fs::read(&public).unwrap(), mode(&public)),
                (content.to_vec(), 0o644)
            );
        }
        assert_eq!(fs::read_dir(temporary.path().join("a")).unwrap().count(), 2);
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
