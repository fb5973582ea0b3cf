//! Enrolment tokens as bearer tokens: who that is, what it may do, and what becomes of its requests.

mod bootstrap;

use axum::body::Body;
use countersign_authority::Actor;
use countersign_authority::{RequestState, TokenOrder, TokenSettings, TokenText};
use countersign_policy::Identity;
use countersign_server::kubernetes::KubernetesDoor;
use countersign_server::{RequestLimits, RequestRates};
use countersign_testkit::csr::{CsrBuilder, TOKEN};
use countersign_testkit::keys::{self, Key};
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use serde_json::{Value, json};

use super::{Api, CSRS, Call, Reply, approval_of, condition_types, manifest, path_of};
use crate::exchange;
use crate::world::{KUBE_CLIENT, KUBERNETES_ADMIN, World, with_another_secret};

const ENROLMENT_TOKEN: &str = "countersign.dev/enrolment-token";

const RULE: &str = "
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: clients}
spec:
  signers: [kubernetes.io/kube-apiserver-client]
  rules:
    - name: token
      approve: {token: {}}
";

impl Api {
    /// People decide, and tokens are minted.
    async fn with_tokens() -> Self {
        let world = World::strict().await;
        world
            .authority
            .set_rules(world.authority.rules().with_tokens(TokenSettings {
                enabled: true,
                ..TokenSettings::standard()
            }));
        Self::over(world).await
    }

    /// Tokens decide.
    async fn by_tokens() -> Self {
        let api = Self::with_tokens().await;
        api.world.set_policy(RULE);
        api
    }

    async fn mint(&self, name: &str) -> TokenText {
        let order = TokenOrder::exact(name);
        let actor = Actor::authority();
        let minted = self.world.authority.tokens.mint(order, &actor, None).await;
        minted.unwrap().token
    }

    /// A call of somebody who shows a token and no certificate.
    fn bearer(&self, token: &str, method: &str, path: &str) -> Call<'_> {
        let nobody = self.world.anonymous();
        let value = format!("Bearer {token}");
        let call = self.call(method, path).from(&nobody);
        call.header("authorization", &value)
    }

    async fn create_as(&self, token: &TokenText, manifest: &Value) -> Reply {
        let call = self.bearer(token.expose(), "POST", CSRS);
        call.json(manifest).send().await
    }

    async fn uses(&self, token: &TokenText) -> u32 {
        let found = self.world.authority.tokens.get(token.id()).await.unwrap();
        found.unwrap().listed.record.uses
    }
}

fn signed_by(name: &str, key: &Key) -> Value {
    let mut object = manifest(name);
    let csr = CsrBuilder::new("jane").sign_pem(key);
    object["spec"]["request"] = base64_of(&csr);
    object
}

fn base64_of(text: &str) -> Value {
    use base64::Engine as _;
    json!(base64::engine::general_purpose::STANDARD.encode(text))
}

#[tokio::test]
async fn a_token_is_a_user_of_its_own() {
    let api = Api::with_tokens().await;
    let token = api.mint("jane").await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let call = api.bearer(token.expose(), "POST", path);
    let reply = call.json(&review).send().await;
    assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
    let id = token.id().as_str();
    assert_eq!(
        reply.value()["status"]["userInfo"],
        json!({
            "username": format!("system:bootstrap:{id}"),
            "groups": ["system:bootstrappers", "system:authenticated"],
            "extra": {ENROLMENT_TOKEN: [id]},
        })
    );
    // A certificate that counts comes before it.
    let value = format!("Bearer {}", token.expose());
    let call = api.call("POST", path).header("authorization", &value);
    let reply = call.json(&review).send().await;
    let username = &reply.value()["status"]["userInfo"]["username"];
    assert_eq!(username, "kubernetes-admin");
}

