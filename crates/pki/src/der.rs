//! Strict DER, one element at a time.
//!
//! The ASN.1 library splits elements (tags, minimal definite lengths); the few primitive types we need are read here,
//! from borrowed bytes, so that whatever was signed can be compared and verified exactly as received.

use crate::oid::{Oid, OidFault};
use crate::time::{Civil, UnixTime, digits};

/// What is wrong with some bytes that should be DER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DerFault {
    /// An element is longer than what holds it.
    #[error("ends too early")]
    Truncated,
    /// An indefinite or non-minimal length, or a bad tag.
    #[error("is not DER (bad tag or length)")]
    NotDer,
    /// Another type stands where this field belongs.
    #[error("has tag {found:#04x} instead of {wanted:#04x}")]
    Tag {
        /// The identifier octet that was read.
        found: u8,
        /// The identifier octet that belongs there.
        wanted: u8,
    },
    /// Bytes follow the last field.
    #[error("is followed by extra bytes")]
    TrailingBytes,
    /// An INTEGER with superfluous leading octets.
    #[error("is an integer that is not minimal")]
    Integer,
    /// An INTEGER below zero.
    #[error("is a negative integer")]
    Negative,
    /// A BOOLEAN other than 00 and FF, or a default value written out.
    #[error("is not a DER boolean")]
    Boolean,
    /// A BIT STRING that does not consist of whole octets.
    #[error("is a bit string with unused bits")]
    UnusedBits,
    /// A BIT STRING that breaks the rules of named bits.
    #[error("is not a DER bit string")]
    BitString,
    /// A bad OBJECT IDENTIFIER.
    #[error("is a bad object identifier")]
    Oid(#[source] OidFault),
    /// A time that is no UTCTime or GeneralizedTime of RFC 5280.
    #[error("is not a valid time")]
    Time,
    /// A container that must not be empty is.
    #[error("is empty")]
    Empty,
}

/// A fault together with the field it was found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldFault {
    pub(crate) field: &'static str,
    pub(crate) reason: DerFault,
}

/// Names the field of a fault.
pub(crate) trait InField<T> {
    fn within(self, field: &'static str) -> Result<T, FieldFault>;
}

impl<T> InField<T> for Result<T, DerFault> {
    fn within(self, field: &'static str) -> Result<T, FieldFault> {
        self.map_err(|reason| FieldFault { field, reason })
    }
}

/// One element: its identifier octet, its content, and both with the length between.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tlv<'a> {
    /// The first identifier octet. Low-form tags are told apart by it; high-form ones all end in five set bits.
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    pub(crate) full: &'a [u8],
}

