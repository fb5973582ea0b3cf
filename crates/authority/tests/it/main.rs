//! The engine over the real store and real keys.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its world fails"
)]

mod ancestors;
mod audited_acts;
mod autosign;
mod collection;
mod duplicates;
mod enrolment;
mod infrastructure;
mod invariants;
mod inventory;
mod issuers;
mod kill_points;
mod recovery;
mod renewal;
mod retirement;
mod sealing;
mod serials;
mod tripwire;
mod unlisting;
mod world;
