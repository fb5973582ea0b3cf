//! What becomes of a certificate between its approval and its request: nothing is signed for an approval that the API server
//! did not take, and a certificate that it did not take is revoked.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_authority::IssuerId;
use countersign_authority::store::LedgerReads as _;
use countersign_store::SqliteStore;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

use super::approver::{ASKER, KUBELETS};
use super::{CLIENT, CSRS, PATIENCE, Stage, call, condition, node_message};
use crate::installation::run;
use crate::site::read_crl;

/// Approver and signer in one process.
fn both(stage: &Stage) -> ServerProcess {
    let signing = stage.signing_flags();
    let mut flags = vec![
        "--preset=kube-controller-manager",
        "--controllers=approver,signer",
        "--leader-elect=false",
    ];
    flags.extend(signing.iter().map(String::as_str));
    stage.controllers(&flags)
}

fn ask(stage: &Stage, name: &str) {
    let groups = ["system:bootstrappers"];
    stage.ask("joiner", &groups, name, CLIENT, &node_message(name));
}

fn is_signed(request: &Value) -> bool {
    request["status"]["certificate"].is_string()
}

/// How many certificates its CRL lists.
fn revoked(stage: &Stage) -> usize {
    let file = stage
        .folder
        .path()
        .join("data/issuers/kubernetes/ca_crl.pem");
    read_crl(fs::read(file).unwrap()).entries().len()
}

fn log_is_whole(stage: &Stage) {
    let data = stage.folder.path().join("data");
    let data = data.to_str().unwrap();
    let verified = run(&["audit", "verify", "--offline", "--data", data]);
    assert!(verified.success(), "{verified}");
}

/// Has the API server refuse writes to a part of requests whose names begin so, until it is deleted.
fn refuse(stage: &Stage, admin: &HttpsClient, subresource: &str, prefix: &str) {
    let unless = format!("!object.metadata.name.startsWith('{prefix}')");
    refuse_where(stage, admin, subresource, prefix, &unless);
}

/// The same for writes of which this expression is not true.
fn refuse_where(stage: &Stage, admin: &HttpsClient, subresource: &str, prefix: &str, unless: &str) {
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "refuse"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["certificates.k8s.io"],
                "apiVersions": ["v1"],
                "operations": ["UPDATE"],
                "resources": [format!("certificatesigningrequests/{subresource}")],
            }]},
            "validations": [{
                "expression": unless,
                "message": "refused by the test",
            }],
        },
    });
    let (status, answer) = call(admin, "POST", path, Some(&policy));
    assert_eq!(status, 201, "{answer:#}");
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "refuse"},
        "spec": {"policyName": "refuse", "validationActions": ["Deny"]},
    });
    let (status, answer) = call(admin, "POST", BINDINGS, Some(&binding));
    assert_eq!(status, 201, "{answer:#}");
    // It takes a moment to be in force.
    let probe = format!("{prefix}-probe");
    let signer = "example.com/nobody";
    stage.ask("joiner", &[], &probe, signer, &node_message("probe"));
    let path = format!("{CSRS}/{probe}");
    let refused = ask_again(PATIENCE, || {
        let (_, mut object) = call(admin, "GET", &path, None);
        if subresource == "status" {
            object["status"]["certificate"] = json!(BASE64.encode(stage.api.ca_pem()));
        }
        let (status, answer) = call(
            admin,
            "PUT",
            &format!("{path}/{subresource}"),
            Some(&object),
        );
        let is_by_policy = answer["message"]
            .as_str()
            .is_some_and(|message| message.contains("refused by the test"));
        (status == 422 && is_by_policy).then_some(())
    });
    assert!(refused.is_some(), "the policy is not in force");
}

fn touch(admin: &HttpsClient, name: &str, label: &str) {
    let patch = json!({"metadata": {"labels": {"touched": label}}}).to_string();
    let kind = [("content-type", "application/merge-patch+json")];
    let path = format!("{CSRS}/{name}");
    let patched = admin.call("PATCH", &path, &kind, patch.as_bytes());
    assert_eq!(patched.unwrap().status, 200);
}

