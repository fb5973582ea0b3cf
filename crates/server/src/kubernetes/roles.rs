//! Roles and bindings as a resource: read, written and deleted, where nobody grants what they do not have.

mod deletion;
mod granting;
mod writing;

use axum::extract::State;
use axum::routing::{MethodRouter, get};
use axum::{Extension, Router};
use countersign_authority::ObjectRecord;
use countersign_kapi::negotiate::Offer;
use countersign_kapi::rbac::{
    API_VERSION, ClusterRole, ClusterRoleBinding, Role, RoleBinding, escalation::EscalationFault,
};
use countersign_kapi::{Resource, Status, Time};
use http::StatusCode;
use tracing::error;

use super::KubernetesDoor;
use super::answer::{Answer, Refusal};
use super::authorizer::key_of;
use super::call::Call;
use super::read::{self, Read};
use crate::limits::RequestLimits;
use granting::Granting;

/// The calls of all four kinds.
pub(super) fn router() -> Router<KubernetesDoor> {
    let router = Router::new();
    let router = served::<ClusterRole>(router);
    let router = served::<ClusterRoleBinding>(router);
    let router = served::<Role>(router);
    served::<RoleBinding>(router)
}

fn served<T: Granting>(router: Router<KubernetesDoor>) -> Router<KubernetesDoor> {
    let resource = T::RESOURCE.resource;
    let everywhere = format!("/apis/{API_VERSION}/{resource}");
    let (router, collection_path) = match T::NAMESPACED {
        true => (
            router.route(&everywhere, get(list::<T>)),
            format!("/apis/{API_VERSION}/namespaces/{{namespace}}/{resource}"),
        ),
        false => (router, everywhere),
    };
    router
        .route(&collection_path, collection::<T>())
        .route(&format!("{collection_path}/{{name}}"), object::<T>())
}

fn collection<T: Granting>() -> MethodRouter<KubernetesDoor> {
    get(list::<T>)
        .post(writing::create::<T>)
        .delete(deletion::collection::<T>)
}

fn object<T: Granting>() -> MethodRouter<KubernetesDoor> {
    get(show::<T>)
        .put(writing::replace::<T>)
        .patch(writing::patch::<T>)
        .delete(deletion::delete::<T>)
}

/// `GET` on a collection.
async fn list<T: Granting>(
    State(door): State<KubernetesDoor>,
    limits: Option<Extension<RequestLimits>>,
    call: Call,
) -> Answer {
    let read = Read {
        limits: limits.as_ref().map(|Extension(limits)| limits),
        is_watch: false,
    };
    read::collection::<T>(&door, call, read).await
}

/// `GET` on an object.
async fn show<T: Granting>(State(door): State<KubernetesDoor>, mut call: Call) -> Answer {
    call.authorize_on::<T>("get")?;
    let shape = call.shape(Offer::All)?;
    let record = door.found::<T>(&call.namespace, &call.name).await?;
    shape.object(StatusCode::OK, &shown::<T>(&record)?, door.now()?)
}

impl KubernetesDoor {
    /// The record of a name; a refusal if there is none.
    async fn found<T: Granting>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<ObjectRecord, Refusal> {
        let key = key_of(T::GRANTS, namespace, name);
        let found = self.authority.object(&key).await?;
        found.ok_or_else(|| T::RESOURCE.not_found(name).into())
    }
}

/// A record as clients see it.
fn shown<T: Granting>(record: &ObjectRecord) -> Result<T, Refusal> {
    let mut object: T = serde_json::from_slice(&record.body).map_err(|fault| {
        error!(object = %record.key, %fault, "a stored object cannot be read");
        Status::internal_error("the stored object cannot be read")
    })?;
    let meta = object.metadata_mut();
    meta.name.clone_from(&record.key.name);
    meta.namespace.clone_from(&record.key.namespace);
    meta.uid = record.id.to_string();
    meta.resource_version = record.version.to_string();
    meta.creation_timestamp = Time::from_unix(record.created.0);
    Ok(object)
}

/// Why somebody may not write a role or a binding, as they are told.
fn escalation_refusal(fault: EscalationFault, of: Resource<'_>, name: &str) -> Refusal {
    match fault {
        EscalationFault::NoSuchRole { resource, name } => {
            let role = Resource { resource, ..of };
            role.not_found(&name).into()
        }
        fault => of.not_admitted(name, &fault.to_string()).into(),
    }
}
