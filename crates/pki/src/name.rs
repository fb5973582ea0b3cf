//! Distinguished names (RFC 5280 4.1.2.4), read without merging, reordering or dropping anything.

use std::fmt;

use crate::der::{DerFault, Tlv, tag};
use crate::oid::{self, Oid};
use crate::value::{self, RawValue};

/// The name of a subject or of an issuer: every RDN and every attribute in received order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    rdns: Vec<Vec<NameAttribute>>,
    der: Vec<u8>,
}

impl Subject {
    /// The relative distinguished names, most significant first, as encoded.
    #[must_use]
    pub fn rdns(&self) -> &[Vec<NameAttribute>] {
        &self.rdns
    }

    /// All attributes in received order, across RDNs.
    pub fn attributes(&self) -> impl Iterator<Item = &NameAttribute> {
        self.rdns.iter().flatten()
    }

    /// The texts of all attributes of one type in received order.
    pub fn texts<'a>(&'a self, oid: &'a Oid) -> impl Iterator<Item = &'a str> {
        self.attributes()
            .filter(move |a| a.oid == *oid)
            .filter_map(|a| a.value.text())
    }

    /// Every common name.
    pub fn common_names(&self) -> impl Iterator<Item = &str> {
        self.texts(&oid::COMMON_NAME)
    }

    /// The common name that stands first in the encoding.
    #[must_use]
    pub fn first_common_name(&self) -> Option<&str> {
        self.common_names().next()
    }

    /// The common name that stands last, which is the one Go's parser keeps.
    #[must_use]
    pub fn last_common_name(&self) -> Option<&str> {
        self.common_names().last()
    }

    /// Every organization.
    pub fn organizations(&self) -> impl Iterator<Item = &str> {
        self.texts(&oid::ORGANIZATION)
    }

    /// Every organizational unit.
    pub fn organizational_units(&self) -> impl Iterator<Item = &str> {
        self.texts(&oid::ORGANIZATIONAL_UNIT)
    }

    /// Whether there is no attribute at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rdns.is_empty()
    }

    /// The name exactly as received, to be compared or copied verbatim.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Reads a `Name` element.
    pub(crate) fn read(tlv: &Tlv<'_>, rules: &NameRules) -> Result<Self, SubjectFault> {
        let mut sets = tlv.reader();
        let mut rdns = Vec::new();
        let mut count = 0_usize;
        while !sets.is_empty() {
            let set = sets.expect(tag::SET).map_err(SubjectFault::Malformed)?;
            let mut members = set.reader();
            let mut rdn = Vec::new();
            while !members.is_empty() {
                count = count.saturating_add(1);
                if count > rules.max_attributes {
                    return Err(SubjectFault::TooMany {
                        limit: rules.max_attributes,
                    });
                }
                let member = members
                    .expect(tag::SEQUENCE)
                    .map_err(SubjectFault::Malformed)?;
                rdn.push(NameAttribute::read(&member, rules)?);
            }
            if rdn.is_empty() {
                return Err(SubjectFault::EmptyRdn);
            }
            rdns.push(rdn);
        }
        Ok(Subject {
            rdns,
            der: tlv.full.to_vec(),
        })
    }
}

impl fmt::Display for Subject {
    /// RFC 4514: last RDN first, values escaped. Control characters are escaped too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, rdn) in self.rdns.iter().rev().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            for (j, attribute) in rdn.iter().enumerate() {
                if j > 0 {
                    f.write_str("+")?;
                }
                write!(f, "{attribute}")?;
            }
        }
        Ok(())
    }
}

/// One attribute of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameAttribute {
    /// Its type.
    pub oid: Oid,
    /// Its value.
    pub value: NameValue,
}

impl NameAttribute {
    fn read(tlv: &Tlv<'_>, rules: &NameRules) -> Result<Self, SubjectFault> {
        let mut fields = tlv.reader();
        let oid = fields
            .expect(tag::OID)
            .and_then(|t| t.oid())
            .map_err(SubjectFault::Malformed)?;
        let value = fields.any().map_err(SubjectFault::Malformed)?;
        fields.finish().map_err(SubjectFault::Malformed)?;
        if value.content.len() > rules.max_text {
            return Err(SubjectFault::TooLong {
                limit: rules.max_text,
            });
        }
        let text = value::text_of(value.tag, value.content);
        if rules.text == TextRule::Plain {
            match &text {
                None if value::is_text_tag(value.tag & !CONSTRUCTED) => {
                    return Err(SubjectFault::NotText { oid });
                }
                Some(text) if text.chars().any(char::is_control) => {
                    return Err(SubjectFault::Control { oid });
                }
                _ => {}
            }
        }
        Ok(NameAttribute {
            oid,
            value: NameValue {
                raw: RawValue::from_tlv(&value),
                text,
            },
        })
    }
}

impl fmt::Display for NameAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = SHORT_NAMES.iter().find(|(_, oid)| *oid == self.oid);
        if let (Some((name, _)), Some(text)) = (short, self.value.text()) {
            write!(f, "{name}=")?;
            return escape(f, text);
        }
        write!(f, "{}=#", self.oid)?;
        self.value
            .raw
            .der()
            .iter()
            .try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The value of a name attribute: as received, and its text if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameValue {
    raw: RawValue,
    text: Option<String>,
}

