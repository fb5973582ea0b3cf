//! The reads. Each sees one snapshot, which holds everything that was acknowledged before it began: it is a single
//! statement, or a transaction around several. A statement here says which, the store runs it.

use std::net::IpAddr;

use countersign_authority::store::{
    AgeFilter, LiveRequest, MachineFilter, RejectionFilter, RequestFilter, Tally,
};
use countersign_authority::{
    AuditOrder, AuditQuery, BootstrapId, Door, FoundToken, IssuerId, ListedToken, ObjectRecord,
    RequestId, Revision, Revocation, State, StateChange, StateChangeKind, TokenFilter, TokenId,
    TokenStatus, inventory_name, one_source,
};
use countersign_pki::{Fingerprint, UnixTime};
use tokio::sync::mpsc;

use super::fault::Fault;
use super::session::Session;
use super::tokens::EPOCH;
use super::value::{Statement, Value};
use super::write::{REJECTED, THEFT, TRIMMABLE};
use crate::records::{self, BOOTSTRAP_TOKEN, MACHINE, OBJECT, REQUEST, REVOCATION, TOKEN, USE};
use crate::row::{Cell as _, Cells, Columns, RowFault, bound, place};

/// The last revision given out.
pub(super) async fn revision(session: &Session) -> Result<Revision, Fault> {
    let statement = Statement::new("SELECT revision FROM store_state WHERE one = 1");
    let read = session.one(&statement, |row| Columns::of(row, "revision").revision());
    read.await?.ok_or(Fault::Corrupt { what: "revision" })
}

/// How often the store was restored from a backup.
pub(super) async fn epoch(session: &Session) -> Result<u64, Fault> {
    let statement = Statement::new("SELECT epoch FROM store_state WHERE one = 1");
    let read = session.one(&statement, |row| Columns::of(row, "epoch").unsigned());
    read.await?.ok_or(Fault::Corrupt { what: "epoch" })
}

/// A request, in its own table or held by its intent.
pub(super) fn request(id: &RequestId) -> Statement<'static> {
    let sql = format!(
        "SELECT {REQUEST} FROM requests WHERE id = $1
         UNION ALL SELECT {HELD} FROM intents WHERE request = $1 AND door IS NOT NULL LIMIT 1"
    );
    Statement::new(sql).with(id.as_bytes().to_vec())
}

/// The request that occupies a name, in its own table or held by its intent.
pub(super) fn occupant(door: &Door, key: &str) -> Statement<'static> {
    let sql = format!(
        "SELECT {REQUEST} FROM requests WHERE door = $1 AND key = $2 AND live
         UNION ALL SELECT {HELD} FROM intents WHERE door = $1 AND key = $2 AND live LIMIT 1"
    );
    named(sql, door, key)
}

/// The newest request that ever had a name. Identities of one second are in no particular order; row numbers are in order
/// of arrival. The sum keeps the planner from walking all of them backwards until one has the name.
pub(super) fn newest_past(door: &Door, key: &str) -> Statement<'static> {
    let sql = format!(
        "SELECT {REQUEST} FROM requests WHERE number = (SELECT max(number + 0) FROM requests WHERE door = $1 AND key = $2)"
    );
    named(sql, door, key)
}

fn named(sql: String, door: &Door, key: &str) -> Statement<'static> {
    Statement::new(sql)
        .with(door.as_str().to_owned())
        .with(key.to_owned())
}

