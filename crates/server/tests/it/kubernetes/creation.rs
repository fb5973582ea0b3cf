//! Creating objects: what is kept, what is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_authority::RequestState;
use countersign_kapi::{CertificateSigningRequest, protobuf};
use countersign_pki::pem;
use countersign_testkit::csr::{CsrBuilder, SignatureFlaw};
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::{Api, CSRS, bytes, condition_types, manifest, manifest_of, path_of};
use crate::world::{CUSTOM, KUBE_CLIENT};

#[tokio::test]
async fn a_created_object_has_the_shape_of_the_reference() {
    let api = Api::start().await;
    let mut sent = manifest("jane");
    let text = format!(
        "a comment before\n{}and one behind\n",
        CsrBuilder::new("jane").sign_pem(keys::p256_a())
    );
    sent["spec"]["request"] = json!(STANDARD.encode(&text));
    sent["spec"]["expirationSeconds"] = json!(86_400);
    sent["metadata"]["namespace"] = json!("default");
    sent["metadata"]["uid"] = json!("made up");
    sent["metadata"]["labels"] = json!({"team": "a"});
    sent["metadata"]["annotations"] = json!({"note": "ä"});
    let created = api.create(&sent).await;
    let record = api.record("jane").await.unwrap();
    let credential = created["spec"]["extra"]["authentication.kubernetes.io/credential-id"][0]
        .as_str()
        .unwrap();
    assert!(
        credential.starts_with("X509SHA256=") && credential.len() == 11 + 64,
        "{credential}"
    );
    assert_eq!(
        created,
        json!({
            "kind": "CertificateSigningRequest",
            "apiVersion": "certificates.k8s.io/v1",
            "metadata": {"name": "jane", "uid": record.id.to_string(), "resourceVersion": record.version.to_string(),
                "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"team": "a"}, "annotations": {"note": "ä"}},
            "spec": {"request": STANDARD.encode(&text), "signerName": KUBE_CLIENT, "expirationSeconds": 86_400,
                "usages": ["client auth"], "username": "kubernetes-admin",
                "groups": ["system:masters", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": [credential]}},
            "status": {},
        })
    );
    assert_eq!(
        api.get(&path_of(&created)).await.ok(),
        created,
        "reads back the same"
    );
    assert_eq!(
        api.get(&format!("{}/status", path_of(&created))).await.ok(),
        created
    );
    assert_eq!(
        api.get(&format!("{}/approval", path_of(&created)))
            .await
            .ok(),
        created
    );
}

#[tokio::test]
async fn what_only_the_server_may_say_is_stripped() {
    let api = Api::start().await;
    let mut sent = manifest("sly");
    sent["spec"]["username"] = json!("system:admin");
    sent["spec"]["uid"] = json!("1");
    sent["spec"]["groups"] = json!(["system:masters", "more"]);
    sent["spec"]["extra"] = json!({"a": ["b"]});
    sent["status"] = json!({"certificate": STANDARD.encode("x"), "conditions": [
        {"type": "Approved", "status": "True", "reason": "Me", "message": "pre-approved"}]});
    let created = api.create(&sent).await;
    assert_eq!(created["status"], json!({}));
    assert_eq!(created["spec"]["username"], "kubernetes-admin");
    assert_eq!(created["spec"].get("uid"), None);
    assert_eq!(created["spec"]["extra"].get("a"), None);
    assert_eq!(api.state("sly").await, RequestState::Pending);
}

#[tokio::test]
async fn invalid_objects_are_refused_with_their_causes() {
    let api = Api::start().await;
    let pem_text = CsrBuilder::new("jane").sign_pem(keys::p256_a());
    let encoded = |text: &str| json!(STANDARD.encode(text));
    let unsigned = CsrBuilder::new("jane")
        .flaw(SignatureFlaw::FlippedBit)
        .sign_pem(keys::p256_a());
    let with_key = format!("{}{pem_text}", pem::encode("EC PARAMETERS", b"x"));
    let rows = [
        (
            "V1 no name",
            "/metadata/name",
            json!(""),
            "metadata.name",
            "FieldValueRequired",
        ),
        (
            "V1 slash",
            "/metadata/name",
            json!("a/b"),
            "metadata.name",
            "FieldValueInvalid",
        ),
        (
            "V1 percent",
            "/metadata/name",
            json!("a%b"),
            "metadata.name",
            "FieldValueInvalid",
        ),
        (
            "V1 dots",
            "/metadata/name",
            json!(".."),
            "metadata.name",
            "FieldValueInvalid",
        ),
        (
            "V2 empty",
            "/spec/request",
            json!(""),
            "spec.request",
            "FieldValueInvalid",
        ),
        (
            "V2 no PEM",
            "/spec/request",
            encoded("hello"),
            "spec.request",
            "FieldValueInvalid",
        ),
        (
            "V2 other label",
            "/spec/request",
            encoded(&pem_text.replace("CERTIFICATE", "NEW CERTIFICATE")),
            "spec.request",
            "FieldValueInvalid",
        ),
        (
            "V2 block before",
            "/spec/request",
            encoded(&with_key),
            "spec.request",
            "FieldValueInvalid",
        ),
        (
            "V2 signature",
            "/spec/request",
            encoded(&unsigned),
            "spec.request",
            "FieldValueInvalid",
        ),
        (
            "V2 not DER",
            "/spec/request",
            encoded(&pem::encode("CERTIFICATE REQUEST", b"x")),
            "spec.request",
            "FieldValueInvalid",
        ),
        (
            "V3",
            "/spec/usages",
            json!([]),
            "spec.usages",
            "FieldValueRequired",
        ),
        (
            "V4",
            "/spec/usages",
            json!(["client auth", "flying"]),
            "spec.usages[1]",
            "FieldValueNotSupported",
        ),
        (
            "V5",
            "/spec/usages",
            json!(["any", "any"]),
            "spec.usages[1]",
            "FieldValueDuplicate",
        ),
        (
            "V6",
            "/spec/signerName",
            json!("kubernetes.io/legacy-unknown"),
            "spec.signerName",
            "FieldValueInvalid",
        ),
        (
            "V7 empty",
            "/spec/signerName",
            json!(""),
            "spec.signerName",
            "FieldValueRequired",
        ),
        (
            "V7 form",
            "/spec/signerName",
            json!("vpn"),
            "spec.signerName",
            "FieldValueInvalid",
        ),
        (
            "V7 long part",
            "/spec/signerName",
            json!(format!("example.com/{}", "a".repeat(254))),
            "spec.signerName",
            "FieldValueInvalid",
        ),
        (
            "V8 short",
            "/spec/expirationSeconds",
            json!(599),
            "spec.expirationSeconds",
            "FieldValueInvalid",
        ),
        (
            "V8 zero",
            "/spec/expirationSeconds",
            json!(0),
            "spec.expirationSeconds",
            "FieldValueInvalid",
        ),
        (
            "V9 label",
            "/metadata/labels",
            json!({"-a": "b"}),
            "metadata.labels",
            "FieldValueInvalid",
        ),
        (
            "V9 annotations",
            "/metadata/annotations",
            json!({"a": "x".repeat(257 * 1024)}),
            "metadata.annotations",
            "FieldValueTooLong",
        ),
    ];
    for (row, pointer, value, field, reason) in rows {
        let mut object = manifest("row");
        object["spec"]["expirationSeconds"] = json!(600);
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[key] = value;
        let reply = api.call("POST", CSRS).json(&object).send().await;
        println!("{row}");
        reply.names(&[(field, reason)]);
        assert_eq!(
            reply.value()["details"]["kind"],
            "CertificateSigningRequest",
            "{row}"
        );
    }
    let mut object = manifest("several");
    object["spec"]["usages"] = json!([]);
    object["spec"]["expirationSeconds"] = json!(60);
    let reply = api.call("POST", CSRS).json(&object).send().await;
    reply.names(&[
        ("spec.usages", "FieldValueRequired"),
        ("spec.expirationSeconds", "FieldValueInvalid"),
    ]);
    let listed = api.get(CSRS).await.ok();
    assert_eq!(listed["items"], json!([]), "nothing of all this was stored");
}

#[tokio::test]
async fn names_of_any_shape_are_kept() {
    let api = Api::start().await;
    for (name, path) in [
        ("node-csr-Ab_c-9", "node-csr-Ab_c-9"),
        ("UPPER", "UPPER"),
        ("with space", "with%20space"),
        ("ünï?#", "%C3%BCn%C3%AF%3F%23"),
    ] {
        api.create(&manifest(name)).await;
        let read = api.get(&format!("{CSRS}/{path}")).await.ok();
        assert_eq!(read["metadata"]["name"], name);
    }
    api.get(&format!("{CSRS}/%ff"))
        .await
        .refuses(400, "BadRequest");
}

#[tokio::test]
async fn a_taken_name_is_a_conflict() {
    let api = Api::start().await;
    let first = api.create(&manifest("twice")).await;
    for state in ["pending", "denied"] {
        let reply = api.call("POST", CSRS).json(&manifest("twice")).send().await;
        let status = reply.refuses(409, "AlreadyExists");
        assert_eq!(
            status["message"],
            "certificatesigningrequests.certificates.k8s.io \"twice\" already exists",
            "{state}"
        );
        if state == "pending" {
            api.decide(&first, "Denied").await.ok();
        }
    }
    let mut versioned = manifest("other");
    versioned["metadata"]["resourceVersion"] = json!("7");
    // API servers have no word for it either.
    let refused = api.call("POST", CSRS).json(&versioned).send().await;
    assert_eq!(refused.status, 500);
}

#[tokio::test]
async fn names_are_generated_from_a_prefix() {
    let api = Api::start().await;
    let mut object = manifest("");
    object["metadata"] = json!({"generateName": "csr-"});
    let (first, second) = (api.create(&object).await, api.create(&object).await);
    for created in [&first, &second] {
        let name = created["metadata"]["name"].as_str().unwrap();
        let suffix = name.strip_prefix("csr-").unwrap();
        assert!(
            suffix.len() == 5
                && suffix
                    .bytes()
                    .all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b)),
            "{name}"
        );
        assert_eq!(created["metadata"]["generateName"], "csr-");
    }
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
}

#[tokio::test]
async fn protobuf_is_understood() {
    let api = Api::start().await;
    let object: CertificateSigningRequest = serde_json::from_value(manifest("proto")).unwrap();
    let body = protobuf::write(&object);
    let call = api
        .call("POST", CSRS)
        .body("application/vnd.kubernetes.protobuf", body);
    let reply = call
        .header(
            "accept",
            "application/vnd.kubernetes.protobuf,application/json",
        )
        .send()
        .await;
    assert_eq!(reply.status, 201, "{reply:?}");
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.value()["spec"]["request"], manifest_request(&object));
}

