//! Deleting roles and bindings.

use axum::extract::State;
use countersign_authority::{ObjectFault, ObjectOrder};
use countersign_kapi::delete::DeleteOptions;
use countersign_kapi::list::ListMeta;
use countersign_kapi::negotiate::Offer;
use http::StatusCode;

use super::super::KubernetesDoor;
use super::super::answer::{Answer, Refusal, json};
use super::super::authorizer::stored_body;
use super::super::call::Call;
use super::super::delete::read_options;
use super::super::identity::User;
use super::super::read::Selection;
use super::super::update::MAX_TRIES;
use super::granting::Granting;
use super::shown;
use super::writing::object_refusal;

/// `DELETE` on an object.
pub(super) async fn delete<T: Granting>(
    State(door): State<KubernetesDoor>,
    mut call: Call,
) -> Answer {
    call.authorize_on::<T>("delete")?;
    let shape = call.shape(Offer::ObjectOnly)?;
    let options = read_options(&mut call).await?;
    let place = (call.namespace.as_str(), call.name.as_str());
    match door.delete_role::<T>(place, &call.user, &options).await? {
        Deleted::Gone(object) => {
            let uid = &object.metadata().uid;
            json(StatusCode::OK, &T::RESOURCE.deleted(&call.name, uid))
        }
        Deleted::HeldBack(object) => shape.object(StatusCode::OK, &object, door.now()?),
    }
}

/// `DELETE` on a collection.
pub(super) async fn collection<T: Granting>(
    State(door): State<KubernetesDoor>,
    mut call: Call,
) -> Answer {
    call.authorize_on::<T>("deletecollection")?;
    let shape = call.shape(Offer::All)?;
    let selection = Selection::of::<T>(&call)?;
    let options = read_options(&mut call).await?;
    let mut deleted = Vec::new();
    for object in door.select::<T>(&selection).await? {
        let meta = object.metadata();
        let place = (meta.namespace.as_str(), meta.name.as_str());
        match door.delete_role::<T>(place, &call.user, &options).await {
            Ok(Deleted::Gone(object) | Deleted::HeldBack(object)) => deleted.push(object),
            // Somebody else deleted it first.
            Err(refusal) if refusal.code() == StatusCode::NOT_FOUND => {}
            Err(refusal) => return Err(refusal),
        }
    }
    let meta = ListMeta {
        resource_version: door.authority.revision().to_string(),
        ..ListMeta::default()
    };
    shape.list(meta, deleted, door.now()?)
}

enum Deleted<T> {
    /// It is gone.
    Gone(T),
    /// It is marked, and goes when its finalizers are removed.
    HeldBack(T),
}

impl KubernetesDoor {
    async fn delete_role<T: Granting>(
        &self,
        (namespace, name): (&str, &str),
        user: &User,
        options: &DeleteOptions,
    ) -> Result<Deleted<T>, Refusal> {
        for _ in 0..MAX_TRIES {
            let record = self.found::<T>(namespace, name).await?;
            let mut object: T = shown(&record)?;
            options.check(&object)?;
            let is_held = !object.metadata().finalizers.is_empty();
            let is_marked = object.metadata().deletion_timestamp.is_some();
            if is_held && !is_marked {
                let now = self.now()?;
                let meta = object.metadata_mut();
                meta.deletion_timestamp = Some(now);
                meta.deletion_grace_period_seconds = Some(0);
            }
            if options.is_dry_run() || (is_held && is_marked) {
                return Ok(match is_held {
                    true => Deleted::HeldBack(object),
                    false => Deleted::Gone(object),
                });
            }
            let order = ObjectOrder {
                key: record.key,
                actor: user.requester(),
                expected: Some(record.version),
                body: stored_body(&object),
                detail: object.detail(),
            };
            let written = match is_held {
                true => self.authority.update_object(order).await,
                false => self.authority.delete_object(order).await,
            };
            match written {
                Ok(record) => {
                    let settled = self.authorizer.settle(&self.authority, record.version);
                    settled.await?;
                    return Ok(match is_held {
                        true => Deleted::HeldBack(shown(&record)?),
                        false => Deleted::Gone(object),
                    });
                }
                Err(ObjectFault::Changed { .. }) => {}
                Err(fault) => return Err(object_refusal::<T>(fault, &object)),
            }
        }
        Err(T::RESOURCE.modified(name).into())
    }
}
