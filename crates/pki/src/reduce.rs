//! Requests without what nobody here reads: what is kept of those that were turned away.

use crate::der::{self, DerFault, Reader, Tlv, tag};
use crate::oid::{self, Oid};

/// A copy of a request, given as DER, without the attributes that are not known, or too long; nothing if it has none of
/// them. It is read like the original, and its signature no longer verifies.
#[must_use]
pub fn without_bulk(der: &[u8]) -> Option<Vec<u8>> {
    let request = Parts::read(der).ok()?;
    let kept = request.attributes.iter().filter(|a| is_kept(a));
    if kept.clone().count() == request.attributes.len() {
        return None;
    }
    let mut copy = Vec::with_capacity(der.len());
    der::write_nested(&mut copy, tag::SEQUENCE, |out| {
        der::write_nested(out, tag::SEQUENCE, |out| {
            for field in &request.before {
                out.extend_from_slice(field.full);
            }
            der::write_nested(out, tag::CONTEXT_0, |out| {
                kept.for_each(|attribute| out.extend_from_slice(attribute.full));
            });
        });
        for field in &request.behind {
            out.extend_from_slice(field.full);
        }
    });
    Some(copy)
}

/// RFC 2986 4.1 and 4.2.
struct Parts<'a> {
    /// Version, subject and key.
    before: Vec<Tlv<'a>>,
    attributes: Vec<Tlv<'a>>,
    /// Algorithm and signature.
    behind: Vec<Tlv<'a>>,
}

impl<'a> Parts<'a> {
    fn read(der: &'a [u8]) -> Result<Self, DerFault> {
        let mut fields = der::single(der, tag::SEQUENCE)?.reader();
        let mut info = fields.expect(tag::SEQUENCE)?.reader();
        let before = vec![info.any()?, info.any()?, info.any()?];
        let attributes = match info.optional(tag::CONTEXT_0)? {
            Some(attributes) => all(attributes.reader())?,
            None => Vec::new(),
        };
        info.finish()?;
        Ok(Self {
            before,
            attributes,
            behind: all(fields)?,
        })
    }
}

fn all<'a>(mut reader: Reader<'a>) -> Result<Vec<Tlv<'a>>, DerFault> {
    let mut found = Vec::new();
    while !reader.is_empty() {
        found.push(reader.any()?);
    }
    Ok(found)
}

fn is_kept(attribute: &Tlv<'_>) -> bool {
    let kind = attribute
        .reader()
        .expect(tag::OID)
        .and_then(|tlv| tlv.oid());
    match kind {
        Ok(oid::EXTENSION_REQUEST) => attribute.full.len() <= MAX_EXTENSIONS,
        Ok(kind) => is_known(&kind) && attribute.full.len() <= MAX_ATTRIBUTE,
        Err(_) => false,
    }
}

fn is_known(kind: &Oid) -> bool {
    let is_pkcs9 = [oid::CHALLENGE_PASSWORD, oid::UNSTRUCTURED_NAME].contains(kind);
    is_pkcs9 || oid::registered_name(kind).is_some() || kind.is_under(&oid::PP_PRIV)
}

/// Several hundred alternative names.
const MAX_EXTENSIONS: usize = 8 * 1024;
/// A signed token has some 800 characters.
const MAX_ATTRIBUTE: usize = 1024;
