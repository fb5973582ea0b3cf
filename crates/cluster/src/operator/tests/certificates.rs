//! The acceptance cases of Certificates, C01 to C22, and the requirements N1 to N11 as far as they are about them.

use std::collections::BTreeSet;

use countersign_enroll::ca::{CaTrust, Key};
use countersign_pki::{CheckedCsr, CsrLimits, UnixTime, fingerprint_sha256};
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::super::Next;
use super::super::calls::Kind;
use super::super::duration::DAY;
use super::super::holding::leaf;
use super::super::object::{AUTHORITY_LABEL, CERTIFICATE_LABEL, CLEANUP_FINALIZER, OBTAINED};
use super::world::{START, World, after, condition, is_pair, message, pkcs1, seconds, secret};

// What there is before anybody is asked.

#[tokio::test]
async fn c01_a_certificate_waits_for_its_ca_to_exist() {
    let world = World::new();
    world.web(json!({}));
    assert_eq!(world.settle("web").await, Next::Done);
    let object = world.object("web");
    assert_eq!(object["metadata"]["finalizers"], json!([CLEANUP_FINALIZER]));
    assert_eq!(world.phase("web"), "Pending");
    assert_eq!(object["status"]["conditions"], Value::Null);
    assert!(world.api.list(Kind::Secret).is_empty());
    assert!(world.ca.calls().is_empty());
    let world = world.with_internal_ca();
    world.settle("web").await;
    assert_eq!(world.phase("web"), "Signed");
}

#[tokio::test]
async fn c02_a_certificate_waits_for_its_ca_to_be_ready() {
    let world = World::new();
    world.ready_ca(json!({}), "Initializing");
    world.web(json!({}));
    assert_eq!(world.settle("web").await, after(10));
    assert_eq!(world.phase("web"), "Pending");
    assert_eq!(world.api.list(Kind::Secret).len(), 1, "that of the CA");
    assert!(world.ca.calls().is_empty());
    let ready = json!({"status": {"phase": "Ready"}});
    world.api.edit(Kind::CertificateAuthority, "ca", &ready);
    world.settle("web").await;
    assert_eq!(world.phase("web"), "Signed");
}

#[tokio::test]
async fn c03_a_pair_that_somebody_brought_is_taken_over() {
    for (case, world) in [
        ("internal", World::new().with_internal_ca()),
        ("external", World::new().with_external_ca()),
    ] {
        world.web(json!({}));
        let text = world.issued("web", keys::rsa2048_c(), 365);
        let key = pkcs1(keys::rsa2048_c());
        world.api.put(
            Kind::Secret,
            secret("web-tls", &[("cert.pem", &text), ("key.pem", &key)]),
        );
        assert!(seconds(world.settle("web").await) <= 43_200, "{case}");
        let status = world.object("web")["status"].clone();
        assert_eq!(status["phase"], "Signed", "{case}");
        assert_eq!(status["secretName"], "web-tls", "{case}");
        let end = UnixTime(START.0 + 365 * DAY).to_string();
        assert_eq!(status["notAfter"], json!(end), "{case}");
        assert_eq!(world.signed("web"), "True CertificateSigned", "{case}");
        let found = world.api.get(Kind::Secret, "web-tls").unwrap();
        assert_eq!(
            found["metadata"]["ownerReferences"],
            json!([world.claim("web")]),
            "{case}"
        );
        assert_eq!(
            world.secret_value("web-tls", "cert.pem"),
            Some(text),
            "{case}"
        );
        assert_eq!(
            world.secret_value("web-tls", "key.pem"),
            Some(key),
            "{case}"
        );
        let events = world.api.events();
        assert!(
            events[0].starts_with("CertificateSigned "),
            "{case}: {events:?}"
        );
        assert_eq!(events.len(), 1, "{case}: {events:?}");
        assert_eq!(world.ca.calls(), [""; 0], "{case}");
    }
}

#[tokio::test]
async fn c03_what_is_no_pair_of_this_ca_and_name_is_left_alone() {
    let stranger = countersign_testkit::chain::Ca::root("other", keys::p256_b(), START);
    let key = pkcs1(keys::rsa2048_c());
    for (case, certificate, key, owner, expected) in [
        (
            "another key",
            "web",
            pkcs1(keys::rsa2048_a()),
            None,
            "do not belong together",
        ),
        ("another name", "db", key.clone(), None, "\"db\""),
        ("another CA", "", key.clone(), None, "another CA"),
        ("no key", "web", String::new(), None, "key.pem"),
        (
            "no certificate",
            "none",
            key.clone(),
            None,
            "no certificate",
        ),
        (
            "a certificate that is over",
            "over",
            key.clone(),
            None,
            "expired",
        ),
        ("somebody's", "web", key, Some("other-uid"), "controlled by"),
    ] {
        let world = World::new().with_internal_ca();
        world.web(json!({}));
        let text = match certificate {
            "" => stranger.certificate.to_pem(),
            "none" => String::new(),
            "over" => world.issued("web", keys::rsa2048_c(), -1),
            name => world.issued(name, keys::rsa2048_c(), 300),
        };
        let mut found = secret("web-tls", &[("cert.pem", &text), ("key.pem", &key)]);
        if case == "another CA" {
            found = secret(
                "web-tls",
                &[("cert.pem", &text), ("key.pem", keys::p256_b().pkcs8_pem())],
            );
        }
        if let Some(uid) = owner {
            let mut claim = world.claim("web");
            claim["uid"] = json!(uid);
            found["metadata"]["ownerReferences"] = json!([claim]);
        }
        world.api.put(Kind::Secret, found);
        let before = world.api.get(Kind::Secret, "web-tls");
        world.settle("web").await;
        assert!(world.signed("web").starts_with("False "), "{case}");
        assert_eq!(world.phase("web"), "Error", "{case}");
        let told = message(&world.object("web"), "CertSigned");
        assert!(told.contains(expected), "{case}: {told}");
        assert_eq!(world.api.get(Kind::Secret, "web-tls"), before, "{case}");
        assert_eq!(world.ca.calls(), [""; 0], "{case}");
    }
}

// A certificate is obtained.

#[tokio::test]
async fn c04_a_certificate_is_obtained_in_one_pass() {
    let world = World::new().with_internal_ca();
    world.web(json!({"dnsAltNames": ["www", "10.0.0.1"]}));
    world.api.history();
    world.look("web").await.unwrap();
    assert_eq!(world.phase("web"), "Signed");
    assert_eq!(world.ca.calls(), ["submit web", "fetch web"]);
    let found = world.api.get(Kind::Secret, "web-tls").unwrap();
    assert_eq!(
        found["metadata"]["labels"],
        json!({
            "app.kubernetes.io/name": "openvox",
            "app.kubernetes.io/managed-by": "openvox-operator",
            AUTHORITY_LABEL: "ca",
            CERTIFICATE_LABEL: "web",
        })
    );
    assert_eq!(
        found["metadata"]["ownerReferences"],
        json!([world.claim("web")])
    );
    assert_eq!(found["type"], "Opaque");
    assert!(is_pair(&found));
    let key = world.secret_value("web-tls", "key.pem").unwrap();
    assert!(key.starts_with("-----BEGIN RSA PRIVATE KEY-----"));
    let names: Vec<String> = world
        .leaf("web")
        .alt_names()
        .iter()
        .map(|it| it.to_puppet_text())
        .collect();
    assert_eq!(names, ["DNS:www", "IP:10.0.0.1"]);
    assert_eq!(world.api.get(Kind::Secret, "web-tls-pending"), None);
    let status = world.object("web")["status"].clone();
    assert_eq!(
        status["notAfter"],
        json!(world.leaf("web").not_after().to_string())
    );
    assert_eq!(world.signed("web"), "True CertificateSigned");
    // The key was stored before anybody was asked, under the label of its Certificate.
    let history = world.api.history();
    let pending = history
        .iter()
        .find(|(_, it)| it["metadata"]["name"] == "web-tls-pending")
        .unwrap();
    assert_eq!(
        pending.1["metadata"]["labels"],
        json!({CERTIFICATE_LABEL: "web"})
    );
    assert_eq!(
        pending.1["metadata"]["ownerReferences"],
        json!([world.claim("web")])
    );
    assert!(seconds(world.settle("web").await) <= 43_200);
    assert!(world.ca.calls().is_empty());
}

