//! The fields of both forms, for strict decoding, strategic merge patches and the OpenAPI document.

use crate::schema::{
    API_VERSION_ABOUT, Field, KIND_ABOUT, OBJECT_META, Schema, Shape, optional, required,
};

pub(super) static CORE_EVENT: Schema = Schema {
    name: "io.k8s.api.core.v1.Event",
    about: "What a controller tells people. It is kept for an hour.",
    fields: &[
        ACTION,
        API_VERSION,
        optional("count", Shape::Int32, COUNT),
        EVENT_TIME,
        optional("firstTimestamp", Shape::Time, FIRST),
        required(
            "involvedObject",
            Shape::Atomic(&OBJECT_REFERENCE),
            "What it is about.",
        ),
        KIND,
        optional("lastTimestamp", Shape::Time, LAST),
        optional("message", Shape::Text, NOTE),
        METADATA,
        REASON,
        RELATED,
        optional("reportingComponent", Shape::Text, CONTROLLER),
        INSTANCE,
        optional("series", Shape::Object(&CORE_SERIES), "How it goes on."),
        optional("source", Shape::Object(&SOURCE), "Who tells it."),
        TYPE,
    ],
};

pub(super) static EVENT: Schema = Schema {
    name: "io.k8s.api.events.v1.Event",
    about: "What a controller tells people. It is kept for an hour.",
    fields: &[
        ACTION,
        API_VERSION,
        optional("deprecatedCount", Shape::Int32, COUNT),
        optional("deprecatedFirstTimestamp", Shape::Time, FIRST),
        optional("deprecatedLastTimestamp", Shape::Time, LAST),
        optional("deprecatedSource", Shape::Object(&SOURCE), "Who tells it."),
        EVENT_TIME,
        KIND,
        METADATA,
        optional("note", Shape::Text, NOTE),
        REASON,
        optional(
            "regarding",
            Shape::Atomic(&OBJECT_REFERENCE),
            "What it is about.",
        ),
        RELATED,
        optional("reportingController", Shape::Text, CONTROLLER),
        INSTANCE,
        optional("series", Shape::Object(&NEW_SERIES), "How it goes on."),
        TYPE,
    ],
};

static OBJECT_REFERENCE: Schema = Schema {
    name: "io.k8s.api.core.v1.ObjectReference",
    about: "Names an object.",
    fields: &[
        optional(
            "apiVersion",
            Shape::Text,
            "Group and version in which its kind is meant.",
        ),
        optional("fieldPath", Shape::Text, "The part of it that is meant."),
        optional("kind", Shape::Text, "Kind of the object."),
        optional("name", Shape::Text, "Its name."),
        optional("namespace", Shape::Text, "Its namespace."),
        optional("resourceVersion", Shape::Text, "The state that is meant."),
        optional("uid", Shape::Text, "Its identity."),
    ],
};

static SOURCE: Schema = Schema {
    name: "io.k8s.api.core.v1.EventSource",
    about: "Who tells an event.",
    fields: &[
        optional("component", Shape::Text, "The program."),
        optional("host", Shape::Text, "The machine."),
    ],
};

static CORE_SERIES: Schema = Schema {
    name: "io.k8s.api.core.v1.EventSeries",
    about: "How an event goes on.",
    fields: SERIES,
};

static NEW_SERIES: Schema = Schema {
    name: "io.k8s.api.events.v1.EventSeries",
    about: "How an event goes on.",
    fields: SERIES,
};

const SERIES: &[Field] = &[
    optional("count", Shape::Int32, COUNT),
    optional("lastObservedTime", Shape::MicroTime, LAST),
];
const ACTION: Field = optional("action", Shape::Text, "What was done.");
const API_VERSION: Field = optional("apiVersion", Shape::Text, API_VERSION_ABOUT);
const EVENT_TIME: Field = optional(
    "eventTime",
    Shape::MicroTime,
    "When it was first seen, to the microsecond.",
);
const INSTANCE: Field = optional(
    "reportingInstance",
    Shape::Text,
    "Which instance of the controller tells it.",
);
const KIND: Field = optional("kind", Shape::Text, KIND_ABOUT);
const METADATA: Field = required(
    "metadata",
    Shape::Object(&OBJECT_META),
    "Name, identity, labels and annotations.",
);
const REASON: Field = optional("reason", Shape::Text, "Why, in one word.");
const RELATED: Field = optional(
    "related",
    Shape::Atomic(&OBJECT_REFERENCE),
    "What else it is about.",
);
const TYPE: Field = optional("type", Shape::Text, "Normal or Warning.");
const CONTROLLER: &str = "Which controller tells it.";
const COUNT: &str = "How often it was seen.";
const FIRST: &str = "When it was first seen.";
const LAST: &str = "When it was last seen.";
const NOTE: &str = "What happened, in a sentence.";
