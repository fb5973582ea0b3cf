//! The configuration file: its keys, their defaults, and what is wrong with it.
//!
//! Every key stands in `docs/configuration.md`; a test compares the two.

mod access;
mod cluster;
mod cluster_resources;
mod foreman;
mod gc;
mod puppet_server;
mod signers;
mod tokens;
mod yaml_fault;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use countersign_keys::KeySpec;
use countersign_policy::Network;
use countersign_puppet_compat::{Autosign as PuppetAutosign, AutosignFault};
use countersign_store::postgres::{Address, AddressFault};
use countersign_webhook::trusted_file;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) use access::AccessSection;
pub(crate) use cluster::ClusterSection;
pub(crate) use cluster_resources::{ResourcesSection, WebhookGrant};
pub(crate) use countersign_policy::{Span, nearest};
pub(crate) use foreman::ForemanSection;
pub(crate) use gc::{Collection, GcSection};
pub(crate) use puppet_server::Remarks;
pub(crate) use signers::{
    ExtensionsSection, NamePatternsSection, OthersKind, PodsSection, SubjectSection,
};
pub(crate) use tokens::{KeyFile, Source, TokensSection};

/// What the file may say. A key that is left out has its default.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) data: PathBuf,
    #[serde(deserialize_with = "address")]
    pub(crate) listen: SocketAddr,
    pub(crate) hostnames: Vec<String>,
    #[serde(with = "word")]
    pub(crate) store: StoreKind,
    pub(crate) metrics: MetricsSection,
    pub(crate) log: Log,
    pub(crate) issuers: BTreeMap<String, IssuerSection>,
    pub(crate) signers: Vec<SignerSection>,
    pub(crate) policies: Vec<PathBuf>,
    pub(crate) webhooks: WebhooksSection,
    pub(crate) puppet: PuppetSection,
    pub(crate) kubernetes: KubernetesSection,
    pub(crate) access: Vec<AccessSection>,
    pub(crate) tokens: TokensSection,
    pub(crate) foreman: ForemanSection,
    pub(crate) gc: GcSection,
    pub(crate) limits: LimitsSection,
    pub(crate) cluster: ClusterSection,
    /// The file that it was read from.
    #[serde(skip)]
    pub(crate) file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: PathBuf::from("countersign-data"),
            listen: loopback(8140),
            hostnames: Vec::new(),
            store: StoreKind::Sqlite,
            metrics: MetricsSection::default(),
            log: Log::default(),
            issuers: BTreeMap::new(),
            signers: Vec::new(),
            policies: Vec::new(),
            webhooks: WebhooksSection::default(),
            puppet: PuppetSection::default(),
            kubernetes: KubernetesSection::default(),
            access: Vec::new(),
            tokens: TokensSection::default(),
            foreman: ForemanSection::default(),
            gc: GcSection::default(),
            limits: LimitsSection::default(),
            cluster: ClusterSection::default(),
            file: None,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MetricsSection {
    #[serde(with = "word")]
    pub(crate) listen: Listen,
}

impl Default for MetricsSection {
    fn default() -> Self {
        Self {
            listen: Listen::Off,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct IssuerSection {
    #[serde(with = "word")]
    pub(crate) key: KeyKind,
    pub(crate) verify_signatures: Verification,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serials: Option<SerialKind>,
}

/// How serials are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SerialKind {
    Sequential,
    Random,
}

/// Which signatures of in-process EC and Ed25519 keys are verified before release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verification {
    All,
    #[default]
    Sample,
}

/// A signer beside the built-in ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignerSection {
    pub(crate) name: String,
    #[serde(default = "SignerSection::default_usages")]
    pub(crate) usages: Vec<String>,
    #[serde(default)]
    pub(crate) required_usages: Vec<String>,
    #[serde(default)]
    pub(crate) subject: SubjectSection,
    #[serde(default)]
    pub(crate) names: Vec<NameKind>,
    #[serde(default)]
    pub(crate) required_names: Vec<NameKind>,
    #[serde(default)]
    pub(crate) name_patterns: NamePatternsSection,
    #[serde(default)]
    pub(crate) extensions: ExtensionsSection,
    #[serde(default = "SignerSection::default_lifetime")]
    pub(crate) lifetime: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_lifetime: Option<Span>,
    #[serde(default = "SignerSection::default_backdate")]
    pub(crate) backdate: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) issuer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pods: Option<PodsSection>,
}

