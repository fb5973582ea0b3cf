//! What a change is about, as names that are locked.
//!
//! Preconditions speak of what is there and of what is not: no other request of this name, no intent for it, no denial.
//! A row that is not there cannot be locked, so the names of things are: with advisory locks that last until the
//! transaction ends. Whoever holds the names of its preconditions and writes knows that what it has found stays as it is.
//! All names of a group are locked by one statement in their order, before anything else is locked, so that two groups
//! never wait for each other.

use std::collections::{HashMap, HashSet};

use countersign_authority::store::{Change, Precondition, Write};
use countersign_authority::{
    CrlScope, Door, Intent, IssuerId, ObjectKey, RequestId, TokenId, inventory_name,
};
use countersign_pki::{Serial, fingerprint_sha256};
use countersign_policy::TokenBinding;

use super::fault::Fault;
use super::session::Session;
use super::value::{Statement, Value};
use crate::row::{Columns, RowFault};

/// A name's lock. Two names that happen to share one only wait for each other.
pub(super) type Lock = i64;

/// What some changes name by an identity alone, and other changes by name.
#[derive(Default)]
pub(super) struct Resolved {
    requests: HashMap<[u8; 16], Vec<Lock>>,
    certificates: HashMap<(String, Vec<u8>), Vec<Lock>>,
    tokens: HashMap<String, Vec<Lock>>,
}

impl Resolved {
    /// Looks up what the changes of a group name by identity. Names of things never change, so that this needs no lock.
    pub(super) async fn of(session: &Session, changes: &[&Change]) -> Result<Self, Fault> {
        let mut wanted = Wanted::default();
        for write in changes.iter().flat_map(|change| &change.writes) {
            wanted.note(write);
        }
        let mut resolved = Self::default();
        let Some(statement) = wanted.statement() else {
            return Ok(resolved);
        };
        for found in session
            .all(&statement, |row| Found::read(&mut Columns::of(row, "name")))
            .await?
        {
            found.enter(&mut resolved);
        }
        Ok(resolved)
    }
}

/// The locks of a change, in their order.
pub(super) fn locks(change: &Change, resolved: &Resolved) -> Vec<Lock> {
    let mut names = Names {
        locks: HashSet::new(),
        resolved,
    };
    for precondition in &change.preconditions {
        names.of_precondition(precondition);
    }
    for write in &change.writes {
        names.of_write(write);
    }
    let mut locks: Vec<Lock> = names.locks.into_iter().collect();
    locks.sort_unstable();
    locks
}

struct Names<'r> {
    locks: HashSet<Lock>,
    resolved: &'r Resolved,
}

