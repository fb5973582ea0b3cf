//! How many connections there may be, in all and from one place.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// The places at a listener.
#[derive(Debug)]
pub(crate) struct Seats {
    total: usize,
    per_source: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    source: IpAddr,
}

/// Why a connection gets no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSeat {
    /// All are taken.
    Full,
    /// One source has as many as it may.
    SourceFull,
}

impl Seats {
    /// Of `total` places one source gets `per_source`. Unless that is given, a quarter, but always enough for a small
    /// site: whole fleets come through one translated address.
    pub(crate) fn new(total: usize, per_source: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            total,
            per_source: per_source.unwrap_or((total / 4).max(MIN_PER_SOURCE)),
            taken: Mutex::default(),
        })
    }

    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Result<Seat, NoSeat> {
        let source = one_source(address);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.total {
            return Err(NoSeat::Full);
        }
        let own = taken.by_source.entry(source).or_default();
        if *own >= self.per_source {
            return Err(NoSeat::SourceFull);
        }
        *own += 1;
        taken.all += 1;
        Ok(Seat {
            seats: Arc::clone(self),
            source,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let taken = &self.seats.taken;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(1);
        if let Some(own) = taken.by_source.get_mut(&self.source) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.by_source.remove(&self.source);
            }
        }
    }
}

/// Who counts as one: an IPv4 address, or the /64 that any single IPv6 host has for itself.
pub(crate) fn one_source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

const MIN_PER_SOURCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn take(seats: &Arc<Seats>, address: &str) -> Result<Seat, NoSeat> {
        seats.take(address.parse().unwrap())
    }

    #[test]
    fn one_source_leaves_places_to_others() {
        let seats = Seats::new(400, None);
        let held: Vec<Seat> = (0..100)
            .map(|_| take(&seats, "192.0.2.7").unwrap())
            .collect();
        assert_eq!(take(&seats, "192.0.2.7").unwrap_err(), NoSeat::SourceFull);
        assert_eq!(
            take(&seats, "::ffff:192.0.2.7").unwrap_err(),
            NoSeat::SourceFull,
            "the same address in its other spelling"
        );
        take(&seats, "192.0.2.8").unwrap();
        drop(held);
        take(&seats, "192.0.2.7").unwrap();
        assert!(seats.taken.lock().unwrap().by_source.is_empty());
    }

    #[test]
    fn a_source_gets_what_is_configured() {
        let seats = Seats::new(400, Some(2));
        let held = [(); 2].map(|()| take(&seats, "192.0.2.7").unwrap());
        assert_eq!(take(&seats, "192.0.2.7").unwrap_err(), NoSeat::SourceFull);
        drop(held);
        take(&seats, "192.0.2.7").unwrap();
    }

    #[test]
    fn an_ipv6_host_is_its_network() {
        let seats = Seats::new(256, None);
        let held: Vec<Seat> = (0..64)
            .map(|host| take(&seats, &format!("2001:db8::{host:x}")).unwrap())
            .collect();
        assert_eq!(
            take(&seats, "2001:db8::ffff").unwrap_err(),
            NoSeat::SourceFull
        );
        take(&seats, "2001:db8:0:1::1").unwrap();
        drop(held);
    }

    #[test]
    fn all_places_bound_everybody_together() {
        let seats = Seats::new(65, None);
        let held: Vec<Seat> = (0..64)
            .map(|_| take(&seats, "192.0.2.7").unwrap())
            .collect();
        let last = take(&seats, "192.0.2.8").unwrap();
        assert_eq!(take(&seats, "192.0.2.9").unwrap_err(), NoSeat::Full);
        drop((held, last));
        take(&seats, "192.0.2.9").unwrap();
    }
}
