//! The profiles of the signers that every authority has.

use countersign_pki::{ext, oid};

use super::{
    AltNameRule, AuthorityKeyId, Authorization, Check, ExtensionRule, Lifetime, NameBounds,
    NameKinds, OrganizationRule, OtherNames, Pattern, Profile, SubjectBounds, SubjectRule, Usage,
    UsageRule,
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
            subjects: SubjectBounds::default(),
            refused_organizations: &[],
            alt_names: AltNameRule::OwnName {
                others: settings.alt_names,
            },
            names: NameBounds::default(),
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
            authority_key_id: AuthorityKeyId::Always,
            comment: Some("Puppet Server Internal Certificate"),
            added: Vec::new(),
            withheld: Vec::new(),
            order: &[],
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
            order: &[Check::Usages],
            ..Self::kubernetes_admin()
        }
    }

    /// A kubelet as a client of a Kubernetes API server: the node that its common name says, and nothing else.
    pub fn kube_apiserver_client_kubelet() -> Self {
        Self {
            subjects: nodes(),
            alt_names: AltNameRule::Kinds(NameKinds::NONE),
            usages: node_usages("client auth"),
            order: &[
                Check::Organizations,
                Check::AltNames,
                Check::CommonName,
                Check::Usages,
            ],
            ..Self::kubernetes(YEAR, YEAR)
        }
    }

    /// A kubelet as a server: its names and addresses. Whether they are the node's is for whoever approves to know.
    pub fn kubelet_serving() -> Self {
        let names = NameKinds {
            dns: true,
            ip: true,
            ..NameKinds::NONE
        };
        Self {
            subjects: nodes(),
            alt_names: AltNameRule::Kinds(names),
            names: NameBounds {
                required: names,
                ..NameBounds::default()
            },
            usages: node_usages("server auth"),
            order: &[
                Check::Organizations,
                Check::RequiredNames,
                Check::AltNames,
                Check::Usages,
                Check::CommonName,
            ],
            ..Self::kubernetes(YEAR, YEAR)
        }
    }

    /// Whatever was asked for before signers had names. No request of the present API can ask for it.
    pub fn legacy_unknown() -> Self {
        let known: Vec<&str> = Usage::names().collect();
        Self {
            refused_organizations: &[UNLIMITED_GROUP],
            usages: UsageRule::Asked {
                required: Vec::new(),
                permitted: usages(&known),
            },
            ..Self::kubernetes(YEAR, YEAR)
        }
    }

    /// The same with certificates that live so many seconds, unless a request asks for less.
    #[must_use]
    pub fn with_longest_life(mut self, seconds: u64) -> Self {
        self.lifetime.default = seconds;
        self.lifetime.maximum = seconds;
        self
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
            subjects: SubjectBounds::default(),
            refused_organizations: &[],
            alt_names: AltNameRule::Kinds(NameKinds::ALL),
            names: NameBounds::default(),
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
            authority_key_id: AuthorityKeyId::FromIssuer,
            comment: None,
            added: Vec::new(),
            withheld: Vec::new(),
            order: &[],
        }
    }
}

/// The subjects of nodes, as the node authorizer reads them.
fn nodes() -> SubjectBounds {
    SubjectBounds {
        common_names: vec![Pattern::known("system:node:*")],
        organizations: OrganizationRule::Exactly(vec!["system:nodes".to_owned()]),
    }
}

/// Key encipherment is asked for by kubelets with RSA keys alone.
fn node_usages(purpose: &str) -> UsageRule {
    UsageRule::Asked {
        required: usages(&["digital signature", purpose]),
        permitted: usages(&["digital signature", "key encipherment", purpose]),
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
