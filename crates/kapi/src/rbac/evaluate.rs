//! May they? Whether some rule that a user was given allows an action.

use std::collections::BTreeSet;

use super::GROUP;
use super::book::{Grant, RoleBook};
use super::model::PolicyRule;
use crate::field::go_quote;
use crate::model::UserInfo;

/// An action that somebody may or may not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attributes<'a> {
    /// On a resource.
    Resource(ResourceAction<'a>),
    /// On another path.
    Path(PathAction<'a>),
}

/// An action on a resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceAction<'a> {
    /// The verb.
    pub verb: &'a str,
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Subresource; empty for the object itself.
    pub subresource: &'a str,
    /// Name of the object; empty for collections.
    pub name: &'a str,
    /// Namespace; empty for the cluster.
    pub namespace: &'a str,
}

/// An action on a path that is no resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathAction<'a> {
    /// An HTTP method in lower case.
    pub verb: &'a str,
    /// The path.
    pub path: &'a str,
}

/// The answer, in the words of real servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether a rule allows it. That none does is no denial: somebody else may still allow it.
    pub allowed: bool,
    /// By which binding; or, where nothing allows it, which bindings refer to roles that do not exist.
    pub reason: String,
}

/// What a user was given in one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulesOf<'a> {
    /// The rules, in order of bindings.
    pub rules: Vec<&'a PolicyRule>,
    /// Bindings whose role does not exist.
    pub faults: Vec<String>,
}

impl PolicyRule {
    /// Whether the rule allows an action.
    #[must_use]
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        match attributes {
            Attributes::Resource(action) => {
                has_or_all(&self.verbs, action.verb)
                    && has_or_all(&self.api_groups, action.group)
                    && self.names_resource(action)
                    && (self.resource_names.is_empty() || has(&self.resource_names, action.name))
            }
            Attributes::Path(action) => {
                has_or_all(&self.verbs, action.verb)
                    && self
                        .non_resource_urls
                        .iter()
                        .any(|url| covers_path(url, action.path))
            }
        }
    }

    /// How many items its lists have together.
    pub(super) fn words(&self) -> usize {
        let lists = [
            &self.verbs,
            &self.api_groups,
            &self.resources,
            &self.resource_names,
            &self.non_resource_urls,
        ];
        lists.into_iter().map(Vec::len).sum()
    }

    fn names_resource(&self, action: &ResourceAction<'_>) -> bool {
        let ResourceAction {
            resource,
            subresource,
            ..
        } = *action;
        self.resources.iter().any(|named| {
            if named == ALL {
                return true;
            }
            if subresource.is_empty() {
                return named == resource;
            }
            match named.strip_suffix(subresource) {
                Some("*/") => true,
                Some(rest) => rest.strip_suffix('/') == Some(resource),
                None => false,
            }
        })
    }
}

impl RoleBook {
    /// Whether roles and bindings allow a user an action.
    #[must_use]
    pub fn authorize(&self, user: &UserInfo, attributes: &Attributes<'_>) -> Decision {
        let namespace = match attributes {
            Attributes::Resource(action) => action.namespace,
            Attributes::Path(_) => "",
        };
        let mut faults = Faults::default();
        for grant in self.grants(user, namespace) {
            match self.rules(&grant.role_ref, &grant.namespace) {
                Some(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    return Decision {
                        allowed: true,
                        reason: format!("RBAC: allowed by {}", grant.describe(user)),
                    };
                }
                Some(_) => {}
                None => faults.missing(grant),
            }
        }
        Decision {
            allowed: false,
            reason: faults.text(),
        }
    }

    /// Everything that roles and bindings give a user, everywhere and in one namespace.
    #[must_use]
    pub fn rules_of(&self, user: &UserInfo, namespace: &str) -> RulesOf<'_> {
        let (mut rules, mut faults) = (Vec::new(), Faults::default());
        for grant in self.grants(user, namespace) {
            match self.rules(&grant.role_ref, &grant.namespace) {
                Some(given) => rules.extend(given),
                None => faults.missing(grant),
            }
        }
        RulesOf {
            rules,
            faults: faults.0.into_iter().collect(),
        }
    }
}

