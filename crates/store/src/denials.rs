//! Counts of denials that the audit log does not tell one by one.

use countersign_authority::{Door, RepeatedDenials};
use countersign_pki::UnixTime;
use rusqlite::{Connection, params};

use crate::fault::Fault;
use crate::query::{all, bound};
use crate::row::{Columns, signed};

pub(crate) fn before(
    connection: &Connection,
    before: UnixTime,
    limit: usize,
) -> Result<Vec<RepeatedDenials>, Fault> {
    let sql = "SELECT source, door, code, first, last, number, last_name FROM repeated_denials
               WHERE first <= ?1 ORDER BY source, door, code LIMIT ?2";
    all(connection, sql, params![before.0, bound(limit)], |row| {
        let mut columns = Columns::of(row, "count of denials");
        let source: String = columns.take()?;
        Ok(RepeatedDenials {
            source: columns.known(source.parse().ok())?,
            door: Door::from_text(columns.take()?),
            code: columns.take()?,
            first: UnixTime(columns.take()?),
            last: UnixTime(columns.take()?),
            number: columns.unsigned()?,
            last_name: columns.take()?,
        })
    })
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
