//! Tokens that stand in an object, and where their secrets do not go from there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_authority::{Actor, BootstrapOrder, TokenOrder, TokenSettings};
use countersign_server::kubernetes::KubernetesDoor;
use countersign_server::{RequestLimits, RequestRates};
use countersign_testkit::csr::{CsrBuilder, TOKEN};
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::{Api, CSRS, bytes, manifest, path_of};
use crate::exchange;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(super) fn secret() -> &'static str {
    TOKEN.split('.').nth(2).unwrap()
}

/// Whether a secret stands in octets, be it as it is or in base64, and that in base64 again.
pub(super) fn holds(octets: &[u8], secret: &str) -> bool {
    holds_within(octets, secret.as_bytes(), 4)
}

fn holds_within(octets: &[u8], secret: &[u8], depth: usize) -> bool {
    let is_plain = octets.windows(secret.len()).any(|window| window == secret);
    let is_base64 = |b: &u8| b.is_ascii_alphanumeric() || b"+/=\r\n".contains(b);
    // An escaped quotation mark may stand before it, and a line break behind a header.
    let runs = octets.split(|b| !is_base64(b));
    is_plain
        || depth > 0
            && runs.filter(|run| run.len() > secret.len()).any(|run| {
                let text: Vec<u8> = run
                    .iter()
                    .copied()
                    .filter(|b| !b"\r\n".contains(b))
                    .collect();
                let whole = text.get(..text.len() / 4 * 4).unwrap_or_default();
                STANDARD
                    .decode(whole)
                    .is_ok_and(|decoded| holds_within(&decoded, secret, depth - 1))
            })
}

fn with_request(name: &str, text: &str) -> Value {
    let mut object = manifest(name);
    object["spec"]["request"] = json!(STANDARD.encode(text));
    object
}

fn noted(object: &Value) -> Value {
    let mut noted = object.clone();
    noted["metadata"]["annotations"] = json!({LAST_APPLIED: object.to_string(), "team": "a"});
    noted
}

#[tokio::test]
async fn a_request_with_a_token_is_kept_masked_however_it_was_written() {
    let api = Api::start().await;
    let request = CsrBuilder::new("jane").challenge_password(TOKEN);
    let pem = request.sign_pem(keys::p256_a());
    let plain = CsrBuilder::new("jane").sign_pem(keys::p256_a());
    for (name, text) in [
        ("plain", pem.clone()),
        ("lines", pem.replace('\n', "\r\n")),
        ("before", format!("Certificate request of jane\n{pem}")),
        ("behind", format!("{pem}\nthat was it\n")),
        ("beside", format!("challengePassword: {TOKEN}\n{plain}")),
    ] {
        let object = noted(&with_request(name, &text));
        let sent = object.to_string();
        assert!(holds(sent.as_bytes(), secret()), "{name}: the test looks");
        let created = api.create(&object).await;
        for shown in [&created, &api.get(&path_of(&created)).await.ok()] {
            assert!(!holds(shown.to_string().as_bytes(), secret()), "{name}");
            assert!(bytes(&shown["spec"]["request"]).starts_with(b"-----BEGIN"));
            assert_eq!(shown["metadata"]["annotations"]["team"], "a");
        }
        let record = api.record(name).await.unwrap();
        assert!(!holds(&record.attachment, secret()), "{name}");
        // What a later `kubectl apply` notes.
        let annotations = json!({"metadata": {"annotations": {LAST_APPLIED: sent}}});
        let call = api.call("PATCH", &path_of(&created));
        let call = call.body("application/merge-patch+json", annotations.to_string());
        let patched = call.send().await.ok();
        assert!(!holds(patched.to_string().as_bytes(), secret()), "{name}");
    }
    assert!(!holds(&api.world.stored(), secret()));
    // Without a secret everything stays as it was sent.
    let text = format!("Certificate request of jane\r\n{plain}");
    let object = noted(&with_request("harmless", &text));
    let created = api.create(&object).await;
    assert_eq!(created["spec"]["request"], object["spec"]["request"]);
    assert_eq!(
        created["metadata"]["annotations"],
        object["metadata"]["annotations"]
    );
}

