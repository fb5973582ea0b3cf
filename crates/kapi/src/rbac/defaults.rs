//! The roles and the binding that exist from the start, the rights that everybody and every node has without any, and
//! how a start brings older roles up to date.
//!
//! They are those that Kubernetes brings for certificate requests (`bootstrappolicy`). Of its bindings there is the
//! administrators' alone: who else may do what is for an administrator to say.

use super::model::{ClusterRole, ClusterRoleBinding, GROUP_KIND, PolicyRule, RoleRef, Subject};
use super::{GROUP, MASTERS, cover};
use crate::meta::ObjectMeta;
use crate::validate::LEGACY_SIGNER;

/// The cluster roles of the start.
#[must_use]
pub fn cluster_roles() -> Vec<ClusterRole> {
    let requests =
        |verbs: &[&str], resource: &str| vec![resource_rule(verbs, CERTIFICATES, &[resource], &[])];
    let mut roles = vec![
        role(
            ADMINISTRATOR,
            vec![
                resource_rule(&["*"], "*", &["*"], &[]),
                path_rule(&["*"], &["*"]),
            ],
        ),
        role(
            "system:node-bootstrapper",
            requests(
                &["create", "get", "list", "watch"],
                "certificatesigningrequests",
            ),
        ),
    ];
    for who in ["nodeclient", "selfnodeclient"] {
        let resource = format!("certificatesigningrequests/{who}");
        roles.push(role(
            &format!("system:certificates.k8s.io:certificatesigningrequests:{who}"),
            requests(&["create"], &resource),
        ));
    }
    for signer in [
        LEGACY_SIGNER,
        "kubernetes.io/kubelet-serving",
        "kubernetes.io/kube-apiserver-client",
        "kubernetes.io/kube-apiserver-client-kubelet",
    ] {
        let name = signer.rsplit('/').next().unwrap_or(signer);
        roles.push(role(
            &format!("system:certificates.k8s.io:{name}-approver"),
            vec![resource_rule(
                &["approve"],
                CERTIFICATES,
                &["signers"],
                &[signer],
            )],
        ));
    }
    roles
}

/// The cluster role bindings of the start: administrators are administrators.
#[must_use]
pub fn cluster_role_bindings() -> Vec<ClusterRoleBinding> {
    vec![ClusterRoleBinding {
        metadata: metadata(ADMINISTRATOR),
        subjects: vec![Subject {
            kind: GROUP_KIND.to_owned(),
            api_group: GROUP.to_owned(),
            name: MASTERS.to_owned(),
            namespace: String::new(),
        }],
        role_ref: RoleRef {
            api_group: GROUP.to_owned(),
            kind: "ClusterRole".to_owned(),
            name: ADMINISTRATOR.to_owned(),
        },
    }]
}

/// What everybody may do who is known: learn about themselves and about the server (`system:basic-user` and
/// `system:discovery`).
#[must_use]
pub fn rules_of_everybody() -> Vec<PolicyRule> {
    let self_access = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    vec![
        resource_rule(&["create"], "authorization.k8s.io", &self_access, &[]),
        resource_rule(
            &["create"],
            "authentication.k8s.io",
            &["selfsubjectreviews"],
            &[],
        ),
        path_rule(
            &["get"],
            &[
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/healthz",
                "/livez",
                "/openapi",
                "/openapi/*",
                "/readyz",
                "/version",
                "/version/",
            ],
        ),
    ]
}

/// What even those may do who are not known (`system:public-info-viewer`).
#[must_use]
pub fn rules_of_strangers() -> Vec<PolicyRule> {
    let paths = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    vec![path_rule(&["get"], &paths)]
}

/// What nodes may do without any binding, of what this server has: ask for certificates and wait for them.
#[must_use]
pub fn rules_of_nodes() -> Vec<PolicyRule> {
    let verbs = ["create", "get", "list", "watch"];
    let resources = ["certificatesigningrequests"];
    vec![resource_rule(&verbs, CERTIFICATES, &resources, &[])]
}

/// The role as a start should leave it; `None`: as it is. What was added to it stays, what is missing comes back, unless
/// its annotation says that it is no longer kept up to date.
#[must_use]
pub fn reconciled_role(stored: &ClusterRole, expected: &ClusterRole) -> Option<ClusterRole> {
    if is_protected(&stored.metadata) {
        return None;
    }
    let mut role = stored.clone();
    add_marks(&mut role.metadata, &expected.metadata);
    // The few rules of the start are far from too many grants.
    role.rules
        .extend(cover::missing(&stored.rules, &expected.rules).unwrap_or_default());
    role.aggregation_rule.clone_from(&expected.aggregation_rule);
    (role != *stored).then_some(role)
}

/// What a start does with a stored binding.
#[derive(Debug, Clone, PartialEq)]
pub enum ReconciledBinding {
    /// Nothing.
    Kept,
    /// Writes it so.
    Updated(ClusterRoleBinding),
    /// Deletes it and writes this one: it refers to another role, and references never change.
    Replaced(ClusterRoleBinding),
}

/// The binding as a start should leave it, by the same rule as [`reconciled_role`].
#[must_use]
pub fn reconciled_binding(
    stored: &ClusterRoleBinding,
    expected: &ClusterRoleBinding,
) -> ReconciledBinding {
    if is_protected(&stored.metadata) {
        return ReconciledBinding::Kept;
    }
    if stored.role_ref != expected.role_ref {
        return ReconciledBinding::Replaced(expected.clone());
    }
    let mut binding = stored.clone();
    add_marks(&mut binding.metadata, &expected.metadata);
    let missing = expected
        .subjects
        .iter()
        .filter(|subject| !stored.subjects.contains(subject));
    binding.subjects.extend(missing.cloned());
    match binding == *stored {
        true => ReconciledBinding::Kept,
        false => ReconciledBinding::Updated(binding),
    }
}

fn role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole {
        metadata: metadata(name),
        rules,
        aggregation_rule: None,
    }
}

fn metadata(name: &str) -> ObjectMeta {
    let pair = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    ObjectMeta {
        name: name.to_owned(),
        labels: pair("kubernetes.io/bootstrapping", "rbac-defaults"),
        annotations: pair(AUTO_UPDATE, "true"),
        ..ObjectMeta::default()
    }
}

fn resource_rule(verbs: &[&str], group: &str, resources: &[&str], names: &[&str]) -> PolicyRule {
    PolicyRule {
        verbs: texts(verbs),
        api_groups: texts(&[group]),
        resources: texts(resources),
        resource_names: texts(names),
        non_resource_urls: Vec::new(),
    }
}

fn path_rule(verbs: &[&str], paths: &[&str]) -> PolicyRule {
    PolicyRule {
        verbs: texts(verbs),
        non_resource_urls: texts(paths),
        ..PolicyRule::default()
    }
}

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn is_protected(meta: &ObjectMeta) -> bool {
    meta.annotations
        .get(AUTO_UPDATE)
        .is_some_and(|value| value == "false")
}

/// Labels and annotations that are missing; those that are there keep their values.
fn add_marks(meta: &mut ObjectMeta, expected: &ObjectMeta) {
    let pairs = [
        (&mut meta.labels, &expected.labels),
        (&mut meta.annotations, &expected.annotations),
    ];
    for (stored, expected) in pairs {
        for (key, value) in expected {
            stored.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// The role of administrators, and its binding.
pub const ADMINISTRATOR: &str = "cluster-admin";
/// Set to `false`, it keeps a start from changing the object.
pub const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const CERTIFICATES: &str = crate::GROUP;
