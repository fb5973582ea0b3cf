//! `countersign enroll --door kubernetes`.

use std::fs;

use countersign_authority::{Clock as _, SystemClock};
use countersign_testkit::chain::Ca;
use countersign_testkit::decider::{Decider, Guard, Step};
use countersign_testkit::keys;
use serde_json::Value;

use super::{Machine, mode};
use crate::commands::wait_until;
use crate::puppet_agent::countersign;
use crate::site::{REQUESTS, Site, install, read_certificate};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// A machine that asks with the administrator's certificate.
fn machine(site: &Site, name: &'static str, signer: &str) -> Machine {
    let folder = site.folder(name);
    let (certificate, key) = site.kubernetes_admin_pair();
    let [certificate_file, key_file] = ["c.pem", "k.pem"].map(|file| folder.join(file));
    for (path, content) in [(&certificate_file, certificate), (&key_file, key)] {
        install(path, &String::from_utf8(content).unwrap(), 0o600);
    }
    let ca = site.data().join("issuers/kubernetes/ca_crt.pem");
    let url = format!("https://localhost:{}", site.kubernetes().port());
    Machine::at(
        &url,
        &folder,
        name,
        &[
            "--door",
            "kubernetes",
            "--signer",
            signer,
            "--ca-file",
            ca.to_str().unwrap(),
            "--client-cert",
            certificate_file.to_str().unwrap(),
            "--client-key",
            key_file.to_str().unwrap(),
        ],
    )
}

fn objects(site: &Site) -> Vec<Value> {
    let answer = site
        .kubernetes_admin()
        .call("GET", REQUESTS, &[], b"")
        .unwrap();
    let list: Value = serde_json::from_slice(&answer.body).unwrap();
    list["items"].as_array().unwrap().clone()
}

fn waiting(site: &Site) -> Option<String> {
    let mut objects = objects(site).into_iter();
    let object = objects.find(|object| {
        object["status"]["conditions"]
            .as_array()
            .is_none_or(Vec::is_empty)
    });
    object.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
}

