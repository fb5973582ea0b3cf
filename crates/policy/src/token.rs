//! Enrolment tokens as rules see them: what came with a request, what is on record of it, and whether that suits the
//! request. The secret itself never comes here.

mod compare;
mod network;

use std::collections::BTreeMap;
use std::fmt;

use countersign_pki::UnixTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use compare::compare;
pub use compare::{MachineSubject, carries_token};
pub use network::Network;

use crate::facts::LedgerCertificate;

/// What a request carries where a token would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "found", rename_all = "camelCase")]
pub enum TokenFacts {
    /// Nothing.
    Missing,
    /// Something that is no token, in words.
    Malformed {
        /// What is wrong with it.
        why: String,
    },
    /// More than one thing that may be meant, in words.
    Ambiguous {
        /// What there is.
        why: String,
    },
    /// A token that is not on record, or not with this secret.
    Unknown {
        /// What it calls itself.
        id: String,
    },
    /// A token whose secret is right.
    Known(Box<Token>),
}

impl TokenFacts {
    /// What the token calls itself, if it is one.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Missing | Self::Malformed { .. } | Self::Ambiguous { .. } => None,
            Self::Unknown { id } => Some(id),
            Self::Known(token) => Some(&token.id),
        }
    }

    /// The token, if its secret is right.
    pub fn known(&self) -> Option<&Token> {
        match self {
            Self::Known(token) => Some(token),
            Self::Missing
            | Self::Malformed { .. }
            | Self::Ambiguous { .. }
            | Self::Unknown { .. } => None,
        }
    }
}

/// A token on record, as far as a decision looks at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Its public part.
    pub id: String,
    /// Whom it is for.
    pub binding: TokenBinding,
    /// Before this it is not good, but for a minute of skew.
    pub not_before: UnixTime,
    /// From this on it is not good.
    pub expires_at: UnixTime,
    /// How many certificates it is good for.
    pub max_uses: u32,
    /// How many it has been used for.
    pub uses: u32,
    /// Whether it was taken back, superseded, or is from before a restore.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
    /// Whether it was misused too often.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
    /// What the certificate may say.
    #[serde(default)]
    pub terms: TokenTerms,
    /// Its use by this very name and key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<TokenUse>,
    /// Its first use by another name or key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<TokenUse>,
    /// The newest certificate that the name has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<LedgerCertificate>,
}

impl Token {
    /// The certificate of the name that a new one would replace, if that is still good.
    pub(crate) fn replaced(&self, now: UnixTime) -> Option<&LedgerCertificate> {
        self.existing.as_ref().filter(|found| found.not_after > now)
    }
}

/// What a token permits beside the name. It limits the whole certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenTerms {
    /// Alternative names beside the name itself, as `DNS:x`, `IP:y`, `email:z` or `URI:u`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_sans: Vec<String>,
    /// The extensions that may be asked for and their values, by dotted identifier; absent: those that the signer permits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_extensions: Option<BTreeMap<String, Vec<String>>>,
    /// SHA-256 of the one public key that it is for, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spki_sha256: Option<String>,
    /// Networks that the request must come from; empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_cidrs: Vec<Network>,
    /// Whether the certificate that the name has may be replaced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_replace: bool,
    /// The one signer that it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub profile: String,
}

/// One use of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenUse {
    /// The name.
    pub certname: String,
    /// SHA-256 of its public key, in hexadecimal.
    pub spki_sha256: String,
    /// How far it has come.
    pub state: TokenUseState,
    /// The certificate's serial in hexadecimal digits; none if somebody else signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// When.
    pub at: UnixTime,
    /// Until then the same key may ask for the same outcome again.
    pub retry_until: UnixTime,
}

/// How far a use of a token has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenUseState {
    /// Its certificate is about to be signed.
    Reserved,
    /// Its certificate is on record.
    Issued,
}

impl TokenUseState {
    /// The word in records and answers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Issued => "issued",
        }
    }
}

/// Whom a token is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "value", rename_all = "lowercase")]
pub enum TokenBinding {
    /// One name.
    Exact(#[schemars(description = "The name, in lower case.")] String),
    /// All names below a domain, with one or more labels more.
    Glob(#[schemars(description = "The domain behind `*.`, with that.")] String),
}

impl TokenBinding {
    /// The word for its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Exact(_) => "exact",
            Self::Glob(_) => "glob",
        }
    }

    /// The name or pattern.
    pub fn value(&self) -> &str {
        match self {
            Self::Exact(value) | Self::Glob(value) => value,
        }
    }

    /// Whether it is for this name, compared byte for byte. A pattern that says too little is for nobody: what is on record
    /// may be older than the checks at minting.
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Self::Exact(value) => !name.is_empty() && value == name,
            Self::Glob(value) => value
                .strip_prefix("*.")
                .filter(|domain| domain.contains('.') && domain.split('.').all(is_label))
                .and_then(|domain| name.strip_suffix(domain)?.strip_suffix('.'))
                .is_some_and(|more| more.split('.').all(is_label)),
        }
    }
}

/// A label of a certname. Neither a wildcard nor what signers put before names, with colons, is one.
fn is_label(label: &str) -> bool {
    let is_legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    !label.is_empty() && label.bytes().all(is_legal)
}

impl fmt::Display for TokenBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.value())
    }
}

/// What the configuration says of requests whose token is wrong, or that have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenHandling {
    /// What becomes of a request whose token is wrong.
    pub on_reject: OnToken,
    /// What becomes of one without, if nothing else approves it. Waiting is the default.
    pub on_missing: OnMissing,
}

/// What becomes of a request whose token is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnToken {
    /// It is denied.
    #[default]
    Deny,
    /// It waits for a person. No rule further down may approve it: who shows a token that is wrong is not taken for
    /// somebody who has none.
    Pend,
}

/// What becomes of a request without a token, if nothing else approves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// It waits for a person.
    #[default]
    Pend,
    /// It is denied.
    Deny,
}
