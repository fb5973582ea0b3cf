//! The loop around our resources: looks whether the cluster has the definition, follows the objects, shows them to their
//! steward and writes what he says of them.

use std::sync::Arc;
use std::time::Duration;

use countersign_authority::{Clock as _, SystemClock};
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::object::{GROUP, ResourceObject, VERSION};
use super::table::{Change, Table};
use super::{Attended, Attention, FoundState, ResourceStatus, Secrets, status};
use crate::api::{CallFault, Seen, segment};
use crate::controllers::Shared;

/// One kind in one place, and what is known of it.
struct Desk {
    attended: Attended,
    table: Table,
    secrets: Secrets,
    /// When to look again.
    due: Option<Instant>,
    /// What was complained about last.
    told: String,
}

impl Shared {
    /// Attends to a kind of resources for as long as it is polled.
    pub(crate) async fn attend(self: Arc<Self>, attended: Attended) {
        let mut desk = Desk {
            table: Table::of(attended.namespace.as_deref().unwrap_or_default()),
            secrets: Secrets::of(self.api.clone()),
            due: None,
            told: String::new(),
            attended,
        };
        loop {
            let pause = match self.is_served(&desk).await {
                Ok(true) => {
                    self.follow_resources(&mut desk).await;
                    AFTER_A_FAULT
                }
                Ok(false) => {
                    let changed = desk.table.not_served();
                    self.look_if(changed, &mut desk).await;
                    LOOK_FOR_DEFINITIONS
                }
                Err(why) => {
                    desk.complain(&why);
                    let changed = desk.table.unreadable(&why);
                    self.look_if(changed, &mut desk).await;
                    AFTER_A_FAULT
                }
            };
            sleep(pause).await;
        }
    }

    /// Whether the cluster has the definition.
    async fn is_served(&self, desk: &Desk) -> Result<bool, String> {
        let path = format!("/apis/{GROUP}/{VERSION}");
        let found = self.api.get(&path).await;
        let Some(found) = found.map_err(|fault| fault.to_string())? else {
            return Ok(false);
        };
        let resources = found.get("resources").and_then(Value::as_array);
        let plural = desk.attended.kind.plural();
        let is_it = |it: &Value| it.get("name").and_then(Value::as_str) == Some(plural);
        Ok(resources.into_iter().flatten().any(is_it))
    }

    /// Follows the objects until they cannot be listed any more.
    async fn follow_resources(&self, desk: &mut Desk) {
        let kind = desk.attended.kind;
        let resource = kind.resource(desk.attended.namespace.as_deref());
        let mut events = self.api.watch(&resource);
        loop {
            let due = desk.due;
            let timer = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let mut next = tokio::select! {
                event = events.next() => match event {
                    Some(event) => Some(event),
                    None => return,
                },
                () = timer => None,
            };
            let mut changed = match next {
                Some(_) => Change::Nothing,
                None => Change::Something,
            };
            let mut is_over = false;
            // Those that are there already belong to the same look.
            while let Some(event) = next {
                match &event {
                    Seen::Unlistable(why) => {
                        desk.complain(why);
                        is_over = true;
                    }
                    Seen::Interrupted(why) => {
                        debug!(kind = kind.word(), reason = %why, "the watch was interrupted");
                    }
                    Seen::End => desk.told.clear(),
                    Seen::Begin | Seen::Listed(_) | Seen::Set(_) | Seen::Gone(_) => {}
                }
                if desk.table.apply(event) == Change::Something {
                    changed = Change::Something;
                }
                next = events.next().now_or_never().flatten();
            }
            self.look_if(changed, desk).await;
            if is_over {
                return;
            }
        }
    }

    async fn look_if(&self, changed: Change, desk: &mut Desk) {
        let found = match changed {
            Change::Something => desk.table.found(),
            Change::Nothing => None,
        };
        let Some(found) = found else {
            return;
        };
        if let FoundState::Objects(objects) = &found.state {
            debug!(
                kind = desk.attended.kind.word(),
                count = objects.len(),
                "read"
            );
        }
        let looking = desk.attended.steward.look(&found, &desk.secrets);
        let Attention {
            statuses,
            mut again,
        } = looking.await;
        for (uid, wanted) in statuses {
            let Some(object) = desk.table.by_uid(&uid) else {
                continue;
            };
            if !self.write_status(&desk.attended, object, &wanted).await {
                again = Some(again.map_or(AFTER_A_FAULT, |again| again.min(AFTER_A_FAULT)));
            }
        }
        desk.due = again.and_then(|again| Instant::now().checked_add(again.max(SHORTEST_PAUSE)));
    }

    /// Writes the status of an object if it differs. `false`: it is worth trying again.
    async fn write_status(
        &self,
        attended: &Attended,
        object: &ResourceObject,
        wanted: &ResourceStatus,
    ) -> bool {
        let kind = attended.kind;
        let Some(patch) = status::patch(object, wanted, SystemClock.now()) else {
            return true;
        };
        let (plural, name) = (kind.plural(), &object.name);
        let place = match object.namespace.as_str() {
            "" => String::new(),
            namespace => format!("namespaces/{}/", segment(namespace)),
        };
        let path = format!(
            "/apis/{GROUP}/{VERSION}/{place}{plural}/{}/status",
            segment(name)
        );
        let (is_ready, reason) = (wanted.ready.is_ready, wanted.ready.reason);
        match self.api.patch(&path, &patch).await {
            Ok(_) => {
                let message = &wanted.ready.message;
                match is_ready {
                    true => info!(kind = kind.word(), %name, reason, message, "in use"),
                    false => warn!(kind = kind.word(), %name, reason, message, "not in use"),
                }
                true
            }
            // The watch brings what has become of it.
            Err(CallFault::Conflict | CallFault::NotFound) => true,
            Err(fault) => {
                warn!(kind = kind.word(), %name, %fault, "the status was not written");
                false
            }
        }
    }
}

impl Desk {
    /// Says once why the objects cannot be read.
    fn complain(&mut self, why: &str) {
        if self.told != why {
            let kind = self.attended.kind.word();
            warn!(kind, group = GROUP, reason = why, "cannot be listed");
            why.clone_into(&mut self.told);
        }
    }
}

/// A definition that appears later is found then.
const LOOK_FOR_DEFINITIONS: Duration = Duration::from_secs(10);
const AFTER_A_FAULT: Duration = Duration::from_secs(5);
/// However eager a steward is.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
