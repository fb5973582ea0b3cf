//! Why a request that is well formed gets no certificate here.

use crate::key::KeyFault;

/// What is wrong with a request that was read to be judged, or that is on record. Others, or earlier versions, may have
/// accepted it; nothing here signs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Weakness {
    /// The key is too short, or everybody can make signatures with it.
    #[error("{0}")]
    Key(KeyFault),
    /// The signature proves little.
    #[error("weak signature: {algorithm} is not accepted")]
    Signature {
        /// What makes it weak.
        algorithm: &'static str,
    },
    /// An alternative name without a letter.
    #[error("subjectAltName has an empty name")]
    EmptyName,
    /// PEM with more than one block: others may read another than the first.
    #[error("PEM text has more than one block")]
    MoreBlocks,
    /// PEM with words behind the block, which mean nothing.
    #[error("PEM text goes on behind its block")]
    TextBehind,
}

impl Weakness {
    /// Whether it may get a certificate all the same.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        matches!(self, Weakness::TextBehind)
    }
}
