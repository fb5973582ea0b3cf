//! The signing policies that somebody gave the authority: they are in its store, and come into force with the policy files.

use anyhow::{Context as _, Result};
use countersign_api::SigningPolicies as Given;
use countersign_authority::{ObjectRecord, Revision};
use countersign_policy::{Rule, RuleKind, SignerName, SigningPolicies, SigningPolicy};
use countersign_server::access::{Entry, Holder, Role};

use crate::signers::PUPPET_AGENT;

/// Those that are kept, as they were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptPolicies {
    /// By which a change of them is noticed.
    pub(crate) revision: Option<Revision>,
    /// What rules of kind `signingPolicy` look at.
    pub(crate) policies: SigningPolicies,
    /// All that they say, without the hashes of values; empty if there are none. Other values make another text.
    pub(crate) text: String,
    /// The certnames that act for the authorities of clusters.
    pub(crate) operators: Vec<String>,
}

impl KeptPolicies {
    /// Reads what is kept.
    pub(crate) fn read(record: Option<&ObjectRecord>) -> Result<Self> {
        let Some(record) = record else {
            return Ok(Self::default());
        };
        let given: Given = serde_json::from_slice(&record.body)
            .context("the signing policies in the store cannot be read")?;
        let mut policies = Vec::new();
        for (authority, set) in &given.authorities {
            for policy in &set.policies {
                let read = SigningPolicy::read(&policy.name, &policy.spec, |_, _| None);
                let read = read.with_context(|| {
                    format!("signing policy {} of {authority} in the store", policy.name)
                })?;
                policies.push(read);
            }
        }
        let operators = given
            .authorities
            .values()
            .filter_map(|set| set.operator.clone());
        let operators = operators.collect();
        let mut shown = given;
        let sets = shown.authorities.values_mut();
        for policy in sets.flat_map(|set| &mut set.policies) {
            policy.spec = SigningPolicy::without_hashes(&policy.spec);
        }
        let text = match shown.authorities.is_empty() {
            true => String::new(),
            false => format!(
                "# revision {}\n{}",
                record.version.0,
                serde_json::to_string_pretty(&shown)?
            ),
        };
        Ok(Self {
            revision: Some(record.version),
            policies: SigningPolicies::new(policies),
            text,
            operators,
        })
    }

    /// The rule that they stand for where no file has one.
    pub(crate) fn rule(&self, rules: &[Rule]) -> Result<Option<Rule>> {
        let mut kinds = rules.iter().flat_map(|rule| &rule.kinds);
        let has_rule = kinds.any(|kind| matches!(kind, RuleKind::SigningPolicy));
        if has_rule || self.policies.is_empty() {
            return Ok(None);
        }
        let signers = vec![SignerName::parse(PUPPET_AGENT)?];
        Ok(Some(Rule::approving(
            "signing-policies",
            signers,
            RuleKind::SigningPolicy,
        )))
    }

    /// The roles of those who act for the authorities of clusters.
    pub(crate) fn access(&self) -> impl Iterator<Item = Entry> {
        self.operators.iter().map(|operator| Entry {
            holder: Holder::Certname(operator.clone()),
            role: Role::Sign,
            suffixes: Vec::new(),
        })
    }
}
