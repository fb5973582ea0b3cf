//! What a change writes about tokens. Each write that changes one gives it the commit's revision as its version.

use countersign_authority::store::{Precondition, Write};
use countersign_authority::{RequestId, TokenId, TokenRecord, TokenStanding, TokenUseRecord};
use countersign_pki::{Fingerprint, Serial};
use countersign_policy::TokenUseState;
use rusqlite::{Connection, ToSql, params};

use super::{EPOCH, USABLE, exists};
use crate::records::{standing_columns, with_skew};
use crate::refused::RefusedWrite;
use crate::row::document;
use crate::sqlite::change::is_taken;
use crate::sqlite::fault::Fault;

/// Writes what a change says of tokens, as the commit with this revision.
pub(crate) fn write(connection: &Connection, write: &Write, revision: i64) -> Result<(), Fault> {
    let tokens = Tokens {
        connection,
        revision,
    };
    match write {
        Write::PutToken(record) => tokens.put(record),
        Write::UseToken(used) => tokens.use_up(used),
        Write::TokenIssued {
            id,
            certname,
            key_fingerprint,
            serial,
        } => tokens.issued(id, certname, key_fingerprint, serial),
        Write::EndToken { id, standing } => tokens.end(id, standing),
        Write::FailToken { id } => tokens.fail(id),
        Write::ReleaseToken {
            id,
            certname,
            key_fingerprint,
            request,
        } => tokens.release(id, certname, key_fingerprint, request.as_ref()),
        Write::ForgetToken { id } => tokens.forget(id),
        _ => Err(Fault::refused(RefusedWrite::Unstorable {
            what: "write about a token",
        })),
    }
}

struct Tokens<'c> {
    connection: &'c Connection,
    revision: i64,
}

