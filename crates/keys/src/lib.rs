//! Where issuers' private keys live, and the threads that sign with them.
//!
//! [`FileKeys`] answers the engine's [`KeyStore`](countersign_authority::KeyStore) from key files. The
//! crate also makes keys ([`FileKeys::generate_file`]), the certificates of new issuers
//! ([`create_issuer`], [`create_intermediate`]). It never sees a request or a policy, and nothing outside it holds an issuer's private key.

mod threads;

mod audit_key;
mod file_keys;
mod foreign_key;

mod root;

mod entropy;

pub use audit_key::AuditKey;
pub use countersign_private_keys::{KeySpec, LeafKey, PrivateKeyFault, RequestFault, private_file};
pub use entropy::SystemEntropy;
pub use file_keys::{FileKeys, GenerateFault, LoadFault, ReadKey};
pub use foreign_key::{CopyFor, ForeignKey};
pub use root::{RootCertificate, RootFault, create_empty_crl, create_intermediate, create_issuer};
