//! Enrolment tokens and their uses.

use countersign_authority::store::{Precondition, Write};
use countersign_authority::{
    FoundToken, ListedToken, TokenFilter, TokenId, TokenRecord, TokenUseRecord,
};
use countersign_pki::{Fingerprint, UnixTime};
use rusqlite::Connection;

use crate::fault::Fault;

const NOT_YET: Fault = Fault::Corrupt { what: "token" };

pub(crate) fn token(
    _: &Connection,
    _: &TokenId,
    _: &str,
    _: &Fingerprint,
) -> Result<Option<FoundToken>, Fault> {
    Err(NOT_YET)
}
pub(crate) fn listed_token(
    _: &Connection,
    _: &TokenId,
    _: UnixTime,
) -> Result<Option<ListedToken>, Fault> {
    Err(NOT_YET)
}
pub(crate) fn tokens(_: &Connection, _: &TokenFilter) -> Result<Vec<ListedToken>, Fault> {
    Err(NOT_YET)
}
pub(crate) fn token_uses(
    _: &Connection,
    _: &TokenId,
    _: usize,
) -> Result<Vec<TokenUseRecord>, Fault> {
    Err(NOT_YET)
}
pub(crate) fn active_tokens_of(
    _: &Connection,
    _: &str,
    _: UnixTime,
) -> Result<Vec<TokenRecord>, Fault> {
    Err(NOT_YET)
}
pub(crate) fn token_ordered(_: &Connection, _: &str, _: &str) -> Result<Option<TokenId>, Fault> {
    Err(NOT_YET)
}
pub(crate) fn active_tokens(_: &Connection, _: UnixTime, _: usize) -> Result<usize, Fault> {
    Err(NOT_YET)
}
pub(crate) fn tokens_over(_: &Connection, _: UnixTime, _: usize) -> Result<Vec<TokenId>, Fault> {
    Err(NOT_YET)
}

/// Whether a precondition about tokens holds.
pub(crate) fn holds(_: &Connection, _: &Precondition) -> Result<bool, Fault> {
    Err(NOT_YET)
}

/// Writes what a change says of tokens, as the commit with this revision.
pub(crate) fn write(_: &Connection, _: &Write, _: i64) -> Result<(), Fault> {
    Err(NOT_YET)
}
