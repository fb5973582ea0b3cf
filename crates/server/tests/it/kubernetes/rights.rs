//! Roles and bindings: what they allow, from when on, and what they do not.

use countersign_authority::{
    AccessAnswer, AccessReviews, ObjectFault, ObjectKey, ObjectOrder, ObjectRecord, Revision,
};
use countersign_kapi::UserInfo;
use countersign_kapi::rbac::book::RbacKind;
use countersign_kapi::rbac::escalation::RoleDraft;
use countersign_kapi::rbac::{PolicyRule, RoleRef};
use countersign_pki::Certificate;
use countersign_policy::{AccessQuestion, Identity, Requester};
use countersign_server::kubernetes::KubernetesDoor;
use countersign_server::{KnownClient, Peer};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::signing::elsewhere;
use super::{Api, CSRS, Reply, approval_of, manifest, manifest_of, path_of, with_condition};
use crate::world::{CUSTOM, Forged, KUBE_CLIENT, signer_name};

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";

impl Api {
    /// Writes a role or binding as a client's request would, and waits until it counts.
    pub(super) async fn put(
        &self,
        kind: RbacKind,
        namespace: &str,
        name: &str,
        body: Value,
    ) -> ObjectRecord {
        let authority = &self.world.authority;
        let order = order(kind, namespace, name, &body);
        let record = match authority.objects.create(order.clone()).await {
            Err(ObjectFault::Exists { .. }) => authority.objects.update(order).await.unwrap(),
            created => created.unwrap(),
        };
        self.settle(record.version).await;
        record
    }

    async fn remove(&self, kind: RbacKind, name: &str) {
        let gone = self
            .world
            .authority
            .objects
            .delete(order(kind, "", name, &json!({})));
        let revision = gone.await.unwrap().version;
        self.settle(revision).await;
    }

    async fn settle(&self, revision: Revision) {
        let authority = &self.world.authority;
        self.authorizer.settle(authority, revision).await.unwrap();
    }

    /// Gives a user a cluster role of these rules.
    pub(super) async fn grant(&self, user: &str, rules: Value) {
        self.put(RbacKind::ClusterRole, "", user, json!({"rules": rules}))
            .await;
        self.bind(user, user).await;
    }

