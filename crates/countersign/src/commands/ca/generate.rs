//! `ca generate`: keys made here, certificates signed by the authority.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use countersign_api::AdministratorRequest;
use countersign_keys::{KeySpec, LeafKey, private_file};
use countersign_pki::{AltName, pem, terminal_safe};
use countersign_policy::SignerName;
use countersign_server::puppet::Certname;
use http::{Method, StatusCode};
use serde_json::json;

use super::place::{self, Given};
use super::refusal::{self, Refusal, print_errors};
use super::{FAILED, OK, PREFIX, complain_of, put_status, sign_body};
use crate::cli::{GenerateArgs, Ttl};
use crate::client::{Client, client_of, path_segment};
use crate::data_folder::{Secrecy, create_folder, write};
use crate::first_start::{self, LocalRequest};
use crate::offline::Offline;
use crate::output::{self, complain};
use crate::settings::Settings;
use crate::signers;

pub(super) async fn run(args: &GenerateArgs) -> Result<u8> {
    check_names(&args.certname)?;
    let given = Given::read(args.server.config.as_deref())?;
    let settings = place::settings(&args.server.server.data, &given, Vec::new())?;
    let folders = Folders::new(args, &given, &settings)?;
    let mut alt_names = Vec::new();
    for name in &args.subject_alt_names {
        alt_names.push(place::alt_name(name)?);
    }
    let wishes = Wishes {
        alt_names,
        key: args.key_type.unwrap_or_default().0,
        ttl: args.ttl.clone(),
    };
    let mut source = Source::new(args, &given, &settings).await?;
    folders.create()?;
    let mut code = OK;
    for name in &args.certname {
        if !generate(&mut source, name, &folders, &wishes).await? {
            code = FAILED;
        }
    }
    Ok(code)
}

