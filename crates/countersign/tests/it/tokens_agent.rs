//! Debian's Puppet agents, unmodified, with what `token create --format csr-attributes` prints.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;

use countersign_authority::TokenText;
use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::counterparts::Release;
use countersign_testkit::deadline::Finished;
use serde_json::Value;

use crate::commands::wait_until;
use crate::puppet_agent::{bootstrap, countersign, openssl_text};
use crate::site::{COUNTERSIGN, Site, install, read_certificate};

/// An authority that takes tokens.
pub(crate) fn site() -> Site {
    Site::configured("tokens: {enabled: true}\n", &[])
}

/// A token, and the file in which an agent gets it.
pub(crate) struct Minted {
    pub(crate) token: TokenText,
    pub(crate) attributes: String,
}

impl Minted {
    #[track_caller]
    pub(crate) fn new(site: &Site, name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(COUNTERSIGN);
        command.args(["token", "create", name, "--format", "csr-attributes"]);
        command.args(arguments).arg("--data").arg(site.data());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let attributes = String::from_utf8(output.stdout).unwrap();
        let quoted = attributes.split('"').nth(1).unwrap();
        Self {
            token: TokenText::parse(quoted).unwrap(),
            attributes,
        }
    }

    pub(crate) fn record(&self, site: &Site) -> Value {
        record(site, &self.token)
    }

    /// The serial of the one certificate that it was good for.
    #[track_caller]
    pub(crate) fn serial(&self, site: &Site) -> String {
        let record = self.record(site);
        assert_eq!(record["status"], "issued", "{record}");
        assert_eq!(record["uses"], 1, "{record}");
        record["use_rows"][0]["serial"].as_str().unwrap().to_owned()
    }
}

/// What is on record of a token.
#[track_caller]
pub(crate) fn record(site: &Site, token: &TokenText) -> Value {
    let arguments = ["token", "show", token.id().as_str(), "-o", "json"];
    let (code, text) = countersign(site, &arguments);
    assert_eq!(code, Some(0), "{text}");
    serde_json::from_str(&text).unwrap()
}

/// An agent in a folder of its own, which may have the name of another.
fn agent(release: Release, site: &Site, folder: &str, name: &str) -> PuppetAgent {
    let (folder, port) = (site.folder(folder), site.puppet().port());
    PuppetAgent::of(release, &folder, "localhost", port, name).unwrap()
}

fn serial(agent: &PuppetAgent) -> String {
    let certificate = fs::read(agent.certificate()).unwrap();
    read_certificate(certificate).serial().to_string()
}

/// The agent is told 403, says so, and has nothing.
#[track_caller]
fn is_turned_away(agent: &PuppetAgent) -> Finished {
    let said = bootstrap(agent, 1);
    let text = format!("{}{}", said.stdout, said.stderr);
    assert!(text.contains("HTTP response was 403"), "{said}");
    assert!(!agent.certificate().exists());
    said
}

/// The reasons why a name was turned away.
fn reasons(site: &Site, name: &str) -> Vec<String> {
    let path = format!("/enrol/v1/rejections?certname={name}");
    let answer = site.admin().call("GET", &path, &[], b"").unwrap();
    let listed: Value = serde_json::from_slice(&answer.body).unwrap();
    let items = listed["items"].as_array().unwrap().iter();
    let reasons = items.map(|item| item["reason"].as_str().unwrap().to_owned());
    reasons.collect()
}

fn an_agent_enrols_once(release: Release) {
    let site = site();
    let name = "web01.example.com";
    let minted = Minted::new(&site, name, &["--extension", "pp_role=web"]);
    let first = agent(release, &site, "first", name);
    first.write_csr_attributes(&minted.attributes).unwrap();
    bootstrap(&first, 0);
    let verified = first.verify().unwrap();
    assert!(verified.success(), "{verified}");
    assert_eq!(minted.serial(&site), serial(&first));
    let text = openssl_text(&first.certificate());
    assert!(text.contains("1.3.6.1.4.1.34380.1.1.13"), "{text}");
    assert!(!text.contains("ott1"), "{text}");

    // The next run has what it needs.
    let certificate = fs::read(first.certificate()).unwrap();
    bootstrap(&first, 0);
    assert_eq!(fs::read(first.certificate()).unwrap(), certificate);

    // Its certificate is lost, its key is not: the token gives it the same one again.
    fs::remove_file(first.certificate()).unwrap();
    bootstrap(&first, 0);
    assert_eq!(fs::read(first.certificate()).unwrap(), certificate);

    // Another machine with the file, and so with another key, gets nothing: neither this name nor its own.
    for (folder, name, reason) in [
        ("thief", name, "token_key_mismatch"),
        ("other", "web02.example.com", "token_certname_mismatch"),
    ] {
        let other = agent(release, &site, folder, name);
        other.write_csr_attributes(&minted.attributes).unwrap();
        let said = is_turned_away(&other);
        let text = format!("{}{}", said.stdout, said.stderr);
        assert!(!text.contains(minted.token.expose()), "{said}");
        assert_eq!(reasons(&site, name), [reason], "{name}");
    }
    assert_eq!(minted.serial(&site), serial(&first));
    assert_eq!(site.certificate("web02.example.com").status, 404);

    // Whoever reads the log sees which token it was about.
    let (_, shown) = countersign(&site, &["audit", "show"]);
    let id = minted.token.id();
    for (event, told) in [
        ("token.consumed", String::new()),
        ("token.rejected", ", token_key_mismatch".to_owned()),
        ("token.rejected", ", token_certname_mismatch".to_owned()),
    ] {
        let is_told =
            |line: &str| line.contains(event) && line.contains(&format!("token {id}{told}"));
        assert!(shown.lines().any(is_told), "{event}{told}: {shown}");
    }
}

