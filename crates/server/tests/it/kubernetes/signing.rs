//! `/status`: what signers elsewhere write, and what becomes of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_authority::{RequestState, TokenOrder};
use countersign_pki::{AltName, oid, pem};
use countersign_testkit::chain::{Ca, Leaf};
use countersign_testkit::{der, keys};
use serde_json::{Value, json};

use super::{Api, Reply, approval_of, bytes, condition_types, manifest, path_of, with_condition};
use crate::world::{Forged, START};

fn status_of(object: &Value) -> String {
    format!("{}/status", path_of(object))
}

/// A certificate of an authority that nobody here knows.
fn leaf(serial: u64) -> Vec<u8> {
    let ca = Ca::root("Elsewhere", keys::p256_b(), START);
    let leaf = Leaf {
        common_name: "jane",
        names: &[AltName::Dns("jane".to_owned())],
        usage: oid::EKU_CLIENT_AUTH,
        key: keys::p256_a(),
        serial,
        now: START,
    };
    ca.leaf(&leaf).der().to_vec()
}

pub(super) fn one(serial: u64) -> String {
    pem::encode("CERTIFICATE", &leaf(serial))
}

pub(super) fn certified(object: &Value, text: &str) -> Value {
    let mut object = object.clone();
    object["status"]["certificate"] = json!(STANDARD.encode(text));
    object
}

/// A manifest for a signer that is not served here.
pub(super) fn elsewhere(name: &str) -> Value {
    let mut object = manifest(name);
    object["spec"]["signerName"] = json!("example.org/vpn");
    object
}

impl Api {
    pub(super) async fn put_status(&self, object: &Value) -> Reply {
        let call = self.call("PUT", &status_of(object));
        call.json(object).send().await
    }

    async fn actions(&self, name: &str) -> Vec<String> {
        let audit = self
            .world
            .authority
            .audit
            .after(Default::default(), 10_000)
            .await;
        let entries = audit.unwrap().into_iter().map(|(_, entry)| entry);
        let about = format!("kubernetes/{name}");
        let of_name = entries.filter(|entry| entry.subject == about);
        of_name.map(|entry| entry.action.to_string()).collect()
    }

    async fn has_nothing_in_the_ledger(&self, common_name: &str) -> bool {
        let issuer = self.world.kubernetes_issuer();
        let newest = self.world.authority.ledger.newest(&issuer, common_name);
        newest.await.unwrap().is_none()
    }
}

#[tokio::test]
async fn an_outside_signer_certifies_and_the_ledger_knows_nothing_of_it() {
    let api = Api::start().await;
    let created = api.create(&elsewhere("vpn")).await;
    let approved = api.decide(&created, "Approved").await.ok();
    let text = format!("leaf\n{}the rest\n{}", one(2), one(3));
    let issued = api.put_status(&certified(&approved, &text)).await.ok();
    assert_eq!(bytes(&issued["status"]["certificate"]), text.as_bytes());
    assert_eq!(condition_types(&issued), ["Approved"]);
    assert_ne!(
        issued["metadata"]["resourceVersion"],
        approved["metadata"]["resourceVersion"]
    );
    for path in [path_of(&issued), status_of(&issued), approval_of(&issued)] {
        assert_eq!(api.get(&path).await.ok(), issued, "{path}");
    }
    let record = api.record("vpn").await.unwrap();
    assert_eq!(record.state, RequestState::Issued);
    assert_eq!(record.certificate, None);
    assert!(api.has_nothing_in_the_ledger("jane").await);
    assert_eq!(
        api.actions("vpn").await,
        ["request", "approve", "certify"],
        "{record:?}"
    );
    let table = api
        .call("GET", super::CSRS)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .send()
        .await
        .ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.last().unwrap(), "Approved,Issued");
}