impl SignerSection {
    fn default_usages() -> Vec<String> {
        ["client auth", "digital signature", "key encipherment"]
            .map(str::to_owned)
            .to_vec()
    }

    fn default_lifetime() -> Span {
        Span::days(90)
    }

    fn default_backdate() -> Span {
        Span::seconds(300)
    }
}

/// How webhooks are asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WebhooksSection {
    /// How many questions each may have open.
    pub(crate) concurrency: NonZeroUsize,
    /// What this authority calls itself.
    pub(crate) id: String,
}

impl Default for WebhooksSection {
    fn default() -> Self {
        Self {
            concurrency: const { NonZeroUsize::new(32).unwrap() },
            id: "countersign".to_owned(),
        }
    }
}

/// A kind of alternative name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NameKind {
    Dns,
    Ip,
    Email,
    Uri,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PuppetSection {
    #[serde(with = "word", skip_serializing_if = "Autosign::is_default")]
    pub(crate) autosign: Autosign,
    pub(crate) allowlist_apex: bool,
    pub(crate) ca_ttl: Span,
    pub(crate) allow_subject_alt_names: bool,
    pub(crate) allow_authorization_extensions: bool,
    pub(crate) auto_renewal: bool,
    pub(crate) auto_renewal_cert_ttl: Span,
    pub(crate) infra_crl: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) infra_inventory: Option<PathBuf>,
    pub(crate) allow_duplicate_certs: bool,
    pub(crate) public_csr: bool,
    pub(crate) autosign_executable: AutosignExecutable,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) puppet_conf: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_conf: Option<PathBuf>,
    /// The keys of this section that the file says: these win over Puppet Server's own files.
    #[serde(skip)]
    said: BTreeSet<String>,
}

impl Default for PuppetSection {
    fn default() -> Self {
        Self {
            autosign: Autosign::DefaultFile,
            allowlist_apex: false,
            ca_ttl: Span::years(5),
            allow_subject_alt_names: false,
            allow_authorization_extensions: false,
            auto_renewal: false,
            auto_renewal_cert_ttl: Span::days(90),
            infra_crl: false,
            infra_inventory: None,
            allow_duplicate_certs: false,
            public_csr: false,
            autosign_executable: AutosignExecutable::default(),
            puppet_conf: None,
            ca_conf: None,
            said: BTreeSet::new(),
        }
    }
}

/// How a policy executable is run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AutosignExecutable {
    pub(crate) timeout: Span,
    pub(crate) concurrency: NonZeroUsize,
    /// Shown without its values: a site may keep a password there.
    #[serde(serialize_with = "redacted")]
    pub(crate) environment: BTreeMap<String, String>,
}

impl Default for AutosignExecutable {
    fn default() -> Self {
        Self {
            timeout: Span::seconds(10),
            concurrency: const { NonZeroUsize::new(8).unwrap() },
            environment: BTreeMap::new(),
        }
    }
}

