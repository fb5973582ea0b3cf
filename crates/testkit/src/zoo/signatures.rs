//! Signatures that must be refused.

use countersign_pki::{Oid, oid};

use super::{Specimen, bad, key, new};
use crate::csr::SignatureFlaw;
use crate::der;
use crate::keys::{self, SigningScheme, pss_algorithm};

pub(super) fn specimens() -> Vec<Specimen> {
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
