//! The four kinds and their parts, in the JSON of the API.
//!
//! Lists that the API always writes (`rules`, `verbs`) are `null` when empty, as real servers show them.

use std::collections::BTreeMap;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{API_VERSION, GROUP};
use crate::meta::ObjectMeta;

/// What may be done in one namespace.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Role {
    /// Name, namespace, labels.
    pub metadata: ObjectMeta,
    /// What is allowed.
    #[serde(deserialize_with = "or_empty")]
    pub rules: Vec<PolicyRule>,
}

/// What may be done everywhere, or in the namespace of a [`RoleBinding`] that refers to it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterRole {
    /// Name, labels.
    pub metadata: ObjectMeta,
    /// What is allowed. With an aggregation rule, what the selected roles allow.
    #[serde(deserialize_with = "or_empty")]
    pub rules: Vec<PolicyRule>,
    /// Which other roles make up this one.
    pub aggregation_rule: Option<AggregationRule>,
}

/// Gives a role to subjects in one namespace.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleBinding {
    /// Name, namespace, labels.
    pub metadata: ObjectMeta,
    /// Who gets the role.
    #[serde(deserialize_with = "or_empty")]
    pub subjects: Vec<Subject>,
    /// The role; never changes once stored.
    pub role_ref: RoleRef,
}

/// Gives a [`ClusterRole`] to subjects everywhere.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterRoleBinding {
    /// Name, labels.
    pub metadata: ObjectMeta,
    /// Who gets the role.
    #[serde(deserialize_with = "or_empty")]
    pub subjects: Vec<Subject>,
    /// The role; never changes once stored.
    pub role_ref: RoleRef,
}

/// One thing that is allowed: verbs on resources, or on paths that are no resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// Verbs; `*` is all.
    #[serde(deserialize_with = "or_empty", serialize_with = "null_if_empty")]
    pub verbs: Vec<String>,
    /// API groups; `""` is the core group, `*` all.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// Resources, `resource/subresource`, `*/subresource`, or `*` for all with all subresources.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names of objects, compared letter by letter; none means all.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths; a trailing `*` stands for any rest.
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "or_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

/// Who gets a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    /// [`USER`], [`GROUP_KIND`] or [`SERVICE_ACCOUNT`].
    pub kind: String,
    /// [`GROUP`] for users and groups, empty for service accounts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Name of the user, group or service account.
    pub name: String,
    /// Namespace of a service account.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Which role a binding gives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleRef {
    /// Always [`GROUP`].
    pub api_group: String,
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// Name of the role.
    pub name: String,
}

/// Which roles make up an aggregated one: those that any selector selects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregationRule {
    /// At least one.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub cluster_role_selectors: Vec<ClusterRoleSelector>,
}

/// Selects roles by their labels (`meta.k8s.io/v1` `LabelSelector`); all requirements must hold, none selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterRoleSelector {
    /// Labels with exactly these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<SelectorRequirement>,
}

/// One requirement on a label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectorRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values, for the first two.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Subject {
    fn set_defaults(&mut self) {
        if self.api_group.is_empty() && [USER, GROUP_KIND].contains(&self.kind.as_str()) {
            self.api_group = GROUP.to_owned();
        }
    }
}

impl Serialize for Role {
    /// Writes `kind` and `apiVersion` first, as clients of single objects and watches need them.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = typed(serializer, "Role", &self.metadata, 4)?;
        map.serialize_entry("rules", &NullIfEmpty(&self.rules))?;
        map.end()
    }
}

impl Serialize for ClusterRole {
    /// Writes `kind` and `apiVersion` first, as clients of single objects and watches need them.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = 4 + usize::from(self.aggregation_rule.is_some());
        let mut map = typed(serializer, "ClusterRole", &self.metadata, entries)?;
        map.serialize_entry("rules", &NullIfEmpty(&self.rules))?;
        if let Some(rule) = &self.aggregation_rule {
            map.serialize_entry("aggregationRule", rule)?;
        }
        map.end()
    }
}

impl Serialize for RoleBinding {
    /// Writes `kind` and `apiVersion` first, as clients of single objects and watches need them.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (subjects, role_ref) = (&self.subjects, &self.role_ref);
        binding(
            serializer,
            "RoleBinding",
            &self.metadata,
            subjects,
            role_ref,
        )
    }
}