pub(super) fn requests(filter: &RequestFilter) -> Statement<'static> {
    let mut sql = Statement::new(format!("SELECT {REQUEST} FROM requests AS r WHERE true"));
    if let Some(door) = &filter.door {
        sql.push(" AND door = ").bind(door.as_str().to_owned());
    }
    if let Some(key) = &filter.key {
        sql.push(" AND key = ").bind(key.clone());
    }
    if filter.live_only {
        sql.push(" AND live");
    }
    if filter.newest_only {
        // Identities grow with time.
        sql.push(
            " AND NOT EXISTS (SELECT FROM requests AS later
                  WHERE later.door = r.door AND later.key = r.key AND later.id > r.id)",
        );
    }
    if !filter.states.is_empty() {
        // As literals, so that a partial index can be chosen for them.
        let states: Vec<String> = filter
            .states
            .iter()
            .map(|state| format!("'{}'", state.word()))
            .collect();
        sql.push(&format!(" AND state IN ({})", states.join(", ")));
    }
    if let Some(code) = &filter.code {
        sql.push(" AND code = ").bind(code.clone());
    }
    if let Some(since) = filter.since {
        sql.push(" AND created >= ").bind(since.0);
    }
    if let Some((door, key, id)) = &filter.after {
        sql.push(" AND (door, key, id) > (")
            .bind(door.as_str().to_owned())
            .push(", ")
            .bind(key.clone())
            .push(", ")
            .bind(id.as_bytes().to_vec())
            .push(")");
    }
    sql.push(" ORDER BY door, key, id");
    if filter.limit > 0 {
        sql.push(" LIMIT ").bind(bound(filter.limit));
    }
    sql
}

/// Identities begin with their time: the order of identities is that of age.
pub(super) fn requests_before(filter: &AgeFilter) -> Statement<'static> {
    let sql = format!(
        "SELECT {REQUEST} FROM requests
         WHERE door = $1 AND state = '{}' AND id > $2 AND id < $3 AND created < $4 ORDER BY id LIMIT $5",
        filter.state.word()
    );
    let after = filter.after.map_or([0; 16], |id| *id.as_bytes());
    // One second more: the identity of a request is made before it is created.
    let end = RequestId::new(filter.before.plus_seconds(1), [0; 10]);
    Statement::new(sql)
        .with(filter.door.as_str().to_owned())
        .with(after.to_vec())
        .with(end.as_bytes().to_vec())
        .with(filter.before.0)
        .with(bound(filter.limit))
}

pub(super) fn rejections(filter: &RejectionFilter) -> Statement<'static> {
    let mut sql = Statement::new(format!(
        "SELECT number, {REQUEST} FROM requests WHERE {REJECTED}"
    ));
    if let Some(door) = &filter.door {
        sql.push(" AND door = ").bind(door.as_str().to_owned());
    }
    if let Some(key) = &filter.key {
        sql.push(" AND key = ").bind(key.clone());
    }
    if let Some(code) = &filter.code {
        sql.push(" AND code = ").bind(code.clone());
    }
    if let Some(since) = filter.since {
        sql.push(" AND created >= ").bind(since.0);
    }
    if let Some(before) = filter.before {
        sql.push(" AND number < ").bind(place(before));
    }
    if filter.trimmable {
        sql.push(TRIMMABLE);
    }
    sql.push(" ORDER BY number DESC LIMIT ")
        .bind(bound(filter.limit))
        .push(" OFFSET ")
        .bind(bound(filter.skip));
    sql
}

pub(super) fn worth_asking_again(after: Option<u64>, limit: usize) -> Statement<'static> {
    let sql = format!(
        "SELECT number, {REQUEST} FROM requests WHERE state = 'pending' AND live AND retry AND number > $1
         ORDER BY number LIMIT $2"
    );
    Statement::new(sql)
        .with(place(after.unwrap_or(0)))
        .with(bound(limit))
}

pub(super) fn pending_from(source: IpAddr, at_most: usize) -> Statement<'static> {
    let sql = "SELECT count(*), coalesce(sum(bytes), 0)::bigint
         FROM (SELECT bytes FROM requests WHERE source = $1 AND state = 'pending' AND live LIMIT $2) AS waiting";
    Statement::new(sql)
        .with(one_source(source).to_string())
        .with(bound(at_most))
}

