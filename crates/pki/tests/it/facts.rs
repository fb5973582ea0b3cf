//! What is said about good requests.

use countersign_pki::{AltName, CheckedCsr, CsrLimits, Curve, KeyType, Oid, oid};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys::{self, Key};
use countersign_testkit::zoo::specimens;
use rstest::rstest;

fn specimen(name: &str) -> CheckedCsr {
    let specimen = specimens().into_iter().find(|s| s.name == name).unwrap();
    CheckedCsr::from_pem(&specimen.to_pem(), &CsrLimits::STANDARD).unwrap()
}

fn shown(names: &[AltName]) -> Vec<String> {
    names.iter().map(AltName::to_string).collect()
}

#[test]
fn puppet_agent_request() {
    let csr = specimen("puppet agent");
    assert_eq!(csr.subject().to_string(), "CN=web01.example.com");
    assert_eq!(csr.subject().first_common_name(), Some("web01.example.com"));
    assert_eq!(csr.public_key().key_type, KeyType::Rsa { bits: 2048 });
    let texts: Vec<(String, Option<String>)> = csr
        .attributes()
        .iter()
        .map(|a| (a.oid.to_string(), a.values[0].text()))
        .collect();
    assert_eq!(
        texts,
        [
            (
                "1.2.840.113549.1.9.7".to_owned(),
                Some("ott1.abc_DEF-123".to_owned())
            ),
            (
                "1.3.6.1.4.1.34380.1.2.1".to_owned(),
                Some("rack 7, row_3".to_owned())
            ),
            (
                "1.3.6.1.4.1.34380.1.3.2".to_owned(),
                Some("true".to_owned())
            ),
            ("1.2.840.113549.1.9.14".to_owned(), None),
        ]
    );
    let preshared = csr.extension(&oid::PP_PRESHARED_KEY).unwrap();
    assert_eq!(preshared.text_value().as_deref(), Some("ab_1"));
    assert_eq!(
        shown(csr.alt_names()),
        ["DNS:web01.example.com", "DNS:web01"]
    );
}

#[test]
fn openssl_request_with_everything() {
    let csr = specimen("openssl with many extensions");
    assert_eq!(
        csr.subject().to_string(),
        "emailAddress=ops@example.com,CN=web01.example.com,O=Example,C=DE"
    );
    assert_eq!(
        shown(csr.alt_names()),
        [
            "DNS:web01.example.com",
            "DNS:*.example.com",
            "IP:10.1.2.3",
            "IP:2001:db8::1",
            "email:ops@example.com",
            "URI:spiffe://example.com/web01"
        ]
    );
    let oids: Vec<Oid> = csr.extensions().iter().map(|e| e.oid).collect();
    assert_eq!(
        oids,
        [
            oid::BASIC_CONSTRAINTS,
            oid::KEY_USAGE,
            oid::SUBJECT_ALT_NAME
        ]
    );
}

#[test]
fn openssl_password_is_an_ia5_string() {
    let csr = specimen("openssl with challenge password as IA5String");
    let value = &csr
        .attributes_of(&oid::CHALLENGE_PASSWORD)
        .next()
        .unwrap()
        .values[0];
    assert_eq!(
        (value.tag(), value.text().as_deref()),
        (0x16, Some("A_secret@1"))
    );
}

#[test]
fn keytool_request_keeps_the_order_of_its_names() {
    let csr = specimen("keytool EC with names");
    assert_eq!(
        csr.subject().to_string(),
        "CN=web01.example.com,OU=Java,O=Example"
    );
    assert_eq!(
        shown(csr.alt_names()),
        ["DNS:web01.example.com", "IP:10.1.2.3"]
    );
}

#[test]
fn go_organizations_are_all_kept() {
    let csr = specimen("go PSS SHA-384 with several organizations");
    let organizations: Vec<&str> = csr.subject().organizations().collect();
    assert_eq!(organizations, ["a", "b"]); // Go sorted the set when it wrote
    assert_eq!(csr.subject().rdns().len(), 3);
}

#[test]
fn every_common_name_is_kept_in_order() {
    let csr = specimen("three common names");
    let names: Vec<&str> = csr.subject().common_names().collect();
    assert_eq!(names, ["web01.example.com", "second", "third"]);
    assert_eq!(csr.subject().last_common_name(), Some("third"));
}

#[test]
fn microsoft_request_grants_nothing() {
    let csr = specimen("microsoft extension request is a mere attribute");
    assert!(csr.extensions().is_empty());
    assert_eq!(csr.attributes().len(), 1);
}

#[test]
fn the_same_key_has_the_same_fingerprint_in_different_requests() {
    let read = |der: &[u8]| CheckedCsr::check(der, &CsrLimits::STANDARD).unwrap();
    let one = read(&CsrBuilder::new("a").sign(keys::p256_a()));
    let two = read(&CsrBuilder::new("a").sign(keys::p256_a()));
    assert_ne!(one.fingerprint(), two.fingerprint());
    assert_eq!(one.key_fingerprint(), two.key_fingerprint());
    assert_eq!(one.spki_der(), keys::p256_a().spki_der());
}

#[rstest]
#[case(keys::rsa4096_a(), KeyType::Rsa { bits: 4096 }, "rsa", 4096)]
#[case(keys::p256_a(), KeyType::Ec(Curve::P256), "ec", 256)]
#[case(keys::p384(), KeyType::Ec(Curve::P384), "ec", 384)]
#[case(keys::p521(), KeyType::Ec(Curve::P521), "ec", 521)]
#[case(keys::ed25519(), KeyType::Ed25519, "ed25519", 256)]
fn facts_of_keys(
    #[case] key: &Key,
    #[case] key_type: KeyType,
    #[case] family: &str,
    #[case] bits: u32,
) {
    let csr = CheckedCsr::check(&CsrBuilder::new("a").sign(key), &CsrLimits::STANDARD).unwrap();
    let facts = csr.public_key();
    assert_eq!(
        (facts.key_type, facts.family(), facts.bits()),
        (key_type, family, bits)
    );
}

#[test]
fn stored_request_is_read_without_its_signature() {
    let flawed = CsrBuilder::new("a")
        .flaw(countersign_testkit::csr::SignatureFlaw::FlippedBit)
        .sign(keys::ed25519());
    let fault = CheckedCsr::check(&flawed, &CsrLimits::STANDARD).unwrap_err();
    assert!(fault.is_bad_signature());
    assert_eq!(
        CheckedCsr::trusted_from_store(&flawed).unwrap().der(),
        flawed
    );
}
