//! The conformance checks of Puppet's CA protocol, each under its number, with Debian's agent 7.23 and `puppetserver ca`
//! where the check is about them.
//!
//! Those with a file of their own: 15 in `newer_clients`, 19 in `intermediate_ca`, 24 and 25 in `takeover`.

use std::path::Path;

use countersign_pki::{Oid, fingerprint_sha256};
use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::counterparts::Release;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use serde_json::{Value, json};

use crate::puppet_agent::{agent, pkcs8};
use crate::puppetserver_ca::Administrator;
use crate::site::{
    JSON, PUPPET as V1, Site, TEXT, get_crl, install, put_request, read_certificate,
};

fn state(site: &Site, name: &str) -> Option<String> {
    let path = format!("{V1}/certificate_status/{name}");
    let answer = site.admin().call("GET", &path, &[], b"").unwrap();
    let told: Value = serde_json::from_slice(&answer.body).ok()?;
    Some(told["state"].as_str()?.to_owned())
}

/// The requests that an agent's HTTP library says it has sent.
fn calls(said: &str) -> Vec<String> {
    let sent = said.split("<- \"").skip(1);
    sent.filter_map(|line| {
        let mut words = line.split(' ');
        let (method, path) = (words.next()?, words.next()?);
        let path = path.split('?').next()?.strip_prefix(V1)?;
        Some(format!("{method} {path}"))
    })
    .collect()
}

/// A policy executable.
fn policy(folder: &Path, script: &str) -> String {
    let path = folder.join("policy");
    install(&path, script, 0o755);
    path.to_str().unwrap().to_owned()
}

#[test]
fn t01_t02_t03_an_agent_asks_waits_and_gets_its_certificate_when_it_is_signed() {
    let site = Site::start(&["--autosign", "false"]);
    let mut agent = agent(&site, "web01.example.com");
    agent.set("http_debug", "true");
    let first = agent.bootstrap().unwrap();
    assert_eq!(first.code, Some(1), "{first}");
    assert_eq!(
        calls(&first.stderr),
        [
            "GET /certificate/ca",
            "GET /certificate_revocation_list/ca",
            "PUT /certificate_request/web01.example.com",
            "GET /certificate/web01.example.com",
        ]
    );
    let stored = || {
        let path = format!("{V1}/certificate_request/web01.example.com");
        site.admin().call("GET", &path, &[], b"").unwrap().body
    };
    let pending = stored();
    let listed = site.admin().call(
        "GET",
        &format!("{V1}/certificate_statuses/x?state=requested"),
        &[],
        b"",
    );
    let listed: Value = serde_json::from_slice(&listed.unwrap().body).unwrap();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");

    // Once more: the request is refused as a duplicate, the certificate is not there, nothing has changed.
    let second = agent.bootstrap().unwrap();
    assert_eq!(second.code, Some(1), "{second}");
    assert_eq!(
        calls(&second.stderr),
        [
            "PUT /certificate_request/web01.example.com",
            "GET /certificate/web01.example.com",
        ]
    );
    let answers: Vec<&str> = second
        .stderr
        .split("-> \"HTTP/1.1 ")
        .skip(1)
        .filter_map(|line| line.get(..3))
        .collect();
    assert_eq!(answers, ["400", "404"], "{second}");
    assert_eq!(stored(), pending);

    Administrator::of(Release::Debian12, &site).expect(
        "sign",
        &["--certname", "web01.example.com"],
        0,
        "Successfully signed",
    );
    let third = agent.bootstrap().unwrap();
    assert_eq!(third.code, Some(0), "{third}");
    let verified = agent.verify().unwrap();
    assert_eq!(verified.code, Some(0), "{verified}");
}

#[test]
fn t04_a_pinned_fingerprint_of_the_bundle_is_accepted() {
    let site = Site::start(&["--autosign", "true"]);
    let pin = |text: &[u8]| fingerprint_sha256(text).to_hex();
    for (name, bundle, code) in [
        ("good.example.com", site.puppet_ca(), 0),
        ("bad.example.com", b"another".to_vec(), 1),
    ] {
        let mut agent = agent(&site, name);
        agent.set("ca_fingerprint", &pin(&bundle));
        let finished = agent.bootstrap().unwrap();
        assert_eq!(finished.code, Some(code), "{name}: {finished}");
    }
}

