//! What is kept of a secret: an HMAC under a key that is not in the store, or, without a key, a digest.
//!
//! With a key, a second HMAC covers what the record says of the token: whoever can write to the store can neither make a
//! token nor make one good for something else. Records without both are then refused, also those from before there was a
//! key.

use std::fmt;

use aws_lc_rs::{constant_time, digest, hmac};
use tracing::warn;
use zeroize::Zeroizing;

use super::TokenFault;

/// A key for the records of tokens. It is outside of the store, so that who can read that cannot try secrets.
#[derive(Clone)]
pub struct MacKey {
    id: String,
    key: Zeroizing<Vec<u8>>,
}

impl MacKey {
    /// A key of at least 32 bytes. Its name, which stands in each record, follows from it and says nothing about it.
    pub fn new(key: Vec<u8>) -> Result<Self, MacKeyTooShort> {
        if key.len() < MIN_KEY {
            return Err(MacKeyTooShort);
        }
        let named = [&key[..], b"countersign token key"].concat();
        let named = Zeroizing::new(named);
        let digest = digest::digest(&digest::SHA256, &named);
        let id = digest.as_ref().iter().take(8).map(|b| format!("{b:02x}"));
        Ok(Self {
            id: id.collect(),
            key: Zeroizing::new(key),
        })
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MacKey({})", self.id)
    }
}

/// A key that protects less than the secrets do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key for token records has at least {MIN_KEY} bytes")]
pub struct MacKeyTooShort;

/// The key for new tokens, and those of older ones.
#[derive(Clone, Debug, Default)]
pub struct MacKeys {
    /// For new tokens; without one, their records hold a digest of the secret.
    pub current: Option<MacKey>,
    /// For the rest.
    pub old: Vec<MacKey>,
    /// That there is a key, although it could not be read: nothing is good without one then.
    pub is_lost: bool,
}

/// What a record has to verify its token by.
pub(crate) struct Kept<'a> {
    /// The token's public part.
    pub(crate) id: &'a str,
    /// Of its secret.
    pub(crate) mac: &'a [u8; 32],
    /// The key of both MACs; empty: none, and the former is a digest.
    pub(crate) key_id: &'a str,
    /// Of its terms.
    pub(crate) terms_mac: Option<&'a [u8; 32]>,
    pub(crate) terms: Terms,
}

/// What a record says of a token and nobody may change, each part with its length before it.
pub(crate) struct Terms(Vec<u8>);

impl Terms {
    /// Those of a kind of tokens.
    pub(crate) fn of(kind: &str) -> Self {
        Self(Vec::new()).with(kind.as_bytes())
    }

    pub(crate) fn with(mut self, part: &[u8]) -> Self {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(part);
        self
    }

    pub(crate) fn with_number(self, number: impl Into<i128>) -> Self {
        self.with(&number.into().to_be_bytes())
    }
}

impl MacKeys {
    /// What is kept of a new token, which is given as its message, and under which key.
    ///
    /// # Errors
    /// If a token without a key would not be good, and there is none for new ones.
    pub(crate) fn mac(&self, token: &[u8]) -> Result<([u8; 32], String), TokenFault> {
        let key = self.current.as_ref();
        if key.is_none() && !self.takes_plain() {
            let problem = "there is no key for new tokens, and without one they would be refused: set it, or remove \
                           tokens.mac_keys_old too";
            return Err(TokenFault::field("tokens.mac_key", problem));
        }
        let id = key.map_or(String::new(), |key| key.id.clone());
        Ok((mac(key, token), id))
    }

    /// Whether records without a MAC are good. Whoever can write to the store can make such a record, so that it takes all
    /// keys to be gone, those of older tokens too.
    fn takes_plain(&self) -> bool {
        self.current.is_none() && self.old.is_empty() && !self.is_lost
    }

    /// What covers the terms of a new token; without a key, nothing does.
    pub(crate) fn terms_mac(&self, terms: &Terms) -> Option<[u8; 32]> {
        let key = self.current.as_ref()?;
        Some(mac(Some(key), &covered(terms)))
    }

    /// Whether this is the token on record. Takes as long if there is no such record, or none of its key.
    pub(crate) fn verify(&self, token: &[u8], kept: Option<Kept<'_>>) -> bool {
        let key = kept.as_ref().and_then(|kept| self.key_of(kept.key_id));
        let expected = kept.as_ref().filter(|_| key.is_some());
        let computed = mac(key.unwrap_or(self.current.as_ref()), token);
        let mac = expected.map_or(&DUMMY, |kept| kept.mac);
        let equal = constant_time::verify_slices_are_equal(&computed, mac);
        equal.is_ok() && expected.is_some_and(|kept| self.is_intact(kept))
    }

    /// Whether a record says what it said when the token was minted, as far as keys can tell.
    pub(crate) fn is_intact(&self, kept: &Kept<'_>) -> bool {
        let is_intact = match (self.key_of(kept.key_id), kept.terms_mac) {
            (None, _) => return false,
            (Some(None), _) => true,
            (Some(Some(_)), None) => false,
            (Some(key), Some(found)) => {
                let computed = mac(key, &covered(&kept.terms));
                constant_time::verify_slices_are_equal(&computed, found).is_ok()
            }
        };
        if !is_intact {
            warn!(
                token = kept.id,
                "the token is refused: its record was changed in the store"
            );
        }
        is_intact
    }

