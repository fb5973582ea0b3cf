//! The bootstrap token as text, as kubeconfig files carry it: `<id>.<secret>`, six and sixteen characters of `[a-z0-9]`.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::clock::{Entropy, EntropyFault};

/// The public part of a bootstrap token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct BootstrapId(#[schemars(regex(pattern = r"^[a-z0-9]{6}$"))] String);

impl BootstrapId {
    /// Reads the six characters; whatever is not an id is nobody's.
    pub fn parse(text: &str) -> Option<Self> {
        is_word(text, ID_LENGTH).then(|| Self(text.to_owned()))
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BootstrapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A whole bootstrap token, with its secret. Overwritten when dropped; shown by nobody who does not ask for it by name.
pub struct BootstrapText {
    text: Zeroizing<String>,
    id: BootstrapId,
}

impl BootstrapText {
    /// Makes a token of random characters.
    pub(super) fn random(entropy: &dyn Entropy) -> Result<Self, EntropyFault> {
        let mut text = Zeroizing::new(String::with_capacity(LENGTH));
        let mut octets = Zeroizing::new([0_u8; LENGTH]);
        while text.len() < LENGTH {
            if text.len() == ID_LENGTH {
                text.push('.');
            }
            entropy.fill(&mut *octets)?;
            let room = match text.len() < ID_LENGTH {
                true => ID_LENGTH,
                false => LENGTH,
            };
            // What is left over of 256 would make some characters more likely than others.
            let fair = octets.iter().filter(|octet| **octet < FAIR);
            let drawn = fair.filter_map(|octet| ALPHABET.get(usize::from(octet % SIGNS)));
            for character in drawn.take(room.saturating_sub(text.len())) {
                text.push(char::from(*character));
            }
        }
        let id = text.chars().take(ID_LENGTH).collect();
        Ok(Self {
            text,
            id: BootstrapId(id),
        })
    }

    /// Reads a token; `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.split_once('.')?;
        let id = BootstrapId::parse(id).filter(|_| is_word(secret, SECRET_LENGTH))?;
        let text = Zeroizing::new(text.to_owned());
        Some(Self { text, id })
    }

    /// Its public part.
    pub fn id(&self) -> &BootstrapId {
        &self.id
    }

    /// The whole token, for the one who is to have it.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// What its record verifies. No enrolment token has the same.
    pub(super) fn message(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([b"bootstrap\0".as_slice(), self.text.as_bytes()].concat())
    }
}

impl fmt::Debug for BootstrapText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapText({})", self.id)
    }
}

/// A text with the secrets of bootstrap tokens left out, for logs. A host name may happen to look like one: it is masked, too,
/// so this is for nothing that a program reads.
pub fn masked_bootstrap_tokens(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    // Parts are words and what is between them.
    let is_in_word = |character: char| character.is_ascii_alphanumeric() || character == '.';
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_in_word(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at_checked(end).unwrap_or((rest, ""));
        match BootstrapText::parse(word) {
            Some(token) => {
                shown.push_str(token.id.as_str());
                shown.push_str(".…");
            }
            None => shown.push_str(word),
        }
        let mut characters = behind.chars();
        shown.extend(characters.next());
        rest = characters.as_str();
    }
    shown
}

/// The public parts of everything in a text that has the form of a bootstrap token, whatever stands around it. Host names may
/// have it, too.
pub fn bootstrap_ids_in(text: &str) -> BTreeSet<BootstrapId> {
    let at_dot = |(dot, _): (usize, &str)| {
        let start = dot.checked_sub(ID_LENGTH)?;
        let end = start.checked_add(LENGTH)?;
        let token = BootstrapText::parse(text.get(start..end)?)?;
        Some(token.id)
    };
    text.match_indices('.').filter_map(at_dot).collect()
}

fn is_word(text: &str, length: usize) -> bool {
    let is_sign = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit();
    text.len() == length && text.bytes().all(is_sign)
}

const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
const LENGTH: usize = 23;
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const SIGNS: u8 = 36;
/// The largest multiple of 36 below 256.
const FAIR: u8 = 252;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_wherever_they_stand() {
        let rows: &[(&str, &[&str])] = &[
            ("abcdef.0123456789abcdef", &["abcdef"]),
            (r#"{"a":"\nabcdef.0123456789abcdef\n"}"#, &["abcdef"]),
            (
                "x.abcdef.0123456789abcdefg, 000000.aaaaaaaaaaaaaaaa",
                &["000000", "abcdef"],
            ),
            (
                "abcdef.0123456789abcdef abcdef.0123456789abcdeg",
                &["abcdef"],
            ),
            ("Abcdef.0123456789abcdef", &[]),
            ("abcdef.0123456789abcde", &[]),
            ("éabcde.0123456789abcdef", &[]),
            (".0123456789abcdef.", &[]),
            ("", &[]),
        ];
        for (text, expected) in rows {
            let found = bootstrap_ids_in(text);
            let found: Vec<&str> = found.iter().map(BootstrapId::as_str).collect();
            assert_eq!(found, *expected, "{text}");
        }
    }

    /// Octets that count up, with every value among them.
    struct Counting(std::sync::atomic::AtomicU8);

    impl Entropy for Counting {
        fn fill(&self, bytes: &mut [u8]) -> Result<(), EntropyFault> {
            for byte in bytes {
                *byte = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            Ok(())
        }
    }

    #[test]
    fn tokens_have_the_form_and_every_character() {
        let entropy = Counting(Default::default());
        let mut seen = BTreeSet::new();
        for _ in 0..100 {
            let token = BootstrapText::random(&entropy).unwrap();
            let read = BootstrapText::parse(token.expose()).expect("it has the form");
            assert_eq!(read.id(), token.id());
            seen.extend(token.expose().bytes());
        }
        assert_eq!(seen.len(), 37, "the alphabet and the dot");
    }

    #[test]
    fn what_is_not_spelled_exactly_is_no_token() {
        let token = BootstrapText::parse("abcdef.0123456789abcdef").unwrap();
        assert_eq!(token.id().as_str(), "abcdef");
        assert_eq!(format!("{token:?}"), "BootstrapText(abcdef)");
        for text in [
            "",
            "abcdef",
            "abcdef.",
            "abcdef.0123456789abcde",
            "abcdef.0123456789abcdef0",
            "abcde.0123456789abcdef",
            "Abcdef.0123456789abcdef",
            "abcdef.0123456789abcdeF",
            "abcdef-0123456789abcdef",
            "abcdef.0123456789abcdef.",
            " abcdef.0123456789abcdef",
            "äcdef.0123456789abcdef",
        ] {
            assert!(BootstrapText::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn secrets_are_masked_wherever_a_token_stands_alone() {
        for (text, shown) in [
            ("", ""),
            ("abcdef.0123456789abcdef", "abcdef.…"),
            (
                "/x/abcdef.0123456789abcdef?y=uvwxyz.fedcba9876543210&z",
                "/x/abcdef.…?y=uvwxyz.…&z",
            ),
            ("web01.example.com/ä.b", "web01.example.com/ä.b"),
            (
                "abcdef.0123456789abcdef.example.com",
                "abcdef.0123456789abcdef.example.com",
            ),
        ] {
            assert_eq!(masked_bootstrap_tokens(text), shown);
        }
    }
}
