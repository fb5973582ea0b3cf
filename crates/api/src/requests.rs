//! Requests, and what people say to them.

use countersign_pki::UnixTime;
use countersign_policy::{Explanation, Requester};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Issued, number};

/// One request.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Request {
    /// Identity of the request: a UUID, never used again.
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    /// The door it came through.
    #[schemars(example = &"puppet", example = &"kubernetes")]
    pub door: String,
    /// Its name at that door: the certname of a Puppet agent, the object name of a Kubernetes request.
    pub name: String,
    /// Where it stands.
    pub state: RequestState,
    /// Whether it occupies its name at the door. A Puppet request whose certificate was issued does not.
    pub live: bool,
    /// The signer that was asked.
    #[schemars(example = "countersign.dev/puppet-agent")]
    pub signer: String,
    /// Who sent it.
    pub requester: Requester,
    /// When it arrived.
    pub created: UnixTime,
    /// The requested subject, as RFC 4514 text.
    #[schemars(example = "CN=web01.example.com")]
    pub subject: String,
    /// Requested DNS names.
    pub dns_names: Vec<String>,
    /// Requested addresses.
    pub ip_addresses: Vec<String>,
    /// Requested mail addresses.
    pub emails: Vec<String>,
    /// Requested URIs.
    pub uris: Vec<String>,
    /// Usages asked for beside the message, by the names that Kubernetes has for them.
    pub usages: Vec<String>,
    /// Lifetime asked for beside the message.
    pub expiration_seconds: Option<u64>,
    /// Family of the public key.
    #[schemars(extend("enum" = ["rsa", "ec", "ed25519", "unknown"]))]
    pub key_type: String,
    /// Size of the public key in bits; 0 if it is unknown.
    pub key_size: u32,
    /// SHA-256 as upper-case hexadecimal pairs with colons, over the DER of the message.
    pub csr_fingerprint: String,
    /// SHA-256 as upper-case hexadecimal pairs with colons, over the public key (SubjectPublicKeyInfo).
    pub key_fingerprint: String,
    /// Why the signer could not sign it. Undecided requests are judged by the signer as it is now.
    pub unsignable: Option<String>,
    /// Why the message on record cannot be read. Nothing of its content is told then; it can still be deleted.
    pub unreadable: Option<String>,
    /// The enrolment token that came with it, by its public part.
    pub token_id: Option<String>,
    /// Why it was decided as it was, or waits.
    pub explanation: Explanation,
    /// What it led to.
    pub certificate: Option<Issued>,
    /// The whole message as PEM. Only where a single request is asked for: its attributes may hold secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csr: Option<String>,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestState {
    /// Undecided.
    Pending,
    /// Approved; its certificate is being made, or its signer is not ours.
    Approved,
    /// Approved, and its certificate is in the ledger.
    Issued,
    /// Denied.
    Denied,
    /// Approved, but its signer cannot sign such a request; or a renewal that was not completed.
    Failed,
    /// Evidence could not be had: its sender was told to come back, and it does not wait.
    Undecided,
}

words!(RequestState {
    Pending => "pending",
    Approved => "approved",
    Issued => "issued",
    Denied => "denied",
    Failed => "failed",
    Undecided => "undecided",
});

/// What may come with an approval.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Approval {
    /// Why; at most 1024 characters.
    #[schemars(length(max = MAX_REASON))]
    pub reason: String,
    /// How long the certificate lives in place of the signer's own lifetime, as far as the signer permits.
    #[serde(deserialize_with = "number::optional")]
    #[schemars(range(min = 1, max = number::MAX))]
    pub lifetime_seconds: Option<u64>,
}

/// What may come with a denial.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Denial {
    /// Why; at most 1024 characters.
    #[schemars(length(max = MAX_REASON))]
    pub reason: String,
}

/// What is asked for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdministratorRequest {
    /// The certname; it must be free.
    #[schemars(example = "second-admin.example.com")]
    pub name: String,
    /// The signer of administrators' certificates.
    #[schemars(extend("const" = "countersign.dev/puppet-admin"))]
    pub signer: String,
    /// PKCS#10 in PEM, whose common name is the name.
    #[schemars(example = EXAMPLE_CSR)]
    pub csr: String,
    /// Why, for the record; at most 1024 characters.
    #[serde(default)]
    #[schemars(length(max = MAX_REASON))]
    pub reason: String,
    /// How long the certificate shall live.
    #[serde(default, deserialize_with = "number::optional")]
    #[schemars(range(min = 1, max = number::MAX))]
    pub lifetime_seconds: Option<u64>,
}

/// What is asked for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KubernetesUserRequest {
    /// PKCS#10 in PEM: its common name is the user's name, each of its organizations a group of the user.
    pub csr: String,
    /// Why, for the record; at most 1024 characters.
    #[serde(default)]
    #[schemars(length(max = MAX_REASON))]
    pub reason: String,
    /// How long the certificate shall live; the signer's maximum is a year.
    #[serde(default, deserialize_with = "number::optional")]
    #[schemars(range(min = 1, max = number::MAX))]
    pub lifetime_seconds: Option<u64>,
}

/// A user of the Kubernetes door.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct KubernetesUser {
    /// The user's name.
    pub name: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// The certificate in PEM.
    pub certificate: String,
    /// The CA certificates that verify the Kubernetes door, in PEM.
    pub ca: String,
    /// The issuer of the certificate.
    pub issuer: String,
    /// Its serial.
    pub serial: String,
}

/// How long a reason may be, in characters; it stands in explanations, conditions and the audit log.
pub const MAX_REASON: usize = 1024;

/// For the document. Nobody has its key.
const EXAMPLE_CSR: &str = "\
-----BEGIN CERTIFICATE REQUEST-----\n\
MIHeMIGFAgEAMCMxITAfBgNVBAMMGHNlY29uZC1hZG1pbi5leGFtcGxlLmNvbTBZ\n\
MBMGByqGSM49AgEGCCqGSM49AwEHA0IABHKw0dfHR4ey+PA33mMX2U+O86/WID0M\n\
V0Bo8Z5vHpQ5EJE2gtCA+/mEcCErsNA8X7EM3J2YJRaqCNhFR4KmQ9WgADAKBggq\n\
hkjOPQQDAgNIADBFAiB9wJJlzTG31tY9RDQk9Pt51uq5Btw1kaKOBjM18hNCaQIh\n\
APZBsFUNMNJZFOb3OZBojFttzug+koHKsblADN1/R02k\n\
-----END CERTIFICATE REQUEST-----\n";
