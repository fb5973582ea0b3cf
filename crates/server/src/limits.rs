//! How often somebody may ask: rates per source and per certname, and of wrong enrolment tokens, shared by all doors.
//!
//! A request is counted before it is examined, so that one over the limit costs no verification of a signature; only a
//! name over its limit is given up after a look at the token that came with the request. Memory is bounded whoever asks
//! under however many names: when too many are known at once, those that were quiet longest are forgotten, which lets
//! them ask sooner, never later.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use countersign_authority::CarriedToken;
use countersign_pki::UnixTime;
use countersign_policy::one_source;

/// How many certificate requests are taken; 0 stands for any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRates {
    /// In a minute from one source: an IPv4 address, or the /64 that any single IPv6 host has for itself.
    pub per_source: u32,
    /// In a minute under one certname. One with a good enrolment token does not count.
    pub per_certname: u32,
    /// Wrong tokens in ten minutes, from one source with one token's id; what is no token, from one source. Ten times as
    /// many from one source with whatever ids.
    pub token_failures: u32,
}

impl RequestRates {
    /// As they are where nobody says otherwise.
    pub const STANDARD: Self = Self {
        per_source: 6000,
        per_certname: 30,
        token_failures: 10,
    };
}

/// Counts certificate requests against [`RequestRates`]. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct RequestLimits {
    meters: Arc<ArcSwap<Meters>>,
}

#[derive(Debug)]
struct Meters {
    rates: RequestRates,
    sources: Meter,
    certnames: Meter,
    token_failures: Meter,
    /// With whatever ids: who makes them up uses each once.
    token_failures_in_all: Meter,
}

/// A request that comes too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many {scope}, try again in {retry_after} s")]
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
    Token,
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Source => "certificate requests from this address",
            Self::Certname => "certificate requests for this certname",
            // Says nothing about which token it was, or whether there is one.
            Self::Token => "wrong enrolment tokens from this address",
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
        let taken = meters.sources.take(&one_source(source), now);
        taken.map_err(over(Scope::Source))?;
        let taken = certname.map_or(Ok(()), |name| meters.certnames.take(name, now));
        taken.map_err(over(Scope::Certname))
    }

    /// Gives back what a request took of its name's budget: its token was good, and such requests do not count.
    pub(crate) fn forgive(&self, certname: &str, now: UnixTime) {
        self.meters.load().certnames.give_back(certname, now);
    }

    /// Whether a token from `source` is judged like any other. It counts only when it turns out to be wrong
    /// ([`RequestLimits::token_failed`]): the same host may ask for the same outcome as often as it likes. Once this is
    /// refused, only the right secret helps: the public part is no secret, and behind one address there are many hosts.
    pub(crate) fn admit_token(
        &self,
        source: IpAddr,
        carried: &CarriedToken,
        now: UnixTime,
    ) -> Result<(), TooMany> {
        let meters = self.meters.load();
        let Some(key) = token_key(carried) else {
            return Ok(());
        };
        let network = one_source(source);
        let of_id = meters.token_failures.look(&(network, key), now);
        let in_all = meters.token_failures_in_all.look(&network, now);
        of_id.and(in_all).map_err(|retry_after| TooMany {
            scope: Scope::Token,
            retry_after,
        })
    }

    /// Counts a wrong token from `source`.
    pub(crate) fn token_failed(&self, source: IpAddr, carried: &CarriedToken, now: UnixTime) {
        let meters = self.meters.load();
        let Some(key) = token_key(carried) else {
            return;
        };
        let network = one_source(source);
        // Several at once may have been let through; the last of them finds nothing left to take.
        let _taken = meters.token_failures.take(&(network, key), now);
        let _taken = meters.token_failures_in_all.take(&network, now);
    }
}

/// What wrong tokens are counted under, beside their source: one host with an old token must not stop its neighbours behind
/// the same address. `None`: there is no token to be wrong.
fn token_key(carried: &CarriedToken) -> Option<Option<&str>> {
    match carried {
        CarriedToken::None => None,
        CarriedToken::Id(id) => Some(Some(id.as_str())),
        CarriedToken::Bootstrap(id) => Some(Some(id.as_str())),
        CarriedToken::Other => Some(None),
    }
}

impl Meters {
    fn new(rates: RequestRates) -> Self {
        Self {
            rates,
            sources: Meter::new(rates.per_source, MINUTE),
            certnames: Meter::new(rates.per_certname, MINUTE),
            token_failures: Meter::new(rates.token_failures, TEN_MINUTES),
            token_failures_in_all: Meter::new(
                rates.token_failures.saturating_mul(IDS_OF_A_SOURCE),
                TEN_MINUTES,
            ),
        }
    }
}

