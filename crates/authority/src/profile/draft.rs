//! From an approval to the bytes to be signed.

use std::sync::Arc;

use countersign_pki::{
    AltName, Certificate, CertificateTemplate, CheckedCsr, EncodeFault, Extension, KeyType,
    KeyUsage, Oid, Serial, SubjectBuilder, UnixTime, ext, oid, seal,
};
use countersign_policy::{Approval, SignerName, Wishes, carries_token};

use super::{
    AltNameRule, AuthorityKeyId, ExtensionRule, Lifetime, Profile, SubjectRule, Usage, UsageRule,
};
use crate::issuer::Issuer;
use crate::issuing::stages::Draft;
use crate::model::{Intent, Owner, RequestId};

/// From when until when a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub not_before: UnixTime,
    /// Last second.
    pub not_after: UnixTime,
}

impl Validity {
    /// The same, but not beyond the issuer's end.
    #[must_use]
    pub(crate) fn within(self, issuer: &Issuer) -> Self {
        Self {
            not_after: self.not_after.min(issuer.not_after()),
            ..self
        }
    }

    /// The same, but over so many seconds from now at the latest.
    #[must_use]
    pub(crate) fn at_most(self, seconds: Option<u64>, now: UnixTime) -> Self {
        let end = seconds.map(|seconds| now.plus_seconds(seconds));
        Self {
            not_after: end.map_or(self.not_after, |end| end.min(self.not_after)),
            ..self
        }
    }
}

/// Everything beside profile and approval that shapes a certificate.
pub struct Drafting<'a> {
    /// The request's identity.
    pub request: RequestId,
    /// The message that asks.
    pub csr: &'a CheckedCsr,
    /// Its name at the door.
    pub key: &'a str,
    /// Its wishes.
    pub wishes: &'a Wishes,
    /// The signer that drafts.
    pub signer: &'a SignerName,
    /// Who signs.
    pub issuer: &'a Arc<Issuer>,
    /// The serial to use.
    pub serial: Serial,
    /// The validity, from [`Profile::validity`] or from an earlier intent.
    pub validity: Validity,
    /// The process that will sign.
    pub owner: Owner,
    /// Until when it alone may.
    pub lease_until: UnixTime,
}

/// Why an approved request cannot be drafted.
#[derive(Debug, thiserror::Error)]
pub enum DraftFault {
    /// The issuer has ended, or would end before the certificate begins.
    #[error("issuer {issuer} is valid until {not_after} only; renew the issuer")]
    IssuerEnded {
        /// Which.
        issuer: String,
        /// Its end.
        not_after: UnixTime,
    },
    /// The certificate cannot be encoded.
    #[error("the certificate cannot be encoded")]
    Encode(#[from] EncodeFault),
    /// The draft does not keep to its own profile.
    #[error("the draft fails its check: {finding}")]
    Lint {
        /// What is wrong.
        finding: &'static str,
    },
}

impl Profile {
    /// The validity of a certificate made `now`: `asked` in seconds, else the default, inside the
    /// profile's bounds, never beyond the issuer's end.
    pub fn validity(
        &self,
        asked: Option<u64>,
        now: UnixTime,
        issuer: &Issuer,
    ) -> Result<Validity, DraftFault> {
        let Lifetime {
            default,
            maximum,
            minimum,
            backdate,
            backdate_included_from,
        } = self.lifetime;
        let lifetime = asked
            .unwrap_or(default)
            .clamp(minimum, maximum.max(minimum));
        let included = backdate_included_from.is_some_and(|from| lifetime >= from);
        let after_now = if included {
            lifetime.saturating_sub(backdate)
        } else {
            lifetime
        };
        let issuer_end = issuer.not_after();
        if now >= issuer_end {
            return Err(DraftFault::IssuerEnded {
                issuer: issuer.id().to_string(),
                not_after: issuer_end,
            });
        }
        Ok(Validity {
            not_before: now.minus_seconds(backdate),
            not_after: now.plus_seconds(after_now).min(issuer_end),
        })
    }

