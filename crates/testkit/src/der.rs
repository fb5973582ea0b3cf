//! DER by hand, without any check: what a test says is what is written, valid or not.

use countersign_pki::Oid;

/// An element with this identifier octet and content.
#[must_use]
pub fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let octets = content.len().to_be_bytes();
    let minimal: Vec<u8> = octets.into_iter().skip_while(|b| *b == 0).collect();
    match minimal.as_slice() {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        long => {
            out.push(0x80 | u8::try_from(long.len()).unwrap_or(8));
            out.extend_from_slice(long);
        }
    }
    out.extend_from_slice(content);
    out
}

/// A SEQUENCE of finished elements.
#[must_use]
pub fn seq(parts: &[&[u8]]) -> Vec<u8> {
    tlv(0x30, &parts.concat())
}

/// A SET of finished elements in the given order, sorted or not.
#[must_use]
pub fn set(parts: &[&[u8]]) -> Vec<u8> {
    tlv(0x31, &parts.concat())
}

/// An OBJECT IDENTIFIER.
#[must_use]
pub fn oid(oid: &Oid) -> Vec<u8> {
    tlv(0x06, oid.der_content())
}

/// A BIT STRING of whole octets.
#[must_use]
pub fn bits(octets: &[u8]) -> Vec<u8> {
    tlv(0x03, &[&[0], octets].concat())
}

/// An INTEGER of one octet.
#[must_use]
pub fn small_integer(value: u8) -> Vec<u8> {
    tlv(0x02, &[value])
}

/// One attribute of a name, or one of a request with a single value: type and value.
#[must_use]
pub fn type_and_value(kind: &Oid, value: &[u8]) -> Vec<u8> {
    seq(&[&oid(kind), value])
}

/// ASCII as the content of a BMPString (two octets a character) or a UniversalString (four).
#[must_use]
pub fn wide(text: &str, width: usize) -> Vec<u8> {
    let zeros = vec![0; width.saturating_sub(1)];
    text.bytes()
        .flat_map(|b| [zeros.as_slice(), &[b]].concat())
        .collect()
}

/// An `Extension`; `critical` is left out, or written as it is.
#[must_use]
pub fn extension(kind: &Oid, critical: Option<bool>, value: &[u8]) -> Vec<u8> {
    let critical = critical.map_or_else(Vec::new, |c| tlv(0x01, &[if c { 0xff } else { 0 }]));
    seq(&[&oid(kind), &critical, &tlv(0x04, value)])
}
