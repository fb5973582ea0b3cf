//! Behind a real HAProxy that runs on the configuration in `examples/haproxy`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use countersign_testkit::haproxy::Haproxy;
use countersign_testkit::https::HttpsClient;
use serde_json::Value;

use crate::commands::wait_until;
use crate::governed::{AGENTS, Governed, policy};
use crate::site::{JSON, REQUESTS, Site, TEXT, get_certificate, kubernetes_request};
use crate::site::{puppet_request, put_request};

/// HAProxy connects from 127.0.0.2, so that the commands of this machine, at 127.0.0.1, need no header.
const CONFIG: &str = "limits: {trusted_proxies: [127.0.0.2], csr_per_minute_per_source: 3}\n";
/// Signed only for this address.
const RULES: &str = "    - name: build-network
      approve: {cel: 'request.sourceAddress == \"127.0.0.7\"'}
";

struct Balanced {
    haproxy: Haproxy<2>,
    world: Governed,
}

impl Balanced {
    fn start() -> Self {
        let world = Governed::start(&[("a.yaml", &policy("agents", AGENTS, RULES))], CONFIG);
        let haproxy = Haproxy::start(&world.site.folder("haproxy"), |ports| {
            configuration(&world.site, ports)
        });
        let haproxy = haproxy.unwrap();
        Self { haproxy, world }
    }

    /// A client without a certificate at the Puppet door, through HAProxy.
    fn from(&self, host: u8) -> HttpsClient {
        let [puppet, _] = self.haproxy.ports;
        let client = self.world.site.anonymous();
        client.through(local(1, puppet)).at(local(host, 0).ip())
    }

    /// Where the audit log says that a request came from.
    fn source_of(&self, subject: &str) -> Value {
        let found = self.world.get("/audit?event=request&limit=500");
        let mut items = found["items"].as_array().unwrap().iter();
        let item = items.find(|item| item["subject"] == subject);
        item.unwrap_or_else(|| panic!("no {subject}: {found}"))["source"].clone()
    }
}

fn local(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, host], port))
}

/// The example with the addresses and files of a test.
fn configuration(site: &Site, [puppet, kubernetes]: [u16; 2]) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut text =
        std::fs::read_to_string(root.join("../../examples/haproxy/haproxy.cfg")).unwrap();
    let ca = |issuer: &str| {
        let path = site.data().join(format!("issuers/{issuer}/ca_crt.pem"));
        path.display().to_string()
    };
    for (from, to) in [
        (
            "log /dev/log local0",
            "log stderr format raw local0".to_owned(),
        ),
        ("maxconn 8000", "maxconn 100".to_owned()),
        ("bind :8140", format!("bind 127.0.0.1:{puppet}")),
        ("bind :8141", format!("bind 127.0.0.1:{kubernetes}")),
        (
            "192.0.2.11:8140",
            format!("{} source 127.0.0.2", site.puppet()),
        ),
        (
            "192.0.2.11:8141",
            format!("{} source 127.0.0.2", site.kubernetes()),
        ),
        ("/etc/haproxy/puppet-ca.pem", ca("puppet")),
        ("/etc/haproxy/kubernetes-ca.pem", ca("kubernetes")),
        ("puppet.example.com", "localhost".to_owned()),
        ("inter 2s", "inter 100ms".to_owned()),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, &to);
    }
    text
}

/// A header of version 2 that says 127.0.0.7.
fn header() -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    bytes.extend([127, 0, 0, 7, 127, 0, 0, 1, 0x9c, 0x40, 0x1f, 0xcc]);
    bytes
}

#[test]
fn policies_limits_and_the_audit_log_see_the_clients_of_haproxy() {
    let balanced = Balanced::start();
    let put = |host: u8, name: &str| {
        let client = balanced.from(host);
        put_request(&client, name, &puppet_request(name)).status
    };
    let is_signed = |name: &str| get_certificate(&balanced.from(9), name).status == 200;
    assert_eq!(put(7, "web01"), 200);
    assert!(is_signed("web01"), "{}", balanced.world.site.server);
    assert_eq!(put(8, "web02"), 200);
    assert!(!is_signed("web02"));
    assert_eq!(balanced.source_of("puppet/web01"), "127.0.0.7");
    assert_eq!(balanced.source_of("puppet/web02"), "127.0.0.8");

    // A rate of its own for each client.
    for (host, name, status) in [
        (8, "web03", 200),
        (8, "web04", 200),
        (8, "web05", 429),
        (7, "web06", 200),
    ] {
        assert_eq!(put(host, name), status, "{name}");
    }
    let refused = |log: &str| log.contains("refused source=127.0.0.8");
    assert!(
        balanced.world.site.server.wait_for_log(refused),
        "{}",
        balanced.world.site.server
    );

    // Headers of HTTP say nothing about addresses.
    let path = "/puppet-ca/v1/certificate_request/web07";
    let request = puppet_request("web07");
    let headers = [
        TEXT,
        ("X-Forwarded-For", "127.0.0.7"),
        ("X-Real-IP", "127.0.0.7"),
        ("X-Client-IP", "127.0.0.7"),
        ("Forwarded", "for=127.0.0.7"),
    ];
    let client = balanced.from(10);
    let answer = client.call("PUT", path, &headers, request.as_bytes());
    assert_eq!(answer.unwrap().status, 200);
    assert!(!is_signed("web07"));
    assert_eq!(balanced.source_of("puppet/web07"), "127.0.0.10");

    // The Kubernetes listener, too.
    let [_, kubernetes] = balanced.haproxy.ports;
    let admin = balanced.world.site.kubernetes_admin();
    let admin = admin.through(local(1, kubernetes)).at(local(11, 0).ip());
    let body = kubernetes_request("jane").to_string();
    let answer = admin.call("POST", REQUESTS, &[JSON], body.as_bytes());
    assert_eq!(answer.unwrap().status, 201);
    let source = balanced.source_of("kubernetes/jane");
    assert_eq!(source, "127.0.0.11");
}

#[test]
fn health_checks_of_haproxy_are_answered() {
    let balanced = Balanced::start();
    for proxy in ["puppet", "kubernetes"] {
        wait_until("the server is healthy", || {
            let status = balanced.haproxy.check_status(proxy, "ca").unwrap();
            status.as_deref() == Some("L7OK")
        });
    }
    let log = balanced.world.site.server.log();
    assert!(!log.contains("trusted proxy closed"), "{log}");
}

#[test]
fn a_connection_past_haproxy_speaks_for_itself_alone() {
    let balanced = Balanced::start();
    let site = &balanced.world.site;
    let at = |host: u8| -> HttpsClient {
        let address: IpAddr = local(host, 0).ip();
        site.anonymous().at(address)
    };
    let request = puppet_request("web01");
    let path = "/puppet-ca/v1/certificate_request/web01";
    let put = |client: HttpsClient| client.call("PUT", path, &[TEXT], request.as_bytes());
    // From elsewhere, a header is no TLS.
    put(at(3).after(&header())).unwrap_err();
    put(at(1).after(&header())).unwrap_err();
    assert_eq!(get_certificate(&at(1), "web01").status, 404);
    assert_eq!(put(at(3)).unwrap().status, 200);
    assert_eq!(balanced.source_of("puppet/web01"), "127.0.0.3");
    // From HAProxy's address, TLS is no header.
    put(at(2)).unwrap_err();
    let missing = "connection of a trusted proxy closed source=127.0.0.2 error=\"it does not begin with a PROXY";
    let told = |log: &str| log.contains(missing);
    assert!(site.server.wait_for_log(told), "{}", site.server);
}