    /// Uses an approval up: builds the certificate to be signed and the intent that must be durable
    /// first.
    pub fn draft(&self, approval: Approval, drafting: Drafting<'_>) -> Result<Draft, DraftFault> {
        let subject_der = self.issued_subject(drafting.csr, drafting.key);
        let alt_names = self.issued_alt_names(drafting.csr, drafting.key);
        let empty_subject = is_empty_name(&subject_der);
        let extensions = self.issued_extensions(&drafting, &alt_names, empty_subject)?;
        let template = CertificateTemplate {
            serial: drafting.serial,
            algorithm: drafting.issuer.algorithm(),
            issuer_name_der: drafting.issuer.certificate().subject().der(),
            not_before: drafting.validity.not_before,
            not_after: drafting.validity.not_after,
            subject_der: &subject_der,
            spki_der: drafting.csr.spki_der(),
            extensions: &extensions,
        };
        let to_be_signed = template.to_be_signed()?;
        let name = self.issued_name(drafting.csr, drafting.key).to_owned();
        lint(&to_be_signed, drafting.issuer, &alt_names)?;
        let intent = Intent {
            issuer: drafting.issuer.id().clone(),
            serial: drafting.serial,
            request: drafting.request,
            signer: drafting.signer.clone(),
            name,
            key_fingerprint: drafting.csr.key_fingerprint(),
            not_before: drafting.validity.not_before,
            not_after: drafting.validity.not_after,
            explanation: approval.explanation().clone(),
            owner: drafting.owner,
            lease_until: drafting.lease_until,
            deferred: None,
        };
        Ok(Draft::new(
            intent,
            to_be_signed,
            Arc::clone(drafting.issuer),
            drafting.wishes.expiration_seconds,
        ))
    }

    /// The name that a certificate has, in itself and in the ledger.
    pub(crate) fn issued_name<'a>(&self, csr: &'a CheckedCsr, key: &'a str) -> &'a str {
        match self.subject {
            SubjectRule::KeyAsCommonName => key,
            SubjectRule::Rebuilt => csr.subject().common_names().last().unwrap_or_default(),
        }
    }

    pub(super) fn issued_subject(&self, csr: &CheckedCsr, key: &str) -> Vec<u8> {
        match self.subject {
            SubjectRule::KeyAsCommonName => SubjectBuilder::utf8_common_name(key),
            SubjectRule::Rebuilt => SubjectBuilder::go_style(csr.subject()),
        }
    }

    pub(super) fn issued_alt_names(&self, csr: &CheckedCsr, key: &str) -> Vec<AltName> {
        let requested = csr.alt_names();
        let of = |keep: fn(&AltName) -> bool| requested.iter().filter(move |n| keep(n)).cloned();
        let ip = |n: &AltName| matches!(n, AltName::Ip(_));
        let dns = |n: &AltName| matches!(n, AltName::Dns(_));
        match self.alt_names {
            AltNameRule::OwnName { .. } => {
                let mut names: Vec<AltName> = of(ip).chain(of(dns)).collect();
                names.retain(|name| !matches!(name, AltName::Dns(own) if own == key));
                names.push(AltName::Dns(key.to_owned()));
                names
            }
            AltNameRule::Kinds(_) => of(dns)
                .chain(of(|n| matches!(n, AltName::Email(_))))
                .chain(of(ip))
                .chain(of(|n| matches!(n, AltName::Uri(_))))
                .collect(),
        }
    }

    fn issued_extensions(
        &self,
        drafting: &Drafting<'_>,
        alt_names: &[AltName],
        empty_subject: bool,
    ) -> Result<Vec<Extension>, DraftFault> {
        let csr = drafting.csr;
        let mut extensions = Vec::with_capacity(8);
        let (key_usage, extended) = self.issued_usages(csr, drafting.wishes);
        if let Some(bits) = key_usage {
            extensions.push(ext::key_usage(bits));
        }
        if !extended.is_empty() {
            let critical = self.usages == UsageRule::ServerAndClient;
            extensions.push(Extension {
                critical,
                ..ext::extended_key_usage(&extended)
            });
        }
        extensions.push(ext::basic_constraints_leaf());
        let key_id = match self.authority_key_id {
            AuthorityKeyId::Always => Some(drafting.issuer.key_id()),
            AuthorityKeyId::FromIssuer => drafting.issuer.certificate().subject_key_id(),
        };
        extensions.extend(key_id.map(ext::authority_key_id));
        if self.subject_key_id {
            extensions.push(ext::subject_key_id(csr.spki_der())?);
        }
        if !alt_names.is_empty() {
            // RFC 5280 4.2.1.6: names without a subject beside them are critical.
            let is_critical = empty_subject || self.keeps_critical_names(csr);
            extensions.push(ext::subject_alt_name(alt_names, is_critical));
        }
        if let Some(comment) = self.comment {
            extensions.push(ext::ns_comment(comment));
        }
        if let ExtensionRule::Arcs { .. } = self.extensions {
            for requested in csr
                .extensions()
                .iter()
                .filter(|e| e.oid != oid::SUBJECT_ALT_NAME)
            {
                // `examine` refused values that are not text and arcs that are not permitted.
                if let Some(text) = requested.text_value()
                    && !self.withholds(requested)
                {
                    extensions.push(ext::utf8_extension(
                        requested.oid,
                        &text,
                        requested.critical,
                    ));
                }
            }
        }
        if let ExtensionRule::Copied { oids, .. } = &self.extensions {
            let copied = csr.extensions().iter().filter(|e| oids.contains(&e.oid));
            extensions.extend(copied.filter(|e| !self.withholds(e)).cloned());
        }
        extensions.extend(self.added.iter().cloned());
        Ok(extensions)
    }

