//! The reads. Each sees one snapshot, which holds everything that was acknowledged before it began: it is a single
//! statement, or a transaction around several.

mod audit;

use std::net::IpAddr;

use countersign_authority::store::{
    AgeFilter, Amount, Past, Rejection, RejectionFilter, RequestFilter, Tally,
};
use countersign_authority::{
    AncestorCrl, AuditEntry, CrlRecord, CrlScope, Door, IssuerId, LedgerEntry, ListedCertificate,
    PolicyVersion, RequestId, RequestRecord, RequestState, Revision, Revocation, one_source,
};
use countersign_pki::{Fingerprint, Serial, UnixTime};
use rusqlite::types::Value;
use rusqlite::{Connection, Params, params, params_from_iter};

use crate::records::{
    self, ANCESTOR_CRL, CRL, LEDGER_ENTRY, LISTED_CERTIFICATE, REQUEST, REVOCATION,
};
use crate::row::{Cells, Columns, RowFault, bound, place};
use crate::sqlite::fault::Fault;
use crate::sqlite::intents;

pub(crate) use audit::{last_seal, page as audit_page, seals};

/// How often the store was restored from a backup.
pub(crate) fn epoch(connection: &Connection) -> Result<u64, Fault> {
    one(
        connection,
        "SELECT epoch FROM store_state WHERE one = 1",
        [],
        |row| Columns::of(row, "epoch").unsigned(),
    )?
    .ok_or(Fault::Corrupt { what: "epoch" })
}

/// The last revision given out.
pub(crate) fn revision(connection: &Connection) -> Result<Revision, Fault> {
    one(
        connection,
        "SELECT revision FROM store_state WHERE one = 1",
        [],
        |row| Columns::of(row, "revision").revision(),
    )?
    .ok_or(Fault::Corrupt { what: "revision" })
}

pub(crate) fn audit(
    connection: &Connection,
    since: Revision,
    limit: usize,
) -> Result<Vec<(Revision, AuditEntry)>, Fault> {
    whole_revisions(
        connection,
        "audit",
        "revision, entry",
        since,
        limit,
        |row| {
            let mut columns = Columns::of(row, "audit entry");
            Ok((columns.revision()?, columns.document()?))
        },
    )
}

/// Each reads one snapshot: a request is never between its intent and its own table.
pub(crate) fn request(
    connection: &Connection,
    id: RequestId,
) -> Result<Option<RequestRecord>, Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let sql = format!("SELECT {REQUEST} FROM requests WHERE id = ?1");
    let stored = one(&snapshot, &sql, params![id.as_bytes()], records::request)?;
    let found = match stored {
        Some(stored) => Some(stored),
        None => intents::request(&snapshot, &id)?,
    };
    snapshot.commit()?;
    Ok(found)
}

pub(crate) fn request_at(
    connection: &Connection,
    door: &Door,
    key: &str,
    past: Past,
) -> Result<Option<RequestRecord>, Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let sql = format!("SELECT {REQUEST} FROM requests WHERE door = ?1 AND key = ?2 AND live = 1");
    let named = params![door.as_str(), key];
    let mut found = one(&snapshot, &sql, named, records::request)?;
    if found.is_none() {
        found = intents::request_at(&snapshot, door, key)?;
    }
    if found.is_none() && past == Past::Include {
        // Identities of one second are in no particular order; row numbers are in order of arrival.
        let sql = format!(
            "SELECT {REQUEST} FROM requests
             WHERE number = (SELECT max(number) FROM requests WHERE door = ?1 AND key = ?2)"
        );
        found = one(&snapshot, &sql, named, records::request)?;
    }
    snapshot.commit()?;
    Ok(found)
}

