//! A request as it is decided, be it new or on record.

use countersign_pki::{CheckedCsr, Fingerprint, UnixTime, fingerprint_sha256};
use countersign_policy::{Request, Requester, SignerName, Wishes};

use crate::audit::AuditEntry;
use crate::issuer::signer::Signer;
use crate::model::{Door, RequestId, RequestRecord};

/// A request as it is decided. Built once per call, with the message parsed once, and borrowed by everything after that.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) id: RequestId,
    pub(crate) door: &'a Door,
    pub(crate) key: &'a str,
    pub(crate) csr: &'a CheckedCsr,
    pub(crate) signer: &'a SignerName,
    pub(crate) requester: &'a Requester,
    pub(crate) wishes: &'a Wishes,
    /// When it arrived.
    pub(crate) created: UnixTime,
    /// The name that its certificate would have.
    pub(crate) name: &'a str,
}

impl<'a> Case<'a> {
    /// What the policy sees of it.
    pub(crate) fn request(&self) -> Request<'a> {
        Request {
            csr: self.csr,
            key: self.key,
            name: self.name,
            door: self.door.as_str(),
            signer: self.signer,
            requester: self.requester,
            wishes: self.wishes,
            at: self.created,
            renewal: false,
            pod: None,
        }
    }

    /// What is asked for, by which key, of which signer: two requests with the same one differ in nothing that matters.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let mut text = Vec::new();
        let mut add = |part: &[u8]| {
            text.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            text.extend_from_slice(part);
        };
        add(self.signer.as_str().as_bytes());
        add(self.door.as_str().as_bytes());
        add(self.csr.spki_der());
        add(self.csr.subject().der());
        for extension in self.csr.extensions() {
            add(extension.oid.der_content());
            add(&extension.value);
        }
        for attribute in self.csr.attributes() {
            add(attribute.oid.der_content());
            for value in &attribute.values {
                add(value.der());
            }
        }
        for usage in &self.wishes.usages {
            add(usage.as_bytes());
        }
        fingerprint_sha256(&text)
    }

    /// An entry about it in the audit log, as an act of its sender.
    pub(crate) fn audit(&self, action: &'static str, at: UnixTime) -> AuditEntry {
        let subject = format!("{}/{}", self.door, self.key);
        AuditEntry::new(at, self.requester.clone(), action, subject)
            .request(&self.id)
            .certname(self.name)
            .key(&self.csr.key_fingerprint())
    }
}

impl RequestRecord {
    /// The request as it is decided.
    pub(crate) fn case<'a>(&'a self, signer: Option<&Signer>, csr: &'a CheckedCsr) -> Case<'a> {
        Case {
            id: self.id,
            door: &self.door,
            key: &self.key,
            csr,
            signer: &self.signer,
            requester: &self.requester,
            wishes: &self.wishes,
            created: self.created,
            name: issued_name(signer, csr, &self.key),
        }
    }
}

/// The name that a certificate would have. Of a signer that is not ours, the last common name.
pub(crate) fn issued_name<'a>(
    signer: Option<&Signer>,
    csr: &'a CheckedCsr,
    key: &'a str,
) -> &'a str {
    match signer {
        Some(signer) => signer.profile.issued_name(csr, key),
        None => csr.subject().common_names().last().unwrap_or_default(),
    }
}