impl NameValue {
    /// The text, if the value is a string of a known type and valid.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The value as received.
    #[must_use]
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }
}

/// How strict to be with a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameRules {
    pub(crate) max_attributes: usize,
    pub(crate) max_text: usize,
    pub(crate) text: TextRule,
}

impl NameRules {
    /// For certificates and lists that other authorities made.
    pub(crate) const FOREIGN: NameRules = NameRules {
        max_attributes: 256,
        max_text: 16 * 1024,
        text: TextRule::Any,
    };
}

/// Which texts are let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextRule {
    /// Strings must decode and have no control characters.
    Plain,
    /// Whatever an existing certificate has.
    Any,
}

/// Why a name was refused; the caller knows whose name it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubjectFault {
    Malformed(DerFault),
    EmptyRdn,
    TooMany { limit: usize },
    TooLong { limit: usize },
    NotText { oid: Oid },
    Control { oid: Oid },
}

/// RFC 4514 section 2.4.
fn escape(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let last = text.chars().count().saturating_sub(1);
    for (i, c) in text.chars().enumerate() {
        let at_edge = (i == 0 && matches!(c, ' ' | '#')) || (i == last && c == ' ');
        match c {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => write!(f, "\\{c}")?,
            _ if at_edge => write!(f, "\\{c}")?,
            _ if c.is_control() => {
                let mut octets = [0; 4];
                c.encode_utf8(&mut octets)
                    .bytes()
                    .try_for_each(|b| write!(f, "\\{b:02x}"))?;
            }
            _ => write!(f, "{c}")?,
        }
    }
    Ok(())
}

const CONSTRUCTED: u8 = 0x20;

/// RFC 4514 section 3 and the descriptors of other types that readers know.
const SHORT_NAMES: [(&str, Oid); 15] = [
    ("CN", oid::COMMON_NAME),
    ("O", oid::ORGANIZATION),
    ("OU", oid::ORGANIZATIONAL_UNIT),
    ("C", oid::COUNTRY),
    ("ST", oid::STATE),
    ("L", oid::LOCALITY),
    ("STREET", oid::STREET),
    ("DC", oid::DOMAIN_COMPONENT),
    ("UID", oid::USER_ID),
    ("SN", oid::SURNAME),
    ("serialNumber", oid::SERIAL_NUMBER),
    ("title", oid::TITLE),
    ("postalCode", oid::POSTAL_CODE),
    ("givenName", oid::GIVEN_NAME),
    ("emailAddress", oid::EMAIL_ADDRESS),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::der::single;
    use crate::subject::{StringKind, SubjectBuilder};
    use rstest::rstest;

    fn read(der: &[u8], text: TextRule) -> Result<Subject, SubjectFault> {
        let rules = NameRules {
            max_attributes: 4,
            max_text: 32,
            text,
        };
        Subject::read(&single(der, tag::SEQUENCE).unwrap(), &rules)
    }

    #[rstest]
    #[case("web01", "CN=web01")]
    #[case(" a,b+c ", "CN=\\ a\\,b\\+c\\ ")]
    #[case("#x\\\"<>;", "CN=\\#x\\\\\\\"\\<\\>\\;")]
    #[case("Bür=o", "CN=Bür=o")]
    fn shows_rfc4514_text(#[case] cn: &str, #[case] text: &str) {
        let der = SubjectBuilder::utf8_common_name(cn);
        assert_eq!(read(&der, TextRule::Plain).unwrap().to_string(), text);
    }

    #[test]
    fn shows_the_last_rdn_first_and_unknown_types_in_hexadecimal() {
        let der = SubjectBuilder::new()
            .push(oid::ORGANIZATION, "x", StringKind::Printable)
            .push(Oid::parse("1.2.3").unwrap(), "y", StringKind::Utf8)
            .push(oid::COMMON_NAME, "z", StringKind::Utf8)
            .build();
        assert_eq!(
            read(&der, TextRule::Plain).unwrap().to_string(),
            "CN=z,1.2.3=#0c0179,O=x"
        );
    }

    #[test]
    fn control_characters_are_for_foreign_certificates_only() {
        let der = SubjectBuilder::utf8_common_name("a\u{1b}b");
        assert_eq!(
            read(&der, TextRule::Plain),
            Err(SubjectFault::Control {
                oid: oid::COMMON_NAME
            })
        );
        assert_eq!(read(&der, TextRule::Any).unwrap().to_string(), "CN=a\\1bb");
    }

    #[test]
    fn limits_hold() {
        let long = SubjectBuilder::utf8_common_name(&"a".repeat(33));
        assert_eq!(
            read(&long, TextRule::Any),
            Err(SubjectFault::TooLong { limit: 32 })
        );
        let many = (0..5).fold(SubjectBuilder::new(), |b, _| {
            b.push(oid::COMMON_NAME, "a", StringKind::Utf8)
        });
        assert_eq!(
            read(&many.build(), TextRule::Any),
            Err(SubjectFault::TooMany { limit: 4 })
        );
        assert_eq!(
            read(&[0x30, 2, 0x31, 0], TextRule::Any),
            Err(SubjectFault::EmptyRdn)
        );
    }
}