impl<'a> Tlv<'a> {
    /// The elements inside.
    pub(crate) fn reader(&self) -> Reader<'a> {
        Reader { rest: self.content }
    }

    /// Content octets of a non-negative INTEGER without the sign octet.
    pub(crate) fn unsigned(&self) -> Result<&'a [u8], DerFault> {
        match self.content {
            [] => Err(DerFault::Integer),
            [0] => Ok(&[]),
            [0, next, ..] if *next < 0x80 => Err(DerFault::Integer),
            [0xff, next, ..] if *next >= 0x80 => Err(DerFault::Integer),
            [0, rest @ ..] => Ok(rest),
            [first, ..] if *first >= 0x80 => Err(DerFault::Negative),
            all => Ok(all),
        }
    }

    /// The octets of a BIT STRING that has no unused bits, as keys and signatures do.
    pub(crate) fn whole_octets(&self) -> Result<&'a [u8], DerFault> {
        match self.content {
            [0, octets @ ..] => Ok(octets),
            [1..=7, _, ..] => Err(DerFault::UnusedBits),
            _ => Err(DerFault::BitString),
        }
    }

    pub(crate) fn oid(&self) -> Result<Oid, DerFault> {
        Oid::from_der_content(self.content).map_err(DerFault::Oid)
    }

    pub(crate) fn boolean(&self) -> Result<bool, DerFault> {
        match self.content {
            [0xff] => Ok(true),
            [0] => Ok(false),
            _ => Err(DerFault::Boolean),
        }
    }

    /// UTCTime or GeneralizedTime in the only forms RFC 5280 4.1.2.5 admits: seconds, UTC, no fraction.
    pub(crate) fn time(&self) -> Result<UnixTime, DerFault> {
        let text = self.content.strip_suffix(b"Z").ok_or(DerFault::Time)?;
        let (year, rest) = match self.tag {
            tag::UTC_TIME => {
                let (year, rest) = text.split_at_checked(2).ok_or(DerFault::Time)?;
                let year = digits(year).ok_or(DerFault::Time)?;
                let century = if year < 50 { 2000 } else { 1900 };
                (year.saturating_add(century), rest)
            }
            tag::GENERALIZED_TIME => {
                let (year, rest) = text.split_at_checked(4).ok_or(DerFault::Time)?;
                (digits(year).ok_or(DerFault::Time)?, rest)
            }
            found => {
                return Err(DerFault::Tag {
                    found,
                    wanted: tag::UTC_TIME,
                });
            }
        };
        if rest.len() != 10 {
            return Err(DerFault::Time);
        }
        let mut pairs = rest
            .chunks_exact(2)
            .map(|pair| digits(pair).ok_or(DerFault::Time));
        let mut next = || pairs.next().unwrap_or(Err(DerFault::Time));
        let civil = Civil {
            year,
            month: next()?,
            day: next()?,
            hour: next()?,
            minute: next()?,
            second: next()?,
        };
        civil.to_unix().ok_or(DerFault::Time)
    }
}

/// A cursor over consecutive elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next element, whatever it is.
    pub(crate) fn any(&mut self) -> Result<Tlv<'a>, DerFault> {
        let (tlv, rest) = asn1::strip_tlv(self.rest).map_err(|fault| match fault.kind() {
            asn1::ParseErrorKind::ShortData { .. } => DerFault::Truncated,
            _ => DerFault::NotDer,
        })?;
        self.rest = rest;
        let full = tlv.full_data();
        Ok(Tlv {
            tag: full.first().copied().ok_or(DerFault::Truncated)?,
            content: tlv.data(),
            full,
        })
    }

    /// The next element, which must have this identifier octet.
    pub(crate) fn expect(&mut self, wanted: u8) -> Result<Tlv<'a>, DerFault> {
        match self.rest.first() {
            None => Err(DerFault::Truncated),
            Some(found) if *found != wanted => Err(DerFault::Tag {
                found: *found,
                wanted,
            }),
            Some(_) => self.any(),
        }
    }

    /// The next element if it has this identifier octet.
    pub(crate) fn optional(&mut self, wanted: u8) -> Result<Option<Tlv<'a>>, DerFault> {
        if self.rest.first() == Some(&wanted) {
            return self.any().map(Some);
        }
        Ok(None)
    }

    /// Nothing may follow.
    pub(crate) fn finish(&self) -> Result<(), DerFault> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DerFault::TrailingBytes)
        }
    }
}

/// The one element that these bytes are.
pub(crate) fn single(bytes: &[u8], wanted: u8) -> Result<Tlv<'_>, DerFault> {
    let mut reader = Reader::new(bytes);
    let tlv = reader.expect(wanted)?;
    reader.finish()?;
    Ok(tlv)
}

/// The one element that these bytes are, of any type.
pub(crate) fn single_any(bytes: &[u8]) -> Result<Tlv<'_>, DerFault> {
    let mut reader = Reader::new(bytes);
    let tlv = reader.any()?;
    reader.finish()?;
    Ok(tlv)
}

/// Appends a primitive element.
pub(crate) fn write(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    write_length(out, content.len());
    out.extend_from_slice(content);
}

