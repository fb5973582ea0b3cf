//! The token as text: `ott1.<id>.<secret>.<check>`, all of it lower-case base32 (RFC 4648 6) without padding.
//!
//! 82 characters that fit every string type of a certificate request, need no quoting in YAML or in a shell, and are
//! found by those who scan for secrets.

use std::fmt;

use zeroize::{Zeroize as _, Zeroizing};

use super::record::TokenId;

// Rules mask, too, and they stand below the authority.
pub use countersign_policy::{looks_like_a_token, masked_tokens};

/// A whole token, with its secret. Overwritten when dropped; shown by nobody who does not ask for it by name.
pub struct TokenText {
    text: Zeroizing<String>,
    id: TokenId,
    secret: Zeroizing<[u8; SECRET_BYTES]>,
}

impl TokenText {
    /// Makes the token of an id and a secret.
    pub fn new(id: [u8; ID_BYTES], mut secret: [u8; SECRET_BYTES]) -> Self {
        let id = encode(&id);
        let encoded = Zeroizing::new(encode(&secret));
        let mut text = Zeroizing::new(String::with_capacity(LENGTH));
        for part in [PREFIX, &id, ".", &encoded] {
            text.push_str(part);
        }
        let check = check_of(&text);
        text.push('.');
        text.push_str(&check);
        let kept = Zeroizing::new(secret);
        secret.zeroize();
        Self {
            text,
            id: TokenId::known(id),
            secret: kept,
        }
    }

    /// Reads a token. Another spelling of the same bits is no token.
    pub fn parse(text: &str) -> Result<Self, NotAToken> {
        let rest = text.strip_prefix(PREFIX).ok_or(NotAToken::Prefix)?;
        let mut parts = rest.split('.');
        let (Some(id), Some(secret), Some(check), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotAToken::Parts);
        };
        let lengths = (id.len(), secret.len(), check.len());
        if lengths != (ID_LENGTH, SECRET_LENGTH, CHECK_LENGTH) {
            return Err(NotAToken::Parts);
        }
        decode::<ID_BYTES>(id).ok_or(NotAToken::Alphabet)?;
        let secret = decode::<SECRET_BYTES>(secret).ok_or(NotAToken::Alphabet)?;
        let told = decode::<4>(check).ok_or(NotAToken::Alphabet)?;
        let covered = text.rsplit_once('.').map_or("", |(covered, _)| covered);
        if crc32(covered.as_bytes()).to_be_bytes() != told {
            return Err(NotAToken::Check);
        }
        Ok(Self {
            text: Zeroizing::new(text.to_owned()),
            id: TokenId::known(id.to_owned()),
            secret: Zeroizing::new(secret),
        })
    }

    /// Its public part.
    pub fn id(&self) -> &TokenId {
        &self.id
    }

    /// The whole token, for the one who is to have it.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// What its record verifies.
    pub(crate) fn message(&self) -> Zeroizing<Vec<u8>> {
        let id = self.id.as_str().as_bytes();
        Zeroizing::new([b"ott1\0".as_slice(), id, b"\0", &*self.secret].concat())
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenText({})", self.id)
    }
}

/// Why a text is no token. The text itself is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAToken {
    /// It begins otherwise.
    #[error("it does not begin with ott1.")]
    Prefix,
    /// Parts are missing, too many, too short or too long.
    #[error("it does not have four parts of the right lengths")]
    Parts,
    /// Other characters, or unused bits that are set.
    #[error("it has characters that no token has")]
    Alphabet,
    /// Mistyped or cut off.
    #[error("its check part does not fit the rest")]
    Check,
}

pub(crate) fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && decode::<ID_BYTES>(text).is_some()
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    let (mut held, mut bits) = (0_u32, 0_u32);
    let mut push = |five: u32| {
        let index = usize::try_from(five & 31).unwrap_or_default();
        text.push(char::from(ALPHABET.get(index).copied().unwrap_or(b'a')));
    };
    for byte in bytes {
        held = (held << 8) | u32::from(*byte);
        bits = bits.saturating_add(8);
        while bits >= 5 {
            bits = bits.saturating_sub(5);
            push(held >> bits);
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        push(held << 5_u32.saturating_sub(bits));
    }
    text
}

