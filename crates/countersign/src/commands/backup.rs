//! `countersign backup`: one file with everything that an authority is, taken while it runs.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use countersign_authority::{Clock as _, SystemClock};
use countersign_store::backup::{self, Copied};
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::archive::{self, ArchiveFault, DATABASE, FORMAT, Listed, Manifest, SINGLE_FILES};
use crate::cli::BackupArgs;
use crate::data_folder::DataFolder;
use crate::output;
use crate::stores;

/// Makes a backup, and says what is in it.
pub(crate) fn run(args: &BackupArgs) -> Result<()> {
    let folder = args.config.data(&args.data)?.folder();
    let keys = if args.without_keys {
        Keys::LeftOut
    } else {
        Keys::Included
    };
    let onto = if args.force { Onto::Replace } else { Onto::New };
    let manifest = make(&folder, &args.file, keys, onto)?;
    output::line(&told(&folder, &args.file, &manifest))?;
    Ok(())
}

/// Whether private keys are in a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    Included,
    LeftOut,
}

/// What may stand where the backup goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Onto {
    New,
    Replace,
}

fn make(folder: &DataFolder, file: &Path, keys: Keys, onto: Onto) -> Result<Manifest> {
    stores::ensure_here(folder)?;
    folder.ensure_no_unfinished_import()?;
    refuse_existing(file, onto)?;
    let mut partial = Partial::claim(file)?;
    // The database first: a file that is newer than the ledger is made anew by the next start, but a ledger entry
    // whose issuer is missing could not be.
    let copied = backup::copy(&folder.database(), &partial.database)?;
    let (mut sources, left_out) = gather(folder, &partial.database, keys)?;
    // An import may have begun meanwhile.
    folder.ensure_no_unfinished_import()?;
    let manifest = manifest(&copied, &sources, left_out);
    let unwritten = || format!("cannot write {}", partial.path.display());
    let mut writer = BufWriter::with_capacity(BUFFER, &partial.file);
    let content = sources
        .iter_mut()
        .map(|source| (&source.listed, &mut source.file));
    archive::write(&mut writer, &manifest, content).with_context(unwritten)?;
    writer.flush().with_context(unwritten)?;
    drop(writer);
    partial.file.sync_all().with_context(unwritten)?;

    // Read back as a restore would.
    let path = partial.path.clone();
    let found = archive::read(&path, &mut partial.file, |listed, content| {
        archive::pass_over(content).map_err(|_| ArchiveFault::Damaged {
            path: path.clone(),
            at: listed.path.clone(),
        })
    })
    .context("the backup cannot be read back")?;
    ensure!(
        found == manifest,
        "{} is not what was written to it: check the disk",
        partial.path.display()
    );
    partial.publish(file, onto)?;
    Ok(manifest)
}

fn manifest(copied: &Copied, sources: &[Source], left_out: Vec<String>) -> Manifest {
    Manifest {
        format: FORMAT,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        made: SystemClock.now().to_string(),
        schema: copied.schema,
        revision: copied.revision.0,
        files: sources.iter().map(|source| source.listed.clone()).collect(),
        left_out,
    }
}

fn told(folder: &DataFolder, file: &Path, manifest: &Manifest) -> String {
    let size: u64 = manifest.files.iter().map(|listed| listed.size).sum();
    let mut text = format!(
        "Backed up {} to {}: {} files, {size} bytes, everything up to revision {}.",
        folder.root().display(),
        file.display(),
        manifest.files.len(),
        manifest.revision,
    );
    if manifest.left_out.is_empty() {
        text.push_str(
            "\nIt holds the issuers' private keys: keep it as secret as the data directory.",
        );
    } else {
        text.push_str("\nLeft out, because they hold private keys:");
        for path in &manifest.left_out {
            text.push_str("\n  ");
            text.push_str(path);
        }
    }
    text
}

/// A file of the data directory, open, so that one that is replaced meanwhile stays what it was.
struct Source {
    listed: Listed,
    file: File,
}

/// The files of a backup, the database's copy first, and the names of those that are left out.
fn gather(folder: &DataFolder, database: &Path, keys: Keys) -> Result<(Vec<Source>, Vec<String>)> {
    let (mut sources, mut left_out) = (vec![source(database, DATABASE)?], Vec::new());
    for name in names(folder.root())? {
        let path = folder.root().join(&name);
        let mut found = source(&path, &name)?;
        if keys == Keys::LeftOut && holds_key(&mut found)? {
            left_out.push(name);
        } else {
            sources.push(found);
        }
    }
    Ok((sources, left_out))
}

fn source(path: &Path, name: &str) -> Result<Source> {
    let unreadable = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(unreadable)?;
    let mode = file.metadata().with_context(unreadable)?.mode() & 0o777;
    let (size, sha256) = archive::measure(&mut file).with_context(unreadable)?;
    let listed = Listed {
        path: name.to_owned(),
        size,
        mode: format!("{mode:04o}"),
        sha256,
    };
    Ok(Source { listed, file })
}

