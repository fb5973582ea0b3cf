//! Roles made of other roles: an aggregated cluster role allows what the roles allow that its selectors select.
//!
//! What stands in the `rules` of an aggregated role is not believed: real clusters overwrite it with the same union.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::model::{ClusterRole, ClusterRoleSelector, PolicyRule};
use crate::name;

impl ClusterRoleSelector {
    /// Whether a role with these labels is selected. A selector that breaks the grammar selects nothing.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let fixed = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.is_well_formed()
            && self.match_labels.iter().all(fixed)
            && self.match_expressions.iter().all(|requirement| {
                let value = labels.get(&requirement.key);
                let is_listed = value.is_some_and(|value| requirement.values.contains(value));
                match requirement.operator.as_str() {
                    "In" => is_listed,
                    "NotIn" => !is_listed,
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }

    /// Whether every requirement can be understood.
    pub(super) fn is_well_formed(&self) -> bool {
        let is_key = |key: &str| name::qualified_name_faults(key).is_empty();
        let is_value = |value: &String| name::label_value_faults(value).is_empty();
        let mut labels = self.match_labels.iter();
        labels.all(|(key, value)| is_key(key) && is_value(value))
            && self.match_expressions.iter().all(|requirement| {
                let needs_values = match requirement.operator.as_str() {
                    "In" | "NotIn" => true,
                    "Exists" | "DoesNotExist" => false,
                    _ => return false,
                };
                needs_values != requirement.values.is_empty()
                    && is_key(&requirement.key)
                    && requirement.values.iter().all(is_value)
            })
    }
}

/// What each aggregated role among `roles` allows: the rules of the selected roles in order of their names, each once.
/// A selected role that is aggregated itself brings what it is made of; roles that select each other end there.
#[must_use]
pub fn aggregated(
    roles: &BTreeMap<String, Arc<ClusterRole>>,
) -> BTreeMap<String, Arc<[PolicyRule]>> {
    let aggregates = roles
        .iter()
        .filter(|(_, role)| role.aggregation_rule.is_some());
    aggregates
        .map(|(name, role)| {
            let mut union = Union {
                roles,
                visited: BTreeSet::new(),
                seen: HashSet::new(),
                rules: Vec::new(),
            };
            union.collect(name, role);
            (name.clone(), union.rules.into())
        })
        .collect()
}

struct Union<'a> {
    roles: &'a BTreeMap<String, Arc<ClusterRole>>,
    visited: BTreeSet<&'a str>,
    seen: HashSet<&'a PolicyRule>,
    rules: Vec<PolicyRule>,
}

impl<'a> Union<'a> {
    /// Walks with a list of its own: how many roles select each other in a row is up to their writers.
    fn collect(&mut self, name: &'a str, role: &'a ClusterRole) {
        self.visited.insert(name);
        let mut waiting = self.selected(role);
        waiting.reverse();
        while let Some((name, role)) = waiting.pop() {
            if !self.visited.insert(name) {
                continue;
            }
            if role.aggregation_rule.is_some() {
                waiting.extend(self.selected(role).into_iter().rev());
                continue;
            }
            for rule in &role.rules {
                if self.seen.insert(rule) {
                    self.rules.push(rule.clone());
                }
            }
        }
    }

    fn selected(&self, role: &ClusterRole) -> Vec<(&'a str, &'a ClusterRole)> {
        let roles = self.roles;
        let selectors = role
            .aggregation_rule
            .iter()
            .flat_map(|rule| &rule.cluster_role_selectors);
        selectors
            .flat_map(|selector| {
                let selected = move |(_, other): &(&String, &Arc<ClusterRole>)| {
                    selector.matches(&other.metadata.labels)
                };
                roles.iter().filter(selected)
            })
            .map(|(name, other)| (name.as_str(), &**other))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case::empty_selects_all(json!({}), true)]
    #[case::label(json!({"matchLabels": {"a": "1"}}), true)]
    #[case::other_value(json!({"matchLabels": {"a": "2"}}), false)]
    #[case::within(json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["0", "1"]}]}), true)]
    #[case::not_within(json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}), true)]
    #[case::excluded(json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}), false)]
    #[case::exists(json!({"matchExpressions": [{"key": "b", "operator": "Exists"}]}), false)]
    #[case::absent(json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}), true)]
    #[case::all_must_hold(json!({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}), false)]
    #[case::not_understood(json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["1"]}]}), false)]
    #[case::no_values(json!({"matchExpressions": [{"key": "b", "operator": "NotIn"}]}), false)]
    fn selectors_select(#[case] selector: Value, #[case] expected: bool) {
        let selector: ClusterRoleSelector = serde_json::from_value(selector).unwrap();
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        assert_eq!(selector.matches(&labels), expected);
    }

    #[test]
    fn circles_of_roles_end() {
        let role = |label: &str, selects: &[&str], verb: &str| -> Arc<ClusterRole> {
            let selectors: Vec<Value> = selects
                .iter()
                .map(|label| json!({"matchLabels": {"of": label}}))
                .collect();
            let aggregation =
                (!selects.is_empty()).then(|| json!({"clusterRoleSelectors": selectors}));
            let json = json!({"metadata": {"labels": {"of": label}}, "aggregationRule": aggregation,
                "rules": [{"verbs": [verb]}]});
            Arc::new(serde_json::from_value(json).unwrap())
        };
        let roles = BTreeMap::from([
            ("a".to_owned(), role("a", &["b", "leaf"], "ignored")),
            ("b".to_owned(), role("b", &["a", "deep"], "ignored")),
            ("c".to_owned(), role("leaf", &[], "get")),
            ("d".to_owned(), role("leaf", &[], "get")),
            ("e".to_owned(), role("deep", &[], "list")),
        ]);
        let verbs: Vec<(String, Vec<String>)> = aggregated(&roles)
            .into_iter()
            .map(|(name, rules)| {
                let verbs = rules.iter().flat_map(|rule| rule.verbs.clone());
                (name, verbs.collect())
            })
            .collect();
        let row = |name: &str, verbs: &[&str]| {
            let verbs = verbs.iter().map(|verb| (*verb).to_owned());
            (name.to_owned(), verbs.collect::<Vec<_>>())
        };
        assert_eq!(
            verbs,
            [row("a", &["list", "get"]), row("b", &["get", "list"])]
        );
    }
}
