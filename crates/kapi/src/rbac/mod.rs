//! Roles and bindings (`rbac.authorization.k8s.io/v1`) as pure data: who may do what, and who may say so.
//!
//! [`model`] has the four kinds, [`validate`] what may be stored, [`book`] the index of everything stored, [`evaluate`]
//! the answer to "may they?", [`escalation`] the rule that nobody grants what they do not have, and [`defaults`] the
//! roles that exist from the start. Rights only ever add up: what no rule allows is not allowed.

pub mod aggregation;
pub mod book;
pub mod cover;
pub mod defaults;
pub mod escalation;
pub mod evaluate;
mod kinds;
pub mod model;
mod protobuf;
mod request;
pub(crate) mod schema;
pub mod validate;

pub use book::{RbacObject, RoleBook};
pub use evaluate::{Attributes, Decision, PathAction, ResourceAction};
pub use model::{
    AggregationRule, ClusterRole, ClusterRoleBinding, ClusterRoleSelector, PolicyRule, Role,
    RoleBinding, RoleRef, SelectorRequirement, Subject,
};

/// API group of the four kinds.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// Group and version as they stand in `apiVersion`.
pub const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
/// Members may do everything, whatever roles and bindings say.
pub const MASTERS: &str = "system:masters";
