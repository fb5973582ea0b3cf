//! Reading, verifying and encoding, one request at a time.
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use countersign_pki::{
    AltName, CertificateTemplate, CheckedCsr, CrlTemplate, CsrLimits, KeyUsage, RevocationReason,
    RevokedEntry, Serial, SignatureAlgorithm, SubjectBuilder, UnixTime, ext, oid,
};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn reading(c: &mut Criterion) {
    let builder = CsrBuilder::new("web01.example.com")
        .challenge_password("ott1.abc_DEF-123")
        .extension(&oid::PP_PRESHARED_KEY, "ab_1")
        .dns("web01.example.com");
    let p256 = builder.sign(keys::p256_a());
    let rsa = builder.sign(keys::rsa2048_a());
    c.bench_function("parse without verification", |b| {
        b.iter(|| CheckedCsr::trusted_from_store(black_box(&p256)).unwrap());
    });
    c.bench_function("parse and verify P-256", |b| {
        b.iter(|| CheckedCsr::check(black_box(&p256), &CsrLimits::STANDARD).unwrap());
    });
    c.bench_function("parse and verify RSA 2048", |b| {
        b.iter(|| CheckedCsr::check(black_box(&rsa), &CsrLimits::STANDARD).unwrap());
    });
}

fn encoding(c: &mut Criterion) {
    let issuer = SubjectBuilder::utf8_common_name("Test CA");
    let spki = keys::p256_a().spki_der();
    c.bench_function("encode an agent certificate", |b| {
        b.iter(|| {
            let subject = SubjectBuilder::utf8_common_name("web01.example.com");
            let extensions = [
                ext::authority_key_id(&[7; 20]),
                ext::subject_key_id(spki).unwrap(),
                ext::subject_alt_name(&[AltName::Dns("web01.example.com".to_owned())], false),
                ext::basic_constraints_leaf(),
                ext::extended_key_usage(&[oid::EKU_SERVER_AUTH, oid::EKU_CLIENT_AUTH]),
                ext::key_usage(KeyUsage::DIGITAL_SIGNATURE),
            ];
            let template = CertificateTemplate {
                serial: Serial::random_from([7; 16]),
                algorithm: SignatureAlgorithm::EcdsaP256Sha256,
                issuer_name_der: &issuer,
                not_before: UnixTime(1_767_225_600),
                not_after: UnixTime(1_924_992_000),
                subject_der: &subject,
                spki_der: spki,
                extensions: &extensions,
            };
            template.to_be_signed().unwrap()
        });
    });
    let entries: Vec<RevokedEntry> = (1..=100_000)
        .map(|n| RevokedEntry {
            serial: Serial::try_from(n).unwrap(),
            at: UnixTime(1_767_225_600),
            reason: RevocationReason::KeyCompromise,
        })
        .collect();
    c.bench_function("encode a list of 100 000", |b| {
        b.iter(|| {
            let template = CrlTemplate {
                algorithm: SignatureAlgorithm::EcdsaP256Sha256,
                issuer_name_der: &issuer,
                this_update: UnixTime(1_767_225_600),
                next_update: UnixTime(1_924_992_000),
                number: 1,
                authority_key_id: &[7; 20],
                entries: &entries,
            };
            template.to_be_signed().unwrap()
        });
    });
}

criterion_group!(benches, reading, encoding);
criterion_main!(benches);
