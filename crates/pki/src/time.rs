//! Points in time as seconds; callers bring the clock.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Seconds since 1970-01-01T00:00:00Z, leap seconds not counted.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnixTime(pub i64);

impl UnixTime {
    /// The last second that a certificate can carry, which RFC 5280 4.1.2.5 also uses for "no well-defined end".
    pub const MAX_X509: UnixTime = UnixTime(253_402_300_799);

    /// This many seconds later, stopping at the largest representable time.
    #[must_use]
    pub fn plus_seconds(self, seconds: u64) -> Self {
        UnixTime(self.0.saturating_add_unsigned(seconds))
    }

    /// This many seconds earlier, stopping at the smallest representable time.
    #[must_use]
    pub fn minus_seconds(self, seconds: u64) -> Self {
        UnixTime(self.0.saturating_sub_unsigned(seconds))
    }

    /// Seconds from `earlier` to this time; negative if `earlier` is later.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads RFC 3339: a fraction of a second is dropped, an offset is applied.
    ///
    /// # Errors
    /// If the text is not a date and time of the years 0000 to 9999.
    pub fn parse_rfc3339(text: &str) -> Result<Self, TimeFault> {
        parse_rfc3339(text.as_bytes()).ok_or(TimeFault::NotRfc3339)
    }

    /// The calendar fields in UTC.
    pub(crate) fn civil(self) -> Civil {
        // The calendar repeats itself every 400 years: those after 1970 stand for years that jiff does not know.
        let at = Timestamp::from_second(self.0.rem_euclid(FOUR_CENTURIES)).unwrap_or_default();
        let at = Offset::UTC.to_datetime(at);
        let centuries = self.0.div_euclid(FOUR_CENTURIES).saturating_mul(400);
        Civil {
            year: i64::from(at.year()).saturating_add(centuries),
            month: at.month().into(),
            day: at.day().into(),
            hour: at.hour().into(),
            minute: at.minute().into(),
            second: at.second().into(),
        }
    }
}

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = self.civil();
        if let Some(text) = c.text() {
            return f.write_str(std::str::from_utf8(&text).unwrap_or_default());
        }
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
            c.year, c.month, c.day, c.hour, c.minute, c.second
        )
    }
}

/// Why a text or an encoded time was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeFault {
    /// Not of the form `2026-01-02T03:04:05Z`.
    #[error("time is not in RFC 3339 form")]
    NotRfc3339,
}

/// Calendar fields of one second, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

impl Civil {
    /// `2026-01-02T03:04:05Z`, for years of four digits.
    fn text(self) -> Option<[u8; 20]> {
        let mut text = *b"0000-00-00T00:00:00Z";
        for (end, digits, value) in [
            (4, 4, self.year),
            (7, 2, self.month),
            (10, 2, self.day),
            (13, 2, self.hour),
            (16, 2, self.minute),
            (19, 2, self.second),
        ] {
            let mut rest = u32::try_from(value).ok()?;
            for place in text.iter_mut().take(end).rev().take(digits) {
                *place = place.saturating_add(u8::try_from(rest % 10).ok()?);
                rest /= 10;
            }
            if rest > 0 {
                return None;
            }
        }
        Some(text)
    }

    /// The second these fields name, or nothing if one is out of its range.
    pub(crate) fn to_unix(self) -> Option<UnixTime> {
        if !(0..=9999).contains(&self.year) {
            return None;
        }
        let year = self.year.try_into().ok()?;
        let [month, day, hour, minute, second] =
            [self.month, self.day, self.hour, self.minute, self.second].map(i8::try_from);
        let at = DateTime::new(
            year,
            month.ok()?,
            day.ok()?,
            hour.ok()?,
            minute.ok()?,
            second.ok()?,
            0,
        );
        Some(UnixTime(at.ok()?.duration_since(EPOCH).as_secs()))
    }
}

