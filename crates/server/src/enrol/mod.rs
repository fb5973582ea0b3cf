//! The native interface: every door's requests, every issuer's certificates, the inventory, build windows and enrolment
//! tokens, as JSON.
//!
//! It is served beside the Puppet door, whose administrators it knows, and beside the Kubernetes door, whose users it
//! knows; which role each call needs stands in the table of calls. Lists are `{"items": [...], "cursor": "..."}`, times
//! RFC 3339, errors `{"error": {"code", "message"}}`. Attributes of requests, which may hold secrets, are in no object;
//! only the complete message of a single request has them. `openapi.json`, made from the routes below, describes all of
//! it and is served to anybody.

mod administrators;
mod admission;
mod audit;
mod bootstrap_tokens;
mod certificates;
mod check;
mod cursor;
mod decisions;
mod faults;
mod item;
mod kubernetes_users;
mod machines;
mod openapi;
mod operation;
mod parameters;
mod policy;
mod rejections;
mod requests;
mod route;
mod signing_policies;
mod tokens;
mod windows;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::handler::Handler;
use axum::response::Response;
use countersign_api::{BASE, MAX_MACHINES_BODY, MAX_SIGNING_POLICIES_BODY};
use countersign_authority::{Authority, IssuerId};
use countersign_policy::SignerName;
use http::{HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::{Map, Value};
use tracing::error;

use crate::access::Names::{All, InPath, Within};
use crate::access::Needs::{Admin, Mint, MintOrRead, Read, Sign};
use crate::access::{Access, Needs};
use crate::limits::RequestLimits;

use admission::{Administrator, Granted, Guard};
pub use audit::{CheckpointFault, checkpoint_of, head_of, reconciliation_of, record_of, seal_of};
use faults::Refusal;
pub use policy::PolicyState;
use route::Route;
pub use signing_policies::signing_policies_key;

/// The native interface of an authority. Cheap to clone.
#[derive(Clone)]
pub struct EnrolDoor {
    shared: Arc<Shared>,
}

#[derive(Clone)]
struct Shared {
    authority: Authority,
    /// Whose certificates are identities.
    issuer: IssuerId,
    callers: Callers,
    access: Access,
    /// The signer of administrators' certificates, if administrators may make further ones.
    administrators: Option<SignerName>,
    /// Who signs for users of the Kubernetes door, if there is one.
    users: Option<kubernetes_users::UserSigner>,
    /// Which rules are in force.
    policy: PolicyState,
    /// How often wrong tokens are looked at.
    limits: Option<RequestLimits>,
}

/// What a client certificate says about its holder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Callers {
    /// A certname, as at the Puppet door.
    Certnames,
    /// A user and its groups, as at the Kubernetes door.
    Users,
}

impl EnrolDoor {
    /// The interface to `authority` for those whose certificates `issuer` signed for certnames. Administrators' have every
    /// role.
    pub fn new(authority: Authority, issuer: IssuerId) -> Self {
        Self {
            shared: Arc::new(Shared {
                authority,
                issuer,
                callers: Callers::Certnames,
                access: Access::default(),
                administrators: None,
                users: None,
                policy: PolicyState::default(),
                limits: None,
            }),
        }
    }

    /// The same for Kubernetes users, whose certificates `issuer` signed. They have the roles that `access` gives to their
    /// groups, and no others.
    pub fn for_users(authority: Authority, issuer: IssuerId) -> Self {
        Self::new(authority, issuer).changed(|shared| shared.callers = Callers::Users)
    }

    /// The same, where administrators may make certificates for further ones with `signer`.
    #[must_use]
    pub fn with_administrators(self, signer: SignerName) -> Self {
        self.changed(|shared| shared.administrators = Some(signer))
    }

    /// The same, where administrators may make users of the Kubernetes door, whose `issuer` has this `signer` for them.
    #[must_use]
    pub fn with_kubernetes_users(self, signer: SignerName, issuer: IssuerId) -> Self {
        let users = kubernetes_users::UserSigner { signer, issuer };
        self.changed(|shared| shared.users = Some(users))
    }