/// A page of requests. Doors are few and each is an equality in the indexes, so the page is made door by door: no filter
/// walks through another door's requests.
pub(crate) fn requests(
    connection: &Connection,
    filter: &RequestFilter,
) -> Result<Vec<RequestRecord>, Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let mut page = Vec::new();
    let mut next = match &filter.after {
        Some((door, _, _)) => Some(door.as_str().to_owned()),
        None => first_door(&snapshot, "SELECT min(door) FROM requests", [])?,
    };
    while let Some(door) = next {
        if filter
            .door
            .as_ref()
            .is_none_or(|wanted| wanted.as_str() == door)
        {
            let (sql, values) = requests_of_door(&door, filter, page.len());
            page.extend(all(
                &snapshot,
                &sql,
                params_from_iter(values),
                records::request,
            )?);
        }
        if filter.limit > 0 && page.len() >= filter.limit {
            break;
        }
        next = first_door(
            &snapshot,
            "SELECT min(door) FROM requests WHERE door > ?1",
            [&door],
        )?;
    }
    snapshot.commit()?;
    Ok(page)
}

pub(crate) fn requests_before(
    connection: &Connection,
    filter: &AgeFilter,
) -> Result<Vec<RequestRecord>, Fault> {
    // Identities begin with their time: the order of identities is that of age.
    let state = filter.state.word();
    let sql = match filter.state {
        RequestState::Issued => format!(
            "SELECT {REQUEST} FROM requests INDEXED BY requests_issued
             WHERE door = ?1 AND state = '{state}' AND id > ?2 AND id < ?3 AND created < ?4
             ORDER BY id LIMIT ?5"
        ),
        // The oldest are chosen in the index alone; only those are visited.
        RequestState::Pending
        | RequestState::Approved
        | RequestState::Denied
        | RequestState::Failed
        | RequestState::Undecided => format!(
            "SELECT {REQUEST} FROM requests WHERE number IN (
                 SELECT number FROM requests INDEXED BY requests_open
                 WHERE door = ?1 AND state = '{state}'{OPEN} AND id > ?2 AND id < ?3 AND created < ?4
                 ORDER BY id LIMIT ?5)
             ORDER BY id"
        ),
    };
    let after = filter.after.map_or([0; 16], |id| *id.as_bytes());
    // One second more: the identity of a request is made before it is created.
    let end = RequestId::new(filter.before.plus_seconds(1), [0; 10]);
    all(
        connection,
        &sql,
        params![
            filter.door.as_str(),
            after,
            end.as_bytes(),
            filter.before.0,
            bound(filter.limit)
        ],
        records::request,
    )
}

pub(crate) fn rejections(
    connection: &Connection,
    filter: &RejectionFilter,
) -> Result<Vec<Rejection>, Fault> {
    let mut sql = format!(
        "SELECT number, {REQUEST} FROM requests INDEXED BY requests_rejected WHERE {REJECTED}"
    );
    let mut values = Vec::new();
    let mut only = |condition: &str, value: Option<Value>| {
        if let Some(value) = value {
            sql.push_str(condition);
            values.push(value);
        }
    };
    let text = |text: &String| Value::Text(text.clone());
    let door = filter.door.as_ref();
    only(
        " AND door = ?",
        door.map(|door| Value::Text(door.to_string())),
    );
    only(" AND key = ?", filter.key.as_ref().map(text));
    let code = filter.code.as_ref().map(text);
    only(" AND code = ?", code);
    let since = filter.since.map(|since| Value::Integer(since.0));
    only(" AND created >= ?", since);
    let before = filter.before.map(|before| Value::Integer(place(before)));
    only(" AND number < ?", before);
    if filter.trimmable {
        sql.push_str(TRIMMABLE);
    }
    sql.push_str(" ORDER BY number DESC LIMIT ? OFFSET ?");
    values.push(Value::Integer(bound(filter.limit)));
    values.push(Value::Integer(bound(filter.skip)));
    all(connection, &sql, params_from_iter(values), |row| {
        let (place, request) = records::placed_request(row)?;
        Ok(Rejection { place, request })
    })
}