    /// Whether the names were asked for as critical, where that is repeated.
    fn keeps_critical_names(&self, csr: &CheckedCsr) -> bool {
        match self.alt_names {
            AltNameRule::OwnName { .. } => {
                let asked = csr.extension(&oid::SUBJECT_ALT_NAME);
                asked.is_some_and(|extension| extension.critical)
            }
            AltNameRule::Kinds(_) => false,
        }
    }

    /// Whether a requested extension stays out because it carries a secret: anybody can fetch a certificate.
    fn withholds(&self, requested: &Extension) -> bool {
        self.withheld.contains(&requested.oid) || carries_token(requested)
    }

    fn issued_usages(&self, csr: &CheckedCsr, wishes: &Wishes) -> (Option<KeyUsage>, Vec<Oid>) {
        match &self.usages {
            UsageRule::ServerAndClient => {
                let bits = match csr.public_key().key_type {
                    // RFC 5480 3: an EC or Ed25519 key enciphers no keys.
                    KeyType::Rsa { .. } => KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_ENCIPHERMENT,
                    KeyType::Ec(_) | KeyType::Ed25519 => KeyUsage::DIGITAL_SIGNATURE,
                };
                (Some(bits), vec![oid::EKU_SERVER_AUTH, oid::EKU_CLIENT_AUTH])
            }
            UsageRule::Asked { permitted, .. } => {
                let asked: Vec<Usage> = permitted
                    .iter()
                    .copied()
                    .filter(|usage| wishes.usages.iter().any(|name| name == usage.name()))
                    .collect();
                let bits = asked
                    .iter()
                    .filter_map(|u| u.key_usage())
                    .reduce(|a, b| a | b);
                let mut extended: Vec<Oid> = Vec::new();
                for name in Usage::names() {
                    let usage = asked.iter().find(|usage| usage.name() == name);
                    if let Some(oid) = usage.and_then(|usage| usage.extended())
                        && !extended.contains(oid)
                    {
                        extended.push(*oid);
                    }
                }
                (bits, extended)
            }
        }
    }
}

/// Whether an encoded name has no attribute: rebuilding may have dropped them all.
pub(super) fn is_empty_name(der: &[u8]) -> bool {
    // A SEQUENCE without members.
    der == [0x30, 0]
}

/// Reads the draft back as a stranger would, before a key touches it: what a profile's code gets wrong
/// must not become a certificate.
fn lint(to_be_signed: &[u8], issuer: &Issuer, alt_names: &[AltName]) -> Result<(), DraftFault> {
    let unsigned = seal(to_be_signed, issuer.algorithm(), &[0])?;
    let finding = |finding| DraftFault::Lint { finding };
    let certificate =
        Certificate::parse(&unsigned).map_err(|_| finding("it cannot be read back"))?;
    if certificate.is_ca() {
        return Err(finding("it would be a CA certificate"));
    }
    if certificate.not_after() > issuer.not_after() {
        return Err(finding("it would outlive its issuer"));
    }
    if certificate.not_before() >= certificate.not_after() {
        return Err(finding("it would never be valid"));
    }
    if certificate.alt_names() != alt_names {
        return Err(finding("its alternative names differ from those approved"));
    }
    Ok(())
}
