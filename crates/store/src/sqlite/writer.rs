//! The thread that writes: it takes the changes that are waiting and commits them together.
//!
//! A group is one transaction and one wait for the disk. A change that conflicts fails alone. Nobody is answered before
//! the transaction is durable.
//!
//! Preconditions are checked before a change writes anything, so nearly all conflicts leave nothing to undo. A savepoint
//! per change makes SQLite copy every page it touches, so the first attempt goes without: only if a change fails after
//! it began to write, the transaction is rolled back and the group starts again with savepoints.
//!
//! If the transaction fails, it is rolled back and every change of the group is answered with the fault; the thread goes
//! on, and the first group after the fault's end succeeds. One case deserves care: when the log was written but could
//! not be synced, SQLite rolls back, yet a crash right then could bring the commit back from the log. So a failed group
//! is followed at once by a small commit, which overwrites what the log holds of it. Only if that fails too, and the
//! process dies before any other commit succeeds, can a change that was answered with a fault be found stored.

use std::sync::Arc;
use std::time::Duration;

use countersign_authority::store::{CommitFault, Committed, StoreFault};
use countersign_authority::{Revision, Telemetry, Unobserved};
use rusqlite::{Connection, params};
use tokio::sync::{mpsc, watch};

use crate::row::signed;
use crate::sqlite::change;
use crate::sqlite::fault::{Fault, SharedFault};
use crate::sqlite::folder::{FilesIdentity, StoreFiles};
use crate::write_queue::WriteJob;

/// Waits a little for others to join a group, if the group before had company: pages and waits for the disk
/// are then shared by more changes. A caller who is alone never waits.
fn gather(group: &mut Vec<WriteJob>, before: usize, queue: &mut mpsc::Receiver<WriteJob>) {
    if before < COMPANY || group.len() >= LARGEST_GROUP {
        return;
    }
    std::thread::park_timeout(patience(before));
    while group.len() < LARGEST_GROUP {
        match queue.try_recv() {
            Ok(job) => group.push(job),
            Err(_) => return,
        }
    }
}

/// How long a group waits for company after one of this size: the more there were, the more are on their way.
fn patience(before: usize) -> Duration {
    let changes = u32::try_from(before).unwrap_or(u32::MAX);
    GATHER_EACH.saturating_mul(changes).min(LONGEST_GATHER)
}

/// What the writing thread owns.
pub(crate) struct Writer {
    files: Arc<StoreFiles>,
    identity: FilesIdentity,
    connection: Connection,
    /// The last fault may have left the connection unusable.
    suspect: bool,
    /// The last revision given out, whether or not its commit succeeded.
    revision: Revision,
    /// Whether the files were found in their place the last time.
    in_place: bool,
    revisions: watch::Sender<Revision>,
    telemetry: Arc<dyn Telemetry>,
}

impl Writer {
    pub(crate) fn new(
        files: Arc<StoreFiles>,
        identity: FilesIdentity,
        connection: Connection,
        revisions: watch::Sender<Revision>,
    ) -> Self {
        let revision = *revisions.borrow();
        Self {
            files,
            identity,
            connection,
            suspect: false,
            revision,
            in_place: true,
            revisions,
            telemetry: Arc::new(Unobserved),
        }
    }

    pub(crate) fn observed(self, telemetry: Arc<dyn Telemetry>) -> Self {
        Self { telemetry, ..self }
    }

