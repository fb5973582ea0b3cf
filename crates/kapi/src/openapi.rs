//! The OpenAPI v3 document that kubectl reads before `create`, `apply` and `explain`, made from the schemas of the
//! kinds that a group serves.

#![expect(
    clippy::indexing_slicing,
    reason = "fields are set on objects made here, never on input"
)]

pub mod v2;

use serde_json::{Map, Value, json};

use crate::coordination::Lease;
use crate::discovery::{ApiGroup, ApiResource, CERTIFICATES, COORDINATION, CORE, EVENTS, RBAC};
use crate::event::{CoreEvent, Event};
use crate::kind::Kind;
use crate::model::CertificateSigningRequest;
use crate::rbac::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use crate::schema::{DELETE_OPTIONS, Field, LIST_META, Merge, OBJECT_META, Schema, Shape};

/// A kind of object in a document.
#[derive(Debug, Clone, Copy)]
pub struct Documented {
    resource: &'static ApiResource,
    schema: &'static Schema,
    list_kind: &'static str,
}

impl Documented {
    /// A kind that a group serves; nothing if it does not.
    #[must_use]
    pub fn of<T: Kind>(group: &ApiGroup) -> Option<Self> {
        let mut resources = group.resources.iter();
        let resource = resources.find(|resource| resource.name == T::RESOURCE.resource)?;
        Some(Self {
            resource,
            schema: T::schema(),
            list_kind: T::LIST_KIND,
        })
    }

    fn list_schema(&self) -> String {
        format!("{}List", self.schema.name)
    }
}

/// The document about requests for certificates.
#[must_use]
pub fn certificates() -> Value {
    let kinds = Documented::of::<CertificateSigningRequest>(&CERTIFICATES);
    document(&CERTIFICATES, kinds.as_slice())
}

/// The document about roles and bindings.
#[must_use]
pub fn rbac() -> Value {
    let kinds = [
        Documented::of::<ClusterRoleBinding>(&RBAC),
        Documented::of::<ClusterRole>(&RBAC),
        Documented::of::<RoleBinding>(&RBAC),
        Documented::of::<Role>(&RBAC),
    ];
    document(&RBAC, &kinds.into_iter().flatten().collect::<Vec<_>>())
}

/// The document about leases.
#[must_use]
pub fn coordination() -> Value {
    let kinds = Documented::of::<Lease>(&COORDINATION);
    document(&COORDINATION, kinds.as_slice())
}

/// The document about events.
#[must_use]
pub fn events() -> Value {
    let kinds = Documented::of::<Event>(&EVENTS);
    document(&EVENTS, kinds.as_slice())
}

/// The document about the core group.
#[must_use]
pub fn core() -> Value {
    let kinds = Documented::of::<CoreEvent>(&CORE);
    document(&CORE, kinds.as_slice())
}

/// `/openapi/v3`: where the documents are, each a group with the hash of its document. The hash changes with the
/// document, so that clients may keep it.
#[must_use]
pub fn index<'h>(documents: impl IntoIterator<Item = (&'h ApiGroup, &'h str)>) -> Value {
    let mut paths = Map::new();
    for (group, hash) in documents {
        let path = group.path().trim_start_matches('/').to_owned();
        let place = format!("/openapi/v3/{path}?hash={hash}");
        paths.insert(path, json!({"serverRelativeURL": place}));
    }
    json!({"paths": paths})
}