/// The bytes of a text that has no bits beside theirs.
fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0_u8; N];
    let mut places = bytes.iter_mut();
    let (mut held, mut bits) = (0_u32, 0_u32);
    for character in text.bytes() {
        let five = ALPHABET.iter().position(|known| *known == character)?;
        held = (held << 5) | u32::try_from(five).ok()?;
        bits = bits.saturating_add(5);
        if bits >= 8 {
            bits = bits.saturating_sub(8);
            *places.next()? = u8::try_from((held >> bits) & 0xff).ok()?;
            held &= (1 << bits) - 1;
        }
    }
    (places.next().is_none() && held == 0 && bits < 5).then_some(bytes)
}

fn check_of(text: &str) -> String {
    encode(&crc32(text.as_bytes()).to_be_bytes())
}

/// CRC-32 as in IEEE 802.3, bit by bit: 74 characters need no table.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc >>= 1;
            if carry == 1 {
                crc ^= 0xEDB8_8320;
            }
        }
    }
    !crc
}

const PREFIX: &str = "ott1.";
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
pub(crate) const ID_BYTES: usize = 10;
pub(crate) const SECRET_BYTES: usize = 32;
const ID_LENGTH: usize = 16;
const SECRET_LENGTH: usize = 52;
const CHECK_LENGTH: usize = 7;
const LENGTH: usize = 82;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const VECTOR: &str =
        "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";

    fn vector() -> TokenText {
        let bytes = |from: u8| move |index: usize| from + u8::try_from(index).unwrap();
        TokenText::new(
            std::array::from_fn(bytes(0)),
            std::array::from_fn(bytes(0x20)),
        )
    }

    #[test]
    fn the_vector_is_made_and_read() {
        assert_eq!(vector().expose(), VECTOR);
        let read = TokenText::parse(VECTOR).unwrap();
        assert_eq!(read.id().as_str(), "aaaqeayeaudaocaj");
        assert_eq!(read.message(), vector().message());
        assert_eq!(VECTOR.len(), LENGTH);
    }

    #[rstest]
    #[case::empty("", NotAToken::Prefix)]
    #[case::upper_case(&VECTOR.to_uppercase(), NotAToken::Prefix)]
    #[case::upper_case_behind(&VECTOR.replace("aaaq", "AAAQ"), NotAToken::Alphabet)]
    #[case::other_version(&VECTOR.replace("ott1", "ott2"), NotAToken::Prefix)]
    #[case::cut_off(VECTOR.get(..81).unwrap(), NotAToken::Parts)]
    #[case::longer(&format!("{VECTOR}a"), NotAToken::Parts)]
    #[case::a_part_more(&format!("{VECTOR}."), NotAToken::Parts)]
    #[case::blank_in_front(&format!(" {VECTOR}"), NotAToken::Prefix)]
    #[case::mistyped(&VECTOR.replace("eaqse", "eaqsa"), NotAToken::Check)]
    #[case::digit_outside(&VECTOR.replace("eaqse", "eaqs1"), NotAToken::Alphabet)]
    #[case::unused_bits(&VECTOR.replace("hy7q", "hy7r"), NotAToken::Alphabet)]
    #[case::unused_bits_of_the_check(&VECTOR.replace("zqthxay", "zqthxaz"), NotAToken::Alphabet)]
    #[case::a_jwt("eyJhbGciOiJIUzUxMiJ9.eyJ_IjoxfQ.c2ln", NotAToken::Prefix)]
    fn what_is_not_spelled_exactly_is_no_token(#[case] text: &str, #[case] fault: NotAToken) {
        assert_eq!(TokenText::parse(text).err(), Some(fault));
    }

    #[test]
    fn the_text_of_a_token_is_masked_as_one() {
        assert!(looks_like_a_token(vector().expose()));
        let shown = masked_tokens(VECTOR);
        assert_eq!(shown, "ott1.aaaqeayeaudaocaj.…");
    }

    #[test]
    fn debug_output_has_no_secret() {
        let shown = format!("{:?}", vector());
        assert_eq!(shown, "TokenText(aaaqeayeaudaocaj)");
    }
}