pub(crate) fn worth_asking_again(
    connection: &Connection,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<(u64, RequestRecord)>, Fault> {
    let sql = format!(
        "SELECT number, {REQUEST} FROM requests INDEXED BY requests_retry
         WHERE state = 'pending' AND live = 1 AND retry = 1 AND number > ?1
         ORDER BY number LIMIT ?2"
    );
    let after = place(after.unwrap_or(0));
    let values = params![after, bound(limit)];
    all(connection, &sql, values, records::placed_request)
}

pub(crate) fn newest_policy(connection: &Connection) -> Result<Option<PolicyVersion>, Fault> {
    let sql =
        "SELECT generation, digest, loaded, text FROM policies ORDER BY generation DESC LIMIT 1";
    one(connection, sql, [], records::policy_version)
}

pub(crate) fn policy_version(
    connection: &Connection,
    generation: u64,
) -> Result<Option<PolicyVersion>, Fault> {
    let sql = "SELECT generation, digest, loaded, text FROM policies WHERE generation = ?1";
    let generation = place(generation);
    one(
        connection,
        sql,
        params![generation],
        records::policy_version,
    )
}

pub(crate) fn is_allowed(
    connection: &Connection,
    webhook: &str,
    name: &str,
    asked: &Fingerprint,
    now: UnixTime,
) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM webhook_allows
               WHERE webhook = ?1 AND name = ?2 AND asked = ?3 AND until > ?4";
    let values = params![webhook, name, asked.as_bytes(), now.0];
    Ok(one(connection, sql, values, |_| Ok(()))?.is_some())
}

pub(crate) fn pending_from(
    connection: &Connection,
    source: IpAddr,
    at_most: usize,
) -> Result<Amount, Fault> {
    let sql = "SELECT count(*), coalesce(sum(bytes), 0) FROM (
                   SELECT bytes FROM requests INDEXED BY requests_source
                   WHERE source = ?1 AND state = 'pending' AND live = 1 LIMIT ?2)";
    let source = one_source(source).to_string();
    let counted = one(
        connection,
        sql,
        params![source, bound(at_most)],
        records::amount,
    )?;
    Ok(counted.unwrap_or_default())
}

pub(crate) fn pending_bytes(connection: &Connection) -> Result<u64, Fault> {
    let sql = "SELECT coalesce(sum(bytes), 0) FROM requests INDEXED BY requests_source
               WHERE state = 'pending' AND live = 1";
    let bytes = one(connection, sql, [], |row| {
        Columns::of(row, "sum").unsigned()
    })?;
    Ok(bytes.unwrap_or_default())
}

pub(crate) fn trimmable(connection: &Connection, thefts_since: UnixTime) -> Result<Amount, Fault> {
    let sql = format!(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM requests INDEXED BY requests_rejected
         WHERE {REJECTED}{TRIMMABLE} AND NOT ({THEFT})"
    );
    let since = params![thefts_since.0];
    Ok(one(connection, &sql, since, records::amount)?.unwrap_or_default())
}

pub(crate) fn tally(
    connection: &Connection,
    now: UnixTime,
    soon: UnixTime,
) -> Result<Tally, Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let pending = all(
        &snapshot,
        "SELECT door, count(*) FROM requests INDEXED BY requests_source
         WHERE state = 'pending' AND live = 1 GROUP BY door ORDER BY door",
        [],
        |row| {
            let mut columns = Columns::of(row, "count");
            Ok((Door::from_text(columns.take()?), columns.unsigned()?))
        },
    )?;
    let expiring = all(
        &snapshot,
        "SELECT issuer, count(*) FROM certificates INDEXED BY certificates_ending
         WHERE state = 'issued' AND retired IS NULL AND revoked_at IS NULL AND not_after >= ?1 AND not_after <= ?2
         GROUP BY issuer ORDER BY issuer",
        params![now.0, soon.0],
        |row| {
            let mut columns = Columns::of(row, "count");
            Ok((columns.issuer()?, columns.unsigned()?))
        },
    )?;
    snapshot.commit()?;
    Ok(Tally { pending, expiring })
}

