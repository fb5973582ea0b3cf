//! Clients made with Kubernetes' own library: an informer as in any controller, and what of a kubelet gets certificates.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::counterparts::{Counterpart, KubernetesRelease, MissingCounterpart};
use crate::json_lines::{JsonLines, LineFault};

/// Why there is no such client.
#[derive(Debug, thiserror::Error)]
pub enum ClientFault {
    /// It was not prepared.
    #[error(transparent)]
    Missing(#[from] MissingCounterpart),
    /// It did not start.
    #[error(transparent)]
    Start(#[from] LineFault),
}

/// A shared informer on certificate signing requests, as the user of `kubeconfig`.
///
/// Its lines have `event` (`add`, `update`, `delete`, `synced`, `fault`), `name`, `resourceVersion`, `uid` and `state` (as in
/// kubectl's column CONDITION). Options: `--watch-list=false`, `--content-type`, `--field-selector`, `--until-count` and
/// `--timeout`, after which it ends.
pub fn informer(
    release: KubernetesRelease,
    kubeconfig: &Path,
    options: &[&str],
) -> Result<JsonLines, ClientFault> {
    let mut command = Command::new(Counterpart::Informer(release).find()?);
    command.arg("--kubeconfig").arg(kubeconfig).args(options);
    Ok(JsonLines::start(without_settings(&mut command))?)
}

/// A kubelet, as far as certificates go.
///
/// Its lines have `event` (`certificate`), `serial`, `subject`, `notBefore`, `notAfter`, `names`, `file` and, for client
/// certificates, `user`: for whom the server took it when it showed the new certificate. Options: `--count` (of certificates,
/// after which it ends), `--aged` (each certificate is taken for nearly expired, so that it is rotated at once), `--lifetime`,
/// `--timeout`.
#[derive(Clone, Debug)]
pub struct Kubelet {
    /// Name of the node.
    pub node: String,
    /// Cluster and user until there is a certificate.
    pub bootstrap_kubeconfig: PathBuf,
    /// Where its files are: `kubeconfig` (made by itself), `kubelet-client-current.pem`, `kubelet-server-current.pem`.
    pub folder: PathBuf,
}

impl Kubelet {
    /// Where its own kubeconfig is, once it has bootstrapped.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// `rotateCertificates: true`: bootstraps, then rotates with its own certificate.
    pub fn certificate_manager(&self, options: &[&str]) -> Result<JsonLines, ClientFault> {
        self.start("certificate-manager", options)
    }

    /// `rotateCertificates: false`: asks once, under a name made of the request.
    pub fn bootstrap_named(&self, options: &[&str]) -> Result<JsonLines, ClientFault> {
        self.start("bootstrap-named", options)
    }

    /// `serverTLSBootstrap: true`: a serving certificate for these DNS names and IP addresses, after one of the others.
    pub fn serving(&self, addresses: &str, options: &[&str]) -> Result<JsonLines, ClientFault> {
        let options = [&["--addresses", addresses], options].concat();
        self.start("serving", &options)
    }

    fn start(&self, way: &str, options: &[&str]) -> Result<JsonLines, ClientFault> {
        let mut command = Command::new(Counterpart::Kubelet.find()?);
        command
            .arg(way)
            .args(["--node", &self.node])
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .arg("--bootstrap-kubeconfig")
            .arg(&self.bootstrap_kubeconfig)
            .arg("--cert-dir")
            .arg(&self.folder)
            .args(options);
        Ok(JsonLines::start(without_settings(&mut command))?)
    }
}

/// The environment's own settings do not reach it.
fn without_settings(command: &mut Command) -> &Command {
    command
        .env_remove("KUBECONFIG")
        .env_remove("KUBE_FEATURE_WatchListClient")
        .env_remove("ENABLE_CLIENT_GO_WATCH_LIST_ALPHA")
}
