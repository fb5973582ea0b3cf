//! Where key, certificate, the authority's certificates and its revocation lists are.

use std::path::{Path, PathBuf};

use crate::files::{PRIVATE_KEYS, folder_of};

/// The files of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePaths {
    /// The certificate and those between it and its root.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// Where Puppet's layout has the public key, too.
    pub public_key: Option<PathBuf>,
    /// The authority's certificates.
    pub ca: PathBuf,
    /// Its revocation lists.
    pub crl: PathBuf,
    pub(crate) origin: KeyOrigin,
    /// The folder that all of them are below, but for those that were named one by one.
    folder: PathBuf,
    named: Vec<PathBuf>,
}

/// Where somebody wants them to be; what is not said has its usual place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// The folder of all.
    pub dir: Option<PathBuf>,
    /// A Puppet agent's ssldir in its place, with its layout.
    pub puppet_ssldir: Option<PathBuf>,
    /// Another place for the certificate.
    pub cert_file: Option<PathBuf>,
    /// Another place for the key.
    pub key_file: Option<PathBuf>,
    /// A key that exists, is used where it is, and is not changed.
    pub key: Option<PathBuf>,
    /// Another place for the authority's certificates.
    pub ca_out: Option<PathBuf>,
    /// Another place for the revocation lists.
    pub crl_out: Option<PathBuf>,
}

/// Whose the key file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrigin {
    /// Made here where it is missing.
    Made,
    /// Somebody else's: it must be there.
    Given,
}

impl CertificatePaths {
    /// The files of a name.
    #[must_use]
    pub fn new(options: &PathOptions, name: &str) -> Self {
        let mut place = match &options.puppet_ssldir {
            Some(ssldir) => Self::puppet(ssldir, name),
            None => Self::flat(options.dir.as_deref().unwrap_or(Path::new(DEFAULT)), name),
        };
        let key = options.key.as_ref().or(options.key_file.as_ref());
        for (path, named) in [
            (&mut place.certificate, options.cert_file.as_ref()),
            (&mut place.key, key),
            (&mut place.ca, options.ca_out.as_ref()),
            (&mut place.crl, options.crl_out.as_ref()),
        ] {
            if let Some(named) = named {
                path.clone_from(named);
                place.named.push(named.clone());
            }
        }
        if options.key.is_some() {
            place.origin = KeyOrigin::Given;
        }
        place
    }

    /// The names that have a key there, in order.
    #[must_use]
    pub fn names(options: &PathOptions) -> Vec<String> {
        let (folder, ending) = match &options.puppet_ssldir {
            Some(ssldir) => (ssldir.join(PRIVATE_KEYS), ".pem"),
            None => {
                let dir = options.dir.as_deref().unwrap_or(Path::new(DEFAULT));
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
    pub(crate) fn base_of<'a>(&'a self, path: &'a Path) -> &'a Path {
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
