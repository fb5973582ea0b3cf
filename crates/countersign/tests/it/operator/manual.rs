//! docs/operator.md, command by command, on the real kube-apiserver; and the links of the pages about the operator.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use countersign_testkit::counterparts::{Counterpart, KubernetesRelease};
use countersign_testkit::deadline::ask_again;
use countersign_testkit::server_process::ServerProcess;

use super::{PATIENCE, Stage, condition};
use crate::installation::run;
use crate::policy_manual::{Block, Reader, blocks};
use crate::site::COUNTERSIGN;
use crate::tokens_manual::links_lead_somewhere;

/// Somebody at a terminal with kubectl and an administrator's kubeconfig.
struct Terminal {
    stage: Stage,
    reader: Reader,
    operator: Option<ServerProcess>,
    /// The commands that were followed.
    followed: BTreeSet<&'static str>,
}

impl Terminal {
    fn start() -> Self {
        let stage = Stage::without_kinds();
        let mut reader = Reader::new();
        let kubectl = Counterpart::Kubectl(KubernetesRelease::NEWEST);
        reader.install("kubectl", &kubectl.find().unwrap());
        let kubeconfig = stage.api.admin_kubeconfig();
        let export = format!("export KUBECONFIG={}", kubeconfig.display());
        reader.follow(&Block::Commands(&export));
        Self {
            stage,
            reader,
            operator: None,
            followed: BTreeSet::new(),
        }
    }

    /// Follows a section from its beginning.
    fn follow(&mut self, heading: &str) {
        let blocks = blocks(section(heading));
        for (index, block) in blocks.iter().enumerate() {
            match block {
                Block::Commands(text) => {
                    self.followed.insert(text);
                    match blocks.get(index + 1) {
                        _ if text.starts_with(OPERATOR) => self.start_operator(text),
                        Some(Block::Printed(expected)) if text.starts_with("kubectl get") => {
                            self.until_printed(text, expected);
                        }
                        _ => self.reader.follow(block),
                    }
                }
                // The table before was waited for.
                Block::Printed(text) if text.starts_with("NAME ") => {}
                Block::Printed(_) => self.reader.follow(block),
                Block::File(text) => match text.strip_prefix("# ") {
                    Some(named) => {
                        let (name, _) = named.split_once('\n').unwrap();
                        self.write(name, text);
                    }
                    None => self.stage.apply(text),
                },
                Block::Logged(text) => panic!("{text}"),
            }
        }
    }

    /// The server of the walk has another port than that of the manual.
    fn start_operator(&mut self, text: &str) {
        let port = self.reader.server().addresses.puppet_port().unwrap();
        let text = text.replace("\\\n", " ");
        let text = text.replace("localhost:8140", &format!("localhost:{port}"));
        let arguments = text.strip_prefix("countersign ").unwrap();
        let mut command = Command::new(COUNTERSIGN);
        command
            .args(arguments.split_whitespace())
            .current_dir(self.reader.folder())
            .env("KUBECONFIG", self.stage.api.admin_kubeconfig())
            .env_remove("COUNTERSIGN_DATA");
        let operator = ServerProcess::start_command(command);
        self.operator = Some(operator.unwrap_or_else(|fault| panic!("{fault}")));
        self.stage.has_kinds();
    }

    /// Runs commands until they print a table like this.
    fn until_printed(&mut self, text: &str, expected: &str) {
        let mut printed = String::new();
        let found = ask_again(PATIENCE, || {
            self.reader.follow(&Block::Commands(text));
            printed = self.reader.printed().to_owned();
            (shape(&printed) == shape(expected)).then_some(())
        });
        assert!(found.is_some(), "{text}\n{printed}\nis not\n{expected}");
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.reader.folder().join(name), text).unwrap();
    }
}

/// The words of a table, where all times are equal and all ages.
fn shape(table: &str) -> Vec<Vec<String>> {
    let word = |word: &str| {
        let is_number = |it: &str| it.chars().all(|c| c.is_ascii_digit());
        match word.strip_suffix(['s', 'm']) {
            Some(age) if is_number(age) => "AGE".to_owned(),
            _ if word.ends_with('Z') && word.contains('T') => "TIME".to_owned(),
            _ => word.to_owned(),
        }
    };
    let lines = table.lines();
    lines
        .map(|line| line.split_whitespace().map(word).collect())
        .collect()
}

fn section(heading: &str) -> &'static str {
    let (_, rest) = MANUAL.split_once(&format!("\n{heading}\n")).unwrap();
    let ends = ["\n## ", "\n### "].map(|end| rest.find(end).unwrap_or(rest.len()));
    rest.get(..ends.into_iter().min().unwrap()).unwrap()
}

#[test]
fn the_commands_of_the_page_do_what_it_says() {
    let mut terminal = Terminal::start();
    terminal.follow("## A first certificate");
    let stage = |terminal: &Terminal, phase: &str, kind: &str, name: &str| {
        terminal.stage.in_phase(kind, name, phase);
    };

    // A pause, which begins and ends.
    let pausing = blocks(section("## Pausing"));
    let [pause, go_on] = pausing.as_slice() else {
        panic!("{pausing:?}");
    };
    for (block, expected) in [(pause, "True Paused"), (go_on, "")] {
        terminal.reader.follow(block);
        terminal.stage.object("Certificate", "compile", |it| {
            condition(it, "Paused") == expected
        });
        let Block::Commands(text) = block else {
            panic!("{block:?}");
        };
        terminal.followed.insert(text);
    }

    // A CA that somebody else runs.
    let trust = fs::read_to_string(
        terminal
            .reader
            .folder()
            .join("countersign-data/admin/ca.pem"),
    );
    terminal.write("ca_crt.pem", &trust.unwrap());
    terminal.follow("### External");
    stage(&terminal, "External", "CertificateAuthority", "site");

    terminal.follow("## Administrators' certificates");
    stage(&terminal, "Signed", "Certificate", "deploy");
    terminal
        .stage
        .put_secret("enrolment", &[("psk", "a long random value")]);
    terminal.follow("## SigningPolicies");
    stage(&terminal, "Active", "SigningPolicy", "agents");

    // The flags of what is not run here are some; the tests of admission use them.
    let help = run(&["cluster", "--help"]);
    for block in blocks(MANUAL) {
        let Block::Commands(text) = block else {
            continue;
        };
        if terminal.followed.contains(text) {
            continue;
        }
        assert!(text.starts_with(OPERATOR), "nobody has followed\n{text}");
        for flag in text.split_whitespace().filter(|it| it.starts_with("--")) {
            assert!(help.stdout.contains(flag), "{flag}\n{help}");
        }
    }
}

#[test]
fn links_of_these_pages_lead_somewhere() {
    for page in [MANUAL, FROM_OPENVOX_OPERATOR] {
        links_lead_somewhere("docs", page);
    }
}

const OPERATOR: &str = "countersign cluster --controllers operator";
const MANUAL: &str = include_str!("../../../../../docs/operator.md");
const FROM_OPENVOX_OPERATOR: &str = include_str!("../../../../../docs/from-openvox-operator.md");
