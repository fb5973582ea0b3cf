//! How many of something there may be at once: in all, and for each of those who hold some.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts what is held, in all and by key. Keys that hold nothing take no memory.
#[derive(Debug)]
pub(crate) struct Limiter<K> {
    held: Mutex<Counts<K>>,
}

#[derive(Debug)]
struct Counts<K> {
    all: usize,
    by_key: HashMap<K, usize>,
}

/// One more of something, which counts for each of its keys until it is dropped.
#[derive(Debug)]
pub(crate) struct Held<K: Eq + Hash, const N: usize> {
    limiter: Arc<Limiter<K>>,
    keys: [K; N],
}

impl<K: Clone + Eq + Hash> Limiter<K> {
    pub(crate) fn new() -> Arc<Self> {
        let none = Counts {
            all: 0,
            by_key: HashMap::new(),
        };
        Arc::new(Self {
            held: Mutex::new(none),
        })
    }

    /// Takes one more: of `all`, and for each of the keys, which are looked at in this order. Each comes with its limit and
    /// with what to say where that is reached.
    pub(crate) fn take<E: Copy, const N: usize>(
        self: &Arc<Self>,
        all: (usize, E),
        keys: [(K, usize, E); N],
    ) -> Result<Held<K, N>, E> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (limit, fault) = all;
        if held.all >= limit {
            return Err(fault);
        }
        for (key, limit, fault) in &keys {
            if held.by_key.get(key).is_some_and(|count| count >= limit) || *limit == 0 {
                return Err(*fault);
            }
        }
        let keys = keys.map(|(key, _, _)| key);
        held.all = held.all.saturating_add(1);
        for key in &keys {
            let count = held.by_key.entry(key.clone()).or_default();
            *count = count.saturating_add(1);
        }
        Ok(Held {
            limiter: Arc::clone(self),
            keys,
        })
    }

    #[cfg(test)]
    pub(crate) fn is_unused(&self) -> bool {
        let held = self.held.lock().unwrap();
        held.all == 0 && held.by_key.is_empty()
    }
}

impl<K: Eq + Hash, const N: usize> Drop for Held<K, N> {
    fn drop(&mut self) {
        let held = &self.limiter.held;
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        held.all = held.all.saturating_sub(1);
        for key in &self.keys {
            if let Some(count) = held.by_key.get_mut(key) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    held.by_key.remove(key);
                }
            }
        }
    }
}
