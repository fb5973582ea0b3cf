//! The protobuf form of the four kinds, with the tags of `k8s.io/api/rbac/v1/generated.proto`.

use super::model::{
    AggregationRule, ClusterRole, ClusterRoleBinding, ClusterRoleSelector, PolicyRule, Role,
    RoleBinding, RoleRef, SelectorRequirement, Subject,
};
use crate::MAX_BODY_VALUES;
use crate::meta::ObjectMeta;
use crate::protobuf::{ProtobufFault, meta, push, text_entry, write_meta};
use crate::wire::{Budget, Fields, WireFault, Writer};

/// Reads the message of a [`Role`], without its envelope.
pub(super) fn read_role(raw: &[u8]) -> Result<Role, ProtobufFault> {
    let (metadata, rules, _) = role(raw).map_err(ProtobufFault::Object)?;
    Ok(Role { metadata, rules })
}

/// Reads the message of a [`ClusterRole`], without its envelope.
pub(super) fn read_cluster_role(raw: &[u8]) -> Result<ClusterRole, ProtobufFault> {
    let (metadata, rules, aggregation_rule) = role(raw).map_err(ProtobufFault::Object)?;
    Ok(ClusterRole {
        metadata,
        rules,
        aggregation_rule,
    })
}

/// Reads the message of a [`RoleBinding`], without its envelope.
pub(super) fn read_role_binding(raw: &[u8]) -> Result<RoleBinding, ProtobufFault> {
    let (metadata, subjects, role_ref) = binding(raw).map_err(ProtobufFault::Object)?;
    Ok(RoleBinding {
        metadata,
        subjects,
        role_ref,
    })
}

/// Reads the message of a [`ClusterRoleBinding`], without its envelope.
pub(super) fn read_cluster_role_binding(raw: &[u8]) -> Result<ClusterRoleBinding, ProtobufFault> {
    let (metadata, subjects, role_ref) = binding(raw).map_err(ProtobufFault::Object)?;
    Ok(ClusterRoleBinding {
        metadata,
        subjects,
        role_ref,
    })
}

/// The message of a [`Role`].
pub(super) fn role_message(object: &Role) -> Vec<u8> {
    let mut writer = Writer::default();
    write_rules(&mut writer, &object.metadata, &object.rules);
    writer.into_bytes()
}

/// The message of a [`ClusterRole`].
pub(super) fn cluster_role_message(object: &ClusterRole) -> Vec<u8> {
    let mut writer = Writer::default();
    write_rules(&mut writer, &object.metadata, &object.rules);
    if let Some(rule) = &object.aggregation_rule {
        writer.message(3, |writer| {
            for selector in &rule.cluster_role_selectors {
                writer.message(1, |writer| write_selector(writer, selector));
            }
        });
    }
    writer.into_bytes()
}

/// The message of either kind of binding.
pub(super) fn binding_message(
    metadata: &ObjectMeta,
    subjects: &[Subject],
    role_ref: &RoleRef,
) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.message(1, |writer| write_meta(writer, metadata));
    for subject in subjects {
        writer.message(2, |writer| {
            writer.text(1, &subject.kind);
            writer.text(2, &subject.api_group);
            writer.text(3, &subject.name);
            writer.text(4, &subject.namespace);
        });
    }
    writer.message(3, |writer| {
        writer.text(1, &role_ref.api_group);
        writer.text(2, &role_ref.kind);
        writer.text(3, &role_ref.name);
    });
    writer.into_bytes()
}

/// Both kinds of roles; only cluster roles have the third field.
fn role(raw: &[u8]) -> Result<(ObjectMeta, Vec<PolicyRule>, Option<AggregationRule>), WireFault> {
    let mut budget = Budget::new(MAX_BODY_VALUES);
    let (mut metadata, mut rules, mut aggregation) = (ObjectMeta::default(), Vec::new(), None);
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => meta(field.bytes()?, &mut metadata, &mut budget)?,
            2 => {
                let rule = policy_rule(field.bytes()?, &mut budget)?;
                push(&mut rules, rule, &mut budget)?;
            }
            3 => {
                let rule: &mut AggregationRule = aggregation.get_or_insert_default();
                let mut inner = Fields::of(field.bytes()?);
                while let Some(part) = inner.next()? {
                    if part.number == 1 {
                        let selector = selector(part.bytes()?, &mut budget)?;
                        push(&mut rule.cluster_role_selectors, selector, &mut budget)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok((metadata, rules, aggregation))
}

/// Both kinds of bindings.
fn binding(raw: &[u8]) -> Result<(ObjectMeta, Vec<Subject>, RoleRef), WireFault> {
    let mut budget = Budget::new(MAX_BODY_VALUES);
    let (mut metadata, mut subjects) = (ObjectMeta::default(), Vec::new());
    let mut role_ref = RoleRef::default();
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => meta(field.bytes()?, &mut metadata, &mut budget)?,
            2 => push(&mut subjects, subject(field.bytes()?)?, &mut budget)?,
            3 => {
                let mut inner = Fields::of(field.bytes()?);
                while let Some(part) = inner.next()? {
                    match part.number {
                        1 => role_ref.api_group = part.string()?,
                        2 => role_ref.kind = part.string()?,
                        3 => role_ref.name = part.string()?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok((metadata, subjects, role_ref))
}

fn policy_rule(raw: &[u8], budget: &mut Budget) -> Result<PolicyRule, WireFault> {
    let mut rule = PolicyRule::default();
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        let list = match field.number {
            1 => &mut rule.verbs,
            2 => &mut rule.api_groups,
            3 => &mut rule.resources,
            4 => &mut rule.resource_names,
            5 => &mut rule.non_resource_urls,
            _ => continue,
        };
        push(list, field.string()?, budget)?;
    }
    Ok(rule)
}

fn subject(raw: &[u8]) -> Result<Subject, WireFault> {
    let mut subject = Subject::default();
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => subject.kind = field.string()?,
            2 => subject.api_group = field.string()?,
            3 => subject.name = field.string()?,
            4 => subject.namespace = field.string()?,
            _ => {}
        }
    }
    Ok(subject)
}

fn selector(raw: &[u8], budget: &mut Budget) -> Result<ClusterRoleSelector, WireFault> {
    let mut selector = ClusterRoleSelector::default();
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => text_entry(field, &mut selector.match_labels, budget)?,
            2 => {
                let requirement = requirement(field.bytes()?, budget)?;
                push(&mut selector.match_expressions, requirement, budget)?;
            }
            _ => {}
        }
    }
    Ok(selector)
}

fn requirement(raw: &[u8], budget: &mut Budget) -> Result<SelectorRequirement, WireFault> {
    let mut requirement = SelectorRequirement::default();
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => requirement.key = field.string()?,
            2 => requirement.operator = field.string()?,
            3 => push(&mut requirement.values, field.string()?, budget)?,
            _ => {}
        }
    }
    Ok(requirement)
}

