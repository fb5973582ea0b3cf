//! Roles and bindings as objects: written, read, watched and deleted, by whom that is allowed.

mod lives;

use axum::body::Bytes;
use countersign_authority::Revision;
use countersign_kapi::protobuf::{self, Envelope};
use countersign_kapi::rbac::ClusterRoleBinding;
use countersign_kapi::{Kind as _, rbac};
use countersign_server::Peer;
use countersign_testkit::csr::TOKEN;
use serde_json::{Value, json};

use super::rights::requests;
use super::secrets::{holds, secret};
use super::{Api, CSRS, Call, Reply};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";

/// Each kind, with the path of its objects in the namespace `lab` or in the cluster.
const KINDS: [(&str, &str); 4] = [
    ("ClusterRole", "clusterroles"),
    ("ClusterRoleBinding", "clusterrolebindings"),
    ("Role", "namespaces/lab/roles"),
    ("RoleBinding", "namespaces/lab/rolebindings"),
];

/// A manifest, as somebody writes it.
fn manifest(kind: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    match kind.ends_with("Binding") {
        true => {
            object["subjects"] = json!([{"kind": "User", "name": "jane"}]);
            object["roleRef"] = json!({"kind": "ClusterRole", "name": "reader"});
        }
        false => object["rules"] = json!([requests(&["get", "list"])]),
    }
    object
}

/// The same of a cluster role with other rules.
fn cluster_role(name: &str, rules: Value) -> Value {
    let mut object = manifest("ClusterRole", name);
    object["rules"] = rules;
    object
}

fn all_of(path: &str) -> String {
    format!("{RBAC}/{path}")
}

fn one_of(path: &str, name: &str) -> String {
    format!("{RBAC}/{path}/{name}")
}

impl Api {
    async fn post(&self, path: &str, object: &Value) -> Reply {
        self.call("POST", &all_of(path)).json(object).send().await
    }

    /// Writes an object of roles as the administrator and gives it as stored.
    async fn written(&self, path: &str, object: &Value) -> Value {
        let reply = self.post(path, object).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.value()
    }

    fn merge(&self, path: &str, patch: &Value) -> Call<'_> {
        self.call("PATCH", path).body(MERGE, patch.to_string())
    }

    /// What the audit log says of somebody, as action and subject.
    async fn acts_of(&self, who: &str) -> Vec<String> {
        let audit = self.world.authority.audit.after(Revision::default(), 1000);
        let entries = audit.await.unwrap().into_iter().map(|(_, entry)| entry);
        let own = entries.filter(|entry| entry.actor.to_string().starts_with(who));
        own.map(|entry| format!("{}: {}", entry.action, entry.subject))
            .collect()
    }
}

/// The names in a list, with their namespaces.
fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    let name = |object: &Value| {
        let meta = &object["metadata"];
        let part = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", part("namespace"), part("name"))
    };
    items.iter().map(name).collect()
}

