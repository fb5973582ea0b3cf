//! OpenShift's switch for client certificates of nodes, on a cluster that has it.

use serde_json::{Value, json};

use super::approver::ASKER;
use super::manual::KUBEADM;
use super::{CLIENT, Stage, call, node_message};

const POLICY: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: nodes}
spec:
  signers: [kubernetes.io/kube-apiserver-client-kubelet]
  rules:
    - name: renewal
      when: requester.username == request.commonName
      approve: {nodeClient: {preset: kube-controller-manager}}
    - name: client
      approve: {nodeClient: {preset: cluster-machine-approver}}
"#;
const BOOTSTRAPPER: &str =
    "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
/// The API server adds `system:authenticated`.
const GROUPS: [&str; 2] = [
    "system:serviceaccounts:openshift-machine-config-operator",
    "system:serviceaccounts",
];
const MAPS: &str = "/api/v1/namespaces/openshift-cluster-machine-approver/configmaps";
const NAME: &str = "machine-approver-config";

fn create(stage: &Stage, path: &str, object: &Value) {
    let admin = stage.api.admin().unwrap();
    let (status, answer) = call(&admin, "POST", path, Some(object));
    assert_eq!(status, 201, "{answer:#}");
}

fn switch(text: &str) -> Value {
    json!({"metadata": {"name": NAME}, "data": {"config.yaml": text}})
}

/// A new host asks, and has just been made.
fn ask(stage: &Stage, node: &str) {
    let machine = json!({
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": {"name": node, "namespace": "default"},
        "status": {"addresses": [{"type": "InternalDNS", "address": node}]},
    });
    let machines = "/apis/machine.openshift.io/v1beta1/namespaces/default/machines";
    create(stage, machines, &machine);
    stage.ask(BOOTSTRAPPER, &GROUPS, node, CLIENT, &node_message(node));
}

#[track_caller]
fn assert_waits(stage: &Stage, name: &str, why: &str) {
    let note = stage.events(name)[0]["note"].clone();
    assert!(note.as_str().unwrap().contains(why), "{note}");
    let request = stage.request(name, |_| true);
    assert_eq!(request["status"], json!({}), "{request:#}");
}

#[test]
fn the_switch_of_openshift_holds_back_new_nodes_and_nothing_else() {
    let stage = Stage::start();
    stage.allow_everything();
    stage.apply(ASKER);
    stage.apply(KUBEADM);
    stage.apply_foreign_kinds();
    let namespace = json!({"metadata": {"name": "openshift-cluster-machine-approver"}});
    create(&stage, "/api/v1/namespaces", &namespace);
    create(&stage, MAPS, &switch("nodeClientCert: on the whole, no"));
    let flags = ["--controllers=approver"];

    // What cannot be understood switches them off.
    let mut controllers = stage.with_policies(POLICY, &flags);
    ask(&stage, "worker-a");
    assert_waits(&stage, "worker-a", "cannot be understood");
    assert!(controllers.stop().unwrap().success(), "{controllers}");

    let admin = stage.api.admin().unwrap();
    let path = format!("{MAPS}/{NAME}");
    let set = |text: &str| {
        let (status, answer) = call(&admin, "PUT", &path, Some(&switch(text)));
        assert_eq!(status, 200, "{answer:#}");
    };
    set("nodeClientCert: {disabled: true}");
    let controllers = stage.with_policies(POLICY, &flags);
    ask(&stage, "worker-b");
    assert_waits(&stage, "worker-b", "machine-approver-config says so");
    // kube-controller-manager does not know the switch.
    let node = "system:node:worker-z";
    stage.ask(
        node,
        &["system:nodes"],
        "renewal",
        CLIENT,
        &node_message("worker-z"),
    );
    let approved = stage.condition("renewal", "Approved");
    assert_eq!(approved["reason"], "nodes/renewal", "{approved}");
    assert_waits(&stage, "worker-b", "machine-approver-config says so");

    // Both are decided as soon as it is on again.
    set("nodeClientCert: {disabled: false}");
    for name in ["worker-a", "worker-b"] {
        let approved = stage.condition(name, "Approved");
        assert_eq!(
            approved["reason"], "nodes/client",
            "{approved}\n{controllers}"
        );
    }
}
