//! The doors over a real store and real keys, called in process and through real listeners.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod client_certificates;
mod enrol;
mod exchange;
mod foreman;
mod hostile;
mod kubernetes;
mod limits;
mod monitor;
mod openapi;
mod outage;
mod parked;
mod proxied;
mod puppet;
mod roles;
mod watch_wire;
mod wire;
mod world;
