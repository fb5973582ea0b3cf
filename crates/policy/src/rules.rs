//! Rules and the policy that orders them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::allowlist::Apex;
use crate::request::SignerName;

/// An ordered list of rules, as it stood at one generation of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Counts the versions of the policy; stands in every verdict.
    pub generation: u64,
    /// The rules, first to last.
    pub rules: Vec<Rule>,
    /// The authority's own names and addresses (its servers', its administrators'), names in lower case:
    /// no rule may approve them.
    pub reserved_names: BTreeSet<String>,
}

impl Policy {
    /// The rules that apply to `signer`, in order.
    pub fn rules_for<'a>(&'a self, signer: &'a SignerName) -> impl Iterator<Item = &'a Rule> {
        self.rules
            .iter()
            .filter(move |rule| rule.signers.contains(signer))
    }

    /// Whether a decision for `signer` may ask for evidence outside the authority, such as a file or a program.
    pub fn asks_outside_for(&self, signer: &SignerName) -> bool {
        self.rules_for(signer).any(|rule| match rule.kind {
            RuleKind::Always => false,
            RuleKind::AutosignFile { .. } => true,
        })
    }
}

/// One step of a policy.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The name that explanations show.
    pub name: String,
    /// The signers it applies to.
    pub signers: Vec<SignerName>,
    /// What it looks at. Every rule so far approves on a match.
    pub kind: RuleKind,
}

/// The kinds of rules.
#[derive(Clone, Debug)]
pub enum RuleKind {
    /// Matches every request: naive autosigning.
    Always,
    /// Puppet's `autosign` setting with a path: whatever is there when a request comes in. Nothing: nobody. A file that
    /// the server may execute: a policy executable. Any other file: an allowlist.
    AutosignFile {
        /// Where to look.
        path: PathBuf,
        /// Whether a domain glob stands for the domain itself.
        apex: Apex,
    },
}

impl RuleKind {
    /// The word for this kind in policy files and explanations.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::AutosignFile { .. } => "autosign",
        }
    }
}
