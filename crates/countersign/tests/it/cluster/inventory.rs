//! A webhook in the place of Machines, with the policy of the manual.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use countersign_authority::{Clock as _, SystemClock};
use countersign_testkit::chain::Ca;
use countersign_testkit::decider::{Decider, Guard, Step};
use countersign_testkit::keys;
use serde_json::json;

use super::manual::{CLUSTER, KUBEADM, ask_to_serve, policies_of};
use super::{Stage, node_message};

/// The hosts that somebody keeps a list of, with their names and addresses.
type Hosts = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

fn decider(ca: &Ca, hosts: &Hosts) -> Decider {
    let hosts = Arc::clone(hosts);
    let part = move |call: &countersign_testkit::decider::Call| {
        let asked = call.json();
        let user = asked["user"]["name"].as_str().unwrap_or_default();
        let node = user.strip_prefix("system:node:").unwrap_or_default();
        let known = hosts.lock().unwrap().get(node).cloned();
        let names = asked["csr"]["sans"].as_array().unwrap();
        let decision = match known {
            Some(known) if names.iter().all(|name| known.iter().any(|it| name == it)) => "allow",
            Some(_) => "deny",
            None => "pend",
        };
        vec![Step::json(&call.decision(decision, &json!({})))]
    };
    Decider::start(&Guard::localhost(ca, SystemClock.now()), part).unwrap()
}

fn names(node: &str, address: &str) -> Vec<String> {
    vec![format!("DNS:{node}"), format!("IP:{address}")]
}

#[test]
fn a_webhook_knows_the_hosts() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    stage.apply(KUBEADM);
    let ca = Ca::root("inventory", keys::p256_d(), SystemClock.now());
    let hosts = Hosts::default();
    let add = |node: &str, address: &str| {
        let names = names(node, address);
        hosts.lock().unwrap().insert(node.to_owned(), names);
    };
    add("worker-a", "10.20.0.11");
    let decider = decider(&ca, &hosts);
    let bundle = stage.file("inventory-ca.pem", &ca.certificate.to_pem());
    let policy = policies_of(CLUSTER)
        .into_iter()
        .find(|text| text.contains("name: inventory"))
        .unwrap();
    let url = "url: https://inventory.example.com/decide";
    let here = format!(
        "url: https://{}/decide\n          caBundle: {}",
        decider.address(),
        bundle.display()
    );
    assert!(policy.contains(url));
    let controllers = stage.with_policies(&policy.replace(url, &here), &["--controllers=approver"]);
    let ask = |node: &str, name: &str, address: &str| {
        let message = node_message(node).dns(node).ip(address.parse().unwrap());
        ask_to_serve(&stage, &format!("system:node:{node}"), name, &message);
    };

    ask("worker-a", "known", "10.20.0.11");
    let approved = stage.condition("known", "Approved");
    assert_eq!(approved["reason"], "inventory/listed", "{approved}");
    let asked = decider.calls()[0].json();
    assert_eq!(asked["signer"], "kubernetes.io/kubelet-serving");
    assert_eq!(asked["user"]["name"], "system:node:worker-a");
    let groups = json!(["system:nodes", "system:authenticated"]);
    assert_eq!(asked["user"]["groups"], groups);
    assert_eq!(asked["usages"], json!(["digital signature", "server auth"]));
    assert_eq!(asked["csr"]["sans"], json!(names("worker-a", "10.20.0.11")));

    // It says no to another address, and is not asked about what the signer would refuse.
    ask("worker-a", "alien", "10.20.0.99");
    stage.condition("alien", "Denied");
    let before = decider.calls().len();
    let odd = node_message("worker-a")
        .dns("worker-a")
        .email("a@example.com");
    ask_to_serve(&stage, "system:node:worker-a", "odd", &odd);
    stage.events("odd");
    assert_eq!(decider.calls().len(), before, "{controllers}");

    // A host that is added to the list is approved by itself.
    ask("worker-b", "later", "10.20.0.12");
    let note = stage.events("later")[0]["note"].clone();
    assert!(
        note.as_str().unwrap().contains("leaves it to others"),
        "{note}"
    );
    add("worker-b", "10.20.0.12");
    stage.condition("later", "Approved");
}