#[tokio::test]
async fn a_patch_certifies_as_well() {
    let api = Api::start().await;
    let text = STANDARD.encode(one(2));
    for (index, (kind, patch)) in [
        (
            "application/merge-patch+json",
            json!({"status": {"certificate": text}}),
        ),
        (
            "application/strategic-merge-patch+json",
            json!({"status": {"certificate": text}}),
        ),
        (
            "application/json-patch+json",
            json!([{"op": "add", "path": "/status/certificate", "value": text}]),
        ),
    ]
    .iter()
    .enumerate()
    {
        // Whoever signs it: one of our own signers too.
        let created = api.create(&manifest(&format!("patch-{index}"))).await;
        let call = api.call("PATCH", &status_of(&created));
        let issued = call.body(kind, patch.to_string()).send().await.ok();
        assert_eq!(issued["status"], json!({"certificate": text}), "{kind}");
    }
    assert!(api.has_nothing_in_the_ledger("jane").await);
}

/// Rules K1 to K6, each with its cause.
#[tokio::test]
async fn certificates_follow_these_rules() {
    let api = Api::start().await;
    let created = api.create(&elsewhere("rules")).await;
    let block = |der: &[u8]| pem::encode("CERTIFICATE", der);
    let headers = one(2).replace(
        "-----BEGIN CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\na: b\n\n",
    );
    let request = pem::encode("CERTIFICATE REQUEST", &leaf(2));
    let mut trailing = leaf(2);
    trailing.push(0);
    let many = one(2).repeat(101);
    let rows = [
        (
            "K3 no PEM",
            "no PEM".to_owned(),
            "must contain at least one CERTIFICATE PEM block",
        ),
        (
            "K3 one space",
            " ".to_owned(),
            "must contain at least one CERTIFICATE PEM block",
        ),
        (
            "K4 label",
            request.clone(),
            "only CERTIFICATE PEM blocks are allowed, found \"CERTIFICATE REQUEST\"",
        ),
        (
            "K4 second label",
            format!("{}{request}", one(2)),
            "only CERTIFICATE PEM blocks are allowed, found \"CERTIFICATE REQUEST\"",
        ),
        ("K5 headers", headers, "no PEM block headers are permitted"),
        (
            "K6 nothing",
            block(b""),
            "found CERTIFICATE PEM block containing 0 certificates",
        ),
        ("K6 not DER", block(b"x"), "certificate"),
        (
            "K6 something else",
            block(&der::seq(&[b"\x05\x00"])),
            "tbsCertificate",
        ),
        ("K6 trailing", block(&trailing), "certificate"),
        (
            "K6 second block",
            format!("{}{}", one(2), block(b"x")),
            "certificate",
        ),
        (
            "broken armour",
            one(2).replace("-----END CERTIFICATE-----", ""),
            "no matching END",
        ),
        ("too many", many, "PEM text has more than 100 blocks"),
        (
            "too many in one",
            block(&leaf(2).repeat(101)),
            "there are more than 100 certificates",
        ),
    ];
    for (row, text, words) in rows {
        let reply = api.put_status(&certified(&created, &text)).await;
        println!("{row}");
        reply.names(&[("status.certificate", "FieldValueInvalid")]);
        let message = reply.value()["details"]["causes"][0]["message"].clone();
        let message = message.as_str().unwrap();
        assert!(
            message.starts_with("Invalid value: \"<certificate data>\": "),
            "{row}: {message}"
        );
        assert!(message.contains(words), "{row}: {message}");
    }
    assert_eq!(api.get(&path_of(&created)).await.ok(), created);
    // K1: elsewhere it is put back.
    let sly = certified(&created, &one(2));
    for path in [path_of(&created), approval_of(&created)] {
        assert_eq!(api.call("PUT", &path).json(&sly).send().await.ok(), created);
    }
    // One block may hold several.
    let several = format!("# two\n{}# and one\n{}", block(&leaf(2).repeat(2)), one(4));
    let issued = api.put_status(&certified(&created, &several)).await.ok();
    // K2: once.
    for text in [one(9), String::new()] {
        let reply = api.put_status(&certified(&issued, &text)).await;
        reply.names(&[("status.certificate", "FieldValueForbidden")]);
        let message = reply.value()["message"].clone();
        let words = "updates may not modify existing certificate content";
        assert!(message.as_str().unwrap().contains(words), "{message}");
    }
    assert_eq!(api.get(&path_of(&created)).await.ok(), issued);
}

