//! Certificates (RFC 5280 4.1): what one says, and whether a key signed it.
//!
//! More tolerant than the reading of requests, because other authorities' certificates are facts of life; but what is
//! returned is always exactly what the bytes say.

use crate::alt_name::{AltName, NameFault};
use crate::der::{self, DerFault, FieldFault, InField, Reader, Tlv, tag};
use crate::ext::KeyUsage;
use crate::extension::{self, Extension, WrittenDefault};
use crate::fingerprint::{Fingerprint, fingerprint_sha256};
use crate::key::{KeyFault, PublicKeyFacts, ReadKey};
use crate::name::{NameRules, Subject, SubjectFault};
use crate::oid::{self, Oid};
use crate::pem;
use crate::serial::{Serial, SerialFault};
use crate::signature::{Scheme, VerifyFault};
use crate::time::UnixTime;

/// One certificate and its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    tbs_der: Vec<u8>,
    algorithm_der: Vec<u8>,
    signature: Vec<u8>,
    serial: Serial,
    issuer: Subject,
    subject: Subject,
    not_before: UnixTime,
    not_after: UnixTime,
    spki_der: Vec<u8>,
    public_key: Result<PublicKeyFacts, KeyFault>,
    extensions: Vec<Extension>,
    alt_names: Vec<AltName>,
    known: KnownExtensions,
}

impl Certificate {
    /// Reads one certificate.
    ///
    /// # Errors
    /// If the bytes are not exactly one certificate, or it has a bad serial, duplicate extensions or malformed ones
    /// of the kinds that are interpreted here.
    pub fn parse(der: &[u8]) -> Result<Self, CertFault> {
        let Frame {
            tbs,
            algorithm,
            signature,
            serial,
            inner_algorithm,
            issuer,
            not_before,
            not_after,
            subject,
            spki,
            extensions,
        } = Frame::read(der)?;
        let serial = serial.unsigned().within("tbsCertificate.serialNumber")?;
        let serial = Serial::from_be_bytes(serial)?;
        // RFC 5280 4.1.1.2: the unsigned copy outside must say the same.
        if inner_algorithm.full != algorithm.full {
            return Err(CertFault::AlgorithmsDiffer);
        }
        let issuer = read_name(&issuer, "tbsCertificate.issuer")?;
        let subject = read_name(&subject, "tbsCertificate.subject")?;
        let extensions = match extensions {
            None => Vec::new(),
            Some(wrapper) => read_extensions(&wrapper)?,
        };

        let known = KnownExtensions::read(&extensions)?;
        let alt_names = extensions
            .iter()
            .find(|e| e.oid == oid::SUBJECT_ALT_NAME)
            .map(|e| AltName::read_all(&e.value, MAX_ALT_NAMES, MAX_TEXT))
            .transpose()?
            .unwrap_or_default();
        Ok(Certificate {
            der: der.to_vec(),
            tbs_der: tbs.full.to_vec(),
            algorithm_der: algorithm.full.to_vec(),
            signature: signature.to_vec(),
            serial,
            issuer,
            subject,
            not_before,
            not_after,
            spki_der: spki.full.to_vec(),
            public_key: PublicKeyFacts::from_spki(spki.full),
            extensions,
            alt_names,
            known,
        })
    }

    /// Verifies the signature with the issuer's SubjectPublicKeyInfo. Names and times are the caller's business.
    ///
    /// # Errors
    /// If the algorithm is weak or unknown, the key does not fit, or the signature does not verify.
    pub fn verify_signed_by(&self, issuer_spki_der: &[u8]) -> Result<(), VerifyFault> {
        verify_parts(
            issuer_spki_der,
            &self.algorithm_der,
            &self.tbs_der,
            &self.signature,
        )
    }

