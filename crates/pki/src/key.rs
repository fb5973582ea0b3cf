//! Public keys: which kinds are acceptable and what is known about one.

use std::fmt;

use crate::der::{self, DerFault, FieldFault, InField, tag};
use crate::oid::{self, Oid};

/// What is known about an acceptable public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKeyFacts {
    /// Algorithm and size.
    pub key_type: KeyType,
}

impl PublicKeyFacts {
    /// Reads a SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// If the key is malformed, weak or of an algorithm we do not accept.
    pub fn from_spki(spki_der: &[u8]) -> Result<Self, KeyFault> {
        ReadKey::from_spki(spki_der).map(|key| key.facts())
    }

    /// The family in one lower-case word: `rsa`, `ec` or `ed25519`.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self.key_type {
            KeyType::Rsa { .. } => "rsa",
            KeyType::Ec(_) => "ec",
            KeyType::Ed25519 => "ed25519",
        }
    }

    /// The size in bits: modulus, or order of the curve.
    #[must_use]
    pub fn bits(&self) -> u32 {
        match self.key_type {
            KeyType::Rsa { bits } => bits,
            KeyType::Ec(Curve::P256) | KeyType::Ed25519 => 256,
            KeyType::Ec(Curve::P384) => 384,
            KeyType::Ec(Curve::P521) => 521,
        }
    }
}

/// Acceptable kinds of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// RSA, 2048 to 8192 bits.
    Rsa {
        /// Length of the modulus.
        bits: u32,
    },
    /// ECDSA on a named curve.
    Ec(Curve),
    /// Ed25519 (RFC 8410).
    Ed25519,
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyType::Rsa { bits } => write!(f, "RSA {bits}"),
            KeyType::Ec(curve) => write!(f, "EC {curve}"),
            KeyType::Ed25519 => f.write_str("Ed25519"),
        }
    }
}

/// The NIST curves of RFC 5480.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    /// secp256r1
    P256,
    /// secp384r1
    P384,
    /// secp521r1
    P521,
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Curve::P256 => "P-256",
            Curve::P384 => "P-384",
            Curve::P521 => "P-521",
        })
    }
}

/// Why a public key was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// Not the DER it should be.
    #[error("{field} {reason}")]
    Malformed {
        /// Where.
        field: &'static str,
        /// What is wrong there.
        reason: DerFault,
    },
    /// Fewer bits than we accept.
    #[error("weak key: RSA with {bits} bits, at least {MIN_RSA_BITS} are needed")]
    WeakRsa {
        /// Length of the modulus.
        bits: u32,
    },
    /// More bits than we are willing to compute with.
    #[error("RSA key with {bits} bits, at most {MAX_RSA_BITS} are accepted")]
    LargeRsa {
        /// Length of the modulus.
        bits: u32,
    },
    /// An even modulus has a factor that everybody knows.
    #[error("weak key: RSA modulus is even")]
    EvenModulus,
    /// A factor that everybody finds.
    #[error("weak key: RSA modulus can be divided by {factor}")]
    SmallFactor {
        /// Which.
        factor: u64,
    },
    /// Whoever can take a square root knows its factors.
    #[error("weak key: RSA modulus is a square")]
    SquareModulus,
    /// Made by a generator whose primes can be found (CVE-2017-15361).
    #[error("weak key: RSA modulus of a generator with the ROCA flaw (CVE-2017-15361)")]
    Roca,
    /// The private key is one, or as well known.
    #[error("weak key: the EC key is the base point of its curve")]
    BasePoint,
    /// The exponent is even, below 3, or over 32 bits.
    #[error("RSA public exponent is not an odd number from 3 to 4294967295")]
    Exponent,
    /// An algorithm we know and refuse.
    #[error("weak key: {algorithm} keys are not accepted")]
    WeakAlgorithm {
        /// Its common name.
        algorithm: &'static str,
    },
    /// An algorithm we do not accept.
    #[error("subjectPublicKeyInfo.algorithm {oid} is not supported")]
    UnsupportedAlgorithm {
        /// The algorithm.
        oid: Oid,
    },
    /// A curve we do not accept.
    #[error("subjectPublicKeyInfo.algorithm.parameters: curve {oid} is not supported")]
    UnsupportedCurve {
        /// The curve.
        oid: Oid,
    },
    /// Curve parameters written out instead of a name.
    #[error("subjectPublicKeyInfo.algorithm.parameters: the curve is not named")]
    UnnamedCurve,
    /// Parameters where there must be none.
    #[error("subjectPublicKeyInfo.algorithm.parameters must be absent")]
    UnexpectedParameters,
    /// A compressed or hybrid point, or one of the wrong length for its curve.
    #[error("subjectPublicKeyInfo.subjectPublicKey is not an uncompressed point of its curve")]
    Point,
    /// Not 32 octets.
    #[error("subjectPublicKeyInfo.subjectPublicKey is not an Ed25519 key of 32 octets")]
    Ed25519Length,
    /// A point of small order, for which anybody can make signatures, or one that is not written in the one right way.
    #[error("weak key: the Ed25519 key is a point of small order or not in canonical form")]
    WeakEd25519,
}

