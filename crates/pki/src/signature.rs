//! Signatures: which algorithms are acceptable, how they are named in DER, and their verification.

use std::fmt;

use aws_lc_rs::signature::{self as lc, UnparsedPublicKey, VerificationAlgorithm};

use crate::der::{self, DerFault, Tlv, tag};
use crate::key::{Curve, KeyFault, KeyType, ReadKey};
use crate::oid::{self, Oid};
use crate::weakness::Weakness;

/// The algorithms our issuers sign with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignatureAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256
    RsaPkcs1Sha256,
    /// ECDSA on P-256 with SHA-256, signature as ASN.1
    EcdsaP256Sha256,
    /// ECDSA on P-384 with SHA-384, signature as ASN.1
    EcdsaP384Sha384,
    /// Ed25519
    Ed25519,
}

impl SignatureAlgorithm {
    /// The algorithm that an issuer with this public key signs with.
    ///
    /// # Errors
    /// If the key is malformed, or not RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519.
    pub fn for_issuer_key(spki_der: &[u8]) -> Result<Self, KeyFault> {
        match ReadKey::from_spki(spki_der)?.key_type {
            KeyType::Rsa { bits } if bits > MAX_ISSUER_RSA_BITS => Err(KeyFault::LargeRsa { bits }),
            KeyType::Rsa { .. } => Ok(SignatureAlgorithm::RsaPkcs1Sha256),
            KeyType::Ec(Curve::P256) => Ok(SignatureAlgorithm::EcdsaP256Sha256),
            KeyType::Ec(Curve::P384) => Ok(SignatureAlgorithm::EcdsaP384Sha384),
            KeyType::Ec(Curve::P521) => Err(KeyFault::UnsupportedCurve { oid: oid::P521 }),
            KeyType::Ed25519 => Ok(SignatureAlgorithm::Ed25519),
        }
    }

    /// Appends the AlgorithmIdentifier.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        der::write_nested(out, tag::SEQUENCE, |out| match self {
            SignatureAlgorithm::RsaPkcs1Sha256 => {
                der::write_oid(out, &oid::SHA256_WITH_RSA);
                der::write(out, tag::NULL, &[]);
            }
            SignatureAlgorithm::EcdsaP256Sha256 => der::write_oid(out, &oid::ECDSA_WITH_SHA256),
            SignatureAlgorithm::EcdsaP384Sha384 => der::write_oid(out, &oid::ECDSA_WITH_SHA384),
            SignatureAlgorithm::Ed25519 => der::write_oid(out, &oid::ED25519),
        });
    }

    fn scheme(self) -> Scheme {
        match self {
            SignatureAlgorithm::RsaPkcs1Sha256 => Scheme::Pkcs1(Hash::Sha256),
            SignatureAlgorithm::EcdsaP256Sha256 => Scheme::Ecdsa(Hash::Sha256),
            SignatureAlgorithm::EcdsaP384Sha384 => Scheme::Ecdsa(Hash::Sha384),
            SignatureAlgorithm::Ed25519 => Scheme::Ed25519,
        }
    }
}

impl fmt::Display for SignatureAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SignatureAlgorithm::RsaPkcs1Sha256 => "sha256WithRSAEncryption",
            SignatureAlgorithm::EcdsaP256Sha256 => "ecdsa-with-SHA256",
            SignatureAlgorithm::EcdsaP384Sha384 => "ecdsa-with-SHA384",
            SignatureAlgorithm::Ed25519 => "Ed25519",
        })
    }
}

/// Verifies a signature that one of our issuers made.
///
/// # Errors
/// If the key does not fit the algorithm or the signature does not verify.
pub fn verify(
    algorithm: SignatureAlgorithm,
    spki_der: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), VerifyFault> {
    let key = ReadKey::from_spki(spki_der)?;
    if algorithm == SignatureAlgorithm::EcdsaP256Sha256 && key.key_type != KeyType::Ec(Curve::P256)
        || algorithm == SignatureAlgorithm::EcdsaP384Sha384
            && key.key_type != KeyType::Ec(Curve::P384)
    {
        return Err(VerifyFault::KeyMismatch);
    }
    algorithm.scheme().verify(&key, message, signature)
}