#[tokio::test]
async fn tokens_in_names_and_notes_are_refused_and_not_repeated() {
    let api = Api::start().await;
    let kept = api.create(&manifest("kept")).await;
    let short = TOKEN.get(..60).unwrap();
    let rows = [
        (json!({"name": TOKEN}), "metadata.name"),
        (json!({"name": TOKEN.to_uppercase()}), "metadata.name"),
        (json!({"name": short}), "metadata.name"),
        (json!({"generateName": TOKEN}), "metadata.generateName"),
        (
            json!({"name": "a", "labels": {"token": short}}),
            "metadata.labels",
        ),
        (
            json!({"name": "a", "annotations": {"token": format!("it is {TOKEN}.")}}),
            "metadata.annotations",
        ),
        (
            json!({"name": "a", "annotations": {TOKEN: ""}}),
            "metadata.annotations",
        ),
        (
            json!({"name": "a", "finalizers": [format!("a.b/{short}")]}),
            "metadata",
        ),
    ];
    let start = secret().get(..26).unwrap();
    for (metadata, field) in &rows {
        let mut object = manifest("a");
        object["metadata"] = metadata.clone();
        for path in [CSRS.to_owned(), format!("{CSRS}?dryRun=All")] {
            let reply = api.call("POST", &path).json(&object).send().await;
            reply.names(&[(field, "FieldValueForbidden")]);
            let told = String::from_utf8_lossy(&reply.body).to_lowercase();
            assert!(!told.contains(start), "{told}");
            assert!(told.contains("mint another"), "{told}");
        }
        if metadata["name"] == "a" {
            let patch = json!({"metadata": metadata}).to_string();
            let patch = patch.replace(r#""name":"a""#, r#""name":"kept""#);
            let call = api.call("PATCH", &path_of(&kept));
            let call = call.body("application/merge-patch+json", patch);
            call.send().await.names(&[(field, "FieldValueForbidden")]);
        }
    }
    let mut decided = super::with_condition(&kept, "Denied");
    decided["status"]["conditions"][0]["message"] = json!(TOKEN);
    let call = api.call("PUT", &super::approval_of(&kept)).json(&decided);
    let reply = call.send().await;
    reply.names(&[("status.conditions", "FieldValueForbidden")]);
    assert!(!holds(&reply.body, secret()), "{reply:?}");

    let mut mistaken = kept.clone();
    mistaken["metadata"]["name"] = json!(TOKEN);
    for (method, name, body) in [
        ("GET", TOKEN, Value::Null),
        ("DELETE", TOKEN, Value::Null),
        ("PUT", TOKEN, manifest("")),
        ("PUT", "kept", mistaken),
    ] {
        let mut call = api.call(method, &format!("{CSRS}/{name}"));
        if !body.is_null() {
            call = call.json(&body);
        }
        let reply = call.send().await;
        assert!(reply.status.is_client_error(), "{method}: {reply:?}");
        assert!(!holds(&reply.body, secret()), "{method}: {reply:?}");
    }
    assert_eq!(api.get(&path_of(&kept)).await.ok(), kept);
    assert!(!holds(&api.world.stored(), secret()));
}

/// Their form is not rare: only what somebody has minted is refused.
#[tokio::test]
async fn bootstrap_tokens_in_notes_are_refused_and_not_repeated() {
    let api = Api::start().await;
    let (order, actor) = (BootstrapOrder::default(), Actor::authority());
    let minted = api.world.authority.tokens.mint_bootstrap(order, &actor);
    let minted = minted.await.unwrap().token;
    let (token, secret) = (minted.expose(), minted.expose().split_once('.').unwrap().1);
    let mut harmless = manifest("kept");
    harmless["metadata"]["annotations"] = json!({"host": "server.averylonghostname.example.com"});
    let kept = api.create(&harmless).await;
    for metadata in [
        json!({"name": token}),
        json!({"name": "a", "labels": {"token": token}}),
        json!({"name": "a", "annotations": {"token": format!("it is\n{token}.")}}),
    ] {
        let mut object = manifest("a");
        object["metadata"] = metadata.clone();
        let mut replies = vec![api.call("POST", CSRS).json(&object).send().await];
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata,
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        replies.push(api.call("POST", roles).json(&role).send().await);
        if metadata["name"] == "a" {
            let patch = json!({"metadata": metadata}).to_string();
            let patch = patch.replace(r#""name":"a""#, r#""name":"kept""#);
            let call = api.call("PATCH", &path_of(&kept));
            replies.push(
                call.body("application/merge-patch+json", patch)
                    .send()
                    .await,
            );
        }
        for reply in replies {
            reply.names(&[("metadata", "FieldValueForbidden")]);
            assert!(!holds(&reply.body, secret), "{reply:?}");
        }
    }
    let mut decided = super::with_condition(&kept, "Denied");
    decided["status"]["conditions"][0]["message"] = json!(token);
    let call = api.call("PUT", &super::approval_of(&kept)).json(&decided);
    let reply = call.send().await;
    reply.names(&[("status.conditions", "FieldValueForbidden")]);
    assert!(!holds(&api.world.stored(), secret));

    // So many could not all be looked up.
    let many: String = (0..65)
        .map(|n| format!("{n:06}.aaaaaaaaaaaaaaaa "))
        .collect();
    let mut object = manifest("many");
    object["metadata"]["annotations"] = json!({"many": many});
    let reply = api.call("POST", CSRS).json(&object).send().await;
    reply.names(&[("metadata", "FieldValueForbidden")]);
}

/// To find what somebody created everything is read; that must not be free.
#[tokio::test]
async fn lists_of_token_holders_count_against_their_address() {
    let api = Api::start().await;
    api.world
        .authority
        .set_rules(api.world.authority.rules().with_tokens(TokenSettings {
            enabled: true,
            ..TokenSettings::standard()
        }));
    let (order, actor) = (TokenOrder::exact("jane"), Actor::authority());
    let minted = api.world.authority.tokens.mint(order, &actor, None).await;
    let bearer = format!("Bearer {}", minted.unwrap().token.expose());
    let door = KubernetesDoor::open(api.world.authority.clone(), api.world.kubernetes_issuer())
        .await
        .unwrap();
    let router = door.router_within(RequestLimits::new(RequestRates {
        per_source: 3,
        ..RequestRates::STANDARD
    }));
    let nobody = api.world.anonymous();
    let line = format!("GET {CSRS}?limit=500");
    let list = || exchange::Call::new(&nobody, &line).header("authorization", &bearer);
    for _ in 0..3 {
        let answer = list().send(&router).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let answer = list().send(&router).await;
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert_eq!(answer.header("retry-after"), Some("20"));
    // One object is looked up, whoever asks how often; and administrators go on.
    let line = format!("GET {CSRS}/nothing");
    let get = exchange::Call::new(&nobody, &line).header("authorization", &bearer);
    assert_eq!(get.send(&router).await.status, 404);
    for _ in 0..5 {
        let line = format!("GET {CSRS}");
        let call = exchange::Call::new(&api.admin, &line);
        assert_eq!(call.send(&router).await.status, 200);
    }
}
