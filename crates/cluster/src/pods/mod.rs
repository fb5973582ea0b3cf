//! Certificates for pods: PodCertificateRequests are judged, decided by policy, signed and answered; what pods are to trust is
//! published as ClusterTrustBundles.
//!
//! Both resources are behind feature gates of the cluster. One that is not served is no error; whether it is, is looked at now
//! and then. Of the requests only names are kept: each is read again when it is worked on, and so are its pod, service account
//! and node.

mod bundles;
mod judgement;
mod objects;
mod publisher;
mod signing;
mod status;
mod work;

pub use signing::{PodCertificate, PodKeyType, PodOrder, PodSigner, PodSigning, PodTerms};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_policy::SignerName;
use serde_json::Value;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::api::{CallFault, Resource};
use crate::controllers::Shared;
use crate::follow::follow;
use crate::index::Change;
use bundles::Bundles;
use objects::{PodRequest, signer_of};
use work::sight;

/// What is known of requests of pods.
#[derive(Default)]
pub(crate) struct Pods {
    /// The requests that nobody has answered, by `namespace/name`.
    waiting: Mutex<BTreeMap<String, SignerName>>,
    bundles: Bundles,
}

/// A kind that is served only with its feature gate on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gated {
    Requests,
    Bundles,
}

impl Gated {
    const ALL: [Self; 2] = [Self::Requests, Self::Bundles];

    fn kind(self) -> &'static str {
        match self {
            Self::Requests => "PodCertificateRequest",
            Self::Bundles => "ClusterTrustBundle",
        }
    }

    fn resource(self) -> Resource {
        let plural = match self {
            Self::Requests => "podcertificaterequests",
            Self::Bundles => "clustertrustbundles",
        };
        Resource {
            group: "certificates.k8s.io".to_owned(),
            version: "v1beta1".to_owned(),
            kind: self.kind(),
            plural: plural.to_owned(),
            namespace: None,
            name: None,
            labels: None,
            metadata_only: false,
        }
    }
}