/// A token bucket for everybody who was seen lately.
#[derive(Debug)]
struct Meter {
    /// Per period; 0: without a limit, and nobody is known.
    rate: u64,
    /// In seconds, and the parts that one request costs: so many flow in each second as requests are allowed each period.
    period: u64,
    /// Keyed at random: nobody can choose a name that shares another's bucket.
    hasher: RandomState,
    buckets: Mutex<Generations>,
}

impl Meter {
    fn new(rate: u32, period: u64) -> Self {
        Self {
            rate: u64::from(rate),
            period,
            hasher: RandomState::new(),
            buckets: Mutex::default(),
        }
    }

    /// Takes a request's worth, or says in how many seconds there will be one.
    fn take<K: Hash + ?Sized>(&self, who: &K, now: UnixTime) -> Result<(), u32> {
        let changed = self.change(who, now, |level| {
            let rest = level.checked_sub(self.period);
            let taken = rest.map(|_| ()).ok_or_else(|| self.wait(level));
            (rest.unwrap_or(level), taken)
        });
        changed.unwrap_or(Ok(()))
    }

    /// Whether there is a request's worth, or in how many seconds there will be.
    fn look<K: Hash + ?Sized>(&self, who: &K, now: UnixTime) -> Result<(), u32> {
        let key = self.hasher.hash_one(who);
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        match buckets.get(key).map(|bucket| self.level(bucket, now)) {
            Some(level) if level < self.period => Err(self.wait(level)),
            Some(_) | None => Ok(()),
        }
    }

    fn give_back<K: Hash + ?Sized>(&self, who: &K, now: UnixTime) {
        self.change(who, now, |level| {
            let level = level.saturating_add(self.period).min(self.full());
            (level, ())
        });
    }

    fn change<K: Hash + ?Sized, T>(
        &self,
        who: &K,
        now: UnixTime,
        change: impl FnOnce(u64) -> (u64, T),
    ) -> Option<T> {
        if self.rate == 0 {
            return None;
        }
        // A digest in place of the name keeps every entry the same small size.
        let key = self.hasher.hash_one(who);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let known = buckets.remove(key);
        let level = known.map_or(self.full(), |bucket| self.level(&bucket, now));
        let (level, outcome) = change(level);
        buckets.insert(key, Bucket { level, at: now }, now, self.period);
        Some(outcome)
    }

    fn full(&self) -> u64 {
        self.rate.saturating_mul(self.period)
    }

    /// A clock that was set back adds nothing, and counting goes on from there.
    fn level(&self, bucket: &Bucket, now: UnixTime) -> u64 {
        let elapsed = now.0.saturating_sub(bucket.at.0);
        let elapsed = u64::try_from(elapsed).unwrap_or(0);
        let flown = elapsed.saturating_mul(self.rate);
        bucket.level.saturating_add(flown).min(self.full())
    }

    fn wait(&self, level: u64) -> u32 {
        let missing = self.period.saturating_sub(level).div_ceil(self.rate);
        u32::try_from(missing).unwrap_or(u32::MAX)
    }
}

/// What somebody has left, in parts of a request.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    level: u64,
    at: UnixTime,
}

/// Buckets in two generations. Whoever asks moves to the young one; when that is full, or a period old, it becomes the
/// old one and the former old one is forgotten. After a quiet period a bucket is full and says nothing any more, so
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
    fn get(&self, key: u64) -> Option<&Bucket> {
        self.young.get(&key).or_else(|| self.old.get(&key))
    }

    fn remove(&mut self, key: u64) -> Option<Bucket> {
        self.young.remove(&key).or_else(|| self.old.remove(&key))
    }

    fn insert(&mut self, key: u64, bucket: Bucket, now: UnixTime, period: u64) {
        let age = now.0.saturating_sub(self.since.0);
        let is_over = u64::try_from(age).is_ok_and(|age| age >= period);
        if is_over || self.young.len() >= MAX_GENERATION {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
            self.since = now;
        } else if age < 0 {
            self.since = now;
        }
        self.young.insert(key, bucket);
    }
}

/// Seconds.
const MINUTE: u64 = 60;
const TEN_MINUTES: u64 = 600;
/// How many ids a source may use up its failures with: behind one address there are many hosts.
const IDS_OF_A_SOURCE: u32 = 10;
/// Buckets in a generation: under 4 MiB for both of a meter. A source at the standard rate needs five minutes to fill
/// one, and by then every bucket that it might push out is full again.
const MAX_GENERATION: usize = 32_768;

#[cfg(test)]
mod tests {
    use countersign_authority::{BootstrapText, TokenId};

    use super::*;

    const START: i64 = 1_767_323_045;

    fn limits(per_source: u32, per_certname: u32) -> RequestLimits {
        RequestLimits::new(RequestRates {
            per_source,
            per_certname,
            token_failures: 0,
        })
    }

    fn token_limits(token_failures: u32) -> RequestLimits {
        RequestLimits::new(RequestRates {
            per_source: 0,
            per_certname: 0,
            token_failures,
        })
    }

