//! A real PostgreSQL: a new cluster in a temporary folder, on a Unix socket and, where a test wants it, on TLS.
//!
//! It refuses to run as root, as which tests often run: then it gets another user's number in a user namespace of its own.
//! `root` and the superuser are trusted on the socket; over TCP there are passwords and client certificates.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use countersign_pki::{AltName, UnixTime, oid};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::api_server::{free_ports, start};
use crate::chain::{Ca, Leaf};
use crate::counterparts::{Counterpart, MissingCounterpart};
use crate::deadline::{Finished, RunFault, ask_again, run_with_input};
use crate::keys;
use crate::server_process::{ServerFault, ServerProcess};

/// A running PostgreSQL. Dropping it kills it and removes its files.
#[derive(Debug)]
pub struct Postgres {
    process: ServerProcess,
    settings: PostgresSettings,
    programs: PathBuf,
    port: u16,
    /// Removed last.
    folder: TempDir,
}

/// What differs between the servers of tests.
#[derive(Clone, Debug, Default)]
pub struct PostgresSettings {
    /// Whether it listens on loopback too.
    pub tcp: bool,
    /// Names in its certificate; without any it has no TLS.
    pub tls_names: Vec<AltName>,
    /// Further settings, as in `lock_timeout=1s`.
    pub settings: Vec<String>,
}

/// Why PostgreSQL could not be started.
#[derive(Debug, thiserror::Error)]
pub enum PostgresFault {
    /// It was not prepared.
    #[error(transparent)]
    Missing(#[from] MissingCounterpart),
    /// Its files cannot be written, or no port is free.
    #[error("cannot prepare the files of PostgreSQL")]
    Prepare(#[from] io::Error),
    /// A program did not run to its end.
    #[error(transparent)]
    Run(#[from] RunFault),
    /// A program or a statement failed.
    #[error("{what} failed: {said}")]
    Failed {
        /// Which.
        what: &'static str,
        /// Its output.
        said: String,
    },
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] ServerFault),
    /// The server ended, or did not become ready in time.
    #[error("PostgreSQL did not become ready; it had said: {said}")]
    NotReady {
        /// Its log until then.
        said: String,
    },
}

impl Postgres {
    /// A server that the tests of a process share, each with a database of its own. It ends with the last who holds it.
    pub fn shared() -> Result<Arc<Self>, PostgresFault> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = Arc::new(Self::start(PostgresSettings::default())?);
        *shared = Arc::downgrade(&server);
        Ok(server)
    }

    /// Makes a cluster and starts a server on it.
    pub fn start(settings: PostgresSettings) -> Result<Self, PostgresFault> {
        let program = Counterpart::Postgres.find()?;
        let programs = program.parent().map(Path::to_owned).unwrap_or_default();
        let folder = tempfile::Builder::new().prefix("pg").tempdir()?;
        make_cluster(&programs, folder.path())?;
        write_files(folder.path(), &settings)?;
        let mut attempts = 0;
        let (process, port) = loop {
            attempts += 1;
            let [port] = free_ports()?;
            match start_at(&programs, folder.path(), &settings, port) {
                Err(PostgresFault::NotReady { said })
                    if said.contains("Address already in use") && attempts < MAX_ATTEMPTS => {}
                other => break (other?, port),
            }
        };
        Ok(Self {
            process,
            settings,
            programs,
            port,
            folder,
        })
    }

    /// The folder of its socket.
    #[must_use]
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// The port, which also names its socket.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A URL by which a user reaches a database over the socket.
    #[must_use]
    pub fn socket_url(&self, user: &str, database: &str) -> String {
        let folder = self.folder.path().to_string_lossy().replace('/', "%2F");
        format!("postgres://{user}@{folder}:{}/{database}", self.port)
    }

    /// A URL over TCP, to which settings can be added.
    #[must_use]
    pub fn tcp_url(&self, host: &str, user: &str, database: &str) -> String {
        format!("postgres://{user}@{host}:{}/{database}", self.port)
    }

