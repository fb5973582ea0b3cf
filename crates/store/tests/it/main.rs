//! The stores: the conformance suite on both; files and schema, death of the process, a failing disk and too much work on
//! SQLite; several processes, lost connections and a server that dies on PostgreSQL.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod backup;
mod child;
mod crash;
mod disk;
mod files;
mod ground;
mod postgres;
mod pressure;
mod state_crash;
mod token_crash;
mod token_races;

mod sqlite {
    use crate::ground::TemporaryFile;

    countersign_store_suite::store_suite!(TemporaryFile::new());
}

mod on_postgres {
    use crate::ground::Database;

    countersign_store_suite::store_suite!(Database::new());
}
