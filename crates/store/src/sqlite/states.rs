//! The history: what each commit made of retained requests and of objects.
//!
//! A state is copied from the row by the commit that wrote it. Revisions and the numbers within one are shared by the tables
//! of requests and of objects, so that both are one history.

use countersign_authority::store::LiveRequest;
use countersign_authority::{Door, RequestId, Revision, State, StateChange};
use countersign_authority::{ObjectKey, StateChangeKind};
use rusqlite::{Connection, OptionalExtension, params};

use crate::records::{self, OBJECT, REQUEST};
use crate::row::{Cells, Columns, RowFault, bound};
use crate::sqlite::fault::Fault;
use crate::sqlite::query::{one, readable, revision};

/// Where a state stands in the history: its commit and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor {
    pub(crate) revision: i64,
    pub(crate) seq: i64,
}

/// Gives away what occupies names, page by page, as of one moment; until nobody takes it.
pub(crate) fn live_requests(
    connection: &Connection,
    door: &Door,
    mut give: impl FnMut(Vec<LiveRequest>) -> bool,
) -> Result<Revision, Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let at = revision(&snapshot)?;
    let mut after = String::new();
    loop {
        let page = readable(
            &snapshot,
            &format!(
                "SELECT {REQUEST}, (SELECT der FROM certificates AS c WHERE c.issuer = r.issuer AND c.serial = r.serial)
                 FROM requests AS r WHERE door = ?1 AND live = 1 AND key > ?2 ORDER BY key LIMIT ?3"
            ),
            params![door.as_str(), after, bound(LIVE_PAGE)],
            records::request_name,
            |row| {
                let mut columns = Columns::of(row, "request");
                Ok(LiveRequest {
                    record: records::request_in(&mut columns)?,
                    certificate: columns.take()?,
                })
            },
        )?;
        let last = last_key(&snapshot, door, &after)?;
        let Some(last) = last else {
            break;
        };
        after = last;
        if !page.is_empty() && !give(page) {
            break;
        }
    }
    snapshot.commit()?;
    Ok(at)
}

/// The last name of a page, also if its request cannot be read; `None`: there is no more.
fn last_key(connection: &Connection, door: &Door, after: &str) -> Result<Option<String>, Fault> {
    let sql = "SELECT max(key) FROM (SELECT key FROM requests WHERE door = ?1 AND live = 1 AND key > ?2 ORDER BY key LIMIT ?3)";
    let values = params![door.as_str(), after, bound(LIVE_PAGE)];
    let last: Option<Option<String>> = connection
        .prepare_cached(sql)?
        .query_row(values, |row| row.get(0))
        .optional()?;
    Ok(last.flatten())
}

pub(crate) fn horizon(connection: &Connection, newest: usize) -> Result<Revision, Fault> {
    let sql = "SELECT max(horizon, coalesce(
                   (SELECT revision FROM request_states ORDER BY revision DESC, seq DESC LIMIT 1 OFFSET ?1), 0))
               FROM store_state WHERE one = 1";
    one(connection, sql, [bound(newest)], |row| {
        Columns::of(row, "horizon").revision()
    })?
    .ok_or(Fault::Corrupt { what: "horizon" })
}

/// A page that never ends inside a commit, so that the caller can go on with the last revision it saw. If one commit alone
/// left more states than the limit, the page is that commit.
pub(crate) fn states(
    connection: &Connection,
    since: Revision,
    limit: usize,
) -> Result<Vec<StateChange>, Fault> {
    let mut since = i64::try_from(since.0).unwrap_or(i64::MAX);
    let snapshot = connection.unchecked_transaction()?;
    let mut page = Vec::new();
    // An empty page says that nothing more came: one of states that cannot be read does not.
    while page.is_empty()
        && let Some(first) = nth_after(&snapshot, since, 0)?
    {
        let beyond = nth_after(&snapshot, since, bound(limit.max(1)))?;
        let last = beyond.map_or(i64::MAX, |beyond| beyond.saturating_sub(1).max(first));
        page = page_between(&snapshot, since, last)?;
        since = last;
    }
    snapshot.commit()?;
    page.sort_by_key(|(place, _)| *place);
    Ok(page.into_iter().map(|(_, state)| state).collect())
}

/// The states that can be read, those of requests first.
fn page_between(
    snapshot: &Connection,
    since: i64,
    last: i64,
) -> Result<Vec<(Cursor, StateChange)>, Fault> {
    let mut page = readable(
        snapshot,
        &page_of("request_states", REQUEST),
        params![since, last],
        records::request_name,
        |row| {
            state(row, "state of a request", |columns| {
                Ok(State::Request(Box::new(records::request_in(columns)?)))
            })
        },
    )?;
    page.extend(readable(
        snapshot,
        &page_of("object_states", OBJECT),
        params![since, last],
        records::object_name,
        |row| {
            state(row, "state of an object", |columns| {
                Ok(State::Object(Box::new(records::object_in(columns)?)))
            })
        },
    )?);
    Ok(page)
}

