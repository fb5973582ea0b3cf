//! The real program, from its command line to its listeners.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod architecture;
mod audit;
mod autosigning;
mod backup;
mod bearer;
mod ca_import;
mod ca_verbs;
mod cadir;
mod cadir_takeover;
mod cli;
mod cluster;
mod commands;
mod conformance;
mod cores;
mod crash;
mod deploy;
mod differential;
mod disk;
mod enroll;
mod exposition;
mod first_start;
mod foreman;
mod governed;
mod haproxy;
mod installation;
mod intermediate_ca;
mod interrupted;
mod invariants;
mod issuer_replacement;
mod kubeconfig;
mod kubectl;
mod kubernetes_clients;
mod kubernetes_differential;
mod kubernetes_load;
mod kubernetes_manual;
mod lifecycle;
mod limits;
mod logs;
mod machines;
mod metrics;
mod newer_clients;
mod operator;
mod pkilint;
mod policies;
mod policy_changes;
mod policy_cli;
mod policy_manual;
mod postgres;
mod puppet_agent;
mod puppetserver_ca;
mod reload;
mod replay;
mod schemathesis;
mod service_manager;
mod site;
mod takeover;
mod tokens_acceptance;
mod tokens_agent;
mod tokens_cli;
mod tokens_enroll;
mod tokens_manual;
mod tokens_provisioning;
mod tokens_secrecy;
mod trust_domains;
mod wire;
