//! Listings of tokens, newest first.
//!
//! What a token's status is depends on the time and on the epoch, which no index knows. An index does know the rest, the
//! token's phase: each status is one or more phases with a condition, and a page is chosen from those phases in the index
//! alone. Epochs grow with the numbers of tokens, so that those from before a restore are those up to a number.

use countersign_authority::{ListedToken, TokenFilter, TokenStatus};
use countersign_pki::UnixTime;
use rusqlite::types::Value;
use rusqlite::{Connection, ToSql, params_from_iter};

use super::listed;
use crate::records::{self, TOKEN};
use crate::row::{Columns, bound, signed};
use crate::sqlite::fault::Fault;
use crate::sqlite::query::{all, epoch, one};

pub(crate) fn tokens(
    connection: &Connection,
    filter: &TokenFilter,
) -> Result<Vec<ListedToken>, Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let epoch = epoch(&snapshot)?;
    let before = match &filter.after {
        None => i64::MAX,
        // One that was forgotten since had been over for long: so are those behind it.
        Some(id) => match number(&snapshot, "id = ?1", &id.as_str())? {
            None => return Ok(Vec::new()),
            Some(number) => number,
        },
    };
    let restored = number(&snapshot, "epoch < ?1", &signed(epoch, "epoch")?)?;
    let page = Page {
        filter,
        before,
        restored: restored.unwrap_or(0),
    };
    let Statement { sql, values } = page.statement();
    let records = all(
        &snapshot,
        &sql,
        params_from_iter(values),
        records::token_record,
    )?;
    let page = records
        .into_iter()
        .map(|record| listed(&snapshot, record, epoch, filter.now))
        .collect::<Result<_, _>>()?;
    snapshot.commit()?;
    Ok(page)
}

/// The number of the newest token with a property. Epochs grow with the numbers.
fn number(
    connection: &Connection,
    condition: &str,
    value: &dyn ToSql,
) -> Result<Option<i64>, Fault> {
    let sql = format!(
        "SELECT number FROM tokens WHERE {condition} ORDER BY epoch DESC, number DESC LIMIT 1"
    );
    one(connection, &sql, [value], |row| {
        Columns::of(row, "token").take()
    })
}

struct Page<'f> {
    filter: &'f TokenFilter,
    /// The number of the token that it goes on after.
    before: i64,
    /// The number of the last token from before the last restore.
    restored: i64,
}

impl Page<'_> {
    fn statement(&self) -> Statement {
        let mut statement = Statement::default();
        let unused = if self.filter.unused {
            " AND uses = 0"
        } else {
            ""
        };
        let kinds = self.filter.status.map(kinds);
        match (&self.filter.certname, kinds) {
            // A name has few: they are looked at one by one.
            (Some(certname), kinds) => {
                let head =
                    format!("SELECT {TOKEN} FROM tokens INDEXED BY tokens_value WHERE value = ?");
                statement.add(&head, [Value::Text(certname.clone())]);
                statement.add(" AND number < ?", [Value::Integer(self.before)]);
                statement.add(unused, []);
                if let Some(kinds) = kinds {
                    statement.add(" AND (0", []);
                    for kind in &kinds {
                        statement.add(" OR ", []);
                        self.add_kind(kind, &mut statement);
                    }
                    statement.add(")", []);
                }
            }
            (None, Some(kinds)) => {
                statement.add(&format!("SELECT {TOKEN} FROM tokens WHERE number IN ("), []);
                for (index, kind) in kinds.iter().enumerate() {
                    let another = if index == 0 { "" } else { " UNION ALL " };
                    let head = "SELECT number FROM (SELECT number FROM tokens INDEXED BY tokens_phase WHERE ";
                    statement.add(another, []);
                    statement.add(head, []);
                    self.add_kind(kind, &mut statement);
                    statement.add(unused, []);
                    let tail = " ORDER BY number DESC LIMIT ?)";
                    statement.add(tail, [self.limit()]);
                }
                statement.add(")", []);
            }
            (None, None) => {
                let index = if self.filter.unused {
                    "INDEXED BY tokens_unused"
                } else {
                    "NOT INDEXED"
                };
                let head = format!("SELECT {TOKEN} FROM tokens {index} WHERE number < ?");
                statement.add(&head, [Value::Integer(self.before)]);
                statement.add(unused, []);
            }
        }
        statement.add(" ORDER BY number DESC LIMIT ?", [self.limit()]);
        statement
    }

    fn add_kind(&self, kind: &Kind, statement: &mut Statement) {
        let (after, before) = match kind.minted {
            Minted::Since => (self.restored, self.before),
            Minted::Before => (0, self.before.min(self.restored.saturating_add(1))),
            Minted::Ever => (0, self.before),
        };
        let sql = format!("(phase = '{}' AND number > ? AND number < ?", kind.phase);
        statement.add(&sql, [after, before].map(Value::Integer));
        if let Some(condition) = kind.at {
            let UnixTime(now) = self.filter.now;
            statement.add(&format!(" AND {condition}"), [Value::Integer(now)]);
        }
        statement.add(")", []);
    }

    fn limit(&self) -> Value {
        Value::Integer(bound(self.filter.limit))
    }
}

#[derive(Default)]
struct Statement {
    sql: String,
    values: Vec<Value>,
}

impl Statement {
    fn add(&mut self, sql: &str, values: impl IntoIterator<Item = Value>) {
        self.sql.push_str(sql);
        self.values.extend(values);
    }
}

/// Tokens of one phase that have a status.
struct Kind {
    phase: &'static str,
    minted: Minted,
    /// What must be true now.
    at: Option<&'static str>,
}

/// When, as seen from the last restore.
#[derive(Clone, Copy)]
enum Minted {
    Since,
    Before,
    Ever,
}

/// The same as [`TokenRecord::status`](countersign_authority::TokenRecord::status), the other way round.
fn kinds(status: TokenStatus) -> Vec<Kind> {
    let kind = |phase, minted, at| Kind { phase, minted, at };
    match status {
        TokenStatus::Active => vec![kind("open", Minted::Since, Some("expires_at > ?"))],
        TokenStatus::Expired => vec![kind("open", Minted::Since, Some("expires_at <= ?"))],
        TokenStatus::Reserved => vec![kind("reserved", Minted::Since, None)],
        TokenStatus::Issued => {
            let fetched = "max_uses = 1 AND retry_until >= ?";
            vec![kind("used", Minted::Since, Some(fetched))]
        }
        TokenStatus::Exhausted => {
            let over = "NOT (max_uses = 1 AND retry_until >= ?)";
            vec![kind("used", Minted::Since, Some(over))]
        }
        TokenStatus::Locked => vec![kind("locked", Minted::Since, None)],
        TokenStatus::Revoked => {
            let stale = ["open", "reserved", "used", "locked"];
            let stale = stale.map(|phase| kind(phase, Minted::Before, None));
            let mut kinds = vec![kind("revoked", Minted::Ever, None)];
            kinds.extend(stale);
            kinds
        }
    }
}
