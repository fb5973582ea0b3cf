//! examples/provisioning: the shell part of each file, run with the real agent and a token of the real server, as
//! installers run it; and the command of each unit.

mod machine;
mod units;

use std::fs;
use std::path::PathBuf;

use countersign_authority::TokenText;
use serde_json::Value;

use crate::puppet_agent::countersign;
use crate::site::Site;
use crate::tokens_agent::{Minted, record, site};
use machine::{Agent, Machine};

/// A file of the examples, and how somebody comes from its text to something that runs.
struct Snippet {
    file: &'static str,
    /// The part that a shell gets.
    shell_part: fn(&str) -> String,
    run_as: RunAs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RunAs {
    /// A script with the token in it.
    Script,
    /// An argument of the shell, as Debian's installer runs `late_command`; the token is in the file around it.
    Argument,
    /// A script that mints the token itself.
    Minter,
}

impl Snippet {
    fn named(file: &str) -> &'static Self {
        SNIPPETS.iter().find(|one| one.file == file).unwrap()
    }

    fn text(&self) -> String {
        fs::read_to_string(example(self.file)).unwrap()
    }

    /// The text with its three values put in.
    fn filled(&self, token: &str, name: &str) -> String {
        let mut text = self.text();
        for (places, value) in [
            (["@TOKEN@", "<%= @host.puppetca_token.value %>"], token),
            (["@SERVER@", "<%= @host.puppet_ca_server %>"], "localhost"),
            (["@CERTNAME@", "<%= @host.certname %>"], name),
        ] {
            for place in places {
                text = text.replace(place, value);
            }
        }
        text
    }
}

const SNIPPETS: &[Snippet] = &[
    Snippet {
        file: "enrol.sh",
        shell_part: str::to_owned,
        run_as: RunAs::Script,
    },
    Snippet {
        file: "kickstart.ks",
        shell_part: |text| {
            let (_, post) = text.split_once("\n%post ").unwrap();
            let (_, script) = post.split_once('\n').unwrap();
            script.split_once("%end\n").unwrap().0.to_owned()
        },
        run_as: RunAs::Script,
    },
    Snippet {
        file: "cloud-init.yaml",
        shell_part: |text| {
            let data: Value = serde_saphyr::from_str(text).unwrap();
            data["runcmd"][0].as_str().unwrap().to_owned()
        },
        run_as: RunAs::Script,
    },
    Snippet {
        file: "finish.erb",
        shell_part: |text| text.split_once("%>\n").unwrap().1.to_owned(),
        run_as: RunAs::Script,
    },
    Snippet {
        file: "ssh.sh",
        shell_part: str::to_owned,
        run_as: RunAs::Minter,
    },
    Snippet {
        file: "preseed.cfg",
        shell_part: |text| {
            let joined = text.replace("\\\n", " ");
            let command = "\nd-i preseed/late_command string ";
            let (_, rest) = joined.split_once(command).unwrap();
            rest.lines().next().unwrap().trim_start().to_owned()
        },
        run_as: RunAs::Argument,
    },
];

fn example(file: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../../examples/provisioning").join(file)
}

/// From a token to an enrolled machine, in each of these shells. What the files share is run in both.
fn enrols(file: &str, shells: &[&str]) {
    let snippet = Snippet::named(file);
    let site = site();
    for shell in shells {
        let name = format!("web-{shell}.example.com");
        let machine = Machine::new(&site, &name, shell, Agent::Real);
        let token = match snippet.run_as {
            RunAs::Minter => String::new(),
            RunAs::Script | RunAs::Argument => {
                let minted = Minted::new(&site, &name, &[]);
                minted.token.expose().to_owned()
            }
        };
        let finished = machine.run(snippet, &token);
        assert!(finished.success(), "{file} {shell}: {finished}");
        let verified = machine.agent.verify().unwrap();
        assert!(verified.success(), "{file} {shell}: {verified}");

        // The file was private, and is gone.
        assert_eq!(machine.modes(), ["600"], "{file} {shell}");
        machine.holds_nothing(file);
        let token = TokenText::parse(machine.token().trim_end()).unwrap();
        let record = record(&site, &token);
        assert_eq!(record["status"], "issued", "{file} {shell}: {record}");
        assert_eq!(record["certname"], name, "{file} {shell}");
        machine.told_nobody(file);

        // The agent goes on by itself: name and server are in its settings.
        let settings = fs::read_to_string(machine.confdir().join("puppet.conf")).unwrap();
        assert!(
            settings.contains(&format!("certname = {name}")),
            "{settings}"
        );
        assert!(settings.contains("server = localhost"), "{settings}");
    }
}

#[test]
fn the_plain_script_enrols_a_machine() {
    enrols("enrol.sh", &["dash", "bash"]);
}

