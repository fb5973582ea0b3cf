//! Enrolment tokens: what changes write about them. Each write that changes one gives it the commit's revision as its
//! version.
//!
//! A token is usable or not by one condition, [`usable`], which the precondition asks and the write that uses a token up
//! repeats.

use countersign_authority::store::{Precondition, Write};
use countersign_authority::{RequestId, TokenId, TokenRecord, TokenStanding, TokenUseRecord};
use countersign_pki::{Fingerprint, Serial};
use countersign_policy::TokenUseState;

use super::fault::Fault;
use super::value::Statement;
use super::write::REVISION;
use crate::records::{standing_columns, with_skew};
use crate::refused::RefusedWrite;
use crate::row::document;

/// How often the store was restored.
pub(super) const EPOCH: &str = "(SELECT epoch FROM store_state WHERE one = 1)";

/// Whether a token has a use left at a time, which is given without and with its skew.
pub(super) fn usable(sql: &mut Statement<'_>, at: i64, with_skew: i64) {
    sql.push("standing = 'active' AND epoch = ")
        .push(EPOCH)
        .push(" AND not_before <= ")
        .bind(with_skew)
        .push(" AND expires_at > ")
        .bind(at)
        .push(" AND uses < max_uses");
}

/// What a change says of tokens.
pub(super) fn statements(write: &Write, offset: i64) -> Result<Vec<Statement<'_>>, Fault> {
    match write {
        Write::PutToken(record) => Ok(vec![put(record, offset)?]),
        Write::UseToken(used) => Ok(vec![use_up(used, offset)]),
        Write::TokenIssued {
            id,
            certname,
            key_fingerprint,
            serial,
        } => Ok(vec![issued(id, certname, key_fingerprint, serial, offset)]),
        Write::EndToken { id, standing } => Ok(vec![end(id, standing, offset)?]),
        Write::FailToken { id } => Ok(vec![
            of_revision(
                "UPDATE tokens SET failed_uses = failed_uses + 1, version = {revision} WHERE id = $2",
                offset,
            )
            .with(id.as_str()),
        ]),
        Write::ReleaseToken {
            id,
            certname,
            key_fingerprint,
            request,
        } => Ok(vec![release(id, certname, key_fingerprint, request.as_ref(), offset)]),
        Write::ForgetToken { id } => Ok(vec![
            Statement::new("DELETE FROM token_uses WHERE token = $1").with(id.as_str()),
            Statement::new("DELETE FROM tokens WHERE id = $1").with(id.as_str()),
        ]),
        _ => Err(Fault::refused(RefusedWrite::Unstorable {
            what: "write about a token",
        })),
    }
}

/// What is not there that a write is about.
pub(super) fn missing(write: &Write) -> Option<Fault> {
    match write {
        Write::UseToken(used) => Some(too_late(used)),
        Write::ReleaseToken {
            id,
            certname,
            key_fingerprint,
            request,
        } => Some(Fault::conflict(Precondition::TokenReserved {
            id: id.clone(),
            certname: certname.clone(),
            key_fingerprint: *key_fingerprint,
            request: *request,
        })),
        _ => None,
    }
}

/// What it means that a unique key was violated.
pub(super) fn refusal(write: &Write, constraint: &str) -> Option<Fault> {
    match (write, constraint) {
        (Write::PutToken(record), "tokens_id") => {
            Some(Fault::refused(RefusedWrite::DuplicateToken {
                id: record.id.clone(),
            }))
        }
        (Write::PutToken(record), "tokens_ordered") => {
            Some(Fault::conflict(Precondition::TokenNotOrdered {
                created_by: record.created_by.clone(),
                idempotency_key: record.idempotency_key.clone()?,
            }))
        }
        (Write::UseToken(used), "token_uses_once") => Some(too_late(used)),
        (_, _) => None,
    }
}

fn too_late(used: &TokenUseRecord) -> Fault {
    Fault::conflict(Precondition::TokenUsable {
        id: used.token.clone(),
        certname: used.certname.clone(),
        key_fingerprint: used.key_fingerprint,
        at: used.at,
    })
}

fn of_revision<'c>(sql: &str, offset: i64) -> Statement<'c> {
    Statement::new(sql.replace("{revision}", REVISION)).with(offset)
}

fn put(record: &TokenRecord, offset: i64) -> Result<Statement<'_>, Fault> {
    let (ended_at, superseded_by) = standing_columns(&record.standing);
    let sql = format!(
        "INSERT INTO tokens (version, id, mac, mac_key_id, kind, value, not_before, expires_at, max_uses, uses, standing,
                             ended_at, superseded_by, terms, created_by, external_ref, note, created_at, failed_uses,
                             idempotency_key, terms_mac, epoch, phase)
         VALUES ({{revision}}, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                 {EPOCH}, CASE WHEN $11 <> 'active' THEN $11 WHEN $10::bigint < $9::bigint THEN 'open' ELSE 'used' END)"
    );
    Ok(of_revision(&sql, offset)
        .with(record.id.as_str())
        .with(&record.mac)
        .with(record.mac_key_id.as_str())
        .with(record.binding.kind())
        .with(record.binding.value())
        .with(record.not_before.0)
        .with(record.expires_at.0)
        .with(record.max_uses)
        .with(record.uses)
        .with(record.standing.word())
        .with(ended_at.map(|at| at.0))
        .with(superseded_by.map(TokenId::as_str))
        .with(document(&record.terms, "terms of the token")?)
        .with(record.created_by.as_str())
        .with(record.external_ref.as_str())
        .with(record.note.as_str())
        .with(record.created_at.0)
        .with(record.failed_uses)
        .with(record.idempotency_key.as_deref())
        .with(record.terms_mac.as_ref().map(|mac| mac.as_slice())))
}

