//! Objects of the API server as plain facts: what is read from their JSON, and nothing of what is not needed.
//!
//! All of this is somebody else's data. What is missing or of another type reads as if it were not there; nothing here fails
//! because of one bad object.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_pki::pem::{self, PemLimits};
use countersign_pki::{Certificate, CheckedCsr, Subject, UnixTime};
use countersign_policy::json::{is_deleting, items, named, part, text, texts, time};
use countersign_policy::{
    ClusterMachine, Identity, NodeAddress, RequestState, Requester, SignerName, Waiting, Wishes,
    machine_of,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::plan::Stage;

/// A CertificateSigningRequest.
#[derive(Clone, Debug)]
pub(crate) struct CsrObject {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) created: UnixTime,
    pub(crate) deleting: bool,
    pub(crate) spec: Arc<CsrSpec>,
    pub(crate) conditions: Vec<Condition>,
    /// `status.certificate`: PEM, if there is any.
    pub(crate) certificate: Option<Vec<u8>>,
    /// For whoever writes it back; `None` once nothing is left to be written.
    pub(crate) body: Option<CsrBody>,
}

/// A whole request without its managed fields, as it is written back.
#[derive(Clone, Debug)]
pub(crate) struct CsrBody {
    /// Everything but its status, as JSON.
    pub(crate) object: Box<str>,
    pub(crate) status: Map<String, Value>,
}

/// What never changes in a request.
#[derive(Debug)]
pub(crate) struct CsrSpec {
    pub(crate) signer: SignerName,
    pub(crate) requester: Requester,
    pub(crate) wishes: Wishes,
    /// The message, verified; or why it cannot be read, in words.
    pub(crate) message: Result<CheckedCsr, String>,
    /// The node whose certificate it asks for: by its message, else by its sender.
    pub(crate) node: Option<String>,
    /// The name that its certificate will have, where that does not come from the message.
    pub(crate) subject: Option<String>,
}

/// One condition of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) kind: String,
    /// `lastUpdateTime`.
    pub(crate) updated: Option<UnixTime>,
}

impl CsrObject {
    /// Reads one; `None` if it cannot be one of ours: it has no name, no identity, or a signer whose name is none. What has
    /// been read of an `earlier` state and cannot have changed is taken from there.
    pub(crate) fn read(mut object: Value, earlier: Option<&Self>) -> Option<Self> {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let metadata = object.get("metadata")?;
        let (spec, status) = (object.get("spec")?, object.get("status"));
        let uid = named(metadata, "uid")?;
        let spec = match earlier.filter(|earlier| earlier.uid == uid) {
            Some(earlier) => Arc::clone(&earlier.spec),
            None => Arc::new(CsrSpec::read(spec)?),
        };
        let conditions = status.and_then(|status| status.get("conditions"));
        let certificate = status.and_then(|status| status.get("certificate"));
        let mut read = Self {
            name: named(metadata, "name")?,
            uid,
            version: text(metadata, "resourceVersion"),
            created: time(metadata, "creationTimestamp").unwrap_or(UnixTime(0)),
            deleting: is_deleting(metadata),
            spec,
            conditions: items(conditions).filter_map(Condition::read).collect(),
            certificate: bytes(certificate).filter(|certificate| !certificate.is_empty()),
            body: None,
        };
        if Stage::of(&read) != Stage::Over {
            let status = object.as_object_mut()?.remove("status");
            read.body = Some(CsrBody {
                object: object.to_string().into_boxed_str(),
                status: match status {
                    Some(Value::Object(status)) => status,
                    Some(_) | None => Map::new(),
                },
            });
        }
        Some(read)
    }

    /// The condition of this type, if it has one.
    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    /// Whether it has one.
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some()
    }

    /// Who sent it.
    pub(crate) fn username(&self) -> &str {
        self.sender().0
    }

    /// Who sent it, with all groups.
    fn sender(&self) -> (&str, &[String]) {
        match &self.spec.requester.identity {
            Identity::User {
                username, groups, ..
            } => (username, groups),
            Identity::Anonymous | Identity::Authority | Identity::Certname { .. } => ("", &[]),
        }
    }

    /// As the queue sees it. Once approved it no longer waits: what is approved here must not hold up the next one.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        let (username, groups) = self.sender();
        Waiting {
            name: &self.name,
            signer: self.spec.signer.as_str(),
            username,
            groups,
            node: self.spec.node.as_deref(),
            created: self.created,
            state: RequestState {
                approved: self.is("Approved"),
                denied: self.is("Denied"),
                failed: self.is("Failed"),
                issued: self.certificate.is_some(),
                deleting: self.deleting,
            },
            approved: None,
        }
    }
}

