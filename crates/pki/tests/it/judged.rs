//! Requests that others have accepted and that are only judged here, and chains of certificates.

use std::net::IpAddr;

use countersign_pki::{
    AltName, Certificate, ChainFault, CheckedCsr, CsrFault, CsrLimits, KeyFault, Oid, UnixTime,
    VerifyFault, Weakness, oid, pem, verify_server_chain,
};
use countersign_testkit::chain::{Ca, Leaf};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use countersign_testkit::zoo::specimens;
use rstest::rstest;

const NOW: UnixTime = UnixTime(1_800_000_000);

/// RSA with 1024 bits, and RSA with 2048 bits and SHA-1, both made by OpenSSL.
const SHORT: &[u8] = include_bytes!("../data/rsa1024.csr.pem");
const SHA1: &[u8] = include_bytes!("../data/sha1.csr.pem");

#[test]
fn whatever_is_checked_is_judged_to_have_no_weakness() {
    let mut checked = 0;
    for specimen in specimens() {
        let text = specimen.to_pem();
        let Ok(strict) = CheckedCsr::from_pem(&text, &CsrLimits::STANDARD) else {
            continue;
        };
        let judged = CheckedCsr::judged(strict.der()).unwrap();
        assert_eq!(judged, strict, "{}", specimen.name);
        assert_eq!(judged.weaknesses(), []);
        checked += 1;
    }
    assert!(checked > 10, "{checked}");
}

/// What is read to be judged is never read as if it were good.
#[test]
fn whatever_is_only_judged_has_a_weakness() {
    for specimen in specimens() {
        let text = specimen.to_pem();
        let strict = CheckedCsr::from_pem(&text, &CsrLimits::READ_BACK);
        if let (Err(fault), Ok(judged)) = (strict, CheckedCsr::judged_pem(&text)) {
            let name = &specimen.name;
            assert!(judged.unsignable().is_some(), "{name}: {fault}");
        }
    }
}

/// The signature was verified when it came in; that anybody can make one with such a key is found again.
#[test]
fn a_weak_key_on_record_is_read_and_never_signed() {
    let csr = CsrBuilder::new("web01").public_key(keys::roca_spki_der());
    let stored = CheckedCsr::trusted_from_store(&csr.sign(keys::p256_a())).unwrap();
    assert_eq!(stored.unsignable(), Some(&Weakness::Key(KeyFault::Roca)));
}

#[rstest]
#[case(SHORT, Weakness::Key(KeyFault::WeakRsa { bits: 1024 }))]
#[case(SHA1, Weakness::Signature { algorithm: "SHA-1" })]
fn weak_requests_are_refused_strictly_and_judged_otherwise(
    #[case] text: &[u8],
    #[case] weakness: Weakness,
) {
    assert!(CheckedCsr::from_pem(text, &CsrLimits::STANDARD).is_err());
    let csr = CheckedCsr::judged_pem(text).unwrap();
    assert_eq!(csr.weaknesses(), [weakness]);
    assert_eq!(csr.unsignable(), Some(&weakness));
    let mut broken = csr.der().to_vec();
    *broken.last_mut().unwrap() ^= 1;
    let fault = CheckedCsr::judged(&broken).unwrap_err();
    assert!(fault.is_bad_signature(), "{fault}");
}

#[test]
fn an_empty_name_is_a_weakness() {
    for (tag, kind) in [(0x82, "dNSName"), (0x81, "rfc822Name")] {
        let build = CsrBuilder::new("a").dns("b").alt_name(tag, b"");
        let der = build.sign(keys::p256_a());
        let strict = CheckedCsr::check(&der, &CsrLimits::STANDARD);
        assert!(strict.is_err_and(|fault| fault.to_string().contains(kind)));
        let csr = CheckedCsr::judged(&der).unwrap();
        assert_eq!(csr.alt_names().len(), 2);
        assert_eq!(csr.weaknesses(), [Weakness::EmptyName]);
    }
}

#[test]
fn the_first_block_counts_and_others_are_noted() {
    let one = CsrBuilder::new("a").sign_pem(keys::p256_a());
    let key = pem::encode("X", &[1]);
    for (text, weaknesses) in [
        (one.clone(), &[][..]),
        (format!("words\n{one}\n"), &[]),
        (format!("{one}words"), &[Weakness::TextBehind]),
        (format!("{one}{one}"), &[Weakness::MoreBlocks]),
        (format!("{one}{key}"), &[Weakness::MoreBlocks]),
        (format!("{one}-----BEGIN broken"), &[Weakness::MoreBlocks]),
    ] {
        let csr = CheckedCsr::judged_pem(text.as_bytes()).unwrap();
        assert_eq!(csr.weaknesses(), weaknesses, "{text}");
        let harmless = matches!(weaknesses, [] | [Weakness::TextBehind]);
        assert_eq!(csr.unsignable().is_none(), harmless);
    }
    for (text, fault) in [
        (String::new(), CsrFault::NoPemBlock),
        (format!("{key}{one}"), CsrFault::OtherPemBlock),
        (
            one.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
            CsrFault::OtherPemBlock,
        ),
    ] {
        assert_eq!(CheckedCsr::judged_pem(text.as_bytes()), Err(fault));
    }
}

