//! The native interface: every door's requests and every issuer's certificates, as JSON.
//!
//! It is served beside the Puppet door and trusts the same administrators' certificates. Lists are
//! `{"items": [...], "cursor": "..."}`, times RFC 3339, errors `{"error": {"code", "message"}}`. Attributes of requests,
//! which may hold secrets, are in no object; only the complete message of a single request has them. `openapi.json`
//! describes all of it, and is served to anybody.

mod administrators;
mod audit;
mod certificates;
mod cursor;
mod faults;
mod item;
mod openapi;
mod requests;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
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

pub use audit::{AuditItem, Checkpoint, CheckpointFault, SealItem};
use faults::Refusal;

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
    for (path, call) in administrators_calls() {
        calls = calls.route(path, call);
    }
    let calls = calls
        .method_not_allowed_fallback(|| async { Refusal::MethodNotAllowed })
        .fallback(|| async { Refusal::NoSuchCall })
        .layer(middleware::from_fn_with_state(
            door.clone(),
            administrators_only,
        ));
    // What is added after the layer is for anybody.
    let public = get(openapi::document).fallback(|| async { Refusal::MethodNotAllowed });
    let calls = calls.route(openapi::PATH, public).with_state(door);
    Router::new().nest(BASE, calls)
}

/// The paths of all calls, under `/enrol/v1` and with their parameters in braces: what the document has to describe.
pub fn paths() -> Vec<&'static str> {
    let calls = administrators_calls().map(|(path, _)| path);
    calls.into_iter().chain([openapi::PATH]).collect()
}

/// The path of each call for administrators, and what answers it.
fn administrators_calls() -> [(&'static str, MethodRouter<EnrolDoor>); 10] {
    [
        (
            "/requests",
            get(requests::list).post(administrators::create),
        ),
        (
            "/requests/{door}/{name}",
            get(requests::show).delete(requests::delete),
        ),
        ("/requests/{door}/{name}/approve", post(requests::approve)),
        ("/requests/{door}/{name}/deny", post(requests::deny)),
        ("/certificates", get(certificates::list)),
        ("/certificates/{issuer}/{serial}", get(certificates::show)),
        (
            "/certificates/{issuer}/{serial}/revoke",
            post(certificates::revoke),
        ),
        ("/audit", get(audit::list)),
        ("/audit/seals", get(audit::seals)),
        ("/audit/checkpoint", get(audit::checkpoint)),
    ]
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

/// The members of a body that may be left out altogether. Unknown members are refused: a misspelt wish must not be
/// ignored.
fn optional_body<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Refusal> {
    if body.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(|error| Refusal::Invalid {
        what: format!("the body: {error}"),
    })
}

const BASE: &str = "/enrol/v1";
const MAX_BODY: usize = 16 * 1024;
