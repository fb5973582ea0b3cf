//! The directory in which Puppet Server keeps its authority: read whole when it is taken over, written whole on the way back.
//!
//! Puppet Server's own files are never changed. What is wrong with them is named by file and line; what would lose a
//! certificate or a revocation stops the takeover before anything is written.

mod chain;
mod holdings;
mod inventory;
mod problems;
mod serial_file;
mod source;
mod target;

pub(crate) use holdings::{Holding, Holdings};
pub(crate) use inventory::Row;
pub(crate) use problems::Problems;
pub(crate) use source::{Source, read_bounded};
pub(crate) use target::Target;

pub(crate) const CERTIFICATES: &str = "ca_crt.pem";
pub(crate) const KEY: &str = "ca_key.pem";
pub(crate) const PUBLIC_KEY: &str = "ca_pub.pem";
pub(crate) const CRLS: &str = "ca_crl.pem";
pub(crate) const SERIAL: &str = "serial";
pub(crate) const INVENTORY: &str = "inventory.txt";
pub(crate) const SIGNED: &str = "signed";
pub(crate) const REQUESTS: &str = "requests";
pub(crate) const INFRA_INVENTORY: &str = "infra_inventory.txt";
pub(crate) const INFRA_SERIALS: &str = "infra_serials";
pub(crate) const INFRA_CRLS: &str = "infra_crl.pem";

/// Puppet Server reads serials as signed numbers of 32 bits.
pub(crate) const MAX_SERIAL: u64 = 0x7fff_ffff;
