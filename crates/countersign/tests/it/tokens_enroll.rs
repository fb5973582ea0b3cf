//! `countersign enroll` with tokens of a real authority, at both doors.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use countersign_testkit::counterparts::kills;
use countersign_testkit::deadline::Finished;
use countersign_testkit::keys;
use serde_json::{Value, json};

use crate::enroll::Machine;
use crate::governed::{AGENTS, CLIENTS, Governed, policy};
use crate::site::{JSON, install, read_certificate};

const KUBELETS: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const TOKENS: &str = "    - name: token\n      approve: {token: {}}\n";
const CONFIG: &str =
    "tokens: {enabled: true}\nlimits: {token_failures_per_10_minutes: 0}\nlog: {level: trace}\n";

/// The doors that a machine enrols at.
#[derive(Clone, Copy, Debug)]
enum Door {
    Puppet,
    Kubernetes,
}
use Door::{Kubernetes, Puppet};

/// An authority where tokens decide.
struct World {
    governed: Governed,
    door: Door,
}

/// A token that was minted, and the file it is in.
struct Minted {
    id: String,
    secret: String,
    file: PathBuf,
}

impl World {
    fn start(door: Door) -> Self {
        let governed = Governed::start(
            &[
                ("agents.yaml", &policy("agents", AGENTS, TOKENS)),
                ("users.yaml", &policy("users", CLIENTS, TOKENS)),
                ("kubelets.yaml", &policy("kubelets", KUBELETS, TOKENS)),
            ],
            CONFIG,
        );
        Self { governed, door }
    }

    fn mint(&self, host: &str) -> Minted {
        let admin = self.governed.site.admin();
        let order = json!({"certname": host}).to_string();
        let minted = admin.call("POST", "/enrol/v1/tokens", &[JSON], order.as_bytes());
        let minted = minted.unwrap();
        assert_eq!(minted.status, 201, "{}", minted.text());
        let minted: Value = serde_json::from_slice(&minted.body).unwrap();
        let text = minted["token"].as_str().unwrap();
        let id = minted["id"].as_str().unwrap().to_owned();
        let file = self.governed.site.folder("tokens").join(&id);
        install(&file, &format!("{text}\n"), 0o600);
        let secret = text.split('.').nth(2).unwrap().to_owned();
        Minted { id, secret, file }
    }

    /// A machine with a folder of its own, so with a key of its own.
    fn machine(&self, host: &str, folder: &str) -> Machine {
        let site = &self.governed.site;
        let name: &'static str = host.to_owned().leak();
        let folder = site.folder(folder);
        match self.door {
            Puppet => {
                let ca = site.data().join("issuers/puppet/ca_crt.pem");
                let url = format!("https://localhost:{}", site.puppet().port());
                Machine::at(&url, &folder, name, &["--ca-file", ca.to_str().unwrap()])
            }
            Kubernetes => {
                let signer = ["--door", "kubernetes", "--signer", CLIENTS, "--ca-file"];
                let ca = site.data().join("issuers/kubernetes/ca_crt.pem");
                let url = format!("https://localhost:{}", site.kubernetes().port());
                let arguments = [&signer[..], &[ca.to_str().unwrap()]].concat();
                Machine::at(&url, &folder, name, &arguments)
            }
        }
    }

    /// What `token show` says.
    fn token(&self, minted: &Minted) -> Value {
        let text = self
            .governed
            .well(&["token", "show", &minted.id, "-o", "json"]);
        serde_json::from_str(&text).unwrap()
    }

    /// The token is used up, once, for the certificate that the machine has.
    #[track_caller]
    fn assert_used(&self, minted: &Minted, machine: &Machine) {
        let token = self.token(minted);
        let rows = token["use_rows"].as_array().unwrap();
        assert_eq!((token["status"].as_str(), rows.len()), (Some("issued"), 1));
        assert_eq!(token["uses"], 1, "{token}");
        assert_eq!(rows[0]["serial"], serial(machine), "{token}");
    }

    /// Nothing that anybody has said or written holds the secret.
    #[track_caller]
    fn assert_silent(&self, minted: &Minted, machine: &Machine, finished: &Finished) {
        let log = self.governed.site.server.log();
        assert!(!log.contains(&minted.secret));
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert!(!said.contains(&minted.secret));
        for file in fs::read_dir(&machine.folder).unwrap() {
            let content = fs::read(file.unwrap().path()).unwrap();
            assert!(!String::from_utf8_lossy(&content).contains(&minted.secret));
        }
    }
}

fn with_token(minted: &Minted) -> [&str; 2] {
    ["--token-file", minted.file.to_str().unwrap()]
}

fn serial(machine: &Machine) -> String {
    let certificate = fs::read(machine.certificate()).unwrap();
    read_certificate(certificate).serial().to_string()
}

#[test]
fn a_token_enrols_one_machine_at_the_puppet_door() {
    a_token_enrols_one_machine(Puppet);
}