impl Serialize for ClusterRoleBinding {
    /// Writes `kind` and `apiVersion` first, as clients of single objects and watches need them.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (subjects, role_ref) = (&self.subjects, &self.role_ref);
        binding(
            serializer,
            "ClusterRoleBinding",
            &self.metadata,
            subjects,
            role_ref,
        )
    }
}

/// Fills in what clients may leave out of a binding: the API groups of role and subjects.
pub(super) fn set_binding_defaults(role_ref: &mut RoleRef, subjects: &mut [Subject]) {
    if role_ref.api_group.is_empty() {
        role_ref.api_group = GROUP.to_owned();
    }
    subjects.iter_mut().for_each(Subject::set_defaults);
}

fn binding<S: Serializer>(
    serializer: S,
    kind: &str,
    metadata: &ObjectMeta,
    subjects: &[Subject],
    role_ref: &RoleRef,
) -> Result<S::Ok, S::Error> {
    let entries = 4 + usize::from(!subjects.is_empty());
    let mut map = typed(serializer, kind, metadata, entries)?;
    if !subjects.is_empty() {
        map.serialize_entry("subjects", subjects)?;
    }
    map.serialize_entry("roleRef", role_ref)?;
    map.end()
}

fn typed<S: Serializer>(
    serializer: S,
    kind: &str,
    metadata: &ObjectMeta,
    entries: usize,
) -> Result<S::SerializeMap, S::Error> {
    let mut map = serializer.serialize_map(Some(entries))?;
    map.serialize_entry("kind", kind)?;
    map.serialize_entry("apiVersion", API_VERSION)?;
    map.serialize_entry("metadata", metadata)?;
    Ok(map)
}

struct NullIfEmpty<'a, T>(&'a [T]);

impl<T: Serialize> Serialize for NullIfEmpty<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        null_if_empty(self.0, serializer)
    }
}

fn null_if_empty<S: Serializer, T: Serialize>(
    list: &[T],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match list {
        [] => serializer.serialize_none(),
        list => list.serialize(serializer),
    }
}

/// A list that may be `null`: stored bodies and clients have it.
fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Option::<Vec<T>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Kind of a subject that is one user.
pub const USER: &str = "User";
/// Kind of a subject that is a group of users.
pub const GROUP_KIND: &str = "Group";
/// Kind of a subject that is a service account, a user of the name `system:serviceaccount:NAMESPACE:NAME`.
pub const SERVICE_ACCOUNT: &str = "ServiceAccount";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn empty_lists_read_and_show_as_real_servers_have_them() {
        let json = json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
            "metadata": {"name": "a"}, "rules": null});
        let role: ClusterRole = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(role.rules, []);
        assert_eq!(serde_json::to_value(&role).unwrap(), json);
        let binding = serde_json::to_value(RoleBinding::default()).unwrap();
        assert_eq!(
            binding,
            json!({"kind": "RoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {},
                "roleRef": {"apiGroup": "", "kind": "", "name": ""}})
        );
    }

    #[test]
    fn json_survives_a_round() {
        let json = json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
            "metadata": {"name": "a", "labels": {"x": "y"}},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"], "resourceNames": ["a"]},
                {"verbs": ["get"], "nonResourceURLs": ["/healthz*"]}],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]}]}});
        let role: ClusterRole = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&role).unwrap(), json);
    }

    #[test]
    fn groups_of_roles_and_subjects_may_be_left_out() {
        let mut binding: ClusterRoleBinding = serde_json::from_value(json!({
            "subjects": [{"kind": "User", "name": "jane"}, {"kind": "Group", "name": "devs"},
                {"kind": "ServiceAccount", "name": "bot", "namespace": "ns"},
                {"kind": "User", "name": "joe", "apiGroup": "example.com"}, {"kind": "Robot", "name": "r"}],
            "roleRef": {"kind": "ClusterRole", "name": "view"}}))
        .unwrap();
        set_binding_defaults(&mut binding.role_ref, &mut binding.subjects);
        let groups: Vec<&str> = binding
            .subjects
            .iter()
            .map(|subject| subject.api_group.as_str())
            .collect();
        assert_eq!(groups, [GROUP, GROUP, "", "example.com", ""]);
        assert_eq!(binding.role_ref.api_group, GROUP);
    }
}
