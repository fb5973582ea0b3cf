//! The audit log as it is kept, and its seals.
//!
//! These reads also serve those who look for traces of an intruder: a row that makes no sense is handed over as far as that
//! is possible, so that the reader can name it.

use countersign_authority::{
    AuditOrder, AuditPage, AuditPlace, AuditQuery, AuditRecord, Revision, Seal, SealHead,
};
use countersign_pki::{Fingerprint, UnixTime};
use rusqlite::{Connection, Row, params};

use super::{all, bound, one};
use crate::fault::Fault;

/// Walks the log by its key, which is commit order, and keeps what the filter lets through.
pub(crate) fn page(connection: &Connection, query: &AuditQuery) -> Result<AuditPage, Fault> {
    let (sql, edge) = match query.order {
        AuditOrder::OldestFirst => (
            "SELECT revision, seq, entry FROM audit WHERE (revision, seq) > (?1, ?2)
             ORDER BY revision, seq LIMIT ?3",
            i64::MIN,
        ),
        AuditOrder::NewestFirst => (
            "SELECT revision, seq, entry FROM audit WHERE (revision, seq) < (?1, ?2)
             ORDER BY revision DESC, seq DESC LIMIT ?3",
            i64::MAX,
        ),
    };
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let (revision, seq) = query.after.map_or((edge, edge), |after| {
        (number(after.revision.0), number(after.seq))
    });
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![revision, seq, bound(query.look_at.max(1))])?;
    let mut page = AuditPage::default();
    while let Some(row) = rows.next()? {
        let record = record(row)?;
        page.looked_at = page.looked_at.saturating_add(1);
        let place = record.place;
        let admits = || record.entry().is_some_and(|e| query.filter.admits(&e));
        if query.filter.is_open() || admits() {
            page.records.push(record);
        }
        if page.records.len() >= query.limit.max(1) || page.looked_at >= query.look_at.max(1) {
            page.reached = Some(place);
            break;
        }
    }
    Ok(page)
}

pub(crate) fn seals(connection: &Connection, after: u64, limit: usize) -> Result<Vec<Seal>, Fault> {
    let sql = format!(
        "SELECT {HEAD}, hashes FROM audit_seals WHERE number > ?1 ORDER BY number LIMIT ?2"
    );
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    all(connection, &sql, params![after, bound(limit)], |row| {
        let hashes = row.get_ref(11)?.as_blob().unwrap_or_default();
        Ok(Seal {
            head: head(row)?,
            hashes: hashes.chunks(32).map(digest).collect(),
        })
    })
}

pub(crate) fn last_seal(connection: &Connection) -> Result<Option<SealHead>, Fault> {
    let sql = format!("SELECT {HEAD} FROM audit_seals ORDER BY number DESC LIMIT 1");
    one(connection, &sql, [], head)
}

fn record(row: &Row<'_>) -> Result<AuditRecord, Fault> {
    Ok(AuditRecord {
        place: place(row, 0)?,
        stored: row.get_ref(2)?.as_bytes().unwrap_or_default().to_vec(),
    })
}

fn head(row: &Row<'_>) -> Result<SealHead, Fault> {
    let octets = |column: usize| -> rusqlite::Result<Vec<u8>> { row.get(column) };
    Ok(SealHead {
        number: unsigned(row, 0)?,
        first: place(row, 1)?,
        last: place(row, 3)?,
        count: unsigned(row, 5)?,
        previous: digest(&octets(6)?),
        hash: digest(&octets(7)?),
        at: UnixTime(row.get(8)?),
        key_id: digest(&octets(9)?),
        signature: octets(10)?,
    })
}

fn place(row: &Row<'_>, column: usize) -> Result<AuditPlace, Fault> {
    Ok(AuditPlace {
        revision: Revision(unsigned(row, column)?),
        seq: unsigned(row, column.saturating_add(1))?,
    })
}

/// A number that was never negative becomes one that never was either.
fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    Ok(u64::try_from(number).unwrap_or(u64::MAX))
}

/// Zeros, which nothing has as its digest, for octets of another length.
fn digest(octets: &[u8]) -> Fingerprint {
    Fingerprint::from_bytes(octets.try_into().unwrap_or([0; 32]))
}

/// The columns that [`head`] reads, in its order.
const HEAD: &str = "number, first_revision, first_seq, last_revision, last_seq, count, previous, hash, at, \
     key_id, signature";