#[test]
fn nothing_is_signed_for_an_approval_that_is_refused() {
    let stage = Stage::start();
    stage.allow_everything();
    stage.apply(ASKER);
    stage.apply(KUBELETS);
    let admin = stage.api.admin().unwrap();
    refuse(&stage, &admin, "approval", "node");
    let mut controllers = both(&stage);
    ask(&stage, "node-a");
    let is_refused = |log: &str| log.contains("refused by the test");
    assert!(controllers.wait_for_log(is_refused), "{controllers}");
    // One that nothing is refused to: whatever was under way with the other is over by then.
    ask(&stage, "other");
    stage.request("other", is_signed);
    let request = stage.request("node-a", |_| true);
    assert_eq!(request["status"], json!({}), "{controllers}");
    assert_eq!(controllers.log().matches("certificate issued").count(), 1);

    let deleted = call(&admin, "DELETE", &format!("{BINDINGS}/refuse"), None);
    assert_eq!(deleted.0, 200);
    // The policy is in force for a moment longer.
    let mut turn = 0;
    let signed = ask_again(PATIENCE, || {
        turn += 1;
        touch(&admin, "node-a", &turn.to_string());
        let (_, request) = call(&admin, "GET", &format!("{CSRS}/node-a"), None);
        is_signed(&request).then_some(())
    });
    assert!(signed.is_some(), "{controllers}");
    assert_eq!(controllers.log().matches("certificate issued").count(), 2);
    assert_eq!(revoked(&stage), 0);
    assert!(controllers.stop().unwrap().success(), "{controllers}");
    log_is_whole(&stage);
}

#[test]
fn a_certificate_that_is_refused_is_revoked() {
    let stage = Stage::start();
    stage.allow_everything();
    stage.apply(ASKER);
    stage.apply(KUBELETS);
    let admin = stage.api.admin().unwrap();
    refuse(&stage, &admin, "status", "node");
    let mut controllers = both(&stage);
    ask(&stage, "node-a");
    let is_back = |log: &str| log.contains("it is taken back");
    assert!(controllers.wait_for_log(is_back), "{controllers}");
    ask(&stage, "other");
    stage.request("other", is_signed);
    assert_eq!(revoked(&stage), 1, "{controllers}");
    let events = stage.events("node-a");
    assert!(
        events.iter().any(|event| {
            let note = event["note"].as_str().unwrap();
            note.starts_with("W03: would get its certificate, but the API server refuses that: ")
                && event["reason"] == "SigningPending"
        }),
        "{events:#?}"
    );
    // The condition is refused, too, until the policy is gone.
    let request = stage.request("node-a", |_| true);
    assert!(condition(&request, "Approved").is_some(), "{request:#}");
    assert!(condition(&request, "Failed").is_none(), "{request:#}");
    assert!(!is_signed(&request), "{request:#}");
    let deleted = call(&admin, "DELETE", &format!("{BINDINGS}/refuse"), None);
    assert_eq!(deleted.0, 200);
    let mut turn = 0;
    let failed = ask_again(PATIENCE, || {
        turn += 1;
        touch(&admin, "node-a", &turn.to_string());
        let (_, request) = call(&admin, "GET", &format!("{CSRS}/node-a"), None);
        condition(&request, "Failed")
    });
    let failed = failed.unwrap_or_else(|| panic!("{controllers}"));
    assert_eq!(failed["reason"], "SignerValidationFailure");
    let message = failed["message"].as_str().unwrap();
    assert!(message.ends_with("has been revoked"), "{message}");
    assert_eq!(controllers.log().matches("certificate issued").count(), 2);
    assert!(controllers.stop().unwrap().success(), "{controllers}");
    log_is_whole(&stage);
}

#[test]
fn a_request_whose_certificate_alone_is_refused_has_failed() {
    let stage = Stage::start();
    stage.allow_everything();
    stage.apply(ASKER);
    stage.apply(KUBELETS);
    let admin = stage.api.admin().unwrap();
    refuse_where(
        &stage,
        &admin,
        "status",
        "node",
        "!has(object.status.certificate) || !object.metadata.name.startsWith('node')",
    );
    let mut controllers = both(&stage);
    ask(&stage, "node-a");
    let failed = stage.condition("node-a", "Failed");
    assert_eq!(failed["reason"], "CertificateRefused");
    let message = failed["message"].as_str().unwrap();
    let begin = "the API server refused its certificate, which is revoked: ";
    assert!(message.starts_with(begin), "{message}");
    assert!(message.contains("refused by the test"), "{message}");
    assert_eq!(revoked(&stage), 1, "{controllers}");
    assert!(controllers.stop().unwrap().success(), "{controllers}");
    log_is_whole(&stage);
}

