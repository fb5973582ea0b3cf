//! Minting, and what administrators do with tokens.

use std::collections::BTreeMap;

use countersign_pki::UnixTime;
use countersign_policy::{Requester, TokenBinding};

use super::{ListedToken, TokenDetail, TokenFault, TokenFilter, TokenId, TokenRecord, TokenText};
use crate::engine::Authority;
use crate::faults::Broken;
use crate::store::StoreFault;

/// What a token shall be good for. It is checked when it is minted.
#[derive(Clone, Debug)]
pub struct TokenOrder {
    /// Whom it is for; names in any case.
    pub binding: TokenBinding,
    /// For how many seconds it is good; `None`: as configured.
    pub ttl_seconds: Option<u64>,
    /// For how many certificates; `None`: one. A pattern must say.
    pub max_uses: Option<u32>,
    /// From when on; `None`: now.
    pub not_before: Option<UnixTime>,
    /// Alternative names beside the name itself, as `DNS:x` or `IP:y`.
    pub allowed_sans: Vec<String>,
    /// Extensions and their values, by short name or dotted identifier; `None`: what the signer permits.
    pub allowed_extensions: Option<BTreeMap<String, Vec<String>>>,
    /// The one key that it is for, SHA-256 in hexadecimal.
    pub spki_sha256: Option<String>,
    /// Networks that the request must come from.
    pub source_cidrs: Vec<String>,
    /// Whether the certificate that the name has may be replaced.
    pub allow_replace: bool,
    /// Whether earlier tokens of the name stay good.
    pub keep_existing: bool,
    /// The one signer that it is for.
    pub profile: Option<String>,
    /// What it is called elsewhere.
    pub external_ref: String,
    /// For people.
    pub note: String,
}

impl TokenOrder {
    /// An order for one name with nothing else said.
    pub fn exact(name: &str) -> Self {
        Self::bound(TokenBinding::Exact(name.to_owned()))
    }

    /// An order with nothing else said.
    pub fn bound(binding: TokenBinding) -> Self {
        Self {
            binding,
            ttl_seconds: None,
            max_uses: None,
            not_before: None,
            allowed_sans: Vec::new(),
            allowed_extensions: None,
            spki_sha256: None,
            source_cidrs: Vec::new(),
            allow_replace: false,
            keep_existing: false,
            profile: None,
            external_ref: String::new(),
            note: String::new(),
        }
    }
}

/// A new token. This is the only time that it is whole.
#[derive(Debug)]
pub struct Minted {
    /// What is on record.
    pub record: TokenRecord,
    /// The token itself.
    pub token: TokenText,
}

impl Authority {
    /// Whether tokens are in use.
    pub fn tokens_enabled(&self) -> bool {
        self.core.rules.load().tokens.enabled
    }

    /// Mints a token. One for a name takes the place of the name's earlier ones, unless the order says otherwise.
    pub async fn mint_token(
        &self,
        _order: TokenOrder,
        _actor: &Requester,
        _idempotency_key: Option<&str>,
    ) -> Result<Minted, TokenFault> {
        Err(Broken::Defect.into())
    }

    /// A page of tokens, newest first.
    pub async fn tokens(&self, filter: TokenFilter) -> Result<Vec<ListedToken>, StoreFault> {
        self.core.store.tokens(filter).await
    }

    /// A token with its uses.
    pub async fn token(&self, _id: &TokenId) -> Result<Option<TokenDetail>, StoreFault> {
        Err(StoreFault::Stopped)
    }

    /// Takes a token back, on all replicas at once; with it, if so asked, the certificates that it was used for. One that
    /// was taken back before stays as it was.
    pub async fn revoke_token(
        &self,
        _id: &TokenId,
        _revoke_certificates: bool,
        _actor: &Requester,
    ) -> Result<TokenRecord, TokenFault> {
        Err(Broken::Defect.into())
    }

    /// Takes back every token for exactly this name that can be used. Returns how many there were.
    pub async fn revoke_tokens_of(
        &self,
        _certname: &str,
        _actor: &Requester,
    ) -> Result<usize, TokenFault> {
        Err(Broken::Defect.into())
    }

    /// Gives back a use whose certificate was never signed; what was begun for it is ended.
    pub async fn release_token(&self, _id: &TokenId, _actor: &Requester) -> Result<(), TokenFault> {
        Err(Broken::Defect.into())
    }
}
