//! Kubernetes' Python client.

use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use countersign_testkit::python_client::csr;
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
