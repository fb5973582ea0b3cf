//! Points in time as seconds; callers bring the clock.

use std::fmt;

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
        let days = self.0.div_euclid(DAY);
        let second_of_day = self.0.rem_euclid(DAY);
        // Days to calendar by 400-year eras that begin on a first of March; see Howard Hinnant, "chrono-compatible
        // low-level date algorithms". Saturation only matters hundreds of millions of years away.
        let shifted = days.saturating_add(719_468);
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = era_year(day_of_era);
        let day_of_year = day_of_era.saturating_sub(days_before_era_year(year_of_era));
        let month_from_march = day_of_year
            .saturating_mul(5)
            .saturating_add(2)
            .div_euclid(153);
        let day = day_of_year
            .saturating_sub(
                month_from_march
                    .saturating_mul(153)
                    .saturating_add(2)
                    .div_euclid(5),
            )
            .saturating_add(1);
        let month = if month_from_march < 10 {
            month_from_march.saturating_add(3)
        } else {
            month_from_march.saturating_sub(9)
        };
        let year = era
            .saturating_mul(400)
            .saturating_add(year_of_era)
            .saturating_add(i64::from(month <= 2));
        Civil {
            year,
            month,
            day,
            hour: second_of_day.div_euclid(3600),
            minute: second_of_day.rem_euclid(3600).div_euclid(60),
            second: second_of_day.rem_euclid(60),
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
        let in_range = (0..=9999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=days_in_month(self.year, self.month)).contains(&self.day)
            && (0..24).contains(&self.hour)
            && (0..60).contains(&self.minute)
            && (0..60).contains(&self.second);
        if !in_range {
            return None;
        }
        let year = self.year.checked_sub(i64::from(self.month <= 2))?;
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month_from_march = self.month.checked_add(9)?.rem_euclid(12);
        let day_of_year = month_from_march
            .checked_mul(153)?
            .checked_add(2)?
            .div_euclid(5)
            .checked_add(self.day)?
            .checked_sub(1)?;
        let day_of_era = days_before_era_year(year_of_era).checked_add(day_of_year)?;
        let days = era
            .checked_mul(146_097)?
            .checked_add(day_of_era)?
            .checked_sub(719_468)?;
        let seconds = days
            .checked_mul(DAY)?
            .checked_add(self.hour.checked_mul(3600)?)?
            .checked_add(self.minute.checked_mul(60)?)?
            .checked_add(self.second)?;
        Some(UnixTime(seconds))
    }
}

fn era_year(day_of_era: i64) -> i64 {
    day_of_era
        .saturating_sub(day_of_era.div_euclid(1460))
        .saturating_add(day_of_era.div_euclid(36_524))
        .saturating_sub(day_of_era.div_euclid(146_096))
        .div_euclid(365)
}

fn days_before_era_year(year: i64) -> i64 {
    year.saturating_mul(365)
        .saturating_add(year.div_euclid(4))
        .saturating_sub(year.div_euclid(100))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
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

const DAY: i64 = 86_400;

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
    }
}
