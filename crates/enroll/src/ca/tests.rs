//! Calls to a server of a few lines, with and without TLS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use countersign_pki::{AltName, UnixTime, oid};
use countersign_testkit::chain::{Ca as TestCa, Leaf};
use countersign_testkit::keys;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use super::*;

/// Answers one call on one connection, and says what it was: head and body, and whether with a client certificate.
struct Server {
    url: String,
    task: JoinHandle<(String, bool)>,
}

impl Server {
    fn new(tls: Option<Arc<ServerConfig>>, answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let task = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            match tls {
                None => (exchange(&mut stream, answer), false),
                Some(config) => {
                    let connection = ServerConnection::new(config).unwrap();
                    let mut stream = StreamOwned::new(connection, stream);
                    let call = exchange(&mut stream, answer);
                    let has_identity = stream.conn.peer_certificates().is_some();
                    (call, has_identity)
                }
            }
        });
        Self {
            url: format!("{scheme}://{address}"),
            task,
        }
    }

    fn call(self) -> (String, bool) {
        self.task.join().unwrap()
    }
}

/// The request, or what arrived of it before the client gave up.
fn exchange(stream: &mut (impl Read + Write), answer: &str) -> String {
    let mut seen = Vec::new();
    let mut octet = [0];
    let is_whole = |seen: &[u8]| {
        let text = String::from_utf8_lossy(seen).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            return false;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        body.len() >= length
    };
    while !is_whole(&seen) {
        match stream.read(&mut octet) {
            Ok(1) => seen.extend(octet),
            Ok(_) | Err(_) => return String::from_utf8(seen).unwrap(),
        }
    }
    let (status, body) = answer.split_once(' ').unwrap();
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    stream.flush().unwrap();
    String::from_utf8(seen).unwrap()
}

fn run<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

fn plain(url: &str) -> Ca {
    Ca::new(url, &CaTrust::System, None).unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Submit,
    Fetch,
    Sign,
    Remove,
    Clean,
    Renew,
    List,
    FullList,
    Certificates,
    Put,
}

async fn make(ca: &mut Ca, call: Call) -> Result<String, CaFault> {
    const NAME: &str = "web 01?%";
    Ok(match call {
        Call::Submit => format!("{:?}", ca.submit(NAME, "the request").await?),
        Call::Fetch => format!("{:?}", ca.fetch(NAME).await?),
        Call::Sign => format!("{:?}", ca.sign(NAME).await?),
        Call::Remove => format!("{:?}", ca.remove(NAME).await?),
        Call::Clean => format!("{:?}", ca.clean(NAME).await?),
        Call::Renew => format!("{:?}", ca.renew("the request").await?),
        Call::List => ca.revocation_list().await?,
        Call::FullList => format!("{:?}", ca.full_revocation_list().await?),
        Call::Certificates => ca.authority_certificates().await?,
        Call::Put => format!("{:?}", ca.put("/enrol/v1/x", &json!({"a": 1})).await?),
    })
}

#[test]
fn calls_are_those_of_the_protocol() {
    const NAME: &str = "web%2001%3F%25";
    let query = "?environment=production";
    for (call, line, kind, body, answer, result) in [
        (
            Call::Submit,
            format!("PUT /base/puppet-ca/v1/certificate_request/{NAME}{query}"),
            "text/plain",
            "the request",
            "200 ",
            "Taken",
        ),
        (
            Call::Fetch,
            format!("GET /base/puppet-ca/v1/certificate/{NAME}{query}"),
            "",
            "",
            "404 Could not find certificate",
            "Absent { status: 404 }",
        ),
        (
            Call::Sign,
            format!("PUT /base/puppet-ca/v1/certificate_status/{NAME}{query}"),
            "application/json",
            r#"{"desired_state":"signed"}"#,
            "409 no request",
            "Refused { status: 409, body: \"no request\" }",
        ),
        (
            Call::Remove,
            format!("DELETE /base/puppet-ca/v1/certificate_status/{NAME}{query}"),
            "",
            "",
            "404 Resource not found.",
            "Done",
        ),
        (
            Call::Clean,
            format!("PUT /base/puppet-ca/v1/clean{query}"),
            "application/json",
            r#"{"certnames":["web 01?%"]}"#,
            "200 Successfully cleaned all certs.",
            "Done",
        ),
        (
            Call::Renew,
            format!("POST /base/puppet-ca/v1/certificate_renewal{query}"),
            "text/plain",
            "the request",
            "404 Not Found",
            "Refused { status: 404, body: \"Not Found\" }",
        ),
        (
            Call::List,
            format!("GET /base/puppet-ca/v1/certificate_revocation_list/ca{query}"),
            "",
            "",
            "503 later",
            "the CA answers 503 to the request for certificate_revocation_list/ca: later",
        ),
        (
            Call::FullList,
            format!("GET /base/puppet-ca/v1/certificate_revocation_list/full{query}"),
            "",
            "",
            "403 Forbidden request",
            "None",
        ),
        (
            Call::FullList,
            format!("GET /base/puppet-ca/v1/certificate_revocation_list/full{query}"),
            "",
            "",
            "200 <html>",
            "the CA's answer to the request for certificate_revocation_list/full is not X509 CRL PEM",
        ),
        (
            Call::FullList,
            format!("GET /base/puppet-ca/v1/certificate_revocation_list/full{query}"),
            "",
            "",
            "503 later",
            "the CA answers 503 to the request for certificate_revocation_list/full: later",
        ),
        (
            Call::Certificates,
            format!("GET /base/puppet-ca/v1/certificate/ca{query}"),
            "",
            "",
            "200 <html>",
            "the CA's answer to the request for certificate/ca is not certificates in PEM",
        ),
        (
            Call::Put,
            "PUT /base/enrol/v1/x".to_owned(),
            "application/json",
            r#"{"a":1}"#,
            "201 ",
            "Done",
        ),
    ] {
        let server = Server::new(None, answer);
        let mut ca = plain(&format!("{}/base/", server.url));
        let made = run(make(&mut ca, call)).unwrap_or_else(|fault| fault.to_string());
        assert_eq!(made, result, "{call:?}");
        let (request, _) = server.call();
        let (head, sent) = request.split_once("\r\n\r\n").unwrap();
        assert_eq!(
            head.lines().next(),
            Some(format!("{line} HTTP/1.1").as_str())
        );
        let of_kind = head
            .lines()
            .find_map(|line| line.strip_prefix("content-type: "));
        assert_eq!(
            (of_kind.unwrap_or_default(), sent),
            (kind, body),
            "{call:?}"
        );
    }
}

