//! Public keys that must be refused.

use countersign_pki::{Oid, oid};

use super::{Specimen, bad, key, new};
use crate::der;
use crate::keys;

pub(super) fn specimens() -> Vec<Specimen> {
    let with_key = |spki: Vec<u8>| new().public_key(spki).sign(key());
    let rsa_algorithm = der::seq(&[&der::oid(&oid::RSA_ENCRYPTION), &[5, 0]]);
    let rsa = |modulus: &[u8], exponent: &[u8]| {
        let public = der::seq(&[&der::tlv(2, modulus), &der::tlv(2, exponent)]);
        with_key(der::seq(&[&rsa_algorithm, &der::bits(&public)]))
    };
    let modulus = |octets: usize, last: u8| {
        let mut magnitude = vec![0, 0x80];
        magnitude.resize(octets, 0x11);
        magnitude.push(last);
        magnitude
    };
    let f4 = [1, 0, 1];
    let p256 = der::seq(&[&der::oid(&oid::EC_PUBLIC_KEY), &der::oid(&oid::P256)]);
    let ed25519 = der::seq(&[&der::oid(&oid::ED25519)]);
    vec![
        bad(
            "RSA with 2040 bits",
            "weak key: RSA with 2040 bits",
            rsa(&modulus(255, 1), &f4),
        ),
        bad(
            "RSA with 8200 bits",
            "RSA key with 8200 bits",
            rsa(&modulus(1025, 1), &f4),
        ),
        bad(
            "RSA modulus even",
            "RSA modulus is even",
            rsa(&modulus(256, 2), &f4),
        ),
        bad(
            "RSA modulus negative",
            "modulus is a negative integer",
            rsa(&[0x80, 1], &f4),
        ),
        bad(
            "RSA modulus zero",
            "weak key: RSA with 0 bits",
            rsa(&[0], &f4),
        ),
        bad(
            "RSA exponent 1",
            "RSA public exponent",
            rsa(&modulus(256, 1), &[1]),
        ),
        bad(
            "RSA exponent even",
            "RSA public exponent",
            rsa(&modulus(256, 1), &[4]),
        ),
        bad(
            "RSA exponent zero",
            "RSA public exponent",
            rsa(&modulus(256, 1), &[0]),
        ),
        bad(
            "RSA exponent of 2048 bits",
            "RSA public exponent",
            rsa(&modulus(256, 1), &modulus(256, 1)),
        ),
        bad(
            "RSA key without exponent",
            "publicExponent ends too early",
            with_key(der::seq(&[
                &rsa_algorithm,
                &der::bits(&der::seq(&[&der::tlv(2, &modulus(256, 1))])),
            ])),
        ),
        bad(
            "RSA algorithm without NULL",
            "subjectPublicKeyInfo.algorithm.parameters ends too early",
            with_key(der::seq(&[
                &der::seq(&[&der::oid(&oid::RSA_ENCRYPTION)]),
                &der::bits(&[]),
            ])),
        ),
        bad(
            "RSA modulus with a small factor",
            "weak key: RSA modulus can be divided by 3",
            rsa(&modulus(256, 3), &f4),
        ),
        bad(
            "EC base point",
            "weak key: the EC key is the base point",
            with_key(der::seq(&[&p256, &der::bits(&P256_BASE)])),
        ),
        bad(
            "EC point off its curve",
            "signature does not verify",
            new()
                .public_key(der::seq(&[
                    &p256,
                    &der::bits(&[&[4][..], &[0x11; 64]].concat()),
                ]))
                .sign(keys::p256_a()),
        ),
        bad(
            "EC point at infinity",
            "not an uncompressed point",
            with_key(der::seq(&[&p256, &der::bits(&[0])])),
        ),
        bad(
            "EC point of another curve's length",
            "not an uncompressed point",
            with_key(der::seq(&[
                &p256,
                &der::bits(&[&[4][..], &[1; 96]].concat()),
            ])),
        ),
        bad(
            "EC key without curve",
            "subjectPublicKeyInfo.algorithm.parameters ends too early",
            with_key(der::seq(&[
                &der::seq(&[&der::oid(&oid::EC_PUBLIC_KEY)]),
                &der::bits(&[4]),
            ])),
        ),
        bad(
            "Ed25519 key of 31 octets",
            "not an Ed25519 key",
            with_key(der::seq(&[&ed25519, &der::bits(&[7; 31])])),
        ),
        bad(
            "Ed25519 with parameters",
            "parameters must be absent",
            with_key(der::seq(&[
                &der::seq(&[&der::oid(&oid::ED25519), &[5, 0]]),
                &der::bits(&[7; 32]),
            ])),
        ),
        bad(
            "key with unused bits",
            "subjectPublicKeyInfo.subjectPublicKey is a bit string with unused bits",
            with_key(der::seq(&[&ed25519, &der::tlv(3, &[1, 2, 4])])),
        ),
        bad(
            "key with a field too many",
            "subjectPublicKeyInfo is followed by extra bytes",
            with_key(der::seq(&[&ed25519, &der::bits(&[7; 32]), &[5, 0]])),
        ),
        bad(
            "key of an unknown algorithm",
            "subjectPublicKeyInfo.algorithm 1.2.3 is not supported",
            with_key(der::seq(&[
                &der::seq(&[&der::oid(&Oid::from_arcs(&[1, 2, 3]))]),
                &der::bits(&[7]),
            ])),
        ),
    ]
}

/// The point whose private key is one (FIPS 186-4 D.1.2.3).
const P256_BASE: [u8; 65] = [
    0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40,
    0xf2, 0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2,
    0x96, 0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e,
    0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51,
    0xf5,
];
