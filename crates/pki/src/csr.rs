//! PKCS#10 certification requests (RFC 2986), read strictly and verified over the received bytes.
//!
//! Strict where two parsers could disagree about what was asked (lengths, duplicates, trailing bytes, control
//! characters), tolerant where real clients deviate harmlessly (alphabets of strings, order of sets, unknown attributes).

use std::fmt;

use crate::alt_name::{AltName, EmptyNames};
use crate::attribute::Attribute;
use crate::csr_fault::CsrFault;
use crate::der::{self, InField, Tlv, tag};
use crate::extension::{self, Extension, WrittenDefault};
use crate::fingerprint::{Fingerprint, fingerprint_sha256};
use crate::key::{KeyRule, PublicKeyFacts, ReadKey};
use crate::mask::masked;
use crate::name::{NameRules, Subject, TextRule};
use crate::oid::{self, Oid};
use crate::pem::{self, PemLimits};
use crate::signature::{Scheme, VerifyFault};
use crate::weak_key;
use crate::weakness::Weakness;

/// A request whose structure is strict, whose key is acceptable and whose signature verified over the received bytes.
///
/// Facts only: whether anyone may have such a certificate is decided elsewhere. The request may carry a password, so its
/// `Debug` form has types and lengths, but no content of an attribute or extension.
#[derive(Clone, PartialEq, Eq)]
pub struct CheckedCsr {
    der: Vec<u8>,
    subject: Subject,
    spki_der: Vec<u8>,
    public_key: PublicKeyFacts,
    attributes: Vec<Attribute>,
    extensions: Vec<Extension>,
    alt_names: Vec<AltName>,
    weaknesses: Vec<Weakness>,
}

impl CheckedCsr {
    /// Reads and verifies a request.
    ///
    /// # Errors
    /// If the bytes are malformed, over a limit, ask for an unacceptable key, or are not signed by that key.
    pub fn check(der: &[u8], limits: &CsrLimits) -> Result<Self, CsrFault> {
        let limits = &limits.within(&CsrLimits::READ_BACK);
        let read = ReadCsr::split(der, limits)?;
        let csr = read.facts(limits, Reading::Strict)?;
        // RFC 2986 4.2: the signature covers the DER of certificationRequestInfo, here the very octets received.
        let scheme = Scheme::read(&read.algorithm)?;
        let key = ReadKey::from_spki(&csr.spki_der)?;
        weak_key::refuse(&key)?;
        scheme.verify(&key, read.info.full, read.signature)?;
        Ok(csr)
    }

    /// Reads and verifies a request in PEM: exactly one block, with either of the two labels in use.
    ///
    /// # Errors
    /// As [`CheckedCsr::check`], and if the text holds no block, several, or one of another kind.
    pub fn from_pem(text: &[u8], limits: &CsrLimits) -> Result<Self, CsrFault> {
        let pem_limits = PemLimits {
            max_text: limits.max_pem,
            ..PemLimits::REQUEST
        };
        let blocks = pem::decode_all(text, &pem_limits)?;
        if blocks
            .iter()
            .any(|b| !PEM_LABELS.contains(&b.label.as_str()))
        {
            return Err(CsrFault::OtherPemBlock);
        }
        match blocks.as_slice() {
            [] => Err(CsrFault::NoPemBlock),
            [block] => Self::check(&block.der, limits),
            _ => Err(CsrFault::SeveralPemBlocks),
        }
    }

    /// Reads a request that was checked when it came in and comes back from our own store: the same reading, but the
    /// signature is not verified again, and whatever [`CheckedCsr::check`] has let in under any limits is let in here.
    /// An earlier version may have let in a key for which anybody could sign, or a CA may have been imported with one: that
    /// is among its [`weaknesses`](CheckedCsr::weaknesses), so that it is shown and never signed.
    /// Never for bytes from anywhere else.
    ///
    /// # Errors
    /// If the stored bytes are no request, which means that the store is damaged.
    pub fn trusted_from_store(der: &[u8]) -> Result<Self, CsrFault> {
        let limits = &CsrLimits::READ_BACK;
        let mut csr = ReadCsr::split(der, limits)?.facts(limits, Reading::Strict)?;
        let weak_key = weak_key::refuse(&ReadKey::from_spki(&csr.spki_der)?).err();
        csr.weaknesses.extend(weak_key.map(Weakness::Key));
        Ok(csr)
    }

