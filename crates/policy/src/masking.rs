//! The secrets of enrolment tokens in text that is kept or shown. Whatever place of a request, a path or a sentence a token
//! was put into by mistake, mistyped or cut off as it may be, its secret does not stand there afterwards.
//!
//! Such text comes from anybody, so everything here passes over it once, from the front to the end.

use std::borrow::Cow;
use std::ops::Range;

use countersign_pki::secret_shape::{Placed, possible_secret, secret_behind_id};

/// A text with the secret of every token in it replaced; the public part stays.
pub fn masked_tokens(text: &str) -> Cow<'_, str> {
    if !mentions_token(text) && damaged_in(text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for piece in Pieces::of(text) {
        match piece {
            Piece::Plain(plain) => shown.push_str(plain),
            Piece::Secret(_) => shown.push(MASK),
        }
    }
    Cow::Owned(shown)
}

/// Whether so much of a token's secret stands in a text that it is none for a name: half of one at least, behind `ott1.` or
/// behind an identifier. A host may be called `ott1.example.com`.
pub fn looks_like_a_token(text: &str) -> bool {
    let has_half = |piece| match piece {
        Piece::Plain(_) => false,
        Piece::Secret(secret) => longest_run(secret, is_base32) >= HALF_SECRET,
    };
    (mentions_token(text) || damaged_in(text).is_some()) && Pieces::of(text).any(has_half)
}

/// Whether something in a text could be the secret of a token, wherever it was damaged or cut off; also a word of a
/// person, so this is for places that nobody misses.
pub fn could_be_secret(text: &str) -> bool {
    mentions_token(text) || possible_secret(characters(text)).is_some()
}

/// Whether what every token begins with is anywhere in a text, in any case, with or without percent-encoding (RFC 3986 2.1).
fn mentions_token(text: &str) -> bool {
    prefix_in(text).is_some()
}

/// A part of a text; all of them in their order are the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Plain(&'a str),
    Secret(&'a str),
}

/// A text word by word. Behind a word with the beginning of a token the next ones may be the rest of it, where somebody
/// has typed a blank or a quotation mark into it.
struct Pieces<'a> {
    text: &'a str,
    /// The secret of a word whose beginning was handed out.
    secret: &'a str,
    /// How many octets may still belong to the last token.
    expected: usize,
    /// How long a run of letters and digits in them must be for a part of a secret.
    shortest: usize,
}

impl<'a> Pieces<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            text,
            secret: "",
            expected: 0,
            shortest: SHORTEST_PART,
        }
    }

    /// The next word, without what ends it.
    fn word(&mut self) -> &'a str {
        let end = self.text.find(ends_word).unwrap_or(self.text.len());
        let (word, rest) = self.text.split_at(end);
        self.text = rest;
        word
    }

    /// Splits a word that has the beginning of a token.
    fn begun(&mut self, word: &'a str, prefix: Range<usize>) -> Piece<'a> {
        let behind = word.get(prefix.end..).unwrap_or_default();
        let id = id_len(behind);
        let (public, secret) = word.split_at(prefix.end.saturating_add(id));
        let run = longest_run(behind, is_of_secret);
        // What was masked before is whole.
        self.expected = match secret.starts_with(MASK) {
            true => 0,
            false => BEHIND_PREFIX.saturating_sub(behind.len()),
        };
        // Who has written an identifier, or as much, has begun a token. Else it may be a host's name.
        self.shortest = match id > 0 || run >= ID {
            true => SHORTEST_PART,
            false => ID,
        };
        if id > 0 || run >= SHORTEST_PART {
            self.secret = secret;
            Piece::Plain(public)
        } else {
            Piece::Plain(word)
        }
    }

    /// Splits a word that has a secret behind an identifier.
    fn begun_damaged(&mut self, word: &'a str, secret: usize) -> Piece<'a> {
        let (public, secret) = word.split_at_checked(secret).unwrap_or(("", word));
        self.expected = BEHIND_PREFIX.saturating_sub(secret.len());
        self.shortest = SHORTEST_PART;
        self.secret = secret;
        Piece::Plain(public)
    }

    /// A word that has no beginning of a token.
    fn followed(&mut self, word: &'a str) -> Piece<'a> {
        let is_expected = self.expected > 0;
        self.expected = self.expected.saturating_sub(word.len());
        if is_expected && longest_run(word, is_of_secret) >= self.shortest {
            self.shortest = SHORTEST_PART;
            Piece::Secret(word)
        } else {
            Piece::Plain(word)
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if !self.secret.is_empty() {
            return Some(Piece::Secret(std::mem::take(&mut self.secret)));
        }
        let first = self.text.chars().next()?;
        if ends_word(first) {
            let (end, rest) = self.text.split_at(first.len_utf8());
            self.text = rest;
            self.expected = self.expected.saturating_sub(1);
            return Some(Piece::Plain(end));
        }
        let word = self.word();
        let damaged = damaged_in(word);
        Some(match prefix_in(word) {
            Some(prefix) if damaged.is_none_or(|secret| secret > prefix.start) => {
                self.begun(word, prefix)
            }
            Some(_) | None => match damaged {
                Some(secret) => self.begun_damaged(word, secret),
                None => self.followed(word),
            },
        })
    }
}

/// Where the first `ott1.` stands.
fn prefix_in(text: &str) -> Option<Range<usize>> {
    (0..text.len()).find_map(|at| {
        let mut rest = text.as_bytes().get(at..)?;
        for wanted in PREFIX {
            let (found, behind) = decoded(rest)?;
            if !found.eq_ignore_ascii_case(wanted) {
                return None;
            }
            rest = behind;
        }
        Some(at..text.len().saturating_sub(rest.len()))
    })
}

/// Where a secret stands behind an identifier, whatever is in front of that.
fn damaged_in(text: &str) -> Option<usize> {
    secret_behind_id(characters(text))
}

/// The characters of a text, each of which may be percent-encoded. What ends a word separates nothing inside of one.
fn characters(text: &str) -> impl Iterator<Item = Placed> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let place = text.len().saturating_sub(rest.len());
        let (character, behind) = decoded(rest)?;
        rest = behind;
        let ends = ends_word(char::from(character));
        Some((place, if ends { 0 } else { character }))
    })
}

