//! What a cluster knows, as plain facts.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use countersign_pki::{Fingerprint, UnixTime};

/// A fact about the cluster that a rule lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterQuery {
    /// Every Machine of the configured sources: [`ClusterFact::Machines`].
    Machines,
    /// The Node of this very name: [`ClusterFact::Node`].
    Node(String),
    /// How many requests wait, and how many could be expected to: [`ClusterFact::Queue`].
    Queue,
    /// The requests of one signer that ask for the certificate of one node: [`ClusterFact::Requests`].
    Requests {
        /// The node's name.
        node: String,
        /// The signer's name.
        signer: String,
    },
    /// The certificates that may have issued what nodes serve, where the cluster publishes them: [`ClusterFact::Bundle`].
    Bundle,
    /// The type of the cluster's network: [`ClusterFact::Network`].
    Network,
    /// The addresses through which a node's traffic leaves: [`ClusterFact::Egress`].
    Egress(String),
    /// What a name resolves to: [`ClusterFact::Name`].
    Name(String),
    /// What is served at an address: [`ClusterFact::Serving`].
    Serving(SocketAddr),
}

/// The answer to a [`ClusterQuery`]. That something does not exist is an answer; that it could not be looked up is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterFact {
    /// In the order of the sources, and of the list within each.
    Machines(Arc<[ClusterMachine]>),
    /// `None`: there is no such Node.
    Node(Option<Arc<ClusterNode>>),
    /// Where the request stands among those that wait.
    Queue(Queue),
    /// Oldest first; the request in question is among them.
    Requests(Arc<[ClusterRequest]>),
    /// PEM; `None`: the cluster publishes none.
    Bundle(Option<Arc<str>>),
    /// `None`: the cluster does not say.
    Network(Option<String>),
    /// `None`: nothing is known of that node.
    Egress(Option<Egress>),
    /// What the resolver said.
    Name(NameAnswer),
    /// What came of the dial.
    Serving(ServedChain),
}

/// A Machine: what the cluster's provider says of a host, which the host itself cannot write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMachine {
    /// Where it comes from, for example `machine.openshift.io/v1beta1`.
    pub source: String,
    /// Its namespace and name.
    pub name: String,
    /// When it was made.
    pub created: UnixTime,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The Node that it has become; an empty name is a reference that names nothing.
    pub node: Option<String>,
    /// What it is called and where it is reached.
    pub addresses: Vec<NodeAddress>,
}

impl ClusterMachine {
    /// Whether it has become the Node of this name.
    pub(super) fn is_node(&self, name: &str) -> bool {
        self.node.as_deref() == Some(name)
    }

    /// Whether it is a record of our own inventory, which knows hosts by their names.
    pub fn is_of_inventory(&self) -> bool {
        self.source.starts_with(INVENTORY)
    }

    pub(super) fn is_inventory_of(&self, node: &str) -> bool {
        self.is_of_inventory() && self.name == node
    }
}

/// A Node, which is to say: what a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// What it is called and where it is reached.
    pub addresses: Vec<NodeAddress>,
    /// Where it serves; 0 if it does not say.
    pub port: u16,
}

/// One address of a Machine or a Node, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// `Hostname`, `InternalDNS`, `ExternalDNS`, `InternalIP`, `ExternalIP`, or a word of somebody else's.
    pub kind: String,
    /// The name or the number.
    pub address: String,
}

/// How full the queue of requests is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Requests of nodes that wait and count.
    pub pending: usize,
    /// Machines of all sources.
    pub machines: usize,
    /// Nodes.
    pub nodes: usize,
    /// How many of them go before this one when there are too many, else 0: every sender in turn, the newest first.
    pub ahead: usize,
}

impl Queue {
    /// How many may wait: 100 more than there are Machines, or Nodes.
    pub fn limit(&self) -> usize {
        self.machines.max(self.nodes).saturating_add(100)
    }

    /// Whether more wait than may.
    pub fn is_too_long(&self) -> bool {
        self.pending > self.limit()
    }
}

/// Another request for the same node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRequest {
    /// The object's name.
    pub name: String,
    /// When it was made.
    pub created: UnixTime,
    /// Who asks for a certificate with which key; `None`: the request cannot be read.
    pub key: Option<Fingerprint>,
    /// When it was approved, if it was.
    pub approved: Option<UnixTime>,
    /// Whether it was denied or failed.
    pub refused: bool,
    /// Whether it has its certificate.
    pub issued: bool,
}

impl ClusterRequest {
    /// Whether it has been approved within the hour and has no certificate yet.
    pub fn is_open_at(&self, now: UnixTime) -> bool {
        let is_recent = |approved: UnixTime| now.seconds_since(approved) < APPROVAL_SECONDS;
        !self.refused && !self.issued && self.approved.is_some_and(is_recent)
    }
}

/// The state of the object that carries a request. A request that is judged is usually open in every respect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestState {
    /// It has been approved.
    pub approved: bool,
    /// It has been denied.
    pub denied: bool,
    /// Its signer has failed.
    pub failed: bool,
    /// It has its certificate.
    pub issued: bool,
    /// It is being deleted.
    pub deleting: bool,
}

/// The addresses through which a node's traffic leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// Single addresses, as written.
    pub addresses: Vec<String>,
    /// Networks, as written.
    pub networks: Vec<String>,
}

/// What a resolver says of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameAnswer {
    /// These, at least one.
    Addresses(Vec<IpAddr>),
    /// There is no such name, or it has no address.
    Nothing,
    /// No answer came in time.
    Timeout,
    /// The resolver failed, in words.
    Failure(String),
}

/// What came of asking a node for the certificate that it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServedChain {
    /// The chain, leaf first, in DER. The leaf's key has taken part in a handshake; nothing else has been checked.
    Chain(Vec<Vec<u8>>),
    /// Nothing came, in words: refused, timed out, not TLS.
    Nothing(String),
    /// It was not dialled, in words: the address is not one that may be.
    Forbidden(String),
}

impl fmt::Display for ClusterQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machines => write!(f, "the Machines"),
            Self::Node(name) => write!(f, "Node {name}"),
            Self::Queue => write!(f, "the requests that wait"),
            Self::Requests { node, .. } => write!(f, "the other requests for {node}"),
            Self::Bundle => write!(f, "the authorities of what nodes serve"),
            Self::Network => write!(f, "the type of the network"),
            Self::Egress(node) => write!(f, "the egress addresses of {node}"),
            Self::Name(name) => write!(f, "the addresses of {name}"),
            Self::Serving(address) => write!(f, "what is served at {address}"),
        }
    }
}

/// The group of our own objects.
const INVENTORY: &str = "countersign.dev/";
/// For how long an approval keeps other keys out.
const APPROVAL_SECONDS: i64 = 3600;
