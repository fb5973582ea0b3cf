//! The certificates of nodes, with the code by which kubelets get them: from a bootstrap token to rotation, as kubeadm
//! arranges it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_pki::oid;
use countersign_testkit::client_go::Kubelet;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::json_lines::{JsonLines, LineFault};
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::{Writer, holder, kubectl_as, well};
use crate::installation::run;
use crate::site::{Site, kubernetes_request};

#[test]
fn a_node_bootstraps_and_rotates_once_the_roles_are_bound() {
    let site = Site::start(&[]);
    let (kubelet, writer) = (node(&site, "n1"), Writer::new(&site));
    // Nobody who merely holds a token may even ask.
    let stranger = kubectl_as(&site, &kubelet.bootstrap_kubeconfig);
    let asked = stranger.run_with_input(
        &["create", "-f", "-"],
        &kubernetes_request("odd").to_string(),
    );
    assert!(
        asked.as_ref().unwrap().stderr.contains("(Forbidden)"),
        "{asked:?}"
    );

    bind(
        &site,
        "kubeadm:kubelet-bootstrap",
        "system:node-bootstrapper",
        BOOTSTRAPPERS,
    );
    let mut running = kubelet
        .certificate_manager(&["--count=3", "--aged", "--timeout=3m"])
        .unwrap();
    let request = one_pending(&writer);
    assert!(
        request["spec"]["username"]
            .as_str()
            .unwrap()
            .starts_with("system:bootstrap:")
    );
    let groups = request["spec"]["groups"].as_array().unwrap();
    assert!(groups.contains(&json!(BOOTSTRAPPERS)), "{groups:?}");
    assert_eq!(request["metadata"]["generateName"], "csr-");
    stays_pending(&site, &mut running, &request);

    bind(
        &site,
        "kubeadm:node-autoapprove-bootstrap",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        BOOTSTRAPPERS,
    );
    let first = running.read().unwrap();
    assert_eq!(first["user"], "system:node:n1");
    assert_eq!(first["subject"], "CN=system:node:n1,O=system:nodes");
    let object = writer.get(request["metadata"]["name"].as_str().unwrap());
    let condition = &object["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("Approved"), &json!("AutoApproved")),
        "{object}"
    );

    // The node asks again under its own name, which nobody has bound yet.
    let request = one_pending(&writer);
    assert_eq!(request["spec"]["username"], "system:node:n1");
    stays_pending(&site, &mut running, &request);
    bind(
        &site,
        "kubeadm:node-autoapprove-certificate-rotation",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "system:nodes",
    );
    let (second, third) = (running.read().unwrap(), running.read().unwrap());
    for rotated in [&second, &third] {
        assert_eq!(rotated["user"], "system:node:n1");
    }
    assert_ne!(first["serial"], second["serial"]);
    assert_ne!(second["serial"], third["serial"]);
    let (_, status) = running.read_to_end().unwrap();
    assert!(status.success());
}

#[test]
fn a_node_bootstraps_under_the_name_of_its_request() {
    let site = Site::start(&[]);
    bind_all(&site);
    let (kubelet, writer) = (node(&site, "n2"), Writer::new(&site));
    let mut running = kubelet.bootstrap_named(&["--timeout=2m"]).unwrap();
    assert_eq!(running.read().unwrap()["user"], "system:node:n2");
    let list = writer.list();
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("node-csr-"), "{name}");
    assert_eq!(name.len(), "node-csr-".len() + 43, "{name}");
}

#[test]
fn a_nodes_serving_certificate_waits_for_a_person() {
    let site = Site::start(&[]);
    bind_all(&site);
    let (kubelet, writer) = (node(&site, "n3"), Writer::new(&site));
    let mut client = kubelet
        .certificate_manager(&["--count=1", "--timeout=2m"])
        .unwrap();
    client.read().unwrap();
    let mut serving = kubelet
        .serving("n3.example.com,192.0.2.3", &["--timeout=2m"])
        .unwrap();
    let request = one_pending(&writer);
    assert_eq!(
        request["spec"]["signerName"],
        "kubernetes.io/kubelet-serving"
    );
    assert_eq!(request["spec"]["username"], "system:node:n3");
    let name = request["metadata"]["name"].as_str().unwrap();
    well(&site.kubectl(), &["certificate", "approve", name], "");
    let line = serving.read().unwrap();
    assert_eq!(line["names"], json!(["n3.example.com", "192.0.2.3"]));
    assert_eq!(line["subject"], "CN=system:node:n3,O=system:nodes");
}