    pub(super) async fn bind(&self, user: &str, role: &str) {
        let body = json!({"subjects": [{"kind": "User", "name": user}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
        self.put(RbacKind::ClusterRoleBinding, "", user, body).await;
    }

    /// A user by a certificate of the signer of API clients.
    pub(super) async fn user(&self, name: &str, group: &str) -> Peer {
        let request = CsrBuilder::new(name).organization(group);
        self.world.client(KUBE_CLIENT, name, &request).await
    }

    /// A user by a certificate that says what it says.
    async fn holder(&self, forged: &Forged<'_>) -> Peer {
        let issuer = self.world.kubernetes_issuer();
        let der = self.world.forge(&issuer, keys::p256_d(), forged).await;
        let client = KnownClient {
            issuer,
            signer: signer_name(KUBE_CLIENT),
            certificate: Certificate::parse(&der).unwrap(),
        };
        Peer::with_client(self.admin.address, client)
    }

    pub(super) async fn status(&self, who: &Peer, method: &str, path: &str) -> u16 {
        let reply = self.call(method, path).from(who).send().await;
        reply.status.as_u16()
    }

    async fn review(&self, who: &Peer, review: &str, body: &Value) -> Reply {
        let path = format!("{AUTHORIZATION}/{review}");
        self.call("POST", &path).from(who).json(body).send().await
    }

    /// `allowed` and `reason` of an access review.
    async fn reviewed(&self, who: &Peer, review: &str, spec: Value) -> (bool, String) {
        let reply = self.review(who, review, &json!({"spec": spec})).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        let status = reply.value()["status"].clone();
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        (status["allowed"].as_bool().unwrap(), reason)
    }
}

fn order(kind: RbacKind, namespace: &str, name: &str, body: &Value) -> ObjectOrder {
    ObjectOrder {
        key: ObjectKey {
            kind: format!("{}.rbac.authorization.k8s.io", kind.resource()),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        actor: Requester::authority(),
        expected: None,
        body: body.to_string().into_bytes(),
        detail: Some(String::new()),
    }
}

pub(super) fn requests(verbs: &[&str]) -> Value {
    json!({"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": verbs})
}

fn approvals(signers: &[&str]) -> Value {
    json!([
        requests(&["get", "list", "watch"]),
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/approval"], "verbs": ["update"]},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": signers, "verbs": ["approve"]},
    ])
}

#[tokio::test]
async fn the_documented_roles_of_requesters_and_approvers_behave_as_documented() {
    let api = Api::start().await;
    let requester = api.user("requester", "dev").await;
    let create = api.call("POST", CSRS).from(&requester).json(&manifest("a"));
    create.send().await.refuses(403, "Forbidden");
    api.grant(
        "requester",
        json!([requests(&["create", "get", "list", "watch"])]),
    )
    .await;
    let create = api.call("POST", CSRS).from(&requester).json(&manifest("a"));
    let created = create.send().await;
    assert_eq!(created.status, 201, "{created:?}");
    let object = created.value();
    assert_eq!(object["spec"]["username"], "requester");
    assert_eq!(api.status(&requester, "GET", &path_of(&object)).await, 200);
    assert_eq!(
        api.status(&requester, "DELETE", &path_of(&object)).await,
        403
    );
    let own = api.call("PUT", &approval_of(&object)).from(&requester);
    let own = own.json(&with_condition(&object, "Approved")).send().await;
    let refusal = own.refuses(403, "Forbidden")["message"].clone();
    assert!(
        refusal
            .as_str()
            .unwrap()
            .contains("\"certificatesigningrequests/approval\"")
    );

    // By the signer's name, by its domain; a wildcard elsewhere is a letter.
    let rows: [(&str, &[&str], bool); 6] = [
        ("exact", &[KUBE_CLIENT], true),
        ("domain", &["kubernetes.io/*"], true),
        ("all", &[], true),
        (
            "other",
            &["example.com/*", "kubernetes.io/kubelet-serving"],
            false,
        ),
        ("prefix", &["kubernetes.io/kube-*"], false),
        ("star", &["*"], false),
    ];
    for (name, signers, allowed) in rows {
        let approver = api.user(name, "ops").await;
        let mut rules = approvals(signers);
        if signers.is_empty() {
            rules[2].as_object_mut().unwrap().remove("resourceNames");
        }
        api.grant(name, rules).await;
        for kind in ["Approved", "Denied"] {
            let object = api
                .create(&manifest(&format!("{name}-{}", kind.to_lowercase())))
                .await;
            let decide = api.call("PUT", &approval_of(&object)).from(&approver);
            let reply = decide.json(&with_condition(&object, kind)).send().await;
            if allowed {
                reply.ok();
                continue;
            }
            let status = reply.refuses(403, "Forbidden");
            assert_eq!(
                status["message"],
                format!(
                    "certificatesigningrequests.certificates.k8s.io {} is forbidden: user not permitted to approve \
                     requests with signerName \"{KUBE_CLIENT}\"",
                    object["metadata"]["name"]
                )
            );
        }
    }
    // Stale and invalid writes are told before the right is looked at.
    let other = api.user("other", "ops").await;
    let mut stale = with_condition(&object, "Approved");
    stale["metadata"]["resourceVersion"] = json!("1");
    let stale = api
        .call("PUT", &approval_of(&object))
        .from(&other)
        .json(&stale);
    stale.send().await.refuses(409, "Conflict");
    let mut invalid = with_condition(&object, "Approved");
    invalid["status"]["conditions"][0]["status"] = json!("");
    let invalid = api
        .call("PUT", &approval_of(&object))
        .from(&other)
        .json(&invalid);
    invalid.send().await.refuses(422, "Invalid");
}

#[tokio::test]
async fn the_documented_role_of_signers_behaves_as_documented() {
    let api = Api::start().await;
    let object = api.create(&elsewhere("vpn")).await;
    let path = format!("{}/status", path_of(&object));
    let failed = with_condition(&object, "Failed");
    let mut labelled = object.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let rules = |signers: &[&str], verb: &str| {
        json!([
            requests(&["get", "list", "watch"]),
            {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/status"], "verbs": ["update"]},
            {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": signers, "verbs": [verb]},
        ])
    };
    let rows: [(&str, &[&str], &str, bool); 5] = [
        ("every-signer", &[], "sign", true),
        ("approver", &["example.org/vpn"], "approve", false),
        ("other", &["example.com/*"], "sign", false),
        ("exact", &["example.org/vpn"], "sign", true),
        ("domain", &["example.org/*"], "sign", true),
    ];
    for (name, signers, verb, allowed) in rows {
        let signer = api.user(name, "ops").await;
        let put = |body: &Value| {
            let dry = format!("{path}?dryRun=All");
            let call = api.call("PUT", &dry).from(&signer).json(body);
            call.send()
        };
        put(&failed).await.refuses(403, "Forbidden");
        api.grant(name, rules(signers, verb)).await;
        // What signing is not about needs no such right.
        put(&labelled).await.ok();
        let reply = put(&failed).await;
        if allowed {
            reply.ok();
            continue;
        }
        let status = reply.refuses(403, "Forbidden");
        assert_eq!(
            status["message"],
            "certificatesigningrequests.certificates.k8s.io \"vpn\" is forbidden: user not permitted to sign requests with \
             signerName \"example.org/vpn\""
        );
    }
}

#[tokio::test]
async fn grants_and_withdrawals_count_at_once() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    let list = || api.status(&jane, "GET", CSRS);
    assert_eq!(list().await, 403);
    for round in 0..3 {
        api.grant("jane", json!([requests(&["list"])])).await;
        assert_eq!(list().await, 200);
        api.put(RbacKind::ClusterRole, "", "jane", json!({"rules": null}))
            .await;
        assert_eq!(list().await, 403, "the role lost its rule");
        api.grant("jane", json!([requests(&["list"])])).await;
        // Requests come between roles.
        api.create(&manifest(&format!("request-{round}"))).await;
        api.remove(RbacKind::ClusterRoleBinding, "jane").await;
        assert_eq!(list().await, 403, "the binding is gone");
        api.bind("jane", "jane").await;
        assert_eq!(list().await, 200);
        api.remove(RbacKind::ClusterRole, "jane").await;
        let refused = api.call("GET", CSRS).from(&jane).send().await;
        let message = refused.refuses(403, "Forbidden")["message"].clone();
        let reason = ": RBAC: clusterrole.rbac.authorization.k8s.io \"jane\" not found";
        assert!(message.as_str().unwrap().ends_with(reason), "{message}");
    }
}

/// Far behind, everything is read anew; so it is where the history was forgotten.
#[tokio::test]
async fn who_is_far_behind_still_hears_of_everything() {
    let api = Api::start().await;
    let authority = &api.world.authority;
    let jane = api.user("jane", "dev").await;
    api.grant("jane", json!([requests(&["list"])])).await;
    let rules = |number: usize| json!({"rules": [requests(&[format!("v{number}").as_str()])]});
    let mut last = None;
    for number in 0..1100 {
        let order = order(RbacKind::ClusterRole, "", "jane", &rules(number));
        last = Some(authority.objects.update(order).await.unwrap().version);
    }
    api.settle(last.unwrap()).await;
    assert_eq!(api.status(&jane, "GET", CSRS).await, 403);

    let order = order(
        RbacKind::ClusterRole,
        "",
        "jane",
        &json!({"rules": [requests(&["list"])]}),
    );
    let written = authority.objects.update(order).await.unwrap().version;
    api.create(&manifest("a")).await;
    authority.objects.trim(authority.revision()).await.unwrap();
    api.settle(written).await;
    assert_eq!(api.status(&jane, "GET", CSRS).await, 200);
}

/// Whoever watches by a role hears nothing more once it is taken away, and what came meanwhile is nobody's who lost it.
#[tokio::test]
async fn a_watch_ends_with_the_right_to_it() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    api.grant("jane", json!([requests(&["watch"])])).await;
    let call = api.call("GET", &format!("{CSRS}?watch=true")).from(&jane);
    let mut stream = call.open().await;
    assert_eq!(stream.status, 200);
    api.create(&manifest("before")).await;
    assert_eq!(stream.event().await["object"]["metadata"]["name"], "before");
    api.remove(RbacKind::ClusterRoleBinding, "jane").await;
    api.create(&manifest("after")).await;
    while let Some(event) = stream.next().await {
        let name = event["object"]["metadata"]["name"].clone();
        assert_ne!(name, "after", "{event}");
    }
}

#[tokio::test]
async fn a_name_in_the_selector_is_a_name() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    let mut rule = requests(&["get", "list", "watch"]);
    rule["resourceNames"] = json!(["mine"]);
    api.grant("jane", json!([rule])).await;
    let rows = [
        ("", 403),
        ("?fieldSelector=metadata.name%3Dmine", 200),
        ("?fieldSelector=metadata.name%3Dother", 403),
        ("?fieldSelector=metadata.name!%3Dmine", 403),
        ("?fieldSelector=nonsense", 403),
        ("/mine", 404),
        ("/other", 403),
    ];
    for (query, code) in rows {
        assert_eq!(
            api.status(&jane, "GET", &format!("{CSRS}{query}")).await,
            code,
            "{query}"
        );
    }
}

#[tokio::test]
async fn nodes_ask_for_themselves_without_any_role() {
    let api = Api::start().await;
    let node = api.user("system:node:a", "system:nodes").await;
    let named_alone = api.user("system:node:b", "dev").await;
    let grouped_alone = api.user("a", "system:nodes").await;
    for (who, peer, code) in [
        ("node", &node, 200),
        ("name alone", &named_alone, 403),
        ("group alone", &grouped_alone, 403),
    ] {
        assert_eq!(api.status(peer, "GET", CSRS).await, code, "{who}");
    }
    let one = format!("{CSRS}/x");
    assert_eq!(api.status(&node, "DELETE", &one).await, 403);
    assert_eq!(
        api.status(&node, "PUT", &format!("{one}/approval")).await,
        403
    );

    let asking = |name: &str, common_name: &str, signer: &str| {
        let request = CsrBuilder::new(common_name).organization("system:nodes");
        let mut object = manifest_of(name, &request);
        object["spec"]["signerName"] = json!(signer);
        object["spec"]["usages"] = json!(["digital signature", "client auth"]);
        object
    };
    let rows = [
        ("own", "system:node:a", KUBELET_CLIENT, true),
        (
            "own-serving",
            "system:node:a",
            "kubernetes.io/kubelet-serving",
            true,
        ),
        ("other", "system:node:b", KUBELET_CLIENT, false),
        (
            "other-serving",
            "system:node:b",
            "kubernetes.io/kubelet-serving",
            false,
        ),
        ("no-node", "admin", KUBELET_CLIENT, false),
        ("another-signer", "admin", CUSTOM, true),
    ];
    for (name, common_name, signer, allowed) in rows {
        let object = asking(name, common_name, signer);
        let reply = api
            .call("POST", CSRS)
            .from(&node)
            .json(&object)
            .send()
            .await;
        if allowed {
            assert_eq!(reply.status, 201, "{name}: {reply:?}");
            continue;
        }
        let message = reply.refuses(403, "Forbidden")["message"].clone();
        let text = "is forbidden: can only create a node CSR with CN=system:node:a";
        assert!(
            message.as_str().unwrap().ends_with(text),
            "{name}: {message}"
        );
    }
    // It is the first thing that is looked at, so nonsense is no invalid object.
    let mut nonsense = asking("nonsense", "system:node:a", KUBELET_CLIENT);
    nonsense["spec"]["request"] = json!("aGVsbG8=");
    nonsense["spec"]["usages"] = json!([]);
    let reply = api
        .call("POST", CSRS)
        .from(&node)
        .json(&nonsense)
        .send()
        .await;
    let message = reply.refuses(403, "Forbidden")["message"].clone();
    assert!(
        message.as_str().unwrap().contains("unable to parse csr: "),
        "{message}"
    );
    // Whoever is no node is not restricted.
    api.create(&asking("by-admin", "system:node:b", KUBELET_CLIENT))
        .await;
}

#[tokio::test]
async fn who_shows_nothing_is_anonymous_and_may_be_given_a_role() {
    let api = Api::start().await;
    let nobody = api.world.anonymous();
    let refused = api.call("GET", CSRS).from(&nobody).send().await;
    assert_eq!(
        refused.refuses(403, "Forbidden")["message"],
        "certificatesigningrequests.certificates.k8s.io is forbidden: User \"system:anonymous\" cannot list resource \
         \"certificatesigningrequests\" in API group \"certificates.k8s.io\" at the cluster scope"
    );
    let refused = api.call("GET", "/apis").from(&nobody).send().await;
    assert_eq!(
        refused.refuses(403, "Forbidden")["message"],
        "forbidden: User \"system:anonymous\" cannot get path \"/apis\""
    );
    // A certificate without a name names nobody.
    let forged = Forged {
        has_alt_name: false,
        ..Forged::client("")
    };
    let nameless = api.holder(&forged).await;
    let refused = api.call("GET", CSRS).from(&nameless).send().await;
    let message = refused.refuses(403, "Forbidden")["message"].clone();
    assert!(message.as_str().unwrap().contains("\"system:anonymous\""));

    let body = json!({"subjects": [{"kind": "Group", "name": "system:unauthenticated"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"}});
    api.put(RbacKind::ClusterRoleBinding, "", "open", body)
        .await;
    assert_eq!(api.status(&nobody, "GET", CSRS).await, 200);
    assert_eq!(api.status(&nameless, "GET", CSRS).await, 200);
}

#[tokio::test]
async fn a_certificate_may_carry_the_users_id() {
    let api = Api::start().await;
    let rows: [(&[&str], u16, Option<&str>); 4] = [
        (&[], 201, None),
        (&["7-7"], 201, Some("7-7")),
        (&["7-7", "8-8"], 401, None),
        (&[""], 401, None),
    ];
    for (uids, code, uid) in rows {
        let forged = Forged {
            uids,
            ..Forged::client("jane")
        };
        let holder = api.holder(&forged).await;
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let reply = api
            .call("POST", path)
            .from(&holder)
            .json(&json!({}))
            .send()
            .await;
        assert_eq!(reply.status.as_u16(), code, "{uids:?}: {reply:?}");
        let told = reply.value()["status"]["userInfo"]["uid"].clone();
        assert_eq!(told.as_str(), uid, "{uids:?}");
    }
}

#[tokio::test]
async fn the_roles_of_the_start_are_there_and_kept() {
    let api = Api::start().await;
    let authority = &api.world.authority;
    let (revision, objects) = authority.objects.all().await.unwrap();
    let names: Vec<String> = objects
        .iter()
        .map(|object| object.key.to_string())
        .collect();
    assert_eq!(names.len(), 9, "{names:?}");
    assert_eq!(
        names[0],
        "clusterrolebindings.rbac.authorization.k8s.io/cluster-admin"
    );
    let open = || KubernetesDoor::open(authority.clone(), api.world.kubernetes_issuer());
    open().await.unwrap();
    assert_eq!(
        authority.revision(),
        revision,
        "another start has nothing to do"
    );

    // Nobody but administrators has any of it.
    let bootstrap = api.user("jane", "system:bootstrappers").await;
    assert_eq!(api.status(&bootstrap, "GET", CSRS).await, 403);

    // What was taken from a role comes back with the next start, unless it is not to be kept up to date.
    let read = async |name: &str| -> Value {
        let key = order(RbacKind::ClusterRole, "", name, &json!({})).key;
        let record = authority.objects.get(&key).await.unwrap().unwrap();
        serde_json::from_slice(&record.body).unwrap()
    };
    let bootstrapper = "system:node-bootstrapper";
    let whole = read(bootstrapper).await;
    let mut less = whole.clone();
    less["rules"] = json!([requests(&["create"])]);
    api.put(RbacKind::ClusterRole, "", bootstrapper, less.clone())
        .await;
    open().await.unwrap();
    let healed = read(bootstrapper).await["rules"].clone();
    let verbs: Vec<&Value> = healed
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| &rule["verbs"])
        .collect();
    assert_eq!(
        json!(verbs),
        json!([["create"], ["get"], ["list"], ["watch"]])
    );
    less["metadata"]["annotations"] =
        json!({"rbac.authorization.kubernetes.io/autoupdate": "false"});
    api.put(RbacKind::ClusterRole, "", bootstrapper, less.clone())
        .await;
    open().await.unwrap();
    assert_eq!(read(bootstrapper).await, less);
}

#[tokio::test]
async fn aggregated_roles_are_made_of_others() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    let aggregated = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]}, "rules": null});
    api.put(RbacKind::ClusterRole, "", "all", aggregated).await;
    api.bind("jane", "all").await;
    assert_eq!(api.status(&jane, "GET", CSRS).await, 403);
    let part = json!({"metadata": {"labels": {"to": "all"}}, "rules": [requests(&["list"])]});
    api.put(RbacKind::ClusterRole, "", "part", part).await;
    assert_eq!(api.status(&jane, "GET", CSRS).await, 200);
    let rules = async || -> Value {
        let key = order(RbacKind::ClusterRole, "", "all", &json!({})).key;
        let record = api
            .world
            .authority
            .objects
            .get(&key)
            .await
            .unwrap()
            .unwrap();
        serde_json::from_slice::<Value>(&record.body).unwrap()["rules"].clone()
    };
    assert_eq!(rules().await[0]["verbs"], json!(["list"]), "it can be read");
    api.remove(RbacKind::ClusterRole, "part").await;
    assert_eq!(api.status(&jane, "GET", CSRS).await, 403);
    assert_eq!(rules().await, Value::Null);
}

