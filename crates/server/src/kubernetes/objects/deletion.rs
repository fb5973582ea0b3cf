//! Deleting objects.

use axum::body::Bytes;
use countersign_authority::{ObjectFault, ObjectOrder};
use countersign_kapi::delete::DeleteOptions;
use countersign_kapi::list::ListMeta;
use http::StatusCode;

use super::super::KubernetesDoor;
use super::super::answer::{Answer, Refusal, json};
use super::super::call::Call;
use super::super::delete::{DeleteAllHead, DeleteHead};
use super::super::identity::User;
use super::super::update::MAX_TRIES;
use super::writing::object_refusal;
use super::{Kept, shown};

/// `DELETE` on an object.
pub(super) async fn delete<T: Kept>(call: Call, head: DeleteHead, body: Bytes) -> Answer {
    let door = &call.door;
    let options = head.options(&call, &body)?;
    let place = (call.namespace.as_str(), call.name.as_str());
    match door.delete_kept::<T>(place, &call.user, &options).await? {
        Deleted::Gone(object) => {
            let uid = &object.metadata().uid;
            json(StatusCode::OK, &T::RESOURCE.deleted(&call.name, uid))
        }
        Deleted::HeldBack(object) => head.shape.object(StatusCode::OK, &object, door.now()?),
    }
}

/// `DELETE` on a collection.
pub(super) async fn collection<T: Kept>(call: Call, head: DeleteAllHead, body: Bytes) -> Answer {
    let door = &call.door;
    let DeleteAllHead { selection, head } = head;
    let options = head.options(&call, &body)?;
    let mut deleted = Vec::new();
    for object in door.select::<T>(&selection).await? {
        let meta = object.metadata();
        let place = (meta.namespace.as_str(), meta.name.as_str());
        match door.delete_kept::<T>(place, &call.user, &options).await {
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
    head.shape.list(meta, deleted, door.now()?)
}

enum Deleted<T> {
    /// It is gone.
    Gone(T),
    /// It is marked, and goes when its finalizers are removed.
    HeldBack(T),
}

impl KubernetesDoor {
    async fn delete_kept<T: Kept>(
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
                body: object.stored_body(),
                detail: object.detail(),
            };
            let written = match is_held {
                true => self.authority.objects.update(order).await,
                false => self.authority.objects.delete(order).await,
            };
            match written {
                Ok(record) => {
                    T::settle(self, record.version).await?;
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
