//! The engine: the life of a certificate request, whatever door it came through.
//!
//! A door turns its wire format into a [`Submission`]; the engine examines it against the signer's
//! profile, decides by policy, records the intent, signs, records the certificate and only then shows
//! it. Approvals, denials and revocations take the same way. The engine owns the traits it needs
//! ([`Store`], [`KeyStore`], [`Clock`], [`Entropy`]) and names no SQL, HTTP, Puppet or Kubernetes type.
//!
//! The order is carried by types: nothing is drafted without an approval, nothing signed before its
//! intent is durable ([`issuance::Intended`]), nothing shown before it is recorded
//! ([`issuance::Issued`]).
#![warn(clippy::wildcard_enum_match_arm)]

pub mod certname;
pub mod issuance;
pub mod private_file;
pub mod profile;
pub mod sealing;
pub mod store;

mod access;
mod acts;
mod ancestors;
mod audit;
mod bootstrap;
mod chain;
mod clock;
mod collection;
mod crl;
mod decider;
mod engine;
mod evidence;
mod faults;
mod infrastructure;
mod inventory;
mod issuer;
mod judgement;
mod keystore;
mod model;
mod objects;
mod policies;
mod reconsideration;
mod recovery;
mod renewal;
mod retirement;
mod revocation;
mod settlement;
mod signer;
mod signing;
mod storing;
mod submission;
mod succession;
mod telemetry;
mod token;
mod unlisting;
mod windows;

pub use access::AccessReviews;
pub use acts::{Act, OnUnsignable};
pub use ancestors::AncestorCrlFault;
pub use audit::{
    AuditEntry, AuditFilter, AuditOrder, AuditPage, AuditPlace, AuditQuery, AuditRecord,
};
pub use bootstrap::{
    BootstrapId, BootstrapOrder, BootstrapRecord, BootstrapStatus, BootstrapText, BootstrapToken,
    BootstrapUser, MintedBootstrap, bootstrap_ids_in, masked_bootstrap_tokens,
};
pub use chain::{Chain, Way};
pub use clock::{Clock, Entropy, EntropyFault, SystemClock};
pub use collection::{Collected, Held, Keeper, PlainKeeper, Retention, WhenEnded};
pub use countersign_policy::AccessAnswer;
pub use crl::{CrlEnd, CrlState};
pub use decider::{Deciders, Question, QuestionToken};
pub use engine::{Authority, AuthorityConfig, Limits};
pub use evidence::{Executables, trusted_file};
pub use faults::{ActFault, Broken, RevokeFault, SubmitFault};
pub use inventory::{
    Imported, InventoryFault, MAX_MACHINE_ADDRESSES, MAX_MACHINE_TEXT, MachineFault, OnExisting,
    Put, checked_machine,
};
pub use issuer::{Issuer, IssuerFault, IssuerId, Serials};
pub use keystore::{KeyStore, SignFault, Signature};
pub use model::{
    AncestorCrl, CrlRecord, CrlScope, Door, Intent, LedgerEntry, MachineRecord, Owner,
    PolicyVersion, RememberedAllow, RequestId, RequestRecord, RequestState, Revision, Revocation,
    Revoked, inventory_name,
};
pub use objects::{
    ObjectFault, ObjectKey, ObjectOrder, ObjectRecord, State, StateChange, StateChangeKind,
};
pub use policies::policy_version;
pub use profile::{Profile, ProfileFault};
pub use renewal::RenewFault;
pub use retirement::Retired;
pub use sealing::{Seal, SealFault, SealHead, SealKey, Sealed};
pub use settlement::Settlement;
pub use signer::{OnWaiting, Signer};
pub use store::Store;
pub use submission::{Duplicate, Submission, Submitted};
pub use telemetry::{
    CommitOutcome, DecisionOutcome, Ended, ExecutionOutcome, Honored, Telemetry, TokenEvent,
    Unobserved, WebhookOutcome,
};
pub use token::{
    BEARER_EXTRA, BearerToken, CarriedToken, Check, FoundToken, ListedToken, MacKey,
    MacKeyTooShort, MacKeys, Minted, NotAToken, TokenDetail, TokenFault, TokenFilter, TokenId,
    TokenOrder, TokenRecord, TokenSettings, TokenStanding, TokenStatus, TokenText, TokenUseRecord,
    Validation, is_token_reason, looks_like_a_token, masked_tokens,
};
pub use windows::{MAX_ISSUANCES, MAX_WINDOW_SECONDS, WindowFault};
