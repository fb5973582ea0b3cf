//! `countersign cluster --controllers operator` on the real kube-apiserver, with `countersign serve` or a real Puppet Server
//! behind it.

mod admission;
mod external;
mod internal;
mod manual;
mod policies;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_pki::{Certificate, pem};
use countersign_testkit::api_server::{ApiServer, ApiServerSettings, Controllers};
use countersign_testkit::deadline::ask_again;
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

use crate::installation::{Installation, address};
use crate::site::COUNTERSIGN;

const GROUP: &str = "/apis/openvox.voxpupuli.org/v1alpha1/namespaces/puppet";
/// The machine runs other tests beside these, and makes keys of 4096 bits.
const PATIENCE: Duration = Duration::from_secs(40);

/// A cluster with the operator's kinds, and a place for files.
struct Stage {
    api: ApiServer,
    folder: tempfile::TempDir,
}

impl Stage {
    fn start() -> Self {
        let stage = Self::without_kinds();
        let definitions = [
            include_str!("../../../../../deploy/crds/certificates.yaml"),
            include_str!("../../../../../deploy/crds/certificateauthorities.yaml"),
            include_str!("../../../../../deploy/crds/signingpolicies.yaml"),
            "{apiVersion: v1, kind: Namespace, metadata: {name: puppet}}\n",
        ];
        stage.apply(&definitions.join("---\n"));
        stage.has_kinds();
        stage
    }

    /// Nobody has brought the operator's kinds yet.
    fn without_kinds() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = ApiServerSettings {
            controllers: Controllers::None,
            ..ApiServerSettings::default()
        };
        let api = ApiServer::start(&folder.path().join("api"), &settings);
        Self {
            api: api.unwrap_or_else(|fault| panic!("{fault}")),
            folder,
        }
    }

    fn has_kinds(&self) {
        let served = ask_again(PATIENCE, || {
            let kinds = ["certificates", "certificateauthorities", "signingpolicies"];
            let mut kinds = kinds.iter();
            kinds
                .all(|kind| self.call("GET", &format!("{GROUP}/{kind}"), None).0 == 200)
                .then_some(())
        });
        assert!(served.is_some(), "the kinds are not served");
    }

    fn apply(&self, text: &str) {
        let kubectl = self.api.kubectl().unwrap();
        let finished = kubectl.run_with_input(&["apply", "-f", "-"], text).unwrap();
        assert!(finished.success(), "{finished}");
    }

    /// What an administrator of the cluster gets.
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let admin = self.api.admin().unwrap();
        let text = body.map(Value::to_string).unwrap_or_default();
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let Ok(answer) = admin.call(method, path, &[("content-type", kind)], text.as_bytes())
        else {
            return (0, Value::Null);
        };
        (
            answer.status,
            serde_json::from_str(&answer.text()).unwrap_or_default(),
        )
    }

    fn create(&self, kind: &str, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": "openvox.voxpupuli.org/v1alpha1", "kind": kind,
            "metadata": {"name": name}, "spec": spec,
        });
        let path = format!("{GROUP}/{}", plural(kind));
        let (status, answer) = self.call("POST", &path, Some(&object));
        assert_eq!(status, 201, "{answer:#}");
    }

    fn patch(&self, kind: &str, name: &str, patch: Value) {
        let path = format!("{GROUP}/{}/{name}", plural(kind));
        let (status, answer) = self.call("PATCH", &path, Some(&patch));
        assert_eq!(status, 200, "{answer:#}");
    }

    fn delete(&self, kind: &str, name: &str) {
        let path = format!("{GROUP}/{}/{name}", plural(kind));
        let (status, answer) = self.call("DELETE", &path, None);
        assert_eq!(status, 200, "{answer:#}");
    }

    /// An object, as soon as it is so.
    #[track_caller]
    fn object(&self, kind: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let path = format!("{GROUP}/{}/{name}", plural(kind));
        let mut last = Value::Null;
        let found = ask_again(PATIENCE, || {
            last = self.call("GET", &path, None).1;
            is_so(&last).then(|| last.clone())
        });
        found.unwrap_or_else(|| panic!("{last:#}"))
    }

    #[track_caller]
    fn in_phase(&self, kind: &str, name: &str, phase: &str) -> Value {
        self.object(kind, name, |it| it["status"]["phase"] == phase)
    }

    /// Waits until an object has gone.
    #[track_caller]
    fn is_gone(&self, kind: &str, name: &str) {
        let path = format!("{GROUP}/{}/{name}", plural(kind));
        let gone = ask_again(PATIENCE, || {
            (self.call("GET", &path, None).0 == 404).then_some(())
        });
        assert!(gone.is_some(), "{:#}", self.call("GET", &path, None).1);
    }

    /// A Secret with its values as text.
    fn secret(&self, name: &str) -> Option<(Value, impl Fn(&str) -> String + use<>)> {
        let path = format!("/api/v1/namespaces/puppet/secrets/{name}");
        let (status, secret) = self.call("GET", &path, None);
        (status == 200).then(|| {
            let data = secret["data"].clone();
            let value = move |key: &str| {
                let text = data[key].as_str().unwrap_or_default();
                String::from_utf8(BASE64.decode(text).unwrap()).unwrap()
            };
            (secret, value)
        })
    }

    fn put_secret(&self, name: &str, values: &[(&str, &str)]) {
        let data = values
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(BASE64.encode(value))));
        let object = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name},
            "data": Value::Object(data.collect()),
        });
        let (status, answer) =
            self.call("POST", "/api/v1/namespaces/puppet/secrets", Some(&object));
        assert_eq!(status, 201, "{answer:#}");
    }

    /// The certificate of a Certificate, whose key must belong to it.
    fn pair(&self, name: &str) -> Certificate {
        let (_, value) = self.secret(&format!("{name}-tls")).unwrap();
        let leaf = leaf(&value("cert.pem"));
        let key = countersign_enroll::ca::Key::read(value("key.pem").as_bytes()).unwrap();
        assert!(key.matches(&leaf), "{name}: the key is another one");
        assert!(value("key.pem").starts_with("-----BEGIN RSA PRIVATE KEY-----"));
        leaf
    }

    /// The reasons of the Events on an object, each once.
    fn events(&self, name: &str) -> Vec<String> {
        let path = "/apis/events.k8s.io/v1/namespaces/puppet/events";
        let events = self.call("GET", path, None).1;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let of_it = events
            .iter()
            .filter(|event| event["regarding"]["name"] == name);
        let mut reasons: Vec<String> = of_it
            .map(|event| event["reason"].as_str().unwrap_or_default().to_owned())
            .collect();
        reasons.sort();
        reasons.dedup();
        reasons
    }

    /// The operator, as a service account that has the rights of the manifests and no others.
    fn operator(&self, arguments: &[&str]) -> ServerProcess {
        self.operator_with(&[&["--leader-elect=false"], arguments].concat())
    }

    /// The same, as one of several.
    fn operator_with(&self, arguments: &[&str]) -> ServerProcess {
        const ACCOUNT: &str = "system:serviceaccount:countersign:countersign-operator";
        self.apply(
            r#"
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: operator-admin},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:serviceaccount:countersign:countersign-operator"}]}
"#,
        );
        let kubeconfig = self.api.kubeconfig(ACCOUNT, &[]).unwrap();
        let mut command = Command::new(COUNTERSIGN);
        command
            .args(["cluster", "--controllers", "operator"])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(arguments)
            .env_remove("COUNTERSIGN_DATA")
            .env_remove("KUBECONFIG");
        ServerProcess::start_command(command).unwrap_or_else(|fault| panic!("{fault}"))
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        crate::site::install(&path, text, 0o600);
        path
    }
}

