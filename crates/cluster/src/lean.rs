//! Objects as the API server sends them, read in one pass and without their managed fields: those are larger than all the
//! rest, and nobody here reads them.

use std::borrow::Cow;
use std::fmt;

use kube::Resource;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// An object, and of its metadata what a watch has to know.
#[derive(Clone, Debug)]
pub(crate) struct LeanObject {
    pub(crate) json: Value,
    metadata: ObjectMeta,
}

impl<'de> Deserialize<'de> for LeanObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = deserializer.deserialize_map(ObjectVisitor)?;
        let text = |key: &str| Some(json.get("metadata")?.get(key)?.as_str()?.to_owned());
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { json, metadata })
    }
}

impl Resource for LeanObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(found: &ApiResource) -> Cow<'_, str> {
        found.kind.as_str().into()
    }

    fn group(found: &ApiResource) -> Cow<'_, str> {
        found.group.as_str().into()
    }

    fn version(found: &ApiResource) -> Cow<'_, str> {
        found.version.as_str().into()
    }

    fn api_version(found: &ApiResource) -> Cow<'_, str> {
        found.api_version.as_str().into()
    }

    fn plural(found: &ApiResource) -> Cow<'_, str> {
        found.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = match key.as_str() {
                "metadata" => entries.next_value_seed(Metadata)?,
                _ => entries.next_value()?,
            };
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// Metadata without managed fields.
struct Metadata;

impl<'de> DeserializeSeed<'de> for Metadata {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("metadata")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut metadata = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if key == "managedFields" {
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            metadata.insert(key, entries.next_value()?);
        }
        Ok(Value::Object(metadata))
    }
}

#[cfg(test)]
mod tests {
    use kube::core::WatchEvent;
    use serde_json::json;

    use super::*;

    #[test]
    fn all_but_the_managed_fields_is_read() {
        let object = json!({
            "apiVersion": "v1", "kind": "Node", "spec": {"managedFields": [1]},
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"x": "y"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:spec": {}}}]},
        });
        let event = json!({"type": "ADDED", "object": object}).to_string();
        let Ok(WatchEvent::Added(read)) = serde_json::from_str::<WatchEvent<LeanObject>>(&event)
        else {
            panic!("not read")
        };
        let mut expected = object;
        expected["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("managedFields");
        assert_eq!(read.json, expected);
        let metadata = read.meta();
        assert_eq!(
            (
                metadata.name.as_deref(),
                metadata.resource_version.as_deref()
            ),
            (Some("a"), Some("7"))
        );
    }

    #[test]
    fn an_object_with_odd_metadata_is_read_or_refused_and_nothing_else() {
        for (text, is_read) in [
            ("{}", true),
            (r#"{"metadata": null}"#, true),
            (r#"{"metadata": {"name": 7}}"#, true),
            (r#"{"metadata": []}"#, false),
            ("[]", false),
            ("7", false),
        ] {
            let read = serde_json::from_str::<LeanObject>(text);
            assert_eq!(read.is_ok(), is_read, "{text}");
        }
    }
}
