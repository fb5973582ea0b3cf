//! What a service manager hears: on a real socket, from the real program.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use countersign_testkit::server_process::ServerProcess;

use crate::site::COUNTERSIGN;

/// The other end of `NOTIFY_SOCKET`.
struct Manager(UnixDatagram);

impl Manager {
    /// The next message that is no sign of life.
    fn hears(&self) -> String {
        loop {
            let message = self.any();
            if message != "WATCHDOG=1\n" {
                return message;
            }
        }
    }

    fn any(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }
}

#[test]
fn ready_reloading_alive_and_stopping_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&socket).unwrap());
    manager
        .0
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut server = serve(folder.path(), &socket);
    let status = format!("STATUS=puppet={}\n", server.addresses.puppet);
    let ready = format!("READY=1\n{status}");
    assert_eq!(manager.hears(), ready);
    // Every 250 ms, whatever else happens.
    for _ in 0..4 {
        assert_eq!(manager.any(), "WATCHDOG=1\n");
    }
    server.hang_up();
    let reloading = manager.hears();
    let since = reloading
        .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
        .unwrap();
    let since: u64 = since.trim_end().parse().unwrap();
    assert!(since > 0);
    assert_eq!(manager.hears(), ready);
    assert!(server.stop().unwrap().success());
    assert_eq!(
        manager.hears(),
        "STOPPING=1\nSTATUS=finishing open requests\n"
    );
}

fn serve(folder: &Path, socket: &Path) -> ServerProcess {
    let mut command = Command::new(COUNTERSIGN);
    command
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--kubernetes-listen",
            "off",
            "--data",
        ])
        .arg(folder.join("data"))
        .env_remove("RUST_LOG")
        .env("NOTIFY_SOCKET", socket)
        .env("WATCHDOG_USEC", "500000");
    ServerProcess::start_command(command).unwrap_or_else(|fault| panic!("{fault}"))
}

/// systemd itself judges the unit file.
#[test]
fn the_unit_file_is_valid_and_tight() {
    use countersign_testkit::counterparts::Counterpart;
    use countersign_testkit::deadline::run_with_deadline;
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let text = std::fs::read_to_string(packaging.join("countersign.service")).unwrap();
    // systemd's own judgement says nothing about cores, which would hold the issuers' keys.
    assert!(text.lines().any(|line| line == "LimitCORE=0"), "{text}");
    // The program's path need not exist on this machine.
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("countersign.service");
    std::fs::write(&unit, text.replace("/usr/bin/countersign", COUNTERSIGN)).unwrap();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new(Counterpart::SystemdAnalyze.find().unwrap());
        command.args(arguments).arg(&unit);
        run_with_deadline(command, Duration::from_secs(60)).unwrap()
    };
    let verified = analyze(&["verify", "--man=no", "--recursive-errors=no"]);
    assert!(verified.success(), "{verified}");
    assert_eq!(verified.stderr, "", "{verified}");
    let judged = analyze(&["security", "--offline=true", "--threshold=20"]);
    assert!(judged.success(), "{judged}");
}