#[tokio::test]
async fn c05_the_operator_signs_at_an_internal_ca() {
    let world = World::new().with_internal_ca();
    world.ca.state().signs_at_once = false;
    world.web(json!({}));
    world.look("web").await.unwrap();
    assert_eq!(
        world.ca.calls(),
        [
            "submit web",
            "fetch web",
            "sign web with an identity",
            "fetch web"
        ]
    );
    assert_eq!(world.phase("web"), "Signed");
}

#[tokio::test]
async fn c06_a_request_that_the_ca_does_not_sign_waits() {
    let world = World::new().with_internal_ca();
    world.ca.state().signs_at_once = false;
    world.ca.answers("sign", 403);
    world.web(json!({}));
    assert_eq!(world.look("web").await, Ok(after(5)));
    assert_eq!(world.phase("web"), "Requesting");
    assert_eq!(world.signed("web"), "");
    assert_eq!(attempts(&world).as_deref(), Some("1"));
    world.ca.calls();
    world.wind(5);
    world.look("web").await.unwrap();
    assert_eq!(
        world.ca.calls(),
        [
            "submit web",
            "fetch web",
            "sign web with an identity",
            "fetch web"
        ],
        "its own request is not replaced"
    );
    assert_eq!(attempts(&world).as_deref(), Some("2"));
    world.ca.obeys();
    world.wind(30);
    world.look("web").await.unwrap();
    assert_eq!(world.phase("web"), "Signed");
}

/// The pauses are those between calls, however often something wakes the operator, and also when it is started anew.
#[tokio::test]
async fn c07_polls_keep_their_distances() {
    for (case, wakes, restarts) in [
        ("only when it is time", false, false),
        ("every second", true, false),
        ("every second, and started anew each time", true, true),
    ] {
        let mut world = World::new().with_external_ca();
        world.ca.state().signs_at_once = false;
        world.web(json!({}));
        world.api.history();
        while world.now().seconds_since(START) < 1_300 {
            if restarts {
                world.restart();
            }
            let next = world.look("web").await.unwrap();
            let pause = if wakes { 1 } else { seconds(next) };
            world.wind(i64::try_from(pause).unwrap());
        }
        let calls = world.ca.state().calls.clone();
        assert!(
            calls
                .iter()
                .all(|(_, call)| call == "submit web" || call == "fetch web"),
            "{case}"
        );
        let times = world.ca.times("fetch");
        let distances: Vec<i64> = times.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(
            distances,
            [5, 5, 30, 30, 30, 120, 120, 120, 120, 300, 300],
            "{case}"
        );
        assert_eq!(world.phase("web"), "WaitingForSigning", "{case}");
        assert_eq!(
            world.signed("web"),
            "False WaitingForManualSigning",
            "{case}"
        );
        assert!(
            message(&world.object("web"), "CertSigned").contains("12 polls"),
            "{case}"
        );
        let events = world.api.events();
        assert_eq!(events.len(), 3, "{case}: {events:?}");
        for event in events {
            assert!(
                event.starts_with("CSRWaitingForSigning ") && event.contains("--certname web"),
                "{case}: {event}"
            );
        }
        let mut phases: Vec<Value> = world
            .api
            .history()
            .into_iter()
            .filter_map(phase_of)
            .collect();
        phases.dedup();
        assert_eq!(
            phases,
            ["Requesting", "WaitingForSigning"],
            "{case}: changes only where something changes"
        );
        // Somebody signs at the CA: the next poll finds it.
        world.ca.sign("web");
        world.wind(300);
        world.look("web").await.unwrap();
        assert_eq!(world.phase("web"), "Signed", "{case}");
    }
}

#[tokio::test]
async fn c08_a_key_that_was_stored_before_is_used() {
    let world = World::new().with_external_ca();
    world.web(json!({}));
    let key = pkcs1(keys::rsa2048_c());
    let mut pending = secret("web-tls-pending", &[("key.pem", &key)]);
    pending["metadata"]["ownerReferences"] = json!([world.claim("web")]);
    world.api.put(Kind::Secret, pending);
    let text = world.issued("web", keys::rsa2048_c(), 365);
    world
        .ca
        .state()
        .certificates
        .insert("web".to_owned(), text.clone());
    // "already has a requested certificate", and somebody signs before the certificate is fetched.
    world.ca.answers("submit", 400);
    world.look("web").await.unwrap();
    assert_eq!(world.phase("web"), "Signed");
    assert_eq!(world.secret_value("web-tls", "key.pem"), Some(key));
    assert_eq!(world.secret_value("web-tls", "cert.pem"), Some(text));
}

#[tokio::test]
async fn c08_only_a_key_that_was_stored_for_this_certificate_is_used() {
    for (case, key, is_ours, phase) in [
        ("no key", "", true, "Signed"),
        ("something else than a key", "hunter2", true, "Signed"),
        ("somebody's", keys::rsa2048_c().pkcs8_pem(), false, "Error"),
    ] {
        let world = World::new().with_internal_ca();
        world.web(json!({}));
        let mut pending = secret("web-tls-pending", &[("key.pem", key)]);
        pending["metadata"]["annotations"] =
            json!({"openvox.voxpupuli.org/csr-poll-attempts": "12"});
        if is_ours {
            pending["metadata"]["ownerReferences"] = json!([world.claim("web")]);
        }
        world.api.put(Kind::Secret, pending);
        let before = world.api.get(Kind::Secret, "web-tls-pending");
        world.look("web").await.unwrap();
        assert_eq!(world.phase("web"), phase, "{case}");
        if phase == "Error" {
            assert!(world.ca.calls().is_empty(), "{case}");
            assert_eq!(
                world.api.get(Kind::Secret, "web-tls-pending"),
                before,
                "{case}"
            );
            assert!(
                message(&world.object("web"), "CertSigned").contains("web-tls-pending"),
                "{case}"
            );
        } else {
            assert!(
                is_pair(&world.api.get(Kind::Secret, "web-tls").unwrap()),
                "{case}"
            );
        }
    }
}

#[tokio::test]
async fn c09_a_ca_that_refuses_is_quoted_and_asked_again_with_the_same_key() {
    let world = World::new().with_internal_ca();
    world.web(json!({}));
    world.ca.answers("submit", 403);
    world.ca.state().body = "Not on a Sunday".to_owned();
    assert_eq!(world.look("web").await, Ok(after(30)));
    assert_eq!(
        (world.phase("web").as_str(), world.signed("web").as_str()),
        ("Error", "False SigningFailed")
    );
    let told = message(&world.object("web"), "CertSigned");
    assert!(
        told.contains("403") && told.contains("Not on a Sunday"),
        "{told}"
    );
    world.look_for_seconds("web", 61).await;
    assert_eq!(world.ca.times("submit"), [0, 30, 60]);
    world.ca.obeys();
    world.wind(30);
    world.look("web").await.unwrap();
    assert_eq!(world.phase("web"), "Signed");
    let keys: BTreeSet<Vec<u8>> = submitted(&world)
        .iter()
        .map(|csr| csr.spki_der().to_vec())
        .collect();
    assert_eq!(keys.len(), 1);
}

