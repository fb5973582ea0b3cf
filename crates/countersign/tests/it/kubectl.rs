//! The real kubectl against the Kubernetes door.

use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_testkit::counterparts::Counterpart;
use countersign_testkit::deadline::{RunFault, run_with_deadline};
use countersign_testkit::keys;
use countersign_testkit::kubectl::Kubectl;

use crate::site::{Site, kubernetes_request, kubernetes_request_for};

#[test]
fn apply_get_approve_and_read_the_certificate() {
    let site = Site::start(&[]);
    let kubectl = site.kubectl();
    let manifest = serde_json::to_string(&kubernetes_request("jane")).unwrap();

    let applied = kubectl
        .run_with_input(&["apply", "-f", "-"], &manifest)
        .unwrap();
    assert_eq!(applied.code, Some(0), "{applied:?}");
    let again = kubectl
        .run_with_input(&["apply", "-f", "-"], &manifest)
        .unwrap();
    assert_eq!(again.code, Some(0), "a second apply: {again:?}");

    let listed = kubectl.run(&["get", "csr"]).unwrap();
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let row = listed.stdout;
    assert!(
        row.contains("jane") && row.contains("kubernetes.io/kube-apiserver-client"),
        "{row}"
    );
    assert!(row.contains("Pending"), "{row}");

    let approved = kubectl.run(&["certificate", "approve", "jane"]).unwrap();
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let listed = kubectl.run(&["get", "csr"]).unwrap();
    assert!(listed.stdout.contains("Approved,Issued"), "{listed:?}");

    let read = kubectl
        .run(&["get", "csr", "jane", "-o", "jsonpath={.status.certificate}"])
        .unwrap();
    let certificate = STANDARD.decode(read.stdout.trim()).unwrap();
    openssl_verify(&site, "kubernetes", &certificate, "jane");
    let shown =
        countersign_pki::pem::decode_all(&certificate, &countersign_pki::pem::PemLimits::BUNDLE)
            .unwrap();
    let parsed = countersign_pki::Certificate::parse(&shown[0].der).unwrap();
    assert_eq!(parsed.subject().to_string(), "CN=jane,O=developers");

    let deleted = kubectl.run(&["delete", "csr", "jane"]).unwrap();
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    let gone = kubectl.run(&["get", "csr", "jane"]).unwrap();
    assert!(gone.stderr.contains("NotFound"), "{gone:?}");
}

#[test]
fn long_lists_are_read_in_pages() {
    let site = Site::start(&[]);
    let kubectl = site.kubectl();
    let mut object = kubernetes_request("jane");
    let (mut names, mut objects) = (Vec::new(), String::new());
    for number in 0..230 {
        let name = format!("csr-{number:03}");
        object["metadata"]["name"] = serde_json::json!(name);
        names.push(name);
        objects.push_str(&format!("{object}\n"));
    }
    let created = kubectl
        .run_with_input(&["create", "-f", "-"], &objects)
        .unwrap();
    assert_eq!(created.code, Some(0), "{created:?}");

    for output in ["wide", "name"] {
        let arguments = ["get", "csr", "--chunk-size=100", "-v=6", "-o", output];
        let listed = kubectl.run(&arguments).unwrap();
        assert_eq!(listed.code, Some(0), "{listed:?}");
        let pages = listed.stderr.matches("limit=100").count();
        let rest = listed.stderr.matches("continue=").count();
        assert_eq!((pages, rest), (3, 2), "{}", listed.stderr);
        let shown: Vec<&str> = listed
            .stdout
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .filter(|word| *word != "NAME")
            .map(|word| word.rsplit('/').next().unwrap_or(word))
            .collect();
        assert_eq!(shown, names, "{output}");
    }
}

#[test]
fn deny_keeps_it_unsigned() {
    let site = Site::start(&[]);
    let kubectl = site.kubectl();
    let manifest = serde_json::to_string(&kubernetes_request("mallory")).unwrap();
    kubectl
        .run_with_input(&["create", "-f", "-"], &manifest)
        .unwrap();
    let denied = kubectl.run(&["certificate", "deny", "mallory"]).unwrap();
    assert_eq!(denied.code, Some(0), "{denied:?}");
    let approved = kubectl.run(&["certificate", "approve", "mallory"]).unwrap();
    assert_ne!(
        approved.code,
        Some(0),
        "approved after a denial: {approved:?}"
    );
    let listed = kubectl.run(&["get", "csr", "mallory"]).unwrap();
    assert!(listed.stdout.contains("Denied"), "{listed:?}");
}

#[test]
fn a_signer_from_the_configuration_has_an_issuer_of_its_own() {
    let site = Site::configured(
        "signers:\n  - name: example.com/vpn\n    usages: [digital signature, client auth]\n    lifetime: 30d\n",
        &[],
    );
    let kubectl = site.kubectl();
    let object = kubernetes_request_for("laptop", "example.com/vpn", keys::p256_c());
    let created = kubectl
        .run_with_input(&["create", "-f", "-"], &object.to_string())
        .unwrap();
    assert_eq!(created.code, Some(0), "{created:?}");
    let approved = kubectl.run(&["certificate", "approve", "laptop"]).unwrap();
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let read = kubectl
        .run(&[
            "get",
            "csr",
            "laptop",
            "-o",
            "jsonpath={.status.certificate}",
        ])
        .unwrap();
    let certificate = STANDARD.decode(read.stdout.trim()).unwrap();
    openssl_verify(&site, "example.com.vpn", &certificate, "laptop");
}

