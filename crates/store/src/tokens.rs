//! Enrolment tokens and their uses in their tables.
//!
//! A token is usable or not by one condition, [`USABLE`], which the precondition asks and the write that uses a token up
//! repeats: nothing is read first and written afterwards.

mod change;
mod listing;

use countersign_authority::store::Precondition;
use countersign_authority::{
    FoundToken, ListedToken, RequestId, TokenId, TokenRecord, TokenStanding, TokenUseRecord,
};
use countersign_pki::{Fingerprint, Serial, UnixTime};
use countersign_policy::{TokenBinding, TokenUseState};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use crate::fault::Fault;
use crate::query::{all, bound, epoch, one};
use crate::row::Columns;

pub(crate) use change::write;
pub(crate) use listing::tokens;

pub(crate) fn token(
    connection: &Connection,
    id: &TokenId,
    certname: &str,
    key_fingerprint: &Fingerprint,
) -> Result<Option<FoundToken>, Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let record = record(&snapshot, id)?;
    let used = |condition| {
        let values = params![id.as_str(), certname, key_fingerprint.as_bytes()];
        one(&snapshot, &first_use(condition), values, use_record)
    };
    // Asked for also where there is no such token: whoever tries ids must not see it in how long the answer takes.
    let (epoch, same, other) = (epoch(&snapshot)?, used(SAME)?, used(OTHER)?);
    snapshot.commit()?;
    Ok(record.map(|record| FoundToken {
        is_stale: record.epoch < epoch,
        same,
        other,
        record,
    }))
}

pub(crate) fn listed_token(
    connection: &Connection,
    id: &TokenId,
    now: UnixTime,
) -> Result<Option<ListedToken>, Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let epoch = epoch(&snapshot)?;
    let listed = record(&snapshot, id)?
        .map(|record| listed(&snapshot, record, epoch, now))
        .transpose()?;
    snapshot.commit()?;
    Ok(listed)
}

pub(crate) fn token_uses(
    connection: &Connection,
    id: &TokenId,
    limit: usize,
) -> Result<Vec<TokenUseRecord>, Fault> {
    let sql = format!("SELECT {USE} FROM token_uses WHERE token = ?1 ORDER BY number LIMIT ?2");
    all(
        connection,
        &sql,
        params![id.as_str(), bound(limit)],
        use_record,
    )
}

pub(crate) fn active_tokens_of(
    connection: &Connection,
    certname: &str,
    now: UnixTime,
) -> Result<Vec<TokenRecord>, Fault> {
    let sql = format!(
        "SELECT {TOKEN} FROM tokens INDEXED BY tokens_usable_of
         WHERE value = ?1 AND kind = 'exact' AND phase = 'open' AND epoch = {EPOCH} AND expires_at > ?2
         ORDER BY number"
    );
    all(connection, &sql, params![certname, now.0], token_record)
}

pub(crate) fn token_ordered(
    connection: &Connection,
    created_by: &str,
    idempotency_key: &str,
) -> Result<Option<TokenId>, Fault> {
    let sql = "SELECT id FROM tokens WHERE created_by = ?1 AND idempotency_key = ?2";
    one(
        connection,
        sql,
        params![created_by, idempotency_key],
        identity,
    )
}

pub(crate) fn active_tokens(
    connection: &Connection,
    now: UnixTime,
    at_most: usize,
) -> Result<usize, Fault> {
    let sql = format!(
        "SELECT count(*) FROM (
             SELECT 1 FROM tokens INDEXED BY tokens_usable
             WHERE phase = 'open' AND epoch = {EPOCH} AND expires_at > ?1 LIMIT ?2)"
    );
    let counted = one(connection, &sql, params![now.0, bound(at_most)], |row| {
        Columns::of(row, "count").unsigned()
    })?;
    Ok(counted.map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX)))
}

pub(crate) fn tokens_over(
    connection: &Connection,
    before: UnixTime,
    limit: usize,
) -> Result<Vec<TokenId>, Fault> {
    let sql = "SELECT id FROM tokens WHERE over_at < ?1 ORDER BY over_at LIMIT ?2";
    all(connection, sql, params![before.0, bound(limit)], identity)
}