impl Names<'_> {
    fn of_precondition(&mut self, precondition: &Precondition) {
        match precondition {
            Precondition::RequestAt { id, .. }
            | Precondition::RequestExists { id }
            | Precondition::RequestIn { id, .. } => self.add(request(id)),
            Precondition::KeyFree { door, key } | Precondition::NotDenied { door, key, .. } => {
                self.add(occupied(door, key));
            }
            Precondition::NewestCertificate { issuer, name, .. }
            | Precondition::IssuedCount { issuer, name, .. } => self.add(certified(issuer, name)),
            Precondition::Unrevoked { issuer, serial }
            | Precondition::IntentOpen { issuer, serial, .. } => {
                self.add(certificate(issuer, serial))
            }
            Precondition::PolicyFree { .. } => self.add(policy()),
            Precondition::CrlNumber { issuer, scope, .. } => self.add(crl(issuer, *scope)),
            Precondition::MachineAt { name, .. }
            | Precondition::MachineExists { name }
            | Precondition::MachineUnused { name } => self.add(machine(name)),
            Precondition::WindowOpen { certname, .. }
            | Precondition::WindowClosed { certname, .. } => self.add(window(certname)),
            Precondition::LastSeal { .. } => self.add(seal()),
            Precondition::TokenUsable { id, .. }
            | Precondition::TokenAt { id, .. }
            | Precondition::TokenReserved { id, .. } => self.add(token(id)),
            Precondition::ActiveTokens { certname, .. } => self.add(tokens_of(certname)),
            Precondition::TokenNotOrdered {
                created_by,
                idempotency_key,
            } => self.add(order(created_by, idempotency_key)),
            Precondition::ObjectAt { key, .. } => self.add(object(key)),
            Precondition::BootstrapTokenFree { id } | Precondition::BootstrapTokenStands { id } => {
                self.add(named("bootstrap", &[id.as_str()]))
            }
        }
    }

    fn of_write(&mut self, write: &Write) {
        match write {
            Write::InsertRequest(record) => {
                self.add(request(&record.id));
                self.add(occupied(&record.door, &record.key));
            }
            Write::UpdateRequest(update) => self.of_request(&update.id),
            Write::DeleteRequest(id) => self.of_request(id),
            Write::Intend(intent) => self.of_intent(intent),
            Write::StoreIntended { issuer, serial }
            | Write::VoidIntent { issuer, serial }
            | Write::Record { issuer, serial, .. }
            | Write::Unlist { issuer, serial } => self.of_certificate(issuer, serial),
            Write::Revoke(revocation) => {
                self.of_certificate(&revocation.issuer, &revocation.serial);
            }
            Write::Retire { issuer, name, .. } => {
                self.add(certified(issuer, name));
                self.add(allowed(name));
            }
            Write::Import(entry) => {
                self.add(certificate(&entry.issuer, &entry.serial));
                self.add(certified(&entry.issuer, &entry.name));
            }
            Write::PutCrl(record) => self.add(crl(&record.issuer, record.scope)),
            Write::PutPolicy(_) => self.add(policy()),
            Write::RememberAllow(allow) => self.add(allowed(&allow.name)),
            Write::PutMachine(record) => self.add(machine(&record.name)),
            Write::DeleteMachine { name } | Write::EnrolMachine { name, .. } => {
                self.add(machine(name));
            }
            Write::PutWindow(record) => self.add(window(&record.certname)),
            Write::CloseWindow { certname } | Write::UseWindow { certname } => {
                self.add(window(certname));
            }
            Write::Seal(_) => self.add(seal()),
            Write::PutToken(record) => {
                self.add(token(&record.id));
                if let TokenBinding::Exact(name) = &record.binding {
                    self.add(tokens_of(name));
                }
                if let Some(key) = &record.idempotency_key {
                    self.add(order(&record.created_by, key));
                }
            }
            Write::UseToken(used) => self.of_token(&used.token),
            Write::EndToken { id, .. } | Write::ReleaseToken { id, .. } => self.of_token(id),
            Write::TokenIssued { id, .. } | Write::FailToken { id } | Write::ForgetToken { id } => {
                self.add(token(id));
            }
            Write::PutObject(record) => self.add(object(&record.key)),
            Write::DeleteObject { key } => self.add(object(key)),
            Write::PutBootstrapToken(record) => {
                self.add(named("bootstrap", &[record.id.as_str()]));
            }
            Write::RevokeBootstrapToken { id, .. } | Write::ForgetBootstrapToken { id } => {
                self.add(named("bootstrap", &[id.as_str()]));
            }
            // What these change is not what a precondition asks for, and they come in the order of revisions.
            Write::PutAncestorCrl { .. }
            | Write::CountDenial(_)
            | Write::DenialsTold(_)
            | Write::TrimRejections { .. }
            | Write::ForgetAllows { .. }
            | Write::CountSerials { .. }
            | Write::TrimStates { .. } => {}
        }
    }

    fn of_request(&mut self, id: &RequestId) {
        self.add(request(id));
        self.add_all(self.resolved.requests.get(id.as_bytes()));
    }

    fn of_intent(&mut self, intent: &Intent) {
        self.add(certificate(&intent.issuer, &intent.serial));
        self.add(certified(&intent.issuer, &intent.name));
        if let Some(deferred) = &intent.deferred {
            self.add(request(&deferred.request.id));
            self.add(occupied(&deferred.request.door, &deferred.request.key));
        }
    }

    fn of_certificate(&mut self, issuer: &IssuerId, serial: &Serial) {
        self.add(certificate(issuer, serial));
        let key = (issuer.as_str().to_owned(), serial.as_bytes().to_vec());
        self.add_all(self.resolved.certificates.get(&key));
    }

    fn of_token(&mut self, id: &TokenId) {
        self.add(token(id));
        self.add_all(self.resolved.tokens.get(id.as_str()));
    }

    fn add(&mut self, lock: Lock) {
        self.locks.insert(lock);
    }

    fn add_all(&mut self, locks: Option<&Vec<Lock>>) {
        self.locks.extend(locks.into_iter().flatten());
    }
}

