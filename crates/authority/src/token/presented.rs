//! What a request, or the bearer of a token, presents.

use countersign_pki::CheckedCsr;
use countersign_policy::{TokenBinding, TokenFacts};

use super::TokenId;
use crate::engine::Authority;
use crate::store::StoreFault;

/// What a request carries, before anything is looked up: what rates of failures are counted under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarriedToken {
    /// Nothing, or tokens are not in use.
    None,
    /// A well-formed token; its secret was not looked at.
    Id(TokenId),
    /// Something else.
    Other,
}

/// Who shows a token as a bearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BearerToken {
    /// The token.
    pub id: TokenId,
    /// Whom it is for.
    pub binding: TokenBinding,
}

/// What came with a request.
#[derive(Clone, Debug)]
pub(crate) enum Presented {
    /// A token whose secret was right.
    Verified(TokenId),
    /// Something else, or nothing.
    Other(TokenFacts),
    /// It could not be looked up, in words.
    Unreadable(String),
}

impl Authority {
    /// What a request carries; nothing is looked up.
    pub fn carried_token(&self, _csr: &CheckedCsr) -> CarriedToken {
        CarriedToken::None
    }

    /// Whether a request carries a token that would authorise it, or did: such requests have a budget of their own.
    pub async fn has_good_token(
        &self,
        _csr: &CheckedCsr,
        _certname: &str,
    ) -> Result<bool, StoreFault> {
        Ok(false)
    }

    /// Who shows this as a bearer token: one that can be used, or whose use may be asked for again.
    pub async fn bearer_token(&self, _text: &str) -> Result<Option<BearerToken>, StoreFault> {
        Ok(None)
    }
}