    /// Serves until every sender is gone, and everything they sent is answered.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<WriteJob>) {
        let mut group = Vec::with_capacity(LARGEST_GROUP);
        let mut before = 0;
        while queue.blocking_recv_many(&mut group, LARGEST_GROUP) > 0 {
            gather(&mut group, before, &mut queue);
            before = group.len();
            self.serve(&mut group);
        }
    }

    fn serve(&mut self, group: &mut Vec<WriteJob>) {
        match self.commit(group) {
            Ok(outcomes) => {
                self.telemetry.grouped(group.len());
                for (job, outcome) in group.drain(..).zip(outcomes) {
                    // A caller that went away does not undo what it asked for.
                    let _ = job.answer.send(outcome);
                }
            }
            Err(fault) => {
                for job in group.drain(..) {
                    let _ = job
                        .answer
                        .send(Err(CommitFault::Store(fault.tell(&self.files))));
                }
            }
        }
    }

    /// Commits a group. `Err`: nothing of it is stored.
    fn commit(&mut self, group: &[WriteJob]) -> Result<Outcomes, GroupFault> {
        self.check_place()?;
        self.renew_connection()?;
        let attempt = match self.attempt(group, Undo::Group) {
            Ok(Some(outcomes)) => Ok(outcomes),
            Ok(None) => self
                .attempt(group, Undo::Change)
                .map(Option::unwrap_or_default),
            Err(fault) => Err(fault),
        };
        attempt.inspect_err(|fault| self.roll_back(fault))
    }

    /// Runs a group as one transaction. `None`: a change failed after it began to write, and without savepoints
    /// everything had to be undone.
    fn attempt(&mut self, group: &[WriteJob], undo: Undo) -> Result<Option<Outcomes>, GroupFault> {
        self.execute("BEGIN IMMEDIATE")?;
        let before = self.revision;
        let mut outcomes = Vec::with_capacity(group.len());
        for WriteJob { change, .. } in group {
            if let Some(refused) = alone(change::check(&self.connection, change))? {
                outcomes.push(Err(refused));
                continue;
            }
            if undo == Undo::Change {
                self.execute("SAVEPOINT change")?;
            }
            let revision = Revision(self.revision.0.saturating_add(1));
            match alone(change::write(&self.connection, change, revision))? {
                None => {
                    self.revision = revision;
                    outcomes.push(Ok(Committed { revision }));
                }
                Some(refused) if undo == Undo::Change => {
                    self.execute("ROLLBACK TO change")?;
                    outcomes.push(Err(refused));
                }
                Some(_) => {
                    self.execute("ROLLBACK")?;
                    self.revision = before;
                    return Ok(None);
                }
            }
            if undo == Undo::Change {
                self.execute("RELEASE change")?;
            }
        }
        if self.revision == before {
            self.execute("ROLLBACK")?;
        } else {
            self.keep_revision()?;
            self.execute("COMMIT")?;
            self.revisions.send_replace(self.revision);
        }
        Ok(Some(outcomes))
    }

    fn roll_back(&mut self, fault: &GroupFault) {
        tracing::error!(%fault, "a group of changes was not committed");
        if !self.connection.is_autocommit() && self.execute("ROLLBACK").is_err() {
            self.suspect = true;
        }
        if let GroupFault::Sqlite(fault) = fault {
            self.suspect |= fault.spoils_connection();
        }
        let overwritten = self
            .execute("BEGIN IMMEDIATE")
            .and_then(|()| self.keep_revision())
            .and_then(|()| self.execute("COMMIT"));
        if overwritten.is_err()
            && !self.connection.is_autocommit()
            && self.execute("ROLLBACK").is_err()
        {
            self.suspect = true;
        }
    }

    /// Refuses to write while the store's files are not where the next start will look for them.
    fn check_place(&mut self) -> Result<(), GroupFault> {
        let in_place = self.files.identity() == Some(self.identity);
        if in_place != self.in_place {
            self.in_place = in_place;
            let database = self.files.database().display();
            if in_place {
                tracing::info!(%database, "the store's files are back, writing goes on");
            } else {
                tracing::error!(
                    %database,
                    "the store's files were moved, deleted or replaced: put them back, or stop and start again"
                );
            }
        }
        if in_place {
            Ok(())
        } else {
            Err(GroupFault::Moved)
        }
    }

    fn renew_connection(&mut self) -> Result<(), GroupFault> {
        if self.suspect {
            self.connection = self.files.writer()?;
            self.suspect = false;
            tracing::info!("the store's writing connection was renewed");
        }
        Ok(())
    }

    fn keep_revision(&self) -> Result<(), GroupFault> {
        let revision = signed(self.revision.0, "revision")
            .map_err(|_| GroupFault::Corrupt { what: "revision" })?;
        self.connection
            .prepare_cached("UPDATE store_state SET revision = ?1 WHERE one = 1")?
            .execute(params![revision])?;
        Ok(())
    }

    fn execute(&self, sql: &str) -> Result<(), GroupFault> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// The answers to a group, in its order.
