//! The signers of this authority and the policy for them.

mod custom;
#[cfg(test)]
mod document;
pub(crate) mod pods;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use countersign_authority::profile::{Authorization, OtherNames};
use countersign_authority::{IssuerId, OnWaiting, Profile, Signer};
use countersign_pki::{AltName, Carrier, Certificate, Oid, oid, pem};
use countersign_policy::{Apex, Guarded, MachineSubject, Policy, Rule, RuleKind, SignerName};
use countersign_server::access::{Entry, Holder, Role};
use countersign_server::kubernetes::profiles::{self as kubernetes_profiles, MASTERS, NODE, NODES};
use countersign_server::puppet::profiles::{self as puppet_profiles, AgentSettings};

use crate::config::{Autosign, Config, Listen, SignerSection};
use crate::settings::ServerNames;

pub(crate) use custom::custom;

pub(crate) const PUPPET_ISSUER: &str = "puppet";
pub(crate) const KUBERNETES_ISSUER: &str = "kubernetes";

/// Agents; what the Puppet door asks for.
pub(crate) const PUPPET_AGENT: &str = "countersign.dev/puppet-agent";
/// Administrators at the Puppet door.
pub(crate) const PUPPET_ADMIN: &str = "countersign.dev/puppet-admin";
/// The Puppet listener itself.
pub(crate) const PUPPET_SERVER: &str = "countersign.dev/puppet-server";
/// Administrators at the Kubernetes door, and users whom an administrator makes.
pub(crate) const KUBERNETES_ADMIN: &str = "countersign.dev/kubernetes-admin";
/// The Kubernetes listener itself.
pub(crate) const KUBERNETES_SERVER: &str = "countersign.dev/kubernetes-server";
/// Users of a Kubernetes API server.
pub(crate) const KUBE_APISERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Kubelets as clients of one.
pub(crate) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Kubelets as servers.
pub(crate) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// What was asked for before signers had names. The present API refuses to be asked for it.
pub(crate) const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

/// The administrator's name in certificates, at both doors. It is reserved and in the ledger from the first start, so
/// that no host of the fleet can get it.
pub(crate) const ADMIN: &str = "countersign-admin";
/// Every signer that is there without being declared.
pub(crate) const BUILT_IN: [&str; 9] = [
    PUPPET_AGENT,
    PUPPET_ADMIN,
    PUPPET_SERVER,
    KUBERNETES_ADMIN,
    KUBERNETES_SERVER,
    KUBE_APISERVER_CLIENT,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    LEGACY_UNKNOWN,
];
/// What a cluster's own signers are called: kube-controller-manager signs for them by itself.
pub(crate) const OF_CLUSTERS: [&str; 4] = [
    KUBE_APISERVER_CLIENT,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    LEGACY_UNKNOWN,
];
/// Domains whose signers are all built in.
const RESERVED_DOMAINS: [&str; 2] = ["kubernetes.io/", "countersign.dev/"];

/// Whether a signer of that name could only be a built-in one.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED_DOMAINS
        .iter()
        .any(|domain| name.starts_with(domain))
}

/// Signers that no request reaches: an administrator asks and decides in one call, or the authority itself does.
const OWN_SIGNERS: [&str; 4] = [
    PUPPET_ADMIN,
    PUPPET_SERVER,
    KUBERNETES_ADMIN,
    KUBERNETES_SERVER,
];
/// Names that the server itself cannot have.
pub(crate) const RESERVED: [&str; 1] = [ADMIN];

