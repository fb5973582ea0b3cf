//! `cluster.resources`: what the project's own resources may do here.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Whether ApprovalPolicies, Signers and EnrollmentTokens count, and what they may reach beyond the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ResourcesSection {
    pub(crate) enabled: bool,
    /// The deciders that an ApprovalPolicy may name.
    pub(crate) webhooks: Vec<WebhookGrant>,
    /// The issuers that a Signer may name, beside one of its own.
    pub(crate) issuers: Vec<String>,
    /// Where EnrollmentTokens are looked for.
    pub(crate) token_namespaces: Vec<String>,
}

impl Default for ResourcesSection {
    fn default() -> Self {
        Self {
            enabled: true,
            webhooks: Vec::new(),
            issuers: Vec::new(),
            token_namespaces: Vec::new(),
        }
    }
}

/// A decider that an ApprovalPolicy may name, with the files that it may name beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookGrant {
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) include_csr: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_bundle: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_cert_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_key_file: Option<PathBuf>,
}
