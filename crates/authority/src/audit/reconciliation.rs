//! Ledger, tokens and audit log held against each other: what one of them knows, the others must know too.
//!
//! Seals show that nobody has changed the log. They do not show that a certificate, a revocation, a token or its use was
//! taken out of its own table, or put there by nobody. Rows are read before the log and doubts are looked up again behind
//! it, so that an authority at work can be checked.

mod imports;
mod tokens;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use countersign_pki::{Serial, UnixTime, fingerprint_sha256};

use crate::audit::sealing::BATCH;
use crate::audit::{Audit, AuditEntry, AuditFilter, AuditOrder, AuditPlace, AuditQuery};
use crate::issuer::IssuerId;
use crate::model::LedgerEntry;
use crate::store::{Store, StoreFault};
pub use imports::ImportDigest;
use imports::{Import, ImportRows};
use tokens::{TokenRows, TokensTold};

/// What was compared, and what does not agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciliation {
    /// Certificates in the ledger.
    pub certificates: u64,
    /// Those of them that are revoked.
    pub revoked: u64,
    /// Uses of tokens.
    pub token_uses: u64,
    /// Certificates of which nobody can tell whether all that came with them are there: an earlier version has imported
    /// them, and did not say which they were.
    pub not_covered: u64,
    /// The first that do not agree.
    pub findings: Vec<Finding>,
    /// How many do not agree, all counted.
    pub found: u64,
}

/// One thing that does not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Its entry in the log is missing.
    CertificateWithoutEntry {
        /// The issuer and the serial.
        certificate: String,
        /// The name in the ledger.
        name: String,
    },
    /// It is missing in the ledger.
    EntryWithoutCertificate {
        /// The issuer and the serial.
        certificate: String,
    },
    /// The ledger says that it is revoked, the log does not.
    RevocationWithoutEntry {
        /// The issuer and the serial.
        certificate: String,
        /// The name in the ledger.
        name: String,
    },
    /// The log says that it was revoked, the ledger does not.
    EntryWithoutRevocation {
        /// The issuer and the serial.
        certificate: String,
    },
    /// It is revoked, and somebody keeps it from the CRL.
    OffTheList {
        /// The issuer and the serial.
        certificate: String,
        /// The name in the ledger.
        name: String,
    },
    /// Certificates that were imported together are others, or other ones are revoked, than the log says.
    OtherImport {
        /// Into which issuer.
        issuer: String,
        /// When.
        at: UnixTime,
        /// How many the log tells of.
        told: u64,
        /// How many there are.
        there: u64,
    },
    /// The log does not tell that a token was minted.
    TokenWithoutEntry {
        /// Which, with its kind.
        token: String,
    },
    /// A token that was minted is missing.
    EntryWithoutToken {
        /// Which, with its kind.
        token: String,
    },
    /// The log says that a token was revoked or locked, its record does not.
    EntryWithoutEnd {
        /// Which, with its kind.
        token: String,
    },
    /// The log does not know of a use.
    UseWithoutEntry {
        /// Which token.
        token: String,
        /// SHA-256 of the key that used it.
        key: String,
    },
    /// A use that the log tells of is missing.
    EntryWithoutUse {
        /// Which token.
        token: String,
        /// SHA-256 of the key that used it.
        key: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CertificateWithoutEntry { certificate, name } => write!(
                f,
                "certificate {certificate} of {name:?} is in the ledger, but the audit log does not tell that it was issued"
            ),
            Self::EntryWithoutCertificate { certificate } => write!(
                f,
                "certificate {certificate} was issued, but is missing in the ledger"
            ),
            Self::RevocationWithoutEntry { certificate, name } => write!(
                f,
                "certificate {certificate} of {name:?} is revoked, but the audit log does not tell of that"
            ),
            Self::EntryWithoutRevocation { certificate } => write!(
                f,
                "certificate {certificate} was revoked, but the ledger does not say so"
            ),
            Self::OffTheList { certificate, name } => write!(
                f,
                "certificate {certificate} of {name:?} is revoked and not on the CRL, but the audit log does not tell that it was taken off"
            ),
            Self::OtherImport {
                issuer,
                at,
                told,
                there,
            } => write!(
                f,
                "of the {told} certificates that were imported into {issuer} at {at} there are {there}, or others of them are \
                 revoked than then"
            ),
            Self::TokenWithoutEntry { token } => write!(
                f,
                "{token} is on record, but the audit log does not tell that it was minted"
            ),
            Self::EntryWithoutToken { token } => {
                write!(f, "{token} was minted, but is missing")
            }
            Self::EntryWithoutEnd { token } => write!(
                f,
                "{token} was revoked or locked, but its record does not say so"
            ),
            Self::UseWithoutEntry { token, key } => write!(
                f,
                "token {token} was used by the key {key}, but the audit log does not tell of that"
            ),
            Self::EntryWithoutUse { token, key } => write!(
                f,
                "token {token} was used by the key {key}, but that use is missing"
            ),
        }
    }
}

