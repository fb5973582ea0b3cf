//! Webhooks that could never be asked are refused when they are loaded, in words that say what to do.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use countersign_policy::{CaBundle, Webhook};
use countersign_testkit::keys;
use countersign_webhook::{Settings, Webhooks};

use crate::world;

#[test]
fn refusals_name_the_setting() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("open"), "0123456789abcdef0123456789abcdef").unwrap();
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o640)).unwrap();
    world::write_secret(&at("short"), "secret\n");
    world::write_secret(&at("key.pem"), keys::p256_c().pkcs8_pem());
    fs::write(at("ca.pem"), world::ca().certificate.to_pem()).unwrap();
    fs::write(at("large.pem"), vec![b'x'; 1024 * 1024 + 1]).unwrap();

    let url = |url: &'static str| Box::new(move |hook: &mut Webhook| url.clone_into(&mut hook.url));
    let file = |name: &str| Some(CaBundle::File(at(name)));
    let (none, pem) = (file("none"), |text: &str| {
        Some(CaBundle::Pem(text.to_owned()))
    });
    type Change<'a> = Box<dyn Fn(&mut Webhook) + 'a>;
    let rows: Vec<(Change<'_>, &str)> = vec![
        (url("http://a.example/"), "is not an https URL"),
        (url("a.example"), "is not an https URL"),
        (url("https://"), "is not a URL"),
        (url("https:// a"), "is not a URL"),
        (url("https://u:s3cret@a.example/"), "names a user"),
        (url("https://a.example/#s3cret"), "has a fragment"),
        (url("https://a_b!/"), "host that no certificate can be for"),
        (Box::new(|hook| hook.timeout_ms = 0), "timeout of 0 ms"),
        (
            Box::new(|hook| hook.timeout_ms = 30_001),
            "timeout of 30001 ms",
        ),
        (
            Box::new(|hook| hook.ca_bundle.clone_from(&none)),
            "none cannot be read: No such file",
        ),
        (
            Box::new(|hook| hook.ca_bundle = file("large.pem")),
            "longer than 1048576 octets",
        ),
        (
            Box::new(|hook| hook.ca_bundle = Some(CaBundle::File(folder.path().to_owned()))),
            "not a regular file",
        ),
        (
            Box::new(|hook| hook.ca_bundle = pem("")),
            "caBundle holds no certificate",
        ),
        (
            Box::new(|hook| hook.ca_bundle = pem("-----BEGIN CERTIFICATE-----\nAA\n")),
            "caBundle is not PEM",
        ),
        (
            Box::new(|hook| {
                hook.ca_bundle =
                    pem("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            }),
            "certificate 1 of caBundle cannot be a trust anchor",
        ),
        (
            Box::new(|hook| hook.secret_file = Some(at("none"))),
            "cannot read",
        ),
        (
            Box::new(|hook| hook.secret_file = Some(at("open"))),
            "chmod 600",
        ),
        (
            Box::new(|hook| hook.secret_file = Some(at("short"))),
            "openssl rand -hex 32",
        ),
        (
            Box::new(|hook| hook.client_key_file = Some(at("key.pem"))),
            "clientCertFile is missing",
        ),
        (
            Box::new(|hook| hook.client_cert_file = Some(at("ca.pem"))),
            "clientKeyFile is missing",
        ),
        (
            Box::new(|hook| {
                hook.client_cert_file = Some(at("ca.pem"));
                hook.client_key_file = Some(at("open"));
            }),
            "chmod 600",
        ),
        (
            Box::new(|hook| {
                hook.client_cert_file = Some(at("ca.pem"));
                hook.client_key_file = Some(at("short"));
            }),
            "clientKeyFile is not PEM",
        ),
        (
            Box::new(|hook| {
                hook.client_cert_file = Some(at("ca.pem"));
                hook.client_key_file = Some(at("key.pem"));
            }),
            "cannot be used together",
        ),
    ];
    for (change, said) in rows {
        let mut hook = world::webhook_at(([127, 0, 0, 1], 1).into());
        change(&mut hook);
        let words = refusal(&hook, &Settings::default());
        assert!(words.contains(said), "{said}: {words}");
        assert!(words.starts_with("the webhook "), "{words}");
        assert!(!words.contains("s3cret"), "{words}");
    }
}

#[test]
fn an_id_must_fit_into_a_header() {
    let settings = Settings {
        id: "a\r\nX-Evil: 1".to_owned(),
        ..Settings::default()
    };
    let hook = world::webhook_at(([127, 0, 0, 1], 1).into());
    assert!(refusal(&hook, &settings).contains("is not visible ASCII text"));
}

fn refusal(hook: &Webhook, settings: &Settings) -> String {
    let loaded = Webhooks::load([hook].into_iter(), settings);
    let fault = loaded.err().unwrap();
    let mut words = fault.to_string();
    let mut cause = fault.source();
    while let Some(source) = cause {
        words.push_str(&format!(": {source}"));
        cause = source.source();
    }
    words
}