#[tokio::test]
async fn c10_a_ca_that_cannot_be_asked_is_asked_once_it_can() {
    let world = World::new().with_internal_ca();
    world.web(json!({}));
    world.ca.answers("submit", 0);
    assert_eq!(world.look("web").await, Ok(after(15)), "(a)");
    assert_eq!(
        (world.phase("web").as_str(), world.signed("web").as_str()),
        ("Error", "False SigningFailed")
    );
    world.look_for_seconds("web", 31).await;
    assert_eq!(world.ca.times("submit"), [0, 15, 30]);
    world.ca.obeys();
    world.wind(15);
    world.look("web").await.unwrap();
    assert_eq!(world.phase("web"), "Signed");

    let world = World::new().with_internal_ca();
    world.web(json!({}));
    let trust = world.api.get(Kind::Secret, "ca-ca").unwrap();
    world.api.delete(Kind::Secret, "ca-ca");
    assert_eq!(world.settle("web").await, after(5), "(b)");
    assert_eq!(
        (world.phase("web").as_str(), world.signed("web").as_str()),
        ("Error", "False SigningFailed")
    );
    assert!(message(&world.object("web"), "CertSigned").contains("ca-ca"));
    assert!(world.ca.calls().is_empty());
    world.api.put(Kind::Secret, trust);
    world.look("web").await.unwrap();
    assert_eq!(world.phase("web"), "Signed");
}

#[tokio::test]
async fn c11_an_answer_that_is_no_certificate_counts_and_no_answer_does_not() {
    for (case, answer, pause, counted) in [
        ("a reset connection", 0, 10, "1"),
        ("something else than a certificate", 200, 5, "2"),
    ] {
        let world = World::new().with_external_ca();
        world.ca.state().signs_at_once = false;
        world.web(json!({}));
        world.look("web").await.unwrap();
        world.wind(5);
        world.ca.answers("fetch", answer);
        assert_eq!(world.look("web").await, Ok(after(pause)), "{case}");
        assert_eq!(attempts(&world).as_deref(), Some(counted), "{case}");
        assert_eq!(
            (world.phase("web").as_str(), world.signed("web").as_str()),
            ("Requesting", ""),
            "{case}"
        );
    }
}

#[tokio::test]
async fn c12_a_restart_goes_on_with_the_same_key() {
    let mut world = World::new().with_external_ca();
    world.ca.state().signs_at_once = false;
    world.web(json!({}));
    world.look("web").await.unwrap();
    let key = world.secret_value("web-tls-pending", "key.pem");
    world.restart();
    world.ca.sign("web");
    world.wind(5);
    world.look("web").await.unwrap();
    assert_eq!(world.phase("web"), "Signed");
    let requests = submitted(&world);
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].spki_der(), requests[1].spki_der());
    assert_eq!(world.secret_value("web-tls", "key.pem"), key);
}

#[tokio::test]
async fn c13_a_request_has_exactly_the_extensions_that_were_ordered() {
    for (case, given, expected) in [
        (
            "the example of the documentation",
            json!({
                "ppCliAuth": true, "ppRole": "compiler", "ppEnvironment": "production",
                "customExtensions": {"pp_department": "Engineering", "pp_cost_center": "IT"},
            }),
            &[
                "1.3.6.1.4.1.34380.1.3.39=true",
                "1.3.6.1.4.1.34380.1.1.13=compiler",
                "1.3.6.1.4.1.34380.1.1.12=production",
                "1.3.6.1.4.1.34380.1.1.5=IT",
                "1.3.6.1.4.1.34380.1.1.15=Engineering",
            ][..],
        ),
        (
            "no rights",
            json!({"ppCliAuth": false, "ppRole": "x"}),
            &["1.3.6.1.4.1.34380.1.1.13=x"],
        ),
        (
            "a name that only openvox-operator knows",
            json!({"customExtensions": {"pp_auth_token": "t"}}),
            &["1.3.6.1.4.1.34380.1.3.2=t"],
        ),
    ] {
        let world = World::new().with_internal_ca();
        world.web(json!({"csrExtensions": given}));
        world.look("web").await.unwrap();
        let requests = submitted(&world);
        let found = requests[0].extensions().iter();
        let found: Vec<String> = found
            .map(|it| format!("{}={}", it.oid, it.text_value().unwrap()))
            .collect();
        assert_eq!(found, expected, "{case}");
        assert!(requests[0].subject().common_names().eq(["web"]), "{case}");
        assert_eq!(requests[0].attributes().len(), 1, "{case}");
    }
}

#[tokio::test]
async fn c14_n10_what_cannot_be_ordered_is_refused_before_anybody_is_asked() {
    let name = |name: &str| json!({"certname": name});
    let custom = |name: &str| json!({"csrExtensions": {"customExtensions": {name: "x"}}});
    for (spec, expected) in [
        (custom("bogus"), "\"bogus\""),
        (custom("pp_role"), "ppRole"),
        (custom("pp_cli_auth"), "ppCliAuth"),
        (name(""), "empty"),
        (name("Web"), "\"Web\""),
        (name("../ca"), "\"../ca\""),
        (name("a/b"), "\"a/b\""),
        (name("."), "\".\""),
        (name("web%2f"), "\"web%2f\""),
        (name("ca-operator"), "reserved"),
        (name("CA-Operator"), "reserved"),
        (json!({"dnsAltNames": ["*.web"]}), "\"*.web\""),
    ] {
        let world = World::new().with_internal_ca();
        world.web(spec.clone());
        world.settle("web").await;
        assert_eq!(
            (world.phase("web").as_str(), world.signed("web").as_str()),
            ("Error", "False SigningFailed"),
            "{spec}"
        );
        let told = message(&world.object("web"), "CertSigned");
        assert!(told.contains(expected), "{spec}: {told}");
        world.api.delete(Kind::Certificate, "web");
        world.look("web").await.unwrap();
        assert_eq!(world.api.get(Kind::Certificate, "web"), None, "{spec}");
        assert!(world.ca.calls().is_empty(), "{spec}");
        assert_eq!(
            world.api.get(Kind::Secret, "web-tls-pending"),
            None,
            "{spec}"
        );
    }
}

// It is renewed.

#[tokio::test]
async fn c15_long_before_its_end_nothing_is_done() {
    let world = World::new().with_internal_ca();
    world.web_signed(json!({"renewBefore": "60d"}), 90);
    assert_eq!(world.settle("web").await, after(43_200));
    assert_eq!(world.phase("web"), "Signed");
    assert!(world.ca.calls().is_empty());
    assert_eq!(world.api.events().len(), 1, "that it was taken over");
    world.wind(43_200);
    assert_eq!(world.settle("web").await, after(43_200));
    assert_eq!(world.api.events().len(), 1);
}

