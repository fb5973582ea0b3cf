//! What somebody sent, as it may be logged and repeated.

use std::borrow::Cow;

use countersign_pki::terminal_safe;

use crate::token::bootstrap::masked_bootstrap_tokens;
use crate::token::masked_tokens;

/// A path, or a name from one, without the secrets of tokens and without control characters.
///
/// A percent sign in the right place hides a token from whoever looks for one, and its secret stays readable all the
/// same: so it is looked for in what the text stands for, however often that was encoded.
pub fn shown(sent: &str) -> String {
    let mut plain = Cow::Borrowed(sent);
    for _ in 0..MAX_ENCODINGS {
        match decoded(&plain) {
            Some(once_less) => plain = Cow::Owned(once_less),
            None => break,
        }
    }
    if decoded(&plain).is_some() {
        return ENCODED_TOO_OFTEN.to_owned();
    }
    let masked = masked_bootstrap_tokens(&masked_tokens(&plain));
    let shown = if masked == plain { sent } else { &masked };
    terminal_safe(shown).into_owned()
}

/// A text with its percent escapes resolved once; `None`: it has none.
fn decoded(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text;
    let mut is_changed = false;
    while let Some((before, behind)) = rest.split_once('%') {
        octets.extend_from_slice(before.as_bytes());
        let escape = behind.get(..2).filter(|digits| is_hexadecimal(digits));
        match escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(octet) => {
                octets.push(octet);
                rest = behind.get(2..).unwrap_or_default();
                is_changed = true;
            }
            None => {
                octets.push(b'%');
                rest = behind;
            }
        }
    }
    octets.extend_from_slice(rest.as_bytes());
    is_changed.then(|| String::from_utf8_lossy(&octets).into_owned())
}

fn is_hexadecimal(digits: &str) -> bool {
    digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Nobody encodes so often by accident; it bounds what a long path costs.
const MAX_ENCODINGS: usize = 4;
const ENCODED_TOO_OFTEN: &str = "(encoded too often to be shown)";

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "aaaqeayeaudaocaj";
    const SECRET: &str = "eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q";

    #[test]
    fn what_holds_no_token_is_shown_as_it_was_sent() {
        for (sent, expected) in [
            ("/puppet/ca/web01", "/puppet/ca/web01"),
            ("/a%20b%2", "/a%20b%2"),
            ("/100%/%zz/%+1", "/100%/%zz/%+1"),
            ("/%c3%a9%ff", "/%c3%a9%ff"),
            ("/\u{1b}[1m", "/\\u{1b}[1m"),
            ("/%252525252561", ENCODED_TOO_OFTEN),
        ] {
            assert_eq!(shown(sent), expected);
        }
    }

    #[test]
    fn secrets_are_masked_in_every_spelling() {
        let token = format!("ott1.{ID}.{SECRET}.zqthxay");
        let mut spelled = token.clone();
        for _ in 0..=MAX_ENCODINGS {
            for sent in [
                spelled.clone(),
                spelled.replace('.', "%2e"),
                spelled.replacen('.', "%2E", 1),
                spelled.replacen("ott1", "%6ftt1", 1),
                spelled.replacen("ott1", "OTT%31", 1),
            ] {
                let path = format!("/puppet/ca/{sent}/x");
                let shown = shown(&path);
                assert!(!shown.contains(SECRET), "{path}: {shown}");
                assert!(!shown.contains(&SECRET[..20]), "{path}: {shown}");
            }
            spelled = spelled.replace('%', "%25").replacen('t', "%74", 1);
        }
        assert!(shown(&format!("/x/ott1%2e{ID}.{SECRET}")).contains(ID));
        for sent in ["abcdef.0123456789abcdef", "abcdef%2e0123456789abcde%66"] {
            let path = shown(&format!("/enrol/v1/bootstrap-tokens/{sent}"));
            assert_eq!(path, "/enrol/v1/bootstrap-tokens/abcdef.…");
        }
    }
}
