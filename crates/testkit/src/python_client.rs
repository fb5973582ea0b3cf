//! Kubernetes' Python client.

use std::path::Path;
use std::process::Command;

use crate::client_go::ClientFault;
use crate::counterparts::Counterpart;
use crate::json_lines::JsonLines;

/// `python/csr.py` as the user of `kubeconfig`: `create`, `get`, `list`, `approve`, `label`, `delete` or `watch`, as written
/// there.
pub fn csr(kubeconfig: &Path, arguments: &[&str]) -> Result<JsonLines, ClientFault> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/csr.py");
    let mut command = Command::new(Counterpart::PythonKubernetes.find()?);
    command
        .arg(script)
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
