//! One change: its preconditions, then its writes, then what the audit log says of it.
//!
//! Runs inside the writer's transaction. Whatever fails here fails the change; the writer undoes it.

use countersign_authority::store::{Change, CommitFault, Precondition, RequestUpdate, Write};
use countersign_authority::{
    AncestorCrl, CrlRecord, Door, Intent, IssuerId, LedgerEntry, ObjectKey, ObjectRecord,
    PolicyVersion, RememberedAllow, RequestId, RequestRecord, Revision, Revocation, Seal,
    StateChangeKind,
};
use countersign_pki::{Serial, UnixTime};
use rusqlite::{Connection, OptionalExtension, ToSql, ffi, params};

use crate::records::{DecisionColumns, certificate_columns, evidence, source_column};
use crate::refused::RefusedWrite;
use crate::row::{document, signed};
use crate::sqlite::bootstrap;
use crate::sqlite::denials;
use crate::sqlite::fault::Fault;
use crate::sqlite::intents::{self, Leaving};
use crate::sqlite::inventory;
use crate::sqlite::objects;
use crate::sqlite::query::{REJECTED, THEFT, TRIMMABLE};
use crate::sqlite::states::{self, Cursor};
use crate::sqlite::tokens;

/// Checks what a change relies on. If it fails, nothing was written.
pub(crate) fn check(connection: &Connection, change: &Change) -> Result<(), Fault> {
    for precondition in &change.preconditions {
        if !holds(connection, precondition)? {
            return Err(Fault::conflict(precondition.clone()));
        }
    }
    Ok(())
}

/// Writes a change as the commit with this revision. If it fails, a part may have been written.
pub(crate) fn write(
    connection: &Connection,
    change: &Change,
    revision: Revision,
) -> Result<(), Fault> {
    let mut commit = Commit {
        connection,
        revision: signed(revision.0, "revision")?,
        states: 0,
        audited: 0,
    };
    for write in &change.writes {
        match write {
            Write::InsertRequest(request) => commit.insert_request(request)?,
            Write::UpdateRequest(update) => commit.update_request(update)?,
            Write::DeleteRequest(id) => commit.delete_request(id)?,
            Write::Intend(intent) => commit.intend(intent)?,
            Write::StoreIntended { issuer, serial } => commit.store_intended(issuer, serial)?,
            Write::VoidIntent { issuer, serial } => commit.void_intent(issuer, serial)?,
            Write::Record {
                issuer,
                serial,
                der,
            } => commit.record(issuer, serial, der)?,
            Write::Revoke(revocation) => commit.revoke(revocation)?,
            Write::Retire { issuer, name, at } => commit.retire(issuer, name, *at)?,
            Write::PutCrl(crl) => commit.put_crl(crl)?,
            Write::Import(entry) => commit.import(entry)?,
            Write::Unlist { issuer, serial } => commit.unlist(issuer, serial)?,
            Write::PutAncestorCrl { issuer, crl } => commit.put_ancestor_crl(issuer, crl)?,
            Write::CountSerials { issuer, next } => commit.count_serials(issuer, *next)?,
            Write::PutMachine(machine) => {
                inventory::put_machine(connection, machine, commit.revision)?;
            }
            Write::DeleteMachine { name } => inventory::delete_machine(connection, name)?,
            Write::EnrolMachine { name, request, at } => {
                inventory::enrol_machine(connection, name, request, *at, commit.revision)?;
            }
            Write::PutWindow(window) => inventory::put_window(connection, window)?,
            Write::CloseWindow { certname } => inventory::close_window(connection, certname)?,
            Write::UseWindow { certname } => inventory::use_window(connection, certname)?,
            Write::TrimRejections {
                of,
                keep,
                bytes,
                thefts_since,
            } => commit.trim_rejections(of.as_ref(), *keep, *bytes, *thefts_since)?,
            Write::CountDenial(denials) => denials::count(commit.connection, denials)?,
            Write::DenialsTold(denials) => denials::told(commit.connection, denials)?,
            Write::PutPolicy(policy) => commit.put_policy(policy)?,
            Write::RememberAllow(allow) => commit.remember_allow(allow)?,
            Write::ForgetAllows { before } => commit.forget_allows(*before)?,
            Write::Seal(seal) => commit.seal(seal)?,
            Write::PutObject(record) => commit.put_object(record)?,
            Write::DeleteObject { key } => commit.delete_object(key)?,
            Write::PutBootstrapToken(record) => bootstrap::put(connection, record)?,
            Write::RevokeBootstrapToken { id, at } => bootstrap::revoke(connection, id, *at)?,
            Write::ForgetBootstrapToken { id } => bootstrap::forget(connection, id)?,
            Write::TrimStates { before } => states::trim(connection, *before, commit.revision)?,
            Write::PutToken(_)
            | Write::UseToken(_)
            | Write::TokenIssued { .. }
            | Write::EndToken { .. }
            | Write::FailToken { .. }
            | Write::ReleaseToken { .. }
            | Write::ForgetToken { .. } => tokens::write(connection, write, commit.revision)?,
        }
    }
    for entry in &change.audit {
        let text = document(entry, "audit entry")?;
        commit.audit(&text)?;
    }
    Ok(())
}

