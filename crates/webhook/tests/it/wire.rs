//! What a decider sees: the question, and the signature that another program can check.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use countersign_authority::{Deciders as _, Question, QuestionToken};
use countersign_pki::{CheckedCsr, CsrLimits, oid};
use countersign_policy::{Identity, Requester, Webhook, WebhookAnswer, Wishes};
use countersign_testkit::csr::{CsrBuilder, TOKEN};
use countersign_testkit::deadline::run_with_input;
use countersign_testkit::decider::{Call, Decider, Step};
use countersign_testkit::keys;
use countersign_webhook::{Settings, Webhooks};
use serde_json::{Value, json};

use crate::world::{self, CHALLENGE, CSR, PRESHARED, REQUEST_ID, allow};

#[tokio::test]
async fn a_question_says_all_that_may_be_said() {
    let call = heard(|_| ()).await;
    assert_eq!((&*call.method, &*call.path), ("POST", "/decide?key=s3cret"));
    assert_eq!(call.header("content-type"), Some("application/json"));
    assert_eq!(call.header("x-request-id"), Some(REQUEST_ID));
    assert_eq!(call.header("x-ca-webhook-id"), Some("countersign"));
    assert_eq!(call.header("x-ca-signature"), None);
    let sent: i64 = call.header("x-ca-timestamp").unwrap().parse().unwrap();
    assert!((world::now().0 - sent).abs() < 60);
    let expected = json!({
        "version": 1,
        "request_id": REQUEST_ID,
        "attempt": 1,
        "certname": "web01.example.com",
        "source": "192.0.2.7",
        "signer": "countersign.dev/puppet-agent",
        "user": null,
        "usages": [],
        "csr": {
            "sha256": CSR.fingerprint().to_hex(),
            "spki_sha256": CSR.key_fingerprint().to_hex(),
            "key": {"alg": "ed25519", "bits": 256},
            "sans": ["DNS:web01.example.com", "IP:192.0.2.7"],
            "extensions": {"1.3.6.1.4.1.34380.1.1.2": "i-0abc"},
            "attributes": ["1.2.840.113549.1.9.7"],
            "pem": null,
        },
        "token": {"present": true, "id": null, "verified": false, "external_ref": null},
        "existing": {"certificate": null, "pending": false},
    });
    assert_eq!(call.json(), expected);
    let text = String::from_utf8(call.body).unwrap();
    assert!(
        !text.contains(CHALLENGE) && !text.contains(PRESHARED),
        "{text}"
    );
}

#[tokio::test]
async fn the_request_itself_is_sent_only_if_it_is_wanted() {
    let call = heard(|webhook| webhook.include_csr = true).await;
    assert_eq!(call.json()["csr"]["pem"], json!(CSR.to_pem()));
}

#[tokio::test]
async fn a_bare_request_has_no_token_and_what_is_not_text_is_null() {
    let der = CsrBuilder::new("web02.example.com")
        .raw_extension(
            &oid::BASIC_CONSTRAINTS,
            Some(true),
            &[0x30, 0x03, 0x01, 0x01, 0xff],
        )
        .sign(keys::rsa2048_a());
    let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
    let decider = allowing();
    let webhook = world::webhook(&decider);
    let question = Question {
        requester: &Requester {
            identity: Identity::User {
                username: "system:node:web02".to_owned(),
                groups: vec!["system:nodes".to_owned()],
                uid: String::new(),
                extra: BTreeMap::from([("scopes".to_owned(), vec!["not for others".to_owned()])]),
            },
            source: None,
        },
        wishes: &Wishes {
            usages: vec!["server auth".to_owned()],
            expiration_seconds: None,
        },
        certname: "web02.example.com",
        csr: &csr,
        certificate: Some("0a1b"),
        pending: true,
        ..world::question()
    };
    assert_eq!(world::load(&webhook).ask(&webhook, question).await, allow());
    let asked = decider.calls().first().unwrap().json();
    assert_eq!(asked["source"], Value::Null);
    let user = json!({"name": "system:node:web02", "groups": ["system:nodes"]});
    assert_eq!(asked["user"], user);
    assert_eq!(asked["usages"], json!(["server auth"]));
    assert_eq!(asked["token"]["present"], json!(false));
    assert_eq!(
        asked["existing"],
        json!({"certificate": "0a1b", "pending": true})
    );
    let described = &asked["csr"];
    assert_eq!(described["key"], json!({"alg": "rsa", "bits": 2048}));
    assert_eq!(described["extensions"], json!({"2.5.29.19": null}));
    assert_eq!(described["attributes"], json!([]));
}

