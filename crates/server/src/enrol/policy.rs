//! `/policy`: which rules are in force, and whether a change of them was refused.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::State;
use axum::response::Response;
use countersign_api::{MAX_NUMBER, PolicyRule, PolicyVersion, RefusedPolicy};
use countersign_pki::UnixTime;
use countersign_policy::Policy;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::faults::{Refusal, Refused};
use super::operation::{Operation, Tag};
use super::parameters::Path;
use super::{EnrolDoor, json};

/// What is known of the policy in force. Cheap to clone: every clone is the same state.
#[derive(Clone, Debug, Default)]
pub struct PolicyState {
    current: Arc<ArcSwap<countersign_api::Policy>>,
}

/// A version in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Numbered {
    /// The generation.
    #[schemars(range(min = 0, max = MAX_NUMBER))]
    generation: u64,
}

impl PolicyState {
    /// Another policy came in force.
    pub fn set(
        &self,
        policy: &Policy,
        loaded: UnixTime,
        files: Vec<String>,
        warnings: Vec<String>,
    ) {
        let rules = policy.rules.iter().map(|rule| PolicyRule {
            policy: Some(rule.policy.to_string()).filter(|policy| !policy.is_empty()),
            name: rule.name.clone(),
            signers: rule.signers.iter().map(ToString::to_string).collect(),
            rule: rule.to_yaml(),
        });
        self.current.store(Arc::new(countersign_api::Policy {
            generation: policy.generation,
            loaded: Some(loaded),
            files,
            rules: rules.collect(),
            reserved_names: policy.reserved.names.iter().cloned().collect(),
            refused: None,
            warnings,
        }));
    }

    /// The files have changed, and cannot be used; what was in force stays.
    pub fn refused(&self, time: UnixTime, faults: Vec<String>) {
        self.current.rcu(|status| countersign_api::Policy {
            refused: Some(RefusedPolicy {
                time,
                faults: faults.clone(),
            }),
            ..countersign_api::Policy::clone(status)
        });
    }

    /// The files are again what is in force.
    pub fn settled(&self) {
        self.current.rcu(|status| countersign_api::Policy {
            refused: None,
            ..countersign_api::Policy::clone(status)
        });
    }
}

pub(super) const SHOW: Operation =
    Operation::new("showPolicy", Tag::Policy, "The policy in force")
        .about("Its rules in the order in which they are asked, and whether a later change of its files was refused.")
        .answers::<countersign_api::Policy>(200, "The policy.");

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
.answers::<PolicyVersion>(200, "The policy.")
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
    let item = PolicyVersion {
        generation: version.generation,
        loaded: version.loaded,
        sha256: version.digest.to_hex(),
        text: version.text,
    };
    Ok(json(StatusCode::OK, &item))
}