/// Why a signature does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyFault {
    /// The AlgorithmIdentifier is not the DER it should be.
    #[error("signatureAlgorithm {0}")]
    Malformed(DerFault),
    /// An algorithm that is known to be weak.
    #[error("weak signature: {algorithm} is not accepted")]
    WeakSignature {
        /// Its common name.
        algorithm: &'static str,
    },
    /// An algorithm we do not know.
    #[error("signatureAlgorithm {oid} is not supported")]
    UnsupportedAlgorithm {
        /// The algorithm.
        oid: Oid,
    },
    /// Parameters that the algorithm does not have, or that do not agree with each other.
    #[error("signatureAlgorithm.parameters: {reason}")]
    Parameters {
        /// What is wrong.
        reason: &'static str,
    },
    /// The algorithm belongs to another kind of key.
    #[error("signatureAlgorithm does not fit the public key")]
    KeyMismatch,
    /// The verifying key is unusable.
    #[error(transparent)]
    Key(#[from] KeyFault),
    /// The mathematics say no.
    #[error("signature does not verify with the public key")]
    BadSignature,
}

/// A signature algorithm as requests and certificates name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Pkcs1(Hash),
    Pss(Hash),
    Ecdsa(Hash),
    Ed25519,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    /// Only where a request is read to be judged.
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Scheme {
    /// Reads an AlgorithmIdentifier.
    pub(crate) fn read(algorithm: &Tlv<'_>) -> Result<Self, VerifyFault> {
        let mut fields = algorithm.reader();
        let oid = fields
            .expect(tag::OID)
            .and_then(|t| t.oid())
            .map_err(VerifyFault::Malformed)?;
        let parameters = if fields.is_empty() {
            None
        } else {
            Some(fields.any().map_err(VerifyFault::Malformed)?)
        };
        fields.finish().map_err(VerifyFault::Malformed)?;

        let scheme = match oid {
            oid::SHA256_WITH_RSA => Scheme::Pkcs1(Hash::Sha256),
            oid::SHA384_WITH_RSA => Scheme::Pkcs1(Hash::Sha384),
            oid::SHA512_WITH_RSA => Scheme::Pkcs1(Hash::Sha512),
            oid::RSASSA_PSS => return pss(parameters).map(Scheme::Pss),
            oid::ECDSA_WITH_SHA256 => Scheme::Ecdsa(Hash::Sha256),
            oid::ECDSA_WITH_SHA384 => Scheme::Ecdsa(Hash::Sha384),
            oid::ECDSA_WITH_SHA512 => Scheme::Ecdsa(Hash::Sha512),
            oid::ED25519 => Scheme::Ed25519,
            oid => return Err(refused(oid)),
        };
        match (scheme, parameters) {
            (_, None) => Ok(scheme),
            // RFC 4055 5: NULL, but absent must be accepted as well.
            (Scheme::Pkcs1(_), Some(null)) if null.full == NULL => Ok(scheme),
            (Scheme::Pkcs1(_), Some(_)) => Err(VerifyFault::Parameters {
                reason: "must be NULL",
            }),
            (_, Some(_)) => Err(VerifyFault::Parameters {
                reason: "must be absent",
            }),
        }
    }

    /// The same, and RSA with SHA-1.
    pub(crate) fn read_legacy(algorithm: &Tlv<'_>) -> Result<Self, VerifyFault> {
        let mut fields = algorithm.reader();
        let is_sha1 = fields
            .expect(tag::OID)
            .and_then(|t| t.oid())
            .is_ok_and(|oid| oid == oid::SHA1_WITH_RSA);
        let has_null = fields.any().is_ok_and(|null| null.full == NULL);
        match is_sha1 && has_null && fields.is_empty() {
            true => Ok(Scheme::Pkcs1(Hash::Sha1)),
            false => Self::read(algorithm),
        }
    }

    /// Why a certificate must not come of a request that is signed so.
    pub(crate) fn weakness(self) -> Option<Weakness> {
        match self {
            Scheme::Pkcs1(Hash::Sha1) | Scheme::Pss(Hash::Sha1) | Scheme::Ecdsa(Hash::Sha1) => {
                let algorithm = "SHA-1";
                Some(Weakness::Signature { algorithm })
            }
            Scheme::Pkcs1(_) | Scheme::Pss(_) | Scheme::Ecdsa(_) | Scheme::Ed25519 => None,
        }
    }

    pub(crate) fn verify(
        self,
        key: &ReadKey<'_>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), VerifyFault> {
        let algorithm = self
            .library_algorithm(key.key_type)
            .ok_or(VerifyFault::KeyMismatch)?;
        UnparsedPublicKey::new(algorithm, key.bits)
            .verify(message, signature)
            .map_err(|_| VerifyFault::BadSignature)
    }

    fn library_algorithm(self, key: KeyType) -> Option<&'static dyn VerificationAlgorithm> {
        use Hash::{Sha1, Sha256, Sha384, Sha512};
        Some(match (self, key) {
            (Scheme::Pkcs1(Sha1), KeyType::Rsa { .. }) => {
                &lc::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY
            }
            // Shorter keys are read only to be judged.
            (Scheme::Pkcs1(Sha256), KeyType::Rsa { bits: ..2048 }) => {
                &lc::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY
            }
            (Scheme::Pkcs1(Sha512), KeyType::Rsa { bits: ..2048 }) => {
                &lc::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY
            }
            (Scheme::Pkcs1(Sha256), KeyType::Rsa { .. }) => &lc::RSA_PKCS1_2048_8192_SHA256,
            (Scheme::Pkcs1(Sha384), KeyType::Rsa { .. }) => &lc::RSA_PKCS1_2048_8192_SHA384,
            (Scheme::Pkcs1(Sha512), KeyType::Rsa { .. }) => &lc::RSA_PKCS1_2048_8192_SHA512,
            (Scheme::Pss(Sha256), KeyType::Rsa { .. }) => &lc::RSA_PSS_2048_8192_SHA256,
            (Scheme::Pss(Sha384), KeyType::Rsa { .. }) => &lc::RSA_PSS_2048_8192_SHA384,
            (Scheme::Pss(Sha512), KeyType::Rsa { .. }) => &lc::RSA_PSS_2048_8192_SHA512,
            (Scheme::Ecdsa(Sha256), KeyType::Ec(Curve::P256)) => &lc::ECDSA_P256_SHA256_ASN1,
            (Scheme::Ecdsa(Sha384), KeyType::Ec(Curve::P256)) => &lc::ECDSA_P256_SHA384_ASN1,
            (Scheme::Ecdsa(Sha512), KeyType::Ec(Curve::P256)) => &lc::ECDSA_P256_SHA512_ASN1,
            (Scheme::Ecdsa(Sha256), KeyType::Ec(Curve::P384)) => &lc::ECDSA_P384_SHA256_ASN1,
            (Scheme::Ecdsa(Sha384), KeyType::Ec(Curve::P384)) => &lc::ECDSA_P384_SHA384_ASN1,
            (Scheme::Ecdsa(Sha512), KeyType::Ec(Curve::P384)) => &lc::ECDSA_P384_SHA512_ASN1,
            (Scheme::Ecdsa(Sha256), KeyType::Ec(Curve::P521)) => &lc::ECDSA_P521_SHA256_ASN1,
            (Scheme::Ecdsa(Sha384), KeyType::Ec(Curve::P521)) => &lc::ECDSA_P521_SHA384_ASN1,
            (Scheme::Ecdsa(Sha512), KeyType::Ec(Curve::P521)) => &lc::ECDSA_P521_SHA512_ASN1,
            (Scheme::Ed25519, KeyType::Ed25519) => &lc::ED25519,
            _ => return None,
        })
    }
}

