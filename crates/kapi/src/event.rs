//! Events: what controllers tell people. One and the same event is served in two groups, the older core group
//! ([`CoreEvent`]) and `events.k8s.io/v1` ([`Event`]), under other names of its fields.

mod protobuf;
mod schema;
mod validate;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::protobuf::ProtobufFault;
use crate::schema::Schema;
use crate::status::Resource;
use crate::table::{Column, column};
use crate::time::{self, MicroTime, Time, age};

pub use validate::{core_faults, faults};

/// The newer group.
pub const GROUP: &str = "events.k8s.io";
/// Group and version of the newer form.
pub const API_VERSION: &str = "events.k8s.io/v1";
/// Group and version of the older form.
pub const CORE_API_VERSION: &str = "v1";

/// An event as the core group has it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CoreEvent {
    /// Name, namespace, labels.
    pub metadata: ObjectMeta,
    /// What it is about.
    pub involved_object: ObjectReference,
    /// Why, in one word.
    pub reason: String,
    /// What happened, in a sentence.
    pub message: String,
    /// Who tells it.
    pub source: EventSource,
    /// When it was first seen.
    #[serde(deserialize_with = "time::optional")]
    pub first_timestamp: Option<Time>,
    /// When it was last seen.
    #[serde(deserialize_with = "time::optional")]
    pub last_timestamp: Option<Time>,
    /// How often.
    pub count: i32,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it was first seen, to the microsecond.
    #[serde(deserialize_with = "time::optional_micro")]
    pub event_time: Option<MicroTime>,
    /// How it goes on.
    pub series: Option<EventSeries>,
    /// What was done.
    pub action: String,
    /// What else it is about.
    pub related: Option<ObjectReference>,
    /// Which controller tells it.
    pub reporting_component: String,
    /// Which of its instances.
    pub reporting_instance: String,
}

/// The same in the newer group.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Event(NewForm);

/// An event in the words of `events.k8s.io/v1`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NewForm {
    metadata: ObjectMeta,
    #[serde(deserialize_with = "time::optional_micro")]
    event_time: Option<MicroTime>,
    series: Option<EventSeries>,
    reporting_controller: String,
    reporting_instance: String,
    action: String,
    reason: String,
    regarding: ObjectReference,
    related: Option<ObjectReference>,
    note: String,
    #[serde(rename = "type")]
    kind: String,
    deprecated_source: EventSource,
    #[serde(deserialize_with = "time::optional")]
    deprecated_first_timestamp: Option<Time>,
    #[serde(deserialize_with = "time::optional")]
    deprecated_last_timestamp: Option<Time>,
    deprecated_count: i32,
}

/// Names an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Kind of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its identity.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Group and version in which its kind is meant.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The state that is meant.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The part of it that is meant.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

/// Who tells an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventSource {
    /// The program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// The machine.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
}

/// How an event goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventSeries {
    /// How often it was seen.
    pub count: i32,
    /// When it was last seen.
    #[serde(deserialize_with = "time::optional_micro")]
    pub last_observed_time: Option<MicroTime>,
}

impl Event {
    /// The event in the words of the core group.
    #[must_use]
    pub fn to_core(&self) -> CoreEvent {
        let form = self.0.clone();
        CoreEvent {
            metadata: form.metadata,
            involved_object: form.regarding,
            reason: form.reason,
            message: form.note,
            source: form.deprecated_source,
            first_timestamp: form.deprecated_first_timestamp,
            last_timestamp: form.deprecated_last_timestamp,
            count: form.deprecated_count,
            kind: form.kind,
            event_time: form.event_time,
            series: form.series,
            action: form.action,
            related: form.related,
            reporting_component: form.reporting_controller,
            reporting_instance: form.reporting_instance,
        }
    }
}

