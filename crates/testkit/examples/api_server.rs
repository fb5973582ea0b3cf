//! A real kube-apiserver on etcd, with the controllers for certificate signing requests, for `cargo xtask bench`: writes wait for
//! the disk, as anywhere else.
//!
//! `cargo run -p countersign-testkit --example api_server` prints its administrator's kubeconfig and ends with its standard input.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a tool for benchmarks: it stops at the first surprise"
)]

use std::io::Read as _;

use countersign_testkit::api_server::{ApiServer, ApiServerFault, ApiServerSettings};

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ApiServerSettings {
        durable: true,
        ..ApiServerSettings::default()
    };
    let server = match ApiServer::start(folder.path(), &settings) {
        Err(ApiServerFault::Missing(missing)) => {
            println!("missing: {missing}");
            return;
        }
        started => started.unwrap(),
    };
    println!("{}", server.admin_kubeconfig().display());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
