//! `countersign enroll` against the Puppet door.

mod daemon;
mod kubernetes;
mod played;
mod puppet;
mod secrets;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use countersign_pki::{CheckedCsr, CsrLimits, fingerprint_sha256, oid, pem};
use countersign_testkit::counterparts::kills;
use countersign_testkit::deadline::{Finished, run_with_deadline};
use countersign_testkit::keys;
use serde_json::Value;

use crate::commands::wait_until;
use crate::governed::{AGENTS, Governed, policy};
use crate::puppet_agent::{countersign, openssl_verify};
use crate::site::{COUNTERSIGN, Site, get_crl, install, read_certificate};

/// A machine that enrols: a name, an authority and a folder.
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) folder: PathBuf,
    arguments: Vec<String>,
}

impl Machine {
    /// At the Puppet door of a site, which it recognises by the root's fingerprint.
    pub(crate) fn of(site: &Site, name: &'static str) -> Self {
        let root = pem::decode_first(&site.puppet_ca(), &pem::PemLimits::BUNDLE);
        let root = fingerprint_sha256(&root.unwrap().unwrap().der).to_string();
        let url = format!("https://localhost:{}", site.puppet().port());
        Self::at(&url, &site.folder(name), name, &["--ca-fingerprint", &root])
    }

    pub(crate) fn at(url: &str, folder: &Path, name: &'static str, arguments: &[&str]) -> Self {
        let mut all = vec!["--server".to_owned(), url.to_owned()];
        all.extend(arguments.iter().map(ToString::to_string));
        Self {
            name,
            folder: folder.join("enrolled"),
            arguments: all,
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare(&["enroll", self.name, "--dir"]);
        command.arg(&self.folder).args(&self.arguments);
        command.args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        run_with_deadline(self.command(arguments), DEADLINE).unwrap()
    }

    #[track_caller]
    pub(crate) fn expect(&self, arguments: &[&str], code: i32, part: &str) -> Finished {
        let finished = self.run(arguments);
        assert_eq!(finished.code, Some(code), "{arguments:?} {finished}");
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert!(said.contains(part), "{part:?} of {arguments:?}: {finished}");
        finished
    }

    /// A run that goes on while the test does other things.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Running(command.stderr(Stdio::null()).spawn().unwrap())
    }

    #[track_caller]
    pub(crate) fn status(&self, code: i32) -> Value {
        let mut command = bare(&["enroll", "status", self.name, "-o", "json", "--dir"]);
        command.arg(&self.folder);
        let finished = run_with_deadline(command, DEADLINE).unwrap();
        assert_eq!(finished.code, Some(code), "{finished}");
        serde_json::from_str(&finished.stdout).unwrap()
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.path(&format!("{}.pem", self.name))
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.path(&format!("{}-key.pem", self.name))
    }
}

/// A process that is killed with the test.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn kill9(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub(crate) fn code(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended_before = self.0.kill();
        let _ended_before = self.0.wait();
    }
}

/// The program without anything that the environment might say.
pub(crate) fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(COUNTERSIGN);
    command.args(arguments);
    for variable in ["COUNTERSIGN_TOKEN", "RUST_LOG", "NOTIFY_SOCKET"] {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

fn is_waiting(site: &Site, name: &str) -> bool {
    let (_, listed) = countersign(site, &["csr", "list"]);
    listed.contains(name)
}

/// An authority whose policy executable keeps the request it was asked about, and approves.
pub(crate) struct Recording {
    pub(crate) site: Site,
    folder: tempfile::TempDir,
}

impl Recording {
    pub(crate) fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("record.sh");
        let script = "#!/bin/sh\ncat > \"${0%/*}/request.pem\"\n";
        install(&program, script, 0o755);
        let site = Site::configured(config, &["--autosign", program.to_str().unwrap()]);
        Self { site, folder }
    }

    /// The last request.
    pub(crate) fn request(&self) -> CheckedCsr {
        let text = fs::read(self.folder.path().join("request.pem")).unwrap();
        CheckedCsr::from_pem(&text, &CsrLimits::STANDARD).unwrap()
    }
}

