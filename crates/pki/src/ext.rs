//! Builders for the extensions that we issue.

use std::ops::BitOr;

use aws_lc_rs::digest;

use crate::alt_name::AltName;
use crate::der::{self, tag};
use crate::extension::Extension;
use crate::key;
use crate::oid::{self, Oid};
use crate::template::EncodeFault;

/// Key usage bits (RFC 5280 4.2.1.3), bit 0 being digitalSignature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct KeyUsage(u16);

impl KeyUsage {
    /// No bit at all.
    pub const NONE: KeyUsage = KeyUsage(0);
    /// digitalSignature
    pub const DIGITAL_SIGNATURE: KeyUsage = KeyUsage(1);
    /// nonRepudiation, now called contentCommitment
    pub const CONTENT_COMMITMENT: KeyUsage = KeyUsage(1 << 1);
    /// keyEncipherment
    pub const KEY_ENCIPHERMENT: KeyUsage = KeyUsage(1 << 2);
    /// dataEncipherment
    pub const DATA_ENCIPHERMENT: KeyUsage = KeyUsage(1 << 3);
    /// keyAgreement
    pub const KEY_AGREEMENT: KeyUsage = KeyUsage(1 << 4);
    /// keyCertSign
    pub const KEY_CERT_SIGN: KeyUsage = KeyUsage(1 << 5);
    /// cRLSign
    pub const CRL_SIGN: KeyUsage = KeyUsage(1 << 6);
    /// encipherOnly
    pub const ENCIPHER_ONLY: KeyUsage = KeyUsage(1 << 7);
    /// decipherOnly
    pub const DECIPHER_ONLY: KeyUsage = KeyUsage(1 << 8);

    /// Whether every bit of `other` is set here.
    #[must_use]
    pub fn contains(self, other: KeyUsage) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether no bit is set.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Reads the content of a BIT STRING: unused count, then bits from the top of each octet. Trailing zero bits, which
    /// DER forbids in named bit lists, occur in old certificates and are harmless.
    pub(crate) fn from_bit_string(content: &[u8]) -> Option<Self> {
        let (unused, octets) = content.split_first()?;
        if *unused > 7 || octets.len() > 2 || (octets.is_empty() && *unused != 0) {
            return None;
        }
        let first = u16::from(octets.first().copied().unwrap_or_default().reverse_bits());
        let second = u16::from(octets.get(1).copied().unwrap_or_default().reverse_bits());
        let bits = first | (second << 8);
        (bits < 1 << 9).then_some(KeyUsage(bits))
    }

    fn to_bit_string(self) -> Vec<u8> {
        let [low, high] = self.0.to_le_bytes();
        let mut octets = vec![low.reverse_bits(), high.reverse_bits()];
        while octets.last() == Some(&0) {
            octets.pop();
        }
        let unused = octets.last().map_or(0, |last| last.trailing_zeros());
        octets.insert(0, u8::try_from(unused).unwrap_or_default());
        octets
    }
}

impl BitOr for KeyUsage {
    type Output = KeyUsage;

    fn bitor(self, other: KeyUsage) -> KeyUsage {
        KeyUsage(self.0 | other.0)
    }
}

impl FromIterator<KeyUsage> for KeyUsage {
    fn from_iter<I: IntoIterator<Item = KeyUsage>>(usages: I) -> Self {
        usages
            .into_iter()
            .fold(KeyUsage::NONE, |all, one| all | one)
    }
}

/// Critical basicConstraints of an authority without a path limit.
#[must_use]
pub fn basic_constraints_ca() -> Extension {
    critical(oid::BASIC_CONSTRAINTS, vec![0x30, 3, tag::BOOLEAN, 1, 0xff])
}

/// Critical basicConstraints of an authority below which at most `length` further authorities may stand.
#[must_use]
pub fn basic_constraints_ca_with_path_length(length: u32) -> Extension {
    let mut value = Vec::new();
    der::write_nested(&mut value, tag::SEQUENCE, |out| {
        der::write(out, tag::BOOLEAN, &[0xff]);
        der::write_unsigned(out, &length.to_be_bytes());
    });
    critical(oid::BASIC_CONSTRAINTS, value)
}

/// Critical basicConstraints that say "no authority": the empty sequence.
#[must_use]
pub fn basic_constraints_leaf() -> Extension {
    critical(oid::BASIC_CONSTRAINTS, vec![tag::SEQUENCE, 0])
}

/// Critical keyUsage.
#[must_use]
pub fn key_usage(usage: KeyUsage) -> Extension {
    let mut value = Vec::new();
    der::write(&mut value, tag::BIT_STRING, &usage.to_bit_string());
    critical(oid::KEY_USAGE, value)
}

