//! `countersign restore`: makes a data directory of a backup.
//!
//! The archive is read twice: once to check all of it, and once to write it, checked again. It grows under another name,
//! so that there is the whole directory or none; then it gets its own.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use countersign_authority::{Clock as _, ObjectRecord, SystemClock};
use countersign_kapi::rbac::book::RbacKind;
use countersign_kapi::rbac::defaults::cluster_role_bindings;
use countersign_kapi::rbac::{RbacObject, RoleRef, Subject};
use countersign_pki::terminal_safe;
use countersign_store::backup::{self, Resumed};

use crate::archive::{self, ArchiveFault, DATABASE, GENERATED_KEYS, Listed, Manifest};
use crate::cli::RestoreArgs;
use crate::data_folder::{DataFolder, create_folder};
use crate::output;
use crate::stores;
use crate::witness;

/// Restores a backup, and says where the authority goes on.
pub(crate) fn run(args: &RestoreArgs) -> Result<()> {
    let folder = args.config.data(&args.data)?.folder();
    let data = folder.root().to_owned();
    let told = match &args.file {
        Some(file) => {
            let (manifest, resumed) = restore(file, &data)?;
            told(&data, &manifest, &resumed)
        }
        None => told_in_place(&data, &in_place(&folder)?),
    };
    output::line(&told)?;
    Ok(())
}

/// Goes on from the database that is there, whichever it is.
fn in_place(folder: &DataFolder) -> Result<Resumed> {
    stores::ensure_here(folder)?;
    let database = folder.database();
    ensure!(
        database.try_exists()?,
        "{} does not exist: restore a backup, `countersign restore FILE`",
        database.display()
    );
    let resumed = backup::resume(&database, SystemClock.now())?;
    witness::forget(folder)?;
    Ok(resumed)
}

fn told_in_place(data: &Path, resumed: &Resumed) -> String {
    let mut lines = vec![format!(
        "The authority in {} goes on from the database that is there.",
        data.display()
    )];
    lines.extend(goes_on(resumed));
    lines.join("\n")
}

fn restore(path: &Path, data: &Path) -> Result<(Manifest, Resumed)> {
    refuse_used(data)?;
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let damaged = |listed: &Listed| ArchiveFault::Damaged {
        path: path.to_owned(),
        at: listed.path.clone(),
    };
    let manifest = archive::read(path, &mut file, |listed, content| {
        archive::pass_over(content).map_err(|_| damaged(listed))
    })?;
    ensure!(
        manifest.schema <= backup::known_schema(),
        "{} has schema {}, this program knows schemas up to {}: restore it with version {} or a later one",
        path.display(),
        manifest.schema,
        backup::known_schema(),
        manifest.program
    );

    let partial = Partial::claim(data)?;
    let written = archive::read(path, &mut file, |listed, content| {
        partial.take(listed, content)
    })?;
    ensure!(
        written == manifest,
        "{} was changed while it was read: try again",
        path.display()
    );
    let resumed = backup::resume(&partial.path.join(DATABASE), SystemClock.now())
        .with_context(|| format!("the database in {} cannot be used", path.display()))?;
    partial.publish(data)?;
    Ok((manifest, resumed))
}

/// A directory that is missing or empty may be filled.
fn refuse_used(data: &Path) -> Result<()> {
    match fs::read_dir(data).map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => bail!(
            "{} is not empty: move it away, or restore to another directory",
            data.display()
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot use {}", data.display())),
    }
}

fn told(data: &Path, manifest: &Manifest, resumed: &Resumed) -> String {
    let root = data.display();
    let mut lines = vec![format!(
        "Restored {root} from a backup made {} by version {}: {} files, everything up to revision {}.",
        terminal_safe(&manifest.made),
        terminal_safe(&manifest.program),
        manifest.files.len(),
        manifest.revision,
    )];
    lines.extend(goes_on(resumed));
    for program in manifest.files.iter().filter(|file| file.was_program()) {
        let path = format!("{root}/{}", program.path);
        lines.push(format!(
            "{path} was a program and is not run now. Look at it, then `chmod +x {path}`."
        ));
    }
    let (needed, remade): (Vec<&String>, Vec<&String>) = manifest
        .left_out
        .iter()
        .partition(|path| path.starts_with("issuers/"));
    if !needed.is_empty() {
        lines.push("The backup was made without keys. Before the start, put these in place, with mode 0600:".to_owned());
        lines.extend(needed.iter().map(|path| format!("  {root}/{path}")));
    }
    let (generated, remade): (Vec<&String>, Vec<&String>) = remade
        .into_iter()
        .partition(|path| path.starts_with(GENERATED_KEYS));
    if !generated.is_empty() {
        lines.push("Keys that `ca generate` had made; nobody makes them anew:".to_owned());
        lines.extend(generated.iter().map(|path| format!("  {root}/{path}")));
    }
    if !remade.is_empty() {
        lines.push("These are made anew by the start, with new certificates:".to_owned());
        lines.extend(remade.iter().map(|path| format!("  {root}/{path}")));
    }
    lines.join("\n")
}