#[test]
fn names_that_would_change_a_path_are_never_sent() {
    let mut ca = plain("http://127.0.0.1:1");
    for name in ["", ".", "..", "a/b", "/"] {
        let faults = run(async {
            [
                ca.submit(name, "x").await.map(drop),
                ca.fetch(name).await.map(drop),
                ca.sign(name).await.map(drop),
                ca.remove(name).await.map(drop),
                ca.clean(name).await.map(drop),
            ]
        });
        for fault in faults {
            assert!(matches!(fault, Err(CaFault::Certname { .. })), "{name:?}");
        }
    }
}

#[test]
fn addresses_are_urls_of_servers() {
    for (url, expected) in [
        ("https://puppet:8140", Some("https://puppet:8140 ")),
        ("https://puppet", Some("https://puppet:443 ")),
        ("http://puppet/", Some("http://puppet:80 ")),
        (
            "https://[2001:db8::1]:8140/a/b//",
            Some("https://[2001:db8::1]:8140 /a/b"),
        ),
        ("puppet:8140", None),
        ("ftp://puppet", None),
        ("https://", None),
        ("https://puppet:99999", None),
        ("https://puppet:8140/?a=b", None),
        ("https://a:secret@puppet", None),
    ] {
        let read = Address::read(url);
        if let Err(fault) = &read {
            assert!(!format!("{fault:?} {fault}").contains("secret"));
        }
        let read = read.ok().map(|it| format!("{} {}", it.origin, it.base));
        assert_eq!(read.as_deref(), expected, "{url}");
    }
}

/// A server that asks for a client certificate and takes none as well.
fn encrypted(root: &TestCa, now: UnixTime) -> Arc<ServerConfig> {
    let leaf = root.leaf(&Leaf {
        common_name: "puppet",
        names: &[AltName::Ip("127.0.0.1".parse().unwrap())],
        usage: oid::EKU_SERVER_AUTH,
        key: keys::p256_b(),
        serial: 2,
        now,
    });
    let mut roots = RootCertStore::empty();
    let anchor = CertificateDer::from(root.certificate.der().to_vec());
    roots.add(anchor).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
    let clients = clients.allow_unauthenticated().build().unwrap();
    let chain = vec![CertificateDer::from(leaf.der().to_vec())];
    let key = PrivatePkcs8KeyDer::from(keys::p256_b().pkcs8_der().to_vec());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key.into());
    Arc::new(config.unwrap())
}

#[test]
fn a_ca_is_recognised_by_its_trust_and_recognises_an_identity() {
    // In force for twenty years from then.
    let now = UnixTime(1_750_000_000);
    let root = TestCa::root("root", keys::p256_a(), now);
    let other = TestCa::root("other", keys::rsa2048_b(), now);
    let admin = root.leaf(&Leaf {
        common_name: "admin",
        names: &[AltName::Dns("admin".into())],
        usage: oid::EKU_CLIENT_AUTH,
        key: keys::rsa2048_a(),
        serial: 3,
        now,
    });
    let key = keys::rsa2048_a().pkcs8_pem();
    let identity = Identity::read(admin.to_pem().as_bytes(), key.as_bytes()).unwrap();
    let trusted = |ca: &TestCa| CaTrust::Roots(ca.certificate.to_pem().into_bytes());
    for (case, trust, identity, is_answered) in [
        ("recognised", trusted(&root), None, true),
        ("recognised, by name", trusted(&root), Some(&identity), true),
        ("another CA", trusted(&other), Some(&identity), false),
        ("not looked at", CaTrust::Anybody, Some(&identity), true),
    ] {
        let server = Server::new(Some(encrypted(&root, now)), "204 ");
        let mut ca = Ca::new(&server.url, &trust, identity).unwrap();
        let answer = run(ca.sign("web"));
        match is_answered {
            true => assert_eq!(answer.unwrap(), Answer::Done, "{case}"),
            false => assert!(matches!(answer, Err(CaFault::Unreachable(_))), "{case}"),
        }
        drop(ca);
        let (request, has_identity) = server.call();
        assert_eq!(request.starts_with("PUT "), is_answered, "{case}");
        assert_eq!(has_identity, is_answered && identity.is_some(), "{case}");
    }
}