fn check_names(names: &[String]) -> Result<(), Refusal> {
    let mut errors = Vec::new();
    if names.is_empty() {
        errors.push("    At least one certname is required to generate".to_owned());
    }
    for name in names {
        let printable = |c: char| matches!(c, ' '..='~') && c != '/';
        if name.chars().any(char::is_uppercase) {
            errors.push("    Certificate names must be lower case".to_owned());
        } else if name.is_empty() || !name.chars().all(printable) {
            errors.push(format!(
                "  Certname {name} must not contain unprintable or non-ASCII characters"
            ));
        } else if let Err(fault) = Certname::parse(name) {
            errors.push(format!("    Certname {name} cannot be used: {fault}"));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Refusal::Usage {
        errors,
        verb: "generate",
    })
}

/// How the certificates shall be.
struct Wishes {
    alt_names: Vec<AltName>,
    key: KeySpec,
    ttl: Option<Ttl>,
}

impl Wishes {
    /// The certname is always among the names: clients that find any look at nothing else (RFC 6125 6.4.4).
    fn names(&self, certname: &str) -> Vec<AltName> {
        let own = AltName::Dns(certname.to_owned());
        let mut names = self.alt_names.clone();
        names.retain(|name| *name != own);
        names.push(own);
        names
    }
}

/// Who signs.
enum Source {
    /// A running server, as it signs for agents.
    Agents(Client),
    /// A running server, for administrators.
    Administrators(Client),
    /// The authority itself, for administrators.
    Offline(Offline),
}

impl Source {
    async fn new(args: &GenerateArgs, given: &Given, settings: &Settings) -> Result<Self> {
        let client = || place::client_of(&args.server, given);
        if !args.ca_client {
            return Ok(Self::Agents(client()?));
        }
        if args.server.server.server.is_some() {
            return Ok(Self::Administrators(client()?));
        }
        match Offline::open(settings).await {
            Ok(offline) => Ok(Self::Offline(offline)),
            Err(error) if matches!(error.downcast_ref(), Some(Refusal::Running)) => {
                Ok(Self::Administrators(client_of(&args.server.server)?))
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether it went well; what did not was said.
async fn generate(
    source: &mut Source,
    name: &str,
    folders: &Folders,
    wishes: &Wishes,
) -> Result<bool> {
    let mut errors = refusal::existing(&folders.files(name));
    if let Source::Offline(offline) = source {
        let newest = offline.authority.ledger.newest(&offline.issuer, name);
        if newest.await?.is_some() {
            errors.push(format!("Existing certificate of '{name}' at the CA"));
        }
    }
    if !errors.is_empty() {
        errors.push(format!(
            "Please delete these files if you really want to generate a new cert for {name}."
        ));
        print_errors(&errors);
        return Ok(false);
    }
    let key = LeafKey::generate_kind(wishes.key)?;
    let csr = key
        .request(name, &[], &wishes.names(name))
        .with_context(|| format!("no certificate can be asked for {name}"))?;
    let ttl = wishes.ttl.as_ref();
    match source {
        Source::Agents(client) => {
            folders.save_keys(name, &key)?;
            let made = submit(client, name, &csr).await?
                && fetch_signed(client, name, folders, ttl).await?;
            if !made && !wishes.alt_names.is_empty() {
                complain(&how_to_allow_names(name, folders));
            }
            Ok(made)
        }
        Source::Administrators(client) => {
            let Some(certificate) = ask_for_administrator(client, name, &csr, ttl).await? else {
                return Ok(false);
            };
            folders.save_certificate(name, &certificate)?;
            folders.save_keys(name, &key)?;
            Ok(true)
        }
        Source::Offline(offline) => {
            let request = LocalRequest {
                key: name,
                signer: SignerName::parse(signers::PUPPET_ADMIN)?,
                usages: &[],
                lifetime: ttl.map(|ttl| ttl.seconds),
                reason: "`ca generate --ca-client` on the authority's machine",
            };
            let der = first_start::issue(&offline.authority, &csr, request)
                .await
                .with_context(|| format!("no certificate for {name}"))?;
            folders.save_certificate(name, &pem::encode("CERTIFICATE", &der))?;
            folders.save_keys(name, &key)?;
            Ok(true)
        }
    }
}

async fn submit(client: &mut Client, name: &str, csr: &[u8]) -> Result<bool> {
    let path = format!("{PREFIX}/certificate_request/{}", path_segment(name));
    let text = pem::encode("CERTIFICATE REQUEST", csr);
    let reply = client.put_text(&path, text).await?;
    if matches!(reply.status, StatusCode::OK | StatusCode::NO_CONTENT) {
        output::line(&format!(
            "Successfully submitted certificate request for {name}"
        ))?;
        return Ok(true);
    }
    let sentence = format!(
        "Error:\n    When attempting to submit certificate request for '{name}', received:"
    );
    complain_of(&reply, &sentence);
    Ok(false)
}

/// What the server's sentence, which is the original's, means here.
fn how_to_allow_names(name: &str, folders: &Folders) -> String {
    let [_, private, public] = folders.files(name);
    format!(
        "If the further names are why: set `puppet: {{allow_subject_alt_names: true}}` in the server's configuration and \
         send it SIGHUP;\nthen `countersign csr delete {name} --door puppet`, remove {} and {},\nand generate again.",
        private.display(),
        public.display()
    )
}

/// The certificate, signed now unless the server has signed it by itself.
async fn fetch_signed(
    client: &mut Client,
    name: &str,
    folders: &Folders,
    ttl: Option<&Ttl>,
) -> Result<bool> {
    if let Some(certificate) = fetch(client, name, Missing::Expected).await? {
        folders.save_certificate(name, &certificate)?;
        output::line(&format!("Certificate for {name} was autosigned."))?;
        if let Some(ttl) = ttl {
            complain(&format!(
                "ttl was specified, but the CA autosigned the CSR. Unable to specify {ttl} for {name}"
            ));
        }
        return Ok(true);
    }
    let reply = put_status(client, name, &sign_body(ttl)).await?;
    super::report_signed(name, &reply)?;
    match fetch(client, name, Missing::Told).await? {
        Some(certificate) => folders.save_certificate(name, &certificate).map(|()| true),
        None => Ok(false),
    }
}

/// Whether a missing certificate is an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// Not before somebody has signed.
    Expected,
    Told,
}

async fn fetch(client: &mut Client, name: &str, missing: Missing) -> Result<Option<String>> {
    let path = format!("{PREFIX}/certificate/{}", path_segment(name));
    let reply = client.get(&path).await?;
    match reply.status {
        StatusCode::OK => return Ok(Some(reply.text())),
        StatusCode::NOT_FOUND if missing == Missing::Expected => {}
        StatusCode::NOT_FOUND => complain(&format!(
            "Error:\n    Signed certificate {name} could not be found on the CA"
        )),
        _ => complain_of(
            &reply,
            &format!("Error:\n    When attempting to download certificate '{name}', received:"),
        ),
    }
    Ok(None)
}

/// The only way to this signer over the network: an administrator asks and decides in one call.
async fn ask_for_administrator(
    client: &mut Client,
    name: &str,
    csr: &[u8],
    ttl: Option<&Ttl>,
) -> Result<Option<String>> {
    let body = AdministratorRequest {
        name: name.to_owned(),
        signer: signers::PUPPET_ADMIN.to_owned(),
        csr: pem::encode("CERTIFICATE REQUEST", csr),
        reason: "`ca generate --ca-client`".to_owned(),
        lifetime_seconds: ttl.map(|ttl| ttl.seconds),
    };
    let reply = client
        .call(Method::POST, "/enrol/v1/requests", Some(&json!(body)))
        .await?;
    if reply.status == StatusCode::CREATED {
        return fetch(client, name, Missing::Told).await;
    }
    let sentence = format!("Error:\n    When attempting to sign '{name}', received:");
    complain_of(&reply, &sentence);
    Ok(None)
}

/// Where keys and certificates are written, as an agent has them.
struct Folders {
    certificates: PathBuf,
    private_keys: PathBuf,
    public_keys: PathBuf,
}

impl Folders {
    fn new(args: &GenerateArgs, given: &Given, settings: &Settings) -> Result<Self> {
        let ssldir = match &args.ssldir {
            Some(dir) => dir.clone(),
            None => settings.folder.root().join("ssl"),
        };
        let conf = given.puppet().filter(|_| args.ssldir.is_none());
        let folder = |setting: &str, name: &str| -> Result<PathBuf> {
            let configured = match conf {
                Some(conf) => conf.folder(setting)?,
                None => None,
            };
            Ok(configured.unwrap_or_else(|| ssldir.join(name)))
        };
        Ok(Self {
            certificates: folder("certdir", "certs")?,
            private_keys: folder("privatekeydir", "private_keys")?,
            public_keys: folder("publickeydir", "public_keys")?,
        })
    }

    fn files(&self, name: &str) -> [PathBuf; 3] {
        [&self.certificates, &self.private_keys, &self.public_keys]
            .map(|folder| folder.join(format!("{name}.pem")))
    }

    fn create(&self) -> Result<()> {
        for folder in [&self.certificates, &self.private_keys, &self.public_keys] {
            create_folder(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(())
    }

    fn save_keys(&self, name: &str, key: &LeafKey) -> Result<()> {
        let [_, private, public] = self.files(name);
        private_file::write_new(&private, key.to_pkcs8_pem()?.as_bytes())?;
        saved("private key", name, &private)?;
        let text = pem::encode("PUBLIC KEY", key.spki_der());
        write(&public, text.as_bytes(), Secrecy::Public)?;
        saved("public key", name, &public)
    }

    fn save_certificate(&self, name: &str, text: &str) -> Result<()> {
        let [certificate, ..] = self.files(name);
        write(&certificate, text.as_bytes(), Secrecy::Public)?;
        saved("certificate", name, &certificate)
    }
}

fn saved(what: &str, name: &str, path: &Path) -> Result<()> {
    let path = path.display().to_string();
    Ok(output::line(&format!(
        "Successfully saved {what} for {name} to {}",
        terminal_safe(&path)
    ))?)
}
