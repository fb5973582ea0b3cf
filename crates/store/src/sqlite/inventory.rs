//! The inventory in its tables: machines that are expected, and build windows.
//!
//! Every name that comes in is brought into the form in which names are kept.

use countersign_authority::store::{MachineFilter, Precondition};
use countersign_authority::{MachineRecord, RequestId, Revision, inventory_name};
use countersign_pki::UnixTime;
use countersign_policy::{BuildWindow, Machine};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, ToSql, params, params_from_iter};

use crate::records::{self, MACHINE, WINDOW};
use crate::refused::RefusedWrite;
use crate::row::{bound, document};
use crate::sqlite::fault::Fault;
use crate::sqlite::query::{all, one};

pub(crate) fn machine(connection: &Connection, name: &str) -> Result<Option<MachineRecord>, Fault> {
    let sql = format!("SELECT {MACHINE} FROM machines WHERE name = ?1");
    one(connection, &sql, params![name], records::machine_record)
}

pub(crate) fn machines(
    connection: &Connection,
    filter: &MachineFilter,
) -> Result<Vec<MachineRecord>, Fault> {
    let (sql, values) = machines_sql(filter);
    all(
        connection,
        &sql,
        params_from_iter(values),
        records::machine_record,
    )
}

pub(crate) fn window(
    connection: &Connection,
    certname: &str,
) -> Result<Option<BuildWindow>, Fault> {
    let sql = format!("SELECT {WINDOW} FROM windows WHERE certname = ?1");
    one(connection, &sql, params![certname], records::build_window)
}

pub(crate) fn windows(
    connection: &Connection,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<BuildWindow>, Fault> {
    // No name is empty: every one comes after the empty text.
    let after = inventory_name(after.unwrap_or_default());
    let sql =
        format!("SELECT {WINDOW} FROM windows WHERE certname > ?1 ORDER BY certname LIMIT ?2");
    all(
        connection,
        &sql,
        params![after, bound(limit)],
        records::build_window,
    )
}

pub(crate) fn windows_closed(
    connection: &Connection,
    before: UnixTime,
    limit: usize,
) -> Result<Vec<BuildWindow>, Fault> {
    let sql = format!(
        "SELECT {WINDOW} FROM windows WHERE closes_at < ?1 ORDER BY closes_at, certname LIMIT ?2"
    );
    all(
        connection,
        &sql,
        params![before.0, bound(limit)],
        records::build_window,
    )
}

pub(crate) fn machine_is_at(
    connection: &Connection,
    name: &str,
    version: Option<Revision>,
) -> Result<bool, Fault> {
    let stored: Option<i64> = connection
        .prepare_cached("SELECT version FROM machines WHERE name = ?1")?
        .query_row(params![inventory_name(name)], |row| row.get(0))
        .optional()?;
    Ok(match version {
        Some(version) => stored.is_some() && stored == i64::try_from(version.0).ok(),
        None => stored.is_none(),
    })
}

pub(crate) fn machine_exists(connection: &Connection, name: &str) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM machines WHERE name = ?1";
    exists(connection, sql, params![inventory_name(name)])
}

pub(crate) fn machine_is_unused(connection: &Connection, name: &str) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM machines WHERE name = ?1 AND enrolled IS NULL";
    exists(connection, sql, params![inventory_name(name)])
}

pub(crate) fn window_is_open(
    connection: &Connection,
    certname: &str,
    at: UnixTime,
    with_token: bool,
) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM windows
               WHERE certname = ?1 AND opens_at <= ?2 AND ?2 < closes_at AND issuances < max_issuances
                   AND (require_token = 0 OR ?3)";
    exists(
        connection,
        sql,
        params![inventory_name(certname), at.0, with_token],
    )
}

pub(crate) fn window_is_closed(
    connection: &Connection,
    certname: &str,
    before: UnixTime,
) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM windows WHERE certname = ?1 AND closes_at < ?2";
    exists(connection, sql, params![inventory_name(certname), before.0])
}