#[test]
fn a_signature_of_another_kind_is_still_refused() {
    let md5 = [
        0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04, 0x05, 0x00,
    ];
    let der = CsrBuilder::new("a")
        .algorithm(md5.to_vec())
        .sign(keys::rsa2048_a());
    let fault = CheckedCsr::judged(&der).unwrap_err();
    assert!(
        matches!(
            fault,
            CsrFault::Signature(VerifyFault::WeakSignature { .. })
        ),
        "{fault}"
    );
}

fn leaf(ca: &Ca, usage: Oid) -> Certificate {
    ca.leaf(&Leaf {
        common_name: "system:node:a",
        names: &[AltName::Ip([192, 0, 2, 1].into())],
        usage,
        key: keys::p256_c(),
        serial: 7,
        now: NOW,
    })
}

#[test]
fn a_chain_leads_to_an_anchor_or_is_refused() {
    let root = Ca::root("root", keys::p256_a(), NOW);
    let other = Ca::root("root", keys::p256_b(), NOW);
    let below = root.below("below", keys::p256_d(), 2, NOW);
    let server = leaf(&root, oid::EKU_SERVER_AUTH);
    let deep = leaf(&below, oid::EKU_SERVER_AUTH);
    let client = leaf(&root, oid::EKU_CLIENT_AUTH);
    let (roots, others) = ([root.certificate.clone()], [other.certificate.clone()]);
    let both = [other.certificate.clone(), root.certificate.clone()];
    let between = [below.certificate.clone()];
    let own: IpAddr = [192, 0, 2, 1].into();
    let elsewhere: IpAddr = [192, 0, 2, 2].into();
    let years = 30 * 365 * 86_400;
    let (from, to) = (server.not_before(), server.not_after());
    for (case, certificate, above, anchors, address, now, expected) in [
        (
            "direct",
            &server,
            &[][..],
            &roots[..],
            Some(own),
            NOW,
            Ok(()),
        ),
        ("no address asked", &server, &[], &roots, None, NOW, Ok(())),
        ("two of one name", &server, &[], &both, None, NOW, Ok(())),
        (
            "by another",
            &deep,
            &between,
            &roots,
            Some(own),
            NOW,
            Ok(()),
        ),
        (
            "the leaf itself",
            &server,
            &[],
            std::slice::from_ref(&server),
            None,
            NOW,
            Ok(()),
        ),
        ("the last second", &server, &[], &roots, None, to, Ok(())),
        (
            "mapped",
            &server,
            &[],
            &roots,
            Some("::ffff:192.0.2.1".parse().unwrap()),
            NOW,
            Ok(()),
        ),
        (
            "nobody",
            &server,
            &[],
            &[],
            None,
            NOW,
            Err(ChainFault::Issuer),
        ),
        (
            "of the same name",
            &server,
            &[],
            &others,
            None,
            NOW,
            Err(ChainFault::Issuer),
        ),
        (
            "not sent",
            &deep,
            &[],
            &roots,
            None,
            NOW,
            Err(ChainFault::Issuer),
        ),
        (
            "client",
            &client,
            &[],
            &roots,
            None,
            NOW,
            Err(ChainFault::Usage),
        ),
        (
            "elsewhere",
            &server,
            &[],
            &roots,
            Some(elsewhere),
            NOW,
            Err(ChainFault::Address { address: elsewhere }),
        ),
        (
            "over",
            &server,
            &[],
            &roots,
            None,
            NOW.plus_seconds(years),
            Err(ChainFault::Time { from, to }),
        ),
        (
            "not begun",
            &server,
            &[],
            &roots,
            None,
            from.minus_seconds(1),
            Err(ChainFault::Time { from, to }),
        ),
        (
            "a leaf is no authority",
            &deep,
            std::slice::from_ref(&server),
            &roots,
            None,
            NOW,
            Err(ChainFault::Issuer),
        ),
    ] {
        let found = verify_server_chain(certificate, above, anchors, address, now);
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn a_bundle_of_one_name_costs_little() {
    let other = Ca::root("root", keys::p256_b(), NOW);
    let server = leaf(&Ca::root("root", keys::p256_a(), NOW), oid::EKU_SERVER_AUTH);
    let many: Vec<Certificate> = vec![other.certificate; 200];
    let found = verify_server_chain(&server, &[], &many, None, NOW);
    assert_eq!(found, Err(ChainFault::Tangled));
}
