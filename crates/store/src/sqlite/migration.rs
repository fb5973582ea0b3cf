//! Schema versions: numbered SQL texts, each applied once, never altered afterwards.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_authority::one_source;
use countersign_pki::{CheckedCsr, fingerprint_sha256, masked};
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use crate::sqlite::folder::OpenFault;

/// One step of the schema.
pub(crate) struct Migration {
    number: i64,
    sql: &'static str,
}

impl Migration {
    fn checksum(&self) -> String {
        fingerprint_sha256(self.sql.as_bytes()).to_hex()
    }
}

/// Brings a database to the newest schema this program knows, one transaction per step.
///
/// Refuses a database that a newer program wrote, one whose earlier steps were not what this
/// program knows under their number, and one that belongs to something else.
pub(crate) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), OpenFault> {
    apply(connection, path, MIGRATIONS)
}

/// The number of a database's schema, if it is one that this program knows. Changes nothing.
pub(crate) fn check(connection: &Connection, path: &Path) -> Result<i64, OpenFault> {
    let sqlite = |source| OpenFault::Sqlite {
        path: path.to_owned(),
        source,
    };
    let foreign = is_foreign(connection).map_err(sqlite)?;
    if foreign
        || !connection
            .table_exists(None, "schema_migrations")
            .map_err(sqlite)?
    {
        return Err(OpenFault::Foreign {
            path: path.to_owned(),
        });
    }
    let found = applied(connection).map_err(sqlite)?;
    if found > newest() {
        return Err(OpenFault::Newer {
            path: path.to_owned(),
            found,
            known: newest(),
        });
    }
    Ok(found)
}

/// What stands in a database's schema and was not put there by this program, or what is missing there, if anything.
pub(crate) fn stranger(connection: &Connection, path: &Path) -> Result<Option<String>, OpenFault> {
    let number = check(connection, path)?;
    let known = MIGRATIONS.partition_point(|migration| migration.number <= number);
    let sqlite = |source| OpenFault::Sqlite {
        path: path.to_owned(),
        source,
    };
    let mut own = Connection::open_in_memory().map_err(sqlite)?;
    apply(&mut own, path, MIGRATIONS.get(..known).unwrap_or_default())?;
    let (found, expected) = (parts(connection), parts(&own));
    let (found, expected) = (found.map_err(sqlite)?, expected.map_err(sqlite)?);
    let mut differing = found.symmetric_difference(&expected);
    Ok(differing
        .next()
        .map(|(kind, name, _)| format!("{kind} {name}")))
}

/// Kind, name and text of everything in a schema, but for what SQLite keeps there itself.
fn parts(connection: &Connection) -> rusqlite::Result<BTreeSet<(String, String, String)>> {
    connection
        .prepare("SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect()
}

/// The newest schema that this program knows.
pub(crate) fn newest() -> i64 {
    MIGRATIONS.last().map_or(0, |migration| migration.number)
}

fn applied(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row(
        "SELECT coalesce(max(number), 0) FROM schema_migrations",
        [],
        |row| row.get(0),
    )
}

fn apply(connection: &mut Connection, path: &Path, known: &[Migration]) -> Result<(), OpenFault> {
    let sqlite = |source| OpenFault::Sqlite {
        path: path.to_owned(),
        source,
    };
    if is_foreign(connection).map_err(sqlite)? {
        return Err(OpenFault::Foreign {
            path: path.to_owned(),
        });
    }
    connection
        .execute_batch(SCHEMA_MIGRATIONS)
        .map_err(sqlite)?;
    let has_masked = add_functions(connection).map_err(sqlite)?;
    let newest = applied(connection).map_err(sqlite)?;
    let newest_known = known.last().map_or(0, |migration| migration.number);
    if newest > newest_known {
        return Err(OpenFault::Newer {
            path: path.to_owned(),
            found: newest,
            known: newest_known,
        });
    }
    for migration in known {
        let applied: Option<String> = connection
            .query_row(
                "SELECT checksum FROM schema_migrations WHERE number = ?1",
                [migration.number],
                |row| row.get(0),
            )
            .optional()
            .map_err(sqlite)?;
        match applied {
            Some(checksum) if checksum == migration.checksum() => {}
            Some(_) => {
                return Err(OpenFault::Altered {
                    path: path.to_owned(),
                    number: migration.number,
                });
            }
            None => step(connection, migration).map_err(sqlite)?,
        }
    }
    if has_masked.load(Ordering::Relaxed) {
        // Copies of what was overwritten may be left in unused parts of pages, which backups copy, too. Without the
        // first setting SQLite leaves what its buffers held before there.
        connection
            .execute_batch(
                "PRAGMA secure_delete = ON; VACUUM; PRAGMA secure_delete = OFF;
                 PRAGMA wal_checkpoint(TRUNCATE);",
            )
            .map_err(sqlite)?;
    }
    Ok(())
}

fn step(connection: &mut Connection, migration: &Migration) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(migration.sql)?;
    transaction.execute(
        "INSERT INTO schema_migrations (number, checksum) VALUES (?1, ?2)",
        params![migration.number, migration.checksum()],
    )?;
    transaction.commit()
}

