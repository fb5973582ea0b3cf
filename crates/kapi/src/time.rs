//! Points in time as the API writes them (RFC 3339, UTC, whole seconds) and spans as people read them.

use std::fmt;
use std::str::FromStr;

use countersign_pki::UnixTime;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::wire::{Field, Fields, WireFault, Writer};

/// Seconds since 1970 within the years 1 to 9999, the range that has an RFC 3339 text.
///
/// The API's zero time (JSON `null`, protobuf message of length zero) is `None` of an `Option<Time>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

/// Text that is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 time")]
pub struct TimeFault;

impl Time {
    /// The beginning of 1970.
    pub(crate) const EPOCH: Self = Self(0);

    /// The time of a Unix timestamp, if its year has four digits.
    #[must_use]
    pub fn from_unix(seconds: i64) -> Option<Self> {
        (MIN_SECONDS..=MAX_SECONDS)
            .contains(&seconds)
            .then_some(Self(seconds))
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn unix(self) -> i64 {
        self.0
    }

    /// Seconds from `earlier` to `self`.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        UnixTime(self.0).fmt(f)
    }
}

impl FromStr for Time {
    type Err = TimeFault;

    /// Accepts fractions (dropped) and numeric offsets, as Go's decoder does, and like it only capital letters.
    fn from_str(text: &str) -> Result<Self, TimeFault> {
        let is_strict = text.as_bytes().get(10) == Some(&b'T') && !text.ends_with('z');
        let read = UnixTime::parse_rfc3339(text).ok().filter(|_| is_strict);
        read.and_then(|time| Self::from_unix(time.0))
            .ok_or(TimeFault)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Reads a time field: `null` and Go's zero time (year 1) are both absent.
pub(crate) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Time>, D::Error> {
    Ok(Option::<Time>::deserialize(deserializer)?.filter(|time| time.0 != MIN_SECONDS))
}

/// A point in time to the microsecond, as leases and events have it (`metav1.MicroTime`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MicroTime {
    time: Time,
    micros: u32,
}

impl MicroTime {
    /// The second in which it lies.
    #[must_use]
    pub fn second(self) -> Time {
        self.time
    }

    /// From a protobuf message of seconds and nanoseconds; of length zero it is none.
    pub(crate) fn read(field: Field<'_>) -> Result<Option<Self>, WireFault> {
        let raw = field.bytes()?;
        if raw.is_empty() {
            return Ok(None);
        }
        let (mut seconds, mut nanos) = (0, 0);
        let mut fields = Fields::of(raw);
        while let Some(part) = fields.next()? {
            match part.number {
                1 => seconds = part.int64()?,
                2 => nanos = part.int32()?,
                _ => {}
            }
        }
        let time = Time::from_unix(seconds);
        let micros = u32::try_from(nanos).ok().map(|nanos| nanos / 1000);
        match (time, micros) {
            (Some(time), Some(micros)) if micros < MICROS => Ok(Some(Self { time, micros })),
            (_, _) => Err(WireFault::Range(field.number)),
        }
    }

    /// As that message.
    pub(crate) fn write(time: Option<Self>, writer: &mut Writer, number: u32) {
        writer.message(number, |writer| {
            if let Some(Self { time, micros }) = time {
                writer.int(1, time.unix());
                writer.int(2, i64::from(micros) * 1000);
            }
        });
    }
}

impl fmt::Display for MicroTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.time.to_string();
        let seconds = text.strip_suffix('Z').unwrap_or(&text);
        write!(f, "{seconds}.{:06}Z", self.micros)
    }
}

impl FromStr for MicroTime {
    type Err = TimeFault;

    /// Six digits behind the point, as Go's decoder wants them.
    fn from_str(text: &str) -> Result<Self, TimeFault> {
        let time = text.parse::<Time>()?;
        let behind = text.get(19..).and_then(|rest| rest.strip_prefix('.'));
        let digits = behind.and_then(|rest| rest.split(['Z', '+', '-']).next());
        let digits = digits.filter(|digits| digits.len() == 6);
        let micros = digits.and_then(|digits| digits.parse().ok());
        micros.map(|micros| Self { time, micros }).ok_or(TimeFault)
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MicroTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Reads a field of that kind: `null` and Go's zero time are both absent.
pub(crate) fn optional_micro<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<MicroTime>, D::Error> {
    let read = Option::<MicroTime>::deserialize(deserializer)?;
    Ok(read.filter(|time| time.time.0 != MIN_SECONDS))
}

/// How long ago that was, as tables say it.
pub(crate) fn age(then: Option<Time>, now: Time) -> String {
    then.map_or_else(
        || "<unknown>".to_owned(),
        |then| human_duration(now.seconds_since(then)),
    )
}

/// A span in the shape of kubectl's AGE column: two units at most, always truncated.
#[must_use]
pub fn human_duration(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    let two = |whole: i64, unit: char, rest: i64, small: char| {
        if rest == 0 {
            format!("{whole}{unit}")
        } else {
            format!("{whole}{unit}{rest}{small}")
        }
    };
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, 'd', hours % 24, 'h'),
        () if days < 2 * YEAR_DAYS => format!("{days}d"),
        () if days < 8 * YEAR_DAYS => two(days / YEAR_DAYS, 'y', days % YEAR_DAYS, 'd'),
        () => format!("{}y", days / YEAR_DAYS),
    }
}

