//! The resource definitions on a real API server: what they accept and refuse, and what kubectl shows.

use std::fs;
use std::path::Path;

use countersign_testkit::api_server::{ApiServer, ApiServerSettings, Controllers};
use countersign_testkit::deadline::Finished;
use countersign_testkit::kubectl::Kubectl;
use serde::Deserialize;
use serde_json::{Value, json};

use super::manual::MANUAL;
use super::{deploy, documents, openvox};
use crate::installation::run;

/// One row of `objects.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    kind: String,
    name: Option<String>,
    spec: Option<Value>,
    /// What the API server says; without, it accepts the object.
    refused: Option<String>,
    /// What `policy check` makes of it, where that differs.
    file: Option<FileOutcome>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FileOutcome {
    Accepted,
}

impl Case {
    /// Where such objects are.
    fn folder(&self) -> String {
        let group = format!("/apis/{}/v1alpha1", self.group());
        match self.kind.as_str() {
            "ApprovalPolicy" => format!("{group}/approvalpolicies"),
            "EnrollmentToken" => format!("{group}/namespaces/default/enrollmenttokens"),
            "Certificate" => format!("{group}/namespaces/default/certificates"),
            "CertificateAuthority" => format!("{group}/namespaces/default/certificateauthorities"),
            "SigningPolicy" => format!("{group}/namespaces/default/signingpolicies"),
            kind => format!("{group}/{}s", kind.to_lowercase()),
        }
    }

    fn group(&self) -> &'static str {
        match self.kind.as_str() {
            "Certificate" | "CertificateAuthority" | "SigningPolicy" => openvox::GROUP,
            _ => "countersign.dev",
        }
    }

    fn object(&self, number: usize) -> Value {
        let mut object = json!({
            "apiVersion": format!("{}/v1alpha1", self.group()),
            "kind": self.kind,
            "metadata": {"name": self.name.clone().unwrap_or_else(|| format!("case-{number}"))},
        });
        if let Some(spec) = &self.spec {
            object["spec"] = spec.clone();
        }
        object
    }
}

fn cases() -> Vec<Case> {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("objects.yaml")).unwrap();
    assert!(cases.len() > 150);
    cases
}

/// An API server that knows the definitions.
pub(super) fn cluster(folder: &Path) -> (ApiServer, Kubectl) {
    let (api, kubectl) = server(folder);
    define(&kubectl);
    (api, kubectl)
}

/// One that knows none.
pub(super) fn server(folder: &Path) -> (ApiServer, Kubectl) {
    let settings = ApiServerSettings {
        controllers: Controllers::None,
        ..ApiServerSettings::default()
    };
    let api = ApiServer::start(folder, &settings).unwrap();
    let kubectl = api.kubectl().unwrap();
    (api, kubectl)
}

/// Adds all definitions.
pub(super) fn define(kubectl: &Kubectl) {
    let definitions = deploy("crds");
    ok(kubectl, &["apply", "-f", definitions.to_str().unwrap()]);
    established(kubectl, &OWN);
    established(kubectl, &openvox::DEFINITIONS);
}

/// Waits until the API server serves what the definitions describe.
pub(super) fn established(kubectl: &Kubectl, definitions: &[&str]) {
    for name in definitions {
        let definition = format!("crd/{name}");
        ok(
            kubectl,
            &[
                "wait",
                "--for=condition=Established",
                &definition,
                "--timeout=60s",
            ],
        );
        let condition = "{.status.conditions[?(@.type==\"NonStructuralSchema\")].status}";
        let output = format!("jsonpath={condition}");
        let said = ok(kubectl, &["get", &definition, "-o", &output]);
        assert_eq!(said.stdout, "", "{name} has a structural schema");
    }
}

/// kubectl, which must succeed.
pub(super) fn ok(kubectl: &Kubectl, arguments: &[&str]) -> Finished {
    let finished = kubectl.run(arguments).unwrap();
    assert!(finished.success(), "{arguments:?}: {finished}");
    finished
}

#[test]
fn the_api_server_accepts_good_objects_and_says_what_is_wrong_with_bad_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (api, kubectl) = cluster(folder.path());
    let admin = api.admin().unwrap();
    examples_of_this_manual(&kubectl);
    for (number, case) in cases().iter().enumerate() {
        // As kubectl does it, in a fraction of the time.
        let path = format!("{}?fieldValidation=Strict", case.folder());
        let headers = [("Content-Type", "application/json")];
        let object = case.object(number).to_string();
        let created = admin.call("POST", &path, &headers, object.as_bytes());
        let created = created.unwrap();
        let answer: Value = serde_json::from_str(&created.text()).unwrap();
        let said = answer["message"].as_str().unwrap_or_default();
        match &case.refused {
            None => assert_eq!(created.status, 201, "{}: {said}", case.case),
            Some(reason) => {
                assert!(matches!(created.status, 400 | 422), "{}: {said}", case.case);
                assert!(said.contains(reason), "{}: {said}", case.case);
            }
        }
    }
    policies_of_the_manuals(&kubectl);
    unknown_keys_are_not_dropped_silently(&kubectl);
    what_cannot_be_changed(&kubectl);
    what_kubectl_shows(&kubectl);
    openvox::what_is_filled_in(&kubectl);
    openvox::what_kubectl_shows(&kubectl);
}