#[tokio::test]
async fn clients_learn_what_they_may() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    api.grant(
        "jane",
        json!([requests(&["get"]), approvals(&["example.com/*"])[2]]),
    )
    .await;
    let by_role =
        "RBAC: allowed by ClusterRoleBinding \"jane\" of ClusterRole \"jane\" to User \"jane\"";
    let asked = |verb: &str, group: &str, resource: &str, name: &str| {
        json!({"resourceAttributes": {"namespace": "default", "verb": verb, "group": group,
            "resource": resource, "name": name}})
    };
    let certificates = "certificates.k8s.io";
    let path = |path: &str| json!({"nonResourceAttributes": {"verb": "get", "path": path}});
    let spelled = "signers.certificates.k8s.io";
    let rows = [
        (
            asked("get", certificates, "certificatesigningrequests", ""),
            true,
            by_role,
        ),
        (
            asked("list", certificates, "certificatesigningrequests", ""),
            false,
            "",
        ),
        (asked("get", "", "pods", ""), false, ""),
        (
            asked(
                "create",
                "authorization.k8s.io",
                "selfsubjectaccessreviews",
                "",
            ),
            true,
            "",
        ),
        (
            asked("create", "authorization.k8s.io", "subjectaccessreviews", ""),
            false,
            "",
        ),
        (path("/version"), true, ""),
        (path("/openapi/v3"), true, ""),
        (path("/metrics"), false, ""),
        // A question in the API's own words is taken by its letters.
        (
            asked("approve", certificates, "signers", "example.com/a"),
            false,
            "",
        ),
        (
            asked("approve", certificates, "signers", "example.com/*"),
            true,
            by_role,
        ),
        // In kubectl's words it means what the certificate would get.
        (asked("approve", "", spelled, "example.com/a"), true, ""),
        (
            asked("approve", "", spelled, "example.com/*"),
            true,
            by_role,
        ),
        (asked("approve", "", spelled, "example.org/a"), false, ""),
        (asked("sign", "", spelled, "example.com/a"), false, ""),
    ];
    for (spec, allowed, reason) in rows {
        let answer = api
            .reviewed(&jane, "selfsubjectaccessreviews", spec.clone())
            .await;
        assert_eq!(answer, (allowed, reason.to_owned()), "{spec}");
        // Whoever may, asks about others, and hears the same.
        let mut about = spec.clone();
        about["user"] = json!("jane");
        about["groups"] = json!(["dev", "system:authenticated"]);
        let answer = api
            .reviewed(&api.admin, "subjectaccessreviews", about)
            .await;
        assert_eq!(answer, (allowed, reason.to_owned()), "{spec}");
    }
    let everything =
        json!({"user": "x", "groups": ["system:masters"], "resourceAttributes": {"verb": "any"}});
    let answer = api
        .reviewed(&api.admin, "subjectaccessreviews", everything)
        .await;
    assert_eq!(answer, (true, String::new()));
}

