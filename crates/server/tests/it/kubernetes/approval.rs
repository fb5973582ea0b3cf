//! Deciding: what an approval signs, and what may not be written.

use countersign_authority::Actor;
use countersign_authority::grant::Grant;
use countersign_authority::{Act, ActFault, OnUnsignable, RequestState};
use countersign_kapi::{CertificateSigningRequest, protobuf};
use countersign_pki::{Certificate, pem};
use countersign_policy::{Deciding, Identity, Requester};
use countersign_server::kubernetes::DOOR;
use countersign_testkit::csr::CsrBuilder;
use serde_json::{Value, json};

use super::{
    Api, approval_of, bytes, condition_types, manifest, manifest_of, path_of, with_condition,
};

fn certificate(object: &Value) -> Certificate {
    let blocks = pem::decode_all(
        &bytes(&object["status"]["certificate"]),
        &pem::PemLimits::REQUEST,
    )
    .unwrap();
    assert_eq!(blocks.len(), 1, "the leaf alone");
    Certificate::parse(&blocks[0].der).unwrap()
}

#[tokio::test]
async fn an_approval_signs_before_it_is_answered() {
    let api = Api::start().await;
    let mut sent = manifest_of(
        "jane",
        &CsrBuilder::new("jane").organization("b").organization("a"),
    );
    sent["spec"]["expirationSeconds"] = json!(3600);
    let created = api.create(&sent).await;
    api.world.clock.advance(60);
    let approved = api.decide(&created, "Approved").await.ok();
    assert_eq!(
        approved["status"]["conditions"],
        json!([{"type": "Approved", "status": "True", "reason": "KubectlApproved", "message": "by hand",
            "lastUpdateTime": "2026-01-02T03:00:00Z", "lastTransitionTime": "2026-01-02T03:05:05Z"}])
    );
    assert_eq!(api.get(&path_of(&created)).await.ok(), approved);
    assert_ne!(
        approved["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    let leaf = certificate(&approved);
    let issuer = api
        .world
        .authority
        .issuers
        .get(&api.world.kubernetes_issuer())
        .unwrap();
    leaf.verify_signed_by(issuer.certificate().spki_der())
        .unwrap();
    assert_eq!(
        leaf.subject().organizations().collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!(
        leaf.not_after(),
        api.world.authority.now().plus_seconds(3600)
    );
    let record = api.record("jane").await.unwrap();
    assert!(
        record.explanation.to_string().contains("kubernetes-admin"),
        "{}",
        record.explanation
    );
}

#[tokio::test]
async fn an_approval_in_protobuf_signs_too() {
    let api = Api::start().await;
    let created = api.create(&manifest("proto")).await;
    let object: CertificateSigningRequest =
        serde_json::from_value(with_condition(&created, "Approved")).unwrap();
    let body = protobuf::write(&object);
    let call = api
        .call("PUT", &approval_of(&created))
        .body("application/vnd.kubernetes.protobuf", body);
    certificate(&call.send().await.ok());
}

#[tokio::test]
async fn a_patch_approves_as_well() {
    let api = Api::start().await;
    let condition = json!({"type": "Approved", "status": "True", "reason": "Script"});
    let rows = [
        (
            "application/merge-patch+json",
            json!({"status": {"conditions": [condition]}}),
        ),
        (
            "application/strategic-merge-patch+json",
            json!({"status": {"conditions": [condition]}}),
        ),
        (
            "application/json-patch+json",
            json!([{"op": "add", "path": "/status/conditions", "value": [condition]}]),
        ),
    ];
    for (index, (kind, patch)) in rows.iter().enumerate() {
        let created = api.create(&manifest(&format!("patch-{index}"))).await;
        let call = api
            .call("PATCH", &approval_of(&created))
            .body(kind, patch.to_string());
        let approved = call.send().await.ok();
        assert_eq!(
            approved["status"]["conditions"][0]["lastUpdateTime"], "2026-01-02T03:04:05Z",
            "{kind}"
        );
        certificate(&approved);
    }
}

#[tokio::test]
async fn a_decision_is_final() {
    let api = Api::start().await;
    let created = api.create(&manifest("no")).await;
    let denied = api.decide(&created, "Denied").await.ok();
    assert_eq!(denied["status"].get("certificate"), None);
    assert_eq!(api.state("no").await, RequestState::Denied);
    let conditions = ("status.conditions", "FieldValueInvalid");
    api.decide(&denied, "Approved").await.names(&[conditions]);
    let created = api.create(&manifest("yes")).await;
    let approved = api.decide(&created, "Approved").await.ok();
    api.decide(&approved, "Denied").await.names(&[conditions]);
    let mut undone = approved.clone();
    undone["status"]["conditions"] = json!([]);
    let reply = api
        .call("PUT", &approval_of(&approved))
        .json(&undone)
        .send()
        .await;
    reply.names(&[("status.conditions", "FieldValueForbidden")]);
    assert_eq!(api.get(&path_of(&approved)).await.ok(), approved);
    assert_eq!(api.state("no").await, RequestState::Denied);
}

#[tokio::test]
async fn conditions_follow_these_rules() {
    let api = Api::start().await;
    let created = api.create(&manifest("rules")).await;
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
    let one = |field: &'static str, reason: &'static str| vec![(field, reason)];
    let rows = [
        (
            "C1",
            vec![condition("", "True")],
            one("status.conditions[0].type", "FieldValueRequired"),
        ),
        (
            "C2",
            vec![condition("Approved", "")],
            one("status.conditions[0].status", "FieldValueRequired"),
        ),
        (
            "C3",
            vec![condition("Approved", "False")],
            one("status.conditions[0].status", "FieldValueNotSupported"),
        ),
        (
            "C3 denied",
            vec![condition("Denied", "Unknown")],
            one("status.conditions[0].status", "FieldValueNotSupported"),
        ),
        (
            "C4",
            vec![condition("Seen", "Yes")],
            one("status.conditions[0].status", "FieldValueNotSupported"),
        ),
        (
            "C5",
            vec![condition("Approved", "True"), condition("Denied", "True")],
            one("status.conditions", "FieldValueInvalid"),
        ),
        (
            "C6",
            vec![condition("Seen", "True"), condition("Seen", "True")],
            one("status.conditions[1].type", "FieldValueDuplicate"),
        ),
    ];
    for (row, conditions, causes) in rows {
        let mut object = created.clone();
        object["status"]["conditions"] = json!(conditions);
        println!("{row}");
        api.call("PUT", &approval_of(&created))
            .json(&object)
            .send()
            .await
            .names(&causes);
    }
    assert_eq!(
        api.get(&path_of(&created)).await.ok(),
        created,
        "nothing was stored"
    );
}

#[tokio::test]
async fn foreign_conditions_are_kept_and_decide_nothing() {
    let api = Api::start().await;
    let created = api.create(&manifest("seen")).await;
    let seen = api.decide(&created, "Seen").await.ok();
    assert_eq!(condition_types(&seen), ["Seen"]);
    assert_eq!(api.state("seen").await, RequestState::Pending);
    let approved = api.decide(&seen, "Approved").await.ok();
    assert_eq!(condition_types(&approved), ["Seen", "Approved"]);
    let mut edited = approved.clone();
    edited["status"]["conditions"] = json!([approved["status"]["conditions"][1]]);
    edited["status"]["conditions"][0]["message"] = json!("better words");
    let edited = api
        .call("PUT", &approval_of(&created))
        .json(&edited)
        .send()
        .await
        .ok();
    assert_eq!(condition_types(&edited), ["Approved"]);
    assert_eq!(edited["status"]["conditions"][0]["message"], "better words");
    assert_eq!(
        edited["status"]["certificate"],
        approved["status"]["certificate"]
    );
}

#[tokio::test]
async fn what_the_signer_cannot_sign_fails_in_kubernetes_words() {
    let api = Api::start().await;
    let rows = [
        (
            json!(["client auth", "server auth"]),
            "invalid usage for client certificate: server auth",
        ),
        (
            json!(["digital signature"]),
            "missing required usage for client certificate: client auth",
        ),
        (
            json!(["any", "cert sign"]),
            "invalid usage for client certificate: any",
        ),
    ];
    for (index, (usages, text)) in rows.iter().enumerate() {
        let mut object = manifest(&format!("bad-{index}"));
        object["spec"]["usages"] = usages.clone();
        let created = api.create(&object).await;
        assert_eq!(
            created["status"],
            json!({}),
            "it fails only after its approval"
        );
        let failed = api.decide(&created, "Approved").await.ok();
        assert_eq!(condition_types(&failed), ["Approved", "Failed"]);
        let condition = &failed["status"]["conditions"][1];
        assert_eq!(
            (&condition["reason"], &condition["message"]),
            (&json!("SignerValidationFailure"), &json!(text))
        );
        assert_eq!(failed["status"].get("certificate"), None);
    }
}

#[tokio::test]
async fn signers_that_are_not_ours_get_no_certificate_from_us() {
    let api = Api::start().await;
    let mut object = manifest("foreign");
    object["spec"]["signerName"] = json!("example.org/vpn");
    let created = api.create(&object).await;
    let approved = api.decide(&created, "Approved").await.ok();
    assert_eq!(condition_types(&approved), ["Approved"]);
    assert_eq!(approved["status"].get("certificate"), None);
    assert_eq!(api.state("foreign").await, RequestState::Approved);
}

#[tokio::test]
async fn decisions_made_elsewhere_are_shown_as_conditions() {
    let api = Api::start().await;
    let act = |key: &str| Act {
        door: DOOR,
        key: key.to_owned(),
        actor: Actor::with_roles(
            Requester {
                identity: Identity::Certname {
                    certname: "ops".into(),
                },
                source: None,
            },
            Grant::ADMIN,
        ),
        reason: "ticket 7".into(),
        expected: None,
        attachment: None,
        lifetime: None,
        on_unsignable: OnUnsignable::RecordFailure,
    };
    let created = api.create(&manifest("yes")).await;
    api.world
        .authority
        .requests
        .approve(act("yes"))
        .await
        .unwrap();
    let shown = api.get(&path_of(&created)).await.ok();
    certificate(&shown);
    assert_eq!(
        shown["status"]["conditions"][0]["reason"],
        "CountersignApproved"
    );
    assert_eq!(
        shown["status"]["conditions"][0]["message"],
        "approved by ops"
    );
    // A label must not turn what is implied into something written twice.
    let patch = api.call("PATCH", &path_of(&created));
    let patch = patch.body(
        "application/merge-patch+json",
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
    );
    assert_eq!(condition_types(&patch.send().await.ok()), ["Approved"]);
    let created = api.create(&manifest("no")).await;
    api.world.authority.requests.deny(act("no")).await.unwrap();
    let shown = api.get(&path_of(&created)).await.ok();
    assert_eq!(
        shown["status"]["conditions"][0]["reason"],
        "CountersignDenied"
    );
    let reply = api.decide(&created, "Approved").await;
    reply.refuses(409, "Conflict");
    assert!(matches!(
        api.world.authority.requests.approve(act("no")).await,
        Err(ActFault::AlreadyDecided { .. })
    ));
}

#[tokio::test]
async fn of_many_at_once_one_decides() {
    let api = Api::start().await;
    let created = api.create(&manifest("race")).await;
    let mut blind = created.clone();
    blind["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let kinds = ["Approved", "Denied"].repeat(8);
    let bodies: Vec<Value> = kinds
        .iter()
        .map(|kind| with_condition(&blind, kind))
        .collect();
    let path = approval_of(&created);
    let calls = bodies
        .iter()
        .map(|body| api.call("PUT", &path).json(body).send());
    let replies = futures_util::future::join_all(calls).await;
    let state = api.state("race").await;
    let winner = if state == RequestState::Issued {
        "Approved"
    } else {
        "Denied"
    };
    let shown = api.get(&path_of(&created)).await.ok();
    assert_eq!(condition_types(&shown), [winner]);
    for (kind, reply) in kinds.iter().zip(&replies) {
        match reply.status.as_u16() {
            200 => assert_eq!(*kind, winner, "{reply:?}"),
            409 | 422 => {}
            other => panic!("{kind}: {other} {reply:?}"),
        }
    }
    assert!(replies.iter().any(|reply| reply.status == 200));
}

#[tokio::test]
async fn a_long_message_is_kept_whole_and_recorded_in_short() {
    let api = Api::start().await;
    let object = api.create(&manifest("wordy")).await;
    let message = format!("a{}", "é".repeat(2000));
    let mut decided = with_condition(&object, "Approved");
    decided["status"]["conditions"][0]["message"] = json!(message);
    let call = api.call("PUT", &approval_of(&object)).json(&decided);
    let shown = call.send().await.ok();
    assert_eq!(shown["status"]["conditions"][0]["message"], json!(message));
    let record = api.record("wordy").await.unwrap();
    let Some(Deciding::Person { reason, .. }) = record.explanation.by else {
        panic!("decided by a person");
    };
    // 1024 is in the middle of a character.
    assert_eq!(reason, format!("a{}", "é".repeat(511)));
}
