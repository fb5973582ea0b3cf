//! How often somebody may ask: rates per source and per certname, shared by all doors.
//!
//! A request is counted before it is examined, so that one over the limit costs no verification of a signature. Memory is
//! bounded whoever asks under however many names: when too many are known at once, those that were quiet longest are
//! forgotten, which lets them ask sooner, never later.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use countersign_pki::UnixTime;

use crate::seats::one_source;

/// How many certificate requests are taken in a minute; 0 stands for any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRates {
    /// From one source: an IPv4 address, or the /64 that any single IPv6 host has for itself.
    pub per_source: u32,
    /// Under one certname.
    pub per_certname: u32,
}

/// Counts certificate requests against [`RequestRates`]. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct RequestLimits {
    meters: Arc<ArcSwap<Meters>>,
}

#[derive(Debug)]
struct Meters {
    rates: RequestRates,
    sources: Option<Meter>,
    certnames: Option<Meter>,
}

/// A request that comes too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many certificate requests {scope}, try again in {retry_after} s")]
pub(crate) struct TooMany {
    pub(crate) scope: Scope,
    /// Seconds until one is taken again.
    pub(crate) retry_after: u32,
}

/// What has asked too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Source,
    Certname,
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Source => "from this address",
            Self::Certname => "for this certname",
        })
    }
}

impl RequestLimits {
    /// Begins to count; everybody has a whole minute's requests to begin with.
    pub fn new(rates: RequestRates) -> Self {
        Self {
            meters: Arc::new(ArcSwap::from_pointee(Meters::new(rates))),
        }
    }

    /// Counts against other rates from now on, anew for everybody. The same rates change nothing.
    pub fn set_rates(&self, rates: RequestRates) {
        if self.meters.load().rates != rates {
            self.meters.store(Arc::new(Meters::new(rates)));
        }
    }

    /// Counts a request from `source`, under `certname` if its door has the name before it examines the request. The
    /// source comes first: one that is over its own limit uses up nothing of a name's.
    pub(crate) fn admit(
        &self,
        source: IpAddr,
        certname: Option<&str>,
        now: UnixTime,
    ) -> Result<(), TooMany> {
        let over = |scope| move |retry_after| TooMany { scope, retry_after };
        let meters = self.meters.load();
        if let Some(sources) = &meters.sources {
            let network = one_source(source);
            sources.take(&network, now).map_err(over(Scope::Source))?;
        }
        if let (Some(certnames), Some(name)) = (&meters.certnames, certname) {
            certnames.take(name, now).map_err(over(Scope::Certname))?;
        }
        Ok(())
    }
}

impl Meters {
    fn new(rates: RequestRates) -> Self {
        Self {
            rates,
            sources: Meter::new(rates.per_source),
            certnames: Meter::new(rates.per_certname),
        }
    }
}

/// A token bucket for everybody who was seen lately.
#[derive(Debug)]
struct Meter {
    /// Per minute; never 0.
    rate: u64,
    /// Keyed at random: nobody can choose a name that shares another's bucket.
    hasher: RandomState,
    buckets: Mutex<Generations>,
}

impl Meter {
    fn new(rate: u32) -> Option<Self> {
        (rate > 0).then(|| Self {
            rate: u64::from(rate),
            hasher: RandomState::new(),
            buckets: Mutex::default(),
        })
    }

    /// Takes a token, or says in how many seconds there will be one.
    fn take<K: Hash + ?Sized>(&self, who: &K, now: UnixTime) -> Result<(), u32> {
        // A digest in place of the name keeps every entry the same small size.
        let key = self.hasher.hash_one(who);
        let full = self.rate.saturating_mul(TOKEN);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.remove(key).unwrap_or(Bucket {
            level: full,
            at: now,
        });
        let level = bucket.level_at(now, self.rate).min(full);
        let (level, taken) = match level.checked_sub(TOKEN) {
            Some(rest) => (rest, Ok(())),
            None => {
                let wait = TOKEN.saturating_sub(level).div_ceil(self.rate);
                (level, Err(u32::try_from(wait).unwrap_or(u32::MAX)))
            }
        };
        buckets.insert(key, Bucket { level, at: now }, now);
        taken
    }
}

