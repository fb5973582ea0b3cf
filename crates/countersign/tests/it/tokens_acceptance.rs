//! The acceptance cases of enrolment tokens at the real program, over HTTPS: answers, records and events.
//!
//! [`CASES`] has every case with the test that shows it, here or where the program would add nothing.

mod faults;
mod table;

use countersign_authority::TokenText;
use countersign_keys::LeafKey;
use countersign_pki::{
    Attribute, RawValue, StringKind, SubjectBuilder, fingerprint_sha256, oid, pem,
};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::https::{Answer, HttpsClient};
use countersign_testkit::keys;
use serde_json::{Value, json};

use crate::governed::{AGENTS, Governed, policy};
use crate::site::{JSON, put_request, read_certificate};

const N1: &str = "n1.example.com";
const RULE: &str = "    - {name: token, approve: {token: {}}}\n";

/// An authority where tokens decide.
struct World {
    governed: Governed,
}

impl World {
    fn start(more: &str) -> Self {
        Self::with_rules(&[("agents.yaml", &policy("agents", AGENTS, RULE))], more)
    }

    /// `more` stands in the section `tokens`, and behind a line end beside it.
    fn with_rules(files: &[(&str, &str)], more: &str) -> Self {
        let (tokens, more) = more.split_once('\n').unwrap_or((more, ""));
        let config = format!(
            "tokens: {{enabled: true{tokens}}}\n\
             limits: {{token_failures_per_10_minutes: 0, csr_per_minute_per_certname: 0}}\n{more}"
        );
        Self {
            governed: Governed::start(files, &config),
        }
    }

    fn order(&self, order: &Value) -> TokenText {
        let admin = self.governed.site.admin();
        let body = order.to_string();
        let minted = admin.call("POST", "/enrol/v1/tokens", &[JSON], body.as_bytes());
        let minted = minted.unwrap();
        assert_eq!(minted.status, 201, "{}", minted.text());
        let minted: Value = serde_json::from_slice(&minted.body).unwrap();
        TokenText::parse(minted["token"].as_str().unwrap()).unwrap()
    }

    fn mint(&self, name: &str) -> TokenText {
        self.order(&json!({"certname": name}))
    }

    fn put(&self, name: &str, request: &str) -> Answer {
        put_request(&self.governed.site.anonymous(), name, request)
    }

    /// `token show`.
    fn token(&self, token: &TokenText) -> Value {
        self.governed.get(&format!("/tokens/{}", token.id()))
    }

    /// Status, uses, and failures of which the secret was right.
    fn standing(&self, token: &TokenText) -> (String, u64, u64) {
        let token = self.token(token);
        let number = |name: &str| token[name].as_u64().unwrap();
        let status = token["status"].as_str().unwrap().to_owned();
        (status, number("uses"), number("failed_uses"))
    }

    /// The reasons of what was rejected of a name, oldest first.
    fn rejections(&self, name: &str) -> Vec<String> {
        let listed = self.governed.get(&format!("/rejections?certname={name}"));
        let items = listed["items"].as_array().unwrap().iter().rev();
        items
            .map(|item| item["reason"].as_str().unwrap().to_owned())
            .collect()
    }

    /// What `audit export` says of an event.
    fn events(&self, event: &str) -> Vec<Value> {
        let text = self.governed.well(&["audit", "export"]);
        let lines = text.lines().filter(|line| line.starts_with('{'));
        let entries = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.filter(|entry| entry["event"] == event).collect()
    }

    /// The serial of the certificate that a name has now.
    fn serial(&self, name: &str) -> Option<String> {
        let answer = self.governed.site.certificate(name);
        match answer.status {
            404 => None,
            _ => Some(read_certificate(answer.body).serial().to_string()),
        }
    }
}

fn request(name: &str, token: &TokenText, key: &keys::Key) -> String {
    let csr = CsrBuilder::new(name).challenge_password(token.expose());
    csr.sign_pem(key)
}

