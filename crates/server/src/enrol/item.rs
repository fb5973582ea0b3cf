//! Requests and certificates as JSON objects.

use countersign_authority::{LedgerEntry, RequestRecord, RequestState, Revoked, Signer};
use countersign_pki::{AltName, CheckedCsr, CsrFault, UnixTime, pem, sha256_colon};
use countersign_policy::{Explanation, Requester};
use serde::Serialize;

/// One request.
#[derive(Debug, Serialize)]
pub(super) struct RequestItem {
    id: String,
    door: String,
    name: String,
    state: RequestState,
    live: bool,
    signer: String,
    requester: Requester,
    created: UnixTime,
    subject: String,
    dns_names: Vec<String>,
    ip_addresses: Vec<String>,
    emails: Vec<String>,
    uris: Vec<String>,
    usages: Vec<String>,
    expiration_seconds: Option<u64>,
    key_type: &'static str,
    key_size: u32,
    csr_fingerprint: String,
    key_fingerprint: String,
    /// Why the signer could not sign it.
    unsignable: Option<String>,
    explanation: Explanation,
    certificate: Option<IssuedItem>,
    /// The message itself; only where one request is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    csr: Option<String>,
}

impl RequestItem {
    /// `signer` and `certificate` are those that the record names, if they are known.
    pub(super) fn new(
        record: RequestRecord,
        signer: Option<&Signer>,
        certificate: Option<&LedgerEntry>,
    ) -> Result<Self, CsrFault> {
        let csr = CheckedCsr::trusted_from_store(&record.csr_der)?;
        let texts = |pick: fn(&AltName) -> Option<String>| {
            csr.alt_names().iter().filter_map(pick).collect()
        };
        Ok(Self {
            unsignable: unsignable(&record, &csr, signer),
            id: record.id.to_string(),
            door: record.door.to_string(),
            name: record.key,
            state: record.state,
            live: record.live,
            signer: record.signer.to_string(),
            requester: record.requester,
            created: record.created,
            subject: csr.subject().to_string(),
            dns_names: texts(|name| match name {
                AltName::Dns(name) => Some(name.clone()),
                _ => None,
            }),
            ip_addresses: texts(|name| match name {
                AltName::Ip(address) => Some(address.to_string()),
                _ => None,
            }),
            emails: texts(|name| match name {
                AltName::Email(name) => Some(name.clone()),
                _ => None,
            }),
            uris: texts(|name| match name {
                AltName::Uri(name) => Some(name.clone()),
                _ => None,
            }),
            usages: record.wishes.usages,
            expiration_seconds: record.wishes.expiration_seconds,
            key_type: csr.public_key().family(),
            key_size: csr.public_key().bits(),
            csr_fingerprint: csr.fingerprint().to_string(),
            key_fingerprint: csr.key_fingerprint().to_string(),
            explanation: record.explanation,
            certificate: certificate.map(IssuedItem::of),
            csr: None,
        })
    }

    /// With the complete message.
    pub(super) fn with_csr(mut self, der: &[u8]) -> Self {
        self.csr = Some(pem::encode("CERTIFICATE REQUEST", der));
        self
    }
}

/// Undecided requests are judged by the signer as it is now; what was decided keeps the reason on record.
fn unsignable(record: &RequestRecord, csr: &CheckedCsr, signer: Option<&Signer>) -> Option<String> {
    match record.state {
        RequestState::Pending => {
            let fault = signer?
                .profile
                .examine(csr, &record.key, &record.wishes)
                .err()?;
            Some(fault.to_string())
        }
        RequestState::Failed => record.failure.clone(),
        RequestState::Approved
        | RequestState::Issued
        | RequestState::Denied
        | RequestState::Undecided => None,
    }
}

/// The certificate of a request, in short.
#[derive(Debug, Serialize)]
struct IssuedItem {
    issuer: String,
    serial: String,
    not_before: UnixTime,
    not_after: UnixTime,
    revoked: Option<RevokedItem>,
}

impl IssuedItem {
    fn of(entry: &LedgerEntry) -> Self {
        Self {
            issuer: entry.issuer.to_string(),
            serial: entry.serial.to_hex(),
            not_before: entry.not_before,
            not_after: entry.not_after,
            revoked: entry.revoked.map(RevokedItem::of),
        }
    }
}

/// One certificate of the ledger.
#[derive(Debug, Serialize)]
pub(super) struct CertificateItem {
    #[serde(flatten)]
    issued: IssuedItem,
    name: String,
    signer: String,
    request: String,
    /// Missing, as the certificate itself, where another authority's inventory alone knew of it.
    fingerprint: Option<String>,
    key_fingerprint: String,
    /// The decision that led to it, and the certificate; only where one is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
}

impl CertificateItem {
    pub(super) fn short(entry: &LedgerEntry) -> Self {
        Self {
            issued: IssuedItem::of(entry),
            name: entry.name.clone(),
            signer: entry.signer.to_string(),
            request: entry.request.to_string(),
            fingerprint: der(entry).map(sha256_colon),
            key_fingerprint: entry.key_fingerprint.to_string(),
            explanation: None,
            certificate: None,
        }
    }

    pub(super) fn complete(entry: &LedgerEntry) -> Self {
        Self {
            explanation: Some(entry.explanation.clone()),
            certificate: der(entry).map(|der| pem::encode("CERTIFICATE", der)),
            ..Self::short(entry)
        }
    }
}

fn der(entry: &LedgerEntry) -> Option<&[u8]> {
    Some(entry.der.as_slice()).filter(|der| !der.is_empty())
}

#[derive(Debug, Serialize)]
struct RevokedItem {
    at: UnixTime,
    reason: &'static str,
}

impl RevokedItem {
    fn of(revoked: Revoked) -> Self {
        Self {
            at: revoked.at,
            reason: revoked.reason.name(),
        }
    }
}