fn holds(connection: &Connection, precondition: &Precondition) -> Result<bool, Fault> {
    match precondition {
        Precondition::RequestAt { id, version } => {
            let stored: Option<i64> = connection
                .prepare_cached("SELECT version FROM requests WHERE id = ?1")?
                .query_row(params![id.as_bytes()], |row| row.get(0))
                .optional()?;
            Ok(stored.is_some() && stored == i64::try_from(version.0).ok())
        }
        Precondition::RequestExists { id } => Ok(exists_request(connection, id)?),
        Precondition::RequestIn { id, state } => Ok(connection
            .prepare_cached("SELECT 1 FROM requests WHERE id = ?1 AND state = ?2")?
            .exists(params![id.as_bytes(), state.word()])?),
        Precondition::KeyFree { door, key } => {
            let is_taken = connection
                .prepare_cached("SELECT 1 FROM requests WHERE door = ?1 AND key = ?2 AND live = 1")?
                .exists(params![door.as_str(), key])?;
            Ok(!is_taken && !intents::occupies(connection, door, key)?)
        }
        Precondition::NotDenied {
            door,
            key,
            key_fingerprint,
        } => Ok(!connection
            .prepare_cached(
                "SELECT 1 FROM requests
                 WHERE door = ?1 AND key = ?2 AND key_fingerprint = ?3 AND state = 'denied'
                   AND by_person = 1",
            )?
            .exists(params![door.as_str(), key, key_fingerprint.as_bytes()])?),
        Precondition::NewestCertificate {
            issuer,
            name,
            serial,
        } => {
            let (open, newest): (bool, Option<Vec<u8>>) = connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM intents WHERE issuer = ?1 AND name = ?2),
                            (SELECT serial FROM certificates
                             WHERE issuer = ?1 AND name = ?2 AND state = 'issued' AND retired IS NULL
                             ORDER BY number DESC LIMIT 1)",
                )?
                .query_row(params![issuer.as_str(), name], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(!open && newest.as_deref() == serial.as_ref().map(Serial::as_bytes))
        }
        Precondition::IssuedCount {
            issuer,
            name,
            count,
        } => {
            let stored: i64 = connection
                .prepare_cached(
                    "SELECT count(*) FROM certificates WHERE issuer = ?1 AND name = ?2 AND state = 'issued'",
                )?
                .query_row(params![issuer.as_str(), name], |row| row.get(0))?;
            Ok(usize::try_from(stored).is_ok_and(|stored| stored == *count))
        }
        Precondition::Unrevoked { issuer, serial } => Ok(connection
            .prepare_cached(
                "SELECT 1 FROM certificates
                 WHERE issuer = ?1 AND serial = ?2 AND state = 'issued' AND revoked_at IS NULL",
            )?
            .exists(params![issuer.as_str(), serial.as_bytes()])?),
        Precondition::IntentOpen {
            issuer,
            serial,
            owner,
        } => intents::is_open(connection, issuer, serial, owner.as_ref()),
        Precondition::PolicyFree { generation } => Ok(!connection
            .prepare_cached("SELECT 1 FROM policies WHERE generation >= ?1")?
            .exists(params![signed(*generation, "generation")?])?),
        Precondition::CrlNumber {
            issuer,
            scope,
            number,
        } => {
            let stored: Option<i64> = connection
                .prepare_cached("SELECT number FROM crls WHERE issuer = ?1 AND scope = ?2")?
                .query_row(params![issuer.as_str(), scope.word()], |row| row.get(0))
                .optional()?;
            Ok(match number {
                Some(number) => stored.is_some() && stored == i64::try_from(*number).ok(),
                None => stored.is_none(),
            })
        }
        Precondition::MachineAt { name, version } => {
            inventory::machine_is_at(connection, name, *version)
        }
        Precondition::MachineExists { name } => inventory::machine_exists(connection, name),
        Precondition::MachineUnused { name } => inventory::machine_is_unused(connection, name),
        Precondition::WindowOpen {
            certname,
            at,
            with_token,
        } => inventory::window_is_open(connection, certname, *at, *with_token),
        Precondition::TokenUsable { .. }
        | Precondition::TokenAt { .. }
        | Precondition::ActiveTokens { .. }
        | Precondition::TokenNotOrdered { .. }
        | Precondition::TokenReserved { .. } => tokens::holds(connection, precondition),
        Precondition::WindowClosed { certname, before } => {
            inventory::window_is_closed(connection, certname, *before)
        }
        Precondition::ObjectAt { key, version } => objects::is_at(connection, key, *version),
        Precondition::BootstrapTokenFree { id } => Ok(!bootstrap::is_stored(connection, id)?),
        Precondition::BootstrapTokenStands { id } => bootstrap::stands(connection, id),
        Precondition::LastSeal { number } => {
            let stored: i64 = connection
                .prepare_cached("SELECT coalesce(max(number), 0) FROM audit_seals")?
                .query_row([], |row| row.get(0))?;
            Ok(u64::try_from(stored).is_ok_and(|stored| stored == *number))
        }
    }
}

