//! The document of the native interface against its routes and its answers.

use std::collections::BTreeSet;
use std::net::IpAddr;

use countersign_authority::{RequestId, RequestState};
use countersign_keys::{AuditKey, FileKeys, KeySpec};
use countersign_pki::UnixTime;
use countersign_server::Peer;
use countersign_server::enrol::paths;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use serde_json::{Value, json};

use crate::enrol::Office;
use crate::exchange::{Answer, Call, filled};
use crate::world::{KUBE_CLIENT, PUPPET_ADMIN, START};

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
    let mut untried = documented(&document);
    // As long as nothing is sealed.
    let early = ("GET /audit/checkpoint", "", "", 404);
    tried(&office, &document, early).await;
    let serial = furnish(&office).await;
    let (issued, unknown) = (format!("puppet/{serial}"), "puppet/01".to_owned());
    let administrator = json!({
        "name": "ten", "signer": PUPPET_ADMIN, "csr": CsrBuilder::new("ten").sign_pem(keys::p256_b()),
    });
    let administrator = administrator.to_string();
    let of_user = |name: &str| {
        let csr = CsrBuilder::new(name).organization("developers");
        json!({"csr": csr.sign_pem(keys::p256_b())}).to_string()
    };
    let (user, nobody) = (of_user("jane"), of_user("system:anonymous"));
    let (used, _) = office.token("used").await;
    office.reserve(&used, "used").await;
    let listed = office.get("tokens?certname=minted").await;
    let minted = listed["items"][0]["id"].as_str().unwrap();
    let bootstrap = office.bootstrap_token(&json!({})).await;
    let bootstrap = bootstrap.id().as_str();
    let asking = CsrBuilder::new("free").sign_pem(keys::p256_b());
    for row in [
        ("GET /openapi.json", "", "", 200),
        ("GET /audit/reconciliation", "", "", 200),
        ("GET /requests", "", "", 200),
        ("GET /requests", "?limit=1", "", 200),
        ("GET /requests", "?past=true&state=issued,pending", "", 200),
        (
            "GET /requests",
            "?reason=cel&since=2026-01-01T00:00:00Z",
            "",
            200,
        ),
        ("GET /requests", "?limit=0", "", 400),
        ("POST /requests", "", administrator.as_str(), 201),
        ("POST /requests", "", administrator.as_str(), 409),
        ("POST /requests", "", "{}", 400),
        ("POST /kubernetes-users", "", user.as_str(), 201),
        ("POST /kubernetes-users", "", user.as_str(), 201),
        ("POST /kubernetes-users", "", nobody.as_str(), 400),
        ("GET /requests/{door}/{name}", "puppet/web01", "", 200),
        ("GET /requests/{door}/{name}", "puppet/web04", "", 200),
        ("GET /requests/{door}/{name}", "puppet/known", "", 200),
        ("GET /requests/{door}/{name}", "puppet/vault", "", 200),
        ("GET /requests/{door}/{name}", "kubernetes/jane", "", 200),
        ("GET /requests/{door}/{name}", "puppet/nobody", "", 404),
        ("GET /requests/{door}/{name}", "puppet/%FF", "", 400),
        (
            "POST /requests/{door}/{name}/approve",
            "puppet/web01",
            r#"{"reason":"ticket 7"}"#,
            200,
        ),
        (
            "POST /requests/{door}/{name}/approve",
            "puppet/web01",
            "",
            409,
        ),
        (
            "POST /requests/{door}/{name}/approve",
            "puppet/nobody",
            "",
            404,
        ),
        (
            "POST /requests/{door}/{name}/approve",
            "puppet/web02",
            r#"{"lifetime_seconds":0}"#,
            400,
        ),
        ("POST /requests/{door}/{name}/deny", "puppet/web02", "", 200),
        ("POST /requests/{door}/{name}/deny", "puppet/web02", "", 409),
        (
            "POST /requests/{door}/{name}/deny",
            "puppet/nobody",
            "",
            404,
        ),
        (
            "POST /requests/{door}/{name}/deny",
            "puppet/web03",
            "[]",
            400,
        ),
        ("DELETE /requests/{door}/{name}", "puppet/web02", "", 204),
        ("DELETE /requests/{door}/{name}", "puppet/web02", "", 404),
        ("DELETE /requests/{door}/{name}", "puppet/web01", "", 409),
        ("GET /certificates", "", "", 200),
        ("GET /certificates", "?limit=1", "", 200),
        ("GET /certificates", "?issuer=nobody", "", 404),
        ("GET /certificates", "?colour=red", "", 400),
        ("GET /certificates/{issuer}/{serial}", &issued, "", 200),
        ("GET /certificates/{issuer}/{serial}", &unknown, "", 404),
        ("GET /certificates/{issuer}/{serial}", "puppet/xyz", "", 400),
        (
            "POST /certificates/{issuer}/{serial}/revoke",
            &issued,
            r#"{"reason":"superseded"}"#,
            200,
        ),
        (
            "POST /certificates/{issuer}/{serial}/revoke",
            &issued,
            r#"{"reason":"bored"}"#,
            400,
        ),
        (
            "POST /certificates/{issuer}/{serial}/revoke",
            &unknown,
            "",
            404,
        ),
        ("GET /policy", "", "", 200),
        ("GET /policy/{generation}", "1", "", 200),
        ("GET /policy/{generation}", "9007199254740991", "", 404),
        ("GET /policy/{generation}", "18446744073709551615", "", 404),
        ("GET /policy/{generation}", "first", "", 400),
        ("GET /signing-policies", "", "", 200),
        (
            "PUT /signing-policies/{namespace}/{authority}",
            "puppet/production",
            r#"{"operator":"production-operator","policies":[{"name":"lab","spec":{"certificateAuthorityRef":"production","any":true}}]}"#,
            204,
        ),
        (
            "PUT /signing-policies/{namespace}/{authority}",
            "puppet/production",
            r#"{"policies":[{"name":"lab","spec":{"certificateAuthorityRef":"another"}}]}"#,
            422,
        ),
        (
            "PUT /signing-policies/{namespace}/{authority}",
            "puppet/production",
            "[]",
            400,
        ),
        (
            "PUT /signing-policies/{namespace}/{authority}",
            "Puppet/production",
            "{}",
            400,
        ),
        ("GET /signing-policies", "", "", 200),
        (
            "DELETE /signing-policies/{namespace}/{authority}",
            "puppet/production",
            "",
            204,
        ),
        (
            "DELETE /signing-policies/{namespace}/{authority}",
            "puppet/production",
            "",
            204,
        ),
        ("GET /rejections", "", "", 200),
        ("GET /rejections", "?limit=1", "", 200),
        (
            "GET /rejections",
            "?certname=vault&reason=cel&door=puppet",
            "",
            200,
        ),
        ("GET /rejections", "?since=yesterday", "", 400),
        ("GET /rejections", "?cursor=x", "", 400),
        ("GET /decisions", "", "", 200),
        ("GET /decisions", "?limit=1", "", 200),
        ("GET /decisions", "?name=asked&state=pending", "", 200),
        ("GET /decisions", "?state=nonsense", "", 400),
        ("GET /machines", "", "", 200),
        ("GET /machines", "?limit=1", "", 200),
        ("GET /machines", "?enrolled=perhaps", "", 400),
        ("POST /machines", "", r#"{"name":"db01"}"#, 201),
        ("POST /machines", "", r#"{"name":"db01"}"#, 409),
        ("POST /machines", "", "{}", 400),
        ("GET /machines/{name}", "known", "", 200),
        ("GET /machines/{name}", "db01", "", 200),
        ("GET /machines/{name}", "nobody", "", 404),
        (
            "PUT /machines/{name}",
            "db02",
            r#"{"name":"DB02.","not_after":"2027-01-01T00:00:00Z"}"#,
            201,
        ),
        ("PUT /machines/{name}", "db02", r#"{"role":"db"}"#, 200),
        ("PUT /machines/{name}", "db02", r#"{"name":"db03"}"#, 400),
        ("DELETE /machines/{name}", "db02", "", 204),
        ("DELETE /machines/{name}", "db02", "", 404),
        (
            "POST /machine-imports",
            "",
            r#"{"machines":[{"name":"db03"}],"dry_run":true}"#,
            200,
        ),
        (
            "POST /machine-imports",
            "",
            r#"{"machines":[{"name":"db03"},{"name":"db01"}],"replace":true}"#,
            200,
        ),
        (
            "POST /machine-imports",
            "",
            r#"{"machines":[{"name":"db03"}]}"#,
            409,
        ),
        ("POST /machine-imports", "", r#"{"machines":{}}"#, 400),
        ("GET /windows", "", "", 200),
        ("GET /windows", "?limit=1", "", 200),
        ("GET /windows", "?limit=x", "", 400),
        ("PUT /windows/{certname}", "db01", "", 201),
        (
            "PUT /windows/{certname}",
            "db01",
            r#"{"seconds":60,"require_token":false}"#,
            200,
        ),
        (
            "PUT /windows/{certname}",
            "db01",
            r#"{"max_issuances":0}"#,
            400,
        ),
        ("GET /windows/{certname}", "db01", "", 200),
        ("GET /windows/{certname}", "nobody", "", 404),
        ("DELETE /windows/{certname}", "db01", "", 204),
        ("DELETE /windows/{certname}", "db01", "", 404),
        ("GET /tokens", "", "", 200),
        (
            "GET /tokens",
            "?limit=1&status=issued&unused=false",
            "",
            200,
        ),
        ("GET /tokens", "?status=new", "", 400),
        ("POST /tokens", "", r#"{"certname":"free"}"#, 201),
        (
            "POST /tokens",
            "",
            r#"{"glob":"*.dmz.lab","max_uses":2,"allowed_extensions":{"pp_role":["web"]},"source_cidrs":["::1"]}"#,
            201,
        ),
        ("POST /tokens", "", "", 400),
        ("POST /tokens", "", "{}", 422),
        ("GET /tokens/{id}", minted, "", 200),
        ("GET /tokens/{id}", "nothing", "", 404),
        ("POST /tokens/{id}/release", &used, "", 204),
        ("POST /tokens/{id}/release", &used, "", 409),
        ("POST /tokens/{id}/release", "nothing", "", 404),
        ("DELETE /tokens/{id}", minted, "", 204),
        ("DELETE /tokens/{id}", "nothing", "", 404),
        ("GET /bootstrap-tokens", "", "", 200),
        ("GET /bootstrap-tokens", "?limit=1", "", 200),
        ("GET /bootstrap-tokens", "?cursor=x", "", 400),
        ("POST /bootstrap-tokens", "", "", 201),
        (
            "POST /bootstrap-tokens",
            "",
            r#"{"ttl_seconds":0,"groups":["system:bootstrappers:lab"],"description":"rack 7"}"#,
            201,
        ),
        ("POST /bootstrap-tokens", "", r#"{"groups":["lab"]}"#, 422),
        ("POST /bootstrap-tokens", "", "[]", 400),
        ("GET /bootstrap-tokens/{bootstrap_id}", bootstrap, "", 200),
        ("GET /bootstrap-tokens/{bootstrap_id}", "nobody", "", 404),
        (
            "DELETE /bootstrap-tokens/{bootstrap_id}",
            bootstrap,
            "",
            204,
        ),
        ("DELETE /bootstrap-tokens/{bootstrap_id}", "nobody", "", 404),
        ("POST /check", "", &asking, 200),
        (
            "POST /check",
            "?signer=kubernetes.io/kubelet-serving",
            "",
            200,
        ),
        ("POST /check", "?source=here", "", 400),
        ("GET /tokens", "", "", 200),
        ("GET /audit", "", "", 200),
        ("GET /audit", "?limit=1&newest_first=true", "", 200),
        ("GET /audit", "?stored=true&event=approve", "", 200),
        ("GET /audit", "?until=tomorrow", "", 400),
        ("GET /audit/seals", "", "", 200),
        ("GET /audit/seals", "?limit=1", "", 200),
        ("GET /audit/seals", "?limit=101", "", 400),
        ("GET /audit/checkpoint", "", "", 200),
    ] {
        tried(&office, &document, row).await;
        if row.3 < 300 {
            untried.remove(row.0);
        }
    }
    assert_eq!(untried, BTreeSet::new());
}

/// A call, what follows its path or stands in it, a body and the status of the answer.
type Row<'a> = (&'a str, &'a str, &'a str, u16);

/// Makes a call; its answer is documented and has the form that the document gives it.
async fn tried(office: &Office, document: &Value, (call, values, body, status): Row<'_>) {
    let (path, _) = operation(document, call);
    let path = match path.contains('{') {
        true => filled(path, values),
        false => format!("{path}{values}"),
    };
    let answer = sent(office, &office.admin, call, &path, body).await;
    assert_eq!(answer.status, status, "{call} {path}: {}", answer.text());
    let schema = documented_answer(document, call, status);
    match schema {
        // An OpenAPI document has members that no schema of ours names.
        Some(_) if path == "/openapi.json" => {}
        Some(schema) => conforms(document, schema, &answer.json())
            .unwrap_or_else(|fault| panic!("{call} {path}: {fault}: {}", answer.text())),
        None => assert_eq!(answer.text(), "", "{call}"),
    }
}

async fn sent(office: &Office, peer: &Peer, call: &str, path: &str, body: &str) -> Answer {
    let method = call.split(' ').next().unwrap();
    Call::new(peer, &format!("{method} /enrol/v1{path}"))
        .body(body)
        .send(&office.interface)
        .await
}

/// The schema of an answer; `None`: it has no body.
fn documented_answer<'d>(document: &'d Value, call: &str, status: u16) -> Option<&'d Value> {
    let (_, operation) = operation(document, call);
    let found = operation["responses"].get(status.to_string());
    let mut response = found.unwrap_or_else(|| panic!("{call} does not document {status}"));
    if let Some(place) = response["$ref"].as_str() {
        response = document.pointer(place.trim_start_matches('#')).unwrap();
    }
    response.pointer("/content/application~1json/schema")
}

/// Requests that rules approved, denied, left alone and could not decide, each on other evidence; two seals. The serial is
/// that of a certificate.
async fn furnish(office: &Office) -> String {
    let authority = &office.world.authority;
    authority.policy_version("rules: []").await.unwrap();
    for record in [
        json!({"name": "known", "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}], "single_use": true}),
        json!({"name": "other", "uuid": "U1", "not_before": "2026-01-01T00:00:00Z"}),
    ] {
        let added = office.post("machines", &record.to_string()).await;
        assert_eq!(added.status, 201, "{}", added.text());
    }
    let window =
        Call::new(&office.admin, "PUT /enrol/v1/windows/built").body(r#"{"require_token":false}"#);
    assert_eq!(window.send(&office.interface).await.status, 201);
    office.world.enable_tokens();
    office.world.set_policy(RULES);
    let (rules, files) = (authority.rules(), vec!["/etc/fleet.yaml".to_owned()]);
    office.policy.set(&rules.policy, START, files, Vec::new());
    let fault = "fleet.yaml:3:1: unknown field rule".to_owned();
    office.policy.refused(START, vec![fault]);
    for (name, state) in [
        ("web01", RequestState::Pending),
        ("web02", RequestState::Pending),
        ("web03", RequestState::Pending),
        ("web04", RequestState::Pending),
        ("known", RequestState::Issued),
        ("built", RequestState::Issued),
        ("vault", RequestState::Denied),
        ("asked", RequestState::Pending),
        ("unsure", RequestState::Undecided),
    ] {
        assert_eq!(office.agent(name).await, state, "{name}");
    }
    let (_, token) = office.token("minted").await;
    for (name, token, state) in [
        ("minted", &*token, RequestState::Issued),
        ("stolen", &*token, RequestState::Denied),
        ("guessed", "hunter2", RequestState::Denied),
    ] {
        assert_eq!(office.enrols(name, token).await, state, "{name}");
    }
    let decisions = office.get("decisions").await;
    let evidence = decisions.get("items").and_then(Value::as_array);
    let evidence = evidence.unwrap().iter();
    let evidence = evidence.flat_map(|item| item["evidence"].as_object().unwrap());
    let known = evidence.map(|(kind, found)| format!("{kind} {}", !found.is_null()));
    let known: BTreeSet<_> = known.collect();
    let all = [
        "executions true",
        "ledger true",
        "machine false",
        "machine true",
        "token true",
        "webhooks true",
        "window false",
        "window true",
    ];
    assert_eq!(known, all.map(str::to_owned).into());
    let client = CsrBuilder::new("jane").dns("jane.example.com");
    office
        .submit("kubernetes", "jane", KUBE_CLIENT, &client, &["client auth"])
        .await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    FileKeys::generate_file(&path, KeySpec::P256).unwrap();
    let key = AuditKey::load(&path).unwrap();
    authority.audit.seal(&key).await.unwrap();
    let approved = office.post("requests/puppet/web04/approve", "").await;
    authority.audit.seal(&key).await.unwrap();
    let approved = approved.json();
    let serial = approved.pointer("/certificate/serial");
    serial.and_then(Value::as_str).unwrap().to_owned()
}

const RULES: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: fleet}
spec:
  signers: [countersign.dev/puppet-agent]
  rules:
    - name: reserved
      deny: {cel: 'request.commonName == "vault"', message: "reserved name"}
    - name: revoked
      deny: {cel: 'ledger.revoked != null'}
    - name: script
      when: 'request.commonName == "asked"'
      approve: {executable: {path: /bin/false, timeout: 10s}}
    - name: by-token
      when: 'request.commonName in ["minted", "stolen", "guessed"]'
      approve: {token: {}}
    - name: building
      approve: {window: {}}
    - name: inventory
      approve: {machine: {once: true}}
    - name: cmdb
      when: 'request.commonName == "unsure"'
      approve: {webhook: {url: "https://cmdb.example.com/"}}
"#;

/// Who may not call is told so in the documented way, by every call.
#[tokio::test]
async fn refusals_are_as_documented() {
    let office = Office::open().await;
    let document = office.get("openapi.json").await;
    let nobody = office.world.anonymous();
    let agent = office.world.puppet_agent("agent").await;
    let guarded = documented(&document)
        .into_iter()
        .filter(|call| call != "GET /openapi.json");
    for call in guarded {
        let (path, _) = operation(&document, &call);
        let path = filled(path, "a/b");
        for (peer, status) in [(&nobody, 401), (&agent, 403)] {
            let answer = sent(&office, peer, &call, &path, "").await;
            assert_eq!(answer.status, status, "{call}");
            let schema = documented_answer(&document, &call, status).unwrap();
            assert_eq!(
                conforms(&document, schema, &answer.json()),
                Ok(()),
                "{call}"
            );
        }
    }
}

#[tokio::test]
async fn everything_in_the_document_is_described() {
    let document = Office::open().await.get("openapi.json").await;
    let mut undescribed = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(!name.contains("_for_") && !name.ends_with("Item"), "{name}");
        note_undescribed(name, schema, &mut undescribed);
    }
    for call in documented(&document) {
        let (_, operation) = operation(&document, &call);
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            if parameter["description"].as_str().is_none_or(str::is_empty) {
                undescribed.push(format!("{call}: {}", parameter["name"]));
            }
        }
    }
    assert_eq!(undescribed, [""; 0]);
}

/// Where a schema, a member of it or one of its choices has no description. The word that tells choices apart needs none.
fn note_undescribed(place: &str, schema: &Value, undescribed: &mut Vec<String>) {
    let is_described = schema["description"].is_string()
        || schema["$ref"].is_string()
        || schema.get("const").is_some();
    if !is_described {
        undescribed.push(place.to_owned());
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        note_undescribed(&format!("{place}.{name}"), member, undescribed);
    }
    for choice in schema["oneOf"].as_array().into_iter().flatten() {
        if choice["properties"].is_object() {
            note_undescribed(place, choice, undescribed);
        }
    }
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
        let found = found.ok_or_else(|| format!("nothing at {name}"))?;
        // What stands beside a reference holds as well: the word that tells a choice from the others.
        let mut whole = found.clone();
        let members = whole.get_mut("properties").and_then(Value::as_object_mut);
        if let (Some(members), Some(own)) = (members, schema["properties"].as_object()) {
            members.extend(own.clone());
        }
        return conforms(document, &whole, value);
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
    if let (Some(format), Some(text)) = (schema["format"].as_str(), value.as_str()) {
        let is_right = match format {
            "date-time" => UnixTime::parse_rfc3339(text).is_ok(),
            "uuid" => RequestId::parse(text).is_some(),
            "ip" => text.parse::<IpAddr>().is_ok(),
            other => return Err(format!("{other} is no format that is known here")),
        };
        if !is_right {
            return Err(format!("{text} is not in the format {format}"));
        }
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
            // Somebody else's object: it is documented that anything may be in it.
            (None, Value::Bool(true)) => continue,
            (None, _) => return Err(format!("{name} is not documented")),
        };
        conforms(document, schema, member).map_err(|fault| format!("{name}: {fault}"))?;
    }
    Ok(())
}
