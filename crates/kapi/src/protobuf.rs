//! The protobuf form of the resource: what kubelets and clients on client-go 0.32 and later send.
//!
//! Tags are those of `generated.proto` in `k8s.io/api/certificates/v1` and `k8s.io/apimachinery/pkg/apis/meta/v1`.
//! Nothing here recurses: the depth is that of the types.

use std::collections::BTreeMap;

use crate::MAX_BODY_VALUES;
use crate::decode;
use crate::kind::Kind;
use crate::meta::{ManagedFieldsEntry, ObjectMeta, OwnerReference};
use crate::model::{CertificateSigningRequest, Condition, RequestStatus, Spec};
use crate::time::Time;
pub use crate::wire::WireFault;
use crate::wire::{Budget, Field, Fields, Writer};

/// Why bytes are not the protobuf form of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufFault {
    /// The four bytes `k8s\0` are missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix 6b 38 73 00")]
    Magic,
    /// The envelope is not a message.
    #[error("protobuf envelope: {0}")]
    Envelope(WireFault),
    /// The body is compressed or of another kind inside.
    #[error("protobuf envelope: content encoding and content type must be empty")]
    Encoding,
    /// The object inside is not a message of its type.
    #[error("protobuf object: {0}")]
    Object(WireFault),
}

/// The outer message around every object (`runtime.Unknown` after a magic number).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Group and version of the object; may be empty.
    pub api_version: &'a str,
    /// Kind of the object; may be empty.
    pub kind: &'a str,
    /// The object's own message.
    pub raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Opens an envelope.
    ///
    /// # Errors
    /// Says why `body` is none.
    pub fn read(body: &'a [u8]) -> Result<Self, ProtobufFault> {
        let message = body.strip_prefix(&MAGIC).ok_or(ProtobufFault::Magic)?;
        let fault = ProtobufFault::Envelope;
        let mut envelope = Self {
            api_version: "",
            kind: "",
            raw: &[],
        };
        let mut fields = Fields::of(message);
        while let Some(field) = fields.next().map_err(fault)? {
            match field.number {
                1 => envelope.read_type(field).map_err(fault)?,
                2 => envelope.raw = field.bytes().map_err(fault)?,
                3 | 4 if !field.bytes().map_err(fault)?.is_empty() => {
                    return Err(ProtobufFault::Encoding);
                }
                _ => {}
            }
        }
        Ok(envelope)
    }

    /// The bytes of an envelope.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let (begin, end) = self.around(self.raw.len());
        [begin.as_slice(), self.raw, &end].concat()
    }

    /// The bytes before and behind a message of this length.
    pub(crate) fn around(&self, length: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut begin, mut end) = (Writer::default(), Writer::default());
        begin.message(1, |writer| {
            writer.text(1, self.api_version);
            writer.text(2, self.kind);
        });
        begin.begin(2, length);
        end.text(3, "");
        end.text(4, "");
        let begin = [MAGIC.as_slice(), &begin.into_bytes()].concat();
        (begin, end.into_bytes())
    }

    fn read_type(&mut self, field: Field<'a>) -> Result<(), WireFault> {
        let mut fields = Fields::of(field.bytes()?);
        while let Some(field) = fields.next()? {
            match field.number {
                1 => self.api_version = field.text()?,
                2 => self.kind = field.text()?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Reads the message of a `CertificateSigningRequest`, without its envelope.
///
/// # Errors
/// Says why `raw` is none.
pub fn read_request(raw: &[u8]) -> Result<CertificateSigningRequest, ProtobufFault> {
    let mut object = CertificateSigningRequest::default();
    let mut budget = Budget::new(MAX_BODY_VALUES);
    request(raw, &mut object, &mut budget).map_err(ProtobufFault::Object)?;
    Ok(object)
}

/// Writes an object in its envelope, byte for byte as Go clients would.
#[must_use]
pub fn write<T: Kind>(object: &T) -> Vec<u8> {
    Envelope {
        api_version: T::API_VERSION,
        kind: T::RESOURCE.kind,
        raw: &object.to_protobuf(),
    }
    .write()
}

pub(crate) fn request_message(object: &CertificateSigningRequest) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.message(1, |writer| write_meta(writer, &object.metadata));
    writer.message(2, |writer| write_spec(writer, &object.spec));
    writer.message(3, |writer| write_status(writer, &object.status));
    writer.into_bytes()
}

fn request(
    raw: &[u8],
    object: &mut CertificateSigningRequest,
    budget: &mut Budget,
) -> Result<(), WireFault> {
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => meta(field.bytes()?, &mut object.metadata, budget)?,
            2 => spec(field.bytes()?, &mut object.spec, budget)?,
            3 => status(field.bytes()?, &mut object.status, budget)?,
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn meta(
    raw: &[u8],
    meta: &mut ObjectMeta,
    budget: &mut Budget,
) -> Result<(), WireFault> {
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => meta.name = field.string()?,
            2 => meta.generate_name = field.string()?,
            3 => meta.namespace = field.string()?,
            5 => meta.uid = field.string()?,
            6 => meta.resource_version = field.string()?,
            7 => meta.generation = field.int64()?,
            8 => meta.creation_timestamp = time(field)?,
            9 => meta.deletion_timestamp = time(field)?,
            10 => meta.deletion_grace_period_seconds = Some(field.int64()?),
            11 => text_entry(field, &mut meta.labels, budget)?,
            12 => text_entry(field, &mut meta.annotations, budget)?,
            13 => push(&mut meta.owner_references, owner(field.bytes()?)?, budget)?,
            14 => push(&mut meta.finalizers, field.string()?, budget)?,
            17 => {
                let entry = managed_fields(field.bytes()?, budget)?;
                push(&mut meta.managed_fields, entry, budget)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn owner(raw: &[u8]) -> Result<OwnerReference, WireFault> {
    let mut owner = OwnerReference::default();
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => owner.kind = field.string()?,
            3 => owner.name = field.string()?,
            4 => owner.uid = field.string()?,
            5 => owner.api_version = field.string()?,
            6 => owner.controller = Some(field.boolean()?),
            7 => owner.block_owner_deletion = Some(field.boolean()?),
            _ => {}
        }
    }
    Ok(owner)
}

fn managed_fields(raw: &[u8], budget: &mut Budget) -> Result<ManagedFieldsEntry, WireFault> {
    let mut entry = ManagedFieldsEntry::default();
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => entry.manager = field.string()?,
            2 => entry.operation = field.string()?,
            3 => entry.api_version = field.string()?,
            4 => entry.time = time(field)?,
            6 => entry.fields_type = field.string()?,
            7 => {
                let mut inner = Fields::of(field.bytes()?);
                while let Some(set) = inner.next()? {
                    if set.number == 1 {
                        let tree = decode::parse_within(set.bytes()?, "FieldsV1", budget.left());
                        let tree = tree.map_err(|_| WireFault::Range(7))?;
                        budget.spend(tree.values)?;
                        entry.fields_v1 = Some(tree.root);
                    }
                }
            }
            8 => entry.subresource = field.string()?,
            _ => {}
        }
    }
    Ok(entry)
}

fn spec(raw: &[u8], spec: &mut Spec, budget: &mut Budget) -> Result<(), WireFault> {
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => spec.request = field.bytes()?.to_vec(),
            2 => spec.username = field.string()?,
            3 => spec.uid = field.string()?,
            4 => push(&mut spec.groups, field.string()?, budget)?,
            5 => push(&mut spec.usages, field.string()?, budget)?,
            6 => extra(field, &mut spec.extra, budget)?,
            7 => spec.signer_name = field.string()?,
            8 => spec.expiration_seconds = Some(field.int32()?),
            _ => {}
        }
    }
    Ok(())
}

