//! Everything that talks to a real Kubernetes: it approves, signs and cleans CertificateSigningRequests there, answers
//! PodCertificateRequests and publishes ClusterTrustBundles.
//!
//! The cluster's objects are the truth. Watches feed a pure `index`; the policy decides by it; a pure `plan` says what is
//! written; the loop around them (`controllers`) is thin. Approving needs no store: the decision on record is the condition
//! on the object.
//!
//! No type of the Kubernetes client leaves this crate. It holds no key and opens no store.

mod index;
mod objects;
mod plan;
mod queue;

mod ahead;
mod cleaner;
mod delivery;
mod events;

mod api;
mod dial;
mod follow;
mod leader;
mod lean;
mod metrics;
mod node_locks;
mod resolver;
mod reviews;
mod signing;

mod approver;
mod controllers;
mod gather;
mod operator;
mod pods;
mod resources;

pub use api::ConnectFault;
pub use cleaner::CleanerSettings;
pub use controllers::{Cluster, ClusterFault, Controller, Rules, Settings};
pub use dial::DialSettings;
pub use leader::{Election, LeaseLost};
pub use metrics::ClusterMetrics;
pub use operator::{AdmissionKind, AuthorityAccess, OperatorSettings, ReviewFault};
pub use pods::{PodCertificate, PodKeyType, PodOrder, PodSigner, PodSigning, PodTerms};
pub use resources::{
    Attention, Found, FoundState, NewSecret, Readiness, ResourceKind, ResourceObject,
    ResourceStatus, SecretAnswer, Secrets, Steward, Withheld,
};
pub use signing::{
    ApprovedRequest, Attempt, CertificateId, SignedCertificate, Signer, Signing, Spending,
};
