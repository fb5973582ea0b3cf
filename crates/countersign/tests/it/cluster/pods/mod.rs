//! Certificates for pods on the real kube-apiserver with its feature gates on: real pods, service accounts and nodes, requests
//! as kubelets make them. Tests have the names of the acceptance cases.

mod bundles;
mod requests;
mod rivals;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_pki::{Certificate, pem};
use countersign_testkit::api_server::{ApiServer, ApiServerSettings, Controllers};
use countersign_testkit::chain::Ca;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys::Key;
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

use super::{PATIENCE, Stage, call, condition};
use crate::site::install;

const SIGNER: &str = "example.com/web";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1beta1/namespaces/shop/podcertificaterequests";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const GATES: [&str; 2] = [
    "--feature-gates=PodCertificateRequest=true,ClusterTrustBundle=true,ClusterTrustBundleProjection=true",
    "--runtime-config=certificates.k8s.io/v1beta1=true",
];
/// Two nodes, two service accounts.
const WORLD: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: shop}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: other, namespace: shop}}
---
{apiVersion: v1, kind: Node, metadata: {name: n1}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}}
"#;
/// Pods of the service account `web` with the label `tls`; of `other`, nobody says.
const POLICY: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: pods}
spec:
  signers: [example.com/web]
  rules:
    - name: banned
      deny: {cel: 'pod != null && "banned" in pod.labels', message: not this one}
    - name: shop
      approve: {cel: 'pod != null && pod.namespace == "shop" && pod.serviceAccount == "web" && pod.node == "n1"'}
"#;
const CONFIG: &str = r#"
signers:
  - name: example.com/web
    names: [uri]
    usages: [digital signature, key encipherment, server auth, client auth]
    lifetime: 2h
    pods: {trust_domain: prod.example.com, annotations: [example.com/role]}
cluster: {pod_grace: 3s}
"#;

