//! Requests that other programs made: OpenSSL 3.0, Java's keytool, Go's crypto/x509.

use super::{Specimen, bad_pem, good_pem};

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("../../zoo/", $name, ".pem"))
    };
}

pub(super) fn specimens() -> Vec<Specimen> {
    let weak_key = "weak key";
    let weak_signature = "weak signature";
    vec![
        good_pem("openssl with many extensions", file!("openssl-full")),
        good_pem(
            "openssl with challenge password as IA5String",
            file!("openssl-challenge"),
        ),
        good_pem(
            "openssl with dump before the block",
            file!("openssl-with-text"),
        ),
        good_pem("openssl RSA SHA-384", file!("openssl-sha384")),
        good_pem("openssl RSA SHA-512", file!("openssl-sha512")),
        good_pem("openssl RSA 8192", file!("openssl-rsa8192")),
        good_pem("openssl PSS SHA-256", file!("openssl-pss-digest-salt")),
        good_pem("openssl PSS SHA-512", file!("openssl-pss-sha512")),
        good_pem("openssl P-256 SHA-256", file!("openssl-p256-sha256")),
        good_pem("openssl P-256 SHA-384", file!("openssl-p256-sha384")),
        good_pem("openssl P-256 SHA-512", file!("openssl-p256-sha512")),
        good_pem("openssl P-384 SHA-256", file!("openssl-p384-sha256")),
        good_pem("openssl P-384 SHA-384", file!("openssl-p384-sha384")),
        good_pem("openssl P-384 SHA-512", file!("openssl-p384-sha512")),
        good_pem("openssl P-521 SHA-256", file!("openssl-p521-sha256")),
        good_pem("openssl P-521 SHA-384", file!("openssl-p521-sha384")),
        good_pem("openssl P-521 SHA-512", file!("openssl-p521-sha512")),
        good_pem("openssl Ed25519", file!("openssl-ed25519")),
        good_pem("keytool RSA, NEW label, CRLF", file!("keytool-rsa")),
        good_pem("keytool EC with names", file!("keytool-ec")),
        good_pem("go kubelet client", file!("go-kubelet-client")),
        good_pem("go kubelet serving", file!("go-kubelet-serving")),
        good_pem(
            "go PSS SHA-384 with several organizations",
            file!("go-rsa-pss"),
        ),
        good_pem(
            "go empty subject with a name",
            file!("go-ed25519-empty-subject"),
        ),
        bad_pem(
            "openssl PSS with its default salt",
            "salt is not as long as the hash",
            file!("openssl-pss-default-salt"),
        ),
        bad_pem(
            "openssl PSS SHA-1",
            weak_signature,
            file!("openssl-pss-sha1"),
        ),
        bad_pem(
            "openssl RSA SHA-1",
            weak_signature,
            file!("openssl-rsa-sha1"),
        ),
        bad_pem("openssl RSA MD5", weak_signature, file!("openssl-rsa-md5")),
        bad_pem(
            "openssl ECDSA SHA-1",
            weak_signature,
            file!("openssl-ecdsa-sha1"),
        ),
        bad_pem(
            "openssl ECDSA SHA-224",
            weak_signature,
            file!("openssl-ecdsa-sha224"),
        ),
        bad_pem(
            "openssl RSA 1024",
            "weak key: RSA with 1024 bits",
            file!("openssl-rsa1024"),
        ),
        bad_pem("openssl DSA", weak_key, file!("openssl-dsa")),
        bad_pem(
            "openssl Ed448",
            "subjectPublicKeyInfo.algorithm 1.3.101.113 is not supported",
            file!("openssl-ed448"),
        ),
        bad_pem(
            "openssl secp256k1",
            "curve 1.3.132.0.10 is not supported",
            file!("openssl-secp256k1"),
        ),
        bad_pem(
            "openssl P-224",
            "curve 1.3.132.0.33 is not supported",
            file!("openssl-p224"),
        ),
        bad_pem(
            "openssl curve written out",
            "the curve is not named",
            file!("openssl-explicit-curve"),
        ),
        bad_pem(
            "openssl compressed point",
            "not an uncompressed point",
            file!("openssl-compressed-point"),
        ),
        bad_pem(
            "openssl key restricted to PSS",
            "algorithm 1.2.840.113549.1.1.10 is not supported",
            file!("openssl-rsa-pss-key"),
        ),
    ]
}
