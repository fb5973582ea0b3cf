//! An enrolment token in a kubeconfig: the real kubectl creates a request with it, and gets a certificate once.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_testkit::csr::{CsrBuilder, TOKEN};
use countersign_testkit::keys::{self, Key};
use countersign_testkit::kubectl::Kubectl;
use serde_json::{Value, json};

use crate::governed::{CLIENTS, Governed, policy};
use crate::site::{JSON, install, kubernetes_request_for, read_certificate};

const RULES: &str = "    - name: token\n      approve: {token: {}}\n";
const CONFIG: &str = "tokens: {enabled: true}\nlog: {level: trace}\n";

fn start() -> Governed {
    Governed::start(
        &[("clients.yaml", &policy("clients", CLIENTS, RULES))],
        CONFIG,
    )
}

fn mint(world: &Governed, name: &str) -> String {
    let body = json!({"certname": name}).to_string();
    let admin = world.site.admin();
    let minted = admin.call("POST", "/enrol/v1/tokens", &[JSON], body.as_bytes());
    let minted = minted.unwrap();
    assert_eq!(minted.status, 201, "{}", minted.text());
    let minted: Value = serde_json::from_slice(&minted.body).unwrap();
    minted["token"].as_str().unwrap().to_owned()
}

/// kubectl with the token in a file.
fn kubectl(world: &Governed, user: &str, token: &str) -> Kubectl {
    let folder = world.site.folder(user);
    let file = |name: &str, text: &str| -> PathBuf {
        let path = folder.join(name);
        install(&path, text, 0o600);
        path
    };
    let token = file("token", token);
    let ca = world.site.kubernetes_ca();
    let ca = file("ca.pem", &String::from_utf8_lossy(&ca));
    let server = world
        .site
        .server
        .addresses
        .kubernetes
        .replace("127.0.0.1", "localhost");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
         clusters: [{{name: here, cluster: {{server: \"{server}\", certificate-authority: {}}}}}]\n\
         users: [{{name: me, user: {{tokenFile: {}}}}}]\n\
         contexts: [{{name: here, context: {{cluster: here, user: me}}}}]\n",
        ca.display(),
        token.display()
    );
    Kubectl::new(&file("kubeconfig", &text), &folder).unwrap()
}

/// A token is for a name, so the subject is that and nothing else.
fn request_for_jane(object: &str, key: &Key) -> Value {
    let mut request = kubernetes_request_for(object, CLIENTS, key);
    let csr = CsrBuilder::new("jane").sign_pem(key);
    request["spec"]["request"] = json!(STANDARD.encode(csr));
    request
}

#[test]
fn kubectl_enrols_once_with_a_token() {
    let world = start();
    let token = mint(&world, "jane");
    let jane = kubectl(&world, "jane", &token);
    let id = token.split('.').nth(1).unwrap();
    let run = |arguments: &[&str]| jane.run(arguments).unwrap();
    let whoami = run(&[
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username}",
    ]);
    assert_eq!(whoami.stdout, format!("system:bootstrap:{id}"), "{whoami}");
    for (question, answer) in [
        (&["create", "csr"][..], "yes"),
        (&["list", "csr"], "yes"),
        (&["delete", "csr"], "no"),
        (&["update", "csr", "--subresource=approval"], "no"),
        (&["get", "csr/of-admin"], "no"),
    ] {
        let said = run(&[&["auth", "can-i"], question].concat());
        let word = said.stdout.split_whitespace().next();
        assert_eq!(word, Some(answer), "{question:?}: {said}");
    }

    let admin = world.site.kubectl();
    let foreign = kubernetes_request_for("of-admin", CLIENTS, keys::p256_c());
    let created = admin.run_with_input(&["create", "-f", "-"], &foreign.to_string());
    assert!(created.unwrap().success());
    let object = request_for_jane("jane", keys::p256_b());
    let created = jane.run_with_input(&["create", "-f", "-"], &object.to_string());
    let created = created.unwrap();
    assert!(created.success(), "{created}");
    let listed = run(&["get", "csr"]);
    assert!(listed.stdout.contains("Approved,Issued"), "{listed}");
    assert!(!listed.stdout.contains("of-admin"), "{listed}");
    let read = run(&["get", "csr", "jane", "-o", "jsonpath={.status.certificate}"]);
    let certificate = read_certificate(STANDARD.decode(read.stdout.trim()).unwrap());
    assert_eq!(certificate.subject().first_common_name(), Some("jane"));

    for (arguments, word) in [
        (&["get", "csr", "of-admin"][..], "NotFound"),
        (&["certificate", "approve", "jane", "--force"], "Forbidden"),
        (&["delete", "csr", "jane"], "Forbidden"),
        (&["label", "csr", "jane", "a=b"], "Forbidden"),
    ] {
        let said = run(arguments);
        assert!(said.stderr.contains(word), "{arguments:?}: {said}");
    }
    // Another key with the same token is another machine.
    let other = request_for_jane("jane2", keys::p256_a());
    let created = jane.run_with_input(&["create", "-f", "-"], &other.to_string());
    assert!(created.unwrap().success());
    let state = run(&["get", "csr", "jane2"]);
    assert!(state.stdout.contains("Denied"), "{state}");

    // The secret is in no log, whatever its level, and in no list.
    let secret = token.split('.').nth(2).unwrap();
    assert!(!world.site.server.log().contains(secret));
    let listed = admin.run(&["get", "csr", "-o", "yaml"]).unwrap();
    assert!(listed.stdout.contains(id), "{listed}");
    assert!(!listed.stdout.contains(secret));
    let audit = world.well(&["audit", "show", "-o", "json"]);
    assert!(audit.contains("token.consumed") && !audit.contains(secret));
}

#[test]
fn a_wrong_token_is_nobody() {
    let world = start();
    let stranger = kubectl(&world, "stranger", TOKEN);
    let said = stranger.run(&["get", "csr"]).unwrap();
    assert_eq!(said.code, Some(1), "{said}");
    let told = said.stderr.contains("Unauthorized") || said.stderr.contains("must be logged in");
    assert!(told, "{said}");
}
