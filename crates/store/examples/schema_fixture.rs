//! Prints a small store as SQL text, for the fixture of a schema that is about to be released.
//!
//! `cargo run -p countersign-store --example schema_fixture > crates/store/tests/fixtures/schema-NNNN.sql`

use std::error::Error;
use std::io::Write as _;

use countersign_authority::store::{Change, Write};
use countersign_authority::{CrlRecord, CrlScope, Revision, Store};
use countersign_pki::RevocationReason;
use countersign_store::SqliteStore;
use countersign_store::suite::Sample;
use rusqlite::Connection;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("fixture.db");
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(fill(&SqliteStore::open(&path)?))?;
    let text = dump(&Connection::open(&path)?)?;
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// One of everything: a certificate that was revoked, its list, and an intent that is open.
async fn fill(store: &SqliteStore) -> Result<(), Box<dyn Error>> {
    let sample = Sample::default();
    let enrolment = sample.enrolment("agent.example.com");
    store.commit(enrolment.intend(&sample)).await?;
    store.commit(enrolment.record(&sample)).await?;
    let crl = CrlRecord {
        issuer: Sample::issuer(),
        scope: CrlScope::Full,
        number: 1,
        covers: Revision(2),
        this_update: Sample::time(9),
        next_update: Sample::time(10),
        der: b"list".to_vec(),
    };
    let revocation = enrolment.revocation(Sample::time(9), RevocationReason::Superseded);
    let writes = vec![Write::Revoke(revocation), Write::PutCrl(crl)];
    store
        .commit(Change {
            writes,
            ..Change::default()
        })
        .await?;
    store
        .commit(sample.enrolment("waiting.example.com").intend(&sample))
        .await?;
    Ok(())
}

fn dump(connection: &Connection) -> rusqlite::Result<String> {
    let texts = |sql: &str| -> rusqlite::Result<Vec<String>> {
        connection
            .prepare(sql)?
            .query_map([], |row| row.get(0))?
            .collect()
    };
    let mut lines = vec!["BEGIN;".to_owned()];
    lines.extend(texts(
        "SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid",
    )?);
    for table in texts("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")? {
        let columns = texts(&format!(
            "SELECT 'quote(' || name || ')' FROM pragma_table_info('{table}')"
        ))?;
        let values = columns.join(" || ', ' || ");
        lines.extend(texts(&format!(
            "SELECT 'INSERT INTO {table} VALUES (' || {values} || ');' FROM {table}"
        ))?);
    }
    lines.push("COMMIT;\n".to_owned());
    Ok(lines.join("\n"))
}
