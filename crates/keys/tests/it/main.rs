//! Key files, signatures and self-signed issuers, judged by `pki` and by the OpenSSL command line.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod key_folder;
mod loading;
mod requests;
mod roots;
mod signing;