#[test]
fn a_token_enrols_the_agent_of_debian_12_once() {
    an_agent_enrols_once(Release::Debian12);
}

#[test]
fn a_token_enrols_the_agent_of_debian_13_once() {
    an_agent_enrols_once(Release::Debian13);
}

#[test]
fn a_token_that_was_shown_for_the_wrong_name_still_enrols_the_right_one() {
    let site = site();
    let minted = Minted::new(&site, "web01.example.com", &[]);
    for release in [Release::Debian12, Release::Debian13] {
        let folder = format!("{release:?}");
        let other = agent(release, &site, &folder, "web02.example.com");
        other.write_csr_attributes(&minted.attributes).unwrap();
        is_turned_away(&other);
        let record = minted.record(&site);
        assert_eq!(record["status"], "active", "{record}");
    }
    let right = agent(Release::Debian13, &site, "right", "web01.example.com");
    right.write_csr_attributes(&minted.attributes).unwrap();
    bootstrap(&right, 0);
    assert_eq!(minted.serial(&site), serial(&right));
}

/// A host whose token had ended enrols with its next one and the same key.
#[test]
fn an_agent_that_was_turned_away_enrols_with_its_next_token() {
    let site = site();
    let name = "web01.example.com";
    let revoked = Minted::new(&site, name, &[]);
    let next = Minted::new(&site, name, &[]);
    let host = agent(Release::Debian12, &site, "host", name);
    host.write_csr_attributes(&revoked.attributes).unwrap();
    is_turned_away(&host);
    assert_eq!(reasons(&site, name), ["token_revoked"]);
    let key = fs::read(host.private_key()).unwrap();
    host.write_csr_attributes(&next.attributes).unwrap();
    bootstrap(&host, 0);
    assert_eq!(fs::read(host.private_key()).unwrap(), key);
    assert_eq!(next.serial(&site), serial(&host));
}

/// An agent that waits until it is killed.
struct Waiting(Child);

impl Waiting {
    fn start(site: &Site, agent: &PuppetAgent) -> Self {
        let script = site.folder("scripts").join("puppet");
        install(&script, &agent.script(), 0o755);
        let mut command = Command::new(script);
        command.args(["ssl", "bootstrap", "--waitforcert", "1"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ended_before = self.0.kill();
        let _ended_before = self.0.wait();
    }
}

/// Does something while the agent waits, and lets it come to its end.
fn meanwhile(agent: &PuppetAgent, act: impl FnOnce()) -> Finished {
    thread::scope(|scope| {
        let arguments = ["--waitforcert", "1"];
        let waiting = scope.spawn(move || agent.ssl("bootstrap", &arguments).unwrap());
        act();
        waiting.join().unwrap()
    })
}

fn is_pending(site: &Site, name: &str) -> bool {
    let (_, listed) = countersign(site, &["csr", "list", "--state", "pending"]);
    listed.contains(name)
}

#[test]
fn an_agent_without_a_token_waits_for_a_person() {
    let site = site();
    for (release, name) in [
        (Release::Debian12, "web01.example.com"),
        (Release::Debian13, "web02.example.com"),
    ] {
        let host = agent(release, &site, name, name);
        let finished = meanwhile(&host, || {
            wait_until("the request waits", || is_pending(&site, name));
            assert!(reasons(&site, name).contains(&"token_missing".to_owned()));
            let (code, said) = countersign(&site, &["csr", "approve", name]);
            assert_eq!(code, Some(0), "{said}");
        });
        assert!(finished.success(), "{finished}");
        let verified = host.verify().unwrap();
        assert!(verified.success(), "{verified}");
    }
}

/// The token comes late: the agent is killed while it waits, gets its file, and goes on with the key it has.
#[test]
fn an_agent_that_waits_is_started_again_with_a_token() {
    let site = site();
    for (release, name) in [
        (Release::Debian12, "web01.example.com"),
        (Release::Debian13, "web02.example.com"),
    ] {
        let host = agent(release, &site, name, name);
        let waiting = Waiting::start(&site, &host);
        wait_until("the request waits", || is_pending(&site, name));
        drop(waiting);
        let key = fs::read(host.private_key()).unwrap();
        let minted = Minted::new(&site, name, &[]);
        host.write_csr_attributes(&minted.attributes).unwrap();
        bootstrap(&host, 0);
        assert_eq!(fs::read(host.private_key()).unwrap(), key);
        assert_eq!(minted.serial(&site), serial(&host));
        assert!(!is_pending(&site, name));
    }
}

/// A running agent reads its file anew on each try.
#[test]
fn an_agent_that_waits_takes_a_token_that_comes_meanwhile() {
    let site = site();
    let name = "web01.example.com";
    let host = agent(Release::Debian12, &site, name, name);
    let minted = Minted::new(&site, name, &[]);
    let finished = meanwhile(&host, || {
        wait_until("the request waits", || is_pending(&site, name));
        host.write_csr_attributes(&minted.attributes).unwrap();
    });
    assert!(finished.success(), "{finished}");
    assert_eq!(minted.serial(&site), serial(&host));
}
