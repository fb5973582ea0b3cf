//! Subject alternative names (RFC 5280 4.2.1.6).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::der::{self, DerFault, Tlv, tag};

/// One GeneralName.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AltName {
    /// dNSName, printable ASCII; whether it is a host name is the profile's question.
    Dns(String),
    /// iPAddress.
    Ip(IpAddr),
    /// rfc822Name, printable ASCII.
    Email(String),
    /// uniformResourceIdentifier, printable ASCII.
    Uri(String),
    /// A kind that no profile of ours issues: otherName, x400Address, directoryName, ediPartyName, registeredID.
    Other {
        /// The identifier octet.
        tag: u8,
        /// The whole element.
        der: Vec<u8>,
    },
}

impl AltName {
    /// The names in the content of a subjectAltName extension.
    ///
    /// # Errors
    /// If the content is not a non-empty DER list of names, one of them is malformed, or a limit is exceeded.
    pub fn read_all(
        content: &[u8],
        max_names: usize,
        max_text: usize,
    ) -> Result<Vec<Self>, NameFault> {
        Self::read_list(content, max_names, max_text, EmptyNames::Refused)
    }

    pub(crate) fn read_list(
        content: &[u8],
        max_names: usize,
        max_text: usize,
        empty: EmptyNames,
    ) -> Result<Vec<Self>, NameFault> {
        let list = der::single(content, tag::SEQUENCE).map_err(NameFault::Malformed)?;
        let mut reader = list.reader();
        let mut names = Vec::new();
        while !reader.is_empty() {
            if names.len() >= max_names {
                return Err(NameFault::TooMany { limit: max_names });
            }
            let tlv = reader.any().map_err(NameFault::Malformed)?;
            let name = match (empty, tlv.tag, tlv.content) {
                (EmptyNames::Kept, DNS, []) => AltName::Dns(String::new()),
                (EmptyNames::Kept, EMAIL, []) => AltName::Email(String::new()),
                (EmptyNames::Kept, URI, []) => AltName::Uri(String::new()),
                _ => Self::read(&tlv, max_text)?,
            };
            names.push(name);
        }
        if names.is_empty() {
            return Err(NameFault::Malformed(DerFault::Empty));
        }
        Ok(names)
    }

    fn read(tlv: &Tlv<'_>, max_text: usize) -> Result<Self, NameFault> {
        match tlv.tag {
            EMAIL => plain_text(tlv, max_text, "rfc822Name").map(AltName::Email),
            DNS => plain_text(tlv, max_text, "dNSName").map(AltName::Dns),
            URI => plain_text(tlv, max_text, "uniformResourceIdentifier").map(AltName::Uri),
            IP => ip_address(tlv.content).map(AltName::Ip),
            OTHER_NAME | X400 | DIRECTORY | EDI_PARTY | REGISTERED_ID => Ok(AltName::Other {
                tag: tlv.tag,
                der: tlv.full.to_vec(),
            }),
            found => Err(NameFault::UnknownKind { tag: found }),
        }
    }

    /// The name, where it is text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            AltName::Dns(name) | AltName::Email(name) | AltName::Uri(name) => Some(name),
            AltName::Ip(_) | AltName::Other { .. } => None,
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            AltName::Dns(name) => der::write(out, DNS, name.as_bytes()),
            AltName::Email(name) => der::write(out, EMAIL, name.as_bytes()),
            AltName::Uri(name) => der::write(out, URI, name.as_bytes()),
            AltName::Ip(IpAddr::V4(ip)) => der::write(out, IP, &ip.octets()),
            AltName::Ip(IpAddr::V6(ip)) => der::write(out, IP, &ip.octets()),
            AltName::Other { der, .. } => out.extend_from_slice(der),
        }
    }

    /// As Puppet writes it: like [`fmt::Display`], but IPv6 uncompressed.
    #[must_use]
    pub fn to_puppet_text(&self) -> String {
        match self {
            AltName::Ip(ip) => format!("IP:{}", ip_puppet_text(*ip)),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for AltName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AltName::Dns(name) => write!(f, "DNS:{name}"),
            AltName::Ip(ip) => write!(f, "IP:{ip}"),
            AltName::Email(name) => write!(f, "email:{name}"),
            AltName::Uri(name) => write!(f, "URI:{name}"),
            AltName::Other { tag, der } => {
                write!(f, "other[{}]:", tag & 0x1f)?;
                der.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

/// What becomes of names without a letter, which Go takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyNames {
    Refused,
    Kept,
}

/// An address as the JVM prints it, which Puppet's status objects show: IPv6 in eight groups, lower case, no padding.
#[must_use]
pub fn ip_puppet_text(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => {
            let groups: Vec<String> = v6.segments().iter().map(|s| format!("{s:x}")).collect();
            groups.join(":")
        }
    }
}

/// Why a list of alternative names was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Not DER, empty, or extra bytes.
    #[error("subjectAltName {0}")]
    Malformed(DerFault),
    /// More names than the limit.
    #[error("subjectAltName has more than {limit} names")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// A name that is empty or has characters other than visible ASCII.
    #[error("subjectAltName has a {kind} that is not visible ASCII text")]
    NotPlain {
        /// The field of GeneralName.
        kind: &'static str,
    },
    /// A name longer than the limit.
    #[error("subjectAltName has a {kind} longer than {limit} octets")]
    TooLong {
        /// The field of GeneralName.
        kind: &'static str,
        /// The limit in octets.
        limit: usize,
    },
    /// An address that is neither 4 nor 16 octets.
    #[error("subjectAltName has an iPAddress of {octets} octets")]
    AddressLength {
        /// How many there are.
        octets: usize,
    },
    /// A choice that GeneralName does not have.
    #[error("subjectAltName has a name of unknown kind {tag:#04x}")]
    UnknownKind {
        /// The identifier octet.
        tag: u8,
    },
}

