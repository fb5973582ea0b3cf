//! A small authority made of fixed keys, for the other modules.

use countersign_pki::{
    AltName, Certificate, CertificateTemplate, Crl, CrlTemplate, Extension, KeyUsage, RevokedEntry,
    Serial, SignatureAlgorithm, SubjectBuilder, UnixTime, ext, oid, seal,
};
use countersign_testkit::keys::{self, Key};

/// An issuer: a self-signed certificate and its key.
pub(crate) struct Issuer {
    pub(crate) key: &'static Key,
    pub(crate) algorithm: SignatureAlgorithm,
    pub(crate) certificate: Certificate,
}

pub(crate) const NOT_BEFORE: UnixTime = UnixTime(1_767_225_600); // 2026-01-01
pub(crate) const NOT_AFTER: UnixTime = UnixTime(2_714_256_000); // 2056-01-05, beyond UTCTime

impl Issuer {
    pub(crate) fn new(key: &'static Key) -> Self {
        let algorithm = key.issuer_algorithm().unwrap();
        let name = SubjectBuilder::utf8_common_name(&format!("Test CA {}", key.name()));
        let key_id = ext::key_id(key.spki_der()).unwrap();
        let template = CertificateTemplate {
            serial: Serial::try_from(1).unwrap(),
            algorithm,
            issuer_name_der: &name,
            not_before: NOT_BEFORE,
            not_after: NOT_AFTER,
            subject_der: &name,
            spki_der: key.spki_der(),
            extensions: &[
                ext::basic_constraints_ca(),
                ext::key_usage(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN),
                ext::subject_key_id(key.spki_der()).unwrap(),
                ext::authority_key_id(&key_id),
            ],
        };
        let der = sign(key, algorithm, &template.to_be_signed().unwrap());
        Issuer {
            key,
            algorithm,
            certificate: Certificate::parse(&der).unwrap(),
        }
    }

    /// Every kind of issuer that may sign.
    pub(crate) fn all() -> Vec<Self> {
        [
            keys::rsa2048_a(),
            keys::rsa3072(),
            keys::rsa4096_a(),
            keys::p256_a(),
            keys::p384(),
            keys::ed25519(),
        ]
        .into_iter()
        .map(Issuer::new)
        .collect()
    }

    /// A leaf in the shape of Puppet's profile.
    pub(crate) fn issue(&self, serial: Serial, name: &str, spki_der: &[u8]) -> Certificate {
        let names = [
            AltName::Dns(name.to_owned()),
            AltName::Ip("2001:db8::1".parse().unwrap()),
        ];
        let extensions = [
            ext::ns_comment("Test certificate"),
            ext::authority_key_id(self.certificate.subject_key_id().unwrap()),
            ext::subject_key_id(spki_der).unwrap(),
            ext::subject_alt_name(&names, false),
            ext::utf8_extension(oid::PP_PRESHARED_KEY, "ab_1", false),
            ext::basic_constraints_leaf(),
            Extension {
                critical: true,
                ..ext::extended_key_usage(&[oid::EKU_SERVER_AUTH, oid::EKU_CLIENT_AUTH])
            },
            ext::key_usage(KeyUsage::DIGITAL_SIGNATURE),
        ];
        let template = CertificateTemplate {
            serial,
            algorithm: self.algorithm,
            issuer_name_der: self.certificate.subject().der(),
            not_before: NOT_BEFORE,
            not_after: NOT_AFTER,
            subject_der: &SubjectBuilder::utf8_common_name(name),
            spki_der,
            extensions: &extensions,
        };
        let der = sign(self.key, self.algorithm, &template.to_be_signed().unwrap());
        Certificate::parse(&der).unwrap()
    }

    /// A revocation list.
    pub(crate) fn revoke(&self, number: u64, entries: &[RevokedEntry]) -> Crl {
        let template = CrlTemplate {
            algorithm: self.algorithm,
            issuer_name_der: self.certificate.subject().der(),
            this_update: NOT_BEFORE,
            next_update: NOT_AFTER,
            number,
            authority_key_id: self.certificate.subject_key_id().unwrap(),
            entries,
        };
        let der = sign(self.key, self.algorithm, &template.to_be_signed().unwrap());
        Crl::parse(&der).unwrap()
    }
}

fn sign(key: &Key, algorithm: SignatureAlgorithm, tbs: &[u8]) -> Vec<u8> {
    let signature = key.sign(tbs);
    countersign_pki::verify(algorithm, key.spki_der(), tbs, &signature).unwrap();
    seal(tbs, algorithm, &signature).unwrap()
}
