//! Prints a small store as SQL text, for the fixture of a schema that is about to be released.
//!
//! `cargo run -p countersign-store --example schema_fixture > crates/store/tests/fixtures/schema-NNNN.sql`

use std::error::Error;
use std::io::Write as _;

use countersign_authority::store::{Change, Write};
use countersign_authority::{
    AuditPlace, CrlRecord, CrlScope, PolicyVersion, RememberedAllow, Revision, Seal, SealHead,
    Store,
};
use countersign_pki::{RevocationReason, fingerprint_sha256};
use countersign_store::SqliteStore;
use countersign_store_suite::Sample;
use rusqlite::Connection;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("fixture.db");
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(fill(&SqliteStore::open(&path)?))?;
    let text = dump(&Connection::open(&path)?)?;
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// One of everything: a certificate that was revoked, its list, an open intent whose request is stored and one that holds
/// its request, what decisions rest on, a seal, a token that was used, an object, and a bootstrap token.
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
    let policy = PolicyVersion {
        generation: 1,
        digest: fingerprint_sha256(b"text"),
        loaded: Sample::time(8),
        text: "text".to_owned(),
    };
    let allow = RememberedAllow {
        webhook: "https://decider.example.com/".to_owned(),
        name: "waiting.example.com".to_owned(),
        asked: fingerprint_sha256(b"key"),
        until: Sample::time(1800),
    };
    let token = sample.token("agent.example.com");
    let writes = vec![
        Write::PutToken(token.clone()),
        Write::Revoke(revocation),
        Write::PutCrl(crl),
        Write::PutMachine(Sample::machine("waiting.example.com")),
        Write::PutWindow(Sample::window("waiting.example.com")),
        Write::PutPolicy(policy),
        Write::RememberAllow(allow),
        Write::Seal(seal()),
        Write::PutObject(sample.object(Sample::object_key("reader"))),
        Write::PutBootstrapToken(sample.bootstrap_token()),
        Write::UseToken(sample.token_use(&token, "agent.example.com", &fingerprint_sha256(b"key"))),
    ];
    store
        .commit(Change {
            writes,
            ..Change::default()
        })
        .await?;
    let mut waiting = sample.enrolment("waiting.example.com");
    waiting.request.evidence = Sample::evidence();
    let mut change = waiting.intend(&sample);
    let held = sample.enrolment("held.example.com").held(&sample);
    change.writes.push(Write::Intend(held.intent));
    store.commit(change).await?;
    Ok(())
}

/// Of the first entry of the log. Nobody has a key here that signs.
fn seal() -> Seal {
    let place = AuditPlace {
        revision: Revision(1),
        seq: 0,
    };
    let hash = fingerprint_sha256(b"entry");
    Seal {
        head: SealHead {
            number: 1,
            first: place,
            last: place,
            count: 1,
            previous: fingerprint_sha256(b""),
            hash,
            at: Sample::time(9),
            key_id: fingerprint_sha256(b"key"),
            signature: b"signature".to_vec(),
        },
        hashes: vec![hash],
    }
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