/// The apex itself is on the list only where a site says so: that is what the documentation of the list says, and the
/// reference does otherwise.
#[test]
fn t05_a_glob_signs_what_is_below_it() {
    for (apex, expected) in [(false, "requested"), (true, "signed")] {
        let site = Site::configured(&format!("puppet: {{allowlist_apex: {apex}}}\n"), &[]);
        std::fs::write(site.data().join("autosign.conf"), "*.example.com\n").unwrap();
        for (name, expected) in [
            ("example.com", expected),
            ("a.b.example.com", "signed"),
            ("badexample.com", "requested"),
        ] {
            assert_eq!(site.ask(name).status, 200);
            assert_eq!(state(&site, name).as_deref(), Some(expected), "{name}");
        }
    }
}

#[test]
fn t06_a_line_with_a_trailing_space_matches_nothing_and_is_reported() {
    let site = Site::start(&[]);
    std::fs::write(site.data().join("autosign.conf"), "host \n").unwrap();
    assert_eq!(site.ask("host").status, 200);
    assert_eq!(state(&site, "host").as_deref(), Some("requested"));
    let log = site.server.log();
    assert!(log.contains("invalid pattern"), "{log}");
}

#[test]
fn t07_a_policy_is_asked_once_per_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = policy(folder.path(), "#!/bin/sh\nexit 3\n");
    let site = Site::start(&["--autosign", &path]);
    let agent = agent(&site, "web07.example.com");
    assert_eq!(agent.bootstrap().unwrap().code, Some(1));
    policy(folder.path(), "#!/bin/sh\nexit 0\n");
    assert_eq!(agent.bootstrap().unwrap().code, Some(1));
    assert_eq!(
        state(&site, "web07.example.com").as_deref(),
        Some("requested")
    );
}

#[test]
fn t08_a_policy_need_not_read_what_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = policy(folder.path(), "#!/bin/sh\nexec 0<&-\nexit 0\n");
    let site = Site::start(&["--autosign", &path]);
    assert_eq!(site.ask("web08").status, 200);
    assert_eq!(state(&site, "web08").as_deref(), Some("signed"));
}

#[test]
fn t09_extra_names_are_refused_and_the_request_is_kept() {
    let site = Site::start(&["--autosign", "true"]);
    let request = CsrBuilder::new("web09")
        .dns("web09")
        .dns("other.example.com")
        .sign_pem(keys::p256_a());
    let answer = put_request(&site.anonymous(), "web09", &request);
    assert_eq!(answer.status, 400);
    assert!(
        answer
            .text()
            .contains("CSR 'web09' contains extra subject alternative names"),
        "{}",
        answer.text()
    );
    assert_eq!(state(&site, "web09").as_deref(), Some("requested"));
    let signed = site.put_state("web09", "signed");
    assert_eq!(signed.status, 409, "{}", signed.text());
    let body = json!({"certnames": ["web09"]}).to_string();
    let many = site
        .admin()
        .call("POST", &format!("{V1}/sign"), &[JSON], body.as_bytes())
        .unwrap();
    let told: Value = serde_json::from_slice(&many.body).unwrap();
    assert_eq!(
        told,
        json!({"signed": [], "no-csr": [], "signing-errors": ["web09"]})
    );
}

#[test]
fn t10_t11_what_no_request_may_carry_is_named() {
    let site = Site::configured("puppet: {allow_authorization_extensions: true}\n", &[]);
    let ca_true: &[u8] = &[0x30, 0x03, 0x01, 0x01, 0xff];
    for (name, oid, value) in [
        ("cli-auth", "1.3.6.1.4.1.34380.1.3.39", &b"\x0c\x04true"[..]),
        ("ca-true", "2.5.29.19", ca_true),
    ] {
        let kind = Oid::parse(oid).unwrap();
        let request = CsrBuilder::new(name)
            .raw_extension(&kind, None, value)
            .sign_pem(keys::p256_a());
        assert_eq!(put_request(&site.anonymous(), name, &request).status, 200);
        let signed = site.put_state(name, "signed");
        assert_eq!(
            (signed.status, signed.text()),
            (
                409,
                format!("Found extensions that are not permitted: {oid}")
            )
        );
    }
}

#[test]
fn t12_a_second_revocation_changes_nothing() {
    let site = Site::start(&["--autosign", "true"]);
    assert_eq!(site.ask("web12").status, 200);
    let before = get_crl(&site.anonymous()).number().unwrap();
    for _ in 0..2 {
        assert_eq!(site.put_state("web12", "revoked").status, 204);
        assert_eq!(get_crl(&site.anonymous()).number(), Some(before + 1));
    }
}

#[test]
fn t13_a_revoked_name_is_free_after_it_was_cleaned() {
    let site = Site::start(&["--autosign", "true"]);
    assert_eq!(site.ask("web13").status, 200);
    assert_eq!(site.put_state("web13", "revoked").status, 204);
    let refused = site.ask("web13");
    assert_eq!(
        (refused.status, refused.text()),
        (
            400,
            "web13 already has a revoked certificate; ignoring certificate request".to_owned()
        )
    );
    Administrator::of(Release::Debian12, &site).expect(
        "clean",
        &["--certname", "web13"],
        0,
        "web13",
    );
    assert_eq!(site.ask("web13").status, 200);
    assert_eq!(state(&site, "web13").as_deref(), Some("signed"));
}