/// A record that is written again keeps its age and its enrolment.
pub(crate) fn put_machine(
    connection: &Connection,
    machine: &Machine,
    revision: i64,
) -> Result<(), Fault> {
    execute(
        connection,
        "INSERT INTO machines (name, version, addresses, serial, uuid, instance_id, provider, role, not_before,
                               not_after, single_use, created, enrolled)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT (name) DO UPDATE
         SET version = excluded.version, addresses = excluded.addresses, serial = excluded.serial,
             uuid = excluded.uuid, instance_id = excluded.instance_id, provider = excluded.provider,
             role = excluded.role, not_before = excluded.not_before, not_after = excluded.not_after,
             single_use = excluded.single_use",
        params![
            inventory_name(&machine.name),
            revision,
            document(&machine.addresses, "machine's addresses")?,
            machine.serial,
            machine.uuid,
            machine.instance_id,
            machine.provider,
            machine.role,
            machine.not_before.map(|time| time.0),
            machine.not_after.map(|time| time.0),
            machine.single_use,
            machine.created.0,
            machine.enrolled.map(|time| time.0),
        ],
    )?;
    Ok(())
}

pub(crate) fn delete_machine(connection: &Connection, name: &str) -> Result<(), Fault> {
    let sql = "DELETE FROM machines WHERE name = ?1";
    execute(connection, sql, params![inventory_name(name)])?;
    Ok(())
}

pub(crate) fn enrol_machine(
    connection: &Connection,
    name: &str,
    request: &RequestId,
    at: UnixTime,
    revision: i64,
) -> Result<(), Fault> {
    let enrolled = execute(
        connection,
        "UPDATE machines SET enrolled = ?2, request = ?3, version = ?4 WHERE name = ?1 AND enrolled IS NULL",
        params![inventory_name(name), at.0, request.as_bytes(), revision],
    )?;
    if enrolled > 0 || machine_exists(connection, name)? {
        return Ok(());
    }
    Err(Fault::conflict(Precondition::MachineExists {
        name: name.to_owned(),
    }))
}

pub(crate) fn put_window(connection: &Connection, window: &BuildWindow) -> Result<(), Fault> {
    execute(
        connection,
        "INSERT OR REPLACE INTO windows (certname, opens_at, closes_at, max_issuances, issuances, require_token)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            inventory_name(&window.certname),
            window.opens_at.0,
            window.closes_at.0,
            window.max_issuances,
            window.issuances,
            window.require_token,
        ],
    )?;
    Ok(())
}

pub(crate) fn close_window(connection: &Connection, certname: &str) -> Result<(), Fault> {
    let sql = "DELETE FROM windows WHERE certname = ?1";
    execute(connection, sql, params![inventory_name(certname)])?;
    Ok(())
}

pub(crate) fn use_window(connection: &Connection, certname: &str) -> Result<(), Fault> {
    let used = execute(
        connection,
        "UPDATE windows SET issuances = issuances + 1 WHERE certname = ?1 AND issuances < max_issuances",
        params![inventory_name(certname)],
    )?;
    if used > 0 {
        return Ok(());
    }
    Err(Fault::refused(RefusedWrite::NoSuchWindow {
        certname: certname.to_owned(),
    }))
}

/// A page by the index that knows most about the filter. Said outright: without statistics SQLite would walk by name.
fn machines_sql(filter: &MachineFilter) -> (String, Vec<Value>) {
    let index = match filter {
        MachineFilter { role: Some(_), .. } => "INDEXED BY machines_role",
        MachineFilter {
            provider: Some(_), ..
        } => "INDEXED BY machines_provider",
        MachineFilter {
            enrolled: Some(true),
            ..
        } => "INDEXED BY machines_enrolled",
        MachineFilter {
            enrolled: Some(false),
            ..
        } => "INDEXED BY machines_waiting",
        MachineFilter { enrolled: None, .. } => "",
    };
    let after = inventory_name(filter.after.as_deref().unwrap_or_default());
    let mut sql = format!("SELECT {MACHINE} FROM machines {index} WHERE name > ?");
    let mut values = vec![Value::Text(after)];
    for (column, wanted) in [("role", &filter.role), ("provider", &filter.provider)] {
        if let Some(wanted) = wanted {
            sql.push_str(&format!(" AND {column} = ?"));
            values.push(Value::Text(wanted.clone()));
        }
    }
    sql.push_str(match filter.enrolled {
        Some(true) => " AND enrolled IS NOT NULL",
        Some(false) => " AND enrolled IS NULL",
        None => "",
    });
    sql.push_str(" ORDER BY name LIMIT ?");
    values.push(Value::Integer(bound(filter.limit)));
    (sql, values)
}

fn exists(connection: &Connection, sql: &str, values: &[&dyn ToSql]) -> Result<bool, Fault> {
    Ok(connection.prepare_cached(sql)?.exists(values)?)
}

fn execute(connection: &Connection, sql: &str, values: &[&dyn ToSql]) -> Result<usize, Fault> {
    Ok(connection.prepare_cached(sql)?.execute(values)?)
}
