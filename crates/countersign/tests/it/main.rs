//! The real program, from its command line to its listeners.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod cli;
mod commands;
mod first_start;
mod installation;
