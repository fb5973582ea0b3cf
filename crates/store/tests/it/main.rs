//! The store on SQLite: the conformance suite, files and schema, death of the process, a failing disk and
//! too much work.
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
mod pressure;
mod state_crash;
mod token_crash;
mod token_races;

mod sqlite {
    use crate::ground::TemporaryFile;

    countersign_store_suite::store_suite!(TemporaryFile::new());
}
