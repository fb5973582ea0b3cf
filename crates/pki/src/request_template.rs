//! PKCS#10 requests that we make ourselves, for the authority's own certificates and for its client.

use crate::attribute::Attribute;
use crate::csr::CheckedCsr;
use crate::der::{self, DerFault, tag};
use crate::extension::{self, Extension};
use crate::oid;
use crate::signature::SignatureAlgorithm;
use crate::template::{EncodeFault, check_sequence, seal};

/// Everything that goes into a request. Name and key are copied octet by octet.
#[derive(Debug, Clone)]
pub struct RequestTemplate<'a> {
    /// The subject's name.
    pub subject_der: &'a [u8],
    /// The subject's key.
    pub spki_der: &'a [u8],
    /// Extensions asked for, in the order in which they are written.
    pub extensions: &'a [Extension],
    /// Further attributes, such as a challenge password.
    pub attributes: &'a [Attribute],
}

impl RequestTemplate<'_> {
    /// The DER of the CertificationRequestInfo (RFC 2986 4.1). [`seal`](crate::seal) joins it with its signature.
    ///
    /// # Errors
    /// If a copied part is not one DER sequence, an extension or the extension request occurs twice, or an attribute
    /// has no value.
    pub fn to_be_signed(&self) -> Result<Vec<u8>, EncodeFault> {
        check_sequence("subject", self.subject_der)?;
        check_sequence("subjectPublicKeyInfo", self.spki_der)?;
        if let Some(oid) = extension::first_duplicate(self.extensions) {
            return Err(EncodeFault::DuplicateExtension { oid });
        }
        let attributes = self.attributes()?;

        let mut out = Vec::with_capacity(512);
        der::write_nested(&mut out, tag::SEQUENCE, |out| {
            out.extend_from_slice(&VERSION_1);
            out.extend_from_slice(self.subject_der);
            out.extend_from_slice(self.spki_der);
            // Not optional: a request without attributes has an empty set here.
            der::write(out, tag::CONTEXT_0, &attributes);
        });
        Ok(out)
    }

    /// The message that this would be, without a signature: for a request that the authority words itself, because its
    /// facts come from elsewhere (a certificate, the objects of a cluster). Whoever calls this answers for it that the
    /// holder of the key has proven to have it. `None` if it could not be read back.
    #[must_use]
    pub fn unsigned(&self) -> Option<CheckedCsr> {
        let info = self.to_be_signed().ok()?;
        let message = seal(&info, SignatureAlgorithm::EcdsaP256Sha256, &[0]).ok()?;
        CheckedCsr::trusted_from_store(&message).ok()
    }

    /// The content of the SET OF attributes, in DER order.
    fn attributes(&self) -> Result<Vec<u8>, EncodeFault> {
        let mut encoded = Vec::with_capacity(self.attributes.len().saturating_add(1));
        if !self.extensions.is_empty() {
            let mut list = Vec::new();
            der::write_nested(&mut list, tag::SEQUENCE, |out| {
                self.extensions.iter().for_each(|e| e.write(out))
            });
            encoded.push(attribute(&oid::EXTENSION_REQUEST, &list));
        }
        for one in self.attributes {
            if one.values.is_empty() {
                return Err(EncodeFault::Malformed {
                    field: "attributes",
                    reason: DerFault::Empty,
                });
            }
            if one.oid == oid::EXTENSION_REQUEST && !self.extensions.is_empty() {
                return Err(EncodeFault::DuplicateExtension { oid: one.oid });
            }
            let mut values: Vec<&[u8]> = one.values.iter().map(|value| value.der()).collect();
            values.sort_unstable();
            encoded.push(attribute(&one.oid, &values.concat()));
        }
        encoded.sort_unstable();
        Ok(encoded.concat())
    }
}

fn attribute(oid: &oid::Oid, values: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len().saturating_add(20));
    der::write_nested(&mut out, tag::SEQUENCE, |out| {
        der::write_oid(out, oid);
        der::write(out, tag::SET, values);
    });
    out
}