/// Appends an element whose content the closure appends. Its cost is linear: long contents move once.
pub(crate) fn write_nested(out: &mut Vec<u8>, tag: u8, content: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let start = out.len();
    content(out);
    let mut length = Vec::with_capacity(5);
    write_length(&mut length, out.len().saturating_sub(start));
    out.splice(start..start, length);
}

/// Appends a non-negative INTEGER given by its big-endian magnitude.
pub(crate) fn write_unsigned(out: &mut Vec<u8>, magnitude: &[u8]) {
    let leading = magnitude.iter().take_while(|b| **b == 0).count();
    let minimal = magnitude.get(leading..).unwrap_or_default();
    write_nested(out, tag::INTEGER, |out| {
        if minimal.first().is_none_or(|b| *b >= 0x80) {
            out.push(0);
        }
        out.extend_from_slice(minimal);
    });
}

/// Appends an OBJECT IDENTIFIER.
pub(crate) fn write_oid(out: &mut Vec<u8>, oid: &Oid) {
    write(out, tag::OID, oid.der_content());
}

/// Appends a BIT STRING of whole octets.
pub(crate) fn write_whole_octets(out: &mut Vec<u8>, octets: &[u8]) {
    write_nested(out, tag::BIT_STRING, |out| {
        out.push(0);
        out.extend_from_slice(octets);
    });
}

/// Appends a time: UTCTime through 2049, GeneralizedTime from 2050 (RFC 5280 4.1.2.5). Nothing outside 1950 to 9999.
pub(crate) fn write_time(out: &mut Vec<u8>, time: UnixTime) -> Option<()> {
    let c = time.civil();
    let rest = format!(
        "{:02}{:02}{:02}{:02}{:02}Z",
        c.month, c.day, c.hour, c.minute, c.second
    );
    match c.year {
        1950..=2049 => {
            let text = format!("{:02}{rest}", c.year.rem_euclid(100));
            write(out, tag::UTC_TIME, text.as_bytes());
        }
        2050..=9999 => {
            let text = format!("{:04}{rest}", c.year);
            write(out, tag::GENERALIZED_TIME, text.as_bytes());
        }
        _ => return None,
    }
    Some(())
}

fn write_length(out: &mut Vec<u8>, length: usize) {
    if let Ok(short @ 0..=0x7f) = u8::try_from(length) {
        out.push(short);
        return;
    }
    let octets = length.to_be_bytes();
    let leading = octets.iter().take_while(|b| **b == 0).count();
    let minimal = octets.get(leading..).unwrap_or_default();
    out.push(0x80 | u8::try_from(minimal.len()).unwrap_or_default());
    out.extend_from_slice(minimal);
}