    /// The certificate of the authority that certifies the server and its clients.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Certificate and key of the client `name`.
    #[must_use]
    pub fn client_pair(&self, name: &str) -> (PathBuf, PathBuf) {
        let certificate = authority().leaf(&Leaf {
            common_name: name,
            names: &[AltName::Dns(name.to_owned())],
            usage: oid::EKU_CLIENT_AUTH,
            key: keys::p256_c(),
            serial: 3,
            now: BEGIN,
        });
        let files = ["client.pem", "client-key.pem"].map(|file| self.folder.path().join(file));
        let [certificate_file, key_file] = &files;
        fs::write(certificate_file, certificate.to_pem()).expect("a file in a temporary folder");
        write_private(key_file, keys::p256_c().pkcs8_pem()).expect("a file in a temporary folder");
        files.into()
    }

    /// Runs statements as the superuser, and answers with what they say, a line per row.
    pub fn sql(&self, database: &str, statements: &str) -> Result<String, PostgresFault> {
        let mut command = Command::new(self.programs.join("psql"));
        command
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--set", "ON_ERROR_STOP=1", "--username", SUPERUSER])
            .arg("--host")
            .arg(self.folder.path())
            .arg("--port")
            .arg(self.port.to_string())
            .args(["--dbname", database]);
        let input = statements.as_bytes().to_vec();
        said_by("psql", run_with_input(command, input, PATIENCE)?)
    }

    /// Makes an empty database of this name.
    pub fn create_database(&self, name: &str) -> Result<(), PostgresFault> {
        self.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(())
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Kills all its processes at once, as a crash would.
    pub fn kill9(&mut self) {
        let children = self.children();
        self.process.kill9();
        for child in children {
            let _gone_meanwhile = kill_process(child, Signal::KILL);
        }
    }

    /// Starts it again where it was, after [`Postgres::kill9`].
    pub fn restart(&mut self) -> Result<(), PostgresFault> {
        self.process.kill9();
        self.process = start_at(
            &self.programs,
            self.folder.path(),
            &self.settings,
            self.port,
        )?;
        Ok(())
    }

    /// Stops all its processes where they are; [`Postgres::resume`] lets them go on.
    pub fn pause(&mut self) {
        self.process.pause();
        self.signal_children(Signal::STOP);
    }

    /// See [`Postgres::pause`].
    pub fn resume(&mut self) {
        self.signal_children(Signal::CONT);
        self.process.resume();
    }

    fn signal_children(&self, signal: Signal) {
        for child in self.children() {
            let _gone_meanwhile = kill_process(child, signal);
        }
    }

    /// Each session is a process; they are in sessions of their own.
    fn children(&self) -> Vec<Pid> {
        let pid = self.process.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|child| Pid::from_raw(child.parse().ok()?))
            .collect()
    }
}

impl Drop for Postgres {
    /// Nothing of it is worth an orderly end.
    fn drop(&mut self) {
        self.kill9();
    }
}

fn make_cluster(programs: &Path, folder: &Path) -> Result<(), PostgresFault> {
    let mut command = unprivileged(&programs.join("initdb"));
    command
        .arg("--pgdata")
        .arg(folder.join("data"))
        .args(["--username", SUPERUSER, "--auth", "trust"])
        .args(["--encoding", "UTF8", "--no-locale", "--no-sync"])
        .args(["--wal-segsize", "1"]);
    said_by("initdb", run_with_input(command, Vec::new(), PATIENCE)?)?;
    Ok(())
}

fn write_files(folder: &Path, settings: &PostgresSettings) -> io::Result<()> {
    let authority = authority();
    fs::write(folder.join("ca.pem"), authority.certificate.to_pem())?;
    fs::write(folder.join("data/pg_hba.conf"), ACCESS)?;
    if settings.tls_names.is_empty() {
        return Ok(());
    }
    let certificate = authority.leaf(&Leaf {
        common_name: "postgres",
        names: &settings.tls_names,
        usage: oid::EKU_SERVER_AUTH,
        key: keys::p256_b(),
        serial: 2,
        now: BEGIN,
    });
    fs::write(folder.join("server.pem"), certificate.to_pem())?;
    write_private(&folder.join("server-key.pem"), keys::p256_b().pkcs8_pem())
}

