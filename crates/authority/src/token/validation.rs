//! Tokens that are looked at without a certificate in view: to see what would happen, or because somebody else signs.

use std::borrow::Cow;
use std::net::IpAddr;

use countersign_pki::CheckedCsr;

use super::TokenId;
use crate::engine::Authority;
use crate::faults::{Broken, SubmitFault};
use crate::model::RequestId;
use countersign_policy::{Requester, SignerName};

/// What would happen to a request by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Whether its token would authorise it, or already did.
    pub would_allow: bool,
    /// Why, in one word.
    pub reason: Cow<'static, str>,
    /// Why, in words.
    pub detail: String,
    /// The token's public part.
    pub token: Option<TokenId>,
}

/// What came of a request that somebody else signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validation {
    /// Its token is good, and is used up now, or was by this very key.
    Approved,
    /// It is not.
    Refused {
        /// The record of the refusal.
        id: RequestId,
        /// Why, in one word.
        reason: Cow<'static, str>,
    },
}

impl Authority {
    /// What would happen to a request by its token. Nothing is used up or recorded.
    pub async fn check_token(
        &self,
        _csr: &CheckedCsr,
        _certname: &str,
        _signer: &SignerName,
        _source: Option<IpAddr>,
    ) -> Result<Check, Broken> {
        Err(Broken::Defect)
    }

    /// Uses the token of a request up for somebody else who signs it. The same key may ask again.
    pub async fn validate_token(
        &self,
        _csr: CheckedCsr,
        _signer: &SignerName,
        _requester: Requester,
    ) -> Result<Validation, SubmitFault> {
        Err(Broken::Defect.into())
    }
}