/// What somebody has left, in sixtieths of a request: so many flow in each second as requests are allowed each minute.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    level: u64,
    at: UnixTime,
}

impl Bucket {
    /// A clock that was set back adds nothing, and counting goes on from there.
    fn level_at(&self, now: UnixTime, rate: u64) -> u64 {
        let elapsed = now.0.saturating_sub(self.at.0);
        let elapsed = u64::try_from(elapsed).unwrap_or(0);
        self.level.saturating_add(elapsed.saturating_mul(rate))
    }
}

/// Buckets in two generations. Whoever asks moves to the young one; when that is full, or a minute old, it becomes the
/// old one and the former old one is forgotten. After a quiet minute a bucket is full and says nothing any more, so
/// forgetting by age changes no answer.
#[derive(Debug)]
struct Generations {
    young: HashMap<u64, Bucket>,
    old: HashMap<u64, Bucket>,
    since: UnixTime,
}

impl Default for Generations {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            since: UnixTime(i64::MIN),
        }
    }
}

impl Generations {
    fn remove(&mut self, key: u64) -> Option<Bucket> {
        self.young.remove(&key).or_else(|| self.old.remove(&key))
    }

    fn insert(&mut self, key: u64, bucket: Bucket, now: UnixTime) {
        let age = now.0.saturating_sub(self.since.0);
        if age >= MINUTE || self.young.len() >= MAX_GENERATION {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
            self.since = now;
        } else if age < 0 {
            self.since = now;
        }
        self.young.insert(key, bucket);
    }
}

