//! What evidence says, as plain facts: inventory records, build windows, what the ledger knows, what a decider answered.
//!
//! All of it can be written down with a decision and read again when the decision is replayed.

use std::collections::BTreeMap;
use std::fmt;

use countersign_pki::UnixTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An inventory record: a host that is expected to enrol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "MachineEvidence")]
pub struct Machine {
    /// Its name, in lower case.
    pub name: String,
    /// The addresses it may ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// The number on its case.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial: String,
    /// The UUID of its firmware.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uuid: String,
    /// What its cloud calls it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance_id: String,
    /// Who runs it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Before this it is not expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<UnixTime>,
    /// From this on it is no longer expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<UnixTime>,
    /// Whether it may enrol only once, whatever the rule says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub single_use: bool,
    /// When the record was made.
    pub created: UnixTime,
    /// Its first enrolment by this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolled: Option<UnixTime>,
}

impl Machine {
    /// A record that says nothing but the name.
    pub fn named(name: impl Into<String>, created: UnixTime) -> Self {
        Self {
            name: name.into(),
            addresses: Vec::new(),
            serial: String::new(),
            uuid: String::new(),
            instance_id: String::new(),
            provider: String::new(),
            role: String::new(),
            not_before: None,
            not_after: None,
            single_use: false,
            created,
            enrolled: None,
        }
    }
}

/// One address of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineAddress {
    /// What kind of address it is.
    #[serde(rename = "type")]
    pub kind: AddressKind,
    /// The name or the number.
    pub address: String,
}

/// The kinds of addresses, with the words that inventories of nodes have for them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum AddressKind {
    /// The host's own name.
    Hostname,
    /// A name that resolves inside.
    InternalDNS,
    /// A name that resolves outside.
    ExternalDNS,
    /// A number of the inner network.
    InternalIP,
    /// A number that is reachable from outside.
    ExternalIP,
}

impl AddressKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Hostname,
        Self::InternalDNS,
        Self::ExternalDNS,
        Self::InternalIP,
        Self::ExternalIP,
    ];

    /// The word in files and answers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hostname => "Hostname",
            Self::InternalDNS => "InternalDNS",
            Self::ExternalDNS => "ExternalDNS",
            Self::InternalIP => "InternalIP",
            Self::ExternalIP => "ExternalIP",
        }
    }

    /// Whether it is a number, not a name.
    pub fn is_ip(self) -> bool {
        matches!(self, Self::InternalIP | Self::ExternalIP)
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A pod that a certificate is for, as the cluster knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// The service account that it runs as.
    pub service_account: String,
    /// That account's identity.
    pub service_account_uid: String,
    /// The node that it runs on.
    pub node: String,
    /// Its labels, which its author chose.
    pub labels: BTreeMap<String, String>,
    /// What its author wishes of the signer; nobody has verified any of it.
    pub annotations: BTreeMap<String, String>,
}

/// A build window: a time in which one name may enrol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WindowEvidence")]
pub struct BuildWindow {
    /// The name, exactly, in lower case.
    pub certname: String,
    /// From then on.
    pub opens_at: UnixTime,
    /// Until then.
    pub closes_at: UnixTime,
    /// How many certificates it is good for.
    pub max_issuances: u32,
    /// How many it has given.
    pub issuances: u32,
    /// Whether a token must come with the request. Without, the name alone is trusted.
    pub require_token: bool,
}

/// What the ledger knows of the name that a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LedgerEvidence")]
pub struct LedgerFacts {
    /// Its newest certificate that was neither revoked nor retired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<LedgerCertificate>,
    /// Its newest revoked certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<LedgerRevocation>,
}

/// A certificate of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerCertificate {
    /// Its serial in hexadecimal digits.
    pub serial: String,
    /// Its end.
    pub not_after: UnixTime,
    /// Whether it has the key that now asks.
    pub same_key: bool,
}

/// A revocation of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerRevocation {
    /// The certificate's serial in hexadecimal digits.
    pub serial: String,
    /// When.
    pub time: UnixTime,
    /// Why, as RFC 5280 words it: `keyCompromise` and so on.
    pub reason: String,
}

/// How a policy executable ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "said", content = "why", rename_all = "camelCase")]
pub enum Execution {
    /// With status 0.
    Approved,
    /// With another status, in words: a decline is final for the request.
    Declined(#[schemars(description = "How it ended, in words.")] String),
    /// It could not say: it was not there, not trusted, not started, killed, or not done in time, in words. That is a
    /// decline, too, but no word against a request.
    Failed(#[schemars(description = "What happened, in words.")] String),
    /// It was not run, in words: worth another try.
    Unavailable(#[schemars(description = "Why it was not run, in words.")] String),
}

/// What a webhook answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "decision", rename_all = "camelCase")]
pub enum WebhookAnswer {
    /// Sign it.
    Allow {
        /// In the decider's words.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// At most this lifetime in seconds.
        #[serde(
            default,
            rename = "ttlSeconds",
            skip_serializing_if = "Option::is_none"
        )]
        ttl_seconds: Option<u64>,
    },
    /// Do not.
    Deny {
        /// In the decider's words.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// It does not decide this one.
    Pend {
        /// In the decider's words.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// No answer that counts: late, wrong or none, in our words.
    Unavailable {
        /// What happened.
        reason: String,
    },
}

/// What is in an allowlist's file now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListFile {
    /// Its lines.
    List(std::sync::Arc<crate::Allowlist>),
    /// It cannot be read or must not be trusted, in words.
    Unusable(String),
}