impl CsrSpec {
    fn read(spec: &Value) -> Option<Self> {
        let username = text(spec, "username");
        let request = bytes(spec.get("request")).unwrap_or_default();
        // The API server has accepted it: what is weak in it is for the rules to say.
        let message = CheckedCsr::judged_pem(&request);
        let message = message.map_err(|fault| fault.to_string());
        let subject = message.as_ref().ok().map(CheckedCsr::subject);
        let common_name = subject.and_then(Subject::last_common_name);
        let node = common_name.and_then(node_name);
        let node = node.or_else(|| node_name(&username)).map(str::to_owned);
        let extra = spec.get("extra").and_then(Value::as_object);
        let extra = extra.into_iter().flatten();
        Some(Self {
            signer: SignerName::parse(spec.get("signerName")?.as_str()?).ok()?,
            requester: Requester {
                identity: Identity::User {
                    username,
                    groups: texts(spec.get("groups")),
                    uid: text(spec, "uid"),
                    extra: extra
                        .map(|(key, values)| (key.clone(), texts(Some(values))))
                        .collect(),
                },
                source: None,
            },
            wishes: Wishes {
                usages: texts(spec.get("usages")),
                expiration_seconds: spec.get("expirationSeconds").and_then(Value::as_u64),
            },
            node,
            subject: None,
            message,
        })
    }
}

impl Condition {
    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            kind: named(value, "type")?,
            updated: time(value, "lastUpdateTime"),
        })
    }
}

/// A Machine, and until when it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownMachine {
    pub(crate) machine: ClusterMachine,
    /// From then on it is as good as gone.
    pub(crate) until: Option<UnixTime>,
}

/// A Machine of any provider, or of our own inventory: such a one has the node's name and what its spec says.
pub(crate) fn machine(source: &str, object: &Value) -> Option<KnownMachine> {
    let mut machine = machine_of(source, object)?;
    let mut until = None;
    if machine.is_of_inventory() {
        let (spec, status) = (part(object, "spec"), part(object, "status"));
        machine.name = machine.name.to_lowercase();
        let is_enrolled = machine.node.is_some() || [status, spec].into_iter().any(is_enrolled);
        machine.node = is_enrolled.then(|| machine.name.clone());
        machine.created = time(spec, "notBefore").unwrap_or(machine.created);
        machine.addresses = inventory_addresses(&machine.name, spec);
        // Who has enrolled in time stays; nobody else may, later.
        until = time(spec, "notAfter").filter(|_| !is_enrolled);
    }
    Some(KnownMachine { machine, until })
}

/// `true`, or when.
fn is_enrolled(part: &Value) -> bool {
    match part.get("enrolled") {
        Some(Value::Bool(is_enrolled)) => *is_enrolled,
        Some(Value::String(_)) => true,
        Some(Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) | None => false,
    }
}

/// The name itself, then what the record lists: with a type, or alone.
fn inventory_addresses(name: &str, spec: &Value) -> Vec<NodeAddress> {
    let listed = items(spec.get("addresses")).map(|address| match address.as_str() {
        None => NodeAddress {
            kind: text(address, "type"),
            address: text(address, "address"),
        },
        Some(alone) => NodeAddress {
            kind: match alone.parse::<IpAddr>() {
                Ok(_) => "InternalIP",
                Err(_) => "Hostname",
            }
            .to_owned(),
            address: alone.to_owned(),
        },
    });
    let own = NodeAddress {
        kind: "InternalDNS".to_owned(),
        address: name.to_owned(),
    };
    std::iter::once(own).chain(listed).collect()
}

/// One value of a ConfigMap.
pub(crate) fn config_value(object: &Value, key: &str) -> Option<String> {
    let value = object.get("data")?.get(key)?.as_str()?;
    Some(value.to_owned())
}

/// Whether OpenShift's machine-approver-config says that node client certificates are not approved.
///
/// # Errors
/// If its text is not what it should be, in words.
pub(crate) fn is_switched_off(config: &str) -> Result<bool, String> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct ApproverConfig {
        node_client_cert: NodeClientCert,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct NodeClientCert {
        disabled: bool,
    }
    if config.trim().is_empty() {
        return Ok(false);
    }
    let config: ApproverConfig =
        serde_saphyr::from_str(config).map_err(|fault| fault.to_string())?;
    Ok(config.node_client_cert.disabled)
}

/// The certificate of a request: the first block of its PEM.
pub(crate) fn first_certificate(text: &[u8]) -> Option<Certificate> {
    let block = pem::decode_first(text, &CHAIN).ok()??;
    Certificate::parse(&block.der).ok()
}

