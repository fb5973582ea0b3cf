//! The client of the commands: towards the authority that the caller administers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
pub(crate) use countersign_enroll::client::{Client, Reply, path_segment};
use countersign_enroll::client::{Manners, certificates, private_key};
use rustls::{ClientConfig, RootCertStore};

use crate::cli::ServerArgs;
use crate::config::Config;
use crate::data_folder::DataFolder;

static ADMINISTRATOR: Manners = Manners {
    // A listing of a million certificates takes a while.
    deadline: Duration::from_secs(120),
    // A million entries of a listing fit.
    max_answer: 1 << 30,
    keeps_connection: true,
    unreachable: "the server cannot be reached; start it with `countersign serve`",
    revoked: REVOKED,
};

/// The server that the arguments name: by address, or by the data directory it serves from.
pub(crate) fn client_of(args: &ServerArgs) -> Result<Client> {
    let (url, files) = match (&args.server, &args.cert, &args.key, &args.cacert) {
        (Some(url), Some(cert), Some(key), Some(cacert)) => {
            let files = CredentialFiles {
                cert: cert.clone(),
                key: key.clone(),
                cacert: cacert.clone(),
            };
            (url.clone(), files)
        }
        _ => of_folder(args.data.dir())?,
    };
    Ok(Client::at(&url, files.tls()?, &ADMINISTRATOR)?)
}

struct CredentialFiles {
    cert: PathBuf,
    key: PathBuf,
    cacert: PathBuf,
}

impl CredentialFiles {
    fn tls(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.cacert)? {
            let unusable = || {
                format!(
                    "{} holds a certificate that cannot be used",
                    self.cacert.display()
                )
            };
            roots.add(certificate).with_context(unusable)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates(&self.cert)?, private_key(&self.key)?)
            .with_context(|| {
                format!(
                    "{} and {} cannot be used together",
                    self.cert.display(),
                    self.key.display()
                )
            })
    }
}

/// The server that was last started on a data directory.
fn of_folder(dir: Option<&PathBuf>) -> Result<(String, CredentialFiles)> {
    let dir = dir.cloned().unwrap_or_else(|| Config::default().data);
    let folder = DataFolder::new(dir);
    let Some(server) = folder.server()? else {
        bail!(
            "no server was ever started on {}: name its directory with --data, or a server with --server, --cert, --key and --cacert, or start it: countersign serve",
            folder.root().display()
        );
    };
    let files = CredentialFiles {
        cert: folder.admin("admin.pem"),
        key: folder.admin("admin-key.pem"),
        cacert: folder.admin("ca.pem"),
    };
    Ok((server.puppet, files))
}

const REVOKED: &str = "the server refuses this administrator's certificate, it was revoked: reload or restart the server, \
                       which then makes new credentials in its data directory";