fn plain_text(tlv: &Tlv<'_>, max_text: usize, kind: &'static str) -> Result<String, NameFault> {
    if tlv.content.len() > max_text {
        return Err(NameFault::TooLong {
            kind,
            limit: max_text,
        });
    }
    if tlv.content.is_empty() || !tlv.content.iter().all(u8::is_ascii_graphic) {
        return Err(NameFault::NotPlain { kind });
    }
    std::str::from_utf8(tlv.content)
        .map(str::to_owned)
        .map_err(|_| NameFault::NotPlain { kind })
}

fn ip_address(octets: &[u8]) -> Result<IpAddr, NameFault> {
    if let Ok(v4) = <[u8; 4]>::try_from(octets) {
        return Ok(IpAddr::V4(Ipv4Addr::from(v4)));
    }
    if let Ok(v6) = <[u8; 16]>::try_from(octets) {
        return Ok(IpAddr::V6(Ipv6Addr::from(v6)));
    }
    Err(NameFault::AddressLength {
        octets: octets.len(),
    })
}

const OTHER_NAME: u8 = 0xa0;
const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const X400: u8 = 0xa3;
const DIRECTORY: u8 = 0xa4;
const EDI_PARTY: u8 = 0xa5;
const URI: u8 = 0x86;
const IP: u8 = 0x87;
const REGISTERED_ID: u8 = 0x88;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("10.1.2.3", "IP:10.1.2.3", "IP:10.1.2.3")]
    #[case("::1", "IP:::1", "IP:0:0:0:0:0:0:0:1")]
    #[case("2001:DB8::A0", "IP:2001:db8::a0", "IP:2001:db8:0:0:0:0:0:a0")]
    fn two_texts_of_an_address(#[case] ip: &str, #[case] shown: &str, #[case] puppet: &str) {
        let name = AltName::Ip(ip.parse().unwrap());
        assert_eq!(name.to_string(), shown);
        assert_eq!(name.to_puppet_text(), puppet);
    }

    #[rstest]
    #[case(&[0x30, 0x00], NameFault::Malformed(DerFault::Empty))]
    #[case(&[0x30, 0x02, 0x82, 0x00], NameFault::NotPlain { kind: "dNSName" })]
    #[case(&[0x30, 0x03, 0x82, 0x01, 0x00], NameFault::NotPlain { kind: "dNSName" })]
    #[case(&[0x30, 0x03, 0x82, 0x01, 0xe9], NameFault::NotPlain { kind: "dNSName" })]
    #[case(&[0x30, 0x03, 0x81, 0x01, b' '], NameFault::NotPlain { kind: "rfc822Name" })]
    #[case(&[0x30, 0x07, 0x87, 0x05, 1, 2, 3, 4, 5], NameFault::AddressLength { octets: 5 })]
    #[case(&[0x30, 0x02, 0x89, 0x00], NameFault::UnknownKind { tag: 0x89 })]
    #[case(&[0x30, 0x03, 0x82, 0x01, b'a', 0], NameFault::Malformed(DerFault::TrailingBytes))]
    #[case(&[0x30, 0x08, 0x82, 0x06, b'a', b'a', b'a', b'a', b'a', b'a'], NameFault::TooLong { kind: "dNSName", limit: 5 })]
    #[case(&[0x30, 0x09, 0x82, 1, b'a', 0x82, 1, b'b', 0x82, 1, b'c'], NameFault::TooMany { limit: 2 })]
    fn refuses(#[case] content: &[u8], #[case] fault: NameFault) {
        assert_eq!(AltName::read_all(content, 2, 5), Err(fault));
    }
}