#[tokio::test]
async fn it_creates_and_sees_its_own_and_does_nothing_else() {
    let api = Api::with_tokens().await;
    let (token, other) = (api.mint("jane").await, api.mint("john").await);
    api.create(&manifest("of-admin")).await;
    let created = api.create_as(&other, &manifest("of-john")).await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    let created = api.create_as(&token, &manifest("of-jane")).await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    let own = created.value();
    let id = token.id().as_str();
    assert_eq!(
        own["spec"]["username"],
        format!("system:bootstrap:{id}"),
        "{own}"
    );

    let path = |name: &str| format!("{CSRS}/{name}");
    let rows = [
        ("GET", "/version".to_owned(), 200),
        ("GET", "/api".to_owned(), 200),
        ("GET", "/apis".to_owned(), 200),
        ("GET", "/apis/certificates.k8s.io/v1".to_owned(), 200),
        ("GET", "/apis/authorization.k8s.io".to_owned(), 200),
        ("GET", "/apis/authorization.k8s.io/v1".to_owned(), 200),
        ("GET", "/openapi/v3".to_owned(), 200),
        ("GET", path("of-jane"), 200),
        ("GET", path("of-jane/status"), 200),
        ("GET", path("of-jane/approval"), 403),
        ("GET", path("of-john"), 404),
        ("GET", path("of-john/status"), 404),
        ("GET", path("of-admin"), 404),
        ("GET", path("of-nobody"), 404),
        ("PUT", path("of-jane"), 403),
        ("PATCH", path("of-jane"), 403),
        ("DELETE", path("of-jane"), 403),
        ("PUT", path("of-jane/approval"), 403),
        ("PATCH", path("of-jane/approval"), 403),
        ("DELETE", CSRS.to_owned(), 403),
        ("GET", format!("{CSRS}?watch=true&timeoutSeconds=1"), 200),
    ];
    for (method, path, code) in rows {
        let reply = api.bearer(token.expose(), method, &path).send().await;
        assert_eq!(reply.status.as_u16(), code, "{method} {path}: {reply:?}");
    }
    // What is somebody else's looks like what is not there.
    let texts = ["of-john", "of-ghost"].map(|name| {
        let token = token.expose().to_owned();
        let (api, path) = (&api, path(name));
        async move { format!("{:?}", api.bearer(&token, "GET", &path).send().await) }
    });
    let [foreign, missing] = texts;
    assert_eq!(
        foreign.await.replace("of-john", "x"),
        missing.await.replace("of-ghost", "x")
    );

    for query in ["", "?limit=1", "?fieldSelector=metadata.name%3Dof-jane"] {
        let call = api.bearer(token.expose(), "GET", &format!("{CSRS}{query}"));
        let list = call.send().await.ok();
        let names: Vec<&Value> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| &item["metadata"]["name"])
            .collect();
        assert_eq!(names, ["of-jane"], "{query}");
    }
    let query = "?fieldSelector=metadata.name%3Dof-john";
    let call = api.bearer(token.expose(), "GET", &format!("{CSRS}{query}"));
    assert_eq!(call.send().await.ok()["items"], json!([]));
    assert_eq!(api.state("of-jane").await, RequestState::Pending);
}

#[tokio::test]
async fn it_watches_its_own_for_as_long_as_it_is_good() {
    let api = Api::with_tokens().await;
    let (token, other) = (api.mint("jane").await, api.mint("john").await);
    let path = format!("{CSRS}?watch=true");
    let mut stream = api.bearer(token.expose(), "GET", &path).open().await;
    assert_eq!(stream.status, 200);
    api.create(&manifest("of-admin")).await;
    api.create_as(&other, &manifest("of-john")).await;
    let own = api.create_as(&token, &manifest("of-jane")).await.value();
    assert_eq!(
        stream.event().await,
        json!({"type": "ADDED", "object": own})
    );
    let actor = Actor::authority();
    let revoked = api.world.authority.tokens.revoke(token.id(), false, &actor);
    revoked.await.unwrap();
    assert_eq!(stream.next().await, None, "soon, though nothing happens");
    let again = api.bearer(token.expose(), "GET", &path).open().await;
    assert_eq!(again.status, 401);
}

#[tokio::test]
async fn hostile_input_is_cheap_what_a_token_attaches_is_bounded() {
    let api = Api::with_tokens().await;
    let token = api.mint("jane").await;
    let with = |name: &str, field: &str, value: Value| {
        let mut object = manifest(name);
        object["metadata"][field] = value;
        object
    };
    let note = |length| json!({"note": "x".repeat(length)});
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]);
    let rows = [
        (
            "annotations",
            note(17_000),
            ("metadata", "FieldValueTooLong"),
        ),
        (
            "finalizers",
            json!(["example.com/hold"]),
            ("metadata.finalizers", "FieldValueForbidden"),
        ),
        (
            "ownerReferences",
            owner,
            ("metadata.ownerReferences", "FieldValueForbidden"),
        ),
    ];
    for (field, value, cause) in rows {
        let name = format!("with-{}", field.to_lowercase());
        let object = with(&name, field, value);
        api.create_as(&token, &object).await.names(&[cause]);
        // Who may change objects may also create them so.
        api.create(&object).await;
    }
    // As `kubectl apply` sends it.
    let mut applied = manifest("applied");
    let text = applied.to_string();
    applied["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": text, "more": "x".repeat(10_000)});
    let reply = api.create_as(&token, &applied).await;
    assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
}

