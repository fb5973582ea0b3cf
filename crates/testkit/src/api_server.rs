//! The real thing: kube-apiserver on etcd, and the controllers that approve, sign and clean certificate signing requests.
//!
//! Everything is below one given folder and listens on loopback. A start takes ten seconds, so tests share one where they
//! can.

use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_pki::{AltName, UnixTime, oid, pem};

use crate::chain::{Ca, Leaf};
use crate::counterparts::{Counterpart, MissingCounterpart};
use crate::deadline::ask_again;
use crate::https::HttpsClient;
use crate::json_lines::ending_with_us;
use crate::keys::{self, Key};
use crate::kubectl::Kubectl;
use crate::server_process::{ServerFault, ServerProcess};

/// A running API server. Dropping it kills all its processes; so does the end of the test's process.
#[derive(Debug)]
pub struct ApiServer {
    folder: PathBuf,
    authority: Authority,
    port: u16,
    etcd: u16,
    settings: ApiServerSettings,
    /// In the order in which they end; the last two are kube-apiserver and etcd.
    processes: Vec<ServerProcess>,
}

/// What differs between the API servers of tests.
#[derive(Clone, Debug)]
pub struct ApiServerSettings {
    /// Common name of the authority that issues client certificates, the server's own and what the signers sign.
    pub ca_name: String,
    /// Its key.
    pub ca_key: &'static Key,
    /// Whether requests are approved, signed and cleaned.
    pub controllers: Controllers,
    /// Further arguments of kube-apiserver, after our own: of one that is given twice, the last one counts.
    pub arguments: Vec<String>,
    /// Whether a write waits for the disk, as it does anywhere but in tests.
    pub durable: bool,
}

/// Who works on certificate signing requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Controllers {
    /// Nobody.
    None,
    /// kube-controller-manager with its three controllers for them, and these further arguments, such as
    /// `--cluster-signing-duration=1h`.
    Certificates(Vec<String>),
}

