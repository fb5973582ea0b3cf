//! The real program as Foreman's smart proxy: the real agent enrols with what Foreman was given.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use countersign_pki::{AltName, oid};
use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::chain::{Ca, Leaf};
use countersign_testkit::counterparts::Counterpart;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::{Finished, run_with_input};
use countersign_testkit::http;
use countersign_testkit::https::{Answer, HttpsClient};
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::{NOW, attributes};
use crate::commands::wait_until;
use crate::governed::{AGENTS, Governed, policy};
use crate::puppet_agent::bootstrap;
use crate::site::{install, put_request};

const FOREMAN: &str = "foreman.example.com";
const TOKENS: &str = "    - name: token\n      approve: {token: {}}\n";

/// An authority that Foreman uses, and Foreman's certificate.
struct Site {
    governed: Governed,
    foreman: (Vec<u8>, &'static str),
}

impl Site {
    /// `more` stands in the section `foreman` of the configuration.
    fn start(more: &str) -> Self {
        let text = policy("agents", AGENTS, TOKENS);
        let config = format!(
            "tokens: {{enabled: true}}\nforeman:\n  listen: 127.0.0.1:0\n  trusted_hosts: [{FOREMAN}]\n{more}\
             log: {{level: trace}}\n"
        );
        let governed = Governed::start(&[("agents.yaml", &text)], &config);
        // A trusted host's name is given away by a person alone.
        let site = &governed.site;
        assert_eq!(site.ask(FOREMAN).status, 200);
        assert_eq!(site.certificate(FOREMAN).status, 404);
        assert_eq!(site.put_state(FOREMAN, "signed").status, 204);
        let certificate = site.certificate(FOREMAN).body;
        let key = keys::p256_a().pkcs8_pem();
        Self {
            governed,
            foreman: (certificate, key),
        }
    }

    fn address(&self) -> SocketAddr {
        let port = self.governed.site.server.addresses.foreman_port();
        SocketAddr::from(([127, 0, 0, 1], port.unwrap()))
    }

    fn client(&self, identity: Option<(&[u8], &[u8])>) -> HttpsClient {
        let ca = self.governed.site.puppet_ca();
        HttpsClient::new(self.address(), &ca, identity).unwrap()
    }

    fn call(&self, method: &str, path: &str) -> Answer {
        let (certificate, key) = &self.foreman;
        let client = self.client(Some((certificate, key.as_bytes())));
        let accept = [("Accept", "application/json")];
        client.call(method, path, &accept, b"").unwrap()
    }

