//! The OpenAPI v3 document that kubectl reads before `create`, `apply` and `explain`, made from the schema of the
//! resource.

#![expect(
    clippy::indexing_slicing,
    reason = "fields are set on objects made here, never on input"
)]

use serde_json::{Map, Value, json};

use crate::discovery::CERTIFICATES;
use crate::schema::{
    DELETE_OPTIONS, Field, LIST_META, Merge, OBJECT_META, REQUEST, REQUEST_LIST, Schema, Shape,
};
use crate::{API_VERSION, GROUP, KIND, LIST_KIND, RESOURCE, VERSION};

/// `/openapi/v3`: where the documents are. `hash` changes with the document, so that clients may keep it.
#[must_use]
pub fn index(hash: &str) -> Value {
    json!({"paths": {format!("apis/{API_VERSION}"): {
        "serverRelativeURL": format!("/openapi/v3/apis/{API_VERSION}?hash={hash}")}}})
}

/// `/openapi/v3/apis/certificates.k8s.io/v1`.
#[must_use]
pub fn document() -> Value {
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths(),
        "components": {"schemas": schemas()},
    })
}

/// A fingerprint of the document (FNV-1a, 64 bits): names a version of it, protects nothing.
#[must_use]
pub fn hash(document: &[u8]) -> String {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016X}", document.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

fn paths() -> Value {
    let collection = format!("/apis/{API_VERSION}/{RESOURCE}");
    let object = format!("{collection}/{{name}}");
    let mut paths = Map::new();
    let list = json!({
        "parameters": [query("pretty", "string")],
        "get": operation("list", "list", &LIST_QUERY, None, LIST_KIND),
        "post": operation("create", "post", &WRITE_QUERY, Some(body("*/*", reference(&REQUEST))), KIND),
        "delete": operation("delete collection of", "deletecollection", &LIST_QUERY,
            Some(body("*/*", reference(&DELETE_OPTIONS))), LIST_KIND),
    });
    paths.insert(collection, list);
    let mut item = changeable("");
    item["delete"] = operation(
        "delete",
        "delete",
        &DELETE_QUERY,
        Some(body("*/*", reference(&DELETE_OPTIONS))),
        KIND,
    );
    paths.insert(object.clone(), item);
    for subresource in CERTIFICATES.resources.iter().flat_map(|r| r.subresources) {
        let is_changeable = subresource.verbs.contains(&"update");
        let item = if is_changeable {
            changeable(subresource.name)
        } else {
            readable(subresource.name)
        };
        paths.insert(format!("{object}/{}", subresource.name), item);
    }
    Value::Object(paths)
}

/// A path that can be read.
fn readable(subresource: &str) -> Value {
    let deed = format!("read {}", of(subresource));
    json!({
        "parameters": [
            {"name": "name", "in": "path", "required": true, "description": "Name of the object.",
             "schema": {"type": "string", "uniqueItems": true}},
            query("pretty", "string"),
        ],
        "get": operation(&deed, "get", &[], None, KIND),
    })
}

/// A path that can be read, replaced and patched.
fn changeable(subresource: &str) -> Value {
    let of = of(subresource);
    let patches: Map<String, Value> = PATCH_TYPES
        .iter()
        .map(|kind| ((*kind).to_owned(), patch_schema()))
        .collect();
    let patch = json!({"content": patches, "required": true});
    let mut item = readable(subresource);
    let whole = body("*/*", reference(&REQUEST));
    let (replace, change) = (format!("replace {of}"), format!("change {of}"));
    item["put"] = operation(&replace, "put", &WRITE_QUERY, Some(whole), KIND);
    item["patch"] = operation(&change, "patch", &WRITE_QUERY, Some(patch), KIND);
    item
}

fn of(subresource: &str) -> String {
    match subresource {
        "" => String::new(),
        part => format!("{part} of "),
    }
}

fn operation(
    deed: &str,
    action: &str,
    parameters: &[(&str, &str)],
    body: Option<Value>,
    answers: &str,
) -> Value {
    let schema = if answers == LIST_KIND {
        &REQUEST_LIST
    } else {
        &REQUEST
    };
    let mut operation = json!({
        "tags": ["certificates_v1"],
        "description": format!("{} the specified {KIND}", deed.trim()),
        "parameters": parameters.iter().map(|(name, kind)| query(name, kind)).collect::<Vec<_>>(),
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": reference(schema)}}},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind(KIND),
    });
    if let Some(body) = body {
        operation["requestBody"] = body;
    }
    operation
}

