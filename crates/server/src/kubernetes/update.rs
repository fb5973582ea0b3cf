//! Changing an object: labels and the like, the decision, and what signers elsewhere write.
//!
//! Every write is prepared and validated against the object as it is, and stored only if the object
//! still is that. A write that does not say which version it was made from is tried again on the newer
//! one.

use axum::body::Bytes;
use countersign_authority::store::Past;
use countersign_authority::{
    Act, ActFault, Actor, OnUnsignable, Outcome, Recorded, RequestRecord, RequestState, Settlement,
};
use countersign_kapi::model::{APPROVED, DENIED, FAILED};
use countersign_kapi::negotiate::{Offer, PatchFormat};
use countersign_kapi::options::FieldValidation;
use countersign_kapi::ownership::{self, Applied, FieldWriter};
use countersign_kapi::patch::{self, PatchKind};
use countersign_kapi::validate::{self, Checks};
use countersign_kapi::{
    CertificateSigningRequest, Condition, Decoded, Endpoint, Resource, Status, Time, decode, update,
};
use countersign_pki::CertificateOutline;
use http::StatusCode;

use super::answer::{Answer, Refusal, Shape, first_bytes, warn};
use super::call::{Call, ObjectHead, PatchHead};
use super::certificate::read_leaf;
use super::create::{self, refuse_secrets};
use super::faults::{act_refusal, patch_refusal};
use super::identity::User;
use super::object::Attachment;
use super::objects::refuse_misapplied;
use super::secrets::{refuse_bootstrap_tokens, token_faults};
use super::{DOOR, KubernetesDoor};
use crate::access::Grant;

/// `PUT` on an object or one of its subresources.
pub(super) async fn put(endpoint: Endpoint, call: Call, head: ObjectHead, body: Bytes) -> Answer {
    let validation = head.options.field_validation;
    let decoded = decode::object::<CertificateSigningRequest>(&body, head.format, validation)?;
    let named = &decoded.object.metadata.name;
    if *named != call.name {
        return Err(Status::name_mismatch(named, &call.name).into());
    }
    let write = Write {
        endpoint,
        change: Change::Whole(Box::new(decoded)),
        manager: call.manager(&head.options),
        dry_run: head.options.dry_run,
    };
    write.carried_out(&call, head.shape).await
}

/// `PATCH` on an object or one of its subresources.
pub(super) async fn patch(
    endpoint: Endpoint,
    mut call: Call,
    head: PatchHead,
    body: Bytes,
) -> Answer {
    let validation = head.options.field_validation;
    let manager = call.manager(&head.options);
    let change = match head.format {
        PatchFormat::Patch(kind) => Change::Patch {
            kind,
            body,
            validation,
        },
        PatchFormat::Apply => {
            let force = head.options.force.unwrap_or_default();
            let applied = Applied::read::<CertificateSigningRequest>(&body, validation, force)?;
            refuse_misapplied(&applied, &call.name)?;
            let (door, name) = (&call.door, &call.name);
            let found = door
                .authority
                .requests
                .at(&DOOR, name, Past::Ignore)
                .await?;
            if endpoint == Endpoint::Object && found.is_none() {
                call.admit_rate()?;
                call.authorize("create", "")?;
                let by = writer_of(endpoint, &manager, call.door.now()?);
                let mut decoded = applied.onto::<CertificateSigningRequest>(None, &by)?;
                decoded.object.metadata.name.clone_from(&call.name);
                return create::decoded(call, head.shape, &head.options, decoded).await;
            }
            Change::Applied(applied)
        }
    };
    let write = Write {
        endpoint,
        change,
        manager,
        dry_run: head.options.dry_run,
    };
    write.carried_out(&call, head.shape).await
}

/// Who writes through an endpoint, and which fields do not change there.
fn writer_of(endpoint: Endpoint, manager: &str, now: Time) -> FieldWriter<'_> {
    FieldWriter {
        manager,
        subresource: subresource(endpoint),
        reset: match endpoint {
            Endpoint::Object => &[&["spec"], &["status"]],
            Endpoint::Status => &[&["spec"], &["status", "conditions"]],
            Endpoint::Approval => &[&["spec"], &["status", "certificate"]],
        },
        now,
    }
}

