//! Requests and certificates, from the engine's records to what the interface shows.

use countersign_api::{Certificate, Issued, Request, Revoked};
use countersign_authority::{LedgerEntry, RequestRecord, RequestState, Signer};
use countersign_pki::{AltName, CheckedCsr, pem, sha256_colon};
use countersign_policy::TokenFacts;

/// A request. `signer` and `certificate` are those that the record names, if they are known. One whose message cannot
/// be read is shown all the same, or nobody would know what to delete.
pub(super) fn request(
    record: RequestRecord,
    signer: Option<&Signer>,
    certificate: Option<&LedgerEntry>,
) -> Request {
    let read = CheckedCsr::trusted_from_store(&record.csr_der);
    let csr = read.as_ref().ok();
    let alt_names = csr.map_or(&[][..], CheckedCsr::alt_names);
    let texts = |pick: fn(&AltName) -> Option<String>| alt_names.iter().filter_map(pick).collect();
    Request {
        unsignable: csr.and_then(|csr| unsignable(&record, csr, signer)),
        unreadable: read.as_ref().err().map(ToString::to_string),
        token_id: token_id(&record),
        id: record.id.to_string(),
        door: record.door.to_string(),
        name: record.key,
        state: state(record.state),
        live: record.live,
        signer: record.signer.to_string(),
        requester: record.requester,
        created: record.created,
        subject: csr.map_or_else(String::new, |csr| csr.subject().to_string()),
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
        key_type: csr
            .map_or(UNKNOWN, |csr| csr.public_key().family())
            .to_owned(),
        key_size: csr.map_or(0, |csr| csr.public_key().bits()),
        csr_fingerprint: sha256_colon(&record.csr_der),
        key_fingerprint: record.key_fingerprint.to_string(),
        explanation: record.explanation,
        certificate: certificate.map(issued),
        csr: None,
    }
}

/// Where a request stands.
pub(super) fn state(state: RequestState) -> countersign_api::RequestState {
    match state {
        RequestState::Pending => countersign_api::RequestState::Pending,
        RequestState::Approved => countersign_api::RequestState::Approved,
        RequestState::Issued => countersign_api::RequestState::Issued,
        RequestState::Denied => countersign_api::RequestState::Denied,
        RequestState::Failed => countersign_api::RequestState::Failed,
        RequestState::Undecided => countersign_api::RequestState::Undecided,
    }
}

/// The public part of the token that a request was approved by, or that came with it.
pub(super) fn token_id(record: &RequestRecord) -> Option<String> {
    let used = record.explanation.token.as_ref().map(|used| &*used.id);
    let carried = || record.evidence.token.as_ref().and_then(TokenFacts::id);
    used.or_else(carried).map(str::to_owned)
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
fn issued(entry: &LedgerEntry) -> Issued {
    Issued {
        issuer: entry.issuer.to_string(),
        serial: entry.serial.to_hex(),
        not_before: entry.not_before,
        not_after: entry.not_after,
        revoked: entry.revoked.map(|revoked| Revoked {
            at: revoked.at,
            reason: revoked.reason.name().to_owned(),
        }),
    }
}

/// One of many certificates.
pub(super) fn certificate(entry: &LedgerEntry) -> Certificate {
    Certificate {
        issued: issued(entry),
        name: entry.name.clone(),
        signer: entry.signer.to_string(),
        request: entry.request.to_string(),
        fingerprint: der(entry).map(sha256_colon),
        key_fingerprint: entry.key_fingerprint.to_string(),
        explanation: None,
        certificate: None,
    }
}

/// A single certificate that was asked for.
pub(super) fn complete_certificate(entry: &LedgerEntry) -> Certificate {
    Certificate {
        explanation: Some(entry.explanation.clone()),
        certificate: der(entry).map(|der| pem::encode("CERTIFICATE", der)),
        ..certificate(entry)
    }
}

fn der(entry: &LedgerEntry) -> Option<&[u8]> {
    Some(entry.der.as_slice()).filter(|der| !der.is_empty())
}

/// The family of a key that cannot be read.
const UNKNOWN: &str = "unknown";
