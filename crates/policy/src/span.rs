//! Durations as people write them: a number and a unit.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration in whole seconds. A year is 365 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

impl Span {
    /// So many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// So many hours.
    pub const fn hours(hours: u64) -> Self {
        Self(hours * HOUR)
    }

    /// So many days.
    pub const fn days(days: u64) -> Self {
        Self(days * DAY)
    }

    /// So many years.
    pub const fn years(years: u64) -> Self {
        Self(years * YEAR)
    }

    /// Its length.
    pub const fn as_seconds(self) -> u64 {
        self.0
    }

    /// The same as a certificate's lifetime: not so short that it ends before it is fetched, and not longer than any
    /// authority before us allowed.
    pub fn as_lifetime(self) -> Result<Self, SpanFault> {
        match LIFETIMES.contains(&self.0) {
            true => Ok(self),
            false => Err(SpanFault::Lifetime { span: self }),
        }
    }
}

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanFault {
    /// Not a number and a unit.
    #[error(
        "{text:?} is not a duration: write a number and a unit, for example 5y, 90d, 12h, 30m or 45s"
    )]
    Form {
        /// What it says.
        text: String,
    },
    /// Beyond all measure.
    #[error("{text} is longer than 100y")]
    TooLong {
        /// What it says.
        text: String,
    },
    /// Too short or too long for a certificate.
    #[error(
        "{span} is no lifetime of a certificate: choose one between 10m and 50y, for example 5y or 90d"
    )]
    Lifetime {
        /// The duration.
        span: Span,
    },
}

impl FromStr for Span {
    type Err = SpanFault;

    fn from_str(text: &str) -> Result<Self, SpanFault> {
        let form = || SpanFault::Form {
            text: text.to_owned(),
        };
        let unit = text.chars().last().ok_or_else(form)?;
        let (_, seconds) = UNITS
            .iter()
            .find(|(letter, _)| *letter == unit)
            .ok_or_else(form)?;
        let digits = text.trim_end_matches(unit);
        let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !all_digits || digits.len() + 1 != text.len() {
            return Err(form());
        }
        let too_long = || SpanFault::TooLong {
            text: text.to_owned(),
        };
        let count: u64 = digits.parse().map_err(|_| too_long())?;
        let total = count
            .checked_mul(*seconds)
            .filter(|total| *total <= MAXIMUM);
        total.map(Self).ok_or_else(too_long)
    }
}

impl fmt::Display for Span {
    /// In the largest unit that leaves no rest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole =
            |(_, seconds): &&(char, u64)| self.0 >= *seconds && self.0.is_multiple_of(*seconds);
        match UNITS.iter().find(whole) {
            Some((letter, seconds)) => write!(f, "{}{letter}", self.0 / seconds),
            None => write!(f, "{}s", self.0),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as 90d")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;
/// Longer than any issuer lives; certificates end with their issuer anyway.
const MAXIMUM: u64 = 100 * YEAR;
/// From ten minutes to fifty years, the longest that an agent's settings can name.
const LIFETIMES: RangeInclusive<u64> = 10 * MINUTE..=50 * YEAR;
/// Largest first.
const UNITS: [(char, u64); 5] = [
    ('y', YEAR),
    ('d', DAY),
    ('h', HOUR),
    ('m', MINUTE),
    ('s', 1),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_shows_every_unit() {
        for (text, seconds) in [
            ("5y", 5 * YEAR),
            ("90d", 90 * DAY),
            ("12h", 12 * HOUR),
            ("30m", 1800),
            ("45s", 45),
            ("0s", 0),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(
                (span.as_seconds(), span.to_string()),
                (seconds, text.to_owned())
            );
        }
        assert_eq!("86400s".parse::<Span>().unwrap().to_string(), "1d");
        assert_eq!(Span::seconds(61).to_string(), "61s");
    }

    #[test]
    fn lifetimes_are_neither_nothing_nor_for_ever() {
        for (text, is_lifetime) in [
            ("0d", false),
            ("599s", false),
            ("10m", true),
            ("50y", true),
            ("51y", false),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.as_lifetime().is_ok(), is_lifetime, "{text}");
        }
    }

    #[test]
    fn refuses_other_forms() {
        for bad in [
            "", "5", "y", "5w", "5 y", "-5d", "5.5h", "5dd", "١d", "1h30m",
        ] {
            let fault = bad.parse::<Span>().unwrap_err();
            assert_eq!(
                fault,
                SpanFault::Form {
                    text: bad.to_owned()
                },
                "{bad}"
            );
        }
        for long in ["101y", "99999999999999999999s", "999999999999999999y"] {
            assert_eq!(
                long.parse::<Span>(),
                Err(SpanFault::TooLong {
                    text: long.to_owned()
                })
            );
        }
    }
}
