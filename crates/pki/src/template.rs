//! Certificates that we issue: what is to be signed, and how it is sealed.

use crate::der::{self, DerFault, tag};
use crate::extension::{self, Extension};
use crate::oid::Oid;
use crate::serial::Serial;
use crate::signature::SignatureAlgorithm;
use crate::time::UnixTime;

/// Everything that goes into a certificate. Names and key are copied octet by octet.
#[derive(Debug, Clone)]
pub struct CertificateTemplate<'a> {
    /// The serial number.
    pub serial: Serial,
    /// What the issuer will sign with.
    pub algorithm: SignatureAlgorithm,
    /// The subject of the issuer's certificate, verbatim: chain building compares octets.
    pub issuer_name_der: &'a [u8],
    /// First second of validity.
    pub not_before: UnixTime,
    /// Last second of validity.
    pub not_after: UnixTime,
    /// The subject's name.
    pub subject_der: &'a [u8],
    /// The subject's key as it was received.
    pub spki_der: &'a [u8],
    /// Extensions in the order in which they are written.
    pub extensions: &'a [Extension],
}

impl CertificateTemplate<'_> {
    /// The DER of the version 3 TBSCertificate (RFC 5280 4.1).
    ///
    /// # Errors
    /// If a copied part is not one DER sequence, an extension occurs twice, or the validity cannot be expressed.
    pub fn to_be_signed(&self) -> Result<Vec<u8>, EncodeFault> {
        check_sequence("issuer", self.issuer_name_der)?;
        check_sequence("subject", self.subject_der)?;
        check_sequence("subjectPublicKeyInfo", self.spki_der)?;
        if let Some(oid) = extension::first_duplicate(self.extensions) {
            return Err(EncodeFault::DuplicateExtension { oid });
        }
        if self.not_after < self.not_before {
            return Err(EncodeFault::ValidityReversed);
        }
        let mut validity = Vec::with_capacity(36);
        for time in [self.not_before, self.not_after] {
            der::write_time(&mut validity, time).ok_or(EncodeFault::Time { time })?;
        }

        let mut out = Vec::with_capacity(1024);
        der::write_nested(&mut out, tag::SEQUENCE, |out| {
            out.extend_from_slice(&VERSION_3);
            der::write_unsigned(out, self.serial.as_bytes());
            self.algorithm.write(out);
            out.extend_from_slice(self.issuer_name_der);
            der::write(out, tag::SEQUENCE, &validity);
            out.extend_from_slice(self.subject_der);
            out.extend_from_slice(self.spki_der);
            if !self.extensions.is_empty() {
                der::write_nested(out, tag::CONTEXT_3, |out| {
                    der::write_nested(out, tag::SEQUENCE, |out| {
                        self.extensions.iter().for_each(|e| e.write(out));
                    });
                });
            }
        });
        Ok(out)
    }
}

/// Joins what was signed with its signature: the outer shape of certificates and revocation lists alike.
///
/// # Errors
/// If what was signed is not one DER sequence or the signature is empty.
pub fn seal(
    tbs: &[u8],
    algorithm: SignatureAlgorithm,
    signature: &[u8],
) -> Result<Vec<u8>, EncodeFault> {
    check_sequence("to be signed", tbs)?;
    if signature.is_empty() {
        return Err(EncodeFault::Malformed {
            field: "signature",
            reason: DerFault::Empty,
        });
    }
    let mut out = Vec::with_capacity(tbs.len().saturating_add(signature.len()).saturating_add(64));
    der::write_nested(&mut out, tag::SEQUENCE, |out| {
        out.extend_from_slice(tbs);
        algorithm.write(out);
        der::write_whole_octets(out, signature);
    });
    Ok(out)
}

/// Why something cannot be encoded. These are mistakes of ours, not of a requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeFault {
    /// A part to be copied is not what it should be.
    #[error("{field} {reason}")]
    Malformed {
        /// Which part.
        field: &'static str,
        /// What is wrong with it.
        reason: DerFault,
    },
    /// The same extension twice.
    #[error("extension {oid} occurs twice")]
    DuplicateExtension {
        /// The extension.
        oid: Oid,
    },
    /// A year before 1950 or after 9999.
    #[error("time {time} cannot be written in a certificate")]
    Time {
        /// The time.
        time: UnixTime,
    },
    /// The end lies before the beginning.
    #[error("validity ends before it begins")]
    ValidityReversed,
}

pub(crate) fn check_sequence(field: &'static str, bytes: &[u8]) -> Result<(), EncodeFault> {
    der::single(bytes, tag::SEQUENCE)
        .map(|_| ())
        .map_err(|reason| EncodeFault::Malformed { field, reason })
}

const VERSION_3: [u8; 5] = [tag::CONTEXT_0, 3, tag::INTEGER, 1, 2];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext;

    fn template<'a>(name: &'a [u8], extensions: &'a [Extension]) -> CertificateTemplate<'a> {
        CertificateTemplate {
            serial: Serial::try_from(1).unwrap(),
            algorithm: SignatureAlgorithm::Ed25519,
            issuer_name_der: name,
            not_before: UnixTime(0),
            not_after: UnixTime(1),
            subject_der: name,
            spki_der: &[0x30, 0],
            extensions,
        }
    }

    #[test]
    fn refuses_broken_parts() {
        let twice = [ext::basic_constraints_leaf(), ext::basic_constraints_ca()];
        assert!(matches!(
            template(&[0x30, 0], &twice).to_be_signed(),
            Err(EncodeFault::DuplicateExtension { .. })
        ));
        assert!(matches!(
            template(&[0x30, 1], &[]).to_be_signed(),
            Err(EncodeFault::Malformed {
                field: "issuer",
                ..
            })
        ));
        let reversed = CertificateTemplate {
            not_after: UnixTime(-1),
            ..template(&[0x30, 0], &[])
        };
        assert_eq!(reversed.to_be_signed(), Err(EncodeFault::ValidityReversed));
        let beyond = UnixTime::MAX_X509.plus_seconds(1);
        let late = CertificateTemplate {
            not_after: beyond,
            ..template(&[0x30, 0], &[])
        };
        assert_eq!(late.to_be_signed(), Err(EncodeFault::Time { time: beyond }));
    }

    #[test]
    fn a_seal_needs_a_signature() {
        assert!(seal(&[0x30, 0], SignatureAlgorithm::Ed25519, &[]).is_err());
        assert!(seal(&[0x31, 0], SignatureAlgorithm::Ed25519, &[1]).is_err());
    }
}
