//! Parameters of a call as a smart proxy reads them: from the query and from a form, and from JSON besides.

use axum::extract::Query;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Uri};
use serde_json::Value;

/// For how many minutes a token shall be good. `None`: nobody says, or not more than none.
///
/// What is in the body counts for more than what is in the query. As in Ruby, a number is what the text begins with:
/// `90 minutes` is 90, and `soon` is none at all.
pub(super) fn token_ttl(uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Option<u64> {
    let said = of_body(headers, body).or_else(|| of_query(uri))?;
    leading_integer(&said).filter(|minutes| *minutes > 0)
}

fn of_query(uri: &Uri) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    last_of(pairs)
}

fn of_body(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    match content_type.split(';').next()?.trim() {
        "application/x-www-form-urlencoded" => {
            // A form has the syntax of a query.
            let query = format!("/?{}", std::str::from_utf8(body).ok()?);
            of_query(&query.parse().ok()?)
        }
        "application/json" => {
            let object: Value = serde_json::from_slice(body).ok()?;
            match object.get(TOKEN_TTL)? {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
            }
        }
        _ => None,
    }
}

fn last_of(pairs: Vec<(String, String)>) -> Option<String> {
    let last = pairs.into_iter().rfind(|(name, _)| name == TOKEN_TTL);
    last.map(|(_, value)| value)
}

/// The number that a text begins with, signed ones included; what is too large is the largest.
fn leading_integer(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = text.bytes().take_while(u8::is_ascii_digit);
    digits.fold(None, |number: Option<u64>, digit| {
        let digit = u64::from(digit.saturating_sub(b'0'));
        Some(
            number
                .unwrap_or_default()
                .saturating_mul(10)
                .saturating_add(digit),
        )
    })
}

const TOKEN_TTL: &str = "token_ttl";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn minutes_in_every_place_and_spelling() {
        const FORM: &str = "application/x-www-form-urlencoded";
        const JSON: &str = "application/json; charset=utf-8";
        for (query, content_type, body, expected) in [
            ("", "", "", None),
            ("?token_ttl=90", "", "", Some(90)),
            ("?token_ttl=90abc", "", "", Some(90)),
            ("?token_ttl=%20+90", "", "", Some(90)),
            ("?token_ttl=%2B90", "", "", Some(90)),
            ("?token_ttl=1.9", "", "", Some(1)),
            ("?token_ttl=0", "", "", None),
            ("?token_ttl=-5", "", "", None),
            ("?token_ttl=soon", "", "", None),
            ("?token_ttl=", "", "", None),
            ("?token_ttl=1&token_ttl=2", "", "", Some(2)),
            ("?token_ttl=99999999999999999999999", "", "", Some(u64::MAX)),
            ("", FORM, "token_ttl=15", Some(15)),
            ("?token_ttl=90", FORM, "token_ttl=15", Some(15)),
            ("?token_ttl=90", FORM, "other=15", Some(90)),
            ("", JSON, r#"{"token_ttl": 15}"#, Some(15)),
            ("", JSON, r#"{"token_ttl": "15m"}"#, Some(15)),
            ("", JSON, r#"{"token_ttl": -15}"#, None),
            ("", JSON, r#"{"token_ttl": [15]}"#, None),
            ("?token_ttl=90", JSON, "15", Some(90)),
            ("", "text/plain", "token_ttl=15", None),
            ("", FORM, "\u{7f}\u{0}%zz", None),
        ] {
            let uri: Uri = format!("/puppet/ca/autosign/web01{query}").parse().unwrap();
            let mut headers = HeaderMap::new();
            if !content_type.is_empty() {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            }
            let said = token_ttl(&uri, &headers, body.as_bytes());
            assert_eq!(said, expected, "{query} {body}");
        }
    }
}