/// The first character of a text, which may be percent-encoded, and what is behind it.
fn decoded(text: &[u8]) -> Option<(u8, &[u8])> {
    if let [b'%', high, low, rest @ ..] = text {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let code = digit(*high).zip(digit(*low));
        let code = code.map(|(high, low)| high.saturating_mul(16).saturating_add(low));
        if let Some(code) = code.and_then(|code| u8::try_from(code).ok()) {
            return Some((code, rest));
        }
    }
    text.split_first().map(|(first, rest)| (*first, rest))
}

/// How long the identifier at the beginning of a text is, with the dot behind it; zero if there is none.
fn id_len(text: &str) -> usize {
    match text.split_at_checked(ID) {
        Some((id, rest)) if rest.starts_with('.') && id.bytes().all(is_base32) => {
            ID.saturating_add(1)
        }
        Some(_) | None => 0,
    }
}

fn longest_run(text: &str, is_of_it: fn(u8) -> bool) -> usize {
    let runs = text.as_bytes().split(|byte| !is_of_it(*byte));
    runs.map(<[u8]>::len).max().unwrap_or_default()
}

fn ends_word(c: char) -> bool {
    // The backslash too: in JSON it belongs to the quotation mark behind it.
    c.is_whitespace() || c.is_control() || "\\\"'`,;()[]{}<>".contains(c)
}

fn is_base32(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'2'..=b'7')
}

/// With what was mistyped, and with what is percent-encoded.
fn is_of_secret(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'%'
}