/// A change that a client asks for.
struct Write {
    endpoint: Endpoint,
    change: Change,
    /// Under which name the sender's fields are noted.
    manager: String,
    dry_run: bool,
}

impl Write {
    async fn carried_out(&self, call: &Call, shape: Shape) -> Answer {
        let door = &call.door;
        let (object, warnings) = door.write(&call.name, &call.user, self).await?;
        let response = shape.object(StatusCode::OK, &object, door.now()?)?;
        Ok(warn(response, &warnings))
    }
}

enum Change {
    /// The whole object as it should be.
    Whole(Box<Decoded<CertificateSigningRequest>>),
    /// What somebody wants of the object.
    Applied(Applied),
    /// What should differ.
    Patch {
        kind: PatchKind,
        body: Bytes,
        validation: FieldValidation,
    },
}

impl Change {
    fn onto(
        &self,
        old: &CertificateSigningRequest,
        by: &FieldWriter<'_>,
    ) -> Result<Decoded<CertificateSigningRequest>, Refusal> {
        match self {
            Self::Whole(decoded) => Ok((**decoded).clone()),
            Self::Applied(applied) => Ok(applied.onto(Some(old), by)?),
            Self::Patch {
                kind,
                body,
                validation,
            } => {
                let named = &old.metadata.name;
                let decoded = patch::apply(*kind, old, body, *validation)
                    .map_err(|fault| patch_refusal(fault, Resource::CSR, named))?;
                let found = &decoded.object.metadata.name;
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
    /// Carries a change out on the object as it is now, again if somebody was faster. A body made from
    /// an older version meets its own precondition then.
    async fn write(
        &self,
        name: &str,
        user: &User,
        write: &Write,
    ) -> Result<(CertificateSigningRequest, Vec<String>), Refusal> {
        for _ in 0..MAX_TRIES {
            let now = self.now()?;
            let record = self.find(name).await?;
            let old = self.show(&record).await?;
            let by = writer_of(write.endpoint, &write.manager, now);
            let Decoded {
                object: new,
                warnings,
            } = write.change.onto(&old, &by)?;
            let seen = Seen {
                record: &record,
                old: &old,
            };
            match self.try_to_write(write, user, &seen, new, now).await {
                Ok(Some(stored)) => return Ok((stored, warnings)),
                // Somebody was faster.
                Ok(None) => {}
                Err(refusal) => return Err(refusal.warning(&warnings)),
            }
        }
        Err(Resource::CSR.modified(name).into())
    }

    /// Carries a change out on the object as it was seen. `None`: it is no longer that.
    async fn try_to_write(
        &self,
        write: &Write,
        user: &User,
        seen: &Seen<'_>,
        mut new: CertificateSigningRequest,
        now: Time,
    ) -> Result<Option<CertificateSigningRequest>, Refusal> {
        let Seen { record, old } = *seen;
        let by = writer_of(write.endpoint, &write.manager, now);
        update::preconditions(old, &new)?;
        update::immutable(old, &new)?;
        let owners = std::mem::take(&mut new.metadata.managed_fields);
        let mut new = update::prepare(write.endpoint, old, new, now);
        match write.change {
            Change::Applied(_) => new.metadata.managed_fields = owners,
            // It is noted from the first time on that somebody applies something.
            Change::Whole(_) | Change::Patch { .. }
                if old.metadata.managed_fields.is_empty() || new == *old => {}
            Change::Whole(_) | Change::Patch { .. } => {
                ownership::note(Some(old), &mut new, &by);
            }
        }
        self.validate(write.endpoint, old, &new)?;
        refuse_secrets(&new, None)?;
        refuse_bootstrap_tokens(&self.authority.tokens, Some(old), &new).await?;
        self.admit(write.endpoint, user, &record.signer, old, &new)?;
        if write.dry_run && newly(APPROVED, old, &new).is_some() {
            let may = self
                .authority
                .requests
                .may_approve(&self.actor(user), record)
                .await;
            may.map_err(|fault| act_refusal(fault, &record.key))?;
        }
        if new == *old || write.dry_run {
            return Ok(Some(new));
        }
        self.store(write.endpoint, user, record, old, new).await
    }

    fn validate(
        &self,
        endpoint: Endpoint,
        old: &CertificateSigningRequest,
        new: &CertificateSigningRequest,
    ) -> Result<(), Refusal> {
        let known = token_faults(old);
        let mut added = token_faults(new);
        added.retain(|fault| !known.contains(fault));
        if !added.is_empty() {
            return Err(Resource::CSR.invalid(&old.metadata.name, &added).into());
        }
        // The request is the stored one, put back by the preparation and checked when it came in.
        let stored = |_: &[u8]| Ok(());
        let certificate = |text: &[u8]| read_leaf(text).map(|_| ());
        let checks = Checks {
            request: &stored,
            certificate: &certificate,
        };
        let errors = validate::update(endpoint, old, new, &checks);
        match errors.is_empty() {
            true => Ok(()),
            false => Err(Resource::CSR.invalid(&old.metadata.name, &errors).into()),
        }
    }

    /// Stores what is valid, together with the decision it brings. `None`: the record changed meanwhile.
    async fn store(
        &self,
        endpoint: Endpoint,
        user: &User,
        record: &RequestRecord,
        old: &CertificateSigningRequest,
        new: CertificateSigningRequest,
    ) -> Result<Option<CertificateSigningRequest>, Refusal> {
        let mut attachment = Attachment::of(record)?.with_metadata(&new);
        if endpoint != Endpoint::Object {
            attachment = attachment.with_conditions(&new);
        }
        let deeds = Deeds::of(old, &new)?;
        if let Some(leaf) = &deeds.certified {
            let now = self.authority.now();
            attachment = attachment.with_certificate(&new, now, leaf.not_after);
        }
        let mut act = self.act_on(record, user);
        act.attachment = Some(attachment.to_bytes()?);
        let stored =
            if new.metadata.deletion_timestamp.is_some() && new.metadata.finalizers.is_empty() {
                // Nobody holds it back any longer.
                let deleted = self.authority.requests.delete(act).await;
                return deleted
                    .map(|_| Some(new))
                    .or_else(|fault| stale(fault, &record.key));
            } else if deeds.are_of_outsiders(record) {
                let how = deeds.settlements(record);
                self.authority.requests.settle(act, how).await.map(unread)
            } else if let Some(approved) = deeds.approved {
                act.reason = words(approved);
                let outcome = self.authority.requests.approve(act).await;
                let recorded = outcome.map(Outcome::into_recorded);
                self.even_if_unsigned(record, recorded).await
            } else if let Some(denied) = deeds.denied {
                act.reason = words(denied);
                self.authority.requests.deny(act).await.map(unread)
            } else {
                self.authority.requests.attach(act).await.map(unread)
            };
        match stored {
            Ok(recorded) => Ok(Some(self.show_recorded(&recorded).await?)),
            Err(fault) => stale(fault, &record.key),
        }
    }

    /// An approval that is on record stands, even if its certificate could not be signed yet: it follows.
    async fn even_if_unsigned(
        &self,
        before: &RequestRecord,
        outcome: Result<Recorded, ActFault>,
    ) -> Result<Recorded, ActFault> {
        let Err(ActFault::Engine(broken)) = outcome else {
            return outcome;
        };
        match self.authority.requests.get(before.id).await {
            Ok(Some(now))
                if now.state == RequestState::Approved && now.version > before.version =>
            {
                tracing::warn!(
                    request = %now.id,
                    fault = &broken as &dyn std::error::Error,
                    "approved, but not signed yet"
                );
                Ok(unread(now))
            }
            Ok(_) | Err(_) => Err(ActFault::Engine(broken)),
        }
    }
}

/// A request as a change found it, and as the object that it is shown as.
#[derive(Clone, Copy)]
struct Seen<'a> {
    record: &'a RequestRecord,
    old: &'a CertificateSigningRequest,
}

/// What a write says of a request that was not said before.
struct Deeds<'a> {
    approved: Option<&'a Condition>,
    denied: Option<&'a Condition>,
    /// That signing was given up, now or before.
    failed: Option<&'a Condition>,
    is_newly_failed: bool,
    /// The certificate that a signer elsewhere made.
    certified: Option<CertificateOutline>,
}

impl<'a> Deeds<'a> {
    fn of(
        old: &CertificateSigningRequest,
        new: &'a CertificateSigningRequest,
    ) -> Result<Self, Refusal> {
        let written = &new.status.certificate;
        let certified = match *written == old.status.certificate || written.is_empty() {
            true => None,
            false => Some(read_leaf(written).map_err(|fault| Status::internal_error(&fault))?),
        };
        Ok(Self {
            approved: newly(APPROVED, old, new),
            denied: newly(DENIED, old, new),
            failed: new.condition(FAILED),
            is_newly_failed: newly(FAILED, old, new).is_some(),
            certified,
        })
    }