/// A request of a key that nobody else has, encoded as agents do.
fn request_of(key: &LeafKey, name: &str, token: &TokenText) -> String {
    let subject = SubjectBuilder::new().push(oid::COMMON_NAME, name, StringKind::Utf8);
    let text = token.expose().as_bytes();
    let value = [&[0x13, u8::try_from(text.len()).unwrap()], text].concat();
    let password = Attribute {
        oid: oid::CHALLENGE_PASSWORD,
        values: vec![RawValue::from_der(&value).unwrap()],
    };
    let der = key.signed_request(&subject.build(), &[], &[password]);
    pem::encode("CERTIFICATE REQUEST", &der.unwrap())
}

#[test]
fn a01_a02_a03_one_key_enrols_and_may_ask_again_and_no_other() {
    let world = World::start("");
    let token = world.mint(N1);
    let id = token.id().as_str();
    let answer = world.put(N1, &request(N1, &token, keys::p256_a()));
    assert_eq!((answer.status, answer.text().as_str()), (200, ""));
    let serial = world.serial(N1).unwrap();
    assert_eq!(world.standing(&token), ("issued".to_owned(), 1, 0));
    let consumed = world.events("token.consumed");
    let key = fingerprint_sha256(keys::p256_a().spki_der()).to_hex();
    assert_eq!(consumed.len(), 1, "{consumed:?}");
    for (field, value) in [("token_id", id), ("serial", &serial), ("spki_sha256", &key)] {
        assert_eq!(consumed[0][field], value, "{consumed:?}");
    }

    let again = world.put(N1, &request(N1, &token, keys::p256_a()));
    assert_eq!(again.status, 200, "{}", again.text());
    assert_eq!(world.serial(N1).as_ref(), Some(&serial));
    assert_eq!(world.standing(&token), ("issued".to_owned(), 1, 0));
    let retried = world.events("token.retry");
    assert_eq!(retried.len(), 1, "{retried:?}");
    assert_eq!(retried[0]["serial"], serial.as_str());

    let other = world.put(N1, &request(N1, &token, keys::p256_b()));
    assert_eq!(other.status, 403, "{}", other.text());
    assert_eq!(world.rejections(N1), ["token_key_mismatch"]);
    assert_eq!(world.serial(N1).as_ref(), Some(&serial));
    let rejected = world.events("token.rejected");
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    assert_eq!(rejected[0]["reason"], "token_key_mismatch");
    let log = world.governed.site.server.log();
    let is_loud = |line: &&str| line.contains(" WARN ") && line.contains(id);
    assert!(log.lines().any(|line| is_loud(&line)), "{log}");
}

/// A request that could never be signed says as much about its token as any other.
#[test]
fn a_wrong_token_in_a_request_that_cannot_be_signed_is_counted_and_recorded() {
    let world = World::start("");
    let token = world.mint(N1);
    let wide = |token: &TokenText, key| {
        let csr = CsrBuilder::new("n2.example.com").dns("other.example.com");
        csr.challenge_password(token.expose()).sign_pem(key)
    };
    // The right secret, for another name.
    world.put("n2.example.com", &wide(&token, keys::p256_b()));
    let rejected = world.events("token.rejected");
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    assert_eq!(rejected[0]["reason"], "token_certname_mismatch");
    assert_eq!(world.standing(&token), ("active".to_owned(), 0, 1));
}

#[test]
fn a06_many_keys_at_once_get_one_certificate() {
    let world = World::start("");
    let token = world.mint(N1);
    let requests: Vec<_> = (0..MANY)
        .map(|_| request_of(&LeafKey::generate().unwrap(), N1, &token))
        .collect();
    let statuses = at_once(&world, &requests);
    let signed = statuses.iter().filter(|status| **status == 200).count();
    let rejected = statuses.iter().filter(|status| **status == 403).count();
    assert_eq!((signed, rejected), (1, MANY - 1), "{statuses:?}");
    assert_eq!(world.events("token.consumed").len(), 1);
    assert_eq!(world.standing(&token).1, 1);
    assert!(world.serial(N1).is_some());
}

