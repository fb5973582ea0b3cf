//! The cases that need somebody else: openssl, deciders, Foreman, a store that fails, a crash.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use countersign_authority::TokenText;
use countersign_pki::{UnixTime, pem};
use countersign_testkit::chain::Ca;
use countersign_testkit::counterparts::{Counterpart, kills};
use countersign_testkit::csr::{CsrBuilder, TOKEN};
use countersign_testkit::deadline::run_with_deadline;
use countersign_testkit::decider::{Call, Decider, Guard, Step};
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::{N1, World, request};
use crate::governed::{AGENTS, policy};
use crate::site::{PUPPET, TEXT, install};
use crate::tokens_secrecy::octets;

#[test]
fn a11_openssl_writes_it_in_two_string_types() {
    let world = World::start("");
    let token = world.mint(N1);
    let folder = world.governed.site.folder("openssl");
    let (key, config) = (folder.join("key.pem"), folder.join("req.cnf"));
    install(&key, keys::p256_a().pkcs8_pem(), 0o600);
    let mut serials = Vec::new();
    for (mask, tag) in [("utf8only", 0x0c), ("MASK:0x2010", 0x16)] {
        let text = format!(
            "[req]\nprompt = no\nstring_mask = {mask}\ndistinguished_name = name\nattributes = more\n\
             [name]\nCN = {N1}\n[more]\nchallengePassword = {}\n",
            token.expose()
        );
        install(&config, &text, 0o600);
        let mut openssl = Command::new(Counterpart::Openssl.find().unwrap());
        openssl.args(["req", "-new", "-key"]).arg(&key);
        openssl.arg("-config").arg(&config);
        let made = run_with_deadline(openssl, Duration::from_secs(60)).unwrap();
        assert!(made.success(), "{made}");
        let block = pem::decode_first(made.stdout.as_bytes(), &pem::PemLimits::REQUEST);
        let der = block.unwrap().unwrap().der;
        let value = [&[tag, 82], token.expose().as_bytes()].concat();
        let is_there = der.windows(value.len()).any(|part| part == value);
        assert!(is_there, "{mask} is of another type");
        let answer = world.put(N1, &made.stdout);
        assert_eq!(answer.status, 200, "{mask}: {}", answer.text());
        serials.push(world.serial(N1).unwrap());
    }
    assert_eq!(serials[0], serials[1]);
    assert_eq!(world.standing(&token), ("issued".to_owned(), 1, 0));
    assert_eq!(world.events("token.retry").len(), 1);
}

#[test]
fn a14_unknown_and_wrong_are_answered_alike() {
    let world = World::start("");
    let token = world.mint(N1);
    let id: [u8; 10] = octets(token.id().as_str()).try_into().unwrap();
    let unknown = TokenText::parse(TOKEN).unwrap();
    let answers = [unknown, TokenText::new(id, [7; 32])].map(|wrong| {
        let answer = world.put(N1, &request(N1, &wrong, keys::p256_a()));
        let text = answer.text();
        let (sentence, _) = text.split_once("(request ").unwrap();
        let headers = answer
            .headers
            .into_iter()
            .filter(|(name, _)| name != "date");
        let headers: Vec<_> = headers.collect();
        (answer.status, sentence.to_owned(), text.len(), headers)
    });
    assert_eq!(answers[0].0, 403);
    assert_eq!(answers[0], answers[1]);
    assert_eq!(world.rejections(N1), ["token_unknown", "token_unknown"]);
    let rejected = world.events("token.rejected");
    assert!(
        rejected
            .iter()
            .all(|entry| entry["reason"] == "token_unknown")
    );
    assert_eq!(world.standing(&token), ("active".to_owned(), 0, 0));
}

