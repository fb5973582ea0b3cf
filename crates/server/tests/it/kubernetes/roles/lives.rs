//! The life of one object of roles, from its first version to its end.

use serde_json::{Value, json};

use super::super::rights::requests;
use super::super::stream::{in_short, version};
use super::super::{Api, CSRS, Call};
use super::{
    EVERY_VERB, KINDS, all_of, cluster_role, manifest, names, one_of, rights_on, write_as,
};

const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

#[tokio::test]
async fn every_kind_is_written_read_watched_and_deleted() {
    let api = Api::start().await;
    for (kind, path) in KINDS {
        println!("{kind}");
        let everywhere = path.rsplit('/').next().unwrap();
        let before = version(&api.get(&all_of(path)).await.ok());
        let watch = format!("{}?watch=true&resourceVersion={before}", all_of(everywhere));
        let mut stream = api.call("GET", &watch).open().await;

        let sent = manifest(kind, "a");
        let created = api.written(path, &sent).await;
        let meta = &created["metadata"];
        assert_eq!(meta["creationTimestamp"], "2026-01-02T03:04:05Z");
        assert_eq!(meta["uid"].as_str().unwrap().len(), 36);
        assert!(version(&created) > before);
        for field in ["kind", "apiVersion", "rules"] {
            assert_eq!(created.get(field), sent.get(field), "{field}");
        }
        if kind.ends_with("Binding") {
            let group = "rbac.authorization.k8s.io";
            assert_eq!(created["roleRef"]["apiGroup"], group);
            assert_eq!(created["subjects"][0]["apiGroup"], group);
        }
        let again = api.post(path, &sent).await.refuses(409, "AlreadyExists");
        let text = format!("{everywhere}.rbac.authorization.k8s.io \"a\" already exists");
        assert_eq!(again["message"], text);

        let one = one_of(path, "a");
        assert_eq!(api.get(&one).await.ok(), created);
        let list = api.get(&all_of(path)).await.ok();
        assert_eq!(list["kind"], format!("{kind}List"));
        let listed = names(&list);
        assert!(listed.iter().any(|name| name.ends_with("/a")), "{listed:?}");

        let put = |object: &Value| api.call("PUT", &one).json(object);
        assert_eq!(put(&created).send().await.ok(), created, "nothing changed");
        let mut replaced = created.clone();
        replaced["metadata"]["labels"] = json!({"team": "red"});
        let mut told = vec![created.clone(), put(&replaced).send().await.ok()];
        put(&replaced).send().await.refuses(409, "Conflict");
        let patches = [
            (
                super::MERGE,
                json!({"metadata": {"labels": {"team": "blue"}}}),
            ),
            (
                STRATEGIC,
                json!({"metadata": {"annotations": {"note": "x"}}}),
            ),
            (
                JSON_PATCH,
                json!([{"op": "remove", "path": "/metadata/labels/team"}]),
            ),
        ];
        for (media_type, patch) in patches {
            let call = api.call("PATCH", &one).body(media_type, patch.to_string());
            told.push(call.send().await.ok());
        }
        let last = told.last().unwrap();
        assert_eq!(last["metadata"].get("labels"), None);
        assert_eq!(last["metadata"]["annotations"], json!({"note": "x"}));
        let fixed = |object: &Value| object["metadata"]["uid"].clone();
        assert!(told.iter().all(|object| fixed(object) == fixed(&created)));

        let deleted = api.call("DELETE", &one).send().await.ok();
        assert_eq!(
            deleted["details"],
            json!({"name": "a", "group": "rbac.authorization.k8s.io", "kind": everywhere, "uid": fixed(&created)})
        );
        api.get(&one).await.refuses(404, "NotFound");
        let gone = api.call("DELETE", &one).send().await;
        gone.refuses(404, "NotFound");
        for (index, object) in told.iter().enumerate() {
            let word = if index == 0 { "ADDED" } else { "MODIFIED" };
            let event = stream.event().await;
            assert_eq!(event, json!({"type": word, "object": object}));
        }
        let event = stream.event().await;
        let (word, _, at) = in_short(&event);
        assert_eq!(
            (word.as_str(), &event["object"]["kind"]),
            ("DELETED", &json!(kind))
        );
        assert!(at > version(last));
    }
    let acts = api.acts_of("kubernetes-admin").await;
    for (kind, path) in KINDS {
        let path = path.trim_start_matches("namespaces/");
        let (namespace, resource) = path.rsplit_once('/').unwrap_or(("", path));
        let subject = match namespace {
            "" => format!("{resource}.rbac.authorization.k8s.io/a"),
            _ => format!("{resource}.rbac.authorization.k8s.io/{namespace}/a"),
        };
        let kind = kind.to_lowercase();
        let of_kind: Vec<&String> = acts.iter().filter(|act| act.ends_with(&subject)).collect();
        let words = ["create", "update", "update", "update", "update", "delete"];
        let expected: Vec<String> = words
            .iter()
            .map(|word| format!("{word} {kind}: {subject}"))
            .collect();
        assert_eq!(of_kind, expected.iter().collect::<Vec<_>>(), "{acts:?}");
    }
}

