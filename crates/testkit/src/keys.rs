//! Fixed private keys. Everybody knows them; they protect nothing.

use std::fmt;
use std::sync::LazyLock;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256K1_SHA256_ASN1_SIGNING,
    ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
    RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use countersign_pki::pem::{self, PemLimits};
use countersign_pki::{Oid, SignatureAlgorithm, oid};

use crate::der;

/// One fixed key and what is needed to sign with it.
pub struct Key {
    name: &'static str,
    pkcs8_pem: &'static str,
    pkcs8_der: Vec<u8>,
    spki_der: Vec<u8>,
    pair: Pair,
}

/// Only which one it is.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.name).finish()
    }
}

impl Key {
    /// The file it came from, without suffix.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The private key as PKCS#8 PEM.
    #[must_use]
    pub fn pkcs8_pem(&self) -> &'static str {
        self.pkcs8_pem
    }

    /// The private key as PKCS#8 DER.
    #[must_use]
    pub fn pkcs8_der(&self) -> &[u8] {
        &self.pkcs8_der
    }

    /// The SubjectPublicKeyInfo.
    #[must_use]
    pub fn spki_der(&self) -> &[u8] {
        &self.spki_der
    }

    /// The usual way to sign with this key.
    ///
    /// # Panics
    /// For the keys that cannot sign here.
    #[must_use]
    pub fn scheme(&self) -> SigningScheme {
        match &self.pair {
            Pair::Rsa(_) => SigningScheme::RsaPkcs1Sha256,
            Pair::Ec(_, hash) => SigningScheme::Ecdsa(*hash),
            Pair::Ed25519(_) => SigningScheme::Ed25519,
            Pair::Public => panic!("{} is only good for refusals", self.name),
        }
    }

    /// The algorithm by which this key acts as an issuer, if it can.
    #[must_use]
    pub fn issuer_algorithm(&self) -> Option<SignatureAlgorithm> {
        SignatureAlgorithm::for_issuer_key(&self.spki_der).ok()
    }

    /// Signs in the usual way.
    ///
    /// # Panics
    /// For the keys that cannot sign here.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.sign_with(self.scheme(), message)
    }

    /// Signs in a chosen way.
    ///
    /// # Panics
    /// If the scheme is not one of this key.
    #[must_use]
    pub fn sign_with(&self, scheme: SigningScheme, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match (&self.pair, scheme) {
            (Pair::Rsa(pair), SigningScheme::RsaPkcs1Sha256) => {
                rsa(pair, &RSA_PKCS1_SHA256, message)
            }
            (Pair::Rsa(pair), SigningScheme::RsaPkcs1Sha384) => {
                rsa(pair, &RSA_PKCS1_SHA384, message)
            }
            (Pair::Rsa(pair), SigningScheme::RsaPkcs1Sha512) => {
                rsa(pair, &RSA_PKCS1_SHA512, message)
            }
            (Pair::Rsa(pair), SigningScheme::RsaPssSha256) => rsa(pair, &RSA_PSS_SHA256, message),
            (Pair::Rsa(pair), SigningScheme::RsaPssSha384) => rsa(pair, &RSA_PSS_SHA384, message),
            (Pair::Rsa(pair), SigningScheme::RsaPssSha512) => rsa(pair, &RSA_PSS_SHA512, message),
            (Pair::Ec(pair, own), SigningScheme::Ecdsa(hash)) if *own == hash => pair
                .sign(&random, message)
                .expect("a fixed key signs")
                .as_ref()
                .to_vec(),
            (Pair::Ed25519(pair), SigningScheme::Ed25519) => pair.sign(message).as_ref().to_vec(),
            _ => panic!("{} cannot sign with {scheme:?}", self.name),
        }
    }

    fn load(
        name: &'static str,
        pkcs8_pem: &'static str,
        public_pem: &'static str,
        kind: Kind,
    ) -> Self {
        let pkcs8_der = block(pkcs8_pem);
        let ec = |algorithm: &'static EcdsaSigningAlgorithm, hash| {
            let pair = EcdsaKeyPair::from_pkcs8(algorithm, &pkcs8_der).expect("checked-in EC key");
            Pair::Ec(pair, hash)
        };
        let pair = match kind {
            Kind::Rsa => Pair::Rsa(RsaKeyPair::from_pkcs8(&pkcs8_der).expect("checked-in RSA key")),
            Kind::P256 => ec(&ECDSA_P256_SHA256_ASN1_SIGNING, EcHash::Sha256),
            Kind::P384 => ec(&ECDSA_P384_SHA384_ASN1_SIGNING, EcHash::Sha384),
            Kind::P521 => ec(&ECDSA_P521_SHA512_ASN1_SIGNING, EcHash::Sha512),
            Kind::Secp256k1 => ec(&ECDSA_P256K1_SHA256_ASN1_SIGNING, EcHash::Sha256),
            Kind::Ed25519 => Pair::Ed25519(
                Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8_der)
                    .expect("checked-in Ed25519 key"),
            ),
            Kind::PublicOnly => Pair::Public,
        };
        Key {
            name,
            pkcs8_pem,
            pkcs8_der,
            spki_der: block(public_pem),
            pair,
        }
    }
}