impl From<CoreEvent> for Event {
    fn from(event: CoreEvent) -> Self {
        Self(NewForm {
            metadata: event.metadata,
            event_time: event.event_time,
            series: event.series,
            reporting_controller: event.reporting_component,
            reporting_instance: event.reporting_instance,
            action: event.action,
            reason: event.reason,
            regarding: event.involved_object,
            related: event.related,
            note: event.message,
            kind: event.kind,
            deprecated_source: event.source,
            deprecated_first_timestamp: event.first_timestamp,
            deprecated_last_timestamp: event.last_timestamp,
            deprecated_count: event.count,
        })
    }
}

/// Writes what is not empty, as the API leaves fields out.
fn filled<M: serde::ser::SerializeMap>(
    map: &mut M,
    fields: &[(&'static str, &str)],
) -> Result<(), M::Error> {
    for (name, text) in fields.iter().filter(|(_, text)| !text.is_empty()) {
        map.serialize_entry(name, text)?;
    }
    Ok(())
}

impl Serialize for CoreEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", KIND)?;
        map.serialize_entry("apiVersion", CORE_API_VERSION)?;
        map.serialize_entry("metadata", &self.metadata)?;
        map.serialize_entry("involvedObject", &self.involved_object)?;
        filled(
            &mut map,
            &[("reason", &self.reason), ("message", &self.message)],
        )?;
        map.serialize_entry("source", &self.source)?;
        map.serialize_entry("firstTimestamp", &self.first_timestamp)?;
        map.serialize_entry("lastTimestamp", &self.last_timestamp)?;
        if self.count != 0 {
            map.serialize_entry("count", &self.count)?;
        }
        filled(&mut map, &[("type", &self.kind)])?;
        map.serialize_entry("eventTime", &self.event_time)?;
        if let Some(series) = &self.series {
            map.serialize_entry("series", &CoreSeries(series))?;
        }
        filled(&mut map, &[("action", &self.action)])?;
        if let Some(related) = &self.related {
            map.serialize_entry("related", related)?;
        }
        map.serialize_entry("reportingComponent", &self.reporting_component)?;
        map.serialize_entry("reportingInstance", &self.reporting_instance)?;
        map.end()
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = &self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", KIND)?;
        map.serialize_entry("apiVersion", API_VERSION)?;
        map.serialize_entry("metadata", &form.metadata)?;
        map.serialize_entry("eventTime", &form.event_time)?;
        if let Some(series) = &form.series {
            map.serialize_entry("series", &NewSeries(series))?;
        }
        filled(
            &mut map,
            &[
                ("reportingController", &form.reporting_controller),
                ("reportingInstance", &form.reporting_instance),
                ("action", &form.action),
                ("reason", &form.reason),
            ],
        )?;
        map.serialize_entry("regarding", &form.regarding)?;
        if let Some(related) = &form.related {
            map.serialize_entry("related", related)?;
        }
        filled(&mut map, &[("note", &form.note), ("type", &form.kind)])?;
        map.serialize_entry("deprecatedSource", &form.deprecated_source)?;
        map.serialize_entry("deprecatedFirstTimestamp", &form.deprecated_first_timestamp)?;
        map.serialize_entry("deprecatedLastTimestamp", &form.deprecated_last_timestamp)?;
        if form.deprecated_count != 0 {
            map.serialize_entry("deprecatedCount", &form.deprecated_count)?;
        }
        map.end()
    }
}

/// The core group leaves a count of zero out.
struct CoreSeries<'a>(&'a EventSeries);

impl Serialize for CoreSeries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.0.count != 0 {
            map.serialize_entry("count", &self.0.count)?;
        }
        map.serialize_entry("lastObservedTime", &self.0.last_observed_time)?;
        map.end()
    }
}

struct NewSeries<'a>(&'a EventSeries);

impl Serialize for NewSeries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("count", &self.0.count)?;
        map.serialize_entry("lastObservedTime", &self.0.last_observed_time)?;
        map.end()
    }
}