/// What Go reads and the strict reader of requests would not: the sample in Kubernetes' own documentation is such a one.
#[tokio::test]
async fn odd_names_in_a_certificate_are_its_signers_business() {
    let api = Api::start().await;
    let issuer = api.world.kubernetes_issuer();
    let odd = api
        .world
        .forge(&issuer, keys::p256_a(), &Forged::client(""))
        .await;
    assert!(countersign_pki::Certificate::parse(&odd).is_err());
    let created = api.create(&elsewhere("odd")).await;
    let text = pem::encode("CERTIFICATE", &odd);
    api.put_status(&certified(&created, &text)).await.ok();
}

/// Rules C1 to C8 and what is put back, at `/status`.
#[tokio::test]
async fn conditions_at_status_follow_these_rules() {
    let api = Api::start().await;
    let fresh = api.create(&elsewhere("fresh")).await;
    let created = api.create(&elsewhere("decided")).await;
    let approved = api.decide(&created, "Approved").await.ok();
    let decision = approved["status"]["conditions"][0].clone();
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
    let rows = [
        (
            "C1",
            &fresh,
            vec![condition("", "True")],
            vec![("status.conditions[0].type", "FieldValueRequired")],
        ),
        (
            "C2",
            &fresh,
            vec![condition("Failed", "")],
            vec![("status.conditions[0].status", "FieldValueRequired")],
        ),
        (
            "C3",
            &fresh,
            vec![condition("Failed", "False")],
            vec![("status.conditions[0].status", "FieldValueNotSupported")],
        ),
        (
            "C4",
            &fresh,
            vec![condition("Seen", "Yes")],
            vec![("status.conditions[0].status", "FieldValueNotSupported")],
        ),
        (
            "C5 and C8",
            &approved,
            vec![decision.clone(), condition("Denied", "True")],
            vec![
                ("status.conditions", "FieldValueInvalid"),
                ("status.conditions", "FieldValueForbidden"),
            ],
        ),
        (
            "C6",
            &fresh,
            vec![condition("Seen", "True"), condition("Seen", "False")],
            vec![("status.conditions[1].type", "FieldValueDuplicate")],
        ),
        (
            "C7",
            &approved,
            vec![],
            vec![("status.conditions", "FieldValueForbidden")],
        ),
        (
            "C8 approve",
            &fresh,
            vec![condition("Approved", "True")],
            vec![("status.conditions", "FieldValueForbidden")],
        ),
        (
            "C8 deny",
            &fresh,
            vec![condition("Denied", "True")],
            vec![("status.conditions", "FieldValueForbidden")],
        ),
        (
            "C7 and C8",
            &approved,
            vec![condition("Denied", "True")],
            vec![
                ("status.conditions", "FieldValueForbidden"),
                ("status.conditions", "FieldValueForbidden"),
            ],
        ),
    ];
    for (row, object, conditions, causes) in rows {
        let mut written = object.clone();
        written["status"]["conditions"] = json!(conditions);
        println!("{row}");
        api.put_status(&written).await.names(&causes);
        assert_eq!(api.get(&path_of(object)).await.ok(), *object, "{row}");
    }
    let mut edited = approved.clone();
    edited["status"]["conditions"][0]["message"] = json!("mine");
    assert_eq!(api.put_status(&edited).await.ok(), approved, "put back");
    edited["status"]["conditions"] = json!([condition("Seen", "Unknown"), decision]);
    let seen = api.put_status(&edited).await.ok();
    assert_eq!(condition_types(&seen), ["Seen", "Approved"]);
    assert_eq!(
        seen["status"]["conditions"][0]["lastUpdateTime"],
        "2026-01-02T03:04:05Z"
    );
    let mut without = seen.clone();
    without["status"]["conditions"] = json!([decision]);
    assert_eq!(
        condition_types(&api.put_status(&without).await.ok()),
        ["Approved"]
    );
    assert_eq!(api.state("decided").await, RequestState::Approved);
}