    /// Whether they are for the engine to record and not to decide: what signers elsewhere do, and what is noted on a
    /// request that is settled. What is marked as failed is never signed, whoever approves it.
    fn are_of_outsiders(&self, record: &RequestRecord) -> bool {
        let decided = self.approved.is_some() || self.denied.is_some();
        let is_settled = record.state != RequestState::Pending;
        self.certified.is_some()
            || self.is_newly_failed
            || decided && (is_settled || self.failed.is_some())
    }

    fn settlements(&self, record: &RequestRecord) -> Vec<Settlement> {
        let approved = self.approved.map(|condition| Settlement::Approved {
            reason: words(condition),
        });
        let denied = self.denied.map(|condition| Settlement::Denied {
            reason: words(condition),
        });
        let certified = self.certified.map(|leaf| Settlement::Certified {
            not_before: leaf.not_before,
            not_after: leaf.not_after,
            detail: format!(
                "certificate of a signer elsewhere, sha256 {}, until {}",
                leaf.fingerprint.to_hex(),
                leaf.not_after
            ),
        });
        // One that was marked before the engine took notice of it is settled now.
        let is_open = matches!(record.state, RequestState::Pending | RequestState::Approved);
        let failed = self.failed.filter(|_| self.is_newly_failed || is_open);
        let failed = failed.map(|condition| Settlement::Failed {
            reason: words(condition),
        });
        [approved, denied, certified, failed]
            .into_iter()
            .flatten()
            .collect()
    }
}

impl KubernetesDoor {
    /// A user as the engine judges it: let by the access rules of this door, with the roles of its groups. Who may do
    /// everything here is an administrator.
    pub(super) fn actor(&self, user: &User) -> Actor {
        let grant = match user.is_administrator() {
            true => Grant::ADMIN,
            false => self.access.of_groups(&user.groups()),
        };
        Actor::let_by_door(user.requester(), grant)
    }

