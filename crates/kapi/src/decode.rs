//! Bodies into objects: JSON with named unknown and duplicate fields, or protobuf; bounded in depth and count.

use std::fmt::Write as _;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::kind::Kind;
use crate::model::decode_base64;
use crate::negotiate::BodyFormat;
use crate::options::FieldValidation;
use crate::protobuf::{self, ProtobufFault};
use crate::schema::{Schema, Shape};
use crate::time::{MicroTime, Time};
use crate::{MAX_BODY_BYTES, MAX_BODY_VALUES};

/// An object and what a client should be warned about (`Warning: 299` headers).
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded<T> {
    /// The object.
    pub object: T,
    /// Unknown and duplicate fields, one sentence each.
    pub warnings: Vec<String>,
}

/// Why a body is not the object it should be; all of these are 400, except the size, which is 413.
#[derive(Debug, thiserror::Error)]
pub enum DecodeFault {
    /// Larger than [`MAX_BODY_BYTES`].
    #[error("limit is {MAX_BODY_BYTES}")]
    TooLarge,
    /// Not JSON, nested too deeply, or too many values.
    #[error(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {cause}"
    )]
    Json {
        /// Kind that was expected.
        kind: &'static str,
        /// What the parser said.
        cause: serde_json::Error,
    },
    /// Not YAML, nested too deeply, or too many values.
    #[error(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; yaml: {cause}"
    )]
    Yaml {
        /// Kind that was expected.
        kind: &'static str,
        /// What the parser said.
        cause: String,
    },
    /// Not a protobuf message of the type.
    #[error("the object provided is unrecognized (must be of type {kind}): {cause}")]
    Protobuf {
        /// Kind that was expected.
        kind: &'static str,
        /// What the reader said.
        cause: ProtobufFault,
    },
    /// The body says another `kind`.
    #[error("no kind \"{found}\" is registered for version \"{version}\"")]
    Kind {
        /// Kind of the body.
        found: String,
        /// Version of the body.
        version: String,
    },
    /// The body says another `apiVersion`.
    #[error(
        "the API version in the data ({found}) does not match the expected API version ({wanted})"
    )]
    Version {
        /// Version of the body.
        found: String,
        /// Version of the URL.
        wanted: &'static str,
    },
    /// What is applied is of another type than the object, or does not say its type.
    #[error("invalid object type: {found}")]
    AppliedType {
        /// Its type, as Go's clients write it: `group/version, Kind=kind`.
        found: String,
    },
    /// A field has a value of another type.
    #[error(
        "{kind} in version \"v1\" cannot be handled as a {kind}: cannot read field \"{field}\" as {wanted}"
    )]
    FieldType {
        /// Kind of the object.
        kind: &'static str,
        /// Path of the field.
        field: String,
        /// What the field must be.
        wanted: &'static str,
    },
    /// Strict validation found unknown or duplicate fields.
    #[error("{kind} in version \"v1\" cannot be handled as a {kind}: strict decoding error: {}", .findings.join(", "))]
    Strict {
        /// Kind of the object.
        kind: &'static str,
        /// What was found.
        findings: Vec<String>,
    },
}

/// Reads the body of a create or an update.
///
/// # Errors
/// Names what keeps the body from being an object of the kind.
pub fn object<T: Kind>(
    body: &[u8],
    format: BodyFormat,
    validation: FieldValidation,
) -> Result<Decoded<T>, DecodeFault> {
    let kind = T::RESOURCE.kind;
    if body.len() > MAX_BODY_BYTES {
        return Err(DecodeFault::TooLarge);
    }
    match format {
        BodyFormat::Json | BodyFormat::Yaml => {
            from_tree(parse_text(body, format, kind)?, validation)
        }
        BodyFormat::Protobuf => {
            let fault = |cause| DecodeFault::Protobuf { kind, cause };
            let envelope = protobuf::Envelope::read(body).map_err(fault)?;
            expect_type::<T>(envelope.api_version, envelope.kind)?;
            let mut object = T::from_protobuf(envelope.raw).map_err(fault)?;
            object.set_defaults();
            Ok(Decoded {
                object,
                warnings: Vec::new(),
            })
        }
    }
}