#[tokio::test]
async fn reviews_of_others_need_a_right_and_are_well_formed() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    let spec = json!({"user": "joe", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "ns"}});
    let body = json!({"spec": spec});
    let local = "namespaces/ns/localsubjectaccessreviews";
    for review in ["subjectaccessreviews", local] {
        api.review(&jane, review, &body)
            .await
            .refuses(403, "Forbidden");
    }
    let reviews = json!([{"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}]);
    api.grant("jane", reviews).await;
    assert_eq!(
        api.review(&jane, "subjectaccessreviews", &body)
            .await
            .status,
        201
    );
    let refused = api.review(&jane, local, &body).await;
    assert_eq!(
        refused.refuses(403, "Forbidden")["message"],
        "localsubjectaccessreviews.authorization.k8s.io is forbidden: User \"jane\" cannot create resource \
         \"localsubjectaccessreviews\" in API group \"authorization.k8s.io\" in the namespace \"ns\""
    );
    // A role in a namespace holds there.
    let role = json!({"rules": [{"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    api.put(RbacKind::Role, "ns", "local", role).await;
    let subjects = json!([{"kind": "User", "name": "jane"}, {"kind": "User", "name": "joe"}]);
    let role_ref =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "local"});
    api.put(
        RbacKind::RoleBinding,
        "ns",
        "local",
        json!({"subjects": subjects, "roleRef": role_ref}),
    )
    .await;
    let answer = api.reviewed(&jane, local, spec.clone()).await;
    let reason = "RBAC: allowed by RoleBinding \"local/ns\" of Role \"local\" to User \"joe\"";
    assert_eq!(answer, (true, reason.to_owned()));
    let elsewhere = "namespaces/other/localsubjectaccessreviews";
    api.review(&jane, elsewhere, &body)
        .await
        .refuses(403, "Forbidden");
    let wrong = api.review(&api.admin, elsewhere, &body).await;
    wrong.names(&[("spec.resourceAttributes.namespace", "FieldValueInvalid")]);

    let named = json!({"metadata": {"name": "x"}, "spec": spec});
    let invalid = api.review(&api.admin, "subjectaccessreviews", &named).await;
    invalid.names(&[("metadata", "FieldValueInvalid")]);
    let nobody = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/"}}});
    let invalid = api
        .review(&api.admin, "subjectaccessreviews", &nobody)
        .await;
    invalid.names(&[("spec.user", "FieldValueInvalid")]);
}

#[tokio::test]
async fn clients_list_their_rules() {
    let api = Api::start().await;
    let jane = api.user("jane", "dev").await;
    api.grant("jane", json!([requests(&["get"])])).await;
    let lost = json!({"subjects": [{"kind": "Group", "name": "dev"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gone"}});
    api.put(RbacKind::ClusterRoleBinding, "", "lost", lost)
        .await;
    let reply = api
        .review(
            &jane,
            "selfsubjectrulesreviews",
            &json!({"spec": {"namespace": "default"}}),
        )
        .await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let status = reply.value()["status"].clone();
    assert_eq!(status["resourceRules"][0], requests(&["get"]));
    let resources: Vec<&Value> = status["resourceRules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| &rule["resources"])
        .collect();
    assert!(
        resources.contains(&&json!(["selfsubjectreviews"])),
        "{status}"
    );
    let paths = status["nonResourceRules"][0]["nonResourceURLs"]
        .as_array()
        .unwrap();
    assert!(paths.contains(&json!("/version")), "{status}");
    assert_eq!(
        status["evaluationError"],
        "clusterrole.rbac.authorization.k8s.io \"gone\" not found"
    );
    let reply = api
        .review(&jane, "selfsubjectrulesreviews", &json!({"spec": {}}))
        .await;
    assert_eq!(
        reply.refuses(400, "BadRequest")["message"],
        "no namespace on request"
    );
}

#[tokio::test]
async fn policies_ask_the_same_roles() {
    let api = Api::start().await;
    let question = |subresource: &str| AccessQuestion {
        group: "certificates.k8s.io".to_owned(),
        resource: "certificatesigningrequests".to_owned(),
        subresource: subresource.to_owned(),
        verb: "create".to_owned(),
        name: String::new(),
        namespace: String::new(),
    };
    let requester = |name: &str, groups: &[&str]| Requester {
        identity: Identity::User {
            username: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            uid: String::new(),
            extra: Default::default(),
        },
        source: None,
    };
    let is_allowed = |who: &Requester, subresource: &str| {
        let answer = api.authorizer.review(who, &question(subresource));
        matches!(answer, AccessAnswer::Allowed { .. })
    };
    let bootstrap = requester("system:bootstrap:abcdef", &["system:bootstrappers"]);
    let node = requester("system:node:a", &["system:nodes", "system:authenticated"]);
    assert!(!is_allowed(&bootstrap, "nodeclient"));
    assert!(
        !is_allowed(&node, "selfnodeclient"),
        "roles exist, but are bound to nobody"
    );
    let bind = async |name: &str, group: &str| {
        let role = format!("system:certificates.k8s.io:certificatesigningrequests:{name}");
        let body = json!({"subjects": [{"kind": "Group", "name": group}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
        api.put(RbacKind::ClusterRoleBinding, "", name, body).await;
    };
    bind("nodeclient", "system:bootstrappers").await;
    bind("selfnodeclient", "system:nodes").await;
    assert!(is_allowed(&bootstrap, "nodeclient"));
    assert!(!is_allowed(&bootstrap, "selfnodeclient"));
    assert!(is_allowed(&node, "selfnodeclient"));
    assert!(is_allowed(
        &requester("root", &["system:masters"]),
        "nodeclient"
    ));
    // Whoever judges requests again has heard of it.
    api.world.authority.access_news().await;
}

#[tokio::test]
async fn nobody_grants_more_than_they_have() {
    let api = Api::start().await;
    api.grant("jane", json!([requests(&["get"])])).await;
    let jane = UserInfo {
        username: "jane".to_owned(),
        ..UserInfo::default()
    };
    let rules = |verbs: &[&str]| -> Vec<PolicyRule> {
        serde_json::from_value(json!([requests(verbs)])).unwrap()
    };
    let check = |rules: &[PolicyRule]| {
        let draft = RoleDraft {
            kind: RbacKind::ClusterRole,
            namespace: "",
            name: "new",
            rules,
            aggregated: false,
        };
        api.authorizer.check_escalation(&jane, &draft)
    };
    let reader = |name: &str| RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: "ClusterRole".to_owned(),
        name: name.to_owned(),
    };
    check(&rules(&["get"])).unwrap();
    let refused = check(&rules(&["get", "delete"])).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "user \"jane\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"certificates.k8s.io\"], Resources:[\"certificatesigningrequests\"], Verbs:[\"delete\"]}"
    );
    let binds = |name: &str| api.authorizer.check_binding(&jane, &reader(name), "");
    binds("jane").unwrap();
    binds("cluster-admin").unwrap_err();
    // The verbs for it make up for what is not held.
    api.grant(
        "jane",
        json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["escalate"]},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["cluster-admin"]}]),
    )
    .await;
    check(&rules(&["get", "delete"])).unwrap();
    binds("cluster-admin").unwrap();
    binds("system:node-bootstrapper").unwrap_err();
}

/// Access rules let somebody approve and delete; the authority's own names are for administrators all the same.
#[tokio::test]
async fn own_names_need_an_administrator() {
    let api = Api::start().await;
    let approver = api.user("approver", "ops").await;
    let rules = json!([
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
            "verbs": ["get", "list", "delete", "deletecollection"]},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/approval"], "verbs": ["update"]},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["approve"]},
    ]);
    api.grant("approver", rules).await;
    let own = CsrBuilder::new("vpn").dns("*.Example.com");
    let other = CsrBuilder::new("vpn").dns("vpn.example.net");
    let masters = CsrBuilder::new("eve").organization("system:masters");
    for (name, csr, named) in [
        ("own", &own, Some("ca.example.com")),
        ("masters", &masters, Some("system:masters")),
        ("other", &other, None),
    ] {
        let mut manifest = manifest_of(name, csr);
        manifest["spec"]["signerName"] = json!(CUSTOM);
        manifest["spec"]["usages"] = json!(["digital signature", "server auth"]);
        let object = api.create(&manifest).await;
        let decided = with_condition(&object, "Approved");
        let approve = |path: String| api.call("PUT", &path).from(&approver).json(&decided);
        let said = |named: &str| {
            format!(
                "certificatesigningrequests.certificates.k8s.io \"{name}\" is forbidden: this call needs the role admin for {named}"
            )
        };
        let dry_run = format!("{}?dryRun=All", approval_of(&object));
        for path in [dry_run, approval_of(&object)] {
            let reply = approve(path).send().await;
            match named {
                Some(named) => {
                    assert_eq!(reply.status, 403, "{name}: {reply:?}");
                    assert_eq!(reply.value()["message"], said(named), "{name}");
                }
                None => assert_eq!(reply.status, 200, "{name}: {reply:?}"),
            }
        }
        let Some(named) = named else {
            continue;
        };
        for path in [path_of(&object), CSRS.to_owned()] {
            let reply = api.call("DELETE", &path).from(&approver).send().await;
            assert_eq!(reply.status, 403, "{name} {path}: {reply:?}");
            assert_eq!(reply.value()["message"], said(named), "{name} {path}");
        }
        let reply = api.decide(&object, "Approved").await;
        assert_eq!(reply.status, 200, "{name}: {reply:?}");
        assert_eq!(
            api.status(&api.admin, "DELETE", &path_of(&object)).await,
            200
        );
    }
}
