//! docs/cluster-install.md: every permission that is installed stands there with its reason, and no other; its links.

use std::collections::BTreeMap;
use std::fs;

use super::{
    ALL_VALUES, COMPONENTS, Permission, built, copy, deploy, kustomized, of_kind, permissions,
    templated,
};
use crate::tokens_manual::links_lead_somewhere;

#[test]
fn every_permission_is_in_the_manual_with_its_reason() {
    let documented = documented();
    assert!(documented.len() > 10, "{documented:?}");
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

/// The operator's overlays: what they patch is there, and what they delete is not.
#[test]
fn the_overlays_of_the_manual_do_what_it_says() {
    let blocks = MANUAL.split("```yaml\n").skip(1);
    let blocks: Vec<&str> = blocks
        .filter_map(|rest| Some(rest.split_once("```")?.0))
        .filter(|text| text.contains("countersign-operator"))
        .collect();
    let [authority, namespaces, admission] = &blocks[..] else {
        panic!("{blocks:?}")
    };
    let (components, url) = authority.split_once("patches:\n").unwrap();
    let (_, namespace) = namespaces.split_once("patches:\n").unwrap();
    let (admission, bundle) = admission.split_once("patches:\n").unwrap();
    let admission = admission.strip_prefix("components:\n").unwrap();
    let text = format!("{components}{admission}patches:\n{url}{namespace}{bundle}");
    let home = tempfile::tempdir().unwrap();
    copy(&deploy(""), &home.path().join("countersign/deploy"));
    let overlay = home.path().join("overlay");
    fs::create_dir_all(&overlay).unwrap();
    let text = text.replace("countersign/deploy/", "../countersign/deploy/");
    fs::write(overlay.join("kustomization.yaml"), text).unwrap();
    let objects = built(home.path(), &overlay);
    let deployment = of_kind(&objects, "Deployment").next().unwrap();
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments: Vec<&str> = arguments
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it.as_str())
        .filter(|it| it.starts_with("--server") || it.starts_with("--operator-namespace"))
        .collect();
    let expected = [
        "--server=https://puppet.internal:8140",
        "--operator-namespace=puppet",
    ];
    assert_eq!(arguments, expected);
    let webhooks = of_kind(&objects, "ValidatingWebhookConfiguration").next();
    let webhooks = webhooks.unwrap()["webhooks"].as_array().unwrap();
    for webhook in webhooks {
        assert!(webhook["clientConfig"]["caBundle"].is_string(), "{webhook}");
    }
    assert_eq!(of_kind(&objects, "ClusterRole").count(), 1);
    assert_eq!(of_kind(&objects, "ClusterRoleBinding").count(), 0);
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
