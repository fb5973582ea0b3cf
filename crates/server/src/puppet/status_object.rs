//! The JSON object that describes one certificate or request to `puppetserver ca list` and to Foreman.

use std::collections::BTreeMap;

use countersign_authority::{ListedCertificate, RequestRecord};
use countersign_pki::{
    AltName, Certificate, CheckedCsr, Extension, Serial, UnixTime, oid, sha1_colon, sha256_colon,
    sha512_colon,
};
use serde::Serialize;
use serde_json::value::RawValue;

/// One certificate or request. The order of the fields is Puppet Server's.
#[derive(Debug, Serialize)]
pub(super) struct StatusObject {
    name: String,
    state: &'static str,
    fingerprint: String,
    fingerprints: Fingerprints,
    dns_alt_names: Vec<String>,
    subject_alt_names: Vec<String>,
    authorization_extensions: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serial_number: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_after: Option<String>,
    /// Why nothing of its content is told. The reference has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

#[derive(Debug, Serialize)]
struct Fingerprints {
    #[serde(rename = "SHA1")]
    sha1: String,
    #[serde(rename = "SHA256")]
    sha256: String,
    #[serde(rename = "SHA512")]
    sha512: String,
    default: String,
}

impl StatusObject {
    /// A certificate of the ledger; one that has ended is still `signed`. What cannot be read is shown all the same, or
    /// nobody would know which name to clean.
    pub(super) fn of_certificate(entry: &ListedCertificate) -> Self {
        let (name, state, der) = (&entry.name, state(entry), &entry.der);
        let facts = match Certificate::parse(der) {
            Ok(read) => Self::of(name, state, der, read.alt_names(), read.extensions()),
            Err(fault) => Self::unreadable(name, state, der, fault.to_string()),
        };
        Self {
            serial_number: integer(&entry.serial),
            not_before: Some(date(entry.not_before)),
            not_after: Some(date(entry.not_after)),
            ..facts
        }
    }

    /// A request that waits, be it readable or not.
    pub(super) fn of_request(record: &RequestRecord) -> Self {
        let (name, state, der) = (&record.key, "requested", &record.csr_der);
        match CheckedCsr::trusted_from_store(der) {
            Ok(read) => Self::of(name, state, der, read.alt_names(), read.extensions()),
            Err(fault) => Self::unreadable(name, state, der, fault.to_string()),
        }
    }

    fn unreadable(name: &str, state: &'static str, der: &[u8], fault: String) -> Self {
        Self {
            unreadable: Some(fault),
            ..Self::of(name, state, der, &[], &[])
        }
    }

    fn of(
        name: &str,
        state: &'static str,
        der: &[u8],
        alt_names: &[AltName],
        extensions: &[Extension],
    ) -> Self {
        let sha256 = sha256_colon(der);
        let texts = |keep: fn(&AltName) -> bool| {
            alt_names
                .iter()
                .filter(move |name| keep(name))
                .map(AltName::to_puppet_text)
        };
        let dns = || texts(|name| matches!(name, AltName::Dns(_)));
        let addresses = texts(|name| matches!(name, AltName::Ip(_)));
        Self {
            name: name.to_owned(),
            state,
            fingerprint: sha256.clone(),
            fingerprints: Fingerprints {
                sha1: sha1_colon(der),
                sha256: sha256.clone(),
                sha512: sha512_colon(der),
                default: sha256,
            },
            dns_alt_names: dns().collect(),
            subject_alt_names: addresses.chain(dns()).collect(),
            authorization_extensions: authorization_extensions(extensions),
            serial_number: None,
            not_before: None,
            not_after: None,
            unreadable: None,
        }
    }
}

/// In the words of the reference.
pub(super) fn state(entry: &ListedCertificate) -> &'static str {
    if entry.is_revoked {
        "revoked"
    } else {
        "signed"
    }
}

fn authorization_extensions(extensions: &[Extension]) -> BTreeMap<String, String> {
    let named = |extension: &Extension| match oid::registered_name(&extension.oid) {
        Some(name) => name.to_owned(),
        None => extension.oid.to_string(),
    };
    extensions
        .iter()
        .filter(|extension| extension.oid.is_under(&oid::PP_AUTH))
        .map(|extension| (named(extension), extension.text_value().unwrap_or_default()))
        .collect()
}

/// A JSON integer of any length; clients read serials as numbers, and ours have 127 bits.
pub(crate) fn integer(serial: &Serial) -> Option<Box<RawValue>> {
    RawValue::from_string(serial.to_decimal()).ok()
}

/// `2026-01-02T03:04:05UTC`, which Ruby's `Time.parse` reads.
pub(crate) fn date(time: UnixTime) -> String {
    let mut text = time.to_string();
    if text.ends_with('Z') {
        text.pop();
        text.push_str("UTC");
    }
    text
}
