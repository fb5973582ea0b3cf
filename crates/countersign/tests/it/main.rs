//! The real program, from its command line to its listeners.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod ca_verbs;
mod cli;
mod commands;
mod crash;
mod disk;
mod first_start;
mod installation;
mod invariants;
mod kubectl;
mod lifecycle;
mod limits;
mod puppet_agent;
mod puppetserver_ca;
mod site;
mod trust_domains;
mod wire;