#[tokio::test]
async fn hostile_input_is_cheap_tokens_leave_places_for_watches_of_others() {
    let api = Api::with_tokens().await;
    let token = api.mint("jane").await;
    let path = format!("{CSRS}?watch=true");
    let watch = || api.bearer(token.expose(), "GET", &path).open();
    let mut streams = Vec::new();
    loop {
        let stream = watch().await;
        if stream.status == 429 {
            assert_eq!(stream.headers["retry-after"], "5");
            break;
        }
        assert_eq!(stream.status, 200);
        streams.push(stream);
    }
    assert_eq!(streams.len(), 64);
    assert_eq!(api.watch("").await.status, 200, "an administrator's");
    let other = api.mint("john").await;
    let of_other = api.bearer(other.expose(), "GET", &path).open().await;
    assert_eq!(of_other.status, 200, "another token's");
    streams.pop();
    assert_eq!(watch().await.status, 200, "one went");
}

#[tokio::test]
async fn it_is_told_what_it_may_do() {
    let api = Api::with_tokens().await;
    let token = api.mint("jane").await;
    api.create(&manifest("of-admin")).await;
    api.create_as(&token, &manifest("of-jane")).await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let csrs = ("certificates.k8s.io", "certificatesigningrequests");
    let access_reviews = ("authorization.k8s.io", "selfsubjectaccessreviews");
    // Verb, resource, subresource and name, then the answers for the token and an administrator.
    let rows = [
        ("create", csrs, "", "", true),
        ("list", csrs, "", "", true),
        ("watch", csrs, "", "", true),
        ("get", csrs, "", "of-jane", true),
        ("get", csrs, "status", "of-jane", true),
        ("get", csrs, "approval", "of-jane", false),
        ("get", csrs, "", "of-admin", false),
        ("get", csrs, "", "of-nobody", false),
        ("get", csrs, "", "", false),
        ("update", csrs, "approval", "of-jane", false),
        ("patch", csrs, "", "of-jane", false),
        ("delete", csrs, "", "of-jane", false),
        ("*", csrs, "", "", false),
        ("approve", ("certificates.k8s.io", "signers"), "", "", false),
        ("create", access_reviews, "", "", true),
        (
            "create",
            ("authentication.k8s.io", "selfsubjectreviews"),
            "",
            "",
            true,
        ),
        ("get", ("", "secrets"), "", "", false),
    ];
    for (verb, (group, resource), subresource, name, allowed) in rows {
        let attributes = json!({"namespace": "default", "verb": verb, "group": group, "resource": resource,
            "subresource": subresource, "name": name});
        let spec = json!({"resourceAttributes": attributes});
        for (call, expected) in [
            (api.bearer(token.expose(), "POST", path), allowed),
            (api.call("POST", path), true),
        ] {
            let review = json!({"kind": "SelfSubjectAccessReview",
                "apiVersion": "authorization.k8s.io/v1", "spec": spec});
            let reply = call.json(&review).send().await;
            assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
            let told = &reply.value()["status"]["allowed"];
            assert_eq!(told, expected, "{verb} {resource}/{subresource} {name}");
        }
    }
    for (target, allowed) in [("/apis", true), ("/version", true), ("/metrics", false)] {
        let spec = json!({"nonResourceAttributes": {"path": target, "verb": "get"}});
        let review = json!({"kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1", "spec": spec});
        let call = api.bearer(token.expose(), "POST", path);
        let reply = call.json(&review).send().await;
        assert_eq!(reply.value()["status"]["allowed"], allowed, "{target}");
    }
    let empty = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"});
    let call = api.bearer(token.expose(), "POST", path);
    call.json(&empty)
        .send()
        .await
        .names(&[("spec.resourceAttributes", "FieldValueInvalid")]);
}

