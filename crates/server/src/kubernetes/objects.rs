//! Objects that the engine keeps for this door beside requests: roles and bindings, leases, events. Reading, writing and
//! deleting them is the same for all; what a kind asks for beyond that is in [`Kept`].

mod deletion;
mod writing;

pub(super) use writing::refuse_misapplied;

use axum::Router;
use axum::routing::MethodFilter;
use countersign_authority::{ObjectKey, ObjectRecord, Revision};
use countersign_kapi::negotiate::Offer;
use countersign_kapi::{FieldError, Resource, Status};
use http::StatusCode;
use tracing::error;

use super::KubernetesDoor;
use super::RouteEither as _;
use super::answer::{Answer, Refusal};
use super::call::{BODY, Call, Methods, ObjectHead, PatchHead};
use super::delete::{DeleteAllHead, DeleteHead};
use super::feed::{Cached, object_of};
use super::identity::User;
use super::read::{self, Asked, GetHead, WatchBy};

/// A kind whose objects the engine keeps.
pub(super) trait Kept: Cached {
    /// Whether an update has to say of which version it was made.
    const IS_CONDITIONAL: bool = false;

    /// Whether it is noted who set which field before anybody has applied anything.
    const IS_NOTED: bool = false;

    /// What is wrong with it; `old` is what is stored of it.
    fn faults(&self, old: Option<&Self>) -> Vec<FieldError>;

    /// Refuses what its writer may not write although access rules allow it.
    fn admit(&self, old: Option<&Self>, writer: &Writer<'_>) -> Result<(), Refusal>;

    /// What the audit log says of it; `None`: it is none of its business.
    fn detail(&self) -> Option<String>;

    /// Waits until what was written counts.
    fn settle(
        door: &KubernetesDoor,
        at: Revision,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// What the engine calls it.
    fn key(namespace: &str, name: &str) -> ObjectKey {
        let stored = Self::STORED_AS;
        ObjectKey {
            kind: match stored.group {
                "" => stored.resource.to_owned(),
                group => format!("{}.{group}", stored.resource),
            },
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// Who writes something, and where.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) door: &'a KubernetesDoor,
    pub(super) user: &'a User,
    /// The namespace in the path; empty where there is none.
    pub(super) namespace: &'a str,
    /// The name in the path; empty where there is none.
    pub(super) name: &'a str,
}

impl<'a> Writer<'a> {
    fn of(call: &'a Call) -> Self {
        Self {
            door: &call.door,
            user: &call.user,
            namespace: &call.namespace,
            name: &call.name,
        }
    }
}

/// Adds the calls of a kind.
pub(super) fn served<T: Kept>(
    door: &KubernetesDoor,
    router: Router<KubernetesDoor>,
) -> Router<KubernetesDoor> {
    let resource = T::RESOURCE.resource;
    let version = match T::RESOURCE.group {
        "" => format!("/api/{}", T::API_VERSION),
        _ => format!("/apis/{}", T::API_VERSION),
    };
    let everywhere = format!("{version}/{resource}");
    let (router, collection_path) = match T::NAMESPACED {
        true => (
            router.route_either(&everywhere, listed::<T>(door)),
            format!("{version}/namespaces/{{namespace}}/{resource}"),
        ),
        false => (router, everywhere),
    };
    router
        .route_either(&collection_path, collection::<T>(door))
        .route_either(&format!("{collection_path}/{{name}}"), object::<T>(door))
}

fn listed<T: Kept>(door: &KubernetesDoor) -> Methods<'_> {
    let head = |call: &mut Call| Asked::of::<T>(call, WatchBy::Query);
    Methods::of(door).get(head, read::collection::<T>)
}

fn collection<T: Kept>(door: &KubernetesDoor) -> Methods<'_> {
    listed::<T>(door)
        .on(
            MethodFilter::POST,
            BODY,
            |call| {
                call.authorize_on::<T>("create")?;
                ObjectHead::of(call, Offer::All, Resource::CREATE_OPTIONS)
            },
            writing::create::<T>,
        )
        .on(
            MethodFilter::DELETE,
            BODY,
            |call| {
                call.authorize_on::<T>("deletecollection")?;
                DeleteAllHead::of::<T>(call)
            },
            deletion::collection::<T>,
        )
}

fn object<T: Kept>(door: &KubernetesDoor) -> Methods<'_> {
    Methods::of(door)
        .get(
            |call| {
                let reach = call.authorize_on::<T>("get")?;
                GetHead::of(call, reach, Offer::All)
            },
            show::<T>,
        )
        .on(
            MethodFilter::PUT,
            BODY,
            |call| {
                call.authorize_on::<T>("update")?;
                ObjectHead::of(call, Offer::All, Resource::UPDATE_OPTIONS)
            },
            writing::replace::<T>,
        )
        .on(
            MethodFilter::PATCH,
            BODY,
            |call| {
                call.authorize_on::<T>("patch")?;
                PatchHead::of(call, Offer::All)
            },
            writing::patch::<T>,
        )
        .on(
            MethodFilter::DELETE,
            BODY,
            |call| {
                call.authorize_on::<T>("delete")?;
                DeleteHead::of(call, Offer::ObjectOnly)
            },
            deletion::delete::<T>,
        )
}

/// `GET` on an object.
async fn show<T: Kept>(call: Call, head: GetHead) -> Answer {
    let door = &call.door;
    head.reached(door).await?;
    let record = door.found::<T>(&call.namespace, &call.name).await?;
    let object = shown::<T>(&record)?;
    head.shape.object(StatusCode::OK, &object, door.now()?)
}

impl KubernetesDoor {
    /// The record of a name; a refusal if there is none.
    async fn found<T: Kept>(&self, namespace: &str, name: &str) -> Result<ObjectRecord, Refusal> {
        let key = T::key(namespace, name);
        let found = self.authority.objects.get(&key).await?;
        found.ok_or_else(|| T::RESOURCE.not_found(name).into())
    }
}

/// A record as clients see it.
fn shown<T: Kept>(record: &ObjectRecord) -> Result<T, Refusal> {
    object_of(record).map_err(|fault| {
        error!(object = %record.key, %fault, "a stored object cannot be read");
        Status::internal_error("the stored object cannot be read").into()
    })
}