impl Audit {
    /// Holds ledger, tokens and audit log against each other, one caller at a time.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn reconcile(&self) -> Result<Reconciliation, StoreFault> {
        let _one_at_a_time = self.core.reconciling.lock().await;
        let issuers: Vec<IssuerId> = self.core.issuers.keys().cloned().collect();
        reconcile(&*self.core.store, &issuers, self.core.clock.now()).await
    }
}

/// Holds ledger, tokens and audit log of a store against each other. It keeps some 200 bytes of each certificate and token in
/// memory.
///
/// # Errors
/// If the store does not answer.
pub async fn reconcile(
    store: &dyn Store,
    issuers: &[IssuerId],
    now: UnixTime,
) -> Result<Reconciliation, StoreFault> {
    let mut rows = Rows::default();
    for issuer in issuers {
        rows.read_ledger(store, issuer).await?;
        rows.read_list(store, issuer, now).await?;
    }
    let tokens = TokenRows::read(store, now).await?;
    let told = Told::read(store, &tokens).await?;
    let mut found = rows.compare(store, issuers, &told).await?;
    found.token_uses = count(tokens.count_uses());
    tokens.compare(store, &told.tokens, now, &mut found).await?;
    Ok(found)
}

/// Which certificate, in few bytes.
type Short = u128;

fn short(subject: &str) -> Short {
    let hash = fingerprint_sha256(subject.as_bytes());
    let (head, _) = hash.as_bytes().split_at(size_of::<Short>());
    Short::from_be_bytes(head.try_into().unwrap_or_default())
}

/// What the tables say.
#[derive(Default)]
struct Rows {
    certificates: HashMap<Short, Row>,
    imported: ImportRows,
}

struct Row {
    revoked: bool,
    /// Revoked, not over, and not on the CRL.
    off_the_list: bool,
}

impl Rows {
    async fn read_ledger(
        &mut self,
        store: &dyn Store,
        issuer: &IssuerId,
    ) -> Result<(), StoreFault> {
        let mut after = None;
        loop {
            let page = store.ledger(issuer, after, BATCH).await?;
            let Some((place, _)) = page.last() else {
                return Ok(());
            };
            after = Some(*place);
            for (_, entry) in &page {
                let id = short(&subject(entry));
                self.imported.take(issuer, id, entry);
                self.certificates.insert(id, Row::of(entry));
            }
        }
    }

    async fn read_list(
        &mut self,
        store: &dyn Store,
        issuer: &IssuerId,
        now: UnixTime,
    ) -> Result<(), StoreFault> {
        let (_, revocations) = store.revocations(issuer, now).await?;
        for one in revocations.iter().filter(|one| !one.listed) {
            let id = short(&format!("{issuer}/{}", one.serial));
            if let Some(row) = self.certificates.get_mut(&id) {
                row.off_the_list = true;
            }
        }
        Ok(())
    }

    async fn compare(
        &self,
        store: &dyn Store,
        issuers: &[IssuerId],
        told: &Told,
    ) -> Result<Reconciliation, StoreFault> {
        let mut found = Reconciliation {
            certificates: count(self.certificates.len()),
            revoked: count(self.certificates.values().filter(|row| row.revoked).count()),
            ..Reconciliation::default()
        };
        for certificate in told.issued_beside(&self.certificates) {
            if look_up(store, &certificate).await?.is_none() {
                found.add(Finding::EntryWithoutCertificate { certificate });
            }
        }
        let mut not_revoked: Vec<&String> = told
            .revoked
            .iter()
            // One that is missing was told of already.
            .filter(|(id, _)| self.certificates.get(id).is_some_and(|row| !row.revoked))
            .map(|(_, certificate)| certificate)
            .collect();
        not_revoked.sort_unstable();
        for certificate in not_revoked {
            if look_up(store, certificate)
                .await?
                .is_some_and(|entry| entry.revoked.is_none())
            {
                let certificate = certificate.clone();
                found.add(Finding::EntryWithoutRevocation { certificate });
            }
        }
        self.look_for_strangers(store, issuers, told, &mut found)
            .await?;
        self.imported.compare(
            &told.imports,
            |id| told.issued.contains_key(id),
            |id| told.revoked.contains_key(id),
            &mut found,
        );
        Ok(found)
    }

