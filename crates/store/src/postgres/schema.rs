//! Schema versions: numbered SQL texts, each applied once, never altered afterwards.
//!
//! Whoever starts looks first, and only who finds an old schema changes it, one process at a time. So a role that may not
//! change it can serve all the same.

use std::time::Duration;

use countersign_pki::fingerprint_sha256;
use tokio_postgres::error::SqlState;

use super::address::Address;
use super::fault::{DatabaseFault, Fault};
use super::session::{Limits, SCHEMA, Session};
use super::value::Statement;
use crate::row::Columns;

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenFault {
    /// It cannot be reached, or has refused something.
    #[error("{database} cannot be used as a store: {reason}")]
    Unusable {
        /// Which, without its password.
        database: String,
        /// What it says.
        reason: String,
    },
    /// Its release is too old.
    #[error("{database} is PostgreSQL {found}: version {OLDEST} or later is needed")]
    Old {
        /// Which.
        database: String,
        /// Its release.
        found: i64,
    },
    /// A later version of the program has changed the schema.
    #[error(
        "{database} has schema {found}, this program knows schemas up to {known}: run the version that made it, or a later one"
    )]
    Newer {
        /// Which.
        database: String,
        /// Its schema.
        found: i64,
        /// The newest one known here.
        known: i64,
    },
    /// The schema was made by another text than this program has under that number.
    #[error(
        "{database} was made with another schema step {number} than this program has: run the version that made it, or a release after it"
    )]
    Altered {
        /// Which.
        database: String,
        /// The step that differs.
        number: i64,
    },
    /// The role may not do what is needed.
    #[error(
        "role {role} may not make or change the tables in {database}: start once as the role that owns them, or grant it what is missing ({reason})"
    )]
    Forbidden {
        /// Which.
        database: String,
        /// Who.
        role: String,
        /// What it says.
        reason: String,
    },
}

/// Brings a database to the newest schema that this program knows.
pub(super) async fn migrate(session: &Session, address: &Address) -> Result<(), PostgresOpenFault> {
    apply(session, address, MIGRATIONS).await
}

/// One step of the schema.
struct Migration {
    number: i64,
    sql: &'static str,
}

impl Migration {
    fn checksum(&self) -> String {
        fingerprint_sha256(self.sql.as_bytes()).to_hex()
    }
}

async fn apply(
    session: &Session,
    address: &Address,
    known: &[Migration],
) -> Result<(), PostgresOpenFault> {
    let told = |fault| tell(fault, address);
    check_release(session, address).await?;
    if missing(session, address, known).await?.is_empty() {
        return Ok(());
    }
    // Two numbers: names of changes are locked by one, and never meet this.
    session
        .batch(&format!(
            "SET lock_timeout = {}; SELECT pg_advisory_lock({LOCK}, 0)",
            MIGRATING.as_millis()
        ))
        .await
        .map_err(told)?;
    // Who owns the schema may not be allowed to make one.
    let is_there = Statement::new(format!("SELECT to_regnamespace('{SCHEMA}') IS NOT NULL"));
    let read = session.one(&is_there, |row| Columns::of(row, "schema").take::<bool>());
    if read.await.map_err(|fault| unusable(fault, address))? != Some(true) {
        let make = format!("CREATE SCHEMA {SCHEMA}");
        session.batch(&make).await.map_err(told)?;
    }
    // Somebody else may have been faster.
    for migration in missing(session, address, known).await? {
        let step = format!(
            "BEGIN; SET LOCAL statement_timeout = {};
             CREATE TABLE IF NOT EXISTS schema_migrations (number bigint PRIMARY KEY, checksum text NOT NULL);
             {}
             INSERT INTO schema_migrations (number, checksum) VALUES ({}, '{}'); COMMIT",
            MIGRATING.as_millis(),
            migration.sql,
            migration.number,
            migration.checksum()
        );
        if let Err(fault) = session.batch(&step).await {
            // It ends with the session, too.
            let _ = session.batch("ROLLBACK").await;
            return Err(told(fault));
        }
        tracing::info!(schema = migration.number, database = %address, "the schema was brought up to date");
    }
    let unlock = format!("SELECT pg_advisory_unlock({LOCK}, 0)");
    session.batch(&unlock).await.map_err(told)
}

