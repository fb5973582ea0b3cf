//! Bootstrap tokens as bearer tokens: users by their id and groups, for as long as they are good.

use countersign_authority::{Actor, BootstrapOrder, BootstrapText};
use countersign_kapi::rbac::book::RbacKind;
use countersign_server::kubernetes::KubernetesDoor;
use countersign_server::{RequestLimits, RequestRates};
use http::StatusCode;
use serde_json::json;

use super::{Api, CSRS, manifest};
use crate::exchange;
use crate::world::World;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

impl Api {
    async fn bootstrap(&self, ttl_seconds: u64) -> BootstrapText {
        let order = BootstrapOrder {
            ttl_seconds: Some(ttl_seconds),
            groups: vec!["system:bootstrappers:rack7".to_owned()],
            group_prefix: Some("system:bootstrappers:"),
            ..BootstrapOrder::default()
        };
        let actor = Actor::authority();
        let minted = self.world.authority.tokens.mint_bootstrap(order, &actor);
        minted.await.unwrap().token
    }

    async fn whoami(&self, token: &str) -> super::Reply {
        let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
        self.bearer(token, "POST", REVIEWS)
            .json(&review)
            .send()
            .await
    }
}

/// The same token with the last character of its secret changed.
fn almost(token: &BootstrapText) -> String {
    let mut text = token.expose().to_owned();
    let last = if text.pop() == Some('a') { 'b' } else { 'a' };
    text.push(last);
    text
}

#[tokio::test]
async fn it_is_a_user_with_its_groups_until_it_ends() {
    // Enrolment tokens need not be in use.
    let api = Api::over(World::strict().await).await;
    let token = api.bootstrap(60).await;
    for _ in 0..2 {
        let reply = api.whoami(token.expose()).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
        assert_eq!(
            reply.value()["status"]["userInfo"],
            json!({
                "username": format!("system:bootstrap:{}", token.id()),
                "groups": ["system:bootstrappers", "system:bootstrappers:rack7", "system:authenticated"],
            })
        );
    }
    let unknown = BootstrapText::parse("nobody.0123456789abcdef").unwrap();
    for wrong in [&almost(&token), unknown.expose(), token.id().as_str()] {
        api.whoami(wrong).await.refuses(401, "Unauthorized");
    }
    api.world.clock.advance(60);
    let late = api.whoami(token.expose()).await;
    late.refuses(401, "Unauthorized");
}

#[tokio::test]
async fn a_revoked_one_is_nobody() {
    let api = Api::over(World::strict().await).await;
    let token = api.bootstrap(0).await;
    assert_eq!(api.whoami(token.expose()).await.status, StatusCode::CREATED);
    let actor = Actor::authority();
    let revoked = api
        .world
        .authority
        .tokens
        .revoke_bootstrap(token.id(), &actor);
    revoked.await.unwrap();
    api.whoami(token.expose())
        .await
        .refuses(401, "Unauthorized");
}

/// Rights are given by roles; a token alone has none.
#[tokio::test]
async fn it_brings_no_right_by_itself() {
    let api = Api::over(World::strict().await).await;
    let token = api.bootstrap(0).await;
    for (method, path) in [
        ("GET", CSRS.to_owned()),
        ("GET", format!("{CSRS}/a")),
        ("DELETE", format!("{CSRS}/a")),
    ] {
        let call = api.bearer(token.expose(), method, &path);
        call.send().await.refuses(403, "Forbidden");
    }
    let call = api.bearer(token.expose(), "POST", CSRS);
    let reply = call.json(&manifest("a")).send().await;
    reply.refuses(403, "Forbidden");
    let discovery = api.bearer(token.expose(), "GET", "/apis").send().await;
    assert_eq!(discovery.status, StatusCode::OK);
    // As kubeadm binds the role of bootstrapping to a group of tokens.
    let body = json!({"subjects": [{"kind": "Group", "name": "system:bootstrappers:rack7"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"}});
    let kind = RbacKind::ClusterRoleBinding;
    api.put(kind, "", "kubelet-bootstrap", body).await;
    let call = api.bearer(token.expose(), "POST", CSRS);
    let reply = call.json(&manifest("a")).send().await;
    assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
    let list = api.bearer(token.expose(), "GET", CSRS).send().await;
    assert_eq!(list.status, StatusCode::OK);
    let delete = api.bearer(token.expose(), "DELETE", &format!("{CSRS}/a"));
    delete.send().await.refuses(403, "Forbidden");
}

/// Trying secrets for a token's id ends soon, and keeps whoever has the right one from nothing.
#[tokio::test]
async fn wrong_secrets_are_counted() {
    let api = Api::over(World::strict().await).await;
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
        exchange::Call::new(&nobody, "GET /apis")
            .header("authorization", &value)
            .send(&router)
    };
    let token = api.bootstrap(0).await;
    for wrong in [almost(&token), "nobody.0123456789abcdef".to_owned()] {
        for status in [401, 401, 401, 429] {
            assert_eq!(get(&wrong).await.status, status, "{wrong}");
        }
    }
    assert_eq!(get(token.expose()).await.status, 200);
}