pub(super) fn pending_bytes() -> Statement<'static> {
    Statement::new(
        "SELECT coalesce(sum(bytes), 0)::bigint FROM requests WHERE state = 'pending' AND live",
    )
}

pub(super) fn trimmable(thefts_since: UnixTime) -> Statement<'static> {
    let sql = format!(
        "SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM requests
         WHERE {REJECTED}{TRIMMABLE} AND NOT ({THEFT})"
    );
    Statement::new(sql).with(thefts_since.0)
}

/// Gives away what occupies names, page by page, as of one moment; until nobody takes it.
pub(super) async fn live_requests(
    session: &Session,
    door: &Door,
    pages: mpsc::Sender<Vec<LiveRequest>>,
) -> Result<Revision, Fault> {
    let at = revision(session).await?;
    let sql = format!(
        "SELECT {REQUEST}, (SELECT der FROM certificates AS c WHERE c.issuer = r.issuer AND c.serial = r.serial)
         FROM requests AS r WHERE door = $1 AND live AND key > $2 ORDER BY key LIMIT $3"
    );
    let mut after = String::new();
    loop {
        let statement = Statement::new(sql.as_str())
            .with(door.as_str())
            .with(after.as_str())
            .with(LIVE_PAGE);
        // The name of the last, also if its request cannot be read.
        let named = |row: &dyn Cells| String::read(row, KEY).flatten().unwrap_or_default();
        let rows = session.rows(&statement).await?;
        let Some(last) = rows.last() else {
            return Ok(at);
        };
        after = named(last);
        let mut page = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut columns = Columns::of(row, "request");
            let read =
                records::request_in(&mut columns).and_then(|record| Ok((record, columns.take()?)));
            match read {
                Ok((record, certificate)) => page.push(LiveRequest {
                    record,
                    certificate,
                }),
                Err(_) => {
                    let record = records::request_name(row);
                    tracing::error!(record, "a stored request cannot be read; skipped");
                }
            }
        }
        if !page.is_empty() && pages.send(page).await.is_err() {
            return Ok(at);
        }
    }
}

pub(super) async fn tally(
    session: &Session,
    now: UnixTime,
    soon: UnixTime,
) -> Result<Tally, Fault> {
    let pending = Statement::new(
        "SELECT door, count(*) FROM requests WHERE state = 'pending' AND live GROUP BY door ORDER BY door",
    );
    let pending = session.all(&pending, |row| {
        let mut columns = Columns::of(row, "count");
        Ok((Door::from_text(columns.take()?), columns.unsigned()?))
    });
    let pending = pending.await?;
    let expiring = Statement::new(
        "SELECT issuer, count(*) FROM certificates
         WHERE state = 'issued' AND retired IS NULL AND revoked_at IS NULL AND not_after >= $1 AND not_after <= $2
         GROUP BY issuer ORDER BY issuer",
    );
    let expiring = expiring.with(now.0).with(soon.0);
    let expiring = session.all(&expiring, |row| {
        let mut columns = Columns::of(row, "count");
        Ok((columns.issuer()?, columns.unsigned()?))
    });
    let expiring = expiring.await?;
    Ok(Tally { pending, expiring })
}

/// These columns of the newest certificate of each name, from one name to the next: a listing costs what it shows.
pub(super) fn newest(
    columns: &str,
    issuer: &IssuerId,
    after: Option<&str>,
    limit: usize,
) -> Statement<'static> {
    let condition = if after.is_some() { "AND name > $3" } else { "" };
    let sql = format!(
        "SELECT {columns} FROM (
             SELECT DISTINCT ON (name) * FROM certificates
             WHERE issuer = $1 AND state = 'issued' AND retired IS NULL {condition}
             ORDER BY name, number DESC LIMIT $2) AS newest
         ORDER BY name"
    );
    let statement = Statement::new(sql)
        .with(issuer.as_str().to_owned())
        .with(bound(limit));
    match after {
        Some(after) => statement.with(after.to_owned()),
        None => statement,
    }
}

