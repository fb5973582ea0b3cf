//! A running authority and its users, for the end-to-end tests.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_pki::{Certificate, Crl, pem};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::https::{Answer, HttpsClient};
use countersign_testkit::keys::{self, Key};
use countersign_testkit::kubectl::Kubectl;
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

/// The binary under test.
pub(crate) const COUNTERSIGN: &str = env!("CARGO_BIN_EXE_countersign");

/// A folder with an authority's data, and the server that runs on it.
pub(crate) struct Site {
    folder: tempfile::TempDir,
    data: PathBuf,
    pub(crate) server: ServerProcess,
}

impl Site {
    /// A fresh authority.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let server = serve(&data, arguments);
        Self {
            folder,
            data,
            server,
        }
    }

    /// A fresh authority with a configuration file.
    pub(crate) fn configured(config: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (data, file) = (
            folder.path().join("data"),
            folder.path().join("countersign.yaml"),
        );
        std::fs::write(&file, config).unwrap();
        let flags = ["--config", file.to_str().unwrap()];
        let server = serve(&data, &[&flags, arguments].concat());
        Self {
            folder,
            data,
            server,
        }
    }

    /// A fresh authority on data that somebody has placed before.
    pub(crate) fn prepared(place: impl FnOnce(&Path), arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        place(&data);
        let server = serve(&data, arguments);
        Self {
            folder,
            data,
            server,
        }
    }

    /// A server that was started by other means on `data`.
    pub(crate) fn around(data: PathBuf, server: ServerProcess) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            data,
            server,
        }
    }

    /// Ends the server in the worst way and starts it again.
    pub(crate) fn kill_and_restart(self, arguments: &[&str]) -> Self {
        let Self {
            folder,
            data,
            mut server,
        } = self;
        server.kill9();
        let server = serve(&data, arguments);
        Self {
            folder,
            data,
            server,
        }
    }

    /// The same, with the Kubernetes door where it was, so that its clients find it again.
    pub(crate) fn kill_and_restart_there(self) -> Self {
        self.restart_there(ServerProcess::kill9)
    }

    /// Ends the server politely and starts it again, with the Kubernetes door where it was.
    pub(crate) fn stop_and_restart_there(self) -> Self {
        self.restart_there(|server| assert!(server.stop().unwrap().success(), "{server}"))
    }

    fn restart_there(self, end: impl FnOnce(&mut ServerProcess)) -> Self {
        let address = self.kubernetes().to_string();
        let Self {
            folder,
            data,
            mut server,
        } = self;
        end(&mut server);
        let server = serve_at(&data, &address, &[]);
        Self {
            folder,
            data,
            server,
        }
    }

    /// Ends the server and keeps its data.
    pub(crate) fn into_folder(self) -> tempfile::TempDir {
        let Self {
            folder,
            data: _,
            mut server,
        } = self;
        server.stop().unwrap();
        folder
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.data.clone()
    }

    /// A folder for somebody else's files.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub(crate) fn puppet(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.server.addresses.puppet_port().unwrap()))
    }

    pub(crate) fn kubernetes(&self) -> SocketAddr {
        SocketAddr::from((
            [127, 0, 0, 1],
            self.server.addresses.kubernetes_port().unwrap(),
        ))
    }

    /// A client without a certificate at the Puppet door.
    pub(crate) fn anonymous(&self) -> HttpsClient {
        HttpsClient::new(self.puppet(), &self.puppet_ca(), None).unwrap()
    }

    /// The administrator at the Puppet door.
    pub(crate) fn admin(&self) -> HttpsClient {
        let (certificate, key) = self.admin_pair();
        self.holder(&certificate, &key)
    }

    /// Somebody with a certificate at the Puppet door.
    pub(crate) fn holder(&self, certificate: &[u8], key: &[u8]) -> HttpsClient {
        HttpsClient::new(self.puppet(), &self.puppet_ca(), Some((certificate, key))).unwrap()
    }

    /// Sends the usual request for a name, as an agent would.
    pub(crate) fn ask(&self, name: &str) -> Answer {
        put_request(&self.anonymous(), name, &puppet_request(name))
    }

    /// What an agent gets that asks for its certificate.
    pub(crate) fn certificate(&self, name: &str) -> Answer {
        get_certificate(&self.anonymous(), name)
    }

    /// The administrator wants a name `signed` or `revoked`.
    pub(crate) fn put_state(&self, name: &str, state: &str) -> Answer {
        let path = format!("{PUPPET}/certificate_status/{name}");
        let body = json!({"desired_state": state}).to_string();
        self.admin()
            .call("PUT", &path, &[JSON], body.as_bytes())
            .unwrap()
    }

    #[track_caller]
    pub(crate) fn revoke(&self, name: &str) {
        let answer = self.put_state(name, "revoked");
        assert_eq!(answer.status, 204, "{name}: {}", answer.text());
    }

    pub(crate) fn admin_pair(&self) -> (Vec<u8>, Vec<u8>) {
        (
            self.read("admin/admin.pem"),
            self.read("admin/admin-key.pem"),
        )
    }

    pub(crate) fn puppet_ca(&self) -> Vec<u8> {
        self.read("issuers/puppet/ca_crt.pem")
    }

    pub(crate) fn kubernetes_ca(&self) -> Vec<u8> {
        self.read("issuers/kubernetes/ca_crt.pem")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data().join("admin/kubeconfig")
    }

    pub(crate) fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig(), &self.folder("kubectl-home")).unwrap()
    }

    /// The administrator at the Kubernetes door, with the credentials of the kubeconfig.
    pub(crate) fn kubernetes_admin(&self) -> HttpsClient {
        let (certificate, key) = self.kubernetes_admin_pair();
        HttpsClient::new(
            self.kubernetes(),
            &self.kubernetes_ca(),
            Some((&certificate, &key)),
        )
        .unwrap()
    }

    pub(crate) fn kubernetes_admin_pair(&self) -> (Vec<u8>, Vec<u8>) {
        pair_of(&self.kubeconfig())
    }

    pub(crate) fn read(&self, path: &str) -> Vec<u8> {
        let path = self.data().join(path);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

pub(crate) fn serve(data: &Path, arguments: &[&str]) -> ServerProcess {
    serve_at(data, "127.0.0.1:0", arguments)
}

fn serve_at(data: &Path, kubernetes: &str, arguments: &[&str]) -> ServerProcess {
    let data = data.to_str().unwrap();
    let mut all = vec![
        "--data",
        data,
        "--listen",
        "127.0.0.1:0",
        "--kubernetes-listen",
        kubernetes,
    ];
    all.extend(["--hostname", "localhost"]);
    all.extend(arguments);
    let mut tries = 0;
    loop {
        tries += 1;
        match ServerProcess::start(Path::new(COUNTERSIGN), &all) {
            Ok(server) => return server,
            // While nobody listens there, a port may be that of somebody's outgoing connection for a moment.
            Err(fault) if fault.to_string().contains("address is in use") && tries < 20 => {}
            Err(fault) => panic!("{fault}"),
        }
    }
}

/// A request as a Puppet agent would send it, with a fixed key.
pub(crate) fn puppet_request(name: &str) -> String {
    puppet_request_with(name, keys::p256_a())
}

pub(crate) fn puppet_request_with(name: &str, key: &Key) -> String {
    CsrBuilder::new(name).sign_pem(key)
}

pub(crate) fn put_request(client: &HttpsClient, name: &str, request: &str) -> Answer {
    let path = format!("{PUPPET}/certificate_request/{name}");
    client
        .call("PUT", &path, &[TEXT], request.as_bytes())
        .unwrap()
}

pub(crate) fn get_certificate(client: &HttpsClient, name: &str) -> Answer {
    let path = format!("{PUPPET}/certificate/{name}");
    client.call("GET", &path, &[], b"").unwrap()
}

/// The first list that is served: the authority's own.
pub(crate) fn get_crl(client: &HttpsClient) -> Crl {
    let path = format!("{PUPPET}/certificate_revocation_list/ca");
    let answer = client.call("GET", &path, &[], b"").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    read_crl(&answer.body)
}

/// Certificate and key of the user of a kubeconfig.
pub(crate) fn pair_of(kubeconfig: &Path) -> (Vec<u8>, Vec<u8>) {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let field = |name: &str| {
        let value = text
            .split(name)
            .nth(1)
            .unwrap_or_else(|| panic!("no {name} in the kubeconfig"));
        let value = value.trim_start_matches(['"', ':', ' ']);
        let value = value.split(['"', '\n', ',', '}']).next().unwrap().trim();
        STANDARD.decode(value).unwrap()
    };
    (field("client-certificate-data"), field("client-key-data"))
}

/// The first certificate of a PEM text.
pub(crate) fn read_certificate(text: impl AsRef<[u8]>) -> Certificate {
    Certificate::parse(&first_block(text.as_ref())).unwrap()
}

/// The first CRL of a PEM text.
pub(crate) fn read_crl(text: impl AsRef<[u8]>) -> Crl {
    Crl::parse(&first_block(text.as_ref())).unwrap()
}

fn first_block(text: &[u8]) -> Vec<u8> {
    let block = pem::decode_first(text, &pem::PemLimits::BUNDLE);
    block.unwrap().expect("a PEM block").der
}

/// Replaces a file whole, as an editor does.
pub(crate) fn install(path: &Path, text: &str, mode: u32) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::set_permissions(&next, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::rename(&next, path).unwrap();
}

/// A CertificateSigningRequest for `kubernetes.io/kube-apiserver-client`.
pub(crate) fn kubernetes_request(name: &str) -> Value {
    kubernetes_request_for(name, "kubernetes.io/kube-apiserver-client", keys::p256_b())
}

pub(crate) fn kubernetes_request_for(name: &str, signer: &str, key: &Key) -> Value {
    let pem = CsrBuilder::new(name)
        .organization("developers")
        .sign_pem(key);
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": STANDARD.encode(pem),
            "signerName": signer,
            "usages": ["digital signature", "client auth"],
        },
    })
}

/// What `kubectl certificate approve` adds.
pub(crate) fn approved(mut object: Value) -> Value {
    object["status"]["conditions"] = json!([{
        "type": "Approved", "status": "True", "reason": "Test", "message": "by a test",
    }]);
    object
}

pub(crate) const PUPPET: &str = "/puppet-ca/v1";
pub(crate) const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");
pub(crate) const TEXT: (&str, &str) = ("Content-Type", "text/plain");