fn write_rules(writer: &mut Writer, metadata: &ObjectMeta, rules: &[PolicyRule]) {
    writer.message(1, |writer| write_meta(writer, metadata));
    for rule in rules {
        writer.message(2, |writer| {
            let lists = [
                (1, &rule.verbs),
                (2, &rule.api_groups),
                (3, &rule.resources),
                (4, &rule.resource_names),
                (5, &rule.non_resource_urls),
            ];
            for (number, list) in lists {
                list.iter().for_each(|text| writer.text(number, text));
            }
        });
    }
}

fn write_selector(writer: &mut Writer, selector: &ClusterRoleSelector) {
    for (key, value) in &selector.match_labels {
        writer.message(1, |writer| {
            writer.text(1, key);
            writer.text(2, value);
        });
    }
    for requirement in &selector.match_expressions {
        writer.message(2, |writer| {
            writer.text(1, &requirement.key);
            writer.text(2, &requirement.operator);
            let values = requirement.values.iter();
            values.for_each(|value| writer.text(3, value));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn roles_survive_a_round() {
        let object: ClusterRole = serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"x": "y"}},
            "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods/log"], "resourceNames": ["a"]},
                {"verbs": ["get"], "nonResourceURLs": ["/healthz*"]}],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}]}]}}))
        .unwrap();
        assert_eq!(
            read_cluster_role(&cluster_role_message(&object)),
            Ok(object.clone())
        );
        let role = Role {
            metadata: object.metadata,
            rules: object.rules,
        };
        assert_eq!(read_role(&role_message(&role)), Ok(role));
    }

    #[test]
    fn bindings_survive_a_round() {
        let object: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "ns"},
            "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "ServiceAccount", "name": "bot", "namespace": "ns"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}}))
        .unwrap();
        let raw = binding_message(&object.metadata, &object.subjects, &object.role_ref);
        assert_eq!(read_role_binding(&raw), Ok(object.clone()));
        let cluster = read_cluster_role_binding(&raw).unwrap();
        assert_eq!(cluster.subjects, object.subjects);
        assert_eq!(cluster.role_ref, object.role_ref);
    }

    /// `ClusterRoleBinding{metadata: {name: b}, subjects: [Group devs], roleRef: view}` as Go's generated code writes it:
    /// empty scalars are there, an unset time is a message of length zero.
    #[test]
    fn the_form_is_that_of_go() {
        let object: ClusterRoleBinding = serde_json::from_value(json!({"metadata": {"name": "b"},
            "subjects": [{"kind": "Group", "apiGroup": "g", "name": "devs"}],
            "roleRef": {"apiGroup": "g", "kind": "ClusterRole", "name": "view"}}))
        .unwrap();
        let raw = binding_message(&object.metadata, &object.subjects, &object.role_ref);
        let mut expected = vec![
            0x0a, 17, 0x0a, 1, b'b', 0x12, 0, 0x1a, 0, 0x22, 0, 0x2a, 0, 0x32, 0,
        ];
        expected.extend([0x38, 0, 0x42, 0, 0x12, 18, 0x0a, 5]);
        expected.extend(*b"Group");
        expected.extend([0x12, 1, b'g', 0x1a, 4]);
        expected.extend(*b"devs");
        expected.extend([0x22, 0, 0x1a, 22, 0x0a, 1, b'g', 0x12, 11]);
        expected.extend(*b"ClusterRole");
        expected.extend([0x1a, 4]);
        expected.extend(*b"view");
        assert_eq!(raw, expected);
    }

    #[test]
    fn a_message_of_empty_entries_is_refused() {
        let hostile = [0x12, 0x00].repeat(MAX_BODY_VALUES + 1);
        let fault = ProtobufFault::Object(WireFault::TooMany);
        assert_eq!(read_role(&hostile), Err(fault.clone()));
        assert_eq!(read_role_binding(&hostile), Err(fault));
    }
}