fn status(raw: &[u8], status: &mut RequestStatus, budget: &mut Budget) -> Result<(), WireFault> {
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => push(&mut status.conditions, condition(field.bytes()?)?, budget)?,
            2 => status.certificate = field.bytes()?.to_vec(),
            _ => {}
        }
    }
    Ok(())
}

fn condition(raw: &[u8]) -> Result<Condition, WireFault> {
    let mut condition = Condition::default();
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => condition.kind = field.string()?,
            2 => condition.reason = field.string()?,
            3 => condition.message = field.string()?,
            4 => condition.last_update_time = time(field)?,
            5 => condition.last_transition_time = time(field)?,
            6 => condition.status = field.string()?,
            _ => {}
        }
    }
    Ok(condition)
}

/// A message of length zero is the zero time; nanoseconds are dropped, as JSON has none.
pub(crate) fn time(field: Field<'_>) -> Result<Option<Time>, WireFault> {
    let raw = field.bytes()?;
    if raw.is_empty() {
        return Ok(None);
    }
    let mut seconds = 0;
    let mut fields = Fields::of(raw);
    while let Some(part) = fields.next()? {
        if part.number == 1 {
            seconds = part.int64()?;
        }
    }
    Time::from_unix(seconds)
        .map(Some)
        .ok_or(WireFault::Range(field.number))
}

