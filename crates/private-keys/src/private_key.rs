//! One private key of any kind that is signed with here.
//!
//! The key itself stays inside the cryptography library, which erases what it frees. The type has no
//! `Debug` and is not `Clone`, so a key cannot reach a log or be multiplied by accident.

use std::str::FromStr;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use countersign_pki::{SignatureAlgorithm, pem, verify};
use zeroize::Zeroizing;

/// Which kind of key to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySpec {
    /// ECDSA on P-256 with SHA-256: small, quick, understood by everything in use.
    #[default]
    P256,
    /// ECDSA on P-384 with SHA-384.
    P384,
    /// Ed25519 (RFC 8410); older agents and most browsers do not verify it.
    Ed25519,
    /// RSA of 2048 bits.
    Rsa2048,
    /// RSA of 3072 bits.
    Rsa3072,
    /// RSA of 4096 bits, what Puppet Server makes.
    Rsa4096,
}

impl KeySpec {
    /// Every kind, in the order of the documentation.
    pub const ALL: [KeySpec; 6] = [
        Self::P256,
        Self::P384,
        Self::Ed25519,
        Self::Rsa2048,
        Self::Rsa3072,
        Self::Rsa4096,
    ];

    /// The word that configuration uses for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::P384 => "p384",
            Self::Ed25519 => "ed25519",
            Self::Rsa2048 => "rsa2048",
            Self::Rsa3072 => "rsa3072",
            Self::Rsa4096 => "rsa4096",
        }
    }
}

impl FromStr for KeySpec {
    type Err = PrivateKeyFault;

    fn from_str(text: &str) -> Result<Self, PrivateKeyFault> {
        Self::ALL
            .into_iter()
            .find(|spec| spec.name() == text)
            .ok_or(PrivateKeyFault::UnknownSpec)
    }
}

/// Why a private key cannot be read, made or used. No variant carries key material.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrivateKeyFault {
    /// The text is not PEM.
    #[error("the key is not readable as PEM")]
    Pem {
        /// What is wrong with it.
        source: pem::PemFault,
    },
    /// No private key block in the text.
    #[error(
        "the text holds no private key (expected PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY)"
    )]
    Missing,
    /// More than one private key block; which one is meant is a guess.
    #[error("the text holds more than one private key")]
    Several,
    /// A passphrase protects the key, and nobody is there to type it.
    #[error("the private key is encrypted; store it decrypted, for example with `openssl pkey`")]
    Encrypted,
    /// Not a key of a supported kind, or damaged.
    #[error(
        "the private key is damaged or none of P-256, P-384, Ed25519, RSA of 2048 to 4096 bits"
    )]
    Unsupported,
    /// The key's own signature does not verify with its public half.
    #[error("the private key does not match its public key")]
    Mismatched,
    /// The form is for RSA keys, and this is one of another kind.
    #[error("the private key is not RSA")]
    NotRsa,
    /// The word names no kind of key.
    #[error("the kind of key is none of p256, p384, ed25519, rsa2048, rsa3072, rsa4096")]
    UnknownSpec,
    /// The library refused to work.
    #[error("the cryptography library failed")]
    Library,
}

/// A private key, its public half and the one algorithm it signs with.
pub struct PrivateKey {
    pair: Pair,
    algorithm: SignatureAlgorithm,
    spki_der: Vec<u8>,
}

impl PrivateKey {
    /// A fresh key. RSA takes seconds.
    ///
    /// # Errors
    /// If the library makes none.
    pub fn generate(spec: KeySpec) -> Result<Self, PrivateKeyFault> {
        let ec = |algorithm| EcdsaKeyPair::generate(algorithm).map(Pair::Ec);
        let rsa = |size| RsaKeyPair::generate(size).map(Pair::Rsa);
        let pair = match spec {
            KeySpec::P256 => ec(&ECDSA_P256_SHA256_ASN1_SIGNING),
            KeySpec::P384 => ec(&ECDSA_P384_SHA384_ASN1_SIGNING),
            KeySpec::Ed25519 => Ed25519KeyPair::generate().map(Pair::Ed25519),
            KeySpec::Rsa2048 => rsa(KeySize::Rsa2048),
            KeySpec::Rsa3072 => rsa(KeySize::Rsa3072),
            KeySpec::Rsa4096 => rsa(KeySize::Rsa4096),
        };
        Self::proven(pair.map_err(|_| PrivateKeyFault::Library)?)
    }

