//! A folder with key files, and OpenSSL beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use countersign_authority::IssuerId;
use countersign_keys::FileKeys;
use countersign_testkit::counterparts::Counterpart;
use tempfile::TempDir;

pub(crate) struct KeyFolder(TempDir);

impl KeyFolder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        fs::read_dir(self.0.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// A file with mode 0600.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// A copy of one of testkit's fixed keys.
    pub(crate) fn fixed(&self, name: &str) -> PathBuf {
        self.write(name, &fixed_key(name))
    }

    /// Runs OpenSSL in the folder and answers what it printed.
    pub(crate) fn openssl(&self, arguments: &[&str]) -> String {
        let program = Counterpart::Openssl.find().unwrap();
        let output = Command::new(program)
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }
}

pub(crate) fn fixed_key(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../testkit/keys")
        .join(name);
    fs::read_to_string(&path).unwrap()
}

pub(crate) fn issuer(name: &str) -> IssuerId {
    IssuerId::parse(name).unwrap()
}

/// One issuer called `puppet` with this key.
pub(crate) fn loaded(path: &Path) -> FileKeys {
    let mut keys = FileKeys::new(FileKeys::usual_threads());
    keys.load(issuer("puppet"), path).unwrap();
    keys
}
