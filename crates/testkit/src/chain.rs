//! Certificate authorities of fixed keys that stand above one another, and their CRLs.

use countersign_pki::{
    AltName, Certificate, CertificateTemplate, EncodeFault, Extension, KeyUsage, Oid, Serial,
    StringKind, SubjectBuilder, UnixTime, ext, oid, pem, seal,
};

use crate::der;
use crate::keys::Key;

/// A certificate authority whose key everybody knows.
#[derive(Debug)]
pub struct Ca {
    /// Its key.
    pub key: &'static Key,
    /// Its certificate.
    pub certificate: Certificate,
}

/// What a CRL says.
#[derive(Clone, Copy, Debug)]
pub struct CrlFacts<'a> {
    /// Its number; none: the extension is left out.
    pub number: Option<u64>,
    /// When it was made.
    pub this_update: UnixTime,
    /// Until when it may be relied on.
    pub next_update: UnixTime,
    /// The serials it revokes.
    pub revoked: &'a [Serial],
    /// Whether it says by which key it was signed.
    pub has_key_id: bool,
    /// Whether it says only what changed since another.
    pub is_delta: bool,
}

impl CrlFacts<'_> {
    /// A list as it should be, in force from a day before `now` on, for a year.
    #[must_use]
    pub fn good(number: u64, now: UnixTime) -> Self {
        Self {
            number: Some(number),
            this_update: now.minus_seconds(DAY),
            next_update: now.plus_seconds(364 * DAY),
            revoked: &[],
            has_key_id: true,
            is_delta: false,
        }
    }
}

/// A certificate of somebody who is no authority.
#[derive(Clone)]
pub struct Leaf<'a> {
    /// Its subject.
    pub common_name: &'a str,
    /// Its alternative names.
    pub names: &'a [AltName],
    /// What it is for, such as [`oid::EKU_SERVER_AUTH`].
    pub usage: Oid,
    /// Its key.
    pub key: &'static Key,
    /// Its serial.
    pub serial: u64,
    /// From a day before then on, for twenty years.
    pub now: UnixTime,
}

impl Ca {
    /// A root, valid from a day before `now` on, for twenty years.
    ///
    /// # Panics
    /// If the key cannot be an issuer's.
    #[must_use]
    pub fn root(common_name: &str, key: &'static Key, now: UnixTime) -> Self {
        let name = SubjectBuilder::utf8_common_name(common_name);
        let certificate = certify((key, &name), (common_name, key), 1, now);
        Self {
            key,
            certificate: certificate.expect("a root of a fixed key"),
        }
    }

    /// An authority below this one.
    ///
    /// # Panics
    /// If the key cannot be an issuer's.
    #[must_use]
    pub fn below(&self, common_name: &str, key: &'static Key, serial: u64, now: UnixTime) -> Self {
        let by = (self.key, self.certificate.subject().der());
        let certificate = certify(by, (common_name, key), serial, now);
        Self {
            key,
            certificate: certificate.expect("a certificate of fixed keys"),
        }
    }

    /// A certificate for a server or a client.
    ///
    /// # Panics
    /// If it cannot be encoded.
    #[must_use]
    pub fn leaf(&self, leaf: &Leaf<'_>) -> Certificate {
        let by = (self.key, self.certificate.subject().der());
        let usage = &[
            ext::basic_constraints_leaf(),
            ext::key_usage(KeyUsage::DIGITAL_SIGNATURE),
            ext::extended_key_usage(&[leaf.usage]),
            ext::subject_alt_name(leaf.names, false),
        ];
        let subject = (leaf.common_name, leaf.key);
        let certificate = issue(by, subject, leaf.serial, leaf.now, usage);
        certificate.expect("a certificate of fixed keys")
    }

    /// A client certificate of a user of Kubernetes, whose groups are its organizations.
    ///
    /// # Panics
    /// If it cannot be encoded.
    #[must_use]
    pub fn kubernetes_user(
        &self,
        user: &str,
        groups: &[&str],
        key: &Key,
        serial: u64,
        now: UnixTime,
    ) -> Certificate {
        let name = groups.iter().fold(SubjectBuilder::new(), |name, group| {
            name.push(oid::ORGANIZATION, group, StringKind::Utf8)
        });
        let name = name.push(oid::COMMON_NAME, user, StringKind::Utf8).build();
        let by = (self.key, self.certificate.subject().der());
        let usage = [
            ext::basic_constraints_leaf(),
            ext::key_usage(KeyUsage::DIGITAL_SIGNATURE),
            ext::extended_key_usage(&[oid::EKU_CLIENT_AUTH]),
        ];
        let certificate = issue_to(by, (&name, key), serial, now, &usage);
        certificate.expect("a certificate of fixed keys")
    }

