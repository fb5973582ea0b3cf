//! Counts of denials that the audit log does not tell one by one.

use countersign_authority::RepeatedDenials;
use countersign_pki::UnixTime;
use rusqlite::{Connection, params};

use crate::records::{self, DENIALS};
use crate::row::{bound, signed};
use crate::sqlite::fault::Fault;
use crate::sqlite::query::all;

pub(crate) fn before(
    connection: &Connection,
    before: UnixTime,
    limit: usize,
) -> Result<Vec<RepeatedDenials>, Fault> {
    let sql = format!(
        "SELECT {DENIALS} FROM repeated_denials
         WHERE first <= ?1 ORDER BY source, door, code LIMIT ?2"
    );
    let values = params![before.0, bound(limit)];
    all(connection, &sql, values, records::repeated_denials)
}

pub(crate) fn count(connection: &Connection, denials: &RepeatedDenials) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "INSERT INTO repeated_denials (source, door, code, first, last, number, last_name)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (source, door, code) DO UPDATE
             SET last = max(last, excluded.last), number = number + excluded.number, last_name = excluded.last_name",
        )?
        .execute(params![
            denials.source.to_string(),
            denials.door.as_str(),
            denials.code,
            denials.first.0,
            denials.last.0,
            signed(denials.number, "count of denials")?,
            denials.last_name,
        ])?;
    Ok(())
}

/// Those that came since they were read stay.
pub(crate) fn told(connection: &Connection, denials: &RepeatedDenials) -> Result<(), Fault> {
    let number = signed(denials.number, "count of denials")?;
    let source = denials.source.to_string();
    let key = (
        source.as_str(),
        denials.door.as_str(),
        denials.code.as_str(),
    );
    connection
        .prepare_cached(
            "UPDATE repeated_denials SET number = number - ?4, first = ?5
             WHERE source = ?1 AND door = ?2 AND code = ?3",
        )?
        .execute(params![key.0, key.1, key.2, number, denials.last.0])?;
    connection
        .prepare_cached(
            "DELETE FROM repeated_denials WHERE source = ?1 AND door = ?2 AND code = ?3 AND number <= 0",
        )?
        .execute(params![key.0, key.1, key.2])?;
    Ok(())
}
