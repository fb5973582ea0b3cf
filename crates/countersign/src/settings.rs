//! The effective settings: the configuration file, overruled by flags, checked and made into the engine's words.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use countersign_authority::{IssuerId, Serials};
use countersign_keys::KeySpec;
use countersign_pki::{AltName, CsrLimits};
use countersign_server::access::Entry;
use countersign_server::foreman::TrustedHosts;

use crate::cli::ServeArgs;
use crate::config::{
    Autosign, Config, KeyKind, Listen, Remarks, SerialKind, Span, Verification, nearest,
};
use crate::data_folder::DataFolder;
use crate::first_start;
use crate::logging;
use crate::signers;
use crate::tokens;

/// Everything that `serve` needs to know.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The effective configuration, as `--print-config` shows it.
    pub(crate) config: Config,
    pub(crate) folder: DataFolder,
    pub(crate) names: ServerNames,
    pub(crate) issuers: Vec<IssuerSettings>,
    /// What is to be said about the files that were read, once there is a log.
    pub(crate) remarks: Remarks,
}

/// One issuer, as it shall be.
#[derive(Debug)]
pub(crate) struct IssuerSettings {
    pub(crate) id: IssuerId,
    /// The name it gets when it is created.
    pub(crate) common_name: String,
    /// The key it gets when it is created.
    pub(crate) key: KeySpec,
    /// Whether the kind of key was configured or is the default.
    pub(crate) key_is_configured: bool,
    pub(crate) verification: Verification,
    pub(crate) serials: Serials,
    /// Its certificate and its key, where an administrator keeps them; `None`: in the data folder.
    pub(crate) kept: Option<IssuerFiles>,
}

/// Where an issuer's certificate and key are that are never made or written here.
#[derive(Clone, Debug)]
pub(crate) struct IssuerFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The names of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerNames {
    /// The first name: the server's certname.
    pub(crate) certname: String,
    /// Every name, the certname included.
    pub(crate) dns: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Settings {
    /// Flags over file over a Puppet Server's own files over defaults.
    pub(crate) fn new(args: &ServeArgs) -> Result<Self> {
        let mut config = match &args.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        let remarks = config.take_over_puppet_settings()?;
        overrule(&mut config, args);
        Self::from_config(config, remarks)
    }

    /// The settings that a configuration comes to.
    pub(crate) fn from_config(mut config: Config, remarks: Remarks) -> Result<Self> {
        let file = config.file.clone();
        let in_file = |fault: anyhow::Error| match &file {
            Some(file) => fault.context(file.display().to_string()),
            None => fault,
        };
        check(&config).map_err(in_file)?;
        let folder = DataFolder::new(config.data.clone());
        if config.hostnames.is_empty() {
            // The names that it had, be it by a flag once or by `ca setup`: agents know the server by them.
            config.hostnames =
                first_start::names_on_certificate(&folder).unwrap_or_else(|| vec![machine_name()]);
        }
        if config.puppet.autosign == Autosign::DefaultFile {
            let path = std::path::absolute(folder.autosign_file())
                .context("the working directory cannot be found")?;
            config.puppet.autosign = Autosign::File(path);
        }
        let names = ServerNames::new(&config)?;
        let issuers = issuers(&config, &names).map_err(in_file)?;
        // Signers are made anew for the engine; here it only matters that they can be.
        signers::all(&config).map_err(in_file)?;
        Ok(Self {
            folder,
            config,
            names,
            issuers,
            remarks,
        })
    }
}

impl Settings {
    /// The policy files and folders. Relative ones begin in the folder of the configuration file.
    pub(crate) fn policy_paths(&self) -> Vec<PathBuf> {
        self.config.policy_paths()
    }

    /// Who has which role.
    pub(crate) fn access(&self) -> Vec<Entry> {
        let sections = self.config.access.iter();
        sections.map(|section| section.entry.clone()).collect()
    }