/// The names of the files beside the database that belong to a backup, in order.
fn names(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for file in SINGLE_FILES {
        if root.join(file).is_file() {
            names.push(file.to_owned());
        }
    }
    let issuers = entries(&root.join("issuers"))?;
    let issuers = issuers
        .into_iter()
        .map(|issuer| format!("issuers/{issuer}"));
    for folder in FOLDERS.map(str::to_owned).into_iter().chain(issuers) {
        if !root.join(&folder).is_dir() {
            continue;
        }
        for file in entries(&root.join(&folder))? {
            let name = format!("{folder}/{file}");
            if !root.join(&name).is_file() {
                continue;
            }
            if archive::is_known(&name) {
                names.push(name);
            } else if folder.starts_with("issuers/") {
                bail!(
                    "{} has a name that a backup has no room for",
                    root.join(name).display()
                );
            } else {
                let name = root.join(name).display().to_string();
                output::complain(&format!(
                    "countersign: left out, no file of the authority's, or its name is too long: {}",
                    countersign_pki::terminal_safe(&name)
                ));
            }
        }
    }
    Ok(names)
}

/// The names in a folder, in order, without drafts that a crash left; none if there is no such folder.
fn entries(folder: &Path) -> Result<Vec<String>> {
    let unreadable = || format!("cannot read {}", folder.display());
    let listing = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing.with_context(unreadable)?,
    };
    let mut names = Vec::new();
    for entry in listing {
        let name = entry.with_context(unreadable)?.file_name();
        let name = name.to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Whether a file holds a private key, by its name or by what is in it.
fn holds_key(source: &mut Source) -> Result<bool> {
    let path = &source.listed.path;
    if archive::is_key(path) {
        return Ok(true);
    }
    let mut beginning = Zeroizing::new(Vec::with_capacity(KEY_SEARCHED));
    source.file.rewind()?;
    let limit = u64::try_from(KEY_SEARCHED)?;
    (&source.file).take(limit).read_to_end(&mut beginning)?;
    let label = b"PRIVATE KEY-----";
    Ok(beginning.windows(label.len()).any(|part| part == label))
}

fn refuse_existing(file: &Path, onto: Onto) -> Result<()> {
    if onto == Onto::New && fs::symlink_metadata(file).is_ok() {
        return Err(exists(file));
    }
    Ok(())
}

fn exists(file: &Path) -> anyhow::Error {
    anyhow!(
        "{} exists already: choose another name, or replace it with --force",
        file.display()
    )
}

/// The backup while it grows, and the copy of the database that goes into it. Both are gone at the end, however it
/// comes, except after a crash; then the next backup to the same file removes them.
struct Partial {
    path: PathBuf,
    database: PathBuf,
    /// Locked, so that a second backup to the same file does not write into this one.
    file: File,
}

impl Partial {
    fn claim(target: &Path) -> Result<Self> {
        ensure!(
            target.file_name().is_some(),
            "{} is no name of a file",
            target.display()
        );
        let path = beside(target, ".partial");
        let database = beside(target, ".partial.db");
        let unwritten = || format!("cannot write {}", path.display());
        for _ in 0..TRIES {
            // Always a new file: one that somebody else has made could be open in their hands.
            let created = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path);
            let (file, ours) = match created {
                Ok(file) => (file, true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    (open_left(&path).with_context(unwritten)?, false)
                }
                Err(error) => return Err(error).with_context(unwritten),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => {
                    bail!("another backup to {} is under way", target.display())
                }
                Err(fs::TryLockError::Error(error)) => return Err(error).with_context(unwritten),
            }
            if !is_at(&file, &path) {
                continue;
            }
            if !ours {
                fs::remove_file(&path).with_context(unwritten)?;
                continue;
            }
            let partial = Self {
                path,
                database,
                file,
            };
            partial.remove_database();
            return Ok(partial);
        }
        bail!(
            "{} keeps changing: another backup to {} is under way",
            path.display(),
            target.display()
        )
    }

    /// Gives the backup its name.
    fn publish(self, target: &Path, onto: Onto) -> Result<()> {
        let unwritten = || format!("cannot write {}", target.display());
        match onto {
            Onto::Replace => fs::rename(&self.path, target).with_context(unwritten)?,
            Onto::New => {
                match renameat_with(CWD, &self.path, CWD, target, RenameFlags::NOREPLACE) {
                    Ok(()) => {}
                    Err(Errno::EXIST) => return Err(exists(target)),
                    // Some network file systems cannot refuse; it was not there a moment ago.
                    Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                        refuse_existing(target, onto)?;
                        fs::rename(&self.path, target).with_context(unwritten)?;
                    }
                    Err(errno) => return Err(io::Error::from(errno)).with_context(unwritten),
                }
            }
        }
        let parent = target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))
            .and_then(|folder| folder.sync_all())
            .with_context(unwritten)
    }

    fn remove_database(&self) {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            remove(&beside(&self.database, suffix));
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.remove_database();
        if is_at(&self.file, &self.path) {
            remove(&self.path);
        }
    }
}

/// What an earlier backup left; a link is not followed.
fn open_left(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).map_err(io::Error::other)?;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Whether a file still stands at its path.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |facts: fs::Metadata| (facts.dev(), facts.ino());
    let found = fs::symlink_metadata(path).map(identity).ok();
    found.is_some() && found == file.metadata().map(identity).ok()
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        output::complain(&format!(
            "countersign: cannot remove {}: {error}",
            path.display()
        ));
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Beside those of the issuers. What is below `ssl` was made by `ca generate`.
const FOLDERS: [&str; 6] = [
    "admin",
    "audit",
    "tls",
    "ssl/certs",
    "ssl/private_keys",
    "ssl/public_keys",
];
const BUFFER: usize = 256 * 1024;
const KEY_SEARCHED: usize = 64 * 1024; // files with keys are small
const TRIES: usize = 5;
