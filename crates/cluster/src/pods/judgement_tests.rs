//! Tables over requests and their surroundings. The names of the tests are those of the acceptance cases.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys::{self, Key};
use serde_json::{Value, json};

use super::*;
use crate::objects::tests::merge;
use crate::pods::objects::uid_of;

const GRACE: u64 = 30;

fn created() -> UnixTime {
    UnixTime::parse_rfc3339("2026-05-01T12:00:00Z").unwrap()
}

fn terms() -> PodTerms {
    PodTerms {
        key_types: PodKeyType::ALL.to_vec(),
        annotations: BTreeSet::from(["example.com/role".to_owned()]),
    }
}

/// A request as a kubelet makes it, with whatever else is merged into it.
fn request(key: &Key, more: Value) -> PodRequest {
    let stub = CsrBuilder::without_subject().sign(key);
    let mut object = json!({
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "PodCertificateRequest",
        "metadata": {
            "name": "req-1", "namespace": "shop", "uid": "u-req", "resourceVersion": "7",
            "creationTimestamp": "2026-05-01T12:00:00Z",
        },
        "spec": {
            "signerName": "example.com/web",
            "podName": "web-0", "podUID": "u-pod",
            "serviceAccountName": "web", "serviceAccountUID": "u-sa",
            "nodeName": "n1", "nodeUID": "u-node",
            "maxExpirationSeconds": 86400,
            "stubPKCS10Request": BASE64.encode(stub),
            "pkixPublicKey": null, "proofOfPossession": null,
        },
    });
    merge(&mut object, more);
    PodRequest::read(object).unwrap()
}

fn pod(more: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u-pod", "labels": {"app": "web"}},
        "spec": {
            "serviceAccountName": "web", "nodeName": "n1",
            "volumes": [
                {"name": "other", "emptyDir": {}},
                {"name": "tls", "projected": {"sources": [
                    {"clusterTrustBundle": {"signerName": "example.com/web", "path": "ca.pem"}},
                    {"podCertificate": {"signerName": "example.com/web", "keyType": "ECDSAP256"}},
                ]}},
            ],
        },
        "status": {"phase": "Pending"},
    });
    merge(&mut object, more);
    object
}

fn source(source: Value) -> Value {
    json!({"spec": {"volumes": [{"projected": {"sources": [{"podCertificate": source}]}}]}})
}

fn around(pod: &Value, account: &str, node: &str) -> Surroundings {
    let uid = |uid: &str| uid_of(&json!({"metadata": {"uid": uid}}));
    Surroundings {
        pod: Ok(Pod::read(pod)),
        service_account: Ok(uid(account)),
        node: Ok(uid(node)),
    }
}

fn judged(request: &PodRequest, around: Surroundings, age: u64) -> Judged {
    let (_, key_type) = examine(request, &terms()).unwrap();
    let now = created().plus_seconds(age);
    compare(request, key_type, around, now, GRACE)
}

/// The reason of a denial that is no matter of time.
#[track_caller]
fn denied(request: &PodRequest, around: &Surroundings) -> &'static str {
    match judged(request, around.clone(), 0) {
        Judged::Deny(finding) => finding.reason,
        other => panic!("{other:?}"),
    }
}