#[test]
fn a_missing_permission_to_write_certificates_is_told_and_what_is_deleted_then_is_revoked() {
    let stage = Stage::start();
    let roles = Stage::roles_of_the_manual();
    let status = "resources: [certificatesigningrequests/status], verbs: [update]";
    let without = roles.replace(status, &status.replace("update", "get"));
    assert_ne!(without, roles);
    stage.apply(&without);
    stage.apply(ASKER);
    stage.apply(KUBELETS);
    let admin = stage.api.admin().unwrap();
    let mut controllers = both(&stage);
    for name in ["kept", "gone"] {
        ask(&stage, name);
        let events = stage.events(name);
        let [event] = events.as_slice() else {
            panic!("{events:#?}")
        };
        assert_eq!(event["reason"], "SigningPending");
        assert_eq!(event["action"], "Sign");
        assert_eq!(event["reportingController"], "countersign.dev/signer");
        let note = event["note"].as_str().unwrap();
        let begin = "W02: would get its certificate, but that is forbidden: ";
        assert!(note.starts_with(begin), "{note}");
    }
    let (status, _) = call(&admin, "DELETE", &format!("{CSRS}/gone"), None);
    assert_eq!(status, 200);
    let is_back = |log: &str| log.contains("it is taken back");
    assert!(controllers.wait_for_log(is_back), "{controllers}");

    stage.apply(&roles);
    stage.request("kept", is_signed);
    let listed = ask_again(PATIENCE, || (revoked(&stage) == 1).then_some(()));
    assert!(listed.is_some(), "{controllers}");
    assert_eq!(controllers.log().matches("certificate issued").count(), 2);
    assert!(controllers.stop().unwrap().success(), "{controllers}");
    log_is_whole(&stage);
}

/// Killed while approvals and certificates are being written, again and again, and at least once between intent and
/// signature.
#[test]
fn what_a_killed_process_had_begun_is_signed_once_it_is_approved() {
    let stage = Stage::start();
    stage.allow_everything();
    stage.apply(ASKER);
    stage.apply(KUBELETS);
    let admin = stage.api.admin().unwrap();
    let signed = || {
        let all = call(&admin, "GET", CSRS, None).1;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        items.iter().filter(|it| is_signed(it)).count()
    };
    let mut controllers = both(&stage);
    let mut names: Vec<String> = Vec::new();
    let mut interrupted = 0;
    for turn in 0..MAX_KILLS {
        if turn >= MIN_KILLS && interrupted > 0 {
            break;
        }
        let fresh: Vec<String> = (0..12).map(|it| format!("node-{turn}-{it}")).collect();
        for name in &fresh {
            ask(&stage, name);
        }
        // Each time at another point of the work; every second time with the last ones still at its beginning.
        if turn % 2 == 0 {
            let some = names.len() + turn % fresh.len() + 1;
            let begun = ask_again(PATIENCE, || (signed() >= some).then_some(()));
            assert!(begun.is_some(), "{controllers}");
        }
        controllers.kill9();
        interrupted += read(&stage, async |store| {
            store.open_intents().await.unwrap().len()
        });
        names.extend(fresh);
        controllers = both(&stage);
    }
    assert!(interrupted > 0, "no intent was open in {MAX_KILLS} kills");
    for name in &names {
        let request = stage.request(name, is_signed);
        assert!(condition(&request, "Approved").is_some(), "{request:#}");
        assert!(condition(&request, "Failed").is_none(), "{request:#}");
    }
    assert_eq!(revoked(&stage), 0);
    assert!(controllers.stop().unwrap().success(), "{controllers}");
    let issued = read(&stage, async |store| {
        assert!(store.open_intents().await.unwrap().is_empty());
        let issuer = IssuerId::parse("kubernetes").unwrap();
        let all = store.ledger(&issuer, None, usize::MAX >> 1).await.unwrap();
        all.len()
    });
    assert_eq!(issued, names.len(), "one certificate for each request");
    log_is_whole(&stage);
}

/// What the ledger says, with the process gone.
fn read<T>(stage: &Stage, ask: impl AsyncFnOnce(&SqliteStore) -> T) -> T {
    let file = stage.folder.path().join("data/countersign.db");
    let store = SqliteStore::open(&file).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(ask(&store))
}

const MIN_KILLS: usize = 5;
const MAX_KILLS: usize = 40;
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
