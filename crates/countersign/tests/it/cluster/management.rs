//! Machines live in a cluster of their own, as where one cluster manages many.

use serde_json::{Value, json};

use super::manual::ask_to_serve;
use super::{Stage, call, node_message};

const SERVING_POLICY: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: nodes}
spec:
  signers: [kubernetes.io/kubelet-serving]
  rules: [{name: serving, approve: {nodeServing: {preset: hardened}}}]
"#;
const MACHINES: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines";

pub(super) fn machine(node: &str, address: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {"name": node, "namespace": "default"},
        "status": {
            "nodeRef": {"name": node},
            "addresses": [
                {"type": "InternalIP", "address": address}, {"type": "InternalDNS", "address": node},
            ],
        },
    })
}

#[test]
fn machines_of_another_cluster_wake_the_requests_of_this_one() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    let management = Stage::start();
    management.apply_foreign_kinds();
    // Machines beside the requests are none: whoever may write them here is not whoever manages nodes.
    stage.apply_foreign_kinds();
    let create = |at: &Stage, object: &Value| {
        let admin = at.api.admin().unwrap();
        let (status, answer) = call(&admin, "POST", MACHINES, Some(object));
        assert_eq!(status, 201, "{answer:#}");
    };
    create(&stage, &machine("worker-a", "10.20.0.11"));
    create(&management, &machine("worker-b", "10.20.0.12"));

    let kubeconfig = management.api.admin_kubeconfig();
    let flags = [
        "--controllers=approver",
        "--management-kubeconfig",
        kubeconfig.to_str().unwrap(),
    ];
    let controllers = stage.with_policies(SERVING_POLICY, &flags);
    let ask = |node: &str, address: &str| {
        let message = node_message(node).dns(node).ip(address.parse().unwrap());
        ask_to_serve(&stage, &format!("system:node:{node}"), node, &message);
    };
    ask("worker-b", "10.20.0.12");
    stage.condition("worker-b", "Approved");
    ask("worker-a", "10.20.0.11");
    let note = stage.events("worker-a")[0]["note"].clone();
    assert!(note.as_str().unwrap().contains("worker-a"), "{note}");
    let waits = stage.request("worker-a", |_| true);
    assert_eq!(waits["status"], json!({}), "{waits:#}\n{controllers}");

    create(&management, &machine("worker-a", "10.20.0.11"));
    let approved = stage.condition("worker-a", "Approved");
    assert_eq!(approved["reason"], "nodes/serving", "{approved}");
}
