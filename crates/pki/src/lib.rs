//! Bytes in, facts out: PKCS#10 requests, certificates, revocation lists, and the encodings of what an authority issues.
//!
//! Everything here is a pure function of its arguments. The crate never reads a clock, a file, a socket or a random
//! source, and never awaits. Reading is total and bounded: hostile bytes give a fault that names the offending field,
//! never a panic. The types of the ASN.1 and cryptography libraries stay inside.
#![warn(clippy::arithmetic_side_effects)]

mod serialize;
mod time;

pub mod oid;

mod fingerprint;
mod serial;
mod terminal;

pub mod pem;

mod der;
mod value;
mod weak_key;
mod weakness;

mod alt_name;
mod extension;
mod name;

mod key;
mod signature;

mod attribute;
mod csr;
mod csr_fault;

mod carrier;
mod mask;
mod reduce;
pub mod secret_shape;

mod certificate;
mod chain;
mod crl;

pub mod ext;

mod crl_template;
mod request_template;
mod subject;
mod template;

pub use alt_name::{AltName, NameFault, ip_puppet_text};
pub use attribute::Attribute;
pub use carrier::{CarriedFault, CarriedText, Carrier, CarrierFault, carried};
pub use certificate::{CertFault, Certificate, CertificateOutline};
pub use chain::{ChainFault, verify_server_chain};
pub use crl::{Crl, CrlFault};
pub use crl_template::{CrlTemplate, RevocationReason, RevokedEntry};
pub use csr::{AttributesField, CheckedCsr, CsrLimits};
pub use csr_fault::CsrFault;
pub use der::DerFault;
pub use ext::KeyUsage;
pub use extension::Extension;
pub use fingerprint::{Fingerprint, fingerprint_sha256, sha1_colon, sha256_colon, sha512_colon};
pub use key::{Curve, KeyFault, KeyType, PublicKeyFacts};
pub use mask::masked;
pub use name::{NameAttribute, NameValue, Subject};
pub use oid::Oid;
pub use reduce::without_bulk;
pub use request_template::RequestTemplate;
pub use serial::{Serial, SerialFault};
pub use signature::{SignatureAlgorithm, VerifyFault, verify};
pub use subject::{StringKind, SubjectBuilder};
pub use template::{CertificateTemplate, EncodeFault, seal};
pub use terminal::terminal_safe;
pub use time::{TimeFault, UnixTime};
pub use value::RawValue;
pub use weakness::Weakness;