/// A parsed body: plain JSON, and the paths that occurred twice.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: Value,
    pub(crate) duplicates: Vec<String>,
    /// How many values there are.
    pub(crate) values: usize,
}

/// Parses JSON. Of a field that occurs twice the last value counts.
pub(crate) fn parse(body: &[u8], kind: &'static str) -> Result<Tree, DecodeFault> {
    parse_within(body, kind, MAX_BODY_VALUES)
}

/// Parses a body that is text.
pub(crate) fn parse_text(
    body: &[u8],
    format: BodyFormat,
    kind: &'static str,
) -> Result<Tree, DecodeFault> {
    match format {
        BodyFormat::Yaml => parse_yaml(body, kind),
        BodyFormat::Json | BodyFormat::Protobuf => parse(body, kind),
    }
}

/// Parses YAML, within the bounds of JSON. What begins like a JSON object is one.
pub(crate) fn parse_yaml(body: &[u8], kind: &'static str) -> Result<Tree, DecodeFault> {
    if body.len() > MAX_BODY_BYTES {
        return Err(DecodeFault::TooLarge);
    }
    if body.trim_ascii_start().starts_with(b"{") {
        return parse(body, kind);
    }
    let fault = |cause: String| DecodeFault::Yaml { kind, cause };
    let text = std::str::from_utf8(body).map_err(|cause| fault(cause.to_string()))?;
    let options = serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_nodes: MAX_BODY_VALUES,
            max_events: MAX_BODY_VALUES * 2,
            max_depth: MAX_YAML_DEPTH,
            max_aliases: MAX_YAML_ALIASES,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_BODY_VALUES,
            max_replay_stack_depth: MAX_YAML_DEPTH,
        },
    };
    let root: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| fault(error.to_string()))?;
    // Once more by our own rules, which count what aliases have become.
    let text = serde_json::to_vec(&root).map_err(|cause| DecodeFault::Json { kind, cause })?;
    parse(&text, kind)
}