fn query(name: &str, kind: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

fn body(media: &str, schema: Value) -> Value {
    let mut content = Map::new();
    content.insert(media.to_owned(), json!({"schema": schema}));
    json!({"content": content, "required": true})
}

fn patch_schema() -> Value {
    json!({"schema": {"$ref": format!("#/components/schemas/{PATCH}")}})
}

fn kind(kind: &str) -> Value {
    json!({"group": GROUP, "version": VERSION, "kind": kind})
}

fn schemas() -> Value {
    let mut schemas = Map::new();
    for schema in [
        &REQUEST,
        &REQUEST_LIST,
        &OBJECT_META,
        &LIST_META,
        &DELETE_OPTIONS,
    ] {
        collect(schema, &mut schemas);
    }
    for (schema, name) in [
        (&REQUEST, KIND),
        (&REQUEST_LIST, LIST_KIND),
        (&DELETE_OPTIONS, "DeleteOptions"),
    ] {
        if let Some(entry) = schemas.get_mut(schema.name) {
            entry["x-kubernetes-group-version-kind"] = json!([kind(name)]);
        }
    }
    schemas.insert(
        TIME.into(),
        json!({"type": "string", "format": "date-time", "description": "A time, RFC 3339."}),
    );
    schemas.insert(
        FIELDS.into(),
        json!({"type": "object", "description": "A set of fields as a tree of their names."}),
    );
    schemas.insert(
        PATCH.into(),
        json!({"type": "object", "description": "A patch in one of the formats of the request."}),
    );
    Value::Object(schemas)
}

fn collect(schema: &'static Schema, schemas: &mut Map<String, Value>) {
    if schemas.contains_key(schema.name) {
        return;
    }
    let properties: Map<String, Value> = schema
        .fields
        .iter()
        .map(|field| (field.name.to_owned(), property(field)))
        .collect();
    let mut entry =
        json!({"type": "object", "description": schema.about, "properties": properties});
    let required: Vec<&str> = schema
        .fields
        .iter()
        .filter(|field| field.required)
        .map(|field| field.name)
        .collect();
    if !required.is_empty() {
        entry["required"] = json!(required);
    }
    schemas.insert(schema.name.to_owned(), entry);
    for field in schema.fields {
        let mut shape = &field.shape;
        while let Shape::List(inner, _) | Shape::Map(inner) = shape {
            shape = inner;
        }
        if let Shape::Object(inner) = shape {
            collect(inner, schemas);
        }
    }
}

fn property(field: &Field) -> Value {
    let mut property = shape(&field.shape);
    if field.required && matches!(field.shape, Shape::Text) {
        property["default"] = json!("");
    }
    property["description"] = json!(field.about);
    property
}

fn shape(value: &Shape) -> Value {
    match value {
        Shape::Text => json!({"type": "string"}),
        Shape::Int32 => json!({"type": "integer", "format": "int32"}),
        Shape::Int64 => json!({"type": "integer", "format": "int64"}),
        Shape::Boolean => json!({"type": "boolean"}),
        Shape::Bytes => json!({"type": "string", "format": "byte"}),
        Shape::Time => json!({"allOf": [{"$ref": format!("#/components/schemas/{TIME}")}]}),
        Shape::Opaque => json!({"allOf": [{"$ref": format!("#/components/schemas/{FIELDS}")}]}),
        Shape::Object(schema) => json!({"allOf": [reference(schema)], "default": {}}),
        Shape::Map(inner) => json!({"type": "object", "additionalProperties": element(inner)}),
        Shape::List(inner, merge) => {
            let mut list = json!({"type": "array", "items": element(inner)});
            match merge {
                Merge::Atomic => list["x-kubernetes-list-type"] = json!("atomic"),
                Merge::Set => {
                    list["x-kubernetes-list-type"] = json!("set");
                    list["x-kubernetes-patch-strategy"] = json!("merge");
                }
                Merge::Keyed(key) => {
                    list["x-kubernetes-list-type"] = json!("map");
                    list["x-kubernetes-list-map-keys"] = json!([key]);
                    list["x-kubernetes-patch-strategy"] = json!("merge");
                    list["x-kubernetes-patch-merge-key"] = json!(key);
                }
                Merge::KeyedOnApply(key) => {
                    list["x-kubernetes-list-type"] = json!("map");
                    list["x-kubernetes-list-map-keys"] = json!([key]);
                }
            }
            list
        }
    }
}

fn element(value: &Shape) -> Value {
    let mut element = shape(value);
    if matches!(value, Shape::Text) {
        element["default"] = json!("");
    }
    element
}

fn reference(schema: &Schema) -> Value {
    json!({"$ref": format!("#/components/schemas/{}", schema.name)})
}

/// `Content-Type` of `/openapi/v2`, whose body must be empty: kubectl 1.27 and 1.28 insist on a 200 there.
pub const V2_CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const PATCH_TYPES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
/// kubectl looks for `fieldValidation` here to leave validation to the server.
const WRITE_QUERY: [(&str, &str); 3] = [
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const DELETE_QUERY: [(&str, &str); 3] = [
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("propagationPolicy", "string"),
];
const LIST_QUERY: [(&str, &str); 7] = [
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("timeoutSeconds", "integer"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_finds_what_it_looks_for() {
        let document = document();
        let patch = &document["paths"]["/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}"]
            ["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"], kind(KIND));
        assert!(
            patch["parameters"]
                .as_array()
                .unwrap()
                .iter()
                .any(|p| p["name"] == "fieldValidation")
        );
        assert!(
            patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object()
        );
        let schema = &document["components"]["schemas"][REQUEST.name];
        assert_eq!(
            schema["x-kubernetes-group-version-kind"],
            json!([kind(KIND)])
        );
        assert_eq!(schema["required"], json!(["spec"]));
        let owners =
            &document["components"]["schemas"][OBJECT_META.name]["properties"]["ownerReferences"];
        assert_eq!(owners["x-kubernetes-patch-merge-key"], "uid");
    }

    #[test]
    fn every_reference_has_its_target() {
        fn visit(value: &Value, schemas: &Value) {
            match value {
                Value::Object(map) => {
                    if let Some(target) = map.get("$ref").and_then(Value::as_str) {
                        let name = target.strip_prefix("#/components/schemas/").unwrap();
                        assert!(schemas.get(name).is_some(), "{name}");
                    }
                    map.values().for_each(|value| visit(value, schemas));
                }
                Value::Array(list) => list.iter().for_each(|value| visit(value, schemas)),
                _ => {}
            }
        }
        let document = document();
        visit(&document, &document["components"]["schemas"]);
    }

    #[test]
    fn index_names_the_document_by_its_hash() {
        let hash = hash(b"");
        assert_eq!(hash, "CBF29CE484222325");
        assert_eq!(
            index(&hash)["paths"]["apis/certificates.k8s.io/v1"]["serverRelativeURL"],
            "/openapi/v3/apis/certificates.k8s.io/v1?hash=CBF29CE484222325"
        );
    }
}
