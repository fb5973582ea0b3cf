//! The commands that talk to a running server.

pub(crate) mod ca;
pub(crate) mod csr;