#[tokio::test]
async fn c16_a_certificate_is_renewed_with_itself() {
    let world = World::new().with_internal_ca();
    world.web_signed(json!({"renewBefore": "60d"}), 30);
    let warned = json!({"metadata": {"annotations": {WARNED: "30d"}}});
    world.api.edit(Kind::Certificate, "web", &warned);
    let (before, key) = (world.leaf("web"), world.secret_value("web-tls", "key.pem"));
    let mut asked = false;
    for _ in 0..5 {
        world.api.history();
        world.look("web").await.unwrap();
        if world.leaf("web").serial() != before.serial() {
            asked = true;
            break;
        }
    }
    assert!(asked);
    assert_eq!(world.ca.calls(), ["renew  with an identity"]);
    assert_eq!(world.secret_value("web-tls", "key.pem"), key);
    assert!(is_pair(&world.api.get(Kind::Secret, "web-tls").unwrap()));
    assert_eq!(world.annotation("web", RENEWED), Some(START.to_string()));
    assert_eq!(world.annotation("web", WARNED), None);
    assert_eq!(
        (world.phase("web").as_str(), world.signed("web").as_str()),
        ("Signed", "True CertificateRenewed")
    );
    let end = json!(UnixTime(START.0 + 365 * DAY).to_string());
    assert_eq!(world.object("web")["status"]["notAfter"], end);
    let events = world.api.events();
    let events: Vec<&str> = events
        .iter()
        .filter_map(|it| it.split(' ').next())
        .collect();
    assert_eq!(
        events,
        [
            "CertificateSigned",
            "CertificateRenewalTriggered",
            "CertificateRenewed"
        ]
    );
    // First the pair, then what is said of it: an end in between loses nothing, and nothing is said that is not so.
    let history = world.api.history();
    let position = |what: &str, is: &dyn Fn(&Value) -> bool| {
        let found = history.iter().position(|(kind, it)| kind == what && is(it));
        found.unwrap_or_else(|| panic!("{what}: {history:#?}"))
    };
    let stored = position("secrets", &|it| is_pair(it));
    let annotated = position("certificates", &|it| {
        !it["metadata"]["annotations"][RENEWED].is_null()
    });
    let said = position("certificates", &|it| it["status"]["notAfter"] == end);
    let told = position("events", &|it| it["reason"] == "CertificateRenewed");
    assert!(
        stored < annotated && annotated < said && said < told,
        "{stored} {annotated} {said} {told}"
    );
    assert_eq!(world.settle("web").await, after(43_200));
    assert!(world.ca.calls().is_empty());
}

#[tokio::test]
async fn c17_a_renewal_that_fails_is_told_and_tried_again() {
    for answer in [404, 503, 403, 0] {
        let world = World::new().with_internal_ca();
        world.web_signed(json!({}), 30);
        world.ca.answers("renew", answer);
        let before = world.secret_value("web-tls", "cert.pem");
        assert_eq!(world.look("web").await, Ok(after(15)), "{answer}");
        assert_eq!(world.phase("web"), "Renewing", "{answer}");
        assert_eq!(
            world.signed("web"),
            "True CertificateSigned",
            "{answer}: it is still valid"
        );
        let object = world.object("web");
        assert_eq!(
            condition(&object, "Renewal"),
            "False RenewalFailed",
            "{answer}"
        );
        let told = message(&object, "Renewal");
        let expected = if answer == 0 {
            "call".to_owned()
        } else {
            answer.to_string()
        };
        assert!(told.contains(&expected), "{answer}: {told}");
        world.look_for_seconds("web", 31).await;
        assert_eq!(world.ca.times("renew"), [0, 15, 30], "{answer}");
        assert_eq!(
            world.secret_value("web-tls", "cert.pem"),
            before,
            "{answer}"
        );
        assert_eq!(world.phase("web"), "Renewing", "{answer}");
        world.ca.obeys();
        world.wind(15);
        world.look("web").await.unwrap();
        assert_eq!(world.phase("web"), "Signed", "{answer}");
        assert_eq!(condition(&world.object("web"), "Renewal"), "", "{answer}");
        assert_ne!(
            world.secret_value("web-tls", "cert.pem"),
            before,
            "{answer}"
        );
    }
}

#[tokio::test]
async fn c18_what_was_just_renewed_is_not_renewed_again() {
    let world = World::new().with_internal_ca();
    world.web_signed(json!({}), 30);
    let renewed = UnixTime(START.0 - 600).to_string();
    let annotations = json!({"metadata": {"annotations": {RENEWED: renewed, WARNED: "30d"}}});
    world.api.edit(Kind::Certificate, "web", &annotations);
    assert_eq!(world.settle("web").await, after(3600));
    assert_eq!(world.phase("web"), "Signed");
    assert!(world.ca.calls().is_empty());
    let warnings = warnings(&world);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    world.wind(3600);
    world.look("web").await.unwrap();
    assert_eq!(world.ca.calls(), ["renew  with an identity"]);
}

#[tokio::test]
async fn c19_each_warning_is_given_once() {
    let world = World::new().with_internal_ca();
    world.web_signed(json!({"renewBefore": "1d"}), 5);
    world.settle("web").await;
    world.wind(60);
    world.settle("web").await;
    let found = warnings(&world);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].contains("30d") && found[1].contains("7d"),
        "{found:?}"
    );
    assert_eq!(world.annotation("web", WARNED).as_deref(), Some("30d,7d"));
    assert_eq!(world.phase("web"), "Signed");
    assert!(world.ca.calls().is_empty());
}

// It is deleted.

#[tokio::test]
async fn c20_a_deleted_certificate_is_cleaned() {
    let world = World::new().with_internal_ca();
    world.web(json!({}));
    world.settle("web").await;
    world.ca.calls();
    world.api.delete(Kind::Certificate, "web");
    world.look("web").await.unwrap();
    assert_eq!(world.ca.calls(), ["clean web with an identity"]);
    assert!(
        world
            .api
            .events()
            .iter()
            .any(|it| it.starts_with("CertificateCleaned "))
    );
    assert_eq!(world.api.get(Kind::Certificate, "web"), None);
    assert_eq!(
        world.api.get(Kind::Secret, "web-tls"),
        None,
        "it was the Certificate's"
    );
    assert_eq!(world.look("web").await, Ok(Next::Done));
}

/// Without its Secret, its note tells what was its own.
#[tokio::test]
async fn what_somebody_else_has_by_now_is_not_cleaned() {
    for (case, is_strangers) in [("its own", false), ("a stranger's", true)] {
        let world = World::new().with_internal_ca();
        world.web(json!({}));
        world.settle("web").await;
        world.api.delete(Kind::Secret, "web-tls");
        if is_strangers {
            let other = world.issued("web", keys::rsa3072(), 300);
            let of_web = ("web".to_owned(), other);
            world.ca.state().certificates.extend([of_web]);
        }
        world.api.delete(Kind::Certificate, "web");
        world.look("web").await.unwrap();
        let is_there = world.ca.state().certificates.contains_key("web");
        assert_eq!(is_there, is_strangers, "{case}");
        assert_eq!(world.api.get(Kind::Certificate, "web"), None, "{case}");
    }
}

#[tokio::test]
async fn c21_n11_where_nobody_can_clean_a_certificate_goes_at_once() {
    for case in [
        "external",
        "no CA",
        "no identity",
        "a CA that goes",
        "only asked for",
    ] {
        let world = match case {
            "external" => World::new().with_external_ca(),
            _ => World::new().with_internal_ca(),
        };
        if case == "only asked for" {
            world.api.edit(
                Kind::CertificateAuthority,
                "ca",
                &json!({"status": {"signingSecretName": null}}),
            );
            world.ca.state().signs_at_once = false;
        }
        world.web(json!({}));
        world.settle("web").await;
        world.ca.calls();
        match case {
            "no CA" => world.api.delete(Kind::CertificateAuthority, "ca"),
            "no identity" => {
                let status = json!({"status": {"signingSecretName": null}});
                world.api.edit(Kind::CertificateAuthority, "ca", &status);
            }
            "a CA that goes" => {
                let held = json!({"metadata": {"finalizers": ["somebody/else"]}});
                world.api.edit(Kind::CertificateAuthority, "ca", &held);
                world.api.delete(Kind::CertificateAuthority, "ca");
            }
            _ => {}
        }
        world.api.delete(Kind::Certificate, "web");
        world.look("web").await.unwrap();
        assert_eq!(world.api.get(Kind::Certificate, "web"), None, "{case}");
        assert!(world.ca.calls().is_empty(), "{case}");
        assert_eq!(
            world.api.get(Kind::Secret, "web-tls-pending"),
            None,
            "{case}"
        );
    }
}

