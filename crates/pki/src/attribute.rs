//! Attributes of a request (RFC 2986 4.1).

use crate::der::{FieldFault, InField, Tlv, tag};
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