impl Hash {
    fn read(oid: Oid) -> Result<Self, VerifyFault> {
        match oid {
            oid::SHA256 => Ok(Hash::Sha256),
            oid::SHA384 => Ok(Hash::Sha384),
            oid::SHA512 => Ok(Hash::Sha512),
            oid::SHA1 => Err(VerifyFault::WeakSignature {
                algorithm: "RSASSA-PSS with SHA-1",
            }),
            oid => Err(VerifyFault::UnsupportedAlgorithm { oid }),
        }
    }

    fn octets(self) -> u8 {
        match self {
            Hash::Sha1 => 20,
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }
}

/// RSASSA-PSS-params (RFC 4055 3.1). All defaults mean SHA-1, so the fields we accept are always written out.
fn pss(parameters: Option<Tlv<'_>>) -> Result<Hash, VerifyFault> {
    let weak = VerifyFault::WeakSignature {
        algorithm: "RSASSA-PSS with SHA-1",
    };
    let parameters = parameters.ok_or(VerifyFault::Parameters {
        reason: "RSASSA-PSS needs them",
    })?;
    if parameters.tag != tag::SEQUENCE {
        return Err(VerifyFault::Parameters {
            reason: "RSASSA-PSS parameters are not a sequence",
        });
    }
    let mut fields = parameters.reader();
    let hash = optional_explicit(&mut fields, tag::CONTEXT_0)?.ok_or(weak)?;
    let mask = optional_explicit(&mut fields, tag::CONTEXT_1)?.ok_or(weak)?;
    let salt = optional_explicit(&mut fields, tag::CONTEXT_2)?;
    let trailer = optional_explicit(&mut fields, tag::CONTEXT_3)?;
    fields.finish().map_err(VerifyFault::Malformed)?;

    let hash = hash_algorithm(&hash)?;
    let mut mask_fields = sequence(&mask)?.reader();
    let mask_oid = mask_fields
        .expect(tag::OID)
        .and_then(|t| t.oid())
        .map_err(VerifyFault::Malformed)?;
    if mask_oid != oid::MGF1 {
        return Err(VerifyFault::Parameters {
            reason: "the mask generation function is not MGF1",
        });
    }
    let mask_hash = mask_fields.any().map_err(VerifyFault::Malformed)?;
    mask_fields.finish().map_err(VerifyFault::Malformed)?;
    if hash_algorithm(&mask_hash)? != hash {
        return Err(VerifyFault::Parameters {
            reason: "hash and mask generation hash differ",
        });
    }
    let salt_fits = match salt {
        Some(salt) if salt.tag == tag::INTEGER => {
            salt.unsigned().map_err(VerifyFault::Malformed)? == [hash.octets()]
        }
        _ => false, // the default of 20 octets belongs to SHA-1
    };
    if !salt_fits {
        return Err(VerifyFault::Parameters {
            reason: "the salt is not as long as the hash",
        });
    }
    match trailer {
        // RFC 4055: trailerFieldBC is the default and the only value; some writers spell it out.
        None => Ok(hash),
        Some(trailer) if trailer.full == [tag::INTEGER, 1, 1] => Ok(hash),
        Some(_) => Err(VerifyFault::Parameters {
            reason: "unknown trailer field",
        }),
    }
}

fn optional_explicit<'a>(
    fields: &mut der::Reader<'a>,
    wanted: u8,
) -> Result<Option<Tlv<'a>>, VerifyFault> {
    fields
        .optional(wanted)
        .and_then(|outer| outer.map(|tlv| der::single_any(tlv.content)).transpose())
        .map_err(VerifyFault::Malformed)
}

