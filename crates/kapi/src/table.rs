//! The table behind `kubectl get csr`.

use serde::Serialize;

use crate::list::{ListMeta, PartialObjectMetadata};
use crate::model::CertificateSigningRequest;
use crate::time::{Time, human_duration};

/// Rows for people (`meta.k8s.io/v1` `Table`).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Table<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: ListMeta,
    #[serde(skip_serializing_if = "<[Column]>::is_empty")]
    column_definitions: &'static [Column],
    rows: Vec<Row<'a>>,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Column {
    name: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    format: &'static str,
    description: &'static str,
    priority: i32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row<'a> {
    cells: [String; 6],
    object: RowObject<'a>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum RowObject<'a> {
    Metadata(PartialObjectMetadata<'a>),
    Object(&'a CertificateSigningRequest),
    None,
}

impl<'a> Table<'a> {
    /// Renders objects as they look at `now`.
    #[must_use]
    pub fn of(
        objects: impl IntoIterator<Item = &'a CertificateSigningRequest>,
        metadata: ListMeta,
        include: IncludeObject,
        columns: Columns,
        now: Time,
    ) -> Self {
        let column_definitions = match columns {
            Columns::Defined => COLUMNS.as_slice(),
            Columns::Known => &[],
        };
        let row = |object| Row {
            cells: cells(object, now),
            object: match include {
                IncludeObject::Metadata => RowObject::Metadata(PartialObjectMetadata::of(object)),
                IncludeObject::Object => RowObject::Object(object),
                IncludeObject::None => RowObject::None,
            },
        };
        Self {
            kind: "Table",
            api_version: "meta.k8s.io/v1",
            metadata,
            column_definitions,
            rows: objects.into_iter().map(row).collect(),
        }
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

fn cells(object: &CertificateSigningRequest, now: Time) -> [String; 6] {
    let (meta, spec) = (&object.metadata, &object.spec);
    let or_none = |text: &str| {
        if text.is_empty() {
            "<none>".to_owned()
        } else {
            text.to_owned()
        }
    };
    [
        meta.name.clone(),
        meta.creation_timestamp.map_or_else(
            || "<unknown>".into(),
            |then| human_duration(now.seconds_since(then)),
        ),
        or_none(&spec.signer_name),
        spec.username.clone(),
        or_none(
            &spec
                .expiration_seconds
                .map(|seconds| human_duration(i64::from(seconds)))
                .unwrap_or_default(),
        ),
        object.state_text(),
    ]
}

const fn column(name: &'static str, format: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format,
        description,
        priority: 0,
    }
}

static COLUMNS: [Column; 6] = [
    column("Name", "name", "Name of the request."),
    column("Age", "", "Time since the request was created."),
    column("SignerName", "", "Signer that should act on the request."),
    column("Requestor", "", "User who sent the request."),
    column("RequestedDuration", "", "Lifetime the request asks for."),
    column(
        "Condition",
        "",
        "Decision about the request and what came of it.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
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
        assert!(table.get("columnDefinitions").is_none());
    }

    #[test]
    fn whole_objects_can_stand_beside_rows() {
        let table = render(&sample(), IncludeObject::Object, Columns::Defined);
        assert_eq!(table["rows"][0]["object"]["spec"]["username"], "jane");
        assert_eq!(IncludeObject::parse("Object"), Some(IncludeObject::Object));
        assert_eq!(IncludeObject::parse("object"), None);
    }
}
