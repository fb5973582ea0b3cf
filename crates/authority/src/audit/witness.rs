//! The newest state of a store, remembered outside of it.
//!
//! Whoever puts an older database in the place of the newer one brings back revoked certificates and spent tokens, and the
//! database alone cannot tell. So its newest seal, the numbers of its CRLs and its epoch are also kept elsewhere, signed,
//! and compared before anything is served. They are taken after the commits they tell of: an honest store is never behind.

use countersign_pki::{SignatureAlgorithm, UnixTime, verify};

use crate::audit::Audit;
use crate::audit::sealing::{SealHead, SealKey};
use crate::issuer::IssuerId;
use crate::model::CrlScope;
use crate::store::{Store, StoreFault};

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// How often the store was restored.
    pub epoch: u64,
    /// The newest seal of the audit log.
    pub seal: Option<SealHead>,
    /// The newest number of each CRL.
    pub crls: Vec<WitnessedCrl>,
}

/// The newest CRL of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessedCrl {
    /// Whose.
    pub issuer: IssuerId,
    /// Which of its lists.
    pub scope: CrlScope,
    /// Its number.
    pub number: u64,
}

/// How a store is not the one that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// It was restored, or its restoration was undone.
    #[error("it is of epoch {has}, the last one was {known}")]
    Epoch {
        /// The store's.
        has: u64,
        /// The one that is remembered.
        known: u64,
    },
    /// The end of the audit log is missing.
    #[error("its audit log ends with seal {has}, but seal {number} was made at {at}")]
    Older {
        /// Its newest seal.
        has: u64,
        /// The seal that is remembered.
        number: u64,
        /// When that was made.
        at: UnixTime,
    },
    /// The audit log is another one.
    #[error("seal {number} of its audit log is not the one that was made")]
    Rewritten {
        /// Which.
        number: u64,
    },
    /// A CRL was published that it does not know.
    #[error("the newest {} CRL of issuer {issuer} in it is number {has}, but number {number} was published", scope.word())]
    Crl {
        /// Whose.
        issuer: IssuerId,
        /// Which of its lists.
        scope: CrlScope,
        /// The store's newest.
        has: u64,
        /// The one that is remembered.
        number: u64,
    },
}

impl Witness {
    /// The first point in which a store is not the one that is remembered, or one that went on from it.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn disagreement(
        &self,
        store: &dyn Store,
    ) -> Result<Option<Disagreement>, StoreFault> {
        let has = store.epoch().await?;
        if has != self.epoch {
            let known = self.epoch;
            return Ok(Some(Disagreement::Epoch { has, known }));
        }
        if let Some(seal) = &self.seal
            && let Some(found) = missing(store, seal).await?
        {
            return Ok(Some(found));
        }
        for known in &self.crls {
            let stored = store.crl(&known.issuer, known.scope).await?;
            let has = stored.map_or(0, |crl| crl.number);
            if has < known.number {
                return Ok(Some(Disagreement::Crl {
                    issuer: known.issuer.clone(),
                    scope: known.scope,
                    has,
                    number: known.number,
                }));
            }
        }
        Ok(None)
    }

    /// The signature of the audit key over it; `None` if the key refused.
    pub fn signature(&self, key: &dyn SealKey) -> Option<Vec<u8>> {
        key.sign(&self.message())
    }

    /// Whether the key made the signature.
    pub fn is_signed_by(&self, spki_der: &[u8], signature: &[u8]) -> bool {
        SignatureAlgorithm::for_issuer_key(spki_der)
            .is_ok_and(|algorithm| verify(algorithm, spki_der, &self.message(), signature).is_ok())
    }

    /// The bytes that are signed: every number as 8 octets, big-endian; what has a length of its own behind that length.
    fn message(&self) -> Vec<u8> {
        let mut message = DOMAIN.to_vec();
        let mut part = |bytes: &[u8]| {
            let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            message.extend(length.to_be_bytes());
            message.extend(bytes);
        };
        part(&self.epoch.to_be_bytes());
        part(&self.seal.as_ref().map_or_else(Vec::new, SealHead::message));
        for crl in &self.crls {
            part(crl.issuer.as_str().as_bytes());
            part(crl.scope.word().as_bytes());
            part(&crl.number.to_be_bytes());
        }
        message
    }
}

impl Audit {
    /// What is to be remembered of the store now.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn witness(&self) -> Result<Witness, StoreFault> {
        let store = &self.core.store;
        let mut crls = Vec::new();
        for issuer in self.core.issuers.keys() {
            for scope in [CrlScope::Full, CrlScope::Infrastructure] {
                if let Some(crl) = store.crl(issuer, scope).await? {
                    crls.push(WitnessedCrl {
                        issuer: issuer.clone(),
                        scope,
                        number: crl.number,
                    });
                }
            }
        }
        Ok(Witness {
            epoch: store.epoch().await?,
            seal: store.last_seal().await?,
            crls,
        })
    }
}

/// How a seal that was made is no longer in a store.
pub(super) async fn missing(
    store: &dyn Store,
    seal: &SealHead,
) -> Result<Option<Disagreement>, StoreFault> {
    let number = seal.number;
    let stored = store.seals(number.saturating_sub(1), 1).await?;
    Ok(match stored.first() {
        Some(found) if found.head == *seal => None,
        Some(_) => Some(Disagreement::Rewritten { number }),
        None => Some(Disagreement::Older {
            has: store.last_seal().await?.map_or(0, |last| last.number),
            number,
            at: seal.at,
        }),
    })
}

const DOMAIN: &[u8] = b"countersign witness v1\0";
