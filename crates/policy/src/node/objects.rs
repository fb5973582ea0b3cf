//! Objects of an API server as plain facts, and what is counted over them.
//!
//! All of this is somebody else's data. What is missing or of another type reads as if it were not there; nothing here
//! fails because of one bad object.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_pki::{CheckedCsr, Fingerprint, UnixTime};
use serde_json::Value;

use crate::facts::{AddressKind, Machine};
use crate::json::{is_deleting, items, text, texts, time};
use crate::node::common;
use crate::node::facts::{
    ClusterMachine, ClusterNode, ClusterRequest, Egress, NodeAddress, RequestState,
};
use crate::node::object_names;
use crate::node::queue::Waiting;
use crate::node::serving::PROVIDED_IP;

/// A Machine of `machine.openshift.io` or `cluster.x-k8s.io`, of whatever version; `None` if it has no name.
pub fn machine_of(source: &str, object: &Value) -> Option<ClusterMachine> {
    let metadata = object.get("metadata")?;
    let status = object.get("status").unwrap_or(&Value::Null);
    let name = text(metadata, "name");
    let namespace = text(metadata, "namespace");
    // An empty reference is one all the same.
    let reference = status.get("nodeRef").filter(|node| !node.is_null());
    (!name.is_empty()).then(|| ClusterMachine {
        source: source.to_owned(),
        name: match namespace.as_str() {
            "" => name,
            namespace => format!("{namespace}/{name}"),
        },
        created: time(metadata, "creationTimestamp").unwrap_or(UnixTime(0)),
        deleting: is_deleting(metadata),
        node: reference.map(|reference| text(reference, "name")),
        addresses: addresses(status),
    })
}

/// A record of our own inventory as a Machine: it has the node's name, and has become the node once it has enrolled. Who has not
/// enrolled in time is as good as gone.
pub fn inventory_machine(record: &Machine, now: UnixTime) -> ClusterMachine {
    let is_late = record.not_after.is_some_and(|until| now >= until);
    let mut addresses = vec![NodeAddress {
        kind: AddressKind::InternalDNS.word().to_owned(),
        address: record.name.clone(),
    }];
    addresses.extend(record.addresses.iter().map(|known| NodeAddress {
        kind: known.kind.word().to_owned(),
        address: known.address.clone(),
    }));
    ClusterMachine {
        source: crate::document::API_VERSION.to_owned(),
        name: record.name.clone(),
        created: record.not_before.unwrap_or(record.created),
        deleting: is_late && record.enrolled.is_none(),
        node: record.enrolled.map(|_| record.name.clone()),
        addresses,
    }
}

/// A Node; `None` if it has no name.
pub fn node_of(object: &Value) -> Option<ClusterNode> {
    let metadata = object.get("metadata")?;
    let status = object.get("status").unwrap_or(&Value::Null);
    let name = text(metadata, "name");
    // The field is written with a capital letter.
    let port = status.pointer("/daemonEndpoints/kubeletEndpoint/Port");
    let port = port.and_then(Value::as_u64);
    let provided = metadata.get("annotations").map(|all| text(all, PROVIDED));
    let mut addresses = addresses(status);
    for address in provided.iter().flat_map(|provided| provided.split(',')) {
        if !address.is_empty() {
            addresses.push(NodeAddress {
                kind: PROVIDED_IP.to_owned(),
                address: address.to_owned(),
            });
        }
    }
    (!name.is_empty()).then(|| ClusterNode {
        name,
        addresses,
        port: port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0),
    })
}

/// The type of OpenShift's Network.
pub fn network_type_of(object: &Value) -> Option<String> {
    let kind = object.pointer("/status/networkType")?.as_str()?;
    Some(kind.to_owned())
}

/// The egress addresses of OpenShift's HostSubnet.
pub fn egress_of(object: &Value) -> Egress {
    Egress {
        addresses: texts(object.get("egressIPs")),
        networks: texts(object.get("egressCIDRs")),
    }
}

/// The authorities in the ConfigMap of the cluster's signer.
pub fn bundle_of(object: &Value) -> Option<String> {
    let bundle = object.get("data")?.get("ca-bundle.crt")?.as_str()?;
    Some(bundle.to_owned())
}

