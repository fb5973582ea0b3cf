//! What the native API (`/enrol/v1`) reads and writes, for the server that answers and for those who call it.
//!
//! The server's description of itself is made of these types: their names and doc comments stand in it. A body that is sent
//! is refused if it has a member that is not here; an answer may have more members in a later version.

/// Gives each of an enum's values its word: the one that stands in JSON.
macro_rules! words {
    ($type:ident { $($value:ident => $word:literal,)+ }) => {
        impl $type {
            /// The word in JSON.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }
    };
}

mod audit;
mod bootstrap;
mod certificates;
mod error;
mod inventory;
mod number;
mod page;
mod policy;
mod requests;
mod secret;
mod signing_policies;
mod tokens;

pub use audit::{AuditEntry, AuditPlace, Checkpoint, Reconciliation, Revision, Seal};
pub use bootstrap::{
    BootstrapId, BootstrapStatus, BootstrapToken, BootstrapTokenOrder, MintedBootstrapToken,
};
pub use certificates::{Certificate, Issued, REVOCATION_REASONS, Revocation, Revoked};
pub use error::{Code, ErrorBody, ErrorMembers};
pub use inventory::{
    MAX_ISSUANCES, MAX_MACHINE_ADDRESSES, MAX_MACHINE_TEXT, MAX_MACHINES, MAX_MACHINES_BODY,
    MAX_WINDOW_SECONDS, Machine, MachineImport, MachineImportResult, MachineRecord,
    MachineRecordAddress, MachineReplacement, Window, WindowOpening, WindowState,
};
pub use number::MAX as MAX_NUMBER;
pub use page::{FilteredPage, Page};
pub use policy::{Decision, Policy, PolicyRule, PolicyVersion, RefusedPolicy, Rejection};
pub use requests::{
    AdministratorRequest, Approval, Denial, KubernetesUser, KubernetesUserRequest, MAX_REASON,
    Request, RequestState,
};
pub use secret::Secret;
pub use signing_policies::{
    KeptSigningPolicies, MAX_SIGNING_POLICIES_BODY, NamedSigningPolicy, SigningPolicies,
    SigningPolicySet,
};
pub use tokens::{
    EnrolmentToken, EnrolmentTokenDetail, MintedToken, TokenCheck, TokenId, TokenOrder,
    TokenStatus, TokenUseRow,
};

/// Where all calls are.
pub const BASE: &str = "/enrol/v1";