/// A running `countersign serve` that certifies names and extensions for administrators.
struct Behind {
    installation: Installation,
    server: ServerProcess,
}

impl Behind {
    fn start(stage: &Stage, more: &str) -> Self {
        let installation = Installation::new();
        // Agents are served the short list: what the operator keeps does not depend on that.
        let config = format!(
            "puppet: {{allow_subject_alt_names: true, allow_authorization_extensions: true, auto_renewal: true, infra_crl: true}}\n{more}"
        );
        let config = stage.file("serve.yaml", &config);
        let server = installation.serve(&["--config", config.to_str().unwrap()]);
        Self {
            installation,
            server,
        }
    }

    fn url(&self) -> String {
        format!("https://{}", address(&self.server.addresses.puppet))
    }

    /// How the operator finds it and who it is there.
    fn access(&self) -> Vec<String> {
        let file = |name: &str| self.installation.path(name).display().to_string();
        vec![
            format!("--server={}", self.url()),
            format!("--cert={}", file("admin/admin.pem")),
            format!("--key={}", file("admin/admin-key.pem")),
            format!("--cacert={}", file("admin/ca.pem")),
        ]
    }
}

/// A cluster, an operator and an authority behind it that is ready as `production`.
struct Site {
    stage: Stage,
    behind: Behind,
    operator: ServerProcess,
}

impl Site {
    fn start() -> Self {
        let stage = Stage::start();
        let behind = Behind::start(&stage, "");
        let access = behind.access();
        let access: Vec<&str> = access.iter().map(String::as_str).collect();
        let operator = stage.operator(&access);
        stage.create("CertificateAuthority", "production", json!({}));
        let ready = ask_again(PATIENCE, || {
            let path = format!("{GROUP}/certificateauthorities/production");
            (stage.call("GET", &path, None).1["status"]["phase"] == "Ready").then_some(())
        });
        assert!(ready.is_some(), "{}", operator.log());
        Self {
            stage,
            behind,
            operator,
        }
    }
}

fn plural(kind: &str) -> String {
    match kind.strip_suffix('y') {
        Some(stem) => format!("{}ies", stem.to_lowercase()),
        None => format!("{}s", kind.to_lowercase()),
    }
}

fn leaf(text: &str) -> Certificate {
    let block = pem::decode_first(text.as_bytes(), &pem::PemLimits::BUNDLE)
        .unwrap()
        .unwrap();
    Certificate::parse(&block.der).unwrap()
}

/// A condition as `True CertificateSigned`.
fn condition(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|it| it["type"] == kind);
    found.map_or_else(String::new, |it| {
        format!(
            "{} {}",
            it["status"].as_str().unwrap(),
            it["reason"].as_str().unwrap()
        )
    })
}
