//! A signer that a site declares.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use countersign_authority::profile::{
    AltNameRule, ExtensionRule, NameBounds, NameKinds, NameSettings, OrganizationRule,
    OtherExtensions, Pattern, SubjectBounds, Usage, UsageRule,
};
use countersign_authority::{OnWaiting, Profile, Signer};
use countersign_pki::{Oid, oid};
use countersign_policy::{Network, SignerName};
use countersign_server::kubernetes::profiles::{self, MASTERS};

use super::pods::{self, PodNames};
use super::{KUBERNETES_ISSUER, MIN_LIFETIME, PUPPET_ISSUER, RESERVED_DOMAINS, issuer_of};
use crate::config::{
    ExtensionsSection, NameKind, NamePatternsSection, OthersKind, SignerSection, SubjectSection,
    nearest,
};

pub(crate) fn custom(section: &SignerSection) -> Result<Signer> {
    let name = SignerName::parse(&section.name)?;
    for domain in RESERVED_DOMAINS {
        ensure!(
            !section.name.starts_with(domain),
            "names under {domain} are built in: choose a domain of yours"
        );
    }
    let issuer = issuer_of(section)?;
    ensure!(
        issuer.as_str() != PUPPET_ISSUER,
        "a certificate of the puppet issuer is an identity at the Puppet door: choose another issuer"
    );
    let permitted = usages(&section.usages)?;
    let required = usages(&section.required_usages)?;
    if let Some(foreign) = required.iter().find(|usage| !permitted.contains(usage)) {
        bail!("required_usages: {:?} is not among usages", foreign.name());
    }
    let maximum = section.max_lifetime.unwrap_or(section.lifetime);
    ensure!(
        section.lifetime <= maximum,
        "lifetime {} is longer than max_lifetime {maximum}",
        section.lifetime
    );
    ensure!(
        section.lifetime.as_seconds() >= MIN_LIFETIME,
        "lifetime {} is shorter than 10m",
        section.lifetime
    );
    let kinds = kinds(&section.names);
    let mut profile = Profile {
        alt_names: AltNameRule::Kinds(kinds),
        usages: UsageRule::Asked {
            required,
            permitted,
        },
        subjects: subjects(&section.subject)?,
        names: names(section, kinds)?,
        name_settings: NameSettings {
            kinds: Some("`names` of the signer"),
            patterns: Some("`name_patterns` of the signer"),
        },
        extensions: extensions(&section.extensions)?,
        ..profiles::within(section.lifetime.as_seconds(), maximum.as_seconds())
    };
    profile.lifetime.backdate = section.backdate.as_seconds();
    if let Some(pods) = &section.pods {
        PodNames::of(section, pods).context("pods")?;
        pods::shape(&mut profile.lifetime);
    }
    if issuer.as_str() == KUBERNETES_ISSUER {
        // Its certificates are identities: nobody gets the unlimited group by asking.
        profile.refused_organizations = &[MASTERS];
    }
    Ok(Signer {
        name,
        profile,
        issuer,
        one_certificate_per_name: false,
        administrators_only: false,
        on_waiting: OnWaiting::Refuse,
    })
}

fn usages(names: &[String]) -> Result<Vec<Usage>> {
    let mut usages = Vec::new();
    for text in names {
        match Usage::parse(text) {
            Some(usage) => usages.push(usage),
            None => match nearest(text, Usage::names()) {
                Some(near) => bail!("unknown usage {text:?}; did you mean {near:?}?"),
                None => bail!(
                    "unknown usage {text:?}; known are {}",
                    Usage::names().collect::<Vec<_>>().join(", ")
                ),
            },
        }
    }
    Ok(usages)
}

fn kinds(kinds: &[NameKind]) -> NameKinds {
    let has = |kind| kinds.contains(&kind);
    NameKinds {
        dns: has(NameKind::Dns),
        ip: has(NameKind::Ip),
        email: has(NameKind::Email),
        uri: has(NameKind::Uri),
    }
}

fn subjects(section: &SubjectSection) -> Result<SubjectBounds> {
    let permitted = patterns("subject.organizations", &section.organizations)?;
    let required = section.required_organizations.clone();
    Ok(SubjectBounds {
        common_names: patterns("subject.common_names", &section.common_names)?,
        organizations: match permitted.is_empty() && required.is_empty() {
            true => OrganizationRule::Any,
            false => OrganizationRule::Among {
                permitted,
                required,
            },
        },
    })
}

fn names(section: &SignerSection, permitted: NameKinds) -> Result<NameBounds> {
    let required = kinds(&section.required_names);
    let NamePatternsSection {
        dns,
        ip,
        email,
        uri,
    } = &section.name_patterns;
    let lists = [
        ("dns", permitted.dns, required.dns, dns),
        ("ip", permitted.ip, required.ip, ip),
        ("email", permitted.email, required.email, email),
        ("uri", permitted.uri, required.uri, uri),
    ];
    for (kind, is_permitted, is_required, list) in lists {
        ensure!(
            is_permitted || !is_required,
            "required_names: {kind} is not among names"
        );
        ensure!(
            is_permitted || list.is_empty(),
            "name_patterns.{kind}: {kind} is not among names"
        );
    }
    let mut networks = Vec::new();
    for text in ip {
        let network = Network::parse(text).ok_or_else(|| {
            anyhow!("name_patterns.ip: {text:?} is no network such as 192.0.2.0/24")
        });
        networks.push(network?);
    }
    Ok(NameBounds {
        required,
        dns: patterns("name_patterns.dns", dns)?,
        ip: networks,
        email: patterns("name_patterns.email", email)?,
        uri: patterns("name_patterns.uri", uri)?,
    })
}

fn extensions(section: &ExtensionsSection) -> Result<ExtensionRule> {
    let mut oids = Vec::new();
    for text in &section.copied {
        let named = || format!("extensions.copied: {text:?}");
        let id = Oid::parse(text).with_context(named)?;
        ensure!(
            !NEVER_COPIED
                .iter()
                .any(|arc| id == *arc || id.is_under(arc)),
            "{}: a signer writes extensions of this arc by itself",
            named()
        );
        oids.push(id);
    }
    let others = match section.others {
        OthersKind::Dropped => OtherExtensions::Dropped,
        OthersKind::Refused => OtherExtensions::Refused,
    };
    Ok(match (oids.is_empty(), others) {
        (true, OtherExtensions::Dropped) => ExtensionRule::Dropped,
        (_, others) => ExtensionRule::Copied { oids, others },
    })
}

fn patterns(key: &str, texts: &[String]) -> Result<Vec<Pattern>> {
    let parsed = texts
        .iter()
        .map(|text| Pattern::parse(text).with_context(|| format!("{key}: {text:?}")));
    parsed.collect()
}

/// What says who somebody is, what a key is for or where the authority is found. Puppet's rights are among them.
const NEVER_COPIED: [Oid; 3] = [
    oid::CERTIFICATE_EXTENSIONS,
    oid::PRIVATE_EXTENSIONS,
    oid::PP_AUTH,
];
