//! What is kept of a secret: an HMAC under a key that is not in the store, or, without a key, a digest.

use std::fmt;

use aws_lc_rs::{constant_time, digest, hmac};
use zeroize::Zeroizing;

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
}

impl MacKeys {
    /// What is kept of a new token, which is given as its message, and under which key.
    pub(crate) fn mac(&self, token: &[u8]) -> ([u8; 32], String) {
        let key = self.current.as_ref();
        let id = key.map_or(String::new(), |key| key.id.clone());
        (mac(key, token), id)
    }

    /// Whether this is the token on record. Takes as long if there is no such record, or none of its key.
    pub(crate) fn verify(&self, token: &[u8], kept: Option<(&[u8; 32], &str)>) -> bool {
        let all = self.current.iter().chain(&self.old);
        let key = kept.map(|(_, id)| match id {
            "" => Some(None),
            id => all.into_iter().find(|key| key.id == id).map(Some),
        });
        let key = key.flatten();
        let expected = kept.filter(|_| key.is_some()).map(|(mac, _)| mac);
        let computed = mac(key.unwrap_or(self.current.as_ref()), token);
        let equal = constant_time::verify_slices_are_equal(&computed, expected.unwrap_or(&DUMMY));
        equal.is_ok() && expected.is_some()
    }
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
            old: Vec::new(),
        }
    }

    #[test]
    fn the_vector_is_computed() {
        let (mac, id) = keys(0xaa).mac(&token());
        let hex: String = mac.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "268578d98606ed76bbbb4e6e3aa98089a4013938b4c6bf14b9a66fd6daee3723"
        );
        assert!(keys(0xaa).verify(&token(), Some((&mac, &id))));
    }

    #[test]
    fn only_the_right_secret_under_a_known_key_verifies() {
        let (mac, id) = keys(1).mac(&token());
        let other = TokenText::new([0; 10], [9; 32]).message();
        assert!(!keys(1).verify(&other, Some((&mac, &id))));
        assert!(!keys(1).verify(&token(), None));
        assert!(
            !keys(2).verify(&token(), Some((&mac, &id))),
            "its key is gone"
        );
        assert!(!MacKeys::default().verify(&token(), Some((&mac, &id))));
        let rotated = MacKeys {
            old: keys(1).current.into_iter().collect(),
            ..keys(2)
        };
        assert!(rotated.verify(&token(), Some((&mac, &id))));
        let (digest, none) = MacKeys::default().mac(&token());
        assert_eq!(none, "");
        assert!(rotated.verify(&token(), Some((&digest, ""))));
    }

    #[test]
    fn short_keys_are_refused() {
        assert!(MacKey::new(vec![1; 31]).is_err());
    }
}
