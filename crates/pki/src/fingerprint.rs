//! Digests that identify a certificate, a request or a key.

use std::fmt;

use aws_lc_rs::digest;

/// A SHA-256 digest, shown as upper-case pairs joined by colons, as OpenSSL and Puppet print it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The digest that a store kept.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Fingerprint(bytes)
    }

    /// The 32 octets.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest that [`Fingerprint::to_hex`] wrote; `None`: it did not.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut octets = [0; 32];
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
            return None;
        };
        if pairs.len() != octets.len() {
            return None;
        }
        for (octet, pair) in octets.iter_mut().zip(pairs) {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let value = digit(pair[0])? << 4 | digit(pair[1])?;
            *octet = u8::try_from(value).ok()?;
        }
        Some(Fingerprint(octets))
    }

    /// Lower-case hexadecimal without separators.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&colon(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.to_hex())
    }
}

/// The SHA-256 digest of some bytes.
#[must_use]
pub fn fingerprint_sha256(bytes: &[u8]) -> Fingerprint {
    let mut octets = [0; 32];
    for (to, from) in octets
        .iter_mut()
        .zip(digest::digest(&digest::SHA256, bytes).as_ref())
    {
        *to = *from;
    }
    Fingerprint(octets)
}

/// The SHA-1 digest in colon form. Only for Puppet's status objects, which list it; nothing is decided by it.
#[must_use]
pub fn sha1_colon(bytes: &[u8]) -> String {
    colon(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref())
}

/// The SHA-256 digest in colon form.
#[must_use]
pub fn sha256_colon(bytes: &[u8]) -> String {
    fingerprint_sha256(bytes).to_string()
}

/// The SHA-512 digest in colon form.
#[must_use]
pub fn sha512_colon(bytes: &[u8]) -> String {
    colon(digest::digest(&digest::SHA512, bytes).as_ref())
}

/// Listings show three digests of every certificate: one allocation each, and no formatter.
fn colon(bytes: &[u8]) -> String {
    let digit = |nibble: u8| match nibble {
        0..=9 => b'0'.saturating_add(nibble),
        _ => b'A'.saturating_add(nibble.saturating_sub(10)),
    };
    let mut text = Vec::with_capacity(bytes.len().saturating_mul(3));
    for byte in bytes {
        text.extend_from_slice(&[digit(byte >> 4), digit(byte & 0x0f), b':']);
    }
    text.pop();
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_abc_are_the_published_ones() {
        assert_eq!(
            fingerprint_sha256(b"abc").to_hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            sha1_colon(b"abc"),
            "A9:99:3E:36:47:06:81:6A:BA:3E:25:71:78:50:C2:6C:9C:D0:D8:9D"
        );
        assert!(sha512_colon(b"abc").starts_with("DD:AF:35:A1:93:61:7A:BA"));
        assert_eq!(sha256_colon(b"abc"), fingerprint_sha256(b"abc").to_string());
    }

    #[test]
    fn every_octet_is_two_upper_case_digits() {
        let every: Vec<u8> = (0..=255).collect();
        let pairs: Vec<String> = every.iter().map(|octet| format!("{octet:02X}")).collect();
        assert_eq!(colon(&every), pairs.join(":"));
        assert_eq!(colon(&[]), "");
    }
}
