//! Debian 13's Puppet agent 8.10 and `puppetserver ca` 2.7, unmodified: what older clients do not do.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::counterparts::Release;
use countersign_testkit::deadline::Finished;

use crate::commands::wait_until;
use crate::puppet_agent::{bootstrap, countersign, openssl_text};
use crate::puppetserver_ca::Administrator;
use crate::site::Site;

/// An authority that signs everything, with these settings of its `puppet` section.
fn signing(settings: &str) -> Site {
    let config = format!("puppet: {{{settings}}}\n");
    Site::configured(&config, &["--autosign", "true"])
}

fn agent(site: &Site, name: &str) -> PuppetAgent {
    agent_in(site, name, name)
}

fn agent_in(site: &Site, folder: &str, name: &str) -> PuppetAgent {
    let (folder, port) = (site.folder(folder), site.puppet().port());
    PuppetAgent::of(Release::Debian13, &folder, "localhost", port, name).unwrap()
}

#[track_caller]
fn says(finished: &Finished, sentence: &str) {
    let said = format!("{}{}", finished.stdout, finished.stderr);
    assert!(said.contains(sentence), "no '{sentence}' in {finished}");
}

/// As if the agent had fetched the file so long ago.
fn backdate(file: &Path, age: Duration) {
    let file = File::options().append(true).open(file).unwrap();
    let time = SystemTime::UNIX_EPOCH + wall_clock() - age;
    file.set_modified(time).unwrap();
}

/// The time that file systems and agents see.
fn wall_clock() -> Duration {
    modified(tempfile::NamedTempFile::new().unwrap().path())
}

