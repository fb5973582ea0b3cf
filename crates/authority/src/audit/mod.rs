//! The audit log: what an entry says, where it stands, and which entries a reader wants.

pub(crate) mod reconciliation;
pub mod sealing;
pub(crate) mod witness;

use std::borrow::Cow;
use std::sync::Arc;

use countersign_pki::{Fingerprint, Serial, UnixTime};
use countersign_policy::{Effect, Explanation, Identity, Requester};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::audit::reconciliation::ImportDigest;
use crate::engine::Core;
use crate::model::{LedgerEntry, Owner, RequestRecord, Revision, Revoked};
use crate::store::StoreFault;
use crate::token::masked_tokens;

/// The audit log and its seals.
#[derive(Clone)]
pub struct Audit {
    pub(crate) core: Arc<Core>,
}

impl Audit {
    /// Audit entries after `since`.
    pub async fn after(
        &self,
        since: Revision,
        limit: usize,
    ) -> Result<Vec<(Revision, AuditEntry)>, StoreFault> {
        self.core.store.audit(since, limit).await
    }
}

/// One line of the audit log, written with the change it tells of.
///
/// It is kept as JSON text, and hashed as that text: what is empty is left out, and members are never renamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When.
    pub at: UnixTime,
    /// Who.
    pub actor: Requester,
    /// What was done, one word: `request`, `replace`, `approve`, `deny`, `issue`, `void`, `fail`, `renew`,
    /// `revoke`, `unlist`, `clean`, `delete`, `crl`, `import`, `collect`, `restore`.
    pub action: Cow<'static, str>,
    /// To what: door/key or issuer/serial.
    pub subject: String,
    /// The request concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// In words, where there is more to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The name that the act is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certname: Option<String>,
    /// What was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Effect>,
    /// Why, in one word.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    /// The generation of the policy that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// SHA-256 of the public key, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spki_sha256: Option<String>,
    /// SHA-256 of the request message, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csr_sha256: Option<String>,
    /// The enrolment token concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The serial of the certificate concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Which certificates came with a CA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<ImportDigest>,
    /// The process that wrote it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replica: String,
}

impl AuditEntry {
    /// An entry that says who did what to which thing, and when.
    pub fn new(
        at: UnixTime,
        actor: Requester,
        action: impl Into<Cow<'static, str>>,
        subject: String,
    ) -> Self {
        Self {
            at,
            actor,
            action: action.into(),
            subject,
            request: None,
            detail: String::new(),
            certname: None,
            verdict: None,
            reason: Cow::Borrowed(""),
            generation: None,
            spki_sha256: None,
            csr_sha256: None,
            token: None,
            serial: None,
            imported: None,
            replica: String::new(),
        }
    }

    /// An act of the authority itself.
    pub fn own(at: UnixTime, action: impl Into<Cow<'static, str>>, subject: String) -> Self {
        Self::new(at, Requester::authority(), action, subject)
    }

    /// An act on a request: its place, identity, name and key.
    pub fn on(
        record: &RequestRecord,
        at: UnixTime,
        actor: Requester,
        action: impl Into<Cow<'static, str>>,
    ) -> Self {
        let subject = format!("{}/{}", record.door, record.key);
        Self::new(at, actor, action, subject)
            .request(&record.id)
            .certname(&record.key)
            .key(&record.key_fingerprint)
    }

    /// With the request concerned.
    #[must_use]
    pub fn request(mut self, id: &impl ToString) -> Self {
        self.request = Some(id.to_string());
        self
    }

    /// With the certificates that were imported.
    #[must_use]
    pub fn imported(mut self, imported: ImportDigest) -> Self {
        self.imported = Some(imported);
        self
    }

    /// With more to say. The words may be those of people and of deciders; a token among them stays secret.
    #[must_use]
    pub fn detail(mut self, words: impl Into<String>) -> Self {
        let words = words.into();
        self.detail = masked_tokens(&words).into_owned();
        self
    }

    /// With the name that it is about.
    #[must_use]
    pub fn certname(mut self, name: &str) -> Self {
        self.certname = Some(name.to_owned());
        self
    }

    /// With a decision: what came out, why in one word, and under which policy.
    #[must_use]
    pub fn decided(mut self, explanation: &Explanation) -> Self {
        self.verdict = Some(explanation.effect);
        self.reason = explanation.code.clone().into();
        self.generation = Some(explanation.generation);
        self
    }

    /// With the public key concerned.
    #[must_use]
    pub fn key(mut self, spki: &Fingerprint) -> Self {
        self.spki_sha256 = Some(spki.to_hex());
        self
    }

    /// With the message concerned.
    #[must_use]
    pub fn message(mut self, csr: &Fingerprint) -> Self {
        self.csr_sha256 = Some(csr.to_hex());
        self
    }

    /// With the enrolment token concerned.
    #[must_use]
    pub fn token(mut self, id: &impl ToString) -> Self {
        self.token = Some(id.to_string());
        self
    }

    /// With a reason in one word.
    #[must_use]
    pub fn reason(mut self, code: impl Into<Cow<'static, str>>) -> Self {
        self.reason = code.into();
        self
    }

    /// With the certificate concerned.
    #[must_use]
    pub fn serial(mut self, serial: &Serial) -> Self {
        self.serial = Some(serial.to_string());
        self
    }

    /// Says which process wrote it, unless that was said before.
    pub(crate) fn stamp(&mut self, replica: &Owner) {
        if self.replica.is_empty() {
            self.replica.clone_from(&replica.0);
        }
    }

