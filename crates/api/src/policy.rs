//! The policy in force, and what it decided.

use countersign_pki::UnixTime;
use countersign_policy::{Explanation, RecordedEvidence, Requester, Wishes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::RequestState;

/// The policy in force.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Policy {
    /// Its number, which stands in every explanation.
    pub generation: u64,
    /// When it came in force.
    pub loaded: Option<UnixTime>,
    /// The files that it was read from.
    pub files: Vec<String>,
    /// Its rules, in the order in which they are asked.
    pub rules: Vec<PolicyRule>,
    /// Names that no rule approves; one with a dot in front stands for all below it.
    pub reserved_names: Vec<String>,
    /// Why the files as they are now are not in force; null if they are.
    pub refused: Option<RefusedPolicy>,
    /// What may not be meant so, such as a rule for a signer that nobody here serves.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// One rule.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRule {
    /// The document it stands in; null where a setting stands for it.
    pub policy: Option<String>,
    /// Its name.
    pub name: String,
    /// The signers whose requests it is asked about.
    pub signers: Vec<String>,
    /// The rule as it would stand in a document (YAML).
    pub rule: String,
}

/// Why the files are not in force.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RefusedPolicy {
    /// When they were looked at.
    pub time: UnixTime,
    /// What is wrong with them, each with its place.
    pub faults: Vec<String>,
}

/// A policy as it was put in force.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PolicyVersion {
    /// Its number, which stands in every explanation.
    pub generation: u64,
    /// When it first came in force.
    pub loaded: UnixTime,
    /// SHA-256 of the text in lower-case hexadecimal digits.
    pub sha256: String,
    /// Its documents, and what the settings add to them.
    pub text: String,
}

/// One decision: the request as the policy saw it, and what came out.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// Identity of the request.
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    /// The door it came through.
    #[schemars(example = &"puppet", example = &"kubernetes")]
    pub door: String,
    /// Its name at that door.
    pub name: String,
    /// Where it stands.
    pub state: RequestState,
    /// The signer that was asked.
    #[schemars(example = "countersign.dev/puppet-agent")]
    pub signer: String,
    /// Who sent it.
    pub requester: Requester,
    /// What was asked for beside the message.
    pub wishes: Wishes,
    /// When it arrived.
    pub created: UnixTime,
    /// Why it was decided as it was, or waits.
    pub explanation: Explanation,
    /// What the rules were told.
    pub evidence: RecordedEvidence,
    /// The message as PEM, without attributes; its signature says nothing. Empty if it cannot be read.
    pub csr: String,
}

/// One request that was turned away.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Rejection {
    /// Identity of the request.
    #[schemars(extend("format" = "uuid"))]
    pub request_id: String,
    /// When it was turned away.
    pub time: UnixTime,
    /// The door it came through.
    #[schemars(example = &"puppet", example = &"kubernetes")]
    pub door: String,
    /// Its name at that door.
    pub certname: String,
    /// `denied`, `undecided` where evidence could not be had, or `pending` where it waits because of its token, or because
    /// it has none.
    pub state: RequestState,
    /// Why, in one word; `person` where a person turned it away.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// The rule that turned it away; null where a person did.
    pub rule: Option<String>,
    /// The policy document of that rule; null where a setting stands for the rule.
    pub policy: Option<String>,
    /// The generation of the policy that decided.
    pub generation: u64,
    /// Who sent it.
    pub requester: Requester,
    /// The address from which it was sent.
    pub source: Option<String>,
    /// SHA-256 of the public key (SubjectPublicKeyInfo) in lower-case hexadecimal digits.
    pub spki_sha256: String,
    /// SHA-256 of the DER of the message in lower-case hexadecimal digits.
    pub csr_sha256: String,
    /// The enrolment token that came with it, by its public part; null where none did, or something that is no token.
    pub token_id: Option<String>,
}
