//! Deleting objects. A certificate that was issued stays in the ledger.

use axum::extract::State;
use countersign_authority::RequestRecord;
use countersign_kapi::delete::DeleteOptions;
use countersign_kapi::list::ListMeta;
use countersign_kapi::negotiate::Offer;
use countersign_kapi::{CertificateSigningRequest, MAX_BODY_BYTES, Resource};
use http::StatusCode;

use super::KubernetesDoor;
use super::answer::{Answer, Refusal, json};
use super::call::Call;
use super::identity::User;
use super::object::Attachment;
use super::read::Selection;
use super::update::{MAX_TRIES, act_on, stale};

/// `DELETE` on an object.
pub(super) async fn delete(State(door): State<KubernetesDoor>, mut call: Call) -> Answer {
    call.authorize("delete", "")?;
    let shape = call.shape(Offer::ObjectOnly)?;
    let options = read_options(&mut call).await?;
    match door.delete(&call.name, &call.user, &options).await? {
        Deleted::Gone(object) => {
            let uid = &object.metadata.uid;
            json(StatusCode::OK, &Resource::CSR.deleted(&call.name, uid))
        }
        Deleted::HeldBack(object) => shape.object(StatusCode::OK, &object, door.now()?),
    }
}

/// `DELETE` on the collection.
pub(super) async fn collection(State(door): State<KubernetesDoor>, mut call: Call) -> Answer {
    call.authorize("deletecollection", "")?;
    let shape = call.shape(Offer::All)?;
    let selection = Selection::of::<CertificateSigningRequest>(&call)?;
    let options = read_options(&mut call).await?;
    let mut deleted = Vec::new();
    for object in door.select::<CertificateSigningRequest>(&selection).await? {
        let name = &object.metadata.name;
        match door.delete(name, &call.user, &options).await {
            Ok(Deleted::Gone(object) | Deleted::HeldBack(object)) => deleted.push(object),
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
    shape.list(meta, deleted, door.now()?)
}

enum Deleted {
    /// It is gone.
    Gone(CertificateSigningRequest),
    /// It is marked, and goes when its finalizers are removed.
    HeldBack(CertificateSigningRequest),
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
            let object = self.show(&record).await?;
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
            match self.authority.delete(act_on(&record, user)).await {
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
        let mut act = act_on(record, user);
        act.attachment = Some(Attachment::of(record)?.with_metadata(&object).to_bytes()?);
        match self.authority.attach(act).await {
            Ok(record) => Ok(Some(self.show(&record).await?)),
            Err(fault) => stale(fault, &record.key),
        }
    }
}

/// Options from the body, else from the query.
pub(super) async fn read_options(call: &mut Call) -> Result<DeleteOptions, Refusal> {
    let invalid = |errors: &[_]| Refusal::from(Resource::DELETE_OPTIONS.invalid("", errors));
    let format = call.body_format()?;
    let body = call.read_body(MAX_BODY_BYTES).await?;
    let options = if body.is_empty() {
        DeleteOptions::from_query(call.pairs()).map_err(|error| invalid(&[error]))?
    } else {
        DeleteOptions::decode(&body, format)?
    };
    let errors = options.validate();
    if errors.is_empty() {
        Ok(options)
    } else {
        Err(invalid(&errors))
    }
}
