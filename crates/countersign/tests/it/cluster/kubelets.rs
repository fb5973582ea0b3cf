//! Kubelets from the first certificate to the renewal of both, with nobody but us to approve and to sign.

use std::net::TcpListener;

use countersign_pki::{AltName, UnixTime, oid};
use countersign_testkit::chain::{Ca, Leaf};
use countersign_testkit::client_go::Kubelet;
use countersign_testkit::decider::{Decider, Greeting, Guard};
use countersign_testkit::keys;
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

use super::approver::scraped;
use super::management::machine;
use super::manual::{KUBEADM, ask_to_serve};
use super::{Stage, call, condition, node_message};

const SERVING: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: nodes}
spec:
  signers: [kubernetes.io/kubelet-serving]
  rules: [{name: serving, approve: {nodeServing: {preset: hardened}}}]
"#;

fn create(stage: &Stage, path: &str, object: &Value) {
    let admin = stage.api.admin().unwrap();
    let (status, answer) = call(&admin, "POST", path, Some(object));
    assert_eq!(status, 201, "{answer:#}");
}

fn prepared() -> Stage {
    let stage = Stage::start();
    stage.allow_everything();
    stage.apply(KUBEADM);
    stage.apply_foreign_kinds();
    stage
}

/// Approver and signer; kubelets listen at this port of loopback.
fn controllers(stage: &Stage, port: u16) -> ServerProcess {
    let policies = stage.file("policies.yaml", SERVING);
    let config = format!(
        "policies: [{}]\ncluster: {{kubelet: {{port: {port}, prefixes: [127.0.0.0/8]}}}}\n",
        policies.display()
    );
    let config = stage.file("cluster.yaml", &config);
    let signing = stage.signing_flags();
    let mut flags = vec![
        "--config",
        config.to_str().unwrap(),
        "--preset=kube-controller-manager",
        "--controllers=approver,signer",
        "--leader-elect=false",
        "--metrics-listen=127.0.0.1:0",
    ];
    flags.extend(signing.iter().map(String::as_str));
    stage.controllers(&flags)
}

#[track_caller]
fn assert_counted(controllers: &ServerProcess, reason: &str, count: usize) {
    let text = scraped(&controllers.addresses.metrics);
    let line = format!(
        "countersign_cluster_decisions_total{{outcome=\"approved\",rule=\"serving\",reason=\"{reason}\"}} {count}"
    );
    assert!(text.contains(&line), "{line}\n{text}");
}

/// client-go's certificate manager, as in every kubelet.
#[test]
fn a_kubelet_gets_and_rotates_both_certificates() {
    let stage = prepared();
    let controllers = controllers(&stage, 10250);
    let bootstrap = stage
        .api
        .kubeconfig("system:bootstrap:abcdef", &["system:bootstrappers"]);
    let kubelet = Kubelet {
        node: "n1".to_owned(),
        bootstrap_kubeconfig: bootstrap.unwrap(),
        folder: stage.folder.path().join("n1"),
    };
    std::fs::create_dir(&kubelet.folder).unwrap();
    let rotating = ["--count", "2", "--aged"];
    let clients = kubelet.certificate_manager(&rotating).unwrap();
    let (clients, status) = clients.read_to_end().unwrap();
    assert!(status.success(), "{clients:?}\n{controllers}");
    assert_eq!(clients[1]["user"], "system:node:n1", "{clients:?}");

    // Before there is a Machine, it waits.
    let mut serving = kubelet.serving("n1,192.0.2.7", &rotating).unwrap();
    let is_waiting = |log: &str| log.contains("waiting") && log.contains("M01");
    assert!(controllers.wait_for_log(is_waiting), "{controllers}");
    let machines = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines";
    create(&stage, machines, &machine("n1", "192.0.2.7"));
    let first = serving.read().unwrap();
    let second = serving.read().unwrap();
    for certificate in [&first, &second] {
        assert_eq!(certificate["names"], json!(["n1", "192.0.2.7"]));
        let subject = certificate["subject"].as_str().unwrap();
        assert!(subject.contains("CN=system:node:n1"), "{certificate}");
    }
    assert_ne!(first["serial"], second["serial"]);
    assert_counted(&controllers, "machine", 2);
}

/// Nobody knows a Machine: the node serves a certificate of the cluster's authority, and may have the like again.
#[test]
fn a_node_renews_by_what_it_serves() {
    let stage = prepared();
    let namespace = json!({"metadata": {"name": "openshift-config-managed"}});
    create(&stage, "/api/v1/namespaces", &namespace);
    let bundle = json!({
        "metadata": {"name": "csr-controller-ca"},
        "data": {"ca-bundle.crt": stage.api.ca_pem()},
    });
    let maps = "/api/v1/namespaces/openshift-config-managed/configmaps";
    create(&stage, maps, &bundle);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let kubelet = serving(listener, "system:node:n2");
    for node in ["n2", "n3"] {
        let object = json!({
            "metadata": {"name": node},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            },
        });
        create(&stage, "/api/v1/nodes", &object);
    }
    let controllers = controllers(&stage, port);
    let ask = |node: &str, name: &str| {
        let message = node_message(node)
            .dns("n2")
            .ip("127.0.0.1".parse().unwrap());
        ask_to_serve(&stage, &format!("system:node:{node}"), name, &message);
    };
    ask("n2", "renewal");
    let is_issued = |it: &Value| it["status"]["certificate"].is_string();
    stage.request("renewal", is_issued);
    assert_counted(&controllers, "renewal", 1);
    assert!(kubelet.progress().connections > 0);

    // Another node that points at the same kubelet does not get what that one has.
    ask("n3", "stolen");
    assert!(
        controllers.wait_for_log(|log| log.contains("name=stolen") && log.contains("R06")),
        "{controllers}"
    );
    let stolen = stage.request("stolen", |_| true);
    assert_eq!(condition(&stolen, "Approved"), None, "{stolen:#}");
}

/// A kubelet that shows a certificate of the cluster's authority.
fn serving(listener: TcpListener, common_name: &str) -> Decider {
    // As the API server of the test has it.
    let ca = Ca::root("kubernetes", keys::p256_a(), BEGIN);
    let key = keys::p256_b();
    let leaf = ca.leaf(&Leaf {
        common_name,
        names: &[
            AltName::Dns("n2".to_owned()),
            AltName::Ip([127, 0, 0, 1].into()),
        ],
        usage: oid::EKU_SERVER_AUTH,
        key,
        serial: 77,
        now: BEGIN,
    });
    let guard = Guard {
        chain: vec![leaf],
        key,
        clients: None,
    };
    Decider::on(
        listener,
        &guard,
        |_| Greeting::Welcome,
        Box::new(|_| Vec::new()),
    )
    .unwrap()
}

const BEGIN: UnixTime = UnixTime(1_760_000_000);
