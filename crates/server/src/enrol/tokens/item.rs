//! Tokens as JSON objects. None but that of a new token has its secret, and none has what verifies it.

use std::collections::BTreeMap;

use countersign_authority::{
    ListedToken, Minted, TokenDetail, TokenId, TokenStanding, TokenStatus, TokenUseRecord,
};
use countersign_pki::UnixTime;
use countersign_policy::{Network, TokenBinding, TokenUseState};
use schemars::JsonSchema;
use serde::Serialize;

/// A new token.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MintedToken")]
pub(in crate::enrol) struct MintedItem<'a> {
    /// Its public part.
    id: &'a TokenId,
    /// The whole token, which is in no other answer.
    token: &'a str,
    /// From this on it is not good.
    expires_at: UnixTime,
}

impl<'a> MintedItem<'a> {
    pub(super) fn of(minted: &'a Minted) -> Self {
        Self {
            id: &minted.record.id,
            token: minted.token.expose(),
            expires_at: minted.record.expires_at,
        }
    }
}

/// One token.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EnrolmentToken")]
pub(in crate::enrol) struct TokenItem {
    /// Its public part.
    id: TokenId,
    /// The one name that it is for; null where it is for many.
    certname: Option<String>,
    /// The pattern of the names that it is for; null where it is for one.
    glob: Option<String>,
    /// Where it stands now.
    status: TokenStatus,
    /// How many certificates it has been used for.
    uses: u32,
    /// How many it is good for.
    max_uses: u32,
    /// Before this it is not good.
    not_before: UnixTime,
    /// From this on it is not good.
    expires_at: UnixTime,
    /// Alternative names that are permitted beside the name itself.
    allowed_sans: Vec<String>,
    /// The extensions that are permitted and their values, by dotted identifier; null where the signer says.
    allowed_extensions: Option<BTreeMap<String, Vec<String>>>,
    /// The one public key that it is for: its SHA-256 in lower-case hexadecimal digits.
    spki_sha256: Option<String>,
    /// The networks that the request must come from; empty: any.
    source_cidrs: Vec<Network>,
    /// Whether the certificate that the name has may be replaced.
    allow_replace: bool,
    /// The one signer that it is for.
    profile: Option<String>,
    /// Who minted it.
    created_by: String,
    /// When it was minted.
    created_at: UnixTime,
    /// When it was taken back.
    revoked_at: Option<UnixTime>,
    /// The token that took its place, if it was taken back for that.
    superseded_by: Option<TokenId>,
    /// When it was locked, because it was misused too often.
    locked_at: Option<UnixTime>,
    /// How often it was misused: its secret was right, and the name, key, source or content of the request was not.
    failed_uses: u32,
    /// What it is called elsewhere.
    external_ref: Option<String>,
    /// For people.
    note: Option<String>,
}

impl TokenItem {
    pub(super) fn of(token: ListedToken) -> Self {
        let ListedToken { record, status } = token;
        let said = |text: String| Some(text).filter(|text| !text.is_empty());
        let (certname, glob) = match record.binding {
            TokenBinding::Exact(name) => (Some(name), None),
            TokenBinding::Glob(pattern) => (None, Some(pattern)),
        };
        let (revoked_at, superseded_by, locked_at) = match record.standing {
            TokenStanding::Active => (None, None, None),
            TokenStanding::Locked { at } => (None, None, Some(at)),
            TokenStanding::Revoked { at, superseded_by } => (Some(at), superseded_by, None),
        };
        let terms = record.terms;
        Self {
            id: record.id,
            certname,
            glob,
            status,
            uses: record.uses,
            max_uses: record.max_uses,
            not_before: record.not_before,
            expires_at: record.expires_at,
            allowed_sans: terms.allowed_sans,
            allowed_extensions: terms.allowed_extensions,
            spki_sha256: terms.spki_sha256,
            source_cidrs: terms.source_cidrs,
            allow_replace: terms.allow_replace,
            profile: said(terms.profile),
            created_by: record.created_by,
            created_at: record.created_at,
            revoked_at,
            superseded_by,
            locked_at,
            failed_uses: record.failed_uses,
            external_ref: said(record.external_ref),
            note: said(record.note),
        }
    }
}

/// One token with its uses.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EnrolmentTokenDetail")]
pub(in crate::enrol) struct DetailItem {
    #[serde(flatten)]
    token: TokenItem,
    /// Its uses, oldest first.
    use_rows: Vec<UseItem>,
}

impl DetailItem {
    pub(super) fn of(detail: TokenDetail) -> Self {
        Self {
            token: TokenItem::of(detail.listed),
            use_rows: detail.uses.into_iter().map(UseItem::of).collect(),
        }
    }
}

/// One use of a token, by one name and key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TokenUseRow")]
struct UseItem {
    /// The name.
    certname: String,
    /// SHA-256 of its public key in lower-case hexadecimal digits.
    spki_sha256: String,
    /// How far it has come.
    state: TokenUseState,
    /// The certificate: its serial number in upper-case hexadecimal digits; null before it is signed, or where somebody else
    /// signs.
    serial: Option<String>,
    /// Identity of the request that it approved; null where somebody else signs.
    #[schemars(extend("format" = "uuid"))]
    request: Option<String>,
    /// When.
    at: UnixTime,
    /// Until then the same key may fetch the same certificate by it.
    retry_until: UnixTime,
}

impl UseItem {
    fn of(used: TokenUseRecord) -> Self {
        Self {
            certname: used.certname,
            spki_sha256: used.key_fingerprint.to_hex(),
            state: used.state,
            serial: used.serial.map(|serial| serial.to_hex()),
            request: used.request.map(|id| id.to_string()),
            at: used.at,
            retry_until: used.retry_until,
        }
    }
}
