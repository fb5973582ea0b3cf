//! What a change writes, as statements that need no answer to go on: a group's are sent together.
//!
//! The revision is not known yet when they are sent: the server keeps it in a setting of the transaction, and each change
//! adds its place in the group, which is the first value of each statement. A write that finds nothing where something
//! must be divides by zero: that ends the transaction, and [`refusal`] says what it means.

use std::borrow::Cow;

use countersign_authority::store::{Change, CommitFault, Precondition, RequestUpdate, Write};
use countersign_authority::{
    AncestorCrl, BootstrapRecord, CrlRecord, DeferredRequest, Door, Intent, IssuerId, LedgerEntry,
    ObjectKey, ObjectRecord, PolicyVersion, RememberedAllow, RepeatedDenials, RequestId,
    RequestRecord, Revocation, Seal, StateChangeKind, inventory_name,
};
use countersign_pki::{Serial, UnixTime};
use countersign_policy::{BuildWindow, Machine};
use tokio_postgres::error::SqlState;

use super::fault::{DatabaseFault, Fault};
use super::tokens::{self, EPOCH};
use super::value::{Statement, Value};
use crate::records::{
    DecisionColumns, OBJECT, REQUEST, audit_lines, certificate_columns, evidence, source_column,
};
use crate::refused::RefusedWrite;
use crate::row::{RowFault, bound, document, place, signed};

/// The revision of the change whose place in its group is the first value.
pub(super) const REVISION: &str = "(current_setting('countersign.revision')::bigint + $1)";

/// Gives out so many revisions, `$1`. Until the transaction ends, nobody else gets any: who commits later has later ones.
pub(super) const GIVE_REVISIONS: &str = "WITH given AS (UPDATE store_state SET revision = revision + $1 WHERE one = 1 RETURNING revision)
     SELECT revision, set_config('countersign.revision', (revision - $1)::text, true) FROM given";

/// The statements of a change, without its audit entries, each with the write that it is of.
pub(super) fn statements(
    change: &Change,
    offset: i64,
) -> Result<Vec<(&Write, Statement<'_>)>, Fault> {
    let mut commit = Commit {
        offset,
        states: 0,
        statements: Vec::new(),
    };
    let mut all = Vec::with_capacity(change.writes.len());
    for write in &change.writes {
        commit.write(write)?;
        all.extend(
            commit
                .statements
                .drain(..)
                .map(|statement| (write, statement)),
        );
    }
    Ok(all)
}

/// One entry of the audit log for each text, of the change at that place: after those that the change has already.
pub(super) fn audit_statement<'a>(offsets: Vec<i64>, texts: Vec<Cow<'a, str>>) -> Statement<'a> {
    // `$1` has the places of all entries here, not the place of one change.
    let sql = "INSERT INTO audit (revision, seq, entry)
         SELECT e.revision,
                coalesce((SELECT max(a.seq) + 1 FROM audit AS a WHERE a.revision = e.revision), 0)
                    + row_number() OVER (PARTITION BY e.revision ORDER BY e.nth) - 1,
                e.entry
         FROM (SELECT current_setting('countersign.revision')::bigint + u.place AS revision, u.entry, u.nth
               FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS u (place, entry, nth)) AS e";
    Statement::new(sql)
        .with(Value::Integers(offsets))
        .with(Value::Texts(texts))
}

/// What it means that a write failed; `None`: it is not the write's fault. A name that is taken is told without the name,
/// if only its identity is known.
pub(super) fn refusal(write: &Write, fault: &DatabaseFault) -> Option<Refusal> {
    let code = fault.code()?;
    if *code == SqlState::DIVISION_BY_ZERO {
        return missing(write).map(Refusal::Is);
    }
    if *code != SqlState::UNIQUE_VIOLATION {
        return None;
    }
    let conflict = |precondition| Some(Refusal::Is(Fault::conflict(precondition)));
    match (write, fault.constraint()?) {
        (Write::InsertRequest(request), "requests_id") => {
            let id = request.id.to_string();
            Some(Refusal::Is(Fault::refused(
                RefusedWrite::DuplicateRequest { id },
            )))
        }
        (Write::InsertRequest(request), "requests_live") => {
            conflict(name_taken(&request.door, &request.key))
        }
        (Write::UpdateRequest(update), "requests_live") => Some(Refusal::NameOf(update.id)),
        (Write::Intend(intent), "intents_live") => {
            let request = &intent.deferred.as_ref()?.request;
            conflict(name_taken(&request.door, &request.key))
        }
        (Write::Intend(intent), _) => Some(Refusal::Is(duplicate(&intent.issuer, &intent.serial))),
        (Write::Import(entry), _) => Some(Refusal::Is(duplicate(&entry.issuer, &entry.serial))),
        (Write::PutPolicy(policy), _) => conflict(Precondition::PolicyFree {
            generation: policy.generation,
        }),
        (Write::Seal(seal), _) => conflict(Precondition::LastSeal {
            number: seal.head.number.saturating_sub(1),
        }),
        (Write::PutBootstrapToken(record), _) => conflict(Precondition::BootstrapTokenFree {
            id: record.id.clone(),
        }),
        (write, constraint) => tokens::refusal(write, constraint).map(Refusal::Is),
    }
}