/// Puts the present state of a request into the history. One that gave up its name is gone from its door.
pub(crate) fn keep_request(
    connection: &Connection,
    id: &RequestId,
    place: Cursor,
    change: StateChangeKind,
) -> Result<(), Fault> {
    let sql = format!(
        "INSERT INTO request_states (revision, seq, change, {REQUEST})
         SELECT ?2, ?3, iif(live, ?4, 'deleted'), {}
         FROM requests WHERE id = ?1 AND (live = 1 OR ?4 = 'modified')",
        REQUEST.replace("version", "?2")
    );
    let values = params![id.as_bytes(), place.revision, place.seq, change.word()];
    connection.prepare_cached(&sql)?.execute(values)?;
    Ok(())
}

/// Puts the present state of an object into the history.
pub(crate) fn keep_object(
    connection: &Connection,
    key: &ObjectKey,
    place: Cursor,
    change: StateChangeKind,
) -> Result<(), Fault> {
    let sql = format!(
        "INSERT INTO object_states (revision, seq, change, {OBJECT})
         SELECT ?4, ?5, ?6, {} FROM objects WHERE kind = ?1 AND namespace = ?2 AND name = ?3",
        OBJECT.replace("version", "?4")
    );
    let values = params![
        key.kind,
        key.namespace,
        key.name,
        place.revision,
        place.seq,
        change.word()
    ];
    connection.prepare_cached(&sql)?.execute(values)?;
    Ok(())
}

/// Forgets states that commits before `before` left, whole commits and about [`MAX_TRIMMED`] states, and moves the horizon
/// with them. A commit does not trim its own states.
pub(crate) fn trim(
    connection: &Connection,
    before: Revision,
    this_commit: i64,
) -> Result<(), Fault> {
    let before = i64::try_from(before.0).map_or(this_commit, |before| before.min(this_commit));
    let (first, beyond) = (
        nth_after(connection, 0, 0)?,
        nth_after(connection, 0, MAX_TRIMMED)?,
    );
    let before = match (first, beyond) {
        // The first commit goes whole, however much it left.
        (Some(first), Some(beyond)) => before.min(beyond.max(first.saturating_add(1))),
        (_, _) => before,
    };
    for table in ["request_states", "object_states"] {
        let sql = format!("DELETE FROM {table} WHERE revision < ?1");
        connection.prepare_cached(&sql)?.execute([before])?;
    }
    connection
        .prepare_cached("UPDATE store_state SET horizon = max(horizon, ?1 - 1) WHERE one = 1")?
        .execute([before])?;
    Ok(())
}

/// The commit of the n-th state after `since`, counted from 0.
fn nth_after(connection: &Connection, since: i64, n: i64) -> Result<Option<i64>, Fault> {
    let sql = "SELECT revision FROM request_states WHERE revision > ?1
               UNION ALL SELECT revision FROM object_states WHERE revision > ?1
               ORDER BY revision LIMIT 1 OFFSET ?2";
    Ok(connection
        .prepare_cached(sql)?
        .query_row([since, n], |row| row.get(0))
        .optional()?)
}

fn page_of(table: &str, columns: &str) -> String {
    format!(
        "SELECT revision, seq, change, {columns} FROM {table}
         WHERE revision > ?1 AND revision <= ?2 ORDER BY revision, seq"
    )
}

fn state(
    row: &dyn Cells,
    what: &'static str,
    read: impl Fn(&mut Columns<'_>) -> Result<State, RowFault>,
) -> Result<(Cursor, StateChange), RowFault> {
    let mut columns = Columns::of(row, what);
    let place = Cursor {
        revision: columns.take()?,
        seq: columns.take()?,
    };
    let word: String = columns.take()?;
    let mut kinds = StateChangeKind::ALL.into_iter();
    let kind = columns.known(kinds.find(|kind| kind.word() == word))?;
    let revision = Revision(columns.known(u64::try_from(place.revision).ok())?);
    let state = read(&mut columns)?;
    Ok((
        place,
        StateChange {
            revision,
            kind,
            state,
        },
    ))
}

/// Others have their turn between two of these.
const MAX_TRIMMED: i64 = 500;

/// Requests that are read at once: some megabytes.
const LIVE_PAGE: usize = 256;
