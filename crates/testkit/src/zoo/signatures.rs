//! Signatures that must be refused.

use countersign_pki::{Oid, oid};

use super::{Specimen, bad, bad_pem, key, new};
use crate::csr::{SignatureFlaw, SignatureRewrite};
use crate::der;
use crate::keys::{self, SigningScheme, pss_algorithm};

/// What `zoo/forged.py` made.
macro_rules! forged {
    ($name:literal) => {
        include_str!(concat!("../../zoo/forged-", $name, ".pem"))
    };
}

pub(super) fn specimens() -> Vec<Specimen> {
    [flawed(), malformed_numbers(), forged()].concat()
}

fn flawed() -> Vec<Specimen> {
    let null = [5, 0];
    vec![
        bad(
            "signature with one bit flipped",
            "signature does not verify",
            new().flaw(SignatureFlaw::FlippedBit).sign(key()),
        ),
        bad(
            "RSA signature with one bit flipped",
            "signature does not verify",
            new()
                .flaw(SignatureFlaw::FlippedBit)
                .sign(keys::rsa2048_a()),
        ),
        bad(
            "ECDSA signature with one bit flipped",
            "signature does not verify",
            new().flaw(SignatureFlaw::FlippedBit).sign(keys::p384()),
        ),
        bad(
            "signature with unused bits",
            "signature is a bit string with unused bits",
            new().flaw(SignatureFlaw::UnusedBits).sign(key()),
        ),
        bad(
            "signature empty",
            "signature is not a DER bit string",
            new().flaw(SignatureFlaw::Empty).sign(key()),
        ),
        bad(
            "signed by another key",
            "signature does not verify",
            new()
                .public_key(keys::p256_b().spki_der().to_vec())
                .sign(keys::p256_a()),
        ),
        bad(
            "signed by a key of another kind",
            "signatureAlgorithm does not fit the public key",
            new()
                .public_key(keys::rsa2048_a().spki_der().to_vec())
                .sign(key()),
        ),
        bad(
            "algorithm of another hash",
            "signature does not verify",
            new()
                .algorithm(SigningScheme::RsaPkcs1Sha512.algorithm_der())
                .sign(keys::rsa2048_a()),
        ),
        bad(
            "PSS signature named PKCS#1",
            "signature does not verify",
            new()
                .scheme(SigningScheme::RsaPssSha256)
                .algorithm(SigningScheme::RsaPkcs1Sha256.algorithm_der())
                .sign(keys::rsa2048_a()),
        ),
        bad(
            "unknown signature algorithm",
            "signatureAlgorithm 1.2.3 is not supported",
            new()
                .algorithm(der::seq(&[&der::oid(&Oid::from_arcs(&[1, 2, 3]))]))
                .sign(key()),
        ),
        bad(
            "ECDSA with NULL parameters",
            "signatureAlgorithm.parameters: must be absent",
            new()
                .algorithm(der::seq(&[&der::oid(&oid::ECDSA_WITH_SHA256), &null]))
                .sign(keys::p256_a()),
        ),
        bad(
            "Ed25519 with NULL parameters",
            "signatureAlgorithm.parameters: must be absent",
            new()
                .algorithm(der::seq(&[&der::oid(&oid::ED25519), &null]))
                .sign(key()),
        ),
        bad(
            "PKCS#1 with odd parameters",
            "signatureAlgorithm.parameters: must be NULL",
            new()
                .algorithm(der::seq(&[&der::oid(&oid::SHA256_WITH_RSA), &[4, 0]]))
                .sign(keys::rsa2048_a()),
        ),
        bad(
            "algorithm with a field too many",
            "signatureAlgorithm is followed by extra bytes",
            new()
                .algorithm(der::seq(&[&der::oid(&oid::SHA256_WITH_RSA), &null, &null]))
                .sign(keys::rsa2048_a()),
        ),
        bad(
            "PSS without parameters",
            "RSASSA-PSS needs them",
            new()
                .algorithm(der::seq(&[&der::oid(&oid::RSASSA_PSS)]))
                .sign(keys::rsa2048_a()),
        ),
        bad(
            "PSS with default parameters",
            "weak signature: RSASSA-PSS with SHA-1",
            new()
                .algorithm(der::seq(&[&der::oid(&oid::RSASSA_PSS), &[0x30, 0]]))
                .sign(keys::rsa2048_a()),
        ),
        bad(
            "PSS with two hashes",
            "hash and mask generation hash differ",
            new()
                .scheme(SigningScheme::RsaPssSha256)
                .algorithm(pss_algorithm(&oid::SHA256, &oid::SHA384, 32))
                .sign(keys::rsa2048_a()),
        ),
        bad(
            "PSS with a salt of 20",
            "salt is not as long as the hash",
            new()
                .scheme(SigningScheme::RsaPssSha256)
                .algorithm(pss_algorithm(&oid::SHA256, &oid::SHA256, 20))
                .sign(keys::rsa2048_a()),
        ),
        bad(
            "secp256k1 key and signature",
            "curve 1.3.132.0.10 is not supported",
            new().sign(keys::secp256k1()),
        ),
    ]
}

