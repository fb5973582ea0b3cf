//! Where issuers' private keys live, and the threads that sign with them.
//!
//! [`FileKeys`] answers the engine's [`KeyStore`](countersign_authority::KeyStore) from key files. The
//! crate also makes keys ([`FileKeys::generate_file`]), the certificates of new issuers
//! ([`create_issuer`], [`create_intermediate`]) and the authority's own leaf keys ([`LeafKey`]). It never sees a request or a
//! policy, and nothing outside it holds an issuer's private key.

mod private_key;

pub mod private_file;

mod threads;

mod audit_key;
mod file_keys;
mod foreign_key;

mod leaf;
mod root;

mod entropy;

pub use audit_key::AuditKey;
pub use entropy::SystemEntropy;
pub use file_keys::{FileKeys, GenerateFault, LoadFault, ReadKey};
pub use foreign_key::{CopyFor, ForeignKey};
pub use leaf::{LeafKey, RequestFault};
pub use private_key::{KeySpec, PrivateKeyFault};
pub use root::{RootCertificate, RootFault, create_empty_crl, create_intermediate, create_issuer};
