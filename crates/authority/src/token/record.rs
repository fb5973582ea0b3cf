//! Tokens and their uses as they are stored.

use std::fmt;

use countersign_pki::{Fingerprint, Serial, UnixTime};
use countersign_policy::{TokenBinding, TokenTerms, TokenUse, TokenUseState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mac::{Kept, Terms};
use crate::model::{RequestId, Revision};

/// The public part of a token: 80 random bits in base32.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct TokenId(String);

impl TokenId {
    /// Reads the 16 characters; whatever is not an id is nobody's.
    pub fn parse(text: &str) -> Option<Self> {
        super::text::is_id(text).then(|| Self(text.to_owned()))
    }

    pub(crate) fn known(text: String) -> Self {
        Self(text)
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A token on record. Its secret is nowhere; what is kept verifies it.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// Its public part.
    pub id: TokenId,
    /// HMAC-SHA-256 or SHA-256 of its secret.
    pub mac: [u8; 32],
    /// The key of the former; empty: none.
    pub mac_key_id: String,
    /// HMAC-SHA-256, by the same key, of what the record says and nobody may change; none without a key.
    pub terms_mac: Option<[u8; 32]>,
    /// Whom it is for.
    pub binding: TokenBinding,
    /// Before this it is not good.
    pub not_before: UnixTime,
    /// From this on it is not good.
    pub expires_at: UnixTime,
    /// How many certificates it is good for.
    pub max_uses: u32,
    /// How many it has been used for.
    pub uses: u32,
    /// What was done about it.
    pub standing: TokenStanding,
    /// What the certificate may say.
    pub terms: TokenTerms,
    /// Who minted it.
    pub created_by: String,
    /// What it is called elsewhere, for deciders.
    pub external_ref: String,
    /// For people.
    pub note: String,
    /// When it was minted.
    pub created_at: UnixTime,
    /// How often it was misused with its right secret.
    pub failed_uses: u32,
    /// How often the store had been restored when it was minted; the store sets it.
    pub epoch: u64,
    /// What the client called the order, so that it is carried out once.
    pub idempotency_key: Option<String>,
    /// When it was changed last; the store sets it.
    pub version: Revision,
}

impl fmt::Debug for TokenRecord {
    /// Without what verifies the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRecord")
            .field("id", &self.id)
            .field("binding", &self.binding)
            .field("standing", &self.standing)
            .field("uses", &self.uses)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// What was done about a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenStanding {
    /// Nothing.
    Active,
    /// It was misused too often.
    Locked {
        /// When.
        at: UnixTime,
    },
    /// It was taken back.
    Revoked {
        /// When.
        at: UnixTime,
        /// The token that took its place, if that was why.
        superseded_by: Option<TokenId>,
    },
}

impl TokenStanding {
    /// The word in the store.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Locked { .. } => "locked",
            Self::Revoked { .. } => "revoked",
        }
    }
}

/// Where a token stands, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenStatus {
    /// It can be used.
    Active,
    /// Its only use is being signed.
    Reserved,
    /// Its only use has its certificate, which the same key may still fetch by it.
    Issued,
    /// It was used for all that it was good for.
    Exhausted,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
    /// It was misused too often.
    Locked,
}

impl TokenStatus {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Active,
        Self::Reserved,
        Self::Issued,
        Self::Exhausted,
        Self::Expired,
        Self::Revoked,
        Self::Locked,
    ];

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Reserved => "reserved",
            Self::Issued => "issued",
            Self::Exhausted => "exhausted",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Locked => "locked",
        }
    }

    /// The status of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }
}

/// One use of a token, by one name and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUseRecord {
    /// Which token.
    pub token: TokenId,
    /// By which name.
    pub certname: String,
    /// By which key.
    pub key_fingerprint: Fingerprint,
    /// How far it has come.
    pub state: TokenUseState,
    /// The request that it approved; none if somebody else signs.
    pub request: Option<RequestId>,
    /// Its certificate.
    pub serial: Option<Serial>,
    /// When.
    pub at: UnixTime,
    /// Until then the same key may ask for the same outcome again.
    pub retry_until: UnixTime,
}