/// Parses JSON of at most `limit` values.
pub(crate) fn parse_within(
    body: &[u8],
    kind: &'static str,
    limit: usize,
) -> Result<Tree, DecodeFault> {
    let fault = |cause| DecodeFault::Json { kind, cause };
    if body.len() > MAX_BODY_BYTES {
        return Err(DecodeFault::TooLarge);
    }
    let mut notes = Notes {
        path: Path::default(),
        duplicates: Vec::new(),
        values: 0,
        limit,
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    let root = Node(&mut notes).deserialize(&mut json).map_err(fault)?;
    json.end().map_err(fault)?;
    Ok(Tree {
        root,
        duplicates: notes.duplicates,
        values: notes.values,
    })
}

/// Turns parsed JSON into an object.
pub(crate) fn from_tree<T: Kind>(
    tree: Tree,
    validation: FieldValidation,
) -> Result<Decoded<T>, DecodeFault> {
    let kind = T::RESOURCE.kind;
    let (root, warnings) = conform_typed::<T>(tree, validation)?;
    let mut object: T =
        serde_json::from_value(root).map_err(|cause| DecodeFault::Json { kind, cause })?;
    object.set_defaults();
    Ok(Decoded { object, warnings })
}

/// Makes a tree fit the schema of a kind, which it must name if it names any.
pub(crate) fn conform_typed<T: Kind>(
    tree: Tree,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), DecodeFault> {
    let text = |name: &str| {
        tree.root
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    expect_type::<T>(text("apiVersion"), text("kind"))?;
    conform(tree, T::schema(), T::RESOURCE.kind, validation)
}

/// Makes a tree fit a schema: drops unknown fields and nulls, checks the types of the rest, says what was dropped.
pub(crate) fn conform(
    tree: Tree,
    schema: &'static Schema,
    kind: &'static str,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), DecodeFault> {
    let mut root = tree.root;
    let mut fitting = Fitting {
        path: Path::default(),
        unknown: Vec::new(),
    };
    let mismatch = fitting.object(&mut root, schema).err();
    if let Some(Mismatch { field, wanted }) = mismatch {
        return Err(DecodeFault::FieldType {
            kind,
            field,
            wanted,
        });
    }
    let unknown = fitting
        .unknown
        .into_iter()
        .map(|field| format!("unknown field \"{field}\""));
    let duplicate = tree
        .duplicates
        .into_iter()
        .map(|field| format!("duplicate field \"{field}\""));
    let findings: Vec<String> = duplicate.chain(unknown).take(MAX_FINDINGS).collect();
    match validation {
        FieldValidation::Strict if !findings.is_empty() => {
            Err(DecodeFault::Strict { kind, findings })
        }
        FieldValidation::Ignore => Ok((root, Vec::new())),
        FieldValidation::Strict | FieldValidation::Warn => Ok((root, findings)),
    }
}

/// A body may leave its type out; what it says must fit the URL.
fn expect_type<T: Kind>(version: &str, kind: &str) -> Result<(), DecodeFault> {
    if !kind.is_empty() && kind != T::RESOURCE.kind {
        return Err(DecodeFault::Kind {
            found: kind.to_owned(),
            version: version.to_owned(),
        });
    }
    if !version.is_empty() && version != T::API_VERSION {
        return Err(DecodeFault::Version {
            found: version.to_owned(),
            wanted: T::API_VERSION,
        });
    }
    Ok(())
}

/// Unlike other bodies, one that is applied must say its type.
pub(crate) fn expect_applied<T: Kind>(tree: &Tree) -> Result<(), DecodeFault> {
    let Value::Object(root) = &tree.root else {
        return Ok(()); // Refused as that.
    };
    let text = |name: &str| root.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version == T::API_VERSION && kind == T::RESOURCE.kind {
        return Ok(());
    }
    let slash = if version.contains('/') { "" } else { "/" };
    Err(DecodeFault::AppliedType {
        found: format!("{slash}{version}, Kind={kind}"),
    })
}

/// Where in a document we are.
#[derive(Debug, Default)]
struct Path(Vec<Step>);

#[derive(Debug)]
enum Step {
    Field(String),
    Index(usize),
}

impl Path {
    fn text(&self) -> String {
        let mut text = String::new();
        for step in &self.0 {
            match step {
                Step::Field(name) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(name);
                }
                Step::Index(index) => {
                    let _infallible = write!(text, "[{index}]");
                }
            }
        }
        text
    }
}

struct Notes {
    path: Path,
    duplicates: Vec<String>,
    values: usize,
    limit: usize,
}

/// Builds a [`Value`] while it watches for repeated names; depth is bounded by `serde_json`'s own limit of 128.
struct Node<'n>(&'n mut Notes);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.values += 1;
        if self.0.values > self.0.limit {
            return Err(D::Error::custom("too many values"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            self.0.path.0.push(Step::Index(list.len()));
            let item = seq.next_element_seed(Node(self.0))?;
            self.0.path.0.pop();
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            self.0.path.0.push(Step::Field(name.clone()));
            let value = map.next_value_seed(Node(self.0))?;
            if object.insert(name, value).is_some() && self.0.duplicates.len() < MAX_FINDINGS {
                self.0.duplicates.push(self.0.path.text());
            }
            self.0.path.0.pop();
        }
        Ok(Value::Object(object))
    }
}

struct Fitting {
    path: Path,
    unknown: Vec<String>,
}

struct Mismatch {
    field: String,
    wanted: &'static str,
}