/// Every signer: the built-in ones and those of the configuration.
pub(crate) fn all(config: &Config) -> Result<Vec<Signer>> {
    let puppet = IssuerId::parse(PUPPET_ISSUER)?;
    let kubernetes = IssuerId::parse(KUBERNETES_ISSUER)?;
    let agents = AgentSettings {
        lifetime: config.puppet.ca_ttl.as_seconds(),
        alt_names: match config.puppet.allow_subject_alt_names {
            true => OtherNames::DnsAndIp,
            false => OtherNames::Refused,
        },
        authorization: match config.puppet.allow_authorization_extensions {
            true => Authorization::Copied,
            false => Authorization::Refused,
        },
    };
    let own = AgentSettings {
        alt_names: OtherNames::DnsAndIp,
        ..agents
    };
    let signing_duration = config.kubernetes.signing_duration;
    let longest = signing_duration.as_seconds();
    ensure!(
        longest >= MIN_LIFETIME,
        "kubernetes.signing_duration {signing_duration} is shorter than 10m"
    );
    let built_in = [
        (PUPPET_AGENT, puppet_profiles::agent(agents), &puppet),
        (PUPPET_ADMIN, puppet_profiles::admin(agents), &puppet),
        (PUPPET_SERVER, puppet_profiles::agent(own), &puppet),
        (KUBERNETES_ADMIN, kubernetes_profiles::admin(), &kubernetes),
        (
            KUBERNETES_SERVER,
            kubernetes_profiles::server(),
            &kubernetes,
        ),
        (
            KUBE_APISERVER_CLIENT,
            kubernetes_profiles::apiserver_client().with_longest_life(longest),
            &kubernetes,
        ),
        (
            KUBELET_CLIENT,
            kubernetes_profiles::kubelet_client().with_longest_life(longest),
            &kubernetes,
        ),
        (
            KUBELET_SERVING,
            kubernetes_profiles::kubelet_serving().with_longest_life(longest),
            &kubernetes,
        ),
        (
            LEGACY_UNKNOWN,
            kubernetes_profiles::legacy_unknown().with_longest_life(longest),
            &kubernetes,
        ),
    ];
    let duplicates = config.puppet.allow_duplicate_certs;
    // Whoever is given a token there would read it in everybody's certificate.
    let carriers = config.tokens.carriers();
    let withheld: Vec<Oid> = match carriers.contains(&Carrier::PresharedKey) {
        true => vec![oid::PP_PRESHARED_KEY],
        false => Vec::new(),
    };
    let mut signers = Vec::new();
    for (name, profile, issuer) in built_in {
        let profile = Profile {
            withheld: withheld.clone(),
            ..profile
        };
        signers.push(Signer {
            one_certificate_per_name: name == PUPPET_AGENT && !duplicates,
            administrators_only: OWN_SIGNERS.contains(&name),
            on_waiting: match name == PUPPET_AGENT && duplicates {
                true => OnWaiting::Replace,
                false => OnWaiting::Refuse,
            },
            name: SignerName::parse(name)?,
            profile,
            issuer: issuer.clone(),
        });
    }
    for (index, section) in config.signers.iter().enumerate() {
        let signer =
            custom(section).with_context(|| format!("signers[{index}] ({:?})", section.name))?;
        ensure!(
            !signers.iter().any(|known| known.name == signer.name),
            "signers[{index}]: there is a signer {} already",
            signer.name
        );
        signers.push(signer);
    }
    Ok(signers)
}

/// The issuer that a configured signer uses: the one it names, else one of its own.
pub(crate) fn issuer_of(section: &SignerSection) -> Result<IssuerId> {
    let named = section.issuer.clone();
    let id = named.unwrap_or_else(|| section.name.replace('/', "."));
    IssuerId::parse(&id).with_context(|| format!("the issuer {id:?} of signer {:?}", section.name))
}

/// What decides without a person, and which names nothing but a person gives away.
pub(crate) fn policy(config: &Config, names: &ServerNames) -> Result<Policy> {
    let kind = match &config.puppet.autosign {
        Autosign::Everything => Some(RuleKind::Always),
        // Explicitly off: a file that appears later changes nothing. The default was replaced by its path.
        Autosign::Nothing | Autosign::DefaultFile => None,
        Autosign::File(path) => Some(RuleKind::AutosignFile {
            path: path.clone(),
            apex: match config.puppet.allowlist_apex {
                true => Apex::Included,
                false => Apex::Excluded,
            },
        }),
    };
    let signers = vec![SignerName::parse(PUPPET_AGENT)?];
    let rules = kind
        .map(|kind| Rule::approving("autosign", signers, kind))
        .into_iter()
        .collect();
    let own = own(config, names)?;
    let entries = || config.access.iter().map(|section| &section.entry);
    let acting = |entry: &&Entry| entry.role != Role::Read;
    let trusted = smart_proxy_clients(config);
    let trusted = trusted.iter().map(|name| name.to_ascii_lowercase());
    let names = own.names.iter().cloned();
    let holders = entries().filter(acting).filter_map(certnames);
    let groups = entries().filter(acting).filter_map(group);
    Ok(Policy {
        tokens: config.tokens.handling(),
        machine_subjects: machine_subjects()?,
        signing_policies: Arc::default(),
        generation: 1,
        rules,
        reserved: Guarded {
            names: names.chain(holders).chain(trusted).collect(),
            groups: own.groups.iter().cloned().chain(groups).collect(),
        },
        own,
    })
}

