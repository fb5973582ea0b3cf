//! Webhooks against a real HTTPS server that plays every part a decider may have.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod concurrency;
mod flapping;
mod http;
mod loading;
mod lying;
mod row;
mod status;
mod tls;
mod wire;
mod world;