/// Whether a precondition about tokens holds.
pub(crate) fn holds(connection: &Connection, precondition: &Precondition) -> Result<bool, Fault> {
    match precondition {
        Precondition::TokenUsable {
            id,
            certname,
            key_fingerprint,
            at,
        } => {
            let sql = format!(
                "SELECT 1 FROM tokens WHERE id = ?1 AND {USABLE}
                     AND NOT EXISTS (SELECT 1 FROM token_uses
                                     WHERE token = ?1 AND certname = ?4 AND key_fingerprint = ?5)"
            );
            exists(
                connection,
                &sql,
                params![
                    id.as_str(),
                    at.0,
                    with_skew(*at).0,
                    certname,
                    key_fingerprint.as_bytes()
                ],
            )
        }
        Precondition::TokenAt { id, version } => {
            let stored: Option<i64> = connection
                .prepare_cached("SELECT version FROM tokens WHERE id = ?1")?
                .query_row(params![id.as_str()], |row| row.get(0))
                .optional()?;
            Ok(stored.is_some() && stored == i64::try_from(version.0).ok())
        }
        Precondition::ActiveTokens { certname, ids, at } => {
            let active = active_tokens_of(connection, certname, *at)?;
            let mut active: Vec<&TokenId> = active.iter().map(|record| &record.id).collect();
            let mut expected: Vec<&TokenId> = ids.iter().collect();
            active.sort();
            expected.sort();
            expected.dedup();
            Ok(active == expected)
        }
        Precondition::TokenNotOrdered {
            created_by,
            idempotency_key,
        } => Ok(token_ordered(connection, created_by, idempotency_key)?.is_none()),
        Precondition::TokenReserved {
            id,
            certname,
            key_fingerprint,
            request,
        } => exists(
            connection,
            "SELECT 1 FROM token_uses
             WHERE token = ?1 AND certname = ?2 AND key_fingerprint = ?3 AND state = 'reserved' AND request IS ?4",
            params![
                id.as_str(),
                certname,
                key_fingerprint.as_bytes(),
                request.as_ref().map(RequestId::as_bytes)
            ],
        ),
        _ => Err(Fault::Corrupt {
            what: "precondition of a token",
        }),
    }
}

/// A token with its status, which depends on its newest use.
fn listed(
    connection: &Connection,
    record: TokenRecord,
    epoch: u64,
    now: UnixTime,
) -> Result<ListedToken, Fault> {
    let id = record.id.as_str();
    let last = match record.uses {
        0 => None,
        _ => one(connection, &last_use(), params![id], use_record)?,
    };
    let status = record.status(record.epoch < epoch, last.as_ref(), now);
    Ok(ListedToken { record, status })
}

fn record(connection: &Connection, id: &TokenId) -> Result<Option<TokenRecord>, Fault> {
    let sql = format!("SELECT {TOKEN} FROM tokens WHERE id = ?1");
    one(connection, &sql, params![id.as_str()], token_record)
}

pub(crate) fn first_use(condition: &str) -> String {
    format!("SELECT {USE} FROM token_uses WHERE token = ?1 AND {condition} ORDER BY number LIMIT 1")
}

pub(crate) fn last_use() -> String {
    format!("SELECT {USE} FROM token_uses WHERE token = ?1 ORDER BY number DESC LIMIT 1")
}

fn exists(connection: &Connection, sql: &str, values: &[&dyn ToSql]) -> Result<bool, Fault> {
    Ok(connection.prepare_cached(sql)?.exists(values)?)
}

/// The latest `not_before` that a clock which is behind by no more than the permitted skew may still take for the past.
fn with_skew(at: UnixTime) -> UnixTime {
    at.plus_seconds(SKEW_SECONDS)
}

fn identity(row: &Row<'_>) -> Result<TokenId, Fault> {
    let text: String = Columns::of(row, "token").take()?;
    known(TokenId::parse(&text))
}