#[tokio::test]
async fn what_is_marked_as_failed_is_never_signed() {
    let api = Api::start().await;
    for (name, path) in [("by-status", "status"), ("by-approval", "approval")] {
        let created = api.create(&manifest(name)).await;
        let path = format!("{}/{path}", path_of(&created));
        let failed = with_condition(&created, "Failed");
        let failed = api.call("PUT", &path).json(&failed).send().await.ok();
        assert_eq!(condition_types(&failed), ["Failed"], "{name}");
        assert_eq!(api.state(name).await, RequestState::Failed, "{name}");
        // The approval is kept and on the audit log, and changes nothing.
        let approved = api.decide(&failed, "Approved").await.ok();
        assert_eq!(condition_types(&approved), ["Failed", "Approved"], "{name}");
        assert_eq!(approved["status"].get("certificate"), None, "{name}");
        assert_eq!(api.actions(name).await, ["request", "fail", "approve"]);
        let record = api.record(name).await.unwrap();
        assert_eq!(record.failure.as_deref(), Some("by hand"), "{name}");
        let mut undone = approved.clone();
        undone["status"]["conditions"] = json!([approved["status"]["conditions"][1]]);
        let reply = api.call("PUT", &path).json(&undone).send().await;
        reply.names(&[("status.conditions", "FieldValueForbidden")]);
    }
    let created = api.create(&manifest("at-once")).await;
    let both = with_condition(&with_condition(&created, "Failed"), "Approved");
    let call = api.call("PUT", &approval_of(&created)).json(&both);
    assert_eq!(
        condition_types(&call.send().await.ok()),
        ["Failed", "Approved"]
    );
    assert_eq!(api.state("at-once").await, RequestState::Failed);
    assert_eq!(api.actions("at-once").await, ["request", "approve", "fail"]);
    assert!(api.has_nothing_in_the_ledger("jane").await);
}

#[tokio::test]
async fn decisions_on_what_is_certified_are_kept_and_decide_nothing() {
    let api = Api::start().await;
    for (kind, action) in [("Approved", "approve"), ("Denied", "deny")] {
        let name = kind.to_lowercase();
        let created = api.create(&manifest(&name)).await;
        let issued = api.put_status(&certified(&created, &one(2))).await.ok();
        assert_eq!(condition_types(&issued), Vec::<&str>::new());
        let decided = api.decide(&issued, kind).await.ok();
        assert_eq!(condition_types(&decided), [kind]);
        assert_eq!(
            decided["status"]["certificate"],
            issued["status"]["certificate"]
        );
        assert_eq!(api.state(&name).await, RequestState::Issued);
        assert_eq!(api.actions(&name).await, ["request", "certify", action]);
    }
    // Neither is a certificate forbidden on what is denied, nor does it lift the denial.
    let created = api.create(&manifest("late")).await;
    let denied = api.decide(&created, "Denied").await.ok();
    let issued = api.put_status(&certified(&denied, &one(2))).await.ok();
    assert_eq!(condition_types(&issued), ["Denied"]);
    assert_eq!(api.state("late").await, RequestState::Denied);
    assert!(api.has_nothing_in_the_ledger("jane").await);
}

#[tokio::test]
async fn what_a_rule_approved_keeps_its_condition_when_somebody_else_certifies_it() {
    let api = Api::approving(&["example.org/vpn"]).await;
    let created = api.create(&elsewhere("ruled")).await;
    assert_eq!(condition_types(&created), ["Approved"]);
    let issued = api.put_status(&certified(&created, &one(2))).await.ok();
    assert_eq!(
        issued["status"]["conditions"],
        created["status"]["conditions"]
    );
    let reply = api.put_status(&certified(&issued, &one(3))).await;
    reply.names(&[("status.certificate", "FieldValueForbidden")]);
}

#[tokio::test]
async fn our_certificate_is_not_replaced_and_may_be_called_failed() {
    let api = Api::start().await;
    let created = api.create(&manifest("ours")).await;
    let issued = api.decide(&created, "Approved").await.ok();
    let reply = api.put_status(&certified(&issued, &one(2))).await;
    reply.names(&[("status.certificate", "FieldValueForbidden")]);
    let failed = api
        .put_status(&with_condition(&issued, "Failed"))
        .await
        .ok();
    assert_eq!(condition_types(&failed), ["Approved", "Failed"]);
    assert_eq!(
        failed["status"]["certificate"],
        issued["status"]["certificate"]
    );
    assert_eq!(api.state("ours").await, RequestState::Issued);
}