/// The names and addresses in the certificates of every listener, and what makes somebody an administrator.
fn own(config: &Config, names: &ServerNames) -> Result<Guarded> {
    let servers = names.dns.iter().map(String::as_str).chain(RESERVED);
    let mut all: BTreeSet<String> = servers.map(str::to_owned).collect();
    all.extend(names.addresses.iter().map(ToString::to_string));
    if let (Listen::On(_), Some(path)) = (config.foreman.listen, &config.foreman.cert) {
        all.extend(names_in(path).with_context(|| format!("foreman.cert: {}", path.display()))?);
    }
    let entries = || config.access.iter().map(|section| &section.entry);
    let of_administrators = |entry: &&Entry| entry.role == Role::Admin;
    all.extend(entries().filter(of_administrators).filter_map(certnames));
    let groups = entries().filter(of_administrators).filter_map(group);
    Ok(Guarded {
        names: all,
        groups: groups.chain([MASTERS.to_owned()]).collect(),
    })
}

/// The names of the first certificate in a file.
fn names_in(path: &Path) -> Result<Vec<String>> {
    let text = fs::read(path).context("cannot be read")?;
    let block = pem::decode_first(&text, &pem::PemLimits::BUNDLE)?;
    let certificate = Certificate::parse(&block.context("holds no certificate")?.der)?;
    let common = certificate.subject().common_names().map(str::to_owned);
    let others = certificate
        .alt_names()
        .iter()
        .filter_map(|name| match name {
            AltName::Dns(name) => Some(name.clone()),
            AltName::Ip(address) => Some(address.to_canonical().to_string()),
            AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => None,
        });
    let lower = |name: String| name.trim_end_matches('.').to_ascii_lowercase();
    Ok(common.chain(others).map(lower).collect())
}

/// Nodes are named as the node authorizer reads them; a token for one is for the name behind that.
pub(crate) fn machine_subjects() -> Result<Vec<MachineSubject>> {
    let of = |signer| {
        Ok(MachineSubject {
            signer: SignerName::parse(signer)?,
            prefix: NODE.to_owned(),
            organization: NODES.to_owned(),
        })
    };
    [KUBELET_CLIENT, KUBELET_SERVING]
        .into_iter()
        .map(of)
        .collect()
}

/// The certnames that mint and sign as clients of the smart proxy; another authority's clients have no names here.
pub(crate) fn smart_proxy_clients(config: &Config) -> &[String] {
    match &config.foreman.ca {
        None => &config.foreman.trusted_hosts,
        Some(_) => &[],
    }
}

/// The certnames that an entry of `access` gives a role: whoever had one signed would have it.
fn certnames(entry: &Entry) -> Option<String> {
    match &entry.holder {
        Holder::Certname(name) => Some(name.clone()),
        Holder::Below(suffix) => Some(suffix.as_str().to_owned()),
        Holder::Group(_) => None,
    }
}

/// The Kubernetes group that an entry of `access` gives a role.
fn group(entry: &Entry) -> Option<String> {
    match &entry.holder {
        Holder::Group(group) => Some(group.clone()),
        Holder::Certname(_) | Holder::Below(_) => None,
    }
}

/// The shortest lifetime that a Kubernetes client may ask for.
const MIN_LIFETIME: u64 = 600;