#[tokio::test]
async fn namespaces_keep_roles_apart() {
    let api = Api::start().await;
    for (namespace, name, team) in [
        ("lab", "a", "red"),
        ("lab", "b", "blue"),
        ("field", "a", "red"),
    ] {
        let mut object = manifest("Role", name);
        object["metadata"]["labels"] = json!({"team": team});
        // Who does not say a namespace means that of the path.
        if name == "b" {
            object["metadata"]["namespace"] = json!(namespace);
        }
        let path = format!("namespaces/{namespace}/roles");
        assert_eq!(
            api.written(&path, &object).await["metadata"]["namespace"],
            namespace
        );
    }
    let mut elsewhere = manifest("Role", "c");
    elsewhere["metadata"]["namespace"] = json!("field");
    let refused = api.post("namespaces/lab/roles", &elsewhere).await;
    assert_eq!(
        refused.refuses(400, "BadRequest")["message"],
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    let put = api.call("PUT", &one_of("namespaces/lab/roles", "c"));
    put.json(&elsewhere).send().await.refuses(400, "BadRequest");
    // What has no namespace is not given one.
    let mut outside = manifest("ClusterRole", "outside");
    outside["metadata"]["namespace"] = json!("lab");
    let stored = api.written("clusterroles", &outside).await;
    assert_eq!(stored["metadata"].get("namespace"), None);

    let rows: [(&str, &[&str]); 6] = [
        ("roles", &["field/a", "lab/a", "lab/b"]),
        ("namespaces/lab/roles", &["lab/a", "lab/b"]),
        ("namespaces/none/roles", &[]),
        ("roles?labelSelector=team%3Dred", &["field/a", "lab/a"]),
        ("roles?fieldSelector=metadata.name%3Db", &["lab/b"]),
        (
            "roles?fieldSelector=metadata.namespace%3Dfield",
            &["field/a"],
        ),
    ];
    for (path, expected) in rows {
        assert_eq!(
            names(&api.get(&all_of(path)).await.ok()),
            expected,
            "{path}"
        );
    }
    let first = api.get(&all_of("roles?limit=2")).await.ok();
    let rest = first["metadata"]["continue"].as_str().unwrap();
    let rest = all_of(&format!("roles?limit=2&continue={rest}"));
    assert_eq!(names(&api.get(&rest).await.ok()), ["lab/b"]);

    let nowhere = api.post("roles", &manifest("Role", "d")).await;
    nowhere.refuses(405, "MethodNotAllowed");
    api.get(&one_of("namespaces/field/roles", "b"))
        .await
        .refuses(404, "NotFound");
    let red = all_of("namespaces/lab/roles?labelSelector=team%3Dred");
    let deleted = api.call("DELETE", &red).send().await.ok();
    assert_eq!(deleted["kind"], "RoleList");
    assert_eq!(names(&deleted), ["lab/a"]);
    let left = api.get(&all_of("roles")).await.ok();
    assert_eq!(names(&left), ["field/a", "lab/b"]);
}

#[tokio::test]
async fn what_is_not_well_formed_is_refused_with_every_fault() {
    let api = Api::start().await;
    type Faults<'a> = &'a [(&'a str, &'a str)];
    let rows: [(usize, Value, Faults<'_>); 9] = [
        (
            0,
            json!({"rules": [{"apiGroups": ["a"], "resources": ["b"]}, {"verbs": ["get"]}]}),
            &[
                ("rules[0].verbs", "FieldValueRequired"),
                ("rules[1].apiGroups", "FieldValueRequired"),
                ("rules[1].resources", "FieldValueRequired"),
            ],
        ),
        (
            2,
            json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/version"]}]}),
            &[("rules[0].nonResourceURLs", "FieldValueInvalid")],
        ),
        (
            0,
            json!({"aggregationRule": {"clusterRoleSelectors": []}}),
            &[("aggregationRule.clusterRoleSelectors", "FieldValueRequired")],
        ),
        (
            1,
            json!({"roleRef": {"kind": "Role", "name": ""}}),
            &[
                ("roleRef.kind", "FieldValueNotSupported"),
                ("roleRef.name", "FieldValueRequired"),
            ],
        ),
        (
            3,
            json!({"roleRef": {"apiGroup": "v1", "kind": "Role", "name": "a/b"}}),
            &[
                ("roleRef.apiGroup", "FieldValueNotSupported"),
                ("roleRef.name", "FieldValueInvalid"),
            ],
        ),
        (
            1,
            json!({"subjects": [{"kind": "ServiceAccount", "name": "bot"}, {"kind": "Robot", "name": "x"}]}),
            &[
                ("subjects[0].namespace", "FieldValueRequired"),
                ("subjects[1].kind", "FieldValueNotSupported"),
            ],
        ),
        (
            0,
            json!({"metadata": {"name": "a%b"}}),
            &[("metadata.name", "FieldValueInvalid")],
        ),
        (
            0,
            json!({"metadata": {}}),
            &[("metadata.name", "FieldValueRequired")],
        ),
        (
            0,
            json!({"metadata": {"name": "a", "labels": {"a": "*"}}}),
            &[("metadata.labels", "FieldValueInvalid")],
        ),
    ];
    for (kind, changes, causes) in rows {
        let (kind, path) = KINDS[kind];
        let mut object = manifest(kind, "a");
        for (field, value) in changes.as_object().unwrap() {
            object[field] = value.clone();
        }
        println!("{object}");
        api.post(path, &object).await.names(causes);
    }
    let far = api
        .post("namespaces/UPPER/roles", &manifest("Role", "a"))
        .await;
    far.names(&[("metadata.namespace", "FieldValueInvalid")]);
    let other = api.post("clusterroles", &manifest("Role", "a")).await;
    other.refuses(400, "BadRequest");
}

#[tokio::test]
async fn a_binding_keeps_its_role() {
    let api = Api::start().await;
    for (kind, path) in [KINDS[1], KINDS[3]] {
        let mut object = api.written(path, &manifest(kind, "kept")).await;
        object["roleRef"]["name"] = json!("other");
        let put = api.call("PUT", &one_of(path, "kept")).json(&object);
        let reply = put.send().await;
        reply.names(&[("roleRef", "FieldValueInvalid")]);
        let message = reply.value()["message"].clone();
        let text = "cannot change roleRef";
        assert!(message.as_str().unwrap().ends_with(text), "{message}");
        // Whom it is for may change.
        let patch = json!({"subjects": [{"kind": "Group", "name": "ops"}]});
        let patched = api.merge(&one_of(path, "kept"), &patch).send().await.ok();
        assert_eq!(
            patched["subjects"],
            json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "ops"}])
        );
    }
}

