//! The Kubernetes door: `certificates.k8s.io/v1` for unmodified clients.
//!
//! A standalone API server for one resource, `CertificateSigningRequest`, and for what its users and controllers need around it:
//! roles and bindings, leases, events. It authenticates senders by
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
mod events;
mod faults;
mod feed;
mod identity;
mod keeping;
mod leases;
mod object;
mod objects;
pub mod profiles;
mod quota;
mod read;
mod review;
mod roles;
mod secrets;
mod update;
mod watch;
mod watch_limit;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::handler::Handler;
use axum::middleware::from_fn;
use axum::routing::{MethodFilter, MethodRouter, get};
use countersign_authority::store::StoreFault;
use countersign_authority::{Authority, Door, DoorSpec, IssuerId, WhenEnded};
use countersign_kapi::negotiate::Offer;
use countersign_kapi::review::ReviewKind;
use countersign_kapi::{CertificateSigningRequest, Endpoint, Resource};

use crate::access::Access;
use crate::frontend::FrontEndLayer;
use crate::limits::RequestLimits;
use answer::Answer;
pub use authorizer::Authorizer;
pub(crate) use bearer::{BOOTSTRAP_GROUPS, is_token_name};
use call::{BODY, Call, Methods, ObjectHead, OfPath, PatchHead};
use delete::{DeleteAllHead, DeleteHead};
pub use faults::profile_text;
use feed::{Caches, Feed};
pub(crate) use identity::{User, impersonating};
use keeping::ObjectKeeper;
use read::{Asked, GetHead, WatchBy};
use review::{MAX_REVIEW, ReviewHead};

/// The door's name in the engine.
pub const DOOR: Door = Door::named("kubernetes");

/// What the door tells the engine of itself. An object keeps its name until it is deleted; as Kubernetes' cleaner does, one
/// whose certificate has ended is deleted at once.
pub static SPEC: DoorSpec = DoorSpec {
    name: DOOR,
    retained: true,
    when_ended: WhenEnded::Goes,
    keeper: &ObjectKeeper,
};

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
    /// How often requests are taken; none: as often as they come.
    limits: Option<RequestLimits>,
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
            limits: None,
            feed: Arc::default(),
        })
    }

    /// The same, where roles at the native interface are given by `access`.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        access.tell(&self.authority);
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
    let of_path = || FrontEndLayer::new(OfPath(door.clone()));
    let open = Router::new()
        .route("/healthz", get(discovery::alive))
        .route("/livez", get(discovery::alive))
        .route("/readyz", get(discovery::ready))
        .route_either("/version", get(discovery::version));
    let described = discovery::router().layer(of_path());
    let closed = Router::new()
        .merge(described)
        .merge(reviews(&door))
        .merge(requests(&door))
        .merge(roles::router(&door))
        .merge(leases::router(&door))
        .merge(events::router(&door))
        .method_not_allowed_fallback(discovery::wrong_method.layer(of_path()))
        .fallback(discovery::unknown_path.layer(of_path()))
        .layer(from_fn(answer::in_format));
    open.merge(closed).with_state(door)
}

/// Both ways of writing a path: discovery says `/apis/`, and clients go by it.
trait RouteEither {
    /// Routes a path, and the same with a slash at its end.
    fn route_either(self, path: &str, methods: impl Into<MethodRouter<KubernetesDoor>>) -> Self;
}

impl RouteEither for Router<KubernetesDoor> {
    fn route_either(self, path: &str, methods: impl Into<MethodRouter<KubernetesDoor>>) -> Self {
        let methods = methods.into();
        self.route(path, methods.clone())
            .route(&format!("{path}/"), methods)
    }
}

fn reviews(door: &KubernetesDoor) -> Router<KubernetesDoor> {
    Router::new()
        .route_either(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            review(door, ReviewKind::SelfSubject, review::who_am_i),
        )
        .route_either(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            review(door, ReviewKind::SelfAccess, review::may_i),
        )
        .route_either(
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            review(door, ReviewKind::SelfRules, review::my_rules),
        )
        .route_either(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            review(door, ReviewKind::Access, review::may_they),
        )
        .route_either(
            "/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews",
            review(door, ReviewKind::LocalAccess, review::may_they),
        )
}

fn review<F: Future<Output = Answer> + Send + 'static>(
    door: &KubernetesDoor,
    kind: ReviewKind,
    answer: fn(Call, ReviewHead, Bytes) -> F,
) -> MethodRouter<KubernetesDoor> {
    let head = move |call: &mut Call| ReviewHead::of(call, kind);
    let methods = Methods::of(door).on(MethodFilter::POST, Some(MAX_REVIEW), head, answer);
    methods.into()
}

/// The calls of certificate signing requests.
fn requests(door: &KubernetesDoor) -> Router<KubernetesDoor> {
    let listed = |watch| {
        let head = move |call: &mut Call| Asked::of::<CertificateSigningRequest>(call, watch);
        Methods::of(door).get(head, read::collection::<CertificateSigningRequest>)
    };
    let collection = listed(WatchBy::Query)
        .on(
            MethodFilter::POST,
            BODY,
            |call| {
                call.admit_rate()?;
                call.authorize("create", "")?;
                ObjectHead::of(call, Offer::All, Resource::CREATE_OPTIONS)
            },
            create::create,
        )
        .on(
            MethodFilter::DELETE,
            BODY,
            |call| {
                call.authorize("deletecollection", "")?;
                DeleteAllHead::of::<CertificateSigningRequest>(call)
            },
            delete::collection,
        );
    let object = endpoint(door, Endpoint::Object).on(
        MethodFilter::DELETE,
        BODY,
        |call| {
            call.authorize("delete", "")?;
            DeleteHead::of(call, Offer::ObjectOnly)
        },
        delete::delete,
    );
    Router::new()
        .route_either(COLLECTION, collection)
        .route_either(WATCH, listed(WatchBy::Path))
        .route_either(WATCH_OBJECT, listed(WatchBy::Path))
        .route_either(OBJECT, object)
        .route_either(APPROVAL, endpoint(door, Endpoint::Approval))
        .route_either(STATUS, endpoint(door, Endpoint::Status))
}

/// What an object and its subresources have in common.
fn endpoint(door: &KubernetesDoor, endpoint: Endpoint) -> Methods<'_> {
    let subresource = update::subresource(endpoint);
    let offer = update::offer(endpoint);
    Methods::of(door)
        .get(
            move |call| {
                let reach = call.authorize("get", subresource)?;
                GetHead::of(call, reach, offer)
            },
            read::get,
        )
        .on(
            MethodFilter::PUT,
            BODY,
            move |call| {
                call.authorize("update", subresource)?;
                ObjectHead::of(call, offer, Resource::UPDATE_OPTIONS)
            },
            move |call, head, body| update::put(endpoint, call, head, body),
        )
        .on(
            MethodFilter::PATCH,
            BODY,
            move |call| {
                call.authorize("patch", subresource)?;
                PatchHead::of(call, offer)
            },
            move |call, head, body| update::patch(endpoint, call, head, body),
        )
}

const COLLECTION: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// Where watches were before `watch=true`; some clients still know no other place.
const WATCH: &str = "/apis/certificates.k8s.io/v1/watch/certificatesigningrequests";
const WATCH_OBJECT: &str = "/apis/certificates.k8s.io/v1/watch/certificatesigningrequests/{name}";
const OBJECT: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}";
const APPROVAL: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/approval";
const STATUS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/status";