type Outcomes = Vec<Result<Committed, CommitFault>>;

/// What is undone if a change fails after it began to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undo {
    Group,
    Change,
}

/// Separates what concerns one change alone from what fails the group.
fn alone(result: Result<(), Fault>) -> Result<Option<CommitFault>, GroupFault> {
    match result {
        Ok(()) => Ok(None),
        Err(Fault::Refused(refused)) => Ok(Some(refused)),
        Err(Fault::Sqlite(error)) => Err(error.into()),
        Err(Fault::Corrupt { what }) => Err(GroupFault::Corrupt { what }),
    }
}

/// Why a whole group was not committed.
#[derive(Debug, thiserror::Error)]
enum GroupFault {
    #[error("{0}")]
    Sqlite(SharedFault),
    #[error("a stored {what} cannot be read")]
    Corrupt { what: &'static str },
    #[error("the store's files are not in their place")]
    Moved,
}

impl GroupFault {
    fn tell(&self, files: &StoreFiles) -> StoreFault {
        match self {
            Self::Sqlite(fault) => fault.as_store_fault(files.folder()),
            Self::Corrupt { what } => StoreFault::Corrupt { what },
            Self::Moved => StoreFault::ReadOnly,
        }
    }
}

impl From<rusqlite::Error> for GroupFault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(SharedFault::new(error))
    }
}

/// How long a group waits for company, for each change of the group before; small groups are quick to come back.
const GATHER_EACH: Duration = Duration::from_micros(50);

/// About as long as the pages and the wait for the disk take that it saves.
const LONGEST_GATHER: Duration = Duration::from_micros(400);

/// Changes that make it likely that more are on their way.
const COMPANY: usize = 4;

/// Bounds how long the first change of a group waits for the last, and the memory of one transaction.
const LARGEST_GROUP: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_authority::store::Change;
    use tokio::sync::oneshot;

    use crate::sqlite::migration;

    /// What the pragma says for `FULL`: the log is synced before a commit returns.
    const FULL: i64 = 2;

    #[test]
    fn every_commit_is_synced_also_after_the_connection_was_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("countersign.db");
        let files = Arc::new(StoreFiles::claim(&path).unwrap());
        let mut connection = files.writer().unwrap();
        migration::migrate(&mut connection, &path).unwrap();
        let identity = files.identity().unwrap();
        let mut writer = Writer::new(
            files,
            identity,
            connection,
            watch::Sender::new(Revision::default()),
        );
        assert_synced(&writer.connection);
        commit_one(&mut writer);

        // Marks the first connection, so that the second is seen to be another.
        writer
            .connection
            .execute_batch("CREATE TEMP TABLE mark (x)")
            .unwrap();
        writer.suspect = true;
        commit_one(&mut writer);
        let marked = writer.connection.prepare("SELECT x FROM mark").is_ok();
        assert!(!marked, "the connection was renewed");
        assert!(!writer.suspect);
        assert_synced(&writer.connection);
    }

    fn commit_one(writer: &mut Writer) {
        let (answer, mut answered) = oneshot::channel();
        let change = Change::default();
        writer.serve(&mut vec![WriteJob { change, answer }]);
        answered.try_recv().unwrap().unwrap();
    }

    fn assert_synced(connection: &Connection) {
        let synchronous: i64 = connection
            .pragma_query_value(None, "synchronous", |row| row.get(0))
            .unwrap();
        assert_eq!(synchronous, FULL);
        let mode: String = connection
            .pragma_query_value(None, "journal_mode", |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
    }
}
