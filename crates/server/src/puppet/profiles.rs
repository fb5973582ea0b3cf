//! Certificates of agents and administrators, as Puppet Server makes them.

use countersign_authority::Profile;
use countersign_authority::profile::{
    AltNameRule, Arcs, Authorization, ExtensionRule, Lifetime, NameSettings, OtherNames,
};
use countersign_pki::{ext, oid};

/// What a site may set about its agents' certificates.
#[derive(Clone, Copy, Debug)]
pub struct AgentSettings {
    /// Lifetime in seconds.
    pub lifetime: u64,
    /// Names beside the certname.
    pub alt_names: OtherNames,
    /// Authorization extensions.
    pub authorization: Authorization,
}

/// An agent's certificate: its certname and nothing it could use to pass for somebody else.
pub fn agent(settings: AgentSettings) -> Profile {
    Profile {
        alt_names: AltNameRule::OwnName {
            others: settings.alt_names,
        },
        name_settings: NameSettings {
            kinds: Some("`puppet.allow_subject_alt_names`"),
            patterns: None,
        },
        extensions: ExtensionRule::Arcs {
            arcs: &ARCS,
            authorization: settings.authorization,
        },
        comment: Some("Puppet Server Internal Certificate"),
        ..Profile::for_names(Lifetime {
            default: settings.lifetime,
            maximum: u64::MAX,
            minimum: 1,
            backdate: 86_400,
            backdate_included_from: None,
        })
    }
}

/// An administrator's or the server's own certificate: an agent's with `pp_cli_auth`. No request can ask for it; only the
/// authority and its administrators use this signer.
pub fn admin(settings: AgentSettings) -> Profile {
    Profile {
        alt_names: AltNameRule::OwnName {
            others: OtherNames::DnsAndIp,
        },
        added: vec![ext::utf8_extension(oid::PP_CLI_AUTH, "true", false)],
        ..agent(settings)
    }
}

/// The registered and private arcs, and that of authorization; no request gets an administrator's mark.
static ARCS: Arcs = Arcs {
    name: "Puppet's registered and private arcs",
    copied: &[oid::PP_REG, oid::PP_PRIV],
    rights: oid::PP_AUTH,
    never: (oid::PP_CLI_AUTH, "pp_cli_auth"),
    rights_setting: Some("`puppet.allow_authorization_extensions`"),
};
