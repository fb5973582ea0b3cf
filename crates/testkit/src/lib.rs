//! Fixed keys, the CSR zoo and real counterparts, for the tests of the other crates. Never published.

pub mod agent;
pub mod api_server;
pub mod chain;
pub mod client_go;
pub mod counterparts;
pub mod csr;
pub mod deadline;
pub mod decider;
pub mod der;
pub mod fuzz;
pub mod haproxy;
pub mod helm;
pub mod http;
pub mod https;
pub mod json_lines;
pub mod keys;
pub mod kubectl;
pub mod postgres;
pub mod puppet_server;
pub mod puppetserver_ca;
pub mod python_client;
pub mod server_process;
pub mod zoo;
