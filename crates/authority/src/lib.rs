//! The engine: the life of a certificate request, whatever door it came through.
//!
//! A door turns its wire format into a [`Submission`]; the engine examines it against the signer's
//! profile, decides by policy, records the intent, signs, records the certificate and only then shows
//! it. Approvals, denials and revocations take the same way. The engine owns the traits it needs
//! ([`Store`], [`KeyStore`], [`Clock`], [`Entropy`]) and names no SQL, HTTP, door or product.
//!
//! The order is carried by types: nothing is drafted without an approval, nothing signed before its
//! intent is durable ([`Intended`]), nothing shown before it is recorded ([`Issued`]).
#![warn(clippy::wildcard_enum_match_arm)]

pub mod certname;
pub mod profile;
pub mod store;

mod audit;
mod authorisation;
mod clock;
mod crl;
mod detached;
mod door;
mod engine;
mod evidence;
mod faults;
mod inventory;
mod issuer;
mod issuing;
mod ledger;
mod model;
mod objects;
mod redaction;
mod request;
mod rules;
mod telemetry;
mod token;

pub use audit::Audit;
pub use audit::reconciliation::{Finding, ImportDigest, Reconciliation, reconcile};
pub use audit::sealing;
pub use audit::sealing::{Seal, SealFault, SealHead, SealKey, Sealed};
pub use audit::witness::{Disagreement, Witness, WitnessedCrl};
pub use audit::{
    AuditEntry, AuditFilter, AuditOrder, AuditPage, AuditPlace, AuditQuery, AuditRecord,
};
pub use authorisation::actor::{Actor, Admitted, Roles};
pub use authorisation::grant;
pub use clock::{Clock, Entropy, EntropyFault, SystemClock};
pub use countersign_policy::AccessAnswer;
pub use countersign_policy::one_source;
pub use crl::ancestors::AncestorCrlFault;
pub use crl::{CrlEnd, CrlState};
pub use door::DoorSpec;
pub use engine::{Authority, AuthorityConfig, Limits};
pub use evidence::access::AccessReviews;
pub use evidence::decider::{Deciders, Question, QuestionToken};
pub use evidence::local::{Busy, LocalEvidence};
pub use faults::{ActFault, EngineError, RevokeFault, SubmitFault};
pub use inventory::Inventory;
pub use inventory::windows::{MAX_ISSUANCES, MAX_WINDOW_SECONDS, WindowFault};
pub use inventory::{
    Imported, InventoryFault, MAX_MACHINE_ADDRESSES, MAX_MACHINE_TEXT, MachineFault, OnExisting,
    Put, checked_machine,
};
pub use issuer::Issuers;
pub use issuer::chain::{Chain, Way};
pub use issuer::keystore::{KeyStore, SignFault, Signature};
pub use issuer::per_issuer::PerIssuer;
pub use issuer::signer::{OnWaiting, Signer};
pub use issuer::{Issuer, IssuerFault, IssuerId, Serials};
pub use issuing::stages::{Draft, Intended, Issued};
pub use issuing::{Outcome, Recorded, ShownCertificate};
pub use ledger::Ledger;
pub use ledger::adoption::Adoption;
pub use ledger::renewal::{RenewFault, Renewed};
pub use ledger::retirement::Retired;
pub use model::{
    AncestorCrl, CrlRecord, CrlScope, DeferredRequest, Door, Intent, LedgerEntry,
    ListedCertificate, MachineRecord, Owner, PolicyVersion, RememberedAllow, RequestId,
    RequestRecord, RequestState, Revision, Revocation, Revoked, inventory_name,
};
pub use objects::Objects;
pub use objects::{
    ObjectFault, ObjectKey, ObjectOrder, ObjectRecord, State, StateChange, StateChangeKind,
};
pub use profile::{Profile, ProfileFault};
pub use redaction::shown;
pub use request::Requests;
pub use request::acts::{Act, OnUnsignable};
pub use request::collection::{Collected, Held, Keeper, PlainKeeper, Retention, WhenEnded};
pub use request::confirmation::{Confirmation, Confirmer};
pub use request::denials::RepeatedDenials;
pub use request::settlement::Settlement;
pub use request::submission::{Decision, Duplicate, Submission, Submitted};
pub use rules::Rules;
pub use rules::versions::policy_version;
pub use store::Store;
pub use telemetry::{
    CommitOutcome, DecisionOutcome, Ended, ExecutionOutcome, Honored, Telemetry, TokenEvent,
    Unobserved, WebhookOutcome,
};
pub use token::Tokens;
pub use token::bootstrap::{
    BootstrapId, BootstrapOrder, BootstrapRecord, BootstrapStatus, BootstrapText, BootstrapToken,
    BootstrapUser, MintedBootstrap, bootstrap_ids_in, masked_bootstrap_tokens,
};
pub use token::{
    BearerToken, CarriedToken, Check, FoundToken, ListedToken, MacKey, MacKeyTooShort, MacKeys,
    Minted, NotAToken, TokenDetail, TokenFault, TokenFilter, TokenId, TokenOrder, TokenRecord,
    TokenSettings, TokenStanding, TokenStatus, TokenText, TokenUseRecord, Validation,
    looks_like_a_token, masked_tokens,
};
