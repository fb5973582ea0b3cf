//! Whom we believe to be the decider, and who we are to it.

use std::path::Path;

use countersign_pki::{AltName, oid};
use countersign_policy::{CaBundle, WebhookMode};
use countersign_testkit::chain::{Ca, Leaf};
use countersign_testkit::decider::{Decider, Greeting, Guard, Step};
use countersign_testkit::keys;

use crate::row::Expected::{Answer, Unavailable};
use crate::row::{Row, play};
use crate::world::{self, allow, ca, now};

#[tokio::test]
async fn only_the_decider_is_asked() {
    let not_trusted = || Unavailable("is not trusted, or does not trust us");
    let other = Ca::root("others", keys::p256_c(), now());
    let namesake = Ca::root("deciders", keys::p256_c(), now());
    let long_ago = now().minus_seconds(25 * YEAR);
    let yet_to_come = now().plus_seconds(YEAR);
    let former = Ca::root("former deciders", keys::p256_d(), long_ago);
    let former_pem = former.certificate.to_pem();
    let middle = ca().below("deciders of one site", keys::p256_d(), 5, now());
    let former_middle = ca().below("deciders of yore", keys::p256_d(), 6, long_ago);
    let elsewhere = [AltName::Dns("elsewhere.example.com".to_owned())];
    let by_name =
        |row: Row| row.with(|webhook| webhook.url = webhook.url.replace("127.0.0.1", "localhost"));
    let both = format!("{former_pem}{}", ca().certificate.to_pem());
    play(vec![
        by_name(Row::allowing("called by name", Answer(allow()))),
        Row::allowing("below a CA below ours", Answer(allow()))
            .guarded(Guard::localhost(&middle, now())),
        Row::allowing("a bundle of which one has expired", Answer(allow()))
            .with(move |webhook| webhook.ca_bundle = Some(CaBundle::Pem(both.clone()))),
        Row::allowing("of another CA", not_trusted())
            .guarded(Guard::localhost(&other, now()))
            .calls(0),
        Row::allowing("of another CA that has the name of ours", not_trusted())
            .guarded(Guard::localhost(&namesake, now()))
            .calls(0),
        Row::allowing("another host", not_trusted())
            .guarded(Guard::named(&ca(), &elsewhere, now()))
            .calls(0),
        by_name(Row::allowing("another host, called by name", not_trusted()))
            .guarded(Guard::named(&ca(), &elsewhere, now()))
            .calls(0),
        Row::allowing("expired", not_trusted())
            .guarded(Guard::localhost(&ca(), long_ago))
            .calls(0),
        Row::allowing("not valid yet", not_trusted())
            .guarded(Guard::localhost(&ca(), yet_to_come))
            .calls(0),
        Row::allowing("below a CA that has expired", not_trusted())
            .guarded(Guard::localhost(&former_middle, now()))
            .calls(0),
        Row::allowing(
            "a bundle that has expired",
            Unavailable("no certificate of its caBundle is in force"),
        )
        .guarded(Guard::localhost(&former, now()))
        .with(move |webhook| webhook.ca_bundle = Some(CaBundle::Pem(former_pem.clone())))
        .calls(0),
        Row::allowing("no bundle: the machine's CAs alone", Unavailable(""))
            .with(|webhook| webhook.ca_bundle = None)
            .calls(0),
        Row::allowing("a certificate for clients", not_trusted())
            .guarded(for_clients())
            .calls(0),
        Row::allowing("no TLS at all", not_trusted())
            .greeting(|_| Greeting::Plain)
            .calls(0),
    ])
    .await;
}

#[tokio::test]
async fn our_certificate_is_shown_where_it_is_demanded() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Ca::root("clients", keys::p256_c(), now());
    let strangers = Ca::root("strangers", keys::p256_d(), now());
    let own = identity(folder.path(), "own", &ours);
    let strange = identity(folder.path(), "strange", &strangers);
    let demanding = || Guard {
        clients: Some(ours.certificate.clone()),
        ..world::guard()
    };
    let showing = |row: Row, (certificate, key): &(std::path::PathBuf, std::path::PathBuf)| {
        let (certificate, key) = (certificate.clone(), key.clone());
        row.with(move |webhook| {
            webhook.client_cert_file = Some(certificate.clone());
            webhook.client_key_file = Some(key.clone());
        })
    };
    // Over TLS 1.3 a server says no only after the client has begun to speak.
    play(vec![
        showing(
            Row::allowing("shown", Answer(allow())).guarded(demanding()),
            &own,
        ),
        showing(Row::allowing("not asked for", Answer(allow())), &own),
        Row::allowing("not shown", Unavailable("CertificateRequired"))
            .guarded(demanding())
            .calls(0),
        Row::allowing(
            "not shown in status mode",
            Unavailable("CertificateRequired"),
        )
        .guarded(demanding())
        .in_status_mode()
        .calls(0),
        showing(
            Row::allowing("a stranger's", Unavailable("received fatal alert"))
                .guarded(demanding())
                .calls(0),
            &strange,
        ),
    ])
    .await;

    let decider = Decider::start(&demanding(), |_| vec![Step::status(200)]).unwrap();
    let mut webhook = world::webhook(&decider);
    webhook.mode = WebhookMode::Status;
    (webhook.client_cert_file, webhook.client_key_file) = (Some(own.0.clone()), Some(own.1));
    assert_eq!(world::ask(&webhook).await, allow());
    let shown = decider.calls().first().unwrap().client.clone().unwrap();
    let text = std::fs::read(own.0).unwrap();
    let certificate =
        countersign_pki::pem::decode_first(&text, &countersign_pki::pem::PemLimits::BUNDLE);
    assert_eq!(shown, certificate.unwrap().unwrap().der);
}

/// Writes a client's certificate and key.
fn identity(folder: &Path, name: &str, ca: &Ca) -> (std::path::PathBuf, std::path::PathBuf) {
    let leaf = ca.leaf(&Leaf {
        common_name: name,
        names: &[AltName::Dns(format!("{name}.example.com"))],
        usage: oid::EKU_CLIENT_AUTH,
        key: keys::p256_b(),
        serial: 7,
        now: now(),
    });
    let (certificate, key) = (
        folder.join(format!("{name}.pem")),
        folder.join(format!("{name}-key.pem")),
    );
    std::fs::write(&certificate, leaf.to_pem()).unwrap();
    world::write_secret(&key, keys::p256_b().pkcs8_pem());
    (certificate, key)
}

/// A decider whose certificate is not one for servers.
fn for_clients() -> Guard {
    let names = [AltName::Ip(std::net::Ipv4Addr::LOCALHOST.into())];
    let leaf = ca().leaf(&Leaf {
        common_name: "decider",
        names: &names,
        usage: oid::EKU_CLIENT_AUTH,
        key: keys::p256_b(),
        serial: 8,
        now: now(),
    });
    Guard {
        chain: vec![leaf],
        ..world::guard()
    }
}

const YEAR: u64 = 366 * 86_400;
