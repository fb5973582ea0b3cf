//! Requests and certificates as JSON objects.

use countersign_authority::{LedgerEntry, RequestRecord, RequestState, Revoked, Signer};
use countersign_pki::{AltName, CheckedCsr, CsrFault, UnixTime, pem, sha256_colon};
use countersign_policy::{Explanation, Requester, TokenFacts};
use schemars::JsonSchema;
use serde::Serialize;

/// One request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Request")]
pub(super) struct RequestItem {
    /// Identity of the request: a UUID, never used again.
    #[schemars(extend("format" = "uuid"))]
    id: String,
    /// The door it came through.
    #[schemars(example = &"puppet", example = &"kubernetes")]
    door: String,
    /// Its name at that door: the certname of a Puppet agent, the object name of a Kubernetes request.
    name: String,
    /// Where it stands.
    state: RequestState,
    /// Whether it occupies its name at the door. A Puppet request whose certificate was issued does not.
    live: bool,
    /// The signer that was asked.
    #[schemars(example = "countersign.dev/puppet-agent")]
    signer: String,
    /// Who sent it.
    requester: Requester,
    /// When it arrived.
    created: UnixTime,
    /// The requested subject, as RFC 4514 text.
    #[schemars(example = "CN=web01.example.com")]
    subject: String,
    /// Requested DNS names.
    dns_names: Vec<String>,
    /// Requested addresses.
    ip_addresses: Vec<String>,
    /// Requested mail addresses.
    emails: Vec<String>,
    /// Requested URIs.
    uris: Vec<String>,
    /// Usages asked for beside the message, by the names that Kubernetes has for them.
    usages: Vec<String>,
    /// Lifetime asked for beside the message.
    expiration_seconds: Option<u64>,
    /// Family of the public key.
    #[schemars(extend("enum" = ["rsa", "ec", "ed25519"]))]
    key_type: &'static str,
    /// Size of the public key in bits.
    key_size: u32,
    /// SHA-256 as upper-case hexadecimal pairs with colons, over the DER of the message.
    csr_fingerprint: String,
    /// SHA-256 as upper-case hexadecimal pairs with colons, over the public key (SubjectPublicKeyInfo).
    key_fingerprint: String,
    /// Why the signer could not sign it. Undecided requests are judged by the signer as it is now.
    unsignable: Option<String>,
    /// The enrolment token that came with it, by its public part.
    token_id: Option<String>,
    /// Why it was decided as it was, or waits.
    explanation: Explanation,
    /// What it led to.
    certificate: Option<IssuedItem>,
    /// The whole message as PEM. Only where a single request is asked for: its attributes may hold secrets.
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
            token_id: token_id(&record),
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
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Issued")]
struct IssuedItem {
    /// The issuer.
    #[schemars(example = &"puppet")]
    issuer: String,
    /// Serial number in upper-case hexadecimal digits.
    serial: String,
    /// Start of validity.
    not_before: UnixTime,
    /// End of validity.
    not_after: UnixTime,
    /// Its revocation, if it was revoked.
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
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Certificate")]
pub(super) struct CertificateItem {
    #[serde(flatten)]
    issued: IssuedItem,
    /// The name it was issued for.
    name: String,
    /// The signer that issued it.
    signer: String,
    /// Identity of the request that led to it.
    #[schemars(extend("format" = "uuid"))]
    request: String,
    /// SHA-256 as upper-case hexadecimal pairs with colons, over the DER of the certificate; null if the certificate itself
    /// is not known, only its entry in the inventory of the authority that it was taken over from.
    fingerprint: Option<String>,
    /// SHA-256 as upper-case hexadecimal pairs with colons, over the public key (SubjectPublicKeyInfo).
    key_fingerprint: String,
    /// The decision that led to it. Only where a single certificate is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
    /// The certificate as PEM. Like the explanation, only where a single certificate is asked for.
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

/// A revocation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Revoked")]
struct RevokedItem {
    /// When.
    at: UnixTime,
    /// A reason of RFC 5280 5.3.1.
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