/// What nobody has on record, and where the numbers go on.
fn goes_on(resumed: &Resumed) -> Vec<String> {
    let mut lines = Vec::new();
    lines.push(
        "What was signed or revoked after that is not on record; nothing is given out twice:"
            .to_owned(),
    );
    for (issuer, next) in &resumed.serials {
        lines.push(format!("  serials of {issuer} go on at {next}"));
    }
    for (issuer, scope, number) in &resumed.crls {
        let word = scope.word();
        lines.push(format!(
            "  the {word} CRL of {issuer} goes on after number {number}"
        ));
    }
    lines.push(format!("  epoch {}", resumed.epoch));
    let bindings: Vec<String> = resumed.objects.iter().filter_map(binding_line).collect();
    if !bindings.is_empty() {
        lines.push("Bindings that were deleted or changed after the backup are as they were. These give rights at the Kubernetes door; check them right after the start, and delete those that should not be:".to_owned());
        lines.extend(bindings);
    }
    lines
}

/// A binding that somebody has made, or added subjects to; those of the start are in every installation.
fn binding_line(record: &ObjectRecord) -> Option<String> {
    let kind = RbacKind::stored_as(&record.key.kind)?;
    let given = |role: &RoleRef, subjects: &[Subject]| {
        let (role_kind, name) = (terminal_safe(&role.kind), terminal_safe(&role.name));
        match subjects.len() {
            1 => format!("{role_kind} {name} to 1 subject"),
            count => format!("{role_kind} {name} to {count} subjects"),
        }
    };
    let given = match (kind, kind.read(&record.body)) {
        (RbacKind::Role | RbacKind::ClusterRole, _) => return None,
        (RbacKind::RoleBinding | RbacKind::ClusterRoleBinding, Err(_)) => {
            "cannot be read".to_owned()
        }
        (_, Ok(RbacObject::Role(_) | RbacObject::ClusterRole(_))) => return None,
        (_, Ok(RbacObject::RoleBinding(binding))) => given(&binding.role_ref, &binding.subjects),
        (_, Ok(RbacObject::ClusterRoleBinding(binding))) => {
            let is_of_the_start = cluster_role_bindings().iter().any(|known| {
                known.metadata.name == record.key.name
                    && known.role_ref == binding.role_ref
                    && known.subjects == binding.subjects
            });
            if is_of_the_start {
                return None;
            }
            given(&binding.role_ref, &binding.subjects)
        }
    };
    let place = match record.key.namespace.as_str() {
        "" => String::new(),
        namespace => format!("{}/", terminal_safe(namespace)),
    };
    let name = terminal_safe(&record.key.name);
    Some(format!("  {} {place}{name}: {given}", kind.kind()))
}

/// The directory while it grows. It is gone at the end, however it comes, except after a crash; then the next restore
/// to the same directory removes it.
struct Partial {
    path: PathBuf,
    /// Locked, so that a second restore does not write into this one.
    folder: File,
    published: bool,
}