pub(super) fn highest_serial(issuer: &IssuerId) -> Statement<'static> {
    // Magnitudes without leading zeros compare by length first. The bound is what a counter in a signed column has left.
    Statement::new(
        "SELECT serial FROM (SELECT issuer, serial FROM certificates UNION ALL SELECT issuer, serial FROM intents) AS used
         WHERE issuer = $1
           AND (octet_length(serial) < 8 OR (octet_length(serial) = 8 AND serial < '\\x7fffffffffffffff'))
         ORDER BY octet_length(serial) DESC, serial DESC LIMIT 1",
    )
    .with(issuer.as_str().to_owned())
}

pub(super) async fn revocations(
    session: &Session,
    issuer: &IssuerId,
    alive_at: UnixTime,
) -> Result<(Revision, Vec<Revocation>), Fault> {
    let complete_to = revision(session).await?;
    let statement = Statement::new(format!(
        "SELECT {REVOCATION} FROM certificates
         WHERE issuer = $1 AND revoked_at IS NOT NULL AND not_after >= $2 ORDER BY not_after, serial"
    ));
    let statement = statement.with(issuer.as_str()).with(alive_at.0);
    let revoked = session.all(&statement, records::revocation).await?;
    Ok((complete_to, revoked))
}

pub(super) async fn token(
    session: &Session,
    id: &TokenId,
    certname: &str,
    key_fingerprint: &Fingerprint,
) -> Result<Option<FoundToken>, Fault> {
    let record = Statement::new(format!("SELECT {TOKEN} FROM tokens WHERE id = $1"));
    let record = session
        .one(&record.with(id.as_str()), records::token_record)
        .await?;
    let used = |condition: &str| {
        let same = "certname = $2 AND key_fingerprint = $3";
        let sql = format!(
            "SELECT {USE} FROM token_uses WHERE token = $1 AND {condition} ({same}) ORDER BY number LIMIT 1"
        );
        Statement::new(sql)
            .with(id.as_str())
            .with(certname)
            .with(key_fingerprint.as_bytes())
    };
    // Asked for also where there is no such token: whoever tries ids must not see it in how long the answer takes.
    let epoch = epoch(session).await?;
    let same = session.one(&used(""), records::use_record).await?;
    let other = session.one(&used("NOT"), records::use_record).await?;
    Ok(record.map(|record| FoundToken {
        is_stale: record.epoch < epoch,
        same,
        other,
        record,
    }))
}

pub(super) async fn listed_token(
    session: &Session,
    id: &TokenId,
    now: UnixTime,
) -> Result<Option<ListedToken>, Fault> {
    let record = Statement::new(format!("SELECT {TOKEN} FROM tokens WHERE id = $1"));
    list_tokens(session, &record.with(id.as_str()), now)
        .await
        .map(|listed| listed.into_iter().next())
}

/// A page of tokens. What a token's status is depends on the time and on the epoch, which no index knows; its phase is one.
/// Each status is one or more phases with a condition. Epochs grow with the numbers of tokens, so that those from before a
/// restore are those up to a number.
pub(super) async fn tokens(
    session: &Session,
    filter: &TokenFilter,
) -> Result<Vec<ListedToken>, Fault> {
    let number = |statement: Statement<'static>| async move {
        let read = |row: &dyn Cells| Columns::of(row, "token").take::<i64>();
        session.one(&statement, read).await
    };
    let before = match &filter.after {
        None => i64::MAX,
        Some(id) => {
            let found = Statement::new("SELECT number FROM tokens WHERE id = $1");
            match number(found.with(id.as_str().to_owned())).await? {
                // One that was forgotten since had been over for long: so are those behind it.
                None => return Ok(Vec::new()),
                Some(number) => number,
            }
        }
    };
    let restored = Statement::new(format!(
        "SELECT number FROM tokens WHERE epoch < {EPOCH} ORDER BY epoch DESC, number DESC LIMIT 1"
    ));
    let restored = number(restored).await?.unwrap_or(0);
    let mut sql = Statement::new(format!("SELECT {TOKEN} FROM tokens WHERE number < "));
    sql.bind(before);
    if let Some(certname) = &filter.certname {
        sql.push(" AND value = ").bind(certname.as_str());
    }
    if filter.unused {
        sql.push(" AND uses = 0");
    }
    if let Some(status) = filter.status {
        sql.push(" AND ");
        has_status(&mut sql, status, filter.now, restored);
    }
    sql.push(" ORDER BY number DESC LIMIT ")
        .bind(bound(filter.limit));
    list_tokens(session, &sql, filter.now).await
}