    /// Rows that nobody told of. Their names are read only if there are any.
    async fn look_for_strangers(
        &self,
        store: &dyn Store,
        issuers: &[IssuerId],
        told: &Told,
        found: &mut Reconciliation,
    ) -> Result<(), StoreFault> {
        let imported: HashSet<Short> = self.imported.are_of(&told.imports).into_iter().collect();
        let is_told = |id: &Short| told.issued.contains_key(id) || imported.contains(id);
        let is_revoked_by_nobody = |id: &Short, row: &Row| {
            // Those of an import are compared as a whole.
            let is_told = told.revoked.contains_key(id) || imported.contains(id);
            row.revoked && !is_told
        };
        let is_strange = |id: &Short, row: &Row| {
            !is_told(id)
                || is_revoked_by_nobody(id, row)
                || (row.off_the_list && !told.unlisted.contains(id))
        };
        let rows = self.certificates.iter();
        let strange: HashSet<Short> = rows
            .filter(|(id, row)| is_strange(id, row))
            .map(|(id, _)| *id)
            .collect();
        if strange.is_empty() {
            return Ok(());
        }
        for issuer in issuers {
            let mut after = None;
            loop {
                let page = store.ledger(issuer, after, BATCH).await?;
                let Some((place, _)) = page.last() else {
                    break;
                };
                after = Some(*place);
                for (_, entry) in page {
                    let certificate = subject(&entry);
                    let id = short(&certificate);
                    let (true, Some(row)) = (strange.contains(&id), self.certificates.get(&id))
                    else {
                        continue;
                    };
                    let name = entry.name;
                    found.add(match (is_told(&id), is_revoked_by_nobody(&id, row)) {
                        (false, _) => Finding::CertificateWithoutEntry { certificate, name },
                        (true, true) => Finding::RevocationWithoutEntry { certificate, name },
                        (true, false) => Finding::OffTheList { certificate, name },
                    });
                }
            }
        }
        Ok(())
    }
}

impl Row {
    fn of(entry: &LedgerEntry) -> Self {
        Self {
            revoked: entry.revoked.is_some(),
            off_the_list: false,
        }
    }
}

/// What the log says in the end.
#[derive(Default)]
struct Told {
    issued: HashMap<Short, Box<str>>,
    revoked: HashMap<Short, String>,
    unlisted: HashSet<Short>,
    /// When certificates of another authority were taken over, and which they were, if that was told.
    imports: BTreeMap<Import, Option<ImportDigest>>,
    tokens: TokensTold,
}

impl Told {
    async fn read(store: &dyn Store, rows: &TokenRows) -> Result<Self, StoreFault> {
        let mut told = Self::default();
        let mut after: Option<AuditPlace> = None;
        loop {
            let page = store
                .audit_page(AuditQuery {
                    filter: AuditFilter::default(),
                    order: AuditOrder::OldestFirst,
                    after,
                    limit: BATCH,
                    look_at: BATCH,
                })
                .await?;
            let Some(last) = page.records.last() else {
                return Ok(told);
            };
            after = Some(last.place);
            for entry in page.records.iter().filter_map(|record| record.entry()) {
                told.take(entry, rows);
            }
        }
    }

    fn take(&mut self, entry: AuditEntry, rows: &TokenRows) {
        let AuditEntry { subject, token, .. } = entry;
        match (&*entry.action, token) {
            ("issue", _) => {
                self.issued
                    .insert(short(&subject), subject.into_boxed_str());
            }
            // One certificate, when it was first seen.
            ("import", _) if entry.serial.is_some() => {
                self.issued
                    .insert(short(&subject), subject.into_boxed_str());
            }
            ("import", _) => {
                self.imports.insert((subject, entry.at), entry.imported);
            }
            ("revoke", _) => {
                self.revoked.insert(short(&subject), subject);
            }
            ("unlist", _) => {
                self.unlisted.insert(short(&subject));
            }
            (action, Some(token)) => {
                self.tokens.take(action, token, entry.spki_sha256, rows);
            }
            _ => {}
        }
    }

    /// What was issued and was not in the ledger when that was read.
    fn issued_beside(&self, rows: &HashMap<Short, Row>) -> Vec<String> {
        let beside = self.issued.iter().filter(|(id, _)| !rows.contains_key(id));
        let mut beside: Vec<String> = beside.map(|(_, subject)| subject.to_string()).collect();
        beside.sort_unstable();
        beside
    }
}

impl Reconciliation {
    fn add(&mut self, finding: Finding) {
        self.found = self.found.saturating_add(1);
        if self.findings.len() < SHOWN {
            self.findings.push(finding);
        }
    }
}

fn subject(entry: &LedgerEntry) -> String {
    format!("{}/{}", entry.issuer, entry.serial)
}

async fn look_up(store: &dyn Store, subject: &str) -> Result<Option<LedgerEntry>, StoreFault> {
    let parts = subject.rsplit_once('/').and_then(|(issuer, serial)| {
        Some((
            IssuerId::parse(issuer).ok()?,
            Serial::parse_hex(serial).ok()?,
        ))
    });
    match parts {
        Some((issuer, serial)) => store.certificate(&issuer, &serial).await,
        None => Ok(None),
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// More than anybody reads.
const SHOWN: usize = 100;
