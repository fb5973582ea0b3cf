//! Creating and changing roles and bindings.
//!
//! The order is that of real servers: access rules, the body, then whether the writer holds what is granted (403), then
//! whether it is well formed (422). It counts for every later call before its writer hears of it.

use axum::body::Bytes;
use axum::extract::State;
use countersign_authority::{ObjectFault, ObjectOrder, ObjectRecord, looks_like_a_token};
use countersign_kapi::negotiate::Offer;
use countersign_kapi::options::{FieldValidation, WriteOptions};
use countersign_kapi::patch::{self, PatchKind};
use countersign_kapi::{
    Decoded, FieldError, MAX_BODY_BYTES, ObjectMeta, Resource, Status, decode, update, validate,
};
use http::StatusCode;

use super::super::KubernetesDoor;
use super::super::answer::{Answer, Refusal, warn};
use super::super::authorizer::{key_of, stored_body};
use super::super::call::Call;
use super::super::faults::patch_refusal;
use super::super::identity::User;
use super::super::secrets::refuse_bootstrap_tokens_in;
use super::super::update::MAX_TRIES;
use super::granting::{Granter, Granting};
use super::{escalation_refusal, shown};

/// `POST` on a collection.
pub(super) async fn create<T: Granting>(
    State(door): State<KubernetesDoor>,
    mut call: Call,
) -> Answer {
    call.authorize_on::<T>("create")?;
    let shape = call.shape(Offer::All)?;
    let options = call.write_options(Resource::CREATE_OPTIONS)?;
    let format = call.body_format()?;
    let body = call.read_body(MAX_BODY_BYTES).await?;
    let Decoded { object, warnings } =
        decode::object::<T>(&body, format, options.field_validation)?;
    let stored = door.create_role(Place::of(&call), object, &options).await?;
    let response = shape.object(StatusCode::CREATED, &stored, door.now()?)?;
    Ok(warn(response, &warnings))
}

/// `PUT` on an object. One that is not there is created, as real servers do with these kinds.
pub(super) async fn replace<T: Granting>(
    State(door): State<KubernetesDoor>,
    mut call: Call,
) -> Answer {
    call.authorize_on::<T>("update")?;
    let shape = call.shape(Offer::All)?;
    let options = call.write_options(Resource::UPDATE_OPTIONS)?;
    let format = call.body_format()?;
    let body = call.read_body(MAX_BODY_BYTES).await?;
    let decoded = decode::object::<T>(&body, format, options.field_validation)?;
    let named = &decoded.object.metadata().name;
    if *named != call.name {
        return Err(Status::name_mismatch(named, &call.name).into());
    }
    let key = key_of(T::GRANTS, &call.namespace, &call.name);
    let (code, object, warnings) = match door.authority.object(&key).await? {
        Some(_) => {
            let change = Change::Whole(Box::new(decoded));
            let (object, warnings) = door
                .change_role(Place::of(&call), &change, &options)
                .await?;
            (StatusCode::OK, object, warnings)
        }
        None => {
            call.authorize_on::<T>("create")?;
            let Decoded {
                mut object,
                warnings,
            } = decoded;
            let uid = &object.metadata().uid;
            if !uid.is_empty() {
                return Err(T::RESOURCE.uid_conflict(&call.name, uid, "").into());
            }
            // The version was that of an object that is gone.
            object.metadata_mut().resource_version.clear();
            let object = door.create_role(Place::of(&call), object, &options).await?;
            (StatusCode::CREATED, object, warnings)
        }
    };
    let response = shape.object(code, &object, door.now()?)?;
    Ok(warn(response, &warnings))
}

/// `PATCH` on an object.
pub(super) async fn patch<T: Granting>(
    State(door): State<KubernetesDoor>,
    mut call: Call,
) -> Answer {
    call.authorize_on::<T>("patch")?;
    let shape = call.shape(Offer::All)?;
    let kind = call.patch_kind()?;
    let options = call.write_options(Resource::PATCH_OPTIONS)?;
    let body = call.read_body(MAX_BODY_BYTES).await?;
    let change = Change::<T>::Patch {
        kind,
        body,
        validation: options.field_validation,
    };
    let (object, warnings) = door
        .change_role(Place::of(&call), &change, &options)
        .await?;
    let response = shape.object(StatusCode::OK, &object, door.now()?)?;
    Ok(warn(response, &warnings))
}

/// Who writes, and what the path says.
#[derive(Clone, Copy)]
struct Place<'a> {
    user: &'a User,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Place<'a> {
    fn of(call: &'a Call) -> Self {
        Self {
            user: &call.user,
            namespace: &call.namespace,
            name: &call.name,
        }
    }
}