/// extKeyUsage in the given order. Puppet marks it critical, Kubernetes does not: set the field.
#[must_use]
pub fn extended_key_usage(usages: &[Oid]) -> Extension {
    let mut value = Vec::new();
    der::write_nested(&mut value, tag::SEQUENCE, |out| {
        usages.iter().for_each(|usage| der::write_oid(out, usage));
    });
    plain(oid::EXTENDED_KEY_USAGE, value)
}

/// The usual key identifier, method 1 of RFC 5280 4.2.1.2: SHA-1 of the public key's octets. A name, not a protection.
///
/// # Errors
/// If the bytes are no SubjectPublicKeyInfo.
pub fn key_id(spki_der: &[u8]) -> Result<Vec<u8>, EncodeFault> {
    let octets = key::subject_public_key(spki_der).map_err(|reason| EncodeFault::Malformed {
        field: "subjectPublicKeyInfo",
        reason,
    })?;
    Ok(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, octets)
        .as_ref()
        .to_vec())
}

/// subjectKeyIdentifier of a public key.
///
/// # Errors
/// If the bytes are no SubjectPublicKeyInfo.
pub fn subject_key_id(spki_der: &[u8]) -> Result<Extension, EncodeFault> {
    let mut value = Vec::new();
    der::write(&mut value, tag::OCTET_STRING, &key_id(spki_der)?);
    Ok(plain(oid::SUBJECT_KEY_IDENTIFIER, value))
}

/// authorityKeyIdentifier with the key identifier alone, so that a renewed CA certificate still fits.
#[must_use]
pub fn authority_key_id(key_id: &[u8]) -> Extension {
    let mut value = Vec::new();
    der::write_nested(&mut value, tag::SEQUENCE, |out| {
        der::write(out, tag::CONTEXT_0_PRIMITIVE, key_id);
    });
    plain(oid::AUTHORITY_KEY_IDENTIFIER, value)
}

/// subjectAltName in the given order; critical where the subject is empty (RFC 5280 4.2.1.6).
#[must_use]
pub fn subject_alt_name(names: &[AltName], is_critical: bool) -> Extension {
    let mut value = Vec::new();
    der::write_nested(&mut value, tag::SEQUENCE, |out| {
        names.iter().for_each(|name| name.write(out));
    });
    Extension {
        oid: oid::SUBJECT_ALT_NAME,
        critical: is_critical,
        value,
    }
}

/// Netscape's comment, which Puppet puts into every certificate. Characters outside ASCII become `?`.
#[must_use]
pub fn ns_comment(text: &str) -> Extension {
    let ascii: String = text
        .chars()
        .map(|c| if c.is_ascii() { c } else { '?' })
        .collect();
    let mut value = Vec::new();
    der::write(&mut value, tag::IA5_STRING, ascii.as_bytes());
    plain(oid::NS_COMMENT, value)
}

/// cRLNumber.
#[must_use]
pub fn crl_number(number: u64) -> Extension {
    let mut value = Vec::new();
    der::write_unsigned(&mut value, &number.to_be_bytes());
    plain(oid::CRL_NUMBER, value)
}

/// An extension that holds one UTF8String, as Puppet's do.
#[must_use]
pub fn utf8_extension(oid: Oid, text: &str, is_critical: bool) -> Extension {
    let mut value = Vec::new();
    der::write(&mut value, tag::UTF8_STRING, text.as_bytes());
    Extension {
        oid,
        critical: is_critical,
        value,
    }
}

fn critical(oid: Oid, value: Vec<u8>) -> Extension {
    Extension {
        oid,
        critical: true,
        value,
    }
}

fn plain(oid: Oid, value: Vec<u8>) -> Extension {
    Extension {
        oid,
        critical: false,
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case(KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_ENCIPHERMENT, &[3, 2, 5, 0xa0])]
    #[case(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN, &[3, 2, 1, 0x06])]
    #[case(KeyUsage::DECIPHER_ONLY, &[3, 3, 7, 0, 0x80])]
    #[case(KeyUsage::NONE, &[3, 1, 0])]
    fn key_usage_is_a_der_named_bit_list(#[case] usage: KeyUsage, #[case] der: &[u8]) {
        assert_eq!(key_usage(usage).value, der);
    }

    #[test]
    fn preshared_key_extension_is_what_agents_send() {
        let mut out = Vec::new();
        utf8_extension(oid::PP_PRESHARED_KEY, "ab_1", false).write(&mut out);
        let hex: String = out.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "3015060b2b06010401828c4c01010404060c0461625f31");
    }

    proptest! {
        #[test]
        fn key_usage_round_trips(bits in 0_u16..512) {
            let usage = KeyUsage(bits);
            prop_assert_eq!(KeyUsage::from_bit_string(&usage.to_bit_string()), Some(usage));
        }
    }
}
