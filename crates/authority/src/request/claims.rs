//! Names that are being decided: the same request is judged once, whoever sends it how often.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::model::Door;

/// The names for which evidence is being asked.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<HashSet<(Door, String)>>);

impl Claims {
    /// Takes a name while evidence for it is being asked. `None`: it is taken.
    pub(crate) fn claim(&self, door: &Door, key: &str) -> Option<Claim<'_>> {
        let name = (door.clone(), key.to_owned());
        let is_free = self.names().insert(name.clone());
        // Made only if it is ours: dropping a claim gives the name back.
        is_free.then(|| Claim { claims: self, name })
    }

    /// The same, but waits a while for whoever has taken it.
    pub(crate) async fn claim_soon(&self, door: &Door, key: &str) -> Option<Claim<'_>> {
        let mut waited = Duration::ZERO;
        loop {
            if let Some(claim) = self.claim(door, key) {
                return Some(claim);
            }
            if waited >= LONGEST_CLAIM {
                return None;
            }
            tokio::time::sleep(CLAIM_PAUSE).await;
            waited = waited.saturating_add(CLAIM_PAUSE);
        }
    }

    fn names(&self) -> MutexGuard<'_, HashSet<(Door, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a name while its evidence is asked.
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    name: (Door, String),
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.names().remove(&self.name);
    }
}

/// How long a request waits for another one of the same key.
const LONGEST_CLAIM: Duration = Duration::from_secs(5);
const CLAIM_PAUSE: Duration = Duration::from_millis(20);
