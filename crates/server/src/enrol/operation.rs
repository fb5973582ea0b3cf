//! One call as the document describes it: what it is for, what it takes and what it answers.
//!
//! Every handler has one of these beside it, made of the types that the handler itself reads and writes. The schemas
//! come from those types (JSON Schema 2020-12, which OpenAPI 3.1 takes as it is), so they cannot say something else than
//! `serde` does.

use std::collections::BTreeMap;

use countersign_api::ErrorBody;
use schemars::generate::{Contract, SchemaGenerator, SchemaSettings};
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::faults::Refused;

/// One call.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    /// The name that generated clients give it; part of the interface.
    id: &'static str,
    tag: Tag,
    summary: &'static str,
    about: &'static str,
    path: Option<Describe>,
    query: Option<Describe>,
    headers: Option<Describe>,
    body: Option<Body>,
    answer: (u16, &'static str, Option<Describe>),
    /// Another status for the same answer.
    otherwise: Option<(u16, &'static str)>,
    refusals: &'static [Refused],
    caller: Caller,
}

/// Writes a type's schema down.
type Describe = fn(&mut Schemas) -> Schema;

/// The chapters of the document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tag {
    Requests,
    Certificates,
    Policy,
    Inventory,
    Tokens,
    Audit,
    Description,
}

/// What a call takes as its body.
#[derive(Clone, Copy)]
enum Body {
    Json(Describe),
    OptionalJson(Describe),
    /// Text that is no JSON, in words.
    Pem(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    Administrator,
    Anybody,
}

impl Operation {
    /// A call of administrators that answers 204.
    pub(super) const fn new(id: &'static str, tag: Tag, summary: &'static str) -> Self {
        Self {
            id,
            tag,
            summary,
            about: "",
            path: None,
            query: None,
            headers: None,
            body: None,
            answer: (204, "Done.", None),
            otherwise: None,
            refusals: &[],
            caller: Caller::Administrator,
        }
    }

    /// What a reader should know beside the summary.
    pub(super) const fn about(mut self, text: &'static str) -> Self {
        self.about = text;
        self
    }

    /// The parameters in the path are the members of `T`.
    pub(super) const fn path<T: JsonSchema>(mut self) -> Self {
        self.path = Some(Schemas::taken::<T>);
        self
    }

    /// The parameters after the question mark are the members of `T`. A list is one parameter with commas.
    pub(super) const fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(Schemas::taken::<T>);
        self
    }

    /// The headers that mean something to it are the members of `T`.
    pub(super) const fn headers<T: JsonSchema>(mut self) -> Self {
        self.headers = Some(Schemas::taken::<T>);
        self
    }

