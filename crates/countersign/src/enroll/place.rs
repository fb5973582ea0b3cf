//! Where key, certificate, the authority's certificates and its revocation lists are.

use std::path::{Path, PathBuf};

use super::files::{PRIVATE_KEYS, folder_of};
use crate::cli::PlaceArgs;

/// The files of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    /// Where Puppet's layout has the public key, too.
    pub(super) public_key: Option<PathBuf>,
    pub(super) ca: PathBuf,
    pub(super) crl: PathBuf,
    pub(super) origin: KeyOrigin,
    /// The folder that all of them are below, but for those that were named one by one.
    folder: PathBuf,
    named: Vec<PathBuf>,
}

/// Whose the key file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyOrigin {
    /// Made here where it is missing.
    Made,
    /// Somebody else's: it must be there.
    Given,
}

impl Place {
    pub(super) fn new(args: &PlaceArgs, name: &str) -> Self {
        let mut place = match &args.puppet_ssldir {
            Some(ssldir) => Self::puppet(ssldir, name),
            None => Self::flat(args.dir.as_deref().unwrap_or(Path::new(DEFAULT)), name),
        };
        let key = args.key.as_ref().or(args.key_file.as_ref());
        for (path, named) in [
            (&mut place.certificate, args.cert_file.as_ref()),
            (&mut place.key, key),
            (&mut place.ca, args.ca_out.as_ref()),
            (&mut place.crl, args.crl_out.as_ref()),
        ] {
            if let Some(named) = named {
                path.clone_from(named);
                place.named.push(named.clone());
            }
        }
        if args.key.is_some() {
            place.origin = KeyOrigin::Given;
        }
        place
    }

    /// The names that have a key there, in order.
    pub(super) fn names(args: &PlaceArgs) -> Vec<String> {
        let (folder, ending) = match &args.puppet_ssldir {
            Some(ssldir) => (ssldir.join(PRIVATE_KEYS), ".pem"),
            None => {
                let dir = args.dir.as_deref().unwrap_or(Path::new(DEFAULT));
                (dir.to_owned(), "-key.pem")
            }
        };
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = files.filter_map(|file| {
            let file = file.file_name().into_string().ok()?;
            file.strip_suffix(ending).map(str::to_owned)
        });
        let mut names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        names.sort();
        names
    }

    /// The folder that somebody chose for a file, from which on the way to the file is our own.
    pub(super) fn base_of<'a>(&'a self, path: &'a Path) -> &'a Path {
        match self.named.iter().any(|named| named == path) {
            true => folder_of(path),
            false => &self.folder,
        }
    }

    fn flat(folder: &Path, name: &str) -> Self {
        Self {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}-key.pem")),
            public_key: None,
            ca: folder.join("ca.pem"),
            crl: folder.join("crl.pem"),
            origin: KeyOrigin::Made,
            folder: folder.to_owned(),
            named: Vec::new(),
        }
    }

    /// As an agent has them (Puppet's settings `hostcert`, `hostprivkey`, `hostpubkey`, `localcacert` and `hostcrl`).
    fn puppet(ssldir: &Path, name: &str) -> Self {
        let file = format!("{name}.pem");
        Self {
            certificate: ssldir.join("certs").join(&file),
            key: ssldir.join(PRIVATE_KEYS).join(&file),
            public_key: Some(ssldir.join("public_keys").join(&file)),
            ca: ssldir.join("certs/ca.pem"),
            crl: ssldir.join("crl.pem"),
            origin: KeyOrigin::Made,
            folder: ssldir.to_owned(),
            named: Vec::new(),
        }
    }
}

const DEFAULT: &str = "/etc/countersign/enroll";
