//! The Kubernetes door, called in process as kubectl, client-go and others call it.
#![expect(
    clippy::indexing_slicing,
    reason = "a missing JSON field is a failed test"
)]

mod access;
mod approval;
mod auto_approval;
mod bearer;
mod bodies;
mod collecting;
mod creation;
mod deletion;
mod discovery;
mod events;
mod listing;
mod rights;
mod roles;
mod secrets;
mod signing;
mod stream;
mod updates;
mod watch_load;
mod watching;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_authority::store::Past;
use countersign_authority::{RequestRecord, RequestState};
use countersign_server::Peer;
use countersign_server::kubernetes::{Authorizer, DOOR, KubernetesDoor, router};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::world::{KUBE_CLIENT, Setup, World};

pub(super) const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A Kubernetes door and its administrator.
pub(super) struct Api {
    pub(super) world: World,
    pub(super) admin: Peer,
    pub(super) authorizer: Arc<Authorizer>,
    router: Router,
}

impl Api {
    pub(super) async fn start() -> Self {
        Self::over(World::strict().await).await
    }

    /// An authority whose rules approve what these signers are asked for.
    pub(super) async fn approving(signers: &'static [&'static str]) -> Self {
        Self::over(
            World::start(Setup {
                approved: signers,
                ..Setup::STRICT
            })
            .await,
        )
        .await
    }

    async fn over(world: World) -> Self {
        let door = KubernetesDoor::open(world.authority.clone(), world.kubernetes_issuer())
            .await
            .unwrap();
        let admin = world.kubernetes_admin().await;
        Self {
            authorizer: door.authorizer.clone(),
            router: router(door),
            admin,
            world,
        }
    }

    /// The same in a new process over the same store.
    pub(super) async fn restarted(self) -> Self {
        let Self { world, router, .. } = self;
        // With the door ends what follows the store for it.
        drop(router);
        Self::over(world.restarted().await).await
    }

    /// A call as the administrator; change it with the methods of [`Call`].
    pub(super) fn call(&self, method: &str, path: &str) -> Call<'_> {
        Call {
            router: &self.router,
            peer: Some(self.admin.clone()),
            request: Request::builder().method(method).uri(path),
            body: Body::empty(),
        }
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path).send().await
    }

    /// Creates an object from a manifest and gives it as stored.
    pub(super) async fn create(&self, manifest: &Value) -> Value {
        let reply = self.call("POST", CSRS).json(manifest).send().await;
        assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
        reply.value()
    }

    /// Writes a decision as kubectl does: the object as read, with one more condition.
    pub(super) async fn decide(&self, object: &Value, kind: &str) -> Reply {
        let decided = with_condition(object, kind);
        self.call("PUT", &approval_of(object))
            .json(&decided)
            .send()
            .await
    }

    pub(super) async fn record(&self, name: &str) -> Option<RequestRecord> {
        self.world
            .authority
            .requests
            .at(&DOOR, name, Past::Ignore)
            .await
            .unwrap()
    }

    pub(super) async fn state(&self, name: &str) -> RequestState {
        self.record(name)
            .await
            .expect("the request is on record")
            .state
    }
}

pub(super) struct Call<'a> {
    router: &'a Router,
    peer: Option<Peer>,
    request: http::request::Builder,
    body: Body,
}

impl Call<'_> {
    pub(super) fn from(mut self, peer: &Peer) -> Self {
        self.peer = Some(peer.clone());
        self
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    pub(super) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    pub(super) fn body(mut self, media_type: &str, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self.header("content-type", media_type)
    }

    pub(super) async fn respond(self) -> Response {
        let mut request = self.request.body(self.body).unwrap();
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(super) async fn send(self) -> Reply {
        let (parts, body) = self.respond().await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Reply {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }
}

pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Reply {
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map(|value| value.to_str().unwrap())
            .unwrap_or_default()
    }

    /// Asserts that this is a `Status` of this code and reason, the same in head and body.
    #[track_caller]
    pub(super) fn refuses(&self, code: u16, reason: &str) -> Value {
        let status = self.value();
        assert_eq!(self.status.as_u16(), code, "{self:?}");
        assert_eq!(self.header("content-type"), "application/json", "{self:?}");
        assert_eq!(
            (&status["kind"], &status["apiVersion"], &status["status"]),
            (&json!("Status"), &json!("v1"), &json!("Failure")),
            "{self:?}"
        );
        assert_eq!(
            (&status["code"], &status["reason"]),
            (&json!(code), &json!(reason)),
            "{self:?}"
        );
        status
    }

    /// Asserts that validation names exactly these fields with these reasons.
    #[track_caller]
    pub(super) fn names(&self, causes: &[(&str, &str)]) {
        let status = self.refuses(422, "Invalid");
        let told: Vec<(&str, &str)> = status["details"]["causes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| (c["field"].as_str().unwrap(), c["reason"].as_str().unwrap()))
            .collect();
        assert_eq!(told, causes, "{self:?}");
    }

    #[track_caller]
    pub(super) fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{self:?}");
        self.value()
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// A client's manifest for the API client signer.
pub(super) fn manifest(name: &str) -> Value {
    manifest_of(name, &CsrBuilder::new("jane").organization("dev"))
}

pub(super) fn manifest_of(name: &str, request: &CsrBuilder) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": STANDARD.encode(request.sign_pem(keys::p256_a())),
            "signerName": KUBE_CLIENT,
            "usages": ["client auth"],
        },
    })
}

/// The same object with a decision, as kubectl words it.
pub(super) fn with_condition(object: &Value, kind: &str) -> Value {
    let mut object = object.clone();
    let condition = json!({"type": kind, "status": "True", "reason": format!("Kubectl{kind}"),
        "message": "by hand", "lastUpdateTime": "2026-01-02T03:00:00Z", "lastTransitionTime": null});
    let conditions = object["status"]
        .as_object_mut()
        .unwrap()
        .entry("conditions")
        .or_insert(json!([]));
    conditions.as_array_mut().unwrap().push(condition);
    object
}

pub(super) fn path_of(object: &Value) -> String {
    format!("{CSRS}/{}", object["metadata"]["name"].as_str().unwrap())
}

pub(super) fn approval_of(object: &Value) -> String {
    format!("{}/approval", path_of(object))
}

/// The bytes of a base64 field.
pub(super) fn bytes(field: &Value) -> Vec<u8> {
    STANDARD.decode(field.as_str().unwrap_or_default()).unwrap()
}

/// The types of an object's conditions.
pub(super) fn condition_types(object: &Value) -> Vec<&str> {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .map(|c| c["type"].as_str().unwrap())
        .collect()
}
