//! Facts in the text forms that stored explanations and JSON answers use.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::UnixTime;

impl Serialize for UnixTime {
    /// RFC 3339.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UnixTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rfc3339;
        impl Visitor<'_> for Rfc3339 {
            type Value = UnixTime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 time")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<UnixTime, E> {
                UnixTime::parse_rfc3339(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Rfc3339)
    }
}

impl JsonSchema for UnixTime {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "RFC 3339, UTC.",
            "examples": ["2026-01-02T03:04:05Z"],
        })
    }
}