/// How a request is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigningScheme {
    /// RSASSA-PKCS1-v1_5 with SHA-256
    RsaPkcs1Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA-384
    RsaPkcs1Sha384,
    /// RSASSA-PKCS1-v1_5 with SHA-512
    RsaPkcs1Sha512,
    /// RSASSA-PSS with SHA-256
    RsaPssSha256,
    /// RSASSA-PSS with SHA-384
    RsaPssSha384,
    /// RSASSA-PSS with SHA-512
    RsaPssSha512,
    /// ECDSA with the hash that fits the curve
    Ecdsa(EcHash),
    /// Ed25519
    Ed25519,
}

/// Hash of an ECDSA signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EcHash {
    /// SHA-256
    Sha256,
    /// SHA-384
    Sha384,
    /// SHA-512
    Sha512,
}

impl SigningScheme {
    /// The AlgorithmIdentifier.
    #[must_use]
    pub fn algorithm_der(self) -> Vec<u8> {
        let with_null = |kind: &Oid| der::seq(&[&der::oid(kind), &[5, 0]]);
        let bare = |kind: &Oid| der::seq(&[&der::oid(kind)]);
        match self {
            SigningScheme::RsaPkcs1Sha256 => with_null(&oid::SHA256_WITH_RSA),
            SigningScheme::RsaPkcs1Sha384 => with_null(&oid::SHA384_WITH_RSA),
            SigningScheme::RsaPkcs1Sha512 => with_null(&oid::SHA512_WITH_RSA),
            SigningScheme::RsaPssSha256 => pss_algorithm(&oid::SHA256, &oid::SHA256, 32),
            SigningScheme::RsaPssSha384 => pss_algorithm(&oid::SHA384, &oid::SHA384, 48),
            SigningScheme::RsaPssSha512 => pss_algorithm(&oid::SHA512, &oid::SHA512, 64),
            SigningScheme::Ecdsa(EcHash::Sha256) => bare(&oid::ECDSA_WITH_SHA256),
            SigningScheme::Ecdsa(EcHash::Sha384) => bare(&oid::ECDSA_WITH_SHA384),
            SigningScheme::Ecdsa(EcHash::Sha512) => bare(&oid::ECDSA_WITH_SHA512),
            SigningScheme::Ed25519 => bare(&oid::ED25519),
        }
    }
}

/// The AlgorithmIdentifier of RSASSA-PSS with any parameters, consistent or not.
#[must_use]
pub fn pss_algorithm(hash: &Oid, mask_hash: &Oid, salt: u8) -> Vec<u8> {
    let with_null = |kind: &Oid| der::seq(&[&der::oid(kind), &[5, 0]]);
    let mask = der::seq(&[&der::oid(&oid::MGF1), &with_null(mask_hash)]);
    let parameters = der::seq(&[
        &der::tlv(0xa0, &with_null(hash)),
        &der::tlv(0xa1, &mask),
        &der::tlv(0xa2, &der::small_integer(salt)),
    ]);
    der::seq(&[&der::oid(&oid::RSASSA_PSS), &parameters])
}

