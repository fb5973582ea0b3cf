//! Hand-made certification requests, good and bad.

use std::net::IpAddr;

use countersign_pki::{Oid, SubjectBuilder, oid, pem};

use crate::der;
use crate::keys::{Key, SigningScheme};

/// A well-formed enrolment token that no authority ever minted.
pub const TOKEN: &str =
    "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";

/// Builds a request with full control over every part.
///
/// ```
/// use countersign_testkit::{csr::CsrBuilder, keys};
/// let der = CsrBuilder::new("web01.example.com").dns("web01.example.com").sign(keys::ed25519());
/// assert_eq!(der.first(), Some(&0x30));
/// ```
#[derive(Debug, Clone)]
pub struct CsrBuilder {
    version: Vec<u8>,
    subject: Subject,
    attributes: Vec<Vec<u8>>,
    extensions: Vec<Vec<u8>>,
    alt_names: Vec<Vec<u8>>,
    has_attributes: bool,
    spki: Option<Vec<u8>>,
    scheme: Option<SigningScheme>,
    algorithm: Option<Vec<u8>>,
    info_tail: Vec<u8>,
    tail: Vec<u8>,
    signature: SignatureFlaw,
    rewrite: Option<SignatureRewrite>,
}

/// What is wrong with the signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureFlaw {
    /// Nothing.
    None,
    /// One bit differs.
    FlippedBit,
    /// The BIT STRING claims unused bits.
    UnusedBits,
    /// The BIT STRING has no octets.
    Empty,
}

/// Makes another signature of a good one.
pub type SignatureRewrite = fn(&[u8]) -> Vec<u8>;

#[derive(Debug, Clone)]
enum Subject {
    Rdns(Vec<Vec<u8>>),
    Raw(Vec<u8>),
}

impl CsrBuilder {
    /// A request for a common name, as UTF8String, without attributes.
    #[must_use]
    pub fn new(common_name: &str) -> Self {
        Self::without_subject().name(&oid::COMMON_NAME, 0x0c, common_name.as_bytes())
    }

    /// A request with an empty subject.
    #[must_use]
    pub fn without_subject() -> Self {
        CsrBuilder {
            version: der::small_integer(0),
            subject: Subject::Rdns(Vec::new()),
            attributes: Vec::new(),
            extensions: Vec::new(),
            alt_names: Vec::new(),
            has_attributes: true,
            spki: None,
            scheme: None,
            algorithm: None,
            info_tail: Vec::new(),
            tail: Vec::new(),
            signature: SignatureFlaw::None,
            rewrite: None,
        }
    }

    /// Adds an RDN with one attribute of the given string type.
    #[must_use]
    pub fn name(self, kind: &Oid, tag: u8, value: &[u8]) -> Self {
        self.rdn(&[(*kind, tag, value)])
    }

    /// Adds an RDN with several attributes in the given order.
    #[must_use]
    pub fn rdn(mut self, members: &[(Oid, u8, &[u8])]) -> Self {
        let members: Vec<Vec<u8>> = members
            .iter()
            .map(|(kind, tag, value)| der::type_and_value(kind, &der::tlv(*tag, value)))
            .collect();
        let rdn = der::tlv(0x31, &members.concat());
        if let Subject::Rdns(rdns) = &mut self.subject {
            rdns.push(rdn);
        }
        self
    }

    /// Adds an organization.
    #[must_use]
    pub fn organization(self, name: &str) -> Self {
        self.name(&oid::ORGANIZATION, 0x0c, name.as_bytes())
    }

    /// Replaces the subject by these octets.
    #[must_use]
    pub fn raw_subject(mut self, der: Vec<u8>) -> Self {
        self.subject = Subject::Raw(der);
        self
    }

    /// Asks for a DNS name.
    #[must_use]
    pub fn dns(self, name: &str) -> Self {
        self.alt_name(0x82, name.as_bytes())
    }