#[tokio::test]
async fn whatever_is_wrong_with_a_token_the_answer_is_the_same() {
    let api = Api::with_tokens().await;
    let token = api.mint("jane").await;
    let forged = TokenText::parse(TOKEN).unwrap();
    let parts: Vec<&str> = token.expose().split('.').collect();
    let other_secret = {
        // Right id, somebody else's secret, and a check part that fits.
        let wrong = Api::with_tokens().await.mint("jane").await;
        let secret = wrong.expose().split('.').nth(2).unwrap().to_owned();
        with_check(&format!("ott1.{}.{secret}", parts[1]))
    };
    TokenText::parse(&other_secret).unwrap();
    let mut bodies = Vec::new();
    for (what, value) in [
        ("unknown id", format!("Bearer {}", forged.expose())),
        ("wrong secret", format!("Bearer {other_secret}")),
        ("no token", "Bearer abc".to_owned()),
        (
            "a bootstrap token",
            "Bearer abcdef.0123456789abcdef".to_owned(),
        ),
    ] {
        let nobody = api.world.anonymous();
        let call = api.call("GET", CSRS).from(&nobody);
        let reply = call.header("authorization", &value).send().await;
        reply.refuses(401, "Unauthorized");
        bodies.push((what, reply.body));
    }
    bodies.dedup_by(|(_, one), (_, other)| one == other);
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    // What is no bearer token is not shown: who sends it is anonymous, as on real servers.
    for value in ["Bearer".to_owned(), format!("Basic {}", token.expose())] {
        let nobody = api.world.anonymous();
        let call = api.call("GET", CSRS).from(&nobody);
        let reply = call.header("authorization", &value).send().await;
        reply.refuses(403, "Forbidden");
    }

    // A token that was taken back is nobody from then on.
    let call = |token: &TokenText| api.bearer(token.expose(), "GET", CSRS).send();
    assert_eq!(call(&token).await.status, StatusCode::OK);
    let (authority, actor) = (&api.world.authority, Actor::authority());
    let revoked = authority.tokens.revoke(token.id(), false, &actor).await;
    revoked.unwrap();
    call(&token).await.refuses(401, "Unauthorized");
    // And so is one that has expired.
    let brief = api.mint("jane").await;
    api.world.clock.advance(6 * 3600);
    call(&brief).await.refuses(401, "Unauthorized");
}

/// The text of a token up to its check part, with the check part that it needs.
fn with_check(covered: &str) -> String {
    // CRC-32 as in IEEE 802.3, then base32 of its four octets.
    let mut crc = u32::MAX;
    for byte in covered.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    let bits = u64::from(!crc) << 3;
    let alphabet = b"abcdefghijklmnopqrstuvwxyz234567";
    let check: String = (0..7)
        .rev()
        .map(|place| char::from(alphabet[usize::try_from(bits >> (5 * place) & 31).unwrap()]))
        .collect();
    format!("{covered}.{check}")
}

#[tokio::test]
async fn a_rule_signs_for_it_and_uses_it_up() {
    let api = Api::by_tokens().await;
    let token = api.mint("jane").await;
    let created = api
        .create_as(&token, &signed_by("one", keys::p256_a()))
        .await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    assert_eq!(api.state("one").await, RequestState::Issued);
    assert_eq!(api.uses(&token).await, 1);
    let read = api.bearer(token.expose(), "GET", &format!("{CSRS}/one"));
    let object = read.send().await.ok();
    assert_eq!(condition_types(&object), ["Approved"]);
    assert!(!object["status"]["certificate"].is_null());

    // Another key is another machine: it gets nothing.
    let created = api
        .create_as(&token, &signed_by("two", keys::p256_b()))
        .await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    assert_ne!(api.state("two").await, RequestState::Issued);
    assert_eq!(api.uses(&token).await, 1);
    // Its outcome can be fetched for a while, and then it is nobody any more.
    api.world.clock.advance(1801);
    let late = api.bearer(token.expose(), "GET", CSRS).send().await;
    late.refuses(401, "Unauthorized");
}

#[tokio::test]
async fn a_token_for_another_name_signs_nothing() {
    let api = Api::by_tokens().await;
    let token = api.mint("john").await;
    let created = api
        .create_as(&token, &signed_by("one", keys::p256_a()))
        .await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    assert_eq!(api.state("one").await, RequestState::Denied);
    assert_eq!(api.uses(&token).await, 0);
    // Whoever shows a token is not told what is wrong with it; whoever explains the request is.
    let record = api.record("one").await.unwrap();
    let said = format!("certificate request not authorised (request {})", record.id);
    let shown = api.bearer(token.expose(), "GET", &path_of(&created.value()));
    for object in [created.value(), shown.send().await.ok()] {
        let denied = &object["status"]["conditions"][0];
        assert_eq!(
            (&denied["type"], &denied["message"]),
            (&json!("Denied"), &json!(said)),
            "{object}"
        );
        assert!(!object.to_string().contains("token_"), "{object}");
    }
    let (code, why) = (
        &record.explanation.code.as_str(),
        record.explanation.in_short(),
    );
    assert!(code.starts_with("token_") && why.contains("token"), "{why}");
}