pub(crate) fn text_entry(
    field: Field<'_>,
    map: &mut BTreeMap<String, String>,
    budget: &mut Budget,
) -> Result<(), WireFault> {
    budget.spend(1)?;
    let (mut key, mut value) = ("", "");
    let mut fields = Fields::of(field.bytes()?);
    while let Some(part) = fields.next()? {
        match part.number {
            1 => key = part.text()?,
            2 => value = part.text()?,
            _ => {}
        }
    }
    map.insert(key.to_owned(), value.to_owned());
    Ok(())
}

pub(crate) fn extra(
    field: Field<'_>,
    map: &mut BTreeMap<String, Vec<String>>,
    budget: &mut Budget,
) -> Result<(), WireFault> {
    budget.spend(1)?;
    let (mut key, mut values) = ("", Vec::new());
    let mut fields = Fields::of(field.bytes()?);
    while let Some(part) = fields.next()? {
        match part.number {
            1 => key = part.text()?,
            2 => {
                let mut items = Fields::of(part.bytes()?);
                while let Some(item) = items.next()? {
                    if item.number == 1 {
                        push(&mut values, item.string()?, budget)?;
                    }
                }
            }
            _ => {}
        }
    }
    map.insert(key.to_owned(), values);
    Ok(())
}

pub(crate) fn push<T>(list: &mut Vec<T>, item: T, budget: &mut Budget) -> Result<(), WireFault> {
    budget.spend(1)?;
    list.push(item);
    Ok(())
}

pub(crate) fn write_meta(writer: &mut Writer, meta: &ObjectMeta) {
    writer.text(1, &meta.name);
    writer.text(2, &meta.generate_name);
    writer.text(3, &meta.namespace);
    writer.text(4, "");
    writer.text(5, &meta.uid);
    writer.text(6, &meta.resource_version);
    writer.int(7, meta.generation);
    write_time(writer, 8, meta.creation_timestamp);
    if meta.deletion_timestamp.is_some() {
        write_time(writer, 9, meta.deletion_timestamp);
    }
    if let Some(seconds) = meta.deletion_grace_period_seconds {
        writer.int(10, seconds);
    }
    for (number, map) in [(11, &meta.labels), (12, &meta.annotations)] {
        for (key, value) in map {
            writer.message(number, |writer| {
                writer.text(1, key);
                writer.text(2, value);
            });
        }
    }
    for owner in &meta.owner_references {
        writer.message(13, |writer| {
            writer.text(1, &owner.kind);
            writer.text(3, &owner.name);
            writer.text(4, &owner.uid);
            writer.text(5, &owner.api_version);
            for (number, flag) in [(6, owner.controller), (7, owner.block_owner_deletion)] {
                if let Some(flag) = flag {
                    writer.int(number, i64::from(flag));
                }
            }
        });
    }
    for finalizer in &meta.finalizers {
        writer.text(14, finalizer);
    }
    for entry in &meta.managed_fields {
        writer.message(17, |writer| {
            writer.text(1, &entry.manager);
            writer.text(2, &entry.operation);
            writer.text(3, &entry.api_version);
            if entry.time.is_some() {
                write_time(writer, 4, entry.time);
            }
            writer.text(6, &entry.fields_type);
            if let Some(set) = &entry.fields_v1 {
                writer.message(7, |writer| writer.text(1, &set.to_string()));
            }
            writer.text(8, &entry.subresource);
        });
    }
}

fn write_spec(writer: &mut Writer, spec: &Spec) {
    writer.bytes(1, &spec.request);
    writer.text(2, &spec.username);
    writer.text(3, &spec.uid);
    for (number, list) in [(4, &spec.groups), (5, &spec.usages)] {
        for item in list {
            writer.text(number, item);
        }
    }
    for (key, values) in &spec.extra {
        writer.message(6, |writer| {
            writer.text(1, key);
            writer.message(2, |writer| {
                values.iter().for_each(|value| writer.text(1, value))
            });
        });
    }
    writer.text(7, &spec.signer_name);
    if let Some(seconds) = spec.expiration_seconds {
        writer.int(8, i64::from(seconds));
    }
}

fn write_status(writer: &mut Writer, status: &RequestStatus) {
    for condition in &status.conditions {
        writer.message(1, |writer| {
            writer.text(1, &condition.kind);
            writer.text(2, &condition.reason);
            writer.text(3, &condition.message);
            write_time(writer, 4, condition.last_update_time);
            write_time(writer, 5, condition.last_transition_time);
            writer.text(6, &condition.status);
        });
    }
    if !status.certificate.is_empty() {
        writer.bytes(2, &status.certificate);
    }
}

pub(crate) fn write_time(writer: &mut Writer, number: u32, time: Option<Time>) {
    writer.message(number, |writer| {
        if let Some(time) = time {
            writer.int(1, time.unix());
            writer.int(2, 0);
        }
    });
}

const MAGIC: [u8; 4] = *b"k8s\0";
