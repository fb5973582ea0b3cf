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
