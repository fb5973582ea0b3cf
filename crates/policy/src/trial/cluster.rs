//! What the cluster of a test file says.

use std::sync::Arc;

use countersign_pki::UnixTime;
use countersign_pki::pem::{self, PemLimits};
use serde_json::Value;

use crate::evidence::Looked;
use crate::node::{
    ClusterFact, ClusterMachine, ClusterQuery, MACHINE_GROUPS, NameAnswer, NodeRequest,
    RequestState, ServedChain, bundle_of, egress_of, inventory_machine, machine_of,
    network_type_of, node_of, object_names, queue_of, related_requests,
};
use crate::request::{Identity, Request};
use crate::trial::setting::{DnsAnswer, Scene, ServingAnswer};

impl Scene {
    /// The answer to one question about the cluster.
    pub(super) fn cluster_fact(
        &self,
        query: &ClusterQuery,
        request: &Request<'_>,
        now: UnixTime,
    ) -> Looked<ClusterFact> {
        match query {
            ClusterQuery::Machines => {
                let machines = self.cluster_machines(now)?;
                Ok(ClusterFact::Machines(machines.into()))
            }
            ClusterQuery::Node(name) => {
                let found = self.one("Node", "", name)?;
                let node = found.and_then(node_of);
                Ok(ClusterFact::Node(node.map(Arc::new)))
            }
            ClusterQuery::Queue => {
                let requests = self.requests(request)?;
                let machines = self.cluster_machines(now)?.len();
                let nodes = self.all("Node", "")?.len();
                let waiting = requests.iter().map(NodeRequest::waiting);
                let queue = queue_of(waiting, request.key, machines, nodes, now);
                Ok(ClusterFact::Queue(queue))
            }
            ClusterQuery::Requests { node, signer } => {
                let requests = self.requests(request)?;
                let related = related_requests(&requests, node, signer);
                Ok(ClusterFact::Requests(related.into()))
            }
            ClusterQuery::Bundle => {
                let found = self.one("ConfigMap", "", object_names::BUNDLE)?;
                let is_there = |object: &&Value| {
                    object
                        .pointer("/metadata/namespace")
                        .and_then(Value::as_str)
                        == Some(object_names::BUNDLE_NAMESPACE)
                };
                let bundle = found.filter(is_there).and_then(bundle_of);
                Ok(ClusterFact::Bundle(bundle.map(Arc::from)))
            }
            ClusterQuery::Network => {
                let found = self.one("Network", object_names::NETWORK_GROUP, "cluster")?;
                let kind = found.map(|network| network_type_of(network).unwrap_or_default());
                Ok(ClusterFact::Network(kind))
            }
            ClusterQuery::Egress(node) => {
                let found = self.one("HostSubnet", object_names::HOST_SUBNET_GROUP, node)?;
                Ok(ClusterFact::Egress(found.map(egress_of)))
            }
            ClusterQuery::Name(name) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                Ok(ClusterFact::Name(match self.dns.get(&name) {
                    Some(DnsAnswer::Addresses(addresses)) if !addresses.is_empty() => {
                        NameAnswer::Addresses(addresses.clone())
                    }
                    Some(DnsAnswer::Addresses(_)) | None => NameAnswer::Nothing,
                    Some(DnsAnswer::Timeout) => NameAnswer::Timeout,
                    Some(DnsAnswer::ServerFailure) => {
                        NameAnswer::Failure("the resolver failed".to_owned())
                    }
                }))
            }
            ClusterQuery::Serving(address) => {
                Ok(ClusterFact::Serving(match self.serving.get(address) {
                    None => ServedChain::Nothing("the connection was refused".to_owned()),
                    Some(ServingAnswer::Timeout) => {
                        ServedChain::Nothing("no answer came in time".to_owned())
                    }
                    Some(ServingAnswer::Chain(text)) => chain(text),
                }))
            }
        }
    }

    /// The Machines in list order, and our own records behind them.
    fn cluster_machines(&self, now: UnixTime) -> Looked<Vec<ClusterMachine>> {
        let mut machines = Vec::new();
        for group in MACHINE_GROUPS {
            // One that cannot be read keeps the list from being read.
            let entries = self.unreadable.iter();
            if let Some(entry) = entries.into_iter().find(|entry| is_machine(entry)) {
                return Err(format!("{entry} cannot be read"));
            }
            for object in self.all("Machine", group)? {
                let source = object.get("apiVersion").and_then(Value::as_str);
                machines.push((
                    self.place_of(object),
                    machine_of(source.unwrap_or_default(), object),
                ));
            }
        }
        machines.sort_by_key(|(place, _)| *place);
        let machines = machines.into_iter().filter_map(|(_, machine)| machine);
        let own = self
            .machines
            .iter()
            .map(|own| inventory_machine(&own.at(now), now));
        Ok(machines.chain(own).collect())
    }

    fn place_of(&self, object: &Value) -> usize {
        let mut all = self.objects.iter();
        all.position(|other| std::ptr::eq(other, object))
            .unwrap_or_default()
    }

    /// Every request, this one among them.
    fn requests(&self, request: &Request<'_>) -> Looked<Vec<NodeRequest>> {
        let all = self.all("CertificateSigningRequest", "")?;
        let mut requests: Vec<NodeRequest> =
            all.into_iter().filter_map(NodeRequest::read).collect();
        if !requests.iter().any(|other| other.name == request.key) {
            let (username, groups) = match &request.requester.identity {
                Identity::User {
                    username, groups, ..
                } => (username.clone(), groups.clone()),
                Identity::Anonymous | Identity::Authority | Identity::Certname { .. } => {
                    (String::new(), Vec::new())
                }
            };
            requests.push(NodeRequest {
                name: request.key.to_owned(),
                signer: request.signer.as_str().to_owned(),
                node: crate::node::named_node(Some(request.csr), &username),
                username,
                groups,
                created: request.at,
                key: Some(request.csr.key_fingerprint()),
                state: RequestState::default(),
                approved_at: None,
                approval: String::new(),
            });
        }
        Ok(requests)
    }

    /// The objects of a kind and of a group, if it is not empty, in list order.
    fn all(&self, kind: &str, group: &str) -> Looked<Vec<&Value>> {
        if self.unreadable.iter().any(|entry| entry == kind) {
            return Err(format!("{kind} objects cannot be read"));
        }
        let has = |object: &&Value, key: &str, matches: &dyn Fn(&str) -> bool| {
            object.get(key).and_then(Value::as_str).is_some_and(matches)
        };
        let objects = self.objects.iter();
        let objects = objects
            .filter(|object| has(object, "kind", &|written| written == kind))
            .filter(|object| has(object, "apiVersion", &|written| is_of(written, group)));
        Ok(objects.collect())
    }

    /// The object of a kind and a name.
    fn one(&self, kind: &str, group: &str, name: &str) -> Looked<Option<&Value>> {
        if self.is_unreadable(kind, name) {
            return Err(format!("{kind}/{name} cannot be read"));
        }
        let all = self.all(kind, group)?;
        let is_it = |object: &&Value| {
            object.pointer("/metadata/name").and_then(Value::as_str) == Some(name)
        };
        Ok(all.into_iter().find(is_it))
    }
}

/// Whether an API version is one of a group.
fn is_of(version: &str, group: &str) -> bool {
    let rest = version.strip_prefix(group);
    rest.is_some_and(|rest| group.is_empty() || rest.starts_with('/'))
}

fn is_machine(entry: &str) -> bool {
    entry == "Machine" || entry.starts_with("Machine/")
}

/// What a server that sends this would send.
fn chain(text: &str) -> ServedChain {
    match pem::decode_all(text.as_bytes(), &PemLimits::REQUEST) {
        Ok(blocks) => {
            let certificates = blocks
                .into_iter()
                .filter(|block| block.label == "CERTIFICATE");
            ServedChain::Chain(certificates.map(|block| block.der).collect())
        }
        Err(fault) => ServedChain::Nothing(fault.to_string()),
    }
}
