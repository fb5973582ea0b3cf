//! Objects of doors in their table.

use countersign_authority::{ObjectKey, ObjectRecord, Revision};
use rusqlite::{Connection, OptionalExtension, params};

use crate::records::{self, OBJECT};
use crate::sqlite::fault::Fault;
use crate::sqlite::query::{one, readable, revision};

pub(crate) fn objects(connection: &Connection) -> Result<(Revision, Vec<ObjectRecord>), Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let at = revision(&snapshot)?;
    let sql = format!("SELECT {OBJECT} FROM objects ORDER BY kind, namespace, name");
    let found = readable(&snapshot, &sql, [], records::object_name, records::object)?;
    snapshot.commit()?;
    Ok((at, found))
}

pub(crate) fn object(
    connection: &Connection,
    key: &ObjectKey,
) -> Result<Option<ObjectRecord>, Fault> {
    let sql = format!("SELECT {OBJECT} FROM objects WHERE {NAMED}");
    one(connection, &sql, named(key), records::object)
}

pub(crate) fn is_at(
    connection: &Connection,
    key: &ObjectKey,
    version: Option<Revision>,
) -> Result<bool, Fault> {
    let stored: Option<i64> = connection
        .prepare_cached(&format!("SELECT version FROM objects WHERE {NAMED}"))?
        .query_row(named(key), |row| row.get(0))
        .optional()?;
    Ok(match version {
        Some(version) => stored.is_some() && stored == i64::try_from(version.0).ok(),
        None => stored.is_none(),
    })
}

/// Whether there was one.
pub(crate) fn replace(
    connection: &Connection,
    record: &ObjectRecord,
    revision: i64,
) -> Result<bool, Fault> {
    let ObjectKey {
        kind,
        namespace,
        name,
    } = &record.key;
    let replaced = connection
        .prepare_cached(&format!(
            "UPDATE objects SET version = ?4, body = ?5 WHERE {NAMED}"
        ))?
        .execute(params![kind, namespace, name, revision, record.body])?;
    Ok(replaced > 0)
}

pub(crate) fn insert(
    connection: &Connection,
    record: &ObjectRecord,
    revision: i64,
) -> Result<(), Fault> {
    let ObjectKey {
        kind,
        namespace,
        name,
    } = &record.key;
    connection
        .prepare_cached(&format!(
            "INSERT INTO objects ({OBJECT}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        ))?
        .execute(params![
            kind,
            namespace,
            name,
            record.id.as_bytes(),
            revision,
            record.created.0,
            record.body
        ])?;
    Ok(())
}

pub(crate) fn delete(connection: &Connection, key: &ObjectKey) -> Result<(), Fault> {
    connection
        .prepare_cached(&format!("DELETE FROM objects WHERE {NAMED}"))?
        .execute(named(key))?;
    Ok(())
}

fn named(key: &ObjectKey) -> [&str; 3] {
    [&key.kind, &key.namespace, &key.name]
}

/// The object of this name: the table's key.
const NAMED: &str = "kind = ?1 AND namespace = ?2 AND name = ?3";
