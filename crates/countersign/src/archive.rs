//! A backup as one file: a tar archive whose first entry says what the others are.
//!
//! `manifest.json` lists every file with its size and SHA-256 digest; `manifest.sha256` is the digest of the manifest itself.
//! The digests find damage, not forgery: whoever can write a backup can write its manifest.
//!
//! Nothing in an archive chooses where it is written. Only names that a data directory has are known, and only plain files.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use countersign_authority::IssuerId;
use countersign_server::puppet::Certname;
use serde::{Deserialize, Serialize};
use tar::{Archive, Builder, EntryType, Header};

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The number of this format.
    pub(crate) format: u32,
    /// The version of the program that made it.
    pub(crate) program: String,
    /// When, in RFC 3339.
    pub(crate) made: String,
    /// The schema of the database.
    pub(crate) schema: i64,
    /// The last revision in the database.
    pub(crate) revision: u64,
    /// Every file, in the order of the archive.
    pub(crate) files: Vec<Listed>,
    /// Files that were in the data directory and are not here, because they hold private keys.
    pub(crate) left_out: Vec<String>,
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// Its path under the data directory.
    pub(crate) path: String,
    /// Its length.
    pub(crate) size: u64,
    /// Its permission bits, in octal.
    pub(crate) mode: String,
    /// SHA-256 of its content, in hexadecimal.
    pub(crate) sha256: String,
}

/// Why a file is not a backup that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveFault {
    #[error("{} is not a backup of this program: its first entry is no {MANIFEST}", .0.display())]
    Foreign(PathBuf),
    #[error("{} is a backup in format {format}, this program knows format {FORMAT}: restore it with the version that made it ({program}), or a later one", .path.display())]
    Newer {
        path: PathBuf,
        format: u32,
        program: String,
    },
    #[error("{} is cut short or damaged at {at}: use another backup", .path.display())]
    Damaged { path: PathBuf, at: String },
    #[error("{} holds {name:?}, which is no file of a data directory: it was not made by this program, do not use it", .path.display())]
    Unknown { path: PathBuf, name: String },
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// What the reader's own work met.
    #[error("{what} cannot be written")]
    Write { what: String, source: io::Error },
}

/// Writes an archive. Each source is read once, to its listed length, and must be what the manifest says.
pub(crate) fn write<'a>(
    to: &mut impl Write,
    manifest: &Manifest,
    sources: impl IntoIterator<Item = (&'a Listed, &'a mut File)>,
) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(manifest)?;
    let digest = hex(&text);
    let mut archive = Builder::new(to);
    append(&mut archive, MANIFEST, 0o600, text.len(), &text[..])?;
    append(
        &mut archive,
        MANIFEST_DIGEST,
        0o600,
        digest.len(),
        digest.as_bytes(),
    )?;
    for (listed, file) in sources {
        file.rewind()?;
        let size = usize::try_from(listed.size).map_err(io::Error::other)?;
        let mut content = Hashed::new(file.take(listed.size));
        append(
            &mut archive,
            &listed.path,
            listed.mode(),
            size,
            &mut content,
        )?;
        if content.finish() != (listed.size, listed.sha256.clone()) {
            let what = format!("{} changed while it was read: try again", listed.path);
            return Err(io::Error::other(what));
        }
    }
    archive.finish()
}

fn append(
    archive: &mut Builder<&mut impl Write>,
    path: &str,
    mode: u32,
    size: usize,
    content: impl Read,
) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_path(path)?;
    header.set_mode(mode);
    header.set_size(u64::try_from(size).map_err(io::Error::other)?);
    header.set_cksum();
    archive.append(&header, content)
}