impl TokenUseRecord {
    /// What rules see of it.
    pub fn facts(&self) -> TokenUse {
        TokenUse {
            certname: self.certname.clone(),
            spki_sha256: self.key_fingerprint.to_hex(),
            state: self.state,
            serial: self.serial.as_ref().map(Serial::to_hex),
            at: self.at,
            retry_until: self.retry_until,
        }
    }
}

/// A token and those of its uses that matter for one name and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundToken {
    /// The token.
    pub record: TokenRecord,
    /// Whether it is from before the last restore of the store.
    pub is_stale: bool,
    /// Its use by that name and key.
    pub same: Option<TokenUseRecord>,
    /// Its first use by any other.
    pub other: Option<TokenUseRecord>,
}

/// Which tokens a listing shows.
#[derive(Clone, Debug)]
pub struct TokenFilter {
    /// Only those whose binding is this name or pattern, exactly as it was minted.
    pub certname: Option<String>,
    /// Only those with this status, as of `now`.
    pub status: Option<TokenStatus>,
    /// Only those that were never used.
    pub unused: bool,
    /// Now.
    pub now: UnixTime,
    /// Continue after this one (the last of the page before).
    pub after: Option<TokenId>,
    /// At most so many.
    pub limit: usize,
}

impl TokenFilter {
    /// The newest tokens.
    pub fn newest(now: UnixTime, limit: usize) -> Self {
        Self {
            certname: None,
            status: None,
            unused: false,
            now,
            after: None,
            limit,
        }
    }
}

/// A token of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedToken {
    /// The token.
    pub record: TokenRecord,
    /// Where it stands.
    pub status: TokenStatus,
}

impl TokenRecord {
    /// What verifies it. Where it stands, and how often it was used, changes with time, and is not covered.
    pub(crate) fn kept(&self) -> Kept<'_> {
        Kept {
            id: self.id.as_str(),
            mac: &self.mac,
            key_id: &self.mac_key_id,
            terms_mac: self.terms_mac.as_ref(),
            terms: self.fixed_terms(),
        }
    }

    pub(crate) fn fixed_terms(&self) -> Terms {
        // Members that are empty are left out, so that one that comes later changes no record from before it.
        let terms = serde_json::to_vec(&self.terms).unwrap_or_default();
        Terms::of("enrolment")
            .with(self.id.as_str().as_bytes())
            .with(&self.mac)
            .with(self.binding.kind().as_bytes())
            .with(self.binding.value().as_bytes())
            .with_number(self.not_before.0)
            .with_number(self.expires_at.0)
            .with_number(self.max_uses)
            .with(&terms)
            .with(self.created_by.as_bytes())
            .with(self.external_ref.as_bytes())
            .with_number(self.epoch)
    }

    /// Where it stands. `is_stale`: it is from before a restore; `last`: its newest use.
    pub fn status(
        &self,
        is_stale: bool,
        last: Option<&TokenUseRecord>,
        now: UnixTime,
    ) -> TokenStatus {
        match self.standing {
            TokenStanding::Revoked { .. } => TokenStatus::Revoked,
            TokenStanding::Active | TokenStanding::Locked { .. } if is_stale => {
                TokenStatus::Revoked
            }
            TokenStanding::Locked { .. } => TokenStatus::Locked,
            TokenStanding::Active if self.uses >= self.max_uses => match last {
                Some(only) if self.max_uses == 1 && only.state == TokenUseState::Reserved => {
                    TokenStatus::Reserved
                }
                Some(only) if self.max_uses == 1 && now <= only.retry_until => TokenStatus::Issued,
                Some(_) | None => TokenStatus::Exhausted,
            },
            TokenStanding::Active if now >= self.expires_at => TokenStatus::Expired,
            TokenStanding::Active => TokenStatus::Active,
        }
    }
}