/// The node that a user name or common name speaks of.
pub(crate) fn node_name(name: &str) -> Option<&str> {
    name.strip_prefix("system:node:")
        .filter(|node| !node.is_empty())
}

pub(crate) fn bytes(value: Option<&Value>) -> Option<Vec<u8>> {
    BASE64.decode(value?.as_str()?).ok()
}

/// A chain that a signer wrote, however long it reasonably is.
const CHAIN: PemLimits = PemLimits {
    max_text: 1024 * 1024,
    max_blocks: 64,
};

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A request whose message cannot be read, with whatever else is merged into it.
    pub(crate) fn request(name: &str, more: Value) -> CsrObject {
        let mut object = object(
            name,
            "kubernetes.io/kubelet-serving",
            "system:node:worker-a",
        );
        merge(&mut object, more);
        CsrObject::read(object, None).unwrap()
    }

    /// The same as JSON.
    pub(crate) fn object(name: &str, signer: &str, username: &str) -> Value {
        json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {
                "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7",
                "creationTimestamp": "2026-05-01T12:00:00Z",
            },
            "spec": {"signerName": signer, "username": username, "request": "", "usages": []},
            "status": {},
        })
    }

    pub(crate) fn merge(into: &mut Value, more: Value) {
        match (into, more) {
            (Value::Object(into), Value::Object(more)) => {
                for (key, value) in more {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, more) => *into = more,
        }
    }

    #[test]
    fn a_record_of_the_inventory_is_a_machine_of_that_name() {
        let source = "countersign.dev/v1alpha1";
        let record = json!({
            "metadata": {"name": "Worker-A.lab.example", "creationTimestamp": "2026-05-01T12:00:00Z"},
            "spec": {
                "notAfter": "2026-05-02T12:00:00Z",
                "addresses": ["10.20.0.11", "alias", {"type": "ExternalIP", "address": "192.0.2.1"}],
            },
        });
        let known = machine(source, &record).unwrap();
        let shown: Vec<String> = known
            .machine
            .addresses
            .iter()
            .map(|it| format!("{} {}", it.kind, it.address))
            .collect();
        assert_eq!(
            shown,
            [
                "InternalDNS worker-a.lab.example",
                "InternalIP 10.20.0.11",
                "Hostname alias",
                "ExternalIP 192.0.2.1"
            ]
        );
        assert_eq!(known.machine.name, "worker-a.lab.example");
        let (node, until) = (known.machine.node, known.until.map(|at| at.to_string()));
        assert_eq!(
            (node, until.as_deref()),
            (None, Some("2026-05-02T12:00:00Z"))
        );
        for enrolled in [json!(true), json!("2026-05-01T13:00:00Z")] {
            let mut record = record.clone();
            merge(&mut record, json!({"status": {"enrolled": enrolled}}));
            let known = machine(source, &record).unwrap();
            assert_eq!(known.machine.node.as_deref(), Some("worker-a.lab.example"));
            assert_eq!(known.until, None);
        }
    }

    #[test]
    fn only_a_machine_of_our_own_is_believed_by_its_spec() {
        let object = json!({
            "metadata": {"name": "worker-a", "creationTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {
                "addresses": [{"type": "InternalIP", "address": "10.20.0.11"}],
                "notBefore": "2026-01-03T03:04:05Z",
            },
            "status": {"addresses": [{"type": "InternalIP", "address": "10.20.0.66"}]},
        });
        let own = machine("countersign.dev/v1alpha1", &object)
            .unwrap()
            .machine;
        let known: Vec<&str> = own.addresses.iter().map(|known| &*known.address).collect();
        assert_eq!(known, ["worker-a", "10.20.0.11"]);
        let begin = UnixTime::parse_rfc3339("2026-01-03T03:04:05Z").unwrap();
        assert_eq!((own.name.as_str(), own.created), ("worker-a", begin));
        let others = machine("cluster.x-k8s.io/v1beta2", &object).unwrap();
        assert_eq!(others.machine.addresses[0].address, "10.20.0.66");
    }

    #[test]
    fn openshifts_switch_is_read_and_its_mistakes_are_told() {
        for (text, is_off) in [
            ("", false),
            ("{}", false),
            ("nodeClientCert:\n  disabled: true\n", true),
            ("nodeClientCert: {disabled: false}\nother: 1\n", false),
        ] {
            assert_eq!(is_switched_off(text), Ok(is_off), "{text}");
        }
        for broken in ["nodeClientCert: [", "nodeClientCert: {disabled: 'perhaps'}"] {
            assert!(is_switched_off(broken).is_err(), "{broken}");
        }
    }
}
