//! Writes that no store carries out.

use countersign_authority::store::{CommitFault, StoreFault};
use countersign_authority::{IssuerId, TokenId};
use countersign_pki::Serial;

/// Why a write makes no sense for what is stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefusedWrite {
    /// Two requests with one identity.
    #[error("request {id} is already stored")]
    DuplicateRequest {
        /// The identity.
        id: String,
    },
    /// Two tokens with one public part.
    #[error("token {id} is already stored")]
    DuplicateToken {
        /// The public part.
        id: TokenId,
    },
    /// Only what is in the ledger can be revoked.
    #[error("certificate {serial} of issuer {issuer} is not in the ledger")]
    NoSuchCertificate {
        /// Whose.
        issuer: IssuerId,
        /// Which.
        serial: Serial,
    },
    /// Only a window that is there can be used.
    #[error("{certname} has no build window that is good for another certificate")]
    NoSuchWindow {
        /// Whose.
        certname: String,
    },
    /// A value that the schema has no room for.
    #[error("the {what} cannot be stored")]
    Unstorable {
        /// Which field.
        what: &'static str,
    },
}

impl From<RefusedWrite> for CommitFault {
    fn from(why: RefusedWrite) -> Self {
        let source = Box::new(why);
        Self::Store(StoreFault::Failed { source })
    }
}
