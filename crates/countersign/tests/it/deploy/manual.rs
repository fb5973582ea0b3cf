//! docs/cluster-install.md: every permission that is installed stands there with its reason, and no other; its links.

use std::collections::BTreeMap;

use super::{ALL_VALUES, COMPONENTS, Permission, kustomized, permissions, templated};
use crate::tokens_manual::links_lead_somewhere;

#[test]
fn every_permission_is_in_the_manual_with_its_reason() {
    let documented = documented();
    assert!(documented.len() > 8, "{documented:?}");
    for installed in [
        permissions(&kustomized(&COMPONENTS)),
        permissions(&templated(ALL_VALUES).unwrap()),
    ] {
        let names = |roles: &BTreeMap<String, Vec<Permission>>| {
            roles.keys().cloned().collect::<Vec<String>>()
        };
        assert_eq!(names(&installed), names(&documented));
        for (role, rules) in &installed {
            assert_eq!(rules, &documented[role], "{role}");
        }
    }
}

/// Nobody is given everything, and nothing but a Lease or a Secret is made without its name being known.
#[test]
fn no_permission_is_for_everything() {
    for (role, rules) in permissions(&kustomized(&COMPONENTS)) {
        for rule in rules {
            let all = [&rule.groups, &rule.resources, &rule.names, &rule.verbs];
            assert!(
                all.iter()
                    .all(|words| !words.iter().any(|word| word == "*")),
                "{role}: {rule:?}"
            );
            let is_about_signers = rule.resources == ["signers"]
                && rule.groups == ["certificates.k8s.io"]
                && !rule.verbs.is_empty();
            assert!(
                !is_about_signers || !rule.names.is_empty(),
                "{role}: {rule:?} is for every signer"
            );
        }
    }
}

#[test]
fn links_of_the_manual_lead_somewhere() {
    links_lead_somewhere("docs", MANUAL);
}

/// The tables of the manual: below a heading that names a role, each row is one rule of it.
fn documented() -> BTreeMap<String, Vec<Permission>> {
    let mut roles: BTreeMap<String, Vec<Permission>> = BTreeMap::new();
    let mut role = None;
    for line in MANUAL.lines() {
        if line.starts_with('#') {
            role = quoted(line).into_iter().find(|name| is_role(name));
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (Some(role), ["", groups, resources, names, verbs, reason, ""]) = (&role, &cells[..])
        else {
            continue;
        };
        if groups.starts_with("---") || *groups == "Group" {
            continue;
        }
        assert!(reason.len() > 10, "{line}: a reason");
        let groups = match *groups {
            "core" => vec![String::new()],
            groups => quoted(groups),
        };
        let rules = roles.entry(role.clone()).or_default();
        rules.push(Permission {
            groups,
            resources: quoted(resources),
            names: quoted(names),
            verbs: quoted(verbs),
        });
    }
    roles
}

fn is_role(name: &str) -> bool {
    name.starts_with("countersign-")
}

/// What stands between backquotes, sorted.
fn quoted(text: &str) -> Vec<String> {
    let mut words: Vec<String> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    words.sort();
    words
}

pub(super) const MANUAL: &str = include_str!("../../../../../docs/cluster-install.md");