/// Why there is no running API server.
#[derive(Debug, thiserror::Error)]
pub enum ApiServerFault {
    /// It was not prepared.
    #[error(transparent)]
    Missing(#[from] MissingCounterpart),
    /// Its files cannot be written, or no port is free.
    #[error("cannot prepare the files of the API server")]
    Prepare(#[from] io::Error),
    /// A process did not start.
    #[error(transparent)]
    Server(#[from] ServerFault),
    /// A process ended, or did not become ready in time.
    #[error("{name} did not become ready; it had said: {said}")]
    NotReady {
        /// Which one.
        name: &'static str,
        /// Its log until then.
        said: String,
    },
}

impl Default for ApiServerSettings {
    /// As it comes, with controllers.
    fn default() -> Self {
        Self {
            ca_name: "kubernetes".to_owned(),
            ca_key: keys::p256_a(),
            controllers: Controllers::Certificates(Vec::new()),
            arguments: Vec::new(),
            durable: false,
        }
    }
}

impl ApiServer {
    /// Starts everything on free ports of loopback; `folder` is usually a temporary one of the test.
    pub fn start(folder: &Path, settings: &ApiServerSettings) -> Result<Self, ApiServerFault> {
        let authority = Authority::new(settings);
        authority.write(folder)?;
        let etcd = start_etcd(folder, settings)?;
        let (server, port) = start_server(folder, settings, etcd.port, &authority)?;
        let mut api = Self {
            folder: folder.to_owned(),
            authority,
            port,
            etcd: etcd.port,
            settings: settings.clone(),
            processes: vec![server, etcd.process],
        };
        api.kubeconfig_at(&api.admin_kubeconfig(), ADMIN, &[MASTERS])?;
        if let Controllers::Certificates(arguments) = &settings.controllers {
            let controllers = start_controllers(&api, arguments)?;
            api.processes.insert(0, controllers);
        }
        Ok(api)
    }

    /// Kills kube-apiserver and starts it again at the same address, on the same etcd.
    pub fn restart(&mut self) -> Result<(), ApiServerFault> {
        let place = self.processes.len().saturating_sub(2);
        if let Some(server) = self.processes.get_mut(place) {
            server.kill9();
        }
        let program = Counterpart::KubeApiserver.find()?;
        let (folder, settings) = (&self.folder, &self.settings);
        let server = start_server_at(
            &program,
            folder,
            settings,
            self.etcd,
            &self.authority,
            self.port,
        )?;
        if let Some(place) = self.processes.get_mut(place) {
            *place = server;
        }
        Ok(())
    }

    /// Stops etcd where it is; [`ApiServer::resume_store`] lets it go on.
    pub fn pause_store(&mut self) {
        if let Some(etcd) = self.processes.last_mut() {
            etcd.pause();
        }
    }

    /// See [`ApiServer::pause_store`].
    pub fn resume_store(&mut self) {
        if let Some(etcd) = self.processes.last_mut() {
            etcd.resume();
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The same as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// Certificate of the authority, of the server and of all users.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        self.authority.ca.certificate.to_pem()
    }

    /// Its key: another server may sign with the same one.
    #[must_use]
    pub fn ca_key_pem(&self) -> &'static str {
        self.authority.key.pkcs8_pem()
    }

    /// An administrator, in the group `system:masters`.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("admin.kubeconfig")
    }

    /// A user with a client certificate of these groups. The file is new with each call.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> io::Result<PathBuf> {
        let number = self.authority.next_serial();
        let path = self.folder.join(format!("user-{number}.kubeconfig"));
        self.kubeconfig_at(&path, user, groups)?;
        Ok(path)
    }

    /// Somebody with a bearer token, such as a bootstrap token. The file is new with each call.
    pub fn token_kubeconfig(&self, token: &str) -> io::Result<PathBuf> {
        let number = self.authority.next_serial();
        let path = self.folder.join(format!("token-{number}.kubeconfig"));
        self.write_kubeconfig(&path, &format!("{{token: {token}}}"))?;
        Ok(path)
    }

    /// Certificate and key of a user of these groups, both PEM.
    #[must_use]
    pub fn user_pair(&self, user: &str, groups: &[&str]) -> (String, &'static str) {
        self.authority.user_pair(user, groups)
    }

    /// A client of HTTP with the same.
    pub fn client(&self, user: &str, groups: &[&str]) -> io::Result<HttpsClient> {
        let (certificate, key) = self.user_pair(user, groups);
        let pair = Some((certificate.as_bytes(), key.as_bytes()));
        HttpsClient::new(self.address(), self.ca_pem().as_bytes(), pair)
    }

    /// The administrator's.
    pub fn admin(&self) -> io::Result<HttpsClient> {
        self.client(ADMIN, &[MASTERS])
    }

    /// A client without a certificate.
    pub fn anonymous(&self) -> io::Result<HttpsClient> {
        HttpsClient::new(self.address(), self.ca_pem().as_bytes(), None)
    }

    /// kubectl of the newest release as the administrator.
    pub fn kubectl(&self) -> Result<Kubectl, MissingCounterpart> {
        Kubectl::new(&self.admin_kubeconfig(), &self.folder.join("home"))
    }

    fn kubeconfig_at(&self, path: &Path, user: &str, groups: &[&str]) -> io::Result<()> {
        let (certificate, key) = self.user_pair(user, groups);
        let user = format!(
            "{{client-certificate-data: {}, client-key-data: {}}}",
            BASE64.encode(certificate),
            BASE64.encode(key)
        );
        self.write_kubeconfig(path, &user)
    }

    fn write_kubeconfig(&self, path: &Path, user: &str) -> io::Result<()> {
        let (url, ca) = (self.url(), BASE64.encode(self.ca_pem()));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: '{url}', certificate-authority-data: {ca}}}}}]\n\
             users: [{{name: test, user: {user}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n"
        );
        fs::write(path, text)
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        // Politely takes up to a minute, and nobody reads what they would leave.
        for process in &mut self.processes {
            process.kill9();
        }
    }
}

/// For assertion messages: what the processes logged.
impl fmt::Display for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.processes
            .iter()
            .try_for_each(|process| writeln!(f, "{process}"))
    }
}

/// The one authority of a cluster, with the certificates that it has given out.
#[derive(Debug)]
struct Authority {
    ca: Ca,
    key: &'static Key,
    serial: AtomicU64,
}

impl Authority {
    fn new(settings: &ApiServerSettings) -> Self {
        Self {
            ca: Ca::root(&settings.ca_name, settings.ca_key, BEGIN),
            key: settings.ca_key,
            serial: AtomicU64::new(1),
        }
    }

