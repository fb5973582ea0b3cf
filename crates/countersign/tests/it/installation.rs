//! One installation of the program in a temporary directory.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::{Finished, run_with_deadline};
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys::Key;
use countersign_testkit::server_process::ServerProcess;
use serde_json::Value;
use tempfile::TempDir;

use crate::site::put_request;

pub(crate) struct Installation {
    temporary: TempDir,
}

impl Installation {
    pub(crate) fn new() -> Self {
        Self {
            temporary: tempfile::tempdir().unwrap(),
        }
    }

    /// A path below the data directory.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.temporary.path().join("data").join(below)
    }

    pub(crate) fn data(&self) -> String {
        self.path("")
            .to_str()
            .unwrap()
            .trim_end_matches('/')
            .to_owned()
    }

    pub(crate) fn read(&self, below: &str) -> String {
        fs::read_to_string(self.path(below)).unwrap()
    }

    /// `serve` on free ports, ready.
    pub(crate) fn serve(&self, arguments: &[&str]) -> ServerProcess {
        ServerProcess::start(binary(), &self.serve_arguments(arguments))
            .unwrap_or_else(|fault| panic!("{fault}"))
    }

    pub(crate) fn serve_arguments<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        // Leaked: a handful of paths in a test process.
        let data: &'static str = self.data().leak();
        let own = [
            "--data",
            data,
            "--listen",
            "127.0.0.1:0",
            "--kubernetes-listen",
            "127.0.0.1:0",
        ];
        [&own, arguments].concat()
    }

    /// A command that talks to the server of this installation.
    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        let data = self.data();
        run(&[arguments, &["--data", &data]].concat())
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let finished = self.run(arguments);
        assert!(finished.success(), "{finished}");
        serde_json::from_str(&finished.stdout).unwrap()
    }

    /// Sends a request as an agent does, and answers with the status code.
    pub(crate) fn submit(&self, server: &ServerProcess, name: &str, key: &Key) -> u16 {
        let csr = CsrBuilder::new(name).sign_pem(key);
        let agent = HttpsClient::new(
            address(&server.addresses.puppet),
            &self.bytes("admin/ca.pem"),
            None,
        )
        .unwrap();
        put_request(&agent, name, &csr).status
    }

    /// Creates a request at the Kubernetes door, and answers with the status code.
    pub(crate) fn submit_to_kubernetes(
        &self,
        server: &ServerProcess,
        name: &str,
        key: &Key,
    ) -> u16 {
        use base64::Engine as _;
        let csr = base64::prelude::BASE64_STANDARD.encode(CsrBuilder::new(name).sign_pem(key));
        let object = serde_json::json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {"request": csr, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
        });
        let (certificate, key) = (
            self.bytes("admin/kubernetes.pem"),
            self.bytes("admin/kubernetes-key.pem"),
        );
        let ca = self.bytes("issuers/kubernetes/ca_crt.pem");
        let admin = HttpsClient::new(
            address(&server.addresses.kubernetes),
            &ca,
            Some((&certificate, &key)),
        )
        .unwrap();
        let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        let headers = [("content-type", "application/json")];
        admin
            .call("POST", path, &headers, object.to_string().as_bytes())
            .unwrap()
            .status
    }

    pub(crate) fn bytes(&self, below: &str) -> Vec<u8> {
        fs::read(self.path(below)).unwrap()
    }
}

pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_countersign"))
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Finished {
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .env_remove("COUNTERSIGN_DATA")
        .env_remove("RUST_LOG");
    run_with_deadline(command, Duration::from_secs(60)).unwrap_or_else(|fault| panic!("{fault}"))
}

pub(crate) fn address(url: &str) -> SocketAddr {
    url.strip_prefix("https://").unwrap().parse().unwrap()
}
