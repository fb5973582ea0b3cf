//! Rules about the nodes of a cluster, and what they look at.
//!
//! A node's certificate is worth as much as the evidence that the node is the one it says it is. What the cluster knows
//! (Machines, Nodes, other requests), what names resolve to and what a node serves now are facts here; whoever runs
//! beside a cluster looks them up.
//!
//! [`check`] has the checks by name, [`rule`] what each preset makes of them. [`client`] and [`serving`] are the two
//! rules, [`judge`] keeps what has failed and says what comes of it. [`objects`] reads objects of an API server,
//! [`queue`] says whose turn it is among many. [`service_account`] has the names of a pod's service account.

mod check;
mod client;
mod common;
mod compare;
mod document;
mod facts;
mod judge;
pub mod object_names;
mod objects;
mod queue;
mod renewal;
mod rule;
mod service_account;
mod serving;
mod unreadable;

pub use check::CheckId;
pub(crate) use document::{read_client, read_serving, shown_client, shown_serving};
pub use facts::{
    ClusterFact, ClusterMachine, ClusterNode, ClusterQuery, ClusterRequest, Egress, NameAnswer,
    NodeAddress, Queue, RequestState, ServedChain,
};
pub(crate) use objects::{MACHINE_GROUPS, named_node};
pub use objects::{
    NodeRequest, bundle_of, egress_of, inventory_machine, machine_of, network_type_of, node_of,
    related_requests, request_state_of,
};
pub use queue::{Waiting, queue_of, queue_window, turns_of};
pub use rule::{
    Checks, Compat, NameOptions, NamePattern, NodeClientRule, NodeServingRule, Preset, Switch,
};
pub use unreadable::judge_unreadable;