    /// Which roles certnames have at the Foreman listener, whether it listens or not: a certificate lives longer than
    /// such a setting.
    pub(crate) fn access_elsewhere(&self) -> Vec<Entry> {
        TrustedHosts::roles(signers::smart_proxy_clients(&self.config))
    }
}

impl ServerNames {
    /// The configured names; the loopback names and the address listened on come on top, so that the
    /// machine's own commands always find their server in its certificate.
    fn new(config: &Config) -> Result<Self> {
        let mut dns: Vec<String> = Vec::new();
        let mut addresses: Vec<IpAddr> = Vec::new();
        for name in &config.hostnames {
            match name.parse() {
                Ok(address) => push_new(&mut addresses, address),
                Err(_) if is_host_name(name) => push_new(&mut dns, name.clone()),
                Err(_) => bail!(
                    "hostname {name:?} is neither an address nor a lower-case DNS name: correct --hostname or `hostnames`"
                ),
            }
        }
        let Some(certname) = dns.first().cloned() else {
            bail!(
                "the server needs a DNS name, its certname: add one with --hostname or `hostnames`"
            );
        };
        if signers::RESERVED.contains(&certname.as_str()) {
            bail!(
                "hostname {certname:?} is the name of an administrator's certificate: choose another"
            );
        }
        push_new(&mut dns, "localhost".to_owned());
        push_new(&mut addresses, Ipv4Addr::LOCALHOST.into());
        push_new(&mut addresses, Ipv6Addr::LOCALHOST.into());
        let listeners = [Listen::On(config.listen), config.kubernetes.listen];
        for listen in listeners {
            if let Listen::On(address) = listen
                && !address.ip().is_unspecified()
            {
                push_new(&mut addresses, address.ip());
            }
        }
        Ok(Self {
            certname,
            dns,
            addresses,
        })
    }

    /// As a certificate carries them.
    pub(crate) fn alt_names(&self) -> Vec<AltName> {
        let addresses = self.addresses.iter().copied().map(AltName::Ip);
        addresses
            .chain(self.dns.iter().cloned().map(AltName::Dns))
            .collect()
    }
}

fn overrule(config: &mut Config, args: &ServeArgs) {
    if let Some(data) = args.data.dir() {
        config.data.clone_from(data);
    }
    if let Some(listen) = args.listen {
        config.listen = listen;
    }
    if let Some(listen) = args.kubernetes_listen {
        config.kubernetes.listen = listen;
    }
    if !args.hostname.is_empty() {
        config.hostnames.clone_from(&args.hostname);
    }
    if let Some(autosign) = &args.autosign {
        config.puppet.autosign = autosign.clone();
    }
    if let Some(listen) = args.metrics_listen {
        config.metrics.listen = listen;
    }
    if let Some(store) = &args.store {
        config.store.clone_from(store);
    }
}

/// What the forms of the values alone do not tell.
fn check(config: &Config) -> Result<()> {
    let executable = &config.puppet.autosign_executable;
    if !EXECUTABLE_TIMEOUTS.contains(&executable.timeout.as_seconds()) {
        bail!(
            "puppet.autosign_executable.timeout: {} is not between 1s and 5m",
            executable.timeout
        );
    }
    for (name, value) in &executable.environment {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            bail!("puppet.autosign_executable.environment: {name:?} cannot be a variable");
        }
    }
    let bytes = config.limits.csr_bytes;
    if !CSR_BYTES.contains(&bytes) {
        bail!("limits.csr_bytes: {bytes} is not between 4096 and 1048576");
    }
    let interval = config.gc.interval;
    if interval < MIN_INTERVAL {
        bail!(
            "gc.interval: {interval} is shorter than {MIN_INTERVAL}: collect less often, for example every 1h"
        );
    }
    let puppet = &config.puppet;
    let lifetimes = [
        ("ca_ttl", puppet.ca_ttl),
        ("auto_renewal_cert_ttl", puppet.auto_renewal_cert_ttl),
    ];
    for (key, span) in lifetimes {
        span.as_lifetime()
            .with_context(|| format!("puppet.{key}"))?;
    }
    tokens::check(&config.tokens)?;
    let foreman = &config.foreman;
    if foreman.cert.is_some() != foreman.key.is_some() {
        bail!("foreman.cert and foreman.key belong together: name both files or none");
    }
    logging::check(&config.log.level)?;
    Ok(())
}