    /// An act of a user on the very version of a record that was looked at.
    pub(super) fn act_on(&self, record: &RequestRecord, user: &User) -> Act {
        Act {
            door: DOOR,
            key: record.key.clone(),
            actor: self.actor(user),
            reason: String::new(),
            expected: Some(record.version),
            attachment: None,
            lifetime: None,
            on_unsignable: OnUnsignable::RecordFailure,
        }
    }
}

/// A request whose certificate, if it has one, is in the ledger alone.
fn unread(request: RequestRecord) -> Recorded {
    Recorded {
        request,
        certificate: None,
    }
}

/// `None` for a fault that another look at the object settles.
pub(super) fn stale<T>(fault: ActFault, name: &str) -> Result<Option<T>, Refusal> {
    match fault {
        ActFault::Conflict { .. } | ActFault::AlreadyDecided { .. } => Ok(None),
        other => Err(act_refusal(other, name)),
    }
}

/// The condition of a kind that only the new object has.
fn newly<'a>(
    kind: &str,
    old: &CertificateSigningRequest,
    new: &'a CertificateSigningRequest,
) -> Option<&'a Condition> {
    new.condition(kind).filter(|_| !old.has_condition(kind))
}

/// What the engine records as the reason of a decision. The attachment keeps the whole text.
fn words(condition: &Condition) -> String {
    let text = match condition.message.as_str() {
        "" => &condition.reason,
        message => message,
    };
    first_bytes(text, MAX_REASON).to_owned()
}

pub(super) fn subresource(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Object => "",
        Endpoint::Status => "status",
        Endpoint::Approval => "approval",
    }
}

pub(super) fn offer(endpoint: Endpoint) -> Offer {
    match endpoint {
        Endpoint::Object | Endpoint::Status => Offer::All,
        Endpoint::Approval => Offer::ObjectOnly,
    }
}

/// How often a change is tried on a newer object before the client is asked to look for itself.
pub(super) const MAX_TRIES: usize = 8;
const MAX_REASON: usize = 1024; // it stands in explanations and in every line of the audit log