/// The same as [`TokenRecord::status`](countersign_authority::TokenRecord::status), the other way round.
fn has_status(sql: &mut Statement<'_>, status: TokenStatus, now: UnixTime, restored: i64) {
    let mut since = |condition: &str, at: Option<&str>| {
        sql.push("(")
            .push(condition)
            .push(" AND number > ")
            .bind(restored);
        if let Some(at) = at {
            sql.push(" AND ").push(at).bind(now.0);
        }
        sql.push(")");
    };
    match status {
        TokenStatus::Active => since("phase = 'open'", Some("expires_at > ")),
        TokenStatus::Expired => since("phase = 'open'", Some("expires_at <= ")),
        TokenStatus::Reserved => since("phase = 'reserved'", None),
        TokenStatus::Issued => since("phase = 'used' AND max_uses = 1", Some("retry_until >= ")),
        TokenStatus::Exhausted => {
            since(
                "phase = 'used'",
                Some("NOT (max_uses = 1 AND retry_until >= "),
            );
            sql.push(")");
        }
        TokenStatus::Locked => since("phase = 'locked'", None),
        TokenStatus::Revoked => {
            sql.push("(phase = 'revoked' OR number <= ")
                .bind(restored)
                .push(")");
        }
    }
}

/// Tokens with their status, which depends on the newest use of each.
async fn list_tokens(
    session: &Session,
    chosen: &Statement<'_>,
    now: UnixTime,
) -> Result<Vec<ListedToken>, Fault> {
    let epoch = epoch(session).await?;
    let records = session.all(chosen, records::token_record).await?;
    let used = records.iter().filter(|record| record.uses > 0);
    let ids: Vec<_> = used.map(|record| record.id.as_str().into()).collect();
    let mut last = Vec::new();
    if !ids.is_empty() {
        let statement = Statement::new(format!(
            "SELECT DISTINCT ON (token) {USE} FROM token_uses WHERE token = ANY($1) ORDER BY token, number DESC"
        ));
        last = session
            .all(&statement.with(Value::Texts(ids)), records::use_record)
            .await?;
    }
    let listed = records.into_iter().map(|record| {
        let last = last.iter().find(|used| used.token == record.id);
        let status = record.status(record.epoch < epoch, last, now);
        ListedToken { record, status }
    });
    Ok(listed.collect())
}

pub(super) fn active_tokens_of(certname: &str, now: UnixTime) -> Statement<'static> {
    let sql = format!(
        "SELECT {TOKEN} FROM tokens
         WHERE value = $1 AND kind = 'exact' AND phase = 'open' AND epoch = {EPOCH} AND expires_at > $2 ORDER BY number"
    );
    Statement::new(sql).with(certname.to_owned()).with(now.0)
}

pub(super) fn active_tokens(now: UnixTime, at_most: usize) -> Statement<'static> {
    let sql = format!(
        "SELECT count(*) FROM (
             SELECT 1 FROM tokens WHERE phase = 'open' AND epoch = {EPOCH} AND expires_at > $1 LIMIT $2) AS active"
    );
    Statement::new(sql).with(now.0).with(bound(at_most))
}

