//! What we encode is what we read, for any values.

use countersign_pki::{
    AltName, CertFault, Certificate, CertificateOutline, CertificateTemplate, CheckedCsr, Crl,
    CrlTemplate, CsrLimits, Oid, RevocationReason, RevokedEntry, Serial, SignatureAlgorithm,
    SubjectBuilder, UnixTime, VerifyFault, ext, oid, seal,
};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use proptest::prelude::*;

use crate::authority::Issuer;

#[test]
fn certificate_says_what_the_template_said() {
    for issuer in Issuer::all() {
        let leaf = issuer.issue(
            Serial::try_from(5).unwrap(),
            "web01",
            keys::p384().spki_der(),
        );
        leaf.verify_signed_by(issuer.certificate.spki_der())
            .unwrap();
        issuer
            .certificate
            .verify_signed_by(issuer.certificate.spki_der())
            .unwrap();
        assert_eq!(leaf.issuer(), issuer.certificate.subject());
        assert_eq!(leaf.authority_key_id(), issuer.certificate.subject_key_id());
        assert_eq!(leaf.subject().to_string(), "CN=web01");
        assert_eq!(leaf.spki_der(), keys::p384().spki_der());
        assert_eq!(
            leaf.extended_key_usages(),
            [oid::EKU_SERVER_AUTH, oid::EKU_CLIENT_AUTH]
        );
        assert_eq!(
            leaf.extension(&oid::PP_PRESHARED_KEY)
                .unwrap()
                .text_value()
                .as_deref(),
            Some("ab_1")
        );
        assert!(!leaf.is_ca() && issuer.certificate.is_ca());
        assert!(issuer.certificate.is_self_issued() && !leaf.is_self_issued());
    }
}

#[test]
fn certificates_in_a_row_are_told_apart() {
    let issuer = Issuer::all().into_iter().next().unwrap();
    let spki = keys::p256_a().spki_der();
    let leaves = [5, 6, 7].map(|n| issuer.issue(Serial::try_from(n).unwrap(), "web01", spki));
    let row: Vec<u8> = leaves.iter().flat_map(|leaf| leaf.der().to_vec()).collect();
    let outlines = leaves.iter().map(|leaf| CertificateOutline {
        not_before: leaf.not_before(),
        not_after: leaf.not_after(),
        fingerprint: leaf.fingerprint(),
    });
    let outlines: Vec<_> = outlines.collect();
    assert_eq!(CertificateOutline::read_all(&row, 3), Ok(outlines));
    assert_eq!(CertificateOutline::read_all(&[], 3), Ok(Vec::new()));
    assert_eq!(
        CertificateOutline::read_all(&row, 2),
        Err(CertFault::TooMany { limit: 2 })
    );
    for cut in 1..row.len() {
        let is_whole = leaves.iter().scan(0, |end, leaf| {
            *end += leaf.der().len();
            Some(*end)
        });
        let is_whole = is_whole.into_iter().any(|end| end == cut);
        let read = CertificateOutline::read_all(row.split_at(cut).0, 3);
        assert_eq!(read.is_ok(), is_whole, "{cut}");
    }
}

#[test]
fn another_key_of_the_same_kind_verifies_nothing() {
    let issuer = Issuer::new(keys::p256_a());
    let leaf = issuer.issue(
        Serial::try_from(5).unwrap(),
        "web01",
        keys::p384().spki_der(),
    );
    let fault = leaf.verify_signed_by(keys::p256_b().spki_der());
    assert_eq!(fault, Err(VerifyFault::BadSignature));
    let fault = leaf.verify_signed_by(keys::rsa2048_a().spki_der());
    assert_eq!(fault, Err(VerifyFault::KeyMismatch));
    let weak = leaf.verify_signed_by(keys::rsa1024().spki_der());
    assert!(matches!(weak, Err(VerifyFault::Key(_))));
    let crl = issuer.revoke(1, &[]);
    assert_eq!(crl.verify_signed_by(keys::p256_a().spki_der()), Ok(()));
    assert_eq!(
        crl.verify_signed_by(keys::p256_b().spki_der()),
        Err(VerifyFault::BadSignature)
    );
}

#[test]
fn only_suitable_keys_become_issuers() {
    for key in [
        keys::rsa1024(),
        keys::rsa8192(),
        keys::p521(),
        keys::secp256k1(),
        keys::ed448(),
        keys::dsa2048(),
    ] {
        assert!(
            SignatureAlgorithm::for_issuer_key(key.spki_der()).is_err(),
            "{}",
            key.name()
        );
    }
}

