//! Creating and changing objects.
//!
//! The order is that of real servers: access rules, the body, then whether the writer may write it ([`Kept::admit`]), then
//! whether it is well formed (422).

use axum::body::Bytes;
use countersign_authority::{ObjectFault, ObjectOrder, ObjectRecord, looks_like_a_token};
use countersign_kapi::negotiate::PatchFormat;
use countersign_kapi::options::{FieldValidation, WriteOptions};
use countersign_kapi::ownership::{self, Applied, FieldWriter};
use countersign_kapi::patch::{self, PatchKind};
use countersign_kapi::{
    Decoded, FieldError, ObjectMeta, Resource, Status, Time, decode, update, validate,
};
use http::StatusCode;

use super::super::KubernetesDoor;
use super::super::answer::{Answer, Refusal, warn};
use super::super::call::{Call, ObjectHead, PatchHead};
use super::super::faults::patch_refusal;
use super::super::secrets::refuse_bootstrap_tokens_in;
use super::super::update::MAX_TRIES;
use super::{Kept, Writer, shown};

/// `POST` on a collection.
pub(super) async fn create<T: Kept>(call: Call, head: ObjectHead, body: Bytes) -> Answer {
    let ObjectHead {
        shape,
        options,
        format,
    } = head;
    let door = &call.door;
    let Decoded {
        mut object,
        warnings,
    } = decode::object::<T>(&body, format, options.field_validation)?;
    note_creation(&mut object, &call.manager(&options), door.now()?);
    let stored = door.create_kept(Writer::of(&call), object, &options).await;
    let stored = stored.map_err(|refusal| refusal.warning(&warnings))?;
    let response = shape.object(StatusCode::CREATED, &stored, door.now()?)?;
    Ok(warn(response, &warnings))
}

/// `PUT` on an object. One that is not there is created, as real servers do with these kinds.
pub(super) async fn replace<T: Kept>(mut call: Call, head: ObjectHead, body: Bytes) -> Answer {
    let ObjectHead {
        shape,
        options,
        format,
    } = head;
    let door = call.door.clone();
    let decoded = decode::object::<T>(&body, format, options.field_validation)?;
    let named = &decoded.object.metadata().name;
    if *named != call.name {
        return Err(Status::name_mismatch(named, &call.name).into());
    }
    let key = T::key(&call.namespace, &call.name);
    let (code, object, warnings) = match door.authority.objects.get(&key).await? {
        Some(_) => {
            let change = Change::Whole(Box::new(decoded));
            let manager = call.manager(&options);
            let (object, warnings) = door
                .change_kept(Writer::of(&call), &change, &manager, &options)
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
            note_creation(&mut object, &call.manager(&options), door.now()?);
            let object = door.create_kept(Writer::of(&call), object, &options).await;
            let object = object.map_err(|refusal| refusal.warning(&warnings))?;
            (StatusCode::CREATED, object, warnings)
        }
    };
    let response = shape.object(code, &object, door.now()?)?;
    Ok(warn(response, &warnings))
}

/// `PATCH` on an object.
pub(super) async fn patch<T: Kept>(mut call: Call, head: PatchHead, body: Bytes) -> Answer {
    let PatchHead {
        shape,
        format,
        options,
    } = head;
    let door = call.door.clone();
    let (validation, manager) = (options.field_validation, call.manager(&options));
    let change = match format {
        PatchFormat::Patch(kind) => Change::<T>::Patch {
            kind,
            body,
            validation,
        },
        PatchFormat::Apply => {
            let force = options.force.unwrap_or_default();
            Change::Applied(Applied::read::<T>(&body, validation, force)?)
        }
    };
    if let Change::Applied(applied) = &change {
        refuse_misapplied(applied, &call.name)?;
        let key = T::key(&call.namespace, &call.name);
        if door.authority.objects.get(&key).await?.is_none() {
            call.authorize_on::<T>("create")?;
            let Decoded {
                mut object,
                warnings,
            } = applied.onto::<T>(None, &writer_of(&manager, door.now()?))?;
            object.metadata_mut().name.clone_from(&call.name);
            let object = door.create_kept(Writer::of(&call), object, &options).await;
            let object = object.map_err(|refusal| refusal.warning(&warnings))?;
            let response = shape.object(StatusCode::CREATED, &object, door.now()?)?;
            return Ok(warn(response, &warnings));
        }
    }
    let (object, warnings) = door
        .change_kept(Writer::of(&call), &change, &manager, &options)
        .await?;
    let response = shape.object(StatusCode::OK, &object, door.now()?)?;
    Ok(warn(response, &warnings))
}

