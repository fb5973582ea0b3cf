//! Revocation lists as facts: our own after a restart, other authorities' in imported chains.

use crate::certificate::{authority_key_id, verify_parts};
use crate::crl_template::{RevocationReason, RevokedEntry};
use crate::der::{self, DerFault, FieldFault, InField, Reader, Tlv, tag};
use crate::extension::{self, Extension, WrittenDefault};
use crate::name::{NameRules, Subject, SubjectFault};
use crate::oid::{self, Oid};
use crate::pem;
use crate::serial::{Serial, SerialFault};
use crate::signature::VerifyFault;
use crate::time::UnixTime;

/// One revocation list and its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crl {
    der: Vec<u8>,
    tbs: std::ops::Range<usize>,
    algorithm_der: Vec<u8>,
    signature: Vec<u8>,
    issuer: Subject,
    this_update: UnixTime,
    next_update: Option<UnixTime>,
    entries: Vec<RevokedEntry>,
    extensions: Vec<Extension>,
    number: Option<Vec<u8>>,
    authority_key_id: Option<Vec<u8>>,
}

impl Crl {
    /// Reads one list.
    ///
    /// # Errors
    /// If the bytes are not exactly one revocation list.
    pub fn parse(der: &[u8]) -> Result<Self, CrlFault> {
        if der.len() > MAX_DER {
            return Err(CrlFault::TooLarge { limit: MAX_DER });
        }
        let outer = der::single(der, tag::SEQUENCE).within("certificateList")?;
        let mut parts = outer.reader();
        let tbs = parts.expect(tag::SEQUENCE).within("tbsCertList")?;
        let algorithm = parts.expect(tag::SEQUENCE).within("signatureAlgorithm")?;
        let signature = parts
            .expect(tag::BIT_STRING)
            .and_then(|t| t.whole_octets())
            .within("signatureValue")?;
        parts.finish().within("certificateList")?;
        let tbs_start = der.len().saturating_sub(outer.content.len());
        let tbs_range = tbs_start..tbs_start.saturating_add(tbs.full.len());

        let mut fields = tbs.reader();
        let version = fields
            .optional(tag::INTEGER)
            .within("tbsCertList.version")?;
        if version.is_some_and(|version| version.content != [1]) {
            return Err(CrlFault::Version);
        }
        let inner_algorithm = fields
            .expect(tag::SEQUENCE)
            .within("tbsCertList.signature")?;
        if inner_algorithm.full != algorithm.full {
            return Err(CrlFault::AlgorithmsDiffer);
        }
        let issuer = fields.expect(tag::SEQUENCE).within(ISSUER)?;
        let issuer = Subject::read(&issuer, &NameRules::FOREIGN).map_err(|fault| match fault {
            SubjectFault::Malformed(reason) => CrlFault::Malformed {
                field: ISSUER,
                reason,
            },
            _ => CrlFault::Name,
        })?;
        let this_update = fields
            .any()
            .and_then(|t| t.time())
            .within("tbsCertList.thisUpdate")?;
        let next_update = read_next_update(&mut fields).within("tbsCertList.nextUpdate")?;
        let entries = match fields.optional(tag::SEQUENCE).within(REVOKED)? {
            None => Vec::new(),
            Some(list) => read_entries(&list)?,
        };
        let extensions = match fields.optional(tag::CONTEXT_0).within(EXTENSIONS)? {
            None => Vec::new(),
            Some(wrapper) => read_extensions(wrapper.content).within(EXTENSIONS)?,
        };
        fields.finish().within("tbsCertList")?;
        if let Some(oid) = extension::first_duplicate(&extensions) {
            return Err(CrlFault::DuplicateExtension { oid });
        }
        let find = |oid: Oid| extensions.iter().find(|e| e.oid == oid);
        let number = find(oid::CRL_NUMBER)
            .map(|e| der::single(&e.value, tag::INTEGER).and_then(|t| t.unsigned()))
            .transpose()
            .within("tbsCertList.crlExtensions.cRLNumber")?
            .map(<[u8]>::to_vec);
        let authority_key_id = find(oid::AUTHORITY_KEY_IDENTIFIER)
            .map(|e| authority_key_id(&e.value))
            .transpose()
            .within("tbsCertList.crlExtensions.authorityKeyIdentifier")?
            .flatten();
        Ok(Crl {
            der: der.to_vec(),
            tbs: tbs_range,
            algorithm_der: algorithm.full.to_vec(),
            signature: signature.to_vec(),
            issuer,
            this_update,
            next_update,
            entries,
            extensions,
            number,
            authority_key_id,
        })
    }

    /// Verifies the signature with the issuer's SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// If the algorithm is weak or unknown, the key does not fit, or the signature does not verify.
    pub fn verify_signed_by(&self, issuer_spki_der: &[u8]) -> Result<(), VerifyFault> {
        let tbs = self.der.get(self.tbs.clone()).unwrap_or_default();
        verify_parts(issuer_spki_der, &self.algorithm_der, tbs, &self.signature)
    }

