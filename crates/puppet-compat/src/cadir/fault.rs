//! Why a directory is not taken over or not written.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use countersign_authority::IssuerFault;
use countersign_pki::pem::PemFault;
use countersign_pki::{CertFault, CrlFault, SerialFault};

use super::{CERTIFICATES, KEY};

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadFault {
    /// The operating system refused.
    #[error("{} cannot be read", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// A folder, device or pipe.
    #[error("{} is no file", path.display())]
    NotAFile {
        /// What it is called.
        path: PathBuf,
    },
    /// Longer than anything sensible.
    #[error("{} is longer than {limit} octets", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
}

/// Why a file gave no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFileFault {
    /// It was not read.
    #[error(transparent)]
    Read(#[from] ReadFault),
    /// It is not PEM.
    #[error(transparent)]
    Pem(#[from] PemFault),
    /// There is none in it.
    #[error("it holds no certificate")]
    Empty,
    /// The certificate is malformed.
    #[error(transparent)]
    Certificate(#[from] CertFault),
}

/// Why a directory cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum CadirFault {
    /// There is none.
    #[error("{} is no directory: name Puppet Server's cadir (`puppet config print cadir --section server`)", folder.display())]
    NoDirectory {
        /// What was named.
        folder: PathBuf,
    },
    /// A file is missing without which Puppet Server does not start either.
    #[error("{} is missing: {} is no complete CA directory of a Puppet Server", path.display(), folder.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The directory.
        folder: PathBuf,
    },
    /// A file was not read.
    #[error(transparent)]
    Read(#[from] ReadFault),
    /// A file is not PEM.
    #[error("{} cannot be read", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PemFault,
    },
    /// A certificate of the chain is malformed.
    #[error("{} holds a malformed certificate", path.display())]
    ChainCertificate {
        /// The file.
        path: PathBuf,
        /// Why.
        source: CertFault,
    },
    /// Key and chain do not belong together.
    #[error("{} holds no certificate of the key in {KEY} beside it: restore both from one backup", path.display())]
    ForeignKey {
        /// The chain file.
        path: PathBuf,
    },
    /// The chain ends below a root.
    #[error("{}: the certificate of {issuer:?} is missing, so the chain does not reach a root: append it to the file", path.display())]
    IncompleteChain {
        /// The chain file.
        path: PathBuf,
        /// Whose certificate is missing.
        issuer: String,
    },
    /// The chain is none that can be used.
    #[error("{}", path.display())]
    Chain {
        /// The chain file.
        path: PathBuf,
        /// Why.
        source: IssuerFault,
    },
    /// A CA above has no name for its key.
    #[error(transparent)]
    Ancestor(IssuerFault),
    /// A CRL is malformed.
    #[error("{} holds a malformed CRL", path.display())]
    Crl {
        /// The file.
        path: PathBuf,
        /// Why.
        source: CrlFault,
    },
    /// The CA's own CRL is missing.
    #[error("{} holds no CRL that the key in {KEY} signed: without it nobody knows what is revoked", path.display())]
    NoOwnCrl {
        /// The file.
        path: PathBuf,
    },
    /// The file of the next serial is damaged.
    #[error("{} holds no serial in hexadecimal", path.display())]
    Serial {
        /// The file.
        path: PathBuf,
        /// Why.
        source: SerialFault,
    },
    /// All certificates are another CA's.
    #[error("none of the certificates in {} is signed by the CA in {CERTIFICATES}: the directory is mixed up of two authorities", folder.display())]
    ForeignCertificates {
        /// Where they are.
        folder: PathBuf,
    },
    /// A certificate is no longer there as it was.
    #[error("{} cannot be read", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        source: CertificateFileFault,
    },
    /// Somebody wrote while we read.
    #[error("{} was changed meanwhile: stop Puppet Server and run this again", path.display())]
    ChangedFile {
        /// The file.
        path: PathBuf,
    },
    /// Somebody wrote while we read.
    #[error("{} was changed while it was taken over: stop Puppet Server and run this again", folder.display())]
    Changed {
        /// The directory.
        folder: PathBuf,
    },
}

/// Why a directory was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteFault {
    /// The operating system refused to make it.
    #[error("cannot create {}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// Something is in it.
    #[error("{} is not empty: name a new directory, nothing is overwritten", folder.display())]
    NotEmpty {
        /// The directory.
        folder: PathBuf,
    },
    /// The operating system refused to write a file.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// The operating system could not bring everything to disk.
    #[error("cannot write {} to disk", folder.display())]
    Sync {
        /// The directory.
        folder: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// A certname that is no file name.
    #[error("{name:?} cannot be the name of a file")]
    FileName {
        /// The certname.
        name: String,
    },
}

/// An error with its causes, in one line.
pub(super) fn in_full(fault: &dyn Error) -> String {
    let mut text = fault.to_string();
    let mut cause = fault.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}