    fn mint(&self, name: &str) -> String {
        let answer = self.call("POST", &format!("/puppet/ca/autosign/{name}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        body["generated_token"].as_str().unwrap().to_owned()
    }
}

/// A19 with the real agent, twice: a host is built, and built again.
#[test]
fn a_host_is_built_and_built_again() {
    let site = Site::start("");
    let name = "n1.example.com";
    let mut secrets = Vec::new();
    for build in ["first", "second"] {
        for path in [
            format!("/puppet/ca/autosign/{name}"),
            format!("/puppet/ca/{name}"),
        ] {
            let answer = site.call("DELETE", &path);
            assert_eq!((answer.status, answer.text()), (200, String::new()));
        }
        let token = site.mint(name);
        let folder = site.governed.site.folder(build);
        let port = site.governed.site.puppet().port();
        let agent = PuppetAgent::new(&folder, "localhost", port, name).unwrap();
        agent.write_csr_attributes(&attributes(&token)).unwrap();
        bootstrap(&agent, 0);
        assert_eq!(agent.verify().unwrap().code, Some(0));
        secrets.push(token.split('.').nth(2).unwrap().to_owned());
    }
    let names: Value = serde_json::from_slice(&site.call("GET", "/puppet/ca").body).unwrap();
    assert_eq!(names[name]["state"], "valid", "{names}");
    // Who acted is on record, and the secrets are nowhere.
    let audit = site.governed.well(&["audit", "show", "-o", "json"]);
    assert!(audit.contains("token.minted"), "{audit}");
    assert!(audit.contains(FOREMAN), "{audit}");
    let log = site.governed.site.server.log();
    assert!(log.contains("minted for a build"), "{log}");
    for secret in &secrets {
        assert!(!audit.contains(secret) && !log.contains(secret));
    }
}

#[test]
fn nobody_else_is_let_in() {
    let site = Site::start("");
    let nobody = site.client(None);
    let answer = nobody.call("GET", "/features", &[], b"").unwrap();
    assert_eq!(answer.status, 403, "{}", answer.text());
    // An administrator of the authority is nobody here.
    let (certificate, key) = site.governed.site.admin_pair();
    let admin = site.client(Some((&certificate, &key)));
    let answer = admin.call("GET", "/puppet/ca", &[], b"").unwrap();
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(answer.text().contains("foreman.trusted_hosts"));
    // There is no other protocol.
    let plain = http::call(site.address(), "GET", "/features");
    assert!(plain.is_err(), "{plain:?}");
    // A connection that is open when the certificate is revoked is worth nothing from then on.
    let (certificate, key) = &site.foreman;
    let foreman = site.client(Some((certificate, key.as_bytes())));
    let mut open = foreman.connect().unwrap();
    assert_eq!(open.call("GET", "/features", &[], b"").unwrap().status, 200);
    site.governed.site.revoke(FOREMAN);
    assert_eq!(open.call("GET", "/features", &[], b"").unwrap().status, 403);
    let refused = foreman.call("GET", "/features", &[], b"");
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn trusted_hosts_change_with_a_reload() {
    let mut site = Site::start("");
    let config = site.governed.policies.config();
    let text = std::fs::read_to_string(&config).unwrap();
    let without = text.replace(FOREMAN, "other.example.com");
    install(Path::new(&config), &without, 0o644);
    site.governed.site.server.hang_up();
    wait_until("the list is in force", || {
        site.call("GET", "/features").status == 403
    });
    install(Path::new(&config), &text, 0o644);
    site.governed.site.server.hang_up();
    wait_until("the list is in force", || {
        site.call("GET", "/features").status == 200
    });
}

/// Foreman may have certificates of another authority, and so may the listener.
#[test]
fn another_authority_signs_for_foreman_and_the_listener() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let ca = Ca::root("Foreman CA", keys::p256_c(), NOW);
    let leaf = |common_name: &str, usage, key| {
        ca.leaf(&Leaf {
            common_name,
            names: &[AltName::Dns("localhost".to_owned())],
            usage,
            key,
            serial: 9,
            now: NOW,
        })
    };
    let server = leaf("proxy", oid::EKU_SERVER_AUTH, keys::p256_b());
    install(&path("ca.pem"), &ca.certificate.to_pem(), 0o644);
    install(&path("cert.pem"), &server.to_pem(), 0o644);
    install(&path("key.pem"), keys::p256_b().pkcs8_pem(), 0o600);
    let shown = |name: &str| path(name).display().to_string();
    let site = Site::start(&format!(
        "  cert: {}\n  key: {}\n  ca: {}\n",
        shown("cert.pem"),
        shown("key.pem"),
        shown("ca.pem")
    ));
    let ca_pem = ca.certificate.to_pem();
    let key = keys::p256_d().pkcs8_pem().as_bytes();
    let call = |name: &str, usage| {
        let certificate = leaf(name, usage, keys::p256_d()).to_pem();
        let identity = Some((certificate.as_bytes(), key));
        let client = HttpsClient::new(site.address(), ca_pem.as_bytes(), identity).unwrap();
        client.call("GET", "/v2/features", &[], b"")
    };
    let client_auth = || oid::EKU_CLIENT_AUTH;
    let good = call("Foreman.example.com", client_auth()).unwrap();
    assert_eq!(good.status, 200, "{}", good.text());
    let features: Value = serde_json::from_slice(&good.body).unwrap();
    assert_eq!(features["puppetca"]["state"], json!("running"));
    let port = site.governed.site.puppet().port();
    let url = format!("https://localhost:{port}");
    assert_eq!(features["puppetca"]["settings"]["puppet_url"], url);
    let other = call("other.example.com", client_auth()).unwrap();
    assert_eq!(other.status, 403, "{}", other.text());
    assert!(call(FOREMAN, oid::EKU_SERVER_AUTH).is_err());
    // What the Puppet issuer signed is another trust domain's.
    let (certificate, key) = &site.foreman;
    let identity = Some((certificate.as_slice(), key.as_bytes()));
    let client = HttpsClient::new(site.address(), ca_pem.as_bytes(), identity).unwrap();
    assert!(client.call("GET", "/features", &[], b"").is_err());
}

/// What Puppet Server runs for every request where Foreman's proxy decides: Ruby, with the proxy's certificate, and 200 is
/// yes.
const SIGN: &str = r#"
require 'net/http'
require 'openssl'
url, ca, cert, key = ARGV
target = URI.parse(url)
proxy = Net::HTTP.new(target.host, target.port)
proxy.use_ssl = true
proxy.ca_file = ca
proxy.verify_mode = OpenSSL::SSL::VERIFY_PEER
proxy.cert = OpenSSL::X509::Certificate.new(File.read(cert))
proxy.key = OpenSSL::PKey.read(File.read(key))
proxy.open_timeout = proxy.read_timeout = 30
question = Net::HTTP::Post.new(target.request_uri)
question.add_field('Accept', 'application/json,version=2')
question.body = STDIN.read
answer = proxy.request(question)
warn "the proxy answered #{answer.code}"
exit(answer.code == '200' ? 0 : 1)
"#;

/// The Ruby of the unpacked Puppet, as a program of its own.
fn ruby(folder: &Path) -> PathBuf {
    let puppet = Counterpart::Puppet.find().unwrap();
    let wrapper = std::fs::read_to_string(&puppet).unwrap();
    let bin = std::fs::canonicalize(puppet.parent().unwrap()).unwrap();
    let wrapper = wrapper
        .replace(
            "bin=$(dirname \"$(readlink -f \"$0\")\")",
            &format!("bin='{}'", bin.display()),
        )
        .replace("\"$root/usr/bin/puppet\" ", "");
    assert!(wrapper.contains("/usr/bin/ruby\" \"$@\""), "{wrapper}");
    let program = folder.join("ruby");
    install(&program, &wrapper, 0o755);
    program
}

#[test]
fn a_puppet_server_elsewhere_asks_by_foremans_own_means() {
    let site = Site::start("");
    let folder = site.governed.site.folder("elsewhere");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        install(&path, text, 0o600);
        path
    };
    let (certificate, key) = &site.foreman;
    let cert = file("cert.pem", &String::from_utf8_lossy(certificate));
    let key = file("key.pem", key);
    let ca = file(
        "ca.pem",
        &String::from_utf8_lossy(&site.governed.site.puppet_ca()),
    );
    let script = file("sign.rb", SIGN);
    let url = format!(
        "https://localhost:{}/puppet/ca/validate",
        site.address().port()
    );
    let program = ruby(&folder);
    let ask = |request: &str| -> Finished {
        let mut command = Command::new(&program);
        command.arg(&script).arg(&url).args([&ca, &cert, &key]);
        run_with_input(command, request.into(), Duration::from_secs(60)).unwrap()
    };
    let token = site.mint("n1.example.com");
    let request = |name: &str, key| {
        CsrBuilder::new(name)
            .challenge_password(&token)
            .sign_pem(key)
    };
    for (what, request, code) in [
        ("another name", request("n2.example.com", keys::p256_a()), 1),
        ("its own", request("n1.example.com", keys::p256_a()), 0),
        ("again", request("n1.example.com", keys::p256_a()), 0),
        ("another key", request("n1.example.com", keys::p256_b()), 1),
        ("no request", String::new(), 1),
    ] {
        let finished = ask(&request);
        assert_eq!(finished.code, Some(code), "{what}: {finished}");
        let answer = if code == 0 { 200 } else { 404 };
        let said = format!("the proxy answered {answer}");
        assert!(finished.stderr.contains(&said), "{what}: {finished}");
    }
    // It was used up for somebody else, so it is good for nothing here.
    let stolen = request("n1.example.com", keys::p256_c());
    let answer = put_request(&site.governed.site.anonymous(), "n1.example.com", &stolen);
    assert_eq!(answer.status, 403, "{}", answer.text());
    let rejected = site.governed.get("/rejections?certname=n1.example.com");
    let reasons: Vec<&Value> = rejected["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["reason"])
        .collect();
    assert_eq!(
        reasons,
        ["token_key_mismatch", "token_key_mismatch"],
        "{rejected}"
    );
}
