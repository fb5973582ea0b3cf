//! The unit files for machines without Puppet: judged by systemd, their commands run as systemd would.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use countersign_testkit::counterparts::Counterpart;
use countersign_testkit::deadline::run_with_deadline;

use super::example;
use crate::commands::wait_until;
use crate::site::{COUNTERSIGN, Site, install};
use crate::tokens_agent::{Minted, site};

const UNITS: &[&str] = &[
    "countersign-enroll.service",
    "countersign-enroll.timer",
    "countersign-enroll-daemon.service",
];

pub(super) fn is_tried(file: &str) -> bool {
    UNITS.contains(&file)
}

/// A machine with the files that the units name, in a folder instead of `/etc/countersign`.
struct Etc {
    folder: tempfile::TempDir,
    port: u16,
}

impl Etc {
    fn new(site: &Site, token: &str) -> Self {
        let etc = Self {
            folder: tempfile::tempdir().unwrap(),
            port: site.puppet().port(),
        };
        fs::write(etc.path("ca.pem"), site.puppet_ca()).unwrap();
        install(&etc.path("enrolment-token"), &format!("{token}\n"), 0o600);
        etc
    }

    /// A command of a unit, with the paths and addresses of this machine. `%%` is systemd's `%`.
    fn command(&self, unit: &str, key: &str) -> Command {
        let text = fs::read_to_string(example(unit)).unwrap();
        let prefix = format!("{key}=");
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
        let line = line
            .unwrap_or_else(|| panic!("{unit} has no {key}"))
            .replace("%%", "%")
            .replace("/usr/bin/countersign", COUNTERSIGN)
            .replace("/etc/countersign", self.folder.path().to_str().unwrap())
            .replace(
                "https://ca.example.com:8140",
                &format!("https://localhost:{}", self.port),
            );
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).env_clear();
        // The unit takes the machine's name; this one has none in its authority's domain.
        if key == "ExecStart" {
            command.arg(NAME);
        }
        command
    }

    #[track_caller]
    fn succeeds(&self, unit: &str, key: &str) {
        let command = self.command(unit, key);
        let finished = run_with_deadline(command, Duration::from_secs(60)).unwrap();
        assert!(finished.success(), "{unit} {key}: {finished}");
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn certificate(&self) -> PathBuf {
        self.path("enroll").join(format!("{NAME}.pem"))
    }
}

const NAME: &str = "vpn.example.com";

#[test]
fn the_oneshot_unit_enrols_once_and_then_has_nothing_to_do() {
    let site = site();
    let minted = Minted::new(&site, NAME, &[]);
    let etc = Etc::new(&site, minted.token.expose());
    let unit = "countersign-enroll.service";
    etc.succeeds(unit, "ExecStart");
    etc.succeeds(unit, "ExecStartPost");
    assert!(!etc.path("enrolment-token").exists());
    minted.serial(&site);
    let certificate = fs::read(etc.certificate()).unwrap();
    // What the timer starts: without a token, since none is needed.
    etc.succeeds(unit, "ExecStart");
    assert_eq!(fs::read(etc.certificate()).unwrap(), certificate);
}

/// A process that is killed with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ended_before = self.0.kill();
        let _ended_before = self.0.wait();
    }
}

#[test]
fn the_daemon_unit_is_ready_when_it_has_a_certificate() {
    let site = site();
    let minted = Minted::new(&site, NAME, &[]);
    let etc = Etc::new(&site, minted.token.expose());
    let socket = etc.path("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let unit = "countersign-enroll-daemon.service";
    let mut command = etc.command(unit, "ExecStart");
    command.env("NOTIFY_SOCKET", &socket).stderr(Stdio::null());
    let running = Running(command.spawn().unwrap());
    let mut buffer = [0; 4096];
    let is_ready = |length: usize, buffer: &[u8]| {
        let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
        message.lines().any(|line| line == "READY=1")
    };
    loop {
        let length = manager.recv(&mut buffer).unwrap();
        if is_ready(length, &buffer) {
            break;
        }
    }
    minted.serial(&site);
    assert!(etc.certificate().exists());
    // Only now systemd runs what comes after the start.
    etc.succeeds(unit, "ExecStartPost");
    assert!(!etc.path("enrolment-token").exists());
    let alive = format!("/proc/{}/exe", running.0.id());
    wait_until("the daemon stays", || Path::new(&alive).exists());
}

#[test]
fn systemd_takes_the_units() {
    let folder = tempfile::tempdir().unwrap();
    for unit in UNITS {
        let text = fs::read_to_string(example(unit)).unwrap();
        let text = text.replace("/usr/bin/countersign", COUNTERSIGN);
        fs::write(folder.path().join(unit), text).unwrap();
    }
    for unit in UNITS {
        let mut command = Command::new(Counterpart::SystemdAnalyze.find().unwrap());
        command.args(["verify", "--man=no", "--recursive-errors=no"]);
        command.arg(folder.path().join(unit));
        let verified = run_with_deadline(command, Duration::from_secs(60)).unwrap();
        assert!(verified.success(), "{unit}: {verified}");
        assert_eq!(verified.stderr, "", "{unit}: {verified}");
    }
}
