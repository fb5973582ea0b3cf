//! The real program, from its command line to its listeners.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod cli;
mod commands;
mod crash;
mod disk;
mod exposition;
mod first_start;
mod installation;
mod invariants;
mod kubectl;
mod lifecycle;
mod limits;
mod metrics;
mod puppet_agent;
mod puppetserver_ca;
mod reload;
mod service_manager;
mod site;
mod trust_domains;
mod wire;
