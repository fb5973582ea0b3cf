//! Debian's Puppet agent, unmodified, against the Puppet door.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::counterparts::Counterpart;
use countersign_testkit::deadline::{Finished, run_with_deadline};

use crate::site::{COUNTERSIGN, Site, install};

pub(crate) fn agent(site: &Site, name: &str) -> PuppetAgent {
    PuppetAgent::new(&site.folder(name), "localhost", site.puppet().port(), name).unwrap()
}

pub(crate) fn countersign(site: &Site, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(COUNTERSIGN);
    command.args(arguments).arg("--data").arg(site.data());
    let finished = run_with_deadline(command, Duration::from_secs(60)).unwrap();
    (
        finished.code,
        format!("{}{}", finished.stdout, finished.stderr),
    )
}

/// `puppet ssl bootstrap` with what it logs at info.
#[track_caller]
pub(crate) fn bootstrap(agent: &PuppetAgent, code: i32) -> Finished {
    let arguments = ["--waitforcert", "0", "--verbose"];
    let finished = agent.ssl("bootstrap", &arguments).unwrap();
    assert_eq!(finished.code, Some(code), "{finished}");
    finished
}

/// `openssl verify` with every check of revocation, and nothing but the certificates and lists of `bundle`.
pub(crate) fn openssl_verify(site: &Site, bundle: &[u8], certificate: &Path) -> (bool, String) {
    let file = site.folder("openssl").join("bundle.pem");
    std::fs::write(&file, bundle).unwrap();
    let mut command = Command::new(Counterpart::Openssl.find().unwrap());
    command
        .args(["verify", "-x509_strict", "-crl_check_all", "-CAfile"])
        .arg(&file)
        .arg(certificate);
    let finished = run_with_deadline(command, Duration::from_secs(30)).unwrap();
    (
        finished.code == Some(0),
        format!("{}{}", finished.stdout, finished.stderr),
    )
}

/// A certificate as `openssl x509` shows it.
#[track_caller]
pub(crate) fn openssl_text(certificate: &Path) -> String {
    let mut command = Command::new(Counterpart::Openssl.find().unwrap());
    command
        .args(["x509", "-noout", "-text", "-in"])
        .arg(certificate);
    let finished = run_with_deadline(command, Duration::from_secs(30)).unwrap();
    assert!(finished.success(), "{finished}");
    finished.stdout
}

/// What a stranger would build a chain from: the files of the authority.
fn published(site: &Site) -> Vec<u8> {
    [site.puppet_ca(), site.read("issuers/puppet/ca_crl.pem")].concat()
}

#[test]
fn an_agent_enrols_with_autosigning() {
    let site = Site::start(&["--autosign", "true"]);
    let agent = agent(&site, "web01.example.com");
    let finished = agent.bootstrap().unwrap();
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let verified = agent.verify().unwrap();
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let (good, said) = openssl_verify(&site, &published(&site), &agent.certificate());
    assert!(good, "{said}");
    // The CA bundle arrives byte for byte: agents may pin its fingerprint.
    assert_eq!(std::fs::read(agent.ca_bundle()).unwrap(), site.puppet_ca());
}

#[test]
fn an_agent_waits_and_enrols_after_manual_signing() {
    let site = Site::start(&[]);
    let agent = agent(&site, "web02.example.com");
    for attempt in ["first", "second"] {
        let waiting = agent.bootstrap().unwrap();
        assert_eq!(waiting.code, Some(1), "{attempt}: {waiting:?}");
    }
    let (code, listed) = countersign(&site, &["ca", "list"]);
    assert_eq!(code, Some(0), "{listed}");
    assert!(
        listed.contains("Requested Certificates:") && listed.contains("web02.example.com"),
        "{listed}"
    );
    let (code, said) = countersign(&site, &["ca", "sign", "--certname", "web02.example.com"]);
    assert_eq!(code, Some(0), "{said}");
    let finished = agent.bootstrap().unwrap();
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let (_, explained) = countersign(&site, &["csr", "explain", "web02.example.com"]);
    assert!(explained.contains("approved"), "{explained}");
}

