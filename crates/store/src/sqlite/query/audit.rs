//! The audit log as it is kept, and its seals.
//!
//! These reads also serve those who look for traces of an intruder: a row that makes no sense is handed over as far as that
//! is possible, so that the reader can name it.

use countersign_authority::{AuditOrder, AuditPage, AuditQuery, Seal, SealHead};
use rusqlite::{Connection, params};

use super::{all, one};
use crate::records::{self, SEAL_HEAD};
use crate::row::{bound, place};
use crate::sqlite::fault::Fault;

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
    let (revision, seq) = query.after.map_or((edge, edge), |after| {
        (place(after.revision.0), place(after.seq))
    });
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![revision, seq, bound(query.look_at.max(1))])?;
    let mut page = AuditPage::default();
    while let Some(row) = rows.next()? {
        if records::add_to_page(&mut page, records::audit_record(row)?, query) {
            break;
        }
    }
    Ok(page)
}

pub(crate) fn seals(connection: &Connection, after: u64, limit: usize) -> Result<Vec<Seal>, Fault> {
    let sql = format!(
        "SELECT {SEAL_HEAD}, hashes FROM audit_seals WHERE number > ?1 ORDER BY number LIMIT ?2"
    );
    let values = params![place(after), bound(limit)];
    all(connection, &sql, values, records::seal)
}

pub(crate) fn last_seal(connection: &Connection) -> Result<Option<SealHead>, Fault> {
    let sql = format!("SELECT {SEAL_HEAD} FROM audit_seals ORDER BY number DESC LIMIT 1");
    one(connection, &sql, [], records::seal_head)
}
