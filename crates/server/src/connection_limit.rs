//! How many connections there may be, in all and from one place, and which has to go where there are too many.
//!
//! Whoever comes gets a place as long as somebody has one who is not known and does nothing with it: the idlest of those
//! loses it. Who has shown a certificate of the ledger keeps its place. A part of the places is out of strangers' reach,
//! so that known clients find room at once, and a few are for this machine alone: its administrators come from there.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_policy::one_source;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The connections of a listener.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    total: usize,
    per_source: usize,
    begun: Instant,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    places: HashMap<u64, Arc<Place>>,
    by_source: HashMap<IpAddr, usize>,
    /// From elsewhere, and not known.
    strangers: usize,
    /// Whether somebody has lost a place since that was asked last.
    has_made_room: bool,
}

#[derive(Debug)]
struct Place {
    source: IpAddr,
    is_local: bool,
    is_known: AtomicBool,
    /// Requests under way.
    busy: AtomicUsize,
    /// When something happened last, in milliseconds since the listener began.
    active: AtomicU64,
    lost: CancellationToken,
}

/// A connection that counts until this is dropped, or loses its place.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    number: u64,
    place: Arc<Place>,
    shared: Arc<Shared>,
}

/// A request under way on a connection.
#[derive(Debug)]
pub(crate) struct Busy(Arc<OpenConnection>);

/// Why a connection is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooManyConnections {
    InAll,
    FromSource,
}

impl ConnectionLimit {
    /// Of `total` connections one source gets `per_source`. Unless that is given, a quarter, but always enough for a small
    /// site: whole fleets come through one translated address.
    pub(crate) fn new(total: usize, per_source: Option<usize>) -> Self {
        Self {
            shared: Arc::new(Shared {
                total,
                per_source: per_source.unwrap_or((total / 4).max(MIN_PER_SOURCE)),
                begun: Instant::now(),
                open: Mutex::default(),
            }),
        }
    }

    /// A place for a connection. Others may lose theirs for it.
    pub(crate) fn take(&self, address: IpAddr) -> Result<OpenConnection, TooManyConnections> {
        let shared = &self.shared;
        let (source, is_local) = (one_source(address), address.to_canonical().is_loopback());
        let mut open = shared.lock();
        let of_source = open.by_source.get(&source).copied().unwrap_or(0);
        if of_source >= shared.per_source {
            let went = open.make_room(|place| place.source == source);
            went.ok_or(TooManyConnections::FromSource)?;
        }
        let (limit, strangers) = match is_local {
            true => (shared.total, usize::MAX),
            false => (shared.for_others(), shared.for_strangers()),
        };
        if open.places.len() >= limit || open.strangers >= strangers {
            let went = open.make_room(|place| !place.is_local);
            went.ok_or(TooManyConnections::InAll)?;
        }
        let place = Arc::new(Place {
            source,
            is_local,
            is_known: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            active: AtomicU64::new(shared.now()),
            lost: CancellationToken::new(),
        });
        let number = open.next;
        open.next = number.wrapping_add(1);
        open.insert(number, Arc::clone(&place));
        drop(open);
        Ok(OpenConnection {
            number,
            place,
            shared: Arc::clone(shared),
        })
    }

    /// Whether somebody has lost a place since this was asked last.
    pub(crate) fn has_made_room(&self) -> bool {
        std::mem::take(&mut self.shared.lock().has_made_room)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// What is not kept for this machine.
    fn for_others(&self) -> usize {
        let kept = (self.total / 4).min(FOR_THIS_MACHINE);
        self.total.saturating_sub(kept)
    }

    /// What is not kept for those who are known.
    fn for_strangers(&self) -> usize {
        let kept = self.total / FOR_KNOWN;
        self.for_others().saturating_sub(kept).max(1)
    }
}

impl Open {
    fn insert(&mut self, number: u64, place: Arc<Place>) {
        let count = self.by_source.entry(place.source).or_default();
        *count = count.saturating_add(1);
        if !place.is_local {
            self.strangers = self.strangers.saturating_add(1);
        }
        self.places.insert(number, place);
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Place>> {
        let place = self.places.remove(&number)?;
        if let Some(count) = self.by_source.get_mut(&place.source) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_source.remove(&place.source);
            }
        }
        if !place.is_local && !place.is_known.load(Ordering::Relaxed) {
            self.strangers = self.strangers.saturating_sub(1);
        }
        Some(place)
    }

