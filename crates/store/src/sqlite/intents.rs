//! Open intents: certificates that are about to be signed, each with its request if that is not stored yet.
//!
//! The table is small and its pages are always at hand. An intent leaves it when its certificate is recorded or its serial
//! is burned.
//!
//! What leaves is copied by `INSERT OR FAIL ... SELECT`: with any other way to fail, SQLite keeps a copy of every page that
//! the statement touches. It is one row, checked whole before anything is written, and the writer undoes what failed.

use countersign_authority::store::{CommitFault, Precondition};
use countersign_authority::{
    DeferredRequest, Door, Intent, IssuerId, Owner, RequestId, RequestRecord,
};
use countersign_pki::Serial;
use rusqlite::{Connection, OptionalExtension, params};

use crate::records::{
    self, DecisionColumns, HELD_REQUEST, INTENT, audit_lines, evidence, source_column,
};
use crate::refused::RefusedWrite;
use crate::row::document;
use crate::sqlite::change::is_taken;
use crate::sqlite::fault::Fault;
use crate::sqlite::query::{all, one};

/// Every open intent, oldest first.
pub(crate) fn open(connection: &Connection) -> Result<Vec<Intent>, Fault> {
    let sql = format!("SELECT {INTENT}, {HELD_REQUEST} FROM intents ORDER BY number");
    all(connection, &sql, [], records::intent)
}

/// A request that its intent holds, by identity.
pub(crate) fn request(
    connection: &Connection,
    id: &RequestId,
) -> Result<Option<RequestRecord>, Fault> {
    let sql = format!("SELECT {HELD_REQUEST} FROM intents WHERE request = ?1 AND door IS NOT NULL");
    one(
        connection,
        &sql,
        params![id.as_bytes()],
        records::held_request,
    )
}

/// A request that its intent holds and that occupies a name.
pub(crate) fn request_at(
    connection: &Connection,
    door: &Door,
    key: &str,
) -> Result<Option<RequestRecord>, Fault> {
    let sql =
        format!("SELECT {HELD_REQUEST} FROM intents WHERE door = ?1 AND key = ?2 AND live = 1");
    one(
        connection,
        &sql,
        params![door.as_str(), key],
        records::held_request,
    )
}

/// Whether a request that its intent holds occupies a name.
pub(crate) fn occupies(connection: &Connection, door: &Door, key: &str) -> Result<bool, Fault> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM intents WHERE door = ?1 AND key = ?2 AND live = 1")?
        .exists(params![door.as_str(), key])?)
}

/// Whether an intent is open, and belongs to `owner` if that is said.
pub(crate) fn is_open(
    connection: &Connection,
    issuer: &IssuerId,
    serial: &Serial,
    owner: Option<&Owner>,
) -> Result<bool, Fault> {
    let stored: Option<String> = connection
        .prepare_cached("SELECT owner FROM intents WHERE issuer = ?1 AND serial = ?2")?
        .query_row(params![issuer.as_str(), serial.as_bytes()], |row| {
            row.get(0)
        })
        .optional()?;
    Ok(match (stored, owner) {
        (Some(stored), Some(owner)) => stored == owner.0,
        (Some(_), None) => true,
        (None, _) => false,
    })
}

/// Opens an intent. Its serial must be new, also among those that were burned.
pub(crate) fn insert(connection: &Connection, intent: &Intent, revision: i64) -> Result<(), Fault> {
    let duplicate = || {
        Fault::Refused(CommitFault::DuplicateSerial {
            issuer: intent.issuer.clone(),
            serial: intent.serial,
        })
    };
    let is_used = connection
        .prepare_cached("SELECT 1 FROM certificates WHERE issuer = ?1 AND serial = ?2")?
        .exists(params![intent.issuer.as_str(), intent.serial.as_bytes()])?;
    if is_used {
        return Err(duplicate());
    }
    let explanation = document(&intent.explanation, "explanation")?;
    let inserted = match intent.deferred.as_deref() {
        None => connection
            .prepare_cached(
                "INSERT INTO intents (issuer, serial, request, signer, name, key_fingerprint, not_before, not_after,
                                      explanation, owner, lease_until)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                intent.issuer.as_str(),
                intent.serial.as_bytes(),
                intent.request.as_bytes(),
                intent.signer.as_str(),
                intent.name,
                intent.key_fingerprint.as_bytes(),
                intent.not_before.0,
                intent.not_after.0,
                explanation,
                intent.owner.0,
                intent.lease_until.0,
            ]),
        Some(DeferredRequest { request, audit }) => {
            if request.retained {
                return Err(Fault::refused(RefusedWrite::Unstorable {
                    what: "retained request of an intent",
                }));
            }
            let decision = DecisionColumns::of(&intent.explanation);
            connection
                .prepare_cached(
                    "INSERT INTO intents (issuer, serial, request, signer, name, key_fingerprint, not_before, not_after,
                                          explanation, owner, lease_until, door, key, live, version, state, csr,
                                          requester, wishes, created, evidence, attachment, code, about_token,
                                          by_person, retry, source, audit)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
                             ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28)",
                )?
                .execute(params![
                    intent.issuer.as_str(),
                    intent.serial.as_bytes(),
                    intent.request.as_bytes(),
                    intent.signer.as_str(),
                    intent.name,
                    intent.key_fingerprint.as_bytes(),
                    intent.not_before.0,
                    intent.not_after.0,
                    explanation,
                    intent.owner.0,
                    intent.lease_until.0,
                    request.door.as_str(),
                    request.key,
                    request.live,
                    revision,
                    request.state.word(),
                    request.csr_der,
                    document(&request.requester, "requester")?,
                    document(&request.wishes, "wishes")?,
                    request.created.0,
                    evidence(Some(&request.evidence))?,
                    request.attachment,
                    decision.code,
                    decision.about_token,
                    decision.by_person,
                    decision.retry,
                    source_column(&request.requester),
                    audit_lines(audit)?,
                ])
        }
    };
    let Err(error) = inserted else {
        return Ok(());
    };
    if !is_taken(&error) {
        return Err(error.into());
    }
    match intent.deferred.as_deref() {
        Some(DeferredRequest { request, .. })
            if occupies(connection, &request.door, &request.key)? =>
        {
            Err(Fault::conflict(Precondition::KeyFree {
                door: request.door.clone(),
                key: request.key.clone(),
            }))
        }
        Some(_) | None => Err(duplicate()),
    }
}

