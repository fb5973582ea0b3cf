//! Seals of the audit log: its entries chained by hash in commit order, and signed.
//!
//! Entries are written with the changes they tell of and cost nothing more there. Behind them, a sealer reads what is new
//! and writes seals: each holds the hashes of its entries, begins where the one before it ended, and is signed with a key
//! that signs nothing else. Whoever changes, adds or takes away a sealed entry breaks the chain, and who wants to mend it
//! needs the key. A seal that was copied elsewhere (a checkpoint) also shows if the end of the log was cut off.

pub mod verification;

use std::sync::{Mutex, PoisonError};

use countersign_pki::{Fingerprint, SignatureAlgorithm, UnixTime, fingerprint_sha256, verify};
use tracing::debug;

use crate::audit::Audit;
use crate::audit::witness::{Disagreement, missing};
use crate::audit::{AuditFilter, AuditOrder, AuditPage, AuditPlace, AuditQuery, AuditRecord};
use crate::faults::EngineError;
use crate::issuing::commit_broken;
use crate::store::{Change, CommitFault, Precondition, StoreFault, Write};

/// The key that signs seals. Blocking on purpose: it is one quick signature a second.
pub trait SealKey: Send + Sync {
    /// Its public half as `SubjectPublicKeyInfo` DER.
    fn spki_der(&self) -> &[u8];

    /// Signs; `None` if the key refused.
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>>;
}

/// What a seal says of the log up to its end, and all that is signed. As a copy kept elsewhere it is a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealHead {
    /// Counted from 1, without gaps.
    pub number: u64,
    /// Its first entry.
    pub first: AuditPlace,
    /// Its last entry.
    pub last: AuditPlace,
    /// How many entries it has.
    pub count: u64,
    /// The hash of the entry before its first; of nothing, for the first seal.
    pub previous: Fingerprint,
    /// The hash of its last entry.
    pub hash: Fingerprint,
    /// When it was made.
    pub at: UnixTime,
    /// SHA-256 of the public key that verifies it.
    pub key_id: Fingerprint,
    /// The signature over all of this.
    pub signature: Vec<u8>,
}

/// A seal: its head and the hashes of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// What is signed.
    pub head: SealHead,
    /// The hash of each entry, in order; the last one is in the head too.
    pub hashes: Vec<Fingerprint>,
}

/// What a round of sealing came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// So many entries were sealed.
    pub entries: u64,
    /// By so many seals.
    pub seals: u64,
}

impl SealHead {
    /// Whether the key made the signature.
    pub fn is_signed_by(&self, spki_der: &[u8]) -> bool {
        let Ok(algorithm) = SignatureAlgorithm::for_issuer_key(spki_der) else {
            return false;
        };
        verify(algorithm, spki_der, &self.message(), &self.signature).is_ok()
    }

    /// The bytes that are signed: every number as 8 octets, big-endian.
    pub(super) fn message(&self) -> Vec<u8> {
        let mut message = SEAL_DOMAIN.to_vec();
        for number in [
            self.number,
            self.first.revision.0,
            self.first.seq,
            self.last.revision.0,
            self.last.seq,
            self.count,
        ] {
            message.extend(number.to_be_bytes());
        }
        message.extend(self.previous.as_bytes());
        message.extend(self.hash.as_bytes());
        message.extend(self.at.0.to_be_bytes());
        message.extend(self.key_id.as_bytes());
        message
    }
}

impl Seal {
    /// The next seal for entries that follow the one before; `None` if there are none, or the key refused.
    pub fn make(
        before: Option<&SealHead>,
        records: &[AuditRecord],
        at: UnixTime,
        key: &dyn SealKey,
    ) -> Option<Self> {
        let previous = before.map_or_else(origin, |before| before.hash);
        let mut hash = previous;
        let mut hashes = Vec::with_capacity(records.len());
        for record in records {
            hash = chained(&hash, record);
            hashes.push(hash);
        }
        let mut head = SealHead {
            number: before.map_or(0, |before| before.number).checked_add(1)?,
            first: records.first()?.place,
            last: records.last()?.place,
            count: u64::try_from(records.len()).ok()?,
            previous,
            hash,
            at,
            key_id: fingerprint_sha256(key.spki_der()),
            signature: Vec::new(),
        };
        head.signature = key.sign(&head.message())?;
        Some(Self { head, hashes })
    }
}

