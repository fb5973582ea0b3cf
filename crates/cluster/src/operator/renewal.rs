//! When a certificate is renewed, and when somebody is warned that it ends: pure functions of its times and the clock.

use std::time::Duration;

use countersign_pki::UnixTime;

use super::duration::{self, DAY};

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing for so long.
    Later(Duration),
    /// It is to be renewed, and was so only a short while ago.
    Cooling(Duration),
    Renewal,
    /// It has ended: it can no longer be renewed.
    Ended,
}

/// What is due for a certificate. `before` is the lead time that was asked for, `renewed` when it was renewed last.
pub(crate) fn due(
    life: Life,
    before: Option<&str>,
    renewed: Option<UnixTime>,
    now: UnixTime,
) -> Due {
    let left = life.not_after.seconds_since(now);
    if left <= 0 {
        return Due::Ended;
    }
    let wait = left.saturating_sub(lead(life, before, renewed));
    if wait > 0 {
        let pause = (wait / 2).clamp(1, LONGEST_PAUSE);
        return Due::Later(Duration::from_secs(pause.unsigned_abs()));
    }
    match renewed.map(|renewed| now.seconds_since(renewed)) {
        Some(passed) if (0..COOLDOWN).contains(&passed) => {
            Due::Cooling(Duration::from_secs(COOLDOWN.unsigned_abs()))
        }
        Some(_) | None => Due::Renewal,
    }
}

/// How many seconds before its end a certificate is renewed. A lead time that is longer than its life renews it once; after
/// that it would do so for ever, and a third of its life counts instead.
fn lead(life: Life, before: Option<&str>, renewed: Option<UnixTime>) -> i64 {
    let asked = before.and_then(|text| duration::seconds(text).ok());
    let asked = asked.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_LEAD);
    let whole = life.not_after.seconds_since(life.not_before);
    let is_renewed = renewed.is_some_and(|at| at >= life.not_before);
    match asked >= whole && (is_renewed || before.is_none()) {
        true => whole / 3,
        false => asked,
    }
}

/// Whether a lead time can be kept.
pub(crate) fn is_longer_than_its_life(life: Life, before: Option<&str>) -> bool {
    let asked = before.and_then(|text| duration::seconds(text).ok());
    asked.is_some_and(|asked| asked >= life.not_after.seconds_since(life.not_before))
}

/// The warnings that are due and were not given, and all that were given then; nothing if that changes nothing. `given` is a
/// list as in the annotation: it may be about the certificate before this one.
pub(crate) fn warnings(
    life: Life,
    given: Option<&str>,
    now: UnixTime,
) -> Option<(Vec<&'static str>, String)> {
    let left = life.not_after.seconds_since(now);
    let given: Vec<&str> = given
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .collect();
    let crossed = THRESHOLDS
        .into_iter()
        .filter(|(_, days)| left <= days * DAY);
    let crossed: Vec<&'static str> = crossed.map(|(word, _)| word).collect();
    let new: Vec<&'static str> = crossed
        .iter()
        .copied()
        .filter(|word| !given.contains(word))
        .collect();
    let is_past = |word: &&str| !word.is_empty() && !crossed.contains(word);
    match new.is_empty() && !given.iter().any(is_past) {
        true => None,
        false => Some((new, crossed.join(","))),
    }
}

/// How long the next poll has to wait after so many that brought nothing.
pub(crate) fn poll_pause(attempts: u32) -> Duration {
    Duration::from_secs(match attempts {
        0..=2 => 5,
        3..=5 => 30,
        6..=9 => 120,
        _ => 300,
    })
}

