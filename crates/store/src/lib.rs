//! Where the authority keeps what it acknowledged: SQLite behind the engine's [`Store`] trait.
//!
//! One thread owns the connection that writes. It gathers the changes that are waiting, commits them together and
//! only then answers, so that the cost of reaching the disk is shared by everybody who waits for it. Other threads read
//! beside it. A lock file keeps a second process out.
//!
//! This crate decides nothing: it checks the preconditions it is given and writes what it is told, whole or not at all.
//!
//! [`Store`]: countersign_authority::Store

pub mod postgres;
pub mod sqlite;

mod records;
mod refused;
mod row;
mod write_queue;

pub use postgres::PostgresStore;
pub use sqlite::backup;
pub use sqlite::{OpenFault, SqliteStore};