const PREFIX: &[u8] = b"ott1.";
const ID: usize = 16;
/// Identifier, secret and check of a token with their dots.
const BEHIND_PREFIX: usize = 77;
/// What is shorter has no secret worth the name: 26 characters are 128 bits.
const HALF_SECRET: usize = 26;
/// What is shorter tells nothing: 7 characters are 35 bits of 256.
const SHORTEST_PART: usize = 8;
const MASK: char = '…';

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VECTOR: &str =
        "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";

    fn secret() -> &'static str {
        VECTOR.split('.').nth(2).unwrap()
    }

    /// Whether any eight characters of the secret stand in a text.
    fn tells(text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        let mut parts = secret().as_bytes().windows(SHORTEST_PART);
        parts.any(|part| text.contains(std::str::from_utf8(part).unwrap()))
    }

    #[test]
    fn the_secret_of_a_token_is_replaced_and_nothing_else() {
        for (text, shown) in [
            ("", ""),
            ("DNS:web01.example.com", "DNS:web01.example.com"),
            ("ott1.example.com", "ott1.example.com"),
            ("OTT1.short.y", "OTT1.short.y"),
            (
                "DNS:ott1.aaaqeayeaudaocaj.eaqseizee.zqthxay is odd",
                "DNS:ott1.aaaqeayeaudaocaj.… is odd",
            ),
            (
                r#"["ott1.aaaqeayeaudaocaj.x", "OTT1.longerthan.y"]"#,
                r#"["ott1.aaaqeayeaudaocaj.…", "OTT1.…"]"#,
            ),
            (
                "ott1.aaaqeayeaudaocaj.… certificate",
                "ott1.aaaqeayeaudaocaj.… certificate",
            ),
            (
                "enrolment token aaaqeayeaudaocaj",
                "enrolment token aaaqeayeaudaocaj",
            ),
            ("ends in ott1.", "ends in ott1."),
            ("é ott1.é", "é ott1.é"),
            // A name that is cut short takes no words with it; a token that is, takes them as long as it could be.
            (
                "ott1.example.com certificate",
                "ott1.example.com certificate",
            ),
            (
                "ott1.aaaqeayeaudaocaj.eaqse izeeutcokb and so on",
                "ott1.aaaqeayeaudaocaj.… … and so on",
            ),
        ] {
            assert_eq!(masked_tokens(text), shown);
        }
        // What is written in JSON stays JSON.
        let sentence = format!("name \"{VECTOR}\" is invalid\nbut C:\\{VECTOR}\\ is not");
        let json = serde_json::to_string(&sentence).unwrap();
        let shown: String = serde_json::from_str(&masked_tokens(&json)).unwrap();
        assert_eq!(shown, masked_tokens(&sentence));
        let whole = format!("{VECTOR} certificate");
        assert_eq!(masked_tokens(&whole), "ott1.aaaqeayeaudaocaj.… certificate");
    }

    #[test]
    fn secrets_are_masked_in_every_form() {
        let encoded =
            |text: &str| -> String { text.bytes().map(|b| format!("%{b:02x}")).collect() };
        for text in [
            VECTOR.to_owned(),
            VECTOR.to_uppercase(),
            format!("/puppet-ca/v1/certificate/{VECTOR}?x={VECTOR}"),
            VECTOR.get(..60).unwrap().to_owned(),
            VECTOR.replace("ott1.", "ott1%2e"),
            VECTOR.replace("ott1.", "%6Ftt1%2E"),
            VECTOR.replace("ott1.aaaqeayeaudaocaj", "ott1."),
            VECTOR.replace("ott1.aaaqeayeaudaocaj.", "ott1."),
            VECTOR.replace("ott1.", "ott2."),
            VECTOR.replace("ott1.", "0tt1."),
            VECTOR.replace("ott1.", "0tt1.").to_uppercase(),
            VECTOR.replace("ott1.", ""),
            VECTOR.replace("ott1", "ott").replace('.', ":"),
            VECTOR.replace("ott1.", "ott1:").replace("caj.", "caj%2e"),
            format!("{}/{VECTOR}", VECTOR.replace("ott1.", "ott2.")),
            format!("name=\"{}\"", VECTOR.replace("ott1.", "oott2.")),
        ] {
            assert!(looks_like_a_token(&text), "{text}");
            assert!(!tells(&masked_tokens(&text)), "{text}");
        }
        let shown = masked_tokens(&encoded(VECTOR)).into_owned();
        assert_eq!(shown, format!("{}…", encoded("ott1.")));
    }

    #[test]
    fn names_do_not_look_like_tokens() {
        for name in [
            "web01.example.com",
            "ott1.example.com",
            "ott1.",
            "ott1.aaaqeayeaudaocaj.example.com",
            "ott1.0f8fad5bd9cb469fa16570867728950e.example.com",
            "ott1.node-pool-of-the-large-cluster-in-the-north.example.com",
            "eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q",
        ] {
            assert!(!looks_like_a_token(name), "{name}");
        }
    }

    /// However many tokens there are, each octet is handed out once and a word gives two pieces at most.
    #[test]
    fn hostile_texts_are_passed_over_once() {
        for part in [
            "ott1.aaaqeayeaudaocaj.x",
            "ott1.aaaqeayeaudaocaj.x ",
            "ott1.ott1.",
            "ott1.,",
            "%6f%74%74%31%2",
            "ott1.aaaqeayeaudaocaj.eaqseize izeeutcokb ",
        ] {
            let text = part.repeat(64 * 1024 / part.len());
            let (mut pieces, mut octets) = (0, 0);
            for piece in Pieces::of(&text) {
                let (Piece::Plain(said) | Piece::Secret(said)) = piece;
                octets += said.len();
                pieces += 1;
            }
            let words = text.split(ends_word).count();
            assert_eq!(octets, text.len(), "{part}");
            assert!(pieces <= 3 * words, "{pieces} of {words}: {part}");
        }
    }

    proptest! {
        #[test]
        fn a_typo_shows_no_part_of_the_secret(
            at in PREFIX.len()..VECTOR.len(),
            typo in prop_oneof![
                Just(String::new()),
                "[ -~]",
                prop::sample::select(vec![" ", "\t", "\n", "\r\n", "é", "%20", "..", "\\", "', '"])
                    .prop_map(str::to_owned),
            ],
            replaced in 0_usize..=1,
            before in "[ -~]{0,12}",
            after in "[ -~]{0,12}( certificate)?",
            upper in any::<bool>(),
        ) {
            let (head, tail) = VECTOR.split_at(at);
            let token = format!("{head}{typo}{}", tail.get(replaced..).unwrap());
            let token = if upper { token.to_uppercase() } else { token };
            let text = format!("{before}{token}{after}");
            let shown = masked_tokens(&text);
            prop_assert!(!tells(&shown), "{shown}");
            prop_assert!(looks_like_a_token(&text));
        }

        #[test]
        fn the_pieces_are_the_text(text in "([ -~]|ott1\\.|é|[a-z2-7]{16}\\.|%2e){0,40}") {
            let all: String = Pieces::of(&text)
                .map(|(Piece::Plain(said) | Piece::Secret(said))| said)
                .collect();
            prop_assert_eq!(&all, &text);
        }
    }
}
