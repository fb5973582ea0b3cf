//! Places for what may be done at once, shared fairly among those who ask.
//!
//! Who holds some gets another only while enough are free: one source alone gets three quarters of them, and the more
//! sources hold some, the less each of them gets. So there is nearly always a place for one who has none, whatever the
//! others do. Where places are waited for, a free one goes to whoever holds fewest, and among those to the first.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_policy::one_source;
use tokio::sync::oneshot;

/// So many places. Cheap to clone; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    free: usize,
    held: HashMap<IpAddr, usize>,
    /// In order of arrival.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    source: Option<IpAddr>,
    place: oneshot::Sender<Place>,
}

/// A place that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    source: Option<IpAddr>,
}

impl Places {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                free: count.max(1),
                held: HashMap::new(),
                waiting: Vec::new(),
            })),
        }
    }

    /// A place, if there is one for this source now.
    pub(crate) fn take(&self, source: Option<IpAddr>) -> Option<Place> {
        let source = source.map(one_source);
        let mut state = self.lock();
        if !state.has_room_for(source) {
            return None;
        }
        state.hold(source);
        drop(state);
        Some(self.place(source))
    }

    /// A place, when it is this source's turn.
    pub(crate) async fn wait(&self, source: Option<IpAddr>) -> Option<Place> {
        let source = source.map(one_source);
        let (place, turn) = oneshot::channel();
        self.lock().waiting.push(Waiting { source, place });
        self.give_away();
        turn.await.ok()
    }

    /// Gives free places to those who wait.
    fn give_away(&self) {
        loop {
            let mut state = self.lock();
            let Some(next) = state.next() else {
                return;
            };
            state.hold(next.source);
            drop(state);
            // Who does not wait any longer gives it back by that.
            let _given_up = next.place.send(self.place(next.source));
        }
    }

    fn place(&self, source: Option<IpAddr>) -> Place {
        Place {
            places: self.clone(),
            source,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn held_by(&self, source: Option<IpAddr>) -> usize {
        let held = source.and_then(|source| self.held.get(&source));
        held.copied().unwrap_or(0)
    }

    fn has_room_for(&self, source: Option<IpAddr>) -> bool {
        self.held_by(source) < self.free.saturating_mul(SHARE)
    }

    /// Whose turn it is. Those who have given up are forgotten.
    fn next(&mut self) -> Option<Waiting> {
        self.waiting.retain(|waiting| !waiting.place.is_closed());
        let waiting = self.waiting.iter().enumerate();
        let mine = waiting.map(|(turn, one)| (self.held_by(one.source), turn));
        let (_, turn) = mine.min()?;
        let source = self.waiting.get(turn)?.source;
        self.has_room_for(source).then(|| self.waiting.remove(turn))
    }

    fn hold(&mut self, source: Option<IpAddr>) {
        self.free = self.free.saturating_sub(1);
        if let Some(source) = source {
            let held = self.held.entry(source).or_default();
            *held = held.saturating_add(1);
        }
    }

    fn free(&mut self, source: Option<IpAddr>) {
        self.free = self.free.saturating_add(1);
        if let Some(source) = source
            && let Some(held) = self.held.get_mut(&source)
        {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.held.remove(&source);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().free(self.source);
        self.places.give_away();
    }
}

/// So many times what is free one may hold.
const SHARE: usize = 3;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ip(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn all(places: &Places, source: Option<IpAddr>) -> Vec<Place> {
        std::iter::from_fn(|| places.take(source)).collect()
    }

    #[test]
    fn one_source_leaves_places_to_others() {
        for (count, alone, second) in [(1, 1, 0), (2, 2, 0), (4, 3, 1), (8, 6, 2), (32, 24, 6)] {
            let places = Places::new(count);
            let loud = all(&places, ip(1));
            let quiet = all(&places, ip(2));
            assert_eq!((loud.len(), quiet.len()), (alone, second), "{count}");
            drop((loud, quiet));
            assert_eq!(all(&places, None).len(), count);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_holds_fewest_is_next_and_no_place_is_lost() {
        let places = Places::new(4);
        let mut loud = all(&places, ip(1));
        let wait = |source| {
            let places = places.clone();
            tokio::spawn(async move { places.wait(source).await })
        };
        let (more, given_up) = (wait(ip(1)), wait(ip(3)));
        tokio::time::sleep(Duration::from_millis(1)).await;
        // The last free one is not for who holds three; the other is there before it is given up.
        assert!(!more.is_finished());
        drop(given_up.await);
        let quiet = wait(ip(2)).await.unwrap().unwrap();
        let late = wait(ip(4));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!late.is_finished());
        loud.pop();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(late.is_finished() && !more.is_finished());
        drop((loud, quiet, late.await));
        drop(more.await);
        assert_eq!(all(&places, None).len(), 4);
    }
}
