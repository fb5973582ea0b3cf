//! No core of the program is written: it would hold private keys.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

use countersign_testkit::server_process::ServerProcess;
use rustix::process::{Pid, Signal, kill_process};

use crate::site::COUNTERSIGN;

#[test]
fn the_server_leaves_no_core() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh", COUNTERSIGN])
        .args(["serve", "--listen", "127.0.0.1:0", "--kubernetes-listen"])
        .args(["off", "--hostname", "localhost", "--data"])
        .arg(folder.path().join("data"))
        .current_dir(folder.path());
    let mut server = ServerProcess::start_command(command).unwrap();
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::ABORT).unwrap();
    let status = server.wait(Duration::from_secs(30)).unwrap();
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{server}");
    assert!(!status.core_dumped(), "{status}");
}
