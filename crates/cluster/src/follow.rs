//! Follows all objects of a kind: a list, then every change, and a list again where the watch has lost its place.

use futures_util::StreamExt as _;
use tracing::{debug, warn};

use crate::api::{Api, Resource, Seen};
use crate::index::Change;

/// Hands every change to `take`, for as long as it is polled. That the objects cannot be listed is a change, too; it is in the
/// log once for each reason.
pub(crate) async fn follow(api: &Api, resource: &Resource, mut take: impl FnMut(Change)) {
    let mut events = api.watch(resource);
    let mut listed = Vec::new();
    let mut told = String::new();
    while let Some(event) = events.next().await {
        let change = match event {
            Seen::Begin => {
                listed.clear();
                continue;
            }
            Seen::Listed(object) => {
                listed.push(object);
                continue;
            }
            Seen::End => {
                told.clear();
                Change::All(std::mem::take(&mut listed))
            }
            Seen::Set(object) => Change::Set(object),
            Seen::Gone(object) => Change::Gone(object),
            Seen::Unlistable(why) => {
                if why != told {
                    warn!(kind = resource.kind, group = %resource.group, reason = %why, "cannot be listed");
                    told.clone_from(&why);
                }
                Change::Unreadable(why)
            }
            Seen::Interrupted(why) => {
                debug!(kind = resource.kind, reason = %why, "the watch was interrupted");
                continue;
            }
        };
        take(change);
    }
}
