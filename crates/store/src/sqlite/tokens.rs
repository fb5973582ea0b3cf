//! Enrolment tokens and their uses in their tables.
//!
//! A token is usable or not by one condition, [`USABLE`], which the precondition asks and the write that uses a token up
//! repeats: nothing is read first and written afterwards.

mod change;
mod listing;

use countersign_authority::store::Precondition;
use countersign_authority::{
    FoundToken, ListedToken, RequestId, TokenId, TokenRecord, TokenUseRecord,
};
use countersign_pki::{Fingerprint, UnixTime};
use rusqlite::{Connection, OptionalExtension, ToSql, params};

use crate::records::{self, TOKEN, USE, with_skew};
use crate::row::{Columns, bound};
use crate::sqlite::fault::Fault;
use crate::sqlite::query::{all, epoch, one};

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
        one(
            &snapshot,
            &first_use(condition),
            values,
            records::use_record,
        )
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
        records::use_record,
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
    all(
        connection,
        &sql,
        params![certname, now.0],
        records::token_record,
    )
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
        records::token_id,
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
    all(
        connection,
        sql,
        params![before.0, bound(limit)],
        records::token_id,
    )
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
        _ => one(connection, &last_use(), params![id], records::use_record)?,
    };
    let status = record.status(record.epoch < epoch, last.as_ref(), now);
    Ok(ListedToken { record, status })
}

fn record(connection: &Connection, id: &TokenId) -> Result<Option<TokenRecord>, Fault> {
    let sql = format!("SELECT {TOKEN} FROM tokens WHERE id = ?1");
    one(
        connection,
        &sql,
        params![id.as_str()],
        records::token_record,
    )
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

/// A use by the name `?2` with the key `?3`.
pub(crate) const SAME: &str = "certname = ?2 AND key_fingerprint = ?3";

/// A use by any other. Read in the order of uses, of which at most one is passed over.
pub(crate) const OTHER: &str = "NOT (+certname = ?2 AND +key_fingerprint = ?3)";

/// Whether a token has a use left at the time `?2`, which with its skew is `?3`.
const USABLE: &str = "standing = 'active' AND epoch = (SELECT epoch FROM store_state WHERE one = 1) \
     AND not_before <= ?3 AND expires_at > ?2 AND uses < max_uses";

/// How often the store was restored.
const EPOCH: &str = "(SELECT epoch FROM store_state WHERE one = 1)";