    fn next_serial(&self) -> u64 {
        self.serial
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1)
    }

    fn user_pair(&self, user: &str, groups: &[&str]) -> (String, &'static str) {
        let key = keys::p256_b();
        let serial = self.next_serial();
        let certificate = self.ca.kubernetes_user(user, groups, key, serial, BEGIN);
        (certificate.to_pem(), key.pkcs8_pem())
    }

    /// What the servers read.
    fn write(&self, folder: &Path) -> io::Result<()> {
        let key = keys::p256_c();
        let server = self.ca.leaf(&Leaf {
            common_name: "kube-apiserver",
            names: &[
                AltName::Dns("localhost".to_owned()),
                AltName::Ip(Ipv4Addr::LOCALHOST.into()),
            ],
            usage: oid::EKU_SERVER_AUTH,
            key,
            serial: self.next_serial(),
            now: BEGIN,
        });
        let accounts = keys::p256_d();
        fs::create_dir_all(folder.join("home"))?;
        for (name, text) in [
            ("ca.pem", self.ca.certificate.to_pem()),
            ("ca-key.pem", self.key.pkcs8_pem().to_owned()),
            ("server.pem", server.to_pem()),
            ("server-key.pem", key.pkcs8_pem().to_owned()),
            ("accounts-key.pem", accounts.pkcs8_pem().to_owned()),
            (
                "accounts.pem",
                pem::encode("PUBLIC KEY", accounts.spki_der()),
            ),
        ] {
            fs::write(folder.join(name), text)?;
        }
        Ok(())
    }
}

struct Etcd {
    process: ServerProcess,
    port: u16,
}

fn start_etcd(folder: &Path, settings: &ApiServerSettings) -> Result<Etcd, ApiServerFault> {
    let program = Counterpart::Etcd.find()?;
    on_free_ports(|[port, peer]| {
        let mut command = Command::new(&program);
        command
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .arg(format!("--listen-client-urls=http://127.0.0.1:{port}"))
            .arg(format!("--advertise-client-urls=http://127.0.0.1:{port}"))
            .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer}"))
            .arg(format!("--unsafe-no-fsync={}", !settings.durable));
        let mut process = start(&command)?;
        let is_ready = |log: &str| log.contains("serving client traffic insecurely");
        wait_for(&mut process, "etcd", |process| is_ready(&process.log()))?;
        Ok(Etcd { process, port })
    })
}

fn start_server(
    folder: &Path,
    settings: &ApiServerSettings,
    etcd: u16,
    authority: &Authority,
) -> Result<(ServerProcess, u16), ApiServerFault> {
    let program = Counterpart::KubeApiserver.find()?;
    on_free_ports(|[port]| {
        let process = start_server_at(&program, folder, settings, etcd, authority, port)?;
        Ok((process, port))
    })
}

fn start_server_at(
    program: &Path,
    folder: &Path,
    settings: &ApiServerSettings,
    etcd: u16,
    authority: &Authority,
    port: u16,
) -> Result<ServerProcess, ApiServerFault> {
    let (certificate, key) = authority.user_pair(ADMIN, &[MASTERS]);
    let ca = authority.ca.certificate.to_pem();
    let file = |name: &str| folder.join(name).display().to_string();
    let mut command = Command::new(program);
    command
        .arg(format!("--etcd-servers=http://127.0.0.1:{etcd}"))
        .args([
            "--bind-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
        ])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--cert-dir={}", file("certificates")))
        .arg(format!("--tls-cert-file={}", file("server.pem")))
        .arg(format!("--tls-private-key-file={}", file("server-key.pem")))
        .arg(format!("--client-ca-file={}", file("ca.pem")))
        .args([
            "--authorization-mode=Node,RBAC",
            "--enable-bootstrap-token-auth",
        ])
        .arg("--enable-admission-plugins=NodeRestriction")
        .args(["--service-account-issuer=https://kubernetes.default.svc"])
        .arg(format!(
            "--service-account-key-file={}",
            file("accounts.pem")
        ))
        .arg(format!(
            "--service-account-signing-key-file={}",
            file("accounts-key.pem")
        ))
        .arg("--service-cluster-ip-range=10.0.0.0/24")
        .args(&settings.arguments);
    let mut process = start(&command)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let pair = Some((certificate.as_bytes(), key.as_bytes()));
    let client = HttpsClient::new(address, ca.as_bytes(), pair)?;
    wait_for(&mut process, "kube-apiserver", |_| {
        let answer = client.call("GET", "/readyz", &[], b"");
        answer.is_ok_and(|answer| answer.status == 200)
    })?;
    Ok(process)
}