/// As `kubectl` and client-go send and take them.
#[tokio::test]
async fn bodies_and_answers_may_be_protobuf_and_answers_a_table() {
    let api = Api::start().await;
    let (kind, path) = KINDS[1];
    let object: ClusterRoleBinding = serde_json::from_value(manifest(kind, "a")).unwrap();
    let protobuf = "application/vnd.kubernetes.protobuf";
    let post = api.call("POST", &all_of(path));
    let post = post.body(protobuf, protobuf::write(&object));
    let created = post.header("accept", protobuf).send().await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.header("content-type"), protobuf);
    let stored = api.get(&one_of(path, "a")).await.ok();
    assert_eq!(
        read(&created.body),
        serde_json::from_value(stored.clone()).unwrap()
    );
    assert_eq!(stored["subjects"][0]["name"], "jane");

    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let call = api.call("GET", &one_of(path, "a")).header("accept", table);
    let table = call.send().await.ok();
    assert_eq!(table["kind"], "Table");
    let cells = &table["rows"][0]["cells"];
    assert_eq!(
        cells,
        &json!(["a", "ClusterRole/reader", "0s", "jane", "", ""])
    );
}

fn read(body: &Bytes) -> ClusterRoleBinding {
    let envelope = Envelope::read(body).unwrap();
    assert_eq!(envelope.api_version, rbac::API_VERSION);
    assert_eq!(envelope.kind, "ClusterRoleBinding");
    ClusterRoleBinding::from_protobuf(envelope.raw).unwrap()
}

#[tokio::test]
async fn tokens_in_roles_are_refused_and_not_repeated() {
    let api = Api::start().await;
    let (kind, path) = KINDS[0];
    let kept = api.written(path, &manifest(kind, "kept")).await;
    let mut rule = requests(&["get"]);
    rule["resourceNames"] = json!([TOKEN]);
    let rows = [
        json!({"metadata": {"name": TOKEN}}),
        json!({"metadata": {"name": "kept", "annotations": {"note": format!("it is {TOKEN}")}}}),
        json!({"metadata": {"name": "kept", "labels": {"token": TOKEN}}}),
        json!({"rules": [rule]}),
    ];
    for changes in rows {
        let mut object = manifest(kind, "new");
        for (field, value) in changes.as_object().unwrap() {
            object[field] = value.clone();
        }
        let mut replies = vec![api.post(path, &object).await];
        if changes["metadata"]["name"] != TOKEN {
            let patch = api.merge(&one_of(path, "kept"), &changes);
            replies.push(patch.send().await);
        }
        for reply in replies {
            reply.refuses(422, "Invalid");
            assert!(!holds(&reply.body, secret()), "{reply:?}");
            let told = String::from_utf8_lossy(&reply.body).into_owned();
            assert!(told.contains("mint another"), "{told}");
        }
    }
    assert_eq!(api.get(&one_of(path, "kept")).await.ok(), kept);
    assert!(!holds(&api.world.stored(), secret()));
}

#[tokio::test]
async fn the_roles_of_the_start_come_back_unless_they_are_not_to_be_kept() {
    let api = Api::start().await;
    let bootstrapper = one_of("clusterroles", "system:node-bootstrapper");
    let approver = one_of(
        "clusterroles",
        "system:certificates.k8s.io:kubelet-serving-approver",
    );
    let before = api.get(&approver).await.ok();
    api.call("DELETE", &approver).send().await.ok();
    let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "false"});
    let patch = json!({"metadata": {"annotations": annotations}, "rules": []});
    let emptied = api.merge(&bootstrapper, &patch).send().await.ok();
    let admins = one_of("clusterrolebindings", "cluster-admin");
    api.call("DELETE", &admins).send().await.ok();

    let api = api.restarted().await;
    let after = api.get(&approver).await.ok();
    assert_eq!(after["rules"], before["rules"]);
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(api.get(&bootstrapper).await.ok(), emptied);
    let bound = api.get(&admins).await.ok();
    assert_eq!(bound["subjects"][0]["name"], "system:masters");
}

