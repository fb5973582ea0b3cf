//! Certificates of the signers of `kubernetes.io`, as kube-controller-manager makes them, and of this door itself.

use countersign_authority::Profile;
use countersign_authority::profile::{
    AltNameRule, Check, Lifetime, NameBounds, NameKinds, OrganizationRule, Pattern, SubjectBounds,
    Usage, UsageRule,
};

/// A client of a Kubernetes API server: any subject but the group that no permission check applies to, any names, usages as
/// asked inside three.
pub fn apiserver_client() -> Profile {
    Profile {
        refused_organizations: &[MASTERS],
        order: &[Check::Usages],
        ..admin()
    }
}

/// A kubelet as a client of a Kubernetes API server: the node that its common name says, and nothing else.
pub fn kubelet_client() -> Profile {
    Profile {
        subjects: nodes(),
        alt_names: AltNameRule::Kinds(NameKinds::NONE),
        usages: node_usages("client auth"),
        order: &[
            Check::Organizations,
            Check::AltNames,
            Check::CommonName,
            Check::Usages,
        ],
        ..within(YEAR, YEAR)
    }
}

/// A kubelet as a server: its names and addresses. Whether they are the node's is for whoever approves to know.
pub fn kubelet_serving() -> Profile {
    let names = NameKinds {
        dns: true,
        ip: true,
        ..NameKinds::NONE
    };
    Profile {
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
        ..within(YEAR, YEAR)
    }
}

/// Whatever was asked for before signers had names. No request of the present API can ask for it.
pub fn legacy_unknown() -> Profile {
    let known: Vec<&str> = Usage::names().collect();
    Profile {
        refused_organizations: &[MASTERS],
        usages: asked(&[], &known),
        ..within(YEAR, YEAR)
    }
}

/// An administrator at this door; only the authority itself uses this signer.
pub fn admin() -> Profile {
    let permitted = ["client auth", "digital signature", "key encipherment"];
    Profile {
        usages: asked(&["client auth"], &permitted),
        ..within(YEAR, YEAR)
    }
}

/// The authority's own certificate at this door.
pub fn server() -> Profile {
    let all = ["digital signature", "server auth"];
    Profile {
        alt_names: AltNameRule::Kinds(NameKinds {
            email: false,
            uri: false,
            ..NameKinds::ALL
        }),
        usages: asked(&all, &all),
        ..within(YEAR, 5 * YEAR)
    }
}

/// A signer that permits no usage yet: the subject and the names of the request, a lifetime as asked within bounds.
pub fn within(default: u64, maximum: u64) -> Profile {
    Profile::for_subjects(Lifetime {
        default,
        maximum,
        minimum: 10 * MINUTE,
        backdate: 5 * MINUTE,
        backdate_included_from: Some(8 * 60 * MINUTE),
    })
}

/// The subjects of nodes, as the node authorizer reads them.
fn nodes() -> SubjectBounds {
    SubjectBounds {
        common_names: vec![Pattern::known("system:node:*")],
        organizations: OrganizationRule::Exactly(vec![NODES.to_owned()]),
    }
}

/// Key encipherment is asked for by kubelets with RSA keys alone.
fn node_usages(purpose: &str) -> UsageRule {
    asked(
        &["digital signature", purpose],
        &["digital signature", "key encipherment", purpose],
    )
}

fn asked(required: &[&str], permitted: &[&str]) -> UsageRule {
    let usages = |names: &[&str]| names.iter().filter_map(|name| Usage::parse(name)).collect();
    UsageRule::Asked {
        required: usages(required),
        permitted: usages(permitted),
    }
}

/// Members of this group pass every check of a Kubernetes API server.
pub const MASTERS: &str = "system:masters";
/// What stands before a node's name in its common name.
pub const NODE: &str = "system:node:";
/// The group of all nodes.
pub const NODES: &str = "system:nodes";

const MINUTE: u64 = 60;
const YEAR: u64 = 365 * 24 * 60 * MINUTE;
