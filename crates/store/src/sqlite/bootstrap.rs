//! Bootstrap tokens in their table. They are few, and nothing is counted when one is shown.

use countersign_authority::store::Precondition;
use countersign_authority::{BootstrapId, BootstrapRecord, BootstrapToken};
use countersign_pki::UnixTime;
use rusqlite::{Connection, ToSql, params};

use crate::records::{self, BOOTSTRAP_TOKEN};
use crate::row::{Columns, bound, document};
use crate::sqlite::change::is_taken;
use crate::sqlite::fault::Fault;
use crate::sqlite::query::{all, one};

pub(crate) fn token(
    connection: &Connection,
    id: &BootstrapId,
) -> Result<Option<BootstrapToken>, Fault> {
    let sql = format!("SELECT {BOOTSTRAP_TOKEN} FROM bootstrap_tokens WHERE id = ?1");
    one(connection, &sql, [id.as_str()], records::bootstrap_token)
}

pub(crate) fn tokens(
    connection: &Connection,
    after: Option<&BootstrapId>,
    limit: usize,
) -> Result<Vec<BootstrapToken>, Fault> {
    let sql = format!(
        "SELECT {BOOTSTRAP_TOKEN} FROM bootstrap_tokens
         WHERE ?1 IS NULL OR number < (SELECT number FROM bootstrap_tokens WHERE id = ?1)
         ORDER BY number DESC LIMIT ?2"
    );
    let values = params![after.map(BootstrapId::as_str), bound(limit)];
    all(connection, &sql, values, records::bootstrap_token)
}

pub(crate) fn over(
    connection: &Connection,
    before: UnixTime,
    limit: usize,
) -> Result<Vec<BootstrapId>, Fault> {
    let sql = format!(
        "SELECT id FROM bootstrap_tokens
         WHERE expires_at < ?1 OR revoked_at < ?1 OR (epoch < {EPOCH} AND created_at < ?1)
         ORDER BY number LIMIT ?2"
    );
    all(connection, &sql, params![before.0, bound(limit)], |row| {
        records::bootstrap_id(&mut Columns::of(row, "bootstrap token"))
    })
}

pub(crate) fn is_stored(connection: &Connection, id: &BootstrapId) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM bootstrap_tokens WHERE id = ?1";
    Ok(connection.prepare_cached(sql)?.exists([id.as_str()])?)
}

pub(crate) fn stands(connection: &Connection, id: &BootstrapId) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM bootstrap_tokens WHERE id = ?1 AND revoked_at IS NULL";
    Ok(connection.prepare_cached(sql)?.exists([id.as_str()])?)
}

pub(crate) fn put(connection: &Connection, record: &BootstrapRecord) -> Result<(), Fault> {
    let sql = format!(
        "INSERT INTO bootstrap_tokens (id, mac, mac_key_id, groups, description, expires_at, created_by, created_at,
                                       revoked_at, terms_mac, epoch)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, {EPOCH})"
    );
    let inserted = execute(
        connection,
        &sql,
        params![
            record.id.as_str(),
            record.mac,
            record.mac_key_id,
            document(&record.groups, "groups of the token")?,
            record.description,
            record.expires_at.map(|at| at.0),
            record.created_by,
            record.created_at.0,
            record.revoked_at.map(|at| at.0),
            record.terms_mac,
        ],
    );
    match inserted {
        Err(error) if is_taken(&error) => Err(Fault::conflict(Precondition::BootstrapTokenFree {
            id: record.id.clone(),
        })),
        other => Ok(other?),
    }
}

pub(crate) fn revoke(connection: &Connection, id: &BootstrapId, at: UnixTime) -> Result<(), Fault> {
    let sql = "UPDATE bootstrap_tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
    Ok(execute(connection, sql, params![id.as_str(), at.0])?)
}

pub(crate) fn forget(connection: &Connection, id: &BootstrapId) -> Result<(), Fault> {
    let sql = "DELETE FROM bootstrap_tokens WHERE id = ?1";
    Ok(execute(connection, sql, params![id.as_str()])?)
}

fn execute(connection: &Connection, sql: &str, values: &[&dyn ToSql]) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

/// How often the store was restored.
const EPOCH: &str = "(SELECT epoch FROM store_state WHERE one = 1)";