    /// The certificate exactly as read.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The certificate in PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem::encode("CERTIFICATE", &self.der)
    }

    /// The serial number.
    #[must_use]
    pub fn serial(&self) -> Serial {
        self.serial
    }

    /// The issuer's name.
    #[must_use]
    pub fn issuer(&self) -> &Subject {
        &self.issuer
    }

    /// The subject's name.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// First second of validity.
    #[must_use]
    pub fn not_before(&self) -> UnixTime {
        self.not_before
    }

    /// Last second of validity.
    #[must_use]
    pub fn not_after(&self) -> UnixTime {
        self.not_after
    }

    /// The SubjectPublicKeyInfo as encoded.
    #[must_use]
    pub fn spki_der(&self) -> &[u8] {
        &self.spki_der
    }

    /// Kind and size of the key.
    ///
    /// # Errors
    /// If the key is one we would not accept in a request.
    pub fn public_key(&self) -> Result<&PublicKeyFacts, &KeyFault> {
        self.public_key.as_ref()
    }

    /// All extensions in order.
    #[must_use]
    pub fn extensions(&self) -> &[Extension] {
        &self.extensions
    }

    /// The extension of one type.
    #[must_use]
    pub fn extension(&self, oid: &Oid) -> Option<&Extension> {
        self.extensions.iter().find(|e| e.oid == *oid)
    }

    /// The alternative names in order.
    #[must_use]
    pub fn alt_names(&self) -> &[AltName] {
        &self.alt_names
    }

    /// Whether basicConstraints says that this is an authority.
    #[must_use]
    pub fn is_ca(&self) -> bool {
        self.known.is_ca
    }

    /// How many authorities may follow below this one, if limited.
    #[must_use]
    pub fn path_length(&self) -> Option<u32> {
        self.known.path_length
    }

    /// The key usage bits, if the extension is there.
    #[must_use]
    pub fn key_usage(&self) -> Option<KeyUsage> {
        self.known.key_usage
    }

    /// The extended key usages in order; empty if the extension is missing.
    #[must_use]
    pub fn extended_key_usages(&self) -> &[Oid] {
        &self.known.extended_key_usages
    }

    /// The subject key identifier.
    #[must_use]
    pub fn subject_key_id(&self) -> Option<&[u8]> {
        self.known.subject_key_id.as_deref()
    }

    /// The key identifier of the issuer.
    #[must_use]
    pub fn authority_key_id(&self) -> Option<&[u8]> {
        self.known.authority_key_id.as_deref()
    }

    /// SHA-256 of the certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        fingerprint_sha256(&self.der)
    }

    /// SHA-256 of the SubjectPublicKeyInfo.
    #[must_use]
    pub fn key_fingerprint(&self) -> Fingerprint {
        fingerprint_sha256(&self.spki_der)
    }

    /// Whether subject and issuer are the same name, octet by octet.
    #[must_use]
    pub fn is_self_issued(&self) -> bool {
        self.subject.der() == self.issuer.der()
    }
}

/// Which certificate it is, and when it holds by its own word. What else it says is not looked at: its names and extensions may be such as
/// nothing here would accept, as long as it is a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateOutline {
    /// First second.
    pub not_before: UnixTime,
    /// Last second.
    pub not_after: UnixTime,
    /// SHA-256 of the certificate.
    pub fingerprint: Fingerprint,
}

impl CertificateOutline {
    /// Reads certificates that follow each other without anything between them, at most `max`.
    ///
    /// # Errors
    /// If the bytes are anything else, or there are more.
    pub fn read_all(der: &[u8], max: usize) -> Result<Vec<Self>, CertFault> {
        let mut reader = Reader::new(der);
        let mut outlines = Vec::new();
        while !reader.is_empty() {
            if outlines.len() >= max {
                return Err(CertFault::TooMany { limit: max });
            }
            let one = reader.expect(tag::SEQUENCE).within("certificate")?;
            let frame = Frame::read(one.full)?;
            outlines.push(Self {
                not_before: frame.not_before,
                not_after: frame.not_after,
                fingerprint: fingerprint_sha256(one.full),
            });
        }
        Ok(outlines)
    }
}

/// The parts of a certificate, each in its place and not looked into but for the times.
struct Frame<'a> {
    tbs: Tlv<'a>,
    algorithm: Tlv<'a>,
    signature: &'a [u8],
    serial: Tlv<'a>,
    inner_algorithm: Tlv<'a>,
    issuer: Tlv<'a>,
    not_before: UnixTime,
    not_after: UnixTime,
    subject: Tlv<'a>,
    spki: Tlv<'a>,
    extensions: Option<Tlv<'a>>,
}

