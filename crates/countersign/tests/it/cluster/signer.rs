//! The signer beside kube-controller-manager's: the same approved requests, and certificates compared field by field.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_testkit::api_server::{ApiServer, ApiServerSettings, Controllers};
use countersign_testkit::deadline::ask_again;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

use super::{CLIENT, CSRS, PATIENCE, Stage, call, condition};
use crate::installation::run;
use crate::kubernetes_differential::{certificate, requests};

pub(super) const USER: &str = "kubernetes.io/kube-apiserver-client";
const SERVING: &str = "kubernetes.io/kubelet-serving";

/// A request: name, message, signer, usages, seconds.
pub(super) type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    Option<u32>,
);

pub(super) const AS_CLIENT: &[&str] = &["digital signature", "client auth"];
const AS_RSA_CLIENT: &[&str] = &["digital signature", "key encipherment", "client auth"];
const AS_SERVER: &[&str] = &["digital signature", "server auth"];
const AS_RSA_SERVER: &[&str] = &["digital signature", "key encipherment", "server auth"];

const ROWS: [Row; 18] = [
    ("user", "client", USER, AS_CLIENT, None),
    ("user-short", "client", USER, AS_CLIENT, Some(600)),
    ("user-day", "client", USER, AS_CLIENT, Some(86_400)),
    ("user-long", "client", USER, AS_CLIENT, Some(2_000_000_000)),
    ("user-rsa", "RSA 2048", USER, AS_RSA_CLIENT, None),
    ("user-p384", "P-384", USER, AS_CLIENT, None),
    ("user-ed25519", "Ed25519", USER, AS_CLIENT, None),
    ("user-text", "text around", USER, AS_CLIENT, None),
    ("user-only-auth", "client", USER, &["client auth"], None),
    ("node-rsa", "node RSA", CLIENT, AS_RSA_CLIENT, None),
    ("serving-names", "serving", SERVING, AS_SERVER, None),
    (
        "serving-ip",
        "serving IP",
        SERVING,
        AS_RSA_SERVER,
        Some(86_400),
    ),
    // What can never be signed.
    ("user-serving", "client", USER, AS_SERVER, None),
    ("user-encipher", "client", USER, &["key encipherment"], None),
    ("node-user", "client", CLIENT, AS_CLIENT, None),
    ("serving-user", "client", SERVING, AS_SERVER, None),
    ("serving-client", "node RSA", SERVING, AS_CLIENT, None),
    ("node-serving", "node RSA", CLIENT, AS_SERVER, None),
];

fn object((name, message, signer, usages, seconds): Row) -> Value {
    let messages = requests::all();
    let mut object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": BASE64.encode(&messages[message]),
            "signerName": signer,
            "usages": usages,
        },
    });
    if let Some(seconds) = seconds {
        object["spec"]["expirationSeconds"] = json!(seconds);
    }
    object
}

pub(super) fn create_and_approve(admin: &HttpsClient, row: Row) {
    let (status, mut made) = call(admin, "POST", CSRS, Some(&object(row)));
    assert_eq!(status, 201, "{made:#}");
    made["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "by the test"}]);
    let path = format!("{CSRS}/{}/approval", row.0);
    let (status, answer) = call(admin, "PUT", &path, Some(&made));
    // kube-controller-manager's own approver may have been faster.
    assert!(matches!(status, 200 | 409), "{answer:#}");
}

/// What became of a request, without what must differ.
fn settled(admin: &HttpsClient, name: &str) -> Value {
    let mut last = Value::Null;
    let found = ask_again(PATIENCE, || {
        last = call(admin, "GET", &format!("{CSRS}/{name}"), None).1;
        let is_settled =
            !last["status"]["certificate"].is_null() || condition(&last, "Failed").is_some();
        is_settled.then(|| last.clone())
    });
    let found = found.unwrap_or_else(|| panic!("{name}: {last:#}"));
    let mut members = found["status"].as_object().unwrap().clone();
    certificate::open(&mut members);
    let conditions: Vec<Value> = found["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["type"] != "Approved")
        .map(|it| json!([it["type"], it["status"], it["reason"], it["message"]]))
        .collect();
    json!({"certificate": members.get("certificate"), "conditions": conditions})
}

/// The signer alone, with the CA of the cluster.
pub(super) fn signer(stage: &Stage) -> ServerProcess {
    let signing = stage.signing_flags();
    let signing: Vec<&str> = signing.iter().map(String::as_str).collect();
    let alone = ["--controllers", "signer", "--leader-elect=false"];
    stage.controllers(&[&alone[..], &signing].concat())
}

#[test]
fn certificates_are_those_of_kube_controller_manager() {
    let ours = Stage::start();
    ours.apply_roles_of_the_manual();
    let folder = tempfile::tempdir().unwrap();
    let settings = ApiServerSettings {
        controllers: Controllers::Certificates(Vec::new()),
        ..ApiServerSettings::default()
    };
    let theirs = ApiServer::start(&folder.path().join("api"), &settings).unwrap();
    let controllers = signer(&ours);
    let (our_admin, their_admin) = (ours.api.admin().unwrap(), theirs.admin().unwrap());
    for row in ROWS {
        create_and_approve(&our_admin, row);
        create_and_approve(&their_admin, row);
    }
    let mut issued = 0;
    for (name, ..) in ROWS {
        let (own, reference) = (settled(&our_admin, name), settled(&their_admin, name));
        assert_eq!(own, reference, "{name}\n{controllers}");
        issued += usize::from(!own["certificate"].is_null());
    }
    assert_eq!(issued, 12, "the others can never be signed");
    drop(controllers);
    // Every one of them is in the ledger with its decision, and the log of acts holds.
    let data = ours.folder.path().join("data");
    let verified = run(&[
        "audit",
        "verify",
        "--offline",
        "--data",
        data.to_str().unwrap(),
    ]);
    assert!(verified.success(), "{verified}");
}

#[test]
fn a_signer_that_was_killed_signs_each_request_once() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    let admin = stage.api.admin().unwrap();
    let mut controllers = signer(&stage);
    let rows: Vec<Row> = ["a", "b", "c", "d", "e", "f"]
        .map(|name| (name, "client", USER, AS_CLIENT, None))
        .to_vec();
    for (place, row) in rows.iter().enumerate() {
        create_and_approve(&admin, *row);
        if place % 2 == 1 {
            controllers.kill9();
            controllers = signer(&stage);
        }
    }
    for (name, ..) in &rows {
        let own = settled(&admin, name);
        assert!(!own["certificate"].is_null(), "{name}: {own:#}");
    }
    controllers.stop().unwrap();
    let data = stage.folder.path().join("data");
    let verified = run(&[
        "audit",
        "verify",
        "--offline",
        "--data",
        data.to_str().unwrap(),
    ]);
    assert!(verified.success(), "{verified}");
}

#[test]
fn a_signer_without_anything_to_sign_for_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("cluster.yaml");
    crate::site::install(&config, "cluster: {resources: {enabled: false}}\n", 0o600);
    let refused = run(&[
        "cluster",
        "--controllers",
        "signer",
        "--leader-elect=false",
        "--config",
        config.to_str().unwrap(),
    ]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused.stderr.contains("--cluster-signing-cert-file"),
        "{refused}"
    );
}
