//! Requests: they arrive, are decided, wait, are decided again, and are forgotten.

pub(crate) mod acts;
pub(crate) mod claims;
pub(crate) mod collection;
pub(crate) mod confirmation;
pub(crate) mod denials;
pub(crate) mod reconsideration;
pub(crate) mod room;
mod second_key;
pub(crate) mod settlement;
pub(crate) mod submission;

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::engine::Core;
use crate::model::{Door, RequestId, RequestRecord, Revision};
use crate::profile::ProfileFault;
use crate::store::{LiveRequest, Past, Rejection, RejectionFilter, RequestFilter, StoreFault};

/// Requests, from their arrival to their decision and their end.
#[derive(Clone)]
pub struct Requests {
    pub(crate) core: Arc<Core>,
}

impl Requests {
    /// The request that occupies a name at a door; else, if `past` allows, the newest that did.
    pub async fn at(
        &self,
        door: &Door,
        key: &str,
        past: Past,
    ) -> Result<Option<RequestRecord>, StoreFault> {
        self.core.store.request_at(door, key, past).await
    }

    /// A request by identity.
    pub async fn get(&self, id: RequestId) -> Result<Option<RequestRecord>, StoreFault> {
        self.core.store.request(id).await
    }

    /// A page of requests.
    pub async fn list(&self, filter: RequestFilter) -> Result<Vec<RequestRecord>, StoreFault> {
        self.core.store.requests(filter).await
    }

    /// Sends every request that occupies a name at a door, by name, in pages; answers with the revision at which that was
    /// so.
    pub async fn live(
        &self,
        door: &Door,
        pages: mpsc::Sender<Vec<LiveRequest>>,
    ) -> Result<Revision, StoreFault> {
        self.core.store.live_requests(door, pages).await
    }

    /// What was denied or could not be decided, newest first.
    pub async fn rejections(&self, filter: RejectionFilter) -> Result<Vec<Rejection>, StoreFault> {
        self.core.store.rejections(filter).await
    }

    /// Why the signer of a request could not sign it as things stand.
    pub fn unsignable(&self, record: &RequestRecord) -> Option<ProfileFault> {
        let csr = countersign_pki::CheckedCsr::trusted_from_store(&record.csr_der).ok()?;
        let signer = self.core.signer(&record.signer)?;
        signer
            .profile
            .examine(&csr, &record.key, &record.wishes)
            .err()
    }
}
