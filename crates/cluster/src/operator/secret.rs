//! Secrets: read when they are needed, kept no longer than one pass.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::object::{Meta, ObjectName};

/// A Secret as it was read.
pub(crate) struct Secret {
    pub(crate) meta: Meta,
    data: BTreeMap<String, Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&String> = self.data.keys().collect();
        write!(f, "Secret({} {keys:?})", self.meta.name)
    }
}

impl Secret {
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let data = object.get("data").and_then(Value::as_object);
        let data = data.into_iter().flatten().filter_map(|(key, value)| {
            let octets = BASE64.decode(value.as_str()?).ok()?;
            Some((key.clone(), Zeroizing::new(octets)))
        });
        Some(Self {
            meta: Meta::read(object)?,
            data: data.collect(),
        })
    }

    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).map(|octets| octets.as_slice())
    }

    /// A value that is not empty.
    pub(crate) fn filled(&self, key: &str) -> Option<&[u8]> {
        self.get(key).filter(|octets| !octets.is_empty())
    }

    /// A value as text.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        std::str::from_utf8(self.get(key)?).ok()
    }
}

/// A Secret as it shall be.
pub(crate) struct NewSecret<'a> {
    pub(crate) name: ObjectName,
    pub(crate) labels: Vec<(&'a str, &'a str)>,
    pub(crate) annotations: Vec<(&'a str, &'a str)>,
    /// Who controls it.
    pub(crate) owner: Value,
    pub(crate) data: &'a [(&'a str, &'a [u8])],
}

impl NewSecret<'_> {
    /// The object to be created.
    pub(crate) fn object(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self.name.name,
                "namespace": self.name.namespace,
                "labels": self.labels(),
                "annotations": self.annotations(),
                "ownerReferences": [self.owner],
            },
            "type": "Opaque",
            "data": self.encoded(),
        })
    }

    fn labels(&self) -> Value {
        texts(&self.labels)
    }

    fn annotations(&self) -> Value {
        texts(&self.annotations)
    }

    fn encoded(&self) -> Value {
        let entries = self.data.iter();
        let entries = entries.map(|(key, value)| ((*key).to_owned(), json!(BASE64.encode(value))));
        Value::Object(entries.collect())
    }

    /// The merge patch that gives an existing Secret these values, for exactly the state that was read. Values of other keys
    /// stay.
    pub(crate) fn patch(&self, existing: &Secret) -> Value {
        let mut metadata = json!({
            "resourceVersion": existing.meta.version,
            "uid": existing.meta.uid,
            "labels": self.labels(),
            "annotations": self.annotations(),
        });
        // Whoever else has a claim on it keeps that.
        if existing.meta.owners.is_empty()
            && let Some(metadata) = metadata.as_object_mut()
        {
            metadata.insert("ownerReferences".to_owned(), json!([self.owner]));
        }
        json!({"metadata": metadata, "data": self.encoded()})
    }

    /// Whether an existing Secret says all of this.
    pub(crate) fn is_in(&self, existing: &Secret) -> bool {
        let has = |all: &BTreeMap<String, String>, wanted: &[(&str, &str)]| {
            let mut wanted = wanted.iter();
            wanted.all(|(key, value)| all.get(*key).is_some_and(|it| it == value))
        };
        let mut data = self.data.iter();
        data.all(|(key, value)| existing.get(key) == Some(*value))
            && has(&existing.meta.labels, &self.labels)
            && has(&existing.meta.annotations, &self.annotations)
            && !existing.meta.owners.is_empty()
    }
}

fn texts(entries: &[(&str, &str)]) -> Value {
    let entries = entries.iter();
    let entries = entries.map(|(key, value)| ((*key).to_owned(), json!(value)));
    Value::Object(entries.collect())
}
