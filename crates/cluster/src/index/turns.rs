//! The brake: whose turn it is while too many requests wait, and when it is let go.
//!
//! How many wait is known at any time. Their order is put together when somebody asks for it, at most once in a second for
//! those that were there then: a flood must not cost its square.

use std::collections::{BTreeMap, BTreeSet};

use countersign_pki::UnixTime;
use countersign_policy::{ClusterFact, Looked, Queue, queue_window, turns_of};

use super::machines::MachinesFault;
use super::{Answer, Index, Watched, Woken};
use crate::objects::CsrObject;

/// The requests that wait, and who had to wait for them.
#[derive(Debug, Default)]
pub(super) struct Brake {
    /// Those that count as long as they are young, oldest first. Some that are too old may be missing.
    open: BTreeSet<(UnixTime, String)>,
    order: Option<Order>,
    /// Those that were looked at while too many waited.
    braked: BTreeSet<String>,
}

/// How many go before each request.
#[derive(Debug)]
struct Order {
    at: UnixTime,
    places: BTreeMap<String, usize>,
}

impl Brake {
    pub(super) fn enter(&mut self, request: &CsrObject) {
        if request.waiting().is_open() {
            self.open.insert((request.created, request.name.clone()));
        }
    }

    pub(super) fn leave(&mut self, request: &CsrObject) {
        self.open.remove(&(request.created, request.name.clone()));
    }

    fn has(&self, request: &CsrObject) -> bool {
        let key = (request.created, request.name.clone());
        self.open.contains(&key)
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.braked.remove(name);
    }

    /// The names of those that count, from the newest on.
    fn counted(&self, now: UnixTime) -> impl Iterator<Item = &String> {
        let (_, until) = queue_window(now);
        let newest = self.open.iter().rev();
        let counted = newest.skip_while(move |(created, _)| *created >= until);
        counted.map(|(_, name)| name)
    }

    fn count(&mut self, now: UnixTime) -> usize {
        let (after, until) = queue_window(now);
        while self
            .open
            .first()
            .is_some_and(|(created, _)| *created <= after)
        {
            self.open.pop_first();
        }
        let newest = self.open.iter().rev();
        let early = newest.take_while(|(created, _)| *created >= until).count();
        self.open.len().saturating_sub(early)
    }
}

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
        let mut queue = match self.queue_at(now) {
            Ok(Ok(queue)) => queue,
            Ok(Err(why)) => return Answer::Known(Err(why)),
            Err(fault) => return fault.into(),
        };
        if queue.is_too_long() {
            queue.ahead = self.ahead(request, now);
            self.brake.braked.insert(request.name.clone());
        }
        Answer::Known(Ok(ClusterFact::Queue(queue)))
    }

    /// How many wait, and how many may.
    fn queue_at(&mut self, now: UnixTime) -> Result<Looked<Queue>, MachinesFault> {
        let machines = self.all_machines(now)?.len();
        if let Some(why) = &self.nodes.unreadable {
            return Ok(Err(format!("Nodes: {why}")));
        }
        Ok(Ok(Queue {
            pending: self.brake.count(now),
            machines,
            nodes: self.nodes.all.len(),
            ahead: 0,
        }))
    }

    fn ahead(&mut self, request: &CsrObject, now: UnixTime) -> usize {
        let own = request.name.as_str();
        let counts = self.brake.has(request);
        let known = self.brake.order.as_ref().filter(|order| order.at == now);
        let places = match known {
            Some(order) if order.places.contains_key(own) || !counts => &order.places,
            Some(_) | None => {
                let counted = self.brake.counted(now);
                let counted = counted.filter_map(|name| self.requests.get(name));
                let turns = turns_of(counted.map(|request| request.waiting()));
                let places = turns
                    .into_iter()
                    .map(|(name, place)| (name.to_owned(), place));
                let places = places.collect();
                &self.brake.order.insert(Order { at: now, places }).places
            }
        };
        places.get(own).copied().unwrap_or(places.len())
    }

    /// Those that may have had to wait because there were too many, once there are not.
    pub(crate) fn relieved(&mut self, now: UnixTime) -> Woken {
        if self.brake.braked.is_empty() {
            return Woken::new();
        }
        match self.queue_at(now) {
            Ok(Ok(queue)) if !queue.is_too_long() => std::mem::take(&mut self.brake.braked),
            Ok(Ok(_) | Err(_)) | Err(_) => Woken::new(),
        }
    }
}