fn token_record(row: &Row<'_>) -> Result<TokenRecord, Fault> {
    let mut columns = Columns::of(row, "token");
    let id: String = columns.take()?;
    Ok(TokenRecord {
        id: known(TokenId::parse(&id))?,
        mac: columns.take()?,
        mac_key_id: columns.take()?,
        terms_mac: columns.take()?,
        binding: {
            let (kind, value): (String, String) = (columns.take()?, columns.take()?);
            known(match kind.as_str() {
                "exact" => Some(TokenBinding::Exact(value)),
                "glob" => Some(TokenBinding::Glob(value)),
                _ => None,
            })?
        },
        not_before: UnixTime(columns.take()?),
        expires_at: UnixTime(columns.take()?),
        max_uses: columns.take()?,
        uses: columns.take()?,
        standing: {
            let word: String = columns.take()?;
            let at: Option<i64> = columns.take()?;
            let superseded_by: Option<String> = columns.take()?;
            known(match (word.as_str(), at.map(UnixTime)) {
                ("active", None) => Some(TokenStanding::Active),
                ("locked", Some(at)) => Some(TokenStanding::Locked { at }),
                ("revoked", Some(at)) => Some(TokenStanding::Revoked {
                    at,
                    superseded_by: superseded_by
                        .map(|id| known(TokenId::parse(&id)))
                        .transpose()?,
                }),
                (_, _) => None,
            })?
        },
        terms: columns.document()?,
        created_by: columns.take()?,
        external_ref: columns.take()?,
        note: columns.take()?,
        created_at: UnixTime(columns.take()?),
        failed_uses: columns.take()?,
        epoch: columns.unsigned()?,
        idempotency_key: columns.take()?,
        version: columns.revision()?,
    })
}

fn use_record(row: &Row<'_>) -> Result<TokenUseRecord, Fault> {
    let mut columns = Columns::of(row, "use of a token");
    let token: String = columns.take()?;
    Ok(TokenUseRecord {
        token: known(TokenId::parse(&token))?,
        certname: columns.take()?,
        key_fingerprint: Fingerprint::from_bytes(columns.take()?),
        state: {
            let word: String = columns.take()?;
            let states = [TokenUseState::Reserved, TokenUseState::Issued];
            known(states.into_iter().find(|state| state.word() == word))?
        },
        request: columns
            .take::<Option<[u8; 16]>>()?
            .map(RequestId::from_bytes),
        serial: columns
            .take::<Option<Vec<u8>>>()?
            .map(|bytes| known(Serial::from_be_bytes(&bytes).ok()))
            .transpose()?,
        at: UnixTime(columns.take()?),
        retry_until: UnixTime(columns.take()?),
    })
}

fn known<T>(value: Option<T>) -> Result<T, Fault> {
    value.ok_or(Fault::Corrupt { what: "token" })
}

/// The columns that [`token_record`] reads, in its order.
const TOKEN: &str = "id, mac, mac_key_id, terms_mac, kind, value, not_before, expires_at, max_uses, uses, standing, ended_at, \
     superseded_by, terms, created_by, external_ref, note, created_at, failed_uses, epoch, idempotency_key, version";

/// The columns that [`use_record`] reads, in its order.
const USE: &str = "token, certname, key_fingerprint, state, request, serial, at, retry_until";

/// A use by the name `?2` with the key `?3`.
pub(crate) const SAME: &str = "certname = ?2 AND key_fingerprint = ?3";

/// A use by any other. Read in the order of uses, of which at most one is passed over.
pub(crate) const OTHER: &str = "NOT (+certname = ?2 AND +key_fingerprint = ?3)";

/// Whether a token has a use left at the time `?2`, which with its skew is `?3`.
const USABLE: &str = "standing = 'active' AND epoch = (SELECT epoch FROM store_state WHERE one = 1) \
     AND not_before <= ?3 AND expires_at > ?2 AND uses < max_uses";

/// How often the store was restored.
const EPOCH: &str = "(SELECT epoch FROM store_state WHERE one = 1)";

/// Clocks of authority and minter may differ by this much before a token that is good from now on is refused; there is no
/// such grace at its end.
const SKEW_SECONDS: u64 = 60;
