//! The document of the native interface against its routes and its answers.

use std::collections::BTreeSet;

use countersign_server::enrol::paths;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use serde_json::{Value, json};

use crate::enrol::Office;
use crate::exchange::Call;
use crate::world::{KUBE_CLIENT, PUPPET_ADMIN};

#[tokio::test]
async fn the_document_names_every_call_and_no_other() {
    let office = Office::open().await;
    let anybody = office.world.anonymous();
    let shown = Call::new(&anybody, "GET /enrol/v1/openapi.json")
        .send(&office.interface)
        .await;
    assert_eq!(
        (shown.status, shown.content_type()),
        (200, "application/json")
    );
    let document = shown.json();
    assert_eq!(document["servers"], json!([{"url": "/enrol/v1"}]));
    // A method that no call has is answered with those that it has.
    let mut served = BTreeSet::new();
    for path in paths() {
        let answer = office.call(&format!("TRACE /enrol/v1{path}")).await;
        let error = answer.json()["error"]["code"].clone();
        assert_eq!(
            (answer.status, error),
            (405, json!("method_not_allowed")),
            "{path}"
        );
        let allowed = answer.header("allow").unwrap().split(',');
        // HEAD comes with GET.
        let named = allowed.filter(|method| *method != "HEAD");
        served.extend(named.map(|method| format!("{method} {path}")));
    }
    assert_eq!(documented(&document), served);
}

#[tokio::test]
async fn the_parameters_of_a_path_are_those_in_its_braces() {
    let document = Office::open().await.get("openapi.json").await;
    let mut identities = BTreeSet::new();
    for call in documented(&document) {
        let (path, operation) = operation(&document, &call);
        let identity = operation["operationId"].as_str().unwrap();
        assert!(identities.insert(identity), "{identity} stands twice");
        let braces = path.split('/').filter_map(|part| part.strip_prefix('{'));
        let braces: BTreeSet<_> = braces.map(|part| part.trim_end_matches('}')).collect();
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let named = parameters.filter(|parameter| parameter["in"] == "path");
        let named: BTreeSet<_> = named
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        assert_eq!(braces, named, "{call}");
    }
}

#[tokio::test]
async fn the_document_is_the_same_text_every_time() {
    let (one, other) = (Office::open().await, Office::open().await);
    let (one, other) = (
        one.call("GET /enrol/v1/openapi.json").await,
        other.call("GET /enrol/v1/openapi.json").await,
    );
    assert_eq!(one.text(), other.text());
    let mut sorted = one.json();
    sorted.sort_all_objects();
    assert_eq!(one.text(), format!("{sorted:#}\n"));
}

/// Every call of the document is tried here: a call that is added needs a line.
#[tokio::test]
async fn answers_are_as_documented() {
    let office = Office::open().await;
    let document = office.get("openapi.json").await;
    for name in ["web01", "web02", "web03", "web04"] {
        office.agent(name).await;
    }
    let client = CsrBuilder::new("jane").dns("jane.example.com");
    office
        .submit("kubernetes", "jane", KUBE_CLIENT, &client, &["client auth"])
        .await;
    let serial = {
        let approved = office.post("requests/puppet/web04/approve", "").await;
        let serial = approved.json()["certificate"]["serial"].clone();
        serial.as_str().unwrap().to_owned()
    };
    let administrator = json!({
        "name": "ten", "signer": PUPPET_ADMIN, "csr": CsrBuilder::new("ten").sign_pem(keys::p256_b()),
    });
    let administrator = administrator.to_string();
    let mut untried = documented(&document);
    for (call, parameters, body, status) in [
        ("GET /openapi.json", "", "", 200),
        ("GET /requests", "", "", 200),
        ("GET /requests", "?limit=1", "", 200),
        ("GET /requests", "?past=true&state=issued,pending", "", 200),
        ("GET /requests", "?limit=0", "", 400),
        ("POST /requests", "", administrator.as_str(), 201),
        ("POST /requests", "", administrator.as_str(), 409),
        ("POST /requests", "", "{}", 400),
        ("GET /requests/{door}/{name}", "puppet web01", "", 200),
        ("GET /requests/{door}/{name}", "puppet web04", "", 200),
        ("GET /requests/{door}/{name}", "kubernetes jane", "", 200),
        ("GET /requests/{door}/{name}", "puppet nobody", "", 404),
        ("GET /requests/{door}/{name}", "puppet %FF", "", 400),
        (
            "POST /requests/{door}/{name}/approve",
            "puppet web01",
            r#"{"reason":"ticket 7"}"#,
            200,
        ),
        (
            "POST /requests/{door}/{name}/approve",
            "puppet web01",
            "",
            409,
        ),
        ("POST /requests/{door}/{name}/deny", "puppet web02", "", 200),
        (
            "POST /requests/{door}/{name}/deny",
            "puppet nobody",
            "",
            404,
        ),
        ("DELETE /requests/{door}/{name}", "puppet web02", "", 204),
        ("DELETE /requests/{door}/{name}", "puppet web02", "", 404),
        ("GET /certificates", "", "", 200),
        ("GET /certificates", "?limit=1", "", 200),
        ("GET /certificates", "?issuer=nobody", "", 404),
        ("GET /certificates/{issuer}/{serial}", &serial, "", 200),
        ("GET /certificates/{issuer}/{serial}", "xyz", "", 400),
        (
            "POST /certificates/{issuer}/{serial}/revoke",
            &serial,
            r#"{"reason":"superseded"}"#,
            200,
        ),
        ("POST /certificates/{issuer}/{serial}/revoke", "01", "", 404),
    ] {
        let (path, operation) = operation(&document, call);
        let method = call.split(' ').next().unwrap();
        let path = match (path.contains('{'), parameters.split_once(' ')) {
            (true, Some((door, name))) => path.replace("{door}", door).replace("{name}", name),
            (true, None) => path
                .replace("{issuer}", "puppet")
                .replace("{serial}", parameters),
            (false, _) => format!("{path}{parameters}"),
        };
        let answer = Call::new(&office.admin, &format!("{method} /enrol/v1{path}"))
            .body(body)
            .send(&office.interface)
            .await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        if status < 300 {
            untried.remove(call);
        }
        let mut response = &operation["responses"][status.to_string()];
        if let Some(place) = response["$ref"].as_str() {
            response = document.pointer(place.trim_start_matches('#')).unwrap();
        }
        assert!(response.is_object(), "{call} does not document {status}");
        match response.pointer("/content/application~1json/schema") {
            // An OpenAPI document has members that no schema of ours names.
            Some(_) if path == "/openapi.json" => {}
            Some(schema) => conforms(&document, schema, &answer.json())
                .unwrap_or_else(|fault| panic!("{method} {path}: {fault}: {}", answer.text())),
            None => assert_eq!(answer.text(), "", "{call}"),
        }
    }
    assert_eq!(untried, BTreeSet::new());
}