impl Kind for CoreEvent {
    const RESOURCE: Resource<'static> = Resource {
        group: "",
        resource: "events",
        kind: KIND,
    };
    const API_VERSION: &'static str = CORE_API_VERSION;
    const LIST_KIND: &'static str = "EventList";
    const NAMESPACED: bool = true;
    const SELECTABLE: &'static [&'static str] = &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ];
    const COLUMNS: &'static [Column] = COLUMNS;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn selected(&self, field: &str) -> &str {
        match field.strip_prefix("involvedObject.") {
            Some(part) => self.involved_object.selected(part),
            None => match field {
                "reason" => &self.reason,
                "reportingComponent" => &self.reporting_component,
                "source" if self.source.component.is_empty() => &self.reporting_component,
                "source" => &self.source.component,
                "type" => &self.kind,
                _ => "",
            },
        }
    }

    fn cells(&self, now: Time) -> Vec<String> {
        let began = self.event_time.map(MicroTime::second);
        let first = self.first_timestamp.or(began);
        let (last, count) = match &self.series {
            Some(series) => {
                let last = series.last_observed_time.map(MicroTime::second);
                (last, series.count)
            }
            None => (self.last_timestamp.or(first), self.count.max(1)),
        };
        let object = &self.involved_object;
        let kind = object.kind.to_lowercase();
        let target = match object.name.as_str() {
            "" => kind,
            name => format!("{kind}/{name}"),
        };
        let or = |one: &str, other: &str| match one {
            "" => other.to_owned(),
            one => one.to_owned(),
        };
        let mut source = or(&self.source.component, &self.reporting_component);
        let host = or(&self.source.host, &self.reporting_instance);
        if !host.is_empty() {
            source = format!("{source}, {host}");
        }
        vec![
            age(last, now),
            self.kind.clone(),
            self.reason.clone(),
            target,
            object.field_path.clone(),
            source,
            self.message.trim().to_owned(),
            age(first, now),
            count.to_string(),
            self.metadata.name.clone(),
        ]
    }

    fn from_protobuf(raw: &[u8]) -> Result<Self, ProtobufFault> {
        protobuf::read_core(raw).map_err(ProtobufFault::Object)
    }

    fn to_protobuf(&self) -> Vec<u8> {
        protobuf::core_message(self)
    }

    fn schema() -> &'static Schema {
        &schema::CORE_EVENT
    }
}

impl Kind for Event {
    const RESOURCE: Resource<'static> = Resource {
        group: GROUP,
        resource: "events",
        kind: KIND,
    };
    const API_VERSION: &'static str = API_VERSION;
    const LIST_KIND: &'static str = "EventList";
    const NAMESPACED: bool = true;
    const SELECTABLE: &'static [&'static str] = &[
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
        "reason",
        "reportingController",
        "type",
    ];
    const COLUMNS: &'static [Column] = COLUMNS;

    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }

    fn selected(&self, field: &str) -> &str {
        match field.strip_prefix("regarding.") {
            Some(part) => self.0.regarding.selected(part),
            None => match field {
                "reason" => &self.0.reason,
                "reportingController" => &self.0.reporting_controller,
                "type" => &self.0.kind,
                _ => "",
            },
        }
    }

    fn cells(&self, now: Time) -> Vec<String> {
        self.to_core().cells(now)
    }

    fn from_protobuf(raw: &[u8]) -> Result<Self, ProtobufFault> {
        protobuf::read_new(raw).map_err(ProtobufFault::Object)
    }

    fn to_protobuf(&self) -> Vec<u8> {
        protobuf::new_message(&self.0)
    }

    fn schema() -> &'static Schema {
        &schema::EVENT
    }
}

impl ObjectReference {
    fn selected(&self, part: &str) -> &str {
        match part {
            "kind" => &self.kind,
            "namespace" => &self.namespace,
            "name" => &self.name,
            "uid" => &self.uid,
            "apiVersion" => &self.api_version,
            "resourceVersion" => &self.resource_version,
            "fieldPath" => &self.field_path,
            _ => "",
        }
    }
}