/// Reads an archive from its beginning, checks every part of it, and hands each file to `take`. What `take` was given is
/// sound only if the call succeeds.
pub(crate) fn read(
    path: &Path,
    file: &mut File,
    mut take: impl FnMut(&Listed, &mut dyn Read) -> Result<(), ArchiveFault>,
) -> Result<Manifest, ArchiveFault> {
    let unreadable = |source| ArchiveFault::Read {
        path: path.to_owned(),
        source,
    };
    let damaged = |at: &str| ArchiveFault::Damaged {
        path: path.to_owned(),
        at: at.to_owned(),
    };
    file.rewind().map_err(unreadable)?;
    let mut archive = Archive::new(file);
    // Raw: extensions of the format, which may be of any length, are entries like others, and unknown.
    let mut entries = archive.entries().map_err(unreadable)?.raw(true);

    let manifest = match entries.next() {
        Some(Ok(mut entry)) if entry.path_bytes().as_ref() == MANIFEST.as_bytes() => {
            bounded(&mut entry).ok_or_else(|| damaged(MANIFEST))?
        }
        _ => return Err(ArchiveFault::Foreign(path.to_owned())),
    };
    let version: Version = serde_json::from_slice(&manifest).map_err(|_| damaged(MANIFEST))?;
    if version.format != FORMAT {
        return Err(ArchiveFault::Newer {
            path: path.to_owned(),
            format: version.format,
            program: version.program,
        });
    }
    let digest = match entries.next() {
        Some(Ok(mut entry)) if entry.path_bytes().as_ref() == MANIFEST_DIGEST.as_bytes() => {
            bounded(&mut entry)
        }
        _ => None,
    };
    if digest.as_deref() != Some(hex(&manifest).as_bytes()) {
        return Err(damaged(MANIFEST));
    }
    let manifest: Manifest = serde_json::from_slice(&manifest).map_err(|_| damaged(MANIFEST))?;
    manifest.check(path)?;

    for listed in &manifest.files {
        let at = || damaged(&listed.path);
        let mut entry = match entries.next() {
            Some(Ok(entry)) => entry,
            Some(Err(_)) | None => return Err(at()),
        };
        let is_listed = entry.path_bytes().as_ref() == listed.path.as_bytes()
            && entry.header().entry_type() == EntryType::Regular
            && entry.size() == listed.size;
        if !is_listed {
            return Err(at());
        }
        let mut content = Hashed::new(&mut entry);
        take(listed, &mut content)?;
        if content.finish() != (listed.size, listed.sha256.clone()) {
            return Err(at());
        }
    }
    match entries.next() {
        None => Ok(manifest),
        Some(_) => Err(damaged("its end")),
    }
}

/// Reads something to its end and keeps nothing.
pub(crate) fn pass_over(content: &mut dyn Read) -> io::Result<()> {
    io::copy(content, &mut io::sink()).map(|_| ())
}

/// The length and the digest of a file's content, read from its beginning.
pub(crate) fn measure(file: &mut File) -> io::Result<(u64, String)> {
    file.rewind()?;
    let mut content = Hashed::new(file);
    pass_over(&mut content)?;
    Ok(content.finish())
}

/// Whether a data directory has such a file, and a backup may.
pub(crate) fn is_known(path: &str) -> bool {
    let mut parts = path.split('/');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(DATABASE), None, None, None) => true,
        (Some(file), None, None, None) => SINGLE_FILES.contains(&file),
        (Some("tls" | "admin" | "audit"), Some(file), None, None) => is_plain(file),
        (Some("issuers"), Some(issuer), Some(file), None) => {
            issuer.len() <= MAX_ISSUER && IssuerId::parse(issuer).is_ok() && is_plain(file)
        }
        (Some("ssl"), Some("certs" | "private_keys" | "public_keys"), Some(file), None) => {
            let name = file.strip_suffix(".pem");
            file.len() <= MAX_FILE && name.is_some_and(|name| Certname::parse(name).is_ok())
        }
        _ => false,
    }
}

/// Whether a file holds a private key, to judge by its name.
pub(crate) fn is_key(path: &str) -> bool {
    path == "admin/kubeconfig" || path.ends_with("key.pem") || path.starts_with(GENERATED_KEYS)
}

fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !name.is_empty() && name.len() <= MAX_NAME && !name.starts_with('.') && name.bytes().all(plain)
}

impl Manifest {
    fn check(&self, path: &Path) -> Result<(), ArchiveFault> {
        let mut seen = std::collections::BTreeSet::new();
        let names = self.files.iter().map(|listed| &listed.path);
        for name in names.chain(&self.left_out) {
            if !is_known(name) || !seen.insert(name) {
                return Err(ArchiveFault::Unknown {
                    path: path.to_owned(),
                    name: name.clone(),
                });
            }
        }
        if self.files.iter().any(|listed| listed.path == DATABASE) {
            Ok(())
        } else {
            Err(ArchiveFault::Damaged {
                path: path.to_owned(),
                at: MANIFEST.to_owned(),
            })
        }
    }
}

impl Listed {
    /// Whether it was a program. What comes from an archive is not run until somebody has looked at it.
    pub(crate) fn was_program(&self) -> bool {
        self.kept_mode() & 0o111 != 0
    }

