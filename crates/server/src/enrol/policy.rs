//! `/policy`: which rules are in force, and whether a change of them was refused.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::State;
use axum::response::Response;
use countersign_pki::UnixTime;
use countersign_policy::Policy;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::faults::{Refusal, Refused};
use super::operation::{Operation, Tag};
use super::parameters::Path;
use super::{EnrolDoor, json};

/// What is known of the policy in force. Cheap to clone: every clone is the same state.
#[derive(Clone, Debug, Default)]
pub struct PolicyState {
    current: Arc<ArcSwap<PolicyStatus>>,
}

/// The policy in force.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct PolicyStatus {
    generation: u64,
    loaded: Option<UnixTime>,
    files: Vec<String>,
    rules: Vec<RuleItem>,
    /// Names that no rule approves; one with a dot in front stands for all below it.
    reserved_names: Vec<String>,
    /// Why the files as they are now are not in force.
    refused: Option<RefusedPolicy>,
}

/// One rule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RuleItem {
    /// The document it stands in; absent where a setting stands for it.
    policy: Option<String>,
    name: String,
    signers: Vec<String>,
    rule: String,
}

/// Why the files are not in force.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RefusedPolicy {
    time: UnixTime,
    faults: Vec<String>,
}

/// A version in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Numbered {
    /// The generation.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_u64))]
    generation: u64,
}

/// A policy as it was put in force.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PolicyVersionItem {
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
            reserved_names: policy.reserved_names.iter().cloned().collect(),
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

pub(super) const SHOW: Operation =
    Operation::new("showPolicy", Tag::Policy, "The policy in force")
        .about("Its rules in the order in which they are asked, and whether a later change of its files was refused.")
        .answers::<PolicyStatus>(200, "The policy.");

pub(super) async fn show(State(door): State<EnrolDoor>) -> Response {
    let status = door.policy().current.load_full();
    json(StatusCode::OK, &*status)
}

pub(super) const VERSION: Operation = Operation::new(
    "showPolicyVersion",
    Tag::Policy,
    "The policy of a generation",
)
.about("The text of a policy that is or was in force.")
.path::<Numbered>()
.answers::<PolicyVersionItem>(200, "The policy.")
.refuses(&[Refused::NotFound]);

/// The text of the policy that decided something once.
pub(super) async fn version(
    State(door): State<EnrolDoor>,
    Path(Numbered { generation }): Path<Numbered>,
) -> Result<Response, Refusal> {
    let missing = || Refusal::NotFound {
        what: "there is no policy of this generation".to_owned(),
    };
    let found = door.authority().policy_of(generation).await?;
    let version = found.ok_or_else(missing)?;
    let item = PolicyVersionItem {
        generation: version.generation,
        loaded: version.loaded,
        sha256: version.digest.to_hex(),
        text: version.text,
    };
    Ok(json(StatusCode::OK, &item))
}