    /// Reads and verifies a request that somebody else has accepted already, so that rules can say what they think of it. What
    /// makes it one that nothing here would ever sign stands among its [`weaknesses`](CheckedCsr::weaknesses): a short or
    /// badly made RSA key, a signature with SHA-1, an alternative name without a letter.
    ///
    /// # Errors
    /// If the bytes are malformed, over the bounds of [`CsrLimits::READ_BACK`], or not signed by the key in them.
    pub fn judged(der: &[u8]) -> Result<Self, CsrFault> {
        let limits = &CsrLimits::READ_BACK;
        let read = ReadCsr::split(der, limits)?;
        let mut csr = read.facts(limits, Reading::Judged)?;
        let scheme = Scheme::read_legacy(&read.algorithm)?;
        let key = ReadKey::read(&csr.spki_der, KeyRule::Judged)?;
        scheme.verify(&key, read.info.full, read.signature)?;
        csr.weaknesses.extend(scheme.weakness());
        let weak_key = PublicKeyFacts::from_spki(&csr.spki_der).err();
        let weak_key = weak_key.or_else(|| weak_key::refuse(&key).err());
        csr.weaknesses.extend(weak_key.map(Weakness::Key));
        Ok(csr)
    }

    /// The same for PEM, as an API server reads it: the first block counts, text around it does not. More than one block is
    /// a weakness.
    ///
    /// # Errors
    /// As [`CheckedCsr::judged`], and if there is no block, or the first is of another kind.
    pub fn judged_pem(text: &[u8]) -> Result<Self, CsrFault> {
        let limits = PemLimits {
            max_text: CsrLimits::MAX_PEM,
            ..PemLimits::REQUEST
        };
        let (block, behind) = pem::decode_first_and_rest(text, &limits)?;
        let block = block.ok_or(CsrFault::NoPemBlock)?;
        if block.label != JUDGED_LABEL {
            return Err(CsrFault::OtherPemBlock);
        }
        let mut csr = Self::judged(&block.der)?;
        if pem::has_boundary(behind) {
            csr.weaknesses.push(Weakness::MoreBlocks);
        } else if !behind.trim_ascii().is_empty() {
            csr.weaknesses.push(Weakness::TextBehind);
        }
        Ok(csr)
    }

    /// What is wrong with a request that was read to be judged, or with the key of one on record; nothing is with one that
    /// was checked.
    #[must_use]
    pub fn weaknesses(&self) -> &[Weakness] {
        &self.weaknesses
    }

    /// The first weakness for which no certificate may ever come of it.
    #[must_use]
    pub fn unsignable(&self) -> Option<&Weakness> {
        self.weaknesses
            .iter()
            .find(|weakness| !weakness.is_harmless())
    }

    /// The request exactly as received.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The request in PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem::encode("CERTIFICATE REQUEST", &self.der)
    }

    /// The requested name: every RDN in received order; nothing merged, nothing dropped.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The SubjectPublicKeyInfo as received. Compare this, never whole requests: ECDSA signatures differ each time.
    #[must_use]
    pub fn spki_der(&self) -> &[u8] {
        &self.spki_der
    }

    /// Kind and size of the key.
    #[must_use]
    pub fn public_key(&self) -> &PublicKeyFacts {
        &self.public_key
    }

    /// All attributes in received order, the extension request included.
    #[must_use]
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// The attributes of one type; a hostile request may have several.
    pub fn attributes_of<'a>(&'a self, oid: &'a Oid) -> impl Iterator<Item = &'a Attribute> {
        self.attributes.iter().filter(move |a| a.oid == *oid)
    }

    /// The requested extensions in received order; no identifier occurs twice.
    #[must_use]
    pub fn extensions(&self) -> &[Extension] {
        &self.extensions
    }

    /// The requested extension of one type.
    #[must_use]
    pub fn extension(&self, oid: &Oid) -> Option<&Extension> {
        self.extensions.iter().find(|e| e.oid == *oid)
    }

    /// The requested alternative names in received order.
    #[must_use]
    pub fn alt_names(&self) -> &[AltName] {
        &self.alt_names
    }

    /// SHA-256 of the whole request.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        fingerprint_sha256(&self.der)
    }

    /// SHA-256 of the SubjectPublicKeyInfo: the identity of the key.
    #[must_use]
    pub fn key_fingerprint(&self) -> Fingerprint {
        fingerprint_sha256(&self.spki_der)
    }
}

impl fmt::Debug for CheckedCsr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name may hold a token that was meant for another place.
        let masked = masked(self).and_then(|der| Self::trusted_from_store(&der).ok());
        let subject = masked.as_ref().map_or(&self.subject, |copy| &copy.subject);
        f.debug_struct("CheckedCsr")
            .field("subject", &format_args!("{subject}"))
            .field("public_key", &self.public_key)
            .field("key_fingerprint", &self.key_fingerprint())
            .field("attributes", &self.attributes)
            .field("extensions", &self.extensions)
            .field("alt_names", &self.alt_names.len())
            .field("octets", &self.der.len())
            .finish()
    }
}

