//! Profiles as doors have them: of machines by their names, and of clients by their subjects.

use countersign_authority::Profile;
use countersign_authority::profile::{
    AltNameRule, Arcs, Authorization, Check, ExtensionRule, Lifetime, OtherNames, Usage, UsageRule,
};
use countersign_pki::{ext, oid};

use crate::world::DAY;

/// What a test sets about the certificates of machines.
#[derive(Clone, Copy)]
pub(crate) struct AgentSettings {
    pub(crate) lifetime: u64,
    pub(crate) alt_names: OtherNames,
    pub(crate) authorization: Authorization,
}

pub(crate) fn agent(settings: AgentSettings) -> Profile {
    Profile {
        alt_names: AltNameRule::OwnName {
            others: settings.alt_names,
        },
        extensions: ExtensionRule::Arcs {
            arcs: &ARCS,
            authorization: settings.authorization,
        },
        ..Profile::for_names(Lifetime {
            default: settings.lifetime,
            maximum: u64::MAX,
            minimum: 1,
            backdate: DAY,
            backdate_included_from: None,
        })
    }
}

/// The same with a mark that no request gets.
pub(crate) fn admin(settings: AgentSettings) -> Profile {
    Profile {
        alt_names: AltNameRule::OwnName {
            others: OtherNames::DnsAndIp,
        },
        added: vec![ext::utf8_extension(oid::PP_CLI_AUTH, "true", false)],
        ..agent(settings)
    }
}

/// A client's, with usages inside three.
pub(crate) fn client() -> Profile {
    let permitted = ["client auth", "digital signature", "key encipherment"];
    Profile {
        usages: UsageRule::Asked {
            required: usages(&["client auth"]),
            permitted: usages(&permitted),
        },
        order: &[Check::Usages],
        ..anything()
    }
}

/// Whatever has a name, with any usage.
pub(crate) fn anything() -> Profile {
    let known: Vec<&str> = Usage::names().collect();
    Profile {
        refused_organizations: &["system:masters"],
        usages: UsageRule::Asked {
            required: Vec::new(),
            permitted: usages(&known),
        },
        ..Profile::for_subjects(Lifetime {
            default: 365 * DAY,
            maximum: 365 * DAY,
            minimum: 600,
            backdate: 300,
            backdate_included_from: Some(8 * 3600),
        })
    }
}

fn usages(names: &[&str]) -> Vec<Usage> {
    let usages = names.iter().map(|name| Usage::parse(name).unwrap());
    usages.collect()
}

static ARCS: Arcs = Arcs {
    name: "the registered and private arcs",
    copied: &[oid::PP_REG, oid::PP_PRIV],
    rights: oid::PP_AUTH,
    never: (oid::PP_CLI_AUTH, "pp_cli_auth"),
    rights_setting: None,
};
