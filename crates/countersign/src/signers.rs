//! The signers of this authority and the policy for them.

mod custom;
#[cfg(test)]
mod document;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use countersign_authority::profile::{Authorization, OtherNames, PuppetSettings};
use countersign_authority::{IssuerId, OnWaiting, Profile, Signer};
use countersign_pki::{Carrier, Oid, oid};
use countersign_policy::{Apex, Policy, Rule, RuleKind, SignerName};
use countersign_server::access::{Holder, Role};

use crate::config::{AccessSection, Autosign, Config, SignerSection};
use crate::settings::ServerNames;

use custom::custom;

pub(crate) const PUPPET_ISSUER: &str = "puppet";
pub(crate) const KUBERNETES_ISSUER: &str = "kubernetes";

/// Agents; what the Puppet door asks for.
pub(crate) const PUPPET_AGENT: &str = "countersign.dev/puppet-agent";
/// Administrators at the Puppet door. No door asks for it.
pub(crate) const PUPPET_ADMIN: &str = "countersign.dev/puppet-admin";
/// The Puppet listener itself. No door asks for it.
pub(crate) const PUPPET_SERVER: &str = "countersign.dev/puppet-server";
/// Administrators at the Kubernetes door. No door asks for it.
pub(crate) const KUBERNETES_ADMIN: &str = "countersign.dev/kubernetes-admin";
/// The Kubernetes listener itself. No door asks for it.
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
/// Who is in it may do everything at the Kubernetes door: a person alone gives that away.
const MASTERS: &str = "system:masters";
/// Names that the server itself cannot have.
pub(crate) const RESERVED: [&str; 1] = [ADMIN];

/// Every signer: the built-in ones and those of the configuration.
pub(crate) fn all(config: &Config) -> Result<Vec<Signer>> {
    let puppet = IssuerId::parse(PUPPET_ISSUER)?;
    let kubernetes = IssuerId::parse(KUBERNETES_ISSUER)?;
    let agents = PuppetSettings {
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
    let own = PuppetSettings {
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
        (PUPPET_AGENT, Profile::puppet_agent(agents), &puppet),
        (PUPPET_ADMIN, Profile::puppet_admin(agents), &puppet),
        (PUPPET_SERVER, Profile::puppet_agent(own), &puppet),
        (KUBERNETES_ADMIN, Profile::kubernetes_admin(), &kubernetes),
        (KUBERNETES_SERVER, Profile::kubernetes_server(), &kubernetes),
        (
            KUBE_APISERVER_CLIENT,
            Profile::kube_apiserver_client().with_longest_life(longest),
            &kubernetes,
        ),
        (
            KUBELET_CLIENT,
            Profile::kube_apiserver_client_kubelet().with_longest_life(longest),
            &kubernetes,
        ),
        (
            KUBELET_SERVING,
            Profile::kubelet_serving().with_longest_life(longest),
            &kubernetes,
        ),
        (
            LEGACY_UNKNOWN,
            Profile::legacy_unknown().with_longest_life(longest),
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
    let own = names
        .dns
        .iter()
        .map(String::as_str)
        .chain(RESERVED)
        .map(str::to_owned);
    let addresses = names.addresses.iter().map(ToString::to_string);
    let holders = config.access.iter().filter_map(role_holder);
    let trusted = smart_proxy_clients(config);
    let trusted = trusted.iter().map(|name| name.to_ascii_lowercase());
    let reserved_names: BTreeSet<String> =
        own.chain(addresses).chain(holders).chain(trusted).collect();
    Ok(Policy {
        tokens: config.tokens.handling(),
        generation: 1,
        rules,
        reserved_names,
        reserved_groups: config
            .access
            .iter()
            .filter_map(role_group)
            .chain([MASTERS.to_owned()])
            .collect(),
    })
}

/// The certnames that mint and sign as clients of the smart proxy; another authority's clients have no names here.
pub(crate) fn smart_proxy_clients(config: &Config) -> &[String] {
    match &config.foreman.ca {
        None => &config.foreman.trusted_hosts,
        Some(_) => &[],
    }
}

/// The certnames that an entry of `access` lets act: whoever had a rule sign one would have the role.
fn role_holder(section: &AccessSection) -> Option<String> {
    match (section.entry.role, &section.entry.holder) {
        (Role::Read, _) | (_, Holder::Group(_)) => None,
        (Role::Admin | Role::Sign | Role::Mint, Holder::Certname(name)) => Some(name.clone()),
        (Role::Admin | Role::Sign | Role::Mint, Holder::Below(suffix)) => {
            Some(suffix.as_str().to_owned())
        }
    }
}

/// The Kubernetes group that an entry of `access` lets act.
fn role_group(section: &AccessSection) -> Option<String> {
    match (section.entry.role, &section.entry.holder) {
        (Role::Admin | Role::Sign | Role::Mint, Holder::Group(group)) => Some(group.clone()),
        (Role::Read, _) | (_, Holder::Certname(_) | Holder::Below(_)) => None,
    }
}

/// The shortest lifetime that a Kubernetes client may ask for.
const MIN_LIFETIME: u64 = 600;
