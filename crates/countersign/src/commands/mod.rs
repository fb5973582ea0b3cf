//! The commands that talk to a running server, or work on the files of a stopped one.

pub(crate) mod ca;
pub(crate) mod csr;
