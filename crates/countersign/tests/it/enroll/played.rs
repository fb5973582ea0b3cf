//! Authorities that lie: what they give out is not installed.

use std::fs;
use std::net::TcpListener;

use countersign_authority::{Clock as _, SystemClock};
use countersign_pki::{AltName, Certificate, UnixTime, oid};
use countersign_testkit::chain::{Ca, CrlFacts, Leaf};
use countersign_testkit::decider::{Call, Decider, Greeting, Guard, Step};
use countersign_testkit::keys::{self, Key};

use super::{DEADLINE, Machine};
use crate::site::install;

const NAME: &str = "web01.example.com";

fn now() -> UnixTime {
    SystemClock.now()
}

fn leaf(ca: &Ca, name: &str, key: &'static Key) -> Certificate {
    ca.leaf(&Leaf {
        common_name: name,
        names: &[AltName::Dns(name.to_owned())],
        usage: oid::EKU_CLIENT_AUTH,
        key,
        serial: 7,
        now: now(),
    })
}

/// A Puppet CA that takes every request and gives out one certificate, and the requests that it saw.
fn playing(ca: &Ca, bundle: &[&Ca], given: &str, submitted: u16) -> Decider {
    let bundle: String = bundle.iter().map(|ca| ca.certificate.to_pem()).collect();
    let crl = ca.crl(&CrlFacts::good(1, now()));
    let given = given.to_owned();
    let part = move |call: &Call| {
        let text = |body: &str| vec![Step::answer(200, "text/plain", body)];
        match call
            .path
            .rsplit_once("/puppet-ca/v1/")
            .map(|(_, rest)| rest)
        {
            Some("certificate/ca") => text(&bundle),
            Some("certificate_revocation_list/ca") => text(&crl),
            Some(rest) if rest.starts_with("certificate_request/") => {
                vec![Step::answer(submitted, "text/plain", "no such thing")]
            }
            Some(_) | None => text(&given),
        }
    };
    Decider::start(&Guard::localhost(ca, now()), part).unwrap()
}

fn machine(server: &Decider, folder: &std::path::Path, ca: &Ca) -> Machine {
    let key = folder.join("key.pem");
    install(&key, keys::p256_a().pkcs8_pem(), 0o600);
    let url = format!("https://localhost:{}", server.address().port());
    let root = ca.certificate.fingerprint().to_string();
    let more = ["--ca-fingerprint", &root, "--key", key.to_str().unwrap()];
    Machine::at(&url, folder, NAME, &more)
}

#[test]
fn a_certificate_that_is_not_ours_is_not_installed() {
    let ca = Ca::root("the authority", keys::p384(), now());
    let stranger = Ca::root("the authority", keys::p256_b(), now());
    let own = keys::p256_a();
    let cases = [
        (leaf(&ca, NAME, own).to_pem(), 200, 0, "is enrolled"),
        (leaf(&ca, NAME, own).to_pem(), 400, 0, "is enrolled"),
        (
            leaf(&ca, "web02.example.com", own).to_pem(),
            200,
            1,
            "it is for \"web02.example.com\"",
        ),
        (
            leaf(&stranger, NAME, own).to_pem(),
            200,
            1,
            "none of the CAs",
        ),
        (
            leaf(&ca, NAME, keys::p256_b()).to_pem(),
            400,
            1,
            "it is for another key",
        ),
        // While our request waits, an earlier certificate may be there.
        (
            leaf(&ca, NAME, keys::p256_b()).to_pem(),
            200,
            1,
            "waits to be signed",
        ),
        ("nothing".to_owned(), 200, 1, "no certificate in it"),
    ];
    for (given, submitted, code, part) in cases {
        let folder = tempfile::tempdir().unwrap();
        let server = playing(&ca, &[&ca], &given, submitted);
        let machine = machine(&server, folder.path(), &ca);
        machine.expect(&["--no-wait"], code, part);
        assert_eq!(machine.certificate().exists(), code == 0, "{part}");
    }
}