/// Which roles do not exist, each told once.
#[derive(Default)]
struct Faults(BTreeSet<String>);

impl Faults {
    fn missing(&mut self, grant: &Grant) {
        if self.0.len() < MAX_FAULTS {
            let kind = grant.role_ref.kind.to_lowercase();
            let name = go_quote(&grant.role_ref.name);
            self.0.insert(format!("{kind}.{GROUP} {name} not found"));
        }
    }

    fn text(self) -> String {
        let texts: Vec<String> = self.0.into_iter().collect();
        match texts.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            several => format!("RBAC: [{}]", several.join(", ")),
        }
    }
}

/// Whether a path of a rule stands for a path.
pub(super) fn covers_path(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

fn has_or_all(list: &[String], item: &str) -> bool {
    list.iter().any(|listed| listed == ALL || listed == item)
}

fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|listed| listed == item)
}

/// Every verb, group or resource.
pub(super) const ALL: &str = "*";
/// Roles that are told to be missing in one answer.
const MAX_FAULTS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    /// `verb group resource/subresource name`, with `-` for nothing.
    fn action(text: &str) -> Attributes<'_> {
        let words: Vec<&str> = text
            .split(' ')
            .map(|word| if word == "-" { "" } else { word })
            .collect();
        let (resource, subresource) = words[2].split_once('/').unwrap_or((words[2], ""));
        Attributes::Resource(ResourceAction {
            verb: words[0],
            group: words[1],
            resource,
            subresource,
            name: words.get(3).copied().unwrap_or_default(),
            namespace: "",
        })
    }

    #[rstest]
    #[case(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}), "get - pods", true)]
    #[case(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}), "list - pods", false)]
    #[case(json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["pods"]}), "get - pods", false)]
    #[case(json!({"verbs": ["get"], "apiGroups": [], "resources": ["pods"]}), "get - pods", false)]
    #[case(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}), "approve a b/c d", true)]
    #[case::subresource_is_not_in_the_resource(
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}), "get - pods/log", false)]
    #[case(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}), "get - pods/log", true)]
    #[case(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}), "get - pods", false)]
    #[case(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["*/log"]}), "get - pods/log", true)]
    #[case(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["*/log"]}), "get - pods/status", false)]
    #[case(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["*/log"]}), "get - log", false)]
    #[case::no_wildcard_behind_the_resource(
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/*"]}), "get - pods/log", false)]
    #[case(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}), "get - pods a", true)]
    #[case(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}), "get - pods b", false)]
    #[case::unnamed(json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}), "list - pods", false)]
    #[case::names_are_literal(
        json!({"verbs": ["approve"], "apiGroups": ["g"], "resources": ["signers"], "resourceNames": ["example.com/*"]}),
        "approve g signers example.com/a", false)]
    #[case(
        json!({"verbs": ["approve"], "apiGroups": ["g"], "resources": ["signers"], "resourceNames": ["example.com/*"]}),
        "approve g signers example.com/*", true)]
    #[case::paths_are_no_resources(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}), "get - pods", false)]
    fn rules_allow(#[case] rule: Value, #[case] asked: &str, #[case] allowed: bool) {
        let rule: PolicyRule = serde_json::from_value(rule).unwrap();
        assert_eq!(rule.allows(&action(asked)), allowed);
    }

    #[rstest]
    #[case("/healthz", "/healthz", true)]
    #[case("/healthz", "/healthz/ping", false)]
    #[case("/healthz/*", "/healthz/ping", true)]
    #[case("/healthz/*", "/healthz", false)]
    #[case("/healthz*", "/healthzz", true)]
    #[case("*", "/anything", true)]
    #[case::stars_inside_are_letters("/a*b", "/axb", false)]
    fn paths(#[case] rule: &str, #[case] path: &str, #[case] allowed: bool) {
        let rule = PolicyRule {
            verbs: vec!["get".into()],
            non_resource_urls: vec![rule.into()],
            ..PolicyRule::default()
        };
        let asked = |verb| Attributes::Path(PathAction { verb, path });
        assert_eq!(rule.allows(&asked("get")), allowed);
        assert!(!rule.allows(&asked("post")));
    }
}
