//! Certificates after they were issued: shown, renewed, revoked, retired.

pub(crate) mod adoption;
pub(crate) mod renewal;
pub(crate) mod retirement;
pub(crate) mod revocation;
pub(crate) mod unlisting;

use std::sync::Arc;

use countersign_pki::Serial;

use crate::engine::Core;
use crate::issuer::IssuerId;
use crate::issuing::ShownCertificate;
use crate::model::{LedgerEntry, ListedCertificate};
use crate::store::StoreFault;

/// Every certificate that was issued or taken over: shown, renewed, revoked, retired.
#[derive(Clone)]
pub struct Ledger {
    pub(crate) core: Arc<Core>,
}

impl Ledger {
    /// A ledger entry.
    pub async fn get(
        &self,
        issuer: &IssuerId,
        serial: &Serial,
    ) -> Result<Option<LedgerEntry>, StoreFault> {
        self.core.store.certificate(issuer, serial).await
    }

    /// The newest certificate of a name.
    pub async fn newest(
        &self,
        issuer: &IssuerId,
        name: &str,
    ) -> Result<Option<LedgerEntry>, StoreFault> {
        self.core.store.newest_certificate(issuer, name).await
    }

    /// The newest certificate of a name, for whoever fetches it: of one that was issued a moment ago, from memory.
    pub async fn shown(
        &self,
        issuer: &IssuerId,
        name: &str,
    ) -> Result<Option<ShownCertificate>, StoreFault> {
        if let Some(recent) = self.core.recent.get(issuer, name) {
            return Ok(Some(recent));
        }
        let newest = self.core.store.newest_certificate(issuer, name).await?;
        Ok(newest.map(|entry| ShownCertificate {
            der: entry.der.into(),
            decided: entry.explanation.at,
        }))
    }

    /// The newest certificate of each name, names in order after `after`.
    pub async fn newest_of_each(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, StoreFault> {
        self.core
            .store
            .newest_certificates(issuer, after, limit)
            .await
    }

    /// The same, as far as a listing shows them.
    pub async fn listing(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<ListedCertificate>, StoreFault> {
        self.core
            .store
            .listed_certificates(issuer, after, limit)
            .await
    }
}