/// Whether a request that leaves its intent has its certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    WithCertificate,
    WithoutCertificate,
}

/// Stores the request that an open intent holds, if it holds one, and answers with its entries for the audit log. The
/// intent stays open.
pub(crate) fn store_request(
    connection: &Connection,
    issuer: &IssuerId,
    serial: &Serial,
    leaving: Leaving,
    revision: i64,
) -> Result<Vec<String>, Fault> {
    let place = params![issuer.as_str(), serial.as_bytes()];
    let held: Option<Option<String>> = connection
        .prepare_cached("SELECT audit FROM intents WHERE issuer = ?1 AND serial = ?2")?
        .query_row(place, |row| row.get(0))
        .optional()?;
    let Some(audit) = held.ok_or_else(|| not_open(issuer, serial))? else {
        return Ok(Vec::new());
    };
    connection
        .prepare_cached(
            "INSERT OR FAIL INTO requests (id, door, key, live, retained, version, state, signer, csr, key_fingerprint, requester,
                                   wishes, created, explanation, issuer, serial, attachment, evidence, code,
                                   about_token, by_person, retry, source)
             SELECT request, door, key, iif(?4, 0, live), 0, ?3, iif(?4, 'issued', state), signer, csr, key_fingerprint,
                    requester, wishes, created, explanation, iif(?4, issuer, NULL), iif(?4, serial, NULL), attachment,
                    evidence, code, about_token, by_person, retry, source
             FROM intents WHERE issuer = ?1 AND serial = ?2",
        )?
        .execute(params![
            issuer.as_str(),
            serial.as_bytes(),
            revision,
            leaving == Leaving::WithCertificate
        ])?;
    Ok(audit.lines().map(str::to_owned).collect())
}

/// The request that an open intent held is stored: the intent refers to it from now on.
pub(crate) fn release_request(
    connection: &Connection,
    issuer: &IssuerId,
    serial: &Serial,
) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "UPDATE intents
             SET door = NULL, key = NULL, live = NULL, version = NULL, state = NULL, csr = NULL, requester = NULL,
                 wishes = NULL, created = NULL, evidence = NULL, attachment = NULL, code = NULL, about_token = NULL,
                 by_person = NULL, retry = NULL, source = NULL, audit = NULL
             WHERE issuer = ?1 AND serial = ?2",
        )?
        .execute(params![issuer.as_str(), serial.as_bytes()])?;
    Ok(())
}

/// Puts an intent's certificate into the ledger, and closes the intent.
pub(crate) fn record(
    connection: &Connection,
    issuer: &IssuerId,
    serial: &Serial,
    der: &[u8],
) -> Result<(), Fault> {
    move_to_ledger(connection, issuer, serial, Some(der))
}

/// Burns the serial of an intent, and closes the intent.
pub(crate) fn burn(
    connection: &Connection,
    issuer: &IssuerId,
    serial: &Serial,
) -> Result<(), Fault> {
    move_to_ledger(connection, issuer, serial, None)
}

fn move_to_ledger(
    connection: &Connection,
    issuer: &IssuerId,
    serial: &Serial,
    der: Option<&[u8]>,
) -> Result<(), Fault> {
    let moved = connection
        .prepare_cached(
            "INSERT OR FAIL INTO certificates (issuer, serial, state, request, signer, name, key_fingerprint, not_before,
                                       not_after, explanation, der)
             SELECT issuer, serial, iif(?3 IS NULL, 'void', 'issued'), request, signer, name, key_fingerprint, not_before,
                    not_after, explanation, ?3
             FROM intents WHERE issuer = ?1 AND serial = ?2",
        )?
        .execute(params![issuer.as_str(), serial.as_bytes(), der])?;
    if moved == 0 {
        return Err(not_open(issuer, serial));
    }
    connection
        .prepare_cached("DELETE FROM intents WHERE issuer = ?1 AND serial = ?2")?
        .execute(params![issuer.as_str(), serial.as_bytes()])?;
    Ok(())
}

fn not_open(issuer: &IssuerId, serial: &Serial) -> Fault {
    Fault::conflict(Precondition::IntentOpen {
        issuer: issuer.clone(),
        serial: *serial,
        owner: None,
    })
}