#[track_caller]
fn decide(site: &Site, verb: &str) {
    wait_until("a request waits", || waiting(site).is_some());
    let (code, said) = countersign(
        site,
        &["csr", verb, &waiting(site).unwrap(), "--door", "kubernetes"],
    );
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_machine_enrols_when_an_administrator_approves_and_renews() {
    let site = Site::start(&[]);
    let machine = machine(&site, "jane", SIGNER);
    machine.expect(&["--no-wait"], 1, "waits to be approved");
    // The object of the first try is found again.
    let running = machine.start(&["--wait", "60s", "--organization", "developers"]);
    decide(&site, "approve");
    assert_eq!(running.code(), Some(0));
    assert_eq!(objects(&site).len(), 1);
    let first = fs::read(machine.certificate()).unwrap();
    let leaf = read_certificate(&first);
    assert_eq!(leaf.subject().last_common_name(), Some("jane"));
    leaf.verify_signed_by(read_certificate(site.kubernetes_ca()).spki_der())
        .unwrap();
    assert_eq!(
        (mode(&machine.key()), mode(&machine.certificate())),
        (0o600, 0o644)
    );
    assert_eq!(
        fs::read(machine.path("ca.pem")).unwrap(),
        site.kubernetes_ca()
    );
    machine.expect(&[], 0, "is valid until");

    // A renewal is another request, for the same key.
    let key = fs::read(machine.key()).unwrap();
    let running = machine.start(&["--wait", "60s", "--renew-before", "99y"]);
    decide(&site, "approve");
    assert_eq!(running.code(), Some(0));
    assert_eq!(objects(&site).len(), 2);
    assert_ne!(fs::read(machine.certificate()).unwrap(), first);
    assert_eq!(fs::read(machine.key()).unwrap(), key);
}

#[test]
fn wishes_reach_the_object() {
    let site = Site::configured(
        "signers:\n  - name: example.com/vpn\n    usages: [digital signature, server auth]\n    names: [dns]\n    lifetime: 30d\n",
        &[],
    );
    let machine = machine(&site, "vpn.example.com", "example.com/vpn");
    let running = machine.start(&[
        "--usage",
        "digital signature,server auth",
        "--expiration-seconds",
        "3600",
        "--dns-alt-name",
        "vpn2.example.com",
    ]);
    decide(&site, "approve");
    assert_eq!(running.code(), Some(0));

    let object = objects(&site).remove(0);
    assert_eq!(
        object["spec"]["usages"],
        serde_json::json!(["digital signature", "server auth"])
    );
    assert_eq!(object["spec"]["expirationSeconds"], 3600);
    // This signer has an issuer of its own, and the certificate is taken all the same.
    let leaf = read_certificate(fs::read(machine.certificate()).unwrap());
    let root = read_certificate(site.kubernetes_ca());
    assert!(leaf.verify_signed_by(root.spki_der()).is_err());
    assert!(
        leaf.alt_names()
            .iter()
            .any(|name| name.to_puppet_text() == "DNS:vpn2.example.com")
    );
}

#[test]
fn a_denial_is_told_and_another_try_is_another_object() {
    let site = Site::start(&[]);
    let machine = machine(&site, "mallory", SIGNER);
    machine.expect(&["--no-wait"], 1, "waits to be approved");
    decide(&site, "deny");
    let running = machine.start(&["--wait", "60s"]);
    decide(&site, "approve");
    assert_eq!(running.code(), Some(0));
    let names: Vec<_> = objects(&site)
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(names.iter().any(|name| name.ends_with("-2")), "{names:?}");

    let other = self::machine(&site, "eve", SIGNER);
    other.expect(&["--no-wait"], 1, "waits to be approved");
    let running = other.start(&["--wait", "60s"]);
    decide(&site, "deny");
    assert_eq!(running.code(), Some(1));
    assert!(!other.certificate().exists());
}

#[test]
fn a_fingerprint_is_compared_with_what_the_server_sends() {
    // Countersign does not send its root, and that is said.
    let site = Site::start(&[]);
    let url = format!("https://localhost:{}", site.kubernetes().port());
    let root = read_certificate(site.kubernetes_ca())
        .fingerprint()
        .to_string();
    let folder = site.folder("pinned");
    let arguments = [
        "--door",
        "kubernetes",
        "--signer",
        SIGNER,
        "--ca-fingerprint",
    ];
    let pinned = |url: &str, root: &str| {
        Machine::at(url, &folder, "jane", &[&arguments[..], &[root]].concat())
    };
    pinned(&url, &root).expect(&["--no-wait"], 1, "--ca-file");

    // Another server does.
    let now = SystemClock.now();
    let ca = Ca::root("a cluster", keys::p256_a(), now);
    let part = |call: &countersign_testkit::decider::Call| {
        let is_probe = call.path == "/version" && call.header("authorization").is_none();
        let complaint = "{\"message\": \"nobody is known here\"}";
        vec![Step::answer(
            if is_probe { 401 } else { 403 },
            "application/json",
            complaint,
        )]
    };
    let server = Decider::start(&Guard::localhost(&ca, now), part).unwrap();
    let url = format!("https://localhost:{}", server.address().port());
    let root = ca.certificate.fingerprint().to_string();
    let mut command = pinned(&url, &root).command(&["--no-wait"]);
    command.env("COUNTERSIGN_TOKEN", "a-token");
    let finished =
        countersign_testkit::deadline::run_with_deadline(command, super::DEADLINE).unwrap();
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(
        finished.stderr.contains("nobody is known here"),
        "{finished}"
    );
    // The token was sent, but only over the connection that was verified.
    let calls = server.calls();
    let bearers: Vec<_> = calls
        .iter()
        .map(|call| call.header("authorization"))
        .collect();
    assert_eq!(bearers, [None, Some("Bearer a-token")]);
    let wrong = "11".repeat(32);
    pinned(&url, &wrong).expect(&["--no-wait"], 1, "is not the authority");
    assert_eq!(server.calls().len(), 3);
}
