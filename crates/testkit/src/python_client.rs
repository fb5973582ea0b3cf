//! Clients that are not written in Go: Kubernetes' own for Python and for JavaScript, and kr8s.

use std::path::Path;
use std::process::Command;

use crate::client_go::ClientFault;
use crate::counterparts::Counterpart;
use crate::json_lines::JsonLines;

/// `python/csr.py` as the user of `kubeconfig`: `create`, `get`, `list`, `approve`, `label`, `delete` or `watch`, as written
/// there.
pub fn csr(kubeconfig: &Path, arguments: &[&str]) -> Result<JsonLines, ClientFault> {
    run(
        Counterpart::PythonKubernetes,
        "python/csr.py",
        kubeconfig,
        arguments,
    )
}

/// `python/discovery.py` as the user of `kubeconfig`: everything that the client can ask about the server itself.
pub fn discovery(kubeconfig: &Path) -> Result<JsonLines, ClientFault> {
    run(
        Counterpart::PythonKubernetes,
        "python/discovery.py",
        kubeconfig,
        &[],
    )
}

/// `python/kr8s_csr.py` as the user of `kubeconfig`: the life of the request in this file, through kr8s.
pub fn kr8s(kubeconfig: &Path, request: &str) -> Result<JsonLines, ClientFault> {
    run(
        Counterpart::PythonKubernetes,
        "python/kr8s_csr.py",
        kubeconfig,
        &[request],
    )
}

/// `node/csr.mjs` as the user of `kubeconfig`: the same through the client for JavaScript.
pub fn node(kubeconfig: &Path, request: &str) -> Result<JsonLines, ClientFault> {
    run(
        Counterpart::NodeKubernetes,
        "node/csr.mjs",
        kubeconfig,
        &[request],
    )
}

fn run(
    program: Counterpart,
    script: &str,
    kubeconfig: &Path,
    arguments: &[&str],
) -> Result<JsonLines, ClientFault> {
    let mut command = Command::new(program.find()?);
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
        .arg(kubeconfig)
        .args(arguments)
        .env_remove("KUBECONFIG");
    Ok(JsonLines::start(&command)?)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::api_server::{ApiServer, ApiServerSettings};

    #[test]
    fn a_request_lives_its_life_through_the_python_client() {
        let folder = tempfile::tempdir().unwrap();
        let api = ApiServer::start(folder.path(), &ApiServerSettings::default()).unwrap();
        let request = Path::new(env!("CARGO_MANIFEST_DIR")).join("zoo/go-kubelet-client.pem");
        let call = |arguments: &[&str]| {
            let lines = csr(&api.admin_kubeconfig(), arguments).unwrap();
            let (lines, status) = lines.read_to_end().unwrap();
            assert_eq!(
                status.success(),
                lines[0]["event"] != "refused",
                "{lines:?}"
            );
            lines[0].clone()
        };
        let mut watching = csr(&api.admin_kubeconfig(), &["watch", "3"]).unwrap();

        let file = request.to_str().unwrap();
        let signer = "kubernetes.io/kube-apiserver-client";
        let created = call(&["create", "alice", signer, file, "client auth"]);
        assert_eq!(created["username"], "admin");
        assert_eq!(call(&["list"])["name"], "alice");
        assert_eq!(call(&["label", "alice", "a", "b"])["labels"]["a"], "b");
        let conditions = |line: &Value| line["conditions"] == serde_json::json!(["Approved"]);
        assert!(conditions(&call(&["approve", "alice"])));
        let seen = watching.read_until(conditions).unwrap();
        assert_eq!(seen["name"], "alice");
        assert_eq!(call(&["delete", "alice"])["event"], "deleted");
        assert_eq!(call(&["get", "alice"])["status"], 404);
    }
}
