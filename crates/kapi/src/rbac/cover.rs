//! Whether rules hold all that other rules grant (`Covers` of `k8s.io/component-helpers/auth/rbac/validation`).
//!
//! A rule is broken into single grants (one group, resource, verb and name, or one path and verb); each must be within
//! one held rule. How many grants there are is the product of the lists, and each may be compared with each held rule, so
//! both are bounded.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::evaluate::{ALL, covers_path};
use super::model::PolicyRule;
use crate::field::go_quote;

/// More grants than can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooManyGrants {
    /// In what is to be granted alone.
    #[error(
        "the rules combine to more than {MAX_GRANTS} single grants, which cannot be compared with what is held: split them"
    )]
    Wanted,
    /// Beside what is held.
    #[error(
        "the rules and those that are held are too many to be compared: grant fewer at a time, or hold fewer rules"
    )]
    Compared,
}

/// What `wanted` grants that `held` does not, as rules of one grant each; none = all is covered.
///
/// # Errors
/// The rules combine to too many grants.
pub fn missing<'a>(
    held: impl IntoIterator<Item = &'a PolicyRule>,
    wanted: &[PolicyRule],
) -> Result<Vec<PolicyRule>, TooManyGrants> {
    let mut seen = HashSet::new();
    let held = held.into_iter().filter(|rule| seen.insert(*rule));
    let mut comparison = Comparison {
        held: held.map(Held::of).collect(),
        left: MAX_COMPARED,
    };
    let mut missing = Vec::new();
    let mut left = MAX_GRANTS;
    let mut seen = HashSet::new();
    for rule in wanted.iter().filter(|rule| seen.insert(*rule)) {
        if comparison.covers(rule)? {
            continue;
        }
        left = left.checked_sub(count(rule)).ok_or(TooManyGrants::Wanted)?;
        for grant in grants(rule) {
            if !comparison.covers(&grant)? {
                missing.push(grant);
            }
        }
    }
    Ok(missing)
}

/// Puts rules that differ in their verbs alone together, as far as they are about one resource and at most one name.
#[must_use]
pub fn compact(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut compacted: Vec<PolicyRule> = Vec::new();
    let mut simple: BTreeMap<[Option<String>; 3], usize> = BTreeMap::new();
    for rule in rules {
        let key = match (
            rule.api_groups.as_slice(),
            rule.resources.as_slice(),
            rule.resource_names.as_slice(),
        ) {
            ([group], [resource], names)
                if names.len() <= 1 && rule.non_resource_urls.is_empty() =>
            {
                let name = names.first().cloned();
                [Some(group.clone()), Some(resource.clone()), name]
            }
            _ => {
                compacted.push(rule);
                continue;
            }
        };
        let known = simple.get(&key).and_then(|index| compacted.get_mut(*index));
        match known {
            Some(known) => known.verbs.extend(rule.verbs),
            None => {
                simple.insert(key, compacted.len());
                compacted.push(rule);
            }
        }
    }
    compacted
}

/// A rule in one line, as messages about missing rights show it.
#[must_use]
pub fn describe(rule: &PolicyRule) -> String {
    let lists = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let parts: Vec<String> = lists
        .iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| format!("{name}:{}", quoted(list)))
        .collect();
    format!("{{{}}}", parts.join(", "))
}

/// A list as Go quotes it (`%q`).
pub(super) fn quoted(list: &[String]) -> String {
    let words: Vec<String> = list.iter().map(|word| go_quote(word)).collect();
    format!("[{}]", words.join(" "))
}

/// Comparisons with everything that is held, as long as they last.
struct Comparison<'a> {
    held: Vec<Held<'a>>,
    /// Words that may still be looked at.
    left: usize,
}

