//! Changing labels and the like, and what stays as it is.

use serde_json::{Value, json};

use super::{Api, CSRS, approval_of, manifest, path_of, with_condition};

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

#[tokio::test]
async fn patches_of_every_kind_change_labels() {
    let api = Api::start().await;
    let created = api.create(&manifest("labels")).await;
    let path = path_of(&created);
    let rows = [
        (
            MERGE,
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"a": "1", "b": "2"}),
        ),
        (
            STRATEGIC,
            json!({"metadata": {"labels": {"a": "3", "b": null}}}),
            json!({"a": "3"}),
        ),
        (
            JSON_PATCH,
            json!([{"op": "add", "path": "/metadata/labels/c", "value": "4"}]),
            json!({"a": "3", "c": "4"}),
        ),
    ];
    for (kind, patch, labels) in rows {
        let changed = api
            .call("PATCH", &path)
            .body(kind, patch.to_string())
            .send()
            .await
            .ok();
        assert_eq!(changed["metadata"]["labels"], labels, "{kind}");
        assert_eq!(api.get(&path).await.ok(), changed, "{kind}");
        assert_eq!(changed["spec"], created["spec"], "{kind}");
        assert_eq!(
            changed["metadata"]["uid"], created["metadata"]["uid"],
            "{kind}"
        );
    }
    let test = json!([{"op": "test", "path": "/metadata/labels/c", "value": "5"}]);
    api.call("PATCH", &path)
        .body(JSON_PATCH, test.to_string())
        .send()
        .await
        .refuses(422, "Invalid");
    api.call("PATCH", &path)
        .body(MERGE, "[]")
        .send()
        .await
        .refuses(400, "BadRequest");
    api.call("PATCH", &path)
        .body("application/unheard-of", "{}")
        .send()
        .await
        .refuses(415, "UnsupportedMediaType");
}

#[tokio::test]
async fn applying_a_manifest_again_changes_nothing() {
    let api = Api::start().await;
    let mut object = manifest("applied");
    object["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": "{}\n"});
    let created = api.create(&object).await;
    let path = format!(
        "{}?fieldManager=kubectl-client-side-apply&fieldValidation=Strict",
        path_of(&created)
    );
    let patch = json!({"metadata": {"annotations": object["metadata"]["annotations"]}});
    let applied = api
        .call("PATCH", &path)
        .body(STRATEGIC, patch.to_string())
        .send()
        .await
        .ok();
    assert_eq!(applied, created, "the same version too");
    let replaced = api
        .call("PUT", &path_of(&created))
        .json(&created)
        .send()
        .await
        .ok();
    assert_eq!(replaced, created);
}

#[tokio::test]
async fn spec_and_status_are_put_back_silently() {
    let api = Api::start().await;
    let created = api.create(&manifest("fixed")).await;
    let mut edited = with_condition(&created, "Approved");
    edited["spec"]["usages"] = json!(["any"]);
    edited["spec"]["username"] = json!("root");
    edited["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    let kept = api
        .call("PUT", &path_of(&created))
        .json(&edited)
        .send()
        .await
        .ok();
    assert_eq!(kept, created);
    let mut edited = with_condition(&created, "Approved");
    edited["status"]["certificate"] = json!("eA==");
    edited["spec"]["usages"] = json!(["any"]);
    let approved = api
        .call("PUT", &approval_of(&created))
        .json(&edited)
        .send()
        .await
        .ok();
    assert_eq!(approved["spec"], created["spec"]);
    assert_ne!(approved["status"]["certificate"], "eA==");
}

#[tokio::test]
async fn stale_and_mistaken_writes_are_conflicts() {
    let api = Api::start().await;
    let created = api.create(&manifest("moving")).await;
    let path = path_of(&created);
    let label = |value: &str| json!({"metadata": {"labels": {"v": value}}}).to_string();
    let newer = api
        .call("PATCH", &path)
        .body(MERGE, label("1"))
        .send()
        .await
        .ok();
    let put = |path: String, body: Value| {
        let call = api.call("PUT", &path).json(&body);
        async move { call.send().await }
    };
    let conflict = "Operation cannot be fulfilled on certificatesigningrequests.certificates.k8s.io \"moving\": ";
    let rows = [
        (
            "stale object",
            put(path.clone(), created.clone()).await,
            "the object has been modified",
        ),
        (
            "stale approval",
            put(approval_of(&created), with_condition(&created, "Approved")).await,
            "the object has been modified",
        ),
        (
            "other uid",
            put(path.clone(), other_uid(&newer)).await,
            "Precondition failed: UID in precondition: 7",
        ),
        (
            "patch with a version",
            api.call("PATCH", &path)
                .body(
                    MERGE,
                    json!({"metadata": {"resourceVersion": "1", "labels": {"v": "2"}}}).to_string(),
                )
                .send()
                .await,
            "the object has been modified",
        ),
    ];
    for (row, reply, text) in rows {
        let status = reply.refuses(409, "Conflict");
        let message = status["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("{conflict}{text}")),
            "{row}: {message}"
        );
        assert_eq!(
            status["details"]["kind"], "certificatesigningrequests",
            "{row}"
        );
    }
    let mut renamed = newer.clone();
    renamed["metadata"]["name"] = json!("else");
    put(path.clone(), renamed).await.refuses(400, "BadRequest");
    put(format!("{CSRS}/absent"), manifest("absent"))
        .await
        .refuses(404, "NotFound");
    let mut blind = newer.clone();
    blind["metadata"] = json!({"labels": {"v": "3"}});
    put(path.clone(), blind.clone())
        .await
        .refuses(400, "BadRequest");
    blind["metadata"]["name"] = newer["metadata"]["name"].clone();
    let written = put(path, blind).await.ok();
    assert_eq!(
        written["metadata"]["labels"],
        json!({"v": "3"}),
        "no version, no condition"
    );
}

fn other_uid(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["uid"] = json!("7");
    object
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let api = Api::start().await;
    let created = api.create(&manifest("dry")).await;
    let approval = format!("{}?dryRun=All", approval_of(&created));
    let pretended = api
        .call("PUT", &approval)
        .json(&with_condition(&created, "Approved"))
        .send()
        .await
        .ok();
    assert_eq!(pretended["status"]["conditions"][0]["type"], "Approved");
    assert_eq!(pretended["status"].get("certificate"), None);
    let patch = format!("{}?dryRun=All", path_of(&created));
    api.call("PATCH", &patch)
        .body(MERGE, r#"{"metadata":{"labels":{"a":"b"}}}"#)
        .send()
        .await
        .ok();
    assert_eq!(api.get(&path_of(&created)).await.ok(), created);
}

#[tokio::test]
async fn labels_written_by_many_at_once_are_all_kept() {
    let api = Api::start().await;
    let created = api.create(&manifest("busy")).await;
    let path = path_of(&created);
    let calls = (0..6).map(|n| {
        let patch = json!({"metadata": {"labels": {format!("l{n}"): "x"}}});
        api.call("PATCH", &path)
            .body(MERGE, patch.to_string())
            .send()
    });
    for reply in futures_util::future::join_all(calls).await {
        reply.ok();
    }
    let labels = api.get(&path).await.ok()["metadata"]["labels"].clone();
    assert_eq!(labels.as_object().unwrap().len(), 6, "{labels}");
}
