//! Which roles and bindings may be stored, with the words of `pkg/apis/rbac/validation`. Every broken rule is collected.

use serde_json::json;

use super::GROUP;
use super::model::{
    ClusterRole, ClusterRoleBinding, ClusterRoleSelector, GROUP_KIND, PolicyRule, Role,
    RoleBinding, RoleRef, SERVICE_ACCOUNT, Subject, USER,
};
use crate::field::{FieldError, FieldErrors};
use crate::meta::ObjectMeta;
use crate::name;
use crate::validate::{metadata as any_metadata, namespaced};

/// Checks a role; empty = may be stored. An update is checked like a new one.
#[must_use]
pub fn role(object: &Role) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    metadata(&object.metadata, Scope::Namespace, &mut errors);
    rule_counts(&object.rules, &mut errors);
    rules(&object.rules, Scope::Namespace, &mut errors);
    errors.into_vec()
}

/// Checks a cluster role; empty = may be stored. `old`: what is stored of it. Values of labels that the stored
/// selectors already break the grammar with are let through.
#[must_use]
pub fn cluster_role(object: &ClusterRole, old: Option<&ClusterRole>) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    metadata(&object.metadata, Scope::Cluster, &mut errors);
    if object.aggregation_rule.is_none() {
        // What stands in an aggregated role is not believed, and is as long as the roles it is made of.
        rule_counts(&object.rules, &mut errors);
    }
    rules(&object.rules, Scope::Cluster, &mut errors);
    if let Some(aggregation) = &object.aggregation_rule {
        let selectors = &aggregation.cluster_role_selectors;
        if selectors.is_empty() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.push(FieldError::required(SELECTORS, detail));
        }
        let values = match old.is_some_and(has_bad_selector) {
            true => LabelValues::Any,
            false => LabelValues::WellFormed,
        };
        for (index, each) in selectors.iter().enumerate() {
            if errors.is_full() {
                break;
            }
            selector(each, values, &format!("{SELECTORS}[{index}]"), &mut errors);
        }
    }
    errors.into_vec()
}

/// Checks a binding after its defaults are set; empty = may be stored. `old`: what is stored of it.
#[must_use]
pub fn role_binding(object: &RoleBinding, old: Option<&RoleBinding>) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    metadata(&object.metadata, Scope::Namespace, &mut errors);
    role_ref(&object.role_ref, &["Role", "ClusterRole"], &mut errors);
    subjects(&object.subjects, Scope::Namespace, &mut errors);
    unchanged(&object.role_ref, old.map(|old| &old.role_ref), &mut errors);
    errors.into_vec()
}

/// Checks a binding after its defaults are set; empty = may be stored. `old`: what is stored of it.
#[must_use]
pub fn cluster_role_binding(
    object: &ClusterRoleBinding,
    old: Option<&ClusterRoleBinding>,
) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    metadata(&object.metadata, Scope::Cluster, &mut errors);
    role_ref(&object.role_ref, &["ClusterRole"], &mut errors);
    subjects(&object.subjects, Scope::Cluster, &mut errors);
    unchanged(&object.role_ref, old.map(|old| &old.role_ref), &mut errors);
    errors.into_vec()
}

/// Where an object lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Namespace,
    Cluster,
}

/// Which values the labels of a selector may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LabelValues {
    WellFormed,
    Any,
}

/// Names are any segment of a path: `system:node` is one.
fn metadata(meta: &ObjectMeta, scope: Scope, errors: &mut FieldErrors) {
    if scope == Scope::Namespace {
        namespaced(meta, name::path_segment_faults, errors);
        return;
    }
    let names = [
        ("metadata.generateName", &meta.generate_name),
        ("metadata.name", &meta.name),
    ];
    for (field, name) in names {
        for fault in name::path_segment_faults(name) {
            errors.push(FieldError::invalid(field, name.as_str(), fault));
        }
    }
    if !meta.namespace.is_empty() {
        let detail = "not allowed on this type";
        errors.push(FieldError::forbidden("metadata.namespace", detail));
    }
    any_metadata(meta, errors);
}

/// Real servers take as many as fit into a body. Here every question about a user goes through the rules that the user was
/// given, and a writer of roles must not make those of others slow.
fn rule_counts(rules: &[PolicyRule], errors: &mut FieldErrors) {
    if rules.len() > MAX_RULES {
        errors.push(FieldError::too_many("rules", rules.len(), MAX_RULES));
        return;
    }
    let words: usize = rules.iter().map(PolicyRule::words).sum();
    if words > MAX_WORDS {
        let mut error = FieldError::too_many("rules", words, MAX_WORDS);
        error.detail = format!("all lists of all rules must have at most {MAX_WORDS} items");
        errors.push(error);
    }
}

