//! The engine's view of storage: one writing call, separate reads.

mod change;
mod reads;

use countersign_pki::{Serial, UnixTime};
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::issuer::IssuerId;
use crate::model::Revision;

pub use change::{Change, Precondition, RequestUpdate, Write};
pub use reads::{
    AgeFilter, Amount, AuditReads, InventoryReads, IssuerReads, LedgerReads, LiveRequest,
    MachineFilter, ObjectReads, Past, Rejection, RejectionFilter, RequestFilter, RequestReads,
    Tally, TokenReads,
};

/// A future of a store's answer.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreFault>>;

/// Where everything acknowledged is kept.
///
/// [`Store::commit`] is the only call that writes. It is durable when it returns: what it
/// acknowledged survives the death of the process and of the machine. Reads see every commit that was
/// acknowledged before they began.
pub trait Store:
    RequestReads + LedgerReads + IssuerReads + TokenReads + InventoryReads + AuditReads + ObjectReads
{
    /// Applies a change whole, or not at all and says which precondition no longer holds.
    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Committed, CommitFault>>;

    /// The revision of the last commit; wakes its receivers on each.
    fn revisions(&self) -> watch::Receiver<Revision>;

    /// Figures for monitoring: what waits, and which certificates end between `now` and `soon`.
    fn tally(&self, now: UnixTime, soon: UnixTime) -> Answer<'_, Tally>;

    /// How often it was restored from a backup. Whoever hands out secrets that a restored store could have forgotten to
    /// have spent (enrolment tokens) keeps the epoch with each, and refuses those of an earlier one.
    fn epoch(&self) -> Answer<'_, u64>;

    /// Whether this process is the only one that can write, so that every other owner is dead.
    fn is_exclusive(&self) -> bool;
}

/// The acknowledgement of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its place in commit order; the version of every request it touched.
    pub revision: Revision,
}

/// Why a change was not committed. Nothing of it was written.
#[derive(Debug, thiserror::Error)]
pub enum CommitFault {
    /// Somebody was faster.
    #[error("a precondition no longer holds: {precondition:?}")]
    Conflict {
        /// The first one that failed.
        precondition: Precondition,
    },
    /// The serial is in the ledger already.
    #[error("serial {serial} of issuer {issuer} is already in the ledger")]
    DuplicateSerial {
        /// Whose.
        issuer: IssuerId,
        /// Which.
        serial: Serial,
    },
    /// The store itself failed.
    #[error(transparent)]
    Store(#[from] StoreFault),
}

/// Why the store did not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// No space left.
    #[error("the store's disk is full")]
    Full,
    /// It cannot be written.
    #[error("the store is read-only")]
    ReadOnly,
    /// Too many calls are waiting.
    #[error("the store is overloaded")]
    Overloaded,
    /// It has stopped.
    #[error("the store has stopped")]
    Stopped,
    /// What is stored cannot be understood.
    #[error("the store holds a {what} that cannot be read")]
    Corrupt {
        /// What kind of record.
        what: &'static str,
    },
    /// Anything else that the storage engine reports.
    #[error("the store failed")]
    Failed {
        /// The storage engine's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