    /// The same, where roles are given by `access`. At first administrators' certificates alone have one.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        access.tell(self.authority());
        self.changed(|shared| shared.access = access)
    }

    fn changed(self, change: impl FnOnce(&mut Shared)) -> Self {
        let mut shared = Arc::unwrap_or_clone(self.shared);
        change(&mut shared);
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The same, where somebody says which rules are in force.
    #[must_use]
    pub fn with_policy(self, policy: PolicyState) -> Self {
        self.changed(|shared| shared.policy = policy)
    }

    /// The same, where wrong tokens count as they do at the doors.
    #[must_use]
    pub fn with_limits(self, limits: RequestLimits) -> Self {
        self.changed(|shared| shared.limits = Some(limits))
    }

    fn policy(&self) -> &PolicyState {
        &self.shared.policy
    }

    fn authority(&self) -> &Authority {
        &self.shared.authority
    }
}

/// The interface as a service, to be merged with the door beside which it is served.
pub fn router(door: EnrolDoor) -> Router {
    let mut calls = Router::new();
    for route in routes() {
        calls = calls.route(route.path, route.guarded(&door));
    }
    let public = public_route().open();
    let public = public.fallback(|| async { Refusal::MethodNotAllowed });
    let no_such_method = (|| async { Refusal::MethodNotAllowed }).layer(Guard::of_no_call(&door));
    let no_such_call = (|| async { Refusal::NoSuchCall }).layer(Guard::of_no_call(&door));
    let calls = calls
        .method_not_allowed_fallback(no_such_method)
        .fallback(no_such_call)
        .route(openapi::PATH, public)
        .with_state(door);
    Router::new().nest(BASE, calls)
}

/// The paths of all calls, under `/enrol/v1` and with their parameters in braces.
pub fn paths() -> Vec<&'static str> {
    let guarded = routes().into_iter().map(|route| route.path);
    guarded.chain([openapi::PATH]).collect()
}

/// Method, path and needs of all calls but the document, which is for anybody.
pub fn calls() -> Vec<(Method, &'static str, Needs)> {
    let routes = routes().into_iter();
    let calls = routes.flat_map(|Route { path, calls }| {
        calls
            .into_iter()
            .map(move |call| (call.method, path, call.needs))
    });
    calls.collect()
}