pub(crate) fn texts(csr: &CheckedCsr, kind: &oid::Oid) -> Vec<String> {
    let values = csr.attributes_of(kind).flat_map(|one| &one.values);
    values.filter_map(|value| value.text()).collect()
}

#[test]
fn a_machine_enrols_and_everything_is_in_its_place() {
    let site = Site::start(&["--autosign", "true"]);
    let machine = Machine::of(&site, "web01.example.com");
    machine.expect(&[], 0, "web01.example.com is enrolled");

    for (path, expected) in [
        (machine.key(), 0o600),
        (machine.certificate(), 0o644),
        (machine.path("ca.pem"), 0o644),
        (machine.path("crl.pem"), 0o644),
    ] {
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
    assert_eq!(fs::read(machine.path("ca.pem")).unwrap(), site.puppet_ca());
    let bundle = ["ca.pem", "crl.pem"].map(|file| fs::read(machine.path(file)).unwrap());
    let (good, said) = openssl_verify(&site, &bundle.concat(), &machine.certificate());
    assert!(good, "{said}");

    // Nothing is left to do, and nothing is done.
    let before = fs::read(machine.certificate()).unwrap();
    machine.expect(&[], 0, "is valid until");
    assert_eq!(fs::read(machine.certificate()).unwrap(), before);

    let status = machine.status(0);
    assert_eq!(status["state"], "valid", "{status}");
    assert_eq!(status["certificate"]["subject"], "CN=web01.example.com");
}

#[test]
fn nobody_is_told_anything_who_is_not_the_authority() {
    let site = Site::start(&["--autosign", "true"]);
    let url = format!("https://localhost:{}", site.puppet().port());
    let wrong = "00".repeat(32);
    let other_ca = site.data().join("issuers/kubernetes/ca_crt.pem");
    let folder = site.folder("strangers");
    for (arguments, part) in [
        (vec![], "--ca-fingerprint"),
        (vec!["--ca-fingerprint", &wrong], "is not the authority"),
        (
            vec!["--ca-file", other_ca.to_str().unwrap()],
            "nothing secret was sent",
        ),
        (vec!["--ca-file", "/nonexistent/ca.pem"], "is not there"),
    ] {
        let machine = Machine::at(&url, &folder, "web01.example.com", &arguments);
        machine.expect(&["--no-wait"], 1, part);
        assert!(!machine.certificate().exists() && !machine.path("ca.pem").exists());
    }
    let (_, listed) = countersign(&site, &["csr", "list", "--all"]);
    assert!(!listed.contains("web01"), "{listed}");

    // Whoever asks for it gets it, and is told whom to compare with.
    let trusting = Machine::at(
        &url,
        &folder,
        "web01.example.com",
        &["--trust-on-first-use"],
    );
    let root = read_certificate(site.puppet_ca()).fingerprint().to_string();
    trusting.expect(&["--no-wait"], 0, &root);
    // From then on the installed CA is the one that counts.
    let again = Machine::at(&url, &folder, "web02.example.com", &[]);
    again.expect(&["--no-wait"], 0, "is enrolled");
}

#[test]
fn a_machine_waits_for_a_person_with_one_key() {
    let site = Site::start(&[]);
    let machine = Machine::of(&site, "web01.example.com");
    let said = machine.expect(&["--no-wait"], 1, "countersign ca sign --certname");
    assert_eq!(said.stdout, "", "{said}");
    let key = fs::read(machine.key()).unwrap();
    let status = machine.status(1);
    assert_eq!(status["state"], "missing", "{status}");

    // Killed while it waits, and started again: the key is the same.
    let waiting = machine.start(&["--wait", "60s"]);
    wait_until("the request waits", || is_waiting(&site, machine.name));
    waiting.kill9();
    assert_eq!(fs::read(machine.key()).unwrap(), key);

    let waiting = machine.start(&["--wait", "60s"]);
    assert_eq!(site.put_state(machine.name, "signed").status, 204);
    assert_eq!(waiting.code(), Some(0));
    assert_eq!(fs::read(machine.key()).unwrap(), key);
    assert_eq!(machine.status(0)["state"], "valid");
    assert_eq!(fs::read_dir(&machine.folder).unwrap().count(), 4);
}

#[test]
fn an_enrolment_that_refuses_leaves_no_key_behind() {
    let site = Site::start(&["--autosign", "true"]);
    let folder = site.folder("refused");
    let [token, passwords] = ["token", "csr_attributes.yaml"].map(|file| folder.join(file));
    install(&token, "secret\n", 0o600);
    let yaml = "custom_attributes:\n  challengePassword: another\n";
    install(&passwords, yaml, 0o600);
    let puppet = format!("https://localhost:{}", site.puppet().port());
    let kubernetes = format!("https://localhost:{}", site.kubernetes().port());
    let [puppet_ca, kubernetes_ca] = ["puppet", "kubernetes"].map(|issuer| {
        let file = site.data().join(format!("issuers/{issuer}/ca_crt.pem"));
        file.to_str().unwrap().to_owned()
    });
    let two_passwords = [
        "--token-file",
        token.to_str().unwrap(),
        "--csr-attributes",
        passwords.to_str().unwrap(),
    ];
    let wrong = "00".repeat(32);
    let signer = "kubernetes.io/kube-apiserver-client";
    let at_kubernetes = ["--door", "kubernetes", "--signer", signer];
    for (url, ca, more) in [
        (&*puppet, &[][..], &[][..]),
        (&puppet, &["--ca-fingerprint", &wrong], &[]),
        (&puppet, &["--ca-file", &kubernetes_ca], &[]),
        (&puppet, &["--ca-file", &puppet_ca], &two_passwords),
        // There is no Puppet CA.
        (&kubernetes, &["--ca-file", &kubernetes_ca], &[]),
        (&kubernetes, &["--ca-file", &puppet_ca], &at_kubernetes),
        // Nobody answers.
        ("https://localhost:1", &["--ca-file", &puppet_ca], &[]),
    ] {
        let machine = Machine::at(url, &folder, "web01.example.com", ca);
        let refused = machine.run(&[&["--no-wait"], more].concat());
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(!machine.folder.exists(), "{ca:?} {more:?} {refused}");
        assert!(!refused.stderr.contains("the key is kept"), "{refused}");
    }
}

#[test]
fn an_enrolment_that_succeeds_tells_no_error() {
    let site = Site::start(&["--autosign", "true"]);
    let machine = Machine::of(&site, "web01.example.com");
    let first = machine.expect(&[], 0, "is enrolled");
    assert_eq!(first.stderr, "");
    // As after a crash between the signature and the installation: the name has a certificate, and it is ours.
    fs::remove_file(machine.certificate()).unwrap();
    let again = machine.expect(&[], 0, "is enrolled");
    assert_eq!(again.stderr, "");
    // For another key the server's sentence is told.
    fs::remove_file(machine.certificate()).unwrap();
    fs::remove_file(machine.key()).unwrap();
    machine.expect(&[], 1, "already has a signed certificate");
}

#[test]
fn the_fingerprint_that_enroll_prints_is_the_one_that_csr_list_shows() {
    let site = Site::start(&[]);
    let machine = Machine::of(&site, "web01.example.com");
    // The second request of the key has another signature, and the server keeps the first.
    for _ in 0..2 {
        let said = machine.expect(&["--no-wait"], 1, "key fingerprint (SHA256)");
        let is_fingerprint = |word: &&str| word.len() == 95 && word.matches(':').count() == 31;
        let words = said.stderr.split(|c: char| c.is_whitespace() || c == ';');
        let printed: Vec<&str> = words.filter(is_fingerprint).collect();
        let [printed] = printed[..] else {
            panic!("{said}");
        };
        for command in [&["csr", "list"][..], &["csr", "show", machine.name]] {
            let (_, shown) = countersign(&site, command);
            assert!(shown.contains(printed), "{printed}: {shown}");
        }
    }
}

#[test]
fn a_kill_at_any_moment_keeps_the_key_and_leaves_whole_files() {
    let site = Site::start(&["--autosign", "true"]);
    let url = format!("https://localhost:{}", site.puppet().port());
    let ca = site.data().join("issuers/puppet/ca_crt.pem");
    let (_never, pause) = std::sync::mpsc::sync_channel::<()>(0);
    for number in 0..kills(12) {
        // Each has a folder and a name of its own, and a little longer to live.
        let name: &'static str = format!("web{number}.example.com").leak();
        let arguments = ["--ca-file", ca.to_str().unwrap()];
        let machine = Machine::at(&url, &site.folder(name), name, &arguments);
        let first = machine.start(&[]);
        let _elapsed = pause.recv_timeout(Duration::from_millis(u64::from(number % 40) * 4));
        first.kill9();
        let key = fs::read(machine.key()).ok();
        for (path, label) in [
            (machine.key(), "PRIVATE KEY"),
            (machine.path("ca.pem"), "CERTIFICATE"),
            (machine.path("crl.pem"), "X509 CRL"),
            (machine.certificate(), "CERTIFICATE"),
        ] {
            let Ok(text) = fs::read(path) else { continue };
            let block = pem::decode_first(&text, &pem::PemLimits::BUNDLE);
            assert_eq!(block.unwrap().unwrap().label, label);
        }
        machine.expect(&[], 0, name);
        if let Some(key) = key {
            assert_eq!(fs::read(machine.key()).unwrap(), key);
        }
        assert_eq!(machine.status(0)["state"], "valid");
        assert_eq!(fs::read_dir(&machine.folder).unwrap().count(), 4);
    }
}

#[test]
fn many_at_once_are_one_machine() {
    let site = Site::start(&["--autosign", "true"]);
    let machine = Machine::of(&site, "web01.example.com");
    let runs: Vec<_> = (0..6).map(|_| machine.start(&[])).collect();
    let codes: Vec<_> = runs.into_iter().map(Running::code).collect();
    assert_eq!(codes, [Some(0); 6]);
    assert_eq!(machine.status(0)["state"], "valid");
    let (_, listed) = countersign(&site, &["ca", "list", "--all"]);
    assert_eq!(
        listed.matches("web01.example.com").count(),
        2,
        "name and alternative name of one: {listed}"
    );
}

#[test]
fn the_request_carries_what_was_said() {
    let authority =
        Recording::start("puppet: {allow_subject_alt_names: true, auto_renewal: true}\n");
    let site = &authority.site;
    let machine = Machine::of(site, "web01.example.com");
    let folder = site.folder("given");
    let (token, attributes, key) = (
        folder.join("token"),
        folder.join("csr_attributes.yaml"),
        folder.join("key.pem"),
    );
    install(&token, "se_cret-1\n", 0o644);
    install(&key, keys::rsa2048_a().pkcs8_pem(), 0o600);
    let yaml = "custom_attributes:\n  1.3.6.1.4.1.34380.1.2.1: from a file\nextension_requests:\n  pp_instance_id: i-0abc\n";
    install(&attributes, yaml, 0o600);
    let said = machine.expect(
        &[
            "--token-file",
            token.to_str().unwrap(),
            "--csr-attributes",
            attributes.to_str().unwrap(),
            "--key",
            key.to_str().unwrap(),
            "--attribute",
            "1.3.6.1.4.1.34380.1.2.2=grün",
            "--extension",
            "pp_role=web",
            "--dns-alt-name",
            "www.example.com,IP:192.0.2.7",
            "--renew-before",
            "10d",
        ],
        0,
        "is enrolled",
    );
    let warning = format!("others can read the token in {}", token.display());
    assert!(said.stderr.contains(&warning), "{said}");

    let csr = authority.request();
    assert_eq!(csr.spki_der(), keys::rsa2048_a().spki_der());
    assert_eq!(texts(&csr, &oid::CHALLENGE_PASSWORD), ["se_cret-1"]);
    assert_eq!(texts(&csr, &oid::PP_AUTH_AUTO_RENEW), ["true"]);
    let private = |last: &str| oid::Oid::parse(&format!("1.3.6.1.4.1.34380.1.2.{last}")).unwrap();
    assert_eq!(texts(&csr, &private("1")), ["from a file"]);
    assert_eq!(texts(&csr, &private("2")), ["grün"]);
    let names: Vec<_> = csr.alt_names().iter().map(|n| n.to_puppet_text()).collect();
    assert_eq!(
        names,
        [
            "DNS:www.example.com",
            "IP:192.0.2.7",
            "DNS:web01.example.com"
        ]
    );
    let text = |name: &str| {
        let kind = oid::registered_oid(name).unwrap();
        let mut extensions = csr.extensions().iter();
        extensions.find(|one| one.oid == kind).unwrap().text_value()
    };
    assert_eq!(text("pp_role").as_deref(), Some("web"));
    assert_eq!(text("pp_instance_id").as_deref(), Some("i-0abc"));
    // A given key is used where it is.
    assert!(!machine.key().exists());
}

#[test]
fn the_token_comes_from_standard_input_or_the_environment() {
    let authority = Recording::start("");
    let site = &authority.site;
    let machine = Machine::of(site, "web01.example.com");
    let input = b"from-stdin\r\n".to_vec();
    let run = countersign_testkit::deadline::run_with_input;
    let finished = run(machine.command(&["--token-file", "-"]), input, DEADLINE).unwrap();
    assert!(finished.success(), "{finished}");
    let csr = authority.request();
    assert_eq!(texts(&csr, &oid::CHALLENGE_PASSWORD), ["from-stdin"]);
    assert_eq!(texts(&csr, &oid::PP_AUTH_AUTO_RENEW), [""; 0]);

    let machine = Machine::of(site, "web02.example.com");
    let mut command = machine.command(&[]);
    command.env("COUNTERSIGN_TOKEN", "from-the-environment");
    let finished = run_with_deadline(command, DEADLINE).unwrap();
    assert!(finished.success(), "{finished}");
    let csr = authority.request();
    assert_eq!(
        texts(&csr, &oid::CHALLENGE_PASSWORD),
        ["from-the-environment"]
    );
}

#[test]
fn owner_mode_and_places_are_as_asked() {
    let site = Site::start(&["--autosign", "true"]);
    let machine = Machine::of(&site, "web01.example.com");
    let folder = site.folder("elsewhere");
    let own = fs::metadata(&folder).unwrap();
    let owner = format!("{}:{}", own.uid(), own.gid());
    let [certificate, key, ca] =
        ["a/cert.pem", "b/key.pem", "c/ca.pem"].map(|file| folder.join(file));
    machine.expect(
        &[
            "--owner",
            &owner,
            "--mode",
            "0640",
            "--cert-file",
            certificate.to_str().unwrap(),
            "--key-file",
            key.to_str().unwrap(),
            "--ca-out",
            ca.to_str().unwrap(),
            "--key-type",
            "p384",
        ],
        0,
        "is enrolled",
    );
    assert_eq!(
        (mode(&key), mode(&certificate), mode(&ca)),
        (0o640, 0o644, 0o644)
    );
    assert!(machine.path("crl.pem").exists());
    let leaf = read_certificate(fs::read(&certificate).unwrap());
    assert_eq!(leaf.public_key().unwrap().bits(), 384);
}

#[test]
fn a_denial_is_told_in_the_servers_words() {
    let rules = "    - name: nobody\n      deny: {cel: 'true', message: no}\n";
    let world = Governed::start(&[("agents.yaml", &policy("agents", AGENTS, rules))], "");
    let machine = Machine::of(&world.site, "web01.example.com");
    let said = machine.expect(&[], 1, "The certificate request was denied");
    assert!(said.stderr.contains("refuses to enrol"), "{said}");
    assert!(machine.key().exists() && !machine.certificate().exists());
}

#[test]
fn a_name_that_somebody_else_has_is_left_to_a_person() {
    let site = Site::start(&["--autosign", "true"]);
    assert_eq!(site.ask("web01.example.com").status, 200);
    let machine = Machine::of(&site, "web01.example.com");
    let said = machine.expect(&[], 1, "ca clean --certname web01.example.com");
    assert!(said.stderr.contains("it is for another key"), "{said}");
    assert!(!machine.certificate().exists());

    let (code, said) = countersign(&site, &["ca", "clean", "--certname", machine.name]);
    assert_eq!(code, Some(0), "{said}");
    machine.expect(&[], 0, "is enrolled");
}

#[test]
fn a_server_that_asks_for_patience_gets_it() {
    let site = Site::configured(
        "limits: {csr_per_minute_per_certname: 30}\n",
        &["--autosign", "true"],
    );
    let machine = Machine::of(&site, "web01.example.com");
    let statuses: Vec<u16> = (0..32).map(|_| site.ask(machine.name).status).collect();
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
    let (code, said) = countersign(&site, &["ca", "clean", "--certname", machine.name]);
    assert_eq!(code, Some(0), "{said}");
    machine.expect(&["--no-wait"], 1, "429");
    machine.expect(&[], 0, "is enrolled");
}

#[test]
fn a_certificate_is_renewed_when_it_is_time() {
    let renewals = "puppet: {auto_renewal: true, auto_renewal_cert_ttl: 7d}\n";
    let site = Site::configured(renewals, &["--autosign", "true"]);
    let machine = Machine::of(&site, "web01.example.com");
    machine.expect(&["--renew-before", "3d"], 0, "is enrolled");
    let (key, first) = (
        fs::read(machine.key()).unwrap(),
        fs::read(machine.certificate()).unwrap(),
    );
    machine.expect(&["--renew-before", "6d"], 0, "is valid until");
    machine.expect(&["--renew-before", "8d"], 0, "is renewed");
    let second = fs::read(machine.certificate()).unwrap();
    assert_ne!(second, first);
    assert_eq!(fs::read(machine.key()).unwrap(), key);

    // Revoked stays out, and what is installed stays.
    site.revoke(machine.name);
    machine.expect(&["--renew-before", "8d"], 1, "it was revoked");
    assert_eq!(fs::read(machine.certificate()).unwrap(), second);
}

#[test]
fn where_renewal_is_off_that_is_said() {
    let site = Site::start(&["--autosign", "true"]);
    let machine = Machine::of(&site, "web01.example.com");
    machine.expect(&[], 0, "is enrolled");
    machine.expect(&["--renew-before", "99y"], 1, "auto_renewal: true");
}

#[test]
fn status_finds_the_name_that_is_installed() {
    let folder = tempfile::tempdir().unwrap();
    let status = || {
        let mut command = bare(&["enroll", "status", "--dir"]);
        command.arg(folder.path());
        run_with_deadline(command, DEADLINE).unwrap()
    };
    let plant = |name: &str| fs::write(folder.path().join(name), "").unwrap();
    plant("ca.pem");
    plant("web01.example.com-key.pem");
    let only = status();
    assert_eq!(only.code, Some(1), "{only}");
    assert!(only.stdout.contains("web01.example.com"), "{only}");
    plant("web02.example.com-key.pem");
    let several = status();
    assert_eq!(several.code, Some(1), "{several}");
    let names = "web01.example.com, web02.example.com; give the one that you mean";
    assert!(several.stderr.contains(names), "{several}");
}

#[test]
fn status_tells_what_does_not_fit() {
    let site = Site::start(&["--autosign", "true"]);
    let machine = Machine::of(&site, "web01.example.com");
    machine.expect(&[], 0, "is enrolled");
    let key = fs::read_to_string(machine.key()).unwrap();

    install(&machine.key(), keys::p256_b().pkcs8_pem(), 0o600);
    let status = machine.status(1);
    assert_eq!(status["state"], "mismatch", "{status}");
    machine.expect(&[], 1, "does not belong to the key");
    fs::remove_file(machine.key()).unwrap();
    let status = machine.status(1);
    assert!(
        status["problem"]
            .as_str()
            .unwrap()
            .contains("bring the key back"),
        "{status}"
    );
    install(&machine.key(), "no key", 0o600);
    assert_eq!(machine.status(1)["state"], "mismatch");
    install(&machine.key(), &key, 0o600);
    assert_eq!(machine.status(0)["state"], "valid");

    // The list that is installed counts.
    site.revoke(machine.name);
    let list = get_crl(&site.anonymous());
    install(&machine.path("crl.pem"), &list.to_pem(), 0o644);
    assert_eq!(machine.status(1)["state"], "revoked");
    fs::remove_file(machine.certificate()).unwrap();
    assert_eq!(machine.status(1)["state"], "missing");
    // What the authority still gives out is of no use.
    machine.expect(&[], 1, "stands on the revocation list");
}

#[test]
fn a_hook_runs_after_the_certificate_is_installed() {
    let site = Site::start(&["--autosign", "true"]);
    let folder = site.folder("hooks");
    let (program, seen) = (folder.join("hook.sh"), folder.join("seen"));
    let script = format!(
        "#!/bin/sh\ntest -s \"$COUNTERSIGN_CERT_FILE\" && test -s \"$COUNTERSIGN_KEY_FILE\" && test -s \"$COUNTERSIGN_CA_FILE\" || exit 9\necho \"$COUNTERSIGN_EVENT $COUNTERSIGN_NAME $#:$1\" > {}\nexit \"$2\"\n",
        seen.display()
    );
    install(&program, &script, 0o755);
    let hook = ["--hook", program.to_str().unwrap()];
    let run = |name: &'static str, rest: &[&str], code, part: &str| {
        let machine = Machine::of(&site, name);
        machine.expect(&[&hook, rest].concat(), code, part);
        // Whatever becomes of the hook.
        assert_eq!(machine.status(0)["state"], "valid");
    };
    let arguments = ["--hook-arg", "$(id) -x", "--hook-arg", "0"];
    run("web01.example.com", &arguments, 0, "is enrolled");
    let told = fs::read_to_string(&seen).unwrap();
    assert_eq!(told, "enrolled web01.example.com 2:$(id) -x\n");
    let arguments = ["--hook-arg", "x", "--hook-arg", "3"];
    run("web02.example.com", &arguments, 1, "exit status: 3");

    install(&program, "#!/bin/sh\nsleep 600\n", 0o755);
    run(
        "web03.example.com",
        &["--hook-timeout", "1s"],
        1,
        "longer than 1 s",
    );
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    run("web04.example.com", &[], 1, "cannot be started");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let server = ["--server", "https://localhost:1"];
    let cases: [(&[&str], &str); 11] = [
        (&[], "--server"),
        (&["Web01", server[0], server[1]], "lower case"),
        (&["--server", "http://x:1"], "https://HOST:PORT"),
        (&[server[0], server[1], "--door", "kubernetes"], "--signer"),
        (
            &[server[0], server[1], "--signer", "a.b/c"],
            "--door kubernetes",
        ),
        (
            &[
                server[0],
                server[1],
                "--attribute",
                "challengePassword=hunter2",
            ],
            "a secret must not stand among the arguments",
        ),
        (
            &[server[0], server[1], "--extension", "pp_rolle=web"],
            "pp_rolle",
        ),
        (
            &[server[0], server[1], "--ca-fingerprint", "12"],
            "64 hexadecimal digits",
        ),
        (
            &[server[0], server[1], "--mode", "0644"],
            "no mode for a key",
        ),
        (
            &[server[0], server[1], "--owner", "nobody-of-that-name"],
            "--owner",
        ),
        (&[server[0], server[1], "--renew-before", "0%"], "1% to 99%"),
    ];
    for (arguments, part) in cases {
        let command = bare(&[&["enroll"], arguments].concat());
        let finished = run_with_deadline(command, DEADLINE).unwrap();
        assert_eq!(finished.code, Some(2), "{arguments:?} {finished}");
        assert!(finished.stderr.contains(part), "{arguments:?} {finished}");
        assert!(!finished.stderr.contains("hunter2"), "{finished}");
    }
}

pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