#[tokio::test]
async fn a_person_who_approves_uses_it_up() {
    let api = Api::with_tokens().await;
    let token = api.mint("jane").await;
    let created = api
        .create_as(&token, &signed_by("one", keys::p256_a()))
        .await;
    let object = created.value();
    assert_eq!(api.uses(&token).await, 0);
    // Not by itself.
    let approved = super::with_condition(&object, "Approved");
    let call = api.bearer(token.expose(), "PUT", &approval_of(&object));
    call.json(&approved).send().await.refuses(403, "Forbidden");
    api.decide(&object, "Approved").await.ok();
    assert_eq!(api.state("one").await, RequestState::Issued);
    assert_eq!(api.uses(&token).await, 1);
}

/// The engine believes the extra, so nothing else may bring it in.
#[tokio::test]
async fn nobody_else_is_taken_for_a_token() {
    let api = Api::with_tokens().await;
    let token = api.mint("jane").await;
    let name = format!("system:bootstrap:{}", token.id());
    for (signer, organization) in [
        (KUBE_CLIENT, "system:bootstrappers"),
        (KUBERNETES_ADMIN, "system:masters"),
    ] {
        let csr = CsrBuilder::new(&name).organization(organization);
        let peer = api.world.client(signer, organization, &csr).await;
        let reply = api.call("GET", CSRS).from(&peer).send().await;
        reply.refuses(401, "Unauthorized");
    }
    let call = api.call("POST", CSRS).json(&manifest("a"));
    let reply = call.header("impersonate-user", &name).send().await;
    reply.refuses(403, "Forbidden");
    let key = format!("impersonate-extra-{}", ENROLMENT_TOKEN.replace('/', "%2f"));
    let call = api.call("POST", CSRS).json(&manifest("a"));
    let reply = call.header(&key, token.id().as_str()).send().await;
    reply.refuses(403, "Forbidden");
    let call = api
        .bearer(token.expose(), "POST", CSRS)
        .json(&manifest("a"));
    let reply = call
        .header("impersonate-user", "kubernetes-admin")
        .send()
        .await;
    reply.refuses(403, "Forbidden");

    let mut object = manifest("claims");
    object["spec"]["username"] = json!(name);
    object["spec"]["extra"] = json!({ENROLMENT_TOKEN: [token.id().as_str()]});
    let created = api.create(&object).await;
    assert_eq!(created["spec"]["username"], "kubernetes-admin");
    let record = api.record("claims").await.unwrap();
    match record.requester.identity {
        Identity::User { extra, .. } => assert!(!extra.contains_key(ENROLMENT_TOKEN)),
        other => panic!("{other:?}"),
    }
    assert_eq!(path_of(&created), format!("{CSRS}/claims"));
}

/// Who sends the body long after the head is judged as what it is then.
#[tokio::test]
async fn a_token_that_is_taken_back_meanwhile_creates_nothing() {
    let api = Api::with_tokens().await;
    let token = api.mint("jane").await;
    let (authority, id) = (api.world.authority.clone(), token.id().clone());
    let text = manifest("late").to_string();
    let body = stream::once(async move {
        let actor = Actor::authority();
        authority.tokens.revoke(&id, false, &actor).await.unwrap();
        Ok::<_, std::io::Error>(text)
    });
    let call = api.bearer(token.expose(), "POST", CSRS);
    let call = call.body("application/json", Body::from_stream(body.boxed()));
    call.send().await.refuses(401, "Unauthorized");
    assert!(api.record("late").await.is_none());
}

/// Trying secrets for a token's id ends soon; the token itself goes on elsewhere.
#[tokio::test]
async fn wrong_tokens_are_counted() {
    let api = Api::with_tokens().await;
    let limits = RequestLimits::new(RequestRates {
        token_failures: 3,
        ..RequestRates::STANDARD
    });
    let door = KubernetesDoor::open(api.world.authority.clone(), api.world.kubernetes_issuer())
        .await
        .unwrap();
    let router = door.router_within(limits);
    let nobody = api.world.anonymous();
    let get = |token: &str| {
        let value = format!("Bearer {token}");
        exchange::Call::new(&nobody, &format!("GET {CSRS}"))
            .header("authorization", &value)
            .send(&router)
    };
    for _ in 0..3 {
        assert_eq!(get(TOKEN).await.status, 401);
    }
    let answer = get(TOKEN).await;
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
    let token = api.mint("jane").await;
    assert_eq!(get(token.expose()).await.status, 200);
    // Whoever tries its public part does not keep the right one waiting.
    let wrong = with_another_secret(token.expose());
    for status in [401, 401, 401, 429] {
        assert_eq!(get(&wrong).await.status, status);
    }
    assert_eq!(get(token.expose()).await.status, 200);
    for status in [401, 401, 401, 429] {
        assert_eq!(get("garbage").await.status, status);
    }
}