    /// A CRL, PEM.
    #[must_use]
    pub fn crl(&self, facts: &CrlFacts<'_>) -> String {
        self.crl_signed_by(self.key, facts)
    }

    /// A CRL in this authority's name, PEM, whoever signs it.
    #[must_use]
    pub fn crl_signed_by(&self, key: &Key, facts: &CrlFacts<'_>) -> String {
        let algorithm = key.scheme().algorithm_der();
        let tbs = self.crl_to_be_signed(&algorithm, facts);
        let der = der::seq(&[&tbs, &algorithm, &der::bits(&key.sign(&tbs))]);
        pem::encode("X509 CRL", &der)
    }

    /// By hand: the product writes only lists as they should be.
    fn crl_to_be_signed(&self, algorithm: &[u8], facts: &CrlFacts<'_>) -> Vec<u8> {
        let revoked = facts
            .revoked
            .iter()
            .map(|serial| der::seq(&[&unsigned(serial.as_bytes()), &time(facts.this_update)]));
        let entries = match revoked.collect::<Vec<_>>().concat() {
            none if none.is_empty() => none,
            some => der::tlv(0x30, &some),
        };
        let mut extensions = Vec::new();
        if facts.has_key_id {
            let key_id = self.certificate.subject_key_id().unwrap_or_default();
            let value = der::seq(&[&der::tlv(0x80, key_id)]);
            extensions.push(der::extension(&oid::AUTHORITY_KEY_IDENTIFIER, None, &value));
        }
        if let Some(number) = facts.number {
            let value = unsigned(&number.to_be_bytes());
            extensions.push(der::extension(&oid::CRL_NUMBER, None, &value));
        }
        if facts.is_delta {
            let base = der::small_integer(0);
            let indicator = der::extension(&oid::DELTA_CRL_INDICATOR, Some(true), &base);
            extensions.push(indicator);
        }
        der::seq(&[
            &der::small_integer(1),
            algorithm,
            self.certificate.subject().der(),
            &time(facts.this_update),
            &time(facts.next_update),
            &entries,
            &der::tlv(0xa0, &der::tlv(0x30, &extensions.concat())),
        ])
    }
}

fn certify(
    by: (&Key, &[u8]),
    subject: (&str, &Key),
    serial: u64,
    now: UnixTime,
) -> Result<Certificate, EncodeFault> {
    let usage = [
        ext::basic_constraints_ca(),
        ext::key_usage(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN),
    ];
    issue(by, subject, serial, now, &usage)
}

fn issue(
    by: (&Key, &[u8]),
    subject: (&str, &Key),
    serial: u64,
    now: UnixTime,
    usage: &[Extension],
) -> Result<Certificate, EncodeFault> {
    let (name, subject) = subject;
    let name = SubjectBuilder::utf8_common_name(name);
    issue_to(by, (&name, subject), serial, now, usage)
}

/// The same for a subject in DER.
fn issue_to(
    by: (&Key, &[u8]),
    subject: (&[u8], &Key),
    serial: u64,
    now: UnixTime,
    usage: &[Extension],
) -> Result<Certificate, EncodeFault> {
    let ((key, issuer), (name, subject)) = (by, subject);
    let mut extensions = usage.to_vec();
    extensions.push(ext::subject_key_id(subject.spki_der())?);
    extensions.push(ext::authority_key_id(&ext::key_id(key.spki_der())?));
    let algorithm = key
        .issuer_algorithm()
        .expect("a key that may be an issuer's");
    let template = CertificateTemplate {
        serial: Serial::try_from(serial).expect("a positive serial"),
        algorithm,
        issuer_name_der: issuer,
        not_before: now.minus_seconds(DAY),
        not_after: now.plus_seconds(20 * 365 * DAY),
        subject_der: name,
        spki_der: subject.spki_der(),
        extensions: &extensions,
    };
    let tbs = template.to_be_signed()?;
    let der = seal(&tbs, algorithm, &key.sign(&tbs))?;
    Ok(Certificate::parse(&der).expect("a certificate of our own making"))
}

/// A UTCTime, good until 2049.
fn time(at: UnixTime) -> Vec<u8> {
    let text = at.to_string();
    let digits = text.bytes().filter(u8::is_ascii_digit).skip(2).take(12);
    let content: Vec<u8> = digits.chain([b'Z']).collect();
    der::tlv(0x17, &content)
}

fn unsigned(magnitude: &[u8]) -> Vec<u8> {
    let mut content: Vec<u8> = magnitude.iter().copied().skip_while(|b| *b == 0).collect();
    if content.first().is_none_or(|first| *first >= 0x80) {
        content.insert(0, 0);
    }
    der::tlv(0x02, &content)
}

const DAY: u64 = 86_400;
