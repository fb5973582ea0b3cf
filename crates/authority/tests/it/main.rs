//! The engine over the real store and real keys.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its world fails"
)]

mod access;
mod adoption;
mod ancestors;
mod audited_acts;
mod authorisation;
mod autosign;
mod bootstrap;
mod broken_evidence;
mod collection;
mod confirmation;
mod deciders;
mod disk_use;
mod duplicates;
mod enrolment;
mod infrastructure;
mod invariants;
mod inventory;
mod inventory_rules;
mod issuers;
mod kill_points;
mod kill_points_of_evidence;
mod kill_points_unsigned;
mod kubernetes_certificates;
mod logs;
mod objects;
mod once;
mod policies;
mod previous_schema;
mod profiles;
mod reconciliation;
mod reconsideration;
mod recovery;
mod renewal;
mod retirement;
mod rules;
mod sealing;
mod serials;
mod settlement;
mod site;
mod token_concurrency;
mod token_conformance;
mod token_forgery;
mod token_kill_points;
mod token_kills;
mod token_model;
mod token_orders;
mod token_state;
mod token_walk;
mod tokens;
mod tokens_guarded;
mod tokens_ordered;
mod tripwire;
mod unlisting;
mod world;