/// One conditional update decides between all who try; whoever changes no row was too late.
fn use_up(used: &TokenUseRecord, offset: i64) -> Statement<'_> {
    let mut statement = of_revision(
        "WITH used AS (
             UPDATE tokens
             SET uses = uses + 1, reserved = reserved + CASE WHEN $6 THEN 1 ELSE 0 END,
                 retry_until = greatest(retry_until, $10), version = {revision},
                 phase = CASE WHEN uses + 1 < max_uses THEN 'open' WHEN max_uses = 1 AND $6 THEN 'reserved' ELSE 'used' END
             WHERE id = $2 AND ",
        offset,
    )
    .with(used.token.as_str())
    .with(used.certname.as_str())
    .with(used.key_fingerprint.as_bytes())
    .with(used.state.word())
    .with(used.state == TokenUseState::Reserved)
    .with(used.request.as_ref().map(|request| request.as_bytes().as_slice()))
    .with(used.serial.as_ref().map(Serial::as_bytes))
    .with(used.at.0)
    .with(used.retry_until.0);
    usable(&mut statement, used.at.0, with_skew(used.at).0);
    statement.push(
        " RETURNING 1),
         noted AS (
             INSERT INTO token_uses (token, certname, key_fingerprint, state, request, serial, at, retry_until)
             SELECT $2::text, $3::text, $4::bytea, $5::text, $7::bytea, $8::bytea, $9::bigint, $10::bigint FROM used)
         SELECT 1 / count(*) FROM used",
    );
    statement
}

fn issued<'c>(
    id: &'c TokenId,
    certname: &'c str,
    key_fingerprint: &'c Fingerprint,
    serial: &'c Serial,
    offset: i64,
) -> Statement<'c> {
    of_revision(
        "WITH first AS (
             UPDATE token_uses SET state = 'issued', serial = $5
             WHERE token = $2 AND certname = $3 AND key_fingerprint = $4 AND state = 'reserved' RETURNING 1),
         again AS (
             UPDATE token_uses SET serial = $5
             WHERE token = $2 AND certname = $3 AND key_fingerprint = $4 AND state <> 'reserved'
               AND serial IS DISTINCT FROM $5 RETURNING 1)
         UPDATE tokens
         SET reserved = reserved - (SELECT count(*) FROM first), version = {revision},
             phase = CASE WHEN phase = 'reserved' AND EXISTS (SELECT FROM first) THEN 'used' ELSE phase END
         WHERE id = $2 AND (EXISTS (SELECT FROM first) OR EXISTS (SELECT FROM again))",
        offset,
    )
    .with(id.as_str())
    .with(certname)
    .with(key_fingerprint.as_bytes())
    .with(serial.as_bytes())
}

/// A token that was taken back stays so, as it was first. Only one with a use left is locked: to lock a used one would let
/// a thief keep its rightful user from the outcome.
fn end<'c>(
    id: &'c TokenId,
    standing: &'c TokenStanding,
    offset: i64,
) -> Result<Statement<'c>, Fault> {
    let condition = match standing {
        TokenStanding::Revoked { .. } => "standing <> 'revoked'",
        TokenStanding::Locked { .. } => "standing = 'active' AND uses < max_uses",
        TokenStanding::Active => {
            return Err(Fault::refused(RefusedWrite::Unstorable {
                what: "end of a token that leaves it active",
            }));
        }
    };
    let (ended_at, superseded_by) = standing_columns(standing);
    let sql = format!(
        "UPDATE tokens SET standing = $3, phase = $3, ended_at = $4, superseded_by = $5, version = {{revision}}
         WHERE id = $2 AND {condition}"
    );
    Ok(of_revision(&sql, offset)
        .with(id.as_str())
        .with(standing.word())
        .with(ended_at.map(|at| at.0))
        .with(superseded_by.map(TokenId::as_str)))
}

fn release<'c>(
    id: &'c TokenId,
    certname: &'c str,
    key_fingerprint: &'c Fingerprint,
    request: Option<&'c RequestId>,
    offset: i64,
) -> Statement<'c> {
    // What the statement deletes it still sees: the use is left out of the rest.
    of_revision(
        "WITH gone AS (
             DELETE FROM token_uses
             WHERE token = $2 AND certname = $3 AND key_fingerprint = $4 AND state = 'reserved'
               AND request IS NOT DISTINCT FROM $5 RETURNING number),
         released AS (
             UPDATE tokens
             SET uses = uses - 1, reserved = reserved - 1, version = {revision},
                 phase = CASE WHEN standing = 'active' THEN 'open' ELSE phase END,
                 retry_until = coalesce((SELECT max(retry_until) FROM token_uses
                                         WHERE token = $2 AND number NOT IN (SELECT number FROM gone)), 0)
             WHERE id = $2 AND EXISTS (SELECT FROM gone))
         SELECT 1 / count(*) FROM gone",
        offset,
    )
    .with(id.as_str())
    .with(certname)
    .with(key_fingerprint.as_bytes())
    .with(request.map(|request| request.as_bytes().as_slice()))
}