fn redacted<S: Serializer>(values: &BTreeMap<String, String>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(values.keys().map(|name| (name, "(hidden)")))
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KubernetesSection {
    #[serde(with = "word")]
    pub(crate) listen: Listen,
    /// Whether the built-in policy for kubelets' client certificates is asked.
    pub(crate) approve_kubelet_clients: bool,
    /// The longest life of what the signers of `kubernetes.io` sign.
    pub(crate) signing_duration: Span,
}

impl Default for KubernetesSection {
    fn default() -> Self {
        Self {
            listen: Listen::On(loopback(8141)),
            approve_kubelet_clients: true,
            signing_duration: Span::days(365),
        }
    }
}

/// How often and how much somebody may ask; 0 is no limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitsSection {
    pub(crate) csr_per_minute_per_source: u32,
    pub(crate) csr_per_minute_per_certname: u32,
    pub(crate) token_failures_per_10_minutes: u32,
    pub(crate) pending_per_source: usize,
    pub(crate) pending_bytes: u64,
    pub(crate) connections: usize,
    pub(crate) connections_per_source: usize,
    pub(crate) csr_bytes: usize,
    pub(crate) trusted_proxies: Vec<Network>,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            csr_per_minute_per_source: 6000,
            csr_per_minute_per_certname: 30,
            token_failures_per_10_minutes: 10,
            pending_per_source: 10_000,
            pending_bytes: 536_870_912,
            connections: 0,
            connections_per_source: 0,
            csr_bytes: 65_536,
            trusted_proxies: Vec::new(),
        }
    }
}

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// In the data directory.
    Sqlite,
    /// In a database that other servers may use too.
    Postgres(Box<Address>),
}

impl FromStr for StoreKind {
    type Err = ValueFault;

    fn from_str(text: &str) -> Result<Self, ValueFault> {
        match text {
            "sqlite" => Ok(Self::Sqlite),
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                let address = url.parse().map_err(|fault: AddressFault| {
                    let reason = fault.to_string();
                    ValueFault::Postgres { reason }
                })?;
                Ok(Self::Postgres(Box::new(address)))
            }
            other => Err(ValueFault::Store {
                text: other.to_owned(),
            }),
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite => f.write_str("sqlite"),
            Self::Postgres(address) => address.fmt(f),
        }
    }
}

/// A listener that may be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Off,
    On(SocketAddr),
}

impl FromStr for Listen {
    type Err = ValueFault;

    fn from_str(text: &str) -> Result<Self, ValueFault> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let fault = |_| ValueFault::Listen {
            text: text.to_owned(),
        };
        text.parse().map(Self::On).map_err(fault)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::On(address) => address.fmt(f),
        }
    }
}

/// Which Puppet requests are signed without a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Autosign {
    Everything,
    Nothing,
    /// Those that the list or the executable at this path lets through.
    File(PathBuf),
    /// The same at `autosign.conf` in the data directory.
    DefaultFile,
}

impl Autosign {
    /// The default has no word of its own: it is what is not written.
    fn is_default(&self) -> bool {
        *self == Self::DefaultFile
    }
}

impl From<PuppetAutosign> for Autosign {
    fn from(said: PuppetAutosign) -> Self {
        match said {
            PuppetAutosign::Everything => Self::Everything,
            PuppetAutosign::Nothing => Self::Nothing,
            PuppetAutosign::File(path) => Self::File(path),
        }
    }
}

impl FromStr for Autosign {
    type Err = ValueFault;

    fn from_str(text: &str) -> Result<Self, ValueFault> {
        let said: PuppetAutosign = text.parse()?;
        Ok(said.into())
    }
}

impl fmt::Display for Autosign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("true"),
            Self::Nothing => f.write_str("false"),
            Self::File(path) => path.display().fmt(f),
            Self::DefaultFile => f.write_str("autosign.conf"),
        }
    }
}

/// The kind of an issuer's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyKind(pub(crate) KeySpec);

impl FromStr for KeyKind {
    type Err = ValueFault;

