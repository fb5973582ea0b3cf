//! The files under the data directory, and how they are written: whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use countersign_authority::IssuerId;
use serde::{Deserialize, Serialize};

/// The data directory.
#[derive(Clone, Debug)]
pub(crate) struct DataFolder(PathBuf);

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrecy {
    /// Only the owner.
    Private,
    /// Anybody who can get into the directory.
    Public,
}

/// What `server.json` says: the addresses under which the server was last started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerFile {
    /// Puppet and native API.
    pub(crate) puppet: String,
    /// Kubernetes API, unless it is off.
    pub(crate) kubernetes: Option<String>,
    /// What Foreman takes for a smart proxy, unless it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) foreman: Option<String>,
    /// Metrics and health, unless they are off.
    #[serde(default)]
    pub(crate) metrics: Option<String>,
    /// The server's certname.
    pub(crate) certname: String,
}

impl DataFolder {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self(root)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.join("countersign.db")
    }

    pub(crate) fn server_file(&self) -> PathBuf {
        self.0.join("server.json")
    }

    pub(crate) fn autosign_file(&self) -> PathBuf {
        self.0.join("autosign.conf")
    }

    pub(crate) fn infra_inventory(&self) -> PathBuf {
        self.0.join("infra_inventory.txt")
    }

    pub(crate) fn issuer(&self, id: &IssuerId, file: &str) -> PathBuf {
        self.0.join("issuers").join(id.as_str()).join(file)
    }

    /// The issuers that have files here, by name.
    pub(crate) fn issuers(&self) -> Result<Vec<IssuerId>> {
        let path = self.0.join("issuers");
        let unreadable = || format!("cannot read {}", path.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(&path).with_context(unreadable)? {
            let name = entry.with_context(unreadable)?.file_name();
            found.extend(name.to_str().and_then(|name| IssuerId::parse(name).ok()));
        }
        found.sort();
        Ok(found)
    }

    /// Exists while a CA is being made or imported, and after that was cut short.
    pub(crate) fn import_marker(&self) -> PathBuf {
        self.0.join("import-unfinished")
    }

    /// Fails where an import was cut short: what it has written is not the whole authority.
    pub(crate) fn ensure_no_unfinished_import(&self) -> Result<()> {
        ensure!(
            !self.import_marker().try_exists()?,
            "{root} holds a CA that was being made or imported when that was cut short: run the same `countersign ca import` or `countersign ca setup` again, it begins anew",
            root = self.0.display()
        );
        Ok(())
    }

    pub(crate) fn tls(&self, file: &str) -> PathBuf {
        self.0.join("tls").join(file)
    }

    pub(crate) fn audit(&self, file: &str) -> PathBuf {
        self.0.join("audit").join(file)
    }

    /// Says where the store is, if it is not here.
    pub(crate) fn store_elsewhere(&self) -> PathBuf {
        self.0.join("store")
    }

    /// What is remembered of the database outside of it. No backup has it: what is restored goes on from another state.
    pub(crate) fn witness(&self) -> PathBuf {
        self.0.join("witness.json")
    }

    pub(crate) fn admin(&self, file: &str) -> PathBuf {
        self.0.join("admin").join(file)
    }

    /// Creates the directory, for its owner alone. One that exists and is empty is closed to others; one that holds
    /// files is left as it is, because others may rely on them, and the answer says whether it is open.
    pub(crate) fn create(&self) -> Result<Openness> {
        let root = self.0.display();
        create_folder(&self.0)
            .with_context(|| format!("cannot create the data directory {root}"))?;
        let unusable = || format!("cannot use the data directory {root}");
        let mode = fs::metadata(&self.0).with_context(unusable)?.mode();
        if mode & 0o077 == 0 {
            return Ok(Openness::Closed);
        }
        if fs::read_dir(&self.0)
            .with_context(unusable)?
            .next()
            .is_some()
        {
            return Ok(Openness::Open);
        }
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o700)).with_context(unusable)?;
        Ok(Openness::Closed)
    }

    /// What `server.json` says; `None` if no server has been started here.
    pub(crate) fn server(&self) -> Result<Option<ServerFile>> {
        let path = self.server_file();
        match fs::read(&path) {
            Ok(text) => {
                let told = serde_json::from_slice(&text);
                told.map(Some)
                    .with_context(|| format!("{} cannot be understood", path.display()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

/// Whether others can get into the data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Openness {
    Closed,
    Open,
}

/// Creates a directory and those above it, each for its owner alone.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Puts `content` under `path`, in place of what was there. After a crash there is the old content or the new, never
/// a part. Writes nothing if the content and mode are right already, and says whether it wrote.
pub(crate) fn write(path: &Path, content: &[u8], secrecy: Secrecy) -> Result<bool> {
    replace(path, content, secrecy).with_context(|| format!("cannot write {}", path.display()))
}

/// Creates a file that is not there yet, with a mode whatever the umask says.
pub(crate) fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    // The mode at creation is subject to the umask.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(file)
}

fn replace(path: &Path, content: &[u8], secrecy: Secrecy) -> io::Result<bool> {
    let mode = match secrecy {
        Secrecy::Private => 0o600,
        Secrecy::Public => 0o644,
    };
    let is_right = |facts: fs::Metadata| facts.is_file() && facts.mode() & 0o777 == mode;
    if fs::symlink_metadata(path).is_ok_and(is_right) && fs::read(path)? == content {
        return Ok(false);
    }
    let folder = path.parent().ok_or(io::ErrorKind::InvalidFilename)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    create_folder(folder)?;
    // One name suffices: the store's lock keeps a second writer out, and what a crash left is replaced.
    let mut draft = std::ffi::OsString::from(".");
    draft.push(name);
    draft.push(".new");
    let draft = folder.join(draft);
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = create_new(&draft, mode)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(folder)?.sync_all()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn files_are_replaced_whole_with_their_mode() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/b/file");
        assert!(write(&path, b"one", Secrecy::Private).unwrap());
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert!(!write(&path, b"one", Secrecy::Private).unwrap());
        assert!(write(&path, b"one", Secrecy::Public).unwrap());
        assert_eq!(mode(&path), 0o644);
        fs::write(path.with_file_name(".file.new"), b"left by a crash").unwrap();
        assert!(write(&path, b"two", Secrecy::Public).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let temporary = tempfile::tempdir().unwrap();
        let (path, target) = (
            temporary.path().join("link"),
            temporary.path().join("target"),
        );
        fs::write(&target, b"old").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(write(&path, b"new", Secrecy::Private).unwrap());
        assert_eq!(
            (fs::read(&target).unwrap(), fs::read(&path).unwrap()),
            (b"old".to_vec(), b"new".to_vec())
        );
    }

    #[test]
    fn the_folder_is_closed_unless_it_is_in_use() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = |name: &str| DataFolder::new(temporary.path().join(name));
        assert_eq!(folder("new").create().unwrap(), Openness::Closed);
        assert_eq!(mode(folder("new").root()), 0o700);

        for name in ["empty", "used"] {
            fs::create_dir(temporary.path().join(name)).unwrap();
            fs::set_permissions(
                temporary.path().join(name),
                fs::Permissions::from_mode(0o755),
            )
            .unwrap();
        }
        assert_eq!(folder("empty").create().unwrap(), Openness::Closed);
        assert_eq!(mode(folder("empty").root()), 0o700);
        fs::write(temporary.path().join("used/file"), b"").unwrap();
        assert_eq!(folder("used").create().unwrap(), Openness::Open);
        assert_eq!(mode(folder("used").root()), 0o755);
    }
}
