//! Why a request was refused.

use crate::alt_name::NameFault;
use crate::der::{DerFault, FieldFault};
use crate::key::KeyFault;
use crate::name::SubjectFault;
use crate::oid::Oid;
use crate::pem::PemFault;
use crate::signature::VerifyFault;

/// Every way in which a request can be unacceptable. Each text names the field; none repeats content of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CsrFault {
    /// The armour is broken.
    #[error(transparent)]
    Pem(#[from] PemFault),
    /// No armoured block at all.
    #[error("PEM text has no certificate request block")]
    NoPemBlock,
    /// More than one block.
    #[error("PEM text has more than one block")]
    SeveralPemBlocks,
    /// A block of another kind; it may be a private key, so nothing about it is repeated.
    #[error("PEM text has a block that is not a certificate request")]
    OtherPemBlock,
    /// More octets than the limit.
    #[error("{field} is longer than {limit} octets")]
    TooLarge {
        /// Where.
        field: &'static str,
        /// The limit.
        limit: usize,
    },
    /// More elements than the limit.
    #[error("{field} has more than {limit} elements")]
    TooMany {
        /// Where.
        field: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Not the DER that belongs there.
    #[error("{field} {reason}")]
    Malformed {
        /// Where.
        field: &'static str,
        /// What is wrong there.
        reason: DerFault,
    },
    /// RFC 2986 knows version 0 only; the 2 of Puppet Server's command is let pass.
    #[error("certificationRequestInfo.version is not 0")]
    Version,
    /// RFC 2986 makes the attributes mandatory, though the set may be empty.
    #[error("certificationRequestInfo.attributes is missing")]
    AttributesMissing,
    /// An RDN without attributes.
    #[error("certificationRequestInfo.subject has an empty relative name")]
    EmptyRdn,
    /// A string that is not valid for its type.
    #[error("certificationRequestInfo.subject: value of {oid} is not valid text of its type")]
    SubjectText {
        /// The attribute's type.
        oid: Oid,
    },
    /// A control character in a name.
    #[error("certificationRequestInfo.subject: value of {oid} has a control character")]
    SubjectControl {
        /// The attribute's type.
        oid: Oid,
    },
    /// More than one extensionRequest attribute.
    #[error("certificationRequestInfo.attributes has more than one extensionRequest")]
    SeveralExtensionRequests,
    /// An extensionRequest with no value or several.
    #[error(
        "certificationRequestInfo.attributes.extensionRequest has {count} values instead of one"
    )]
    ExtensionRequestValues {
        /// How many.
        count: usize,
    },
    /// The same extension twice.
    #[error("certificationRequestInfo.attributes.extensionRequest has extension {oid} twice")]
    DuplicateExtension {
        /// The extension.
        oid: Oid,
    },
    /// A bad list of alternative names.
    #[error("certificationRequestInfo.attributes.extensionRequest: {0}")]
    AltNames(NameFault),
    /// An unacceptable public key.
    #[error("certificationRequestInfo: {0}")]
    Key(KeyFault),
    /// The self-signature does not count.
    #[error(transparent)]
    Signature(#[from] VerifyFault),
}

// Written out, not derived: these faults are part of the sentence and must not appear again as its source.
impl From<NameFault> for CsrFault {
    fn from(fault: NameFault) -> Self {
        CsrFault::AltNames(fault)
    }
}

impl From<KeyFault> for CsrFault {
    fn from(fault: KeyFault) -> Self {
        CsrFault::Key(fault)
    }
}

impl From<FieldFault> for CsrFault {
    fn from(fault: FieldFault) -> Self {
        CsrFault::Malformed {
            field: fault.field,
            reason: fault.reason,
        }
    }
}

impl From<SubjectFault> for CsrFault {
    fn from(fault: SubjectFault) -> Self {
        const FIELD: &str = "certificationRequestInfo.subject";
        match fault {
            SubjectFault::Malformed(reason) => CsrFault::Malformed {
                field: FIELD,
                reason,
            },
            SubjectFault::EmptyRdn => CsrFault::EmptyRdn,
            SubjectFault::TooMany { limit } => CsrFault::TooMany {
                field: FIELD,
                limit,
            },
            SubjectFault::TooLong { limit } => CsrFault::TooLarge {
                field: FIELD,
                limit,
            },
            SubjectFault::NotText { oid } => CsrFault::SubjectText { oid },
            SubjectFault::Control { oid } => CsrFault::SubjectControl { oid },
        }
    }
}
