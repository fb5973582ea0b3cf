//! A site switches: from a real Puppet Server to Countersign and back, and its agents notice nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use countersign_pki::pem;
use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::counterparts::Release;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::puppet_server::{PuppetServer, PuppetServerSettings};
use countersign_testkit::puppetserver_ca::PuppetserverCa;
use countersign_testkit::server_process::ServerProcess;
use serde_json::Value;

use crate::cadir_takeover::expect;
use crate::puppet_agent::{bootstrap, countersign};
use crate::site::{
    COUNTERSIGN, Site, get_certificate, get_crl, puppet_request, put_request, read_certificate,
};

/// One machine of the fleet, whatever authority it talks to.
fn agent(release: Release, folder: &Path, port: u16, name: &str) -> PuppetAgent {
    let home = folder.join("agents").join(name);
    fs::create_dir_all(&home).unwrap();
    PuppetAgent::of(release, &home, "localhost", port, name).unwrap()
}

#[track_caller]
fn verify(agent: &PuppetAgent) {
    let finished = agent.verify().unwrap();
    assert!(finished.success(), "{finished}");
}

/// State, serial and fingerprint of every name that `client` is shown.
fn listing(client: &HttpsClient) -> BTreeMap<String, String> {
    let path = "/puppet-ca/v1/certificate_statuses/all";
    let answer = client.call("GET", path, &[], &[]).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let all: Vec<Value> = serde_json::from_slice(&answer.body).unwrap();
    let facts = |one: &Value| {
        let shown = [
            "state",
            "serial_number",
            "fingerprint",
            "not_after",
            "dns_alt_names",
        ];
        let shown = shown.map(|field| one[field].to_string()).join(" ");
        (one["name"].as_str().unwrap().to_owned(), shown)
    };
    all.iter().map(facts).collect()
}

fn serial(certificate: &Path) -> u64 {
    let certificate = read_certificate(fs::read(certificate).unwrap());
    certificate.serial().to_u64().unwrap()
}

/// A client with an agent's certificate.
fn as_agent(site: &Site, agent: &PuppetAgent) -> HttpsClient {
    let certificate = fs::read(agent.certificate()).unwrap();
    let key = fs::read(agent.private_key()).unwrap();
    site.holder(&certificate, &key)
}

fn start(data: &Path, folder: &Path, port: u16) -> Site {
    let config = folder.join("countersign.yaml");
    let autosign = folder.join("autosign.conf");
    let autosign = autosign.display();
    fs::write(
        &config,
        format!("puppet: {{autosign: {autosign}, auto_renewal: true}}\n"),
    )
    .unwrap();
    let listen = format!("127.0.0.1:{port}");
    let arguments = [
        "--config",
        config.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
        "--listen",
        &listen,
        "--kubernetes-listen",
        "off",
        "--hostname",
        "localhost",
    ];
    let server = ServerProcess::start(Path::new(COUNTERSIGN), &arguments);
    Site::around(
        data.to_owned(),
        server.unwrap_or_else(|fault| panic!("{fault}")),
    )
}

