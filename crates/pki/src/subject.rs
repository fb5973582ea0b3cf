//! Distinguished names that we write.

use crate::der::{self, tag};
use crate::name::Subject;
use crate::oid::{self, Oid};

/// Which string type a value is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StringKind {
    /// UTF8String, always possible.
    Utf8,
    /// PrintableString if the text fits its alphabet, else UTF8String.
    Printable,
}

/// Builds a Name with one attribute per RDN, in the order of the calls.
#[derive(Debug, Clone, Default)]
pub struct SubjectBuilder {
    rdns: Vec<u8>,
}

impl SubjectBuilder {
    /// A name without attributes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puppet's form: the common name alone, as UTF8String.
    #[must_use]
    pub fn utf8_common_name(name: &str) -> Vec<u8> {
        Self::new()
            .push(oid::COMMON_NAME, name, StringKind::Utf8)
            .build()
    }

    /// Adds one attribute.
    #[must_use]
    pub fn push(self, oid: Oid, text: &str, kind: StringKind) -> Self {
        self.push_set(oid, &[text], kind)
    }

    /// The DER of the name.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.rdns.len().saturating_add(4));
        der::write(&mut out, tag::SEQUENCE, &self.rdns);
        out
    }

    /// The name as Go's `crypto/x509` writes it after having read `subject`, which is what Kubernetes signers issue.
    ///
    /// Nine attribute types survive, each in one RDN with all its values; of several common names or serial numbers the
    /// last one counts, and an empty one counts as none.
    #[must_use]
    pub fn go_style(subject: &Subject) -> Vec<u8> {
        let mut builder = Self::new();
        for (oid, arity) in GO_ORDER {
            let texts: Vec<&str> = subject.texts(&oid).collect();
            let kept = match arity {
                GoArity::Many => texts.as_slice(),
                GoArity::LastOne => texts
                    .split_last()
                    .filter(|(last, _)| !last.is_empty())
                    .map_or(&[][..], |(last, _)| std::slice::from_ref(last)),
            };
            builder = builder.push_set(oid, kept, StringKind::Printable);
        }
        builder.build()
    }

    /// Adds one RDN with several values of a type, in DER order; nothing if there is no value.
    fn push_set(mut self, oid: Oid, texts: &[&str], kind: StringKind) -> Self {
        if texts.is_empty() {
            return self;
        }
        let mut members: Vec<Vec<u8>> = texts
            .iter()
            .map(|text| attribute(&oid, text, kind))
            .collect();
        members.sort();
        der::write(&mut self.rdns, tag::SET, &members.concat());
        self
    }
}

fn attribute(oid: &Oid, text: &str, kind: StringKind) -> Vec<u8> {
    let tag = match kind {
        StringKind::Printable if text.bytes().all(is_printable) => tag::PRINTABLE_STRING,
        StringKind::Printable | StringKind::Utf8 => tag::UTF8_STRING,
    };
    let mut out = Vec::with_capacity(text.len().saturating_add(16));
    der::write_nested(&mut out, tag::SEQUENCE, |out| {
        der::write_oid(out, oid);
        der::write(out, tag, text.as_bytes());
    });
    out
}

/// The alphabet of PrintableString (X.680 41.4).
fn is_printable(b: u8) -> bool {
    b.is_ascii_alphanumeric()
        || matches!(
            b,
            b' ' | b'\'' | b'(' | b')' | b'+' | b',' | b'-' | b'.' | b'/' | b':' | b'=' | b'?'
        )
}

/// How many values of a type Go keeps.
#[derive(Debug, Clone, Copy)]
enum GoArity {
    Many,
    LastOne,
}

/// The order of `pkix.Name.ToRDNSequence`.
const GO_ORDER: [(Oid, GoArity); 9] = [
    (oid::COUNTRY, GoArity::Many),
    (oid::STATE, GoArity::Many),
    (oid::LOCALITY, GoArity::Many),
    (oid::STREET, GoArity::Many),
    (oid::POSTAL_CODE, GoArity::Many),
    (oid::ORGANIZATION, GoArity::Many),
    (oid::ORGANIZATIONAL_UNIT, GoArity::Many),
    (oid::COMMON_NAME, GoArity::LastOne),
    (oid::SERIAL_NUMBER, GoArity::LastOne),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::der::single;
    use crate::name::NameRules;

    fn read(der: &[u8]) -> Subject {
        Subject::read(&single(der, tag::SEQUENCE).unwrap(), &NameRules::FOREIGN).unwrap()
    }

    #[test]
    fn go_style_regroups_sorts_and_drops() {
        let asked = SubjectBuilder::new()
            .push(oid::COMMON_NAME, "first", StringKind::Utf8)
            .push(oid::ORGANIZATION, "b", StringKind::Utf8)
            .push(oid::EMAIL_ADDRESS, "a@b", StringKind::Utf8)
            .push(oid::COMMON_NAME, "system:node:a", StringKind::Utf8)
            .push(oid::ORGANIZATION, "a", StringKind::Utf8)
            .push(oid::COUNTRY, "DE", StringKind::Utf8)
            .push(oid::LOCALITY, "Köln", StringKind::Utf8)
            .build();
        let made = read(&SubjectBuilder::go_style(&read(&asked)));
        assert_eq!(made.to_string(), "CN=system:node:a,O=a+O=b,L=Köln,C=DE");
        let tags: Vec<u8> = made.attributes().map(|a| a.value.raw().tag()).collect();
        assert_eq!(tags, [0x13, 0x0c, 0x13, 0x13, 0x13]);
    }

    #[test]
    fn go_style_of_an_empty_name_is_empty() {
        assert_eq!(
            SubjectBuilder::go_style(&read(&SubjectBuilder::new().build())),
            [0x30, 0]
        );
        assert_eq!(
            SubjectBuilder::go_style(&read(&SubjectBuilder::utf8_common_name(""))),
            [0x30, 0]
        );
    }

    #[test]
    fn asterisk_and_underscore_are_not_printable() {
        let der = SubjectBuilder::new()
            .push(oid::COMMON_NAME, "a_*", StringKind::Printable)
            .build();
        assert_eq!(
            read(&der).attributes().next().unwrap().value.raw().tag(),
            0x0c
        );
    }
}
