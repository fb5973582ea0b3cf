//! docs/policies.md does what it says: its walk from an empty folder to a policy that decides, and its cookbook.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use countersign_pki::UnixTime;
use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::chain::Ca;
use countersign_testkit::deadline::run_with_deadline;
use countersign_testkit::keys;
use countersign_testkit::server_process::{Addresses, ServerProcess};

use crate::installation::{binary, run};
use crate::site::install;

/// A fenced block of the manual.
#[derive(Debug)]
pub(crate) enum Block<'a> {
    /// Commands.
    Commands(&'a str),
    /// What they print.
    Printed(&'a str),
    /// What the server's log says then.
    Logged(&'a str),
    /// A file that lies beside the manual.
    File(&'a str),
}

/// Somebody who follows the manual in an empty folder.
pub(crate) struct Reader {
    folder: tempfile::TempDir,
    server: Option<ServerProcess>,
    /// Lines of the terminal that count for all later commands.
    exports: String,
    /// What the last commands printed.
    printed: String,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let reader = Self {
            folder,
            server: None,
            exports: String::new(),
            printed: String::new(),
        };
        for below in ["bin", "here", "home"] {
            fs::create_dir(reader.path(below)).unwrap();
        }
        symlink(binary(), reader.path("bin/countersign")).unwrap();
        reader
    }

    /// Puts a program on the reader's `PATH`.
    pub(crate) fn install(&self, name: &str, program: &Path) {
        symlink(program, self.path("bin").join(name)).unwrap();
    }

    /// Puts a file into the reader's folder.
    pub(crate) fn copy(&self, file: &Path) {
        let name = file.file_name().unwrap();
        fs::copy(file, self.path("here").join(name)).unwrap();
    }

    /// The folder that the commands run in.
    pub(crate) fn folder(&self) -> PathBuf {
        self.path("here")
    }

    /// What the last commands printed.
    pub(crate) fn printed(&self) -> &str {
        &self.printed
    }

    /// The server that runs.
    pub(crate) fn server(&self) -> &ServerProcess {
        self.server.as_ref().unwrap()
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    pub(crate) fn follow(&mut self, block: &Block<'_>) {
        match block {
            Block::Commands(text) => match text.split_once("countersign serve ") {
                Some((before, arguments)) => {
                    self.run(before);
                    self.serve(arguments.trim());
                }
                None => self.run(text),
            },
            Block::Printed(text) => self.has_read(text),
            Block::File(text) => {
                let files = fs::read_dir(self.path("here")).unwrap();
                let mut files = files.map(|file| fs::read(file.unwrap().path()));
                let is_it = |file: Vec<u8>| file.trim_ascii_end() == text.as_bytes();
                let is_there = files.any(|file| file.is_ok_and(is_it));
                assert!(is_there, "no such file:\n{text}");
            }
            Block::Logged(text) => {
                let server = self.server.as_ref().unwrap();
                let is_told =
                    |log: &str| log.lines().any(|line| resembles(line, &format!("…{text}")));
                assert!(server.wait_for_log(is_told), "{text}\n{server}");
            }
        }
    }

    fn run(&mut self, commands: &str) {
        let mut shell = Command::new("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        shell
            .args(["-c", &format!("exec 2>&1\n{}{commands}", self.exports)])
            .current_dir(self.path("here"))
            .env("HOME", self.path("home"))
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env_remove("COUNTERSIGN_DATA")
            .env_remove("RUST_LOG");
        let finished = run_with_deadline(shell, Duration::from_secs(180)).unwrap();
        self.printed = finished.stdout;
        for line in commands.lines().filter(|line| line.starts_with("export ")) {
            self.exports.push_str(&format!("{line}\n"));
        }
    }

    /// On free ports, which the agent is told of, and on the same ones again; the rest as printed.
    fn serve(&mut self, arguments: &str) {
        let before = self.server.take();
        let [puppet, kubernetes] = [Addresses::puppet_port, Addresses::kubernetes_port].map(|of| {
            let port = before.as_ref().and_then(|server| of(&server.addresses));
            format!("127.0.0.1:{}", port.unwrap_or_default())
        });
        drop(before);
        let mut command = Command::new(binary());
        command
            .arg("serve")
            .args(arguments.split_whitespace())
            .args(["--listen", &puppet, "--kubernetes-listen", &kubernetes])
            .current_dir(self.path("here"))
            .env_remove("COUNTERSIGN_DATA")
            .env_remove("RUST_LOG");
        let server =
            ServerProcess::start_command(command).unwrap_or_else(|fault| panic!("{fault}"));
        let port = server.addresses.puppet_port().unwrap();
        let agent = PuppetAgent::new(&self.path("agent"), "localhost", port, "reader").unwrap();
        install(&self.path("bin/puppet"), &agent.script(), 0o755);
        self.server = Some(server);
    }

    /// Each line of the manual is printed, in this order.
    fn has_read(&self, manual: &str) {
        let mut printed = self.printed.lines();
        for line in manual.lines() {
            let is_there = printed.any(|one| resembles(one.trim_end(), line));
            assert!(
                is_there,
                "{line}\nis not among, or not there in\n{}",
                self.printed
            );
        }
    }
}

/// Whether a line is the one of the manual, where `…` stands for anything.
fn resembles(line: &str, manual: &str) -> bool {
    let mut parts = manual.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut is_open = false;
    for part in parts {
        is_open = part.is_empty();
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    is_open || rest.is_empty()
}

pub(crate) fn blocks(section: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut fences = section.split("\n```");
    fences.next();
    while let (Some(block), Some(_)) = (fences.next(), fences.next()) {
        let (kind, text) = block.split_once('\n').unwrap();
        blocks.push(match kind {
            "sh" => Block::Commands(text),
            "log" => Block::Logged(text),
            "" => Block::Printed(text),
            "yaml" => Block::File(text),
            other => panic!("a block of {other}"),
        });
    }
    blocks
}

#[test]
fn a_newcomer_writes_tests_watches_and_changes_a_policy_as_the_manual_says() {
    let (_, rest) = MANUAL.split_once("\n## A first policy\n").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let blocks = blocks(section);
    let commands = blocks
        .iter()
        .filter(|block| matches!(block, Block::Commands(_)));
    assert!(commands.count() > 10, "{blocks:?}");
    let mut reader = Reader::new();
    for block in &blocks {
        reader.follow(block);
    }
}

#[test]
fn the_built_in_policy_is_in_the_manual_and_passes_its_tests() {
    let text = include_str!("../../src/built_in/kubelet-clients.yaml");
    assert!(MANUAL.contains(&format!("```yaml\n{text}```\n")));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cases = folder.join("tests/data/kubelet-clients-test.yaml");
    let tested = run(&["policy", "test", cases.to_str().unwrap(), "--coverage"]);
    assert!(tested.success(), "{tested}");
    assert!(tested.stdout.ends_with(" passed, 0 failed\n"), "{tested}");
    assert!(!tested.stdout.contains("not reached"), "{tested}");
}

#[test]
fn every_recipe_of_the_cookbook_is_in_the_manual_and_passes_its_tests() {
    let folder = tempfile::tempdir().unwrap();
    let mut recipes = Vec::new();
    for entry in fs::read_dir(COOKBOOK).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        fs::copy(&path, folder.path().join(&name)).unwrap();
        let recipe = name
            .strip_suffix(".yaml")
            .filter(|name| !name.ends_with("-test"));
        recipes.extend(recipe.map(str::to_owned));
    }
    recipes.sort();
    assert_eq!(
        recipes,
        [
            "allowlist",
            "cloud-instance",
            "cmdb",
            "deny-list",
            "office-hours",
            "token-and-webhook",
            "tokens",
            "two-people"
        ]
    );
    let of = |recipe: &str, end: &str| {
        let path: PathBuf = folder.path().join(format!("{recipe}{end}"));
        path.to_str().unwrap().to_owned()
    };
    let (_, cookbook) = MANUAL.split_once("\n## Cookbook\n").unwrap();
    for recipe in &recipes {
        let text = fs::read_to_string(of(recipe, ".yaml")).unwrap();
        assert!(
            cookbook.contains(&format!("```yaml\n{text}```\n")),
            "{recipe}"
        );
        assert!(
            cookbook.contains(&format!("(cookbook/{recipe}-test.yaml)")),
            "{recipe}"
        );
        let tested = run(&["policy", "test", &of(recipe, "-test.yaml"), "--coverage"]);
        assert!(tested.success(), "{recipe}: {tested}");
        assert!(
            tested.stdout.ends_with(" passed, 0 failed\n"),
            "{recipe}: {tested}"
        );
        assert!(!tested.stdout.contains("not reached"), "{recipe}: {tested}");
    }
    // All of them together are a policy, once the CMDB's files are there.
    let ca = Ca::root("cmdb", keys::p256_c(), UnixTime(1_760_000_000));
    write(folder.path(), "cmdb-ca.pem", &ca.certificate.to_pem());
    write(
        folder.path(),
        "cmdb-secret",
        "0123456789abcdef0123456789abcdef\n",
    );
    let secret = folder.path().join("cmdb-secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let files: Vec<String> = recipes.iter().map(|recipe| of(recipe, ".yaml")).collect();
    let files = files.iter().map(String::as_str);
    let checked = run(&["policy", "check"]
        .into_iter()
        .chain(files)
        .collect::<Vec<_>>());
    assert!(checked.success(), "{checked}");
}

#[test]
fn dots_in_the_manual_stand_for_anything() {
    for (line, manual, same) in [
        ("4 passed", "4 passed", true),
        ("14 passed", "4 passed", false),
        ("4 passed, 1 failed", "4 passed", false),
        ("a [3 µs]", "a …", true),
        ("a at /tmp/x", "a at …/x", true),
        ("a at /tmp/y", "a at …/x", false),
    ] {
        assert_eq!(resembles(line, manual), same, "{line} and {manual}");
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
}

const MANUAL: &str = include_str!("../../../../docs/policies.md");
const COOKBOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cookbook");
