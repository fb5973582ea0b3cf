//! Spans of time as the operator's objects spell them: `5y`, `60d`, `12h`, `30m`, `45s`, or a number of seconds.

/// Seconds of a span; an empty text is none at all.
pub(crate) fn seconds(text: &str) -> Result<i64, BadSpan> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(0);
    }
    if let Ok(number) = text.parse::<i64>() {
        return Ok(number);
    }
    let bad = || BadSpan(text.chars().take(MAX_SHOWN).collect());
    let unit = text.chars().next_back().ok_or_else(bad)?;
    let factor: i64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => DAY,
        'y' => 365 * DAY,
        _ => return Err(bad()),
    };
    let number = text.strip_suffix(unit).unwrap_or_default();
    let number: i64 = number.parse().map_err(|_| bad())?;
    Ok(number.saturating_mul(factor))
}

/// A text that is no span.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid duration {0:?}: write a whole number with one of the units s, m, h, d and y, such as 60d"
)]
pub(crate) struct BadSpan(String);

pub(crate) const DAY: i64 = 86_400;
const MAX_SHOWN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_whole_numbers_with_one_unit() {
        for (text, expected) in [
            ("", Some(0)),
            ("  ", Some(0)),
            ("90", Some(90)),
            ("-5", Some(-5)),
            (" 45s ", Some(45)),
            ("30m", Some(1800)),
            ("12h", Some(43_200)),
            ("60d", Some(5_184_000)),
            ("5y", Some(157_680_000)),
            ("-1d", Some(-86_400)),
            ("99999999999999999y", Some(i64::MAX)),
            ("1h30m", None),
            ("500ms", None),
            ("1.5h", None),
            ("d", None),
            ("5 d", None),
            ("5w", None),
            ("5ü", None),
            ("ten days", None),
        ] {
            assert_eq!(seconds(text).ok(), expected, "{text:?}");
        }
    }
}
