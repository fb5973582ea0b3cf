//! Clients that are not written in Go: Kubernetes' own for Python and for JavaScript, and kr8s.

use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::json_lines::JsonLines;
use countersign_testkit::keys;
use countersign_testkit::python_client::{csr, discovery, kr8s, node};
use serde_json::{Value, json};

use crate::site::Site;

#[test]
fn a_request_lives_its_life_through_the_python_client() {
    let site = Site::start(&[]);
    let kubeconfig = site.kubeconfig();
    let request = site.folder("python").join("alice.pem");
    let pem = CsrBuilder::new("alice")
        .organization("developers")
        .sign_pem(keys::p256_a());
    std::fs::write(&request, pem).unwrap();
    let call = |arguments: &[&str]| {
        let lines = csr(&kubeconfig, arguments).unwrap();
        let (lines, status) = lines.read_to_end().unwrap();
        let is_refused = lines.iter().any(|line| line["event"] == "refused");
        assert_eq!(status.success(), !is_refused, "{arguments:?}: {lines:?}");
        lines
    };
    let mut watching = csr(&kubeconfig, &["watch", "100"]).unwrap();

    let (file, signer) = (
        request.to_str().unwrap(),
        "kubernetes.io/kube-apiserver-client",
    );
    let created = call(&[
        "create",
        "alice",
        signer,
        file,
        "digital signature",
        "client auth",
    ]);
    assert_eq!(created[0]["conditions"], json!([]));
    let again = call(&["create", "alice", signer, file, "client auth"]);
    assert_eq!(again[0]["body"]["reason"], "AlreadyExists");
    let invalid = call(&["create", "bob", "nonsense", file, "client auth"]);
    assert_eq!(invalid[0]["status"], 422);
    let causes = &invalid[0]["body"]["details"]["causes"];
    assert_eq!(causes[0]["field"], "spec.signerName", "{invalid:?}");

    assert_eq!(call(&["list"])[0]["name"], "alice");
    assert_eq!(
        call(&["label", "alice", "a", "b"])[0]["labels"],
        json!({"a": "b"})
    );
    let approved = call(&["approve", "alice"]);
    assert_eq!(approved[0]["conditions"], json!(["Approved"]));
    let issued = |line: &Value| line["certificate"] == true;
    let seen = watching.read_until(issued).unwrap();
    assert_eq!(
        (&seen["name"], &seen["event"]),
        (&json!("alice"), &json!("MODIFIED"))
    );
    assert_eq!(call(&["get", "alice"])[0]["certificate"], true);
    assert_eq!(call(&["delete", "alice"])[0]["event"], "deleted");
    let gone = watching
        .read_until(|line| line["event"] == "DELETED")
        .unwrap();
    assert_eq!(gone["name"], "alice");
    assert_eq!(call(&["get", "alice"])[0]["status"], 404);

    // Whenever it began to look: every version once, the newest last.
    let versions: Vec<u64> = watching
        .seen()
        .iter()
        .map(|line| line["resourceVersion"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "{watching}");
}

/// Their paths end in a slash, as upstream's OpenAPI document spells them.
#[test]
fn discovery_works_through_the_python_client() {
    let site = Site::start(&[]);
    let told = all(discovery(&site.kubeconfig()).unwrap());
    let told = told.first().unwrap();
    assert_eq!(told["core"], json!(["v1"]));
    assert_eq!(told["group"], "certificates.k8s.io");
    assert_eq!(told["listed"], 0);
    let has = |field: &str, name: &str| {
        let names = told[field].as_array().unwrap();
        assert!(names.iter().any(|it| it == name), "{told}");
    };
    has("groups", "coordination.k8s.io");
    has("resources", "certificatesigningrequests/approval");
}

#[test]
fn a_request_lives_its_life_through_kr8s() {
    let site = Site::start(&[]);
    let told = all(kr8s(&site.kubeconfig(), &request_file(&site)).unwrap());
    let event = |name: &str| line(&told, name);
    let names = event("resources")["names"].as_array().unwrap().clone();
    assert!(names.contains(&json!("leases")), "{names:?}");
    assert_eq!(event("created")["exists"], true);
    assert_eq!(event("approved")["certificate"], true);
    assert_eq!(event("listed")["names"], json!(["kr8s"]));
    assert_eq!(event("deleted")["exists"], false);
}

#[test]
fn a_request_lives_its_life_through_the_client_for_javascript() {
    let site = Site::start(&[]);
    let told = all(node(&site.kubeconfig(), &request_file(&site)).unwrap());
    let event = |name: &str| line(&told, name);
    assert_eq!(event("core")["versions"], json!(["v1"]));
    assert_eq!(event("approved")["certificate"], true);
    assert_eq!(event("listed")["names"], json!(["node-client"]));
    let kinds = event("heard")["kinds"].as_array().unwrap().clone();
    assert_eq!(kinds.last(), Some(&json!("DELETED")), "{kinds:?}");
}

fn request_file(site: &Site) -> String {
    let file = site.folder("requests").join("bob.pem");
    let pem = CsrBuilder::new("bob").sign_pem(keys::p256_a());
    std::fs::write(&file, pem).unwrap();
    file.to_str().unwrap().to_owned()
}

#[track_caller]
fn all(lines: JsonLines) -> Vec<Value> {
    let (lines, status) = lines.read_to_end().unwrap();
    assert!(status.success(), "{lines:?}");
    lines
}

#[track_caller]
fn line<'a>(told: &'a [Value], event: &str) -> &'a Value {
    let found = told.iter().find(|line| line["event"] == event);
    found.unwrap_or_else(|| panic!("no {event} in {told:?}"))
}
