//! A site whose Puppet CA stands below a root that is kept elsewhere.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use countersign_authority::{Clock as _, SystemClock};
use countersign_keys::private_file;
use countersign_pki::{Crl, pem};
use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::chain::{Ca, CrlFacts};
use countersign_testkit::deadline::run_with_deadline;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;

use crate::puppet_agent::{self, openssl_verify};
use crate::site::{Site, TEXT};

const LISTS: &str = "/puppet-ca/v1/certificate_revocation_list";

fn root() -> Ca {
    Ca::root("Example Root CA", keys::rsa2048_a(), SystemClock.now())
}

/// What an operator places before the first start: key and chain, and no CRL.
fn place(data: &Path, root: &Ca) {
    let own = root.below("Example Puppet CA", keys::p256_c(), 2, SystemClock.now());
    let folder = data.join("issuers/puppet");
    fs::create_dir_all(&folder).unwrap();
    let key = keys::p256_c().pkcs8_pem().as_bytes();
    private_file::write_new(&folder.join("ca_key.pem"), key).unwrap();
    // The root first: the place in the file does not matter.
    let chain = [root, &own].map(|ca| ca.certificate.to_pem()).concat();
    fs::write(folder.join("ca_crt.pem"), chain).unwrap();
}

fn agent(site: &Site, name: &str) -> PuppetAgent {
    let mut agent = puppet_agent::agent(site, name);
    agent.set("certificate_revocation", "chain");
    agent
}

fn get(site: &Site, path: &str) -> Vec<u8> {
    let answer = site.anonymous().call("GET", path, &[], b"").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.body
}

/// Common names and numbers of the lists in a text.
fn lists(text: &[u8]) -> Vec<(String, u64)> {
    let blocks = pem::decode_all(text, &pem::PemLimits::BUNDLE).unwrap();
    let lists = blocks.iter().map(|block| Crl::parse(&block.der).unwrap());
    let named = lists.map(|list| {
        let name = list.issuer().first_common_name().unwrap().to_owned();
        (name, list.number().unwrap())
    });
    named.collect()
}

fn named(lists: &[(&str, u64)]) -> Vec<(String, u64)> {
    let owned = lists.iter().map(|(name, n)| ((*name).to_owned(), *n));
    owned.collect()
}

/// What the server serves to somebody who verifies a whole chain.
fn served(site: &Site) -> Vec<u8> {
    [
        get(site, "/puppet-ca/v1/certificate/ca"),
        get(site, &format!("{LISTS}/ca")),
    ]
    .concat()
}

#[test]
fn t19_agents_below_an_intermediate_ca_check_the_whole_chain() {
    let root = root();
    let site = Site::prepared(|data| place(data, &root), &["--autosign", "true"]);
    let first = get(&site, &format!("{LISTS}/ca"));
    assert_eq!(lists(&first), named(&[("Example Puppet CA", 0)]));
    let warning = "there is no CRL of CN=Example Root CA: clients that check the whole chain";
    assert!(site.server.log().contains(warning), "{}", site.server);

    // The listener sends what is between its certificate and the root: whoever has only the root can verify it.
    let root_alone = root.certificate.to_pem().into_bytes();
    let client = HttpsClient::new(site.puppet(), &root_alone, None).unwrap();
    let answer = client.call("GET", "/puppet-ca/v1/certificate/ca", &[], b"");
    assert_eq!(answer.unwrap().body, site.puppet_ca());

    // Without the root's list the agent does as the log says.
    let early = agent(&site, "early.example.com").bootstrap().unwrap();
    assert_ne!(early.code, Some(0), "{early}");
    assert!(
        early.stderr.contains("CRL is missing")
            || early.stderr.contains("unable to get certificate CRL"),
        "{early}"
    );

    let list = root.crl(&CrlFacts::good(1, SystemClock.now()));
    let put = site.admin().call("PUT", LISTS, &[TEXT], list.as_bytes());
    let put = put.unwrap();
    assert_eq!(
        (put.status, put.text().as_str()),
        (200, "Successfully updated CRLs.")
    );
    let agent = agent(&site, "web01.example.com");
    let finished = agent.bootstrap().unwrap();
    assert_eq!(finished.code, Some(0), "{finished}\n{}", site.server);
    let verified = agent.verify().unwrap();
    assert_eq!(verified.code, Some(0), "{verified}");
    assert_eq!(fs::read(agent.ca_bundle()).unwrap(), site.puppet_ca());
    let both = named(&[("Example Puppet CA", 0), ("Example Root CA", 1)]);
    assert_eq!(lists(&fs::read(agent.crl()).unwrap()), both);
    let (good, said) = openssl_verify(&site, &served(&site), &agent.certificate());
    assert!(good, "{said}");

    site.revoke("web01.example.com");
    let (good, said) = openssl_verify(&site, &served(&site), &agent.certificate());
    assert!(!good && said.contains("revoked"), "{said}");
    let now = get(&site, &format!("{LISTS}/ca"));
    let both = named(&[("Example Puppet CA", 1), ("Example Root CA", 1)]);
    assert_eq!(lists(&now), both);

    // What was served is in the file, and is served again after a crash.
    let site = site.kill_and_restart(&["--autosign", "true"]);
    assert_eq!(get(&site, &format!("{LISTS}/ca")), now);
    assert_eq!(site.read("issuers/puppet/ca_crl.pem"), now);
    assert!(!site.server.log().contains(warning), "{}", site.server);
}

#[test]
fn a_chain_that_does_not_reach_a_root_is_refused() {
    let root = root();
    let folder = tempfile::tempdir().unwrap();
    place(folder.path(), &root);
    let chain = folder.path().join("issuers/puppet/ca_crt.pem");
    let whole = fs::read_to_string(&chain).unwrap();
    let alone = whole.replace(&root.certificate.to_pem(), "");
    fs::write(&chain, alone).unwrap();
    let mut command = Command::new(crate::site::COUNTERSIGN);
    command
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--kubernetes-listen",
            "off",
            "--data",
        ])
        .arg(folder.path());
    let finished = run_with_deadline(command, Duration::from_secs(60)).unwrap();
    assert_eq!(finished.code, Some(1), "{finished}");
    let sentence =
        "it lacks the certificate of CN=Example Root CA, who signed that of CN=Example Puppet CA";
    assert!(finished.stderr.contains(sentence), "{finished}");
}

#[test]
fn agents_are_served_the_list_of_the_sites_own_machines() {
    let site = Site::configured("puppet: {infra_crl: true}\n", &["--autosign", "true"]);
    for name in ["puppet01", "web01"] {
        let answer = site.ask(name);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let served = || lists(&get(&site, &format!("{LISTS}/ca")))[0].1;
    assert_eq!(served(), 0);
    fs::write(site.data().join("infra_inventory.txt"), "puppet01\n").unwrap();
    site.revoke("web01");
    assert_eq!(served(), 0);
    site.revoke("puppet01");
    assert_eq!(served(), 1);
    let short = get(&site, &format!("{LISTS}/ca"));
    let folder = site.into_folder();
    let file = |name: &str| fs::read(folder.path().join("data/issuers/puppet").join(name)).unwrap();
    assert_eq!(file("infra_crl.pem"), short);
    assert_eq!(lists(&file("ca_crl.pem"))[0].1, 2);
}