    /// The body is a `T`.
    pub(super) const fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(Body::Json(Schemas::taken_by_reference::<T>));
        self
    }

    /// The body is PEM.
    pub(super) const fn pem_body(mut self, what: &'static str) -> Self {
        self.body = Some(Body::Pem(what));
        self
    }

    /// The body is a `T`, or empty.
    pub(super) const fn optional_body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(Body::OptionalJson(Schemas::taken_by_reference::<T>));
        self
    }

    /// What comes with success.
    pub(super) const fn answers<T: JsonSchema>(mut self, status: u16, what: &'static str) -> Self {
        self.answer = (status, what, Some(Schemas::given::<T>));
        self
    }

    /// Success may have another status, with the same body.
    pub(super) const fn or_answers(mut self, status: u16, what: &'static str) -> Self {
        self.otherwise = Some((status, what));
        self
    }

    /// Success has a status and no body.
    pub(super) const fn answers_nothing(mut self, status: u16, what: &'static str) -> Self {
        self.answer = (status, what, None);
        self
    }

    /// What it may refuse beside [`Refused::ALWAYS`].
    pub(super) const fn refuses(mut self, refusals: &'static [Refused]) -> Self {
        self.refusals = refusals;
        self
    }

    /// It is not for administrators alone, and refuses nothing.
    pub(super) const fn for_anybody(mut self) -> Self {
        self.caller = Caller::Anybody;
        self
    }

    pub(super) fn object(&self, schemas: &mut Schemas) -> OperationObject {
        OperationObject {
            operation_id: self.id,
            tags: [self.tag.name()],
            summary: self.summary,
            description: self.about,
            parameters: self.parameters(schemas),
            request_body: self.body.map(|body| BodyObject {
                required: !matches!(body, Body::OptionalJson(_)),
                content: match body {
                    Body::Json(describe) | Body::OptionalJson(describe) => {
                        content(describe(schemas))
                    }
                    Body::Pem(what) => json!({
                        "text/plain": {
                            "schema": { "type": "string", "description": what },
                        },
                    }),
                },
            }),
            responses: self.responses(schemas),
            security: (self.caller == Caller::Anybody).then_some([]),
        }
    }

    fn parameters(&self, schemas: &mut Schemas) -> Vec<ParameterObject> {
        let places = [
            (ParameterLocation::Path, self.path),
            (ParameterLocation::Query, self.query),
            (ParameterLocation::Header, self.headers),
        ];
        let mut all = Vec::new();
        for (place, describe) in places {
            let Some(describe) = describe else { continue };
            let schema = describe(schemas);
            let members = schema.get("properties").and_then(Value::as_object);
            for (name, member) in members.into_iter().flatten() {
                all.push(ParameterObject::new(place, name, member.clone()));
            }
        }
        all
    }

    fn responses(&self, schemas: &mut Schemas) -> BTreeMap<u16, ResponseObject> {
        let (status, description, describe) = self.answer;
        let answer = ResponseObject::Own {
            description,
            content: describe.map(|describe| content(describe(schemas))),
        };
        let mut all = BTreeMap::from([(status, answer)]);
        if let Some((status, description)) = self.otherwise {
            let content = describe.map(|describe| content(describe(schemas)));
            let answer = ResponseObject::Own {
                description,
                content,
            };
            all.insert(status, answer);
        }
        if self.caller == Caller::Administrator {
            for refused in Refused::ALWAYS.iter().chain(self.refusals) {
                let place = format!("#/components/responses/{}", refused.name());
                all.insert(refused.status(), ResponseObject::Shared { place });
            }
        }
        all
    }
}

/// The operation object of OpenAPI 3.1 (section 4.8.10).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OperationObject {
    operation_id: &'static str,
    tags: [&'static str; 1],
    summary: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parameters: Vec<ParameterObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_body: Option<BodyObject>,
    responses: BTreeMap<u16, ResponseObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    security: Option<[Value; 0]>,
}

#[derive(Serialize)]
struct ParameterObject {
    name: String,
    #[serde(rename = "in")]
    place: ParameterLocation,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Value>,
    required: bool,
    #[serde(flatten)]
    list: Option<ListStyle>,
    schema: Value,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ParameterLocation {
    Path,
    Query,
    Header,
}

/// How a list is written: with commas.
#[derive(Serialize)]
struct ListStyle {
    style: &'static str,
    explode: bool,
}

impl ParameterObject {
    fn new(place: ParameterLocation, name: &str, mut schema: Value) -> Self {
        present(&mut schema);
        let is_list = schema.get("type").is_some_and(|kind| kind == "array");
        Self {
            name: name.to_owned(),
            place,
            description: schema
                .as_object_mut()
                .and_then(|members| members.remove("description")),
            required: place == ParameterLocation::Path,
            list: is_list.then_some(ListStyle {
                style: "form",
                explode: false,
            }),
            schema,
        }
    }
}

#[derive(Serialize)]
struct BodyObject {
    required: bool,
    content: Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResponseObject {
    Own {
        description: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<Value>,
    },
    Shared {
        #[serde(rename = "$ref")]
        place: String,
    },
}

impl Tag {
    pub(super) const ALL: [Self; 7] = [
        Self::Requests,
        Self::Certificates,
        Self::Policy,
        Self::Inventory,
        Self::Tokens,
        Self::Audit,
        Self::Description,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Certificates => "certificates",
            Self::Policy => "policy",
            Self::Inventory => "inventory",
            Self::Tokens => "tokens",
            Self::Audit => "audit",
            Self::Description => "description",
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Requests => "What was asked for at any door, and what people say to it.",
            Self::Certificates => "The ledger.",
            Self::Policy => "The rules in force, and what they decided on which evidence.",
            Self::Inventory => "Machines that are expected to enrol, and build windows.",
            Self::Tokens => "One-time passwords by which machines enrol.",
            Self::Audit => "What happened, and the seals that vouch for it.",
            Self::Description => "This document.",
        }
    }
}

/// The schemas of everything that is read and written. What a type reads and what it writes can differ: a member with a
/// default may be missing in a body and never is in an answer.
pub(super) struct Schemas {
    taken: SchemaGenerator,
    given: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let generator = |contract: Contract| {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
            settings.contract = contract;
            settings.into_generator()
        };
        Self {
            taken: generator(Contract::Deserialize),
            given: generator(Contract::Serialize),
        }
    }