/// The state that conditions and a certificate say.
pub fn request_state_of(conditions: &Value, has_certificate: bool) -> RequestState {
    let has = |kind: &str| items(Some(conditions)).any(|one| is_condition(one, kind));
    RequestState {
        approved: has(APPROVED),
        denied: has("Denied"),
        failed: has("Failed"),
        issued: has_certificate,
        deleting: false,
    }
}

/// A CertificateSigningRequest, as far as others that are judged depend on it.
#[derive(Clone, Debug)]
pub struct NodeRequest {
    /// Its name.
    pub name: String,
    /// Its signer.
    pub signer: String,
    /// Its sender.
    pub username: String,
    /// The sender's groups.
    pub groups: Vec<String>,
    /// When it was made.
    pub created: UnixTime,
    /// The node whose certificate it asks for: by its message, else by its sender.
    pub node: Option<String>,
    /// The key in it, if it can be read.
    pub key: Option<Fingerprint>,
    /// Its state.
    pub state: RequestState,
    /// When it was approved.
    pub approved_at: Option<UnixTime>,
    /// The message of its approval.
    pub approval: String,
}

impl NodeRequest {
    /// Reads one; `None` if it has no name.
    pub fn read(object: &Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let status = object.get("status").unwrap_or(&Value::Null);
        let name = text(metadata, "name");
        let username = text(spec, "username");
        let request = text(spec, "request");
        // Who writes an object by hand may write the PEM itself.
        let request = BASE64.decode(&request).unwrap_or(request.into_bytes());
        let csr = CheckedCsr::judged_pem(&request).ok();
        let conditions = status.get("conditions").unwrap_or(&Value::Null);
        let approval = items(Some(conditions)).find(|one| is_condition(one, APPROVED));
        let at = |key: &str| approval.and_then(|one| time(one, key));
        let created = time(metadata, "creationTimestamp").unwrap_or(UnixTime(0));
        let has_certificate = !text(status, "certificate").is_empty();
        (!name.is_empty()).then(|| Self {
            name,
            signer: text(spec, "signerName"),
            groups: texts(spec.get("groups")),
            created,
            node: named_node(csr.as_ref(), &username),
            username,
            key: csr.map(|csr| csr.key_fingerprint()),
            state: RequestState {
                deleting: is_deleting(metadata),
                ..request_state_of(conditions, has_certificate)
            },
            approved_at: approval.map(|_| {
                let written = at("lastTransitionTime").or_else(|| at("lastUpdateTime"));
                written.unwrap_or(created)
            }),
            approval: approval.map(|one| text(one, "message")).unwrap_or_default(),
        })
    }

    /// As the queue sees it.
    pub fn waiting(&self) -> Waiting<'_> {
        Waiting {
            name: &self.name,
            signer: &self.signer,
            username: &self.username,
            groups: &self.groups,
            node: self.node.as_deref(),
            created: self.created,
            state: self.state,
            approved: self.approved_at.map(|at| (at, self.approval.as_str())),
        }
    }
}

/// The node that a request is about.
pub(crate) fn named_node(csr: Option<&CheckedCsr>, username: &str) -> Option<String> {
    let common_name = csr.and_then(|csr| csr.subject().last_common_name());
    let node = common_name.and_then(common::node_of);
    let node = node.or_else(|| common::node_of(username));
    node.filter(|node| !node.is_empty()).map(str::to_owned)
}

/// The requests of one signer for one node, oldest first.
pub fn related_requests(requests: &[NodeRequest], node: &str, signer: &str) -> Vec<ClusterRequest> {
    let is_related = |one: &&NodeRequest| one.signer == signer && one.node.as_deref() == Some(node);
    let related = requests.iter().filter(is_related);
    let mut related: Vec<ClusterRequest> = related
        .map(|one| ClusterRequest {
            name: one.name.clone(),
            created: one.created,
            key: one.key,
            approved: one.approved_at.filter(|_| one.state.approved),
            refused: one.state.denied || one.state.failed,
            issued: one.state.issued,
        })
        .collect();
    related.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
    related
}

