//! `/policy`: which rules are in force, and whether a change of them was refused.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::{Path, State};
use axum::response::Response;
use countersign_pki::UnixTime;
use countersign_policy::Policy;
use http::StatusCode;
use serde::Serialize;

use super::faults::Refusal;
use super::{EnrolDoor, json};

/// What is known of the policy in force. Cheap to clone: every clone is the same state.
#[derive(Clone, Debug, Default)]
pub struct PolicyState {
    current: Arc<ArcSwap<PolicyStatus>>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct PolicyStatus {
    generation: u64,
    loaded: Option<UnixTime>,
    files: Vec<String>,
    rules: Vec<RuleItem>,
    /// Why the files as they are now are not in force.
    refused: Option<RefusedPolicy>,
}

#[derive(Clone, Debug, Serialize)]
struct RuleItem {
    /// The document it stands in; absent where a setting stands for it.
    policy: Option<String>,
    name: String,
    signers: Vec<String>,
    rule: String,
}

#[derive(Clone, Debug, Serialize)]
struct RefusedPolicy {
    time: UnixTime,
    faults: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PolicyVersionItem {
    generation: u64,
    loaded: UnixTime,
    sha256: String,
    text: String,
}

impl PolicyState {
    /// Another policy came in force.
    pub fn set(&self, policy: &Policy, loaded: UnixTime, files: Vec<String>) {
        let rules = policy.rules.iter().map(|rule| RuleItem {
            policy: Some(rule.policy.to_string()).filter(|policy| !policy.is_empty()),
            name: rule.name.clone(),
            signers: rule.signers.iter().map(ToString::to_string).collect(),
            rule: rule.to_yaml(),
        });
        self.current.store(Arc::new(PolicyStatus {
            generation: policy.generation,
            loaded: Some(loaded),
            files,
            rules: rules.collect(),
            refused: None,
        }));
    }

    /// The files have changed, and cannot be used; what was in force stays.
    pub fn refused(&self, time: UnixTime, faults: Vec<String>) {
        self.current.rcu(|status| PolicyStatus {
            refused: Some(RefusedPolicy {
                time,
                faults: faults.clone(),
            }),
            ..PolicyStatus::clone(status)
        });
    }

    /// The files are again what is in force.
    pub fn settled(&self) {
        self.current.rcu(|status| PolicyStatus {
            refused: None,
            ..PolicyStatus::clone(status)
        });
    }
}

pub(super) async fn show(State(door): State<EnrolDoor>) -> Response {
    let status = door.policy().current.load_full();
    json(StatusCode::OK, &*status)
}

/// The text of the policy that decided something once.
pub(super) async fn version(
    State(door): State<EnrolDoor>,
    Path(generation): Path<String>,
) -> Result<Response, Refusal> {
    let missing = || Refusal::NotFound {
        what: "there is no policy of this generation".to_owned(),
    };
    let number: u64 = generation.parse().map_err(|_| missing())?;
    let found = door.authority().policy_of(number).await?;
    let version = found.ok_or_else(missing)?;
    let item = PolicyVersionItem {
        generation: version.generation,
        loaded: version.loaded,
        sha256: version.digest.to_hex(),
        text: version.text,
    };
    Ok(json(StatusCode::OK, &item))
}