pub(crate) fn ledger(
    connection: &Connection,
    issuer: &IssuerId,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<(u64, LedgerEntry)>, Fault> {
    // The issuers' rows lie mixed in order of issue; other issuers' are passed over. By an index of the issuer's, SQLite
    // would sort the whole ledger for each page.
    let sql = format!(
        "SELECT number, {LEDGER_ENTRY} FROM certificates NOT INDEXED
         WHERE number > ?2 AND issuer = ?1 AND state = 'issued' ORDER BY number LIMIT ?3"
    );
    let after = after.map_or(0, |after| i64::try_from(after).unwrap_or(i64::MAX));
    all(
        connection,
        &sql,
        params![issuer.as_str(), after, bound(limit)],
        records::placed_ledger_entry,
    )
}

pub(crate) fn next_serial(
    connection: &Connection,
    issuer: &IssuerId,
) -> Result<Option<u64>, Fault> {
    one(
        connection,
        "SELECT next FROM serials WHERE issuer = ?1",
        params![issuer.as_str()],
        |row| Columns::of(row, "serial").unsigned(),
    )
}

pub(crate) fn highest_serial(
    connection: &Connection,
    issuer: &IssuerId,
) -> Result<Option<u64>, Fault> {
    // Magnitudes without leading zeros compare by length first. The bound is what a counter in a signed column has left.
    let highest = one(
        connection,
        "SELECT serial FROM (SELECT issuer, serial FROM certificates UNION ALL SELECT issuer, serial FROM intents)
         WHERE issuer = ?1 AND (length(serial) < 8 OR (length(serial) = 8 AND serial < x'7fffffffffffffff'))
         ORDER BY length(serial) DESC, serial DESC LIMIT 1",
        params![issuer.as_str()],
        |row| Columns::of(row, "serial").serial(),
    )?;
    Ok(highest.and_then(|serial| serial.to_u64()))
}

pub(crate) fn ancestor_crls(
    connection: &Connection,
    issuer: &IssuerId,
) -> Result<Vec<AncestorCrl>, Fault> {
    let sql = format!(
        "SELECT {ANCESTOR_CRL} FROM ancestor_crls WHERE issuer = ?1 ORDER BY position, key_id"
    );
    all(
        connection,
        &sql,
        params![issuer.as_str()],
        records::ancestor_crl,
    )
}

pub(crate) fn certificate(
    connection: &Connection,
    issuer: &IssuerId,
    serial: &Serial,
) -> Result<Option<LedgerEntry>, Fault> {
    let sql = format!(
        "SELECT {LEDGER_ENTRY} FROM certificates WHERE issuer = ?1 AND serial = ?2 AND state = 'issued'"
    );
    one(
        connection,
        &sql,
        params![issuer.as_str(), serial.as_bytes()],
        records::ledger_entry,
    )
}

pub(crate) fn newest_certificate(
    connection: &Connection,
    issuer: &IssuerId,
    name: &str,
) -> Result<Option<LedgerEntry>, Fault> {
    let sql = format!(
        "SELECT {LEDGER_ENTRY} FROM certificates
         WHERE issuer = ?1 AND name = ?2 AND state = 'issued' AND retired IS NULL ORDER BY number DESC LIMIT 1"
    );
    one(
        connection,
        &sql,
        params![issuer.as_str(), name],
        records::ledger_entry,
    )
}

pub(crate) fn certificates_of(
    connection: &Connection,
    issuer: &IssuerId,
    name: &str,
    alive_at: UnixTime,
) -> Result<Vec<LedgerEntry>, Fault> {
    let sql = format!(
        "SELECT {LEDGER_ENTRY} FROM certificates
         WHERE issuer = ?1 AND name = ?2 AND state = 'issued' AND not_after >= ?3 ORDER BY number DESC"
    );
    all(
        connection,
        &sql,
        params![issuer.as_str(), name, alive_at.0],
        records::ledger_entry,
    )
}

pub(crate) fn newest_certificates(
    connection: &Connection,
    issuer: &IssuerId,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<LedgerEntry>, Fault> {
    newest(
        connection,
        LEDGER_ENTRY,
        (issuer, after, limit),
        records::ledger_entry,
    )
}

pub(crate) fn listed_certificates(
    connection: &Connection,
    issuer: &IssuerId,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<ListedCertificate>, Fault> {
    newest(
        connection,
        LISTED_CERTIFICATE,
        (issuer, after, limit),
        records::listed_certificate,
    )
}

/// These columns of the newest certificate of each name.
fn newest<T>(
    connection: &Connection,
    columns: &str,
    (issuer, after, limit): (&IssuerId, Option<&str>, usize),
    read: impl Fn(&dyn Cells) -> Result<T, RowFault>,
) -> Result<Vec<T>, Fault> {
    // The inner query walks the name index alone and stops at the limit.
    let inner = |condition: &str| {
        format!(
            "SELECT {columns} FROM certificates WHERE number IN (
                 SELECT max(number) FROM certificates
                 WHERE issuer = ?1 AND state = 'issued' AND retired IS NULL {condition} GROUP BY name ORDER BY name LIMIT ?2)
             ORDER BY name"
        )
    };
    let (issuer, limit) = (issuer.as_str(), bound(limit));
    match after {
        Some(after) => all(
            connection,
            &inner("AND name > ?3"),
            params![issuer, limit, after],
            read,
        ),
        None => all(connection, &inner(""), params![issuer, limit], read),
    }
}

pub(crate) fn revocations(
    connection: &Connection,
    issuer: &IssuerId,
    alive_at: UnixTime,
) -> Result<(Revision, Vec<Revocation>), Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let complete_to = revision(&snapshot)?;
    let sql = format!(
        "SELECT {REVOCATION} FROM certificates
         WHERE issuer = ?1 AND revoked_at IS NOT NULL AND not_after >= ?2 ORDER BY not_after, serial"
    );
    let revoked = all(
        &snapshot,
        &sql,
        params![issuer.as_str(), alive_at.0],
        records::revocation,
    )?;
    snapshot.commit()?;
    Ok((complete_to, revoked))
}

pub(crate) fn crl(
    connection: &Connection,
    issuer: &IssuerId,
    scope: CrlScope,
) -> Result<Option<CrlRecord>, Fault> {
    let sql = format!("SELECT {CRL} FROM crls WHERE issuer = ?1 AND scope = ?2");
    one(
        connection,
        &sql,
        params![issuer.as_str(), scope.word()],
        records::crl,
    )
}

/// The query for the rest of a page, of one door.
fn requests_of_door(door: &str, filter: &RequestFilter, have: usize) -> (String, Vec<Value>) {
    let index = open_index(&filter.states);
    let mut sql = format!("SELECT {REQUEST} FROM requests {index} WHERE door = ?");
    let mut values = vec![Value::Text(door.to_owned())];
    if let Some(key) = &filter.key {
        sql.push_str(" AND key = ?");
        values.push(Value::Text(key.clone()));
    }
    if filter.live_only {
        sql.push_str(" AND live = 1");
    }
    if filter.newest_only {
        // Identities grow with time.
        sql.push_str(
            " AND NOT EXISTS (SELECT 1 FROM requests AS later
                  WHERE later.door = requests.door AND later.key = requests.key AND later.id > requests.id)",
        );
    }
    sql.push_str(&state_condition(&filter.states));
    if let Some(code) = &filter.code {
        sql.push_str(" AND code = ?");
        values.push(Value::Text(code.clone()));
    }
    if let Some(since) = filter.since {
        sql.push_str(" AND created >= ?");
        values.push(Value::Integer(since.0));
    }
    if let Some((after_door, key, id)) = &filter.after
        && after_door.as_str() == door
    {
        sql.push_str(" AND (key, id) > (?, ?)");
        values.push(Value::Text(key.clone()));
        values.push(Value::Blob(id.as_bytes().to_vec()));
    }
    sql.push_str(" ORDER BY key, id LIMIT ?");
    values.push(Value::Integer(match filter.limit {
        0 => -1,
        limit => bound(limit.saturating_sub(have)),
    }));
    (sql, values)
}