#[test]
fn a15_a_store_that_is_down_uses_nothing_up() {
    let world = World::start("");
    let token = world.mint(N1);
    let data = world.governed.site.data();
    // SQLite writes no database whose file was moved away.
    let (here, away) = (data.join("countersign.db"), data.join("moved.db"));
    fs::rename(&here, &away).unwrap();
    let answer = world.put(N1, &request(N1, &token, keys::p256_a()));
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
    fs::rename(&away, &here).unwrap();
    assert_eq!(world.serial(N1), None);
    assert_eq!(world.standing(&token), ("active".to_owned(), 0, 0));
    let answer = world.put(N1, &request(N1, &token, keys::p256_a()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(world.standing(&token), ("issued".to_owned(), 1, 0));
}

#[test]
fn a16_a_crash_at_any_moment_enrols_once() {
    let mut world = World::start("");
    let (_never, pause) = mpsc::sync_channel::<()>(0);
    for number in 0..kills(8) {
        let name = format!("n{number}.example.com");
        let token = world.mint(&name);
        let (client, body) = (
            world.governed.site.anonymous(),
            request(&name, &token, keys::p256_a()),
        );
        std::thread::scope(|scope| {
            let (name, body) = (&name, &body);
            scope.spawn(move || {
                let path = format!("{PUPPET}/certificate_request/{name}");
                let headers = [TEXT];
                let _lost = client.call("PUT", &path, &headers, body.as_bytes());
            });
            let _elapsed = pause.recv_timeout(Duration::from_millis(u64::from(number % 20) * 2));
            world.governed.site.server.kill_now();
        });
        world.governed = world.governed.restart(|_| ());
        let answer = world.put(&name, &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let other = world.put(&name, &request(&name, &token, keys::p256_b()));
        assert_eq!(other.status, 403, "{}", other.text());
        let shown = world.token(&token);
        assert_eq!(shown["uses"], 1, "{shown}");
        let rows = shown["use_rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{shown}");
        assert_eq!(rows[0]["serial"], world.serial(&name).unwrap().as_str());
    }
}

/// An authority that asks a decider beside the token.
fn asking(part: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static) -> (Decider, World) {
    let now = UnixTime(1_760_000_000);
    let ca = Ca::root("decider", keys::p256_c(), now);
    let decider = Decider::start(&Guard::localhost(&ca, now), part).unwrap();
    let port = decider.address().port();
    let rule = format!(
        "    - name: both\n      approve: {{token: {{}}, webhook: {{url: \"https://127.0.0.1:{port}/\", caBundle: ca.pem, timeout: 1s}}}}\n"
    );
    let files = [
        ("agents.yaml", policy("agents", AGENTS, &rule)),
        ("ca.pem", ca.certificate.to_pem()),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    (decider, World::with_rules(&files, ""))
}

/// The answer does not count; later another does, for the same token.
fn assert_not_counted(bad: impl Fn() -> Step + Send + Sync + 'static) {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let (decider, world) = asking(move |call| match well.load(Ordering::SeqCst) {
        true => vec![Step::json(&call.decision("allow", &json!({})))],
        false => vec![bad()],
    });
    let token = world.mint(N1);
    let body = request(N1, &token, keys::p256_a());
    let answer = world.put(N1, &body);
    // Nobody is left waiting for the decider.
    assert!(decider.wait_until(|progress| progress.ended == 1, Duration::from_secs(20)));
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
    assert_eq!(world.rejections(N1), ["webhook_error"]);
    assert_eq!(world.events("webhook.error").len(), 1);
    assert_eq!(world.standing(&token), ("active".to_owned(), 0, 0));
    assert_eq!(world.serial(N1), None);
    is_well.store(true, Ordering::SeqCst);
    let answer = world.put(N1, &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(world.standing(&token), ("issued".to_owned(), 1, 0));
}

#[test]
fn a17_a_silent_webhook_leaves_the_token_alone() {
    assert_not_counted(|| Step::Hang);
}

#[test]
fn a18_an_answer_without_echoes_does_not_count() {
    assert_not_counted(|| Step::json(&json!({"decision": "allow"})));
}

#[test]
fn a20_a21_a22_foreman_mints_again_and_validates() {
    const FOREMAN: &str = "foreman.example.com";
    let world = World::start(&format!(
        "\nforeman: {{listen: \"127.0.0.1:0\", trusted_hosts: [{FOREMAN}]}}\n"
    ));
    let site = &world.governed.site;
    assert_eq!(site.ask(FOREMAN).status, 200);
    assert_eq!(site.put_state(FOREMAN, "signed").status, 204);
    let certificate = site.certificate(FOREMAN).body;
    let port = site.server.addresses.foreman_port().unwrap();
    let identity = (&certificate[..], keys::p256_a().pkcs8_pem().as_bytes());
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let foreman = HttpsClient::new(address, &site.puppet_ca(), Some(identity)).unwrap();
    let mint = || {
        let path = format!("/puppet/ca/autosign/{N1}");
        let answer = foreman.call("POST", &path, &[], b"").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let minted: Value = serde_json::from_slice(&answer.body).unwrap();
        TokenText::parse(minted["generated_token"].as_str().unwrap()).unwrap()
    };
    let (first, second) = (mint(), mint());
    let refused = world.put(N1, &request(N1, &first, keys::p256_b()));
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(world.rejections(N1), ["token_revoked"]);
    assert_eq!(world.events("token.superseded").len(), 1);

    let validate = |name: &str| {
        let csr = CsrBuilder::new(name).challenge_password(second.expose());
        let body = csr.sign_pem(keys::p256_b());
        let answer = foreman.call("POST", "/puppet/ca/validate", &[], body.as_bytes());
        let answer = answer.unwrap();
        (answer.status, answer.text())
    };
    assert_eq!(validate("n2.example.com").0, 404);
    assert_eq!(validate(N1), (200, String::new()));
    assert_eq!(validate(N1), (200, String::new()));
    assert_eq!(world.standing(&second).1, 1);
    assert_eq!(world.events("token.consumed").len(), 1);
}

#[test]
fn a24_nobody_reads_a_request_that_waits_with_its_token() {
    let world = World::start(", on_token_reject: pend");
    let token = world.mint("n2.example.com");
    let answer = world.put(N1, &request(N1, &token, keys::p256_a()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(world.serial(N1), None);
    let path = format!("{PUPPET}/certificate_request/{N1}");
    let site = &world.governed.site;
    let nobody = site.anonymous().call("GET", &path, &[], b"").unwrap();
    assert_eq!(nobody.status, 403, "{}", nobody.text());
    assert!(!nobody.text().contains("BEGIN"), "{}", nobody.text());
    // An administrator reads it, and not the secret in it.
    let admin = site.admin().call("GET", &path, &[], b"").unwrap();
    assert_eq!(admin.status, 200, "{}", admin.text());
    let block = pem::decode_first(&admin.body, &pem::PemLimits::REQUEST);
    let der = block.unwrap().unwrap().der;
    let secret = token.expose().split('.').nth(2).unwrap().as_bytes();
    assert!(!der.windows(secret.len()).any(|part| part == secret));
}
