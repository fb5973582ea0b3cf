//! The brake: whose turn it is while too many requests wait, and when it is let go.

use std::collections::BTreeSet;

use countersign_pki::UnixTime;
use countersign_policy::{ClusterFact, Looked, Queue, queue_of};

use super::machines::MachinesFault;
use super::{Answer, Index, Watched, Woken};
use crate::objects::CsrObject;

impl Index {
    pub(super) fn queue(
        &mut self,
        request: &CsrObject,
        watched: &BTreeSet<Watched>,
        now: UnixTime,
    ) -> Answer {
        if !watched.contains(&Watched::Nodes) {
            return Answer::Watch(Watched::Nodes);
        }
        match self.queue_for(&request.name, now) {
            Ok(queue) => {
                if queue.as_ref().is_ok_and(Queue::is_too_long) {
                    self.braked.insert(request.name.clone());
                }
                Answer::Known(queue.map(ClusterFact::Queue))
            }
            Err(fault) => fault.into(),
        }
    }

    fn queue_for(&mut self, own: &str, now: UnixTime) -> Result<Looked<Queue>, MachinesFault> {
        let machines = self.all_machines(now)?.len();
        if let Some(why) = &self.nodes.unreadable {
            return Ok(Err(format!("Nodes: {why}")));
        }
        let waiting = self.requests.values().map(|other| other.waiting());
        let nodes = self.nodes.all.len();
        Ok(Ok(queue_of(waiting, own, machines, nodes, now)))
    }

    /// Those that may have had to wait because there were too many, once there are not.
    pub(crate) fn relieved(&mut self, now: UnixTime) -> Woken {
        if self.braked.is_empty() {
            return Woken::new();
        }
        match self.queue_for("", now) {
            Ok(Ok(queue)) if !queue.is_too_long() => std::mem::take(&mut self.braked),
            Ok(Ok(_) | Err(_)) | Err(_) => Woken::new(),
        }
    }
}
