//! PodCertificateRequests and what they speak of, as plain facts. All of it is somebody else's data: what is missing or of
//! another type reads as if it were not there.

use std::collections::BTreeMap;

use countersign_pki::UnixTime;
use countersign_policy::SignerName;
use countersign_policy::json::{is_deleting, items, named, text, time};
use serde_json::Value;

use crate::objects::bytes;

/// A PodCertificateRequest.
#[derive(Clone, Debug)]
pub(crate) struct PodRequest {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) created: UnixTime,
    /// Nothing is left to be done: it has a condition, or is being deleted.
    pub(crate) is_over: bool,
    pub(crate) signer: SignerName,
    pub(crate) pod: Named,
    pub(crate) service_account: Named,
    pub(crate) node: Named,
    pub(crate) max_seconds: u64,
    /// The PKCS#10 message; empty where the key came in the old form.
    pub(crate) stub: Vec<u8>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// The certificates that it has.
    pub(crate) chain: String,
    /// The whole object without its managed fields, for whoever writes it back.
    pub(crate) object: Value,
}

/// An object that a request speaks of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl PodRequest {
    /// Reads one; `None` if it cannot be one: it has no name, no identity, or a signer whose name is none.
    pub(crate) fn read(mut object: Value) -> Option<Self> {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let (metadata, spec) = (object.get("metadata")?, object.get("spec")?);
        let status = object.get("status").unwrap_or(&Value::Null);
        let of = |name: &str, uid: &str| Named {
            name: text(spec, name),
            uid: text(spec, uid),
        };
        let conditions = items(status.get("conditions")).count();
        let seconds = spec.get("maxExpirationSeconds").and_then(Value::as_u64);
        Some(Self {
            namespace: named(metadata, "namespace")?,
            name: named(metadata, "name")?,
            uid: named(metadata, "uid")?,
            created: time(metadata, "creationTimestamp").unwrap_or(UnixTime(0)),
            is_over: conditions > 0 || is_deleting(metadata),
            signer: signer_of(&object)?,
            pod: of("podName", "podUID"),
            service_account: of("serviceAccountName", "serviceAccountUID"),
            node: of("nodeName", "nodeUID"),
            max_seconds: seconds.unwrap_or(DEFAULT_SECONDS),
            stub: bytes(spec.get("stubPKCS10Request")).unwrap_or_default(),
            annotations: text_map(spec.get("unverifiedUserAnnotations")),
            chain: text(status, "certificateChain"),
            object,
        })
    }
}

/// The signer that a request is for.
pub(crate) fn signer_of(object: &Value) -> Option<SignerName> {
    SignerName::parse(object.pointer("/spec/signerName")?.as_str()?).ok()
}

/// A pod, as far as its certificates are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) is_deleting: bool,
    /// Whether it stands for a file on its node: nobody in the cluster has approved it.
    pub(crate) is_mirror: bool,
    pub(crate) phase: String,
    pub(crate) service_account: String,
    pub(crate) node: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) sources: Vec<Source>,
}

/// One `podCertificate` of a pod's projected volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) signer: String,
    pub(crate) key_type: String,
    pub(crate) max_seconds: u64,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Pod {
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let (metadata, spec) = (object.get("metadata")?, object.get("spec")?);
        let annotations = text_map(metadata.get("annotations"));
        let volumes = items(spec.get("volumes"));
        let sources = volumes.flat_map(|volume| items(volume.pointer("/projected/sources")));
        Some(Self {
            uid: named(metadata, "uid")?,
            is_deleting: is_deleting(metadata),
            is_mirror: annotations.contains_key(MIRROR),
            phase: object
                .get("status")
                .map_or_else(String::new, |it| text(it, "phase")),
            service_account: text(spec, "serviceAccountName"),
            node: text(spec, "nodeName"),
            labels: text_map(metadata.get("labels")),
            sources: sources
                .filter_map(|source| source.get("podCertificate"))
                .map(Source::read)
                .collect(),
        })
    }
}

impl Source {
    fn read(value: &Value) -> Self {
        let seconds = value.get("maxExpirationSeconds").and_then(Value::as_u64);
        Self {
            signer: text(value, "signerName"),
            key_type: text(value, "keyType"),
            max_seconds: seconds.unwrap_or(DEFAULT_SECONDS),
            annotations: text_map(value.get("userAnnotations")),
        }
    }
}

/// The identity of an object of which nothing else matters.
pub(crate) fn uid_of(object: &Value) -> Option<String> {
    named(object.get("metadata")?, "uid")
}

fn text_map(value: Option<&Value>) -> BTreeMap<String, String> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

const MIRROR: &str = "kubernetes.io/config.mirror";
/// What the API server fills in where a pod does not say.
const DEFAULT_SECONDS: u64 = 86_400;