impl From<FieldFault> for KeyFault {
    fn from(fault: FieldFault) -> Self {
        KeyFault::Malformed {
            field: fault.field,
            reason: fault.reason,
        }
    }
}

/// A key as read: its kind, and the bytes that the cryptography library wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadKey<'a> {
    pub(crate) key_type: KeyType,
    /// RSAPublicKey DER, uncompressed point, or raw Ed25519 key.
    pub(crate) bits: &'a [u8],
}

impl<'a> ReadKey<'a> {
    pub(crate) fn from_spki(spki_der: &'a [u8]) -> Result<Self, KeyFault> {
        Self::read(spki_der, KeyRule::Acceptable)
    }

    pub(crate) fn facts(&self) -> PublicKeyFacts {
        PublicKeyFacts {
            key_type: self.key_type,
        }
    }

    pub(crate) fn read(spki_der: &'a [u8], rule: KeyRule) -> Result<Self, KeyFault> {
        let mut fields = der::single(spki_der, tag::SEQUENCE).within(SPKI)?.reader();
        let mut algorithm = fields.expect(tag::SEQUENCE).within(ALGORITHM)?.reader();
        let bits = fields
            .expect(tag::BIT_STRING)
            .and_then(|t| t.whole_octets())
            .within(SUBJECT_PUBLIC_KEY)?;
        fields.finish().within(SPKI)?;

        let oid = algorithm
            .expect(tag::OID)
            .and_then(|t| t.oid())
            .within(ALGORITHM)?;
        let key_type = match oid {
            oid::RSA_ENCRYPTION => {
                // RFC 3279 2.3.1: the parameters are NULL.
                let null = algorithm.expect(tag::NULL).within(PARAMETERS)?;
                if !null.content.is_empty() {
                    return Err(FieldFault {
                        field: PARAMETERS,
                        reason: DerFault::TrailingBytes,
                    }
                    .into());
                }
                rsa_key_type(bits, rule)?
            }
            oid::EC_PUBLIC_KEY => {
                let parameters = algorithm.any().within(PARAMETERS)?;
                if parameters.tag != tag::OID {
                    return Err(KeyFault::UnnamedCurve);
                }
                ec_key_type(parameters.oid().within(PARAMETERS)?, bits)?
            }
            oid::ED25519 => {
                if !algorithm.is_empty() {
                    return Err(KeyFault::UnexpectedParameters);
                }
                let key = bits.try_into().map_err(|_| KeyFault::Ed25519Length)?;
                if is_weak_ed25519(key) {
                    return Err(KeyFault::WeakEd25519);
                }
                KeyType::Ed25519
            }
            oid::DSA => return Err(KeyFault::WeakAlgorithm { algorithm: "DSA" }),
            oid => return Err(KeyFault::UnsupportedAlgorithm { oid }),
        };
        algorithm.finish().within(ALGORITHM)?;
        Ok(ReadKey { key_type, bits })
    }
}

