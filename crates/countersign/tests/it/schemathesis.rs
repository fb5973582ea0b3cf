//! The native API as schemathesis finds it: calls made from its own document, right ones and wrong ones.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use countersign_testkit::counterparts::Counterpart;
use countersign_testkit::deadline::run_with_deadline;
use serde_json::{Value, json};

use crate::commands::wait_until;
use crate::site::{JSON, REQUESTS, Site, kubernetes_request};

/// Nothing ends with a server error, every status is documented and every answer has the form that the document gives it;
/// what the document forbids is refused, what it permits is not.
#[test]
fn the_native_api_keeps_what_its_document_promises() {
    let site = Site::configured("tokens: {enabled: true}\n", &[]);
    let serials = furnish(&site);
    let tokens = mint(&site);
    let bootstrap = mint_bootstrap(&site);
    let folder = site.folder("schemathesis");
    let config = folder.join("schemathesis.toml");
    std::fs::write(&config, configuration(&serials, &tokens, &bootstrap)).unwrap();
    let record = folder.join("calls.har");

    let mut command = Command::new(Counterpart::Schemathesis.find().unwrap());
    command
        .current_dir(&folder)
        .env("HOME", &folder)
        .arg("--config-file")
        .arg(&config)
        .arg("--no-color")
        .arg("run")
        .arg(format!(
            "https://localhost:{}/enrol/v1/openapi.json",
            site.puppet().port()
        ))
        .arg("--tls-verify")
        .arg(site.data().join("issuers/puppet/ca_crt.pem"))
        .arg("--request-cert")
        .arg(site.data().join("admin/admin.pem"))
        .arg("--request-cert-key")
        .arg(site.data().join("admin/admin-key.pem"))
        .args(["--report", "har", "--report-har-path"])
        .arg(&record);
    let finished = run_with_deadline(command, Duration::from_secs(240)).unwrap();
    assert!(finished.success(), "{finished}");

    // A call that never succeeds was not tried: give it what it needs above.
    let document = read(&site, "openapi.json");
    let mut untried = documented(&document);
    // It does not test the place that it had the document from.
    untried.remove(&("GET".to_owned(), "/openapi.json".to_owned()));
    // A use is only released if the server died before it signed.
    untried.remove(&("POST".to_owned(), "/tokens/{id}/release".to_owned()));
    for (method, path) in succeeded(&record) {
        untried.retain(|(wanted, template)| *wanted != method || !fits(template, &path));
    }
    assert_eq!(untried, BTreeSet::new(), "{finished}");
}

/// Requests in every state at two doors, machines and build windows. The serials are those of the Kubernetes issuer's
/// certificates.
fn furnish(site: &Site) -> Vec<String> {
    for name in names() {
        assert_eq!(site.ask(&name).status, 200, "{name}");
    }
    let kubernetes = site.kubernetes_admin();
    for name in ["jane", "joe"] {
        let body = kubernetes_request(name).to_string();
        let created = kubernetes
            .call("POST", REQUESTS, &[JSON], body.as_bytes())
            .unwrap();
        assert_eq!(created.status, 201, "{}", created.text());
    }
    for path in [
        "puppet/host00.example.com/approve",
        "puppet/host01.example.com/deny",
        "kubernetes/jane/approve",
    ] {
        let path = format!("/enrol/v1/requests/{path}");
        let decided = site.admin().call("POST", &path, &[], b"").unwrap();
        assert_eq!(decided.status, 200, "{}", decided.text());
    }
    let machines: Vec<Value> = names().iter().map(|name| json!({"name": name})).collect();
    let machines = json!({ "machines": machines }).to_string();
    let imports = "/enrol/v1/machine-imports";
    let added = site.admin().call("POST", imports, &[], machines.as_bytes());
    assert_eq!(added.unwrap().status, 200);
    for name in names() {
        let window = format!("/enrol/v1/windows/{name}");
        let opened = site.admin().call("PUT", &window, &[], b"").unwrap();
        assert_eq!(opened.status, 201, "{}", opened.text());
    }
    // The log is sealed about a second after the start.
    wait_until("a seal", || {
        let path = "/enrol/v1/audit/checkpoint";
        site.admin().call("GET", path, &[], b"").unwrap().status == 200
    });
    let ledger = read(site, "certificates?issuer=kubernetes");
    let serials = ledger["items"].as_array().unwrap().iter();
    serials
        .map(|item| item["serial"].as_str().unwrap().to_owned())
        .collect()
}

/// The ids of some tokens.
fn mint(site: &Site) -> Vec<String> {
    let orders = names().into_iter().map(|name| json!({ "certname": name }));
    orders
        .map(|order| ordered(site, "tokens", &order))
        .collect()
}

/// The ids of some bootstrap tokens.
fn mint_bootstrap(site: &Site) -> Vec<String> {
    let orders = names()
        .into_iter()
        .map(|name| json!({ "description": name }));
    orders
        .map(|order| ordered(site, "bootstrap-tokens", &order))
        .collect()
}

fn ordered(site: &Site, calls: &str, order: &Value) -> String {
    let (path, order) = (format!("/enrol/v1/{calls}"), order.to_string());
    let answer = site.admin().call("POST", &path, &[], order.as_bytes());
    let answer = answer.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    answer["id"].as_str().unwrap().to_owned()
}

/// Enough that some are left however many are deleted.
fn names() -> Vec<String> {
    (0..60)
        .map(|number| format!("host{number:02}.example.com"))
        .collect()
}

fn configuration(serials: &[String], tokens: &[String], bootstrap: &[String]) -> String {
    let mut text = include_str!("schemathesis.toml").to_owned();
    for (name, values) in [
        ("doors", json!(["puppet"])),
        ("names", json!(names())),
        ("issuers", json!(["kubernetes"])),
        ("serials", json!(serials)),
        ("generations", json!([1])),
        ("tokens", json!(tokens)),
        ("bootstrap_tokens", json!(bootstrap)),
    ] {
        // What is in these lists looks the same in TOML.
        text.push_str(&format!("\n[dictionaries.{name}]\nvalues = {values}\n"));
    }
    text
}

fn read(site: &Site, path: &str) -> Value {
    let path = format!("/enrol/v1/{path}");
    let answer = site.admin().call("GET", &path, &[], b"").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// Method and path of every call in the document.
fn documented(document: &Value) -> BTreeSet<(String, String)> {
    let mut calls = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let methods = item.as_object().unwrap().keys();
        calls.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
    }
    calls
}

/// Method and path of every call that was answered with success.
fn succeeded(record: &Path) -> BTreeSet<(String, String)> {
    let text = std::fs::read(record).unwrap();
    let record: Value = serde_json::from_slice(&text).unwrap();
    let entries = record["log"]["entries"].as_array().unwrap();
    let successes = entries.iter().filter(|entry| {
        let status = entry["response"]["status"].as_u64();
        status.is_some_and(|status| (200..300).contains(&status))
    });
    successes
        .map(|entry| {
            let url = entry["request"]["url"].as_str().unwrap();
            let path = url.split("/enrol/v1").nth(1).unwrap_or_default();
            let path = path.split('?').next().unwrap().to_owned();
            (
                entry["request"]["method"].as_str().unwrap().to_owned(),
                path,
            )
        })
        .collect()
}

fn fits(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    template.len() == path.len()
        && template
            .iter()
            .zip(&path)
            .all(|(wanted, part)| wanted.starts_with('{') || wanted == part)
}
