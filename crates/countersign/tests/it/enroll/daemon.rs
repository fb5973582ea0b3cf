//! `enroll --daemon`: renews for ever, whatever the server does.

use std::fs;
use std::time::Duration;

use countersign_testkit::server_process::ServerProcess;

use super::Machine;
use crate::commands::wait_until;
use crate::site::{Site, serve};

/// Certificates live ten minutes, so they are due at once for who renews a day before their end.
const SHORT: &str =
    "puppet: {auto_renewal: true, auto_renewal_cert_ttl: 10m, autosign: \"true\"}\n";
const EARLY: [&str; 3] = ["--daemon", "--renew-before", "1d"];

/// Its hook says when a certificate is there, so the first one makes it ready.
fn start(machine: &Machine, arguments: &[&str]) -> ServerProcess {
    let hook = ["--hook", "/bin/echo", "--hook-arg", "ready"];
    let command = machine.command(&[arguments, &hook].concat());
    ServerProcess::start_command(command).unwrap_or_else(|fault| panic!("{fault}"))
}

fn certificate(machine: &Machine) -> Vec<u8> {
    fs::read(machine.certificate()).unwrap()
}

#[test]
fn a_daemon_enrols_renews_survives_an_outage_and_ends_when_asked() {
    let mut site = Site::configured(SHORT, &[]);
    let machine = Machine::of(&site, "web01.example.com");
    let mut daemon = start(&machine, &EARLY);
    let key = fs::read(machine.key()).unwrap();

    let renewals = |log: &str| log.matches("web01.example.com is renewed").count();
    let log = daemon.log();
    assert!(log.contains("web01.example.com is enrolled"), "{log}");
    assert!(daemon.wait_for_log(|log| renewals(log) >= 2), "{daemon}");
    assert!(
        daemon.log().contains("--renew-before is longer"),
        "{daemon}"
    );

    // The server goes away, and comes back on the same port.
    let port = site.puppet().port().to_string();
    site.server.stop().unwrap();
    assert!(
        daemon.wait_for_log(|log| log.contains("nobody answers there")),
        "{daemon}"
    );
    let before = certificate(&machine);
    let config = site.data().parent().unwrap().join("countersign.yaml");
    let address = format!("127.0.0.1:{port}");
    let arguments = ["--config", config.to_str().unwrap(), "--listen", &address];
    site.server = serve_again(&site, &arguments);
    wait_until("the daemon has renewed again", || {
        certificate(&machine) != before
    });

    assert_eq!(fs::read(machine.key()).unwrap(), key);
    assert_eq!(daemon.stop().unwrap().code(), Some(0), "{daemon}");
    // It waits between renewals, however often they are due.
    assert!(renewals(&daemon.log()) < 12, "{daemon}");
    assert_eq!(machine.status(0)["name"], "web01.example.com");
}

fn serve_again(site: &Site, arguments: &[&str]) -> ServerProcess {
    let data = site.data();
    let mut all = vec!["--data", data.to_str().unwrap()];
    all.extend(["--kubernetes-listen", "off", "--hostname", "localhost"]);
    all.extend(arguments);
    ServerProcess::start(std::path::Path::new(crate::site::COUNTERSIGN), &all)
        .unwrap_or_else(|fault| panic!("{fault}"))
}

#[test]
fn a_daemon_waits_for_a_person_and_for_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = serve(&data, &[]);
    let site = Site::around(data, server);
    let machine = Machine::of(&site, "web01.example.com");
    let waiting = machine.start(&["--daemon"]);
    wait_until("the request waits", || {
        super::is_waiting(&site, machine.name)
    });
    assert_eq!(site.put_state(machine.name, "signed").status, 204);
    wait_until("it is enrolled", || machine.certificate().exists());
    waiting.kill9();

    // One whose time has not come sleeps, and ends at once when asked.
    let mut command = machine.command(&["--daemon"]);
    command.env("RUST_LOG", "info");
    let mut child = command.spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let status = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    wait_until("it sleeps", || ticks(&status()).is_some());
    // Two looks a second apart: whoever turns in a loop uses up most of it.
    let before = ticks(&status()).unwrap();
    let (_never, pause) = std::sync::mpsc::sync_channel::<()>(0);
    let _elapsed = pause.recv_timeout(Duration::from_secs(3));
    let after = ticks(&status()).unwrap();
    assert!(after - before < 100, "{before} {after}");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// What a process has used of the processor, in hundredths of a second (proc(5)).
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}
