//! Keeps the ClusterTrustBundles of our signers as they are to be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::Gated;
use super::bundles::{Existing, Step, Wanted, steps};
use crate::api::{CallFault, segment};
use crate::controllers::Shared;
use crate::follow::follow;
use crate::index::Change;

impl Shared {
    /// Follows the bundles of the cluster, and publishes ours once they have been read.
    pub(super) async fn follow_bundles(self: &Arc<Self>) {
        let (read, is_read) = tokio::sync::watch::channel(false);
        let publish = async {
            let mut is_read = is_read;
            // An error means that nobody reads any more.
            if is_read.wait_for(|is_read| *is_read).await.is_ok() {
                self.publish().await;
            }
        };
        let resource = Gated::Bundles.resource();
        let following = follow(&self.api, &resource, |change| {
            let bundles = &self.pods.bundles;
            match change {
                Change::All(objects) => {
                    *bundles.known() = objects.into_iter().filter_map(by_name).collect();
                    read.send_replace(true);
                }
                Change::Set(object) => bundles.known().extend(by_name(object)),
                Change::Gone(object) => {
                    if let Some((name, _)) = by_name(object) {
                        bundles.known().remove(&name);
                    }
                }
                Change::Unreadable(_) => {}
            }
            bundles.changed.notify_one();
        });
        tokio::join!(following, publish);
    }

    /// Looks whenever something changes, and now and then whether there are other anchors.
    async fn publish(&self) {
        let mut resting: BTreeMap<String, Instant> = BTreeMap::new();
        loop {
            let anchors = self.settings.pods.iter().flat_map(|it| it.anchors());
            for (signer, anchors) in anchors.collect::<Vec<_>>() {
                let now = Instant::now();
                if resting
                    .get(signer.as_str())
                    .is_some_and(|until| *until > now)
                {
                    continue;
                }
                let wanted = Wanted::of(&signer, &anchors);
                let published = match &wanted {
                    Ok(wanted) => self.publish_one(wanted).await,
                    Err(why) => Err(why.clone()),
                };
                match published {
                    Ok(()) => {
                        resting.remove(signer.as_str());
                    }
                    Err(reason) => {
                        warn!(%signer, %reason, "the trust bundle is not published");
                        resting.insert(signer.as_str().to_owned(), now + PAUSE);
                    }
                }
            }
            tokio::select! {
                () = self.pods.bundles.changed.notified() => {}
                () = sleep(LOOK_AT_ANCHORS) => {}
            }
        }
    }

    /// Goes from what is there to what is wanted; where one step fails, none of the later ones is taken.
    async fn publish_one(&self, wanted: &Wanted) -> Result<(), String> {
        let steps = {
            let known = self.pods.bundles.known();
            steps(wanted, known.values())
        };
        for step in &steps {
            let outcome = self.take(step, wanted).await;
            let word = match &outcome {
                Ok(()) => "written",
                Err(CallFault::Conflict | CallFault::Exists) => "conflict",
                Err(CallFault::NotFound) => "gone",
                Err(CallFault::Invalid(_)) => "refused",
                Err(CallFault::Forbidden(_)) => "forbidden",
                Err(CallFault::Status { .. } | CallFault::Unreachable(_)) => "failed",
            };
            self.metrics.wrote("trust-bundle", word);
            match outcome {
                Ok(()) => {}
                // The watch brings how it is now.
                Err(CallFault::Conflict | CallFault::Exists | CallFault::NotFound) => return Ok(()),
                Err(fault) => return Err(fault.to_string()),
            }
        }
        Ok(())
    }

    async fn take(&self, step: &Step, wanted: &Wanted) -> Result<(), CallFault> {
        let path = |name: &str| format!("{BUNDLES}/{}", segment(name));
        let written = match step {
            Step::Create => self.api.post(BUNDLES, &wanted.object()).await?,
            Step::Restore(existing) => {
                let object = existing.with(wanted);
                self.api.put(&path(&existing.name), &object).await?
            }
            Step::Delete(existing) => {
                let options = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions",
                    "preconditions": {"uid": existing.uid},
                });
                self.api.delete(&path(&existing.name), &options).await?;
                info!(name = %existing.name, "an earlier trust bundle is deleted");
                self.pods.bundles.known().remove(&existing.name);
                return Ok(());
            }
        };
        info!(name = %wanted.name, signer = %wanted.signer, "trust bundle published");
        // Before the watch brings it.
        self.pods.bundles.known().extend(by_name(written));
        Ok(())
    }
}

fn by_name(object: Value) -> Option<(String, Existing)> {
    let existing = Existing::read(object)?;
    Some((existing.name.clone(), existing))
}

const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
/// How often other anchors are looked for, as often as issuers are.
const LOOK_AT_ANCHORS: Duration = Duration::from_secs(2);
/// Before what could not be published is tried again.
const PAUSE: Duration = Duration::from_secs(10);