fn manifest_request(object: &CertificateSigningRequest) -> Value {
    json!(STANDARD.encode(&object.spec.request))
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let api = Api::start().await;
    let dry = format!("{CSRS}?dryRun=All&fieldManager=kubectl-create&fieldValidation=Strict");
    let reply = api.call("POST", &dry).json(&manifest("dry")).send().await;
    assert_eq!(reply.status, 201, "{reply:?}");
    assert_eq!(reply.value()["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(api.record("dry").await.is_none());
    api.call("POST", &format!("{CSRS}?dryRun=Some"))
        .json(&manifest("dry"))
        .send()
        .await
        .refuses(422, "Invalid");
    api.create(&manifest("dry")).await;
    api.call("POST", &dry)
        .json(&manifest("dry"))
        .send()
        .await
        .refuses(409, "AlreadyExists");
}

#[tokio::test]
async fn a_rule_may_approve_at_once() {
    let api = Api::approving(&[KUBE_CLIENT]).await;
    let created = api.create(&manifest("quick")).await;
    assert_eq!(condition_types(&created), ["Approved"]);
    let condition = &created["status"]["conditions"][0];
    assert_eq!(condition["reason"], "CountersignApproved");
    assert_eq!(
        condition["message"],
        "approved by rule autosign; asked: autosign: approve"
    );
    assert_eq!(condition["lastUpdateTime"], "2026-01-02T03:04:05Z");
    assert!(bytes(&created["status"]["certificate"]).starts_with(b"-----BEGIN CERTIFICATE-----\n"));
    // What the signer cannot sign waits for a person all the same, and no rule is asked.
    let mut object = manifest_of("odd", &CsrBuilder::new("jane"));
    object["spec"]["usages"] = json!(["server auth"]);
    assert_eq!(api.create(&object).await["status"], json!({}));
    object["spec"]["signerName"] = json!(CUSTOM);
    object["metadata"]["name"] = json!("custom");
    assert_eq!(api.create(&object).await["status"], json!({}));
}

/// Who sees nothing but the object learns which rules were asked and what each said.
#[tokio::test]
async fn conditions_name_the_rules_that_were_asked() {
    let api = Api::start().await;
    api.world.set_policy(RULES);
    for (name, kind, reason, message) in [
        (
            "vault",
            "Denied",
            "CountersignDenied",
            "denied by rule reserved (reserved name); asked: reserved: deny",
        ),
        (
            "jane",
            "Approved",
            "CountersignApproved",
            "approved by rule people; asked: reserved: abstain, cmdb: not asked, people: approve",
        ),
    ] {
        let created = api.create(&manifest_of(name, &CsrBuilder::new(name))).await;
        assert_eq!(condition_types(&created), [kind], "{name}");
        let condition = &created["status"]["conditions"][0];
        assert_eq!(condition["reason"], reason, "{name}");
        assert_eq!(condition["message"], message, "{name}");
        assert_eq!(api.get(&path_of(&created)).await.ok(), created, "{name}");
    }
    // Evidence that could not be had decides nothing: the object waits, without a condition, to be looked at again.
    let waits = api
        .create(&manifest_of("unsure", &CsrBuilder::new("unsure")))
        .await;
    assert_eq!(waits["status"], json!({}));
    let record = api.record("unsure").await.unwrap();
    assert_eq!(record.state, RequestState::Pending);
    assert!(record.explanation.retry && record.explanation.is_stopped());
    let told = record.explanation.in_short();
    assert!(
        told.ends_with("; asked: reserved: abstain, cmdb: unavailable"),
        "{told}"
    );
    // A person is not bound by that.
    let decided = api.decide(&waits, "Denied").await.ok();
    assert_eq!(condition_types(&decided), ["Denied"]);
    assert_eq!(api.state("unsure").await, RequestState::Denied);
}

const RULES: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: people}
spec:
  signers: [kubernetes.io/kube-apiserver-client]
  rules:
    - name: reserved
      deny: {cel: 'request.commonName == "vault"', message: "reserved name"}
    - name: cmdb
      when: 'request.commonName == "unsure"'
      approve: {webhook: {url: "https://cmdb.example.com/"}}
    - name: people
      approve: {always: {}}
"#;