    /// Takes the idlest of some connections away from those who are not known; `None`: there is nobody. Where there are
    /// many, a few go at once, so that a flood is not a search of all of them for each that comes.
    fn make_room(&mut self, may_go: impl Fn(&Place) -> bool) -> Option<()> {
        let is_stranger = |place: &Place| !place.is_known.load(Ordering::Relaxed);
        let places = self.places.iter();
        let mut candidates: Vec<(bool, u64, u64)> = places
            .filter(|(_, place)| is_stranger(place) && may_go(place))
            .map(|(number, place)| {
                let is_busy = place.busy.load(Ordering::Relaxed) > 0;
                (is_busy, place.active.load(Ordering::Relaxed), *number)
            })
            .collect();
        let last = candidates.len().checked_sub(1)?;
        let count = (candidates.len() / AT_ONCE).min(last);
        candidates.select_nth_unstable(count);
        // Who asks something is not idle: of those only one goes, and only where nobody else is left.
        let idle = candidates.iter().take(count.saturating_add(1));
        let idle: Vec<u64> = idle.filter(|one| !one.0).map(|one| one.2).collect();
        let going = match idle.is_empty() {
            true => candidates.iter().min().map(|one| vec![one.2])?,
            false => idle,
        };
        self.has_made_room = true;
        for number in going {
            if let Some(place) = self.remove(number) {
                place.lost.cancel();
            }
        }
        Some(())
    }
}

impl OpenConnection {
    /// Its client has shown a certificate that counts.
    pub(crate) fn is_known(&self) {
        let mut open = self.shared.lock();
        let was_known = self.place.is_known.swap(true, Ordering::Relaxed);
        let counts = open.places.contains_key(&self.number) && !self.place.is_local;
        if counts && !was_known {
            open.strangers = open.strangers.saturating_sub(1);
        }
    }

    /// Notes a request; it is over when this is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.place.busy.fetch_add(1, Ordering::Relaxed);
        self.note();
        Busy(Arc::clone(self))
    }

    fn note(&self) {
        let now = self.shared.now();
        self.place.active.store(now, Ordering::Relaxed);
    }

    /// When somebody else has got its place.
    pub(crate) async fn lost(&self) {
        self.place.lost.cancelled().await;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Self(connection) = self;
        connection.place.busy.fetch_sub(1, Ordering::Relaxed);
        connection.note();
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.shared.lock().remove(self.number);
    }
}

