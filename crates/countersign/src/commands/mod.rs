//! The commands beside `serve`: those that talk to a running server, and those that work on a stopped one's files.

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod ca;
pub(crate) mod csr;
pub(crate) mod kubeconfig;
pub(crate) mod machine;
pub(crate) mod policy;
pub(crate) mod restore;
pub(crate) mod token;
pub(crate) mod window;