/// Conformance checks T24 and T25.
#[test]
fn a_site_switches_and_switches_back() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    fs::write(folder.join("autosign.conf"), "web01\nweb02\nweb04\nweb05\n").unwrap();
    let settings = PuppetServerSettings {
        autosign: folder.join("autosign.conf").display().to_string(),
        ..PuppetServerSettings::below(folder)
    };
    let mut before = PuppetServer::start(folder, settings.clone()).unwrap();
    let port = before.address().port();

    // The fleet: signed, revoked, waiting, cleaned, and one that is about to renew.
    let old = |name: &str| agent(Release::Debian12, folder, port, name);
    let (web01, web02, web03, web04) = (old("web01"), old("web02"), old("web03"), old("web04"));
    let mut web05 = agent(Release::Debian13, folder, port, "web05");
    // At once: over TLS 1.3 each of them waits 30 seconds for this server's next answer on a connection.
    std::thread::scope(|scope| {
        for agent in [&web01, &web02, &web04, &web05] {
            scope.spawn(|| bootstrap(agent, 0));
        }
        bootstrap(&web03, 1);
    });
    let command = before.command().unwrap();
    for (verb, name) in [("revoke", "web02"), ("clean", "web04")] {
        let finished = command.run(verb, &["--certname", name]).unwrap();
        assert!(finished.success(), "{finished}");
    }
    let listed = listing(&before.admin().unwrap());
    let number = get_crl(&before.anonymous().unwrap()).number().unwrap();
    let chain = before.ca_bundle().unwrap();
    let admin_pair = before.admin_pair().unwrap();
    let next = fs::read_to_string(settings.cadir.join("serial")).unwrap();
    let next = u64::from_str_radix(next.trim(), 16).unwrap();
    before.stop().unwrap();

    // Countersign at the same address.
    let data = folder.join("data");
    let said = expect("import", &settings.cadir, &data);
    assert!(said.stdout.contains("problems:           none"), "{said}");
    let mut site = start(&data, folder, port);
    assert_eq!(site.puppet_ca(), chain);
    // Puppet Server's own certificate administers here too.
    let (certificate, key) = &admin_pair;
    let host = HttpsClient::new(site.puppet(), &chain, Some((certificate, key))).unwrap();
    let mut now = listing(&host);
    assert!(now.remove("countersign-admin").is_some());
    // The server's name has a newer certificate, its own.
    let without_server = |mut list: BTreeMap<String, String>| {
        assert!(list.remove("localhost").is_some());
        list
    };
    assert_eq!(without_server(now), without_server(listed.clone()));

    // The same agents go on.
    for agent in [&web01, &web05] {
        bootstrap(agent, 0);
        verify(agent);
    }
    assert!(
        as_agent(&site, &web02)
            .call("GET", "/puppet-ca/v1/certificate/web02", &[], &[])
            .is_err()
    );
    let (code, said) = countersign(&site, &["ca", "sign", "--certname", "web03"]);
    assert_eq!(code, Some(0), "{said}");
    bootstrap(&web03, 0);
    // The server itself and its administrator came first.
    assert_eq!(serial(&web03.certificate()), next + 2);
    web05.set("hostcert_renewal_interval", "10y");
    let renewed = bootstrap(&web05, 0);
    let said = format!("{}{}", renewed.stdout, renewed.stderr);
    assert!(said.contains("Renewed client certificate"), "{renewed}");
    verify(&web05);
    let again = agent(Release::Debian12, &folder.join("again"), port, "web04");
    bootstrap(&again, 0);

    let (code, said) = countersign(&site, &["ca", "revoke", "--certname", "web01"]);
    assert_eq!(code, Some(0), "{said}");
    let list = get_crl(&site.anonymous());
    assert!(list.number().unwrap() > number);
    assert_eq!(
        list.entries().len(),
        3,
        "web01, web02 and the first of web04"
    );
    assert!(
        as_agent(&site, &web01)
            .call("GET", "/puppet-ca/v1/certificate/web01", &[], &[])
            .is_err()
    );
    // An agent that fetches the list anew sees it.
    fs::remove_file(web03.crl()).unwrap();
    bootstrap(&web03, 0);
    verify(&web03);
    let fetched = fs::read_to_string(web03.crl()).unwrap();
    assert!(
        fetched.contains(pem::encode("X509 CRL", list.der()).trim()),
        "{fetched}"
    );

    // And back.
    let listed = listing(&site.admin());
    let number = list.number().unwrap();
    site.server.stop().unwrap();
    let back = PuppetServerSettings {
        cadir: folder.join("back"),
        ..settings
    };
    expect("export", &back.cadir, &data);
    let next = fs::read_to_string(back.cadir.join("serial")).unwrap();
    let next = u64::from_str_radix(&next, 16).unwrap();
    let server = PuppetServer::start(folder, back).unwrap();
    let admin = server.admin().unwrap();
    assert_eq!(listing(&admin), listed, "{server}");
    assert!(get_crl(&admin).number().unwrap() >= number);
    let asked = put_request(&admin, "web09", &puppet_request("web09"));
    assert_eq!(asked.status, 200, "{}", asked.text());
    let signed = server
        .command()
        .unwrap()
        .run("sign", &["--certname", "web09"])
        .unwrap();
    assert!(signed.success(), "{signed}");
    let answer = get_certificate(&admin, "web09");
    let file = folder.join("web09.pem");
    fs::write(&file, answer.body).unwrap();
    assert_eq!(serial(&file), next);
}

/// What `puppetserver ca setup` makes: a root, an intermediate authority below it, and no server yet.
#[test]
fn a_fresh_authority_of_puppetserver_ca_setup_is_taken_over() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let place = folder.display();
    let config = folder.join("puppet.conf");
    let text = format!(
        "[main]\ncertname = localhost\nssldir = {place}/ssl\nconfdir = {place}/conf\nkeylength = 2048\n\
         [server]\ncadir = {place}/ca\n"
    );
    fs::write(&config, text).unwrap();
    let command = PuppetserverCa::of(Release::Debian13, &config, folder).unwrap();
    let made = command.run("setup", &[]).unwrap();
    assert!(made.success(), "{made}");
    let (cadir, data): (PathBuf, PathBuf) = (folder.join("ca"), folder.join("data"));
    let said = expect("import", &cadir, &data);
    for line in [
        "certificates:       1",
        "next serial:        0002",
        "problems:           none",
    ] {
        assert!(said.stdout.contains(line), "no {line:?} in {said}");
    }
    // Written back, it is what it was: both CRLs, both certificates.
    let back = folder.join("back");
    expect("export", &back, &data);
    for name in [
        "ca_crt.pem",
        "ca_crl.pem",
        "signed/localhost.pem",
        "inventory.txt",
    ] {
        let read = |folder: &Path| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read(&back), read(&cadir), "{name}");
    }
    fs::write(folder.join("autosign.conf"), "web01\n").unwrap();
    let site = start(&data, folder, 0);
    assert_eq!(
        site.puppet_ca(),
        fs::read(cadir.join("ca_crt.pem")).unwrap()
    );
    let mut web01 = agent(Release::Debian12, folder, site.puppet().port(), "web01");
    web01.set("certificate_revocation", "leaf");
    bootstrap(&web01, 0);
    verify(&web01);
    assert_eq!(
        serial(&web01.certificate()),
        4,
        "after the server and its administrator"
    );
}
