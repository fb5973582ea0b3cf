//! Where a verb works and with which settings: flags over puppet.conf or Countersign's own file.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use countersign_authority::{IssuerId, Store};
use countersign_pki::AltName;
use countersign_puppet_compat::{ServerPlace, ToolConf};

use super::refusal::{self, Refusal};
use crate::cli::{CaServer, DataArg, OfflineArgs, ServeArgs, ServerArgs, ServerNameArgs};
use crate::client::{self, Client};
use crate::data_folder::DataFolder;
use crate::settings::{Settings, is_host_name, machine_name};
use crate::signers;

/// What `--config` named.
pub(crate) enum Given {
    Nothing,
    /// A site's puppet.conf.
    Puppet(ToolConf),
    /// Countersign's own configuration.
    Own(PathBuf),
}

impl Given {
    pub(crate) fn read(config: Option<&Path>) -> Result<Self, Refusal> {
        let Some(path) = config else {
            return Ok(Self::Nothing);
        };
        refusal::readable(&[path])?;
        let extension = path.extension().and_then(|text| text.to_str());
        match extension {
            Some("yaml" | "yml") => Ok(Self::Own(path.to_owned())),
            _ => Ok(Self::Puppet(ToolConf::load(path, &machine_name())?)),
        }
    }

    pub(crate) fn puppet(&self) -> Option<&ToolConf> {
        match self {
            Self::Puppet(conf) => Some(conf),
            Self::Nothing | Self::Own(_) => None,
        }
    }

    fn own(&self) -> Option<&PathBuf> {
        match self {
            Self::Own(path) => Some(path),
            Self::Nothing | Self::Puppet(_) => None,
        }
    }
}

/// The settings of a stopped server; `hostnames` overrule those of the configuration.
pub(crate) fn settings(data: &DataArg, given: &Given, hostnames: Vec<String>) -> Result<Settings> {
    Settings::new(&ServeArgs {
        config: given.own().cloned(),
        data: data.clone(),
        hostname: hostnames,
        ..ServeArgs::default()
    })
}

/// The settings with the names that the server's certificate shall have.
pub(crate) fn named_settings(
    place: &OfflineArgs,
    given: &Given,
    names: &ServerNameArgs,
) -> Result<Settings> {
    let configured = settings(&place.data, given, Vec::new())?.config.hostnames;
    let mut configured = configured.into_iter();
    let first = configured.next();
    let (from_conf, alt_from_conf) = match given.puppet() {
        Some(conf) => (conf.certname()?, conf.alt_names()?),
        None => (None, Vec::new()),
    };
    let certname = Some(names.certname.clone()).filter(|name| !name.is_empty());
    let certnames = [
        (certname, "--certname"),
        (from_conf, "certname of puppet.conf"),
        (first, "`hostnames`"),
    ];
    let mut all: Vec<String> = Vec::new();
    for (name, origin) in certnames {
        if let (Some(name), true) = (name, all.is_empty()) {
            all.push(server_name(&name, origin)?);
        }
    }
    let rest: Vec<String> = configured.collect();
    let further = [
        (&names.subject_alt_names, "--subject-alt-names"),
        (&alt_from_conf, "dns_alt_names of puppet.conf"),
        (&rest, "`hostnames`"),
    ];
    match further.into_iter().find(|(names, _)| !names.is_empty()) {
        Some((names, origin)) => {
            for name in names {
                all.push(server_name(name, origin)?);
            }
        }
        // As the original: agents look for a host called puppet unless they are told otherwise.
        None => all.push("puppet".to_owned()),
    }
    settings(&place.data, given, all)
}

/// The running server: the one that flags name, else that of a puppet.conf, else that of the data directory.
pub(crate) fn client(args: &CaServer) -> Result<Client> {
    let given = Given::read(args.config.as_deref())?;
    client_of(args, &given)
}

pub(crate) fn client_of(args: &CaServer, given: &Given) -> Result<Client> {
    let is_named = args.server.server.is_some() || args.server.data.dir().is_some();
    match given {
        Given::Puppet(conf) if !is_named => client::client_of(&named(conf.server()?)),
        Given::Own(_) if !is_named => {
            let root = settings(&args.server.data, given, Vec::new())?.config.data;
            client::client_of(&ServerArgs {
                data: DataArg::of(root),
                ..ServerArgs::default()
            })
        }
        Given::Nothing | Given::Puppet(_) | Given::Own(_) => client::client_of(&args.server),
    }
}

/// The server of a puppet.conf, as if flags had named it.
fn named(place: ServerPlace) -> ServerArgs {
    ServerArgs {
        data: DataArg::default(),
        server: Some(place.url),
        cert: place.cert,
        key: place.key,
        cacert: place.cacert,
    }
}

/// A name as a certificate carries it: `DNS:x`, `IP:y`, or a DNS name without a prefix.
pub(crate) fn alt_name(text: &str) -> Result<AltName, Refusal> {
    match text.trim().strip_prefix("IP:") {
        Some(address) => address
            .parse()
            .map(AltName::Ip)
            .map_err(|_| Refusal::error(format!("{text} is not an IP address"))),
        None => Ok(AltName::Dns(plain(text).to_owned())),
    }
}

/// A name of the server, without its prefix; where it was said is told if it cannot be one.
fn server_name(text: &str, origin: &str) -> Result<String, Refusal> {
    match alt_name(text)? {
        AltName::Ip(address) => Ok(address.to_string()),
        _ => match plain(text) {
            name if is_host_name(name) || name.parse::<IpAddr>().is_ok() => Ok(name.to_owned()),
            name => Err(Refusal::error(format!(
                "{origin}: {name:?} is neither a lower-case DNS name, for example ca.example.com, nor an address"
            ))),
        },
    }
}

fn plain(name: &str) -> &str {
    let name = name.trim();
    name.strip_prefix("DNS:").unwrap_or(name)
}

/// Refuses to make a CA where there is one: its files, or what it signed. The database alone does not say that there is
/// one, but it must go with the files.
pub(crate) fn refuse_existing(folder: &DataFolder, files: &[PathBuf]) -> Result<(), Refusal> {
    let mut errors = refusal::existing(files);
    if errors.is_empty() {
        return Ok(());
    }
    errors.extend(refusal::existing(&[folder.database()]));
    errors.extend([REPLACING, ELSEWHERE].map(str::to_owned));
    Err(Refusal::Errors(errors))
}

/// The files may be gone while the ledger remembers.
pub(crate) async fn refuse_used(settings: &Settings, store: &dyn Store) -> Result<()> {
    let issuer = IssuerId::parse(signers::PUPPET_ISSUER)?;
    if store.ledger(&issuer, None, 1).await?.is_empty() {
        return Ok(());
    }
    let line = format!(
        "Existing certificates of issuer {issuer} in '{}'",
        settings.folder.database().display()
    );
    let lines = [&line, REPLACING, ELSEWHERE].map(str::to_owned);
    Err(Refusal::Errors(lines.to_vec()).into())
}

const REPLACING: &str =
    "If you would really like to replace your CA, please delete the existing files first.
Note that any certificates that were issued by this CA will become invalid if you
replace it!";
/// What the original need not say: here a directory belongs to one CA.
const ELSEWHERE: &str = "To keep it, choose another directory with --data, or move this one away.";