fn start_at(
    programs: &Path,
    folder: &Path,
    settings: &PostgresSettings,
    port: u16,
) -> Result<ServerProcess, PostgresFault> {
    let address = if settings.tcp { "127.0.0.1" } else { "" };
    let file = |name: &str| folder.join(name).display().to_string();
    let mut command = unprivileged(&programs.join("postgres"));
    command
        .arg("-D")
        .arg(folder.join("data"))
        .arg(format!("--listen_addresses={address}"))
        .arg(format!("--port={port}"))
        .arg(format!("--unix_socket_directories={}", folder.display()))
        // A crash of the database leaves what the system has taken over: only a crash of the machine would not.
        .args(["--fsync=off", "--jit=off", "--max_connections=200"])
        .args(["--full_page_writes=off", "--checkpoint_timeout=1h"])
        .args(["--shared_buffers=32MB", "--log_min_messages=warning"]);
    if !settings.tls_names.is_empty() {
        command
            .arg("--ssl=on")
            .arg(format!("--ssl_cert_file={}", file("server.pem")))
            .arg(format!("--ssl_key_file={}", file("server-key.pem")))
            .arg(format!("--ssl_ca_file={}", file("ca.pem")));
    }
    for setting in &settings.settings {
        command.arg(format!("--{setting}"));
    }
    // What a crash left of processes lets go of the cluster within moments.
    let started = ask_again(PATIENCE, || match start_once(&command) {
        Err(PostgresFault::NotReady { said }) if said.contains("still in use") => None,
        other => Some(other),
    });
    started.unwrap_or_else(|| {
        Err(PostgresFault::NotReady {
            said: "another server has the cluster".to_owned(),
        })
    })
}

fn start_once(command: &Command) -> Result<ServerProcess, PostgresFault> {
    let mut process = start(command)?;
    let ready = ask_again(PATIENCE, || {
        if process.log().contains("ready to accept connections") {
            return Some(true);
        }
        process.wait(Duration::ZERO).map(|_| false)
    });
    if ready == Some(true) {
        Ok(process)
    } else {
        let said = process.log();
        Err(PostgresFault::NotReady { said })
    }
}

/// The program under a user's number that is not root's. Its files are root's all the same.
fn unprivileged(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-user=1000", "--"])
        .arg(program);
    command
}

fn said_by(what: &'static str, finished: Finished) -> Result<String, PostgresFault> {
    if finished.success() {
        Ok(finished.stdout)
    } else {
        let said = finished.to_string();
        Err(PostgresFault::Failed { what, said })
    }
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

fn authority() -> Ca {
    Ca::root("PostgreSQL", keys::p256_a(), BEGIN)
}

/// Names in a certificate of a server on loopback.
#[must_use]
pub fn loopback_names() -> Vec<AltName> {
    vec![
        AltName::Dns("localhost".to_owned()),
        AltName::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    ]
}

const SUPERUSER: &str = "postgres";

/// `certified` shows a certificate, everybody else on TCP a password.
const ACCESS: &str = "\
local all all trust
local replication all trust
hostssl all certified 127.0.0.1/32 cert
host all all 127.0.0.1/32 scram-sha-256
";

/// Certificates begin then, and last for twenty years.
const BEGIN: UnixTime = UnixTime(1_760_000_000);

/// Alone, it needs a second.
const PATIENCE: Duration = Duration::from_secs(120);
const MAX_ATTEMPTS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_comes_back_after_it_was_killed() {
        let mut server = Postgres::start(PostgresSettings::default()).unwrap();
        server.create_database("one").unwrap();
        let made = "CREATE TABLE kept (number int); INSERT INTO kept VALUES (7)";
        server.sql("one", made).unwrap();
        server.kill9();
        server.sql("one", "SELECT 1").unwrap_err();
        server.restart().unwrap();
        let kept = server.sql("one", "SELECT number FROM kept").unwrap();
        assert_eq!(kept.trim(), "7");
        server.pause();
        server.resume();
        server.sql("one", "SELECT 1").unwrap();
        let folder = server.socket_folder().to_owned();
        drop(server);
        assert!(!folder.exists());
    }
}