impl Fitting {
    fn object(&mut self, value: &mut Value, schema: &'static Schema) -> Result<(), Mismatch> {
        let Value::Object(map) = value else {
            return self.mismatch("an object");
        };
        let mut fault = Ok(());
        map.retain(|name, value| {
            if fault.is_err() || value.is_null() {
                return false;
            }
            self.path.0.push(Step::Field(name.clone()));
            let known = schema.field(name);
            match known {
                Some(field) => fault = self.value(value, &field.shape),
                None if self.unknown.len() < MAX_FINDINGS => self.unknown.push(self.path.text()),
                None => {}
            }
            self.path.0.pop();
            known.is_some()
        });
        fault
    }

    fn value(&mut self, value: &mut Value, shape: &'static Shape) -> Result<(), Mismatch> {
        match shape {
            Shape::Opaque => Ok(()),
            Shape::Object(schema) | Shape::Atomic(schema) => self.object(value, schema),
            Shape::List(item, _) => {
                let Value::Array(list) = value else {
                    return self.mismatch("a list");
                };
                for (index, element) in list.iter_mut().enumerate() {
                    self.element(element, item, Step::Index(index))?;
                }
                Ok(())
            }
            Shape::Map(item) => {
                let Value::Object(map) = value else {
                    return self.mismatch("a map");
                };
                for (name, element) in map.iter_mut() {
                    self.element(element, item, Step::Field(name.clone()))?;
                }
                Ok(())
            }
            Shape::Text if !value.is_string() => self.mismatch("a string"),
            Shape::Boolean if !value.is_boolean() => self.mismatch("a boolean"),
            Shape::Int64 if !value.is_i64() => self.mismatch("a 64-bit integer"),
            Shape::Int32
                if value
                    .as_i64()
                    .is_none_or(|number| i32::try_from(number).is_err()) =>
            {
                self.mismatch("a 32-bit integer")
            }
            Shape::Bytes
                if value
                    .as_str()
                    .is_none_or(|text| decode_base64(text).is_none()) =>
            {
                self.mismatch("base64 data")
            }
            Shape::Time
                if value
                    .as_str()
                    .is_none_or(|text| text.parse::<Time>().is_err()) =>
            {
                self.mismatch("an RFC 3339 time")
            }
            Shape::MicroTime
                if value
                    .as_str()
                    .is_none_or(|text| text.parse::<MicroTime>().is_err()) =>
            {
                self.mismatch("an RFC 3339 time with microseconds")
            }
            Shape::Text
            | Shape::Boolean
            | Shape::Int64
            | Shape::Int32
            | Shape::Bytes
            | Shape::Time
            | Shape::MicroTime => Ok(()),
        }
    }

    /// An element of a list or map; `null` there is the zero value of its type, as Go decodes it.
    fn element(
        &mut self,
        element: &mut Value,
        shape: &'static Shape,
        step: Step,
    ) -> Result<(), Mismatch> {
        if element.is_null() {
            *element = zero(shape);
        }
        self.path.0.push(step);
        let result = self.value(element, shape);
        self.path.0.pop();
        result
    }

    fn mismatch(&self, wanted: &'static str) -> Result<(), Mismatch> {
        Err(Mismatch {
            field: self.path.text(),
            wanted,
        })
    }
}

fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::Text | Shape::Bytes | Shape::Time | Shape::MicroTime => Value::String(String::new()),
        Shape::Int32 | Shape::Int64 => Value::from(0),
        Shape::Boolean => Value::Bool(false),
        Shape::Opaque => Value::Null,
        Shape::Object(_) | Shape::Atomic(_) | Shape::Map(_) => Value::Object(Map::new()),
        Shape::List(..) => Value::Array(Vec::new()),
    }
}

const MAX_YAML_DEPTH: usize = 64;
const MAX_YAML_ALIASES: usize = 1000;
/// Unknown and duplicate fields named in one answer; real servers stop at the same number.
const MAX_FINDINGS: usize = 100;