enum Change<T> {
    Whole(Box<Decoded<T>>),
    Patch {
        kind: PatchKind,
        body: Bytes,
        validation: FieldValidation,
    },
}

impl<T: Granting> Change<T> {
    fn onto(&self, old: &T) -> Result<Decoded<T>, Refusal> {
        match self {
            Self::Whole(decoded) => Ok((**decoded).clone()),
            Self::Patch {
                kind,
                body,
                validation,
            } => {
                let named = &old.metadata().name;
                let decoded = patch::apply(*kind, old, body, *validation)
                    .map_err(|fault| patch_refusal(fault, T::RESOURCE, named))?;
                let found = &decoded.object.metadata().name;
                if found != named {
                    return Err(Status::name_mismatch(found, named).into());
                }
                // The body of a PUT says which object it means; a patch says what shall be.
                update::immutable(old, &decoded.object)?;
                Ok(decoded)
            }
        }
    }
}

impl KubernetesDoor {
    async fn create_role<T: Granting>(
        &self,
        place: Place<'_>,
        object: T,
        options: &WriteOptions,
    ) -> Result<T, Refusal> {
        if !object.metadata().resource_version.is_empty() {
            let text = "resourceVersion should not be set on objects to be created";
            return Err(Status::unforeseen(text).into());
        }
        let mut object = self.prepared(object, place)?;
        let base = object.metadata().generate_name.clone();
        let generated = object.metadata().name.is_empty() && !base.is_empty();
        for _ in 0..if generated { MAX_TRIES } else { 1 } {
            if generated {
                object.metadata_mut().name = self.generated_name(&base)?;
            }
            self.refuse_escalation(place, &object, None)?;
            refuse_invalid(&object, None)?;
            refuse_bootstrap_tokens_in(&self.authority, None, &object).await?;
            let key = key_of(T::GRANTS, place.namespace, &object.metadata().name);
            if options.dry_run {
                match self.authority.object(&key).await? {
                    Some(_) => continue,
                    None => return Ok(object),
                }
            }
            let order = ObjectOrder {
                key,
                actor: place.user.requester(),
                expected: None,
                body: stored_body(&object),
                detail: object.detail(),
            };
            match self.authority.create_object(order).await {
                Ok(record) => return self.settled(&record).await,
                Err(ObjectFault::Exists { .. }) => {}
                Err(fault) => return Err(object_refusal::<T>(fault, &object)),
            }
        }
        let name = &object.metadata().name;
        if generated {
            return Err(T::RESOURCE.no_name_generated(name).into());
        }
        let holder = self.found::<T>(place.namespace, name).await;
        let holder = holder.and_then(|record| shown::<T>(&record)).ok();
        let is_going = |holder: T| holder.metadata().deletion_timestamp.is_some();
        Err(match holder.is_some_and(is_going) {
            true => T::RESOURCE.being_deleted(name).into(),
            false => T::RESOURCE.already_exists(name).into(),
        })
    }

    /// Carries a change out on the object as it is now, again if somebody was faster.
    async fn change_role<T: Granting>(
        &self,
        place: Place<'_>,
        change: &Change<T>,
        options: &WriteOptions,
    ) -> Result<(T, Vec<String>), Refusal> {
        for _ in 0..MAX_TRIES {
            let record = self.found::<T>(place.namespace, place.name).await?;
            let old: T = shown(&record)?;
            let Decoded { object, warnings } = change.onto(&old)?;
            refuse_other_namespace(&object, place)?;
            let preconditions = update::preconditions(&old, &object)
                .and_then(|()| update::immutable(&old, &object));
            let new = kept(&old, object);
            if new == old {
                preconditions?;
                return Ok((new, warnings));
            }
            // Who may not grant it hears that first, however old what they saw is.
            self.refuse_escalation(place, &new, Some(&old))?;
            preconditions?;
            refuse_invalid(&new, Some(&old))?;
            refuse_bootstrap_tokens_in(&self.authority, Some(&old), &new).await?;
            if options.dry_run {
                return Ok((new, warnings));
            }
            let order = ObjectOrder {
                key: record.key.clone(),
                actor: place.user.requester(),
                expected: Some(record.version),
                body: stored_body(&new),
                detail: new.detail(),
            };
            let meta = new.metadata();
            // Nobody holds it back any longer.
            let is_gone = meta.deletion_timestamp.is_some() && meta.finalizers.is_empty();
            let written = match is_gone {
                true => self.authority.delete_object(order).await,
                false => self.authority.update_object(order).await,
            };
            match written {
                Ok(record) => {
                    let stored = match is_gone {
                        true => self.settled_as(&record, new).await?,
                        false => self.settled(&record).await?,
                    };
                    return Ok((stored, warnings));
                }
                Err(ObjectFault::Changed { .. }) => {}
                Err(fault) => return Err(object_refusal::<T>(fault, &new)),
            }
        }
        Err(T::RESOURCE.modified(place.name).into())
    }