/// The states as literals: SQLite takes the partial index of open requests only if the query repeats its condition.
fn state_condition(states: &[RequestState]) -> String {
    if states.is_empty() {
        return String::new();
    }
    let listed: Vec<String> = states
        .iter()
        .map(|state| format!("state = '{}'", state.word()))
        .collect();
    let repeated = if open_index(states).is_empty() {
        ""
    } else {
        OPEN
    };
    format!(" AND ({}){repeated}", listed.join(" OR "))
}

/// Said outright, because without statistics SQLite prefers to walk the listing in order, past all that is issued.
fn open_index(states: &[RequestState]) -> &'static str {
    if states.is_empty() || states.contains(&RequestState::Issued) {
        ""
    } else {
        "INDEXED BY requests_open"
    }
}

fn first_door(
    connection: &Connection,
    sql: &str,
    values: impl Params,
) -> Result<Option<String>, Fault> {
    Ok(one(connection, sql, values, |row| {
        Columns::of(row, "request").take()
    })?
    .flatten())
}

/// A page of a table keyed by revision that never ends inside a revision, so that the caller can go on with the last
/// revision it saw. If one revision alone has more entries than the limit, the page is that revision.
fn whole_revisions<T>(
    connection: &Connection,
    table: &str,
    columns: &str,
    since: Revision,
    limit: usize,
    read: impl Fn(&dyn Cells) -> Result<(Revision, T), RowFault>,
) -> Result<Vec<(Revision, T)>, Fault> {
    let sql = format!(
        "SELECT {columns} FROM {table}
         WHERE revision > ?1 AND revision <= coalesce(
             (SELECT max(
                 (SELECT min(revision) FROM {table} WHERE revision > ?1),
                 (SELECT revision FROM {table} WHERE revision > ?1 ORDER BY revision, seq LIMIT 1 OFFSET ?2) - 1)),
             9223372036854775807)
         ORDER BY revision, seq"
    );
    let since = i64::try_from(since.0).unwrap_or(i64::MAX);
    all(connection, &sql, params![since, bound(limit.max(1))], read)
}

