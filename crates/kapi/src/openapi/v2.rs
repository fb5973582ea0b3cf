//! The OpenAPI v2 document, of which older clients take field names for `kubectl explain` and for validation: everything
//! that the v3 documents say, in one, as JSON or in the protobuf form that `kubectl` asks for.
//!
//! Tags are those of gnostic's `OpenAPIv2.proto`, as far as the document uses them.

#![expect(
    clippy::indexing_slicing,
    reason = "it reads and fills documents that are made here, never input"
)]

use serde_json::{Map, Value, json};

use crate::wire::Writer;

/// One document of several of version 3.
#[must_use]
pub fn document(documents: &[Value]) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for document in documents {
        let members = |value: &Value| value.as_object().cloned().unwrap_or_default();
        for (path, item) in members(&document["paths"]) {
            paths.insert(path, path_item(&item));
        }
        for (name, schema) in members(&document["components"]["schemas"]) {
            let mut converted = schema_of(&schema);
            // A type that several documents have belongs to the kinds of all of them.
            if let Some(known) = definitions.get(&name) {
                unite_kinds(&mut converted, known);
            }
            definitions.insert(name, converted);
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "definitions": definitions,
    })
}

/// The same as a protobuf message.
#[must_use]
pub fn to_protobuf(document: &Value) -> Vec<u8> {
    let mut writer = Writer::default();
    text(&mut writer, 1, &document["swagger"]);
    writer.message(2, |writer| {
        text(writer, 1, &document["info"]["title"]);
        text(writer, 2, &document["info"]["version"]);
    });
    writer.message(8, |writer| {
        named(writer, 2, &document["paths"], write_path);
    });
    writer.message(9, |writer| {
        named(writer, 1, &document["definitions"], write_schema);
    });
    writer.into_bytes()
}

fn unite_kinds(schema: &mut Value, known: &Value) {
    let kinds = |value: &Value| value[KINDS].as_array().cloned().unwrap_or_default();
    let mut all = kinds(known);
    for kind in kinds(schema) {
        if !all.contains(&kind) {
            all.push(kind);
        }
    }
    if !all.is_empty() {
        schema[KINDS] = Value::Array(all);
    }
}

/// References point elsewhere, and stand alone where version 3 has them in a list.
fn schema_of(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let mut converted = Map::new();
            for (name, value) in members {
                match (name.as_str(), value) {
                    ("allOf", Value::Array(parts)) => {
                        let target = parts.first().and_then(|part| part["$ref"].as_str());
                        let target = target.and_then(|target| target.rsplit('/').next());
                        let target = format!("#/definitions/{}", target.unwrap_or_default());
                        converted.insert("$ref".to_owned(), target.into());
                    }
                    ("$ref", Value::String(target)) => {
                        let target = target.rsplit('/').next().unwrap_or_default();
                        converted.insert(name.clone(), format!("#/definitions/{target}").into());
                    }
                    // OpenAPI 2 clients do not use the defaults.
                    ("default", _) => {}
                    (_, value) => drop(converted.insert(name.clone(), schema_of(value))),
                }
            }
            Value::Object(converted)
        }
        Value::Array(items) => items.iter().map(schema_of).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

fn path_item(item: &Value) -> Value {
    let mut converted = Map::new();
    for (name, value) in item.as_object().into_iter().flatten() {
        let value = match name.as_str() {
            "parameters" => parameters(value),
            _ => operation(value),
        };
        converted.insert(name.clone(), value);
    }
    Value::Object(converted)
}

fn parameters(list: &Value) -> Value {
    let one = |parameter: &Value| {
        let mut converted = parameter.as_object().cloned().unwrap_or_default();
        if let Some(Value::Object(schema)) = converted.remove("schema") {
            converted.extend(schema);
        }
        Value::Object(converted)
    };
    list.as_array().into_iter().flatten().map(one).collect()
}

fn operation(operation: &Value) -> Value {
    let mut converted = operation.as_object().cloned().unwrap_or_default();
    let mut listed = parameters(&operation["parameters"]);
    if let Some(body) = converted.remove("requestBody") {
        let content = body["content"].as_object().cloned().unwrap_or_default();
        let schema = content.values().next().map(|it| schema_of(&it["schema"]));
        let consumes: Vec<&String> = content.keys().collect();
        converted.insert("consumes".to_owned(), json!(consumes));
        if let Value::Array(listed) = &mut listed {
            listed.push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
        }
    }
    converted.insert("parameters".to_owned(), listed);
    converted.insert("produces".to_owned(), json!(["application/json"]));
    let mut responses = Map::new();
    for (code, response) in operation["responses"].as_object().into_iter().flatten() {
        let mut answer = json!({"description": response["description"]});
        let schema = &response["content"]["application/json"]["schema"];
        if schema.is_object() {
            answer["schema"] = schema_of(schema);
        }
        responses.insert(code.clone(), answer);
    }
    converted.insert("responses".to_owned(), Value::Object(responses));
    Value::Object(converted)
}