    /// Who acted, without the address.
    pub fn actor_name(&self) -> &str {
        match &self.actor.identity {
            Identity::Anonymous => "anonymous",
            Identity::Authority => "authority",
            Identity::Certname { certname } => certname,
            Identity::User { username, .. } => username,
        }
    }
}

impl LedgerEntry {
    /// The entry for its revocation.
    pub(crate) fn revoked_by(&self, actor: &Requester, revoked: Revoked) -> AuditEntry {
        let subject = format!("{}/{}", self.issuer, self.serial);
        let mut entry = AuditEntry::new(revoked.at, actor.clone(), "revoke", subject)
            .certname(&self.name)
            .key(&self.key_fingerprint)
            .serial(&self.serial);
        entry.reason = Cow::Borrowed(revoked.reason.name());
        entry
    }
}

/// Where an entry stands: the commit that wrote it, and its place among that commit's entries.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub struct AuditPlace {
    /// The commit.
    pub revision: Revision,
    /// Counted from 0.
    pub seq: u64,
}

impl std::fmt::Display for AuditPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.revision.0, self.seq)
    }
}

/// An entry as it is kept: the text that is hashed, which after an intrusion may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Where it stands.
    pub place: AuditPlace,
    /// Its text.
    pub stored: Vec<u8>,
}

impl AuditRecord {
    /// What the text says; `None` if it cannot be read.
    pub fn entry(&self) -> Option<AuditEntry> {
        serde_json::from_slice(&self.stored).ok()
    }
}

/// Which entries a reader wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Not before this time.
    pub since: Option<UnixTime>,
    /// Not at this time or after it.
    pub until: Option<UnixTime>,
    /// Only of this actor.
    pub actor: Option<String>,
    /// Only this action.
    pub event: Option<String>,
    /// Only about this name.
    pub certname: Option<String>,
    /// Only about this request.
    pub request: Option<String>,
    /// Only with this reason.
    pub reason: Option<String>,
}

impl AuditFilter {
    /// Whether it lets everything through.
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it lets an entry through.
    pub fn admits(&self, entry: &AuditEntry) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at < until)
            && is(&self.actor, Some(entry.actor_name()))
            && is(&self.event, Some(&entry.action))
            && is(&self.certname, entry.certname.as_deref())
            && is(&self.request, entry.request.as_deref())
            && is(&self.reason, Some(&entry.reason))
    }
}

/// The order in which entries are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditOrder {
    /// As they were written.
    #[default]
    OldestFirst,
    /// The other way round.
    NewestFirst,
}

/// A page of the log.
#[derive(Clone, Debug)]
pub struct AuditQuery {
    /// Which entries.
    pub filter: AuditFilter,
    /// In which order.
    pub order: AuditOrder,
    /// Continue behind this one, in that order.
    pub after: Option<AuditPlace>,
    /// At most so many.
    pub limit: usize,
    /// Look at no more than so many to find them.
    pub look_at: usize,
}

/// What a page of the log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// The entries that the filter lets through.
    pub records: Vec<AuditRecord>,
    /// How many were looked at.
    pub looked_at: usize,
    /// The last one that was looked at, if there may be more behind it.
    pub reached: Option<AuditPlace>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_an_earlier_version_is_read_and_nothing_empty_is_written() {
        let old = r#"{"at":"2027-01-15T08:00:00Z","actor":{"identity":{"kind":"authority"}},"action":"crl","subject":"puppet/7"}"#;
        let entry: AuditEntry = serde_json::from_str(old).unwrap();
        assert_eq!(
            entry,
            AuditEntry::own(UnixTime(1_800_000_000), "crl", "puppet/7".to_owned())
        );
        assert_eq!(serde_json::to_string(&entry).unwrap(), old);
    }

    #[test]
    fn each_filter_compares_its_own_member() {
        let entry = AuditEntry {
            reason: "allowlist".into(),
            ..AuditEntry::own(UnixTime(100), "request", "puppet/web01".to_owned())
        }
        .certname("web01")
        .request(&"7");
        let one = |set: &dyn Fn(&mut AuditFilter)| {
            let mut filter = AuditFilter::default();
            set(&mut filter);
            filter.admits(&entry)
        };
        assert!(one(&|_| {}));
        for (right, wrong) in [("authority", "admin"), ("authority", "")] {
            assert!(one(&|f| f.actor = Some(right.to_owned())));
            assert!(!one(&|f| f.actor = Some(wrong.to_owned())));
        }
        assert!(one(&|f| f.since = Some(UnixTime(100))));
        assert!(!one(&|f| f.since = Some(UnixTime(101))));
        assert!(one(&|f| f.until = Some(UnixTime(101))));
        assert!(!one(&|f| f.until = Some(UnixTime(100))));
        assert!(one(&|f| f.event = Some("request".to_owned())));
        assert!(!one(&|f| f.event = Some("issue".to_owned())));
        assert!(one(&|f| f.certname = Some("web01".to_owned())));
        assert!(!one(&|f| f.certname = Some("web02".to_owned())));
        assert!(one(&|f| f.request = Some("7".to_owned())));
        assert!(!one(&|f| f.request = Some("8".to_owned())));
        assert!(one(&|f| f.reason = Some("allowlist".to_owned())));
        assert!(!one(&|f| f.reason = Some("always".to_owned())));
    }
}
