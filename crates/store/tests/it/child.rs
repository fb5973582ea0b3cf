//! A second process: this test program again, running the same test in another part, with a store of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable by which the child knows its store.
const STORE: &str = "COUNTERSIGN_TEST_STORE";

/// A command that runs the named test as a child, through `wrapper` if there is one, on the store at `path`.
pub(crate) fn command(wrapper: &[&str], test: &str, path: &Path) -> Command {
    let program = std::env::current_exe().expect("the test program's own path");
    let arguments = ["--exact", test, "--nocapture", "--test-threads=1"].map(OsStr::new);
    let mut line = wrapper
        .iter()
        .map(OsStr::new)
        .chain([program.as_os_str()])
        .chain(arguments);
    let mut command = Command::new(line.next().expect("a program"));
    command.args(line).env(STORE, path);
    command
}

/// Runs the command and checks that it ran its one test, which passed.
pub(crate) fn passes(command: &mut Command) {
    let output = command.output().expect("the child runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{complaints}"
    );
}

/// In the child: the path of its store.
pub(crate) fn store_path() -> Option<PathBuf> {
    std::env::var_os(STORE).map(PathBuf::from)
}