/// `/openapi/v3/apis/{group}/{version}`.
#[must_use]
pub fn document(group: &ApiGroup, kinds: &[Documented]) -> Value {
    let (mut paths, mut schemas) = (Map::new(), shared_schemas());
    for kind in kinds {
        let part = Part { group, kind };
        part.paths(&mut paths);
        part.schemas(&mut schemas);
    }
    if let Some(entry) = schemas.get_mut(DELETE_OPTIONS.name) {
        entry["x-kubernetes-group-version-kind"] =
            json!([{"group": group.name, "version": group.version, "kind": "DeleteOptions"}]);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// A fingerprint of the document (FNV-1a, 64 bits): names a version of it, protects nothing.
#[must_use]
pub fn hash(document: &[u8]) -> String {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016X}", document.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

/// One kind, as its group serves it.
struct Part<'d> {
    group: &'d ApiGroup,
    kind: &'d Documented,
}

impl Part<'_> {
    fn paths(&self, paths: &mut Map<String, Value>) {
        let ApiResource {
            name,
            namespaced,
            subresources,
            ..
        } = self.kind.resource;
        let version = self.group.path();
        let everywhere = format!("{version}/{name}");
        let collection = match namespaced {
            true => format!("{version}/namespaces/{{namespace}}/{name}"),
            false => everywhere.clone(),
        };
        let mut list = json!({
            "parameters": self.parameters(false),
            "get": self.operation("list", "list", &WATCH_QUERY, None, Answers::List),
        });
        if *namespaced {
            list["parameters"] = json!([query("pretty", "string")]);
            paths.insert(everywhere, list.clone());
            list["parameters"] = json!(self.parameters(false));
        }
        let whole = body("*/*", reference(self.kind.schema.name));
        let options = body("*/*", reference(DELETE_OPTIONS.name));
        list["post"] = self.operation("create", "post", &WRITE_QUERY, Some(whole), Answers::Object);
        list["delete"] = self.operation(
            "delete collection of",
            "deletecollection",
            &LIST_QUERY,
            Some(options.clone()),
            Answers::List,
        );
        let object = format!("{collection}/{{name}}");
        paths.insert(collection, list);
        let mut item = self.changeable("");
        item["delete"] = self.operation(
            "delete",
            "delete",
            &DELETE_QUERY,
            Some(options),
            Answers::Object,
        );
        paths.insert(object.clone(), item);
        for subresource in *subresources {
            let path = format!("{object}/{}", subresource.name);
            paths.insert(path, self.changeable(subresource.name));
        }
    }

    /// What stands in the path, and what every operation takes.
    fn parameters(&self, named: bool) -> Vec<Value> {
        let in_path = |name: &str, about: &str| {
            json!({"name": name, "in": "path", "required": true, "description": about,
                "schema": {"type": "string", "uniqueItems": true}})
        };
        let mut parameters = Vec::new();
        if named {
            parameters.push(in_path("name", "Name of the object."));
        }
        if self.kind.resource.namespaced {
            parameters.push(in_path("namespace", "Namespace of the object."));
        }
        parameters.push(query("pretty", "string"));
        parameters
    }

    /// A path that can be read, replaced and patched.
    fn changeable(&self, subresource: &str) -> Value {
        let of = match subresource {
            "" => String::new(),
            part => format!(" {part} of"),
        };
        let patches: Map<String, Value> = PATCH_TYPES
            .iter()
            .map(|kind| ((*kind).to_owned(), json!({"schema": reference(PATCH)})))
            .collect();
        let patch = json!({"content": patches, "required": true});
        let whole = body("*/*", reference(self.kind.schema.name));
        let deed = |verb: &str| format!("{verb}{of}");
        json!({
            "parameters": self.parameters(true),
            "get": self.operation(&deed("read"), "get", &[], None, Answers::Object),
            "put": self.operation(&deed("replace"), "put", &WRITE_QUERY, Some(whole), Answers::Object),
            "patch": self.operation(&deed("change"), "patch", &PATCH_QUERY, Some(patch), Answers::Object),
        })
    }

    fn operation(
        &self,
        deed: &str,
        action: &str,
        parameters: &[(&str, &str)],
        body: Option<Value>,
        answers: Answers,
    ) -> Value {
        let schema = match answers {
            Answers::Object => self.kind.schema.name.to_owned(),
            Answers::List => self.kind.list_schema(),
        };
        let kind = self.kind.resource.kind;
        let mut operation = json!({
            "tags": [tag(self.group)],
            "description": format!("{deed} the specified {kind}"),
            "parameters": parameters.iter().map(|(name, kind)| query(name, kind)).collect::<Vec<_>>(),
            "responses": {
                "200": {"description": "OK", "content": {"application/json": {"schema": reference(&schema)}}},
                "401": {"description": "Unauthorized"},
            },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.gvk(kind),
        });
        if let Some(body) = body {
            operation["requestBody"] = body;
        }
        operation
    }

    fn schemas(&self, schemas: &mut Map<String, Value>) {
        let Documented {
            resource,
            schema,
            list_kind,
        } = self.kind;
        collect(schema, schemas);
        if let Some(entry) = schemas.get_mut(schema.name) {
            entry["x-kubernetes-group-version-kind"] = json!([self.gvk(resource.kind)]);
        }
        let text = |about: &str| json!({"type": "string", "description": about});
        let list = json!({
            "type": "object",
            "description": format!("A list of {} objects.", resource.kind),
            "properties": {
                "apiVersion": text("Version of the schema in which this object is written."),
                "items": {"type": "array", "items": {"allOf": [reference(schema.name)], "default": {}},
                    "description": "The objects, sorted by name."},
                "kind": text("Type of this object."),
                "metadata": {"allOf": [reference(LIST_META.name)], "default": {},
                    "description": "Version of the list and how to get its rest."},
            },
            "required": ["items"],
            "x-kubernetes-group-version-kind": [self.gvk(list_kind)],
        });
        schemas.insert(self.kind.list_schema(), list);
    }

    fn gvk(&self, kind: &str) -> Value {
        json!({"group": self.group.name, "version": self.group.version, "kind": kind})
    }
}