#[test]
fn a_node_asks_for_itself_alone() {
    let site = Site::start(&[]);
    bind_all(&site);
    let kubelet = node(&site, "n4");
    let mut client = kubelet
        .certificate_manager(&["--count=1", "--timeout=2m"])
        .unwrap();
    client.read().unwrap();
    let kubectl = kubectl_as(&site, &kubelet.kubeconfig());
    let asks = |name: &str, signer: &str, usage: &str| {
        let pem = CsrBuilder::without_subject()
            .organization("system:nodes")
            .name(
                &oid::COMMON_NAME,
                0x0c,
                format!("system:node:{name}").as_bytes(),
            )
            .dns("n4.example.com")
            .sign_pem(keys::p256_c());
        let mut object = kubernetes_request(&format!("{name}-{}", signer.len()));
        object["spec"] = json!({
            "request": STANDARD.encode(pem),
            "signerName": signer,
            "usages": ["digital signature", usage],
        });
        kubectl
            .run_with_input(&["create", "-f", "-"], &object.to_string())
            .unwrap()
    };
    for (signer, usage) in [
        ("kubernetes.io/kubelet-serving", "server auth"),
        ("kubernetes.io/kube-apiserver-client-kubelet", "client auth"),
    ] {
        let refused = asks("n5", signer, usage);
        let told = "can only create a node CSR with CN=system:node:n4";
        assert!(refused.stderr.contains("(Forbidden)"), "{refused}");
        assert!(refused.stderr.contains(told), "{refused}");
        let own = asks("n4", signer, usage);
        assert!(own.success(), "{own}");
    }
}

/// A node that has a token and nothing else.
fn node(site: &Site, name: &str) -> Kubelet {
    let data = site.data();
    let minted = run(&[
        "token",
        "create",
        "--bootstrap",
        "--group",
        BOOTSTRAPPERS,
        "--data",
        data.to_str().unwrap(),
    ]);
    assert!(minted.success(), "{minted}");
    Kubelet {
        node: name.to_owned(),
        bootstrap_kubeconfig: holder(site, minted.stdout.trim()),
        folder: site.folder(name),
    }
}

/// What `kubeadm init` binds.
fn bind_all(site: &Site) {
    bind(
        site,
        "kubeadm:kubelet-bootstrap",
        "system:node-bootstrapper",
        BOOTSTRAPPERS,
    );
    let role = "system:certificates.k8s.io:certificatesigningrequests";
    bind(
        site,
        "kubeadm:node-autoapprove-bootstrap",
        &format!("{role}:nodeclient"),
        BOOTSTRAPPERS,
    );
    bind(
        site,
        "kubeadm:node-autoapprove-certificate-rotation",
        &format!("{role}:selfnodeclient"),
        "system:nodes",
    );
}

fn bind(site: &Site, name: &str, role: &str, group: &str) {
    let api = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{api}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": api, "kind": "Group", "name": group}],
    });
    well(&site.kubectl(), &["apply", "-f", "-"], &binding.to_string());
}

/// The one request that nobody has decided on, when there is one.
fn one_pending(writer: &Writer) -> Value {
    let pending = || {
        let list = writer.list();
        let items = list["items"].as_array().unwrap();
        let is_pending = |item: &&Value| item["status"]["conditions"].is_null();
        items.iter().find(is_pending).cloned()
    };
    ask_again(Duration::from_secs(60), pending).expect("a request")
}

/// The built-in policy has been asked and did not approve, and nothing comes of it.
fn stays_pending(site: &Site, running: &mut JsonLines, request: &Value) {
    let name = request["metadata"]["name"].as_str().unwrap();
    let data = site.data();
    let explained = run(&["csr", "explain", name, "--data", data.to_str().unwrap()]);
    assert!(explained.success(), "{explained}");
    for said in [
        "state:        pending",
        "may not create certificatesigningrequests/",
    ] {
        assert!(explained.stdout.contains(said), "{explained}");
    }
    running.set_patience(Duration::from_secs(1));
    let nothing = running.read();
    assert!(
        matches!(nothing, Err(LineFault::Silent { .. })),
        "{nothing:?}"
    );
    running.set_patience(Duration::from_secs(120));
}

/// The group that kubeadm gives to its bootstrap tokens.
const BOOTSTRAPPERS: &str = "system:bootstrappers:kubeadm:default-node-token";