fn sequence<'a>(tlv: &Tlv<'a>) -> Result<Tlv<'a>, VerifyFault> {
    der::single(tlv.full, tag::SEQUENCE).map_err(VerifyFault::Malformed)
}

fn hash_algorithm(tlv: &Tlv<'_>) -> Result<Hash, VerifyFault> {
    let mut fields = sequence(tlv)?.reader();
    let oid = fields
        .expect(tag::OID)
        .and_then(|t| t.oid())
        .map_err(VerifyFault::Malformed)?;
    let parameters = fields.optional(tag::NULL).map_err(VerifyFault::Malformed)?;
    if parameters.is_some_and(|null| null.full != NULL) {
        return Err(VerifyFault::Parameters {
            reason: "hash parameters are not NULL",
        });
    }
    fields.finish().map_err(VerifyFault::Malformed)?;
    Hash::read(oid)
}

fn refused(oid: Oid) -> VerifyFault {
    let algorithm = match oid {
        oid::MD2_WITH_RSA => "RSA with MD2",
        oid::MD5_WITH_RSA => "RSA with MD5",
        oid::SHA1_WITH_RSA | oid::OIW_SHA1_WITH_RSA => "RSA with SHA-1",
        oid::ECDSA_WITH_SHA1 => "ECDSA with SHA-1",
        oid::ECDSA_WITH_SHA224 => "ECDSA with SHA-224",
        oid::DSA_WITH_SHA1 | oid::DSA_WITH_SHA256 => "DSA",
        oid => return VerifyFault::UnsupportedAlgorithm { oid },
    };
    VerifyFault::WeakSignature { algorithm }
}

const NULL: [u8; 2] = [tag::NULL, 0];
const MAX_ISSUER_RSA_BITS: u32 = 4096; // larger keys sign too slowly for an authority