    /// Reads the one private key of a PEM text: PKCS#8 (RFC 5958), PKCS#1 (RFC 8017) or SEC 1 (RFC 5915). Blocks
    /// that hold no private key, such as the `EC PARAMETERS` that OpenSSL writes, are skipped.
    ///
    /// # Errors
    /// If the text does not hold exactly one usable, unencrypted key.
    pub fn from_pem(text: &[u8]) -> Result<Self, PrivateKeyFault> {
        let blocks =
            pem::decode_all(text, &KEY_LIMITS).map_err(|source| PrivateKeyFault::Pem { source })?;
        let blocks: Vec<_> = blocks
            .into_iter()
            .map(|b| (b.label, Zeroizing::new(b.der), b.headers))
            .collect();
        let mut keys = blocks
            .iter()
            .filter(|(label, ..)| label.ends_with("PRIVATE KEY"));
        let (label, der, headers) = keys.next().ok_or(PrivateKeyFault::Missing)?;
        if keys.next().is_some() {
            return Err(PrivateKeyFault::Several);
        }
        if *headers || label == "ENCRYPTED PRIVATE KEY" {
            return Err(PrivateKeyFault::Encrypted);
        }
        let pair = match label.as_str() {
            "PRIVATE KEY" => Pair::from_pkcs8(der),
            "RSA PRIVATE KEY" => RsaKeyPair::from_der(der).ok().map(Pair::Rsa),
            "EC PRIVATE KEY" => EC_ALGORITHMS
                .into_iter()
                .find_map(|algorithm| EcdsaKeyPair::from_private_key_der(algorithm, der).ok())
                .map(Pair::Ec),
            _ => None,
        };
        Self::proven(pair.ok_or(PrivateKeyFault::Unsupported)?)
    }

    /// PKCS#8 version 1, which every tool reads.
    ///
    /// # Errors
    /// If the library does not give it away.
    pub fn to_pkcs8_pem(&self) -> Result<Zeroizing<String>, PrivateKeyFault> {
        let broken = |_| PrivateKeyFault::Library;
        let armoured = |der: &[u8]| Zeroizing::new(pem::encode("PRIVATE KEY", der));
        match &self.pair {
            Pair::Ec(pair) => Ok(armoured(pair.to_pkcs8v1().map_err(broken)?.as_ref())),
            Pair::Ed25519(pair) => Ok(armoured(pair.to_pkcs8v1().map_err(broken)?.as_ref())),
            Pair::Rsa(pair) => {
                let der: Pkcs8V1Der<'_> = pair.as_der().map_err(broken)?;
                Ok(armoured(der.as_ref()))
            }
        }
    }

    /// PKCS#1 (RFC 8017 A.1.2), the form that Puppet writes; for RSA keys only.
    ///
    /// # Errors
    /// If it is no RSA key, or the library does not give it away.
    pub fn to_pkcs1_pem(&self) -> Result<Zeroizing<String>, PrivateKeyFault> {
        let Pair::Rsa(pair) = &self.pair else {
            return Err(PrivateKeyFault::NotRsa);
        };
        let der: Pkcs8V1Der<'_> = pair.as_der().map_err(|_| PrivateKeyFault::Library)?;
        let inner = pkcs1_in(der.as_ref()).ok_or(PrivateKeyFault::Library)?;
        Ok(Zeroizing::new(pem::encode("RSA PRIVATE KEY", inner)))
    }

    /// The algorithm that it signs with.
    #[must_use]
    pub fn algorithm(&self) -> SignatureAlgorithm {
        self.algorithm
    }

    /// The public half as `SubjectPublicKeyInfo` (RFC 5280 section 4.1.2.7).
    #[must_use]
    pub fn spki_der(&self) -> &[u8] {
        &self.spki_der
    }

    /// Whether a signature takes long enough (0.4 to 1.5 ms) to stall a thread that also serves connections.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        matches!(self.pair, Pair::Rsa(_))
    }

    /// Signs as certificates want it: ECDSA as `Ecdsa-Sig-Value` (RFC 5480), RSA as PKCS#1 v1.5 with SHA-256.
    ///
    /// # Errors
    /// If the library does not sign.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, PrivateKeyFault> {
        self.pair.sign(message)
    }

    /// The one way to a `PrivateKey`: the pair has signed and its public half has verified it.
    fn proven(pair: Pair) -> Result<Self, PrivateKeyFault> {
        let spki_der = pair.spki_der()?;
        let algorithm = SignatureAlgorithm::for_issuer_key(&spki_der)
            .map_err(|_| PrivateKeyFault::Unsupported)?;
        let signature = pair.sign(PAIRWISE_TEST)?;
        verify(algorithm, &spki_der, PAIRWISE_TEST, &signature)
            .map_err(|_| PrivateKeyFault::Mismatched)?;
        Ok(Self {
            pair,
            algorithm,
            spki_der,
        })
    }
}

