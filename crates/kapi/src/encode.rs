//! The protobuf form of answers: lists, metadata, statuses and the events of a watch.
//!
//! Tags are those of `generated.proto` in `k8s.io/apimachinery/pkg/apis/meta/v1`. Objects and lists travel in the envelope
//! of [`Envelope`]; so does the object inside an event, but not the event itself: a watch is a sequence of events, each
//! behind its length in four bytes.

use crate::kind::Kind;
use crate::list::{EventType, ListMeta, META_VERSION};
use crate::meta::ObjectMeta;
use crate::protobuf::{Envelope, write_meta};
use crate::status::Status;
use crate::wire::Writer;

/// An object in its envelope, from its message.
#[must_use]
pub fn object<T: Kind>(message: &[u8]) -> Vec<u8> {
    Envelope {
        api_version: T::API_VERSION,
        kind: T::RESOURCE.kind,
        raw: message,
    }
    .write()
}

/// A list in its envelope, from the messages of its objects.
#[must_use]
pub fn list<'a, T: Kind>(meta: &ListMeta, messages: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    Envelope {
        api_version: T::API_VERSION,
        kind: T::LIST_KIND,
        raw: &list_message(meta, messages),
    }
    .write()
}

/// An object's metadata in its envelope.
#[must_use]
pub fn metadata(meta: &ObjectMeta) -> Vec<u8> {
    Envelope {
        api_version: META_VERSION,
        kind: "PartialObjectMetadata",
        raw: &metadata_message(meta),
    }
    .write()
}

/// The metadata of a list of objects in its envelope.
#[must_use]
pub fn metadata_list<'a>(
    meta: &ListMeta,
    objects: impl IntoIterator<Item = &'a ObjectMeta>,
) -> Vec<u8> {
    let messages: Vec<Vec<u8>> = objects.into_iter().map(metadata_message).collect();
    Envelope {
        api_version: META_VERSION,
        kind: "PartialObjectMetadataList",
        raw: &list_message(meta, messages.iter().map(Vec::as_slice)),
    }
    .write()
}

/// What stands around the items of a list that is put together while it is sent.
#[derive(Debug)]
pub struct ListFrame {
    /// Before the first.
    pub begin: Vec<u8>,
    /// Behind the last.
    pub end: Vec<u8>,
}

impl ListFrame {
    /// Of whole objects, whose messages have these lengths.
    #[must_use]
    pub fn of_objects<T: Kind>(meta: &ListMeta, lengths: impl IntoIterator<Item = usize>) -> Self {
        Self::of(T::API_VERSION, T::LIST_KIND, meta, lengths)
    }

    /// Of metadata, whose messages have these lengths.
    #[must_use]
    pub fn of_metadata(meta: &ListMeta, lengths: impl IntoIterator<Item = usize>) -> Self {
        Self::of(META_VERSION, "PartialObjectMetadataList", meta, lengths)
    }

    fn of(
        api_version: &str,
        kind: &str,
        meta: &ListMeta,
        lengths: impl IntoIterator<Item = usize>,
    ) -> Self {
        let head = list_message(meta, []);
        let items = lengths.into_iter().map(|length| {
            let mut before = Writer::default();
            before.begin(2, length);
            before.into_bytes().len().saturating_add(length)
        });
        let length = items.fold(head.len(), usize::saturating_add);
        let envelope = Envelope {
            api_version,
            kind,
            raw: &[],
        };
        let (mut begin, end) = envelope.around(length);
        begin.extend_from_slice(&head);
        Self { begin, end }
    }
}

/// Appends an item of a list, from its message.
pub fn write_item(message: &[u8], bytes: &mut Vec<u8>) {
    let mut writer = Writer::default();
    writer.bytes(2, message);
    bytes.extend_from_slice(&writer.into_bytes());
}

/// A status in its envelope.
#[must_use]
pub fn status(status: &Status) -> Vec<u8> {
    let mut writer = Writer::default();
    let meta = ListMeta {
        continuation: status.continuation().to_owned(),
        ..ListMeta::default()
    };
    writer.message(1, |writer| write_list_meta(writer, &meta));
    writer.text(2, status.status);
    writer.text(3, &status.message);
    writer.text(4, status.reason);
    if let Some(details) = &status.details {
        writer.message(5, |writer| {
            writer.text(1, &details.name);
            writer.text(2, &details.group);
            writer.text(3, &details.kind);
            for cause in &details.causes {
                writer.message(4, |writer| {
                    writer.text(1, cause.reason);
                    writer.text(2, &cause.message);
                    writer.text(3, &cause.field);
                });
            }
            writer.int(5, i64::from(details.retry_after_seconds));
            writer.text(6, &details.uid);
        });
    }
    writer.int(6, i64::from(status.code));
    Envelope {
        api_version: "v1",
        kind: "Status",
        raw: &writer.into_bytes(),
    }
    .write()
}

/// Appends an event of a watch, from its enveloped object.
pub fn write_event(event: EventType, object: &[u8], frames: &mut Vec<u8>) {
    let mut writer = Writer::default();
    writer.text(1, event.word());
    writer.message(2, |writer| writer.bytes(1, object));
    let message = writer.into_bytes();
    // Objects are bounded far below what four bytes can say.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    frames.extend_from_slice(&length.to_be_bytes());
    frames.extend_from_slice(&message);
}

fn list_message<'a>(meta: &ListMeta, messages: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.message(1, |writer| write_list_meta(writer, meta));
    for message in messages {
        writer.bytes(2, message);
    }
    writer.into_bytes()
}

/// The message of an object's metadata, without an envelope.
#[must_use]
pub fn metadata_message(meta: &ObjectMeta) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.message(1, |writer| write_meta(writer, meta));
    writer.into_bytes()
}