#[test]
fn a_token_enrols_one_machine_at_the_kubernetes_door() {
    a_token_enrols_one_machine(Kubernetes);
}

fn a_token_enrols_one_machine(door: Door) {
    let world = World::start(door);
    let (token, other) = (world.mint("worker-a"), world.mint("worker-b"));
    let machine = world.machine("worker-a", "first");

    // Another host's token is of no use, and stays good.
    let refused = machine.run(&[&with_token(&other)[..], &["--no-wait"]].concat());
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(!machine.certificate().exists());
    world.assert_silent(&other, &machine, &refused);
    assert_eq!(world.token(&other)["status"], "active");

    let enrolled = machine.expect(&with_token(&token), 0, "is enrolled");
    let leaf = read_certificate(fs::read(machine.certificate()).unwrap());
    assert_eq!(leaf.subject().last_common_name(), Some("worker-a"));
    world.assert_used(&token, &machine);
    world.assert_silent(&token, &machine, &enrolled);
    machine.expect(&with_token(&token), 0, "is valid until");

    // The certificate is lost, the key is not: the same certificate comes back.
    let first = serial(&machine);
    fs::remove_file(machine.certificate()).unwrap();
    machine.expect(&with_token(&token), 0, "is enrolled");
    assert_eq!(serial(&machine), first);
    world.assert_used(&token, &machine);

    // Another machine with the same token has another key.
    let thief = world.machine("worker-a", "second");
    let refused = thief.run(&[&with_token(&token)[..], &["--no-wait"]].concat());
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(!thief.certificate().exists());
    world.assert_silent(&token, &thief, &refused);
    world.assert_used(&token, &machine);
    let rejections = world.governed.get("/rejections");
    let reasons = rejections["items"].as_array().unwrap().iter();
    let reasons: Vec<_> = reasons.map(|item| item["reason"].clone()).collect();
    assert_eq!(
        reasons,
        ["token_key_mismatch", "token_certname_mismatch"],
        "{rejections}"
    );
}

#[test]
fn a_machine_that_is_killed_at_any_moment_enrols_with_the_same_token_at_the_puppet_door() {
    a_machine_that_is_killed_at_any_moment_enrols_with_the_same_token(Puppet);
}

#[test]
fn a_machine_that_is_killed_at_any_moment_enrols_with_the_same_token_at_the_kubernetes_door() {
    a_machine_that_is_killed_at_any_moment_enrols_with_the_same_token(Kubernetes);
}

fn a_machine_that_is_killed_at_any_moment_enrols_with_the_same_token(door: Door) {
    let world = World::start(door);
    let (_never, pause) = std::sync::mpsc::sync_channel::<()>(0);
    for number in 0..kills(10) {
        let host = format!("worker-{number}");
        let token = world.mint(&host);
        let machine = world.machine(&host, &host);
        let first = machine.start(&with_token(&token));
        let _elapsed = pause.recv_timeout(Duration::from_millis(u64::from(number % 30) * 9));
        first.kill9();
        machine.expect(&with_token(&token), 0, &host);
        world.assert_used(&token, &machine);
        let thief = world.machine(&host, &format!("{host}-thief"));
        let refused = thief.run(&[&with_token(&token)[..], &["--no-wait"]].concat());
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(!thief.certificate().exists());
    }
}

/// The token of a node approves the request of its kubelet, which nobody signs here.
#[test]
fn a_kubelet_is_approved_by_the_token_of_its_node() {
    let world = World::start(Kubernetes);
    let site = &world.governed.site;
    let (token, other) = (world.mint("worker-a"), world.mint("worker-b"));
    let key = site.folder("keys").join("worker-a.pem");
    install(&key, keys::p256_a().pkcs8_pem(), 0o600);
    let url = format!("https://localhost:{}", site.kubernetes().port());
    let ca = site.data().join("issuers/kubernetes/ca_crt.pem");
    let arguments = [
        "--door",
        "kubernetes",
        "--signer",
        KUBELETS,
        "--organization",
        "system:nodes",
        "--ca-file",
        ca.to_str().unwrap(),
        "--key",
        key.to_str().unwrap(),
    ];
    let kubelet = Machine::at(
        &url,
        &site.folder("node"),
        "system:node:worker-a",
        &arguments,
    );
    kubelet.expect(
        &[&with_token(&other)[..], &["--no-wait"]].concat(),
        1,
        "was denied",
    );
    assert_eq!(world.token(&other)["uses"], 0);
    kubelet.expect(
        &[&with_token(&token)[..], &["--no-wait"]].concat(),
        0,
        "is enrolled",
    );
    assert_eq!(world.token(&token)["uses"], 1);

    let thief = Machine::at(
        &url,
        &site.folder("thief"),
        "system:node:worker-a",
        &arguments[..8],
    );
    thief.expect(
        &[&with_token(&token)[..], &["--no-wait"]].concat(),
        1,
        "was denied",
    );
    assert_eq!(world.token(&token)["uses"], 1);
}