const MICROS: u32 = 1_000_000;
const YEAR_DAYS: i64 = 365;
const MIN_SECONDS: i64 = -62_135_596_800; // 0001-01-01T00:00:00Z, Go's zero time
const MAX_SECONDS: i64 = 253_402_300_799; // 9999-12-31T23:59:59Z

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::epoch("1970-01-01T00:00:00Z", 0)]
    #[case::leap_day("2024-02-29T23:59:59Z", 1_709_251_199)]
    #[case::fraction("2026-08-20T10:00:00.999999999Z", 1_787_220_000)]
    #[case::east("2026-08-20T12:00:00+02:00", 1_787_220_000)]
    #[case::west("2026-08-20T04:30:00-05:30", 1_787_220_000)]
    #[case::before_epoch("1969-12-31T23:59:59Z", -1)]
    #[case::last("9999-12-31T23:59:59Z", MAX_SECONDS)]
    #[case::first("0001-01-01T00:00:00Z", MIN_SECONDS)]
    fn reads_rfc3339(#[case] text: &str, #[case] seconds: i64) {
        assert_eq!(text.parse::<Time>().unwrap().unix(), seconds);
    }

    #[test]
    fn writes_what_it_reads() {
        for seconds in (MIN_SECONDS..MAX_SECONDS).step_by(7_654_321_987).chain([
            0,
            -1,
            1_787_220_000,
            MAX_SECONDS,
        ]) {
            let time = Time::from_unix(seconds).unwrap();
            assert_eq!(time.to_string().parse::<Time>().unwrap(), time, "{time}");
        }
        assert_eq!(
            Time::from_unix(1_787_220_000).unwrap().to_string(),
            "2026-08-20T10:00:00Z"
        );
    }

    #[rstest]
    #[case::empty("")]
    #[case::no_zone("2026-08-20T10:00:00")]
    #[case::month_13("2026-13-20T10:00:00Z")]
    #[case::february_30("2026-02-30T10:00:00Z")]
    #[case::no_leap_year("2023-02-29T10:00:00Z")]
    #[case::leap_second("2026-08-20T10:00:60Z")]
    #[case::trailing("2026-08-20T10:00:00Zx")]
    #[case::bare_point("2026-08-20T10:00:00.Z")]
    #[case::letters("2026-aa-20T10:00:00Z")]
    #[case::year_10000_by_offset("9999-12-31T23:59:59-01:00")]
    #[case::small_letter_before_the_time("2026-08-20t10:00:00Z")]
    #[case::blank_before_the_time("2026-08-20 10:00:00Z")]
    #[case::small_letter_for_the_zone("2026-08-20T10:00:00z")]
    #[case::year_0("0000-12-31T23:59:59Z")]
    fn refuses(#[case] text: &str) {
        assert_eq!(text.parse::<Time>(), Err(TimeFault));
    }

    #[rstest]
    #[case(-2, "<invalid>")]
    #[case(-1, "0s")]
    #[case(0, "0s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(121, "2m1s")]
    #[case(599, "9m59s")]
    #[case(600, "10m")]
    #[case(659, "10m")]
    #[case(3 * 3600 - 1, "179m")]
    #[case(3 * 3600, "3h")]
    #[case(3 * 3600 + 60, "3h1m")]
    #[case(8 * 3600 - 1, "7h59m")]
    #[case(8 * 3600, "8h")]
    #[case(48 * 3600 - 1, "47h")]
    #[case(48 * 3600, "2d")]
    #[case(49 * 3600, "2d1h")]
    #[case(8 * 86_400 - 1, "7d23h")]
    #[case(8 * 86_400, "8d")]
    #[case(730 * 86_400 - 1, "729d")]
    #[case(730 * 86_400, "2y")]
    #[case(731 * 86_400, "2y1d")]
    #[case(8 * 365 * 86_400 - 1, "7y364d")]
    #[case(8 * 365 * 86_400, "8y")]
    #[case(9 * 365 * 86_400 - 1, "8y")]
    fn ages_read_as_kubectl_prints_them(#[case] seconds: i64, #[case] text: &str) {
        assert_eq!(human_duration(seconds), text);
    }
}