    fn id(text: &str) -> CarriedToken {
        CarriedToken::Id(TokenId::parse(text).unwrap())
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn known(meter: &Meter) -> usize {
        let buckets = meter.buckets.lock().unwrap();
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
            token_failures: 0,
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
            let now = UnixTime(START + minute * 60);
            limits.admit(source, Some("web01"), now).unwrap();
        }
        assert_eq!(known(&limits.meters.load().certnames), 1);
    }

    #[test]
    fn wrong_tokens_are_counted_by_source_and_id_and_good_ones_are_not() {
        let limits = token_limits(10);
        let (here, there) = (address("192.0.2.7"), address("192.0.2.8"));
        let (one, other) = (id("aaaqeayeaudaocaj"), id("baaqeayeaudaocaj"));
        let now = UnixTime(START);
        for _ in 0..1000 {
            limits.admit_token(here, &one, now).unwrap();
        }
        for _ in 0..10 {
            limits.admit_token(here, &one, now).unwrap();
            limits.token_failed(here, &one, now);
        }
        let told = limits.admit_token(here, &one, now).unwrap_err();
        assert_eq!((told.scope, told.retry_after), (Scope::Token, 60));
        for (source, carried) in [
            (here, &other),
            (there, &one),
            (here, &CarriedToken::Other),
            (here, &CarriedToken::None),
        ] {
            limits.admit_token(source, carried, now).unwrap();
        }
        // More that were under way change nothing.
        limits.token_failed(here, &one, now);
        for (second, passes) in [(59, false), (60, true), (600, true)] {
            let then = UnixTime(START + second);
            let answer = limits.admit_token(here, &one, then);
            assert_eq!(answer.is_ok(), passes, "{second}");
        }
        // What is no token is counted together, and what has none is not counted.
        for _ in 0..20 {
            limits.token_failed(here, &CarriedToken::Other, now);
            limits.token_failed(here, &CarriedToken::None, now);
        }
        let other = CarriedToken::Other;
        limits.admit_token(here, &other, now).unwrap_err();
        limits.admit_token(there, &other, now).unwrap();
        limits.admit_token(here, &CarriedToken::None, now).unwrap();
        let unlimited = token_limits(0);
        for _ in 0..1000 {
            unlimited.token_failed(here, &one, now);
            unlimited.admit_token(here, &one, now).unwrap();
        }
    }

    /// Whoever makes ids up is slowed down although no id is tried twice.
    #[test]
    fn wrong_tokens_are_counted_by_source_whatever_their_ids() {
        let bootstrap = |number: usize| {
            let text = format!("{number:06}.0123456789abcdef");
            let token = BootstrapText::parse(&text).unwrap();
            CarriedToken::Bootstrap(token.id().clone())
        };
        let limits = token_limits(10);
        let (here, there) = (address("192.0.2.7"), address("192.0.2.8"));
        let now = UnixTime(START);
        for number in 0..100 {
            let carried = bootstrap(number);
            limits.admit_token(here, &carried, now).unwrap();
            limits.token_failed(here, &carried, now);
        }
        for carried in [bootstrap(100), id("aaaqeayeaudaocaj"), CarriedToken::Other] {
            let told = limits.admit_token(here, &carried, now).unwrap_err();
            assert_eq!((told.scope, told.retry_after), (Scope::Token, 6));
            limits.admit_token(there, &carried, now).unwrap();
        }
        limits.admit_token(here, &CarriedToken::None, now).unwrap();
        let then = UnixTime(START + 6);
        limits.admit_token(here, &bootstrap(100), then).unwrap();
    }

    #[test]
    fn memory_for_wrong_tokens_is_bounded() {
        let limits = token_limits(1);
        let now = UnixTime(START);
        let source = address("192.0.2.7");
        let alphabet: Vec<char> = ('a'..='z').collect();
        for number in 0..MAX_GENERATION * 3 {
            let mut rest = number;
            let digits: String = (0..4)
                .map(|_| {
                    let digit = alphabet[rest % 26];
                    rest /= 26;
                    digit
                })
                .collect();
            limits.token_failed(source, &id(&format!("{digits}aaaaaaaaaaaa")), now);
            assert!(known(&limits.meters.load().token_failures) <= 2 * MAX_GENERATION);
        }
    }

    #[test]
    fn what_is_forgiven_was_never_taken() {
        let limits = limits(0, 2);
        let now = UnixTime(START);
        let ask = || limits.admit(address("192.0.2.7"), Some("web01"), now);
        for _ in 0..100 {
            ask().unwrap();
            limits.forgive("web01", now);
        }
        // No more than was there comes of it.
        limits.forgive("web01", now);
        ask().unwrap();
        ask().unwrap();
        ask().unwrap_err();
    }
}