    fn from_str(text: &str) -> Result<Self, ValueFault> {
        let fault = |_| ValueFault::Key {
            text: text.to_owned(),
        };
        text.parse().map(Self).map_err(fault)
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// Why a value, in the file or on the command line, is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueFault {
    #[error(
        "{text:?} is no address to listen on: write ADDRESS:PORT, for example 127.0.0.1:8141, or off"
    )]
    Listen { text: String },
    #[error(
        "{text:?} is no address to listen on: write ADDRESS:PORT without a name, for example 127.0.0.1:8140 or 0.0.0.0:8140"
    )]
    Address { text: String },
    #[error(transparent)]
    Autosign(#[from] AutosignFault),
    #[error(
        "{text:?} is no store: say sqlite, or the URL of a database, postgres://USER@HOST/DATABASE"
    )]
    Store { text: String },
    #[error("{reason}")]
    Postgres { reason: String },
    #[error("{text:?} is no kind of key: say p256, p384, ed25519, rsa2048, rsa3072 or rsa4096")]
    Key { text: String },
}

impl Config {
    /// The policy files and folders. Relative ones begin in the folder of the configuration file.
    pub(crate) fn policy_paths(&self) -> Vec<PathBuf> {
        let file = self.file.as_deref().and_then(Path::parent);
        let base = file.unwrap_or(Path::new(""));
        let from_base = |path: &PathBuf| {
            let path = base.join(path);
            std::path::absolute(&path).unwrap_or(path)
        };
        self.policies.iter().map(from_base).collect()
    }

    /// Reads a file.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigFault> {
        Self::parse(&read(path)?, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, ConfigFault> {
        let fault = |error| yaml_fault::explained(path, text, &error);
        let mut config: Self = serde_saphyr::from_str(text).map_err(fault)?;
        let said: Said = serde_saphyr::from_str(text).map_err(fault)?;
        config.puppet.said = said.puppet.into_keys().collect();
        config.file = Some(path.to_owned());
        Ok(config)
    }
}

/// Which keys a file says, whatever their values.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    puppet: BTreeMap<String, IgnoredAny>,
}

/// A whole file, unless it is far too long.
fn read(path: &Path) -> Result<String, ConfigFault> {
    let unreadable = |source| ConfigFault::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    // It names programs and keys. A pipe is whoever's who made it.
    if file.metadata().map_err(unreadable)?.is_file() {
        let real = path.canonicalize().map_err(unreadable)?;
        trusted_file(&real).map_err(|why| ConfigFault::Untrusted { why })?;
    }
    file.take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    match text.len() as u64 > MAX_FILE {
        true => Err(ConfigFault::TooLarge { path: path.into() }),
        false => Ok(text),
    }
}

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigFault {
    #[error("cannot read the configuration file {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the configuration file is not trusted: {why}")]
    Untrusted { why: String },
    #[error("the configuration file {} is larger than {MAX_FILE} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("{}, line {line}: unknown key {key:?}{}", path.display(), hint(nearest, known))]
    UnknownKey {
        path: PathBuf,
        line: u64,
        key: String,
        nearest: Option<&'static str>,
        known: Vec<&'static str>,
    },
    #[error("{}{}: {}{what}", path.display(), line_of(line), key_of(key))]
    Value {
        path: PathBuf,
        line: Option<u64>,
        key: Option<String>,
        what: String,
    },
    /// In a Puppet Server's own file.
    #[error("{}, line {line}: {key}: {what}", path.display())]
    PuppetServer {
        path: PathBuf,
        line: usize,
        key: String,
        what: String,
    },
}

fn line_of(line: &Option<u64>) -> String {
    line.map(|line| format!(", line {line}"))
        .unwrap_or_default()
}

fn key_of(key: &Option<String>) -> String {
    key.as_ref()
        .map(|key| format!("{key}: "))
        .unwrap_or_default()
}

fn hint(nearest: &Option<&'static str>, known: &[&'static str]) -> String {
    match nearest {
        Some(key) => format!("; did you mean {key:?}?"),
        None => format!("; known here are {}", known.join(", ")),
    }
}

/// An address that cannot be switched off.
fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    let parsed = text.parse();
    parsed.map_err(|_| D::Error::custom(ValueFault::Address { text }))
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A value that stands in the file as a word, as it does on the command line.
mod word {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// More than any site needs; keeps a wrong path from filling the memory.
const MAX_FILE: u64 = 1024 * 1024;

#[cfg(test)]
mod tests;
