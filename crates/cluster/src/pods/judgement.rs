//! Whether a request is what it says: pure functions over what was looked up. None of these checks can be switched off; a
//! policy decides about what passes them.
//!
//! `Denied` is final for a pod: its kubelet asks again only for another pod or after a restart. So what may be right a moment
//! later, such as a pod that is not there yet, is waited for until the grace time has passed.

use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::PodFacts;

use super::objects::{Pod, PodRequest, Source};
use super::signing::{PodKeyType, PodTerms};

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// In one word, as conditions have it: letters and digits.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// What was looked up: an object, nothing under that name, or why that is not known, in words.
pub(crate) type Looked<T> = Result<Option<T>, String>;

/// Everything that a request speaks of.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) pod: Looked<Pod>,
    /// The identity of the service account.
    pub(crate) service_account: Looked<String>,
    /// The identity of the node.
    pub(crate) node: Looked<String>,
}

/// What a request comes to before a policy is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It is what it says.
    Fits(PodFacts),
    /// It never will be.
    Deny(Finding),
    /// It may be later.
    Wait(Finding),
}

/// What can be said of a request without looking anything up: its key and its annotations. Answers its message, which has a
/// key and nothing else.
pub(crate) fn examine(
    request: &PodRequest,
    terms: &PodTerms,
) -> Result<(CheckedCsr, PodKeyType), Finding> {
    if request.stub.is_empty() {
        let message = "the key came as pkixPublicKey, which is deprecated: kubelets from Kubernetes 1.36 on send \
                       stubPKCS10Request";
        return Err(Finding::new("UnsupportedRequestForm", message));
    }
    let known: Vec<&str> = terms.key_types.iter().map(|kind| kind.word()).collect();
    let unsupported = |what: String| {
        let message = format!("{what}; this signer takes {}", known.join(", "));
        Finding::new("UnsupportedKeyType", message)
    };
    let stub = CheckedCsr::judged(&request.stub).map_err(|fault| {
        Finding::new(
            "InvalidRequest",
            format!("stubPKCS10Request cannot be used: {fault}"),
        )
    })?;
    let key = stub.public_key().key_type;
    let key_type = PodKeyType::of(key).filter(|kind| terms.key_types.contains(kind));
    let key_type =
        key_type.ok_or_else(|| unsupported(format!("keys of type {key} are not certified")))?;
    if let Some(weakness) = stub.unsignable() {
        return Err(unsupported(weakness.to_string()));
    }
    if stub.subject().attributes().next().is_some() || !stub.attributes().is_empty() {
        let message = "stubPKCS10Request must have a key and nothing else: names in certificates come from the pod alone";
        return Err(Finding::new("NonEmptyRequest", message));
    }
    let unknown: Vec<&str> = request
        .annotations
        .keys()
        .filter(|key| !terms.annotations.contains(*key))
        .map(String::as_str)
        .collect();
    match unknown.is_empty() {
        true => Ok((stub, key_type)),
        false => Err(Finding::new(
            "InvalidUnverifiedUserAnnotations",
            format!(
                "the signer does not know the annotations {}",
                unknown.join(", ")
            ),
        )),
    }
}

/// Compares a request with its surroundings. `key_type` is that of its key; `grace` in seconds is how long after its creation
/// something that is not there is waited for.
pub(crate) fn compare(
    request: &PodRequest,
    key_type: PodKeyType,
    around: Surroundings,
    now: UnixTime,
    grace: u64,
) -> Judged {
    let is_young = now < request.created.plus_seconds(grace);
    let missing = |reason, message: String| match is_young {
        true => Judged::Wait(Finding::new(reason, message)),
        false => Judged::Deny(Finding::new(reason, message)),
    };
    let unknown = |why: String| Judged::Wait(Finding::new("LookupFailed", why));
    let PodRequest {
        namespace,
        pod: asks,
        ..
    } = request;
    let pod = match around.pod {
        Ok(Some(pod)) => pod,
        Ok(None) => {
            let message = format!("there is no pod {namespace}/{}", asks.name);
            return missing("PodNotFound", message);
        }
        Err(why) => return unknown(format!("pod {namespace}/{}: {why}", asks.name)),
    };
    if pod.uid != asks.uid {
        let message = format!(
            "pod {namespace}/{} is another one: podUID differs",
            asks.name
        );
        return missing("PodNotFound", message);
    }
    if let Err(finding) = compare_pod(request, key_type, &pod) {
        return Judged::Deny(finding);
    }
    for (kind, reason, asks, found) in [
        (
            "service account",
            "ServiceAccountMismatch",
            &request.service_account,
            around.service_account,
        ),
        ("node", "NodeMismatch", &request.node, around.node),
    ] {
        match found {
            Ok(Some(uid)) if uid == asks.uid => {}
            Ok(Some(_)) => {
                let message = format!("{kind} {} is another one: its UID differs", asks.name);
                return missing(reason, message);
            }
            Ok(None) => {
                let message = format!("there is no {kind} {}", asks.name);
                return missing(reason, message);
            }
            Err(why) => return unknown(format!("{kind} {}: {why}", asks.name)),
        }
    }
    Judged::Fits(PodFacts {
        namespace: namespace.clone(),
        name: asks.name.clone(),
        uid: pod.uid,
        service_account: pod.service_account,
        service_account_uid: request.service_account.uid.clone(),
        node: pod.node,
        labels: pod.labels,
        annotations: request.annotations.clone(),
    })
}

/// What a pod that is there says itself.
fn compare_pod(request: &PodRequest, key_type: PodKeyType, pod: &Pod) -> Result<(), Finding> {
    let refused = |reason, message: String| Err(Finding::new(reason, message));
    if pod.is_deleting {
        return refused("PodTerminating", "the pod is being deleted".to_owned());
    }
    if !PHASES.contains(&pod.phase.as_str()) {
        let message = format!("the pod is in phase {:?}", pod.phase);
        return refused("PodNotRunning", message);
    }
    if pod.is_mirror {
        let message = "the pod is static: nobody in the cluster has admitted it".to_owned();
        return refused("MirrorPod", message);
    }
    if pod.service_account != request.service_account.name {
        let message = format!(
            "the pod runs as service account {:?}, not as {:?}",
            pod.service_account, request.service_account.name
        );
        return refused("ServiceAccountMismatch", message);
    }
    if pod.node != request.node.name {
        let message = format!(
            "the pod is bound to node {:?}, not to {:?}",
            pod.node, request.node.name
        );
        return refused("NodeMismatch", message);
    }
    let asked: Vec<&Source> = pod
        .sources
        .iter()
        .filter(|source| source.signer == request.signer.as_str())
        .collect();
    if asked.is_empty() {
        let message = format!(
            "no volume of the pod asks for a certificate of {}",
            request.signer
        );
        return refused("PodDoesNotAsk", message);
    }
    let fits = |source: &&Source| {
        source.key_type == key_type.word()
            && source.max_seconds == request.max_seconds
            && source.annotations == request.annotations
    };
    match asked.iter().any(fits) {
        true => Ok(()),
        false => refused(
            "PodDoesNotAsk",
            "the pod's volumes ask for another key type, lifetime or other annotations".to_owned(),
        ),
    }
}

/// In which a pod needs a certificate.
const PHASES: [&str; 2] = ["Pending", "Running"];

#[cfg(test)]
#[path = "judgement_tests.rs"]
mod tests;
