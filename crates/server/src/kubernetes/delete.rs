//! Deleting objects. A certificate that was issued stays in the ledger.

use axum::body::Bytes;
use countersign_authority::RequestRecord;
use countersign_kapi::delete::{DeleteOptions, Preconditions};
use countersign_kapi::list::ListMeta;
use countersign_kapi::negotiate::{BodyFormat, Offer};
use countersign_kapi::{CertificateSigningRequest, Kind, Resource};
use http::StatusCode;

use super::KubernetesDoor;
use super::answer::{Answer, Refusal, Shape, json};
use super::call::Call;
use super::identity::User;
use super::object::Attachment;
use super::read::Selection;
use super::update::{MAX_TRIES, stale};

/// What the head of a call says that deletes an object.
pub(super) struct DeleteHead {
    pub(super) shape: Shape,
    format: BodyFormat,
}

impl DeleteHead {
    pub(super) fn of(call: &Call, offer: Offer) -> Result<Self, Refusal> {
        Ok(Self {
            shape: call.shape(offer)?,
            format: call.body_format()?,
        })
    }

    /// Options from the body, else from the query.
    pub(super) fn options(&self, call: &Call, body: &[u8]) -> Result<DeleteOptions, Refusal> {
        let invalid = |errors: &[_]| Refusal::from(Resource::DELETE_OPTIONS.invalid("", errors));
        let options = if body.is_empty() {
            DeleteOptions::from_query(call.pairs()).map_err(|error| invalid(&[error]))?
        } else {
            DeleteOptions::decode(body, self.format)?
        };
        let errors = options.validate();
        if errors.is_empty() {
            Ok(options)
        } else {
            Err(invalid(&errors))
        }
    }
}

/// The same of a call that deletes whatever is selected.
pub(super) struct DeleteAllHead {
    pub(super) selection: Selection,
    pub(super) head: DeleteHead,
}

impl DeleteAllHead {
    pub(super) fn of<T: Kind>(call: &Call) -> Result<Self, Refusal> {
        let shape = call.shape(Offer::All)?;
        let selection = Selection::of::<T>(call)?;
        let format = call.body_format()?;
        Ok(Self {
            selection,
            head: DeleteHead { shape, format },
        })
    }
}

/// `DELETE` on an object.
pub(super) async fn delete(call: Call, head: DeleteHead, body: Bytes) -> Answer {
    let door = &call.door;
    let options = head.options(&call, &body)?;
    match door.delete(&call.name, &call.user, &options).await? {
        Deleted::Gone(object) => {
            let uid = &object.metadata.uid;
            json(StatusCode::OK, &Resource::CSR.deleted(&call.name, uid))
        }
        Deleted::HeldBack(object) => head.shape.object(StatusCode::OK, &object, door.now()?),
        Deleted::Unreadable(uid) => json(StatusCode::OK, &Resource::CSR.deleted(&call.name, &uid)),
    }
}

/// `DELETE` on the collection.
pub(super) async fn collection(call: Call, head: DeleteAllHead, body: Bytes) -> Answer {
    let door = &call.door;
    let DeleteAllHead { selection, head } = head;
    let options = head.options(&call, &body)?;
    let mut deleted = Vec::new();
    for object in door.select::<CertificateSigningRequest>(&selection).await? {
        let name = &object.metadata.name;
        match door.delete(name, &call.user, &options).await {
            Ok(Deleted::Gone(object) | Deleted::HeldBack(object)) => deleted.push(object),
            // It cannot be shown.
            Ok(Deleted::Unreadable(_)) => {}
            // Somebody else deleted it first.
            Err(refusal) if refusal.code() == StatusCode::NOT_FOUND => {}
            Err(refusal) => return Err(refusal),
        }
    }
    let version = door.authority.revision().to_string();
    let meta = ListMeta {
        resource_version: version,
        ..ListMeta::default()
    };
    head.shape.list(meta, deleted, door.now()?)
}

enum Deleted {
    /// It is gone.
    Gone(CertificateSigningRequest),
    /// It is marked, and goes when its finalizers are removed.
    HeldBack(CertificateSigningRequest),
    /// What had this uid is gone. Nobody could read it.
    Unreadable(String),
}

impl KubernetesDoor {
    async fn delete(
        &self,
        name: &str,
        user: &User,
        options: &DeleteOptions,
    ) -> Result<Deleted, Refusal> {
        for _ in 0..MAX_TRIES {
            let record = self.find(name).await?;
            let object = match self.show(&record).await {
                Ok(object) => object,
                // What cannot be shown must still be possible to get rid of.
                Err(refusal) if refusal.code() == StatusCode::INTERNAL_SERVER_ERROR => {
                    let uid = record.id.to_string();
                    let Preconditions {
                        uid: expected,
                        resource_version,
                    } = &options.preconditions;
                    let is_other = expected.as_ref().is_some_and(|expected| *expected != uid);
                    if is_other || resource_version.is_some() {
                        return Err(refusal);
                    }
                    if options.is_dry_run() {
                        return Ok(Deleted::Unreadable(uid));
                    }
                    let act = self.act_on(&record, user);
                    match self.authority.requests.delete(act).await {
                        Ok(_) => return Ok(Deleted::Unreadable(uid)),
                        Err(fault) => stale::<()>(fault, name)?,
                    };
                    continue;
                }
                Err(refusal) => return Err(refusal),
            };
            options.check(&object)?;
            if !object.metadata.finalizers.is_empty() {
                if let Some(object) = self.mark_deleted(user, &record, object, options).await? {
                    return Ok(Deleted::HeldBack(object));
                }
                continue;
            }
            if options.is_dry_run() {
                return Ok(Deleted::Gone(object));
            }
            match self
                .authority
                .requests
                .delete(self.act_on(&record, user))
                .await
            {
                Ok(_) => return Ok(Deleted::Gone(object)),
                Err(fault) => stale::<()>(fault, name)?,
            };
        }
        Err(Resource::CSR.modified(name).into())
    }

    /// Notes that an object shall go. `None`: it changed meanwhile.
    async fn mark_deleted(
        &self,
        user: &User,
        record: &RequestRecord,
        mut object: CertificateSigningRequest,
        options: &DeleteOptions,
    ) -> Result<Option<CertificateSigningRequest>, Refusal> {
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(Some(object));
        }
        object.metadata.deletion_timestamp = Some(self.now()?);
        object.metadata.deletion_grace_period_seconds = Some(0);
        if options.is_dry_run() {
            return Ok(Some(object));
        }
        let mut act = self.act_on(record, user);
        act.attachment = Some(Attachment::of(record)?.with_metadata(&object).to_bytes()?);
        match self.authority.requests.attach(act).await {
            Ok(record) => Ok(Some(self.show(&record).await?)),
            Err(fault) => stale(fault, &record.key),
        }
    }
}