    /// Asks for an address.
    #[must_use]
    pub fn ip(self, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => self.alt_name(0x87, &v4.octets()),
            IpAddr::V6(v6) => self.alt_name(0x87, &v6.octets()),
        }
    }

    /// Asks for an e-mail address.
    #[must_use]
    pub fn email(self, address: &str) -> Self {
        self.alt_name(0x81, address.as_bytes())
    }

    /// Asks for a URI.
    #[must_use]
    pub fn uri(self, uri: &str) -> Self {
        self.alt_name(0x86, uri.as_bytes())
    }

    /// Asks for an alternative name of any kind.
    #[must_use]
    pub fn alt_name(mut self, tag: u8, content: &[u8]) -> Self {
        self.alt_names.push(der::tlv(tag, content));
        self
    }

    /// Asks for an extension that holds a UTF8String, as Puppet agents do.
    #[must_use]
    pub fn extension(self, kind: &Oid, text: &str) -> Self {
        self.raw_extension(kind, None, &der::tlv(0x0c, text.as_bytes()))
    }

    /// Asks for an extension with any value.
    #[must_use]
    pub fn raw_extension(mut self, kind: &Oid, critical: Option<bool>, value: &[u8]) -> Self {
        self.extensions.push(der::extension(kind, critical, value));
        self
    }

    /// Adds a challenge password as agents write it: PrintableString, whatever the characters.
    #[must_use]
    pub fn challenge_password(self, text: &str) -> Self {
        self.attribute(&oid::CHALLENGE_PASSWORD, 0x13, text.as_bytes())
    }

    /// Adds an attribute with one string value of the given type.
    #[must_use]
    pub fn attribute(self, kind: &Oid, tag: u8, value: &[u8]) -> Self {
        self.attribute_values(kind, &[&der::tlv(tag, value)])
    }

    /// Adds an attribute with any number of values, as finished elements in the given order.
    #[must_use]
    pub fn attribute_values(self, kind: &Oid, values: &[&[u8]]) -> Self {
        self.raw_attribute(der::type_and_value(kind, &der::set(values)))
    }

    /// Adds an attribute as a finished element.
    #[must_use]
    pub fn raw_attribute(mut self, der: Vec<u8>) -> Self {
        self.attributes.push(der);
        self
    }

    /// Leaves the attributes out altogether, which RFC 2986 forbids.
    #[must_use]
    pub fn without_attributes(mut self) -> Self {
        self.has_attributes = false;
        self
    }

    /// Replaces the version element.
    #[must_use]
    pub fn version(mut self, der: Vec<u8>) -> Self {
        self.version = der;
        self
    }

    /// Replaces the public key; the signature stays that of the signing key.
    #[must_use]
    pub fn public_key(mut self, spki_der: Vec<u8>) -> Self {
        self.spki = Some(spki_der);
        self
    }

    /// Signs in another than the usual way.
    #[must_use]
    pub fn scheme(mut self, scheme: SigningScheme) -> Self {
        self.scheme = Some(scheme);
        self
    }

    /// Replaces the AlgorithmIdentifier; the signature stays as it was.
    #[must_use]
    pub fn algorithm(mut self, der: Vec<u8>) -> Self {
        self.algorithm = Some(der);
        self
    }

    /// Spoils the signature.
    #[must_use]
    pub fn flaw(mut self, flaw: SignatureFlaw) -> Self {
        self.signature = flaw;
        self
    }

    /// Replaces the good signature by what `rewrite` makes of it.
    #[must_use]
    pub fn rewrite_signature(mut self, rewrite: SignatureRewrite) -> Self {
        self.rewrite = Some(rewrite);
        self
    }

    /// Octets after the last field of certificationRequestInfo.
    #[must_use]
    pub fn info_tail(mut self, tail: &[u8]) -> Self {
        self.info_tail = tail.to_vec();
        self
    }

    /// Octets after the request.
    #[must_use]
    pub fn tail(mut self, tail: &[u8]) -> Self {
        self.tail = tail.to_vec();
        self
    }

    /// The signed request in DER.
    #[must_use]
    pub fn sign(&self, key: &Key) -> Vec<u8> {
        let info = self.info(key);
        let scheme = self.scheme.unwrap_or_else(|| key.scheme());
        let mut signature = key.sign_with(scheme, &info);
        if let Some(rewrite) = self.rewrite {
            signature = rewrite(&signature);
        }
        if self.signature == SignatureFlaw::FlippedBit
            && let Some(last) = signature.last_mut()
        {
            *last ^= 1;
        }
        let bits = match self.signature {
            SignatureFlaw::UnusedBits => der::tlv(0x03, &[&[1], signature.as_slice()].concat()),
            SignatureFlaw::Empty => der::tlv(0x03, &[]),
            SignatureFlaw::None | SignatureFlaw::FlippedBit => der::bits(&signature),
        };
        let algorithm = self
            .algorithm
            .clone()
            .unwrap_or_else(|| scheme.algorithm_der());
        let mut out = der::seq(&[&info, &algorithm, &bits]);
        out.extend_from_slice(&self.tail);
        out
    }

    /// The signed request in PEM.
    #[must_use]
    pub fn sign_pem(&self, key: &Key) -> String {
        pem::encode("CERTIFICATE REQUEST", &self.sign(key))
    }

    fn info(&self, key: &Key) -> Vec<u8> {
        let subject = match &self.subject {
            Subject::Rdns(rdns) if rdns.is_empty() => SubjectBuilder::new().build(),
            Subject::Rdns(rdns) => der::tlv(0x30, &rdns.concat()),
            Subject::Raw(der) => der.clone(),
        };
        let mut extensions = self.extensions.clone();
        if !self.alt_names.is_empty() {
            let names = der::tlv(0x30, &self.alt_names.concat());
            extensions.push(der::extension(&oid::SUBJECT_ALT_NAME, None, &names));
        }
        let mut attributes = self.attributes.clone();
        if !extensions.is_empty() {
            let value = der::set(&[&der::tlv(0x30, &extensions.concat())]);
            attributes.push(der::type_and_value(&oid::EXTENSION_REQUEST, &value));
        }
        let attributes = if self.has_attributes {
            der::tlv(0xa0, &attributes.concat())
        } else {
            Vec::new()
        };
        let spki = self.spki.as_deref().unwrap_or_else(|| key.spki_der());
        der::seq(&[&self.version, &subject, spki, &attributes, &self.info_tail])
    }
}