    /// What a client sends for a new object, as it would be stored.
    fn prepared<T: Granting>(&self, mut object: T, place: Place<'_>) -> Result<T, Refusal> {
        refuse_other_namespace(&object, place)?;
        let now = self.now()?;
        let mut random = [0; 10];
        self.authority.random(&mut random)?;
        let uid = countersign_authority::RequestId::new(self.authority.now(), random);
        let meta = object.metadata_mut();
        place.namespace.clone_into(&mut meta.namespace);
        meta.uid = uid.to_string();
        meta.generation = 0;
        meta.creation_timestamp = Some(now);
        meta.deletion_timestamp = None;
        meta.deletion_grace_period_seconds = None;
        meta.managed_fields = Vec::new();
        Ok(object)
    }

    /// Whether the writer holds what is granted. What only says who waits for the deletion grants nothing.
    fn refuse_escalation<T: Granting>(
        &self,
        place: Place<'_>,
        new: &T,
        old: Option<&T>,
    ) -> Result<(), Refusal> {
        if old.is_some_and(|old| differ_in_deletion_alone(old, new)) {
            return Ok(());
        }
        let granter = Granter {
            authorizer: &self.authorizer,
            user: place.user.info(),
            name: place.name,
        };
        new.check(old, &granter)
            .map_err(|fault| escalation_refusal(fault, T::RESOURCE, &new.metadata().name))
    }

    /// What was written, once it counts.
    async fn settled<T: Granting>(&self, record: &ObjectRecord) -> Result<T, Refusal> {
        let object = shown(record)?;
        self.settled_as(record, object).await
    }

    async fn settled_as<T>(&self, record: &ObjectRecord, object: T) -> Result<T, Refusal> {
        self.authorizer
            .settle(&self.authority, record.version)
            .await?;
        Ok(object)
    }
}

/// Whether an object may be stored as it is.
fn refuse_invalid<T: Granting>(new: &T, old: Option<&T>) -> Result<(), Refusal> {
    let name = &new.metadata().name;
    let mut errors = new.faults(old);
    errors.extend(old.and_then(|old| validate::metadata_update(old.metadata(), new.metadata())));
    // Everybody reads it who reads roles.
    if serde_json::to_string(new).is_ok_and(|text| looks_like_a_token(&text)) {
        let detail = "holds an enrolment token, which is a secret: revoke it and mint another";
        errors.push(FieldError::forbidden("metadata", detail));
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(T::RESOURCE.invalid(name, &errors).into()),
    }
}

/// Whether nothing else was changed than who waits for the deletion of an object, and what it belongs to.
fn differ_in_deletion_alone<T: Granting>(old: &T, new: &T) -> bool {
    let mut same = new.clone();
    let meta = same.metadata_mut();
    meta.finalizers.clone_from(&old.metadata().finalizers);
    meta.owner_references
        .clone_from(&old.metadata().owner_references);
    same == *old
}

/// What an update changes; the rest stays as it is.
fn kept<T: Granting>(old: &T, mut new: T) -> T {
    let stored = old.metadata();
    let sent = std::mem::take(new.metadata_mut());
    *new.metadata_mut() = ObjectMeta {
        labels: sent.labels,
        annotations: sent.annotations,
        owner_references: sent.owner_references,
        finalizers: sent.finalizers,
        ..stored.clone()
    };
    new
}

/// A body may leave its namespace out; what it says must fit the path.
fn refuse_other_namespace<T: Granting>(object: &T, place: Place<'_>) -> Result<(), Refusal> {
    let said = &object.metadata().namespace;
    if said.is_empty() || *said == place.namespace || !T::NAMESPACED {
        return Ok(());
    }
    let text =
        "the namespace of the provided object does not match the namespace sent on the request";
    Err(Status::bad_request(text).into())
}

pub(super) fn object_refusal<T: Granting>(fault: ObjectFault, object: &T) -> Refusal {
    let name = &object.metadata().name;
    match fault {
        ObjectFault::Exists { .. } => T::RESOURCE.already_exists(name).into(),
        ObjectFault::Changed { .. } => T::RESOURCE.modified(name).into(),
        ObjectFault::NotFound { .. } => T::RESOURCE.not_found(name).into(),
        ObjectFault::Broken(broken) => broken.into(),
    }
}