enum Pair {
    Ec(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl Pair {
    fn from_pkcs8(der: &[u8]) -> Option<Self> {
        let ec = EC_ALGORITHMS
            .into_iter()
            .find_map(|algorithm| EcdsaKeyPair::from_pkcs8(algorithm, der).ok());
        ec.map(Pair::Ec)
            .or_else(|| Ed25519KeyPair::from_pkcs8(der).ok().map(Pair::Ed25519))
            .or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(Pair::Rsa))
    }

    fn spki_der(&self) -> Result<Vec<u8>, PrivateKeyFault> {
        let der: Result<PublicKeyX509Der<'_>, _> = match self {
            Pair::Ec(pair) => pair.public_key().as_der(),
            Pair::Ed25519(pair) => pair.public_key().as_der(),
            Pair::Rsa(pair) => pair.public_key().as_der(),
        };
        Ok(der.map_err(|_| PrivateKeyFault::Library)?.as_ref().to_vec())
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, PrivateKeyFault> {
        let random = SystemRandom::new();
        let signature = match self {
            Pair::Ec(pair) => pair.sign(&random, message).map(|s| s.as_ref().to_vec()),
            Pair::Ed25519(pair) => pair.try_sign(message).map(|s| s.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map(|()| signature)
            }
        };
        signature.map_err(|_| PrivateKeyFault::Library)
    }
}

/// The RSAPrivateKey within a PKCS#8 key (RFC 5958 section 2). An RSA key of 2048 bits or more has more than 255 octets and fewer
/// than 65536, so every length is written with two.
fn pkcs1_in(der: &[u8]) -> Option<&[u8]> {
    let [0x30, 0x82, _, _, fields @ ..] = der else {
        return None;
    };
    let [0x04, 0x82, high, low, inner @ ..] = fields.strip_prefix(RSA_KEY_INFO)? else {
        return None;
    };
    inner.get(..usize::from(u16::from_be_bytes([*high, *low])))
}

/// Version 0 and the algorithm rsaEncryption with its NULL.
const RSA_KEY_INFO: &[u8] = &[
    0x02, 0x01, 0x00, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01,
    0x05, 0x00,
];
const EC_ALGORITHMS: [&EcdsaSigningAlgorithm; 2] = [
    &ECDSA_P256_SHA256_ASN1_SIGNING,
    &ECDSA_P384_SHA384_ASN1_SIGNING,
];
const PAIRWISE_TEST: &[u8] = b"countersign pairwise consistency test";
// An RSA-4096 key is 3.3 KiB of text; room for comments and a chain that an operator left in the file.
const KEY_LIMITS: pem::PemLimits = pem::PemLimits {
    max_text: 64 * 1024,
    max_blocks: 16,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> PrivateKeyFault {
        PrivateKey::from_pem(text.as_bytes()).err().unwrap()
    }

    #[test]
    fn quick_kinds_round_trip_through_pem() {
        for spec in [KeySpec::P256, KeySpec::P384, KeySpec::Ed25519] {
            let key = PrivateKey::generate(spec).unwrap();
            let text = key.to_pkcs8_pem().unwrap();
            let again = PrivateKey::from_pem(text.as_bytes()).unwrap();
            assert_eq!(again.spki_der(), key.spki_der());
            assert_eq!(again.algorithm(), key.algorithm());
            let signature = again.sign(b"message").unwrap();
            verify(key.algorithm(), key.spki_der(), b"message", &signature).unwrap();
            assert!(verify(key.algorithm(), key.spki_der(), b"massage", &signature).is_err());
        }
    }

    #[test]
    fn words_name_every_kind() {
        for spec in KeySpec::ALL {
            assert_eq!(spec.name().parse(), Ok(spec));
        }
        assert_eq!(
            "rsa1024".parse::<KeySpec>(),
            Err(PrivateKeyFault::UnknownSpec)
        );
        assert_eq!(KeySpec::default(), KeySpec::P256);
    }

    #[test]
    fn refusals_name_the_cause() {
        let key = PrivateKey::generate(KeySpec::P256)
            .unwrap()
            .to_pkcs8_pem()
            .unwrap();
        assert_eq!(fault(""), PrivateKeyFault::Missing);
        assert_eq!(
            fault(&pem::encode("CERTIFICATE", b"x")),
            PrivateKeyFault::Missing
        );
        assert_eq!(
            fault(&format!("{}{}", *key, *key)),
            PrivateKeyFault::Several
        );
        assert_eq!(
            fault(&pem::encode("ENCRYPTED PRIVATE KEY", b"x")),
            PrivateKeyFault::Encrypted
        );
        assert_eq!(
            fault(
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"
            ),
            PrivateKeyFault::Encrypted
        );
        for label in [
            "PRIVATE KEY",
            "RSA PRIVATE KEY",
            "EC PRIVATE KEY",
            "DSA PRIVATE KEY",
            "OPENSSH PRIVATE KEY",
        ] {
            assert_eq!(
                fault(&pem::encode(label, b"\x30\x03\x02\x01\x00")),
                PrivateKeyFault::Unsupported
            );
        }
        assert!(matches!(
            fault("-----BEGIN PRIVATE KEY-----\n"),
            PrivateKeyFault::Pem { .. }
        ));
    }

    #[test]
    fn foreign_public_half_is_refused() {
        // PKCS#8 of P-256 ends with the public point; another key's point makes the halves disagree.
        let [a, b] = [(); 2].map(|()| {
            let text = PrivateKey::generate(KeySpec::P256)
                .unwrap()
                .to_pkcs8_pem()
                .unwrap();
            pem::decode_all(text.as_bytes(), &KEY_LIMITS)
                .unwrap()
                .remove(0)
                .der
        });
        let (head, _) = a.split_at(a.len() - 64);
        let mixed = [head, b.split_at(b.len() - 64).1].concat();
        assert_eq!(
            fault(&pem::encode("PRIVATE KEY", &mixed)),
            PrivateKeyFault::Unsupported
        );
    }
}