#[test]
fn a07_one_key_many_times_at_once_gets_one_serial() {
    let world = World::start("");
    let token = world.mint(N1);
    let requests = vec![request(N1, &token, keys::p256_a()); MANY];
    let statuses = at_once(&world, &requests);
    assert!(statuses.contains(&200), "{statuses:?}");
    // Those who come while the first is being signed are told to come again, and then have it.
    assert!(statuses.iter().all(|status| [200, 503].contains(status)));
    assert_eq!(at_once(&world, &requests[..1]), [200]);
    assert_eq!(world.events("token.consumed").len(), 1);
    assert_eq!(world.standing(&token), ("issued".to_owned(), 1, 0));
    assert_eq!(
        world.token(&token)["use_rows"][0]["serial"],
        world.serial(N1).unwrap().as_str()
    );
}

/// Sends requests for one name on connections of their own; the statuses.
fn at_once(world: &World, requests: &[String]) -> Vec<u16> {
    let client = &world.governed.site.anonymous();
    std::thread::scope(|scope| {
        let running: Vec<_> = requests
            .iter()
            .map(|request| scope.spawn(move || send(client, request)))
            .collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn send(client: &HttpsClient, request: &str) -> u16 {
    let answer = put_request(client, N1, request);
    if answer.status == 503 {
        assert!(answer.header("retry-after").is_some(), "{}", answer.text());
    }
    answer.status
}

#[test]
fn every_case_has_a_test() {
    let numbers: Vec<_> = CASES.iter().map(|(number, _, _)| *number).collect();
    assert_eq!(numbers, (1..=26).collect::<Vec<_>>());
    for (number, source, test) in CASES {
        let defined = format!("fn {test}()");
        let listed = format!("case: {test}\n");
        assert!(
            source.contains(&defined) || source.contains(&listed),
            "A{number:02}: there is no {test}"
        );
    }
}

const MANY: usize = 50;

const HERE: &str = include_str!("tokens_acceptance.rs");
const TABLE: &str = include_str!("../data/token-acceptance.yaml");
const FAULTS: &str = include_str!("tokens_acceptance/faults.rs");
const SECRECY: &str = include_str!("tokens_secrecy.rs");
const FOREMAN: &str = include_str!("foreman/smart_proxy.rs");

/// The cases by number, and where they are shown.
const CASES: [(u32, &str, &str); 26] = [
    (
        1,
        HERE,
        "a01_a02_a03_one_key_enrols_and_may_ask_again_and_no_other",
    ),
    (
        2,
        HERE,
        "a01_a02_a03_one_key_enrols_and_may_ask_again_and_no_other",
    ),
    (
        3,
        HERE,
        "a01_a02_a03_one_key_enrols_and_may_ask_again_and_no_other",
    ),
    (4, TABLE, "A04"),
    (5, TABLE, "A05"),
    (6, HERE, "a06_many_keys_at_once_get_one_certificate"),
    (7, HERE, "a07_one_key_many_times_at_once_gets_one_serial"),
    (8, TABLE, "A08"),
    (9, TABLE, "A09"),
    (10, TABLE, "A10"),
    (11, FAULTS, "a11_openssl_writes_it_in_two_string_types"),
    (12, TABLE, "A12"),
    (13, TABLE, "A13"),
    (14, FAULTS, "a14_unknown_and_wrong_are_answered_alike"),
    (15, FAULTS, "a15_a_store_that_is_down_uses_nothing_up"),
    (16, FAULTS, "a16_a_crash_at_any_moment_enrols_once"),
    (17, FAULTS, "a17_a_silent_webhook_leaves_the_token_alone"),
    (18, FAULTS, "a18_an_answer_without_echoes_does_not_count"),
    (19, FOREMAN, "a_host_is_built_and_built_again"),
    (20, FAULTS, "a20_a21_a22_foreman_mints_again_and_validates"),
    (21, FAULTS, "a20_a21_a22_foreman_mints_again_and_validates"),
    (22, FAULTS, "a20_a21_a22_foreman_mints_again_and_validates"),
    (23, TABLE, "A23"),
    (
        24,
        FAULTS,
        "a24_nobody_reads_a_request_that_waits_with_its_token",
    ),
    (
        25,
        SECRECY,
        "secrets_stay_secret_with_tokens_everywhere_and_a_log_as_text",
    ),
    (26, TABLE, "A26"),
];