/// What steps need beside SQL. Nothing that is stored in a database may call it. Answers whether anything was masked by
/// them, once they have run.
fn add_functions(connection: &Connection) -> rusqlite::Result<Arc<AtomicBool>> {
    let has_masked = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&has_masked);
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function("masked_request", 1, flags, move |arguments| {
        let csr: Option<Vec<u8>> = arguments.get(0)?;
        let csr = csr.and_then(|der| CheckedCsr::trusted_from_store(&der).ok());
        let masked = csr.and_then(|csr| masked(&csr));
        noted.fetch_or(masked.is_some(), Ordering::Relaxed);
        Ok(masked)
    })?;
    connection.create_scalar_function("one_source", 1, flags, |arguments| {
        let text: Option<String> = arguments.get(0)?;
        let address = text.as_deref().and_then(|text| text.parse().ok());
        Ok(address
            .map(one_source)
            .map_or(text, |source| Some(source.to_string())))
    })?;
    Ok(has_masked)
}

fn is_foreign(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT count(*) > 0 AND NOT max(name = 'schema_migrations') FROM sqlite_schema WHERE type = 'table'",
        [],
        |row| row.get::<_, Option<bool>>(0).map(|foreign| foreign.unwrap_or(false)),
    )
}

const SCHEMA_MIGRATIONS: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    number   INTEGER PRIMARY KEY,
    checksum TEXT NOT NULL
) STRICT";