/// Every policy of the manuals is one in a cluster too, except those with lists in files.
fn policies_of_the_manuals(kubectl: &Kubectl) {
    let docs = deploy("../docs");
    let (mut accepted, mut refused) = (0, 0);
    for folder in ["cookbook", "kubernetes"] {
        for entry in fs::read_dir(docs.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap_or_default();
            let is_policy = text.contains("kind: ApprovalPolicy");
            if !is_policy
                || path
                    .file_stem()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .ends_with("-test")
            {
                continue;
            }
            let applied = kubectl.run(&["apply", "-f", path.to_str().unwrap()]);
            let applied = applied.unwrap();
            match text.contains("allowlist: {file:") {
                false => {
                    accepted += 1;
                    assert!(applied.success(), "{}: {applied}", path.display());
                }
                true => {
                    refused += 1;
                    let reason = "allowlist.file reads a file of the host";
                    assert!(applied.stderr.contains(reason), "{applied}");
                }
            }
        }
    }
    assert!(accepted >= 6 && refused >= 3, "{accepted} {refused}");
}

/// What docs/cluster-install.md shows as a resource is one.
fn examples_of_this_manual(kubectl: &Kubectl) {
    ok(kubectl, &["create", "namespace", "countersign-system"]);
    let blocks = MANUAL.split("```yaml\n").skip(1);
    let blocks = blocks.filter_map(|rest| Some(rest.split_once("```")?.0));
    let examples = blocks.filter(|text| text.starts_with("apiVersion: countersign.dev/"));
    let mut kinds = 0;
    for example in examples {
        kinds += 1;
        let arguments = ["create", "--dry-run=server", "-f", "-"];
        let applied = kubectl.run_with_input(&arguments, example);
        let applied = applied.unwrap();
        assert!(applied.success(), "{example}\n{applied}");
    }
    assert_eq!(kinds, 3);
}

/// The API server prunes keys that a schema does not have. A rule without its mistyped `when` would approve more than
/// its author meant, so the usual clients must not let that pass.
fn unknown_keys_are_not_dropped_silently(kubectl: &Kubectl) {
    let object = json!({
        "apiVersion": "countersign.dev/v1alpha1",
        "kind": "ApprovalPolicy",
        "metadata": {"name": "mistyped"},
        "spec": {"signers": ["example.com/a"],
            "rules": [{"name": "r", "whem": "false", "approve": {"always": {}}}]},
    });
    for arguments in [
        &["apply", "-f", "-"][..],
        &["create", "-f", "-"],
        &["apply", "--server-side", "-f", "-"],
    ] {
        let said = kubectl.run_with_input(arguments, &object.to_string());
        let said = said.unwrap();
        assert!(!said.success(), "{arguments:?}: {said}");
        assert!(said.stderr.contains("whem"), "{arguments:?}: {said}");
    }
}

fn what_cannot_be_changed(kubectl: &Kubectl) {
    for (object, patch, reason) in [
        (
            "signers.countersign.dev/example.com.vpn",
            json!({"spec": {"signerName": "example.com/other"}}),
            "a signer's name cannot be changed",
        ),
        (
            "enrollmenttoken/web01",
            json!({"spec": {"certname": "web02.example.com"}}),
            "what a token is good for cannot be changed",
        ),
        (
            "enrollmenttoken/web01",
            json!({"spec": {"ttl": "2h"}}),
            "what a token is good for cannot be changed",
        ),
    ] {
        let patch = patch.to_string();
        let said = kubectl.run(&["patch", object, "--type=merge", "-p", &patch]);
        let said = said.unwrap();
        assert!(said.stderr.contains(reason), "{said}");
    }
}