/// What applied configurations have in common that are none.
pub(in super::super) fn refuse_misapplied(applied: &Applied, name: &str) -> Result<(), Refusal> {
    if applied.names_owners() {
        return Err(Status::bad_request("metadata.managedFields must be nil").into());
    }
    let named = applied.metadata("name");
    match named.is_empty() || named == name {
        true => Ok(()),
        false => Err(Status::name_mismatch(named, name).into()),
    }
}

fn writer_of(manager: &str, now: Time) -> FieldWriter<'_> {
    FieldWriter {
        manager,
        subresource: "",
        reset: &[],
        now,
    }
}

/// Notes who made an object; what its sender says of that does not count.
fn note_creation<T: Kept>(object: &mut T, manager: &str, now: Time) {
    object.metadata_mut().managed_fields.clear();
    if T::IS_NOTED {
        ownership::note(None, object, &writer_of(manager, now));
    }
}

enum Change<T> {
    Whole(Box<Decoded<T>>),
    Applied(Applied),
    Patch {
        kind: PatchKind,
        body: Bytes,
        validation: FieldValidation,
    },
}

impl<T: Kept> Change<T> {
    fn onto(&self, old: &T, writer: &FieldWriter<'_>) -> Result<Decoded<T>, Refusal> {
        match self {
            Self::Whole(decoded) => Ok((**decoded).clone()),
            Self::Applied(applied) => Ok(applied.onto(Some(old), writer)?),
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
    async fn create_kept<T: Kept>(
        &self,
        place: Writer<'_>,
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
            object.admit(None, &place)?;
            refuse_invalid(&object, None)?;
            refuse_bootstrap_tokens_in(&self.authority.tokens, None, &object).await?;
            let key = T::key(place.namespace, &object.metadata().name);
            if options.dry_run {
                match self.authority.objects.get(&key).await? {
                    Some(_) => continue,
                    None => return Ok(object),
                }
            }
            let order = ObjectOrder {
                key,
                actor: place.user.requester(),
                expected: None,
                body: object.stored_body(),
                detail: object.detail(),
            };
            match self.authority.objects.create(order).await {
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
    async fn change_kept<T: Kept>(
        &self,
        place: Writer<'_>,
        change: &Change<T>,
        manager: &str,
        options: &WriteOptions,
    ) -> Result<(T, Vec<String>), Refusal> {
        for _ in 0..MAX_TRIES {
            let by = writer_of(manager, self.now()?);
            let record = self.found::<T>(place.namespace, place.name).await?;
            let old: T = shown(&record)?;
            let Decoded { object, warnings } = change.onto(&old, &by)?;
            let seen = (&record, &old);
            match self
                .try_to_change(place, change, seen, object, &by, options)
                .await
            {
                Ok(Some(stored)) => return Ok((stored, warnings)),
                // Somebody was faster.
                Ok(None) => {}
                Err(refusal) => return Err(refusal.warning(&warnings)),
            }
        }
        Err(T::RESOURCE.modified(place.name).into())
    }

    /// Carries a change out on the object as it was seen. `None`: it is no longer that.
    async fn try_to_change<T: Kept>(
        &self,
        place: Writer<'_>,
        change: &Change<T>,
        (record, old): (&ObjectRecord, &T),
        mut object: T,
        by: &FieldWriter<'_>,
        options: &WriteOptions,
    ) -> Result<Option<T>, Refusal> {
        if T::IS_CONDITIONAL && object.metadata().resource_version.is_empty() {
            let (field, detail) = (
                "metadata.resourceVersion",
                "must be specified for an update",
            );
            let errors = [FieldError::invalid(field, 0, detail)];
            // As real servers do: here, and nowhere else, the resource stands for the kind.
            let kind = T::RESOURCE.resource;
            let named = Resource {
                kind,
                ..T::RESOURCE
            };
            return Err(named.invalid(place.name, &errors).into());
        }
        refuse_other_namespace(&object, place)?;
        let preconditions =
            update::preconditions(old, &object).and_then(|()| update::immutable(old, &object));
        let owners = std::mem::take(&mut object.metadata_mut().managed_fields);
        let mut new = kept(old, object);
        match change {
            Change::Applied(_) => new.metadata_mut().managed_fields = owners,
            Change::Whole(_) | Change::Patch { .. } => note_change(old, &mut new, by),
        }
        if new == *old {
            preconditions?;
            return Ok(Some(new));
        }
        // Who may not write it hears that first, however old what they saw is.
        new.admit(Some(old), &place)?;
        preconditions?;
        refuse_invalid(&new, Some(old))?;
        refuse_bootstrap_tokens_in(&self.authority.tokens, Some(old), &new).await?;
        if options.dry_run {
            return Ok(Some(new));
        }
        let order = ObjectOrder {
            key: record.key.clone(),
            actor: place.user.requester(),
            expected: Some(record.version),
            body: new.stored_body(),
            detail: new.detail(),
        };
        let meta = new.metadata();
        // Nobody holds it back any longer.
        let is_gone = meta.deletion_timestamp.is_some() && meta.finalizers.is_empty();
        let written = match is_gone {
            true => self.authority.objects.delete(order).await,
            false => self.authority.objects.update(order).await,
        };
        match written {
            Ok(record) => {
                let stored = match is_gone {
                    true => self.settled_as(&record, new).await?,
                    false => self.settled(&record).await?,
                };
                Ok(Some(stored))
            }
            Err(ObjectFault::Changed { .. }) => Ok(None),
            Err(fault) => Err(object_refusal::<T>(fault, &new)),
        }
    }

    /// What a client sends for a new object, as it would be stored.
    fn prepared<T: Kept>(&self, mut object: T, place: Writer<'_>) -> Result<T, Refusal> {
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
        Ok(object)
    }

    /// What was written, once it counts.
    async fn settled<T: Kept>(&self, record: &ObjectRecord) -> Result<T, Refusal> {
        let object = shown(record)?;
        self.settled_as(record, object).await
    }

    async fn settled_as<T: Kept>(&self, record: &ObjectRecord, object: T) -> Result<T, Refusal> {
        T::settle(self, record.version).await?;
        Ok(object)
    }
}

/// Whether an object may be stored as it is.
fn refuse_invalid<T: Kept>(new: &T, old: Option<&T>) -> Result<(), Refusal> {
    let name = &new.metadata().name;
    let mut errors = new.faults(old);
    errors.extend(old.and_then(|old| validate::metadata_update(old.metadata(), new.metadata())));
    // Everybody reads it who reads the kind.
    if serde_json::to_string(new).is_ok_and(|text| looks_like_a_token(&text)) {
        let detail = "holds an enrolment token, which is a secret: revoke it and mint another";
        errors.push(FieldError::forbidden("metadata", detail));
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(T::STORED_AS.invalid(name, &errors).into()),
    }
}

/// Notes who changed an object, if anything was and it is noted of it.
fn note_change<T: Kept>(old: &T, new: &mut T, by: &FieldWriter<'_>) {
    let is_noted = T::IS_NOTED || !old.metadata().managed_fields.is_empty();
    if is_noted && new != old {
        ownership::note(Some(old), new, by);
    }
}

/// What an update changes; the rest stays as it is.
fn kept<T: Kept>(old: &T, mut new: T) -> T {
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
fn refuse_other_namespace<T: Kept>(object: &T, place: Writer<'_>) -> Result<(), Refusal> {
    let said = &object.metadata().namespace;
    if said.is_empty() || *said == place.namespace || !T::NAMESPACED {
        return Ok(());
    }
    let text =
        "the namespace of the provided object does not match the namespace sent on the request";
    Err(Status::bad_request(text).into())
}

pub(super) fn object_refusal<T: Kept>(fault: ObjectFault, object: &T) -> Refusal {
    let name = &object.metadata().name;
    match fault {
        ObjectFault::Exists { .. } => T::RESOURCE.already_exists(name).into(),
        ObjectFault::Changed { .. } => T::RESOURCE.modified(name).into(),
        ObjectFault::NotFound { .. } => T::RESOURCE.not_found(name).into(),
        ObjectFault::Engine(broken) => broken.into(),
    }
}
