//! Clients of Kubernetes, unmodified, against a running authority: kubectl of every supported release, informers of
//! client-go, the certificate client of a kubelet, kube-rs and the Python client.

mod informers;
mod kube_rs;
mod kubectl;
mod kubelet;
mod leaders;
mod python;
mod watching;

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_testkit::deadline::Finished;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::kubectl::Kubectl;
use serde_json::{Value, json};

use crate::installation::run;
use crate::site::{JSON, REQUESTS, Site, approved, kubernetes_request};

/// Who changes requests while the clients look on. It speaks HTTP, so that what clients see does not depend on a client.
struct Writer {
    client: HttpsClient,
}

impl Writer {
    fn new(site: &Site) -> Self {
        Self {
            client: site.kubernetes_admin(),
        }
    }

    /// A new request, as it was stored.
    fn create(&self, name: &str) -> Value {
        let object = kubernetes_request(name).to_string();
        self.done("POST", REQUESTS, JSON, &object)
    }

    fn get(&self, name: &str) -> Value {
        self.done("GET", &format!("{REQUESTS}/{name}"), JSON, "")
    }

    fn list(&self) -> Value {
        self.done("GET", REQUESTS, JSON, "")
    }

    fn approve(&self, name: &str) -> Value {
        let object = approved(self.get(name)).to_string();
        self.done("PUT", &format!("{REQUESTS}/{name}/approval"), JSON, &object)
    }

    fn annotate(&self, name: &str, key: &str, value: &str) -> Value {
        let patch = json!({"metadata": {"annotations": {key: value}}}).to_string();
        self.done("PATCH", &format!("{REQUESTS}/{name}"), MERGE, &patch)
    }

    fn delete(&self, name: &str) {
        self.done("DELETE", &format!("{REQUESTS}/{name}"), JSON, "");
    }

    #[track_caller]
    fn done(&self, method: &str, path: &str, kind: (&str, &str), body: &str) -> Value {
        let answer = self
            .client
            .call(method, path, &[kind], body.as_bytes())
            .unwrap();
        let text = answer.text();
        assert!(
            matches!(answer.status, 200 | 201),
            "{method} {path}: {text}"
        );
        serde_json::from_str(&text).unwrap()
    }
}

/// The revision of an object.
fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

/// The kubeconfig of a user by the administrator's word.
fn user(site: &Site, name: &str) -> PathBuf {
    let file = site.folder("users").join(name);
    let data = site.data();
    let (data, out) = (data.to_str().unwrap(), file.to_str().unwrap());
    let made = run(&["kubeconfig", "--user", name, "--data", data, "--out", out]);
    assert!(made.success(), "{made}");
    file
}

/// The kubeconfig of whoever holds a token.
fn holder(site: &Site, token: &str) -> PathBuf {
    let file = site.folder("users").join("bootstrap");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "there",
        "clusters": [{"name": "there", "cluster": {
            "server": site.server.addresses.kubernetes,
            "certificate-authority-data": STANDARD.encode(site.kubernetes_ca()),
        }}],
        "users": [{"name": "holder", "user": {"token": token}}],
        "contexts": [{"name": "there", "context": {"cluster": "there", "user": "holder"}}],
    });
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

/// The newest kubectl as another user.
fn kubectl_as(site: &Site, kubeconfig: &Path) -> Kubectl {
    Kubectl::new(kubeconfig, &site.folder("kubectl-home")).unwrap()
}

/// `kubectl <arguments>` with this standard input succeeds.
#[track_caller]
fn well(kubectl: &Kubectl, arguments: &[&str], input: &str) -> Finished {
    let finished = kubectl.run_with_input(arguments, input).unwrap();
    assert!(finished.success(), "kubectl {arguments:?}: {finished}");
    finished
}

const MERGE: (&str, &str) = ("Content-Type", "application/merge-patch+json");