    /// The list exactly as read.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The list in PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem::encode("X509 CRL", &self.der)
    }

    /// The issuer's name.
    #[must_use]
    pub fn issuer(&self) -> &Subject {
        &self.issuer
    }

    /// When the list was made.
    #[must_use]
    pub fn this_update(&self) -> UnixTime {
        self.this_update
    }

    /// When a newer one was promised.
    #[must_use]
    pub fn next_update(&self) -> Option<UnixTime> {
        self.next_update
    }

    /// The number, if there is one and it fits 64 bits.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        let magnitude = self.number.as_deref()?;
        if magnitude.len() > 8 {
            return None;
        }
        Some(
            magnitude
                .iter()
                .fold(0, |acc, b| (acc << 8) | u64::from(*b)),
        )
    }

    /// The number as a minimal big-endian magnitude, whatever its size; empty for zero.
    #[must_use]
    pub fn number_bytes(&self) -> Option<&[u8]> {
        self.number.as_deref()
    }

    /// The key identifier of the issuer.
    #[must_use]
    pub fn authority_key_id(&self) -> Option<&[u8]> {
        self.authority_key_id.as_deref()
    }

    /// Everything on the list, in its order.
    #[must_use]
    pub fn entries(&self) -> &[RevokedEntry] {
        &self.entries
    }

    /// The serials on the list, in its order.
    pub fn serials(&self) -> impl Iterator<Item = Serial> {
        self.entries.iter().map(|e| e.serial)
    }

    /// All extensions of the list.
    #[must_use]
    pub fn extensions(&self) -> &[Extension] {
        &self.extensions
    }
}

/// Why a revocation list was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CrlFault {
    /// More octets than we read.
    #[error("revocation list is longer than {limit} octets")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// Not the DER that belongs there.
    #[error("{field} {reason}")]
    Malformed {
        /// Where.
        field: &'static str,
        /// What is wrong there.
        reason: DerFault,
    },
    /// Only version 2 is written out.
    #[error("tbsCertList.version is unknown")]
    Version,
    /// The two algorithm fields differ.
    #[error("signatureAlgorithm differs from tbsCertList.signature")]
    AlgorithmsDiffer,
    /// A name over a limit or with an empty part.
    #[error("tbsCertList.issuer is malformed")]
    Name,
    /// A bad serial on the list.
    #[error("tbsCertList.revokedCertificates: {0}")]
    Serial(SerialFault),
    /// The same extension twice.
    #[error("tbsCertList.crlExtensions has {oid} twice")]
    DuplicateExtension {
        /// The extension.
        oid: Oid,
    },
}

// Written out, not derived: it is part of the sentence and must not appear again as its source.
impl From<SerialFault> for CrlFault {
    fn from(fault: SerialFault) -> Self {
        CrlFault::Serial(fault)
    }
}

impl From<FieldFault> for CrlFault {
    fn from(fault: FieldFault) -> Self {
        CrlFault::Malformed {
            field: fault.field,
            reason: fault.reason,
        }
    }
}

fn read_next_update(fields: &mut Reader<'_>) -> Result<Option<UnixTime>, DerFault> {
    let utc = fields.optional(tag::UTC_TIME)?;
    let time = match utc {
        Some(tlv) => Some(tlv),
        None => fields.optional(tag::GENERALIZED_TIME)?,
    };
    time.map(|tlv| tlv.time()).transpose()
}

fn read_entries(list: &Tlv<'_>) -> Result<Vec<RevokedEntry>, CrlFault> {
    let mut reader = list.reader();
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let entry = reader.expect(tag::SEQUENCE).within(REVOKED)?;
        let mut fields = entry.reader();
        let serial = fields
            .expect(tag::INTEGER)
            .and_then(|t| t.unsigned())
            .within(REVOKED)?;
        let serial = Serial::from_be_bytes(serial)?;
        let at = fields.any().and_then(|t| t.time()).within(REVOKED)?;
        let extensions = match fields.optional(tag::SEQUENCE).within(REVOKED)? {
            None => Vec::new(),
            Some(list) => read_extensions(list.full).within(REVOKED)?,
        };
        fields.finish().within(REVOKED)?;
        let reason = read_reason(&extensions).within(REVOKED)?;
        entries.push(RevokedEntry { serial, at, reason });
    }
    Ok(entries)
}

fn read_reason(extensions: &[Extension]) -> Result<RevocationReason, DerFault> {
    let Some(extension) = extensions.iter().find(|e| e.oid == oid::REASON_CODE) else {
        return Ok(RevocationReason::Unspecified);
    };
    let code = der::single(&extension.value, tag::ENUMERATED)?;
    match code.content {
        [code] => Ok(RevocationReason::from_code(*code).unwrap_or(RevocationReason::Unspecified)),
        _ => Err(DerFault::Integer),
    }
}

fn read_extensions(sequence: &[u8]) -> Result<Vec<Extension>, DerFault> {
    let mut reader = der::single(sequence, tag::SEQUENCE)?.reader();
    let mut extensions = Vec::new();
    while !reader.is_empty() && extensions.len() < MAX_EXTENSIONS {
        extensions.push(Extension::read(
            &reader.expect(tag::SEQUENCE)?,
            WrittenDefault::Tolerate,
        )?);
    }
    reader.finish()?;
    Ok(extensions)
}

const ISSUER: &str = "tbsCertList.issuer";
const REVOKED: &str = "tbsCertList.revokedCertificates";
const EXTENSIONS: &str = "tbsCertList.crlExtensions";
const MAX_DER: usize = 256 * 1024 * 1024; // millions of entries; lists come from operators, not from strangers
const MAX_EXTENSIONS: usize = 64; // RFC 5280 defines five
