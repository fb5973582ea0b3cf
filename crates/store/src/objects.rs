//! Objects of doors in their table.

use countersign_authority::{ObjectKey, ObjectRecord, Revision};
use countersign_pki::UnixTime;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::fault::Fault;
use crate::query::{one, readable, revision};
use crate::row::Columns;

/// The columns that [`object_in`] reads, in its order.
pub(crate) const OBJECT: &str = "kind, namespace, name, id, version, created, body";

pub(crate) fn objects(connection: &Connection) -> Result<(Revision, Vec<ObjectRecord>), Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let at = revision(&snapshot)?;
    let sql = format!("SELECT {OBJECT} FROM objects ORDER BY kind, namespace, name");
    let found = readable(&snapshot, &sql, [], name_of, record)?;
    snapshot.commit()?;
    Ok((at, found))
}

pub(crate) fn object(
    connection: &Connection,
    key: &ObjectKey,
) -> Result<Option<ObjectRecord>, Fault> {
    let sql = format!("SELECT {OBJECT} FROM objects WHERE {NAMED}");
    one(connection, &sql, named(key), record)
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

pub(crate) fn object_in(columns: &mut Columns<'_>) -> Result<ObjectRecord, Fault> {
    Ok(ObjectRecord {
        key: ObjectKey {
            kind: columns.take()?,
            namespace: columns.take()?,
            name: columns.take()?,
        },
        id: columns.request_id()?,
        version: columns.revision()?,
        created: UnixTime(columns.take()?),
        body: columns.take()?,
    })
}

/// What a row says its object is called, as far as that can be read.
pub(crate) fn name_of(row: &Row<'_>) -> String {
    let text = |column| row.get::<_, String>(column).unwrap_or_default();
    let (kind, namespace, name) = (text("kind"), text("namespace"), text("name"));
    format!("{kind} {namespace}/{name}")
}

fn record(row: &Row<'_>) -> Result<ObjectRecord, Fault> {
    object_in(&mut Columns::of(row, "object"))
}

fn named(key: &ObjectKey) -> [&str; 3] {
    [&key.kind, &key.namespace, &key.name]
}

/// The object of this name: the table's key.
const NAMED: &str = "kind = ?1 AND namespace = ?2 AND name = ?3";