/// The program of the manual agrees, and notices every change.
#[tokio::test]
async fn the_signature_is_what_the_manual_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    let secret = "4f2c9d7b0e6a1835c4f2c9d7b0e6a183";
    world::write_secret(&path, &format!("{secret}\n"));
    let call = heard(move |webhook| webhook.secret_file = Some(path.clone())).await;
    let (timestamp, signature) = (
        call.header("x-ca-timestamp").unwrap().to_owned(),
        call.header("x-ca-signature").unwrap().to_owned(),
    );
    let body = String::from_utf8(call.body).unwrap();
    let earlier = (world::now().0 - 301).to_string();
    for (what, secret, timestamp, signature, body, genuine) in [
        (
            "as sent",
            secret,
            &*timestamp,
            &*signature,
            body.clone(),
            true,
        ),
        (
            "another secret",
            "x",
            &timestamp,
            &signature,
            body.clone(),
            false,
        ),
        (
            "another time",
            secret,
            &earlier,
            &signature,
            body.clone(),
            false,
        ),
        (
            "another body",
            secret,
            &timestamp,
            &signature,
            body.replace("web01", "web02"),
            false,
        ),
        ("no signature", secret, &timestamp, "", body.clone(), false),
    ] {
        let input =
            json!({"secret": secret, "timestamp": timestamp, "signature": signature, "body": body});
        assert_eq!(is_genuine(&input), genuine, "{what}");
    }
}

#[tokio::test]
async fn the_decider_of_the_manual_decides() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, other) = (folder.path().join("secret"), folder.path().join("other"));
    world::write_secret(&secret, "4f2c9d7b0e6a1835c4f2c9d7b0e6a183\n");
    world::write_secret(&other, "00000000000000000000000000000000\n");
    let decider = PythonDecider::start(folder.path(), &secret);
    let mut webhook = world::webhook_at(([127, 0, 0, 1], decider.port).into());
    webhook.secret_file = Some(secret);
    let said = |reason: &str| reason.to_owned();
    let known = world::ask(&webhook).await;
    let expected = WebhookAnswer::Allow {
        reason: said("instance i-0abc"),
        ttl_seconds: None,
    };
    assert_eq!(known, expected);
    let question = Question {
        certname: "web09.example.com",
        ..world::question()
    };
    let unknown = world::load(&webhook).ask(&webhook, question).await;
    let expected = WebhookAnswer::Pend {
        reason: said("not in the inventory"),
    };
    assert_eq!(unknown, expected);
    webhook.secret_file = Some(other);
    let WebhookAnswer::Unavailable { reason } = world::ask(&webhook).await else {
        panic!("a false signature was believed");
    };
    assert!(reason.ends_with("answered with status 403"), "{reason}");
}

#[tokio::test]
async fn the_authority_names_itself() {
    let decider = allowing();
    let webhook = world::webhook(&decider);
    let settings = Settings {
        id: "ca-of-site-7".to_owned(),
        ..Settings::default()
    };
    let webhooks = Webhooks::load([&webhook].into_iter(), &settings).unwrap();
    assert_eq!(webhooks.ask(&webhook, world::question()).await, allow());
    let calls = decider.calls();
    let id = calls.first().unwrap().header("x-ca-webhook-id");
    assert_eq!(id, Some("ca-of-site-7"));
}

fn allowing() -> Decider {
    Decider::start(&world::guard(), |call| {
        vec![Step::json(&call.decision("allow", &json!({})))]
    })
    .unwrap()
}