#[test]
fn the_kickstart_enrols_a_machine() {
    enrols("kickstart.ks", &["bash"]);
}

#[test]
fn the_preseed_enrols_a_machine() {
    enrols("preseed.cfg", &["dash", "bash"]);
}

#[test]
fn the_user_data_enrols_a_machine() {
    enrols("cloud-init.yaml", &["dash"]);
}

#[test]
fn the_finish_template_enrols_a_machine() {
    enrols("finish.erb", &["dash"]);
}

#[test]
fn the_ssh_script_enrols_a_machine() {
    enrols("ssh.sh", &["dash", "bash"]);
}

/// A token that is not good: three tries, one sentence, and no token left behind.
#[test]
fn a_machine_that_is_turned_away_does_not_keep_its_token() {
    let site = site();
    let minted = Minted::new(&site, "right.example.com", &[]);
    for (file, shell, name) in [
        ("enrol.sh", "dash", "wrong.example.com"),
        ("preseed.cfg", "bash", "other.example.com"),
    ] {
        let machine = Machine::new(&site, name, shell, Agent::Real);
        let finished = machine.run(Snippet::named(file), minted.token.expose());
        assert_eq!(finished.code, Some(1), "{file}: {finished}");
        let advice =
            format!("not enrolled: ask the authority with 'countersign csr explain {name}'");
        assert!(finished.stderr.contains(&advice), "{file}: {finished}");
        assert!(!machine.agent.certificate().exists(), "{file}");
        assert_eq!(machine.modes(), ["600", "600", "600"], "{file}");
        machine.holds_nothing(file);
        machine.told_nobody(file);
        // The next machine's tries would be too many for this token.
        if file == "enrol.sh" {
            assert_eq!(minted.record(&site)["status"], "active");
        }
    }
}

/// An authority that does not look at tokens lets the request wait, and the agent keeps a copy of it.
#[test]
fn a_machine_that_waits_does_not_keep_its_token() {
    let (minting, waiting) = (site(), Site::start(&[]));
    let name = "web01.example.com";
    let minted = Minted::new(&minting, name, &[]);
    for (file, shell) in [("enrol.sh", "dash"), ("preseed.cfg", "dash")] {
        let machine = Machine::new(&waiting, name, shell, Agent::Real);
        let finished = machine.run(Snippet::named(file), minted.token.expose());
        assert_eq!(finished.code, Some(1), "{file}: {finished}");
        let (_, listed) = countersign(&waiting, &["csr", "list"]);
        assert!(listed.contains(name), "{file}: {listed}");
        machine.holds_nothing(file);
        let (code, said) = countersign(&waiting, &["csr", "delete", name]);
        assert_eq!(code, Some(0), "{said}");
    }
}

/// Somebody ends the installation while the agent runs.
#[test]
fn an_interrupted_script_does_not_leave_its_token() {
    let site = site();
    let name = "web01.example.com";
    for (file, shell) in [
        ("enrol.sh", "dash"),
        ("enrol.sh", "bash"),
        ("preseed.cfg", "dash"),
        ("preseed.cfg", "bash"),
        ("ssh.sh", "dash"),
    ] {
        let machine = Machine::new(&site, name, shell, Agent::Interrupts);
        let minted = Minted::new(&site, name, &[]);
        let finished = machine.run(Snippet::named(file), minted.token.expose());
        assert!(!finished.success(), "{file} {shell}: {finished}");
        assert_eq!(machine.modes(), ["600"], "{file} {shell}");
        machine.holds_nothing(file);
    }
}

/// Each file can be copied by itself, so they have the same lines; nobody forgets one.
#[test]
fn the_examples_share_one_part_and_are_all_tried() {
    let part = |text: &str| {
        let text = match text.split_once("# begin: enrol with a token\n") {
            Some((_, rest)) => rest.split_once("# end: enrol with a token"),
            None => None,
        };
        text.map(|(part, _)| part.to_owned())
    };
    let of = |snippet: &Snippet| part(&(snippet.shell_part)(&snippet.text()));
    let first = of(Snippet::named("enrol.sh")).unwrap();
    for snippet in SNIPPETS {
        match snippet.run_as {
            RunAs::Argument => assert_eq!(of(snippet), None, "{}", snippet.file),
            RunAs::Script | RunAs::Minter => {
                assert_eq!(of(snippet).as_ref(), Some(&first), "{}", snippet.file);
            }
        }
    }
    let readme = fs::read_to_string(example("README.md")).unwrap();
    for entry in fs::read_dir(example("")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let is_tried = SNIPPETS.iter().any(|one| one.file == file) || units::is_tried(&file);
        assert!(is_tried || file == "README.md", "{file} is not tried");
        assert!(
            file == "README.md" || readme.contains(&format!("]({file})")),
            "{file}"
        );
    }
}
