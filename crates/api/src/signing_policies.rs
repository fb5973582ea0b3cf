//! Signing policies that somebody gives the authority: who may enrol at a certificate authority of a cluster.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The signing policies of one certificate authority, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SigningPolicySet {
    /// The certname that acts for the cluster: it has the role `sign`, and no rule approves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "production-operator")]
    pub operator: Option<String>,
    /// The policies. One that permits a request is enough.
    #[serde(default)]
    pub policies: Vec<NamedSigningPolicy>,
}

/// The signing policies of one certificate authority, as they are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptSigningPolicies {
    /// The certname that acts for the cluster; null: nobody does.
    pub operator: Option<String>,
    /// The policies, with every value that requests must have as a hash.
    pub policies: Vec<NamedSigningPolicy>,
}

/// One signing policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedSigningPolicy {
    /// Its name, which explanations show.
    pub name: String,
    /// The `spec` of a resource SigningPolicy. Instead of `value` and `valueFrom` an attribute may have `valueHash`: a `salt`
    /// (Base64) and the `sha256` (hexadecimal) of the salt with the value behind it. Plain values are kept as that.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub spec: Value,
}

/// The signing policies of all certificate authorities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SigningPolicies {
    /// By namespace and name of the authority, with a slash between them.
    pub authorities: BTreeMap<String, KeptSigningPolicies>,
}

/// The most bytes that the signing policies of one authority may have.
pub const MAX_SIGNING_POLICIES_BODY: usize = 4 * 1024 * 1024;