const MIN_PER_SOURCE: usize = 64;
/// Places for commands and those who watch.
const FOR_THIS_MACHINE: usize = 16;
/// The part of the places that strangers do not get.
const FOR_KNOWN: usize = 8;
/// The part of the connections in question that goes at once.
const AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn take(limit: &ConnectionLimit, address: &str) -> Result<OpenConnection, TooManyConnections> {
        limit.take(address.parse().unwrap())
    }

    fn take_all(limit: &ConnectionLimit, address: &str, count: usize) -> Vec<OpenConnection> {
        let taken = (0..count).map(|_| take(limit, address).unwrap());
        taken.collect()
    }

    fn lost(connections: &[OpenConnection]) -> usize {
        let lost = |one: &&OpenConnection| one.place.lost.is_cancelled();
        connections.iter().filter(lost).count()
    }

    fn known(connections: &[OpenConnection]) {
        for connection in connections {
            connection.is_known();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_source_leaves_connections_to_others() {
        let limit = ConnectionLimit::new(400, None);
        let held = take_all(&limit, "192.0.2.7", 100);
        let other = take(&limit, "192.0.2.8").unwrap();
        // The same address in its other spelling. Its own idle ones go.
        let more = take_all(&limit, "::ffff:192.0.2.7", 50);
        assert!(lost(&held) >= 50 && lost(&[other]) == 0);
        assert!(
            limit
                .shared
                .lock()
                .by_source
                .values()
                .all(|count| *count <= 100)
        );
        drop((held, more));
        assert!(limit.shared.lock().by_source.is_empty());
        assert_eq!(limit.shared.lock().strangers, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_whose_clients_are_all_known_gets_what_is_configured() {
        let limit = ConnectionLimit::new(400, Some(2));
        let held = take_all(&limit, "192.0.2.7", 2);
        known(&held);
        let told = take(&limit, "192.0.2.7").unwrap_err();
        assert_eq!(told, TooManyConnections::FromSource);
        drop(held);
        take(&limit, "192.0.2.7").unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_ipv6_host_is_its_network() {
        let limit = ConnectionLimit::new(256, None);
        let held: Vec<OpenConnection> = (0..64)
            .map(|host| take(&limit, &format!("2001:db8::{host:x}")).unwrap())
            .collect();
        let other = take(&limit, "2001:db8:0:1::1").unwrap();
        assert_eq!(lost(&held), 0);
        let more = take(&limit, "2001:db8::ffff").unwrap();
        assert!(lost(&held) > 0);
        assert_eq!(lost(&[other, more]), 0);
    }

    /// As many sources as it takes hold all that they can get.
    #[tokio::test(start_paused = true)]
    async fn idle_strangers_lock_nobody_out() {
        let limit = ConnectionLimit::new(6624, None);
        let mut idle = Vec::new();
        let agents = take_all(&limit, "198.51.100.1", 20);
        known(&agents);
        for source in 1..=4 {
            idle.extend(take_all(&limit, &format!("192.0.2.{source}"), 1656));
        }
        let admin = take(&limit, "127.0.0.1").unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let fresh = take(&limit, "203.0.113.9").unwrap();
        fresh.is_known();
        // And more of the same leaves them alone.
        for source in 1..=4 {
            idle.extend(take_all(&limit, &format!("192.0.2.{source}"), 1656));
        }
        assert_eq!(lost(&agents) + lost(&[admin, fresh]), 0);
        assert!(limit.shared.lock().places.len() <= 6624);
        let still = idle.len() - lost(&idle);
        assert!(still > 5000, "{still} keep their places");
    }

    #[tokio::test(start_paused = true)]
    async fn the_idlest_goes_first_and_who_asks_something_last() {
        let limit = ConnectionLimit::new(40, Some(40));
        let held: Vec<_> = take_all(&limit, "192.0.2.7", 25)
            .into_iter()
            .map(Arc::new)
            .collect();
        let lost = |held: &[Arc<OpenConnection>]| {
            let lost = held.iter().filter(|one| one.place.lost.is_cancelled());
            lost.count()
        };
        let asking = held[0].busy();
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(held[1].busy());
        let more = take(&limit, "192.0.2.8").unwrap();
        assert_eq!(lost(&held), 1);
        assert_eq!(lost(&held[..2]), 0);
        drop((asking, more));
    }

    #[tokio::test(start_paused = true)]
    async fn places_of_this_machine_stay_free_where_everybody_is_known() {
        let limit = ConnectionLimit::new(80, Some(80));
        let held = take_all(&limit, "192.0.2.7", 54);
        known(&held);
        let more = take_all(&limit, "192.0.2.8", 10);
        known(&more);
        let told = take(&limit, "192.0.2.9").unwrap_err();
        assert_eq!(told, TooManyConnections::InAll);
        let local = take_all(&limit, "::1", 16);
        assert_eq!(lost(&held) + lost(&more) + lost(&local), 0);
        assert_eq!(take(&limit, "::1").unwrap_err(), TooManyConnections::InAll);
    }
}
