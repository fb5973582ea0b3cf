//! `If-Modified-Since`: agents ask daily whether the authority's certificate or revocation list has changed.

use countersign_pki::UnixTime;
use http::HeaderMap;
use http::header::IF_MODIFIED_SINCE;
use jiff::fmt::rfc2822::DateTimeParser;

/// Whether the client's copy is certainly not older than something that was written at `modified`.
///
/// Times have whole seconds, so a copy of the same second may have been taken before: it is sent again. A header in our
/// future comes from a clock that runs ahead and says nothing (RFC 9110 13.1.3); so does one that cannot be read.
pub(super) fn is_current(headers: &HeaderMap, modified: UnixTime, now: UnixTime) -> bool {
    headers
        .get(IF_MODIFIED_SINCE)
        .and_then(|value| value.to_str().ok())
        .and_then(parse)
        .is_some_and(|since| modified < since && since <= now)
}

fn parse(text: &str) -> Option<UnixTime> {
    let parsed = PARSER.parse_timestamp(text.trim()).ok()?;
    Some(UnixTime(parsed.as_second()))
}

/// A wrong day of the week does not matter: Puppet Server strips it unread.
static PARSER: DateTimeParser = DateTimeParser::new().relaxed_weekday(true);

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const MODIFIED: UnixTime = UnixTime(1_767_323_045); // Fri, 02 Jan 2026 03:04:05 GMT
    const NOW: UnixTime = UnixTime(1_767_326_645); // an hour later

    #[test]
    fn headers_and_what_they_say() {
        for (header, expected) in [
            ("Fri, 02 Jan 2026 03:04:06 GMT", true),
            ("Fri, 02 Jan 2026 04:04:05 GMT", true),
            ("02 Jan 2026 03:30:00 GMT", true),
            ("Mon, 02 Jan 2026 03:30:00 GMT", true),
            ("Fri, 02 Jan 2026 04:30:00 +0100", true),
            ("Fri, 02 Jan 2026 03:04:05 GMT", false),
            ("Fri, 02 Jan 2026 03:04:04 GMT", false),
            ("Thu, 01 Jan 2026 00:00:00 GMT", false),
            ("Fri, 02 Jan 2026 04:04:06 GMT", false),
            ("Fri, 02 Jan 2099 04:04:06 GMT", false),
            ("2026-01-02T03:30:00Z", false),
            ("yesterday", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_MODIFIED_SINCE, HeaderValue::from_static(header));
            assert_eq!(is_current(&headers, MODIFIED, NOW), expected, "{header}");
        }
        assert!(!is_current(&HeaderMap::new(), MODIFIED, NOW));
    }
}
