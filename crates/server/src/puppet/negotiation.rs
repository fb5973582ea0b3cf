//! Media types of the status calls; no other call of this door looks at them.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

/// The content type of an answer that the client accepts; `None` if it accepts none of ours. The text is JSON under
/// each of the names.
pub(super) fn media_type(headers: &HeaderMap) -> Option<&'static str> {
    let mut ranges = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(Range::parse)
        .peekable();
    if ranges.peek().is_none() {
        return Some(TYPES[0].1);
    }
    let mut best: Option<(u16, &'static str)> = None;
    for range in ranges {
        let found = TYPES.iter().find(|(name, _)| range.covers(name));
        if let Some((_, content_type)) = found
            && range.quality > 0
            && best.is_none_or(|(quality, _)| range.quality > quality)
        {
            best = Some((range.quality, content_type));
        }
    }
    best.map(|(_, content_type)| content_type)
}

/// Whether a body may be read as JSON: the header is absent, or names one of our types.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return true;
    };
    let essence = value
        .to_str()
        .ok()
        .and_then(|text| text.split(';').next())
        .unwrap_or_default();
    TYPES
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case(essence.trim()))
}

/// One element of an Accept header.
struct Range<'a> {
    text: &'a str,
    /// In thousandths.
    quality: u16,
}

impl<'a> Range<'a> {
    fn parse(element: &'a str) -> Option<Self> {
        let mut parts = element.split(';').map(str::trim);
        let text = parts.next().filter(|text| !text.is_empty())?;
        let quality = parts
            .find_map(|part| part.strip_prefix("q="))
            .map_or(1000, thousandths);
        Some(Self { text, quality })
    }

    fn covers(&self, name: &str) -> bool {
        if self.text == "*/*" || self.text.eq_ignore_ascii_case(name) {
            return true;
        }
        match (self.text.strip_suffix("/*"), name.split_once('/')) {
            (Some(kind), Some((family, _))) => kind.eq_ignore_ascii_case(family),
            (Some(_) | None, _) => false,
        }
    }
}

/// RFC 9110 12.4.2; what is no weight counts as the full one.
fn thousandths(weight: &str) -> u16 {
    let (whole, fraction) = weight.split_once('.').unwrap_or((weight, ""));
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    match (whole, digits.parse()) {
        ("0", Ok(thousandths)) => thousandths,
        _ => 1000,
    }
}

const TYPES: [(&str, &str); 3] = [
    ("application/json", "application/json;charset=UTF-8"),
    ("text/pson", "text/pson;charset=UTF-8"),
    ("pson", "pson;charset=UTF-8"),
];

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn accepted_types() {
        const JSON: Option<&str> = Some("application/json;charset=UTF-8");
        for (accept, expected) in [
            ("application/json", JSON),
            ("*/*", JSON),
            ("application/*", JSON),
            ("APPLICATION/JSON", JSON),
            ("", JSON),
            ("text/pson", Some("text/pson;charset=UTF-8")),
            ("text/*", Some("text/pson;charset=UTF-8")),
            ("pson", Some("pson;charset=UTF-8")),
            (
                "application/json;q=0.2, pson;q=0.8",
                Some("pson;charset=UTF-8"),
            ),
            ("pson;q=0.25, application/json;q=0.251", JSON),
            ("text/html, */*;q=0.1", JSON),
            ("text/html", None),
            ("application/json;q=0", None),
            ("application/json;q=0.000", None),
            ("yaml, b64_zlib_yaml", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(media_type(&headers), expected, "{accept}");
        }
        assert_eq!(media_type(&HeaderMap::new()), JSON);
    }

    #[test]
    fn types_of_bodies() {
        for (content_type, expected) in [
            ("application/json", true),
            ("application/json; charset=utf-8", true),
            ("text/pson", true),
            ("pson", true),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            assert_eq!(is_json(&headers), expected, "{content_type}");
        }
        assert!(is_json(&HeaderMap::new()));
    }
}
