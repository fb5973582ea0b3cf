//! The one path from a decision to a certificate.
//!
//! A caller (a submission, a person's act, a request judged again, a renewal, recovery, a validation for another
//! authority) says which [`Case`] was decided how. `plan` chooses everything that follows: what is written, what
//! must still hold, what the audit log says, what is drafted. It is a plain function. [`Core::execute`] carries a plan
//! out and chooses nothing: it commits the intent, asks the key, commits the certificate. It alone asks a key for the
//! signature of a certificate. What stops it is a [`Conflict`], which each caller answers for itself.
//!
//! [`Core::execute`]: crate::engine::Core::execute

mod case;
mod execute;
mod plan;
mod recent;
pub(crate) mod recovery;
pub(crate) mod stages;

pub(crate) use case::{Case, issued_name};
pub(crate) use execute::{Conflict, MAX_TRIES, Order, StoredRequest, commit_broken};
pub use execute::{Outcome, Recorded};
pub(crate) use plan::{
    Arriving, Decided, Person, PlannedValidity, Standing, uses_token, void, voided,
};
pub(crate) use recent::RecentCertificates;
pub use recent::ShownCertificate;