impl Tokens<'_> {
    fn put(&self, record: &TokenRecord) -> Result<(), Fault> {
        let (ended_at, superseded_by) = standing_columns(&record.standing);
        let sql = format!(
            "INSERT INTO tokens (id, mac, mac_key_id, kind, value, not_before, expires_at, max_uses, uses, standing,
                                 ended_at, superseded_by, terms, created_by, external_ref, note, created_at,
                                 failed_uses, epoch, idempotency_key, version, terms_mac, phase)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, {EPOCH}, ?19, ?20,
                     ?21, CASE WHEN ?10 <> 'active' THEN ?10 WHEN ?9 < ?8 THEN 'open' ELSE 'used' END)"
        );
        let inserted = self.execute(
            &sql,
            params![
                record.id.as_str(),
                record.mac,
                record.mac_key_id,
                record.binding.kind(),
                record.binding.value(),
                record.not_before.0,
                record.expires_at.0,
                record.max_uses,
                record.uses,
                record.standing.word(),
                ended_at.map(|at| at.0),
                superseded_by.map(TokenId::as_str),
                document(&record.terms, "terms of the token")?,
                record.created_by,
                record.external_ref,
                record.note,
                record.created_at.0,
                record.failed_uses,
                record.idempotency_key,
                self.revision,
                record.terms_mac,
            ],
        );
        match (inserted, &record.idempotency_key) {
            (Err(error), ordered) if is_taken(&error) => Err(match ordered {
                Some(idempotency_key) if !self.is_stored(&record.id)? => {
                    Fault::conflict(Precondition::TokenNotOrdered {
                        created_by: record.created_by.clone(),
                        idempotency_key: idempotency_key.clone(),
                    })
                }
                Some(_) | None => Fault::refused(RefusedWrite::DuplicateToken {
                    id: record.id.clone(),
                }),
            }),
            (other, _) => {
                other?;
                Ok(())
            }
        }
    }

    /// One conditional update decides between all who try; whoever changes no row was too late.
    fn use_up(&self, used: &TokenUseRecord) -> Result<(), Fault> {
        let too_late = || {
            Fault::conflict(Precondition::TokenUsable {
                id: used.token.clone(),
                certname: used.certname.clone(),
                key_fingerprint: used.key_fingerprint,
                at: used.at,
            })
        };
        let sql = format!(
            "UPDATE tokens
             SET uses = uses + 1, reserved = reserved + ?4, retry_until = max(retry_until, ?5), version = ?6,
                 phase = CASE WHEN uses + 1 < max_uses THEN 'open' WHEN max_uses = 1 AND ?4 THEN 'reserved' ELSE 'used' END
             WHERE id = ?1 AND {USABLE}"
        );
        let counted = self.execute(
            &sql,
            params![
                used.token.as_str(),
                used.at.0,
                with_skew(used.at).0,
                used.state == TokenUseState::Reserved,
                used.retry_until.0,
                self.revision,
            ],
        )?;
        if counted != 1 {
            return Err(too_late());
        }
        let inserted = self.execute(
            "INSERT INTO token_uses (token, certname, key_fingerprint, state, request, serial, at, retry_until)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                used.token.as_str(),
                used.certname,
                used.key_fingerprint.as_bytes(),
                used.state.word(),
                used.request.as_ref().map(|request| request.as_bytes()),
                used.serial.as_ref().map(Serial::as_bytes),
                used.at.0,
                used.retry_until.0,
            ],
        );
        match inserted {
            Err(error) if is_taken(&error) => Err(too_late()),
            other => {
                other?;
                Ok(())
            }
        }
    }

    fn issued(
        &self,
        id: &TokenId,
        certname: &str,
        key_fingerprint: &Fingerprint,
        serial: &Serial,
    ) -> Result<(), Fault> {
        let (id, key, serial) = (id.as_str(), key_fingerprint.as_bytes(), serial.as_bytes());
        let first = self.execute(
            "UPDATE token_uses SET state = 'issued', serial = ?4
             WHERE token = ?1 AND certname = ?2 AND key_fingerprint = ?3 AND state = 'reserved'",
            params![id, certname, key, serial],
        )?;
        let again = self.execute(
            "UPDATE token_uses SET serial = ?4
             WHERE token = ?1 AND certname = ?2 AND key_fingerprint = ?3 AND serial IS NOT ?4",
            params![id, certname, key, serial],
        )?;
        if first == 0 && again == 0 {
            return Ok(());
        }
        self.execute(
            "UPDATE tokens
             SET reserved = reserved - ?2, version = ?3, phase = iif(?2 AND phase = 'reserved', 'used', phase)
             WHERE id = ?1",
            params![id, first > 0, self.revision],
        )?;
        Ok(())
    }

    /// A token that was taken back stays so, as it was first. Only one with a use left is locked: to lock a used one would
    /// let a thief keep its rightful user from the outcome.
    fn end(&self, id: &TokenId, standing: &TokenStanding) -> Result<(), Fault> {
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
            "UPDATE tokens SET standing = ?2, phase = ?2, ended_at = ?3, superseded_by = ?4, version = ?5
             WHERE id = ?1 AND {condition}"
        );
        self.execute(
            &sql,
            params![
                id.as_str(),
                standing.word(),
                ended_at.map(|at| at.0),
                superseded_by.map(TokenId::as_str),
                self.revision,
            ],
        )?;
        Ok(())
    }

    fn fail(&self, id: &TokenId) -> Result<(), Fault> {
        self.execute(
            "UPDATE tokens SET failed_uses = failed_uses + 1, version = ?2 WHERE id = ?1",
            params![id.as_str(), self.revision],
        )?;
        Ok(())
    }

    fn release(
        &self,
        id: &TokenId,
        certname: &str,
        key_fingerprint: &Fingerprint,
        request: Option<&RequestId>,
    ) -> Result<(), Fault> {
        let released = self.execute(
            "DELETE FROM token_uses
             WHERE token = ?1 AND certname = ?2 AND key_fingerprint = ?3 AND state = 'reserved' AND request IS ?4",
            params![
                id.as_str(),
                certname,
                key_fingerprint.as_bytes(),
                request.map(RequestId::as_bytes)
            ],
        )?;
        if released == 0 {
            return Err(Fault::conflict(Precondition::TokenReserved {
                id: id.clone(),
                certname: certname.to_owned(),
                key_fingerprint: *key_fingerprint,
                request: request.copied(),
            }));
        }
        self.execute(
            "UPDATE tokens
             SET uses = uses - 1, reserved = reserved - 1, version = ?2, phase = iif(standing = 'active', 'open', phase),
                 retry_until = coalesce((SELECT max(retry_until) FROM token_uses WHERE token = ?1), 0)
             WHERE id = ?1",
            params![id.as_str(), self.revision],
        )?;
        Ok(())
    }

    fn forget(&self, id: &TokenId) -> Result<(), Fault> {
        for sql in [
            "DELETE FROM token_uses WHERE token = ?1",
            "DELETE FROM tokens WHERE id = ?1",
        ] {
            self.execute(sql, params![id.as_str()])?;
        }
        Ok(())
    }

    fn is_stored(&self, id: &TokenId) -> Result<bool, Fault> {
        let sql = "SELECT 1 FROM tokens WHERE id = ?1";
        exists(self.connection, sql, params![id.as_str()])
    }

    fn execute(&self, sql: &str, values: &[&dyn ToSql]) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute(values)
    }
}