fn modified(file: &Path) -> Duration {
    let modified = fs::metadata(file).unwrap().modified().unwrap();
    modified.duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

#[test]
fn an_agent_enrols_and_is_content() {
    let site = signing("");
    let agent = agent(&site, "web01.example.com");
    bootstrap(&agent, 0);
    let verified = agent.verify().unwrap();
    assert!(verified.success(), "{verified}");
    assert_eq!(fs::read(agent.ca_bundle()).unwrap(), site.puppet_ca());
    // Renewal is due only in years, so the next run asks for nothing.
    let certificate = fs::read(agent.certificate()).unwrap();
    bootstrap(&agent, 0);
    assert_eq!(fs::read(agent.certificate()).unwrap(), certificate);
}

#[test]
fn an_agent_waits_for_a_person() {
    let site = Site::start(&[]);
    let agent = agent(&site, "web02.example.com");
    says(&bootstrap(&agent, 1), "has not been signed yet");
    let admin = Administrator::of(Release::Debian13, &site);
    admin.expect(
        "sign",
        &["--certname", "web02.example.com"],
        0,
        "Successfully signed",
    );
    bootstrap(&agent, 0);
}

#[test]
fn an_agent_inside_its_renewal_window_renews() {
    let site = signing("auto_renewal: true");
    let mut agent = agent(&site, "web03.example.com");
    bootstrap(&agent, 0);
    let first = fs::read(agent.certificate()).unwrap();
    agent.set("hostcert_renewal_interval", "10y");
    says(&bootstrap(&agent, 0), "Renewed client certificate");
    let second = fs::read(agent.certificate()).unwrap();
    assert_ne!(first, second);
    let verified = agent.verify().unwrap();
    assert!(verified.success(), "{verified}");

    // Revoked stays out: the renewed certificate fails, and does not renew.
    let revoke = ["ca", "revoke", "--certname", "web03.example.com"];
    let (code, said) = countersign(&site, &revoke);
    assert_eq!(code, Some(0), "{said}");
    let refused = bootstrap(&agent, 0);
    says(&refused, "Unable to automatically renew certificate");
    assert_eq!(fs::read(agent.certificate()).unwrap(), second);
}

/// Conformance check T15.
#[test]
fn where_renewal_is_off_an_agent_says_so_and_goes_on() {
    let site = signing("");
    let mut agent = agent(&site, "web04.example.com");
    bootstrap(&agent, 0);
    let first = fs::read(agent.certificate()).unwrap();
    agent.set("hostcert_renewal_interval", "10y");
    says(
        &bootstrap(&agent, 0),
        "Info: Certificate autorenewal has not been enabled on the server.",
    );
    assert_eq!(fs::read(agent.certificate()).unwrap(), first);
}

#[test]
fn an_agent_refreshes_what_it_knows_of_the_authority() {
    let site = signing("");
    let mut agent = agent(&site, "web05.example.com");
    let other = agent_in(&site, "other", "web06.example.com");
    bootstrap(&other, 0);
    bootstrap(&agent, 0);

    // Its copies are younger than the server's files, by a second that both can tell apart: nothing is sent.
    agent.set("ca_refresh_interval", "0s");
    agent.set("crl_refresh_interval", "0s");
    let age = Duration::from_secs(1);
    let published = ["issuers/puppet/ca_crt.pem", "issuers/puppet/ca_crl.pem"]
        .map(|file| modified(&site.data().join(file)));
    let copied = published[0].max(published[1]) + 2 * age;
    wait_until("the copies are old enough", || wall_clock() >= copied + age);
    for file in [agent.ca_bundle(), agent.crl()] {
        backdate(&file, age);
    }
    let current = bootstrap(&agent, 0);
    says(&current, "CA certificate is unmodified");
    says(&current, "CRL is unmodified");

    // After a revocation the list is another.
    let (code, said) = countersign(&site, &["ca", "revoke", "--certname", "web06.example.com"]);
    assert_eq!(code, Some(0), "{said}");
    backdate(&agent.crl(), Duration::from_secs(3600));
    says(&bootstrap(&agent, 0), "Refreshed CRL");
    let crl = fs::read_to_string(agent.crl()).unwrap();
    let served = String::from_utf8(site.read("issuers/puppet/ca_crl.pem")).unwrap();
    assert_eq!(crl.trim_end(), served.trim_end());

    // A copy from before the authority's file is replaced, and the list with it.
    backdate(&agent.ca_bundle(), Duration::from_secs(3600));
    let stale = bootstrap(&agent, 0);
    says(&stale, "Refreshed CA certificate");
    says(&stale, "Refreshing CRL");
    assert_eq!(fs::read(agent.ca_bundle()).unwrap(), site.puppet_ca());
}

#[test]
fn an_agent_whose_certificate_is_on_the_list_stops() {
    let site = signing("");
    let mut agent = agent(&site, "web07.example.com");
    bootstrap(&agent, 0);
    let admin = Administrator::of(Release::Debian13, &site);
    let name = ["--certname", "web07.example.com"];
    admin.expect("revoke", &name, 0, "has been revoked");
    agent.set("crl_refresh_interval", "1h");
    backdate(&agent.crl(), Duration::from_secs(7200));
    says(&bootstrap(&agent, 1), "is revoked");

    // Revoked, a new key does not help; clean, it does.
    let again = agent_in(&site, "again", "web07.example.com");
    bootstrap(&again, 1);
    admin.expect("clean", &name, 0, "Cleaned files related to");
    let anew = agent_in(&site, "anew", "web07.example.com");
    bootstrap(&anew, 0);
}

#[test]
fn an_agent_with_an_ec_key_enrols_and_renews() {
    let site = signing("auto_renewal: true");
    let mut agent = agent(&site, "web08.example.com");
    agent.set("key_type", "ec");
    bootstrap(&agent, 0);
    agent.set("hostcert_renewal_interval", "10y");
    says(&bootstrap(&agent, 0), "Renewed client certificate");
    let text = openssl_text(&agent.certificate());
    assert!(text.contains("ASN1 OID: prime256v1"), "{text}");
}

#[test]
fn requested_extensions_end_up_in_the_certificate() {
    let site = signing("allow_authorization_extensions: true");
    let agent = agent(&site, "web09.example.com");
    agent
        .write_csr_attributes(
            "extension_requests:\n  pp_role: database\n  1.3.6.1.4.1.34380.1.2.7: private\n  pp_auth_role: compiler\n\
             custom_attributes:\n  challengePassword: secret\n",
        )
        .unwrap();
    bootstrap(&agent, 0);
    let text = openssl_text(&agent.certificate());
    for (oid, value) in [
        ("1.3.6.1.4.1.34380.1.1.13", "database"),
        ("1.3.6.1.4.1.34380.1.2.7", "private"),
        ("1.3.6.1.4.1.34380.1.3.13", "compiler"),
    ] {
        let (_, after) = text
            .split_once(oid)
            .unwrap_or_else(|| panic!("{oid}: {text}"));
        let line = after.lines().nth(1).unwrap_or_default();
        assert!(line.contains(value), "{oid}: {text}");
    }
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn alternative_names_are_signed_where_they_are_allowed() {
    let names = "DNS:web10.example.com,DNS:www.example.com,IP:192.0.2.7";
    let site = signing("allow_subject_alt_names: true");
    let mut allowed = agent(&site, "web10.example.com");
    allowed.set("dns_alt_names", names);
    bootstrap(&allowed, 0);
    let text = openssl_text(&allowed.certificate());
    for name in [
        "DNS:web10.example.com",
        "DNS:www.example.com",
        "IP Address:192.0.2.7",
    ] {
        assert!(text.contains(name), "{name}: {text}");
    }

    let site = signing("");
    let mut refused = agent(&site, "web10.example.com");
    refused.set("dns_alt_names", names);
    bootstrap(&refused, 1);
    Administrator::of(Release::Debian13, &site).expect(
        "sign",
        &["--certname", "web10.example.com"],
        1,
        "web10.example.com",
    );
    bootstrap(&refused, 1);
}

#[test]
fn the_newer_command_lists_signs_revokes_and_cleans() {
    let site = Site::start(&[]);
    let admin = Administrator::of(Release::Debian13, &site);
    admin.expect("list", &[], 0, "No certificates to list");
    // It asks for the service's version first, then signs in bulk.
    admin.expect("sign", &["--all"], 24, "No waiting certificate requests");
    for name in ["web01", "web02", "web03", "web04"] {
        assert_eq!(site.ask(name).status, 200);
    }
    admin.expect("list", &[], 0, "Requested Certificates:");
    let two = ["--certname", "web01,nobody"];
    admin.expect("list", &two, 1, "Missing Certificates:");
    admin.expect("sign", &two, 1, "Successfully signed");
    admin.expect("list", &["--certname", "web01"], 0, "Signed Certificates:");
    admin.expect("sign", &["--certname", "web01"], 1, "web01");
    // A lifetime goes the way of single calls.
    let with_lifetime = ["--certname", "web02", "--ttl", "1h"];
    admin.expect("sign", &with_lifetime, 0, "Successfully signed");
    admin.expect("sign", &["--all"], 0, "web03");
    admin.expect("list", &["--all"], 0, "Signed Certificates:");
    admin.expect("list", &["--all", "--format", "json"], 0, "\"signed\"");

    let one = ["--certname", "web01"];
    admin.expect("revoke", &one, 0, "web01 has been revoked");
    admin.expect("list", &["--all"], 0, "Revoked Certificates:");
    let nobody = ["--certname", "nobody"];
    admin.expect("revoke", &nobody, 1, "Could not find certificate");
    assert_eq!(site.ask("web01").status, 400, "a revoked name is taken");
    let two = ["--certname", "web01,web03"];
    admin.expect("clean", &two, 0, "Cleaned files related to web03");
    assert_eq!(site.ask("web01").status, 200, "a clean one is free");
    admin.expect("clean", &nobody, 1, "Could not find files to clean");
}

#[test]
fn the_newer_command_generates_a_certificate() {
    let site = Site::start(&[]);
    let admin = Administrator::of(Release::Debian13, &site);
    let name = ["--certname", "made.example.com"];
    admin.expect("generate", &name, 0, "Successfully saved certificate");
    let made = site
        .folder("puppetserver-ca")
        .join("ssl/certs/made.example.com.pem");
    assert!(openssl_text(&made).contains("CN = made.example.com"));
}

/// Its guard against working on a running server's files asks without a certificate. Conformance check T21.
#[test]
fn the_newer_command_leaves_a_running_servers_files_alone() {
    let site = Site::start(&[]);
    let admin = Administrator::of(Release::Debian13, &site);
    for (action, arguments) in [
        ("prune", &[][..]),
        ("delete", &["--expired"]),
        (
            "generate",
            &["--ca-client", "--certname", "admin2.example.com"],
        ),
    ] {
        admin.expect(action, arguments, 1, "running");
    }
}