fn issuers(config: &Config, names: &ServerNames) -> Result<Vec<IssuerSettings>> {
    let mut ids: BTreeSet<IssuerId> = BTreeSet::new();
    ids.insert(IssuerId::parse(signers::PUPPET_ISSUER)?);
    ids.insert(IssuerId::parse(signers::KUBERNETES_ISSUER)?);
    for section in &config.signers {
        ids.insert(signers::issuer_of(section)?);
    }
    for id in config.issuers.keys() {
        if !ids.contains(id.as_str()) {
            let known = ids.iter().map(IssuerId::as_str);
            let hint = nearest(id, known).map(|near| format!("; did you mean {near:?}?"));
            bail!(
                "issuers.{id}: no signer has an issuer of that name{}",
                hint.unwrap_or_else(
                    || "; give a signer this `issuer` or remove the section".to_owned()
                )
            );
        }
    }
    let sections: BTreeMap<&str, _> = config
        .issuers
        .iter()
        .map(|(id, s)| (id.as_str(), s))
        .collect();
    let settings = ids.into_iter().map(|id| {
        let section = sections.get(id.as_str()).copied();
        let owner = match id.as_str() {
            signers::PUPPET_ISSUER => "Puppet",
            signers::KUBERNETES_ISSUER => "Kubernetes",
            other => other,
        };
        IssuerSettings {
            common_name: format!("{owner} CA: {}", names.certname),
            key: section.map(|s| s.key.0).unwrap_or_default(),
            key_is_configured: section.is_some_and(|s| s.key != KeyKind::default()),
            verification: section.map(|s| s.verify_signatures).unwrap_or_default(),
            serials: match section.and_then(|s| s.serials) {
                None => Serials::AsRecorded,
                Some(SerialKind::Sequential) => Serials::Sequential,
                Some(SerialKind::Random) => Serials::Random,
            },
            kept: None,
            id,
        }
    });
    Ok(settings.collect())
}

/// This machine's name, if it can be a certname.
pub(crate) fn machine_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy().to_ascii_lowercase();
    if is_host_name(&name) {
        name
    } else {
        "localhost".to_owned()
    }
}

/// A name that Puppet accepts as a certname and that can stand in a certificate as DNS name.
pub(crate) fn is_host_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let label = |label: &str| {
        label.len() <= 63
            && label.starts_with(letter)
            && label.ends_with(letter)
            && label.chars().all(|c| letter(c) || c == '-')
    };
    name.len() <= 253 && name != "ca" && name.split('.').all(label)
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Shows the effective configuration. It holds no secrets.
pub(crate) fn printed(settings: &Settings) -> Result<String> {
    serde_saphyr::to_string(&settings.config).context("cannot show the configuration")
}