async fn check_release(session: &Session, address: &Address) -> Result<(), PostgresOpenFault> {
    let release = Statement::new("SELECT current_setting('server_version_num')::bigint / 10000");
    let read = session.one(&release, |row| Columns::of(row, "release").take::<i64>());
    let found = read.await.map_err(|fault| unusable(fault, address))?;
    match found {
        Some(found) if found < OLDEST => Err(PostgresOpenFault::Old {
            database: address.to_string(),
            found,
        }),
        _ => Ok(()),
    }
}

/// The steps that a database has not taken, in their order. Changes nothing.
async fn missing<'m>(
    session: &Session,
    address: &Address,
    known: &'m [Migration],
) -> Result<Vec<&'m Migration>, PostgresOpenFault> {
    let is_there = Statement::new(format!(
        "SELECT to_regclass('{SCHEMA}.schema_migrations') IS NOT NULL"
    ));
    let read = session.one(&is_there, |row| Columns::of(row, "table").take::<bool>());
    if read.await.map_err(|fault| unusable(fault, address))? != Some(true) {
        return Ok(known.iter().collect());
    }
    let applied = Statement::new("SELECT number, checksum FROM schema_migrations ORDER BY number");
    let read = session.all(&applied, |row| {
        let mut columns = Columns::of(row, "schema step");
        Ok((columns.take::<i64>()?, columns.take::<String>()?))
    });
    let applied = read.await.map_err(|fault| unusable(fault, address))?;
    let newest = known.last().map_or(0, |migration| migration.number);
    for (number, checksum) in &applied {
        let Some(migration) = known.iter().find(|known| known.number == *number) else {
            return Err(PostgresOpenFault::Newer {
                database: address.to_string(),
                found: applied.last().map_or(*number, |(number, _)| *number),
                known: newest,
            });
        };
        if migration.checksum() != *checksum {
            return Err(PostgresOpenFault::Altered {
                database: address.to_string(),
                number: *number,
            });
        }
    }
    let is_missing = |known: &&Migration| applied.iter().all(|(number, _)| *number != known.number);
    Ok(known.iter().filter(is_missing).collect())
}

pub(super) fn unusable(fault: Fault, address: &Address) -> PostgresOpenFault {
    match fault {
        Fault::Database(fault) => tell(fault, address),
        Fault::Corrupt { what } => PostgresOpenFault::Unusable {
            database: address.to_string(),
            reason: format!("its {what} cannot be read"),
        },
        Fault::Refused(fault) => PostgresOpenFault::Unusable {
            database: address.to_string(),
            reason: fault.to_string(),
        },
    }
}

/// The fault as whoever starts the program is told it.
pub(super) fn tell(fault: DatabaseFault, address: &Address) -> PostgresOpenFault {
    let forbidden = [
        SqlState::INSUFFICIENT_PRIVILEGE,
        SqlState::INVALID_SCHEMA_NAME,
    ];
    let (database, mut reason) = (address.to_string(), fault.to_string());
    let mut cause = std::error::Error::source(&fault);
    while let Some(source) = cause {
        reason.push_str(&format!(": {source}"));
        cause = source.source();
    }
    if fault.code().is_some_and(|code| forbidden.contains(code)) {
        let role = address.user().to_owned();
        return PostgresOpenFault::Forbidden {
            database,
            role,
            reason,
        };
    }
    PostgresOpenFault::Unusable { database, reason }
}

const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    sql: include_str!("migrations/0001_everything.sql"),
}];

/// While it starts: another process may be changing the schema.
pub(super) const LIMITS: Limits = Limits {
    statement: Duration::from_secs(600),
    lock: Duration::from_secs(600),
    idle: Duration::from_secs(60),
};

/// The longest that one step may take, and that others wait for it.
const MIGRATING: Duration = Duration::from_secs(600);

/// `csig`, as a number.
const LOCK: i32 = 0x6373_6967;

const OLDEST: i64 = 15;