impl Stage {
    /// A cluster with the gates on, and what pods need.
    fn with_gates() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = ApiServerSettings {
            controllers: Controllers::None,
            arguments: GATES.map(str::to_owned).to_vec(),
            ..ApiServerSettings::default()
        };
        let api = ApiServer::start(&folder.path().join("api"), &settings);
        let stage = Self {
            api: api.unwrap_or_else(|fault| panic!("{fault}")),
            folder,
        };
        stage.apply(WORLD);
        stage.apply_roles_of_the_manual();
        stage
    }

    /// The permissions of the component `pod-certificates`, for the signers that are named.
    fn apply_pod_roles(&self, signers: &str) {
        let roles = include_str!(
            "../../../../../../deploy/kustomize/components/pod-certificates/pod-certificates.yaml"
        );
        let roles = roles
            .replace("namespace: countersign-system", "namespace: countersign")
            .replace("example.com/pods", signers);
        self.apply(&roles);
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The signer with a configuration of its own, in a data folder of its own.
    fn pod_signer_in(&self, config: &str, data: &str) -> ServerProcess {
        let policies = self.file("pods.yaml", POLICY);
        let config = format!("policies: [{}]\n{config}", policies.display());
        let config = self.file(&format!("{data}.yaml"), &config);
        let data = self.folder.path().join(data);
        self.controllers(&[
            "--controllers",
            "signer",
            "--leader-elect=false",
            "--config",
            config.to_str().unwrap(),
            "--data",
            data.to_str().unwrap(),
        ])
    }

    fn pod_signer(&self) -> ServerProcess {
        self.pod_signer_in(CONFIG, "data")
    }

    /// A node, as the API server knows it.
    fn node(&self, name: &str) -> HttpsClient {
        let user = format!("system:node:{name}");
        self.api.client(&user, &["system:nodes"]).unwrap()
    }

    fn uid(&self, path: &str) -> String {
        let admin = self.api.admin().unwrap();
        let (status, object) = call(&admin, "GET", path, None);
        assert_eq!(status, 200, "{object}");
        object["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Makes a pod on `n1` whose volume asks for a certificate.
    fn pod(&self, name: &str, account: &str, labels: &Value, source: &Value) -> String {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "nodeName": "n1", "serviceAccountName": account, "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "registry.example.com/main"}],
                "volumes": [{"name": "tls", "projected": {"sources": [{"podCertificate": source}]}}],
            },
        });
        let admin = self.api.admin().unwrap();
        let (status, made) = call(&admin, "POST", PODS, Some(&pod));
        assert_eq!(status, 201, "{made:#}");
        assert!(
            made["spec"]["volumes"][0]["projected"]["sources"][0]["podCertificate"].is_object()
        );
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// The request that a kubelet makes for a pod with such a source.
    fn kubelets_request(
        &self,
        name: &str,
        pod: &str,
        account: &str,
        source: &Value,
        stub: &[u8],
    ) -> Value {
        let namespace = "/api/v1/namespaces/shop";
        let mut spec = json!({
            "signerName": source["signerName"],
            "podName": pod, "podUID": self.uid(&format!("{PODS}/{pod}")),
            "serviceAccountName": account,
            "serviceAccountUID": self.uid(&format!("{namespace}/serviceaccounts/{account}")),
            "nodeName": "n1", "nodeUID": self.uid("/api/v1/nodes/n1"),
            "stubPKCS10Request": BASE64.encode(stub),
        });
        for (key, of_source) in [
            ("maxExpirationSeconds", "maxExpirationSeconds"),
            ("unverifiedUserAnnotations", "userAnnotations"),
        ] {
            if !source[of_source].is_null() {
                spec[key] = source[of_source].clone();
            }
        }
        json!({
            "apiVersion": "certificates.k8s.io/v1beta1",
            "kind": "PodCertificateRequest",
            "metadata": {"name": name},
            "spec": spec,
        })
    }

    fn post(&self, client: &HttpsClient, request: &Value) {
        let (status, made) = call(client, "POST", REQUESTS, Some(request));
        assert_eq!(status, 201, "{made:#}");
    }

    /// A pod of the account `web` and its request, as its node makes it.
    fn ask_for_pod(&self, name: &str, source: &Value, key: &Key) {
        self.pod(name, "web", &json!({}), source);
        let request = self.kubelets_request(name, name, "web", source, &stub(key));
        self.post(&self.node("n1"), &request);
    }

    /// The request, as soon as it is so.
    #[track_caller]
    fn pod_request(&self, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let admin = self.api.admin().unwrap();
        let mut last = Value::Null;
        let found = ask_again(PATIENCE, || {
            last = call(&admin, "GET", &format!("{REQUESTS}/{name}"), None).1;
            is_so(&last).then(|| last.clone())
        });
        found.unwrap_or_else(|| panic!("{name}: {last:#}"))
    }

    /// Its one condition, as soon as it has one: type and reason.
    #[track_caller]
    fn answer(&self, name: &str) -> (String, String) {
        let has_one = |request: &Value| request["status"]["conditions"][0].is_object();
        let request = self.pod_request(name, has_one);
        let word = |key: &str| {
            let found = request["status"]["conditions"][0][key].as_str();
            found.unwrap().to_owned()
        };
        (word("type"), word("reason"))
    }

    /// Its certificates, as soon as it has some, with its times checked against them.
    #[track_caller]
    fn issued(&self, name: &str) -> Vec<Certificate> {
        let has_one = |request: &Value| request["status"]["conditions"][0].is_object();
        let request = self.pod_request(name, has_one);
        assert!(condition(&request, "Issued").is_some(), "{request:#}");
        let status = &request["status"];
        let chain = status["certificateChain"].as_str().unwrap();
        let blocks = pem::decode_all(chain.as_bytes(), &pem::PemLimits::BUNDLE).unwrap();
        let parsed = blocks.iter().map(|block| Certificate::parse(&block.der));
        let chain = parsed.collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(status["notBefore"], chain[0].not_before().to_string());
        assert_eq!(status["notAfter"], chain[0].not_after().to_string());
        chain
    }
}

/// A message with a key and nothing else, as kubelets send it.
fn stub(key: &Key) -> Vec<u8> {
    CsrBuilder::without_subject().sign(key)
}

fn source(key_type: &str) -> Value {
    json!({"signerName": SIGNER, "keyType": key_type, "credentialBundlePath": "bundle.pem"})
}

fn merged(mut object: Value, spec: &Value) -> Value {
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

fn lifetime(certificate: &Certificate) -> i64 {
    certificate
        .not_after()
        .seconds_since(certificate.not_before())
}

/// Gives the signer's issuer this CA, or another one in the place of the one it has.
fn put_ca(data: &Path, ca: &Ca) {
    let folder = data.join("issuers/example.com.web");
    if !folder.exists() {
        fs::create_dir_all(&folder).unwrap();
        for folder in [data, &data.join("issuers"), &folder] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }
    install(&folder.join("ca_crt.pem"), &ca.certificate.to_pem(), 0o644);
    install(&folder.join("ca_key.pem"), ca.key.pkcs8_pem(), 0o600);
}

/// The block of docs/pod-certificates.md that has this in it.
fn block_of_the_page(with: &str) -> &'static str {
    let page = include_str!("../../../../../../docs/pod-certificates.md");
    let blocks = page.split("```yaml\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.contains(with)).unwrap()
}