fn write_path(writer: &mut Writer, item: &Value) {
    for (number, method) in [
        (2, "get"),
        (3, "put"),
        (4, "post"),
        (5, "delete"),
        (8, "patch"),
    ] {
        if let Some(operation) = item.get(method) {
            writer.message(number, |writer| write_operation(writer, operation));
        }
    }
}

fn write_operation(writer: &mut Writer, operation: &Value) {
    texts(writer, 1, &operation["tags"]);
    text(writer, 3, &operation["description"]);
    texts(writer, 6, &operation["produces"]);
    texts(writer, 7, &operation["consumes"]);
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        writer.message(8, |writer| {
            writer.message(1, |writer| write_parameter(writer, parameter));
        });
    }
    extensions(writer, 13, operation);
}

fn write_parameter(writer: &mut Writer, parameter: &Value) {
    if parameter["in"] == "body" {
        writer.message(1, |writer| {
            text(writer, 2, &parameter["name"]);
            text(writer, 3, &parameter["in"]);
            writer.int(4, 1);
            writer.message(5, |writer| write_schema(writer, &parameter["schema"]));
        });
        return;
    }
    writer.message(2, |writer| {
        writer.message(3, |writer| {
            text(writer, 2, &parameter["in"]);
            text(writer, 4, &parameter["name"]);
            text(writer, 6, &parameter["type"]);
            writer.int(20, 1);
        });
    });
}

fn write_schema(writer: &mut Writer, schema: &Value) {
    text(writer, 1, &schema["$ref"]);
    text(writer, 2, &schema["format"]);
    text(writer, 4, &schema["description"]);
    texts(writer, 19, &schema["required"]);
    if let Some(inner) = schema.get("additionalProperties") {
        writer.message(21, |writer| {
            writer.message(1, |writer| write_schema(writer, inner));
        });
    }
    if schema["type"].is_string() {
        writer.message(22, |writer| text(writer, 1, &schema["type"]));
    }
    if let Some(inner) = schema.get("items") {
        writer.message(23, |writer| {
            writer.message(1, |writer| write_schema(writer, inner));
        });
    }
    if let Some(properties) = schema.get("properties") {
        writer.message(25, |writer| named(writer, 1, properties, write_schema));
    }
    extensions(writer, 31, schema);
}

/// A pair of name and value for each member.
fn named(writer: &mut Writer, number: u32, members: &Value, write: fn(&mut Writer, &Value)) {
    for (name, value) in members.as_object().into_iter().flatten() {
        writer.message(number, |writer| {
            writer.text(1, name);
            writer.message(2, |writer| write(writer, value));
        });
    }
}

/// What begins with `x-`, as YAML, which JSON is.
fn extensions(writer: &mut Writer, number: u32, of: &Value) {
    for (name, value) in of.as_object().into_iter().flatten() {
        if name.starts_with("x-") {
            writer.message(number, |writer| {
                writer.text(1, name);
                writer.message(2, |writer| writer.text(2, &value.to_string()));
            });
        }
    }
}

fn text(writer: &mut Writer, number: u32, value: &Value) {
    if let Some(text) = value.as_str() {
        writer.text(number, text);
    }
}

fn texts(writer: &mut Writer, number: u32, list: &Value) {
    for value in list.as_array().into_iter().flatten() {
        text(writer, number, value);
    }
}

const KINDS: &str = "x-kubernetes-group-version-kind";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi;

    #[test]
    fn every_reference_of_version_2_has_its_target() {
        fn visit(value: &Value, definitions: &Value) {
            match value {
                Value::Object(map) => {
                    if let Some(target) = map.get("$ref").and_then(Value::as_str) {
                        let name = target.strip_prefix("#/definitions/").unwrap();
                        assert!(definitions.get(name).is_some(), "{name}");
                    }
                    map.values().for_each(|value| visit(value, definitions));
                }
                Value::Array(list) => list.iter().for_each(|value| visit(value, definitions)),
                _ => {}
            }
        }
        let document = document(&[openapi::certificates(), openapi::rbac()]);
        visit(&document, &document["definitions"]);
        let options =
            &document["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"];
        assert_eq!(options[KINDS].as_array().unwrap().len(), 2);
        assert!(!to_protobuf(&document).is_empty());
    }
}