/// Seconds. Agents do not wait for ever, and a server that ends waits for the slowest.
const EXECUTABLE_TIMEOUTS: RangeInclusive<u64> = 1..=300;
/// From what the smallest agents send to what still costs little to read.
const CSR_BYTES: RangeInclusive<usize> = 4096..=CsrLimits::MAX_PEM;
/// More often would only cost.
const MIN_INTERVAL: Span = Span::seconds(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn settings(flags: &[&str], file: &str) -> Result<Settings> {
        let temporary = tempfile::tempdir()?;
        let path = temporary.path().join("c.yaml");
        std::fs::write(&path, file)?;
        let args = [
            &["countersign", "serve", "--config", path.to_str().unwrap()],
            flags,
        ]
        .concat();
        match Cli::try_parse_from(args)?.command {
            Command::Serve(args) => Settings::new(&args),
            other => panic!("{other:?}"),
        }
    }

    fn fault(file: &str) -> String {
        format!("{:#}", settings(&[], file).unwrap_err())
    }

    #[test]
    fn flags_win_over_the_file() {
        let file =
            "data: /a\nlisten: 127.0.0.1:1\nhostnames: [a.example]\npuppet: {autosign: true}\n";
        let kept = settings(&[], file).unwrap();
        assert_eq!(
            (kept.config.listen.port(), &*kept.names.certname),
            (1, "a.example")
        );
        let flags = [
            "--data",
            "/b",
            "--listen",
            "127.0.0.1:2",
            "--hostname",
            "b.example",
            "--hostname",
            "c.example",
            "--autosign",
            "false",
            "--kubernetes-listen",
            "off",
        ];
        let overruled = settings(&flags, file).unwrap();
        let shown = printed(&overruled).unwrap();
        for line in [
            "data: /b",
            "listen: 127.0.0.1:2",
            "- b.example\n- c.example",
            "autosign: \"false\"",
            "listen: \"off\"",
        ] {
            assert!(shown.contains(line), "{line} in\n{shown}");
        }
    }

    #[test]
    fn server_names_include_the_loopback_and_the_address_listened_on() {
        let file = "hostnames: [ca.example, 192.0.2.7, localhost]\nlisten: 192.0.2.8:8140\nkubernetes: {listen: 0.0.0.0:1}\n";
        let names = settings(&[], file).unwrap().names;
        assert_eq!(names.certname, "ca.example");
        assert_eq!(names.dns, ["ca.example", "localhost"]);
        let addresses: Vec<String> = names.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["192.0.2.7", "127.0.0.1", "::1", "192.0.2.8"]);
    }

    #[test]
    fn without_a_name_the_machine_gives_its_own() {
        let names = settings(&[], "").unwrap().names;
        assert!(is_host_name(&names.certname) && names.dns.contains(&"localhost".to_owned()));
    }

    #[test]
    fn impossible_names_are_refused() {
        for bad in [
            "Upper.example",
            "a b",
            "*.example",
            "",
            "a..b",
            "-a",
            "a-",
            "ca",
        ] {
            let fault = settings(&[&format!("--hostname={bad}")], "")
                .unwrap_err()
                .to_string();
            assert!(fault.contains(&format!("{bad:?}")), "{fault}");
        }
        let fault = settings(&["--hostname", "192.0.2.1"], "")
            .unwrap_err()
            .to_string();
        assert!(fault.contains("certname"), "{fault}");
        let fault = settings(&["--hostname", signers::ADMIN], "")
            .unwrap_err()
            .to_string();
        assert!(fault.contains("administrator"), "{fault}");
    }

    #[test]
    fn every_signer_has_an_issuer_of_its_own() {
        let file = "hostnames: [ca.example]\nsigners: [{name: example.com/vpn}, {name: example.com/mail, issuer: mail}]\nissuers: {mail: {key: p384}}\n";
        let issuers = settings(&[], file).unwrap().issuers;
        let shown: Vec<_> = issuers
            .iter()
            .map(|i| (i.id.as_str(), i.common_name.as_str(), i.key))
            .collect();
        assert_eq!(
            shown,
            [
                (
                    "example.com.vpn",
                    "example.com.vpn CA: ca.example",
                    KeySpec::P256
                ),
                ("kubernetes", "Kubernetes CA: ca.example", KeySpec::P256),
                ("mail", "mail CA: ca.example", KeySpec::P384),
                ("puppet", "Puppet CA: ca.example", KeySpec::P256),
            ]
        );
    }

    #[test]
    fn contradictions_in_the_file_are_named() {
        let cases = [
            (
                "issuers: {pupet: {key: p384}}",
                r#"issuers.pupet: no signer has an issuer of that name; did you mean "puppet"?"#,
            ),
            ("signers: [{name: vpn}]", "signers[0]"),
            ("signers: [{name: kubernetes.io/x}]", "kubernetes.io"),
            ("signers: [{name: countersign.dev/x}]", "countersign.dev"),
            ("signers: [{name: a.b/c}, {name: a.b/c}]", "signers[1]"),
            (
                "signers: [{name: a.b/c, usages: [clint auth]}]",
                r#"did you mean "client auth"?"#,
            ),
            ("signers: [{name: a.b/c, issuer: puppet}]", "identity"),
            ("signers: [{name: a.b/c, issuer: ../x}]", "issuer"),
            (
                "signers: [{name: a.b/c, lifetime: 2d, max_lifetime: 1d}]",
                "max_lifetime",
            ),
            ("signers: [{name: a.b/c, lifetime: 1m}]", "10m"),
            ("kubernetes: {signing_duration: 1m}", "10m"),
            (
                "signers: [{name: a.b/c, usages: [any], required_usages: [signing]}]",
                r#"required_usages: "signing" is not among usages"#,
            ),
            (
                "signers: [{name: a.b/c, names: [ip], required_names: [dns]}]",
                "required_names: dns is not among names",
            ),
            (
                "signers: [{name: a.b/c, name_patterns: {uri: ['a']}}]",
                "name_patterns.uri: uri is not among names",
            ),
            (
                "signers: [{name: a.b/c, names: [ip], name_patterns: {ip: [10.0.0.0/33]}}]",
                "name_patterns.ip: \"10.0.0.0/33\"",
            ),
            (
                "signers: [{name: a.b/c, subject: {common_names: ['']}}]",
                "subject.common_names: \"\"",
            ),
            (
                "signers: [{name: a.b/c, extensions: {copied: [2.5.29.19]}}]",
                "extensions.copied: \"2.5.29.19\"",
            ),
            (
                "signers: [{name: a.b/c, extensions: {copied: [nonsense]}}]",
                "extensions.copied: \"nonsense\"",
            ),
            (
                "puppet: {autosign_executable: {timeout: 0s}}",
                "between 1s and 5m",
            ),
            (
                "puppet: {autosign_executable: {timeout: 1h}}",
                "between 1s and 5m",
            ),
            (
                "puppet: {autosign_executable: {environment: {'A=B': c}}}",
                r#""A=B" cannot be a variable"#,
            ),
            ("limits: {csr_bytes: 100}", "between 4096 and 1048576"),
            (
                "puppet: {puppet_conf: /nonexistent/puppet.conf}",
                "/nonexistent/puppet.conf",
            ),
            ("gc: {interval: 59s}", "gc.interval: 59s is shorter than 1m"),
            ("puppet: {ca_ttl: 0d}", "puppet.ca_ttl: 0s is no lifetime"),
            ("puppet: {ca_ttl: 51y}", "between 10m and 50y"),
            (
                "puppet: {auto_renewal_cert_ttl: 1m}",
                "puppet.auto_renewal_cert_ttl: 1m is no lifetime",
            ),
            (
                "tokens: {default_ttl: 8d}",
                "tokens.default_ttl: 8d is longer than tokens.max_ttl, which is 7d",
            ),
            ("tokens: {glob_max_ttl: 0s}", "never good"),
            ("tokens: {sources: []}", "tokens.sources: the list is empty"),
            (
                "tokens: {sources: [challengePassword, 1.2.840.113549.1.9.7]}",
                "challengePassword stands there twice",
            ),
            ("foreman: {cert: /a}", "foreman.cert and foreman.key"),
            ("log: {level: loud}", "off, error, warn, info, debug, trace"),
            (
                "log: {level: 'info,rustls=loud'}",
                r#"log.level: "rustls=loud""#,
            ),
            ("log: {level: ''}", "log.level"),
            ("log: {level: '=debug'}", "log.level"),
        ];
        for (file, part) in cases {
            let fault = fault(file);
            assert!(fault.contains(part), "{file}: {fault}");
            let names_a_file = fault.contains("c.yaml: ") || fault.contains("puppet.conf");
            assert!(names_a_file, "{file}: {fault}");
        }
        for level in [
            "warn",
            "DEBUG",
            "info,rustls=warn",
            "off, countersign=trace",
        ] {
            settings(&[], &format!("log: {{level: '{level}'}}")).unwrap();
        }
    }
}