/// A condition of this type that holds; its name alone will do.
fn is_condition(condition: &Value, kind: &str) -> bool {
    let holds = !matches!(text(condition, "status").as_str(), "False" | "Unknown");
    condition.as_str() == Some(kind) || holds && text(condition, "type") == kind
}

fn addresses(status: &Value) -> Vec<NodeAddress> {
    items(status.get("addresses"))
        .map(|address| NodeAddress {
            kind: text(address, "type"),
            address: text(address, "address"),
        })
        .collect()
}

/// The groups of Machines; versions follow.
pub(crate) const MACHINE_GROUPS: [&str; 2] = [object_names::MACHINE_GROUP, "cluster.x-k8s.io"];
const APPROVED: &str = "Approved";
/// Where a cloud's kubelet was told its address.
const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::node::client::{BOOTSTRAPPER, CLIENT_SIGNER};
    use crate::node::common::NODES;
    use crate::node::serving::SERVING_SIGNER;

    pub(in crate::node) const NOW: UnixTime = UnixTime(1_800_000_000);

    pub(in crate::node) fn request(name: &str, username: &str, age: i64) -> NodeRequest {
        NodeRequest {
            name: name.to_owned(),
            signer: match username {
                BOOTSTRAPPER => CLIENT_SIGNER,
                _ => SERVING_SIGNER,
            }
            .to_owned(),
            username: username.to_owned(),
            groups: vec![NODES.to_owned()],
            created: UnixTime(NOW.0 - age),
            node: None,
            key: None,
            state: RequestState::default(),
            approved_at: None,
            approval: String::new(),
        }
    }

    #[test]
    fn related_requests_are_of_the_node_and_the_signer() {
        let of = |name: &str, node: &str, age| NodeRequest {
            node: Some(node.to_owned()),
            ..request(name, "system:node:x", age)
        };
        let all = [of("new", "a", 1), of("other", "b", 2), of("old", "a", 3)];
        let related = related_requests(&all, "a", SERVING_SIGNER);
        let names: Vec<&str> = related.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["old", "new"]);
        assert_eq!(related_requests(&all, "a", CLIENT_SIGNER), []);
    }

    #[test]
    fn objects_are_read_whatever_they_lack() {
        let object = json!({
            "metadata": {"name": "csr-1", "creationTimestamp": "2027-01-15T08:00:00Z", "deletionTimestamp": null},
            "spec": {"signerName": SERVING_SIGNER, "username": "system:node:a", "groups": [NODES, 7]},
            "status": {
                "conditions": [{"type": "Approved", "message": "m", "lastUpdateTime": "2027-01-15T08:00:01Z"}],
                "certificate": "eA==",
            },
        });
        let read = NodeRequest::read(&object).unwrap();
        assert_eq!(read.node.as_deref(), Some("a"));
        assert_eq!(read.groups, [NODES]);
        assert!(read.state.approved && read.state.issued && !read.state.deleting);
        assert_eq!(read.approved_at, Some(UnixTime(NOW.0 + 1)));
        for broken in [
            json!({}),
            json!({"metadata": {}}),
            json!({"metadata": {"name": 7}}),
            json!([]),
        ] {
            assert!(NodeRequest::read(&broken).is_none(), "{broken}");
            assert!(machine_of("s", &broken).is_none(), "{broken}");
            assert!(node_of(&broken).is_none(), "{broken}");
        }
        for (status, node) in [
            (json!({"nodeRef": {"name": "a"}}), Some("a")),
            (json!({"nodeRef": {}}), Some("")),
            (json!({"nodeRef": null}), None),
            (
                json!({"nodeRef": {"name": 7}, "addresses": "none"}),
                Some(""),
            ),
            (json!(7), None),
        ] {
            let object = json!({"metadata": {"name": "m"}, "status": status});
            let read = machine_of("s", &object).unwrap();
            assert_eq!(
                (read.node.as_deref(), read.addresses.len()),
                (node, 0),
                "{object}"
            );
        }
    }
}