impl<'a> Frame<'a> {
    fn read(der: &'a [u8]) -> Result<Self, CertFault> {
        if der.len() > MAX_DER {
            return Err(CertFault::TooLarge { limit: MAX_DER });
        }
        let mut outer = der::single(der, tag::SEQUENCE)
            .within("certificate")?
            .reader();
        let tbs = outer.expect(tag::SEQUENCE).within("tbsCertificate")?;
        let algorithm = outer.expect(tag::SEQUENCE).within("signatureAlgorithm")?;
        let signature = outer
            .expect(tag::BIT_STRING)
            .and_then(|t| t.whole_octets())
            .within("signatureValue")?;
        outer.finish().within("certificate")?;

        let mut fields = tbs.reader();
        read_version(&mut fields)?;
        let serial = fields
            .expect(tag::INTEGER)
            .within("tbsCertificate.serialNumber")?;
        let inner_algorithm = fields
            .expect(tag::SEQUENCE)
            .within("tbsCertificate.signature")?;
        let issuer = fields
            .expect(tag::SEQUENCE)
            .within("tbsCertificate.issuer")?;
        let (not_before, not_after) =
            read_validity(&mut fields).within("tbsCertificate.validity")?;
        let subject = fields
            .expect(tag::SEQUENCE)
            .within("tbsCertificate.subject")?;
        let spki = fields
            .expect(tag::SEQUENCE)
            .within("tbsCertificate.subjectPublicKeyInfo")?;
        fields
            .optional(tag::CONTEXT_1_PRIMITIVE)
            .within("tbsCertificate.issuerUniqueID")?;
        fields
            .optional(tag::CONTEXT_2_PRIMITIVE)
            .within("tbsCertificate.subjectUniqueID")?;
        let extensions = fields.optional(tag::CONTEXT_3).within(EXTENSIONS)?;
        fields.finish().within("tbsCertificate")?;
        Ok(Self {
            tbs,
            algorithm,
            signature,
            serial,
            inner_algorithm,
            issuer,
            not_before,
            not_after,
            subject,
            spki,
            extensions,
        })
    }
}

/// Why a certificate was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertFault {
    /// More octets than any certificate has.
    #[error("certificate is longer than {limit} octets")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// More certificates than may stand together.
    #[error("there are more than {limit} certificates")]
    TooMany {
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
    /// Versions are 1 to 3.
    #[error("tbsCertificate.version is unknown")]
    Version,
    /// A bad serial number.
    #[error("tbsCertificate.serialNumber: {0}")]
    Serial(SerialFault),
    /// The two algorithm fields differ.
    #[error("signatureAlgorithm differs from tbsCertificate.signature")]
    AlgorithmsDiffer,
    /// A name that is empty where it must not be, or over a limit.
    #[error("{field} is malformed")]
    Name {
        /// Whose name.
        field: &'static str,
    },
    /// The same extension twice.
    #[error("tbsCertificate.extensions has {oid} twice")]
    DuplicateExtension {
        /// The extension.
        oid: Oid,
    },
    /// More extensions than the limit.
    #[error("tbsCertificate.extensions has more than {limit} elements")]
    TooManyExtensions {
        /// The limit.
        limit: usize,
    },
    /// An extension that is interpreted here and malformed.
    #[error("tbsCertificate.extensions: value of {oid} {reason}")]
    Extension {
        /// The extension.
        oid: Oid,
        /// What is wrong with its value.
        reason: DerFault,
    },
    /// A bad list of alternative names.
    #[error("tbsCertificate.extensions: {0}")]
    AltNames(NameFault),
}

// Written out, not derived: these faults are part of the sentence and must not appear again as its source.
impl From<NameFault> for CertFault {
    fn from(fault: NameFault) -> Self {
        CertFault::AltNames(fault)
    }
}

impl From<SerialFault> for CertFault {
    fn from(fault: SerialFault) -> Self {
        CertFault::Serial(fault)
    }
}

impl From<FieldFault> for CertFault {
    fn from(fault: FieldFault) -> Self {
        CertFault::Malformed {
            field: fault.field,
            reason: fault.reason,
        }
    }
}

/// Verifies the common outer shape of certificates and revocation lists.
pub(crate) fn verify_parts(
    issuer_spki_der: &[u8],
    algorithm_der: &[u8],
    tbs_der: &[u8],
    signature: &[u8],
) -> Result<(), VerifyFault> {
    let algorithm = der::single(algorithm_der, tag::SEQUENCE).map_err(VerifyFault::Malformed)?;
    let scheme = Scheme::read(&algorithm)?;
    let key = ReadKey::from_spki(issuer_spki_der)?;
    scheme.verify(&key, tbs_der, signature)
}

/// What the interpreted extensions say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct KnownExtensions {
    is_ca: bool,
    path_length: Option<u32>,
    key_usage: Option<KeyUsage>,
    extended_key_usages: Vec<Oid>,
    subject_key_id: Option<Vec<u8>>,
    authority_key_id: Option<Vec<u8>>,
}

impl KnownExtensions {
    fn read(extensions: &[Extension]) -> Result<Self, CertFault> {
        let mut known = KnownExtensions::default();
        for extension in extensions {
            known
                .learn(extension)
                .map_err(|reason| CertFault::Extension {
                    oid: extension.oid,
                    reason,
                })?;
        }
        Ok(known)
    }

