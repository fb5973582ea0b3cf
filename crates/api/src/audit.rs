//! The audit log.

use std::net::IpAddr;

use countersign_pki::UnixTime;
use countersign_policy::Effect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One entry. The members of the first group are there always, and null where there is nothing to say.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// When; null only for an entry that cannot be read.
    pub time: Option<UnixTime>,
    /// The request concerned.
    pub request_id: Option<String>,
    /// What was done.
    pub event: Option<String>,
    /// The name that it is about.
    pub certname: Option<String>,
    /// The enrolment token concerned.
    pub token_id: Option<String>,
    /// Why, in one word.
    pub reason: Option<String>,
    /// The public key concerned: its SHA-256 in lower-case hexadecimal digits.
    pub spki_sha256: Option<String>,
    /// The request message concerned: its SHA-256 in lower-case hexadecimal digits.
    pub csr_sha256: Option<String>,
    /// The address from which it was done.
    pub source: Option<IpAddr>,
    /// Who did it.
    pub actor: Option<String>,
    /// The certificate concerned: its serial number in hexadecimal digits.
    pub serial: Option<String>,
    /// The process that wrote it.
    pub replica: Option<String>,

    /// The commit that wrote it.
    pub revision: u64,
    /// Its place among that commit's entries.
    pub seq: u64,
    /// To what it was done.
    pub subject: Option<String>,
    /// What was decided.
    pub verdict: Option<Effect>,
    /// The policy that decided.
    pub generation: Option<u64>,
    /// In words.
    pub detail: Option<String>,
    /// The text that is hashed; only where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<String>,
}

/// What is signed of a seal: it says everything about the log up to its last entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// The number of the seal, counted from 1.
    pub number: u64,
    /// When it was made.
    pub time: UnixTime,
    /// The first entry that it seals.
    pub first: AuditPlace,
    /// The last entry that it seals.
    pub last: AuditPlace,
    /// How many entries that is.
    pub count: u64,
    /// The hash of the entry before its first, in lower-case hexadecimal digits.
    pub previous: String,
    /// The hash of its last entry, in lower-case hexadecimal digits.
    pub hash: String,
    /// The key that signed it: its SHA-256 in lower-case hexadecimal digits.
    pub key_sha256: String,
    /// The signature over it, in base64.
    pub signature: String,
}

/// A seal: its checkpoint, and the hashes of its entries.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Seal {
    /// What is signed.
    #[serde(flatten)]
    pub checkpoint: Checkpoint,
    /// SHA-256 of each entry, 32 octets each, in base64.
    pub hashes: String,
}

/// Where an entry stands: the commit that wrote it, and its place among that commit's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPlace {
    /// The commit.
    pub revision: Revision,
    /// Counted from 0.
    pub seq: u64,
}

/// The place of a change in commit order. Zero is before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Revision(pub u64);

/// Ledger, tokens and audit log held against each other.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Reconciliation {
    /// Certificates in the ledger.
    pub certificates: u64,
    /// Those of them that are revoked.
    pub revoked: u64,
    /// Uses of tokens.
    pub token_uses: u64,
    /// Certificates that were imported by an earlier version, which did not record which they were.
    #[serde(default)]
    pub not_covered: u64,
    /// How many things do not agree.
    pub found: u64,
    /// The first hundred of them, in words.
    pub findings: Vec<String>,
}