/// The SubjectPublicKeyInfo of an RSA key of 2048 bits as the generator of CVE-2017-15361 made them: its modulus leaves a
/// power of 65537 when it is divided by any small prime. Nobody has the private half.
#[must_use]
pub fn roca_spki_der() -> Vec<u8> {
    let is_prime = |number: &u32| (2..*number).all(|divisor| !number.is_multiple_of(divisor));
    let mut primorial = vec![1_u8];
    for prime in (2..=167_u32).filter(is_prime) {
        let mut carry = 0;
        for octet in primorial.iter_mut().rev() {
            carry += u32::from(*octet) * prime;
            *octet = carry.to_le_bytes()[0];
            carry /= 256;
        }
        if carry > 0 {
            primorial.insert(0, carry.to_le_bytes()[0]);
        }
    }
    // Behind it as many bits as make 2048, of which the last are the number 65537.
    let mut modulus = primorial;
    modulus.resize(2048 / 8, 0);
    let shift = modulus.first().map_or(0, |first| first.leading_zeros());
    let mut carry = 0;
    for octet in modulus.iter_mut().rev() {
        let shifted = (u16::from(*octet) << shift) | carry;
        *octet = shifted.to_le_bytes()[0];
        carry = shifted / 256;
    }
    for (octet, last) in modulus.iter_mut().rev().zip([1, 0, 1]) {
        *octet = last;
    }
    let modulus = der::tlv(0x02, &[&[0], modulus.as_slice()].concat());
    let key = der::seq(&[&modulus, &der::tlv(0x02, &[1, 0, 1])]);
    let algorithm = der::seq(&[&der::oid(&oid::RSA_ENCRYPTION), &[5, 0]]);
    der::seq(&[&algorithm, &der::bits(&key)])
}

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair, EcHash),
    Ed25519(Ed25519KeyPair),
    Public,
}

#[derive(Clone, Copy)]
enum Kind {
    Rsa,
    P256,
    P384,
    P521,
    Secp256k1,
    Ed25519,
    PublicOnly,
}

fn rsa(pair: &RsaKeyPair, encoding: &'static dyn RsaEncoding, message: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(encoding, &SystemRandom::new(), message, &mut signature)
        .expect("a fixed key signs");
    signature
}

fn block(text: &str) -> Vec<u8> {
    pem::decode_first(text.as_bytes(), &PemLimits::REQUEST)
        .ok()
        .flatten()
        .map(|block| block.der)
        .expect("checked-in PEM")
}

macro_rules! keys {
    ($($(#[$doc:meta])* $function:ident = $file:literal, $kind:ident;)+) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $function() -> &'static Key {
                static KEY: LazyLock<Key> = LazyLock::new(|| {
                    Key::load(
                        $file,
                        include_str!(concat!("../keys/", $file, ".pem")),
                        include_str!(concat!("../keys/", $file, ".pub.pem")),
                        Kind::$kind,
                    )
                });
                &KEY
            }
        )+
    };
}

keys! {
    /// RSA with 1024 bits: must be refused everywhere.
    rsa1024 = "rsa1024", PublicOnly;
    /// RSA with 2048 bits.
    rsa2048_a = "rsa2048a", Rsa;
    /// Another one.
    rsa2048_b = "rsa2048b", Rsa;
    /// A third one.
    rsa2048_c = "rsa2048c", Rsa;
    /// RSA with 3072 bits.
    rsa3072 = "rsa3072", Rsa;
    /// RSA with 4096 bits.
    rsa4096_a = "rsa4096a", Rsa;
    /// Another one.
    rsa4096_b = "rsa4096b", Rsa;
    /// RSA with 8192 bits, the most that is accepted.
    rsa8192 = "rsa8192", Rsa;
    /// P-256.
    p256_a = "p256a", P256;
    /// Another one.
    p256_b = "p256b", P256;
    /// A third one.
    p256_c = "p256c", P256;
    /// A fourth one.
    p256_d = "p256d", P256;
    /// P-384.
    p384 = "p384", P384;
    /// P-521.
    p521 = "p521", P521;
    /// Ed25519: signatures are deterministic, so requests made with it are the same in every run.
    ed25519 = "ed25519", Ed25519;
    /// secp256k1: must be refused everywhere.
    secp256k1 = "secp256k1", Secp256k1;
    /// Ed448: must be refused everywhere.
    ed448 = "ed448", PublicOnly;
    /// DSA: must be refused everywhere.
    dsa2048 = "dsa2048", PublicOnly;
}
