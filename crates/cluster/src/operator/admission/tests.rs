//! Reviews as an API server sends them, and what they are answered.

use std::convert::Infallible;

use http::{Response, StatusCode};
use kube::client::Body;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tower::service_fn;

use super::*;
use crate::api::Api;
use crate::operator::object::{GROUP, VERSION};

/// What the API server says when it is asked for a CertificateAuthority.
#[derive(Clone, Copy)]
enum Server {
    /// It is asked for nothing.
    Unasked,
    Has(&'static str),
    Refuses,
    Hangs,
}

fn calls(server: Server) -> Calls {
    let service = service_fn(move |request: http::Request<Body>| async move {
        let path = request.uri().path().to_owned();
        let collection =
            format!("/apis/{GROUP}/{VERSION}/namespaces/puppet/certificateauthorities/");
        let name = path.strip_prefix(&collection).unwrap_or_default();
        let (code, answer) = match server {
            Server::Unasked => panic!("nobody asks for {path}"),
            Server::Has(there) if name == there => (200, json!({"metadata": {"name": there}})),
            Server::Has(_) => (
                404,
                json!({"kind": "Status", "code": 404, "reason": "NotFound"}),
            ),
            Server::Refuses => (
                403,
                json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no role"}),
            ),
            Server::Hangs => std::future::pending().await,
        };
        let answer = Response::builder()
            .status(StatusCode::from_u16(code).unwrap())
            .body(Body::from(answer.to_string().into_bytes()));
        Ok::<_, Infallible>(answer.unwrap())
    });
    Calls::new(Api::of_client(kube::Client::new(service, "ns")))
}

fn asked(kind: &str, operation: &str, object: Value, old: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u1", "kind": {"group": GROUP, "version": VERSION, "kind": kind},
            "operation": operation, "namespace": "puppet", "object": object, "oldObject": old,
        },
    })
}

/// `allowed`, or the code and the message.
async fn answered(kind: AdmissionKind, asked: &Value, server: Server) -> String {
    let body = asked.to_string();
    let mut registry = Registry::default();
    let metrics = OperatorMetrics::new(&mut registry);
    let namespaces = ["puppet".to_owned()];
    let answer = review(kind, body.as_bytes(), &namespaces, &calls(server), &metrics).await;
    let answer: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
    let word = match answer["response"]["status"]["code"].as_u64() {
        None => "allowed",
        Some(400) => "invalid",
        Some(503) => "unavailable",
        Some(_) => "denied",
    };
    assert_eq!(counted(&registry), [format!("{} {word} 1", kind.word())]);
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    let response = &answer["response"];
    assert_eq!(response["uid"], "u1");
    match response["allowed"].as_bool().unwrap() {
        true => "allowed".to_owned(),
        false => {
            let status = &response["status"];
            format!("{} {}", status["code"], status["message"].as_str().unwrap())
        }
    }
}

/// The series of reviews that were counted: kind, answer, number.
fn counted(registry: &Registry) -> Vec<String> {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("countersign_operator_admission_reviews_total{"));
    let words = lines.map(|line| {
        let line = line.replace("kind=", "").replace("answer=", "");
        let words: Vec<&str> = line.split(['"', ',', '}', ' ']).collect();
        let words: Vec<&str> = words.into_iter().filter(|it| !it.is_empty()).collect();
        words.join(" ")
    });
    words.collect()
}

