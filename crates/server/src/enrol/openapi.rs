//! `/openapi.json`: the interface's description of itself (OpenAPI 3.1), for people and for generators of clients.
//!
//! It is made from the table of routes and from the operation beside each handler; nothing in it is kept by hand a second
//! time. Its members are sorted, so two servers of one version serve the same bytes.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use countersign_api::BASE;
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::faults::Refused;
use super::operation::{Operation, Schemas, Tag, refusal_content};
use super::{public_route, routes};

/// Anybody may read it: it tells nothing about this authority.
pub(super) async fn document() -> Response {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

pub(super) const DESCRIBE: Operation =
    Operation::new("describe", Tag::Description, "This document")
        .about("For anybody.")
        .for_anybody()
        .answers::<Description>(200, "An OpenAPI 3.1 document.");

/// What [`document`] answers; its form is OpenAPI's own.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Description {}

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut document = assemble();
    document.sort_all_objects();
    unwrap_lines(&mut document);
    format!("{document:#}\n")
});

fn assemble() -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for route in routes().into_iter().chain([public_route()]) {
        let described = route.calls.iter().map(|call| {
            let method = call.method.as_str().to_ascii_lowercase();
            (method, json!(call.operation.object(&mut schemas)))
        });
        paths.insert(
            route.path.to_owned(),
            described.collect::<Map<_, _>>().into(),
        );
    }
    let responses = responses(&mut schemas);
    let tag = |tag: Tag| json!({ "name": tag.name(), "description": tag.about() });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Countersign native API",
            "version": "1.0.0",
            "summary": "Every door's requests, every issuer's certificates, the inventory, enrolment tokens, the policy and the audit log.",
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": BASE }],
        "security": [{ "administrator": [] }],
        "tags": Tag::ALL.map(tag),
        "paths": paths,
        "components": {
            "securitySchemes": {
                "administrator": {
                    "type": "mutualTLS",
                    "description":
                        "A client certificate that has the role which the call needs; an administrator's, such as \
                         admin/admin.pem of the data directory, has all.",
                },
            },
            "responses": responses,
            "schemas": schemas.into_components(),
        },
    })
}

fn responses(schemas: &mut Schemas) -> Value {
    let mut all = Map::new();
    for refused in Refused::ALL {
        let headers = match refused {
            Refused::Unavailable | Refused::TooMany => json!({
                "Retry-After": { "description": "Seconds.", "schema": { "type": "integer" } },
            }),
            _ => json!({}),
        };
        let response = json!({
            "description": refused.about(),
            "content": refusal_content(schemas),
            "headers": headers,
        });
        all.insert(refused.name().to_owned(), response);
    }
    all.into()
}

/// Doc comments are wrapped for the source, which is no business of those who read them here.
fn unwrap_lines(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(text)) = members.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            members.values_mut().for_each(unwrap_lines);
        }
        Value::Array(items) => items.iter_mut().for_each(unwrap_lines),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

pub(super) const PATH: &str = "/openapi.json";

const ABOUT: &str = "Served on the listeners of the Puppet and the Kubernetes door. Every call but this document needs a role, \
    which the configuration gives to client certificates; administrators' certificates have all. Times are RFC 3339 in UTC. \
    New members may appear in answers; members of request bodies and query parameters that are not listed here are refused.";