impl Comparison<'_> {
    fn covers(&mut self, wanted: &PolicyRule) -> Result<bool, TooManyGrants> {
        let (words, urls) = (wanted.words(), wanted.non_resource_urls.len());
        for held in &self.held {
            // Paths have wildcards: each is compared with each.
            let cost = words.saturating_add(urls.saturating_mul(held.urls.len()));
            let left = self.left.checked_sub(cost);
            self.left = left.ok_or(TooManyGrants::Compared)?;
            if held.covers(wanted) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A held rule, made ready for many comparisons.
struct Held<'a> {
    verbs: Words<'a>,
    groups: Words<'a>,
    resources: Words<'a>,
    names: BTreeSet<&'a str>,
    urls: &'a [String],
}

struct Words<'a> {
    all: bool,
    words: BTreeSet<&'a str>,
}

impl<'a> Words<'a> {
    fn of(list: &'a [String]) -> Self {
        let words: BTreeSet<&str> = list.iter().map(String::as_str).collect();
        Self {
            all: words.contains(ALL),
            words,
        }
    }

    fn covers(&self, wanted: &[String]) -> bool {
        self.all || wanted.iter().all(|word| self.words.contains(word.as_str()))
    }

    /// A subresource is also within `*/subresource`.
    fn covers_resources(&self, wanted: &[String]) -> bool {
        self.all
            || wanted.iter().all(|resource| {
                self.words.contains(resource.as_str())
                    || resource.split_once('/').is_some_and(|(_, subresource)| {
                        self.words.contains(format!("*/{subresource}").as_str())
                    })
            })
    }
}

impl<'a> Held<'a> {
    fn of(rule: &'a PolicyRule) -> Self {
        Self {
            verbs: Words::of(&rule.verbs),
            groups: Words::of(&rule.api_groups),
            resources: Words::of(&rule.resources),
            names: rule.resource_names.iter().map(String::as_str).collect(),
            urls: &rule.non_resource_urls,
        }
    }

    fn covers(&self, wanted: &PolicyRule) -> bool {
        let names = match (self.names.is_empty(), wanted.resource_names.as_slice()) {
            (true, _) => true,
            (false, []) => false,
            (false, wanted) => wanted.iter().all(|name| self.names.contains(name.as_str())),
        };
        let within = |path: &String| self.urls.iter().any(|url| covers_path(url, path));
        names
            && self.verbs.covers(&wanted.verbs)
            && self.groups.covers(&wanted.api_groups)
            && self.resources.covers_resources(&wanted.resources)
            && wanted.non_resource_urls.iter().all(within)
    }
}

/// How many grants a rule combines to.
fn count(rule: &PolicyRule) -> usize {
    let lists = [
        rule.api_groups.len(),
        rule.resources.len(),
        rule.resource_names.len().max(1),
    ];
    let resources = lists
        .into_iter()
        .fold(rule.verbs.len(), usize::saturating_mul);
    let paths = rule
        .non_resource_urls
        .len()
        .saturating_mul(rule.verbs.len());
    resources.saturating_add(paths)
}

fn grants(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut grants = Vec::new();
    let names: Vec<Vec<String>> = match rule.resource_names.as_slice() {
        [] => vec![Vec::new()],
        names => names.iter().map(|name| vec![name.clone()]).collect(),
    };
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                grants.extend(names.iter().map(|names| PolicyRule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    resource_names: names.clone(),
                    non_resource_urls: Vec::new(),
                }));
            }
        }
    }
    for url in &rule.non_resource_urls {
        grants.extend(rule.verbs.iter().map(|verb| PolicyRule {
            verbs: vec![verb.clone()],
            non_resource_urls: vec![url.clone()],
            ..PolicyRule::default()
        }));
    }
    grants
}

/// Grants of one object that are compared: the largest role that Kubernetes brings has a few thousand.
pub const MAX_GRANTS: usize = 20_000;
/// Words of grants that are looked for in held rules: a fraction of a second. Several times what somebody needs who holds a
/// hundred rules and grants the largest role.
const MAX_COMPARED: usize = 5_000_000;