/// Bounds on one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CsrLimits {
    /// Octets of DER.
    pub max_der: usize,
    /// Octets of PEM text.
    pub max_pem: usize,
    /// Attributes.
    pub max_attributes: usize,
    /// Requested extensions.
    pub max_extensions: usize,
    /// Alternative names.
    pub max_alt_names: usize,
    /// Attributes in the subject, over all RDNs.
    pub max_name_attributes: usize,
    /// Octets of one name: a subject attribute or an alternative name.
    pub max_text: usize,
    /// Whether a request may do without the field of its attributes.
    pub attributes: AttributesField,
}

/// The field of a request's attributes, which RFC 2986 4.1 demands even where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributesField {
    /// A request without it is malformed, as Go says.
    Required,
    /// A request without it has no attributes, as Java says.
    Optional,
}

impl CsrLimits {
    /// Far above what any agent sends, low enough that the worst request costs little more than its signature.
    pub const STANDARD: CsrLimits = CsrLimits {
        max_der: 32 * 1024,
        max_pem: 64 * 1024,
        max_attributes: 32,
        max_extensions: 64,
        max_alt_names: 256,
        max_name_attributes: 64,
        max_text: 2048,
        attributes: AttributesField::Required,
    };

    /// The longest PEM text that anybody may configure.
    pub const MAX_PEM: usize = 1024 * 1024;

    /// What every request on record is inside of, whatever the limits were when it came in: nothing larger is ever let
    /// in, so nothing is stored that cannot be read back.
    pub const READ_BACK: CsrLimits = CsrLimits::for_pem(CsrLimits::MAX_PEM);

    /// The standard bounds for PEM text of at most so many octets, with or without attributes.
    #[must_use]
    pub const fn for_pem(max_pem: usize) -> CsrLimits {
        CsrLimits {
            max_pem,
            // Base64 makes four octets of three.
            max_der: (max_pem / 4).saturating_mul(3),
            attributes: AttributesField::Optional,
            ..CsrLimits::STANDARD
        }
    }

    /// The narrower of each two bounds.
    fn within(&self, other: &CsrLimits) -> CsrLimits {
        CsrLimits {
            max_der: self.max_der.min(other.max_der),
            max_pem: self.max_pem.min(other.max_pem),
            max_attributes: self.max_attributes.min(other.max_attributes),
            max_extensions: self.max_extensions.min(other.max_extensions),
            max_alt_names: self.max_alt_names.min(other.max_alt_names),
            max_name_attributes: self.max_name_attributes.min(other.max_name_attributes),
            max_text: self.max_text.min(other.max_text),
            attributes: self.attributes,
        }
    }
}

/// The parts of a request before they are understood.
struct ReadCsr<'a> {
    der: &'a [u8],
    info: Tlv<'a>,
    algorithm: Tlv<'a>,
    signature: &'a [u8],
}

impl<'a> ReadCsr<'a> {
    fn split(der: &'a [u8], limits: &CsrLimits) -> Result<Self, CsrFault> {
        if der.len() > limits.max_der {
            return Err(CsrFault::TooLarge {
                field: REQUEST,
                limit: limits.max_der,
            });
        }
        let mut fields = der::single(der, tag::SEQUENCE).within(REQUEST)?.reader();
        let info = fields.expect(tag::SEQUENCE).within(INFO)?;
        let algorithm = fields.expect(tag::SEQUENCE).within("signatureAlgorithm")?;
        let signature = fields
            .expect(tag::BIT_STRING)
            .and_then(|t| t.whole_octets())
            .within("signature")?;
        fields.finish().within(REQUEST)?;
        Ok(ReadCsr {
            der,
            info,
            algorithm,
            signature,
        })
    }

