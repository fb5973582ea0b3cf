//! How much somebody may leave at the door.
//!
//! Every object that is there is in memory, whatever its state and whoever sent it. A sender who may only create could else
//! fill it, with many objects or with large ones.

use countersign_kapi::rbac::{Attributes, ResourceAction};
use countersign_kapi::{CertificateSigningRequest, FieldError, GROUP, RESOURCE, Resource, Status};

use super::KubernetesDoor;
use super::answer::Refusal;
use super::feed::Cached;
use super::identity::User;

/// Objects that are there, as far as they count for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stock {
    /// In all.
    pub(super) all: usize,
    /// Those that this user created.
    pub(super) own: usize,
}

/// There are too many already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum TooMany {
    #[error(
        "there are {MAX_OBJECTS} certificate signing requests; some have to be deleted before another one is taken"
    )]
    OfAll,
    #[error(
        "this user has created {MAX_OWN_OBJECTS} certificate signing requests that are still there; some have to be deleted before another one is taken"
    )]
    OfOne,
}

impl KubernetesDoor {
    /// Refuses an object of somebody who leaves too much. Only who may change any object may attach more to one than
    /// a client that asks for a certificate needs.
    pub(super) fn admit_metadata(
        &self,
        user: &User,
        object: &CertificateSigningRequest,
    ) -> Result<(), Refusal> {
        let update = Attributes::Resource(ResourceAction {
            verb: "update",
            group: GROUP,
            resource: RESOURCE,
            ..ResourceAction::default()
        });
        if self.authorizer.decide(user.info(), &update).allowed {
            return Ok(());
        }
        let errors = metadata_faults(object);
        match errors.is_empty() {
            true => Ok(()),
            false => Err(Resource::CSR.invalid(&object.metadata.name, &errors).into()),
        }
    }

    /// Refuses another object where there are too many.
    pub(super) fn admit_object(&self, user: &User) -> Result<(), Refusal> {
        let cache = CertificateSigningRequest::cache(self.caches());
        let mut stock = cache.stock(&user.info().username);
        if user.is_administrator() {
            stock.own = 0;
        }
        admit(stock)
            .map_err(|fault| Status::too_many_requests(fault.to_string(), RETRY_SECONDS).into())
    }
}

fn admit(stock: Stock) -> Result<(), TooMany> {
    match stock {
        Stock { all, .. } if all >= MAX_OBJECTS => Err(TooMany::OfAll),
        Stock { own, .. } if own >= MAX_OWN_OBJECTS => Err(TooMany::OfOne),
        Stock { .. } => Ok(()),
    }
}

/// What an object has that only somebody may attach who may change it, too.
fn metadata_faults(object: &CertificateSigningRequest) -> Vec<FieldError> {
    let meta = &object.metadata;
    let mut errors = Vec::new();
    for (field, is_set) in [
        ("metadata.finalizers", !meta.finalizers.is_empty()),
        (
            "metadata.ownerReferences",
            !meta.owner_references.is_empty(),
        ),
    ] {
        if is_set {
            errors.push(FieldError::forbidden(field, NOT_AT_CREATION));
        }
    }
    let length = serde_json::to_vec(meta).map_or(usize::MAX, |text| text.len());
    if length > MAX_METADATA {
        errors.push(FieldError::too_long("metadata", MAX_METADATA));
    }
    errors
}

/// Each is a few kilobytes of memory; the largest clusters have tens of thousands of nodes.
const MAX_OBJECTS: usize = 100_000;
const MAX_OWN_OBJECTS: usize = 20_000;
/// As JSON. `kubectl apply` notes the manifest in an annotation, and with it the whole request.
const MAX_METADATA: usize = 16 * 1024;
const NOT_AT_CREATION: &str =
    "may only be set by users who are allowed to update certificatesigningrequests";
/// Some may have been deleted by then.
const RETRY_SECONDS: u32 = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_bounded_in_all_and_for_each_user() {
        for (all, own, expected) in [
            (0, 0, Ok(())),
            (MAX_OBJECTS - 1, MAX_OWN_OBJECTS - 1, Ok(())),
            (MAX_OBJECTS, 0, Err(TooMany::OfAll)),
            (MAX_OWN_OBJECTS, MAX_OWN_OBJECTS, Err(TooMany::OfOne)),
        ] {
            assert_eq!(admit(Stock { all, own }), expected, "{all} {own}");
        }
    }
}