#[tokio::test]
async fn the_comparison_with_a_schema_can_fail() {
    let document = Office::open().await.get("openapi.json").await;
    let page = json!({"$ref": "#/components/schemas/RequestPage"});
    assert_eq!(conforms(&document, &page, &json!({"items": []})), Ok(()));
    for wrong in [
        json!({}),
        json!({"items": [], "more": 1}),
        json!({"items": [{}]}),
        json!({"items": [], "cursor": 7}),
        json!({"items": [], "cursor": null}),
    ] {
        assert!(conforms(&document, &page, &wrong).is_err(), "{wrong}");
    }
}

/// `GET /path` for each call of the document.
fn documented(document: &Value) -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let methods = item.as_object().unwrap().keys();
        calls.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    calls
}

fn operation<'d, 'c>(document: &'d Value, call: &'c str) -> (&'c str, &'d Value) {
    let (method, path) = call.split_once(' ').unwrap();
    let item = document["paths"].get(path);
    let operation = item.and_then(|item| item.get(method.to_lowercase()));
    let operation = operation.unwrap_or_else(|| panic!("{call} is not documented"));
    (path, operation)
}

/// Whether an answer has the form of a schema, with no member that the schema does not name. Of JSON Schema it knows
/// what the document uses.
fn conforms(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let found = document.pointer(name.trim_start_matches('#'));
        let schema = found.ok_or_else(|| format!("nothing at {name}"))?;
        return conforms(document, schema, value);
    }
    let choices = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(choices) = choices {
        let fits = |choice: &&Value| conforms(document, choice, value).is_ok();
        return match choices.iter().filter(fits).count() {
            1 => Ok(()),
            count => Err(format!("{value} fits {count} of {choices:?}")),
        };
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Err(format!("{value} is none of {words:?}"));
    }
    if let Some(word) = schema.get("const")
        && word != value
    {
        return Err(format!("{value} is not {word}"));
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !types.contains(&json!(kind)) {
        return Err(format!("{value} is none of {types:?}"));
    }
    for item in value.as_array().into_iter().flatten() {
        conforms(document, &schema["items"], item)?;
    }
    let Some(members) = value.as_object() else {
        return Ok(());
    };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !members.contains_key(name.as_str().unwrap()) {
            return Err(format!("there is no {name}"));
        }
    }
    for (name, member) in members {
        let named = schema["properties"].get(name);
        let schema = match (named, &schema["additionalProperties"]) {
            (Some(named), _) => named,
            (None, other @ Value::Object(_)) => other,
            (None, _) => return Err(format!("{name} is not documented")),
        };
        conforms(document, schema, member).map_err(|fault| format!("{name}: {fault}"))?;
    }
    Ok(())
}