/// From so many polls on somebody is told that a person has to sign.
pub(crate) const POLLS_UNTIL_TOLD: u32 = 10;
const THRESHOLDS: [(&str, i64); 3] = [("30d", 30), ("7d", 7), ("1d", 1)];
const DEFAULT_LEAD: i64 = 60 * DAY;
const COOLDOWN: i64 = 3600;
const LONGEST_PAUSE: i64 = 12 * 3600;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    fn life(from: i64, until: i64) -> Life {
        Life {
            not_before: UnixTime(NOW.0.saturating_add(from * DAY)),
            not_after: UnixTime(NOW.0.saturating_add(until * DAY)),
        }
    }

    #[test]
    fn a_certificate_is_renewed_in_its_time() {
        let ago = |seconds: i64| Some(UnixTime(NOW.0 - seconds));
        let hours = |hours: u64| Due::Later(Duration::from_secs(hours * 3600));
        for (case, life, before, renewed, expected) in [
            ("long before", life(-275, 90), Some("60d"), None, hours(12)),
            (
                "a day before its window",
                life(-304, 61),
                Some("60d"),
                None,
                hours(12),
            ),
            (
                "a minute before it",
                Life {
                    not_after: UnixTime(NOW.0 + 60 * DAY + 60),
                    ..life(-100, 0)
                },
                Some("60d"),
                None,
                Due::Later(Duration::from_secs(30)),
            ),
            (
                "a second before it",
                Life {
                    not_after: UnixTime(NOW.0 + 60 * DAY + 1),
                    ..life(-100, 0)
                },
                Some("60d"),
                None,
                Due::Later(Duration::from_secs(1)),
            ),
            ("in it", life(-335, 30), Some("60d"), None, Due::Renewal),
            (
                "renewed ten minutes ago",
                life(-335, 30),
                Some("60d"),
                ago(600),
                Due::Cooling(Duration::from_secs(3600)),
            ),
            (
                "renewed two hours ago",
                life(-335, 30),
                Some("60d"),
                ago(7200),
                Due::Renewal,
            ),
            (
                "renewed in the future",
                life(-335, 30),
                Some("60d"),
                ago(-600),
                Due::Renewal,
            ),
            ("over", life(-365, 0), Some("60d"), None, Due::Ended),
            (
                "long over",
                life(-965, -600),
                Some("60d"),
                ago(60),
                Due::Ended,
            ),
            (
                "no lead time: 60 days",
                life(-335, 30),
                None,
                None,
                Due::Renewal,
            ),
            (
                "a lead time that is none",
                life(-275, 90),
                Some("soon"),
                None,
                hours(12),
            ),
            (
                "a negative one",
                life(-275, 90),
                Some("-5d"),
                None,
                hours(12),
            ),
            (
                "longer than its life, never renewed",
                life(0, 90),
                Some("99999d"),
                None,
                Due::Renewal,
            ),
            (
                "longer than its life, renewed before",
                life(-400, 90),
                Some("99999d"),
                ago(500 * DAY),
                Due::Renewal,
            ),
            (
                "longer than its life, this is the renewed one",
                life(-1, 90),
                Some("99999d"),
                ago(600),
                hours(12),
            ),
            (
                "the same near its end",
                life(-70, 20),
                Some("99999d"),
                ago(70 * DAY),
                Due::Renewal,
            ),
            (
                "shorter than the default",
                life(0, 30),
                None,
                None,
                hours(12),
            ),
        ] {
            assert_eq!(due(life, before, renewed, NOW), expected, "{case}");
        }
    }

    #[test]
    fn a_certificate_with_a_lead_beyond_its_life_is_renewed_a_few_times_only() {
        let mut life = life(0, 90);
        let (mut renewed, mut count) = (None, 0);
        for hour in 0..(360 * 24) {
            let now = UnixTime(NOW.0 + hour * 3600);
            if due(life, Some("99999d"), renewed, now) == Due::Renewal {
                count += 1;
                renewed = Some(now);
                life = Life {
                    not_before: now,
                    not_after: UnixTime(now.0 + 90 * DAY),
                };
            }
        }
        assert!((5..=7).contains(&count), "{count}");
    }

    #[test]
    fn each_warning_is_given_once() {
        for (case, left, given, expected) in [
            ("far away", 31, None, None),
            ("a month", 30, None, Some((vec!["30d"], "30d"))),
            ("the same again", 20, Some("30d"), None),
            ("five days", 5, None, Some((vec!["30d", "7d"], "30d,7d"))),
            ("a week", 7, Some("30d"), Some((vec!["7d"], "30d,7d"))),
            (
                "the last day",
                1,
                Some("30d, 7d"),
                Some((vec!["1d"], "30d,7d,1d")),
            ),
            ("over", -3, Some("30d,7d,1d"), None),
            (
                "warnings of the certificate before",
                300,
                Some("30d,7d"),
                Some((vec![], "")),
            ),
            ("some of them", 20, Some("30d,7d"), Some((vec![], "30d"))),
        ] {
            let expected = expected.map(|(new, all): (Vec<&str>, &str)| (new, all.to_owned()));
            assert_eq!(warnings(life(-100, left), given, NOW), expected, "{case}");
        }
    }

    #[test]
    fn polls_wait_longer_in_steps() {
        let pauses: Vec<u64> = (1..=11)
            .map(|attempts| poll_pause(attempts).as_secs())
            .collect();
        assert_eq!(pauses, [5, 5, 30, 30, 30, 120, 120, 120, 120, 300, 300]);
    }
}
