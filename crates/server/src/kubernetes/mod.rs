//! The Kubernetes door: `certificates.k8s.io/v1` for unmodified clients.
//!
//! A standalone API server for one resource, `CertificateSigningRequest`. It authenticates senders by
//! the certificates that the ledger knows, or by an enrolment token, lets them do what roles and bindings allow, turns
//! objects into submissions and acts of the engine, and shows the engine's records as objects. What the resource means is `kapi`'s business, what is
//! decided and signed is the engine's; here is only the way between them.
//!
//! What an object has beyond a request (labels, annotations, conditions as their writers worded them)
//! is the record's attachment.

mod admission;
mod answer;
mod authorizer;
mod bearer;
mod cache;
mod call;
mod certificate;
mod create;
mod delete;
mod discovery;
mod faults;
mod feed;
mod identity;
mod keeping;
mod object;
mod read;
mod review;
mod roles;
mod secrets;
mod update;
mod watch;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, get, post};
use countersign_authority::store::StoreFault;
use countersign_authority::{Authority, Door, IssuerId};

use crate::access::Access;
pub use authorizer::Authorizer;
pub(crate) use bearer::is_token_name;
use feed::{Caches, Feed};
pub(crate) use identity::{User, impersonating};
pub use keeping::ObjectKeeper;

/// The door's name in the engine.
pub const DOOR: Door = Door::named("kubernetes");

/// A Kubernetes API in front of an authority. Cheap to clone.
#[derive(Clone)]
pub struct KubernetesDoor {
    /// The engine.
    pub authority: Authority,
    /// Whose client certificates are identities here: the Kubernetes issuer.
    pub issuer: IssuerId,
    /// Who may do what.
    pub authorizer: Arc<Authorizer>,
    /// Who has which role at the native interface: nobody is made somebody who may do more there than the approver.
    access: Access,
    /// What it shows; begun when it is first needed.
    feed: Arc<OnceLock<Feed>>,
}

impl KubernetesDoor {
    /// A door in front of an authority, for clients of an issuer. It reads roles and bindings, and answers from then on
    /// what policies ask about them; it shows nothing yet.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn open(authority: Authority, issuer: IssuerId) -> Result<Self, StoreFault> {
        let authorizer = Authorizer::open(&authority).await?;
        Ok(Self {
            authority,
            issuer,
            authorizer,
            access: Access::default(),
            feed: Arc::default(),
        })
    }

    /// The same, where roles at the native interface are given by `access`.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// The same door, with nothing that it shows.
    fn without_feed(&self) -> Self {
        Self {
            feed: Arc::default(),
            ..self.clone()
        }
    }

    /// What lists and watches are served from.
    fn caches(&self) -> &Caches {
        &self.feed.get_or_init(|| Feed::start(self)).caches
    }
}

/// Everything the door serves. Each request must carry its [`crate::Peer`] as an extension. From now on a task of the
/// runtime, which must be entered, follows the store; it ends with the last clone of the door.
pub fn router(door: KubernetesDoor) -> Router {
    door.caches();
    let open = Router::new()
        .route("/healthz", get(discovery::alive))
        .route("/livez", get(discovery::alive))
        .route("/readyz", get(discovery::ready))
        .route("/version", get(discovery::version));
    let described = Router::new()
        .route("/api", get(discovery::core))
        .route("/apis", get(discovery::groups))
        .route("/apis/certificates.k8s.io", get(discovery::group))
        .route("/apis/certificates.k8s.io/v1", get(discovery::resources))
        .route("/openapi/v2", get(discovery::openapi_v2))
        .route("/openapi/v3", get(discovery::openapi_v3))
        .route(
            "/openapi/v3/apis/{group}/{version}",
            get(discovery::openapi_document),
        )
        .route(
            "/apis/authentication.k8s.io",
            get(discovery::authentication_group),
        )
        .route(
            "/apis/authentication.k8s.io/v1",
            get(discovery::authentication_resources),
        )
        .route(
            "/apis/rbac.authorization.k8s.io",
            get(discovery::rbac_group),
        )
        .route(
            "/apis/rbac.authorization.k8s.io/v1",
            get(discovery::rbac_resources),
        )
        .route(
            "/apis/authorization.k8s.io",
            get(discovery::authorization_group),
        )
        .route(
            "/apis/authorization.k8s.io/v1",
            get(discovery::authorization_resources),
        )
        .layer(from_fn_with_state(door.clone(), call::admit_path));
    let closed = Router::new()
        .merge(described)
        .route(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            post(review::who_am_i),
        )
        .route(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            post(review::may_i),
        )
        .route(
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            post(review::my_rules),
        )
        .route(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            post(review::may_they),
        )
        .route(
            "/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews",
            post(review::may_they_there),
        )
        .route(COLLECTION, collection())
        .route(WATCH, get(read::watch_by_path))
        .route(WATCH_OBJECT, get(read::watch_by_path))
        .route(OBJECT, object())
        .route(APPROVAL, approval())
        .route(STATUS, status())
        .merge(roles::router())
        .method_not_allowed_fallback(discovery::wrong_method)
        .fallback(discovery::unknown_path)
        .layer(from_fn_with_state(door.clone(), identity::admit))
        .layer(from_fn(answer::in_format));
    open.merge(closed).with_state(door)
}

fn collection() -> MethodRouter<KubernetesDoor> {
    get(read::list)
        .post(create::create)
        .delete(delete::collection)
}

fn object() -> MethodRouter<KubernetesDoor> {
    get(read::get)
        .put(update::replace)
        .patch(update::patch)
        .delete(delete::delete)
}

fn approval() -> MethodRouter<KubernetesDoor> {
    get(read::get_approval)
        .put(update::replace_approval)
        .patch(update::patch_approval)
}

fn status() -> MethodRouter<KubernetesDoor> {
    get(read::get_status)
        .put(update::replace_status)
        .patch(update::patch_status)
}

const COLLECTION: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// Where watches were before `watch=true`; some clients still know no other place.
const WATCH: &str = "/apis/certificates.k8s.io/v1/watch/certificatesigningrequests";
const WATCH_OBJECT: &str = "/apis/certificates.k8s.io/v1/watch/certificatesigningrequests/{name}";
const OBJECT: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}";
const APPROVAL: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/approval";
const STATUS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/status";
