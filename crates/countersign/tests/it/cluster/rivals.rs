//! Two keys of one node at the same moment: only one of them is approved (`X12`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::keys;
use serde_json::json;

use super::management::machine;
use super::manual::KUBEADM;
use super::{CSRS, PATIENCE, Stage, call, condition, node_message};

const POLICY: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: nodes}
spec:
  signers: [kubernetes.io/kubelet-serving]
  rules: [{name: serving, approve: {nodeServing: {preset: hardened}}}]
"#;
/// The more, the surer that two are judged at the same moment.
const NODES: u8 = 20;

#[test]
fn of_two_keys_that_are_judged_at_once_one_is_approved() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    stage.apply(KUBEADM);
    stage.apply_foreign_kinds();
    let admin = stage.api.admin().unwrap();
    for number in 1..=NODES {
        let (node, address) = (format!("n{number}"), format!("10.20.0.{number}"));
        let path = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines";
        let (status, answer) = call(&admin, "POST", path, Some(&machine(&node, &address)));
        assert_eq!(status, 201, "{answer:#}");
        let user = format!("system:node:{node}");
        let kubelet = stage.api.client(&user, &["system:nodes"]).unwrap();
        let message = node_message(&node).dns(&node).ip(address.parse().unwrap());
        for (key, pem) in [
            ("b", message.sign_pem(keys::p256_b())),
            ("c", message.sign_pem(keys::p256_c())),
        ] {
            let object = json!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {"name": format!("{node}-{key}")},
                "spec": {
                    "request": BASE64.encode(pem),
                    "signerName": "kubernetes.io/kubelet-serving",
                    "usages": ["digital signature", "server auth"],
                },
            });
            let (status, answer) = call(&kubelet, "POST", CSRS, Some(&object));
            assert_eq!(status, 201, "{answer:#}");
        }
    }
    let controllers = stage.with_policies(POLICY, &["--controllers=approver"]);
    let approved = || -> Vec<String> {
        let all = call(&admin, "GET", CSRS, None).1;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let approved = items
            .iter()
            .filter(|it| condition(it, "Approved").is_some());
        let name = |it: &serde_json::Value| it["metadata"]["name"].as_str().unwrap().to_owned();
        approved.map(name).collect()
    };
    let waits = |line: &&str| line.contains("waiting") && line.contains("X12");
    let all_wait = |log: &str| log.lines().filter(waits).count() >= usize::from(NODES);
    assert!(controllers.wait_for_log(all_wait), "{controllers}");
    let found = ask_again(PATIENCE, || {
        (approved().len() >= usize::from(NODES)).then(&approved)
    });
    let mut nodes: Vec<String> = found
        .unwrap_or_else(|| panic!("{controllers}"))
        .iter()
        .map(|name| name.split('-').next().unwrap().to_owned())
        .collect();
    nodes.dedup();
    assert_eq!(nodes.len(), usize::from(NODES), "{controllers}");
    assert_eq!(approved().len(), usize::from(NODES), "{controllers}");
}