/// The calls, and which role each needs. A call is added in three steps: its handler, an [`operation::Operation`] beside
/// the handler that names the types it reads and writes (which derive `JsonSchema` beside `Deserialize` or `Serialize`; their
/// doc comments become the document's descriptions), and a line here with both. The document follows.
fn routes() -> Vec<Route> {
    vec![
        Route::at("/requests")
            .get(Read, requests::list, &requests::LIST)
            .post(Admin, administrators::create, &administrators::CREATE),
        Route::at("/requests/{door}/{name}")
            .get(Read, requests::show, &requests::SHOW)
            .delete(Sign(InPath), requests::delete, &requests::DELETE),
        Route::at("/requests/{door}/{name}/approve").post(
            Sign(InPath),
            requests::approve,
            &requests::APPROVE,
        ),
        Route::at("/requests/{door}/{name}/deny").post(
            Sign(InPath),
            requests::deny,
            &requests::DENY,
        ),
        Route::at("/kubernetes-users").post(
            Admin,
            kubernetes_users::create,
            &kubernetes_users::CREATE,
        ),
        Route::at("/policy").get(Read, policy::show, &policy::SHOW),
        Route::at("/policy/{generation}").get(Read, policy::version, &policy::VERSION),
        Route::at("/signing-policies").get(Read, signing_policies::list, &signing_policies::LIST),
        Route::at("/signing-policies/{namespace}/{authority}")
            .put(Admin, signing_policies::put, &signing_policies::PUT)
            .delete(Admin, signing_policies::delete, &signing_policies::DELETE)
            .with_bodies_up_to(MAX_SIGNING_POLICIES_BODY),
        Route::at("/rejections").get(Read, rejections::list, &rejections::LIST),
        Route::at("/decisions").get(Read, decisions::list, &decisions::LIST),
        Route::at("/certificates").get(Read, certificates::list, &certificates::LIST),
        Route::at("/certificates/{issuer}/{serial}").get(
            Read,
            certificates::show,
            &certificates::SHOW,
        ),
        Route::at("/certificates/{issuer}/{serial}/revoke").post(
            Sign(Within),
            certificates::revoke,
            &certificates::REVOKE,
        ),
        Route::at("/machines")
            .get(MintOrRead, machines::list, &machines::LIST)
            .post(Mint(Within), machines::create, &machines::CREATE),
        Route::at("/machines/{name}")
            .get(MintOrRead, machines::show, &machines::SHOW)
            .put(Mint(InPath), machines::put, &machines::PUT)
            .delete(Mint(InPath), machines::delete, &machines::DELETE),
        Route::at("/machine-imports")
            .post(Mint(Within), machines::import, &machines::IMPORT)
            .with_bodies_up_to(MAX_MACHINES_BODY),
        Route::at("/windows").get(MintOrRead, windows::list, &windows::LIST),
        Route::at("/windows/{certname}")
            .get(MintOrRead, windows::show, &windows::SHOW)
            .put(Mint(InPath), windows::put, &windows::PUT)
            .delete(Mint(InPath), windows::delete, &windows::DELETE),
        Route::at("/tokens")
            .get(MintOrRead, tokens::list, &tokens::LIST)
            .post(Mint(Within), tokens::create, &tokens::CREATE),
        Route::at("/tokens/{id}")
            .get(MintOrRead, tokens::show, &tokens::SHOW)
            .delete(Mint(Within), tokens::revoke, &tokens::REVOKE),
        Route::at("/tokens/{id}/release").post(Mint(Within), tokens::release, &tokens::RELEASE),
        Route::at("/bootstrap-tokens")
            .get(MintOrRead, bootstrap_tokens::list, &bootstrap_tokens::LIST)
            .post(
                Mint(All),
                bootstrap_tokens::create,
                &bootstrap_tokens::CREATE,
            ),
        Route::at("/bootstrap-tokens/{bootstrap_id}")
            .get(MintOrRead, bootstrap_tokens::show, &bootstrap_tokens::SHOW)
            .delete(
                Mint(All),
                bootstrap_tokens::revoke,
                &bootstrap_tokens::REVOKE,
            ),
        Route::at("/check")
            .post(Admin, check::check, &check::CHECK)
            .with_bodies_up_to(check::MAX_BODY),
        Route::at("/audit").get(Read, audit::list, &audit::LIST),
        Route::at("/audit/seals").get(Read, audit::seals, &audit::SEALS),
        Route::at("/audit/reconciliation").get(Read, audit::reconciliation, &audit::RECONCILIATION),
        Route::at("/audit/checkpoint").get(Read, audit::checkpoint, &audit::CHECKPOINT),
    ]
}

/// The document, which is for anybody.
fn public_route() -> Route {
    Route::at(openapi::PATH).get(Read, openapi::document, &openapi::DESCRIBE)
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => {
            let mut response = Response::new(Body::from(text));
            *response.status_mut() = status;
            let headers = response.headers_mut();
            headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        Err(error) => {
            error!(%error, "an answer cannot be written as JSON");
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    }
}

/// The members of a body that may be left out altogether.
fn optional_body<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Refusal> {
    if body.is_empty() {
        return Ok(T::default());
    }
    required_body(body)
}

/// The members of a body. Unknown members are refused: a misspelt wish must not be ignored.
fn required_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    Ok(members(body)??)
}

/// The same, where JSON with a member that cannot be is told apart from what is no JSON. All members may be left out.
fn ordered_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    members(body)?.map_err(|error| match error.classify() {
        Category::Data => {
            let member = wrong_member::<T>(body).unwrap_or_else(|| "the body".to_owned());
            Refusal::unprocessable(&format!("{member}: {error}"))
        }
        Category::Io | Category::Syntax | Category::Eof => error.into(),
    })
}

/// The first member that cannot be, by itself.
fn wrong_member<T: DeserializeOwned>(body: &[u8]) -> Option<String> {
    let members: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let mut alone = members
        .into_iter()
        .map(|(name, value)| Map::from_iter([(name, value)]));
    let wrong = alone.find(|member| T::deserialize(member).is_err())?;
    wrong.into_iter().next().map(|(name, _)| name)
}

fn members<T: DeserializeOwned>(body: &[u8]) -> Result<serde_json::Result<T>, Refusal> {
    // Without this, a list would be taken for the members in their order.
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(Refusal::Invalid {
            what: "the body: it must be an object, with its members by name".to_owned(),
        });
    }
    Ok(serde_json::from_slice(body))
}