fn rules(rules: &[PolicyRule], scope: Scope, errors: &mut FieldErrors) {
    for (index, rule) in rules.iter().enumerate() {
        if errors.is_full() {
            return;
        }
        let field = |name: &str| format!("rules[{index}].{name}");
        if rule.verbs.is_empty() {
            let detail = "verbs must contain at least one value";
            errors.push(FieldError::required(field("verbs"), detail));
        }
        if rule.non_resource_urls.is_empty() {
            if rule.api_groups.is_empty() {
                let detail = "resource rules must supply at least one api group";
                errors.push(FieldError::required(field("apiGroups"), detail));
            }
            if rule.resources.is_empty() {
                let detail = "resource rules must supply at least one resource";
                errors.push(FieldError::required(field("resources"), detail));
            }
            continue;
        }
        let mut refuse = |detail: &str| {
            let urls = json!(rule.non_resource_urls);
            errors.push(FieldError::invalid(field("nonResourceURLs"), urls, detail));
        };
        if scope == Scope::Namespace {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        let of_resources = [&rule.api_groups, &rule.resources, &rule.resource_names];
        if of_resources.iter().any(|list| !list.is_empty()) {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
    }
}

fn role_ref(reference: &RoleRef, kinds: &[&str], errors: &mut FieldErrors) {
    let RoleRef {
        api_group,
        kind,
        name,
    } = reference;
    if api_group != GROUP {
        let field = "roleRef.apiGroup";
        errors.push(FieldError::not_supported(
            field,
            api_group.as_str(),
            &[GROUP],
        ));
    }
    if !kinds.contains(&kind.as_str()) {
        errors.push(FieldError::not_supported(
            "roleRef.kind",
            kind.as_str(),
            kinds,
        ));
    }
    if name.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    for fault in name::path_segment_faults(name) {
        errors.push(FieldError::invalid("roleRef.name", name.as_str(), fault));
    }
}

/// A binding that could come to mean another role would change what its readers once approved of.
fn unchanged(reference: &RoleRef, old: Option<&RoleRef>, errors: &mut FieldErrors) {
    if old.is_some_and(|old| old != reference) {
        let RoleRef {
            api_group,
            kind,
            name,
        } = reference;
        let shown = json!({"APIGroup": api_group, "Kind": kind, "Name": name});
        errors.push(FieldError::invalid(
            "roleRef",
            shown,
            "cannot change roleRef",
        ));
    }
}

fn subjects(subjects: &[Subject], scope: Scope, errors: &mut FieldErrors) {
    for (index, subject) in subjects.iter().enumerate() {
        if errors.is_full() {
            return;
        }
        let field = |name: &str| format!("subjects[{index}].{name}");
        let Subject {
            kind,
            api_group,
            name,
            namespace,
        } = subject;
        if name.is_empty() {
            errors.push(FieldError::required(field("name"), ""));
        }
        match kind.as_str() {
            SERVICE_ACCOUNT => {
                if !name.is_empty() {
                    for fault in name::dns_subdomain_faults(name) {
                        errors.push(FieldError::invalid(field("name"), name.as_str(), fault));
                    }
                }
                if !api_group.is_empty() {
                    let group = api_group.as_str();
                    errors.push(FieldError::not_supported(field("apiGroup"), group, &[""]));
                }
                if scope == Scope::Cluster && namespace.is_empty() {
                    errors.push(FieldError::required(field("namespace"), ""));
                }
            }
            USER | GROUP_KIND if api_group == GROUP => {}
            USER | GROUP_KIND => {
                let group = api_group.as_str();
                errors.push(FieldError::not_supported(
                    field("apiGroup"),
                    group,
                    &[GROUP],
                ));
            }
            other => errors.push(FieldError::not_supported(
                field("kind"),
                other,
                &[SERVICE_ACCOUNT, USER, GROUP_KIND],
            )),
        }
    }
}

fn selector(
    selector: &ClusterRoleSelector,
    values: LabelValues,
    field: &str,
    errors: &mut FieldErrors,
) {
    let labels = format!("{field}.matchLabels");
    for (key, value) in &selector.match_labels {
        for fault in name::qualified_name_faults(key) {
            errors.push(FieldError::invalid(labels.as_str(), key.as_str(), fault));
        }
        for fault in name::label_value_faults(value) {
            errors.push(FieldError::invalid(labels.as_str(), value.as_str(), fault));
        }
    }
    for (index, requirement) in selector.match_expressions.iter().enumerate() {
        if errors.is_full() {
            return;
        }
        let at = |name: &str| format!("{field}.matchExpressions[{index}].{name}");
        match (requirement.operator.as_str(), requirement.values.is_empty()) {
            ("In" | "NotIn", false) | ("Exists" | "DoesNotExist", true) => {}
            ("In" | "NotIn", true) => errors.push(FieldError::required(
                at("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            ("Exists" | "DoesNotExist", false) => errors.push(FieldError::forbidden(
                at("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            (other, _) => errors.push(FieldError::invalid(
                at("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        for fault in name::qualified_name_faults(&requirement.key) {
            errors.push(FieldError::invalid(
                at("key"),
                requirement.key.as_str(),
                fault,
            ));
        }
        if values == LabelValues::Any {
            continue;
        }
        for (index, value) in requirement.values.iter().enumerate() {
            for fault in name::label_value_faults(value) {
                let field = format!("{}[{index}]", at("values"));
                errors.push(FieldError::invalid(field, value.as_str(), fault));
            }
        }
    }
    if values == LabelValues::WellFormed && !selector.is_well_formed() {
        errors.push(FieldError::invalid(
            field,
            serde_json::Value::Null,
            "invalid label selector.",
        ));
    }
}

fn has_bad_selector(role: &ClusterRole) -> bool {
    let selectors = role
        .aggregation_rule
        .iter()
        .flat_map(|rule| &rule.cluster_role_selectors);
    selectors.into_iter().any(|each| {
        let mut errors = FieldErrors::default();
        selector(each, LabelValues::WellFormed, "", &mut errors);
        !errors.is_empty()
    })
}

/// Rules of one role: those that Kubernetes brings have some tens.
const MAX_RULES: usize = 1_000;
/// Verbs, groups, resources, names and paths of one role.
const MAX_WORDS: usize = 10_000;
const SELECTORS: &str = "aggregationRule.clusterRoleSelectors";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn rule(json: Value) -> PolicyRule {
        serde_json::from_value(json).unwrap()
    }

    fn named<T: serde::de::DeserializeOwned>(json: Value) -> T {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn rules_are_judged_as_real_servers_do() {
        let rows: &[(Value, &[&str], &[&str])] = &[
            (
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}),
                &[],
                &[],
            ),
            (
                json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}),
                &[],
                &[
                    "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
                ],
            ),
            (
                json!({}),
                &[
                    "rules[0].verbs: Required value: verbs must contain at least one value",
                    "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                    "rules[0].resources: Required value: resource rules must supply at least one resource",
                ],
                &[],
            ),
            (
                json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]}),
                &[
                    "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and \
                   non-resource URLs",
                ],
                &[
                    "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
                ],
            ),
        ];
        for (json, cluster, namespaced_first) in rows {
            let mut object = ClusterRole::default();
            object.metadata.name = "system:a".into();
            object.rules = vec![rule(json.clone())];
            assert_eq!(texts(cluster_role(&object, None)), *cluster, "{json}");
            let mut namespaced = Role {
                metadata: object.metadata,
                rules: object.rules,
            };
            namespaced.metadata.namespace = "ns".into();
            let found = texts(role(&namespaced));
            let expected: Vec<&str> = namespaced_first.iter().chain(*cluster).copied().collect();
            assert_eq!(found, expected, "{json}");
        }
    }

    #[test]
    fn a_role_has_so_many_rules_and_no_more() {
        let of = |rules: usize, verbs: usize| {
            let verbs: Vec<String> = (0..verbs).map(|verb| format!("v{verb}")).collect();
            let one = rule(json!({"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}));
            vec![one; rules]
        };
        let rows: &[(usize, usize, &[&str])] = &[
            (MAX_RULES, 8, &[]),
            (
                MAX_RULES + 1,
                1,
                &["rules: Too many: 1001: must have at most 1000 items"],
            ),
            (1, MAX_WORDS - 2, &[]),
            (
                1,
                MAX_WORDS - 1,
                &["rules: Too many: 10001: all lists of all rules must have at most 10000 items"],
            ),
        ];
        for (rules, verbs, expected) in rows {
            let mut object = ClusterRole::default();
            (object.metadata.name, object.rules) = ("a".into(), of(*rules, *verbs));
            let found = texts(cluster_role(&object, None));
            assert_eq!(found, *expected, "{rules} {verbs}");
            let mut namespaced = Role {
                metadata: object.metadata.clone(),
                rules: object.rules.clone(),
            };
            namespaced.metadata.namespace = "ns".into();
            assert_eq!(texts(role(&namespaced)), *expected, "{rules} {verbs}");
            object.aggregation_rule = Some(named(
                json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}),
            ));
            let found = texts(cluster_role(&object, None));
            assert_eq!(found, Vec::<String>::new(), "{rules} {verbs}");
        }
    }

    #[test]
    fn names_are_path_segments_and_namespaces_labels() {
        let rows = [
            ("a:b*C", "ns", &[] as &[&str]),
            (
                "",
                "ns",
                &["metadata.name: Required value: name or generateName is required"],
            ),
            (
                "a/b",
                "ns",
                &["metadata.name: Invalid value: \"a/b\": may not contain '/'"],
            ),
            (
                "..",
                "ns",
                &["metadata.name: Invalid value: \"..\": may not be '..'"],
            ),
            ("a", "", &["metadata.namespace: Required value"]),
        ];
        for (name, namespace, expected) in rows {
            let mut object = Role::default();
            object.metadata.name = name.into();
            object.metadata.namespace = namespace.into();
            assert_eq!(texts(role(&object)), expected, "{name:?} {namespace:?}");
        }
        let mut object = Role::default();
        (object.metadata.name, object.metadata.namespace) = ("a".into(), "N_s".into());
        assert!(texts(role(&object))[0].starts_with("metadata.namespace: Invalid value: \"N_s\""));
        let mut object = ClusterRole::default();
        (object.metadata.name, object.metadata.namespace) = ("a".into(), "ns".into());
        assert_eq!(
            texts(cluster_role(&object, None)),
            ["metadata.namespace: Forbidden: not allowed on this type"]
        );
    }

    #[test]
    fn bindings_name_a_role_and_real_subjects() {
        let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"});
        let user = json!({"kind": "User", "apiGroup": GROUP, "name": "jane"});
        let rows: &[(Value, Value, &[&str])] = &[
            (role.clone(), user.clone(), &[]),
            (
                json!({"apiGroup": "x", "kind": "Thing", "name": ""}),
                user.clone(),
                &[
                    "roleRef.apiGroup: Unsupported value: \"x\": supported values: \"rbac.authorization.k8s.io\"",
                    "roleRef.kind: Unsupported value: \"Thing\": supported values: \"ClusterRole\"",
                    "roleRef.name: Required value",
                ],
            ),
            (
                json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "a%b"}),
                user,
                &["roleRef.name: Invalid value: \"a%b\": may not contain '%'"],
            ),
            (
                role.clone(),
                json!({"kind": "Group", "apiGroup": "", "name": ""}),
                &[
                    "subjects[0].name: Required value",
                    "subjects[0].apiGroup: Unsupported value: \"\": supported values: \"rbac.authorization.k8s.io\"",
                ],
            ),
            (
                role.clone(),
                json!({"kind": "ServiceAccount", "apiGroup": "x", "name": "bot"}),
                &[
                    "subjects[0].apiGroup: Unsupported value: \"x\": supported values: \"\"",
                    "subjects[0].namespace: Required value",
                ],
            ),
            (
                role,
                json!({"kind": "Robot", "name": "r"}),
                &[
                    "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
                ],
            ),
        ];
        for (role_ref, subject, expected) in rows {
            let binding: ClusterRoleBinding = named(
                json!({"metadata": {"name": "b"}, "roleRef": role_ref, "subjects": [subject]}),
            );
            let found = texts(cluster_role_binding(&binding, None));
            assert_eq!(found, *expected, "{role_ref} {subject}");
        }
    }

    #[test]
    fn a_binding_keeps_its_role() {
        let json = |name: &str| {
            json!({"metadata": {"name": "b", "namespace": "ns"},
                "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": name}})
        };
        let (old, new): (RoleBinding, RoleBinding) = (named(json("a")), named(json("b")));
        assert_eq!(texts(role_binding(&new, Some(&new))), Vec::<String>::new());
        assert_eq!(
            texts(role_binding(&new, Some(&old))),
            [format!(
                "roleRef: Invalid value: {{\"APIGroup\":\"{GROUP}\",\"Kind\":\"Role\",\"Name\":\"b\"}}: cannot change roleRef"
            )]
        );
    }

    #[test]
    fn selectors_of_aggregation_are_well_formed() {
        let rows: &[(Value, &[&str])] = &[
            (json!([{}]), &[]),
            (
                json!([]),
                &[
                    "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if \
                   aggregationRule is non-nil",
                ],
            ),
            (
                json!([{"matchExpressions": [{"key": "a", "operator": "In"}]}]),
                &[
                    "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values: Required value: must be \
                     specified when `operator` is 'In' or 'NotIn'",
                    "aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.",
                ],
            ),
            (
                json!([{"matchExpressions": [{"key": "a", "operator": "Like"}]}]),
                &[
                    "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: \"Like\": not \
                     a valid selector operator",
                    "aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.",
                ],
            ),
        ];
        for (selectors, expected) in rows {
            let role: ClusterRole = named(json!({"metadata": {"name": "a"},
                "aggregationRule": {"clusterRoleSelectors": selectors}}));
            assert_eq!(texts(cluster_role(&role, None)), *expected, "{selectors}");
        }
    }
}