/// Identifier octets.
pub(crate) mod tag {
    pub(crate) const BOOLEAN: u8 = 0x01;
    pub(crate) const INTEGER: u8 = 0x02;
    pub(crate) const BIT_STRING: u8 = 0x03;
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const NULL: u8 = 0x05;
    pub(crate) const OID: u8 = 0x06;
    pub(crate) const ENUMERATED: u8 = 0x0a;
    pub(crate) const UTF8_STRING: u8 = 0x0c;
    pub(crate) const PRINTABLE_STRING: u8 = 0x13;
    pub(crate) const T61_STRING: u8 = 0x14;
    pub(crate) const IA5_STRING: u8 = 0x16;
    pub(crate) const UTC_TIME: u8 = 0x17;
    pub(crate) const GENERALIZED_TIME: u8 = 0x18;
    pub(crate) const UNIVERSAL_STRING: u8 = 0x1c;
    pub(crate) const BMP_STRING: u8 = 0x1e;
    pub(crate) const SEQUENCE: u8 = 0x30;
    pub(crate) const SET: u8 = 0x31;
    pub(crate) const CONTEXT_0: u8 = 0xa0;
    pub(crate) const CONTEXT_1: u8 = 0xa1;
    pub(crate) const CONTEXT_2: u8 = 0xa2;
    pub(crate) const CONTEXT_3: u8 = 0xa3;
    pub(crate) const CONTEXT_0_PRIMITIVE: u8 = 0x80;
    pub(crate) const CONTEXT_1_PRIMITIVE: u8 = 0x81;
    pub(crate) const CONTEXT_2_PRIMITIVE: u8 = 0x82;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case(&[0x04, 0x81, 0x01, 0x00], DerFault::NotDer)]
    #[case(&[0x04, 0x80, 0x00, 0x00], DerFault::NotDer)]
    #[case(&[0x04, 0x82, 0x00, 0x81], DerFault::NotDer)]
    #[case(&[0x04, 0x05, 0x00], DerFault::Truncated)]
    #[case(&[], DerFault::Truncated)]
    #[case(&[0x04, 0x00, 0x00], DerFault::TrailingBytes)]
    #[case(&[0x05, 0x00], DerFault::Tag { found: 5, wanted: 4 })]
    fn refuses_what_is_not_der(#[case] bytes: &[u8], #[case] fault: DerFault) {
        assert_eq!(single(bytes, tag::OCTET_STRING).map(|_| ()), Err(fault));
    }

    #[rstest]
    #[case(&[2, 1, 0], Ok(&[][..]))]
    #[case(&[2, 2, 0, 0x80], Ok(&[0x80][..]))]
    #[case(&[2, 2, 0, 0x7f], Err(DerFault::Integer))]
    #[case(&[2, 1, 0x80], Err(DerFault::Negative))]
    #[case(&[2, 2, 0xff, 0x80], Err(DerFault::Integer))]
    #[case(&[2, 0], Err(DerFault::Integer))]
    fn reads_integers_strictly(#[case] bytes: &[u8], #[case] expected: Result<&[u8], DerFault>) {
        assert_eq!(single(bytes, tag::INTEGER).unwrap().unsigned(), expected);
    }

    #[rstest]
    #[case("1950-01-01T00:00:00Z", tag::UTC_TIME)]
    #[case("2049-12-31T23:59:59Z", tag::UTC_TIME)]
    #[case("2050-01-01T00:00:00Z", tag::GENERALIZED_TIME)]
    #[case("9999-12-31T23:59:59Z", tag::GENERALIZED_TIME)]
    fn times_change_their_type_in_2050(#[case] text: &str, #[case] tag: u8) {
        let time = UnixTime::parse_rfc3339(text).unwrap();
        let mut out = Vec::new();
        write_time(&mut out, time).unwrap();
        let tlv = single(&out, tag).unwrap();
        assert_eq!(tlv.time(), Ok(time));
    }

    #[test]
    fn times_outside_the_calendar_of_x509_are_not_written() {
        assert_eq!(write_time(&mut Vec::new(), UnixTime(-631_152_001)), None);
        assert_eq!(
            write_time(&mut Vec::new(), UnixTime::MAX_X509.plus_seconds(1)),
            None
        );
    }

    proptest! {
        #[test]
        fn lengths_round_trip(len in 0_usize..70_000) {
            let content = vec![7; len];
            let mut plain = Vec::new();
            write(&mut plain, tag::OCTET_STRING, &content);
            let mut nested = Vec::new();
            write_nested(&mut nested, tag::OCTET_STRING, |out| out.extend_from_slice(&content));
            prop_assert_eq!(&plain, &nested);
            prop_assert_eq!(single(&plain, tag::OCTET_STRING).unwrap().content.len(), len);
        }

        #[test]
        fn integers_round_trip(number: u64) {
            let mut out = Vec::new();
            write_unsigned(&mut out, &number.to_be_bytes());
            let magnitude = single(&out, tag::INTEGER).unwrap().unsigned().unwrap();
            prop_assert_eq!(magnitude.iter().fold(0_u64, |acc, b| (acc << 8) | u64::from(*b)), number);
        }
    }
}