#[test]
fn what_the_signer_cannot_sign_fails_after_approval_and_says_why() {
    let site = Site::start(&[]);
    let kubectl = site.kubectl();
    let mut object = kubernetes_request("odd");
    object["spec"]["usages"] = serde_json::json!(["client auth", "cert sign"]);
    kubectl
        .run_with_input(&["create", "-f", "-"], &object.to_string())
        .unwrap();
    let approved = kubectl.run(&["certificate", "approve", "odd"]).unwrap();
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let listed = kubectl.run(&["get", "csr", "odd"]).unwrap();
    assert!(listed.stdout.contains("Approved,Failed"), "{listed:?}");
    let shown = kubectl.run(&["get", "csr", "odd", "-o", "yaml"]).unwrap();
    assert!(
        shown
            .stdout
            .contains("invalid usage for client certificate: cert sign"),
        "{shown:?}"
    );
}

fn openssl_verify(site: &Site, issuer: &str, certificate: &[u8], name: &str) {
    let folder = site.folder("openssl");
    let bundle = folder.join("bundle.pem");
    let mut text = site.read(&format!("issuers/{issuer}/ca_crt.pem"));
    text.extend(site.read(&format!("issuers/{issuer}/ca_crl.pem")));
    std::fs::write(&bundle, text).unwrap();
    let leaf = folder.join(format!("{name}.pem"));
    std::fs::write(&leaf, certificate).unwrap();
    let mut command = Command::new(Counterpart::Openssl.find().unwrap());
    command
        .args(["verify", "-x509_strict", "-crl_check_all", "-CAfile"])
        .arg(&bundle)
        .arg(&leaf);
    let finished = run_with_deadline(command, Duration::from_secs(30)).unwrap();
    assert_eq!(finished.code, Some(0), "{finished:?}");
}

/// What kubectl says until it is killed: a watch does not end by itself.
fn said_until(kubectl: &mut Kubectl, seconds: u64, arguments: &[&str]) -> String {
    kubectl.set_deadline(Duration::from_secs(seconds));
    match kubectl.run(arguments) {
        Err(RunFault::Deadline { said, .. }) => said.stdout,
        other => panic!("the watch ended: {other:?}"),
    }
}

#[test]
fn watches_show_requests_as_they_change() {
    let site = Site::start(&[]);
    let kubectl = site.kubectl();
    let create = |name: &str| {
        let manifest = serde_json::to_string(&kubernetes_request(name)).unwrap();
        let created = kubectl.run_with_input(&["create", "-f", "-"], &manifest);
        assert_eq!(created.as_ref().unwrap().code, Some(0), "{created:?}");
    };
    create("jane");
    create("john");
    let approve = |name: &str| {
        let approved = kubectl.run(&["certificate", "approve", name]).unwrap();
        assert_eq!(approved.code, Some(0), "{approved:?}");
    };
    std::thread::scope(|scope| {
        let (mut all, mut one, waiting) = (site.kubectl(), site.kubectl(), site.kubectl());
        let all = scope.spawn(move || said_until(&mut all, 20, &["get", "csr", "-w"]));
        let one = scope.spawn(move || said_until(&mut one, 20, &["get", "csr", "john", "-w"]));
        let waited = scope.spawn(move || {
            let condition = [
                "wait",
                "--for=condition=Approved",
                "csr/john",
                "--timeout=40s",
            ];
            waiting.run(&condition).unwrap()
        });
        // Something to see until all of them have begun, which nobody tells.
        for round in 0..8 {
            let label = format!("round={round}");
            let labelled = kubectl.run(&["label", "csr", "jane", "john", &label, "--overwrite"]);
            assert_eq!(labelled.as_ref().unwrap().code, Some(0), "{labelled:?}");
        }
        approve("jane");
        approve("john");
        let waited = waited.join().unwrap();
        assert_eq!(waited.code, Some(0), "{waited:?}");
        assert!(waited.stdout.contains("john condition met"), "{waited:?}");
        let (all, one) = (all.join().unwrap(), one.join().unwrap());
        let rows = |text: &str, name: &str, state: &str| {
            let is_row = |line: &&str| line.starts_with(name) && line.ends_with(state);
            text.lines().map(str::trim_end).filter(is_row).count()
        };
        for name in ["jane", "john"] {
            assert!(rows(&all, name, "Pending") >= 1, "{all}");
            assert!(rows(&all, name, "Approved,Issued") >= 1, "{all}");
        }
        assert!(rows(&one, "john", "Pending") >= 1, "{one}");
        assert!(rows(&one, "john", "Approved,Issued") >= 1, "{one}");
        assert_eq!(rows(&one, "jane", ""), 0, "{one}");
        assert_eq!(all.matches("SIGNERNAME").count(), 1, "one heading: {all}");
    });
}