/// Identities whose names are looked up.
#[derive(Default)]
struct Wanted<'c> {
    requests: Vec<&'c [u8]>,
    issuers: Vec<&'c str>,
    serials: Vec<&'c [u8]>,
    tokens: Vec<&'c str>,
}

impl<'c> Wanted<'c> {
    fn note(&mut self, write: &'c Write) {
        match write {
            Write::UpdateRequest(update) => self.requests.push(update.id.as_bytes()),
            Write::DeleteRequest(id) => self.requests.push(id.as_bytes()),
            Write::StoreIntended { issuer, serial }
            | Write::VoidIntent { issuer, serial }
            | Write::Record { issuer, serial, .. } => self.certificate(issuer, serial),
            Write::Revoke(revocation) => self.certificate(&revocation.issuer, &revocation.serial),
            Write::UseToken(used) => self.tokens.push(used.token.as_str()),
            Write::EndToken { id, .. } | Write::ReleaseToken { id, .. } => {
                self.tokens.push(id.as_str());
            }
            _ => {}
        }
    }

    fn certificate(&mut self, issuer: &'c IssuerId, serial: &'c Serial) {
        self.issuers.push(issuer.as_str());
        self.serials.push(serial.as_bytes());
    }

    /// One statement for all kinds, with only the kinds that are wanted. The columns are those of [`Found`].
    fn statement(&self) -> Option<Statement<'c>> {
        let mut statement = Statement::default();
        if !self.requests.is_empty() {
            statement
                .push("SELECT 'request'::text, id, NULL::text, NULL::text, id, door, key FROM requests WHERE id = ANY(")
                .bind(octet_strings(&self.requests))
                .push(") UNION ALL SELECT 'request', request, NULL, NULL, request, door, key FROM intents WHERE door IS NOT NULL AND request = ANY(")
                .bind(octet_strings(&self.requests))
                .push(")");
        }
        if !self.issuers.is_empty() {
            if !statement.sql.is_empty() {
                statement.push(" UNION ALL ");
            }
            let issuers = || Value::Texts(self.issuers.iter().map(|it| (*it).into()).collect());
            statement
                .push("SELECT 'certificate'::text, i.serial, i.issuer, i.name, i.request, i.door, i.key FROM intents AS i JOIN unnest(")
                .bind(issuers())
                .push("::text[], ")
                .bind(octet_strings(&self.serials))
                .push("::bytea[]) AS w (issuer, serial) ON i.issuer = w.issuer AND i.serial = w.serial \
                       UNION ALL SELECT 'certificate', c.serial, c.issuer, c.name, NULL, NULL, NULL FROM certificates AS c JOIN unnest(")
                .bind(issuers())
                .push("::text[], ")
                .bind(octet_strings(&self.serials))
                .push("::bytea[]) AS w (issuer, serial) ON c.issuer = w.issuer AND c.serial = w.serial");
        }
        if !self.tokens.is_empty() {
            if !statement.sql.is_empty() {
                statement.push(" UNION ALL ");
            }
            statement
                .push("SELECT 'token'::text, NULL::bytea, id, value, NULL::bytea, NULL::text, NULL::text FROM tokens WHERE kind = 'exact' AND id = ANY(")
                .bind(Value::Texts(self.tokens.iter().map(|it| (*it).into()).collect()))
                .push(")");
        }
        (!statement.sql.is_empty()).then_some(statement)
    }
}

/// A thing that was looked up, with the names that it has.
struct Found {
    kind: String,
    octets: Option<Vec<u8>>,
    text: Option<String>,
    name: Option<String>,
    request: Option<[u8; 16]>,
    door: Option<String>,
    key: Option<String>,
}