impl Partial {
    fn claim(data: &Path) -> Result<Self> {
        let name = data
            .file_name()
            .ok_or_else(|| anyhow!("{} is no name of a directory", data.display()))?;
        let mut partial = OsString::from(name);
        partial.push(".partial");
        let path = data.with_file_name(partial);
        let unwritten = || format!("cannot write {}", path.display());
        let create = || DirBuilder::new().mode(0o700).create(&path);
        match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let left = File::open(&path).with_context(unwritten)?;
                lock(&left, data)?;
                ensure!(
                    path.join(MARK).is_file(),
                    "{} is in the way, and no restore has left it: move it away",
                    path.display()
                );
                fs::remove_dir_all(&path).with_context(unwritten)?;
                create().with_context(unwritten)?;
            }
            created => created.with_context(unwritten)?,
        }
        let folder = File::open(&path).with_context(unwritten)?;
        lock(&folder, data)?;
        let partial = Self {
            path,
            folder,
            published: false,
        };
        File::create_new(partial.path.join(MARK))
            .with_context(|| format!("cannot write {}", partial.path.display()))?;
        Ok(partial)
    }

    /// Writes one file of the archive.
    fn take(&self, listed: &Listed, content: &mut dyn Read) -> Result<(), ArchiveFault> {
        let path = self.path.join(&listed.path);
        self.write(&path, listed, content)
            .map_err(|source| ArchiveFault::Write {
                what: path.display().to_string(),
                source,
            })
    }

    fn write(&self, path: &Path, listed: &Listed, content: &mut dyn Read) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        io::copy(content, &mut file)?;
        let mode = if is_secret(&listed.path) {
            0o600
        } else {
            listed.mode()
        };
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    }

    /// Gives the directory its name.
    fn publish(mut self, data: &Path) -> Result<()> {
        let unwritten = || format!("cannot write {}", self.path.display());
        sync_folders(&self.path).with_context(unwritten)?;
        // Replaces an empty directory and nothing else.
        fs::rename(&self.path, data).with_context(|| {
            format!(
                "cannot give {} its name: if {} is a mount point, restore to a directory below it",
                self.path.display(),
                data.display()
            )
        })?;
        self.published = true;
        let parent = data
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))
            .and_then(|folder| folder.sync_all())
            .with_context(|| format!("cannot write {}", data.display()))?;
        // The mark means nothing any more.
        let _left = fs::remove_file(data.join(MARK));
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            output::complain(&format!(
                "countersign: cannot remove {}, which holds keys: {error}",
                self.path.display()
            ));
        }
        let _released_by_closing = self.folder.unlock();
    }
}

fn lock(folder: &File, data: &Path) -> Result<()> {
    match folder.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            bail!("another restore to {} is under way", data.display())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot use {}", data.display()))
        }
    }
}

/// Files that only their owner may read, whatever the manifest says.
fn is_secret(path: &str) -> bool {
    path == DATABASE || archive::is_key(path)
}

fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}

/// Tells a directory that a restore has left from one of somebody else's.
const MARK: &str = ".countersign-restore";

#[cfg(test)]
mod tests {
    use countersign_authority::{ObjectKey, RequestId, Revision};
    use countersign_pki::UnixTime;
    use serde_json::{Value, json};

    use super::*;

    fn record(resource: &str, namespace: &str, name: &str, body: &Value) -> ObjectRecord {
        ObjectRecord {
            key: ObjectKey {
                kind: format!("{resource}.rbac.authorization.k8s.io"),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            id: RequestId::new(UnixTime(0), [0; 10]),
            version: Revision(1),
            created: UnixTime(0),
            body: body.to_string().into_bytes(),
        }
    }

    #[test]
    fn bindings_that_somebody_made_are_told() {
        let group = |name: &str| json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name});
        let binding = |kind: &str, role: &str, subjects: &[Value]| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}, "subjects": subjects});
        let (cluster, local) = ("clusterrolebindings", "rolebindings");
        let admins = binding("ClusterRole", "cluster-admin", &[group("system:masters")]);
        let more = binding(
            "ClusterRole",
            "cluster-admin",
            &[group("system:masters"), group("friends")],
        );
        let rows = [
            (record(cluster, "", "cluster-admin", &admins), None),
            (
                record(cluster, "", "cluster-admin", &more),
                Some("  ClusterRoleBinding cluster-admin: ClusterRole cluster-admin to 2 subjects"),
            ),
            (
                record(cluster, "", "mine", &admins),
                Some("  ClusterRoleBinding mine: ClusterRole cluster-admin to 1 subject"),
            ),
            (
                record(local, "ns", "b\u{1b}", &binding("Role", "r", &[])),
                Some("  RoleBinding ns/b\\u{1b}: Role r to 0 subjects"),
            ),
            (
                record(local, "ns", "b", &json!("?")),
                Some("  RoleBinding ns/b: cannot be read"),
            ),
            (record("clusterroles", "", "r", &json!({})), None),
            (record("secrets", "", "r", &json!({})), None),
        ];
        for (record, expected) in &rows {
            let line = binding_line(record);
            let told = line.as_deref();
            assert_eq!(told, *expected, "{:?}", record.key);
        }
    }
}
