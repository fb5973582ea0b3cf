//! What the database reports, in the words of the engine's faults.

use std::fmt;
use std::sync::Arc;

use countersign_authority::store::{CommitFault, Precondition, StoreFault};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::address::AddressFault;
use crate::refused::RefusedWrite;
use crate::row::RowFault;

/// Why a statement, a record or a change did not go through.
#[derive(Debug)]
pub(super) enum Fault {
    /// The database says so, or cannot be reached.
    Database(DatabaseFault),
    /// A stored record does not decode.
    Corrupt { what: &'static str },
    /// The change alone is at fault; the store is well.
    Refused(CommitFault),
}

impl Fault {
    pub(super) fn conflict(precondition: Precondition) -> Self {
        Self::Refused(CommitFault::Conflict { precondition })
    }

    pub(super) fn refused(why: RefusedWrite) -> Self {
        Self::Refused(why.into())
    }

    /// The fault as a caller hears it who has read.
    pub(super) fn of_a_read(self) -> StoreFault {
        match self {
            Self::Database(fault) => fault.as_store_fault(),
            Self::Corrupt { what } => StoreFault::Corrupt { what },
            Self::Refused(CommitFault::Store(fault)) => fault,
            Self::Refused(_) => StoreFault::Stopped,
        }
    }
}

impl From<RowFault> for Fault {
    fn from(fault: RowFault) -> Self {
        match fault {
            RowFault::Corrupt { what } => Self::Corrupt { what },
            RowFault::Unstorable { what } => Self::refused(RefusedWrite::Unstorable { what }),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Database(error.into())
    }
}

impl From<DatabaseFault> for Fault {
    fn from(fault: DatabaseFault) -> Self {
        Self::Database(fault)
    }
}

/// Why the database does not answer as it should, for all who wait for the same.
#[derive(Clone, Debug)]
pub(super) enum DatabaseFault {
    /// It said so, or the connection broke.
    Said(Arc<Error>),
    /// It did not answer in time.
    Silent,
    /// Too many wait for it.
    Busy,
    /// A statement of ours takes other types than it is given.
    Types { sql: String },
    /// A file that the connection needs is of no use.
    Address(Arc<AddressFault>),
}

impl DatabaseFault {
    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Said(error) => error.code(),
            Self::Silent | Self::Busy | Self::Types { .. } | Self::Address(_) => None,
        }
    }

    /// Which unique key or condition was violated.
    pub(super) fn constraint(&self) -> Option<&str> {
        match self {
            Self::Said(error) => error.as_db_error()?.constraint(),
            Self::Silent | Self::Busy | Self::Types { .. } | Self::Address(_) => None,
        }
    }

    /// Whether the connection is of no use any more: what it was asked last may have happened or not.
    pub(super) fn spoils_session(&self) -> bool {
        match self.code() {
            None => !matches!(self, Self::Types { .. }),
            Some(code) => ["57P", "08", "25P03"]
                .iter()
                .any(|class| code.code().starts_with(class)),
        }
    }

    /// Whether another attempt may succeed at once: somebody else was in the way.
    pub(super) fn is_contention(&self) -> bool {
        self.code().is_some_and(|code| CONTENTION.contains(code))
    }

    /// Whether the values of one change are at fault.
    pub(super) fn is_of_a_change(&self) -> bool {
        if self.is_contention() {
            return false;
        }
        let class = self.code().and_then(|code| code.code().get(..2));
        class.is_some_and(|class| ["22", "23"].contains(&class))
    }

    pub(super) fn as_store_fault(&self) -> StoreFault {
        let Some(code) = self.code() else {
            return match self {
                Self::Busy => StoreFault::Overloaded,
                Self::Said(_) | Self::Silent | Self::Types { .. } | Self::Address(_) => {
                    self.failed()
                }
            };
        };
        if *code == SqlState::DISK_FULL {
            StoreFault::Full
        } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
            StoreFault::ReadOnly
        } else if self.is_contention() || OVERLOAD.contains(code) {
            StoreFault::Overloaded
        } else if [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code) {
            StoreFault::Corrupt { what: "page" }
        } else {
            self.failed()
        }
    }

    fn failed(&self) -> StoreFault {
        StoreFault::Failed {
            source: Box::new(self.clone()),
        }
    }
}

impl From<Error> for DatabaseFault {
    fn from(error: Error) -> Self {
        Self::Said(Arc::new(error))
    }
}

impl From<AddressFault> for DatabaseFault {
    fn from(fault: AddressFault) -> Self {
        Self::Address(Arc::new(fault))
    }
}

impl fmt::Display for DatabaseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The library's own text is but "db error".
            Self::Said(error) => match error.as_db_error() {
                Some(said) => write!(
                    f,
                    "PostgreSQL says: {} ({})",
                    said.message(),
                    said.code().code()
                ),
                None => write!(f, "no connection to PostgreSQL: {error}"),
            },
            Self::Silent => f.write_str("PostgreSQL did not answer in time"),
            Self::Busy => f.write_str("too many calls wait for PostgreSQL"),
            Self::Types { sql } => write!(f, "the values do not fit the statement {sql}"),
            Self::Address(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for DatabaseFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // What the server says is in the text already.
            Self::Said(error) if error.as_db_error().is_some() => None,
            Self::Said(error) => error.source(),
            Self::Address(fault) => fault.source(),
            Self::Silent | Self::Busy | Self::Types { .. } => None,
        }
    }
}

/// Somebody else was in the way. The last is what a transaction says whose row in `writers` is gone.
const CONTENTION: [SqlState; 4] = [
    SqlState::T_R_SERIALIZATION_FAILURE,
    SqlState::T_R_DEADLOCK_DETECTED,
    SqlState::LOCK_NOT_AVAILABLE,
    SqlState::INVALID_ARGUMENT_FOR_LOG,
];

/// There was too much to do, or too little to do it with.
const OVERLOAD: [SqlState; 5] = [
    SqlState::QUERY_CANCELED,
    SqlState::TOO_MANY_CONNECTIONS,
    SqlState::OUT_OF_MEMORY,
    SqlState::CONFIGURATION_LIMIT_EXCEEDED,
    SqlState::INSUFFICIENT_RESOURCES,
];