#[tokio::test]
async fn a_grant_counts_at_once_and_so_does_its_withdrawal() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    let list = || api.status(&jane, "GET", CSRS);
    let (roles, bindings) = ("clusterroles", "clusterrolebindings");
    let binding = manifest("ClusterRoleBinding", "jane");
    api.written(bindings, &binding).await;
    assert_eq!(list().await, 403, "there is no such role");
    api.written(roles, &cluster_role("reader", json!([requests(&["list"])])))
        .await;
    assert_eq!(list().await, 200);
    let reader = one_of(roles, "reader");
    api.merge(&reader, &json!({"rules": []})).send().await.ok();
    assert_eq!(list().await, 403);
    let put = cluster_role("reader", json!([requests(&["list"])]));
    api.call("PUT", &reader).json(&put).send().await.ok();
    assert_eq!(list().await, 200);
    let bound = one_of(bindings, "jane");
    api.call("DELETE", &bound).send().await.ok();
    assert_eq!(list().await, 403);

    // In a namespace, a cluster role is a role of that namespace.
    let mut local = manifest("RoleBinding", "jane");
    local["roleRef"]["name"] = json!("roles-reader");
    let reading = json!([rights_on("roles", &["list"])]);
    api.written(roles, &cluster_role("roles-reader", reading))
        .await;
    let reads = async |namespaces: [&str; 3]| {
        let mut codes = Vec::new();
        for path in namespaces {
            codes.push(api.status(&jane, "GET", &all_of(path)).await);
        }
        codes
    };
    let paths = ["namespaces/lab/roles", "namespaces/field/roles", "roles"];
    assert_eq!(reads(paths).await, [403, 403, 403]);
    api.written("namespaces/lab/rolebindings", &local).await;
    assert_eq!(reads(paths).await, [200, 403, 403]);
    let all = all_of("namespaces/lab/rolebindings");
    api.call("DELETE", &all).send().await.ok();
    assert_eq!(reads(paths).await, [403, 403, 403]);
}

#[tokio::test]
async fn put_creates_what_is_not_there() {
    let api = Api::start().await;
    for (kind, path) in KINDS {
        let one = one_of(path, "new");
        let put = |object: &Value| api.call("PUT", &one).json(object);
        let created = put(&manifest(kind, "new")).send().await;
        assert_eq!(created.status, 201, "{created:?}");
        let again = put(&manifest(kind, "new")).send().await;
        assert_eq!(again.ok(), created.value());
        put(&manifest(kind, "other"))
            .send()
            .await
            .refuses(400, "BadRequest");
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        let missing = api.merge(&one_of(path, "none"), &patch);
        missing.send().await.refuses(404, "NotFound");
    }
    // It takes the right to create, too.
    let jane = api.user("jane", "dev").await;
    api.grant("jane", json!([rights_on("clusterroles", &["update"])]))
        .await;
    let object = cluster_role("third", json!([]));
    let put = || {
        let call = api.call("PUT", &one_of("clusterroles", "third"));
        call.from(&jane).json(&object)
    };
    let message = put().send().await.refuses(403, "Forbidden")["message"].clone();
    let text = "User \"jane\" cannot create resource \"clusterroles\"";
    assert!(message.as_str().unwrap().contains(text), "{message}");
    api.grant("jane", json!([rights_on("clusterroles", EVERY_VERB)]))
        .await;
    assert_eq!(put().send().await.status, 201);
}

#[tokio::test]
async fn dry_runs_change_nothing() {
    let api = Api::start().await;
    let (kind, path) = KINDS[0];
    let kept = api.written(path, &manifest(kind, "kept")).await;
    let before = api.world.authority.revision();
    let dry = |method: &str, path: &str| api.call(method, &format!("{path}?dryRun=All"));
    let created = dry("POST", &all_of(path)).json(&manifest(kind, "new"));
    let created = created.send().await;
    assert_eq!(created.status, 201, "{created:?}");
    assert!(created.value()["metadata"]["uid"].is_string());
    let put = dry("PUT", &one_of(path, "newer")).json(&manifest(kind, "newer"));
    assert_eq!(put.send().await.status, 201);
    let taken = dry("POST", &all_of(path)).json(&manifest(kind, "kept"));
    taken.send().await.refuses(409, "AlreadyExists");
    let patch = json!({"rules": []}).to_string();
    let patched = dry("PATCH", &one_of(path, "kept")).body(super::MERGE, patch);
    assert_eq!(patched.send().await.ok()["rules"], Value::Null);
    let invalid = dry("POST", &all_of(path)).json(&manifest(kind, "a/b"));
    invalid.send().await.refuses(422, "Invalid");
    dry("DELETE", &one_of(path, "kept")).send().await.ok();
    dry("DELETE", &all_of(path)).send().await.ok();
    assert_eq!(api.get(&one_of(path, "kept")).await.ok(), kept);
    for name in ["new", "newer"] {
        api.get(&one_of(path, name)).await.refuses(404, "NotFound");
    }
    assert_eq!(api.world.authority.revision(), before);
}

