//! Attributes of a request (RFC 2986 4.1).

use crate::der::{self, FieldFault, InField, Tlv, tag};
use crate::oid::Oid;
use crate::value::RawValue;

/// One attribute with all its values in received order, known or not. Its `Debug` form shows no content of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// What kind of attribute.
    pub oid: Oid,
    /// Its SET of values, unsorted as received; may be empty in a hostile request.
    pub values: Vec<RawValue>,
}

impl Attribute {
    /// An attribute with one text, for a request of our own. Text within the alphabet of PrintableString (X.680 41.4) is one, as
    /// Puppet agents write it; any other is a UTF8String, the choice of DirectoryString that every processor takes (RFC 2985 5.4.1).
    #[must_use]
    pub fn of_text(oid: Oid, text: &str) -> Self {
        let is_printable = |b: u8| b.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&b);
        let tag = if text.bytes().all(is_printable) {
            tag::PRINTABLE_STRING
        } else {
            tag::UTF8_STRING
        };
        let mut value = Vec::with_capacity(text.len().saturating_add(8));
        der::write(&mut value, tag, text.as_bytes());
        Attribute {
            oid,
            values: vec![RawValue::of_written(value, text.len())],
        }
    }

    pub(crate) fn read(tlv: &Tlv<'_>, field: &'static str) -> Result<Self, FieldFault> {
        let mut fields = tlv.reader();
        let oid = fields
            .expect(tag::OID)
            .and_then(|t| t.oid())
            .within(field)?;
        let set = fields.expect(tag::SET).within(field)?;
        fields.finish().within(field)?;
        let mut reader = set.reader();
        let mut values = Vec::new();
        while !reader.is_empty() {
            values.push(RawValue::from_tlv(&reader.any().within(field)?));
        }
        Ok(Attribute { oid, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oid::CHALLENGE_PASSWORD;

    #[test]
    fn texts_are_written_as_agents_write_them() {
        for (text, der) in [
            ("ab.1", &[0x13, 4, b'a', b'b', b'.', b'1'][..]),
            ("ab_1", &[0x0c, 4, b'a', b'b', b'_', b'1']),
            ("", &[0x13, 0]),
        ] {
            let attribute = Attribute::of_text(CHALLENGE_PASSWORD, text);
            let value = RawValue::from_der(der).unwrap();
            assert_eq!(value.text().as_deref(), Some(text));
            assert_eq!(attribute.values, [value]);
        }
    }
}