/// kube-controller-manager as the user of `kubeconfig`, at whatever API server that names. Dropping it kills it.
pub fn controllers(
    kubeconfig: &Path,
    arguments: &[String],
) -> Result<ServerProcess, ApiServerFault> {
    let mut command = Command::new(Counterpart::KubeControllerManager.find()?);
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--secure-port=0"])
        .args(["--kube-api-qps=1000", "--kube-api-burst=2000"])
        .args(arguments);
    Ok(start(&command)?)
}

fn start_controllers(api: &ApiServer, more: &[String]) -> Result<ServerProcess, ApiServerFault> {
    let kubeconfig = api.folder.join("controllers.kubeconfig");
    api.kubeconfig_at(&kubeconfig, "system:kube-controller-manager", &[MASTERS])?;
    let file = |name: &str| api.folder.join(name).display().to_string();
    let mut arguments = vec![
        format!("--controllers={}", CONTROLLERS.join(",")),
        format!("--cluster-signing-cert-file={}", file("ca.pem")),
        format!("--cluster-signing-key-file={}", file("ca-key.pem")),
        "--leader-elect=false".to_owned(),
    ];
    arguments.extend_from_slice(more);
    let mut process = controllers(&kubeconfig, &arguments)?;
    // The others start beside it, and find what was asked before them.
    let is_ready =
        |log: &str| log.contains("\"Starting certificate controller\" name=\"csrapproving\"");
    wait_for(&mut process, "kube-controller-manager", |process| {
        is_ready(&process.log())
    })?;
    Ok(process)
}

/// It says nothing on standard output, where [`ServerProcess`] waits for a word, so its wrapper does.
pub(crate) fn start(command: &Command) -> Result<ServerProcess, ServerFault> {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "echo started; exec \"$@\"", "sh"])
        .arg(command.get_program())
        .args(command.get_args());
    ServerProcess::start_wrapped(ending_with_us(&shell), |line| line == "started", PATIENCE)
}

fn wait_for(
    process: &mut ServerProcess,
    name: &'static str,
    is_ready: impl Fn(&ServerProcess) -> bool,
) -> Result<(), ApiServerFault> {
    let ready = ask_again(PATIENCE, || {
        if is_ready(process) {
            return Some(true);
        }
        process.wait(Duration::ZERO).map(|_| false)
    });
    match ready {
        Some(true) => Ok(()),
        Some(false) | None => Err(ApiServerFault::NotReady {
            name,
            said: process.log(),
        }),
    }
}

/// These servers want to know their ports before; another program may take one meanwhile, then others are tried.
fn on_free_ports<T, const COUNT: usize>(
    start: impl Fn([u16; COUNT]) -> Result<T, ApiServerFault>,
) -> Result<T, ApiServerFault> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match start(free_ports()?) {
            Err(ApiServerFault::NotReady { said, .. })
                if said.contains("address already in use") && attempts < MAX_ATTEMPTS => {}
            other => return other,
        }
    }
}