/// Which keys are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRule {
    /// Those that may get a certificate.
    Acceptable,
    /// RSA keys as well that are too short for one, as long as their signatures can be verified.
    Judged,
}

/// The octets of the BIT STRING of any SubjectPublicKeyInfo, acceptable or not: what key identifiers are made of.
pub(crate) fn subject_public_key(spki_der: &[u8]) -> Result<&[u8], DerFault> {
    let mut fields = der::single(spki_der, tag::SEQUENCE)?.reader();
    fields.expect(tag::SEQUENCE)?;
    let octets = fields.expect(tag::BIT_STRING)?.whole_octets()?;
    fields.finish()?;
    Ok(octets)
}

/// The modulus of an RSAPublicKey.
pub(crate) fn rsa_modulus(bits: &[u8]) -> Result<&[u8], KeyFault> {
    rsa_numbers(bits).map(|(modulus, _)| modulus)
}

fn rsa_numbers(bits: &[u8]) -> Result<(&[u8], &[u8]), KeyFault> {
    let mut fields = der::single(bits, tag::SEQUENCE)
        .within(SUBJECT_PUBLIC_KEY)?
        .reader();
    let modulus = fields
        .expect(tag::INTEGER)
        .and_then(|t| t.unsigned())
        .within(MODULUS)?;
    let exponent = fields
        .expect(tag::INTEGER)
        .and_then(|t| t.unsigned())
        .within(EXPONENT)?;
    fields.finish().within(SUBJECT_PUBLIC_KEY)?;
    Ok((modulus, exponent))
}

fn rsa_key_type(bits: &[u8], rule: KeyRule) -> Result<KeyType, KeyFault> {
    let (modulus, exponent) = rsa_numbers(bits)?;
    let bits = bit_length(modulus);
    let least = match rule {
        KeyRule::Acceptable => MIN_RSA_BITS,
        KeyRule::Judged => JUDGED_RSA_BITS,
    };
    if bits < least {
        return Err(KeyFault::WeakRsa { bits });
    }
    if bits > MAX_RSA_BITS {
        return Err(KeyFault::LargeRsa { bits });
    }
    if modulus.last().is_none_or(|b| b % 2 == 0) {
        return Err(KeyFault::EvenModulus);
    }
    let odd = exponent.last().is_some_and(|b| b % 2 == 1);
    if !odd || exponent == [1] || exponent.len() > MAX_EXPONENT_OCTETS {
        return Err(KeyFault::Exponent);
    }
    Ok(KeyType::Rsa { bits })
}

fn ec_key_type(curve: Oid, point: &[u8]) -> Result<KeyType, KeyFault> {
    let (curve, octets) = match curve {
        oid::P256 => (Curve::P256, 65),
        oid::P384 => (Curve::P384, 97),
        oid::P521 => (Curve::P521, 133),
        oid => return Err(KeyFault::UnsupportedCurve { oid }),
    };
    // RFC 5480 2.2 makes only the uncompressed form mandatory. Whether the point lies on its curve is checked by the
    // library when it verifies the first signature.
    if point.first() != Some(&4) || point.len() != octets {
        return Err(KeyFault::Point);
    }
    Ok(KeyType::Ec(curve))
}

/// Whether a key is one of the eight points whose multiples are so few that a signature can be guessed, or says its `y` as
/// a number that is not below the field's prime (RFC 8032 5.1.3).
fn is_weak_ed25519(key: &[u8; 32]) -> bool {
    let mut y = *key;
    let [.., last] = &mut y;
    // The sign of `x`: a point and its negative have the same order.
    *last &= 0x7f;
    let is_canonical = y.iter().rev().lt(ED25519_PRIME.iter().rev());
    !is_canonical || SMALL_ORDER_Y.contains(&y)
}