impl Found {
    fn read(columns: &mut Columns<'_>) -> Result<Self, RowFault> {
        Ok(Self {
            kind: columns.take()?,
            octets: columns.take()?,
            text: columns.take()?,
            name: columns.take()?,
            request: columns.take()?,
            door: columns.take()?,
            key: columns.take()?,
        })
    }

    fn enter(self, resolved: &mut Resolved) {
        let mut locks = Vec::new();
        if let (Some(door), Some(key)) = (&self.door, &self.key) {
            locks.push(named("occupied", &[door, key]));
        }
        match (self.kind.as_str(), self.octets, self.text, self.name) {
            ("request", _, _, _) => {
                if let Some(id) = self.request {
                    resolved.requests.entry(id).or_default().extend(locks);
                }
            }
            ("certificate", Some(serial), Some(issuer), Some(name)) => {
                if let (Some(id), Some(_)) = (&self.request, &self.door) {
                    locks.push(request(&RequestId::from_bytes(*id)));
                }
                locks.push(named("certified", &[&issuer, &name]));
                locks.push(allowed(&name));
                let known = resolved.certificates.entry((issuer, serial));
                known.or_default().extend(locks);
            }
            ("token", _, Some(id), Some(value)) => {
                let known = resolved.tokens.entry(id).or_default();
                known.push(tokens_of(&value));
            }
            (_, _, _, _) => {}
        }
    }
}

fn octet_strings<'c>(values: &[&'c [u8]]) -> Value<'c> {
    Value::OctetStrings(values.iter().map(|it| (*it).into()).collect())
}

fn request(id: &RequestId) -> Lock {
    lock("request", &[id.as_bytes()])
}

/// What stands at a door under a name.
fn occupied(door: &Door, key: &str) -> Lock {
    named("occupied", &[door.as_str(), key])
}

/// The certificates and intents of a name.
fn certified(issuer: &IssuerId, name: &str) -> Lock {
    named("certified", &[issuer.as_str(), name])
}

fn certificate(issuer: &IssuerId, serial: &Serial) -> Lock {
    lock(
        "certificate",
        &[issuer.as_str().as_bytes(), serial.as_bytes()],
    )
}

fn allowed(name: &str) -> Lock {
    named("allowed", &[name])
}

fn crl(issuer: &IssuerId, scope: CrlScope) -> Lock {
    named("crl", &[issuer.as_str(), scope.word()])
}

fn machine(name: &str) -> Lock {
    named("machine", &[&inventory_name(name)])
}

fn window(certname: &str) -> Lock {
    named("window", &[&inventory_name(certname)])
}

fn token(id: &TokenId) -> Lock {
    named("token", &[id.as_str()])
}

fn tokens_of(certname: &str) -> Lock {
    named("tokens of", &[certname])
}

fn order(created_by: &str, idempotency_key: &str) -> Lock {
    named("order", &[created_by, idempotency_key])
}

fn object(key: &ObjectKey) -> Lock {
    named("object", &[&key.kind, &key.namespace, &key.name])
}

fn policy() -> Lock {
    named("policy", &[])
}

fn seal() -> Lock {
    named("seal", &[])
}

fn named(kind: &str, parts: &[&str]) -> Lock {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    lock(kind, &parts)
}

/// Every process computes the same: it is a part of how versions work side by side, and must not change.
fn lock(kind: &str, parts: &[&[u8]]) -> Lock {
    let mut text = kind.as_bytes().to_vec();
    for part in parts {
        text.push(0);
        // With its length, so that no two lists of parts are one text.
        text.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        text.extend_from_slice(part);
    }
    let digest = fingerprint_sha256(&text);
    let first = digest.as_bytes().first_chunk().copied().unwrap_or_default();
    i64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_the_same_in_every_version() {
        assert_eq!(named("policy", &[]), -9_064_599_457_193_302_123);
        assert_ne!(named("a", &["b", "c"]), named("a", &["bc", ""]));
        assert_ne!(named("a", &["b"]), named("ab", &[]));
    }
}