/// Why a change is refused.
pub(super) enum Refusal {
    Is(Fault),
    /// The name of this request is taken.
    NameOf(RequestId),
}

pub(super) fn name_taken(door: &Door, key: &str) -> Precondition {
    Precondition::KeyFree {
        door: door.clone(),
        key: key.to_owned(),
    }
}

/// What is not there that a write is about.
fn missing(write: &Write) -> Option<Fault> {
    match write {
        Write::UpdateRequest(RequestUpdate { id, .. }) | Write::DeleteRequest(id) => {
            Some(Fault::conflict(Precondition::RequestExists { id: *id }))
        }
        Write::Intend(intent) => Some(duplicate(&intent.issuer, &intent.serial)),
        Write::StoreIntended { issuer, serial }
        | Write::VoidIntent { issuer, serial }
        | Write::Record { issuer, serial, .. } => Some(Fault::conflict(Precondition::IntentOpen {
            issuer: issuer.clone(),
            serial: *serial,
            owner: None,
        })),
        Write::Revoke(revocation) => Some(Fault::refused(RefusedWrite::NoSuchCertificate {
            issuer: revocation.issuer.clone(),
            serial: revocation.serial,
        })),
        Write::EnrolMachine { name, .. } => Some(Fault::conflict(Precondition::MachineExists {
            name: name.clone(),
        })),
        Write::UseWindow { certname } => Some(Fault::refused(RefusedWrite::NoSuchWindow {
            certname: certname.clone(),
        })),
        other => tokens::missing(other),
    }
}

fn duplicate(issuer: &IssuerId, serial: &Serial) -> Fault {
    Fault::Refused(CommitFault::DuplicateSerial {
        issuer: issuer.clone(),
        serial: *serial,
    })
}

/// The statements of one change.
struct Commit<'c> {
    /// Its place in the group.
    offset: i64,
    /// How many states it may have left in the history.
    states: i64,
    statements: Vec<Statement<'c>>,
}