/// Seconds, and the parts that one request costs.
const MINUTE: i64 = 60;
const TOKEN: u64 = 60;
/// Buckets in a generation: under 4 MiB for both of a meter. A source at the standard rate needs five minutes to fill
/// one, and by then every bucket that it might push out is full again.
const MAX_GENERATION: usize = 32_768;

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_767_323_045;

    fn limits(per_source: u32, per_certname: u32) -> RequestLimits {
        RequestLimits::new(RequestRates {
            per_source,
            per_certname,
        })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn known(meter: &Option<Meter>) -> usize {
        let buckets = meter.as_ref().unwrap().buckets.lock().unwrap();
        buckets.young.len() + buckets.old.len()
    }

    #[test]
    fn a_minutes_worth_at_once_then_as_it_flows_in() {
        // Rate; then second, requests sent, how many of them pass, and how long the last that does not has to wait.
        type Step = (i64, u32, u32, u32);
        let rows: [(u32, &[Step]); 4] = [
            (
                30,
                &[
                    (0, 40, 30, 2),
                    (1, 1, 0, 1),
                    (2, 2, 1, 2),
                    (12, 9, 5, 2),
                    (600, 31, 30, 2),
                ],
            ),
            (
                6000,
                &[(0, 7000, 6000, 1), (1, 200, 100, 1), (61, 6001, 6000, 1)],
            ),
            (1, &[(0, 2, 1, 60), (59, 1, 0, 1), (60, 1, 1, 0)]),
            // Set back by an hour: no gift, and no waiting for the old time either.
            (60, &[(0, 60, 60, 0), (-3600, 1, 0, 1), (-3590, 11, 10, 1)]),
        ];
        for (rate, steps) in rows {
            let limits = limits(0, rate);
            for (second, sent, passed, wait) in steps {
                let now = UnixTime(START + second);
                let answers: Vec<Result<(), TooMany>> = (0..*sent)
                    .map(|_| limits.admit(address("192.0.2.7"), Some("web01"), now))
                    .collect();
                let through = answers.iter().filter(|answer| answer.is_ok()).count();
                assert_eq!(through, *passed as usize, "rate {rate}, second {second}");
                let last = answers.last().unwrap().err();
                let wait = (*wait > 0).then_some(TooMany {
                    scope: Scope::Certname,
                    retry_after: *wait,
                });
                assert_eq!(last, wait, "rate {rate}, second {second}");
            }
        }
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_an_ipv6_network() {
        let rows = [
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "::ffff:192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            // The same number in both families.
            ("0.0.0.7", "0:0:0:7::1", false),
        ];
        let now = UnixTime(START);
        for (one, other, same) in rows {
            let limits = limits(1, 0);
            limits.admit(address(one), None, now).unwrap();
            let second = limits.admit(address(other), None, now);
            assert_eq!(second.is_err(), same, "{one} {other}");
        }
    }

    #[test]
    fn zero_is_no_limit_and_names_do_not_share() {
        let now = UnixTime(START);
        let source = address("192.0.2.7");
        let unlimited = limits(0, 0);
        for _ in 0..100_000 {
            unlimited.admit(source, Some("web01"), now).unwrap();
        }
        let named = limits(0, 1);
        for name in ["web01", "web02"] {
            named.admit(source, Some(name), now).unwrap();
            named.admit(source, Some(name), now).unwrap_err();
        }
        named.admit(source, None, now).unwrap();
    }

    #[test]
    fn a_source_over_its_limit_uses_up_no_name() {
        let limits = limits(1, 2);
        let (loud, quiet) = (address("192.0.2.7"), address("192.0.2.8"));
        let now = UnixTime(START);
        limits.admit(loud, Some("web01"), now).unwrap();
        for _ in 0..10 {
            let told = limits.admit(loud, Some("web01"), now).unwrap_err();
            assert_eq!(told.scope, Scope::Source);
        }
        limits.admit(quiet, Some("web01"), now).unwrap();
    }

    #[test]
    fn ten_thousand_names_of_one_address_are_bounded_by_its_own_rate() {
        let limits = limits(6000, 30);
        let now = UnixTime(START);
        let passed = (0..10_000)
            .filter(|number| {
                let name = format!("host{number}");
                let answer = limits.admit(address("192.0.2.7"), Some(&name), now);
                answer.is_ok()
            })
            .count();
        assert_eq!(passed, 6000);
        assert_eq!(known(&limits.meters.load().sources), 1);
        assert_eq!(known(&limits.meters.load().certnames), 6000);
    }

    #[test]
    fn memory_is_bounded_and_whoever_asks_stays_known() {
        let limits = limits(0, 1);
        let now = UnixTime(START);
        let source = address("192.0.2.7");
        limits.admit(source, Some("busy"), now).unwrap();
        for number in 0..MAX_GENERATION * 4 {
            let name = format!("host{number}");
            limits.admit(source, Some(&name), now).unwrap();
            if number % 1000 == 0 {
                limits.admit(source, Some("busy"), now).unwrap_err();
            }
            assert!(known(&limits.meters.load().certnames) <= 2 * MAX_GENERATION);
        }
    }

    #[test]
    fn other_rates_count_anew_and_the_same_go_on() {
        let limits = limits(0, 1);
        let clone = limits.clone();
        let now = UnixTime(START);
        let ask = || limits.admit(address("192.0.2.7"), Some("web01"), now);
        ask().unwrap();
        let rates = |per_certname| RequestRates {
            per_source: 0,
            per_certname,
        };
        clone.set_rates(rates(1));
        ask().unwrap_err();
        clone.set_rates(rates(2));
        ask().unwrap();
        ask().unwrap();
        ask().unwrap_err();
        clone.set_rates(rates(0));
        ask().unwrap();
    }

    #[test]
    fn what_was_quiet_for_two_minutes_takes_no_room() {
        let limits = limits(0, 30);
        let source = address("192.0.2.7");
        for number in 0..100 {
            let name = format!("host{number}");
            limits.admit(source, Some(&name), UnixTime(START)).unwrap();
        }
        for minute in 1..=2 {
            let now = UnixTime(START + minute * MINUTE);
            limits.admit(source, Some("web01"), now).unwrap();
        }
        assert_eq!(known(&limits.meters.load().certnames), 1);
    }
}