pub(super) fn bootstrap_tokens(after: Option<&BootstrapId>, limit: usize) -> Statement<'static> {
    let sql = format!(
        "SELECT {BOOTSTRAP_TOKEN} FROM bootstrap_tokens
         WHERE $1::text IS NULL OR number < (SELECT number FROM bootstrap_tokens WHERE id = $1)
         ORDER BY number DESC LIMIT $2"
    );
    Statement::new(sql)
        .with(after.map(|id| id.as_str().to_owned()))
        .with(bound(limit))
}

pub(super) fn bootstrap_tokens_over(before: UnixTime, limit: usize) -> Statement<'static> {
    let sql = format!(
        "SELECT id FROM bootstrap_tokens
         WHERE expires_at < $1 OR revoked_at < $1 OR (epoch < {EPOCH} AND created_at < $1) ORDER BY number LIMIT $2"
    );
    Statement::new(sql).with(before.0).with(bound(limit))
}

pub(super) fn machines(filter: &MachineFilter) -> Statement<'static> {
    let after = inventory_name(filter.after.as_deref().unwrap_or_default());
    let mut sql = Statement::new(format!("SELECT {MACHINE} FROM machines WHERE name > "));
    sql.bind(after);
    for (column, wanted) in [("role", &filter.role), ("provider", &filter.provider)] {
        if let Some(wanted) = wanted {
            sql.push(&format!(" AND {column} = ")).bind(wanted.clone());
        }
    }
    sql.push(match filter.enrolled {
        Some(true) => " AND enrolled IS NOT NULL",
        Some(false) => " AND enrolled IS NULL",
        None => "",
    });
    sql.push(" ORDER BY name LIMIT ").bind(bound(filter.limit));
    sql
}

/// A page of the audit log that never ends inside a revision, so that the caller can go on with the last revision it saw. If
/// one revision alone has more entries than the limit, the page is that revision.
pub(super) fn audit(since: Revision, limit: usize) -> Statement<'static> {
    Statement::new(
        "SELECT revision, entry FROM audit
         WHERE revision > $1 AND revision <= coalesce(
             (SELECT greatest(
                  (SELECT min(revision) FROM audit WHERE revision > $1),
                  a.revision - 1)
              FROM audit AS a WHERE a.revision > $1 ORDER BY a.revision, a.seq LIMIT 1 OFFSET $2),
             9223372036854775807)
         ORDER BY revision, seq",
    )
    .with(place(since.0))
    .with(bound(limit.max(1)))
}

/// Walks the log by its key, which is commit order.
pub(super) fn audit_page(query: &AuditQuery) -> Statement<'static> {
    let (sql, edge) = match query.order {
        AuditOrder::OldestFirst => (
            "SELECT revision, seq, entry FROM audit WHERE (revision, seq) > ($1, $2)
             ORDER BY revision, seq LIMIT $3",
            i64::MIN,
        ),
        AuditOrder::NewestFirst => (
            "SELECT revision, seq, entry FROM audit WHERE (revision, seq) < ($1, $2)
             ORDER BY revision DESC, seq DESC LIMIT $3",
            i64::MAX,
        ),
    };
    let (revision, seq) = query.after.map_or((edge, edge), |after| {
        (place(after.revision.0), place(after.seq))
    });
    Statement::new(sql)
        .with(revision)
        .with(seq)
        .with(bound(query.look_at.max(1)))
}

pub(super) async fn objects(session: &Session) -> Result<(Revision, Vec<ObjectRecord>), Fault> {
    let at = revision(session).await?;
    let statement = Statement::new(format!(
        "SELECT {OBJECT} FROM objects ORDER BY kind, namespace, name"
    ));
    let found = session.readable(&statement, records::object_name, records::object);
    Ok((at, found.await?))
}

