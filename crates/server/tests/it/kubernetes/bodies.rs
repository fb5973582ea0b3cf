//! Bodies that are too large, of the wrong type, malformed or hostile.

use countersign_kapi::MAX_BODY_BYTES;
use serde_json::json;

use super::{Api, CSRS, approval_of, manifest};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test]
async fn bodies_that_are_no_object_are_refused() {
    let api = Api::start().await;
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let version = manifest("a")
        .to_string()
        .replace("certificates.k8s.io/v1", "certificates.k8s.io/v1beta1");
    let base64 = manifest("a")
        .to_string()
        .replace("\"request\":\"", "\"request\":\"*");
    let rows: [(&str, Vec<u8>, u16, &str); 11] = [
        (JSON, Vec::new(), 400, "BadRequest"),
        (JSON, b"{".to_vec(), 400, "BadRequest"),
        (JSON, b"[]".to_vec(), 400, "BadRequest"),
        (JSON, deep.into_bytes(), 400, "BadRequest"),
        (
            JSON,
            br#"{"kind":"Pod","apiVersion":"v1"}"#.to_vec(),
            400,
            "BadRequest",
        ),
        (JSON, version.into_bytes(), 400, "BadRequest"),
        (JSON, base64.into_bytes(), 400, "BadRequest"),
        (
            JSON,
            vec![b' '; MAX_BODY_BYTES + 1],
            413,
            "RequestEntityTooLarge",
        ),
        (PROTOBUF, b"k8s".to_vec(), 400, "BadRequest"),
        (
            PROTOBUF,
            b"k8s\0\x0a\xff\xff\xff\xff\x0f".to_vec(),
            400,
            "BadRequest",
        ),
        ("text/plain", b"x".to_vec(), 415, "UnsupportedMediaType"),
    ];
    let object = api.create(&manifest("stored")).await;
    for (index, (media_type, body, code, reason)) in rows.into_iter().enumerate() {
        println!("row {index}");
        let post = api.call("POST", CSRS).body(media_type, body.clone());
        post.send().await.refuses(code, reason);
        let put = api
            .call("PUT", &approval_of(&object))
            .body(media_type, body);
        put.send().await.refuses(code, reason);
    }
    let too_large = api
        .call("POST", CSRS)
        .body(JSON, vec![b' '; MAX_BODY_BYTES + 1])
        .send()
        .await;
    assert_eq!(
        too_large.value()["message"],
        "Request entity too large: limit is 3145728"
    );
}

#[tokio::test]
async fn unknown_fields_are_ignored_warned_of_or_refused() {
    let api = Api::start().await;
    let mut object = manifest("fields");
    object["spec"]["colour"] = json!("red");
    let post = |query: &str| {
        api.call("POST", &format!("{CSRS}?dryRun=All{query}"))
            .json(&object)
    };
    let reply = post("&fieldValidation=Ignore").send().await;
    assert_eq!((reply.status.as_u16(), reply.header("warning")), (201, ""));
    let reply = post("").send().await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("warning")),
        (201, r#"299 - "unknown field \"spec.colour\"""#)
    );
    let status = post("&fieldValidation=Strict")
        .send()
        .await
        .refuses(400, "BadRequest");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("strict decoding error: unknown field \"spec.colour\""),
        "{message}"
    );
    post("&fieldValidation=Maybe")
        .send()
        .await
        .refuses(422, "Invalid");
}

#[tokio::test]
async fn objects_larger_than_a_real_store_takes_are_refused() {
    let api = Api::start().await;
    let mut object = manifest("large");
    let labels: serde_json::Map<String, serde_json::Value> = (0..30_000)
        .map(|n| (format!("label-{n}"), json!("x".repeat(63))))
        .collect();
    object["metadata"]["labels"] = json!(labels);
    api.call("POST", CSRS)
        .json(&object)
        .send()
        .await
        .refuses(413, "RequestEntityTooLarge");
    assert!(api.record("large").await.is_none());
}
