//! Lists, metadata-only forms and watch events.

use serde::Serialize;
use serde_json::{Value, json};

use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::status::Status;

/// A page of objects.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    kind: &'static str,
    api_version: &'static str,
    /// Version and continuation.
    pub metadata: ListMeta,
    /// The objects; an empty list, never `null`.
    pub items: Vec<T>,
}

/// Version of a collection and how to get its rest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta {
    /// Revision of the store; watches start here.
    pub resource_version: String,
    /// Opaque token for the next page; empty on the last.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continuation: String,
    /// Objects on later pages, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<u64>,
}

/// An object without spec and status.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartialObjectMetadata<'a> {
    kind: &'static str,
    api_version: &'static str,
    /// The object's metadata.
    pub metadata: &'a ObjectMeta,
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventType {
    /// Created, or began to match the selector.
    Added,
    /// Changed.
    Modified,
    /// Deleted, or ceased to match the selector.
    Deleted,
    /// Nothing but progress.
    Bookmark,
    /// The watch ends; the object is a [`Status`].
    Error,
}

/// One line of a watch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WatchEvent<T> {
    /// What happened.
    #[serde(rename = "type")]
    pub event: EventType,
    /// The object as it is now; on deletion as it last was, with the deletion's version.
    pub object: T,
}

impl<T: Kind> List<T> {
    /// A page of whole objects.
    #[must_use]
    pub fn of_objects(metadata: ListMeta, items: Vec<T>) -> Self {
        Self {
            kind: T::LIST_KIND,
            api_version: T::API_VERSION,
            metadata,
            items,
        }
    }
}

impl<'a> List<PartialObjectMetadata<'a>> {
    /// A page of metadata.
    #[must_use]
    pub fn of_metadata<T: Kind>(
        metadata: ListMeta,
        objects: impl IntoIterator<Item = &'a T>,
    ) -> Self {
        let items = objects.into_iter().map(PartialObjectMetadata::of).collect();
        Self {
            kind: "PartialObjectMetadataList",
            api_version: META_VERSION,
            metadata,
            items,
        }
    }
}

impl<'a> PartialObjectMetadata<'a> {
    /// The metadata of an object.
    #[must_use]
    pub fn of<T: Kind>(object: &'a T) -> Self {
        Self {
            kind: "PartialObjectMetadata",
            api_version: META_VERSION,
            metadata: object.metadata(),
        }
    }
}

impl<T: Serialize> WatchEvent<T> {
    /// The line, with its end.
    ///
    /// # Errors
    /// Only if `T` cannot be written as JSON.
    pub fn line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

impl WatchEvent<Value> {
    /// Tells a client how far the watch is; `initial_end` also that the state at its start has been sent in full.
    #[must_use]
    pub fn bookmark<T: Kind>(resource_version: &str, initial_end: InitialEvents) -> Self {
        let mut metadata = json!({"resourceVersion": resource_version});
        if initial_end == InitialEvents::Complete {
            metadata = json!({"resourceVersion": resource_version,
                "annotations": {"k8s.io/initial-events-end": "true"}});
        }
        let mut object = T::blank();
        if let Value::Object(fields) = &mut object {
            fields.insert("metadata".to_owned(), metadata);
        }
        Self {
            event: EventType::Bookmark,
            object,
        }
    }
}

impl WatchEvent<Status> {
    /// Ends a watch with a reason.
    #[must_use]
    pub fn error(status: Status) -> Self {
        Self {
            event: EventType::Error,
            object: status,
        }
    }
}

impl ListMeta {
    /// The text of a list of whole objects up to the first of them; behind the last comes [`LIST_END`].
    ///
    /// # Errors
    /// None that this type could have.
    pub fn list_begin<T: Kind>(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut text = format!(
            r#"{{"kind":"{}","apiVersion":"{}","metadata":"#,
            T::LIST_KIND,
            T::API_VERSION
        )
        .into_bytes();
        serde_json::to_writer(&mut text, self)?;
        text.extend_from_slice(br#","items":["#);
        Ok(text)
    }
}

impl EventType {
    /// The word on the wire.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }

    /// Appends the line of a watch about an object whose text is known.
    pub fn write_line(self, object: &[u8], lines: &mut Vec<u8>) {
        lines.reserve(object.len().saturating_add(LINE_FRAME));
        lines.extend_from_slice(br#"{"type":""#);
        lines.extend_from_slice(self.word().as_bytes());
        lines.extend_from_slice(br#"","object":"#);
        lines.extend_from_slice(object);
        lines.extend_from_slice(b"}\n");
    }
}

/// Whether a bookmark closes the initial events of a watch-list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialEvents {
    /// It is the bookmark after the last of them.
    Complete,
    /// It has nothing to do with them.
    Unrelated,
}

/// What stands behind the last object of a list.
pub const LIST_END: &[u8] = b"]}";
pub(crate) const META_VERSION: &str = "meta.k8s.io/v1";
/// What a line has around its object, at most.
const LINE_FRAME: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CertificateSigningRequest;

    #[test]
    fn empty_list_has_items() {
        let meta = ListMeta {
            resource_version: "7".into(),
            ..ListMeta::default()
        };
        assert_eq!(
            serde_json::to_value(List::<CertificateSigningRequest>::of_objects(meta, vec![]))
                .unwrap(),
            json!({"kind": "CertificateSigningRequestList", "apiVersion": "certificates.k8s.io/v1",
                "metadata": {"resourceVersion": "7"}, "items": []})
        );
    }

    #[test]
    fn texts_of_objects_make_a_list_and_a_line() {
        let meta = ListMeta {
            resource_version: "7".into(),
            continuation: "x".into(),
            remaining_item_count: Some(3),
        };
        let mut object = CertificateSigningRequest::default();
        object.metadata.name = "a".into();
        let text = serde_json::to_vec(&object).unwrap();
        let mut list = meta.list_begin::<CertificateSigningRequest>().unwrap();
        list.extend_from_slice(&text);
        list.extend_from_slice(LIST_END);
        let whole = List::of_objects(meta, vec![object.clone()]);
        assert_eq!(list, serde_json::to_vec(&whole).unwrap());

        let mut line = Vec::new();
        EventType::Deleted.write_line(&text, &mut line);
        let event = EventType::Deleted;
        assert_eq!(line, WatchEvent { event, object }.line().unwrap());
    }

    #[test]
    fn metadata_forms_leave_the_rest_out() {
        let mut object = CertificateSigningRequest::default();
        object.metadata.name = "a".into();
        let list = List::of_metadata(ListMeta::default(), [&object]);
        let json = serde_json::to_value(list).unwrap();
        assert_eq!(
            json["items"][0],
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}})
        );
    }

    #[test]
    fn events_are_one_line_each() {
        let line = WatchEvent {
            event: EventType::Added,
            object: CertificateSigningRequest::default(),
        }
        .line()
        .unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(
            line.starts_with(br#"{"type":"ADDED","object":{"kind":"CertificateSigningRequest""#)
        );
        let bookmark =
            WatchEvent::bookmark::<CertificateSigningRequest>("9", InitialEvents::Complete);
        let bookmark = serde_json::to_value(bookmark).unwrap();
        assert_eq!(
            bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
            "true"
        );
        let error = serde_json::to_value(WatchEvent::error(Status::expired("too old"))).unwrap();
        assert_eq!(
            (&error["type"], &error["object"]["code"]),
            (&json!("ERROR"), &json!(410))
        );
    }
}