    fn learn(&mut self, extension: &Extension) -> Result<(), DerFault> {
        let value = extension.value.as_slice();
        match extension.oid {
            oid::BASIC_CONSTRAINTS => {
                let mut fields = der::single(value, tag::SEQUENCE)?.reader();
                if let Some(ca) = fields.optional(tag::BOOLEAN)? {
                    self.is_ca = ca.boolean()?;
                }
                if let Some(length) = fields.optional(tag::INTEGER)? {
                    let magnitude = length.unsigned()?;
                    if magnitude.len() > 4 {
                        return Err(DerFault::Integer);
                    }
                    self.path_length = Some(
                        magnitude
                            .iter()
                            .fold(0, |acc, b| (acc << 8) | u32::from(*b)),
                    );
                }
                fields.finish()
            }
            oid::KEY_USAGE => {
                let bits = der::single(value, tag::BIT_STRING)?;
                self.key_usage =
                    Some(KeyUsage::from_bit_string(bits.content).ok_or(DerFault::BitString)?);
                Ok(())
            }
            oid::EXTENDED_KEY_USAGE => {
                let mut reader = der::single(value, tag::SEQUENCE)?.reader();
                while !reader.is_empty() {
                    self.extended_key_usages
                        .push(reader.expect(tag::OID)?.oid()?);
                }
                Ok(())
            }
            oid::SUBJECT_KEY_IDENTIFIER => {
                self.subject_key_id = Some(der::single(value, tag::OCTET_STRING)?.content.to_vec());
                Ok(())
            }
            oid::AUTHORITY_KEY_IDENTIFIER => {
                self.authority_key_id = authority_key_id(value)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The keyIdentifier inside an AuthorityKeyIdentifier, if there is one.
pub(crate) fn authority_key_id(value: &[u8]) -> Result<Option<Vec<u8>>, DerFault> {
    let mut fields = der::single(value, tag::SEQUENCE)?.reader();
    Ok(fields
        .optional(tag::CONTEXT_0_PRIMITIVE)?
        .map(|tlv| tlv.content.to_vec()))
}

fn read_version(fields: &mut Reader<'_>) -> Result<(), CertFault> {
    const FIELD: &str = "tbsCertificate.version";
    let Some(wrapper) = fields.optional(tag::CONTEXT_0).within(FIELD)? else {
        return Ok(());
    };
    let version = der::single(wrapper.content, tag::INTEGER)
        .and_then(|t| t.unsigned())
        .within(FIELD)?;
    match version {
        [] | [1 | 2] => Ok(()),
        _ => Err(CertFault::Version),
    }
}

fn read_name(tlv: &Tlv<'_>, field: &'static str) -> Result<Subject, CertFault> {
    Subject::read(tlv, &NameRules::FOREIGN).map_err(|fault| match fault {
        SubjectFault::Malformed(reason) => CertFault::Malformed { field, reason },
        _ => CertFault::Name { field },
    })
}

fn read_validity(fields: &mut Reader<'_>) -> Result<(UnixTime, UnixTime), DerFault> {
    let mut times = fields.expect(tag::SEQUENCE)?.reader();
    let not_before = times.any()?.time()?;
    let not_after = times.any()?.time()?;
    times.finish()?;
    Ok((not_before, not_after))
}

fn read_extensions(wrapper: &Tlv<'_>) -> Result<Vec<Extension>, CertFault> {
    let mut reader = der::single(wrapper.content, tag::SEQUENCE)
        .within(EXTENSIONS)?
        .reader();
    let mut extensions = Vec::new();
    while !reader.is_empty() {
        if extensions.len() >= MAX_EXTENSIONS {
            return Err(CertFault::TooManyExtensions {
                limit: MAX_EXTENSIONS,
            });
        }
        let tlv = reader.expect(tag::SEQUENCE).within(EXTENSIONS)?;
        extensions.push(Extension::read(&tlv, WrittenDefault::Tolerate).within(EXTENSIONS)?);
    }
    match extension::first_duplicate(&extensions) {
        Some(oid) => Err(CertFault::DuplicateExtension { oid }),
        None => Ok(extensions),
    }
}

const EXTENSIONS: &str = "tbsCertificate.extensions";
const MAX_DER: usize = 256 * 1024; // certificates of strangers are read too: bounds memory
const MAX_EXTENSIONS: usize = 128; // the search for duplicates is quadratic
const MAX_ALT_NAMES: usize = 4096; // public certificates with a thousand names exist
const MAX_TEXT: usize = 16 * 1024; // SPIFFE and LDAP URIs are long