/// The reason of a denial that is waited with until the grace time has passed.
#[track_caller]
fn denied_later(request: &PodRequest, around: &Surroundings) -> &'static str {
    let early = judged(request, around.clone(), GRACE - 1);
    let late = judged(request, around.clone(), GRACE);
    match (early, late) {
        (Judged::Wait(early), Judged::Deny(late)) => {
            assert_eq!(early, late);
            late.reason
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn pc_01_a_request_that_is_what_it_says_fits() {
    let request = request(keys::p256_a(), json!({}));
    let (stub, key_type) = examine(&request, &terms()).unwrap();
    assert_eq!(key_type, PodKeyType::EcdsaP256);
    assert_eq!(stub.spki_der(), keys::p256_a().spki_der());
    for phase in ["Pending", "Running"] {
        let pod = pod(json!({"status": {"phase": phase}}));
        let Judged::Fits(facts) = judged(&request, around(&pod, "u-sa", "u-node"), 0) else {
            panic!("{phase}")
        };
        assert_eq!(facts.username(), "system:serviceaccount:shop:web");
        assert_eq!(
            (facts.name.as_str(), facts.uid.as_str()),
            ("web-0", "u-pod")
        );
        assert_eq!(
            (facts.node.as_str(), facts.labels["app"].as_str()),
            ("n1", "web")
        );
        assert_eq!(facts.service_account_uid, "u-sa");
    }
}

#[test]
fn pc_02_every_kind_of_key_has_its_word() {
    for (key, word) in [
        (keys::p256_a(), "ECDSAP256"),
        (keys::p384(), "ECDSAP384"),
        (keys::p521(), "ECDSAP521"),
        (keys::ed25519(), "ED25519"),
        (keys::rsa3072(), "RSA3072"),
        (keys::rsa4096_a(), "RSA4096"),
    ] {
        let request = request(key, json!({}));
        let (_, key_type) = examine(&request, &terms()).unwrap();
        assert_eq!(key_type.word(), word);
        assert_eq!(PodKeyType::parse(word), Some(key_type));
        let pod = pod(source(
            json!({"signerName": "example.com/web", "keyType": word}),
        ));
        let judged = judged(&request, around(&pod, "u-sa", "u-node"), 0);
        assert!(matches!(judged, Judged::Fits(_)), "{word}: {judged:?}");
    }
}

#[test]
fn pc_03_the_old_form_is_denied() {
    let old = json!({"spec": {"stubPKCS10Request": null, "pkixPublicKey": "AAAA", "proofOfPossession": "AAAA"}});
    let request = request(keys::p256_a(), old);
    let finding = examine(&request, &terms()).unwrap_err();
    assert_eq!(finding.reason, "UnsupportedRequestForm");
    assert!(finding.message.contains("stubPKCS10Request"), "{finding:?}");
}

#[test]
fn pc_05_a_request_that_does_not_say_asks_for_a_day() {
    let request = request(
        keys::p256_a(),
        json!({"spec": {"maxExpirationSeconds": null}}),
    );
    assert_eq!(request.max_seconds, 86_400);
}

#[test]
fn pc_10_a_key_that_is_not_certified_is_denied_with_one_that_is() {
    let only = PodTerms {
        key_types: vec![PodKeyType::EcdsaP256],
        ..terms()
    };
    for key in [keys::p384(), keys::rsa3072(), keys::rsa2048_a()] {
        let finding = examine(&request(key, json!({})), &only).unwrap_err();
        assert_eq!(finding.reason, "UnsupportedKeyType");
        assert!(finding.message.contains("ECDSAP256"), "{finding:?}");
    }
}

#[test]
fn pc_11_annotations_that_nobody_knows_are_denied() {
    let known = json!({"spec": {"unverifiedUserAnnotations": {"example.com/role": "db"}}});
    assert!(examine(&request(keys::p256_a(), known.clone()), &terms()).is_ok());
    let unknown = json!({"spec": {"unverifiedUserAnnotations": {"example.com/role": "db", "example.com/x": ""}}});
    let finding = examine(&request(keys::p256_a(), unknown), &terms()).unwrap_err();
    assert_eq!(finding.reason, "InvalidUnverifiedUserAnnotations");
    assert!(finding.message.contains("example.com/x"), "{finding:?}");
    // And the pod must have asked for them.
    let request = request(keys::p256_a(), known);
    assert_eq!(
        denied(&request, &around(&pod(json!({})), "u-sa", "u-node")),
        "PodDoesNotAsk"
    );
}

#[test]
fn pc_12_a_message_with_names_or_attributes_is_denied() {
    let named = CsrBuilder::new("admin").sign(keys::p256_a());
    let with_names = CsrBuilder::without_subject()
        .dns("kubernetes")
        .sign(keys::p256_a());
    for stub in [named, with_names] {
        let stub = json!({"spec": {"stubPKCS10Request": BASE64.encode(stub)}});
        let finding = examine(&request(keys::p256_a(), stub), &terms()).unwrap_err();
        assert_eq!(finding.reason, "NonEmptyRequest");
    }
    let broken = json!({"spec": {"stubPKCS10Request": BASE64.encode("no request")}});
    let finding = examine(&request(keys::p256_a(), broken), &terms()).unwrap_err();
    assert_eq!(finding.reason, "InvalidRequest");
}

#[test]
fn pc_13_a_pod_that_is_not_there_is_waited_for_then_denied() {
    let request = request(keys::p256_a(), json!({}));
    let nothing = Surroundings {
        pod: Ok(None),
        service_account: Ok(None),
        node: Ok(None),
    };
    assert_eq!(denied_later(&request, &nothing), "PodNotFound");
}

#[test]
fn pc_14_another_pod_of_the_name_is_waited_with_then_denied() {
    let request = request(keys::p256_a(), json!({}));
    let other = pod(json!({"metadata": {"uid": "u-other"}}));
    assert_eq!(
        denied_later(&request, &around(&other, "u-sa", "u-node")),
        "PodNotFound"
    );
}

#[test]
fn pc_15_another_service_account_is_denied() {
    let own = pod(json!({}));
    let other = json!({"spec": {"serviceAccountName": "admin"}});
    let request_for = |more| request(keys::p256_a(), more);
    let reason = "ServiceAccountMismatch";
    assert_eq!(
        denied(&request_for(other), &around(&own, "u-sa", "u-node")),
        reason
    );
    let request = request_for(json!({}));
    assert_eq!(
        denied_later(&request, &around(&own, "u-else", "u-node")),
        reason
    );
    let gone = Surroundings {
        service_account: Ok(None),
        ..around(&own, "u-sa", "u-node")
    };
    assert_eq!(denied_later(&request, &gone), reason);
}

#[test]
fn pc_16_another_node_is_denied() {
    let request = request(keys::p256_a(), json!({}));
    for node in ["n2", ""] {
        let elsewhere = pod(json!({"spec": {"nodeName": node}}));
        assert_eq!(
            denied(&request, &around(&elsewhere, "u-sa", "u-node")),
            "NodeMismatch"
        );
    }
    let own = pod(json!({}));
    assert_eq!(
        denied_later(&request, &around(&own, "u-sa", "u-else")),
        "NodeMismatch"
    );
}

#[test]
fn pc_17_a_pod_that_does_not_ask_for_this_is_denied() {
    let request = request(keys::p256_a(), json!({}));
    let of = "example.com/web";
    for (case, asks) in [
        ("nothing", json!({"spec": {"volumes": null}})),
        (
            "another signer",
            source(json!({"signerName": "example.com/other", "keyType": "ECDSAP256"})),
        ),
        (
            "another key",
            source(json!({"signerName": of, "keyType": "ED25519"})),
        ),
        (
            "another lifetime",
            source(json!({"signerName": of, "keyType": "ECDSAP256", "maxExpirationSeconds": 3600})),
        ),
        (
            "annotations",
            source(
                json!({"signerName": of, "keyType": "ECDSAP256", "userAnnotations": {"a/b": "c"}}),
            ),
        ),
    ] {
        let around = around(&pod(asks), "u-sa", "u-node");
        assert_eq!(denied(&request, &around), "PodDoesNotAsk", "{case}");
    }
}

#[test]
fn pc_18_a_pod_that_ends_is_denied() {
    let request = request(keys::p256_a(), json!({}));
    for (more, reason) in [
        (json!({"status": {"phase": "Succeeded"}}), "PodNotRunning"),
        (json!({"status": {"phase": "Failed"}}), "PodNotRunning"),
        (json!({"status": null}), "PodNotRunning"),
        (
            json!({"metadata": {"deletionTimestamp": "2026-05-01T12:00:00Z"}}),
            "PodTerminating",
        ),
        (
            json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
            "MirrorPod",
        ),
    ] {
        assert_eq!(
            denied(&request, &around(&pod(more), "u-sa", "u-node")),
            reason
        );
    }
}

#[test]
fn pc_19_a_request_that_has_an_answer_is_over() {
    for kind in ["Issued", "Denied", "Failed"] {
        let answered = json!({"status": {"conditions": [{"type": kind, "status": "True"}]}});
        assert!(request(keys::p256_a(), answered).is_over, "{kind}");
    }
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-05-01T12:00:00Z"}});
    assert!(request(keys::p256_a(), deleted).is_over);
    assert!(!request(keys::p256_a(), json!({})).is_over);
}

#[test]
fn what_cannot_be_looked_up_never_denies() {
    let request = request(keys::p256_a(), json!({}));
    let own = pod(json!({}));
    let unknown = || Err("not permitted".to_owned());
    for around in [
        Surroundings {
            pod: Err("not permitted".to_owned()),
            ..around(&own, "u-sa", "u-node")
        },
        Surroundings {
            service_account: unknown(),
            ..around(&own, "u-sa", "u-node")
        },
        Surroundings {
            node: unknown(),
            ..around(&own, "u-sa", "u-node")
        },
    ] {
        let judged = judged(&request, around, 100_000);
        assert!(matches!(judged, Judged::Wait(_)), "{judged:?}");
    }
}
