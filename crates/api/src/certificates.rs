//! Certificates and their revocation.

use countersign_pki::{RevocationReason, UnixTime};
use countersign_policy::Explanation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One certificate of the ledger.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// What is known of it in short.
    #[serde(flatten)]
    pub issued: Issued,
    /// The name it was issued for.
    pub name: String,
    /// The signer that issued it.
    pub signer: String,
    /// Identity of the request that led to it.
    #[schemars(extend("format" = "uuid"))]
    pub request: String,
    /// SHA-256 as upper-case hexadecimal pairs with colons, over the DER of the certificate; null if the certificate itself
    /// is not known, only its entry in the inventory of the authority that it was taken over from.
    pub fingerprint: Option<String>,
    /// SHA-256 as upper-case hexadecimal pairs with colons, over the public key (SubjectPublicKeyInfo).
    pub key_fingerprint: String,
    /// The decision that led to it. Only where a single certificate is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
    /// The certificate as PEM. Like the explanation, only where a single certificate is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// The certificate of a request, in short.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Issued {
    /// The issuer.
    #[schemars(example = &"puppet")]
    pub issuer: String,
    /// Serial number in upper-case hexadecimal digits.
    pub serial: String,
    /// Start of validity.
    pub not_before: UnixTime,
    /// End of validity.
    pub not_after: UnixTime,
    /// Its revocation, if it was revoked.
    pub revoked: Option<Revoked>,
}

/// A revocation.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// When.
    pub at: UnixTime,
    /// A reason of RFC 5280 5.3.1.
    pub reason: String,
}

/// What may come with a revocation.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Revocation {
    /// The reason by its name in RFC 5280 5.3.1; unspecified if absent.
    #[schemars(extend("enum" = reasons()))]
    pub reason: Option<String>,
}

/// What a body may say, which may also be nothing.
fn reasons() -> Vec<Option<&'static str>> {
    let names = REVOCATION_REASONS.map(RevocationReason::name).map(Some);
    names.into_iter().chain([None]).collect()
}

/// Reasons that a complete list can carry and nobody takes back.
pub const REVOCATION_REASONS: [RevocationReason; 8] = [
    RevocationReason::Unspecified,
    RevocationReason::KeyCompromise,
    RevocationReason::CaCompromise,
    RevocationReason::AffiliationChanged,
    RevocationReason::Superseded,
    RevocationReason::CessationOfOperation,
    RevocationReason::PrivilegeWithdrawn,
    RevocationReason::AaCompromise,
];
