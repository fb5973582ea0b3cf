//! Extensions of requests, certificates and revocation lists (RFC 5280 4.2).

use std::fmt;

use crate::der::{self, DerFault, Tlv, tag};
use crate::oid::Oid;
use crate::value;

/// One extension with its undecoded value.
///
/// The value may be a password (`pp_preshared_key` is one): its `Debug` form has the length only.
#[derive(Clone, PartialEq, Eq)]
pub struct Extension {
    /// What kind of extension.
    pub oid: Oid,
    /// Whether a reader that does not know it must refuse.
    pub critical: bool,
    /// The content of its OCTET STRING.
    pub value: Vec<u8>,
}

impl Extension {
    /// The text of a Puppet extension: the value is exactly one DER string, or, as very old agents wrote it, bare
    /// printable ASCII that is no DER element. Nothing for any other value.
    #[must_use]
    pub fn text_value(&self) -> Option<String> {
        match der::single_any(&self.value) {
            Ok(tlv) => value::text_of(tlv.tag, tlv.content),
            Err(_) if self.value.is_empty() => None,
            Err(_) if self.value.iter().all(|b| matches!(b, b' '..=b'~')) => {
                std::str::from_utf8(&self.value).ok().map(str::to_owned)
            }
            Err(_) => None,
        }
    }

    /// Reads one `Extension`. A written-out `critical FALSE` is not DER; old certificates have it, requests may not.
    pub(crate) fn read(tlv: &Tlv<'_>, default_false: WrittenDefault) -> Result<Self, DerFault> {
        let mut fields = tlv.reader();
        let oid = fields.expect(tag::OID)?.oid()?;
        let critical = match fields.optional(tag::BOOLEAN)? {
            None => false,
            Some(tlv) => match (tlv.boolean()?, default_false) {
                (true, _) => true,
                (false, WrittenDefault::Tolerate) => false,
                (false, WrittenDefault::Refuse) => return Err(DerFault::Boolean),
            },
        };
        let value = fields.expect(tag::OCTET_STRING)?.content.to_vec();
        fields.finish()?;
        Ok(Extension {
            oid,
            critical,
            value,
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        der::write_nested(out, tag::SEQUENCE, |out| {
            der::write_oid(out, &self.oid);
            if self.critical {
                der::write(out, tag::BOOLEAN, &[0xff]);
            }
            der::write(out, tag::OCTET_STRING, &self.value);
        });
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extension")
            .field("oid", &self.oid)
            .field("critical", &self.critical)
            .field("octets", &self.value.len())
            .finish()
    }
}

/// What to do about a default value that DER says to leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrittenDefault {
    Refuse,
    Tolerate,
}

/// The first identifier that occurs twice.
pub(crate) fn first_duplicate(extensions: &[Extension]) -> Option<Oid> {
    extensions
        .iter()
        .enumerate()
        .find(|(i, e)| {
            extensions
                .iter()
                .take(*i)
                .any(|earlier| earlier.oid == e.oid)
        })
        .map(|(_, e)| e.oid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oid::PP_PRESHARED_KEY;
    use rstest::rstest;

    #[rstest]
    #[case::utf8(&[0x0c, 4, b'a', b'b', b'_', b'1'], Some("ab_1"))]
    #[case::printable(&[0x13, 1, b'x'], Some("x"))]
    #[case::raw(b"ab_1", Some("ab_1"))]
    #[case::raw_with_blank(b"a b", Some("a b"))]
    #[case::sequence(&[0x30, 0], None)]
    #[case::two_strings(&[0x0c, 1, b'a', 0x0c, 1, b'b'], None)]
    #[case::raw_binary(&[1, 2, 3], None)]
    #[case::empty(b"", None)]
    fn text_of_a_value(#[case] value: &[u8], #[case] text: Option<&str>) {
        let extension = Extension {
            oid: PP_PRESHARED_KEY,
            critical: false,
            value: value.to_vec(),
        };
        assert_eq!(extension.text_value().as_deref(), text);
    }
}
