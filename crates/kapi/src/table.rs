//! The table behind `kubectl get csr`.

use serde::Serialize;

use crate::kind::Kind;
use crate::list::{ListMeta, PartialObjectMetadata};
use crate::time::Time;

/// Rows for people (`meta.k8s.io/v1` `Table`).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Table<'a, T> {
    kind: &'static str,
    api_version: &'static str,
    metadata: ListMeta,
    /// `null` where the client knows them.
    column_definitions: Option<&'static [Column]>,
    rows: Vec<Row<'a, T>>,
}

/// What stands beside each row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Metadata of the object.
    #[default]
    Metadata,
    /// The whole object.
    Object,
    /// Nothing.
    None,
}

/// Whether the table defines its columns: on a watch only the first event does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// Defined here.
    Defined,
    /// Known from an earlier event.
    Known,
}

/// A heading, with what stands below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Column {
    name: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    format: &'static str,
    description: &'static str,
    priority: i32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row<'a, T> {
    cells: Vec<String>,
    object: RowObject<'a, T>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum RowObject<'a, T> {
    Metadata(PartialObjectMetadata<'a>),
    Object(&'a T),
    None,
}

impl<'a, T: Kind> Table<'a, T> {
    /// Renders objects as they look at `now`.
    #[must_use]
    pub fn of(
        objects: impl IntoIterator<Item = &'a T>,
        metadata: ListMeta,
        include: IncludeObject,
        columns: Columns,
        now: Time,
    ) -> Self {
        let column_definitions = match columns {
            Columns::Defined => Some(T::COLUMNS),
            Columns::Known => None,
        };
        let row = |object| Row::of(object, include, now);
        Self {
            kind: "Table",
            api_version: "meta.k8s.io/v1",
            metadata,
            column_definitions,
            rows: objects.into_iter().map(row).collect(),
        }
    }
}

impl<'a, T: Kind> Row<'a, T> {
    fn of(object: &'a T, include: IncludeObject, now: Time) -> Self {
        Self {
            cells: object.cells(now),
            object: match include {
                IncludeObject::Metadata => RowObject::Metadata(PartialObjectMetadata::of(object)),
                IncludeObject::Object => RowObject::Object(object),
                IncludeObject::None => RowObject::None,
            },
        }
    }
}

/// Appends the row of an object to a table that is put together while it is sent.
///
/// # Errors
/// Only if `T` cannot be written as JSON.
pub fn write_row<T: Kind>(
    object: &T,
    include: IncludeObject,
    now: Time,
    text: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    serde_json::to_writer(text, &Row::of(object, include, now))
}

impl Column {
    /// Shown with `-o wide` only.
    pub(crate) const fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    /// A point in time rather than text.
    pub(crate) const fn date(mut self) -> Self {
        self.kind = "date";
        self
    }
}

impl IncludeObject {
    /// Reads the query parameter `includeObject`; anything else than its three words is a 400.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            "None" => Some(Self::None),
            _ => None,
        }
    }
}

/// A column of text.
pub(crate) const fn column(
    name: &'static str,
    format: &'static str,
    description: &'static str,
) -> Column {
    Column {
        name,
        kind: "string",
        format,
        description,
        priority: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CertificateSigningRequest;
    use serde_json::{Value, json};

    fn render(
        object: &CertificateSigningRequest,
        include: IncludeObject,
        columns: Columns,
    ) -> Value {
        let meta = ListMeta {
            resource_version: "7".into(),
            ..ListMeta::default()
        };
        let now = Time::from_unix(1_000_000).unwrap();
        serde_json::to_value(Table::of([object], meta, include, columns, now)).unwrap()
    }

    fn sample() -> CertificateSigningRequest {
        let mut object = CertificateSigningRequest::default();
        object.metadata.name = "csr-1".into();
        object.metadata.creation_timestamp = Time::from_unix(1_000_000 - 125);
        object.spec.signer_name = "example.com/s".into();
        object.spec.username = "jane".into();
        object.spec.expiration_seconds = Some(86_400);
        object
    }

    #[test]
    fn row_reads_as_kubectl_shows_it() {
        let table = render(&sample(), IncludeObject::Metadata, Columns::Defined);
        assert_eq!(
            table["rows"][0]["cells"],
            json!(["csr-1", "2m5s", "example.com/s", "jane", "24h", "Pending"])
        );
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
        let names: Vec<&str> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "Name",
                "Age",
                "SignerName",
                "Requestor",
                "RequestedDuration",
                "Condition"
            ]
        );
        for column in table["columnDefinitions"].as_array().unwrap() {
            let mut keys: Vec<&String> = column.as_object().unwrap().keys().collect();
            keys.sort();
            assert_eq!(keys, ["description", "format", "name", "priority", "type"]);
        }
    }

    #[test]
    fn missing_facts_are_said() {
        let table = render(
            &CertificateSigningRequest::default(),
            IncludeObject::None,
            Columns::Known,
        );
        assert_eq!(
            table["rows"][0]["cells"],
            json!(["", "<unknown>", "<none>", "", "<none>", "Pending"])
        );
        assert_eq!(table["rows"][0]["object"], Value::Null);
        assert_eq!(table.get("columnDefinitions"), Some(&Value::Null));
    }

    #[test]
    fn whole_objects_can_stand_beside_rows() {
        let table = render(&sample(), IncludeObject::Object, Columns::Defined);
        assert_eq!(table["rows"][0]["object"]["spec"]["username"], "jane");
        assert_eq!(IncludeObject::parse("Object"), Some(IncludeObject::Object));
        assert_eq!(IncludeObject::parse("object"), None);
    }
}
