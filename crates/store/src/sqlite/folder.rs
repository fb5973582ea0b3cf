//! The files of a store: the database, its write-ahead log and the lock that keeps a second process out.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

/// A database file that this process has to itself.
#[derive(Debug)]
pub(crate) struct StoreFiles {
    database: PathBuf,
    folder: PathBuf,
    /// Held for as long as the store lives; the system releases it when the process dies.
    lock: File,
}

impl StoreFiles {
    /// Takes the lock and creates the database file, readable by its owner only, if there is none.
    pub(crate) fn claim(path: &Path) -> Result<Self, OpenFault> {
        let file_fault = |source| OpenFault::File {
            path: path.to_owned(),
            source,
        };
        let name = path
            .file_name()
            .ok_or_else(|| file_fault(io::ErrorKind::InvalidInput.into()))?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) | None => Path::new("."),
        };
        // Absolute, so that the files are still found if the process changes its directory.
        let folder = parent.canonicalize().map_err(file_fault)?;
        let database = folder.join(name);
        let lock = lock(&beside(&database, ".lock"))?;
        open_private(&database).map_err(file_fault)?;
        Ok(Self {
            database,
            folder,
            lock,
        })
    }

    pub(crate) fn database(&self) -> &Path {
        &self.database
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The connection that writes.
    ///
    /// The log is synced at every commit (`FULL`): what was acknowledged survives a power failure. Rarer
    /// checkpoints than the default's gave 1.6 times the commit rate when measured.
    pub(crate) fn writer(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(
            &self.database,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "page_size", PAGE_SIZE)?;
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
        if mode != "wal" {
            tracing::warn!(%mode, "the file system does not allow a write-ahead log");
        }
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.pragma_update(None, "temp_store", "memory")?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        keep_statements(&connection)?;
        Ok(connection)
    }

    /// A connection that reads.
    pub(crate) fn reader(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(
            &self.database,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "temp_store", "memory")?;
        connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
        keep_statements(&connection)?;
        Ok(connection)
    }

    /// Which files stand at the store's paths now; `None` while one is missing.
    ///
    /// SQLite goes on writing to files that were moved away or deleted under it. What it commits then is not where the
    /// next start looks for it, so the writer compares this before each commit.
    pub(crate) fn identity(&self) -> Option<FilesIdentity> {
        let of = |path: &Path| path.metadata().ok().map(|data| (data.dev(), data.ino()));
        Some(FilesIdentity {
            database: of(&self.database)?,
            log: of(&beside(&self.database, "-wal"))?,
        })
    }
}

impl Drop for StoreFiles {
    /// Closing the file is not enough: a program that is being started right now has a copy of it until it runs.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

/// Device and inode of the database and of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilesIdentity {
    database: (u64, u64),
    log: (u64, u64),
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// Another process has it.
    #[error("{} is in use by another process (it holds {}): stop that process or choose another data directory", .path.display(), .lock.display())]
    InUse {
        /// The database.
        path: PathBuf,
        /// The lock file.
        lock: PathBuf,
    },
    /// A file cannot be created or opened.
    #[error("{} cannot be opened: check that its directory exists and is writable", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A later version of the program has changed the schema.
    #[error("{} has schema {found}, this program knows schemas up to {known}: run the version that wrote it, or a later one", .path.display())]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest one known here.
        known: i64,
    },
    /// The schema was made by another text than this program has under that number.
    #[error("{} was made with another schema step {number} than this program has: run the version that wrote it, or a release after it", .path.display())]
    Altered {
        /// The database.
        path: PathBuf,
        /// The step that differs.
        number: i64,
    },
    /// It is a database, but not one of ours.
    #[error("{} is the database of another program: choose another data directory", .path.display())]
    Foreign {
        /// The database.
        path: PathBuf,
    },
    /// The storage engine cannot use it.
    #[error("{} cannot be used as a store: if it is damaged, restore a backup", .path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// Its pages do not fit together.
    #[error("{} is damaged ({finding}): use another backup", .path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What the check found first.
        finding: String,
    },
    /// It is not as this program makes it.
    #[error("{} has another schema than its version ({part}): somebody has changed it; use another backup", .path.display())]
    Strange {
        /// The database.
        path: PathBuf,
        /// What was found first.
        part: String,
    },
    /// The system gives no thread.
    #[error("a thread of the store cannot be started")]
    Thread {
        /// What the system says.
        source: io::Error,
    },
}

fn lock(path: &Path) -> Result<File, OpenFault> {
    let file_fault = |source| OpenFault::File {
        path: path.to_owned(),
        source,
    };
    let file = open_private(path).map_err(file_fault)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenFault::InUse {
            path: path.with_extension(""),
            lock: path.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(file_fault(source)),
    }
}

/// Prepares each statement once: by default SQLite plans a statement again for other values if they could make it choose
/// another partial index. Ours name their state as a literal and need only one plan.
fn keep_statements(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Requests may hold secrets of their senders: nobody else reads these files.
fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

const PAGE_SIZE: i64 = 4096; // an entry of an index dirties one; larger ones are copied to the log whole
const CHECKPOINT_PAGES: i64 = 16384; // 64 MiB of log between checkpoints
const WRITER_CACHE_KIB: i64 = 32 * 1024; // holds the pages of the largest group, and hot index pages
const READER_CACHE_KIB: i64 = 8 * 1024;
const STATEMENTS: usize = 128; // more than the crate has, so that each is prepared once
const BUSY_TIMEOUT: Duration = Duration::from_secs(1); // an operator's tool may hold the database for a moment
