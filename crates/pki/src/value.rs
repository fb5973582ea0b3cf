//! Values of attributes, kept as received, with the text they may hold.

use std::fmt;

use crate::der::{self, DerFault, Tlv, tag};

/// One value exactly as it was encoded. Nothing is lost that a parser with opinions would refuse or rewrite.
///
/// It may be a password: its `Debug` form has the type and the length only.
#[derive(Clone, PartialEq, Eq)]
pub struct RawValue {
    der: Vec<u8>,
    content_len: usize,
}

impl RawValue {
    pub(crate) fn from_tlv(tlv: &Tlv<'_>) -> Self {
        RawValue {
            der: tlv.full.to_vec(),
            content_len: tlv.content.len(),
        }
    }

    /// An element that was just written, with so many octets of content.
    pub(crate) fn of_written(der: Vec<u8>, content_len: usize) -> Self {
        RawValue { der, content_len }
    }

    /// The element that these bytes are.
    ///
    /// # Errors
    /// If they are not exactly one DER element.
    pub fn from_der(der: &[u8]) -> Result<Self, DerFault> {
        der::single_any(der).map(|tlv| Self::from_tlv(&tlv))
    }

    /// The first identifier octet: class, constructed bit and, for ordinary types, the tag number.
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.der.first().copied().unwrap_or_default()
    }

    /// Whether the encoding is constructed, which DER forbids for strings.
    #[must_use]
    pub fn is_constructed(&self) -> bool {
        self.tag() & 0x20 != 0
    }

    /// Tag, length and content.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The content octets.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        let header = self.der.len().saturating_sub(self.content_len);
        self.der.get(header..).unwrap_or_default()
    }

    /// The text, if this is a primitive string of a known type whose octets are valid for it.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        text_of(self.tag(), self.content())
    }
}

impl fmt::Debug for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawValue")
            .field("tag", &format_args!("{:#04x}", self.tag()))
            .field("octets", &self.content_len)
            .finish()
    }
}

/// The text of a string element, by its type.
///
/// Puppet agents put any ASCII into PrintableString and OpenSSL puts `@` there, so its alphabet is not enforced. T61String
/// is read as Latin-1, which is what all its writers mean. BMPString is UCS-2: a surrogate is no character.
pub(crate) fn text_of(tag: u8, content: &[u8]) -> Option<String> {
    match tag {
        tag::UTF8_STRING => std::str::from_utf8(content).ok().map(str::to_owned),
        tag::PRINTABLE_STRING | tag::IA5_STRING => {
            let ascii = content.is_ascii().then_some(content)?;
            std::str::from_utf8(ascii).ok().map(str::to_owned)
        }
        tag::T61_STRING => Some(content.iter().copied().map(char::from).collect()),
        tag::BMP_STRING => wide_text::<2>(content),
        tag::UNIVERSAL_STRING => wide_text::<4>(content),
        _ => None,
    }
}

/// Whether the identifier octet is that of a string type which holds text.
pub(crate) fn is_text_tag(tag: u8) -> bool {
    unit_width(tag).is_some()
}

/// How many octets an ASCII character takes in a string of this type; nothing if it is no type for text.
pub(crate) fn unit_width(tag: u8) -> Option<usize> {
    match tag {
        tag::UTF8_STRING | tag::PRINTABLE_STRING | tag::IA5_STRING | tag::T61_STRING => Some(1),
        tag::BMP_STRING => Some(2),
        tag::UNIVERSAL_STRING => Some(4),
        _ => None,
    }
}

fn wide_text<const WIDTH: usize>(content: &[u8]) -> Option<String> {
    let units = content.chunks_exact(WIDTH);
    if !units.remainder().is_empty() {
        return None;
    }
    units
        .map(|unit| char::from_u32(unit.iter().fold(0, |acc, b| (acc << 8) | u32::from(*b))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::utf8(&[0x0c, 3, b'a', 0xc3, 0xa9], Some("aé"))]
    #[case::utf8_invalid(&[0x0c, 1, 0xff], None)]
    #[case::printable_with_underscore(&[0x13, 4, b'a', b'b', b'_', b'1'], Some("ab_1"))]
    #[case::printable_beyond_ascii(&[0x13, 1, 0xe9], None)]
    #[case::ia5(&[0x16, 2, b'a', b'@'], Some("a@"))]
    #[case::t61_is_latin1(&[0x14, 1, 0xe9], Some("é"))]
    #[case::bmp(&[0x1e, 4, 0, b'h', 0x20, 0xac], Some("h€"))]
    #[case::bmp_odd(&[0x1e, 3, 0, b'h', 0], None)]
    #[case::bmp_surrogates(&[0x1e, 4, 0xd8, 0x3d, 0xde, 0x00], None)]
    #[case::universal(&[0x1c, 4, 0, 1, 0xf6, 0], Some("😀"))]
    #[case::universal_cut(&[0x1c, 3, 0, 0, 1], None)]
    #[case::constructed(&[0x2c, 3, 0x0c, 1, b'a'], None)]
    #[case::octets(&[0x04, 1, b'a'], None)]
    #[case::high_tag(&[0x1f, 0x1f, 1, b'a'], None)]
    fn text_by_type(#[case] der: &[u8], #[case] text: Option<&str>) {
        let value = RawValue::from_der(der).unwrap();
        assert_eq!(value.text().as_deref(), text);
        assert_eq!(value.der(), der);
    }
}