    fn facts(&self, limits: &CsrLimits, reading: Reading) -> Result<CheckedCsr, CsrFault> {
        let mut fields = self.info.reader();
        let version = fields
            .expect(tag::INTEGER)
            .and_then(|t| t.unsigned())
            .within("certificationRequestInfo.version")?;
        // RFC 2986 knows version 0. `puppetserver ca generate` writes 2, which nobody else minds.
        if !matches!(version, [] | [2]) {
            return Err(CsrFault::Version);
        }
        let subject = fields
            .expect(tag::SEQUENCE)
            .within("certificationRequestInfo.subject")?;
        let spki = fields
            .expect(tag::SEQUENCE)
            .within("certificationRequestInfo.subjectPublicKeyInfo")?;
        let attributes = match (fields.is_empty(), limits.attributes) {
            (true, AttributesField::Required) => return Err(CsrFault::AttributesMissing),
            (true, AttributesField::Optional) => None,
            (false, _) => Some(fields.expect(tag::CONTEXT_0).within(ATTRIBUTES)?),
        };
        fields.finish().within(INFO)?;

        let name_rules = NameRules {
            max_attributes: limits.max_name_attributes,
            max_text: limits.max_text,
            text: TextRule::Plain,
        };
        let subject = Subject::read(&subject, &name_rules)?;
        let (key_rule, empty) = match reading {
            Reading::Strict => (KeyRule::Acceptable, EmptyNames::Refused),
            Reading::Judged => (KeyRule::Judged, EmptyNames::Kept),
        };
        let public_key = ReadKey::read(spki.full, key_rule)?.facts();
        let attributes = match attributes {
            Some(set) => read_attributes(&set, limits)?,
            None => Vec::new(),
        };
        let extensions = read_extensions(&attributes, limits)?;
        let alt_names = extensions
            .iter()
            .find(|e| e.oid == oid::SUBJECT_ALT_NAME && e.value != EMPTY_LIST)
            .map(|e| AltName::read_list(&e.value, limits.max_alt_names, limits.max_text, empty))
            .transpose()?
            .unwrap_or_default();
        let is_empty = |name: &AltName| name.text() == Some("");
        let weaknesses = match alt_names.iter().any(is_empty) {
            true => vec![Weakness::EmptyName],
            false => Vec::new(),
        };
        Ok(CheckedCsr {
            der: self.der.to_vec(),
            subject,
            spki_der: spki.full.to_vec(),
            public_key,
            attributes,
            extensions,
            alt_names,
            weaknesses,
        })
    }
}

/// How much is let pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Strict,
    Judged,
}

fn read_attributes(set: &Tlv<'_>, limits: &CsrLimits) -> Result<Vec<Attribute>, CsrFault> {
    let mut reader = set.reader();
    let mut attributes = Vec::new();
    while !reader.is_empty() {
        if attributes.len() >= limits.max_attributes {
            return Err(CsrFault::TooMany {
                field: ATTRIBUTES,
                limit: limits.max_attributes,
            });
        }
        let tlv = reader.expect(tag::SEQUENCE).within(ATTRIBUTES)?;
        attributes.push(Attribute::read(&tlv, ATTRIBUTES)?);
    }
    Ok(attributes)
}

/// The extensions of the one PKCS#9 extensionRequest. Its Microsoft relative stays a mere attribute: what no client of ours
/// reads must not grant anything.
fn read_extensions(
    attributes: &[Attribute],
    limits: &CsrLimits,
) -> Result<Vec<Extension>, CsrFault> {
    let mut requests = attributes
        .iter()
        .filter(|a| a.oid == oid::EXTENSION_REQUEST);
    let Some(request) = requests.next() else {
        return Ok(Vec::new());
    };
    if requests.next().is_some() {
        return Err(CsrFault::SeveralExtensionRequests);
    }
    let [value] = request.values.as_slice() else {
        return Err(CsrFault::ExtensionRequestValues {
            count: request.values.len(),
        });
    };
    let mut reader = der::single(value.der(), tag::SEQUENCE)
        .within(EXTENSION_REQUEST)?
        .reader();
    let mut extensions = Vec::new();
    while !reader.is_empty() {
        if extensions.len() >= limits.max_extensions {
            return Err(CsrFault::TooMany {
                field: EXTENSION_REQUEST,
                limit: limits.max_extensions,
            });
        }
        let tlv = reader.expect(tag::SEQUENCE).within(EXTENSION_REQUEST)?;
        extensions.push(Extension::read(&tlv, WrittenDefault::Refuse).within(EXTENSION_REQUEST)?);
    }
    match extension::first_duplicate(&extensions) {
        Some(oid) => Err(CsrFault::DuplicateExtension { oid }),
        None => Ok(extensions),
    }
}

impl CsrFault {
    /// Whether the request was well formed and only its signature did not verify.
    #[must_use]
    pub fn is_bad_signature(&self) -> bool {
        matches!(self, CsrFault::Signature(VerifyFault::BadSignature))
    }
}

/// The one label that an API server takes.
const JUDGED_LABEL: &str = "CERTIFICATE REQUEST";
const PEM_LABELS: [&str; 2] = ["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"];

/// A SEQUENCE without members. RFC 5280 4.2.1.6 forbids it for names; it asks for none, and Java and Go take it so.
const EMPTY_LIST: [u8; 2] = [0x30, 0];

const REQUEST: &str = "certificationRequest";
const INFO: &str = "certificationRequestInfo";
const ATTRIBUTES: &str = "certificationRequestInfo.attributes";
const EXTENSION_REQUEST: &str = "certificationRequestInfo.attributes.extensionRequest";
