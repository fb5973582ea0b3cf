//! Deleting objects, one or many.

use countersign_authority::{RequestState, Retention};
use countersign_server::kubernetes::SPEC;
use serde_json::json;

use super::{Api, CSRS, manifest, path_of};

#[tokio::test]
async fn a_deleted_object_is_gone_and_its_name_free() {
    let api = Api::start().await;
    let created = api.create(&manifest("gone")).await;
    let approved = api.decide(&created, "Approved").await.ok();
    let call = api
        .call("DELETE", &path_of(&created))
        .json(&json!({"propagationPolicy": "Background"}));
    let status = call.send().await.ok();
    assert_eq!(
        status,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "gone", "group": "certificates.k8s.io", "kind": "certificatesigningrequests",
                "uid": created["metadata"]["uid"]}})
    );
    let missing = api.get(&path_of(&created)).await.refuses(404, "NotFound");
    assert_eq!(
        missing["message"],
        "certificatesigningrequests.certificates.k8s.io \"gone\" not found"
    );
    api.call("DELETE", &path_of(&created))
        .send()
        .await
        .refuses(404, "NotFound");
    let issuer = api.world.kubernetes_issuer();
    let entry = api
        .world
        .authority
        .ledger
        .newest(&issuer, "jane")
        .await
        .unwrap();
    assert!(
        entry.is_some(),
        "what was issued stays in the ledger: {approved}"
    );
    let again = api.create(&manifest("gone")).await;
    assert_ne!(again["metadata"]["uid"], created["metadata"]["uid"]);
}

#[tokio::test]
async fn preconditions_and_dry_runs_keep_the_object() {
    let api = Api::start().await;
    let created = api.create(&manifest("kept")).await;
    let rows = [
        (json!({"preconditions": {"uid": "other"}}), 409),
        (json!({"preconditions": {"resourceVersion": "1"}}), 409),
        (json!({"propagationPolicy": "Never"}), 422),
        (json!({"kind": "Pod", "apiVersion": "v1"}), 400),
        (json!({"dryRun": ["All"]}), 200),
    ];
    for (body, code) in rows {
        let reply = api
            .call("DELETE", &path_of(&created))
            .json(&body)
            .send()
            .await;
        assert_eq!(reply.status.as_u16(), code, "{body}: {reply:?}");
        assert_eq!(api.get(&path_of(&created)).await.ok(), created, "{body}");
    }
    api.call("DELETE", &format!("{}?dryRun=All", path_of(&created)))
        .send()
        .await
        .ok();
    assert!(api.record("kept").await.is_some());
    let exact = json!({"preconditions": {"uid": created["metadata"]["uid"],
        "resourceVersion": created["metadata"]["resourceVersion"]}});
    api.call("DELETE", &path_of(&created))
        .json(&exact)
        .send()
        .await
        .ok();
    assert!(api.record("kept").await.is_none());
}

#[tokio::test]
async fn finalizers_hold_an_object_back() {
    let api = Api::start().await;
    let mut object = manifest("held");
    object["metadata"]["finalizers"] = json!(["example.com/audit"]);
    let created = api.create(&object).await;
    let path = path_of(&created);
    let marked = api.call("DELETE", &path).send().await.ok();
    assert_eq!(
        marked["metadata"]["deletionTimestamp"],
        "2026-01-02T03:04:05Z"
    );
    let taken = api
        .call("POST", CSRS)
        .json(&manifest("held"))
        .send()
        .await
        .refuses(409, "AlreadyExists");
    assert!(
        taken["message"]
            .as_str()
            .unwrap()
            .starts_with("object is being deleted: "),
        "{taken}"
    );
    let added = r#"{"metadata":{"finalizers":["example.com/audit","example.com/more"]}}"#;
    let patch = |body: &'static str| {
        api.call("PATCH", &path)
            .body("application/merge-patch+json", body)
    };
    patch(added)
        .send()
        .await
        .names(&[("metadata.finalizers", "FieldValueForbidden")]);
    patch(r#"{"metadata":{"finalizers":null}}"#)
        .send()
        .await
        .ok();
    assert!(api.record("held").await.is_none());
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let api = Api::start().await;
    for (name, team) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let mut object = manifest(name);
        object["metadata"]["labels"] = json!({"team": team});
        api.create(&object).await;
    }
    let path = format!("{CSRS}?labelSelector=team%3Dred");
    api.call("DELETE", &format!("{path}&dryRun=All"))
        .send()
        .await
        .ok();
    let deleted = api.call("DELETE", &path).send().await.ok();
    let names = |list: &serde_json::Value| -> Vec<String> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(deleted["kind"], "CertificateSigningRequestList");
    assert_eq!(names(&deleted), ["a", "c"]);
    assert_eq!(names(&api.get(CSRS).await.ok()), ["b"]);
}

/// As `kubectl delete` would: what has finalizers is marked, once, and goes when they are gone.
#[tokio::test]
async fn garbage_collection_deletes_as_a_client_would() {
    let api = Api::start().await;
    let plain = api.create(&manifest("plain")).await;
    let mut object = manifest("held");
    object["metadata"]["finalizers"] = json!(["example.com/audit"]);
    let held = api.create(&object).await;
    api.world.clock.advance(100);
    let rules = [Retention {
        door: &SPEC,
        state: RequestState::Pending,
        seconds: 10,
    }];
    for forgotten in [1, 0] {
        let collected = api.world.authority.requests.collect(&rules).await.unwrap();
        let counts: Vec<u64> = collected.requests.iter().map(|(_, _, n)| *n).collect();
        assert_eq!(counts.iter().sum::<u64>(), forgotten);
    }
    api.get(&path_of(&plain)).await.refuses(404, "NotFound");
    let marked = api.get(&path_of(&held)).await.ok();
    assert!(
        marked["metadata"]["deletionTimestamp"].is_string(),
        "{marked}"
    );
    let version = marked["metadata"]["resourceVersion"].clone();
    api.world.authority.requests.collect(&rules).await.unwrap();
    let again = api.get(&path_of(&held)).await.ok();
    assert_eq!(again["metadata"]["resourceVersion"], version, "marked once");
    let freed = r#"{"metadata":{"finalizers":null}}"#;
    let call = api.call("PATCH", &path_of(&held));
    call.body("application/merge-patch+json", freed)
        .send()
        .await
        .ok();
    api.get(&path_of(&held)).await.refuses(404, "NotFound");
}
