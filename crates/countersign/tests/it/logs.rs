//! What strangers can cause to be logged, and what an operator finds there.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use countersign_testkit::deadline::run_with_deadline;
use countersign_testkit::https::{Connection, HttpsClient};
use countersign_testkit::keys;
use serde_json::Value;

use crate::site::{COUNTERSIGN, Site, puppet_request_with, put_request};

const FOREMAN: &str = "foreman: {listen: '127.0.0.1:0', trusted_hosts: [foreman.example.com]}\n";

fn flood(connection: &mut Connection, path: &str, status: u16) {
    for _ in 0..600 {
        let answer = connection.call("GET", path, &[], b"").unwrap();
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}

#[test]
fn anonymous_callers_do_not_flood_the_log() {
    let site = Site::configured(FOREMAN, &[]);
    let before = site.server.log().len();
    let port = site.server.addresses.foreman_port().unwrap();
    let foreman = SocketAddr::from(([127, 0, 0, 1], port));
    let foreman = HttpsClient::new(foreman, &site.puppet_ca(), None).unwrap();
    // Each character is six in a log that escapes it.
    let long = format!("/{}", "%1b".repeat(3300));
    flood(&mut site.anonymous().connect().unwrap(), &long, 403);
    flood(&mut foreman.connect().unwrap(), &long, 403);
    let not_logged = |log: &str| {
        let told = log
            .lines()
            .filter(|line| line.contains("lines were not logged"));
        let counts = told.map(|line| {
            let count = line.split(" count=").nth(1).unwrap();
            count.split(' ').next().unwrap().parse::<u32>().unwrap()
        });
        counts.sum::<u32>()
    };
    let logged = |log: &str| u32::try_from(log.matches(" refused ").count()).unwrap();
    let is_told = |log: &str| logged(log) + not_logged(log) == 1200 && not_logged(log) > 600;
    let is_told = site.server.wait_for_log(is_told);
    let log = site.server.log();
    let log = log.get(before..).unwrap();
    let (longest, all) = (log.lines().map(str::len).max().unwrap(), log.len());
    assert!(longest < 4096 && all < 400_000, "{longest}, {all} bytes");
    assert!(is_told, "{} and {} lines", logged(log), not_logged(log));
}

#[test]
fn a_second_key_for_a_known_name_is_logged_and_listed() {
    let site = Site::start(&["--autosign", "true"]);
    assert_eq!(site.ask("web01.example.com").status, 200);
    for key in [keys::p256_b(), keys::p256_b(), keys::p256_a()] {
        let rebuilt = puppet_request_with("web01.example.com", key);
        let answer = put_request(&site.anonymous(), "web01.example.com", &rebuilt);
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    let is_logged = |log: &str| {
        log.lines().any(|line| {
            line.contains(" refused ")
                && line.contains("source=127.0.0.1")
                && line.contains("status=400")
                && line.contains("reason=\"web01.example.com already has a signed certificate;")
        })
    };
    assert!(site.server.wait_for_log(is_logged), "{}", site.server);
    let arguments = ["csr", "list", "--state", "denied", "-o", "json"];
    let listed: Value = serde_json::from_str(&run(&site, &arguments)).unwrap();
    let items = listed["items"].as_array().unwrap();
    assert_eq!(
        items.len(),
        1,
        "once for each key that is not its own: {listed}"
    );
    assert_eq!(items[0]["name"], "web01.example.com", "{listed}");
    let rejections = site.admin().call("GET", "/enrol/v1/rejections", &[], b"");
    let rejections: Value = serde_json::from_slice(&rejections.unwrap().body).unwrap();
    assert_eq!(
        rejections["items"][0]["reason"], "name_taken",
        "{rejections}"
    );
    // The certificate is as good as before.
    assert_eq!(site.certificate("web01.example.com").status, 200);
}

#[test]
fn a_denial_is_logged_with_its_reason_and_source_and_names_are_quoted_once() {
    let site = Site::configured("log: {format: json}\n", &["--autosign", "false"]);
    assert_eq!(site.ask("web01.example.com").status, 200);
    let forbidden = site
        .anonymous()
        .call("PUT", "/puppet-ca/v1/clean", &[], b"");
    assert_eq!(forbidden.unwrap().status, 403);
    let kubernetes = HttpsClient::new(site.kubernetes(), &site.kubernetes_ca(), None).unwrap();
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    assert_eq!(kubernetes.call("GET", path, &[], b"").unwrap().status, 403);
    let is_complete = |log: &str| log.matches("\"status\":403").count() == 2;
    assert!(site.server.wait_for_log(is_complete), "{}", site.server);
    let log = site.server.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let stored = lines
        .iter()
        .find(|line| line["fields"]["message"] == "stored")
        .unwrap();
    assert_eq!(stored["fields"]["name"], "web01.example.com", "{stored}");
    assert_eq!(stored["fields"]["source"], "127.0.0.1", "{stored}");
    assert!(
        stored["timestamp"].is_string() && stored["level"] == "INFO",
        "{stored}"
    );
    for path in ["/puppet-ca/v1/clean", path] {
        let refused = lines
            .iter()
            .find(|line| line["fields"]["path"] == path)
            .unwrap();
        let fields = &refused["fields"];
        assert_eq!(fields["source"], "127.0.0.1", "{refused}");
        assert_eq!(fields["caller"], "anonymous", "{refused}");
        assert!(!fields["reason"].as_str().unwrap().is_empty(), "{refused}");
    }
}

#[test]
fn a_revoked_client_is_in_the_log() {
    let site = Site::start(&["--autosign", "true"]);
    assert_eq!(site.ask("web01.example.com").status, 200);
    let certificate = site.certificate("web01.example.com").body;
    site.revoke("web01.example.com");
    let client = site.holder(&certificate, keys::p256_a().pkcs8_pem().as_bytes());
    let path = "/puppet-ca/v1/certificate/ca";
    client.call("GET", path, &[], b"").unwrap_err();
    let is_logged = |log: &str| {
        log.lines().any(|line| {
            line.contains("refused: the client's certificate") && line.contains("source=127.0.0.1")
        })
    };
    assert!(site.server.wait_for_log(is_logged), "{}", site.server);
}

fn run(site: &Site, arguments: &[&str]) -> String {
    let mut command = Command::new(COUNTERSIGN);
    command.args(arguments).arg("--data").arg(site.data());
    let finished = run_with_deadline(command, Duration::from_secs(60)).unwrap();
    assert!(finished.success(), "{finished}");
    finished.stdout
}