/// Good signatures, spelt otherwise or with other numbers of the same residue: many implementations have believed them
/// (Wycheproof).
fn malformed_numbers() -> Vec<Specimen> {
    let rewritten: [(&'static str, SignatureRewrite); 12] = [
        ("ECDSA with r and s zero", |_| ecdsa(&[0], &[0])),
        ("ECDSA with r zero", |good| ecdsa(&[0], &parts(good).1)),
        ("ECDSA with s zero", |good| ecdsa(&parts(good).0, &[0])),
        ("ECDSA with r and s the order", |_| {
            let order = sum(&[0], &P256_ORDER);
            ecdsa(&order, &order)
        }),
        ("ECDSA with r above the order", |good| {
            let (r, s) = parts(good);
            ecdsa(&sum(&r, &P256_ORDER), &s)
        }),
        ("ECDSA with s above the order", |good| {
            let (r, s) = parts(good);
            ecdsa(&r, &sum(&s, &P256_ORDER))
        }),
        ("ECDSA with a padded r", |good| {
            let (r, s) = parts(good);
            ecdsa(&[&[0], r.as_slice()].concat(), &s)
        }),
        ("ECDSA with a padded s", |good| {
            let (r, s) = parts(good);
            ecdsa(&r, &[&[0], s.as_slice()].concat())
        }),
        ("ECDSA with a length of too many octets", |good| {
            let content = good.split_at(2).1;
            let length = u8::try_from(content.len()).unwrap_or(0x7f);
            [&[0x30, 0x81, length], content].concat()
        }),
        ("ECDSA with an indefinite length", |good| {
            [&[0x30, 0x80], good.split_at(2).1, &[0, 0]].concat()
        }),
        ("ECDSA followed by an octet", |good| [good, &[0]].concat()),
        ("ECDSA with a third number", |good| {
            let (r, s) = parts(good);
            let [r, s] = [r, s].map(|number| der::tlv(0x02, &number));
            der::seq(&[&r, &s, &der::small_integer(0)])
        }),
    ];
    let refused = rewritten.map(|(name, rewrite)| {
        let request = new().rewrite_signature(rewrite).sign(keys::p256_a());
        bad(name, "signature does not verify", request)
    });
    let scalar = |good: &[u8]| {
        let (commitment, answer) = good.split_at(32);
        let answer: Vec<u8> = answer.iter().rev().copied().collect();
        let mut more = sum(&answer, &ED25519_ORDER).split_off(1);
        more.reverse();
        [commitment, &more].concat()
    };
    let request = new().rewrite_signature(scalar).sign(key());
    let scalar = bad(
        "Ed25519 with S above the order",
        "signature does not verify",
        request,
    );
    [refused.to_vec(), vec![scalar]].concat()
}

/// Each is believed by a verifier that leaves out a check.
fn forged() -> Vec<Specimen> {
    [
        ("PKCS#1 without NULL", forged!("rsa-without-null")),
        (
            "PKCS#1 with octets behind the digest",
            forged!("rsa-trailing"),
        ),
        (
            "PKCS#1 with octets in the parameters",
            forged!("rsa-odd-parameters"),
        ),
        ("PKCS#1 by the root of a cube", forged!("rsa-cube-root")),
        (
            "Ed25519 with R of order eight",
            forged!("ed25519-order-eight"),
        ),
        (
            "Ed25519 with R not canonical",
            forged!("ed25519-not-canonical"),
        ),
    ]
    .map(|(name, pem)| bad_pem(name, "signature does not verify", pem))
    .to_vec()
}

/// The contents of the two integers of a good signature.
fn parts(good: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let numbers = good.split_at(2).1;
    let number = |at: &[u8]| {
        let (head, rest) = at.split_at(2);
        let (number, rest) = rest.split_at(head.last().copied().unwrap_or_default().into());
        (number.to_vec(), rest.to_vec())
    };
    let (r, rest) = number(numbers);
    (r, number(&rest).0)
}

/// A signature of these contents of integers.
fn ecdsa(r: &[u8], s: &[u8]) -> Vec<u8> {
    der::seq(&[&der::tlv(0x02, r), &der::tlv(0x02, s)])
}

/// The sum with a number of 32 octets, as the content of an integer: most significant octet first.
fn sum(number: &[u8], order: &[u8; 32]) -> Vec<u8> {
    let number = number.iter().rev().chain(std::iter::repeat(&0));
    let order = order.iter().rev().chain([&0]);
    let mut carry = 0;
    let mut sum: Vec<u8> = Vec::new();
    for (a, b) in number.zip(order) {
        let [low, high] = (u16::from(*a) + u16::from(*b) + carry).to_le_bytes();
        sum.push(low);
        carry = high.into();
    }
    sum.reverse();
    sum
}

/// The order of the base point of P-256 (FIPS 186-4 D.1.2.3).
const P256_ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];
/// The order of the base point of Ed25519 (RFC 8032 5.1), most significant octet first.
const ED25519_ORDER: [u8; 32] = [
    0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x14, 0xde, 0xf9, 0xde, 0xa2, 0xf7, 0x9c, 0xd6, 0x58, 0x12, 0x63, 0x1a, 0x5c, 0xf5, 0xd3, 0xed,
];