const VERSION_1: [u8; 3] = [tag::INTEGER, 1, 0];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alt_name::AltName;
    use crate::csr::{CheckedCsr, CsrLimits};
    use crate::signature::SignatureAlgorithm;
    use crate::subject::SubjectBuilder;
    use crate::value::RawValue;
    use crate::{ext, seal};
    use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

    fn empty(extensions: &[Extension]) -> RequestTemplate<'_> {
        RequestTemplate {
            subject_der: &[0x30, 0],
            spki_der: &[0x30, 0],
            extensions,
            attributes: &[],
        }
    }

    fn password(value: &str) -> RawValue {
        let mut der = Vec::new();
        der::write(&mut der, tag::UTF8_STRING, value.as_bytes());
        RawValue::from_der(&der).unwrap()
    }

    #[test]
    fn what_is_sealed_is_read_back() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        let names = [
            AltName::Dns("a.example".into()),
            AltName::Ip("2001:db8::1".parse().unwrap()),
        ];
        let extensions = [
            ext::subject_alt_name(&names, false),
            ext::utf8_extension(oid::PP_CLI_AUTH, "true", false),
        ];
        let attributes = [Attribute {
            oid: oid::CHALLENGE_PASSWORD,
            values: vec![password("b"), password("a")],
        }];
        let subject = SubjectBuilder::utf8_common_name("a.example");
        let template = RequestTemplate {
            subject_der: &subject,
            spki_der: spki.as_ref(),
            extensions: &extensions,
            attributes: &attributes,
        };
        let info = template.to_be_signed().unwrap();
        let der = seal(
            &info,
            SignatureAlgorithm::Ed25519,
            pair.sign(&info).as_ref(),
        )
        .unwrap();

        let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
        assert_eq!(csr.subject().der(), subject);
        assert_eq!(csr.spki_der(), spki.as_ref());
        assert_eq!(csr.extensions(), extensions);
        assert_eq!(csr.alt_names(), names);
        let read: Vec<_> = csr.attributes_of(&oid::CHALLENGE_PASSWORD).collect();
        assert_eq!(read.len(), 1);
        assert_eq!(read.first().unwrap().values, [password("a"), password("b")]);

        let other = Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap();
        let forged = seal(
            &info,
            SignatureAlgorithm::Ed25519,
            other.sign(&info).as_ref(),
        )
        .unwrap();
        assert!(
            CheckedCsr::check(&forged, &CsrLimits::STANDARD)
                .unwrap_err()
                .is_bad_signature()
        );
    }

    #[test]
    fn attributes_are_present_even_if_empty() {
        assert_eq!(
            empty(&[]).to_be_signed().unwrap(),
            [0x30, 9, 2, 1, 0, 0x30, 0, 0x30, 0, 0xa0, 0]
        );
    }

    #[test]
    fn refuses_broken_parts() {
        let extensions = [ext::basic_constraints_leaf()];
        let broken = RequestTemplate {
            spki_der: &[0x31, 0],
            ..empty(&[])
        };
        assert!(matches!(
            broken.to_be_signed(),
            Err(EncodeFault::Malformed {
                field: "subjectPublicKeyInfo",
                ..
            })
        ));
        let twice = [ext::basic_constraints_leaf(), ext::basic_constraints_ca()];
        assert!(matches!(
            empty(&twice).to_be_signed(),
            Err(EncodeFault::DuplicateExtension { .. })
        ));
        let second = [Attribute {
            oid: oid::EXTENSION_REQUEST,
            values: vec![password("x")],
        }];
        let doubled = RequestTemplate {
            attributes: &second,
            ..empty(&extensions)
        };
        assert!(matches!(
            doubled.to_be_signed(),
            Err(EncodeFault::DuplicateExtension { .. })
        ));
        let hollow = [Attribute {
            oid: oid::CHALLENGE_PASSWORD,
            values: Vec::new(),
        }];
        let hollow = RequestTemplate {
            attributes: &hollow,
            ..empty(&[])
        };
        assert!(matches!(
            hollow.to_be_signed(),
            Err(EncodeFault::Malformed {
                field: "attributes",
                ..
            })
        ));
    }
}