#[test]
fn hundred_thousand_entries_are_linear() {
    let entries: Vec<RevokedEntry> = (1..=100_000_u64).map(|n| entry(n * n, 1)).collect();
    let crl = Issuer::new(keys::p256_a()).revoke(u64::MAX, &entries);
    assert_eq!(crl.entries(), entries);
    assert_eq!(crl.number(), Some(u64::MAX));
    // 100 000 entries of about 40 octets; quadratic work would show as a test that does not end.
    assert!(crl.der().len() < 6_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn requests_round_trip(
        name in "[a-z0-9_.*@ é-]{1,40}",
        dns in prop::collection::vec("[a-z0-9_.*-]{1,30}", 0..6),
        password in "[!-~]{1,64}",
        value in "\\PC{0,40}",
        arc in any::<u32>(),
    ) {
        let kind = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 2, arc]);
        let mut builder = CsrBuilder::new(&name).challenge_password(&password).extension(&kind, &value);
        for dns in &dns {
            builder = builder.dns(dns);
        }
        let der = builder.sign(keys::ed25519());
        let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
        prop_assert_eq!(csr.der(), der);
        prop_assert_eq!(csr.subject().first_common_name(), Some(name.as_str()));
        let read: Vec<AltName> = dns.into_iter().map(AltName::Dns).collect();
        prop_assert_eq!(csr.alt_names(), read);
        let attribute = csr.attributes_of(&oid::CHALLENGE_PASSWORD).next().unwrap();
        prop_assert_eq!(attribute.values[0].text(), Some(password));
        prop_assert_eq!(csr.extension(&kind).unwrap().text_value(), Some(value));
    }

    #[test]
    fn certificates_round_trip(
        serial in prop::array::uniform16(any::<u8>()),
        from in -631_152_000_i64..253_000_000_000,
        seconds in 0_i64..300_000_000,
        name in "\\PC{1,40}",
        names in prop::collection::vec(alt_name(), 1..6),
    ) {
        let issuer = SubjectBuilder::utf8_common_name("CA");
        let subject = SubjectBuilder::utf8_common_name(&name);
        let extensions = [ext::subject_alt_name(&names, true)];
        let template = CertificateTemplate {
            serial: Serial::random_from(serial),
            algorithm: SignatureAlgorithm::Ed25519,
            issuer_name_der: &issuer,
            not_before: UnixTime(from),
            not_after: UnixTime(from + seconds),
            subject_der: &subject,
            spki_der: keys::ed25519().spki_der(),
            extensions: &extensions,
        };
        let tbs = template.to_be_signed().unwrap();
        let der = seal(&tbs, template.algorithm, &keys::ed25519().sign(&tbs)).unwrap();
        let read = Certificate::parse(&der).unwrap();
        prop_assert_eq!(read.verify_signed_by(keys::ed25519().spki_der()), Ok(()));
        prop_assert_eq!(read.serial(), template.serial);
        prop_assert_eq!((read.not_before(), read.not_after()), (template.not_before, template.not_after));
        prop_assert_eq!(read.subject().first_common_name(), Some(name.as_str()));
        prop_assert_eq!(read.alt_names(), names);
        prop_assert_eq!(read.extensions(), extensions);
    }

    #[test]
    fn lists_round_trip(
        number: u64,
        entries in prop::collection::vec((1_u64.., 0_u8..11), 0..20),
    ) {
        let entries: Vec<RevokedEntry> = entries.into_iter().map(|(n, code)| entry(n, code)).collect();
        let issuer = SubjectBuilder::utf8_common_name("CA");
        let template = CrlTemplate {
            algorithm: SignatureAlgorithm::Ed25519,
            issuer_name_der: &issuer,
            this_update: UnixTime(1),
            next_update: UnixTime(2),
            number,
            authority_key_id: &[],
            entries: &entries,
        };
        let tbs = template.to_be_signed().unwrap();
        let der = seal(&tbs, template.algorithm, &keys::ed25519().sign(&tbs)).unwrap();
        let read = Crl::parse(&der).unwrap();
        prop_assert_eq!(read.verify_signed_by(keys::ed25519().spki_der()), Ok(()));
        prop_assert_eq!(read.entries(), entries);
        prop_assert_eq!(read.number(), Some(number));
        prop_assert_eq!(read.authority_key_id(), None);
        prop_assert_eq!((read.this_update(), read.next_update()), (UnixTime(1), Some(UnixTime(2))));
    }
}

fn entry(number: u64, code: u8) -> RevokedEntry {
    RevokedEntry {
        serial: Serial::try_from(number).unwrap(),
        at: UnixTime(1_767_225_600),
        reason: RevocationReason::from_code(code).unwrap_or(RevocationReason::Unspecified),
    }
}

fn alt_name() -> impl Strategy<Value = AltName> {
    prop_oneof![
        "[!-~]{1,40}".prop_map(AltName::Dns),
        "[!-~]{1,40}".prop_map(AltName::Email),
        "[!-~]{1,40}".prop_map(AltName::Uri),
        any::<std::net::IpAddr>().prop_map(AltName::Ip),
    ]
}