const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        sql: include_str!("migrations/0001_requests_and_ledger.sql"),
    },
    Migration {
        number: 2,
        sql: include_str!("migrations/0002_retirement.sql"),
    },
    Migration {
        number: 3,
        sql: include_str!("migrations/0003_takeover_and_upkeep.sql"),
    },
    Migration {
        number: 4,
        sql: include_str!("migrations/0004_inventory.sql"),
    },
    Migration {
        number: 5,
        sql: include_str!("migrations/0005_policies.sql"),
    },
    Migration {
        number: 6,
        sql: include_str!("migrations/0006_audit_seals.sql"),
    },
    Migration {
        number: 7,
        sql: include_str!("migrations/0007_tokens.sql"),
    },
    Migration {
        number: 8,
        sql: include_str!("migrations/0008_objects_states_and_bootstrap_tokens.sql"),
    },
    Migration {
        number: 9,
        sql: include_str!("migrations/0009_open_intents.sql"),
    },
    Migration {
        number: 10,
        sql: include_str!("migrations/0010_cheaper_writes.sql"),
    },
    Migration {
        number: 11,
        sql: include_str!("migrations/0011_masks_macs_and_bounds.sql"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Migration = Migration {
        number: 1,
        sql: "CREATE TABLE a (x INTEGER) STRICT",
    };
    const SECOND: Migration = Migration {
        number: 2,
        sql: "ALTER TABLE a ADD COLUMN y INTEGER",
    };
    const BROKEN: Migration = Migration {
        number: 2,
        sql: "CREATE TABLE b (x INTEGER) STRICT; CREATE TABEL c",
    };

    fn apply_to(connection: &mut Connection, known: &[Migration]) -> Result<(), OpenFault> {
        apply(connection, Path::new("test.db"), known)
    }

    #[test]
    fn applies_each_step_once_and_later_ones_on_top() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply_to(&mut connection, &[FIRST]).unwrap();
        connection
            .execute("INSERT INTO a (x) VALUES (7)", [])
            .unwrap();
        apply_to(&mut connection, &[FIRST, SECOND]).unwrap();
        apply_to(&mut connection, &[FIRST, SECOND]).unwrap();
        let row: (i64, Option<i64>) = connection
            .query_row("SELECT x, y FROM a", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!(row, (7, None));
    }

    #[test]
    fn refuses_a_newer_schema_and_names_both_versions() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply_to(&mut connection, &[FIRST, SECOND]).unwrap();
        let fault = apply_to(&mut connection, &[FIRST]).unwrap_err();
        assert!(
            matches!(
                fault,
                OpenFault::Newer {
                    found: 2,
                    known: 1,
                    ..
                }
            ),
            "{fault}"
        );
    }

    #[test]
    fn refuses_a_step_that_was_altered_after_it_was_applied() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply_to(&mut connection, &[FIRST]).unwrap();
        let altered = Migration {
            number: 1,
            sql: "CREATE TABLE a (x INTEGER, z INTEGER) STRICT",
        };
        let fault = apply_to(&mut connection, &[altered]).unwrap_err();
        assert!(
            matches!(fault, OpenFault::Altered { number: 1, .. }),
            "{fault}"
        );
    }

    #[test]
    fn a_step_that_fails_leaves_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply_to(&mut connection, &[FIRST]).unwrap();
        assert!(matches!(
            apply_to(&mut connection, &[FIRST, BROKEN]),
            Err(OpenFault::Sqlite { .. })
        ));
        apply_to(&mut connection, &[FIRST]).unwrap();
        assert!(connection.prepare("SELECT x FROM b").is_err());
    }

    #[test]
    fn refuses_a_database_of_something_else() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE bookmarks (url TEXT)")
            .unwrap();
        assert!(matches!(
            apply_to(&mut connection, &[FIRST]),
            Err(OpenFault::Foreign { .. })
        ));
        assert!(
            connection
                .prepare("SELECT * FROM schema_migrations")
                .is_err()
        );
    }

    #[test]
    fn a_row_of_the_ledger_is_checked_without_a_temporary_tree() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply_to(&mut connection, MIGRATIONS).unwrap();
        let insert = |state: &str| {
            format!(
                "INSERT INTO certificates (issuer, serial, state, request, signer, name, key_fingerprint, not_before,
                                           not_after, explanation)
                 VALUES ('i', X'01', '{state}', X'', 's', 'n', X'', 0, 0, '{{}}')"
            )
        };
        let program = format!("EXPLAIN {}", insert("void"));
        let mut program = connection.prepare(&program).unwrap();
        let steps = program.query_map([], |row| row.get::<_, String>("opcode"));
        let steps: Vec<String> = steps.unwrap().map(Result::unwrap).collect();
        assert!(steps.iter().any(|step| step == "Halt"), "{steps:?}");
        assert!(
            !steps.iter().any(|step| step == "OpenEphemeral"),
            "{steps:?}"
        );
        connection.execute(&insert("void"), []).unwrap();
        connection.execute(&insert("intended"), []).unwrap_err();
    }

    #[test]
    fn numbers_are_consecutive() {
        let numbers: Vec<i64> = MIGRATIONS
            .iter()
            .map(|migration| migration.number)
            .collect();
        assert!(
            numbers
                .iter()
                .copied()
                .eq(1..=i64::try_from(numbers.len()).unwrap())
        );
    }
}
