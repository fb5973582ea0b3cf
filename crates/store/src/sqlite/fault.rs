//! What the storage engine reports, in the words of the engine's faults.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use countersign_authority::store::{CommitFault, Precondition, StoreFault};
use rusqlite::ErrorCode;
use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::refused::RefusedWrite;
use crate::row::RowFault;

/// Why one statement, one record or one change did not go through.
#[derive(Debug)]
pub(crate) enum Fault {
    /// SQLite says so.
    Sqlite(rusqlite::Error),
    /// A stored record does not decode.
    Corrupt {
        /// Its kind.
        what: &'static str,
    },
    /// The change alone is at fault; the store is well.
    Refused(CommitFault),
}

impl Fault {
    pub(crate) fn conflict(precondition: Precondition) -> Self {
        Self::Refused(CommitFault::Conflict { precondition })
    }

    pub(crate) fn refused(why: RefusedWrite) -> Self {
        Self::Refused(why.into())
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

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// A fault of the storage engine that several callers have to hear of.
#[derive(Clone, Debug)]
pub(crate) struct SharedFault(Arc<rusqlite::Error>);

impl SharedFault {
    pub(crate) fn new(error: rusqlite::Error) -> Self {
        Self(Arc::new(error))
    }

    /// Whether the connection may be in a state that only a new one leaves.
    pub(crate) fn spoils_connection(&self) -> bool {
        !matches!(
            self.0.sqlite_error_code(),
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        )
    }

    /// The fault as one caller hears it. `folder` holds the database: SQLite reports some kinds of
    /// a full or read-only disk as plain I/O errors, and the file system tells them apart.
    pub(crate) fn as_store_fault(&self, folder: &Path) -> StoreFault {
        match self.0.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreFault::Full,
            Some(ErrorCode::ReadOnly) => StoreFault::ReadOnly,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreFault::Overloaded,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreFault::Corrupt { what: "page" }
            }
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => match condition(folder) {
                Condition::Full => StoreFault::Full,
                Condition::ReadOnly => StoreFault::ReadOnly,
                Condition::Unremarkable => self.failed(),
            },
            Some(_) | None => self.failed(),
        }
    }

    fn failed(&self) -> StoreFault {
        StoreFault::Failed {
            source: Box::new(self.clone()),
        }
    }
}

impl fmt::Display for SharedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SharedFault {}

enum Condition {
    Full,
    ReadOnly,
    Unremarkable,
}

fn condition(folder: &Path) -> Condition {
    match statvfs(folder) {
        Ok(system) if system.f_flag.contains(StatVfsMountFlags::RDONLY) => Condition::ReadOnly,
        Ok(system) if system.f_bavail.saturating_mul(system.f_frsize) < LEAST_SPACE => {
            Condition::Full
        }
        Ok(_) | Err(_) => Condition::Unremarkable,
    }
}

/// One block of the shared-memory index: with less than this free, SQLite cannot go on.
const LEAST_SPACE: u64 = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn sqlite_codes_become_the_faults_a_door_can_explain() {
        let folder = std::env::temp_dir();
        let named = |code| {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            SharedFault::new(error).as_store_fault(&folder).to_string()
        };
        assert_eq!(named(ffi::SQLITE_FULL), StoreFault::Full.to_string());
        assert_eq!(
            named(ffi::SQLITE_READONLY_DBMOVED),
            StoreFault::ReadOnly.to_string()
        );
        assert_eq!(
            named(ffi::SQLITE_BUSY_SNAPSHOT),
            StoreFault::Overloaded.to_string()
        );
        assert_eq!(
            named(ffi::SQLITE_CORRUPT),
            StoreFault::Corrupt { what: "page" }.to_string()
        );
        assert_eq!(named(ffi::SQLITE_NOMEM), "the store failed");
    }
}
