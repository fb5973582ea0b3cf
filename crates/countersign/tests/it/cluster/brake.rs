//! Far more requests wait than there are hosts: what is held up, and what is not.

use countersign_testkit::keys;
use serde_json::{Value, json};

use super::management::machine;
use super::manual::{KUBEADM, ask_to_serve};
use super::{BASE64, CSRS, Stage, call, condition, node_message};
use base64::Engine as _;

/// More than may wait beside one Machine.
const FLOOD: usize = 105;

fn policy(options: &str) -> String {
    format!(
        r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {{name: nodes}}
spec:
  signers: [kubernetes.io/kubelet-serving]
  rules: [{{name: serving, approve: {{nodeServing: {options}}}}}]
"#
    )
}

/// One node asks again and again for a certificate that it does not get.
fn flood(stage: &Stage) {
    let client = stage.api.client("system:node:noisy", &["system:nodes"]);
    let mut connection = client.unwrap().connect().unwrap();
    let message = node_message("noisy").ip("10.20.0.66".parse().unwrap());
    for number in 0..FLOOD {
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": format!("noisy-{number}")},
            "spec": {
                "request": BASE64.encode(message.sign_pem(keys::p256_c())),
                "signerName": "kubernetes.io/kubelet-serving",
                "usages": ["digital signature", "server auth"],
            },
        });
        let headers = [("content-type", "application/json")];
        let body = object.to_string();
        let answer = connection.call("POST", CSRS, &headers, body.as_bytes());
        assert_eq!(answer.unwrap().status, 201);
    }
}

fn quiet(stage: &Stage) {
    let message = node_message("quiet")
        .dns("quiet")
        .ip("10.20.0.12".parse().unwrap());
    ask_to_serve(stage, "system:node:quiet", "quiet", &message);
}

fn prepared() -> Stage {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    stage.apply(KUBEADM);
    stage.apply_foreign_kinds();
    let admin = stage.api.admin().unwrap();
    let path = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines";
    let (status, answer) = call(&admin, "POST", path, Some(&machine("quiet", "10.20.0.12")));
    assert_eq!(status, 201, "{answer:#}");
    stage
}

#[test]
fn a_flood_holds_up_its_sender_and_nobody_else() {
    let stage = prepared();
    flood(&stage);
    let controllers =
        stage.with_policies(&policy("{preset: hardened}"), &["--controllers=approver"]);
    let is_braked = |log: &str| log.contains("G08");
    assert!(controllers.wait_for_log(is_braked), "{controllers}");
    quiet(&stage);
    stage.condition("quiet", "Approved");
    let list = call(&stage.api.admin().unwrap(), "GET", CSRS, None).1;
    let is_open = |item: &&Value| condition(item, "Approved").is_none();
    let open = list["items"].as_array().unwrap().iter().filter(is_open);
    assert_eq!(open.count(), FLOOD, "{controllers}");
}

/// cluster-machine-approver stops for everybody. Unlike it, work goes on by itself as soon as the flood is gone.
#[test]
fn a_stop_for_everybody_ends_with_its_cause() {
    let stage = prepared();
    flood(&stage);
    let exact = policy("{preset: cluster-machine-approver, compat: exact}");
    let controllers = stage.with_policies(&exact, &["--controllers=approver"]);
    quiet(&stage);
    let note = stage.events("quiet")[0]["note"].clone();
    assert!(note.as_str().unwrap().contains("requests wait"), "{note}");
    let waits = stage.request("quiet", |_| true);
    assert_eq!(condition(&waits, "Approved"), None, "{controllers}");
    let admin = stage.api.admin().unwrap();
    for number in 0..FLOOD {
        let path = format!("{CSRS}/noisy-{number}");
        assert_eq!(call(&admin, "DELETE", &path, None).0, 200);
    }
    stage.condition("quiet", "Approved");
}
