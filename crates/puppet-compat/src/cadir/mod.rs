//! The directory in which Puppet Server keeps its authority: read whole when it is taken over, written whole on the way back.
//!
//! Puppet Server's own files are never changed. What is wrong with them is named by file and line; what would lose a
//! certificate or a revocation stops the takeover before anything is written.

mod chain;
mod fault;
mod holdings;
mod inventory;
mod problems;
mod serial_file;
mod source;
mod target;

pub use chain::Lists;
pub use fault::{CadirFault, CertificateFileFault, ReadFault, WriteFault};
pub use holdings::{Holding, Holdings};
pub use inventory::Row;
pub use problems::Problems;
pub use source::{Infrastructure, Source, ensure_complete, read_bounded};
pub use target::{Inventory, Target};

/// The CA's certificate and those above it.
pub const CERTIFICATES: &str = "ca_crt.pem";
/// Its private key.
pub const KEY: &str = "ca_key.pem";
/// The public half.
pub const PUBLIC_KEY: &str = "ca_pub.pem";
/// Its CRL and those of the CAs above.
pub const CRLS: &str = "ca_crl.pem";
pub(crate) const SERIAL: &str = "serial";
pub(crate) const INVENTORY: &str = "inventory.txt";
/// The folder of certificates.
pub const SIGNED: &str = "signed";
/// The folder of requests that wait.
pub const REQUESTS: &str = "requests";
/// The names of the site's own machines.
pub const INFRA_INVENTORY: &str = "infra_inventory.txt";
/// Their serials.
pub const INFRA_SERIALS: &str = "infra_serials";
/// The CRL of these alone.
pub const INFRA_CRLS: &str = "infra_crl.pem";

/// Puppet Server reads serials as signed numbers of 32 bits.
pub const MAX_SERIAL: u64 = 0x7fff_ffff;