fn what_kubectl_shows(kubectl: &Kubectl) {
    let time = "2026-01-02T03:04:05Z";
    let condition = |status: &str, reason: &str, message: &str| {
        json!([{"type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": time, "observedGeneration": 1}])
    };
    for (object, status) in [
        (
            "approvalpolicy/renewals",
            json!({"observedGeneration": 1, "rules": 0,
                "conditions": condition("False", "BrokenExpression", "rule same-user: unknown name")}),
        ),
        (
            "signers.countersign.dev/example.com.vpn",
            json!({"issuer": "remote-access", "notAfter": time, "conditions": condition("True", "InUse", "")}),
        ),
        (
            "machines.countersign.dev/worker-b",
            json!({"nodeRef": {"apiVersion": "v1", "kind": "Node", "name": "node-b", "uid": "1"},
                "addresses": [{"type": "InternalIP", "address": "192.0.2.8"}], "enrolled": time}),
        ),
        (
            "enrollmenttoken/web01",
            json!({"id": "abc", "state": "active", "uses": 0, "expiresAt": time}),
        ),
    ] {
        // The status is a subresource: who may write policies cannot claim that they are in force.
        let patch = json!({"status": status}).to_string();
        let arguments = ["patch", object, "--type=merge", "-p", &patch];
        ok(kubectl, &arguments);
        let ignored = ok(kubectl, &["get", object, "-o", "jsonpath={.status}"]);
        assert_eq!(ignored.stdout, "", "{object}");
        ok(
            kubectl,
            &[&arguments[..], &["--subresource=status"]].concat(),
        );
    }
    for (arguments, heading, row) in [
        (
            &["approvalpolicy", "renewals"][..],
            "NAME ORDER SIGNERS READY REASON AGE",
            "renewals 0 [\"kubernetes.io/kube-apiserver-client\"] False BrokenExpression",
        ),
        (
            &["apol", "renewals", "-o", "wide"],
            "NAME ORDER SIGNERS READY REASON MESSAGE AGE",
            "renewals 0 [\"kubernetes.io/kube-apiserver-client\"] False BrokenExpression rule same-user: unknown name",
        ),
        (
            &["signers.countersign.dev", "example.com.vpn"],
            "NAME SIGNER ISSUER LIFETIME READY AGE",
            "example.com.vpn example.com/vpn remote-access 30d True",
        ),
        (
            &["machines.countersign.dev", "worker-b"],
            "NAME ROLE PROVIDER NODE ENROLLED AGE",
            "worker-b node-b",
        ),
        (
            &["cmachine", "worker-a.example.com"],
            "NAME ROLE PROVIDER NODE ENROLLED AGE",
            "worker-a.example.com worker rack 7",
        ),
        (
            &["etok", "web01"],
            "NAME CERTNAME GLOB STATE USES EXPIRES AGE",
            "web01 web01.example.com active 0 2026-01-02T03:04:05Z",
        ),
    ] {
        let shown = ok(kubectl, &[&["get"], arguments].concat());
        let mut lines = shown.stdout.lines().map(words);
        assert_eq!(lines.next().unwrap(), heading, "{shown}");
        assert!(lines.next().unwrap().starts_with(row), "{shown}");
    }
    let all = ok(kubectl, &["get", "countersign"]).stdout;
    for name in ["approvalpolicy.", "signer.", "machine.", "enrollmenttoken."] {
        assert!(all.contains(name), "{all}");
    }
}

pub(super) fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The same policy as a file: what the API server refuses `policy check` refuses too, and what it accepts is accepted,
/// except what reaches into the host.
#[test]
fn the_schema_accepts_what_policy_files_may_say() {
    let folder = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for (number, case) in cases().iter().enumerate() {
        if case.kind != "ApprovalPolicy" {
            continue;
        }
        let path = folder.path().join("policy.yaml");
        fs::write(folder.path().join("hosts.conf"), "web01.example.com\n").unwrap();
        fs::write(&path, case.object(number).to_string()).unwrap();
        let checked = run(&["policy", "check", path.to_str().unwrap()]);
        let is_accepted = match (&case.refused, &case.file) {
            (None, _) | (Some(_), Some(FileOutcome::Accepted)) => true,
            (Some(_), None) => false,
        };
        let is_later = checked.stderr.contains("not supported by this version");
        compared += 1;
        assert!(
            checked.success() == is_accepted || is_later,
            "{}: {checked}",
            case.case
        );
    }
    assert!(compared > 45, "{compared}");
}

/// One document in each file, and none that prunes nothing. `countersign cluster --print-crds` prints all of them.
#[test]
fn each_definition_is_one_document_of_its_own() {
    let mut names = Vec::new();
    let printed = run(&["cluster", "--print-crds"]);
    let printed = documents(&printed.stdout);
    for entry in fs::read_dir(deploy("crds")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none() {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let documents = documents(&text);
        let [definition] = &documents[..] else {
            panic!("{}: {} documents", path.display(), documents.len())
        };
        assert_eq!(definition["kind"], "CustomResourceDefinition");
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap();
        assert_eq!(path.file_stem().unwrap(), plural);
        assert!(!text.contains("preserve-unknown-fields"), "{plural}");
        let version = &definition["spec"]["versions"][0];
        assert_eq!(version["name"], "v1alpha1");
        assert_eq!(version["subresources"]["status"], json!({}));
        assert!(printed.contains(definition), "{plural} is printed");
        let group = definition["spec"]["group"].as_str().unwrap();
        assert_eq!(definition["metadata"]["name"], format!("{plural}.{group}"));
        names.push(format!("{plural}.{group}"));
    }
    assert_eq!(printed.len(), names.len());
    names.sort();
    let mut expected = [&OWN[..], &openvox::DEFINITIONS].concat();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

pub(super) const OWN: [&str; 4] = [
    "approvalpolicies.countersign.dev",
    "enrollmenttokens.countersign.dev",
    "machines.countersign.dev",
    "signers.countersign.dev",
];