    fn kept_mode(&self) -> u32 {
        u32::from_str_radix(&self.mode, 8).unwrap_or(0)
    }

    /// The permission bits it gets: never more for others than to read it.
    pub(crate) fn mode(&self) -> u32 {
        self.kept_mode() & 0o644 | 0o600
    }
}

/// As much as every format will say.
#[derive(Deserialize)]
struct Version {
    format: u32,
    #[serde(default)]
    program: String,
}

/// Passes content on and takes its digest.
struct Hashed<R> {
    inner: R,
    digest: Context,
    length: u64,
}

impl<R: Read> Hashed<R> {
    fn new(inner: R) -> Self {
        Self {
            inner,
            digest: Context::new(&SHA256),
            length: 0,
        }
    }

    fn finish(self) -> (u64, String) {
        (self.length, hexadecimal(self.digest.finish().as_ref()))
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.digest.update(buffer.get(..count).unwrap_or_default());
        self.length = self
            .length
            .saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(count)
    }
}

fn bounded(entry: &mut impl Read) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let limit = MAX_MANIFEST.saturating_add(1);
    entry.take(limit).read_to_end(&mut text).ok()?;
    (u64::try_from(text.len()).ok()? <= MAX_MANIFEST).then_some(text)
}

fn hex(content: &[u8]) -> String {
    countersign_pki::fingerprint_sha256(content).to_hex()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The format that is written and read here.
pub(crate) const FORMAT: u32 = 1;
/// The database's path under the data directory.
pub(crate) const DATABASE: &str = "countersign.db";
/// Files beside it that belong to a backup, if they are there.
pub(crate) const SINGLE_FILES: [&str; 2] = ["autosign.conf", "infra_inventory.txt"];

const MANIFEST: &str = "manifest.json";
const MANIFEST_DIGEST: &str = "manifest.sha256";
const MAX_MANIFEST: u64 = 1024 * 1024; // thousands of files; a data directory has some twenty
/// Where `ca generate` puts keys, unless it is told otherwise.
pub(crate) const GENERATED_KEYS: &str = "ssl/private_keys/";

const MAX_FILE: usize = 100; // what a tar archive has room for
const MAX_NAME: usize = 90; // the format has room for 100 octets of name...
const MAX_ISSUER: usize = 140; // ...and 155 of folders

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_a_data_directory_are_known() {
        for (name, known) in [
            ("countersign.db", true),
            ("autosign.conf", true),
            ("infra_inventory.txt", true),
            ("tls/puppet-key.pem", true),
            ("admin/kubeconfig", true),
            ("issuers/puppet/ca_key.pem", true),
            ("audit/audit-key.pem", true),
            ("audit/../x", false),
            ("server.json", false),
            ("", false),
            ("/etc/passwd", false),
            ("../countersign.db", false),
            ("./countersign.db", false),
            ("tls/../../x", false),
            ("tls//x", false),
            ("tls/", false),
            ("tls/.hidden", false),
            ("tls/a/b", false),
            ("tls/a b", false),
            ("tls/a\nb", false),
            ("issuers/puppet", false),
            ("issuers/../x", false),
            ("issuers/puppet/..", false),
            ("issuers/puppet/a/b", false),
            ("countersign.db/x", false),
            ("ssl/certs/web01.example.com.pem", true),
            ("ssl/private_keys/web01.pem", true),
            ("ssl/public_keys/web01.pem", true),
            ("ssl/certs/Web01.pem", false),
            ("ssl/certs/web01", false),
            ("ssl/certs/.pem", false),
            ("ssl/certs/a b.pem", false),
            ("ssl/certs/../x.pem", false),
            ("ssl/other/web01.pem", false),
            ("ssl/web01.pem", false),
        ] {
            assert_eq!(is_known(name), known, "{name}");
        }
        assert!(!is_known(&format!("tls/{}", "a".repeat(91))));
    }

    #[test]
    fn modes_give_others_nothing_to_write_and_nobody_anything_to_run() {
        for (text, mode) in [
            ("0600", 0o600),
            ("0644", 0o644),
            ("0755", 0o644),
            ("7777", 0o644),
            ("0666", 0o644),
            ("0000", 0o600),
            ("rubbish", 0o600),
        ] {
            let listed = Listed {
                path: DATABASE.to_owned(),
                size: 0,
                mode: text.to_owned(),
                sha256: String::new(),
            };
            assert_eq!(listed.mode(), mode, "{text}");
        }
    }
}
