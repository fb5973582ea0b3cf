//! The native interface: every door's requests and every issuer's certificates, as JSON.
//!
//! It is served beside the Puppet door and trusts the same administrators' certificates. Lists are
//! `{"items": [...], "cursor": "..."}`, times RFC 3339, errors `{"error": {"code", "message"}}`. Attributes of requests,
//! which may hold secrets, are in no object; only the complete message of a single request has them. `openapi.json`,
//! made from the routes below, describes all of it and is served to anybody.

mod administrators;
mod certificates;
mod cursor;
mod faults;
mod item;
mod number;
mod openapi;
mod operation;
mod parameters;
mod requests;
mod route;

use std::fmt::Display;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use countersign_authority::{Authority, IssuerId};
use countersign_policy::{Requester, SignerName};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{error, info};

use crate::body;
use crate::peer::Peer;
use crate::puppet::Caller;

use faults::Refusal;
use route::Route;

/// The native interface of an authority. Cheap to clone.
#[derive(Clone)]
pub struct EnrolDoor {
    shared: Arc<Shared>,
}

struct Shared {
    authority: Authority,
    /// Whose administrators may call.
    issuer: IssuerId,
    /// The signer of their certificates, if they may make further ones.
    administrators: Option<SignerName>,
}

impl EnrolDoor {
    /// The interface to `authority` for the administrators whose certificates `issuer` signed.
    pub fn new(authority: Authority, issuer: IssuerId) -> Self {
        Self {
            shared: Arc::new(Shared {
                authority,
                issuer,
                administrators: None,
            }),
        }
    }

    /// The same, where administrators may make certificates for further ones with `signer`.
    #[must_use]
    pub fn with_administrators(self, signer: SignerName) -> Self {
        Self {
            shared: Arc::new(Shared {
                authority: self.shared.authority.clone(),
                issuer: self.shared.issuer.clone(),
                administrators: Some(signer),
            }),
        }
    }

    fn authority(&self) -> &Authority {
        &self.shared.authority
    }

    /// Who calls, if it is an administrator at this moment.
    fn administrator(&self, parts: &Parts) -> Result<Administrator, Refusal> {
        let Some(peer) = parts.extensions.get::<Peer>() else {
            error!("a request arrived without its peer");
            return Err(Refusal::Internal {
                what: "the connection is not known".to_owned(),
            });
        };
        let caller = Caller::of(peer, self.authority(), &self.shared.issuer);
        match caller {
            Caller::Administrator { .. } => Ok(Administrator(caller.requester(peer))),
            Caller::Nobody => Err(Refusal::Unauthenticated),
            Caller::Agent { .. } | Caller::Refused => {
                info!(%caller, method = %parts.method, "forbidden");
                Err(Refusal::Forbidden)
            }
        }
    }
}

/// The interface as a service, to be merged with the Puppet door.
pub fn router(door: EnrolDoor) -> Router {
    let mut calls = Router::new();
    for route in administrators_routes() {
        calls = calls.route(route.path, route.answers);
    }
    let calls = calls
        .method_not_allowed_fallback(|| async { Refusal::MethodNotAllowed })
        .fallback(|| async { Refusal::NoSuchCall })
        .layer(middleware::from_fn_with_state(
            door.clone(),
            administrators_only,
        ));
    // What is added after the layer is for anybody.
    let public = public_route();
    let answers = public
        .answers
        .fallback(|| async { Refusal::MethodNotAllowed });
    let calls = calls.route(public.path, answers).with_state(door);
    Router::new().nest(BASE, calls)
}

/// The paths of all calls, under `/enrol/v1` and with their parameters in braces.
pub fn paths() -> Vec<&'static str> {
    routes().into_iter().map(|route| route.path).collect()
}

/// Everything that is served, and that the document describes.
fn routes() -> Vec<Route> {
    let mut routes = administrators_routes();
    routes.push(public_route());
    routes
}

/// The calls for administrators. A call is added in three steps: its handler, an [`operation::Operation`] beside the
/// handler that names the types it reads and writes (which derive `JsonSchema` beside `Deserialize` or `Serialize`; their doc
/// comments become the document's descriptions), and a line here with both. The document follows.
fn administrators_routes() -> Vec<Route> {
    vec![
        Route::at("/requests")
            .get(requests::list, &requests::LIST)
            .post(administrators::create, &administrators::CREATE),
        Route::at("/requests/{door}/{name}")
            .get(requests::show, &requests::SHOW)
            .delete(requests::delete, &requests::DELETE),
        Route::at("/requests/{door}/{name}/approve").post(requests::approve, &requests::APPROVE),
        Route::at("/requests/{door}/{name}/deny").post(requests::deny, &requests::DENY),
        Route::at("/certificates").get(certificates::list, &certificates::LIST),
        Route::at("/certificates/{issuer}/{serial}").get(certificates::show, &certificates::SHOW),
        Route::at("/certificates/{issuer}/{serial}/revoke")
            .post(certificates::revoke, &certificates::REVOKE),
    ]
}

fn public_route() -> Route {
    Route::at("/openapi.json").get(openapi::document, &openapi::DESCRIBE)
}

/// Who acts, as the engine records it. Present on every call that was let through.
#[derive(Clone)]
struct Administrator(Requester);

impl<S: Sync> FromRequestParts<S> for Administrator {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or(Refusal::Unauthenticated)
    }
}

/// Everything but the document is for administrators; what others may learn is whether they are one.
async fn administrators_only(
    State(door): State<EnrolDoor>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    door.administrator(&parts)?;
    let body = body::read(body, MAX_BODY).await?;
    // Who sends the body long after the head is judged as what it is when it acts.
    let administrator = door.administrator(&parts)?;
    parts.extensions.insert(administrator);
    let request = Request::from_parts(parts, Body::from(body));
    Ok(next.run(request).await)
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
    let invalid = |what: &dyn Display| Refusal::Invalid {
        what: format!("the body: {what}"),
    };
    // Without this, a list would be taken for the members in their order.
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(invalid(&"it must be an object, with its members by name"));
    }
    serde_json::from_slice(body).map_err(|error| invalid(&error))
}

const BASE: &str = "/enrol/v1";
const MAX_BODY: usize = 16 * 1024;