#[derive(Clone, Copy)]
enum Answers {
    Object,
    List,
}

/// The name under which generated clients keep a group: `certificates_v1`, `rbacAuthorization_v1`.
fn tag(group: &ApiGroup) -> String {
    let name = match group.name {
        "" => "core",
        name => name.strip_suffix(".k8s.io").unwrap_or(name),
    };
    let mut words = name.split('.');
    let mut tag = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        tag.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        tag.push_str(letters.as_str());
    }
    format!("{tag}_{}", group.version)
}

fn query(name: &str, kind: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

fn body(media: &str, schema: Value) -> Value {
    let mut content = Map::new();
    content.insert(media.to_owned(), json!({"schema": schema}));
    json!({"content": content, "required": true})
}

/// What every document has.
fn shared_schemas() -> Map<String, Value> {
    let mut schemas = Map::new();
    for schema in [&OBJECT_META, &LIST_META, &DELETE_OPTIONS] {
        collect(schema, &mut schemas);
    }
    schemas.insert(
        TIME.into(),
        json!({"type": "string", "format": "date-time", "description": "A time, RFC 3339."}),
    );
    schemas.insert(
        MICRO_TIME.into(),
        json!({"type": "string", "format": "date-time",
            "description": "A time, RFC 3339 with six digits behind the point."}),
    );
    schemas.insert(
        FIELDS.into(),
        json!({"type": "object", "description": "A set of fields as a tree of their names."}),
    );
    schemas.insert(
        PATCH.into(),
        json!({"type": "object", "description": "A patch in one of the formats of the request."}),
    );
    schemas
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
        if let Shape::Object(inner) | Shape::Atomic(inner) = shape {
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
        Shape::MicroTime => {
            json!({"allOf": [{"$ref": format!("#/components/schemas/{MICRO_TIME}")}]})
        }
        Shape::Opaque => json!({"allOf": [{"$ref": format!("#/components/schemas/{FIELDS}")}]}),
        Shape::Object(schema) => json!({"allOf": [reference(schema.name)], "default": {}}),
        Shape::Atomic(schema) => {
            json!({"allOf": [reference(schema.name)], "default": {}, "x-kubernetes-map-type": "atomic"})
        }
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

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const PATCH_TYPES: [&str; 4] = [
    "application/apply-patch+yaml",
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
const PATCH_QUERY: [(&str, &str); 4] = [
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
const DELETE_QUERY: [(&str, &str); 3] = [
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("propagationPolicy", "string"),
];
/// A list may be a watch.
const WATCH_QUERY: [(&str, &str); 10] = [
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
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
        let document = certificates();
        let patch = &document["paths"]["/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}"]
            ["patch"];
        let kind = json!({"group": "certificates.k8s.io", "version": "v1", "kind": "CertificateSigningRequest"});
        assert_eq!(patch["x-kubernetes-group-version-kind"], kind);
        assert_eq!(patch["tags"], json!(["certificates_v1"]));
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
        let schema = &document["components"]["schemas"][CertificateSigningRequest::schema().name];
        assert_eq!(schema["x-kubernetes-group-version-kind"], json!([kind]));
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
        for document in [certificates(), rbac(), coordination(), events(), core()] {
            visit(&document, &document["components"]["schemas"]);
        }
    }

    #[test]
    fn index_names_the_document_by_its_hash() {
        let hash = hash(b"");
        assert_eq!(hash, "CBF29CE484222325");
        assert_eq!(
            index([(&CERTIFICATES, hash.as_str())])["paths"]["apis/certificates.k8s.io/v1"]["serverRelativeURL"],
            "/openapi/v3/apis/certificates.k8s.io/v1?hash=CBF29CE484222325"
        );
    }
}