fn exists_request(connection: &Connection, id: &RequestId) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM requests WHERE id = ?1")?
        .exists(params![id.as_bytes()])
}

/// The writes of one change.
struct Commit<'c> {
    connection: &'c Connection,
    revision: i64,
    /// How many states the change has left in the history.
    states: i64,
    /// How many entries it has in the audit log.
    audited: i64,
}

impl Commit<'_> {
    fn insert_request(&mut self, request: &RequestRecord) -> Result<(), Fault> {
        let (issuer, serial) = certificate_columns(request.certificate.as_ref());
        let decision = DecisionColumns::of(&request.explanation);
        let inserted = self.execute(
            "INSERT INTO requests (id, door, key, live, retained, version, state, signer, csr, key_fingerprint,
                                   requester, wishes, created, explanation, failure, issuer, serial, attachment,
                                   evidence, code, about_token, by_person, retry, source, bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
                     ?23, ?24, length(?9) + length(?18))",
            params![
                request.id.as_bytes(),
                request.door.as_str(),
                request.key,
                request.live,
                request.retained,
                self.revision,
                request.state.word(),
                request.signer.as_str(),
                request.csr_der,
                request.key_fingerprint.as_bytes(),
                document(&request.requester, "requester")?,
                document(&request.wishes, "wishes")?,
                request.created.0,
                document(&request.explanation, "explanation")?,
                request.failure,
                issuer,
                serial,
                request.attachment,
                evidence(Some(&request.evidence))?,
                decision.code,
                decision.about_token,
                decision.by_person,
                decision.retry,
                source_column(&request.requester),
            ],
        );
        match inserted {
            Err(error) if is_taken(&error) => {
                Err(if exists_request(self.connection, &request.id)? {
                    Fault::refused(RefusedWrite::DuplicateRequest {
                        id: request.id.to_string(),
                    })
                } else {
                    name_taken(request.door.clone(), request.key.clone())
                })
            }
            other => {
                other?;
                if request.retained {
                    self.keep_request(&request.id, StateChangeKind::Added)?;
                }
                Ok(())
            }
        }
    }

    fn update_request(&mut self, update: &RequestUpdate) -> Result<(), Fault> {
        let (issuer, serial) = certificate_columns(update.certificate.as_ref());
        let explanation = update
            .explanation
            .as_ref()
            .map(|explanation| document(explanation, "explanation"))
            .transpose()?;
        let decision = update.explanation.as_ref().map(DecisionColumns::of);
        let updated = self
            .connection
            .prepare_cached(
                "UPDATE requests
                 SET version = ?2, state = ?3, live = ?4, explanation = coalesce(?5, explanation),
                     failure = coalesce(?6, failure), issuer = coalesce(?7, issuer), serial = coalesce(?8, serial),
                     attachment = coalesce(?9, attachment), evidence = iif(?11, ?10, evidence),
                     code = iif(?5 IS NULL, code, ?12), about_token = coalesce(?13, about_token),
                     by_person = coalesce(?14, by_person), retry = coalesce(?15, retry), csr = coalesce(?16, csr),
                     bytes = iif(?16 IS NULL, bytes, length(?16) + length(coalesce(?9, attachment)))
                 WHERE id = ?1 RETURNING retained",
            )?
            .query_row(
                params![
                    update.id.as_bytes(),
                    self.revision,
                    update.state.word(),
                    update.live,
                    explanation,
                    update.failure,
                    issuer,
                    serial,
                    update.attachment,
                    evidence(update.evidence.as_ref())?,
                    update.evidence.is_some(),
                    decision.as_ref().and_then(|decision| decision.code),
                    decision.as_ref().map(|decision| decision.about_token),
                    decision.as_ref().map(|decision| decision.by_person),
                    decision.as_ref().map(|decision| decision.retry),
                    update.csr_der,
                ],
                |row| row.get(0),
            )
            .optional();
        match updated {
            Err(error) if is_taken(&error) => {
                let (door, key) = self
                    .connection
                    .prepare_cached("SELECT door, key FROM requests WHERE id = ?1")?
                    .query_row(params![update.id.as_bytes()], door_and_key)?;
                Err(name_taken(Door::from_text(door), key))
            }
            other => {
                if other?.ok_or_else(|| no_request(&update.id))? {
                    self.keep_request(&update.id, StateChangeKind::Modified)?;
                }
                Ok(())
            }
        }
    }

    fn delete_request(&mut self, id: &RequestId) -> Result<(), Fault> {
        let connection = self.connection;
        let delete = |condition: &str| -> rusqlite::Result<usize> {
            let sql = format!("DELETE FROM requests WHERE id = ?1{condition}");
            connection.prepare_cached(&sql)?.execute([id.as_bytes()])
        };
        if delete(" AND retained = 0")? > 0 {
            return Ok(());
        }
        self.keep_request(id, StateChangeKind::Deleted)?;
        match delete("")? {
            0 => Err(no_request(id)),
            _ => Ok(()),
        }
    }

    fn trim_rejections(
        &self,
        of: Option<&(Door, String)>,
        keep: usize,
        bytes: u64,
        thefts_since: UnixTime,
    ) -> Result<(), Fault> {
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let since = thefts_since.0;
        match of {
            // Of thefts also the first ones, which are the likeliest to tell who it was: nobody pushes them out.
            Some((door, key)) => self.execute(
                &format!(
                    "DELETE FROM requests WHERE number IN (
                         SELECT number FROM (
                             SELECT number FROM requests
                             WHERE door = ?2 AND key = ?3{OF_A_NAME} AND NOT ({THEFT})
                             ORDER BY number DESC LIMIT -1 OFFSET ?4)
                         UNION ALL
                         SELECT number FROM (
                             SELECT number, row_number() OVER (ORDER BY number) AS first,
                                    row_number() OVER (ORDER BY number DESC) AS last
                             FROM requests WHERE door = ?2 AND key = ?3{OF_A_NAME} AND {THEFT})
                         WHERE first > ?4 AND last > ?4)"
                ),
                params![since, door.as_str(), key, keep],
            )?,
            None => self.execute(
                &format!(
                    "DELETE FROM requests WHERE number IN (
                         SELECT number FROM (
                             SELECT number, row_number() OVER newest AS place, sum(bytes) OVER newest AS total
                             FROM requests INDEXED BY requests_rejected
                             WHERE {REJECTED}{TRIMMABLE} AND NOT ({THEFT})
                             WINDOW newest AS (ORDER BY number DESC))
                         WHERE place > ?2 OR total > ?4 LIMIT ?3)"
                ),
                params![since, keep, MAX_TRIMMED, bytes],
            )?,
        };
        Ok(())
    }

    fn put_policy(&self, policy: &PolicyVersion) -> Result<(), Fault> {
        self.execute(
            "INSERT INTO policies (generation, digest, loaded, text) VALUES (?1, ?2, ?3, ?4)",
            params![
                signed(policy.generation, "generation")?,
                policy.digest.as_bytes(),
                policy.loaded.0,
                policy.text
            ],
        )?;
        Ok(())
    }

    fn remember_allow(&self, allow: &RememberedAllow) -> Result<(), Fault> {
        self.execute(
            "INSERT INTO webhook_allows (webhook, name, asked, until) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (webhook, name, asked) DO UPDATE SET until = excluded.until",
            params![
                allow.webhook,
                allow.name,
                allow.asked.as_bytes(),
                allow.until.0
            ],
        )?;
        Ok(())
    }

    fn forget_allows(&self, before: UnixTime) -> Result<(), Fault> {
        self.execute(
            "DELETE FROM webhook_allows WHERE until < ?1",
            params![before.0],
        )?;
        Ok(())
    }

    fn intend(&self, intent: &Intent) -> Result<(), Fault> {
        intents::insert(self.connection, intent, self.revision)?;
        self.pass_serial(&intent.issuer, &intent.serial)
    }

    fn store_intended(&mut self, issuer: &IssuerId, serial: &Serial) -> Result<(), Fault> {
        self.store_request_of(issuer, serial, Leaving::WithoutCertificate)?;
        intents::release_request(self.connection, issuer, serial)
    }

    fn void_intent(&mut self, issuer: &IssuerId, serial: &Serial) -> Result<(), Fault> {
        self.store_request_of(issuer, serial, Leaving::WithoutCertificate)?;
        intents::burn(self.connection, issuer, serial)
    }

    fn record(&mut self, issuer: &IssuerId, serial: &Serial, der: &[u8]) -> Result<(), Fault> {
        self.store_request_of(issuer, serial, Leaving::WithCertificate)?;
        intents::record(self.connection, issuer, serial, der)
    }

    fn store_request_of(
        &mut self,
        issuer: &IssuerId,
        serial: &Serial,
        leaving: Leaving,
    ) -> Result<(), Fault> {
        let stored =
            intents::store_request(self.connection, issuer, serial, leaving, self.revision)?;
        for entry in stored {
            self.audit(&entry)?;
        }
        Ok(())
    }

    /// Moves the counter of an issuer that has one past a serial.
    fn pass_serial(&self, issuer: &IssuerId, serial: &Serial) -> Result<(), Fault> {
        let Some(next) = serial.to_u64().and_then(|serial| serial.checked_add(1)) else {
            return Ok(());
        };
        // What does not fit a signed integer was not counted: random serials are 16 bytes.
        let Ok(next) = i64::try_from(next) else {
            return Ok(());
        };
        self.execute(
            "UPDATE serials SET next = ?2 WHERE issuer = ?1 AND next < ?2",
            params![issuer.as_str(), next],
        )?;
        Ok(())
    }

    fn count_serials(&self, issuer: &IssuerId, next: u64) -> Result<(), Fault> {
        self.execute(
            "INSERT INTO serials (issuer, next) VALUES (?1, ?2)
             ON CONFLICT (issuer) DO UPDATE SET next = max(next, excluded.next)",
            params![issuer.as_str(), signed(next, "serial")?],
        )?;
        Ok(())
    }

    fn import(&self, entry: &LedgerEntry) -> Result<(), Fault> {
        let revoked = entry.revoked;
        let inserted = self.execute(
            "INSERT INTO certificates (issuer, serial, state, request, signer, name, key_fingerprint, not_before,
                                       not_after, explanation, der, revoked_at, revoked_reason, revoked_revision, retired)
             VALUES (?1, ?2, 'issued', ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            params![
                entry.issuer.as_str(),
                entry.serial.as_bytes(),
                entry.request.as_bytes(),
                entry.signer.as_str(),
                entry.name,
                entry.key_fingerprint.as_bytes(),
                entry.not_before.0,
                entry.not_after.0,
                document(&entry.explanation, "explanation")?,
                entry.der,
                revoked.map(|revoked| revoked.at.0),
                revoked.map(|revoked| revoked.reason.code()),
                revoked.map(|_| self.revision),
                entry.retired.map(|at| at.0),
            ],
        );
        match inserted {
            Err(error) if is_taken(&error) => Err(Fault::Refused(CommitFault::DuplicateSerial {
                issuer: entry.issuer.clone(),
                serial: entry.serial,
            })),
            other => {
                other?;
                self.pass_serial(&entry.issuer, &entry.serial)
            }
        }
    }

    /// The first revocation stands: a later one changes neither time nor reason.
    fn revoke(&self, revocation: &Revocation) -> Result<(), Fault> {
        let (issuer, serial) = (revocation.issuer.as_str(), revocation.serial.as_bytes());
        let revoked = self.execute(
            "UPDATE certificates
             SET revoked_at = coalesce(revoked_at, ?3), revoked_reason = coalesce(revoked_reason, ?4),
                 revoked_revision = coalesce(revoked_revision, ?5), unlisted = 0
             WHERE issuer = ?1 AND serial = ?2 AND state = 'issued' AND (revoked_at IS NULL OR unlisted = 1)",
            params![
                issuer,
                serial,
                revocation.revoked.at.0,
                revocation.revoked.reason.code(),
                self.revision
            ],
        )?;
        if revoked > 0 {
            self.execute(
                "DELETE FROM webhook_allows WHERE name =
                     (SELECT name FROM certificates WHERE issuer = ?1 AND serial = ?2)",
                params![issuer, serial],
            )?;
            return Ok(());
        }
        let stands = self
            .connection
            .prepare_cached(
                "SELECT 1 FROM certificates WHERE issuer = ?1 AND serial = ?2 AND state = 'issued'",
            )?
            .exists(params![issuer, serial])?;
        if stands {
            Ok(())
        } else {
            Err(Fault::refused(RefusedWrite::NoSuchCertificate {
                issuer: revocation.issuer.clone(),
                serial: revocation.serial,
            }))
        }
    }

    /// The first retirement of a certificate stands.
    fn retire(&self, issuer: &IssuerId, name: &str, at: UnixTime) -> Result<(), Fault> {
        let retired = self.execute(
            "UPDATE certificates SET retired = ?3
             WHERE issuer = ?1 AND name = ?2 AND state = 'issued' AND retired IS NULL",
            params![issuer.as_str(), name, at.0],
        )?;
        if retired == 0 {
            return Ok(());
        }
        self.execute("DELETE FROM webhook_allows WHERE name = ?1", params![name])?;
        Ok(())
    }

    fn unlist(&self, issuer: &IssuerId, serial: &Serial) -> Result<(), Fault> {
        self.execute(
            "UPDATE certificates SET unlisted = 1
             WHERE issuer = ?1 AND serial = ?2 AND revoked_at IS NOT NULL AND unlisted = 0",
            params![issuer.as_str(), serial.as_bytes()],
        )?;
        Ok(())
    }

    fn put_ancestor_crl(&self, issuer: &IssuerId, crl: &AncestorCrl) -> Result<(), Fault> {
        // Magnitudes without leading zeros compare by length first. Empty ones say nothing: the engine has compared times.
        self.execute(
            "INSERT INTO ancestor_crls (issuer, key_id, number, position, der) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (issuer, key_id) DO UPDATE
             SET number = excluded.number, position = excluded.position, der = excluded.der
             WHERE (length(excluded.number), excluded.number) > (length(number), number)
                OR (length(excluded.number) = 0 AND length(number) = 0 AND excluded.der <> der)",
            params![
                issuer.as_str(),
                crl.key_id,
                crl.number,
                crl.position,
                crl.der
            ],
        )?;
        Ok(())
    }

    fn put_crl(&self, crl: &CrlRecord) -> Result<(), Fault> {
        self.execute(
            "INSERT INTO crls (issuer, scope, number, covers, this_update, next_update, der)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (issuer, scope) DO UPDATE
             SET number = excluded.number, covers = excluded.covers, this_update = excluded.this_update,
                 next_update = excluded.next_update, der = excluded.der",
            params![
                crl.issuer.as_str(),
                crl.scope.word(),
                signed(crl.number, "CRL number")?,
                signed(crl.covers.0, "revision")?,
                crl.this_update.0,
                crl.next_update.0,
                crl.der,
            ],
        )?;
        Ok(())
    }

    fn put_object(&mut self, record: &ObjectRecord) -> Result<(), Fault> {
        let change = match objects::replace(self.connection, record, self.revision)? {
            true => StateChangeKind::Modified,
            false => {
                objects::insert(self.connection, record, self.revision)?;
                StateChangeKind::Added
            }
        };
        self.keep_object(&record.key, change)
    }

    fn delete_object(&mut self, key: &ObjectKey) -> Result<(), Fault> {
        self.keep_object(key, StateChangeKind::Deleted)?;
        objects::delete(self.connection, key)
    }

    fn keep_request(&mut self, id: &RequestId, change: StateChangeKind) -> Result<(), Fault> {
        let place = self.next_place();
        states::keep_request(self.connection, id, place, change)
    }

    fn keep_object(&mut self, key: &ObjectKey, change: StateChangeKind) -> Result<(), Fault> {
        let place = self.next_place();
        states::keep_object(self.connection, key, place, change)
    }

    /// Where the change's next state stands in the history.
    fn next_place(&mut self) -> Cursor {
        let place = Cursor {
            revision: self.revision,
            seq: self.states,
        };
        self.states = self.states.saturating_add(1);
        place
    }

    fn seal(&self, seal: &Seal) -> Result<(), Fault> {
        let Seal { head, hashes } = seal;
        let hashes: Vec<u8> = hashes.iter().flat_map(|hash| *hash.as_bytes()).collect();
        let inserted = self.execute(
            "INSERT INTO audit_seals (number, first_revision, first_seq, last_revision, last_seq, count, previous, hash,
                                      at, key_id, signature, hashes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            params![
                signed(head.number, "seal number")?,
                signed(head.first.revision.0, "revision")?,
                signed(head.first.seq, "audit entry")?,
                signed(head.last.revision.0, "revision")?,
                signed(head.last.seq, "audit entry")?,
                signed(head.count, "count")?,
                head.previous.as_bytes(),
                head.hash.as_bytes(),
                head.at.0,
                head.key_id.as_bytes(),
                head.signature,
                hashes,
            ],
        );
        match inserted {
            Err(error) if is_numbered(&error) => Err(Fault::conflict(Precondition::LastSeal {
                number: head.number.saturating_sub(1),
            })),
            other => {
                other?;
                Ok(())
            }
        }
    }

    /// Adds an entry to the audit log.
    fn audit(&mut self, entry: &str) -> Result<(), Fault> {
        self.execute(
            "INSERT INTO audit (revision, seq, entry) VALUES (?1, ?2, ?3)",
            params![self.revision, self.audited, entry],
        )?;
        self.audited = self.audited.saturating_add(1);
        Ok(())
    }

    fn execute(&self, sql: &str, values: &[&dyn ToSql]) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute(values)
    }
}

/// Others have their turn between two of these.
const MAX_TRIMMED: i64 = 500;

/// What rules have turned away, of one name.
const OF_A_NAME: &str =
    " AND live = 0 AND (state = 'denied' OR state = 'undecided') AND by_person = 0";

fn door_and_key(row: &rusqlite::Row<'_>) -> rusqlite::Result<(String, String)> {
    Ok((row.get(0)?, row.get(1)?))
}

pub(crate) fn is_taken(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == ffi::SQLITE_CONSTRAINT_UNIQUE)
}

fn is_numbered(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == ffi::SQLITE_CONSTRAINT_PRIMARYKEY)
}

fn name_taken(door: Door, key: String) -> Fault {
    Fault::conflict(Precondition::KeyFree { door, key })
}

fn no_request(id: &RequestId) -> Fault {
    Fault::conflict(Precondition::RequestExists { id: *id })
}