const KIND: &str = "Event";
const COLUMNS: &[Column] = &[
    column("Last Seen", "", "Time since it was last seen."),
    column("Type", "", "Normal or Warning."),
    column("Reason", "", "Why, in one word."),
    column("Object", "", "What it is about."),
    column("Subobject", "", "The part of it that is meant.").wide(),
    column("Source", "", "Who tells it.").wide(),
    column("Message", "", "What happened."),
    column("First Seen", "", "Time since it was first seen.").wide(),
    column("Count", "", "How often it was seen.").wide(),
    column("Name", "name", "Name of the event.").wide(),
];

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decode;
    use crate::negotiate::BodyFormat;
    use crate::options::FieldValidation;

    fn read<T: Kind>(body: &Value) -> T {
        let text = body.to_string();
        let validation = FieldValidation::Strict;
        decode::object(text.as_bytes(), BodyFormat::Json, validation)
            .unwrap()
            .object
    }

    fn older() -> CoreEvent {
        read(
            &json!({"metadata": {"name": "web.1", "namespace": "default"},
            "involvedObject": {"kind": "CertificateSigningRequest", "name": "web", "uid": "7"},
            "reason": "Approved", "message": "by a rule", "source": {"component": "approver"},
            "firstTimestamp": "2026-08-20T10:00:00Z", "lastTimestamp": "2026-08-20T10:00:09Z",
            "count": 2, "type": "Normal"}),
        )
    }

    fn newer() -> Event {
        read(
            &json!({"metadata": {"name": "web.2", "namespace": "default"},
            "eventTime": "2026-08-20T10:00:00.000007Z", "reportingController": "approver",
            "reportingInstance": "approver-0", "action": "Approve", "reason": "Approved",
            "regarding": {"kind": "CertificateSigningRequest", "name": "web"}, "note": "by a rule",
            "related": {"kind": "Node", "name": "n1"}, "type": "Normal",
            "series": {"count": 3, "lastObservedTime": "2026-08-20T10:00:05.000000Z"}}),
        )
    }

    #[test]
    fn both_groups_have_the_same_event() {
        let event = newer();
        let core = event.to_core();
        assert_eq!(core.message, "by a rule");
        assert_eq!(core.reporting_component, "approver");
        assert_eq!(Event::from(core.clone()), event);
        assert_eq!(core.selected("source"), "approver");
        assert_eq!(event.selected("regarding.name"), "web");
        let text = serde_json::to_value(&core).unwrap();
        assert_eq!(text["apiVersion"], "v1");
        assert_eq!(text["firstTimestamp"], Value::Null);
        assert_eq!(text["eventTime"], "2026-08-20T10:00:00.000007Z");
    }

    #[test]
    fn protobuf_loses_nothing_of_an_event() {
        for event in [older(), newer().to_core()] {
            assert_eq!(
                CoreEvent::from_protobuf(&event.to_protobuf()).unwrap(),
                event
            );
            let event = Event::from(event);
            assert_eq!(Event::from_protobuf(&event.to_protobuf()).unwrap(), event);
        }
    }

    #[test]
    fn a_row_reads_as_kubectl_shows_it() {
        let now = "2026-08-20T10:00:10Z".parse().unwrap();
        assert_eq!(
            older().cells(now),
            [
                "1s",
                "Normal",
                "Approved",
                "certificatesigningrequest/web",
                "",
                "approver",
                "by a rule",
                "10s",
                "2",
                "web.1"
            ]
        );
        let cells = newer().cells(now);
        assert_eq!(cells.first().map(String::as_str), Some("5s"));
        assert_eq!(
            cells.get(5).map(String::as_str),
            Some("approver, approver-0")
        );
    }
}