#[tokio::test]
async fn c22_cleaning_is_tried_five_times() {
    for (case, answer) in [("refused", 500), ("not heard", 0)] {
        let world = World::new().with_internal_ca();
        world.web(json!({}));
        world.settle("web").await;
        world.ca.calls();
        world.ca.answers("clean", answer);
        world.api.history();
        world.api.delete(Kind::Certificate, "web");
        world.look_for_seconds("web", 200).await;
        assert_eq!(world.ca.times("clean"), [0, 15, 30, 45, 60], "{case}");
        assert_eq!(world.api.get(Kind::Certificate, "web"), None, "{case}");
        let counts = world.api.history();
        let mut counts: Vec<Value> = counts
            .iter()
            .map(|(_, it)| {
                it["metadata"]["annotations"]["openvox.voxpupuli.org/cleanup-attempts"].clone()
            })
            .filter(|it| !it.is_null())
            .collect();
        counts.dedup();
        assert_eq!(
            counts[..4],
            ["1", "2", "3", "4"].map(|it| json!(it)),
            "{case}"
        );
        let events = world.api.events();
        assert!(
            events.iter().any(|it| it.starts_with("CleanupFailed ")),
            "{case}: {events:?}"
        );
    }
}

// What decides.

#[tokio::test]
async fn n2_a_status_that_is_edited_or_lost_changes_nothing() {
    for edit in [
        json!(null),
        json!({"phase": "Pending"}),
        json!({"phase": "Error"}),
        json!({"phase": "Renewing"}),
        json!({"phase": "Requesting", "notAfter": null, "secretName": null}),
        json!({"notAfter": "2020-01-01T00:00:00Z"}),
        json!({"conditions": null}),
        json!({"secretName": "other"}),
    ] {
        let world = World::new().with_internal_ca();
        world.web(json!({}));
        world.settle("web").await;
        world.ca.calls();
        let (before, secret) = (world.object("web"), world.api.get(Kind::Secret, "web-tls"));
        world
            .api
            .edit(Kind::Certificate, "web", &json!({"status": edit}));
        world.settle("web").await;
        assert_eq!(world.ca.calls(), [""; 0], "{edit}");
        assert_eq!(world.object("web")["status"], before["status"], "{edit}");
        assert_eq!(world.api.get(Kind::Secret, "web-tls"), secret, "{edit}");
    }
}

#[tokio::test]
async fn n2_a_status_that_is_lost_while_waiting_does_not_hurry_anybody() {
    let world = World::new().with_external_ca();
    world.ca.state().signs_at_once = false;
    world.web(json!({}));
    world.look("web").await.unwrap();
    for _ in 0..34 {
        world
            .api
            .edit(Kind::Certificate, "web", &json!({"status": null}));
        world.look("web").await.unwrap();
        world.wind(1);
    }
    assert_eq!(world.ca.times("fetch"), [0, 5, 10]);
    assert_eq!(attempts(&world).as_deref(), Some("3"));
}

/// What the CA has of the name when somebody asks for it, and what becomes of that.
#[tokio::test]
async fn n4_what_a_ca_has_of_a_name_is_taken_or_makes_way_only_if_it_is_ours() {
    let (own, foreign) = (keys::rsa2048_c(), keys::rsa3072());
    let collected = &["submit web", "fetch web"][..];
    let replaced = &[
        "submit web",
        "fetch web",
        "clean web with an identity",
        "submit web",
        "sign web with an identity",
        "fetch web",
    ][..];
    let (internal, external) = (true, false);
    for (case, is_internal, prepare, phase, calls) in [
        (
            "the stored key's certificate, internal",
            internal,
            Has::Certificate(own),
            "Signed",
            collected,
        ),
        (
            "the stored key's certificate, external",
            external,
            Has::Certificate(own),
            "Signed",
            collected,
        ),
        (
            "a stranger's certificate, internal",
            internal,
            Has::Certificate(foreign),
            "Error",
            collected,
        ),
        (
            "a stranger's certificate, external",
            external,
            Has::Certificate(foreign),
            "Error",
            collected,
        ),
        (
            "our former certificate",
            internal,
            Has::Former(foreign),
            "Signed",
            replaced,
        ),
        (
            "our former certificate, external",
            external,
            Has::Former(foreign),
            "Error",
            collected,
        ),
        (
            "our former certificate, revoked and not shown",
            internal,
            Has::FormerRevoked,
            "Signed",
            replaced,
        ),
        (
            "a stranger's, revoked and not shown",
            internal,
            Has::Revoked,
            "Error",
            collected,
        ),
        (
            "a stranger's request, internal",
            internal,
            Has::Request(foreign),
            "Signed",
            &[
                "submit web",
                "fetch web",
                "remove web with an identity",
                "submit web",
                "sign web with an identity",
                "fetch web",
            ],
        ),
        (
            "a stranger's request, external",
            external,
            Has::Request(foreign),
            "Requesting",
            collected,
        ),
        (
            "a stranger's request that stays: it is not signed",
            internal,
            Has::RequestThatStays(foreign),
            "Requesting",
            &["submit web", "fetch web", "remove web with an identity"],
        ),
    ] {
        let world = match is_internal {
            true => World::new().with_internal_ca(),
            false => World::new().with_external_ca(),
        };
        world.ca.state().signs_at_once = false;
        world.web(json!({}));
        let mut pending = secret("web-tls-pending", &[("key.pem", &pkcs1(own))]);
        pending["metadata"]["ownerReferences"] = json!([world.claim("web")]);
        world.api.put(Kind::Secret, pending);
        prepare.prepare(&world);
        let certificates = world.ca.state().certificates.clone();
        let requests = world.ca.state().requests.clone();
        world.look("web").await.unwrap();
        assert_eq!(world.ca.calls(), calls, "{case}");
        assert_eq!(world.phase("web"), phase, "{case}");
        match phase {
            "Signed" => {
                assert!(
                    is_pair(&world.api.get(Kind::Secret, "web-tls").unwrap()),
                    "{case}"
                );
                assert_eq!(world.leaf("web").spki_der(), own.spki_der(), "{case}");
                assert_eq!(
                    world.api.get(Kind::Secret, "web-tls-pending"),
                    None,
                    "{case}"
                );
            }
            _ => {
                assert_eq!(world.api.get(Kind::Secret, "web-tls"), None, "{case}");
                assert_eq!(world.ca.state().certificates, certificates, "{case}");
                assert_eq!(world.ca.state().requests, requests, "{case}");
            }
        }
        if phase == "Error" {
            let told = message(&world.object("web"), "CertSigned");
            assert!(told.contains("clean"), "{case}: {told}");
        }
        // Whatever is the stranger's stays so when this Certificate is deleted.
        if phase != "Signed" && !matches!(prepare, Has::Former(_)) {
            world.ca.obeys();
            world.api.delete(Kind::Certificate, "web");
            world.look("web").await.unwrap();
            assert_eq!(world.api.get(Kind::Certificate, "web"), None, "{case}");
            assert_eq!(world.ca.state().certificates, certificates, "{case}");
            assert_eq!(world.ca.state().requests, requests, "{case}");
            assert_eq!(world.ca.times("clean"), [0; 0], "{case}");
        }
    }
}