impl<'c> Commit<'c> {
    fn write(&mut self, write: &'c Write) -> Result<(), Fault> {
        match write {
            Write::InsertRequest(request) => self.insert_request(request)?,
            Write::UpdateRequest(update) => self.update_request(update)?,
            Write::DeleteRequest(id) => self.delete_request(id),
            Write::Intend(intent) => self.intend(intent)?,
            Write::StoreIntended { issuer, serial } => self.leave(issuer, serial, Leaving::Stored),
            Write::VoidIntent { issuer, serial } => self.leave(issuer, serial, Leaving::Burned),
            Write::Record {
                issuer,
                serial,
                der,
            } => self.leave(issuer, serial, Leaving::Recorded(der)),
            Write::Revoke(revocation) => self.revoke(revocation),
            Write::Retire { issuer, name, at } => self.retire(issuer, name, *at),
            Write::PutCrl(crl) => self.put_crl(crl)?,
            Write::Import(entry) => self.import(entry)?,
            Write::Unlist { issuer, serial } => self.add(
                Statement::new(
                    "UPDATE certificates SET unlisted = true
                     WHERE issuer = $1 AND serial = $2 AND revoked_at IS NOT NULL AND NOT unlisted",
                )
                .with(issuer.as_str())
                .with(serial.as_bytes()),
            ),
            Write::PutAncestorCrl { issuer, crl } => self.put_ancestor_crl(issuer, crl),
            Write::CountSerials { issuer, next } => self.add(
                Statement::new(
                    "INSERT INTO serials (issuer, next) VALUES ($1, $2)
                     ON CONFLICT (issuer) DO UPDATE SET next = greatest(serials.next, excluded.next)",
                )
                .with(issuer.as_str())
                .with(signed(*next, "serial")?),
            ),
            Write::PutMachine(machine) => self.put_machine(machine)?,
            Write::DeleteMachine { name } => self.add(
                Statement::new("DELETE FROM machines WHERE name = $1").with(inventory_name(name)),
            ),
            Write::EnrolMachine { name, request, at } => self.enrol_machine(name, request, *at),
            Write::PutWindow(window) => self.put_window(window),
            Write::CloseWindow { certname } => self.add(
                Statement::new("DELETE FROM windows WHERE certname = $1")
                    .with(inventory_name(certname)),
            ),
            Write::UseWindow { certname } => self.add(
                Statement::new(
                    "WITH used AS (UPDATE windows SET issuances = issuances + 1
                                   WHERE certname = $1 AND issuances < max_issuances RETURNING 1)
                     SELECT 1 / count(*) FROM used",
                )
                .with(inventory_name(certname)),
            ),
            Write::TrimRejections {
                of,
                keep,
                bytes,
                thefts_since,
            } => self.trim_rejections(of.as_ref(), *keep, *bytes, *thefts_since),
            Write::CountDenial(denials) => self.count_denial(denials)?,
            Write::DenialsTold(denials) => self.denials_told(denials)?,
            Write::PutPolicy(policy) => self.put_policy(policy)?,
            Write::RememberAllow(allow) => self.remember_allow(allow),
            Write::ForgetAllows { before } => self.add(
                Statement::new("DELETE FROM webhook_allows WHERE until < $1").with(before.0),
            ),
            Write::Seal(seal) => self.seal(seal)?,
            Write::PutObject(record) => self.put_object(record),
            Write::DeleteObject { key } => self.delete_object(key),
            Write::PutBootstrapToken(record) => self.put_bootstrap_token(record)?,
            Write::RevokeBootstrapToken { id, at } => self.add(
                Statement::new(
                    "UPDATE bootstrap_tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL",
                )
                .with(id.as_str())
                .with(at.0),
            ),
            Write::ForgetBootstrapToken { id } => self.add(
                Statement::new("DELETE FROM bootstrap_tokens WHERE id = $1").with(id.as_str()),
            ),
            Write::TrimStates { before } => self.trim_states(place(before.0)),
            Write::PutToken(_)
            | Write::UseToken(_)
            | Write::TokenIssued { .. }
            | Write::EndToken { .. }
            | Write::FailToken { .. }
            | Write::ReleaseToken { .. }
            | Write::ForgetToken { .. } => {
                let statements = tokens::statements(write, self.offset)?;
                self.statements.extend(statements);
            }
        }
        Ok(())
    }

    fn add(&mut self, statement: Statement<'c>) {
        self.statements.push(statement);
    }

    /// One whose first value is the change's place, and so its revision.
    fn of_revision(&self, sql: &str) -> Statement<'c> {
        Statement::new(sql.replace("{revision}", REVISION)).with(self.offset)
    }

    fn insert_request(&mut self, request: &'c RequestRecord) -> Result<(), Fault> {
        let (issuer, serial) = certificate_columns(request.certificate.as_ref());
        let decision = DecisionColumns::of(&request.explanation);
        let insert = "INSERT INTO requests (version, id, door, key, live, retained, state, signer, csr, key_fingerprint,
                                  requester, wishes, created, explanation, failure, issuer, serial, attachment,
                                  evidence, code, about_token, by_person, retry, source, bytes)
             VALUES ({revision}, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                     $21, $22, $23, $24, octet_length($9::bytea) + octet_length($18::bytea))";
        let is_kept = request.retained && request.live;
        let sql = if is_kept {
            format!(
                "WITH written AS ({insert} RETURNING *)
                 INSERT INTO request_states (revision, seq, change, {REQUEST})
                 SELECT version, $25::bigint, 'added', {REQUEST} FROM written"
            )
        } else {
            insert.to_owned()
        };
        let mut statement = self
            .of_revision(&sql)
            .with(request.id.as_bytes())
            .with(request.door.as_str())
            .with(request.key.as_str())
            .with(request.live)
            .with(request.retained)
            .with(request.state.word())
            .with(request.signer.as_str())
            .with(request.csr_der.as_slice())
            .with(request.key_fingerprint.as_bytes())
            .with(document(&request.requester, "requester")?)
            .with(document(&request.wishes, "wishes")?)
            .with(request.created.0)
            .with(document(&request.explanation, "explanation")?)
            .with(request.failure.as_deref())
            .with(issuer)
            .with(serial)
            .with(request.attachment.as_slice())
            .with(evidence(Some(&request.evidence))?)
            .with(decision.code)
            .with(decision.about_token)
            .with(decision.by_person)
            .with(decision.retry)
            .with(source_column(&request.requester));
        if is_kept {
            statement = statement.with(self.next_state());
        }
        self.add(statement);
        Ok(())
    }

    fn update_request(&mut self, update: &'c RequestUpdate) -> Result<(), Fault> {
        let (issuer, serial) = certificate_columns(update.certificate.as_ref());
        let explanation = update.explanation.as_ref();
        let decision = explanation.map(DecisionColumns::of);
        let explanation = explanation.map(|explanation| document(explanation, "explanation"));
        let state = self.next_state();
        let sql = format!(
            "WITH updated AS (
                 UPDATE requests
                 SET version = {{revision}}, state = $3, live = $4, explanation = coalesce($5, explanation),
                     failure = coalesce($6, failure), issuer = coalesce($7, issuer), serial = coalesce($8, serial),
                     attachment = coalesce($9, attachment), evidence = CASE WHEN $11 THEN $10 ELSE evidence END,
                     code = CASE WHEN $5::text IS NULL THEN code ELSE $12 END, about_token = coalesce($13, about_token),
                     by_person = coalesce($14, by_person), retry = coalesce($15, retry), csr = coalesce($16, csr),
                     bytes = CASE WHEN $16::bytea IS NULL THEN bytes
                                  ELSE octet_length($16::bytea) + octet_length(coalesce($9, attachment)) END
                 WHERE id = $2 RETURNING *),
             kept AS (
                 INSERT INTO request_states (revision, seq, change, {REQUEST})
                 SELECT version, $17::bigint, CASE WHEN live THEN 'modified' ELSE 'deleted' END, {REQUEST}
                 FROM updated WHERE retained)
             SELECT 1 / count(*) FROM updated"
        );
        let statement = self
            .of_revision(&sql)
            .with(update.id.as_bytes())
            .with(update.state.word())
            .with(update.live)
            .with(explanation.transpose()?)
            .with(update.failure.as_deref())
            .with(issuer)
            .with(serial)
            .with(update.attachment.as_deref())
            .with(evidence(update.evidence.as_ref())?)
            .with(update.evidence.is_some())
            .with(decision.as_ref().and_then(|decision| decision.code))
            .with(decision.as_ref().map(|decision| decision.about_token))
            .with(decision.as_ref().map(|decision| decision.by_person))
            .with(decision.as_ref().map(|decision| decision.retry))
            .with(update.csr_der.as_deref())
            .with(state);
        self.add(statement);
        Ok(())
    }

    fn delete_request(&mut self, id: &'c RequestId) {
        let state = self.next_state();
        let columns = REQUEST.replace("version", REVISION);
        let sql = format!(
            "WITH deleted AS (DELETE FROM requests WHERE id = $2 RETURNING *),
             kept AS (
                 INSERT INTO request_states (revision, seq, change, {REQUEST})
                 SELECT {{revision}}, $3::bigint, 'deleted', {columns} FROM deleted WHERE retained AND live)
             SELECT 1 / count(*) FROM deleted"
        );
        let statement = self.of_revision(&sql).with(id.as_bytes()).with(state);
        self.add(statement);
    }

    /// Opens an intent. Its serial must be new, also among those that were burned.
    fn intend(&mut self, intent: &'c Intent) -> Result<(), Fault> {
        const NEW: &str =
            "WHERE NOT EXISTS (SELECT FROM certificates WHERE issuer = $2 AND serial = $3)";
        const INTENT: &str = "issuer, serial, request, signer, name, key_fingerprint, not_before, not_after, \
             explanation, owner, lease_until";
        const VALUES: &str = "$2::text, $3::bytea, $4::bytea, $5::text, $6::text, $7::bytea, $8::bigint, $9::bigint, \
             $10::text, $11::text, $12::bigint";
        let sql = match intent.deferred.is_some() {
            // The first value is not needed: a cast keeps its place.
            false => format!(
                "WITH opened AS (INSERT INTO intents ({INTENT}) SELECT {VALUES} {NEW} RETURNING 1)
                 SELECT 1 / count(*) + 0 * $1::bigint FROM opened"
            ),
            true => format!(
                "WITH opened AS (
                     INSERT INTO intents ({INTENT}, version, door, key, live, state, csr, requester, wishes, created,
                                          evidence, attachment, code, about_token, by_person, retry, source, audit)
                     SELECT {VALUES}, {{revision}}, $13::text, $14::text, $15::boolean, $16::text, $17::bytea, $18::text,
                            $19::text, $20::bigint, $21::text, $22::bytea, $23::text, $24::boolean, $25::boolean,
                            $26::boolean, $27::text, $28::text {NEW} RETURNING 1)
                 SELECT 1 / count(*) FROM opened"
            ),
        };
        let mut statement = self
            .of_revision(&sql)
            .with(intent.issuer.as_str())
            .with(intent.serial.as_bytes())
            .with(intent.request.as_bytes())
            .with(intent.signer.as_str())
            .with(intent.name.as_str())
            .with(intent.key_fingerprint.as_bytes())
            .with(intent.not_before.0)
            .with(intent.not_after.0)
            .with(document(&intent.explanation, "explanation")?)
            .with(intent.owner.0.as_str())
            .with(intent.lease_until.0);
        if let Some(DeferredRequest { request, audit }) = intent.deferred.as_deref() {
            if request.retained {
                return Err(Fault::refused(RefusedWrite::Unstorable {
                    what: "retained request of an intent",
                }));
            }
            let decision = DecisionColumns::of(&intent.explanation);
            statement = statement
                .with(request.door.as_str())
                .with(request.key.as_str())
                .with(request.live)
                .with(request.state.word())
                .with(request.csr_der.as_slice())
                .with(document(&request.requester, "requester")?)
                .with(document(&request.wishes, "wishes")?)
                .with(request.created.0)
                .with(evidence(Some(&request.evidence))?)
                .with(request.attachment.as_slice())
                .with(decision.code.map(str::to_owned))
                .with(decision.about_token)
                .with(decision.by_person)
                .with(decision.retry)
                .with(source_column(&request.requester))
                .with(audit_lines(audit)?);
        }
        self.add(statement);
        self.pass_serial(&intent.issuer, &intent.serial);
        Ok(())
    }

    /// What an intent holds goes where it belongs: its request with that one's audit entries if it holds one, and unless it
    /// stays open, its serial.
    fn leave(&mut self, issuer: &'c IssuerId, serial: &'c Serial, leaving: Leaving<'c>) {
        const STORED: &str = "stored AS (
                 INSERT INTO requests (version, id, door, key, live, retained, state, signer, csr, key_fingerprint, requester,
                                       wishes, created, explanation, issuer, serial, attachment, evidence, code,
                                       about_token, by_person, retry, source)
                 SELECT {revision}, request, door, key, {live}, false, {state}, signer, csr, key_fingerprint,
                        requester, wishes, created, explanation, {certificate}, attachment, evidence, code, about_token,
                        by_person, retry, source
                 FROM held WHERE door IS NOT NULL),
             audited AS (
                 INSERT INTO audit (revision, seq, entry)
                 SELECT {revision},
                        coalesce((SELECT max(seq) + 1 FROM audit WHERE revision = {revision}), 0) + l.nth - 1, l.entry
                 FROM held, unnest(string_to_array(held.audit, E'\\n')) WITH ORDINALITY AS l (entry, nth))";
        const CLOSED: &str =
            "held AS (DELETE FROM intents WHERE issuer = $2 AND serial = $3 RETURNING *)";
        const LEDGER: &str = "INSERT INTO certificates (issuer, serial, state, request, signer, name, key_fingerprint,
                                           not_before, not_after, explanation, der)
                 SELECT issuer, serial, {state}, request, signer, name, key_fingerprint, not_before, not_after,
                        explanation, {der} FROM held";
        let stored = |live: &str, state: &str, certificate: &str| {
            STORED
                .replace("{live}", live)
                .replace("{state}", state)
                .replace("{certificate}", certificate)
        };
        let ledger =
            |state: &str, der: &str| LEDGER.replace("{state}", state).replace("{der}", der);
        let as_it_stood = || stored("live", "state", "NULL::text, NULL::bytea");
        let sql = match leaving {
            Leaving::Stored => format!(
                "WITH held AS (SELECT * FROM intents WHERE issuer = $2 AND serial = $3), {},
                 released AS (
                     UPDATE intents
                     SET door = NULL, key = NULL, live = NULL, version = NULL, state = NULL, csr = NULL,
                         requester = NULL, wishes = NULL, created = NULL, evidence = NULL, attachment = NULL,
                         code = NULL, about_token = NULL, by_person = NULL, retry = NULL, source = NULL, audit = NULL
                     WHERE issuer = $2 AND serial = $3)
                 SELECT 1 / count(*) FROM held",
                as_it_stood()
            ),
            Leaving::Burned => format!(
                "WITH {CLOSED}, {}, burned AS ({}) SELECT 1 / count(*) FROM held",
                as_it_stood(),
                ledger("'void'", "NULL::bytea")
            ),
            Leaving::Recorded(_) => format!(
                "WITH {CLOSED}, {}, recorded AS ({}) SELECT 1 / count(*) FROM held",
                stored("false", "'issued'", "issuer, serial"),
                ledger("'issued'", "$4::bytea")
            ),
        };
        let mut statement = self
            .of_revision(&sql)
            .with(issuer.as_str())
            .with(serial.as_bytes());
        if let Leaving::Recorded(der) = leaving {
            statement = statement.with(der);
        }
        self.add(statement);
    }

    /// Moves the counter of an issuer that has one past a serial. What does not fit was not counted: random serials are 16
    /// bytes.
    fn pass_serial(&mut self, issuer: &'c IssuerId, serial: &Serial) {
        let next = serial.to_u64().and_then(|serial| serial.checked_add(1));
        let Some(next) = next.and_then(|next| i64::try_from(next).ok()) else {
            return;
        };
        self.add(
            Statement::new("UPDATE serials SET next = $2 WHERE issuer = $1 AND next < $2")
                .with(issuer.as_str())
                .with(next),
        );
    }

    fn import(&mut self, entry: &'c LedgerEntry) -> Result<(), Fault> {
        let revoked = entry.revoked;
        let statement = self
            .of_revision(
                "INSERT INTO certificates (issuer, serial, state, request, signer, name, key_fingerprint, not_before,
                                           not_after, explanation, der, revoked_at, revoked_reason, revoked_revision,
                                           retired)
                 VALUES ($2, $3, 'issued', $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
                         CASE WHEN $12::bigint IS NOT NULL THEN {revision} END, $14)",
            )
            .with(entry.issuer.as_str())
            .with(entry.serial.as_bytes())
            .with(entry.request.as_bytes())
            .with(entry.signer.as_str())
            .with(entry.name.as_str())
            .with(entry.key_fingerprint.as_bytes())
            .with(entry.not_before.0)
            .with(entry.not_after.0)
            .with(document(&entry.explanation, "explanation")?)
            .with(entry.der.as_slice())
            .with(revoked.map(|revoked| revoked.at.0))
            .with(revoked.map(|revoked| i64::from(revoked.reason.code())))
            .with(entry.retired.map(|at| at.0));
        self.add(statement);
        self.pass_serial(&entry.issuer, &entry.serial);
        Ok(())
    }

    /// The first revocation stands: a later one changes neither time nor reason.
    fn revoke(&mut self, revocation: &'c Revocation) {
        let statement = self
            .of_revision(
                "WITH found AS (SELECT 1 FROM certificates WHERE issuer = $2 AND serial = $3 AND state = 'issued'),
                 revoked AS (
                     UPDATE certificates
                     SET revoked_at = coalesce(revoked_at, $4), revoked_reason = coalesce(revoked_reason, $5),
                         revoked_revision = coalesce(revoked_revision, {revision}), unlisted = false
                     WHERE issuer = $2 AND serial = $3 AND state = 'issued' AND (revoked_at IS NULL OR unlisted)
                     RETURNING name),
                 forgotten AS (DELETE FROM webhook_allows WHERE name IN (SELECT name FROM revoked))
                 SELECT 1 / count(*) FROM found",
            )
            .with(revocation.issuer.as_str())
            .with(revocation.serial.as_bytes())
            .with(revocation.revoked.at.0)
            .with(i64::from(revocation.revoked.reason.code()));
        self.add(statement);
    }

    /// The first retirement of a certificate stands.
    fn retire(&mut self, issuer: &'c IssuerId, name: &'c str, at: UnixTime) {
        self.add(
            Statement::new(
                "WITH retired AS (
                     UPDATE certificates SET retired = $3
                     WHERE issuer = $1 AND name = $2 AND state = 'issued' AND retired IS NULL RETURNING 1)
                 DELETE FROM webhook_allows WHERE name = $2 AND EXISTS (SELECT FROM retired)",
            )
            .with(issuer.as_str())
            .with(name)
            .with(at.0),
        );
    }

    fn put_ancestor_crl(&mut self, issuer: &'c IssuerId, crl: &'c AncestorCrl) {
        // Magnitudes without leading zeros compare by length first. Empty ones say nothing: the engine has compared times.
        self.add(
            Statement::new(
                "INSERT INTO ancestor_crls AS known (issuer, key_id, number, position, der) VALUES ($1, $2, $3, $4, $5)
                 ON CONFLICT (issuer, key_id) DO UPDATE
                 SET number = excluded.number, position = excluded.position, der = excluded.der
                 WHERE (octet_length(excluded.number), excluded.number) > (octet_length(known.number), known.number)
                    OR (octet_length(excluded.number) = 0 AND octet_length(known.number) = 0
                        AND excluded.der <> known.der)",
            )
            .with(issuer.as_str())
            .with(crl.key_id.as_slice())
            .with(crl.number.as_slice())
            .with(crl.position)
            .with(crl.der.as_slice()),
        );
    }

    fn put_crl(&mut self, crl: &'c CrlRecord) -> Result<(), RowFault> {
        self.add(
            Statement::new(
                "INSERT INTO crls (issuer, scope, number, covers, this_update, next_update, der)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)
                 ON CONFLICT (issuer, scope) DO UPDATE
                 SET number = excluded.number, covers = excluded.covers, this_update = excluded.this_update,
                     next_update = excluded.next_update, der = excluded.der",
            )
            .with(crl.issuer.as_str())
            .with(crl.scope.word())
            .with(signed(crl.number, "CRL number")?)
            .with(signed(crl.covers.0, "revision")?)
            .with(crl.this_update.0)
            .with(crl.next_update.0)
            .with(crl.der.as_slice()),
        );
        Ok(())
    }

    /// A record that is written again keeps its age and its enrolment.
    fn put_machine(&mut self, machine: &'c Machine) -> Result<(), RowFault> {
        let statement = self
            .of_revision(
                "INSERT INTO machines (version, name, addresses, serial, uuid, instance_id, provider, role, not_before,
                                       not_after, single_use, created, enrolled)
                 VALUES ({revision}, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
                 ON CONFLICT (name) DO UPDATE
                 SET version = excluded.version, addresses = excluded.addresses, serial = excluded.serial,
                     uuid = excluded.uuid, instance_id = excluded.instance_id, provider = excluded.provider,
                     role = excluded.role, not_before = excluded.not_before, not_after = excluded.not_after,
                     single_use = excluded.single_use",
            )
            .with(inventory_name(&machine.name))
            .with(document(&machine.addresses, "machine's addresses")?)
            .with(machine.serial.as_str())
            .with(machine.uuid.as_str())
            .with(machine.instance_id.as_str())
            .with(machine.provider.as_str())
            .with(machine.role.as_str())
            .with(machine.not_before.map(|time| time.0))
            .with(machine.not_after.map(|time| time.0))
            .with(machine.single_use)
            .with(machine.created.0)
            .with(machine.enrolled.map(|time| time.0));
        self.add(statement);
        Ok(())
    }

    fn enrol_machine(&mut self, name: &'c str, request: &'c RequestId, at: UnixTime) {
        let statement = self
            .of_revision(
                "WITH found AS (SELECT 1 FROM machines WHERE name = $2),
                 enrolled AS (UPDATE machines SET enrolled = $3, request = $4, version = {revision}
                              WHERE name = $2 AND enrolled IS NULL)
                 SELECT 1 / count(*) FROM found",
            )
            .with(inventory_name(name))
            .with(at.0)
            .with(request.as_bytes());
        self.add(statement);
    }

    fn put_window(&mut self, window: &'c BuildWindow) {
        self.add(
            Statement::new(
                "INSERT INTO windows (certname, opens_at, closes_at, max_issuances, issuances, require_token)
                 VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT (certname) DO UPDATE
                 SET opens_at = excluded.opens_at, closes_at = excluded.closes_at,
                     max_issuances = excluded.max_issuances, issuances = excluded.issuances,
                     require_token = excluded.require_token",
            )
            .with(inventory_name(&window.certname))
            .with(window.opens_at.0)
            .with(window.closes_at.0)
            .with(window.max_issuances)
            .with(window.issuances)
            .with(window.require_token),
        );
    }

    fn trim_rejections(
        &mut self,
        of: Option<&'c (Door, String)>,
        keep: usize,
        bytes: u64,
        since: UnixTime,
    ) {
        let keep = bound(keep);
        self.add(match of {
            // Of thefts also the first ones, which are the likeliest to tell who it was: nobody pushes them out.
            Some((door, key)) => Statement::new(format!(
                "DELETE FROM requests WHERE number IN (
                     (SELECT number FROM requests
                      WHERE door = $2 AND key = $3{OF_A_NAME} AND NOT ({THEFT}) ORDER BY number DESC OFFSET $4)
                     UNION ALL
                     SELECT number FROM (
                         SELECT number, row_number() OVER (ORDER BY number) AS first,
                                row_number() OVER (ORDER BY number DESC) AS last
                         FROM requests WHERE door = $2 AND key = $3{OF_A_NAME} AND {THEFT}) AS thefts
                     WHERE first > $4 AND last > $4)"
            ))
            .with(since.0)
            .with(door.as_str())
            .with(key.as_str())
            .with(keep),
            None => Statement::new(format!(
                "DELETE FROM requests WHERE number IN (
                     SELECT number FROM (
                         SELECT number, row_number() OVER newest AS place, sum(bytes) OVER newest AS total
                         FROM requests WHERE {REJECTED}{TRIMMABLE} AND NOT ({THEFT})
                         WINDOW newest AS (ORDER BY number DESC)) AS rejected
                     WHERE place > $2 OR total > $4::bigint LIMIT $3)"
            ))
            .with(since.0)
            .with(keep)
            .with(MAX_TRIMMED)
            .with(i64::try_from(bytes).unwrap_or(i64::MAX)),
        });
    }

    fn count_denial(&mut self, denials: &'c RepeatedDenials) -> Result<(), RowFault> {
        self.add(
            Statement::new(
                "INSERT INTO repeated_denials AS known (source, door, code, first, last, number, last_name)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)
                 ON CONFLICT (source, door, code) DO UPDATE
                 SET last = greatest(known.last, excluded.last), number = known.number + excluded.number,
                     last_name = excluded.last_name",
            )
            .with(denials.source.to_string())
            .with(denials.door.as_str())
            .with(denials.code.as_str())
            .with(denials.first.0)
            .with(denials.last.0)
            .with(signed(denials.number, "count of denials")?)
            .with(denials.last_name.as_str()),
        );
        Ok(())
    }

    /// Those that came since they were read stay.
    fn denials_told(&mut self, denials: &'c RepeatedDenials) -> Result<(), RowFault> {
        let of = |sql: &str| {
            Statement::new(sql)
                .with(denials.source.to_string())
                .with(denials.door.as_str())
                .with(denials.code.as_str())
        };
        let counted = of(
            "UPDATE repeated_denials SET number = number - $4, first = $5
             WHERE source = $1 AND door = $2 AND code = $3",
        );
        let number = signed(denials.number, "count of denials")?;
        self.add(counted.with(number).with(denials.last.0));
        self.add(of(
            "DELETE FROM repeated_denials WHERE source = $1 AND door = $2 AND code = $3 AND number <= 0",
        ));
        Ok(())
    }

    fn put_policy(&mut self, policy: &'c PolicyVersion) -> Result<(), RowFault> {
        self.add(
            Statement::new(
                "INSERT INTO policies (generation, digest, loaded, text) VALUES ($1, $2, $3, $4)",
            )
            .with(signed(policy.generation, "generation")?)
            .with(policy.digest.as_bytes())
            .with(policy.loaded.0)
            .with(policy.text.as_str()),
        );
        Ok(())
    }

    fn remember_allow(&mut self, allow: &'c RememberedAllow) {
        self.add(
            Statement::new(
                "INSERT INTO webhook_allows (webhook, name, asked, until) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (name, webhook, asked) DO UPDATE SET until = excluded.until",
            )
            .with(allow.webhook.as_str())
            .with(allow.name.as_str())
            .with(allow.asked.as_bytes())
            .with(allow.until.0),
        );
    }

    fn seal(&mut self, seal: &'c Seal) -> Result<(), RowFault> {
        let Seal { head, hashes } = seal;
        let hashes: Vec<u8> = hashes.iter().flat_map(|hash| *hash.as_bytes()).collect();
        self.add(
            Statement::new(
                "INSERT INTO audit_seals (number, first_revision, first_seq, last_revision, last_seq, count, previous,
                                          hash, at, key_id, signature, hashes)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            )
            .with(signed(head.number, "seal number")?)
            .with(signed(head.first.revision.0, "revision")?)
            .with(signed(head.first.seq, "audit entry")?)
            .with(signed(head.last.revision.0, "revision")?)
            .with(signed(head.last.seq, "audit entry")?)
            .with(signed(head.count, "count")?)
            .with(head.previous.as_bytes())
            .with(head.hash.as_bytes())
            .with(head.at.0)
            .with(head.key_id.as_bytes())
            .with(head.signature.as_slice())
            .with(hashes),
        );
        Ok(())
    }

    fn put_object(&mut self, record: &'c ObjectRecord) {
        let state = self.next_state();
        // A row that was inserted has no earlier version.
        let sql = format!(
            "WITH written AS (
                 INSERT INTO objects (version, kind, namespace, name, id, created, body)
                 VALUES ({{revision}}, $2, $3, $4, $5, $6, $7)
                 ON CONFLICT (kind, namespace, name) DO UPDATE SET version = excluded.version, body = excluded.body
                 RETURNING *, xmax = 0 AS is_new)
             INSERT INTO object_states (revision, seq, change, {OBJECT})
             SELECT version, $8::bigint, CASE WHEN is_new THEN '{}' ELSE '{}' END, {OBJECT} FROM written",
            StateChangeKind::Added.word(),
            StateChangeKind::Modified.word()
        );
        let statement = self
            .of_revision(&sql)
            .with(record.key.kind.as_str())
            .with(record.key.namespace.as_str())
            .with(record.key.name.as_str())
            .with(record.id.as_bytes())
            .with(record.created.0)
            .with(record.body.as_slice())
            .with(state);
        self.add(statement);
    }

    fn delete_object(&mut self, key: &'c ObjectKey) {
        let state = self.next_state();
        let columns = OBJECT.replace("version", REVISION);
        let sql = format!(
            "WITH deleted AS (DELETE FROM objects WHERE kind = $2 AND namespace = $3 AND name = $4 RETURNING *)
             INSERT INTO object_states (revision, seq, change, {OBJECT})
             SELECT {{revision}}, $5::bigint, 'deleted', {columns} FROM deleted"
        );
        let statement = self
            .of_revision(&sql)
            .with(key.kind.as_str())
            .with(key.namespace.as_str())
            .with(key.name.as_str())
            .with(state);
        self.add(statement);
    }

    fn put_bootstrap_token(&mut self, record: &'c BootstrapRecord) -> Result<(), RowFault> {
        self.add(
            Statement::new(format!(
                "INSERT INTO bootstrap_tokens (id, mac, mac_key_id, groups, description, expires_at, created_by,
                                               created_at, revoked_at, terms_mac, epoch)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, {EPOCH})"
            ))
            .with(record.id.as_str())
            .with(&record.mac)
            .with(record.mac_key_id.as_str())
            .with(document(&record.groups, "groups of the token")?)
            .with(record.description.as_str())
            .with(record.expires_at.map(|at| at.0))
            .with(record.created_by.as_str())
            .with(record.created_at.0)
            .with(record.revoked_at.map(|at| at.0))
            .with(record.terms_mac.as_ref().map(|mac| mac.as_slice())),
        );
        Ok(())
    }

    /// Forgets states that commits before `before` left, whole commits and about [`MAX_TRIMMED`] states, and moves the
    /// horizon with them. A commit does not trim its own states, and the first commit goes whole, however much it left.
    fn trim_states(&mut self, before: i64) {
        let statement = self
            .of_revision(
                "WITH places AS (
                     SELECT revision FROM request_states UNION ALL SELECT revision FROM object_states
                     ORDER BY revision LIMIT $3::bigint + 1),
                 edge AS (SELECT min(revision) AS first, max(revision) AS last, count(*) AS found FROM places),
                 trimmed AS (
                     SELECT least($2, {revision}, CASE WHEN found > $3 THEN greatest(last, first + 1) END) AS before
                     FROM edge),
                 requests AS (DELETE FROM request_states WHERE revision < (SELECT before FROM trimmed)),
                 objects AS (DELETE FROM object_states WHERE revision < (SELECT before FROM trimmed))
                 UPDATE store_state SET horizon = greatest(horizon, (SELECT before - 1 FROM trimmed)) WHERE one = 1",
            )
            .with(before)
            .with(MAX_TRIMMED);
        self.add(statement);
    }

    /// The number of the change's next state.
    fn next_state(&mut self) -> i64 {
        let state = self.states;
        self.states = self.states.saturating_add(1);
        state
    }
}

/// Where an intent goes.
#[derive(Clone, Copy)]
enum Leaving<'c> {
    /// It stays open, without the request that it held.
    Stored,
    /// Its serial is burned.
    Burned,
    /// Its certificate is recorded.
    Recorded(&'c [u8]),
}

/// Others have their turn between two of these.
const MAX_TRIMMED: i64 = 500;

/// What rules have turned away, of one name.
const OF_A_NAME: &str = " AND NOT live AND state IN ('denied', 'undecided') AND NOT by_person";

/// The condition of the index `requests_rejected`: what was denied or could not be decided, and what waits because of a
/// token.
pub(super) const REJECTED: &str =
    "(state IN ('denied', 'undecided') OR (state = 'pending' AND live AND about_token))";

/// Of those, where a token had been used by another key, since the time `$1`.
pub(super) const THEFT: &str = "code IS NOT DISTINCT FROM 'token_key_mismatch' AND created >= $1";

/// What may be forgotten of those: what a rule has turned away, and what occupies no name.
pub(super) const TRIMMABLE: &str = " AND state <> 'pending' AND NOT live AND NOT by_person";
