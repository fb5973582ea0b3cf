//! `signers`: what a site's own signers certify.

use serde::{Deserialize, Serialize};

/// Which subjects a signer certifies. What is left out is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SubjectSection {
    /// Patterns; the common name must match one.
    pub(crate) common_names: Vec<String>,
    /// Patterns; each organization must match one.
    pub(crate) organizations: Vec<String>,
    /// Organizations that must be there.
    pub(crate) required_organizations: Vec<String>,
}

/// Which names of a permitted kind a signer certifies. A kind that is left out is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NamePatternsSection {
    pub(crate) dns: Vec<String>,
    /// Networks.
    pub(crate) ip: Vec<String>,
    pub(crate) email: Vec<String>,
    pub(crate) uri: Vec<String>,
}

/// Which requested extensions a signer copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExtensionsSection {
    /// Object identifiers.
    pub(crate) copied: Vec<String>,
    pub(crate) others: OthersKind,
}

/// What becomes of extensions that are not copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OthersKind {
    #[default]
    Dropped,
    Refused,
}

/// For a signer that signs for pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PodsSection {
    /// Certificates have a URI of this domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trust_domain: Option<String>,
    /// Empty: all of them.
    pub(crate) key_types: Vec<String>,
    /// Annotations that a pod may send.
    pub(crate) annotations: Vec<String>,
}
