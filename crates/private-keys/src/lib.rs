//! Private keys, in memory and in files, and the certificate requests that they sign.
//!
//! Those of issuers and those of machines are made and read in the same way. What is signed with an issuer's key, and who may,
//! is not known here.

mod leaf;
mod private_key;

pub mod private_file;

pub use leaf::{LeafKey, RequestFault};
pub use private_key::{KeySpec, PrivateKey, PrivateKeyFault};