/// The hash of an entry: of its place, its text, and everything before it.
pub(crate) fn chained(previous: &Fingerprint, record: &AuditRecord) -> Fingerprint {
    let mut message = Vec::with_capacity(record.stored.len().saturating_add(96));
    message.extend(ENTRY_DOMAIN);
    message.extend(previous.as_bytes());
    message.extend(record.place.revision.0.to_be_bytes());
    message.extend(record.place.seq.to_be_bytes());
    message.extend(&record.stored);
    fingerprint_sha256(&message)
}

/// What stands before the first entry.
pub(crate) fn origin() -> Fingerprint {
    Fingerprint::from_bytes([0; 32])
}

impl Audit {
    /// Seals every entry that is on record and not sealed, in batches. Where another process seals too, one of them
    /// succeeds and the other looks again.
    ///
    /// # Errors
    /// If the store fails or the key refuses; what was sealed before stays sealed.
    pub async fn seal(&self, key: &dyn SealKey) -> Result<Sealed, SealFault> {
        let store = &self.core.store;
        let mut sealed = Sealed::default();
        let mut before = self.newest_seal().await?;
        loop {
            let page = store
                .audit_page(AuditQuery::unsealed(before.as_ref(), BATCH))
                .await?;
            if page.records.is_empty() {
                return Ok(sealed);
            }
            let seal = Seal::make(before.as_ref(), &page.records, self.core.clock.now(), key);
            let seal = seal.ok_or(SealFault::Refused)?;
            let head = seal.head.clone();
            let change = Change {
                preconditions: vec![Precondition::LastSeal {
                    number: before.as_ref().map_or(0, |before| before.number),
                }],
                writes: vec![Write::Seal(seal)],
                ..Change::default()
            };
            match self.core.commit(change).await {
                Ok(_) => {
                    self.core.telemetry.sealed(head.count);
                    debug!(number = head.number, entries = head.count, "sealed");
                    sealed.entries = sealed.entries.saturating_add(head.count);
                    sealed.seals = sealed.seals.saturating_add(1);
                    self.core.sealed.remember(Some(head.clone()));
                    before = Some(head);
                }
                Err(CommitFault::Conflict { .. }) => before = self.newest_seal().await?,
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
    }

    /// The newest seal, to go on from. A log whose seals were taken away or replaced meanwhile is not sealed over: that would
    /// make a forged history a true one.
    async fn newest_seal(&self) -> Result<Option<SealHead>, SealFault> {
        let store = &*self.core.store;
        if let Some(known) = self.core.sealed.recall()
            && let Some(found) = missing(store, &known).await?
        {
            return Err(SealFault::Broken(found));
        }
        let newest = store.last_seal().await?;
        self.core.sealed.remember(newest.clone());
        Ok(newest)
    }

    /// A page of the audit log.
    pub async fn page(&self, query: AuditQuery) -> Result<AuditPage, StoreFault> {
        self.core.store.audit_page(query).await
    }

    /// The seals after a number, at most `limit`.
    pub async fn seals(&self, after: u64, limit: usize) -> Result<Vec<Seal>, StoreFault> {
        self.core.store.seals(after, limit).await
    }

    /// The newest seal, which is the checkpoint to keep elsewhere.
    pub async fn last_seal(&self) -> Result<Option<SealHead>, StoreFault> {
        self.core.store.last_seal().await
    }
}

impl AuditQuery {
    /// The entries after a seal, in order.
    pub fn unsealed(after: Option<&SealHead>, limit: usize) -> Self {
        Self {
            filter: AuditFilter::default(),
            order: AuditOrder::OldestFirst,
            after: after.map(|seal| seal.last),
            limit,
            look_at: limit,
        }
    }
}

/// The newest seal that this process has seen or made.
#[derive(Debug, Default)]
pub(crate) struct LastSeen(Mutex<Option<SealHead>>);

impl LastSeen {
    fn remember(&self, head: Option<SealHead>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = head;
    }

    fn recall(&self) -> Option<SealHead> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Why nothing was sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealFault {
    /// The log is not the one that was sealed.
    #[error(
        "the database was changed from outside: {0}; nothing is sealed over that; run `countersign audit verify`, and put the right database back"
    )]
    Broken(Disagreement),
    /// The key did not sign.
    #[error("the audit key failed to sign")]
    Refused,
    /// It could not be read or written.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<StoreFault> for SealFault {
    fn from(fault: StoreFault) -> Self {
        Self::Engine(fault.into())
    }
}

/// Bounds what a seal holds in memory and in its row, and how far a reader must look to find what was changed.
pub const BATCH: usize = 1024;
const ENTRY_DOMAIN: &[u8] = b"countersign audit entry v1\0";
const SEAL_DOMAIN: &[u8] = b"countersign audit seal v1\0";