impl Pods {
    /// The requests that wait, and are for one of these signers.
    pub(crate) fn waiting_for(&self, is_ours: impl Fn(&SignerName) -> bool) -> Vec<String> {
        let waiting = self.waiting();
        let ours = waiting.iter().filter(|(_, signer)| is_ours(signer));
        ours.map(|(key, _)| key.clone()).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<String, SignerName>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Works on requests of pods from now on, wherever the cluster has them.
    pub(crate) fn start_pods(self: &Arc<Self>) {
        if self.settings.pods.is_none() {
            return;
        }
        let looking = Arc::clone(self);
        self.tasks.spawn(async move {
            let stop = looking.working.clone();
            tokio::select! {
                () = looking.look_for_gates() => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Requests of pods that signers of ours shall look at again.
    pub(crate) fn pods_again(&self) -> Vec<String> {
        let Some(signer) = &self.settings.pods else {
            return Vec::new();
        };
        self.pods.waiting_for(|name| signer.terms(name).is_some())
    }

    async fn look_for_gates(self: Arc<Self>) {
        let mut followed: BTreeMap<Gated, CancellationToken> = BTreeMap::new();
        loop {
            match self.served().await {
                Ok(served) => {
                    for gated in Gated::ALL {
                        self.follow_or_leave(gated, served.contains(&gated), &mut followed);
                    }
                }
                Err(fault) => debug!(%fault, "the API server does not say what it serves"),
            }
            sleep(LOOK_FOR_GATES).await;
        }
    }

    fn follow_or_leave(
        self: &Arc<Self>,
        gated: Gated,
        is_served: bool,
        followed: &mut BTreeMap<Gated, CancellationToken>,
    ) {
        match (is_served, followed.remove(&gated)) {
            (true, Some(stop)) => {
                followed.insert(gated, stop);
            }
            (true, None) => {
                info!(kind = gated.kind(), "served by the cluster");
                let stop = self.working.child_token();
                followed.insert(gated, stop.clone());
                let follower = Arc::clone(self);
                self.tasks.spawn(async move {
                    let work = async {
                        match gated {
                            Gated::Requests => follower.follow_pods().await,
                            Gated::Bundles => follower.follow_bundles().await,
                        }
                    };
                    tokio::select! {
                        () = work => {}
                        () = stop.cancelled() => {}
                    }
                });
            }
            (false, Some(stop)) => {
                info!(kind = gated.kind(), "no longer served by the cluster");
                stop.cancel();
            }
            (false, None) => {}
        }
    }

    /// Which of the kinds the cluster serves.
    async fn served(&self) -> Result<BTreeSet<Gated>, CallFault> {
        let found = self.api.get(VERSION).await?.unwrap_or(Value::Null);
        let resources = found.get("resources").and_then(Value::as_array);
        let kinds: BTreeSet<&str> = resources
            .into_iter()
            .flatten()
            .filter_map(|resource| resource.get("kind")?.as_str())
            .collect();
        let is_served = |gated: &Gated| kinds.contains(gated.kind());
        Ok(Gated::ALL.into_iter().filter(is_served).collect())
    }

    async fn follow_pods(self: &Arc<Self>) {
        let resource = Gated::Requests.resource();
        follow(&self.api, &resource, |change| {
            match change {
                Change::All(objects) => {
                    let listed = objects.iter().filter_map(unanswered).collect();
                    let before = std::mem::replace(&mut *self.pods.waiting(), listed);
                    self.wake_undelivered(before.keys());
                    self.queue.wake_all(&self.pods_again());
                }
                Change::Set(object) => self.pod_changed(&object),
                Change::Gone(object) => {
                    let key = key_of(&object).filter(|key| self.deliveries.has_begun(key));
                    if let Some(key) = key
                        && let Some(last) = PodRequest::read(object.clone())
                    {
                        self.deliveries.deleted(&key, sight(&last));
                    }
                    self.pod_answered(&object);
                }
                Change::Unreadable(_) => {}
            }
            self.count_pods();
        })
        .await;
    }

    fn pod_changed(&self, object: &Value) {
        match unanswered(object) {
            Some((key, signer)) => {
                let is_ours = self.pod_signer_has(&signer);
                self.pods.waiting().insert(key.clone(), signer);
                if is_ours {
                    self.queue.wake_all([&key]);
                }
            }
            None => self.pod_answered(object),
        }
    }

    fn pod_answered(&self, object: &Value) {
        if let Some(key) = key_of(object) {
            self.pods.waiting().remove(&key);
            self.wake_undelivered([&key].into_iter());
        }
    }

    fn pod_signer_has(&self, signer: &SignerName) -> bool {
        let pods = self.settings.pods.as_ref();
        pods.is_some_and(|pods| pods.terms(signer).is_some())
    }

    /// Somebody has to see what became of a certificate that is on its way.
    fn wake_undelivered<'k>(&self, keys: impl Iterator<Item = &'k String>) {
        self.queue.wake_all(&self.deliveries.among(keys));
    }

    fn count_pods(&self) {
        let waiting = self.pods.waiting().len();
        let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
        self.metrics.pods_waiting.set(waiting);
    }
}

/// `namespace/name`, which no name of a CertificateSigningRequest looks like.
fn key_of(object: &Value) -> Option<String> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    let (namespace, name) = (text("/metadata/namespace")?, text("/metadata/name")?);
    Some(format!("{namespace}/{name}"))
}

/// A request that has no answer yet.
fn unanswered(object: &Value) -> Option<(String, SignerName)> {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    match conditions.is_none_or(Vec::is_empty) {
        true => Some((key_of(object)?, signer_of(object)?)),
        false => None,
    }
}

const VERSION: &str = "/apis/certificates.k8s.io/v1beta1";
/// A gate that is opened later is found then.
const LOOK_FOR_GATES: Duration = Duration::from_secs(30);