#[tokio::test]
async fn an_aggregated_role_shows_and_allows_what_it_is_made_of() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    let mut whole = cluster_role("reader", json!([]));
    whole["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "reader"}}]});
    api.written("clusterroles", &whole).await;
    api.written(
        "clusterrolebindings",
        &manifest("ClusterRoleBinding", "jane"),
    )
    .await;
    assert_eq!(api.status(&jane, "GET", CSRS).await, 403);
    let mut part = cluster_role("part", json!([requests(&["list"])]));
    part["metadata"]["labels"] = json!({"to": "reader"});
    api.written("clusterroles", &part).await;
    assert_eq!(api.status(&jane, "GET", CSRS).await, 200);
    let reader = one_of("clusterroles", "reader");
    assert_eq!(api.get(&reader).await.ok()["rules"], part["rules"]);
    let unlabelled = json!({"metadata": {"labels": null}});
    let part = one_of("clusterroles", "part");
    api.merge(&part, &unlabelled).send().await.ok();
    assert_eq!(api.status(&jane, "GET", CSRS).await, 403);
    assert_eq!(api.get(&reader).await.ok()["rules"], Value::Null);
}

/// Everything of one kind that somebody does with a right.
fn rights_on(resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": [resource], "verbs": verbs})
}

const EVERY_VERB: &[&str] = &["create", "get", "list", "update", "patch", "delete"];

async fn write_as(api: &Api, who: &Peer, path: &str, object: &Value) -> Reply {
    let call = api.call("POST", &all_of(path)).from(who);
    call.json(object).send().await
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_hold() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    let writer = json!([
        rights_on("clusterroles", EVERY_VERB),
        rights_on("clusterrolebindings", EVERY_VERB),
        requests(&["get"]),
    ]);
    api.grant("jane", writer.clone()).await;
    let (roles, bindings) = ("clusterroles", "clusterrolebindings");
    let held = cluster_role("held", json!([requests(&["get"])]));
    let created = write_as(&api, &jane, roles, &held).await;
    assert_eq!(created.status, 201, "{created:?}");
    let more = cluster_role("more", json!([requests(&["get", "delete"])]));
    let refused = write_as(&api, &jane, roles, &more).await;
    let text = "user \"jane\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions not \
                currently held:\n{APIGroups:[\"certificates.k8s.io\"], Resources:[\"certificatesigningrequests\"], \
                Verbs:[\"delete\"]}";
    assert_eq!(
        refused.refuses(403, "Forbidden")["message"],
        format!("clusterroles.rbac.authorization.k8s.io \"more\" is forbidden: {text}")
    );
    // Neither does who changes one; what the writer saw, and whether it is well formed, are looked at later.
    api.written(roles, &more).await;
    let mut stale = api.get(&one_of(roles, "more")).await.ok();
    stale["metadata"]["labels"] = json!({"team": "*"});
    stale["metadata"]["resourceVersion"] = json!("1");
    let put = api.call("PUT", &one_of(roles, "more")).from(&jane);
    put.json(&stale).send().await.refuses(403, "Forbidden");
    let label = json!({"metadata": {"labels": {"team": "red"}}});
    let patch = api.merge(&one_of(roles, "more"), &label).from(&jane);
    patch.send().await.refuses(403, "Forbidden");
    // To hold its deletion back grants nothing, and neither does what changes nothing.
    let holding = json!({"metadata": {"finalizers": ["example.com/audit"]}});
    for _ in 0..2 {
        let patch = api.merge(&one_of(roles, "more"), &holding).from(&jane);
        patch.send().await.ok();
    }

    let binding = |role: &str| {
        let mut object = manifest("ClusterRoleBinding", role);
        object["roleRef"]["name"] = json!(role);
        object
    };
    let bound = write_as(&api, &jane, bindings, &binding("held")).await;
    assert_eq!(bound.status, 201, "{bound:?}");
    let refused = write_as(&api, &jane, bindings, &binding("more")).await;
    let message = refused.refuses(403, "Forbidden")["message"].clone();
    assert!(message.as_str().unwrap().ends_with(text), "{message}");
    let unknown = write_as(&api, &jane, bindings, &binding("unknown")).await;
    assert_eq!(
        unknown.refuses(404, "NotFound")["message"],
        "clusterroles.rbac.authorization.k8s.io \"unknown\" not found"
    );
    let mut gathering = cluster_role("all", json!([]));
    gathering["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let refused = write_as(&api, &jane, roles, &gathering).await;
    let message = refused.refuses(403, "Forbidden")["message"].clone();
    let text = "must have cluster-admin privileges to use the aggregationRule";
    assert!(message.as_str().unwrap().ends_with(text), "{message}");

    // The verbs for it make up for what is not held.
    let mut rules = writer;
    let rows = rules.as_array_mut().unwrap();
    rows.push(rights_on(roles, &["escalate", "bind"]));
    api.grant("jane", rules).await;
    api.merge(&one_of(roles, "more"), &label)
        .from(&jane)
        .send()
        .await
        .ok();
    for (path, object) in [
        (roles, gathering),
        (bindings, binding("more")),
        (bindings, binding("unknown")),
        (roles, cluster_role("most", json!([requests(&["*"])]))),
    ] {
        let reply = write_as(&api, &jane, path, &object).await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }
}
