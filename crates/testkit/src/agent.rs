//! A real Puppet agent with a life of its own: every folder it uses is below one given folder.
//!
//! Debian 12's agent 7.23 cannot use `key_type=ec` and makes RSA 4096 keys by default; 2048 bits keep the
//! tests quick.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::counterparts::{MissingCounterpart, Release};
use crate::deadline::{Finished, RunFault, run_with_deadline};

/// One host: a certname, a server, and the folders that an installed agent has in `/etc` and `/var`.
#[derive(Debug)]
pub struct PuppetAgent {
    program: PathBuf,
    folder: PathBuf,
    host: String,
    port: u16,
    certname: String,
    settings: Vec<(String, String)>,
    deadline: Duration,
}

impl PuppetAgent {
    /// Debian 12's agent, which has never talked to `host`:`port`. `folder` is usually a temporary folder of the test.
    pub fn new(
        folder: &Path,
        host: &str,
        port: u16,
        certname: &str,
    ) -> Result<Self, MissingCounterpart> {
        Self::of(Release::Debian12, folder, host, port, certname)
    }

    /// The same of a chosen release. Debian 13's sees only folders below the one for temporary files.
    pub fn of(
        release: Release,
        folder: &Path,
        host: &str,
        port: u16,
        certname: &str,
    ) -> Result<Self, MissingCounterpart> {
        Ok(Self {
            program: release.puppet().find()?,
            folder: folder.to_owned(),
            host: host.to_owned(),
            port,
            certname: certname.to_owned(),
            settings: Vec::new(),
            deadline: DEADLINE,
        })
    }

    /// A setting of `puppet.conf` for all further runs, such as `dns_alt_names`.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// How long a run may take before it is killed.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Writes `csr_attributes.yaml`, from which the agent takes `custom_attributes` and `extension_requests`.
    pub fn write_csr_attributes(&self, yaml: &str) -> io::Result<()> {
        fs::create_dir_all(self.folder.join("conf"))?;
        fs::write(self.folder.join("conf/csr_attributes.yaml"), yaml)
    }

    /// `puppet ssl bootstrap`: CA, CRL, key, request, certificate; exits 1 if not signed at once.
    pub fn bootstrap(&self) -> Result<Finished, RunFault> {
        self.ssl("bootstrap", &["--waitforcert", "0"])
    }

    /// `puppet ssl submit_request`.
    pub fn submit_request(&self) -> Result<Finished, RunFault> {
        self.ssl("submit_request", &[])
    }

    /// `puppet ssl download_cert`.
    pub fn download_cert(&self) -> Result<Finished, RunFault> {
        self.ssl("download_cert", &[])
    }

    /// `puppet ssl verify`: key, certificate, chain and CRL on disk fit together.
    pub fn verify(&self) -> Result<Finished, RunFault> {
        self.ssl("verify", &[])
    }

    /// Any other action of `puppet ssl`.
    pub fn ssl(&self, action: &str, arguments: &[&str]) -> Result<Finished, RunFault> {
        self.run(&[&["ssl", action], arguments].concat())
    }

    /// Any other `puppet` command, with this agent's folders, server and name.
    pub fn run(&self, arguments: &[&str]) -> Result<Finished, RunFault> {
        run_with_deadline(self.command(arguments), self.deadline)
    }

    /// A shell script that does for commands of two words (`ssl bootstrap`) what an installed `puppet` would do on this
    /// host. What it is told counts for more than this agent's own name and server.
    pub fn script(&self) -> String {
        let command = self.command(&[]);
        let quoted = |word: &OsStr| format!("'{}'", word.to_string_lossy());
        let own: Vec<String> = command.get_args().map(quoted).collect();
        format!(
            "#!/bin/sh\nHOME={}; export HOME\nverb=$1 action=$2; shift 2\nexec {} \"$verb\" \"$action\" {} \"$@\"\n",
            quoted(self.folder.as_os_str()),
            quoted(command.get_program()),
            own.join(" ")
        )
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("HOME", &self.folder)
            .env("LC_ALL", "C.UTF-8")
            .args(["--color", "false", "--keylength", KEY_LENGTH])
            .args(["--certname", &self.certname])
            .args(["--server", &self.host, "--ca_server", &self.host]);
        for name in ["--serverport", "--ca_port"] {
            command.arg(name).arg(self.port.to_string());
        }
        for (setting, folder) in FOLDERS {
            command.arg(setting).arg(self.folder.join(folder));
        }
        for (name, value) in &self.settings {
            command.arg(format!("--{name}")).arg(value);
        }
        command
    }

    /// Where the agent keeps its private key.
    pub fn private_key(&self) -> PathBuf {
        self.pem("private_keys")
    }

    /// Where the agent keeps its certificate.
    pub fn certificate(&self) -> PathBuf {
        self.pem("certs")
    }

    /// Where the agent keeps the authority's certificates.
    pub fn ca_bundle(&self) -> PathBuf {
        self.folder.join("ssl/certs/ca.pem")
    }

    /// Where the agent keeps the authority's revocation lists.
    pub fn crl(&self) -> PathBuf {
        self.folder.join("ssl/crl.pem")
    }

    fn pem(&self, kind: &str) -> PathBuf {
        let file = format!("{}.pem", self.certname);
        self.folder.join("ssl").join(kind).join(file)
    }
}

/// Ruby alone needs a second to start, more on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

const KEY_LENGTH: &str = "2048";

/// Each of these defaults to a folder of the system when root runs the agent.
const FOLDERS: &[(&str, &str)] = &[
    ("--confdir", "conf"),
    ("--vardir", "var"),
    ("--ssldir", "ssl"),
    ("--rundir", "run"),
    ("--logdir", "log"),
    ("--publicdir", "public"),
    ("--codedir", "code"),
];

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn agent(folder: &Path, port: u16) -> PuppetAgent {
        PuppetAgent::new(folder, "localhost", port, "web01.example.com").unwrap()
    }

    fn newer(folder: &Path, port: u16) -> PuppetAgent {
        PuppetAgent::of(
            Release::Debian13,
            folder,
            "localhost",
            port,
            "web01.example.com",
        )
        .unwrap()
    }

    /// A port where nobody listened a moment ago.
    fn closed_port() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    }

    #[test]
    fn the_real_agent_runs_with_the_given_name_and_folders() {
        let settings = ["certname", "ssldir", "hostcert", "ca_server"];
        for make in [agent, newer] {
            let folder = tempfile::tempdir().unwrap();
            let finished = make(folder.path(), 1)
                .run(&[&["config", "print"][..], &settings].concat())
                .unwrap();
            assert!(finished.success(), "{finished}");
            let hostcert = agent(folder.path(), 1).certificate();
            for line in [
                "certname = web01.example.com".to_owned(),
                "ca_server = localhost".to_owned(),
                format!("hostcert = {}", hostcert.display()),
                format!("ssldir = {}", folder.path().join("ssl").display()),
            ] {
                assert!(finished.stdout.contains(&line), "{line}\n{finished}");
            }
        }
    }

    #[test]
    fn a_closed_port_is_the_agents_own_error() {
        for make in [agent, newer] {
            let folder = tempfile::tempdir().unwrap();
            let port = closed_port();
            let finished = make(folder.path(), port).bootstrap().unwrap();
            assert_eq!(finished.code, Some(1), "{finished}");
            let sentence = format!("Connection to https://localhost:{port}/puppet-ca/v1 failed");
            assert!(finished.stderr.contains(&sentence), "{finished}");
            assert!(!agent(folder.path(), port).ca_bundle().exists());
        }
    }
}
