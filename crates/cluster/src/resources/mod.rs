//! The project's own resources: ApprovalPolicies, Signers, EnrollmentTokens.
//!
//! A loop (`attend`) follows the objects of a kind and shows them to a [`Steward`], who makes of them what they say and
//! answers what their status shall be. What is written is the result of pure functions (`table`, `status`). Stewards see
//! plain data; they are outside this crate, where rules, issuers and tokens are.

mod attend;
mod object;
mod secrets;
mod status;
mod table;
mod withheld;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

pub use object::{ResourceKind, ResourceObject};
pub use secrets::{NewSecret, SecretAnswer, Secrets};
pub use status::{Readiness, ResourceStatus};
pub use withheld::Withheld;

pub(crate) use withheld::Hold;

/// Whoever acts on the resources of one kind.
pub trait Steward: Send + Sync {
    /// Looks at all of them and does what they say. It is called when something has changed, and after the time that the
    /// last call asked for; for one namespace by one caller at a time, and only where this replica works.
    fn look<'a>(&'a self, found: &'a Found, secrets: &'a Secrets) -> BoxFuture<'a, Attention>;
}

/// The resources of one kind, in one namespace or in the cluster.
#[derive(Clone, Debug)]
pub struct Found {
    /// Where was looked; empty for kinds without a namespace.
    pub namespace: String,
    /// What was found.
    pub state: FoundState,
}

/// What there is of a kind.
#[derive(Clone, Debug)]
pub enum FoundState {
    /// The cluster does not have the definition.
    NotServed,
    /// It has, but they cannot be read, in words. They never were.
    Unreadable(String),
    /// All of them, by name. Also while they cannot be read any more: then as they were last.
    Objects(Vec<Arc<ResourceObject>>),
}

/// What follows from a look.
#[derive(Debug, Default)]
pub struct Attention {
    /// The status of objects, by their uid. Of those that are not named it stays as it is.
    pub statuses: Vec<(String, ResourceStatus)>,
    /// After which time to look again, although nothing has changed in the cluster.
    pub again: Option<Duration>,
}

/// What is followed, and by whom.
#[derive(Clone)]
pub(crate) struct Attended {
    pub(crate) kind: ResourceKind,
    /// Only those of this namespace.
    pub(crate) namespace: Option<String>,
    pub(crate) steward: Arc<dyn Steward>,
}