    /// The key of a name; the name of none is empty. Nothing: it is not known here, or a key is required.
    fn key_of(&self, id: &str) -> Option<Option<&MacKey>> {
        match id {
            "" => self.takes_plain().then_some(None),
            id => {
                let mut all = self.current.iter().chain(&self.old);
                all.find(|key| key.id == id).map(Some)
            }
        }
    }
}

/// No secret has the same message.
fn covered(terms: &Terms) -> Vec<u8> {
    [b"countersign token terms\0".as_slice(), &terms.0].concat()
}

fn mac(key: Option<&MacKey>, message: &[u8]) -> [u8; 32] {
    let mut kept = [0_u8; 32];
    let copied = |from: &[u8], to: &mut [u8; 32]| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    };
    match key {
        Some(key) => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &key.key);
            copied(hmac::sign(&key, message).as_ref(), &mut kept);
        }
        None => copied(digest::digest(&digest::SHA256, message).as_ref(), &mut kept),
    }
    kept
}

const MIN_KEY: usize = 32;
const DUMMY: [u8; 32] = [0; 32];

#[cfg(test)]
mod tests {
    use super::super::TokenText;
    use super::*;

    fn token() -> Zeroizing<Vec<u8>> {
        let bytes = |from: u8| move |index: usize| from + u8::try_from(index).unwrap();
        let token = TokenText::new(
            std::array::from_fn(bytes(0)),
            std::array::from_fn(bytes(0x20)),
        );
        token.message()
    }

    fn keys(byte: u8) -> MacKeys {
        MacKeys {
            current: Some(MacKey::new(vec![byte; 32]).unwrap()),
            ..MacKeys::default()
        }
    }

    #[test]
    fn the_vector_is_computed() {
        let (mac, id) = keys(0xaa).mac(&token()).unwrap();
        let hex: String = mac.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "268578d98606ed76bbbb4e6e3aa98089a4013938b4c6bf14b9a66fd6daee3723"
        );
        let terms_mac = keys(0xaa).terms_mac(&terms("a.example.com")).unwrap();
        assert!(keys(0xaa).verify(&token(), Some(kept(&mac, &id, Some(&terms_mac)))));
    }

    fn terms(name: &str) -> Terms {
        Terms::of("test").with(name.as_bytes()).with_number(7)
    }

    fn kept<'a>(mac: &'a [u8; 32], key_id: &'a str, terms_mac: Option<&'a [u8; 32]>) -> Kept<'a> {
        Kept {
            id: "aaaqeayeaudaocaj",
            mac,
            key_id,
            terms_mac,
            terms: terms("a.example.com"),
        }
    }

    #[test]
    fn only_the_right_secret_under_a_known_key_verifies() {
        let (mac, id) = keys(1).mac(&token()).unwrap();
        let terms_mac = keys(1).terms_mac(&terms("a.example.com"));
        let found = || Some(kept(&mac, &id, terms_mac.as_ref()));
        let other = TokenText::new([0; 10], [9; 32]).message();
        assert!(!keys(1).verify(&other, found()));
        assert!(!keys(1).verify(&token(), None));
        assert!(!keys(2).verify(&token(), found()), "its key is gone");
        assert!(!MacKeys::default().verify(&token(), found()));
        let rotated = MacKeys {
            old: keys(1).current.into_iter().collect(),
            ..keys(2)
        };
        assert!(rotated.verify(&token(), found()));
    }

    /// Anybody who can write to the store can make a digest.
    #[test]
    fn a_record_without_a_mac_is_refused_once_there_is_a_key() {
        let (digest, none) = MacKeys::default().mac(&token()).unwrap();
        assert_eq!(none, "");
        let found = || Some(kept(&digest, "", None));
        assert!(MacKeys::default().verify(&token(), found()));
        assert!(!keys(2).verify(&token(), found()));
        let forged = keys(2).terms_mac(&terms("a.example.com"));
        assert!(!keys(2).verify(&token(), Some(kept(&digest, "", forged.as_ref()))));
        let only_old = MacKeys {
            old: keys(2).current.into_iter().collect(),
            ..MacKeys::default()
        };
        let lost = MacKeys {
            is_lost: true,
            ..MacKeys::default()
        };
        for keys in [only_old, lost] {
            assert!(!keys.verify(&token(), found()), "{keys:?}");
            assert!(keys.mac(&token()).is_err(), "it would not be good");
        }
    }

    #[test]
    fn a_record_whose_terms_were_changed_is_refused() {
        let (mac, id) = keys(1).mac(&token()).unwrap();
        let others = keys(1).terms_mac(&terms("b.example.com"));
        let of_the_token = kept(&mac, &id, None);
        assert!(!keys(1).is_intact(&of_the_token), "it has none");
        assert!(!keys(1).is_intact(&kept(&mac, &id, others.as_ref())));
        let own = keys(1).terms_mac(&terms("a.example.com"));
        assert!(keys(1).is_intact(&kept(&mac, &id, own.as_ref())));
        assert!(!keys(1).is_intact(&kept(&mac, "", own.as_ref())));
    }

    #[test]
    fn short_keys_are_refused() {
        assert!(MacKey::new(vec![1; 31]).is_err());
    }
}
