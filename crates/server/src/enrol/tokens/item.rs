//! Tokens, from the engine's records to what the interface shows. Nothing but a new token has its secret, and nothing has what
//! verifies it.

use countersign_api::{
    EnrolmentToken, EnrolmentTokenDetail, MintedToken, Secret, TokenStatus, TokenUseRow,
};
use countersign_authority::{
    ListedToken, Minted, TokenDetail, TokenId, TokenStanding, TokenUseRecord,
};
use countersign_policy::TokenBinding;
use zeroize::Zeroizing;

pub(super) fn minted(minted: &Minted) -> MintedToken {
    MintedToken {
        id: id(&minted.record.id),
        token: Secret(Zeroizing::new(minted.token.expose().to_owned())),
        expires_at: minted.record.expires_at,
    }
}

pub(super) fn token(token: ListedToken) -> EnrolmentToken {
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
    EnrolmentToken {
        id: id(&record.id),
        certname,
        glob,
        status: shown_status(status),
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
        superseded_by: superseded_by.as_ref().map(id),
        locked_at,
        failed_uses: record.failed_uses,
        external_ref: said(record.external_ref),
        note: said(record.note),
    }
}

pub(super) fn detail(detail: TokenDetail) -> EnrolmentTokenDetail {
    EnrolmentTokenDetail {
        token: token(detail.listed),
        use_rows: detail.uses.into_iter().map(use_row).collect(),
    }
}

fn use_row(used: TokenUseRecord) -> TokenUseRow {
    TokenUseRow {
        certname: used.certname,
        spki_sha256: used.key_fingerprint.to_hex(),
        state: used.state,
        serial: used.serial.map(|serial| serial.to_hex()),
        request: used.request.map(|id| id.to_string()),
        at: used.at,
        retry_until: used.retry_until,
    }
}

pub(in crate::enrol) fn id(id: &TokenId) -> countersign_api::TokenId {
    countersign_api::TokenId(id.as_str().to_owned())
}

fn shown_status(status: countersign_authority::TokenStatus) -> TokenStatus {
    match status {
        countersign_authority::TokenStatus::Active => TokenStatus::Active,
        countersign_authority::TokenStatus::Reserved => TokenStatus::Reserved,
        countersign_authority::TokenStatus::Issued => TokenStatus::Issued,
        countersign_authority::TokenStatus::Exhausted => TokenStatus::Exhausted,
        countersign_authority::TokenStatus::Expired => TokenStatus::Expired,
        countersign_authority::TokenStatus::Revoked => TokenStatus::Revoked,
        countersign_authority::TokenStatus::Locked => TokenStatus::Locked,
    }
}

/// The status that a listing is limited to.
pub(super) fn asked_status(status: TokenStatus) -> countersign_authority::TokenStatus {
    match status {
        TokenStatus::Active => countersign_authority::TokenStatus::Active,
        TokenStatus::Reserved => countersign_authority::TokenStatus::Reserved,
        TokenStatus::Issued => countersign_authority::TokenStatus::Issued,
        TokenStatus::Exhausted => countersign_authority::TokenStatus::Exhausted,
        TokenStatus::Expired => countersign_authority::TokenStatus::Expired,
        TokenStatus::Revoked => countersign_authority::TokenStatus::Revoked,
        TokenStatus::Locked => countersign_authority::TokenStatus::Locked,
    }
}
