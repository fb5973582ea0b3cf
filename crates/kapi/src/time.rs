//! Points in time as the API writes them (RFC 3339, UTC, whole seconds) and spans as people read them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
        let (year, month, day) = date_of(self.0.div_euclid(DAY));
        let second = self.0.rem_euclid(DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

impl FromStr for Time {
    type Err = TimeFault;

    /// Accepts fractions (dropped) and numeric offsets, as Go's decoder does.
    fn from_str(text: &str) -> Result<Self, TimeFault> {
        let mut cursor = Cursor(text.as_bytes());
        let year = cursor.number(4)?;
        cursor.literal(b'-')?;
        let month = cursor.number(2)?;
        cursor.literal(b'-')?;
        let day = cursor.number(2)?;
        cursor.literal(b'T')?;
        let hour = cursor.number(2)?;
        cursor.literal(b':')?;
        let minute = cursor.number(2)?;
        cursor.literal(b':')?;
        let second = cursor.number(2)?;
        cursor.fraction()?;
        let offset = cursor.offset()?;
        let real = (1..=12).contains(&month) && day >= 1 && day <= days_in(year, month);
        if !real || hour > 23 || minute > 59 || second > 59 || !cursor.0.is_empty() {
            return Err(TimeFault);
        }
        let local = days_of(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
        Self::from_unix(local - offset).ok_or(TimeFault)
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

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn number(&mut self, digits: usize) -> Result<i64, TimeFault> {
        let (head, rest) = self.0.split_at_checked(digits).ok_or(TimeFault)?;
        self.0 = rest;
        head.iter().try_fold(0, |sum, byte| match byte {
            b'0'..=b'9' => Ok(sum * 10 + i64::from(byte - b'0')),
            _ => Err(TimeFault),
        })
    }

    fn literal(&mut self, wanted: u8) -> Result<(), TimeFault> {
        match self.0.split_first() {
            Some((byte, rest)) if *byte == wanted => {
                self.0 = rest;
                Ok(())
            }
            _ => Err(TimeFault),
        }
    }

    fn fraction(&mut self) -> Result<(), TimeFault> {
        if self.literal(b'.').is_err() {
            return Ok(());
        }
        let digits = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.0 = self.0.get(digits..).unwrap_or_default();
        if digits == 0 { Err(TimeFault) } else { Ok(()) }
    }

    fn offset(&mut self) -> Result<i64, TimeFault> {
        if self.literal(b'Z').is_ok() {
            return Ok(0);
        }
        let sign = if self.literal(b'-').is_ok() {
            -1
        } else {
            self.literal(b'+')?;
            1
        };
        let hours = self.number(2)?;
        self.literal(b':')?;
        let minutes = self.number(2)?;
        if hours > 23 || minutes > 59 {
            Err(TimeFault)
        } else {
            Ok(sign * (hours * 3600 + minutes * 60))
        }
    }
}

/// Days since 1970-01-01 of a date of the Gregorian calendar, counted in eras of 400 years that begin in March.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH_SHIFT
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_SHIFT;
    let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let carry = i64::from(month <= 2);
    (
        year + era * 400 + carry,
        month,
        of_year - (153 * shifted + 2) / 5 + 1,
    )
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

const DAY: i64 = 86_400;
const YEAR_DAYS: i64 = 365;
const ERA_DAYS: i64 = 146_097;
const EPOCH_SHIFT: i64 = 719_468; // days from 0000-03-01 to 1970-01-01
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
