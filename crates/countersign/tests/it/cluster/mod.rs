//! `countersign cluster` on the real kube-apiserver: what it approves, denies, says and cleans, and how replicas take turns.

mod acceptance;
mod approver;
mod brake;
mod ca_files;
mod delivery;
mod inventory;
mod kubelets;
mod management;
mod manual;
mod outage;
mod pods;
mod replicas;
mod resources;
mod rivals;
mod scale;
mod signer;
mod switch;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_testkit::api_server::{ApiServer, ApiServerSettings, Controllers};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

use crate::site::COUNTERSIGN;

/// The service account of the manual, as the API server calls it.
const ACCOUNT: &str = "system:serviceaccount:countersign:countersign";
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The machine runs other tests beside these.
const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster without controllers of its own, and a place for files.
struct Stage {
    folder: tempfile::TempDir,
    api: ApiServer,
}

impl Stage {
    fn start() -> Self {
        Self::start_with(&[])
    }

    /// With more arguments of kube-apiserver.
    fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = ApiServerSettings {
            controllers: Controllers::None,
            arguments: arguments.iter().map(|it| (*it).to_owned()).collect(),
            ..ApiServerSettings::default()
        };
        let api = ApiServer::start(&folder.path().join("api"), &settings);
        Self {
            api: api.unwrap_or_else(|fault| panic!("{fault}")),
            folder,
        }
    }

    /// A file of the test's own that only its owner may write.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        crate::site::install(&path, text, 0o600);
        path
    }

    /// `countersign cluster` as a user who has the roles of the manual and no others.
    fn controllers(&self, arguments: &[&str]) -> ServerProcess {
        let kubeconfig = self.api.kubeconfig(ACCOUNT, &[]).unwrap();
        let mut command = Command::new(COUNTERSIGN);
        command
            .arg("cluster")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(arguments)
            .env_remove("COUNTERSIGN_DATA")
            .env_remove("KUBECONFIG")
            .env_remove("RUST_LOG");
        ServerProcess::start_command(command).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// The same with policies.
    fn with_policies(&self, policies: &str, arguments: &[&str]) -> ServerProcess {
        let policies = self.file("policies.yaml", policies);
        let config = format!("policies: [{}]\n", policies.display());
        let config = self.file("cluster.yaml", &config);
        let flags = ["--config", config.to_str().unwrap(), "--leader-elect=false"];
        self.controllers(&[&flags, arguments].concat())
    }

    fn apply(&self, text: &str) {
        let kubectl = self.api.kubectl().unwrap();
        let finished = kubectl.run_with_input(&["apply", "-f", "-"], text).unwrap();
        assert!(finished.success(), "{finished}");
    }

    /// The kinds that others bring: Machines of two makers, OpenShift's Network and HostSubnet. Without a schema, and
    /// whatever status is written stays.
    fn apply_foreign_kinds(&self) {
        let kinds = [
            (
                "machine.openshift.io",
                "v1beta1",
                "Machine",
                "machines",
                "Namespaced",
            ),
            (
                "cluster.x-k8s.io",
                "v1beta2",
                "Machine",
                "machines",
                "Namespaced",
            ),
            (
                "config.openshift.io",
                "v1",
                "Network",
                "networks",
                "Cluster",
            ),
            (
                "network.openshift.io",
                "v1",
                "HostSubnet",
                "hostsubnets",
                "Cluster",
            ),
        ];
        let admin = self.api.admin().unwrap();
        for (group, version, kind, plural, scope) in kinds {
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": format!("{plural}.{group}"),
                    "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
                },
                "spec": {
                    "group": group,
                    "scope": scope,
                    "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                    "versions": [{
                        "name": version, "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": schema},
                    }],
                },
            });
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let (status, answer) = call(&admin, "POST", path, Some(&definition));
            assert_eq!(status, 201, "{answer:#}");
            let path = format!("/apis/{group}/{version}/{plural}");
            let served = ask_again(PATIENCE, || {
                (call(&admin, "GET", &path, None).0 == 200).then_some(())
            });
            assert!(served.is_some(), "{path}");
        }
    }

    /// These tests are about something else than roles.
    fn allow_everything(&self) {
        self.apply(
            r#"
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: countersign-admin},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:serviceaccount:countersign:countersign"}]}
"#,
        );
    }

    /// The flags of a signer with the cluster's CA.
    fn signing_flags(&self) -> Vec<String> {
        let certificate = self.file("ca.crt", &self.api.ca_pem());
        let key = self.file("ca.key", self.api.ca_key_pem());
        vec![
            format!("--data={}", self.folder.path().join("data").display()),
            format!("--cluster-signing-cert-file={}", certificate.display()),
            format!("--cluster-signing-key-file={}", key.display()),
        ]
    }

    /// The roles that the manual says the controllers need.
    fn apply_roles_of_the_manual(&self) {
        self.apply(&Self::roles_of_the_manual());
    }

    fn roles_of_the_manual() -> String {
        let manual = include_str!("../../../../../docs/cluster.md");
        let blocks = manual.split("```yaml\n").skip(1);
        let blocks = blocks.filter_map(|rest| rest.split("```").next());
        let roles: Vec<&str> = blocks
            .filter(|block| block.contains("kind: ClusterRole"))
            .collect();
        assert_eq!(roles.len(), 1, "one block has all roles");
        roles[0].to_owned()
    }

    /// Asks for a certificate as a user of these groups.
    fn ask(&self, user: &str, groups: &[&str], name: &str, signer: &str, message: &CsrBuilder) {
        let client = self.api.client(user, groups).unwrap();
        self.ask_by(&client, name, signer, message);
    }

    fn ask_by(&self, client: &HttpsClient, name: &str, signer: &str, message: &CsrBuilder) {
        self.ask_pem_by(client, name, signer, &message.sign_pem(keys::p256_b()));
    }

    /// The same with a message that was signed by another key.
    fn ask_pem(&self, user: &str, name: &str, signer: &str, pem: &str) {
        let client = self.api.client(user, &[]).unwrap();
        self.ask_pem_by(&client, name, signer, pem);
    }

    fn ask_pem_by(&self, client: &HttpsClient, name: &str, signer: &str, pem: &str) {
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": BASE64.encode(pem),
                "signerName": signer,
                "usages": ["digital signature", "client auth"],
            },
        });
        let answer = call(client, "POST", CSRS, Some(&object));
        assert_eq!(answer.0, 201, "{}", answer.1);
    }

    /// The request, as soon as it is so.
    #[track_caller]
    fn request(&self, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let admin = self.api.admin().unwrap();
        let mut last = Value::Null;
        let found = ask_again(PATIENCE, || {
            last = call(&admin, "GET", &format!("{CSRS}/{name}"), None).1;
            is_so(&last).then(|| last.clone())
        });
        found.unwrap_or_else(|| panic!("{last:#}"))
    }

    /// Its condition of a type, as soon as it has one.
    #[track_caller]
    fn condition(&self, name: &str, kind: &str) -> Value {
        let request = self.request(name, |request| condition(request, kind).is_some());
        condition(&request, kind).unwrap()
    }

    /// The Events on a request, as soon as there are any.
    #[track_caller]
    fn events(&self, name: &str) -> Vec<Value> {
        let admin = self.api.admin().unwrap();
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        let found = ask_again(PATIENCE, || {
            let events = call(&admin, "GET", path, None).1;
            let of_it = events["items"].as_array()?.iter();
            let of_it = of_it.filter(|event| event["regarding"]["name"] == name);
            let of_it: Vec<Value> = of_it.cloned().collect();
            (!of_it.is_empty()).then_some(of_it)
        });
        found.unwrap_or_else(|| panic!("no events on {name}"))
    }
}

fn condition(request: &Value, kind: &str) -> Option<Value> {
    let conditions = request["status"]["conditions"].as_array()?.iter();
    conditions
        .into_iter()
        .find(|condition| condition["type"] == kind)
        .cloned()
}

fn call(client: &HttpsClient, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let text = body.map(Value::to_string).unwrap_or_default();
    let headers: &[(&str, &str)] = match body {
        Some(_) => &[("content-type", "application/json")],
        None => &[],
    };
    // The server may be starting.
    let Ok(answer) = client.call(method, path, headers, text.as_bytes()) else {
        return (0, Value::Null);
    };
    let status = answer.status;
    (
        status,
        serde_json::from_str(&answer.text()).unwrap_or_default(),
    )
}

/// The message of a kubelet that asks for its client certificate.
fn node_message(node: &str) -> CsrBuilder {
    CsrBuilder::new(&format!("system:node:{node}")).organization("system:nodes")
}
