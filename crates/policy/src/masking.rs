//! Explanations are kept and shown: what looks like an enrolment token does not stand in them, whatever part of a request
//! a host put it into by mistake.

use std::borrow::Cow;

/// A text with the secret of every token in it replaced; the public part stays.
pub(crate) fn masked(text: &str) -> Cow<'_, str> {
    let Some(first) = begin(text) else {
        return Cow::Borrowed(text);
    };
    let (before, mut rest) = text.split_at(first);
    let mut shown = before.to_owned();
    while let Some(at) = begin(rest) {
        let (before, token) = rest.split_at(at);
        shown.push_str(before);
        let end = token.find(|c: char| !is_of_token(c));
        let (token, after) = token.split_at(end.unwrap_or(token.len()));
        let public = public_part(token);
        shown.push_str(token.get(..public).unwrap_or_default());
        if public < token.len() {
            shown.push('…');
        }
        rest = after;
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// Where the next token begins.
fn begin(text: &str) -> Option<usize> {
    let mut windows = text.as_bytes().windows(PREFIX.len());
    windows.position(|part| part.eq_ignore_ascii_case(PREFIX))
}

/// How much of a token is public: what it begins with, and an identifier if there is one.
fn public_part(token: &str) -> usize {
    let id = token.get(PREFIX.len()..).and_then(|rest| {
        let (id, _) = rest.split_once('.')?;
        (id.len() == ID).then_some(ID.saturating_add(1))
    });
    PREFIX.len().saturating_add(id.unwrap_or(0))
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

const PREFIX: &[u8] = b"ott1.";
const ID: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_a_token_is_replaced_and_nothing_else() {
        for (text, shown) in [
            ("", ""),
            ("DNS:web01.example.com", "DNS:web01.example.com"),
            (
                "DNS:ott1.aaaqeayeaudaocaj.eaqseizee.zqthxay is odd",
                "DNS:ott1.aaaqeayeaudaocaj.… is odd",
            ),
            (
                r#"["ott1.aaaqeayeaudaocaj.x", "OTT1.short.y"]"#,
                r#"["ott1.aaaqeayeaudaocaj.…", "OTT1.…"]"#,
            ),
            (
                "enrolment token aaaqeayeaudaocaj",
                "enrolment token aaaqeayeaudaocaj",
            ),
            ("ends in ott1.", "ends in ott1."),
            ("é ott1.é", "é ott1.é"),
        ] {
            assert_eq!(masked(text), shown);
        }
    }
}