#[test]
fn only_what_stands_on_the_pinned_root_is_trusted() {
    let root = Ca::root("the root", keys::p384(), now());
    let issuing = root.below("the authority", keys::p256_b(), 2, now());
    let stranger = Ca::root("a stranger", keys::ed25519(), now());
    let given = leaf(&issuing, NAME, keys::p256_a()).to_pem();
    let folder = tempfile::tempdir().unwrap();
    let server = playing(&issuing, &[&issuing, &stranger, &root], &given, 200);
    machine(&server, folder.path(), &root).expect(&["--no-wait"], 0, "is enrolled");
    let installed = fs::read_to_string(folder.path().join("enrolled/ca.pem")).unwrap();
    let expected = [&issuing, &root].map(|ca| ca.certificate.to_pem()).concat();
    assert_eq!(installed, expected, "without the stranger");

    // Whoever is pinned must be a root or the last; one in the middle proves nothing about the rest.
    for (pinned, code) in [(&stranger, 1), (&issuing, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(&server, folder.path(), pinned);
        let before = server.calls().len();
        machine.expect(&["--no-wait"], code, "nothing");
        let calls = server.calls().split_off(before);
        assert!(calls.iter().all(|call| call.method == "GET"), "{calls:?}");
    }
}

#[test]
fn a_server_that_is_not_ready_is_asked_again_when_it_says() {
    let ca = Ca::root("the authority", keys::p384(), now());
    let bundle = ca.certificate.to_pem();
    let given = leaf(&ca, NAME, keys::p256_a()).to_pem();
    let part = move |call: &Call| {
        let busy = "HTTP/1.1 503 Busy\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n";
        if call.method == "PUT" && call.number == 3 {
            return vec![Step::Send(busy.into())];
        }
        let body = if call.path.ends_with("/ca") {
            &bundle
        } else {
            &given
        };
        vec![Step::answer(200, "text/plain", body)]
    };
    let server = Decider::start(&Guard::localhost(&ca, now()), part).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(&server, folder.path(), &ca);
    machine.expect(&["--wait", "60s"], 0, "503");
    let puts = server
        .calls()
        .into_iter()
        .filter(|call| call.method == "PUT")
        .count();
    assert_eq!(puts, 2);
    // What it sent for a revocation list is none.
    assert!(!machine.path("crl.pem").exists());
}

#[test]
fn an_expired_certificate_is_followed_by_a_new_one() {
    let ca = Ca::root("the authority", keys::p384(), now());
    // Theirs live for twenty years from a day before.
    let expired = ca.leaf(&Leaf {
        common_name: NAME,
        names: &[AltName::Dns(NAME.to_owned())],
        usage: oid::EKU_CLIENT_AUTH,
        key: keys::p256_a(),
        serial: 6,
        now: now().minus_seconds(21 * 365 * 86_400),
    });
    let given = leaf(&ca, NAME, keys::p256_a()).to_pem();
    let server = playing(&ca, &[&ca], &given, 200);
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(&server, folder.path(), &ca);
    fs::create_dir(&machine.folder).unwrap();
    install(&machine.certificate(), &expired.to_pem(), 0o644);
    install(&machine.key(), keys::p256_a().pkcs8_pem(), 0o600);
    assert_eq!(machine.status(1)["state"], "expired");
    machine.expect(&["--no-wait"], 0, "is enrolled");
    assert_eq!(fs::read_to_string(machine.certificate()).unwrap(), given);
    assert_eq!(machine.status(0)["state"], "valid");
}

#[test]
fn a_server_of_another_name_is_told_nothing() {
    let ca = Ca::root("the authority", keys::p384(), now());
    let names = [AltName::Dns("ca.example.com".to_owned())];
    let bundle = ca.certificate.to_pem();
    let part = move |_: &Call| vec![Step::answer(200, "text/plain", &bundle)];
    let server = Decider::start(&Guard::named(&ca, &names, now()), part).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(&server, folder.path(), &ca);
    machine.expect(&[], 1, "a name that stands in its certificate");
    // All that it was asked for is the bundle, to compare the fingerprint.
    assert_eq!(server.calls().len(), 1);
}

/// Whoever takes the place of the authority later, on the same port.
fn impostor(port: TcpListener) -> Decider {
    let ca = Ca::root("the authority", keys::ed25519(), now());
    let bundle = ca.certificate.to_pem();
    let given = leaf(&ca, NAME, keys::p256_a()).to_pem();
    let part = move |call: &Call| {
        let is_ca = call.path.ends_with("certificate/ca");
        let body = if is_ca { &bundle } else { &given };
        vec![Step::answer(200, "text/plain", body)]
    };
    let guard = Guard::localhost(&ca, now());
    Decider::on(port, &guard, |_| Greeting::Welcome, Box::new(part)).unwrap()
}

fn trusting(port: &TcpListener, folder: &std::path::Path) -> Machine {
    let key = folder.join("key.pem");
    install(&key, keys::p256_a().pkcs8_pem(), 0o600);
    let url = format!("https://localhost:{}", port.local_addr().unwrap().port());
    let more = ["--trust-on-first-use", "--key", key.to_str().unwrap()];
    Machine::at(&url, folder, NAME, &more)
}

#[test]
fn the_first_use_is_one_also_if_the_connection_breaks() {
    let ca = Ca::root("the authority", keys::p384(), now());
    let bundle = ca.certificate.to_pem();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let part = move |_: &Call| vec![Step::answer(200, "text/plain", &bundle)];
    // It says who it is, and is cut off.
    let greeting = |connection| match connection {
        1 => Greeting::Welcome,
        _ => Greeting::Reset,
    };
    let guard = Guard::localhost(&ca, now());
    let listener = port.try_clone().unwrap();
    let server = Decider::on(listener, &guard, greeting, Box::new(part)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let machine = trusting(&port, folder.path());
    let running = machine.start(&["--wait", "60s"]);
    assert!(server.wait_until(|so_far| so_far.connections > 1, DEADLINE));
    drop(server);

    let impostor = impostor(port);
    assert_eq!(running.code(), Some(1));
    assert!(impostor.calls().is_empty(), "{:?}", impostor.calls());
    assert!(!machine.certificate().exists());
}

#[test]
fn who_was_believed_first_is_on_disk_before_anything_is_sent() {
    let ca = Ca::root("the authority", keys::p384(), now());
    let bundle = ca.certificate.to_pem();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let machine = trusting(&port, folder.path());
    let (installed, expected) = (machine.path("ca.pem"), bundle.clone());
    let part = move |call: &Call| {
        // By then the token is out.
        let is_kept = fs::read_to_string(&installed).is_ok_and(|text| text == expected);
        vec![match (&*call.method, call.path.ends_with("/ca")) {
            ("PUT", _) if is_kept => Step::answer(200, "text/plain", ""),
            ("PUT", _) => Step::answer(403, "text/plain", "too early"),
            (_, true) => Step::answer(200, "text/plain", &bundle),
            (_, false) => Step::answer(404, "text/plain", ""),
        }]
    };
    let guard = Guard::localhost(&ca, now());
    let listener = port.try_clone().unwrap();
    let server = Decider::on(listener, &guard, |_| Greeting::Welcome, Box::new(part)).unwrap();
    machine.expect(&["--no-wait"], 1, "waits to be signed");
    drop(server);

    // From then on nobody else is believed, whatever the flag says.
    let impostor = impostor(port);
    machine.expect(&["--no-wait"], 1, "nothing secret was sent");
    assert!(impostor.calls().is_empty(), "{:?}", impostor.calls());
    assert!(!machine.certificate().exists());
}