#[test]
fn an_allowlist_signs_the_agents_on_it() {
    let site = Site::start(&[]);
    // The default file: it appears after the start, and counts from then on.
    std::fs::write(site.data().join("autosign.conf"), "*.lab.example.com\n").unwrap();
    let on_it = agent(&site, "web04.lab.example.com");
    let finished = on_it.bootstrap().unwrap();
    assert_eq!(finished.code, Some(0), "{finished}");
    let off_it = agent(&site, "web04.prod.example.com");
    let waiting = off_it.bootstrap().unwrap();
    assert_eq!(waiting.code, Some(1), "{waiting}");
    let (_, explained) = countersign(&site, &["csr", "explain", "web04.lab.example.com"]);
    assert!(explained.contains("*.lab.example.com"), "{explained}");
}

#[test]
fn autosign_false_stays_off_even_if_the_file_appears() {
    let site = Site::start(&["--autosign", "false"]);
    std::fs::write(site.data().join("autosign.conf"), "*\n").unwrap();
    let waiting = agent(&site, "web05.example.com").bootstrap().unwrap();
    assert_eq!(waiting.code, Some(1), "{waiting}");
}

/// A policy as sites write them: it looks for a password in the request itself.
#[test]
fn a_policy_executable_decides_by_what_the_request_carries() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy");
    let openssl = Counterpart::Openssl.find().unwrap();
    let script = format!(
        "#!/bin/sh\n{} req -noout -text | grep -q 'challengePassword *:let-me-in'\n",
        openssl.display()
    );
    install(&policy, &script, 0o755);
    let site = Site::start(&["--autosign", policy.to_str().unwrap()]);

    let knows = agent(&site, "web06.example.com");
    knows
        .write_csr_attributes("custom_attributes:\n  challengePassword: let-me-in\n")
        .unwrap();
    let finished = knows.bootstrap().unwrap();
    assert_eq!(finished.code, Some(0), "{finished}\n{}", site.server);
    let guesses = agent(&site, "web07.example.com");
    guesses
        .write_csr_attributes("custom_attributes:\n  challengePassword: open-sesame\n")
        .unwrap();
    let waiting = guesses.bootstrap().unwrap();
    assert_eq!(waiting.code, Some(1), "{waiting}");
}

#[test]
fn revoked_stays_out() {
    let site = Site::start(&["--autosign", "true"]);
    let agent = agent(&site, "web03.example.com");
    assert_eq!(agent.bootstrap().unwrap().code, Some(0));
    let (code, said) = countersign(&site, &["ca", "revoke", "--certname", "web03.example.com"]);
    assert_eq!(code, Some(0), "{said}");

    // Its certificate no longer opens a connection...
    let certificate = std::fs::read(agent.certificate()).unwrap();
    let key = pkcs8(&agent.private_key());
    let revoked = site.holder(&certificate, &key);
    let refused = revoked.call("GET", "/puppet-ca/v1/certificate/ca", &[], b"");
    assert!(
        refused.is_err(),
        "a revoked certificate was accepted: {refused:?}"
    );

    // ...a stranger finds it on the CRL...
    let (good, said) = openssl_verify(&site, &published(&site), &agent.certificate());
    assert!(!good && said.contains("revoked"), "{said}");

    // ...and the agent itself, with the new CRL, refuses its certificate and gets no other.
    std::fs::remove_file(agent.crl()).unwrap();
    let verified = agent.bootstrap().unwrap();
    assert_ne!(verified.code, Some(0), "{verified:?}");
    let again = PuppetAgent::new(
        &site.folder("again"),
        "localhost",
        site.puppet().port(),
        "web03.example.com",
    )
    .unwrap();
    let finished = again.bootstrap().unwrap();
    assert_ne!(
        finished.code,
        Some(0),
        "a new key for a revoked name was signed: {finished:?}"
    );
}

/// Puppet writes PKCS#1; the client wants PKCS#8.
pub(crate) fn pkcs8(path: &Path) -> Vec<u8> {
    let mut command = Command::new(Counterpart::Openssl.find().unwrap());
    command
        .args(["pkcs8", "-topk8", "-nocrypt", "-in"])
        .arg(path);
    let finished = run_with_deadline(command, Duration::from_secs(30)).unwrap();
    assert_eq!(finished.code, Some(0), "{finished:?}");
    finished.stdout.into_bytes()
}