pub(super) fn states_horizon(newest: usize) -> Statement<'static> {
    Statement::new(
        "SELECT greatest(horizon, coalesce(
             (SELECT revision FROM request_states ORDER BY revision DESC, seq DESC LIMIT 1 OFFSET $1), 0))
         FROM store_state WHERE one = 1",
    )
    .with(bound(newest))
}

/// A page that never ends inside a commit, so that the caller can go on with the last revision it saw. If one commit alone
/// left more states than the limit, the page is that commit.
pub(super) async fn states(
    session: &Session,
    since: Revision,
    limit: usize,
) -> Result<Vec<StateChange>, Fault> {
    let mut since = place(since.0);
    let mut page = Vec::new();
    // An empty page says that nothing more came: one of states that cannot be read does not.
    while page.is_empty()
        && let Some(first) = nth_after(session, since, 0).await?
    {
        let beyond = nth_after(session, since, bound(limit.max(1))).await?;
        let last = beyond.map_or(i64::MAX, |beyond| beyond.saturating_sub(1).max(first));
        page = page_between(session, since, last).await?;
        since = last;
    }
    page.sort_by_key(|(place, _)| *place);
    Ok(page.into_iter().map(|(_, state)| state).collect())
}

async fn page_between(
    session: &Session,
    since: i64,
    last: i64,
) -> Result<Vec<((i64, i64), StateChange)>, Fault> {
    let of = |table: &str, columns: &str| {
        let sql = format!(
            "SELECT revision, seq, change, {columns} FROM {table}
             WHERE revision > $1 AND revision <= $2 ORDER BY revision, seq"
        );
        Statement::new(sql).with(since).with(last)
    };
    let requests = of("request_states", REQUEST);
    let requests = session.readable(&requests, records::request_name, |row| {
        state(row, "state of a request", |columns| {
            Ok(State::Request(Box::new(records::request_in(columns)?)))
        })
    });
    let mut page = requests.await?;
    let objects = of("object_states", OBJECT);
    let objects = session.readable(&objects, records::object_name, |row| {
        state(row, "state of an object", |columns| {
            Ok(State::Object(Box::new(records::object_in(columns)?)))
        })
    });
    page.extend(objects.await?);
    Ok(page)
}

fn state(
    row: &dyn Cells,
    what: &'static str,
    read: impl Fn(&mut Columns<'_>) -> Result<State, RowFault>,
) -> Result<((i64, i64), StateChange), RowFault> {
    let mut columns = Columns::of(row, what);
    let at: (i64, i64) = (columns.take()?, columns.take()?);
    let word: String = columns.take()?;
    let mut kinds = StateChangeKind::ALL.into_iter();
    let kind = columns.known(kinds.find(|kind| kind.word() == word))?;
    let revision = Revision(columns.known(u64::try_from(at.0).ok())?);
    let state = read(&mut columns)?;
    let change = StateChange {
        revision,
        kind,
        state,
    };
    Ok((at, change))
}

/// The commit of the n-th state after `since`, counted from 0.
async fn nth_after(session: &Session, since: i64, n: i64) -> Result<Option<i64>, Fault> {
    let statement = Statement::new(
        "SELECT revision FROM request_states WHERE revision > $1
         UNION ALL SELECT revision FROM object_states WHERE revision > $1 ORDER BY revision LIMIT 1 OFFSET $2",
    );
    let statement = statement.with(since).with(n);
    let read = session.one(&statement, |row| Columns::of(row, "state").take());
    read.await
}

/// The columns of a request that its intent holds, of the same types as those of a request.
const HELD: &str = "request, door, key, live, false, version, state, signer, csr, key_fingerprint, requester, wishes, \
     created, explanation, evidence, NULL, NULL, NULL, attachment";

/// Where [`REQUEST`] has the name.
const KEY: usize = 2;

/// Requests that are read at once: some megabytes.
const LIVE_PAGE: i64 = 256;