    fn taken<T: JsonSchema>(&mut self) -> Schema {
        T::json_schema(&mut self.taken)
    }

    fn taken_by_reference<T: JsonSchema>(&mut self) -> Schema {
        self.taken.subschema_for::<T>()
    }

    pub(super) fn given<T: JsonSchema>(&mut self) -> Schema {
        self.given.subschema_for::<T>()
    }

    /// All schemas that others refer to, by name.
    pub(super) fn into_components(mut self) -> BTreeMap<String, Value> {
        let (taken, given) = self.definitions();
        taken.into_iter().chain(given).collect()
    }

    fn definitions(&mut self) -> (Map<String, Value>, Map<String, Value>) {
        let taken = self.taken.take_definitions(true);
        let mut given = self.given.take_definitions(true);
        for schema in given.values_mut() {
            if let Ok(schema) = schema.try_into() {
                Written.transform(schema);
            }
        }
        (taken, given)
    }
}

/// A member of an answer that may be missing is missing in place of being null.
#[derive(Clone)]
struct Written;

impl Transform for Written {
    fn transform(&mut self, schema: &mut Schema) {
        let required = schema.get("required").cloned().unwrap_or_default();
        let required = required.as_array().map_or(&[][..], Vec::as_slice);
        let members = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (name, member) in members.into_iter().flatten() {
            if !required.iter().any(|word| word == name) {
                present(member);
            }
        }
        transform_subschemas(self, schema);
    }
}

/// The schema of the body of every refusal.
pub(super) fn refusal_content(schemas: &mut Schemas) -> Value {
    content(schemas.given::<ErrorBody>())
}

fn content(schema: Schema) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// What is left out where it has no value is never null; a parameter in a URL, for example.
fn present(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    if members.get("default").is_some_and(Value::is_null) {
        members.remove("default");
    }
    if let Some(Value::Array(types)) = members.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            members.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = members.get("anyOf")
        && let [Value::Object(one), null] = choices.as_slice()
        && *null == json!({ "type": "null" })
    {
        let mut one = one.clone();
        members.remove("anyOf");
        members.append(&mut one);
    }
}

#[cfg(test)]
mod tests {
    use super::super::routes;
    use super::*;

    /// One name is one schema: a type that is read and written in different forms needs two.
    #[test]
    fn what_is_read_and_written_under_one_name_has_one_form() {
        let mut schemas = Schemas::new();
        for route in routes() {
            for operation in route.calls.iter().map(|call| call.operation) {
                operation.object(&mut schemas);
            }
        }
        let (taken, given) = schemas.definitions();
        assert!(taken.contains_key("RequestState"), "{:?}", taken.keys());
        for (name, schema) in &taken {
            let other = given.get(name).unwrap_or(schema);
            assert_eq!(schema, other, "{name}");
        }
    }

    #[test]
    fn what_has_no_value_is_left_out() {
        for (nullable, expected) in [
            (
                json!({"type": ["string", "null"], "default": null}),
                json!({"type": "string"}),
            ),
            (
                json!({"anyOf": [{"$ref": "#/a"}, {"type": "null"}], "description": "A."}),
                json!({"$ref": "#/a", "description": "A."}),
            ),
            (
                json!({"type": "integer", "default": 0}),
                json!({"type": "integer", "default": 0}),
            ),
        ] {
            let mut schema = nullable.clone();
            present(&mut schema);
            assert_eq!(schema, expected, "{nullable}");
        }
    }
}