#[tokio::test(start_paused = true)]
async fn a_certificate_needs_a_ca_that_exists_and_an_order_that_can_be_issued() {
    use Server::{Hangs, Has, Refuses, Unasked};
    let certificate =
        |spec: Value| json!({"metadata": {"name": "web", "namespace": "puppet"}, "spec": spec});
    let of = |ca: &str| certificate(json!({"authorityRef": ca, "certname": "web"}));
    let deleted = |ca: &str| {
        let mut object = of(ca);
        object["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        object
    };
    let with = |more: Value| {
        let mut object = of("ca");
        for (key, value) in more.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        object
    };
    let custom = |name: &str| with(json!({"csrExtensions": {"customExtensions": {name: "x"}}}));
    let none = Value::Null;
    for (case, operation, object, old, server, expected) in [
        (
            "the CA is there",
            "CREATE",
            of("ca"),
            none.clone(),
            Has("ca"),
            "allowed",
        ),
        (
            "there is another one",
            "CREATE",
            of("ca"),
            none.clone(),
            Has("other"),
            "403 CertificateAuthority \"ca\" does not exist in namespace \"puppet\": create it first, or correct spec.authorityRef",
        ),
        (
            "it is named anew",
            "UPDATE",
            of("ca"),
            of("other"),
            Has("ca"),
            "allowed",
        ),
        (
            "it is named anew, and wrongly",
            "UPDATE",
            of("ca"),
            of("other"),
            Has("x"),
            "403 CertificateAuthority \"ca\" does not exist",
        ),
        (
            "it has gone meanwhile",
            "UPDATE",
            of("ca"),
            of("ca"),
            Unasked,
            "allowed",
        ),
        (
            "a finalizer goes",
            "UPDATE",
            deleted("ca"),
            of("ca"),
            Unasked,
            "allowed",
        ),
        (
            "a finalizer and all else",
            "UPDATE",
            deleted("b"),
            of("ca"),
            Unasked,
            "allowed",
        ),
        (
            "deletion",
            "DELETE",
            none.clone(),
            of("ca"),
            Unasked,
            "allowed",
        ),
        (
            "deleted, with a spec that nobody can read",
            "UPDATE",
            {
                let mut object = deleted("ca");
                object["spec"] = json!({"authorityRef": 1});
                object
            },
            none.clone(),
            Unasked,
            "allowed",
        ),
        (
            "no name",
            "CREATE",
            of(""),
            none.clone(),
            Unasked,
            "403 spec.authorityRef is empty: name a CertificateAuthority",
        ),
        (
            "no spec",
            "CREATE",
            json!({"metadata": {}}),
            none.clone(),
            Unasked,
            "403 spec.authorityRef is empty",
        ),
        (
            "still no spec",
            "UPDATE",
            json!({"metadata": {}}),
            json!({"metadata": {}}),
            Unasked,
            "allowed",
        ),
        (
            "a name that leads elsewhere",
            "CREATE",
            of("../configs/ca"),
            none.clone(),
            Unasked,
            "403 CertificateAuthority \"../configs/ca\" does not exist",
        ),
        (
            "the default certname",
            "CREATE",
            certificate(json!({"authorityRef": "ca"})),
            none.clone(),
            Has("ca"),
            "allowed",
        ),
        (
            "nulls",
            "CREATE",
            with(json!({"dnsAltNames": null, "csrExtensions": null})),
            none.clone(),
            Has("ca"),
            "allowed",
        ),
        (
            "an order that is refused",
            "CREATE",
            with(json!({"certname": "Web"})),
            none.clone(),
            Unasked,
            "403 spec.certname \"Web\" is not a host name",
        ),
        (
            "an empty certname",
            "CREATE",
            with(json!({"certname": ""})),
            none.clone(),
            Unasked,
            "403 spec.certname is empty",
        ),
        (
            "a wildcard",
            "CREATE",
            with(json!({"dnsAltNames": ["*.a"]})),
            none.clone(),
            Unasked,
            "403 spec.dnsAltNames: \"*.a\" is neither",
        ),
        (
            "an unknown extension",
            "CREATE",
            custom("bogus"),
            none.clone(),
            Unasked,
            "403 spec.csrExtensions.customExtensions: unknown extension \"bogus\"",
        ),
        (
            "one with a field of its own",
            "CREATE",
            custom("pp_role"),
            none.clone(),
            Unasked,
            "use ppRole",
        ),
        (
            "an order that becomes bad",
            "UPDATE",
            custom("bogus"),
            of("ca"),
            Unasked,
            "403 spec.csrExtensions",
        ),
        (
            "one that stays as bad",
            "UPDATE",
            custom("bogus"),
            custom("bogus"),
            Unasked,
            "allowed",
        ),
        (
            "one that becomes worse",
            "UPDATE",
            custom("bogus"),
            custom("pp_role"),
            Unasked,
            "403 spec.csrExtensions",
        ),
        (
            "an old object that cannot be read",
            "UPDATE",
            of("ca"),
            json!("x"),
            Has("ca"),
            "allowed",
        ),
        (
            "no permission",
            "CREATE",
            of("ca"),
            none.clone(),
            Refuses,
            "503 spec.authorityRef: whether CertificateAuthority \"ca\" exists in namespace \"puppet\" cannot be checked now (not permitted: no role); try again",
        ),
        (
            "no answer",
            "CREATE",
            of("ca"),
            none.clone(),
            Hangs,
            "does not answer within 3 s); try again",
        ),
        (
            "nothing",
            "CREATE",
            none.clone(),
            none.clone(),
            Unasked,
            "400 the object cannot be read",
        ),
        (
            "a list",
            "CREATE",
            json!([1]),
            none.clone(),
            Unasked,
            "400 the object cannot be read",
        ),
        (
            "a number for a name",
            "CREATE",
            with(json!({"certname": 1})),
            none.clone(),
            Unasked,
            "400 the object's spec cannot be read",
        ),
        (
            "another operation",
            "CONNECT",
            of("ca"),
            none.clone(),
            Unasked,
            "400 only CREATE and UPDATE can be checked, not \"CONNECT\"",
        ),
    ] {
        let asked = asked("Certificate", operation, object, old);
        let answer = answered(AdmissionKind::Certificate, &asked, server).await;
        assert!(answer.contains(expected), "{case}: {answer}");
    }
}

#[tokio::test]
async fn a_signing_policy_needs_a_ca_and_a_ca_needs_nothing() {
    use Server::{Has, Unasked};
    let policy = |ca: &str| json!({"metadata": {}, "spec": {"certificateAuthorityRef": ca, "dnsAltNames": {"allow": ["*"]}}});
    for (kind, word, object, old, server, expected) in [
        (
            AdmissionKind::SigningPolicy,
            "SigningPolicy",
            policy("ca"),
            Value::Null,
            Has("ca"),
            "allowed",
        ),
        (
            AdmissionKind::SigningPolicy,
            "SigningPolicy",
            policy("ca"),
            Value::Null,
            Has("other"),
            "403 CertificateAuthority \"ca\" does not exist in namespace \"puppet\": create it first, or correct spec.certificateAuthorityRef",
        ),
        (
            AdmissionKind::SigningPolicy,
            "SigningPolicy",
            policy("ca"),
            policy("ca"),
            Unasked,
            "allowed",
        ),
        (
            AdmissionKind::CertificateAuthority,
            "CertificateAuthority",
            json!({"spec": {"ttl": 1}}),
            Value::Null,
            Unasked,
            "allowed",
        ),
        (
            AdmissionKind::CertificateAuthority,
            "Certificate",
            json!({}),
            Value::Null,
            Unasked,
            "400 /validate-openvox-voxpupuli-org-v1alpha1-certificateauthority is for CertificateAuthority",
        ),
        (
            AdmissionKind::SigningPolicy,
            "Pool",
            json!({}),
            Value::Null,
            Unasked,
            "not for \"Pool\" of \"openvox.voxpupuli.org/v1alpha1\"",
        ),
    ] {
        let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
        let asked = asked(word, operation, object, old);
        let answer = answered(kind, &asked, server).await;
        assert!(answer.contains(expected), "{word}: {answer}");
    }
}

#[tokio::test]
async fn other_versions_are_denied_and_other_namespaces_are_somebody_elses() {
    let object = json!({"metadata": {}, "spec": {"authorityRef": "ca"}});
    let good = asked("Certificate", "CREATE", object, Value::Null);
    for (pointer, value, expected) in [
        ("/request/kind/version", "v1beta1", "400 "),
        ("/request/kind/group", "cert-manager.io", "400 "),
        (
            "/apiVersion",
            "admission.k8s.io/v1beta1",
            "400 an AdmissionReview of admission.k8s.io/v1 is needed",
        ),
        ("/request/namespace", "shop", "allowed"),
    ] {
        let mut asked = good.clone();
        *asked.pointer_mut(pointer).unwrap() = json!(value);
        let answer = answered(AdmissionKind::Certificate, &asked, Server::Unasked).await;
        assert!(answer.contains(expected), "{pointer}: {answer}");
    }
}

#[tokio::test]
async fn what_is_no_review_is_not_answered() {
    let deep = format!("{{\"request\": {}", "[".repeat(1_000_000));
    let deep_object = format!(
        "{{\"request\": {{\"uid\": \"u\", \"object\": {}1{}}}}}",
        "[".repeat(500_000),
        "]".repeat(500_000)
    );
    for (text, expected) in [
        ("", "not an AdmissionReview"),
        ("[]", "not an AdmissionReview"),
        ("{}", "no request with a uid"),
        (r#"{"request": {"uid": ""}}"#, "no request with a uid"),
        (r#"{"request": {"uid": 1}}"#, "not an AdmissionReview"),
        (
            r#"{"request": {"uid": "a", "uid": "b"}}"#,
            "not an AdmissionReview",
        ),
        (&deep, "not an AdmissionReview"),
    ] {
        let kind = AdmissionKind::Certificate;
        let mut registry = Registry::default();
        let metrics = OperatorMetrics::new(&mut registry);
        let calls = calls(Server::Unasked);
        let answer = review(kind, text.as_bytes(), &[], &calls, &metrics).await;
        assert_eq!(counted(&registry), ["Certificate unreadable 1"]);
        let fault = answer.unwrap_err().to_string();
        assert!(fault.contains(expected), "{fault}");
    }
    // Depth costs nothing where nobody looks.
    let kind = AdmissionKind::Certificate;
    let metrics = OperatorMetrics::default();
    let calls = calls(Server::Unasked);
    let answer = review(kind, deep_object.as_bytes(), &[], &calls, &metrics).await;
    let answer: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
    assert_eq!(answer["response"]["allowed"], false);
}
