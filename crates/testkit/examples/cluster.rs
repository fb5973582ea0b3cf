//! A real kube-apiserver on etcd with nobody who works on certificate signing requests, for `cargo xtask bench --cluster`: writes
//! wait for the disk, as anywhere else, and whoever holds a join token may ask for node certificates.
//!
//! `cargo run -p countersign-testkit --example cluster` prints one line of JSON: the kubeconfigs of such a `kubelet` and of
//! `controllers`, certificate and key of the `ca`, and where `kube_controller_manager` is. It ends with its standard input.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a tool for benchmarks: it stops at the first surprise"
)]

use std::fs::Permissions;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use countersign_testkit::api_server::{ApiServer, ApiServerFault, ApiServerSettings, Controllers};
use countersign_testkit::counterparts::{Counterpart, KubernetesRelease};
use serde_json::json;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ApiServerSettings {
        controllers: Controllers::None,
        durable: true,
        ..ApiServerSettings::default()
    };
    let server = match ApiServer::start(folder.path(), &settings) {
        Err(ApiServerFault::Missing(missing)) => {
            println!("{}", json!({"missing": missing.to_string()}));
            return;
        }
        started => started.unwrap(),
    };
    for (name, role) in [
        ("ask", "system:node-bootstrapper"),
        (
            "be-approved",
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        ),
    ] {
        let (role, group) = (
            format!("--clusterrole={role}"),
            "--group=system:bootstrappers",
        );
        let arguments = ["create", "clusterrolebinding", name, &role, group];
        let finished = server.kubectl().unwrap().run(&arguments).unwrap();
        assert!(finished.success(), "{finished}");
    }
    let kubeconfig = |user: &str, groups: &[&str]| server.kubeconfig(user, groups).unwrap();
    let shown = |path: &Path| path.display().to_string();
    let kubelet = kubeconfig("system:bootstrap:abcdef", &["system:bootstrappers"]);
    let controllers = kubeconfig("system:kube-controller-manager", &["system:masters"]);
    // Our controllers take no key that others may read.
    let key = folder.path().join("ca-key.pem");
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    println!(
        "{}",
        json!({
            "kubelet": shown(&kubelet),
            "controllers": shown(&controllers),
            "ca": shown(&folder.path().join("ca.pem")),
            "ca_key": shown(&key),
            "kubectl": shown(&Counterpart::Kubectl(KubernetesRelease::NEWEST).find().unwrap()),
            "kube_controller_manager": shown(&Counterpart::KubeControllerManager.find().unwrap()),
        })
    );
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
