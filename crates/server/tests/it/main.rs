//! The doors, called in process over a real store and real keys.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod enrol;
mod exchange;
mod kubernetes;
mod puppet;
mod world;
