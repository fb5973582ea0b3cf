//! A real Puppet Server 8.7 that signs everything, for `cargo xtask bench --against`.
//!
//! `cargo run -p countersign-testkit --example puppet_server` prints its URL and ends with its standard input.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a tool for benchmarks: it stops at the first surprise"
)]

use std::io::Read as _;

use countersign_testkit::puppet_server::{PuppetServer, PuppetServerSettings};

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let settings = PuppetServerSettings {
        autosign: "true".to_owned(),
        java_args: "-Xms2g -Xmx2g".to_owned(),
        ..PuppetServerSettings::below(folder.path())
    };
    let server = PuppetServer::start(folder.path(), settings).unwrap();
    println!("https://localhost:{}", server.address().port());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