#[test]
fn t14_a_revocation_hits_every_renewal() {
    let config = "puppet: {auto_renewal: true, autosign: \"true\"}\n";
    let site = Site::configured(config, &[]);
    assert_eq!(site.ask("web14").status, 200);
    let mut serials = vec![read_certificate(site.certificate("web14").body).serial()];
    for _ in 0..2 {
        let current = read_certificate(site.certificate("web14").body).to_pem();
        let key = keys::p256_a().pkcs8_pem();
        let holder = site.holder(current.as_bytes(), key.as_bytes());
        let renewed = holder
            .call("POST", &format!("{V1}/certificate_renewal"), &[TEXT], b"")
            .unwrap();
        assert_eq!(renewed.status, 200, "{}", renewed.text());
        serials.push(read_certificate(site.certificate("web14").body).serial());
    }
    assert_eq!(site.put_state("web14", "revoked").status, 204);
    let mut listed: Vec<_> = get_crl(&site.anonymous()).serials().collect();
    listed.sort();
    serials.sort();
    serials.dedup();
    assert_eq!((serials.len(), listed), (3, serials));
}

#[test]
fn t16_t17_t18_who_may_call_what() {
    let site = Site::start(&["--autosign", "true"]);
    let agent = agent(&site, "web16.example.com");
    assert_eq!(agent.bootstrap().unwrap().code, Some(0));
    let (certificate, key) = (
        std::fs::read(agent.certificate()).unwrap(),
        pkcs8(&agent.private_key()),
    );
    let holder = || site.holder(&certificate, &key);
    let statuses = format!("{V1}/certificate_statuses/all");
    let answer = holder().call("GET", &statuses, &[], b"").unwrap();
    assert_eq!(answer.status, 403);
    let path = format!("{V1}/certificate_request/web16.example.com");
    let answer = site.anonymous().call("DELETE", &path, &[], b"").unwrap();
    assert_eq!(answer.status, 403);

    let expirations = format!("{V1}/expirations");
    let answer = holder().call("GET", &expirations, &[], b"").unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(site.put_state("web16.example.com", "revoked").status, 204);
    let refused = holder().call("GET", &expirations, &[], b"");
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn t20_only_requests_are_listed_as_requested() {
    let site = Site::start(&[]);
    for name in ["signed", "revoked", "requested"] {
        assert_eq!(site.ask(name).status, 200);
    }
    for name in ["signed", "revoked"] {
        assert_eq!(site.put_state(name, "signed").status, 204);
    }
    assert_eq!(site.put_state("revoked", "revoked").status, 204);
    for (filter, expected) in [
        ("?state=requested", vec!["requested"]),
        ("?state=revoked", vec!["revoked"]),
        ("?state=signed&environment=production", vec!["signed"]),
    ] {
        let path = format!("{V1}/certificate_statuses/x{filter}");
        let answer = site.admin().call("GET", &path, &[], b"").unwrap();
        let told: Value = serde_json::from_slice(&answer.body).unwrap();
        // The authority's own certificates are signed ones too.
        let own = ["localhost", "countersign-admin"];
        let names: Vec<&str> = told
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .filter(|name| !own.contains(name))
            .collect();
        assert_eq!(names, expected, "{filter}");
    }
}

#[test]
fn t21_t22_the_admin_command_sees_the_server_and_that_nothing_waits() {
    let site = Site::start(&[]);
    let admin = Administrator::of(Release::Debian12, &site);
    admin.expect("prune", &[], 1, "running");
    admin.expect("sign", &["--all"], 24, "No waiting certificate requests");
    let services = site
        .anonymous()
        .call("GET", "/status/v1/services", &[], b"")
        .unwrap();
    let told: Value = serde_json::from_slice(&services.body).unwrap();
    assert_eq!(told["ca"]["service_version"], "8.4.0");
}

#[test]
fn t23_a_long_name_enrols() {
    let site = Site::start(&["--autosign", "true"]);
    let name = format!("{}.example.com", "n".repeat(58));
    assert_eq!(name.len(), 70);
    let agent: PuppetAgent = agent(&site, &name);
    let finished = agent.bootstrap().unwrap();
    assert_eq!(finished.code, Some(0), "{finished}");
    let verified = agent.verify().unwrap();
    assert_eq!(verified.code, Some(0), "{verified}");
}