/// What arrives of the usual question.
async fn heard(change: impl Fn(&mut Webhook)) -> Call {
    let decider = allowing();
    let mut webhook = world::webhook(&decider);
    change(&mut webhook);
    assert_eq!(world::ask(&webhook).await, allow());
    let mut calls = decider.calls();
    assert_eq!(calls.len(), 1);
    calls.remove(0)
}

/// Asks the check in docs/webhooks.md.
fn is_genuine(input: &Value) -> bool {
    let [check, _] = manual();
    let driver = "import json, sys
said = json.load(sys.stdin)
headers = {'X-CA-Timestamp': said['timestamp'], 'X-CA-Signature': said['signature']}
print(is_genuine(said['secret'].encode(), headers, said['body'].encode()))";
    let mut python = Command::new("python3");
    python.args(["-I", "-c", &format!("{check}\n{driver}")]);
    let finished = run_with_input(python, input.to_string().into(), AMPLE).unwrap();
    match finished.stdout.trim() {
        "True" => true,
        "False" => false,
        _ => panic!("{finished}"),
    }
}

/// The decider of docs/webhooks.md, until it is dropped.
struct PythonDecider {
    child: Child,
    port: u16,
}

impl PythonDecider {
    fn start(folder: &Path, secret: &Path) -> Self {
        let guard = world::guard();
        let (certificate, key) = (folder.join("server.pem"), folder.join("server-key.pem"));
        std::fs::write(&certificate, guard.chain.first().unwrap().to_pem()).unwrap();
        world::write_secret(&key, guard.key.pkcs8_pem());
        let mut child = Command::new("python3")
            .args(["-I", "-c", &manual().join("\n")])
            .args([&certificate, &key, secret])
            .args(["127.0.0.1", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let said = child.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("listening on port ").unwrap();
        let port = port.parse().unwrap();
        Self { child, port }
    }
}

impl Drop for PythonDecider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The programs in docs/webhooks.md.
fn manual() -> [String; 2] {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/webhooks.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let programs = manual.split("```python\n").skip(1);
    let programs = programs.map(|text| text.split("```").next().unwrap().to_owned());
    programs.collect::<Vec<_>>().try_into().unwrap()
}

const AMPLE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_token_is_named_and_not_shown() {
    let decider = allowing();
    let webhook = world::webhook(&decider);
    let token = QuestionToken {
        id: Some("aaaqeayeaudaocaj"),
        verified: true,
        external_ref: "foreman:host:42",
    };
    let question = Question {
        token: Some(token),
        ..world::question()
    };
    assert_eq!(world::load(&webhook).ask(&webhook, question).await, allow());
    let asked = decider.calls().first().unwrap().json();
    let expected = json!({
        "present": true, "id": "aaaqeayeaudaocaj", "verified": true, "external_ref": "foreman:host:42"
    });
    assert_eq!(asked["token"], expected);
}

#[tokio::test]
async fn a_token_in_the_wrong_place_is_not_passed_on() {
    let der = CsrBuilder::new("web02.example.com")
        .name(&oid::ORGANIZATIONAL_UNIT, 0x0c, TOKEN.as_bytes())
        .dns(TOKEN)
        .dns("ott1.example.com")
        .extension(&oid::registered_oid("pp_role").unwrap(), TOKEN)
        .sign(keys::ed25519());
    let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
    let secret = TOKEN.split('.').nth(2).unwrap();
    for (certname, shown) in [
        (TOKEN, "ott1.aaaqeayeaudaocaj.…"),
        (
            "ott1.infrastructure.example.com",
            "ott1.infrastructure.example.com",
        ),
    ] {
        let decider = allowing();
        let webhook = world::webhook(&decider);
        let question = Question {
            certname,
            csr: &csr,
            ..world::question()
        };
        assert_eq!(world::load(&webhook).ask(&webhook, question).await, allow());
        let call = decider.calls().remove(0);
        let asked = call.json();
        assert_eq!(asked["certname"], json!(shown));
        let sans = json!(["DNS:ott1.aaaqeayeaudaocaj.…", "DNS:ott1.example.com"]);
        assert_eq!(asked["csr"]["sans"], sans);
        let text = String::from_utf8(call.body).unwrap();
        assert!(!text.contains(&secret[..8]), "{text}");
    }
}
