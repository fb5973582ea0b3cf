//! Where the authority keeps what it acknowledged: SQLite behind the engine's [`Store`] trait.
//!
//! One thread owns the connection that writes. It gathers the changes that are waiting, commits them together and
//! only then answers, so that the cost of reaching the disk is shared by everybody who waits for it. Other threads read
//! beside it. A lock file keeps a second process out.
//!
//! This crate decides nothing: it checks the preconditions it is given and writes what it is told, whole or not at all.
//!
//! [`Store`]: countersign_authority::Store

mod sqlite;

mod folder;
mod migration;

mod bootstrap;
mod change;
mod intents;
mod inventory;
mod objects;
mod states;
mod writer;

mod query;
mod reader;
mod tokens;

pub mod backup;

mod denials;
mod fault;
mod row;

pub use folder::OpenFault;
pub use sqlite::SqliteStore;
