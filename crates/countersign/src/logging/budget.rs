//! How much others can cause to be logged.
//!
//! Lines are counted by the place in the program that writes them, so that a flood of one kind hides no other. A line that
//! names its `source` is about somebody who need not be known: each source may cause some of a kind, and all of them
//! together a few more. A warning or an error without one may be caused by whoever calls, too. What is not written is
//! counted, and told from time to time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_policy::one_source;
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};

/// Counts lines. The level `debug` is for whoever wants to see everything, and is not counted.
#[derive(Debug)]
pub(super) struct Budget {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sources: HashMap<(Identifier, IpAddr), Bucket>,
    /// When sources that were quiet since were last forgotten.
    forgotten: Option<Instant>,
    places: HashMap<Identifier, Bucket>,
    /// Since it was told last.
    suppressed: Suppressed,
}

/// Lines that were not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Suppressed {
    pub(super) count: u64,
    /// Who was told about last in one of them.
    pub(super) source: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u64,
    at: Instant,
}

#[derive(Clone, Copy)]
struct Rate {
    at_once: u64,
    per_second: u64,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                sources: HashMap::new(),
                forgotten: None,
                places: HashMap::new(),
                suppressed: Suppressed::default(),
            }),
        }
    }

    /// Whether a line may be written; if not, it is counted.
    pub(super) fn admits(&self, line: &Metadata<'_>, source: Option<IpAddr>, now: Instant) -> bool {
        let level = *line.level();
        if level > Level::INFO || (source.is_none() && level > Level::WARN) {
            return true;
        }
        let mut state = self.lock();
        let is_admitted = match source {
            Some(source) => state.admits_source(line.callsite(), one_source(source), now),
            None => state.admits_place(line.callsite(), PLACE, now),
        };
        if !is_admitted {
            state.suppressed.count = state.suppressed.count.saturating_add(1);
            state.suppressed.source = source.or(state.suppressed.source);
        }
        is_admitted
    }

    /// What was not written since this was asked last.
    pub(super) fn suppressed(&self) -> Option<Suppressed> {
        let suppressed = std::mem::take(&mut self.lock().suppressed);
        (suppressed.count > 0).then_some(suppressed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The source comes first: one that is over its own bound uses up nothing of the others'.
    fn admits_source(&mut self, place: Identifier, source: IpAddr, now: Instant) -> bool {
        let key = (place.clone(), source);
        let mut has_room = self.sources.len() < MAX_SOURCES || self.sources.contains_key(&key);
        // A look at all of them is dear, and nobody is quiet long enough before a second has passed.
        if !has_room && self.forgotten.is_none_or(|then| now >= then + FORGETTING) {
            self.forgotten = Some(now);
            self.sources
                .retain(|_, bucket| !bucket.is_full(SOURCE, now));
            has_room = self.sources.len() < MAX_SOURCES;
        }
        // Where too many are known at once, the bound of all of them has to do.
        let of_source = !has_room || {
            let full = Bucket::full(SOURCE, now);
            self.sources.entry(key).or_insert(full).take(SOURCE, now)
        };
        of_source && self.admits_place(place, ALL, now)
    }

    fn admits_place(&mut self, place: Identifier, rate: Rate, now: Instant) -> bool {
        let full = Bucket::full(rate, now);
        self.places.entry(place).or_insert(full).take(rate, now)
    }
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self {
            left: rate.at_once,
            at: now,
        }
    }

    fn take(&mut self, rate: Rate, now: Instant) -> bool {
        let earned = self.earned(rate, now);
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(rate.at_once);
            self.at = now;
        }
        let rest = self.left.checked_sub(1);
        self.left = rest.unwrap_or(0);
        rest.is_some()
    }

    fn is_full(&self, rate: Rate, now: Instant) -> bool {
        self.left.saturating_add(self.earned(rate, now)) >= rate.at_once
    }

    fn earned(&self, rate: Rate, now: Instant) -> u64 {
        let whole = now.saturating_duration_since(self.at).as_secs();
        whole.saturating_mul(rate.per_second)
    }
}

/// How often it is told what was not written.
pub(crate) const TOLD_EVERY: Duration = Duration::from_secs(10);
/// Lines of a kind about one source.
const SOURCE: Rate = Rate {
    at_once: 100,
    per_second: 1,
};
/// Lines of a kind about all of them: some hundred megabytes a day where somebody does nothing but ask.
const ALL: Rate = Rate {
    at_once: 1000,
    per_second: 10,
};
/// Warnings and errors of a kind that name no source.
const PLACE: Rate = Rate {
    at_once: 100,
    per_second: 1,
};
const FORGETTING: Duration = Duration::from_secs(1);
/// Bounds memory.
const MAX_SOURCES: usize = 4096;

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use tracing::Callsite;
    use tracing::callsite::DefaultCallsite;

    use super::*;

    fn place(number: usize) -> Identifier {
        static PLACES: [DefaultCallsite; 2] =
            [DefaultCallsite::new(&META), DefaultCallsite::new(&META)];
        static META: Metadata<'static> = tracing::metadata! {
            name: "a line",
            target: "here",
            level: Level::INFO,
            fields: &["source"],
            callsite: &PLACES[0],
            kind: tracing::metadata::Kind::EVENT,
        };
        let _of_one_kind = PLACES[number].metadata();
        Identifier(&PLACES[number])
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_source_is_bounded_and_hides_neither_others_nor_other_lines() {
        let now = Instant::now();
        let budget = Budget::new();
        let mut state = budget.lock();
        let loud = ip("192.0.2.7");
        let written = (0..10_000).filter(|_| state.admits_source(place(0), loud, now));
        assert_eq!(written.count(), 100);
        assert!(state.admits_source(place(0), ip("192.0.2.8"), now));
        assert!(state.admits_source(place(1), loud, now));
        let later = now + Duration::from_secs(5);
        let written = (0..10_000).filter(|_| state.admits_source(place(0), loud, later));
        assert_eq!(written.count(), 5);
    }

    #[test]
    fn sources_without_number_are_bounded_in_lines_and_in_memory() {
        let now = Instant::now();
        let budget = Budget::new();
        let mut state = budget.lock();
        let source = |number: u128| IpAddr::V6(Ipv6Addr::from(number << 64));
        let numbers = 0..100_000u128;
        let written = numbers.filter(|one| state.admits_source(place(0), source(*one), now));
        assert_eq!(written.count(), 1000);
        assert!(state.sources.len() <= MAX_SOURCES);
        assert_eq!(one_source(ip("2001:db8::1")), one_source(ip("2001:db8::2")));
    }
}
