//! Why the engine did not do what it was asked.
//!
//! A refusal leaves the store as it was. A breakdown ([`EngineError`]) may come after the decision was
//! recorded: then the rest is carried through when the fault has ended.

use std::net::IpAddr;

use crate::authorisation::grant::Needed;
use crate::clock::EntropyFault;
use crate::issuer::IssuerId;
use crate::issuer::keystore::SignFault;
use crate::model::{RequestId, RequestState};
use crate::profile::{DraftFault, ProfileFault};
use crate::request::submission::Duplicate;
use crate::store::StoreFault;

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SubmitFault {
    /// Its name is taken.
    #[error("{key} already has a {duplicate} certificate")]
    Duplicate {
        /// The name.
        key: String,
        /// By what.
        duplicate: Duplicate,
    },
    /// A person denied this name and key before.
    #[error("{key} was denied (request {id})")]
    Denied {
        /// The name.
        key: String,
        /// The request that was denied.
        id: RequestId,
    },
    /// It would wait, and as many from its address as may wait already do.
    #[error("{limit} requests from {source_address} wait already")]
    TooManyWaiting {
        /// Where it comes from.
        source_address: IpAddr,
        /// How many may wait.
        limit: usize,
    },
    /// It would wait, and those that do take as much room as they may.
    #[error("the requests that wait take {limit} bytes, and may not take more")]
    NoRoomToWait {
        /// How many bytes they may take, from one address or in all.
        limit: u64,
    },
    /// A rule approves it, and whoever asks has renewed its own certificate too often of late.
    #[error(
        "{name} has got {limit} certificates within a short part of their life; it has to wait before it renews again"
    )]
    TooManyRenewals {
        /// Who asks, and for which name.
        name: String,
        /// How many it may get.
        limit: usize,
    },
    /// The same key is being enrolled by the same token at this moment.
    #[error("{key} is being enrolled by this token at this moment")]
    InProgress {
        /// The name.
        key: String,
    },
    /// Whoever asks may not.
    #[error(transparent)]
    Forbidden(#[from] Needed),
    /// It could not be carried through.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Why an approval, denial or deletion was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ActFault {
    /// No such request.
    #[error("there is no request {key} at the {door} door")]
    NotFound {
        /// The door.
        door: String,
        /// The name.
        key: String,
    },
    /// It is not waiting for a decision.
    #[error("request {key} is {} already", .state.word())]
    AlreadyDecided {
        /// The name.
        key: String,
        /// Where it stands.
        state: RequestState,
    },
    /// Somebody changed it meanwhile.
    #[error("request {key} was changed meanwhile; look at it again")]
    Conflict {
        /// The name.
        key: String,
    },
    /// The signer could never sign it.
    #[error("request {key} cannot be signed: {fault}")]
    Unsignable {
        /// The name.
        key: String,
        /// Why.
        fault: ProfileFault,
    },
    /// Whoever asks may not.
    #[error(transparent)]
    Forbidden(#[from] Needed),
    /// It could not be carried through.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Why a revocation was not acknowledged. With [`RevokeFault::Engine`] it may be in force already and
/// lack only its CRL, which follows when the fault has ended.
#[derive(Debug, thiserror::Error)]
pub enum RevokeFault {
    /// No such certificate.
    #[error("issuer {issuer} has no certificate for {name}")]
    NoCertificate {
        /// Whose.
        issuer: IssuerId,
        /// The name or serial asked for.
        name: String,
    },
    /// No such issuer.
    #[error("there is no issuer {issuer}")]
    UnknownIssuer {
        /// The name.
        issuer: IssuerId,
    },
    /// Whoever asks may not.
    #[error(transparent)]
    Forbidden(#[from] Needed),
    /// It could not be carried through.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The machinery failed: the store, a key, the random source. Nothing was approved that is not on
/// record, and nothing shown.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The key.
    #[error(transparent)]
    Sign(#[from] SignFault),
    /// The draft.
    #[error(transparent)]
    Draft(#[from] DraftFault),
    /// Randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyFault),
    /// The counter of serials.
    #[error("the counter of serials is used up")]
    Serials(#[from] countersign_pki::SerialFault),
    /// The encoding of a certificate or CRL.
    #[error(transparent)]
    Encode(#[from] countersign_pki::EncodeFault),
    /// A stored request that cannot be read.
    #[error("the stored request {id} cannot be read")]
    StoredRequest {
        /// Which.
        id: RequestId,
        /// Why.
        source: countersign_pki::CsrFault,
    },
    /// The same thing was changed by others again and again.
    #[error("too many others changed the same thing at once; try again")]
    Contended,
    /// A defect of this program, which the log describes.
    #[error("the authority met an error of its own; see its log")]
    Defect,
    /// The task that carried it through was cut short.
    #[error("the authority is shutting down")]
    ShuttingDown,
}
