//! A machine that is being made: an agent, a shell, and commands that remember how they were called.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::deadline::{Finished, run_with_deadline};

use super::{RunAs, Snippet};
use crate::site::{COUNTERSIGN, Site, install};

pub(super) struct Machine {
    pub(super) agent: PuppetAgent,
    name: String,
    folder: tempfile::TempDir,
}

/// What `puppet ssl bootstrap` does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Agent {
    Real,
    /// Ends the script that runs it, as somebody would who has had enough.
    Interrupts,
}

impl Machine {
    pub(super) fn new(site: &Site, name: &str, shell: &str, kind: Agent) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = site.puppet().port();
        let agent = PuppetAgent::new(&folder.path().join("agent"), "localhost", port, name);
        let machine = Self {
            agent: agent.unwrap(),
            name: name.to_owned(),
            folder,
        };
        for below in ["bin", "agent/conf", "target/etc", "target/var/lib/puppet"] {
            fs::create_dir_all(machine.path(below)).unwrap();
        }
        // Somebody was there first, and hopes that the token is written to a place of theirs.
        fs::write(machine.path("trap"), "").unwrap();
        symlink(machine.path("trap"), machine.attributes()).unwrap();
        symlink(machine.confdir(), machine.path("target/etc/puppet")).unwrap();
        symlink(
            machine.path("agent/ssl"),
            machine.path("target/var/lib/puppet/ssl"),
        )
        .unwrap();
        machine.equip(site, shell, kind);
        machine
    }

    /// Only these commands are there, and each remembers its arguments and its environment.
    fn equip(&self, site: &Site, shell: &str, kind: Agent) {
        for tool in ["cat", "rm", "mkdir", "sleep"] {
            self.command(tool, &format!("exec {} \"$@\"", system(tool)));
        }
        self.command("sh", &format!("exec {} \"$@\"", system(shell)));
        // What sshd does with a command.
        let remote = format!("shift\nexec {} -c \"$*\"", system(shell));
        self.command("ssh", &remote);
        self.command("in-target", "exec \"$@\"");
        let answer = format!(
            "exec {} -n \"s|^d-i $1 string ||p\" {}",
            system("sed"),
            self.path("script").display()
        );
        self.command("debconf-get", &answer);
        let mint = format!(
            "{COUNTERSIGN} \"$@\" --data {} | {} {}",
            site.data().display(),
            system("tee"),
            self.path("token").display()
        );
        self.command("countersign", &mint);

        install(&self.path("puppet"), &self.agent.script(), 0o755);
        let at_work = match kind {
            Agent::Real => "",
            Agent::Interrupts => "kill -TERM $PPID; exit 1",
        };
        let puppet = format!(
            "if [ \"$1 $2\" = 'ssl bootstrap' ]; then\n  \
             {stat} -c %a {attributes} >> {modes}\n  \
             {grep} -a -l -F -f {token} /proc/[0-9]*/cmdline >> {log} 2>/dev/null\n  {at_work}\nfi\n\
             PATH={path}; export PATH\nexec {real} \"$@\"",
            stat = system("stat"),
            grep = system("grep"),
            attributes = self.attributes().display(),
            modes = self.path("modes").display(),
            token = self.path("token").display(),
            log = self.path("leaks").display(),
            path = std::env::var("PATH").unwrap(),
            real = self.path("puppet").display(),
        );
        self.command("puppet", &puppet);
    }

    fn command(&self, name: &str, does: &str) {
        let script = format!(
            "#!/bin/sh\n{{ printf '%s\\n' \"$0 $*\"; {} /proc/$$/environ; }} >> {}\n{does}\n",
            system("cat"),
            self.path("calls").display()
        );
        install(&self.path("bin").join(name), &script, 0o755);
    }

    /// Runs the example as its installer does.
    pub(super) fn run(&self, snippet: &Snippet, token: &str) -> Finished {
        let text = snippet.filled(token, &self.name);
        let shell_part = (snippet.shell_part)(&text);
        let script = self.path("script");
        if !token.is_empty() {
            fs::write(self.path("token"), token).unwrap();
        }
        let mut command = Command::new(self.path("bin/sh"));
        command.arg("-eu");
        match snippet.run_as {
            RunAs::Script => {
                fs::write(&script, shell_part).unwrap();
                command.arg(&script);
            }
            RunAs::Argument => {
                fs::write(&script, text).unwrap();
                command.arg("-c").arg(shell_part);
            }
            RunAs::Minter => {
                fs::write(&script, shell_part).unwrap();
                command.arg(&script);
                command.args(["192.0.2.7", &self.name, "localhost"]);
            }
        }
        command
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("PAUSE", "0")
            .env("TARGET", self.path("target"));
        run_with_deadline(command, Duration::from_secs(180)).unwrap()
    }

    /// The modes that the file had whenever the agent ran.
    pub(super) fn modes(&self) -> Vec<String> {
        let modes = fs::read_to_string(self.path("modes")).unwrap_or_default();
        modes.lines().map(str::to_owned).collect()
    }

    /// The token that was used.
    pub(super) fn token(&self) -> String {
        fs::read_to_string(self.path("token")).unwrap()
    }

    /// No file of the machine has the token any more.
    #[track_caller]
    pub(super) fn holds_nothing(&self, file: &str) {
        let attributes = fs::symlink_metadata(self.attributes());
        assert!(attributes.is_err(), "{file}: {attributes:?}");
        assert_eq!(fs::read_to_string(self.path("trap")).unwrap(), "", "{file}");
        let token = self.token();
        for folder in ["agent", "target"] {
            for (path, bytes) in files(&self.path(folder)) {
                let text = String::from_utf8_lossy(&bytes);
                // A request holds it as a part of its DER, which is no text.
                let is_there =
                    text.contains(token.trim_end()) || text.contains("BEGIN CERTIFICATE REQUEST");
                assert!(!is_there, "{file}: {}", path.display());
            }
        }
    }

    /// No argument and no environment of any command had the token.
    #[track_caller]
    pub(super) fn told_nobody(&self, file: &str) {
        let calls = fs::read(self.path("calls")).unwrap();
        let calls = String::from_utf8_lossy(&calls).replace('\0', "\n");
        for command in ["puppet config", "puppet ssl bootstrap"] {
            assert!(calls.contains(command), "{file}: {calls}");
        }
        let secret = self.token();
        assert!(!calls.contains(secret.trim_end()), "{file}: {calls}");
        let leaks = fs::read_to_string(self.path("leaks")).unwrap();
        assert_eq!(leaks, "", "{file}");
    }

    pub(super) fn confdir(&self) -> PathBuf {
        self.path("agent/conf")
    }

    fn attributes(&self) -> PathBuf {
        self.confdir().join("csr_attributes.yaml")
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }
}

/// Every file below a folder; links are not followed.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            found.extend(files(&path));
        } else if kind.is_file() {
            let bytes = fs::read(&path).unwrap();
            found.push((path, bytes));
        }
    }
    found
}

/// A program of the system.
fn system(tool: &str) -> String {
    let places = ["/usr/bin", "/bin"];
    let mut paths = places.iter().map(|folder| format!("{folder}/{tool}"));
    let found = paths.find(|path| Path::new(path).is_file());
    found.unwrap_or_else(|| panic!("this machine has no {tool}"))
}