fn write_list_meta(writer: &mut Writer, meta: &ListMeta) {
    writer.text(1, "");
    writer.text(2, &meta.resource_version);
    writer.text(3, &meta.continuation);
    if let Some(count) = meta.remaining_item_count {
        writer.int(4, i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// Media type of a watch in protobuf.
pub const WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CertificateSigningRequest;
    use crate::protobuf;
    use crate::wire::Fields;

    fn sample(name: &str) -> CertificateSigningRequest {
        let mut object = CertificateSigningRequest::default();
        object.metadata.name = name.into();
        object.metadata.resource_version = "7".into();
        object
    }

    /// The bytes of each occurrence of a field.
    fn parts(message: &[u8], number: u32) -> Vec<Vec<u8>> {
        let (mut fields, mut found) = (Fields::of(message), Vec::new());
        while let Some(field) = fields.next().unwrap() {
            if field.number == number {
                found.push(field.bytes().unwrap().to_vec());
            }
        }
        found
    }

    #[test]
    fn objects_of_a_list_can_be_read_again() {
        let objects = [sample("a"), sample("b")];
        let messages = objects.each_ref().map(Kind::to_protobuf);
        let meta = ListMeta {
            resource_version: "9".into(),
            continuation: "token".into(),
            remaining_item_count: Some(5),
        };
        let messages = messages.iter().map(Vec::as_slice);
        let bytes = list::<CertificateSigningRequest>(&meta, messages);
        let envelope = Envelope::read(&bytes).unwrap();
        assert_eq!(
            (envelope.api_version, envelope.kind),
            ("certificates.k8s.io/v1", "CertificateSigningRequestList")
        );
        let read: Vec<_> = parts(envelope.raw, 2)
            .iter()
            .map(|raw| protobuf::read_request(raw).unwrap())
            .collect();
        assert_eq!(read, objects);
        // selfLink, resourceVersion, continue, remainingItemCount.
        assert_eq!(
            parts(envelope.raw, 1),
            [b"\x0a\x00\x12\x019\x1a\x05token\x20\x05".to_vec()]
        );
    }

    #[test]
    fn a_list_in_parts_is_the_list() {
        let meta = ListMeta {
            resource_version: "9".into(),
            ..ListMeta::default()
        };
        let objects: Vec<_> = (0..3).map(|n| sample(&"n".repeat(100 * n))).collect();
        let in_parts = |frame: ListFrame, messages: &[Vec<u8>]| {
            let mut bytes = frame.begin;
            messages
                .iter()
                .for_each(|message| write_item(message, &mut bytes));
            [bytes, frame.end].concat()
        };
        for count in 0..=objects.len() {
            let objects = &objects[..count];
            let messages: Vec<Vec<u8>> = objects.iter().map(Kind::to_protobuf).collect();
            let frame = ListFrame::of_objects::<CertificateSigningRequest>(
                &meta,
                messages.iter().map(Vec::len),
            );
            let whole =
                list::<CertificateSigningRequest>(&meta, messages.iter().map(Vec::as_slice));
            assert_eq!(in_parts(frame, &messages), whole);
            let metadata = || objects.iter().map(Kind::metadata);
            let messages: Vec<Vec<u8>> = metadata().map(metadata_message).collect();
            let frame = ListFrame::of_metadata(&meta, messages.iter().map(Vec::len));
            assert_eq!(in_parts(frame, &messages), metadata_list(&meta, metadata()));
        }
    }

    #[test]
    fn an_event_is_a_length_a_word_and_an_enveloped_object() {
        let object = sample("a");
        let (mut frames, enveloped) = (
            Vec::new(),
            super::object::<CertificateSigningRequest>(&object.to_protobuf()),
        );
        write_event(EventType::Added, &enveloped, &mut frames);
        write_event(EventType::Deleted, &enveloped, &mut frames);
        let mut rest = frames.as_slice();
        for word in ["ADDED", "DELETED"] {
            let (length, behind) = rest.split_first_chunk::<4>().unwrap();
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap();
            let (message, behind) = behind.split_at(length);
            rest = behind;
            assert_eq!(parts(message, 1), [word.as_bytes()]);
            let raw = parts(&parts(message, 2).concat(), 1).concat();
            let envelope = Envelope::read(&raw).unwrap();
            assert_eq!(protobuf::read_request(envelope.raw).unwrap(), object);
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_status_has_the_tags_of_its_original() {
        let bytes = status(&Status::too_many_requests("busy", 3));
        let envelope = Envelope::read(&bytes).unwrap();
        assert_eq!((envelope.api_version, envelope.kind), ("v1", "Status"));
        let expected = [
            b"\x0a\x06\x0a\x00\x12\x00\x1a\x00\x12\x07Failure\x1a\x04busy\x22\x0fTooManyRequests"
                .as_slice(),
            b"\x2a\x0a\x0a\x00\x12\x00\x1a\x00\x28\x03\x32\x00\x30\xad\x03",
        ];
        assert_eq!(envelope.raw, expected.concat());
    }

    #[test]
    fn metadata_alone_is_the_first_field() {
        let object = sample("a");
        let bytes = metadata(&object.metadata);
        let envelope = Envelope::read(&bytes).unwrap();
        assert_eq!(envelope.kind, "PartialObjectMetadata");
        let whole = object.to_protobuf();
        assert_eq!(parts(envelope.raw, 1), parts(&whole, 1));
        let bytes = metadata_list(&ListMeta::default(), [&object.metadata]);
        let envelope = Envelope::read(&bytes).unwrap();
        assert_eq!(parts(&parts(envelope.raw, 2).concat(), 1), parts(&whole, 1));
    }
}
