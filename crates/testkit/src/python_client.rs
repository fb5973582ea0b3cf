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