/// What a CA has of a name.
enum Has {
    /// A certificate for a key.
    Certificate(&'static keys::Key),
    /// One that the Certificate has obtained before.
    Former(&'static keys::Key),
    /// The same, revoked and not shown.
    FormerRevoked,
    /// One of somebody else, revoked and not shown.
    Revoked,
    /// A request with a key.
    Request(&'static keys::Key),
    /// One that cannot be removed.
    RequestThatStays(&'static keys::Key),
}

impl Has {
    fn prepare(&self, world: &World) {
        let obtained = |key: &keys::Key| {
            let digest = fingerprint_sha256(key.spki_der())
                .to_hex()
                .to_ascii_lowercase();
            let obtained =
                json!({"metadata": {"annotations": {OBTAINED: format!("web/{digest}")}}});
            world.api.edit(Kind::Certificate, "web", &obtained);
        };
        match self {
            Self::Certificate(key) | Self::Former(key) => {
                let text = world.issued("web", key, 300);
                world.ca.state().certificates.insert("web".to_owned(), text);
                if matches!(self, Self::Former(_)) {
                    obtained(key);
                }
            }
            Self::FormerRevoked => {
                world.ca.state().revoked.insert("web".to_owned());
                obtained(keys::rsa3072());
            }
            Self::Revoked => drop(world.ca.state().revoked.insert("web".to_owned())),
            Self::Request(key) | Self::RequestThatStays(key) => {
                let request = Key::read(key.pkcs8_pem().as_bytes())
                    .unwrap()
                    .request("web", &[], &[])
                    .unwrap();
                world
                    .ca
                    .state()
                    .requests
                    .insert("web".to_owned(), request.to_string());
                if matches!(self, Self::RequestThatStays(_)) {
                    world.ca.answers("remove", 403);
                }
            }
        }
    }
}

#[tokio::test]
async fn n4_a_request_that_was_made_for_an_earlier_order_is_not_taken_for_this_one() {
    for (case, before, after_it) in [
        (
            "fewer names",
            json!({"dnsAltNames": ["a", "b"]}),
            json!({"dnsAltNames": ["a"]}),
        ),
        (
            "more names",
            json!({"dnsAltNames": ["a"]}),
            json!({"dnsAltNames": ["a", "b"]}),
        ),
        (
            "another role",
            json!({"csrExtensions": {"ppRole": "x"}}),
            json!({"csrExtensions": {"ppRole": "y"}}),
        ),
    ] {
        for is_signed in [false, true] {
            let world = World::new().with_internal_ca();
            world.ca.state().signs_at_once = false;
            world.ca.answers("sign", 403);
            world.web(before.clone());
            world.look("web").await.unwrap();
            if is_signed {
                world.ca.sign("web");
            }
            world
                .api
                .edit(Kind::Certificate, "web", &json!({"spec": after_it}));
            world.ca.obeys();
            world.look("web").await.unwrap();
            assert_eq!(world.phase("web"), "Signed", "{case} {is_signed}");
            let names: Vec<Value> = world
                .leaf("web")
                .alt_names()
                .iter()
                .map(|it| json!(it.to_puppet_text()[4..]))
                .collect();
            let wanted = after_it["dnsAltNames"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            assert_eq!(names, wanted, "{case} {is_signed}");
            // What is in the Secret is what the CA has, and was made from the last request.
            let at_ca = world.ca.state().certificates["web"].clone();
            assert_eq!(
                world.secret_value("web-tls", "cert.pem"),
                Some(at_ca),
                "{case} {is_signed}"
            );
            let removed = world.ca.times(if is_signed { "clean" } else { "remove" });
            assert_eq!(removed.len(), 1, "{case} {is_signed}");
        }
    }
    // Where nobody here may clean, it is told.
    let world = World::new().with_external_ca();
    world.ca.state().signs_at_once = false;
    world.web(json!({"csrExtensions": {"ppRole": "x"}}));
    world.look("web").await.unwrap();
    world.api.edit(
        Kind::Certificate,
        "web",
        &json!({"spec": {"csrExtensions": {"ppRole": "y"}}}),
    );
    for _ in 0..60 {
        world.look("web").await.unwrap();
        world.wind(1);
    }
    assert_eq!(
        world.ca.times("fetch"),
        [0, 0, 5, 35],
        "another order is asked for at once, then as before"
    );
    world.ca.sign("web");
    world.wind(300);
    world.look("web").await.unwrap();
    assert_eq!(
        (world.phase("web").as_str(), world.signed("web").as_str()),
        ("Error", "False SigningFailed")
    );
    let told = message(&world.object("web"), "CertSigned");
    assert!(told.contains("as it was ordered before"), "{told}");
}

#[tokio::test]
async fn n5_a_certname_is_one_certificates_at_a_time() {
    for (case, spec) in [
        ("a name", json!({"certname": "web"})),
        ("the default", json!({})),
    ] {
        let certname = spec["certname"].as_str().unwrap_or("puppet").to_owned();
        let world = World::new().with_internal_ca();
        world.certificate("first", spec.clone());
        world.wind(1);
        world.certificate("another", spec);
        world.settle("another").await;
        assert_eq!(world.phase("another"), "Error", "{case}");
        assert_eq!(world.signed("another"), "False CertnameConflict", "{case}");
        assert!(
            message(&world.object("another"), "CertSigned").contains("first"),
            "{case}"
        );
        assert!(world.ca.calls().is_empty(), "{case}");
        world.settle("first").await;
        assert_eq!(world.phase("first"), "Signed", "{case}");
        world.ca.calls();
        // A loser goes and nothing is cleaned.
        world.certificate("third", json!({"certname": certname}));
        world.settle("third").await;
        world.api.delete(Kind::Certificate, "third");
        world.look("third").await.unwrap();
        assert_eq!(world.api.get(Kind::Certificate, "third"), None, "{case}");
        assert!(world.ca.calls().is_empty(), "{case}");
        // The first goes: the name is free.
        world.api.delete(Kind::Certificate, "first");
        world.look("another").await.unwrap();
        assert_eq!(
            world.phase("another"),
            "Error",
            "{case}: the first is still there"
        );
        world.look("first").await.unwrap();
        assert_eq!(
            world.ca.calls(),
            [format!("clean {certname} with an identity")],
            "{case}"
        );
        world.settle("another").await;
        assert_eq!(world.phase("another"), "Signed", "{case}");
    }
}

#[tokio::test]
async fn n5_who_has_obtained_a_name_keeps_it() {
    let world = World::new().with_internal_ca();
    world.certificate("older", json!({"certname": "db"}));
    world.wind(1);
    world.certificate("younger", json!({"certname": "web"}));
    for name in ["older", "younger"] {
        world.settle(name).await;
        assert_eq!(world.phase(name), "Signed");
    }
    world.ca.calls();
    world.api.edit(
        Kind::Certificate,
        "older",
        &json!({"spec": {"certname": "web"}}),
    );
    for name in ["older", "younger"] {
        world.settle(name).await;
    }
    assert_eq!(world.signed("older"), "False CertnameConflict");
    assert_eq!(world.phase("younger"), "Signed");
    assert!(world.ca.calls().is_empty());
    // Deleted now, it cleans the name that it has obtained, and not the other one's.
    world.api.delete(Kind::Certificate, "older");
    world.look("older").await.unwrap();
    assert_eq!(world.ca.calls(), ["clean db with an identity"]);
}

#[tokio::test]
async fn n6_only_another_order_or_a_lost_secret_asks_for_another_certificate() {
    let san = json!({"dnsAltNames": ["a", "b"], "csrExtensions": {"ppRole": "x"}});
    for (case, edit, is_asked) in [
        ("another certname", json!({"certname": "db"}), true),
        (
            "one more name",
            json!({"dnsAltNames": ["a", "b", "c"]}),
            true,
        ),
        ("one name less", json!({"dnsAltNames": ["a"]}), true),
        (
            "another extension",
            json!({"csrExtensions": {"ppRole": "y"}}),
            true,
        ),
        (
            "one more extension",
            json!({"csrExtensions": {"ppEnvironment": "y"}}),
            true,
        ),
        (
            "names in another order",
            json!({"dnsAltNames": ["b", "a"]}),
            false,
        ),
        (
            "a name twice",
            json!({"dnsAltNames": ["a", "b", "A"]}),
            false,
        ),
        ("another lead time", json!({"renewBefore": "30d"}), false),
        (
            "a lead time that is none",
            json!({"renewBefore": "x"}),
            false,
        ),
    ] {
        let world = World::new().with_internal_ca();
        world.web(san.clone());
        world.settle("web").await;
        world.ca.calls();
        let before = world.secret_value("web-tls", "cert.pem");
        world.ca.state().signs_at_once = false;
        world.ca.answers("sign", 403);
        world
            .api
            .edit(Kind::Certificate, "web", &json!({"spec": edit}));
        world.look("web").await.unwrap();
        assert_eq!(
            world.secret_value("web-tls", "cert.pem"),
            before,
            "{case}: it stays until there is another"
        );
        assert!(
            is_pair(&world.api.get(Kind::Secret, "web-tls").unwrap()),
            "{case}"
        );
        if !is_asked {
            world.settle("web").await;
            assert!(world.ca.calls().is_empty(), "{case}");
            assert_eq!(world.phase("web"), "Signed", "{case}");
            continue;
        }
        assert_eq!(world.phase("web"), "Requesting", "{case}");
        let status = world.object("web")["status"].clone();
        assert_eq!(status["secretName"], "web-tls", "{case}");
        assert_eq!(
            status["notAfter"],
            json!(world.leaf("web").not_after().to_string()),
            "{case}"
        );
        world.ca.obeys();
        world.wind(5);
        world.settle("web").await;
        assert_eq!(world.phase("web"), "Signed", "{case}");
        assert_ne!(world.secret_value("web-tls", "cert.pem"), before, "{case}");
        assert_ne!(
            world.leaf("web").spki_der(),
            leaf(before.unwrap().as_bytes()).unwrap().spki_der(),
            "{case}"
        );
        assert!(
            is_pair(&world.api.get(Kind::Secret, "web-tls").unwrap()),
            "{case}"
        );
        assert_eq!(
            world.api.get(Kind::Secret, "web-tls-pending"),
            None,
            "{case}"
        );
    }
}

/// What waits at the CA under a name that is no longer ordered is withdrawn, and the next name has another key.
#[tokio::test]
async fn n6_a_request_for_a_name_that_is_no_longer_ordered_is_withdrawn() {
    for (case, then) in [("another name", Some("app")), ("deleted", None)] {
        let world = World::new().with_internal_ca();
        world.ca.state().signs_at_once = false;
        world.web(json!({}));
        world.settle("web").await;
        world.ca.answers("sign", 403);
        let rename = |name: &str| {
            let patch = json!({"spec": {"certname": name}});
            world.api.edit(Kind::Certificate, "web", &patch);
        };
        rename("db");
        world.look("web").await.unwrap();
        assert!(world.ca.state().requests.contains_key("db"), "{case}");
        let first = world.secret_value("web-tls-pending", "key.pem");
        match then {
            Some(name) => {
                rename(name);
                world.look("web").await.unwrap();
                assert_ne!(
                    world.secret_value("web-tls-pending", "key.pem"),
                    first,
                    "{case}"
                );
                assert!(world.ca.state().requests.contains_key(name), "{case}");
                // And back to what there is.
                rename("web");
                world.settle("web").await;
                assert_eq!(world.phase("web"), "Signed", "{case}");
            }
            None => {
                world.api.delete(Kind::Certificate, "web");
                world.look("web").await.unwrap();
                assert!(!world.ca.state().certificates.contains_key("web"), "{case}");
            }
        }
        assert!(world.ca.state().requests.is_empty(), "{case}");
        assert_eq!(
            world.api.get(Kind::Secret, "web-tls-pending"),
            None,
            "{case}"
        );
    }
}

/// What waits under a name that another Certificate has by now may be that one's.
#[tokio::test]
async fn a_request_for_a_name_that_another_certificate_has_is_not_withdrawn() {
    let world = World::new().with_internal_ca();
    world.ca.state().signs_at_once = false;
    world.ca.answers("sign", 403);
    world.web(json!({"certname": "db"}));
    world.look("web").await.unwrap();
    assert!(world.ca.state().requests.contains_key("db"));
    let renamed = json!({"spec": {"certname": "app"}});
    world.api.edit(Kind::Certificate, "web", &renamed);
    world.certificate("db", json!({"certname": "db"}));
    world.look("web").await.unwrap();
    let waiting: Vec<String> = world.ca.state().requests.keys().cloned().collect();
    assert_eq!(waiting, ["app", "db"]);
}

/// A CA that does not clean the former certificate still has it: whoever takes the change back has it again.
#[tokio::test]
async fn n6_a_change_that_the_ca_does_not_make_way_for_can_be_taken_back() {
    for (case, answer) in [("refused", 500), ("not heard", 0)] {
        let world = World::new().with_internal_ca();
        world.web(json!({}));
        world.settle("web").await;
        let before = world.secret_value("web-tls", "cert.pem");
        let edit = |names: Value| {
            let patch = json!({"spec": {"dnsAltNames": names}});
            world.api.edit(Kind::Certificate, "web", &patch);
        };
        world.ca.answers("clean", answer);
        edit(json!(["www"]));
        for _ in 0..3 {
            world.look("web").await.unwrap();
            world.wind(30);
        }
        assert_eq!(world.phase("web"), "Error", "{case}");
        assert!(
            message(&world.object("web"), "CertSigned").contains("cleaned"),
            "{case}"
        );
        assert_eq!(world.secret_value("web-tls", "cert.pem"), before, "{case}");
        edit(Value::Null);
        world.look("web").await.unwrap();
        world.settle("web").await;
        assert_eq!(world.phase("web"), "Signed", "{case}");
        assert_eq!(world.secret_value("web-tls", "cert.pem"), before, "{case}");
        assert_eq!(
            world.ca.state().certificates.get("web"),
            before.as_ref(),
            "{case}"
        );
        assert_eq!(
            world.api.get(Kind::Secret, "web-tls-pending"),
            None,
            "{case}"
        );
        // And the change can be made again.
        world.ca.obeys();
        edit(json!(["www"]));
        world.settle("web").await;
        assert_eq!(world.phase("web"), "Signed", "{case}");
        assert_eq!(world.leaf("web").alt_names().len(), 1, "{case}");
    }
}

#[tokio::test]
async fn n6_a_lost_secret_is_made_again() {
    for case in ["gone", "without its certificate"] {
        let world = World::new().with_internal_ca();
        world.web(json!({}));
        world.settle("web").await;
        world.ca.calls();
        match case {
            "gone" => world.api.delete(Kind::Secret, "web-tls"),
            _ => world.api.edit(
                Kind::Secret,
                "web-tls",
                &json!({"data": {"cert.pem": null}}),
            ),
        }
        world.settle("web").await;
        assert_eq!(world.phase("web"), "Signed", "{case}");
        assert!(
            is_pair(&world.api.get(Kind::Secret, "web-tls").unwrap()),
            "{case}"
        );
        assert_eq!(
            world.ca.calls(),
            [
                "submit web",
                "fetch web",
                "clean web with an identity",
                "submit web",
                "sign web with an identity",
                "fetch web"
            ],
            "{case}: the former certificate makes way"
        );
    }
}

#[tokio::test]
async fn n6_what_openvox_operator_has_signed_is_taken_over_without_a_question() {
    for (case, spec) in [
        ("as it was asked for", json!({})),
        // Its own operator does not issue again when the spec changes; what is there counts.
        (
            "with names that were never issued",
            json!({"dnsAltNames": ["late"]}),
        ),
    ] {
        let world = World::new().with_internal_ca();
        world.web_signed(spec, 300);
        let status = json!({"phase": "Signed", "secretName": "web-tls", "notAfter": world.leaf("web").not_after().to_string(),
            "conditions": [{"type": "CertSigned", "status": "True", "reason": "CertificateSigned", "message": "x",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        world.api.edit(
            Kind::Certificate,
            "web",
            &json!({"status": status, "metadata": {"finalizers": [CLEANUP_FINALIZER]}}),
        );
        let before = world.secret_value("web-tls", "cert.pem");
        assert_eq!(world.settle("web").await, after(43_200), "{case}");
        assert_eq!(world.phase("web"), "Signed", "{case}");
        assert!(world.ca.calls().is_empty(), "{case}");
        assert!(
            world.api.events().is_empty(),
            "{case}: nothing has happened"
        );
        assert_eq!(world.secret_value("web-tls", "cert.pem"), before, "{case}");
        let since = world.object("web")["status"]["conditions"][0]["lastTransitionTime"].clone();
        assert_eq!(since, "2026-01-01T00:00:00Z", "{case}");
        // From now on it is looked after like any other: another order is issued.
        world.api.edit(
            Kind::Certificate,
            "web",
            &json!({"spec": {"dnsAltNames": ["later"]}}),
        );
        world.settle("web").await;
        assert_ne!(world.secret_value("web-tls", "cert.pem"), before, "{case}");
    }
}

#[tokio::test]
async fn n7_the_status_says_what_the_secret_holds() {
    let world = World::new().with_internal_ca();
    world.web_signed(json!({}), 300);
    world.settle("web").await;
    let other = world.issued("web", keys::rsa2048_c(), 200);
    let found = secret("web-tls", &[("cert.pem", &other)]);
    world
        .api
        .edit(Kind::Secret, "web-tls", &json!({"data": found["data"]}));
    world.look("web").await.unwrap();
    let end = UnixTime(START.0 + 200 * DAY).to_string();
    assert_eq!(
        world.object("web")["status"]["notAfter"],
        json!(end),
        "after one pass"
    );
    assert!(world.ca.calls().is_empty());
}

#[tokio::test]
async fn n8_an_expired_certificate_is_issued_anew_by_an_internal_ca_only() {
    let world = World::new().with_internal_ca();
    world.web_signed(json!({}), -1);
    let before = world.secret_value("web-tls", "cert.pem");
    world.settle("web").await;
    assert_eq!(world.phase("web"), "Signed");
    assert_ne!(world.secret_value("web-tls", "cert.pem"), before);
    assert!(world.ca.times("renew").is_empty());

    let world = World::new().with_external_ca();
    world.web_signed(json!({}), -1);
    let before = world.secret_value("web-tls", "cert.pem");
    world.settle("web").await;
    assert_eq!(
        (world.phase("web").as_str(), world.signed("web").as_str()),
        ("Error", "False CertificateExpired")
    );
    assert!(world.ca.calls().is_empty());
    assert_eq!(world.secret_value("web-tls", "cert.pem"), before);
    // As the message says: once the CA has forgotten it and the Secret is gone, another one is issued.
    world.ca.state().certificates.clear();
    world.api.delete(Kind::Secret, "web-tls");
    world.settle("web").await;
    assert_eq!(world.phase("web"), "Signed");
}

#[tokio::test]
async fn n8_a_lead_time_beyond_the_life_of_a_certificate_does_not_renew_it_for_ever() {
    let world = World::new().with_internal_ca();
    world.ca.state().life = 90;
    world.web(json!({"renewBefore": "99999d"}));
    for _ in 0..(30 * 24) {
        world.look("web").await.unwrap();
        world.wind(3600);
    }
    assert_eq!(
        world.ca.times("renew").len(),
        1,
        "as somebody asked for, and then not every hour"
    );
    assert!(
        world
            .api
            .events()
            .iter()
            .any(|it| it.starts_with("RenewBeforeTooLong "))
    );
}

#[tokio::test]
async fn n8_a_renewal_recognises_the_ca_as_a_request_does() {
    let root = |world: &World| CaTrust::Roots(world.ca.root.certificate.to_pem().into_bytes());
    for (case, external, expected) in [
        (
            "a named CA",
            json!({"url": "https://far:8140/", "caSecretRef": "ca-ca"}),
            None,
        ),
        (
            "nobody is verified",
            json!({"url": "https://far:8140/", "insecureSkipVerify": true}),
            Some(CaTrust::Anybody),
        ),
        (
            "the system's",
            json!({"url": "https://far:8140/"}),
            Some(CaTrust::System),
        ),
    ] {
        let world = World::new();
        world.ready_ca(json!({"external": external}), "External");
        let expected = expected.unwrap_or_else(|| root(&world));
        let expected = Some(("https://far:8140".to_owned(), expected));
        world.web(json!({}));
        world.settle("web").await;
        assert_eq!(world.ca.state().connected, expected, "{case}");
        world.ca.state().connected = None;
        world.wind(330 * DAY);
        world.look("web").await.unwrap();
        assert_eq!(world.ca.times("renew").len(), 1, "{case}");
        assert_eq!(world.ca.state().connected, expected, "{case}");
    }
}

#[tokio::test]
async fn n9_warnings_are_given_also_while_renewals_fail() {
    let world = World::new().with_internal_ca();
    world.web_signed(json!({}), 59);
    world.ca.answers("renew", 404);
    for _ in 0..58 {
        world.look("web").await.unwrap();
        world.wind(DAY);
    }
    world.look("web").await.unwrap();
    let warnings = warnings(&world);
    let found: Vec<&str> = warnings
        .iter()
        .filter_map(|it| it.rsplit(' ').next())
        .collect();
    assert_eq!(found, ["30d", "7d", "1d"]);
    assert_eq!(
        world.annotation("web", WARNED).as_deref(),
        Some("30d,7d,1d")
    );
}

#[tokio::test]
async fn what_is_paused_is_left_alone() {
    let world = World::new().with_internal_ca();
    world.web(json!({}));
    let paused = json!({"metadata": {"annotations": {"openvox.voxpupuli.org/paused": "true"}}});
    world.api.edit(Kind::Certificate, "web", &paused);
    assert_eq!(world.settle("web").await, Next::Done);
    assert_eq!(condition(&world.object("web"), "Paused"), "True Paused");
    assert_eq!(world.phase("web"), "");
    assert!(world.ca.calls().is_empty());
    assert_eq!(world.api.get(Kind::Secret, "web-tls-pending"), None);
    let again = json!({"metadata": {"annotations": {"openvox.voxpupuli.org/paused": null}}});
    world.api.edit(Kind::Certificate, "web", &again);
    world.settle("web").await;
    assert_eq!(world.phase("web"), "Signed");
    assert_eq!(condition(&world.object("web"), "Paused"), "");
}

#[tokio::test]
async fn a_certificate_and_its_ca_may_have_the_same_name() {
    let world = World::new().with_internal_ca();
    world.certificate("ca", json!({"certname": "web"}));
    world.ca.answers("crl", 503);
    world.look_at_ca().await.unwrap();
    world.ca.calls();
    world.settle("ca").await;
    assert_eq!(
        world.phase("ca"),
        "Signed",
        "the CA's own pauses are not the Certificate's"
    );
}

/// The phases of written Certificates.
fn phase_of((_, object): (String, Value)) -> Option<Value> {
    let phase = &object["status"]["phase"];
    (!phase.is_null()).then(|| phase.clone())
}

fn attempts(world: &World) -> Option<String> {
    let pending = world.api.get(Kind::Secret, "web-tls-pending")?;
    let count = &pending["metadata"]["annotations"]["openvox.voxpupuli.org/csr-poll-attempts"];
    count.as_str().map(str::to_owned)
}

fn warnings(world: &World) -> Vec<String> {
    let events = world.api.events().into_iter();
    events
        .filter(|it| it.starts_with("CertificateExpiringSoon "))
        .collect()
}

/// The requests that the CA was sent.
fn submitted(world: &World) -> Vec<CheckedCsr> {
    let state = world.ca.state();
    let texts = state.submitted.iter();
    texts
        .map(|text| CheckedCsr::from_pem(text.as_bytes(), &CsrLimits::STANDARD).unwrap())
        .collect()
}

const WARNED: &str = "openvox.voxpupuli.org/expiry-warned";
const RENEWED: &str = "openvox.voxpupuli.org/last-renewal-time";