/// The value of an all-digit text; nothing for an empty one or any other character.
pub(crate) fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 9 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn parse_rfc3339(text: &[u8]) -> Option<UnixTime> {
    let (date_time, rest) = text.split_at_checked(19)?;
    let punctuation = [(4, b"-"), (7, b"-"), (13, b":"), (16, b":")];
    if !punctuation
        .iter()
        .all(|(at, mark)| date_time.get(*at) == mark.first())
        || !matches!(date_time.get(10), Some(b'T' | b't' | b' '))
    {
        return None;
    }
    let civil = Civil {
        year: digits(date_time.get(0..4)?)?,
        month: digits(date_time.get(5..7)?)?,
        day: digits(date_time.get(8..10)?)?,
        hour: digits(date_time.get(11..13)?)?,
        minute: digits(date_time.get(14..16)?)?,
        second: digits(date_time.get(17..19)?)?,
    };
    let zone = match rest.strip_prefix(b".") {
        Some(fraction) => {
            let len = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
            if len == 0 {
                return None;
            }
            fraction.get(len..)?
        }
        None => rest,
    };
    let offset = match zone {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let hours = digits(&[*h1, *h2])?;
            let minutes = digits(&[*m1, *m2])?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = hours
                .checked_mul(3600)?
                .checked_add(minutes.checked_mul(60)?)?;
            if *sign == b'+' {
                seconds
            } else {
                seconds.checked_neg()?
            }
        }
        _ => return None,
    };
    Some(UnixTime(civil.to_unix()?.0.saturating_sub(offset)))
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
const FOUR_CENTURIES: i64 = 146_097 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, "1970-01-01T00:00:00Z")]
    #[case(1_767_323_045, "2026-01-02T03:04:05Z")]
    #[case(951_782_400, "2000-02-29T00:00:00Z")]
    #[case(-1, "1969-12-31T23:59:59Z")]
    #[case(253_402_300_799, "9999-12-31T23:59:59Z")]
    fn shows_and_reads_known_dates(#[case] seconds: i64, #[case] text: &str) {
        assert_eq!(UnixTime(seconds).to_string(), text);
        assert_eq!(UnixTime::parse_rfc3339(text), Ok(UnixTime(seconds)));
    }

    #[rstest]
    #[case("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z")]
    #[case("2026-01-02T03:04:05.999-00:30", "2026-01-02T03:34:05Z")]
    #[case("2026-01-02t03:04:05z", "2026-01-02T03:04:05Z")]
    fn applies_offsets_and_drops_fractions(#[case] text: &str, #[case] utc: &str) {
        assert_eq!(UnixTime::parse_rfc3339(text).unwrap().to_string(), utc);
    }

    #[rstest]
    #[case("")]
    #[case("2026-01-02")]
    #[case("2026-01-02T03:04:05")]
    #[case("2026-02-29T00:00:00Z")]
    #[case("2026-13-01T00:00:00Z")]
    #[case("2026-01-02T24:00:00Z")]
    #[case("2026-01-02T03:04:05.Z")]
    #[case("2026-01-02T03:04:05+2:00")]
    #[case("2026-01-02T03:04:05ZZ")]
    #[case("+026-01-02T03:04:05Z")]
    fn refuses_other_texts(#[case] text: &str) {
        assert_eq!(UnixTime::parse_rfc3339(text), Err(TimeFault::NotRfc3339));
    }

    #[rstest]
    #[case(253_402_300_800, "10000-01-01T00:00:00Z")]
    #[case(-62_167_219_200, "0000-01-01T00:00:00Z")]
    #[case(-62_167_219_201, "-001-12-31T23:59:59Z")]
    fn shows_years_of_other_lengths(#[case] seconds: i64, #[case] text: &str) {
        assert_eq!(UnixTime(seconds).to_string(), text);
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        for time in [UnixTime(i64::MAX), UnixTime(i64::MIN)] {
            assert!(!time.to_string().is_empty());
            assert_eq!(time.plus_seconds(0), time);
        }
        assert_eq!(UnixTime(i64::MAX).plus_seconds(1), UnixTime(i64::MAX));
    }

    proptest! {
        #[test]
        fn text_round_trips(seconds in -62_167_219_200_i64..=253_402_300_799) {
            let time = UnixTime(seconds);
            prop_assert_eq!(UnixTime::parse_rfc3339(&time.to_string()), Ok(time));
            prop_assert_eq!(time.civil().to_unix(), Some(time));
        }

        /// Out of fields that a peer chose, only dates of the calendar become times.
        #[test]
        fn fields_are_a_time_only_within_their_ranges(
            year in -1_i64..=10_000, month in -1_i64..=14, day in -1_i64..=33,
            hour in -1_i64..=25, minute in -1_i64..=61, second in -1_i64..=61,
        ) {
            let civil = Civil { year, month, day, hour, minute, second };
            if let Some(time) = civil.to_unix() {
                prop_assert_eq!(time.civil(), civil);
            } else {
                let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
                let days = match month {
                    2 if leap => 29,
                    2 => 28,
                    4 | 6 | 9 | 11 => 30,
                    _ => 31,
                };
                let is_date = (0..=9999).contains(&year) && (1..=12).contains(&month) && (1..=days).contains(&day);
                let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..60).contains(&second);
                prop_assert!(!(is_date && is_time));
            }
        }
    }
}