pub(crate) fn one<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&dyn Cells) -> Result<T, RowFault>,
) -> Result<Option<T>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    Ok(rows.next()?.map(|row| read(row)).transpose()?)
}

pub(crate) fn all<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&dyn Cells) -> Result<T, RowFault>,
) -> Result<Vec<T>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// Like [`all`], for what is read as a whole and cannot wait for one bad row: a record that does not decode is left out and
/// said to the log, under the name that `named` finds in its row.
pub(crate) fn readable<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    named: impl Fn(&dyn Cells) -> String,
    read: impl Fn(&dyn Cells) -> Result<T, RowFault>,
) -> Result<Vec<T>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        match read(row) {
            Ok(record) => found.push(record),
            Err(RowFault::Corrupt { what }) => {
                tracing::error!(
                    record = named(row),
                    "a stored {what} cannot be read; skipped"
                );
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(found)
}

/// The condition of the index `requests_open`, word for word.
const OPEN: &str = " AND (state = 'pending' OR state = 'approved' OR state = 'denied' OR state = 'failed' OR \
     state = 'undecided')";

/// The condition of the index `requests_rejected`, word for word: what was denied or could not be decided, and what waits
/// because of a token.
pub(crate) const REJECTED: &str = "(state = 'denied' OR state = 'undecided' OR (state = 'pending' AND live = 1 \
     AND about_token = 1))";

/// Of those, where a token had been used by another key, since the time `?1`.
pub(crate) const THEFT: &str = "code IS 'token_key_mismatch' AND created >= ?1";

/// What may be forgotten of those: what a rule has turned away, and what occupies no name.
pub(crate) const TRIMMABLE: &str = " AND state <> 'pending' AND live = 0 AND by_person = 0";

#[cfg(test)]
mod plan;
