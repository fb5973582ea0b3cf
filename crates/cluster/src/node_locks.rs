//! One at a time for each node: between the last look at the other requests for a node and the approval of one, no other
//! is approved.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// See above.
#[derive(Debug, Default)]
pub(crate) struct NodeLocks {
    /// By signer and node; those that nobody holds or waits for are dropped with the next call.
    locks: Mutex<BTreeMap<(String, String), Weak<Lock>>>,
}

type Lock = tokio::sync::Mutex<()>;

impl NodeLocks {
    /// Waits until nobody else approves requests of this signer for this node. Nobody does while the guard lives.
    pub(crate) async fn lock(&self, signer: &str, node: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| lock.strong_count() > 0);
            let slot = locks
                .entry((signer.to_owned(), node.to_owned()))
                .or_default();
            match slot.upgrade() {
                Some(lock) => lock,
                None => {
                    let lock = Arc::default();
                    *slot = Arc::downgrade(&lock);
                    lock
                }
            }
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_node_is_one_turn_and_others_do_not_wait() {
        let locks = NodeLocks::default();
        let held = locks.lock("s", "a").await;
        assert!(locks.lock("s", "a").now_or_never().is_none());
        assert!(locks.lock("s", "b").now_or_never().is_some());
        assert!(locks.lock("t", "a").now_or_never().is_some());
        drop(held);
        assert!(locks.lock("s", "a").now_or_never().is_some());
        let _last = locks.lock("s", "c").await;
        assert_eq!(
            locks.locks.lock().unwrap().len(),
            1,
            "the others are dropped"
        );
    }
}
