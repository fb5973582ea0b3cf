//! The engine over the real store and real keys.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its world fails"
)]

mod autosign;
mod collection;
mod enrolment;
mod invariants;
mod kill_points;
mod recovery;
mod renewal;
mod retirement;
mod tripwire;
mod world;
