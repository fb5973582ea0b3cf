//! Whole numbers in bodies, as JSON has them.

use serde::de::{Deserialize, Deserializer, Error, Unexpected};
use serde_json::Number;

/// A number that may be missing or null. `60.0` is a whole number too (JSON Schema validation 6.1.1), and one above
/// [`MAX`] is refused, as two programs may read it differently (RFC 8259 6).
///
/// # Errors
/// If it is not whole, negative, or too large.
pub(crate) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let number = Option::<Number>::deserialize(deserializer)?;
    number.map(|number| whole(&number)).transpose()
}

fn whole<E: Error>(number: &Number) -> Result<u64, E> {
    let expected = "a whole number from 0 to 9007199254740991";
    let refused = || match number.as_f64() {
        Some(float) => E::invalid_value(Unexpected::Float(float), &expected),
        None => E::invalid_value(Unexpected::Other("number"), &expected),
    };
    let exact = number.as_u64().or_else(|| {
        let float = number.as_f64()?;
        // Written without a fraction, it is read as the integer that it is.
        format!("{float:.0}")
            .parse()
            .ok()
            .filter(|_| float.fract() == 0.0)
    });
    exact.filter(|number| *number <= MAX).ok_or_else(refused)
}

/// 2^53 - 1: above it, not every whole number has a floating point number of its own.
pub const MAX: u64 = 9_007_199_254_740_991;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Body {
        #[serde(default, deserialize_with = "optional")]
        number: Option<u64>,
    }

    #[test]
    fn numbers_are_whole_and_exact() {
        for (text, expected) in [
            ("{}", Some(None)),
            (r#"{"number": null}"#, Some(None)),
            (r#"{"number": 0}"#, Some(Some(0))),
            (r#"{"number": 60}"#, Some(Some(60))),
            (r#"{"number": 60.0}"#, Some(Some(60))),
            (r#"{"number": 6e1}"#, Some(Some(60))),
            (r#"{"number": 9007199254740991}"#, Some(Some(MAX))),
            (r#"{"number": 9007199254740992}"#, None),
            (r#"{"number": 1e300}"#, None),
            (r#"{"number": 60.5}"#, None),
            (r#"{"number": -1}"#, None),
            (r#"{"number": -1.0}"#, None),
            (r#"{"number": "60"}"#, None),
            (r#"{"number": true}"#, None),
        ] {
            let read = serde_json::from_str::<Body>(text).ok();
            assert_eq!(read.map(|body| body.number), expected, "{text}");
        }
    }
}