fn bit_length(magnitude: &[u8]) -> u32 {
    let leading = magnitude.first().map_or(0, |b| b.leading_zeros());
    u32::try_from(magnitude.len())
        .unwrap_or(u32::MAX)
        .saturating_mul(8)
        .saturating_sub(leading)
}

const SPKI: &str = "subjectPublicKeyInfo";
const ALGORITHM: &str = "subjectPublicKeyInfo.algorithm";
const PARAMETERS: &str = "subjectPublicKeyInfo.algorithm.parameters";
const SUBJECT_PUBLIC_KEY: &str = "subjectPublicKeyInfo.subjectPublicKey";
const MODULUS: &str = "subjectPublicKeyInfo.subjectPublicKey.modulus";
const EXPONENT: &str = "subjectPublicKeyInfo.subjectPublicKey.publicExponent";

/// 2^255 - 19, least significant octet first.
const ED25519_PRIME: [u8; 32] = {
    let mut prime = [0xff; 32];
    prime[0] = 0xed;
    prime[31] = 0x7f;
    prime
};
/// The `y` of the points whose order divides eight: 1, -1, 0 and two of order eight.
const SMALL_ORDER_Y: [[u8; 32]; 5] = [
    one_octet(1),
    {
        let mut minus_one = ED25519_PRIME;
        minus_one[0] = 0xec;
        minus_one
    },
    one_octet(0),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98,
        0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53,
        0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67,
        0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac,
        0x03, 0x7a,
    ],
];

const fn one_octet(value: u8) -> [u8; 32] {
    let mut number = [0; 32];
    number[0] = value;
    number
}

const MIN_RSA_BITS: u32 = 2048; // NIST SP 800-57: 112 bits of security
/// What an API server accepts at least, and what the library still verifies.
const JUDGED_RSA_BITS: u32 = 1024;
const MAX_RSA_BITS: u32 = 8192; // what the library verifies; bounds the cost of a hostile request
const MAX_EXPONENT_OCTETS: usize = 4; // the library's bound; larger ones only serve to slow a verifier down

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    fn spki(key: &[u8; 32]) -> Vec<u8> {
        let head = [
            0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
        ];
        [head.as_slice(), key].concat()
    }

    /// The library believes a signature that nobody made.
    #[test]
    fn anybody_signs_for_the_neutral_point() {
        let forged = [one_octet(1), one_octet(0)].concat();
        let key = UnparsedPublicKey::new(&ED25519, one_octet(1));
        assert!(key.verify(b"anything at all", &forged).is_ok());
    }

    #[test]
    fn keys_for_which_anybody_can_sign_are_refused() {
        let mut weak: Vec<[u8; 32]> = SMALL_ORDER_Y.to_vec();
        // The same numbers, and others, beyond the prime.
        for above in 0..19 {
            let mut beyond = ED25519_PRIME;
            beyond[0] = ED25519_PRIME[0] + above;
            weak.push(beyond);
        }
        for mut key in weak {
            for sign in [0, 0x80] {
                key[31] = (key[31] & 0x7f) | sign;
                let read = ReadKey::from_spki(&spki(&key)).map(|read| read.key_type);
                assert_eq!(read, Err(KeyFault::WeakEd25519), "{key:02x?}");
            }
        }
        // The base point, and the largest number below the prime that is not -1.
        let base = {
            let mut base = [0x66; 32];
            base[0] = 0x58;
            base
        };
        let mut largest = ED25519_PRIME;
        largest[0] = 0xeb;
        for key in [base, largest] {
            let read = ReadKey::from_spki(&spki(&key)).map(|read| read.key_type);
            assert_eq!(read, Ok(KeyType::Ed25519), "{key:02x?}");
        }
    }
}
