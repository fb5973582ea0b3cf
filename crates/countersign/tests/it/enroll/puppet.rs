//! With the real Puppet: its server gives us certificates, and its agents go on with what we have installed.

use std::fs;

use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::counterparts::Release;
use countersign_testkit::deadline::run_with_deadline;
use countersign_testkit::puppet_server::{PuppetServer, PuppetServerSettings};

use super::{DEADLINE, Machine, bare};
use crate::puppet_agent::bootstrap;
use crate::site::{Site, read_certificate};

/// Enrols into the ssldir of an agent.
fn enroll_for(agent: &PuppetAgent, name: &str, url: &str, arguments: &[&str]) {
    let certificate = agent.certificate();
    let ssldir = certificate.parent().unwrap().parent().unwrap();
    let mut command = bare(&["enroll", name, "--server", url, "--puppet-ssldir"]);
    command.arg(ssldir).args(arguments);
    let finished = run_with_deadline(command, DEADLINE).unwrap();
    assert!(finished.success(), "{finished}");
}

#[test]
fn an_agent_goes_on_with_what_was_installed() {
    let site = Site::start(&["--autosign", "true"]);
    let port = site.puppet().port();
    let url = format!("https://localhost:{port}");
    let root = read_certificate(site.puppet_ca()).fingerprint().to_hex();
    for (release, name, key) in [
        (Release::Debian12, "web01.example.com", "p256"),
        (Release::Debian13, "web02.example.com", "p256"),
    ] {
        let folder = site.folder(name);
        let agent = PuppetAgent::of(release, &folder, "localhost", port, name).unwrap();
        enroll_for(
            &agent,
            name,
            &url,
            &["--ca-fingerprint", &root, "--key-type", key],
        );
        let installed = fs::read(agent.certificate()).unwrap();
        let verified = agent.verify().unwrap();
        assert!(verified.success(), "{verified}");
        // It has nothing left to do, and talks to its server with the certificate.
        bootstrap(&agent, 0);
        assert_eq!(fs::read(agent.certificate()).unwrap(), installed);
        assert!(folder.join(format!("ssl/public_keys/{name}.pem")).exists());
    }
}

#[test]
fn a_real_puppet_server_enrols_and_renews_us() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    fs::write(folder.join("autosign.conf"), "*.auto.example.com\n").unwrap();
    let settings = PuppetServerSettings {
        autosign: folder.join("autosign.conf").display().to_string(),
        ca_conf: "allow-auto-renewal: true\nauto-renewal-cert-ttl: 10d".to_owned(),
        ..PuppetServerSettings::below(folder)
    };
    let server = PuppetServer::start(folder, settings).unwrap();
    let port = server.address().port();
    let url = format!("https://localhost:{port}");
    let bundle = server.ca_bundle().unwrap();
    let blocks =
        countersign_pki::pem::decode_all(&bundle, &countersign_pki::pem::PemLimits::BUNDLE);
    let root = blocks.unwrap().pop().unwrap();
    let root = countersign_pki::fingerprint_sha256(&root.der).to_string();

    let machine = Machine::at(
        &url,
        &folder.join("a"),
        "web01.auto.example.com",
        &["--ca-fingerprint", &root],
    );
    machine.expect(&["--renew-before", "1d"], 0, "is enrolled");
    assert_eq!(fs::read(machine.path("ca.pem")).unwrap(), bundle);
    assert!(machine.path("crl.pem").exists());
    let first = fs::read(machine.certificate()).unwrap();
    machine.expect(&["--renew-before", "99y"], 0, "is renewed");
    assert_ne!(fs::read(machine.certificate()).unwrap(), first);
    assert_eq!(machine.status(0)["state"], "valid");

    // One that a person signs.
    let waiting = Machine::at(
        &url,
        &folder.join("b"),
        "web02.example.com",
        &["--ca-fingerprint", &root],
    );
    for _ in 0..2 {
        waiting.expect(&["--no-wait"], 1, "waits to be signed");
    }
    let signed = server
        .command()
        .unwrap()
        .run("sign", &["--certname", waiting.name]);
    assert!(signed.unwrap().success());
    waiting.expect(&["--no-wait"], 0, "is enrolled");

    // And one whose agent takes over.
    let name = "web03.auto.example.com";
    let agent = PuppetAgent::of(
        Release::Debian13,
        &folder.join("c"),
        "localhost",
        port,
        name,
    )
    .unwrap();
    enroll_for(&agent, name, &url, &["--ca-fingerprint", &root]);
    let verified = agent.verify().unwrap();
    assert!(verified.success(), "{verified}");
}
