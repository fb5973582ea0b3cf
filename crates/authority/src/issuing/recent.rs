//! Certificates that were issued a moment ago: their holders come for them at once, and need not wait for the store.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use countersign_pki::UnixTime;

use crate::issuer::IssuerId;
use crate::store::{Change, Write};

/// The newest certificate of a name, as anybody may fetch it.
#[derive(Clone, Debug)]
pub struct ShownCertificate {
    /// The certificate. Empty where only its inventory line was taken over from another authority.
    pub der: Arc<[u8]>,
    /// When it was decided to issue it.
    pub decided: UnixTime,
}

/// The newest certificates of some names. What retires or replaces a certificate makes the name forgotten, before the
/// store hears of it and again when it is durable.
#[derive(Default)]
pub(crate) struct RecentCertificates {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_name: HashMap<(IssuerId, String), ShownCertificate>,
    order: VecDeque<(IssuerId, String)>,
    /// How often something was forgotten.
    forgotten: u64,
}

/// The moment before a certificate is handed to the store.
#[derive(Clone, Copy)]
pub(crate) struct Moment(u64);

impl RecentCertificates {
    pub(crate) fn get(&self, issuer: &IssuerId, name: &str) -> Option<ShownCertificate> {
        let key = (issuer.clone(), name.to_owned());
        self.known().by_name.get(&key).cloned()
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(self.known().forgotten)
    }

    /// Keeps a certificate that is durable by now, unless something was forgotten since the moment before.
    pub(crate) fn keep(
        &self,
        since: Moment,
        issuer: &IssuerId,
        name: &str,
        shown: ShownCertificate,
    ) {
        let mut known = self.known();
        if known.forgotten != since.0 {
            return;
        }
        let key = (issuer.clone(), name.to_owned());
        if known.by_name.insert(key.clone(), shown).is_none() {
            known.order.push_back(key);
        }
        if known.order.len() > MAX_KNOWN
            && let Some(oldest) = known.order.pop_front()
        {
            known.by_name.remove(&oldest);
        }
    }

    /// Forgets what a change may make untrue. Answers whether there is such a thing.
    pub(crate) fn forget(&self, change: &Change) -> bool {
        let ends = |write: &Write| matches!(write, Write::Retire { .. } | Write::Import(_));
        let is_needed = change.writes.iter().any(ends);
        if is_needed {
            self.forget_all();
        }
        is_needed
    }

    pub(crate) fn forget_all(&self) {
        let mut known = self.known();
        known.by_name.clear();
        known.order.clear();
        known.forgotten = known.forgotten.wrapping_add(1);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// More than are issued while their holders come for them; a few megabytes.
const MAX_KNOWN: usize = 4096;