#[tokio::test]
async fn names_are_generated() {
    let api = Api::start().await;
    let mut made = Vec::new();
    for (kind, path) in [KINDS[0], KINDS[0], KINDS[3]] {
        let mut object = manifest(kind, "");
        object["metadata"] = json!({"generateName": "team-"});
        let created = api.written(path, &object).await;
        let name = created["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.starts_with("team-") && name.len() == 10, "{name}");
        assert_eq!(api.get(&one_of(path, &name)).await.ok(), created);
        assert!(!made.contains(&name));
        made.push(name);
    }
}

#[tokio::test]
async fn finalizers_hold_a_role_back() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    let (roles, one) = ("clusterroles", one_of("clusterroles", "reader"));
    let mut object = cluster_role("reader", json!([requests(&["list"])]));
    object["metadata"]["finalizers"] = json!(["example.com/audit"]);
    api.written(roles, &object).await;
    api.written(
        "clusterrolebindings",
        &manifest("ClusterRoleBinding", "jane"),
    )
    .await;
    let marked = api.call("DELETE", &one).send().await.ok();
    let meta = &marked["metadata"];
    assert_eq!(meta["deletionTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(meta["deletionGracePeriodSeconds"], 0);
    assert_eq!(api.call("DELETE", &one).send().await.ok(), marked, "once");
    assert_eq!(
        api.status(&jane, "GET", CSRS).await,
        200,
        "it is still there"
    );
    let taken = api.post(roles, &object).await.refuses(409, "AlreadyExists");
    let text =
        "object is being deleted: clusterroles.rbac.authorization.k8s.io \"reader\" already exists";
    assert_eq!(taken["message"], text);
    let more = json!({"metadata": {"finalizers": ["example.com/audit", "example.com/more"]}});
    let added = api.merge(&one, &more).send().await;
    added.names(&[("metadata.finalizers", "FieldValueForbidden")]);

    let free = json!({"metadata": {"finalizers": null}});
    let freed = api.merge(&one, &free).send().await.ok();
    assert_eq!(freed["metadata"].get("finalizers"), None);
    api.get(&one).await.refuses(404, "NotFound");
    assert_eq!(api.status(&jane, "GET", CSRS).await, 403);
}

#[tokio::test]
async fn deletions_and_updates_may_say_what_they_saw() {
    let api = Api::start().await;
    let (kind, path) = KINDS[2];
    let created = api.written(path, &manifest(kind, "a")).await;
    let one = one_of(path, "a");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let changed = api.merge(&one, &label).send().await.ok();
    let (uid, old) = (
        &created["metadata"]["uid"],
        &created["metadata"]["resourceVersion"],
    );
    let delete = |preconditions: Value| -> Call<'_> {
        let call = api.call("DELETE", &one);
        call.json(&json!({"preconditions": preconditions}))
    };
    for preconditions in [
        json!({"uid": "other"}),
        json!({"uid": uid, "resourceVersion": old}),
    ] {
        delete(preconditions).send().await.refuses(409, "Conflict");
    }
    let mut other = changed.clone();
    other["metadata"]["uid"] = json!("other");
    other["metadata"]["labels"] = json!({});
    let put = api.call("PUT", &one).json(&other);
    put.send().await.refuses(409, "Conflict");
    let stale = json!({"metadata": {"resourceVersion": old, "labels": {"a": "c"}}});
    api.merge(&one, &stale)
        .send()
        .await
        .refuses(409, "Conflict");
    assert_eq!(api.get(&one).await.ok(), changed);
    let seen = &changed["metadata"]["resourceVersion"];
    delete(json!({"uid": uid, "resourceVersion": seen}))
        .send()
        .await
        .ok();
    api.get(&one).await.refuses(404, "NotFound");
}

#[tokio::test]
async fn a_watch_ends_with_the_right_to_it() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    api.grant("jane", json!([rights_on("clusterroles", &["watch"])]))
        .await;
    let path = format!("{}?watch=true&timeoutSeconds=60", all_of("clusterroles"));
    let mut stream = api.call("GET", &path).from(&jane).open().await;
    assert_eq!(stream.status, 200);
    for _ in 0..9 {
        assert_eq!(stream.event().await["type"], "ADDED");
    }
    let bound = one_of("clusterrolebindings", "jane");
    api.call("DELETE", &bound).send().await.ok();
    let unseen = cluster_role("unseen", json!([]));
    api.written("clusterroles", &unseen).await;
    while let Some(event) = stream.next().await {
        assert_ne!(event["object"]["metadata"]["name"], "unseen", "{event}");
    }
    let nobody = api.world.anonymous();
    let refused = write_as(&api, &nobody, "clusterroles", &unseen).await;
    refused.refuses(403, "Forbidden");
}
