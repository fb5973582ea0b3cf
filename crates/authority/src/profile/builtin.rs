//! The profiles of the signers that every authority has.

use countersign_pki::{ext, oid};

use super::{
    AltNameRule, Authorization, ExtensionRule, Lifetime, NameKinds, OtherNames, Profile,
    SubjectRule, Usage, UsageRule,
};

/// What a site may set about its Puppet agents' certificates.
#[derive(Clone, Copy, Debug)]
pub struct PuppetSettings {
    /// Lifetime in seconds.
    pub lifetime: u64,
    /// Names beside the certname.
    pub alt_names: OtherNames,
    /// Authorization extensions.
    pub authorization: Authorization,
}

impl Profile {
    /// An agent's certificate: its certname and nothing it could use to pass for somebody else.
    pub fn puppet_agent(settings: PuppetSettings) -> Self {
        Self {
            subject: SubjectRule::KeyAsCommonName,
            refused_organizations: &[],
            alt_names: AltNameRule::OwnName {
                others: settings.alt_names,
            },
            extensions: ExtensionRule::PuppetArcs {
                authorization: settings.authorization,
            },
            usages: UsageRule::ServerAndClient,
            lifetime: Lifetime {
                default: settings.lifetime,
                maximum: u64::MAX,
                minimum: 1,
                backdate: DAY,
                backdate_included_from: None,
            },
            subject_key_id: true,
            comment: Some("Puppet Server Internal Certificate"),
            added: Vec::new(),
            withheld: Vec::new(),
        }
    }

    /// An administrator's or the server's own certificate: an agent's with `pp_cli_auth`. No request
    /// can ask for it; only the authority and its administrators use this signer.
    pub fn puppet_admin(settings: PuppetSettings) -> Self {
        Self {
            alt_names: AltNameRule::OwnName {
                others: OtherNames::DnsAndIp,
            },
            added: vec![ext::utf8_extension(oid::PP_CLI_AUTH, "true", false)],
            ..Self::puppet_agent(settings)
        }
    }

    /// A client of a Kubernetes API server: any subject but the group that no permission check
    /// applies to, any names, usages as asked inside three.
    pub fn kube_apiserver_client() -> Self {
        Self {
            refused_organizations: &[UNLIMITED_GROUP],
            ..Self::kubernetes_admin()
        }
    }

    /// An administrator at the Kubernetes door; only the authority itself uses this signer.
    pub fn kubernetes_admin() -> Self {
        let permitted = ["client auth", "digital signature", "key encipherment"];
        Self {
            usages: UsageRule::Asked {
                required: usages(&["client auth"]),
                permitted: usages(&permitted),
            },
            ..Self::kubernetes(YEAR, YEAR)
        }
    }

    /// The authority's own certificate at its Kubernetes door.
    pub fn kubernetes_server() -> Self {
        let all = ["digital signature", "server auth"];
        Self {
            alt_names: AltNameRule::Kinds(NameKinds {
                email: false,
                uri: false,
                ..NameKinds::ALL
            }),
            usages: UsageRule::Asked {
                required: usages(&all),
                permitted: usages(&all),
            },
            ..Self::kubernetes(YEAR, 5 * YEAR)
        }
    }

    /// The same for a signer whose issuer makes identities: nobody gets the unlimited group by asking.
    #[must_use]
    pub fn of_identities(self) -> Self {
        Self {
            refused_organizations: &[UNLIMITED_GROUP],
            ..self
        }
    }

    /// A signer declared in configuration.
    pub fn custom(
        permitted: Vec<Usage>,
        names: NameKinds,
        default: u64,
        maximum: u64,
        backdate: u64,
    ) -> Self {
        let mut profile = Self::kubernetes(default, maximum);
        profile.alt_names = AltNameRule::Kinds(names);
        profile.usages = UsageRule::Asked {
            required: Vec::new(),
            permitted,
        };
        profile.lifetime.backdate = backdate;
        profile
    }

    fn kubernetes(default: u64, maximum: u64) -> Self {
        Self {
            subject: SubjectRule::Rebuilt,
            refused_organizations: &[],
            alt_names: AltNameRule::Kinds(NameKinds::ALL),
            extensions: ExtensionRule::Dropped,
            usages: UsageRule::Asked {
                required: Vec::new(),
                permitted: Vec::new(),
            },
            lifetime: Lifetime {
                default,
                maximum,
                minimum: 10 * MINUTE,
                backdate: 5 * MINUTE,
                backdate_included_from: Some(8 * HOUR),
            },
            subject_key_id: false,
            comment: None,
            added: Vec::new(),
            withheld: Vec::new(),
        }
    }
}

fn usages(names: &[&str]) -> Vec<Usage> {
    names.iter().filter_map(|name| Usage::parse(name)).collect()
}

/// Members of this group pass every check of a Kubernetes API server.
const UNLIMITED_GROUP: &str = "system:masters";

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;
