//! Enrolment tokens: one-time passwords, minted for a name, carried in the request, used up by its approval.
//!
//! The first use that is on record ends a token's power to authorise; from then on it is only a key to the outcome that it
//! had. What is kept of a token verifies it and does not reveal it.

pub(crate) mod bootstrap;
mod ending;
mod mac;
mod mint;
mod order;
mod presented;
mod recall;
mod record;
mod rejection;
mod replacement;
mod text;
mod validation;

use std::fmt;
use std::sync::Arc;

use countersign_pki::Carrier;

pub(crate) use ending::MAX_USES;
pub use mac::{MacKey, MacKeyTooShort, MacKeys};
pub use mint::Minted;
pub(crate) use mint::name_of;
pub use order::TokenOrder;
pub use presented::{BearerToken, CarriedToken};
pub(crate) use presented::{LookedUp, Presented};
pub(crate) use recall::Recalled;
pub use record::{
    FoundToken, ListedToken, TokenFilter, TokenId, TokenRecord, TokenStanding, TokenStatus,
    TokenUseRecord,
};
pub(crate) use rejection::{objection, rejected, report_rejection};
pub(crate) use replacement::Revoking;
pub use text::{NotAToken, TokenText, looks_like_a_token, masked_tokens};
pub use validation::{Check, Validation};

use crate::authorisation::grant::Needed;
use crate::certname::CertnameFault;
use crate::engine::Core;
use crate::faults::EngineError;
use crate::store::StoreFault;

/// Enrolment tokens and bootstrap tokens.
#[derive(Clone)]
pub struct Tokens {
    pub(crate) core: Arc<Core>,
}

impl Tokens {
    /// For how many seconds a token for one name may be good.
    pub fn longest_seconds(&self) -> u64 {
        self.core.rules.load().tokens.max_ttl
    }

    /// How many tokens can be used now. More than may be are not counted to the end.
    pub async fn active(&self) -> Result<usize, StoreFault> {
        let at_most = self.core.rules.load().tokens.max_active.saturating_add(1);
        let now = self.core.clock.now();
        self.core.store.active_tokens(now, at_most).await
    }
}

/// How tokens are handled. What becomes of requests whose token is wrong is said by the policy.
#[derive(Clone, Debug)]
pub struct TokenSettings {
    /// Whether tokens are minted and looked at.
    pub enabled: bool,
    /// Where in a request they may be.
    pub sources: Vec<Carrier>,
    /// How long a token is good for, in seconds, where nobody says.
    pub default_ttl: u64,
    /// How long at most.
    pub max_ttl: u64,
    /// How long one for many names at most.
    pub glob_max_ttl: u64,
    /// How long the same key may ask for the same outcome again, in seconds.
    pub retry_window: u64,
    /// How long tokens that are over are kept, in seconds.
    pub purge_after: u64,
    /// How many tokens may be usable at a time.
    pub max_active: usize,
    /// What their records are kept under.
    pub keys: MacKeys,
}

impl TokenSettings {
    /// As they are where nobody says otherwise: off.
    pub fn standard() -> Self {
        Self {
            enabled: false,
            sources: vec![Carrier::ChallengePassword],
            default_ttl: 6 * 3600,
            max_ttl: 7 * 86_400,
            glob_max_ttl: 86_400,
            retry_window: 1800,
            purge_after: 30 * 86_400,
            max_active: 100_000,
            keys: MacKeys::default(),
        }
    }
}

/// A token, where it stands, and its uses.
#[derive(Clone, Debug)]
pub struct TokenDetail {
    /// The token and where it stands.
    pub listed: ListedToken,
    /// Its uses, oldest first.
    pub uses: Vec<TokenUseRecord>,
}

/// Why something was not done with a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenFault {
    /// They are not in use.
    #[error("enrolment tokens are not enabled; set tokens.enabled: true in the configuration")]
    Disabled,
    /// Nobody can enrol under the name.
    #[error("{name} cannot be used as a name: {fault}")]
    Name {
        /// The name, fit to be shown.
        name: String,
        /// Why not.
        fault: CertnameFault,
    },
    /// A field of an order that cannot be.
    #[error("{field}: {problem}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// As many can be used as may be.
    #[error(
        "{limit} tokens can be used already (tokens.max_active); revoke some or wait until they expire"
    )]
    TooMany {
        /// How many may be.
        limit: usize,
    },
    /// The order was carried out before.
    #[error(
        "this order was carried out before, as token {id}; its secret is not shown again: revoke it and mint another"
    )]
    AlreadyOrdered {
        /// The token.
        id: TokenId,
    },
    /// There is none.
    #[error("there is no token {id}")]
    NotFound {
        /// What was looked for, fit to be shown.
        id: String,
    },
    /// It has no use that waits for its certificate.
    #[error("token {id} has no use to release: {why}")]
    NotReserved {
        /// The token.
        id: TokenId,
        /// Why not.
        why: &'static str,
    },
    /// Whoever asks may not.
    #[error(transparent)]
    Forbidden(#[from] Needed),
    /// It could not be carried through.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl TokenFault {
    pub(crate) fn field(field: &'static str, problem: impl fmt::Display) -> Self {
        Self::Field {
            field,
            problem: problem.to_string(),
        }
    }
}