pub(crate) fn free_ports<const COUNT: usize>() -> io::Result<[u16; COUNT]> {
    let mut ports = [0; COUNT];
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

const ADMIN: &str = "admin";
const MASTERS: &str = "system:masters";
const CONTROLLERS: [&str; 3] = [
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-signing-controller",
    "certificatesigningrequest-cleaner-controller",
];

/// Certificates begin then, and last for twenty years.
const BEGIN: UnixTime = UnixTime(1_760_000_000);

/// Alone, all of it needs ten seconds.
const PATIENCE: Duration = Duration::from_secs(180);
const MAX_ATTEMPTS: u32 = 5;

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::client_go::{Kubelet, informer};
    use crate::counterparts::KubernetesRelease;

    /// A cluster where nodes may ask, and are approved.
    fn cluster(folder: &Path) -> ApiServer {
        let api = ApiServer::start(folder, &ApiServerSettings::default()).unwrap();
        for (role, group) in [
            ("system:node-bootstrapper", "system:bootstrappers"),
            (
                "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
                "system:bootstrappers",
            ),
            (
                "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
                "system:nodes",
            ),
        ] {
            let name = format!("{}-{group}", role.rsplit(':').next().unwrap());
            let (role, group) = (format!("--clusterrole={role}"), format!("--group={group}"));
            let arguments = ["create", "clusterrolebinding", &name, &role, &group];
            let finished = api.kubectl().unwrap().run(&arguments).unwrap();
            assert!(finished.success(), "{finished}\n{api}");
        }
        api
    }

    #[test]
    fn the_reference_serves_kubectl_kubelets_and_informers() {
        let folder = tempfile::tempdir().unwrap();
        let api = cluster(folder.path());
        let finished = api.kubectl().unwrap().run(&["get", "csr"]).unwrap();
        assert!(finished.stderr.contains("No resources found"), "{finished}");

        let watching = |release, options: &[&str]| {
            let mut informer = informer(release, &api.admin_kubeconfig(), options).unwrap();
            informer
                .read_until(|line| line["event"] == "synced")
                .unwrap();
            informer
        };
        let mut informers = [
            watching(KubernetesRelease::V1_28, &["--watch-list=false"]),
            watching(KubernetesRelease::V1_32, &["--watch-list=true"]),
            watching(KubernetesRelease::NEWEST, &["--watch-list=true"]),
        ];

        let bootstrap = api.kubeconfig("system:bootstrap:abcdef", &["system:bootstrappers"]);
        let kubelet = Kubelet {
            node: "n1".to_owned(),
            bootstrap_kubeconfig: bootstrap.unwrap(),
            folder: folder.path().join("n1"),
        };
        fs::create_dir(&kubelet.folder).unwrap();
        let options = ["--count", "2", "--aged"];
        let certificates = kubelet.certificate_manager(&options).unwrap();
        let (certificates, status) = certificates.read_to_end().unwrap();
        assert!(status.success(), "{certificates:?}");
        let [first, second] = &certificates[..] else {
            panic!("{certificates:?}")
        };
        assert_eq!(second["user"], "system:node:n1");
        assert_ne!(first["serial"], second["serial"]);

        for informer in &mut informers {
            let is_issued = |line: &Value| line["state"] == "Approved,Issued";
            let one = informer.read_until(is_issued).unwrap();
            let other = informer.read_until(is_issued).unwrap();
            assert_ne!(one["uid"], other["uid"], "{informer}");
        }
    }

    #[test]
    fn a_kubelet_without_rotation_asks_under_a_name_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let api = cluster(folder.path());
        let bootstrap = api.kubeconfig("system:bootstrap:abcdef", &["system:bootstrappers"]);
        let kubelet = Kubelet {
            node: "n2".to_owned(),
            bootstrap_kubeconfig: bootstrap.unwrap(),
            folder: folder.path().join("n2"),
        };
        fs::create_dir(&kubelet.folder).unwrap();
        let mut lines = kubelet.bootstrap_named(&[]).unwrap();
        assert_eq!(lines.read().unwrap()["user"], "system:node:n2");
        let kubectl = api.kubectl().unwrap();
        let named = kubectl.run(&["get", "csr", "-o", "name"]).unwrap();
        assert!(named.stdout.contains("/node-csr-"), "{named}");

        let mut serving = kubelet.serving("n2.example.com,192.0.2.7", &[]).unwrap();
        let waiting = ask_again(PATIENCE, || {
            let signer = "--field-selector=spec.signerName=kubernetes.io/kubelet-serving";
            let found = kubectl.run(&["get", "csr", signer, "-o", "name"]).unwrap();
            let name = found.stdout.trim().to_owned();
            (!name.is_empty()).then_some(name)
        });
        let arguments = ["certificate", "approve", &waiting.unwrap()];
        assert!(kubectl.run(&arguments).unwrap().success());
        let certificate = serving.read().unwrap();
        let names = ["n2.example.com", "192.0.2.7"];
        assert_eq!(certificate["names"], serde_json::json!(names));
    }
}
