//! Bootstrap tokens.

use std::fmt;

use countersign_pki::UnixTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Secret, number};

/// What a bootstrap token shall be. Everything may be left out.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(example = serde_json::json!({"ttl_seconds": 3600, "description": "rack 7"}))]
pub struct BootstrapTokenOrder {
    /// For how many seconds it is good; without, a day; 0: until it is revoked.
    #[serde(deserialize_with = "number::optional")]
    #[schemars(range(min = 0, max = number::MAX))]
    pub ttl_seconds: Option<u64>,
    /// Groups of whoever shows it, beside `system:bootstrappers` and `system:authenticated`. Each begins with
    /// `system:bootstrappers:`.
    #[schemars(example = &["system:bootstrappers:rack7"])]
    pub groups: Vec<String>,
    /// For people.
    pub description: String,
}

/// A new bootstrap token.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct MintedBootstrapToken {
    /// Its public part.
    pub id: BootstrapId,
    /// The whole token, which is in no other answer.
    pub token: Secret,
    /// From this on it is not good; null: it has no end.
    pub expires_at: Option<UnixTime>,
    /// The CA certificates that verify the Kubernetes door, in PEM; null where there is no such door.
    #[serde(default)]
    pub ca: Option<String>,
}

/// One bootstrap token.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct BootstrapToken {
    /// Its public part.
    pub id: BootstrapId,
    /// Where it stands now.
    pub status: BootstrapStatus,
    /// Who shows it, as the Kubernetes door knows them.
    pub username: String,
    /// Groups beside those that all such users have.
    pub groups: Vec<String>,
    /// From this on it is not good; null: it has no end.
    pub expires_at: Option<UnixTime>,
    /// For people.
    pub description: Option<String>,
    /// Who minted it.
    pub created_by: String,
    /// When it was minted.
    pub created_at: UnixTime,
    /// When it was taken back.
    pub revoked_at: Option<UnixTime>,
}

/// The public part of a bootstrap token.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct BootstrapId(#[schemars(regex(pattern = r"^[a-z0-9]{6}$"))] pub String);

impl fmt::Display for BootstrapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a bootstrap token stands, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BootstrapStatus {
    /// It is good.
    Active,
    /// Its time is over.
    Expired,
    /// It was taken back, or is from before a restore.
    Revoked,
}

words!(BootstrapStatus {
    Active => "active",
    Expired => "expired",
    Revoked => "revoked",
});
