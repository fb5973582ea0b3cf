//! Leases, by which controllers agree on who of them is at work.
//!
//! They are as durable as everything else here: one that went with a restart would leave two at work. Every few seconds
//! each is renewed, and it gives nobody any right, so the audit log does not hear of it.

use axum::Router;
use countersign_authority::Revision;
use countersign_kapi::coordination::{self, Lease};
use countersign_kapi::{FieldError, Status};

use super::KubernetesDoor;
use super::answer::Refusal;
use super::feed::Cached;
use super::objects::{Kept, Writer, served};

/// The calls of leases.
pub(super) fn router(door: &KubernetesDoor) -> Router<KubernetesDoor> {
    served::<Lease>(door, Router::new())
}

impl Kept for Lease {
    const IS_CONDITIONAL: bool = true;

    fn faults(&self, _old: Option<&Self>) -> Vec<FieldError> {
        coordination::faults(self)
    }

    fn admit(&self, old: Option<&Self>, writer: &Writer<'_>) -> Result<(), Refusal> {
        admit_small(self)?;
        let count = Self::cache(writer.door.caches()).stock("").all;
        if old.is_none() && count >= MAX_LEASES {
            let text = format!(
                "there are {MAX_LEASES} leases; some have to be deleted before another one is taken"
            );
            return Err(Status::too_many_requests(text, RETRY_SECONDS).into());
        }
        Ok(())
    }

    fn detail(&self) -> Option<String> {
        None
    }

    async fn settle(_door: &KubernetesDoor, _at: Revision) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Refuses an object that is much larger than any of its kind need be: all of them are in memory.
pub(super) fn admit_small<T: Cached>(object: &T) -> Result<(), Refusal> {
    match object.stored_body().len() {
        length if length > MAX_BYTES => {
            Err(Status::too_large(&format!("limit is {MAX_BYTES}")).into())
        }
        _ => Ok(()),
    }
}

/// A controller has one, and a node another.
const MAX_LEASES: usize = 20_000;
const MAX_BYTES: usize = 16 * 1024;
/// Some may have been deleted by then.
const RETRY_SECONDS: u32 = 60;
