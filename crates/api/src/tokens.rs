//! Enrolment tokens.

use std::collections::BTreeMap;
use std::fmt;

use countersign_pki::UnixTime;
use countersign_policy::{Network, TokenUseState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Secret, number};

/// What a token shall be good for. Whatever is left out is as the configuration has it, or no limit.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(example = serde_json::json!({"certname": "web01.example.com", "ttl_seconds": 3600}))]
pub struct TokenOrder {
    /// The one name that it is for. Either this or `glob`.
    #[schemars(example = "web01.example.com")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certname: Option<String>,
    /// The names that it is for: `*.` and a domain of at least two labels stands for all names below, however many labels
    /// they have in front. It needs `max_uses`.
    #[schemars(example = "*.dmz.example.com")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// For how many seconds it is good; without, as configured (`tokens.default_ttl`).
    #[serde(
        deserialize_with = "number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 1, max = number::MAX))]
    pub ttl_seconds: Option<u64>,
    /// For how many certificates it is good; without, one.
    #[serde(
        deserialize_with = "number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 1, max = 1000))]
    pub max_uses: Option<u64>,
    /// Before this it is not good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<UnixTime>,
    /// Alternative names beside the name itself, as `DNS:x` or `IP:y`.
    #[schemars(example = &["DNS:www.example.com"])]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_sans: Vec<String>,
    /// The extensions that may be asked for, by short name or dotted identifier, each with the values that it may have;
    /// without, those that the signer permits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_extensions: Option<BTreeMap<String, Vec<String>>>,
    /// The one public key (SubjectPublicKeyInfo) that it is for: its SHA-256 in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spki_sha256: Option<String>,
    /// The networks that the request must come from, as `192.0.2.0/24`; without, any.
    #[schemars(example = &["192.0.2.0/24"])]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_cidrs: Vec<String>,
    /// Whether the certificate that the name has may be replaced; it is revoked then. That needs the role `sign` for the
    /// name beside `mint`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_replace: bool,
    /// Whether earlier tokens of the name stay good.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_existing: bool,
    /// The one signer that it is for.
    #[schemars(example = "countersign.dev/puppet-agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What it is called elsewhere, for deciders.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_ref: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A new token.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct MintedToken {
    /// Its public part.
    pub id: TokenId,
    /// The whole token, which is in no other answer.
    pub token: Secret,
    /// From this on it is not good.
    pub expires_at: UnixTime,
}

/// One token.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct EnrolmentToken {
    /// Its public part.
    pub id: TokenId,
    /// The one name that it is for; null where it is for many.
    pub certname: Option<String>,
    /// The pattern of the names that it is for; null where it is for one.
    pub glob: Option<String>,
    /// Where it stands now.
    pub status: TokenStatus,
    /// How many certificates it has been used for.
    pub uses: u32,
    /// How many it is good for.
    pub max_uses: u32,
    /// Before this it is not good.
    pub not_before: UnixTime,
    /// From this on it is not good.
    pub expires_at: UnixTime,
    /// Alternative names that are permitted beside the name itself.
    pub allowed_sans: Vec<String>,
    /// The extensions that are permitted and their values, by dotted identifier; null where the signer says.
    pub allowed_extensions: Option<BTreeMap<String, Vec<String>>>,
    /// The one public key that it is for: its SHA-256 in lower-case hexadecimal digits.
    pub spki_sha256: Option<String>,
    /// The networks that the request must come from; empty: any.
    pub source_cidrs: Vec<Network>,
    /// Whether the certificate that the name has may be replaced.
    pub allow_replace: bool,
    /// The one signer that it is for.
    pub profile: Option<String>,
    /// Who minted it.
    pub created_by: String,
    /// When it was minted.
    pub created_at: UnixTime,
    /// When it was taken back.
    pub revoked_at: Option<UnixTime>,
    /// The token that took its place, if it was taken back for that.
    pub superseded_by: Option<TokenId>,
    /// When it was locked, because it was misused too often.
    pub locked_at: Option<UnixTime>,
    /// How often it was misused: its secret was right, and the name, key, source or content of the request was not.
    pub failed_uses: u32,
    /// What it is called elsewhere.
    pub external_ref: Option<String>,
    /// For people.
    pub note: Option<String>,
}

/// One token with its uses.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct EnrolmentTokenDetail {
    /// The token.
    #[serde(flatten)]
    pub token: EnrolmentToken,
    /// Its uses, oldest first.
    pub use_rows: Vec<TokenUseRow>,
}

/// One use of a token, by one name and key.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TokenUseRow {
    /// The name.
    pub certname: String,
    /// SHA-256 of its public key in lower-case hexadecimal digits.
    pub spki_sha256: String,
    /// How far it has come.
    pub state: TokenUseState,
    /// The certificate: its serial number in upper-case hexadecimal digits; null before it is signed, or where somebody else
    /// signs.
    pub serial: Option<String>,
    /// Identity of the request that it approved; null where somebody else signs.
    #[schemars(extend("format" = "uuid"))]
    pub request: Option<String>,
    /// When.
    pub at: UnixTime,
    /// Until then the same key may fetch the same certificate by it.
    pub retry_until: UnixTime,
}

/// What would happen.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TokenCheck {
    /// Whether its token would authorise the request, or already did.
    pub would_allow: bool,
    /// Why, in one word.
    pub reason: String,
    /// Why, in words.
    pub detail: String,
    /// The token that the request carries, by its public part; it need not be one that was minted here.
    pub token_id: Option<String>,
}

/// The public part of a token: 80 random bits in base32.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct TokenId(pub String);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a token stands, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenStatus {
    /// It can be used.
    Active,
    /// Its only use is being signed.
    Reserved,
    /// Its only use has its certificate, which the same key may still fetch by it.
    Issued,
    /// It was used for all that it was good for.
    Exhausted,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
    /// It was misused too often.
    Locked,
}

words!(TokenStatus {
    Active => "active",
    Reserved => "reserved",
    Issued => "issued",
    Exhausted => "exhausted",
    Expired => "expired",
    Revoked => "revoked",
    Locked => "locked",
});