#[tokio::test]
async fn of_many_signers_at_once_one_certifies() {
    let api = Api::start().await;
    let created = api.create(&manifest("race")).await;
    let mut blind = created.clone();
    blind["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let (status, approval) = (status_of(&created), approval_of(&created));
    let theirs: Vec<Value> = (2..10).map(|n| certified(&blind, &one(n))).collect();
    let ours = with_condition(&blind, "Approved");
    let calls = theirs
        .iter()
        .map(|body| api.call("PUT", &status).json(body).send());
    let approving = api.call("PUT", &approval).json(&ours).send();
    let (replies, approved) = tokio::join!(futures_util::future::join_all(calls), approving);
    let shown = api.get(&path_of(&created)).await.ok();
    let mut winners = 0;
    for (body, reply) in theirs.iter().zip(&replies) {
        match reply.status.as_u16() {
            200 => {
                winners += 1;
                assert_eq!(
                    body["status"]["certificate"],
                    shown["status"]["certificate"]
                );
            }
            409 | 422 => {}
            other => panic!("{other} {reply:?}"),
        }
    }
    assert!(
        matches!(approved.status.as_u16(), 200 | 409),
        "{approved:?}"
    );
    let is_theirs = api.record("race").await.unwrap().certificate.is_none();
    assert_eq!(winners, usize::from(is_theirs));
    assert_eq!(api.has_nothing_in_the_ledger("jane").await, is_theirs);
}

/// First what is stale, then what is invalid; nothing is written that changes nothing.
#[tokio::test]
async fn faults_come_in_order_and_nothing_new_is_nothing_written() {
    let api = Api::start().await;
    let created = api.create(&elsewhere("order")).await;
    let labelled = r#"{"metadata":{"labels":{"a":"b"}}}"#;
    let call = api.call("PATCH", &path_of(&created));
    let newer = call.body("application/merge-patch+json", labelled);
    let newer = newer.send().await.ok();
    let stale = certified(&created, "nonsense");
    api.put_status(&stale).await.refuses(409, "Conflict");
    let mut renamed = stale.clone();
    renamed["metadata"]["name"] = json!("other");
    let call = api.call("PUT", &status_of(&created)).json(&renamed);
    call.send().await.refuses(400, "BadRequest");
    let mut recreated = certified(&newer, "nonsense");
    recreated["metadata"]["uid"] = json!("7");
    api.put_status(&recreated).await.refuses(409, "Conflict");
    api.put_status(&certified(&newer, "nonsense"))
        .await
        .refuses(422, "Invalid");
    let absent = certified(&newer, &one(2));
    let call = api.call("PUT", &format!("{}/absent/status", super::CSRS));
    let mut unnamed = absent.clone();
    unnamed["metadata"]["name"] = json!("absent");
    call.json(&unnamed).send().await.refuses(404, "NotFound");
    assert_eq!(api.put_status(&newer).await.ok(), newer, "no new version");
    let dry = format!("{}?dryRun=All", status_of(&newer));
    let pretended = api.call("PUT", &dry).json(&absent).send().await.ok();
    assert_eq!(
        pretended["status"]["certificate"],
        absent["status"]["certificate"]
    );
    assert_eq!(api.get(&path_of(&newer)).await.ok(), newer);
    assert_eq!(api.actions("order").await, ["request"]);
}

#[tokio::test]
async fn a_token_beside_a_certificate_is_refused() {
    let api = Api::start().await;
    api.world.enable_tokens();
    let order = TokenOrder::exact("jane");
    let minted = api.world.mint(order).await;
    let created = api.create(&elsewhere("leaky")).await;
    let text = format!("{}\n{}", minted.token.expose(), one(2));
    let reply = api.put_status(&certified(&created, &text)).await;
    reply.names(&[("status.certificate", "FieldValueForbidden")]);
    assert_eq!(api.get(&path_of(&created)).await.ok(), created);
}
