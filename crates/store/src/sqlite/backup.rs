//! Copies of a store: how one is taken while the store is in use, and what a store that comes from one must do
//! before it goes on.
//!
//! A copy is a moment of the past. Certificates that were signed, lists that were published and revisions that were
//! shown after it are not on record in it, and must not be given out a second time: [`resume`] skips ahead.

use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign_authority::{AuditEntry, CrlScope, IssuerId, ObjectRecord, Revision};
use countersign_pki::UnixTime;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use crate::row::{Columns, document};
use crate::sqlite::fault::Fault;
use crate::sqlite::folder::{OpenFault, StoreFiles};
use crate::sqlite::migration;
use crate::sqlite::objects::objects;
use crate::sqlite::query;

/// What a copy holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The number of its schema.
    pub schema: i64,
    /// Everything up to this revision is in it.
    pub revision: Revision,
}

/// Where a restored store goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// How often it was restored, this time included.
    pub epoch: u64,
    /// The next serial of each issuer whose serials are counted.
    pub serials: Vec<(IssuerId, u64)>,
    /// The number after which each issuer's lists go on.
    pub crls: Vec<(IssuerId, CrlScope, u64)>,
    /// The doors' objects as they are again: what was deleted after the copy was taken is back.
    pub objects: Vec<ObjectRecord>,
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyFault {
    /// There is nothing to copy, or it is not ours to read.
    #[error("{} cannot be read: name the data directory of an authority with --data", .path.display())]
    Source {
        /// The database.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be made.
    #[error("{} cannot be written", .path.display())]
    Target {
        /// The copy.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The schema is not one that this program can vouch for.
    #[error(transparent)]
    Schema(#[from] OpenFault),
    /// The storage engine failed.
    #[error("{} could not be copied to {}", .path.display(), .to.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// The copy.
        to: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The copy is not sound; the original is the likely reason.
    #[error("the copy of {} is damaged ({finding}), and so is probably the database itself: stop the server and restore the last good backup", .path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What the check found first.
        finding: String,
    },
}

/// Copies the database at `path`, which a server may be using, to a new file at `to`, and checks the copy.
///
/// The copy is of one moment: everything that was acknowledged before the call is in it. The server's lock is not
/// needed and its writer never waits: one reading transaction is held from the first page to the last, so that
/// commits do not make the copy start again, as they would otherwise; the write-ahead log grows meanwhile. Between
/// steps it pauses, so that the disk and the processor are left to the server.
///
/// # Errors
/// If the database is not one of ours, cannot be read, or the copy cannot be written or is damaged. What is at
/// `to` is then of no use.
pub fn copy(path: &Path, to: &Path) -> Result<Copied, CopyFault> {
    // Opening creates nothing here, and a missing file deserves a better sentence than SQLite's.
    std::fs::File::open(path).map_err(|source| CopyFault::Source {
        path: path.to_owned(),
        source,
    })?;
    // Made beforehand, so that nobody else can read it at any time.
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .map_err(|source| CopyFault::Target {
            path: to.to_owned(),
            source,
        })?;
    let sqlite = |source| CopyFault::Sqlite {
        path: path.to_owned(),
        to: to.to_owned(),
        source,
    };
    let source = read_only(path).map_err(sqlite)?;
    let mut target = Connection::open_with_flags(
        to,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(sqlite)?;
    // It is of no use before it is complete, and its reader syncs what it makes of it.
    target
        .pragma_update(None, "synchronous", "off")
        .map_err(sqlite)?;

    let moment = source.unchecked_transaction().map_err(sqlite)?;
    let schema = migration::check(&moment, path)?;
    let revision = query::revision(&moment).map_err(|fault| sqlite(engine_fault(fault)))?;
    copy_pages(&moment, &mut target).map_err(sqlite)?;
    moment.commit().map_err(sqlite)?;

    // One file, complete in itself: a store that opens it switches the log on again.
    let _mode: String = target
        .pragma_update_and_check(None, "journal_mode", "delete", |row| row.get(0))
        .map_err(sqlite)?;
    check(&target).map_err(sqlite)?.map_or(Ok(()), |finding| {
        Err(CopyFault::Damaged {
            path: path.to_owned(),
            finding,
        })
    })?;
    target.close().map_err(|(_, source)| sqlite(source))?;
    Ok(Copied { schema, revision })
}

/// Makes a copy at its new place fit to go on from, whatever happened after it was taken: the epoch rises, counted
/// serials, the numbers of CRLs and the revisions jump ahead, and each CRL is made anew by the next start.
///
/// # Errors
/// If it is in use, damaged, or its schema is not one this program knows.
pub fn resume(path: &Path, now: UnixTime) -> Result<Resumed, OpenFault> {
    let sqlite = |source| OpenFault::Sqlite {
        path: path.to_owned(),
        source,
    };
    let files = StoreFiles::claim(path)?;
    let mut connection = files.writer().map_err(sqlite)?;
    if let Some(finding) = check(&connection).map_err(sqlite)? {
        return Err(OpenFault::Damaged {
            path: path.to_owned(),
            finding,
        });
    }
    // Before anything is written: a trigger would run with the first change.
    if let Some(part) = migration::stranger(&connection, path)? {
        return Err(OpenFault::Strange {
            path: path.to_owned(),
            part,
        });
    }
    migration::migrate(&mut connection, path)?;
    let resumed = skip_ahead(&mut connection, now).map_err(|fault| sqlite(engine_fault(fault)))?;
    // The last to close the database takes the log into it.
    connection.close().map_err(|(_, source)| sqlite(source))?;
    Ok(resumed)
}

/// The newest schema that this program knows.
#[must_use]
pub fn known_schema() -> i64 {
    migration::newest()
}

fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

fn copy_pages(from: &Connection, to: &mut Connection) -> rusqlite::Result<()> {
    let backup = Backup::new(from, to)?;
    loop {
        match backup.step(STEP_PAGES)? {
            StepResult::Done => return Ok(()),
            // A pause after each step, also after one that found a lock: both end by themselves.
            _ => std::thread::park_timeout(PAUSE),
        }
    }
}

/// What SQLite finds wrong first, if anything.
fn check(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let finding: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((finding != "ok").then_some(finding))
}

fn skip_ahead(connection: &mut Connection, now: UnixTime) -> Result<Resumed, Fault> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    change.execute(
        "UPDATE store_state SET epoch = epoch + 1, restored = ?1, revision = revision + ?2",
        params![now.0, REVISIONS_SKIPPED],
    )?;
    change.execute("UPDATE serials SET next = next + ?1", [SERIALS_SKIPPED])?;
    // It covers nothing, so that it is made anew even if the start could not do so at once.
    change.execute(
        "UPDATE crls SET number = number + ?1, covers = 0",
        [CRL_NUMBERS_SKIPPED],
    )?;
    // What let a name enrol then may have been used since: whoever still means it says so again.
    change.execute_batch("DELETE FROM windows; DELETE FROM webhook_allows;")?;
    // What clients saw since the copy was made is not on record: they begin anew.
    change.execute_batch(
        "DELETE FROM request_states; DELETE FROM object_states; UPDATE store_state SET horizon = revision;",
    )?;
    // The newest policy goes on under a number that no other text can have had.
    change.execute(
        "INSERT INTO policies (generation, digest, loaded, text)
         SELECT generation + ?1, digest, ?2, text FROM policies ORDER BY generation DESC LIMIT 1",
        params![GENERATIONS_SKIPPED, now.0],
    )?;
    let epoch = query::epoch(&change)?;
    let entry = AuditEntry::own(now, "restore", format!("epoch/{epoch}"));
    change.execute(
        "INSERT INTO audit (revision, seq, entry) SELECT revision, 0, ?1 FROM store_state",
        [document(&entry, "audit entry")?],
    )?;
    let serials = query::all(
        &change,
        "SELECT issuer, next FROM serials ORDER BY issuer",
        [],
        |row| {
            let mut columns = Columns::of(row, "serial");
            Ok((columns.issuer()?, columns.unsigned()?))
        },
    )?;
    let crls = query::all(
        &change,
        "SELECT issuer, scope, number FROM crls ORDER BY issuer, scope",
        [],
        |row| {
            let mut columns = Columns::of(row, "revocation list");
            Ok((columns.issuer()?, columns.scope()?, columns.unsigned()?))
        },
    )?;
    change.commit()?;
    let (_, objects) = objects(connection)?;
    Ok(Resumed {
        epoch,
        serials,
        crls,
        objects,
    })
}

fn engine_fault(fault: Fault) -> rusqlite::Error {
    match fault {
        Fault::Sqlite(source) => source,
        Fault::Corrupt { .. } | Fault::Refused(_) => rusqlite::Error::QueryReturnedNoRows,
    }
}

/// 4 MiB: a few milliseconds of reading.
const STEP_PAGES: i32 = 1024;
const PAUSE: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(10);

/// More certificates than a large fleet is given between a backup and the day it is needed; numbers cost nothing.
pub const SERIALS_SKIPPED: u32 = 1_000_000;
/// A list is published daily and at each revocation: more than a fleet revokes in that time.
pub const CRL_NUMBERS_SKIPPED: u32 = 100_000;
/// Verdicts name the generation of their policy, also those that were shown before the store was lost.
const GENERATIONS_SKIPPED: u32 = 10_000;
/// Clients of doors remember revisions. Each certificate has two or three.
const REVISIONS_SKIPPED: u32 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy held by one transaction is complete although commits go on; page by page without it, it would start
    /// again with each.
    #[test]
    fn commits_do_not_make_the_copy_start_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("busy.db");
        let files = StoreFiles::claim(&path).unwrap();
        let mut writer = files.writer().unwrap();
        migration::migrate(&mut writer, &path).unwrap();
        let grow = |rows: u32| {
            for _ in 0..rows {
                writer
                    .execute(
                        "INSERT INTO audit SELECT coalesce(max(revision), 0) + 1, 0, hex(zeroblob(20000)) FROM audit",
                        [],
                    )
                    .unwrap();
            }
        };
        grow(600);
        let source = read_only(&path).unwrap();
        let moment = source.unchecked_transaction().unwrap();
        query::revision(&moment).unwrap();
        let mut target = Connection::open(folder.path().join("copy.db")).unwrap();
        let mut steps = 0;
        {
            let backup = Backup::new(&moment, &mut target).unwrap();
            while backup.step(200).unwrap() != StepResult::Done {
                grow(1);
                steps += 1;
            }
        }
        assert!((15..60).contains(&steps), "{steps} steps");
        let rows: u32 = target
            .query_row("SELECT count(*) FROM audit", [], |row| row.get(0))
            .unwrap();
        assert_eq!(rows, 600, "the moment at which it began");
    }
}
