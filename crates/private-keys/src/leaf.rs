//! Keys of the authority's own certificates: its listeners' and its administrators'. They are never issuers' keys.

use countersign_pki::{
    AltName, Attribute, CheckedCsr, CsrFault, CsrLimits, EncodeFault, Extension, RequestTemplate,
    StringKind, SubjectBuilder, ext, oid, seal,
};
use zeroize::Zeroizing;

use crate::private_key::{KeySpec, PrivateKey, PrivateKeyFault};

/// A private key that asks for a certificate as anyone else does: by PKCS#10.
pub struct LeafKey(PrivateKey);

impl LeafKey {
    /// A fresh P-256 key.
    ///
    /// # Errors
    /// If the library makes none.
    pub fn generate() -> Result<Self, PrivateKeyFault> {
        Self::generate_kind(KeySpec::P256)
    }

    /// A fresh key of a kind. RSA takes seconds.
    ///
    /// # Errors
    /// If the library makes none.
    pub fn generate_kind(kind: KeySpec) -> Result<Self, PrivateKeyFault> {
        PrivateKey::generate(kind).map(Self)
    }

    /// The key as PKCS#8 text.
    ///
    /// # Errors
    /// If the library does not give it away.
    pub fn to_pkcs8_pem(&self) -> Result<Zeroizing<String>, PrivateKeyFault> {
        self.0.to_pkcs8_pem()
    }

    /// An RSA key as PKCS#1 text.
    ///
    /// # Errors
    /// If it is no RSA key, or the library does not give it away.
    pub fn to_pkcs1_pem(&self) -> Result<Zeroizing<String>, PrivateKeyFault> {
        self.0.to_pkcs1_pem()
    }

    /// Reads a key of any supported kind, after the operator put another one in place.
    ///
    /// # Errors
    /// If the text does not hold exactly one usable, unencrypted key.
    pub fn from_pkcs8_pem(text: &str) -> Result<Self, PrivateKeyFault> {
        PrivateKey::from_pem(text.as_bytes()).map(Self)
    }

    /// The public half as `SubjectPublicKeyInfo` DER.
    #[must_use]
    pub fn spki_der(&self) -> &[u8] {
        self.0.spki_der()
    }

    /// A signed PKCS#10 request (RFC 2986) for this key, checked by the same parser that judges everyone's requests:
    /// a name that could not be enrolled is refused here.
    ///
    /// # Errors
    /// If a name is not acceptable or the library does not sign.
    pub fn request(
        &self,
        common_name: &str,
        organizations: &[&str],
        alt_names: &[AltName],
    ) -> Result<Vec<u8>, RequestFault> {
        let organized = organizations
            .iter()
            .fold(SubjectBuilder::new(), |subject, organization| {
                subject.push(oid::ORGANIZATION, organization, StringKind::Utf8)
            });
        let subject_der = organized
            .push(oid::COMMON_NAME, common_name, StringKind::Utf8)
            .build();
        let extensions: Vec<_> = (!alt_names.is_empty())
            .then(|| ext::subject_alt_name(alt_names, false))
            .into_iter()
            .collect();
        let der = self.signed_request(&subject_der, &extensions, &[])?;
        CheckedCsr::check(&der, &CsrLimits::STANDARD)
            .map_err(|source| RequestFault::Refused { source })?;
        Ok(der)
    }

    /// A signed PKCS#10 request of any parts, whether anybody would take it or not.
    ///
    /// # Errors
    /// If the parts do not make a request or the library does not sign.
    pub fn signed_request(
        &self,
        subject_der: &[u8],
        extensions: &[Extension],
        attributes: &[Attribute],
    ) -> Result<Vec<u8>, RequestFault> {
        let template = RequestTemplate {
            subject_der,
            spki_der: self.0.spki_der(),
            extensions,
            attributes,
        };
        let encode = |source| RequestFault::Encode { source };
        let info = template.to_be_signed().map_err(encode)?;
        let signature = self.0.sign(&info);
        let signature = signature.map_err(|source| RequestFault::Key { source })?;
        seal(&info, self.0.algorithm(), &signature).map_err(encode)
    }
}

/// Why there is no request.
#[derive(Debug, thiserror::Error)]
pub enum RequestFault {
    /// The parts do not make a request.
    #[error("the request cannot be encoded")]
    Encode {
        /// Why.
        source: EncodeFault,
    },
    /// The key failed.
    #[error("the request cannot be signed")]
    Key {
        /// Why.
        source: PrivateKeyFault,
    },
    /// A name in it is not acceptable.
    #[error("the request would be refused")]
    Refused {
        /// Why.
        source: CsrFault,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_says_what_was_asked() {
        let key = LeafKey::generate().unwrap();
        let names = [
            AltName::Dns("ca.example".into()),
            AltName::Ip("192.0.2.1".parse().unwrap()),
        ];
        let der = key
            .request("admin", &["system:masters", "b"], &names)
            .unwrap();
        let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
        assert_eq!(csr.subject().first_common_name(), Some("admin"));
        assert_eq!(
            csr.subject().organizations().collect::<Vec<_>>(),
            ["system:masters", "b"]
        );
        assert_eq!(csr.alt_names(), names);
        assert_eq!(csr.spki_der(), key.spki_der());

        let plain = key.request("admin", &[], &[]).unwrap();
        assert!(
            CheckedCsr::check(&plain, &CsrLimits::STANDARD)
                .unwrap()
                .attributes()
                .is_empty()
        );
    }

    #[test]
    fn names_that_nobody_could_enrol_are_refused() {
        let key = LeafKey::generate().unwrap();
        assert!(matches!(
            key.request("a\nb", &[], &[]),
            Err(RequestFault::Refused { .. })
        ));
        let names = [AltName::Dns("käse.example".into())];
        assert!(matches!(
            key.request("a", &[], &names),
            Err(RequestFault::Refused { .. })
        ));
    }

    #[test]
    fn text_brings_the_same_key_back() {
        let key = LeafKey::generate().unwrap();
        let again = LeafKey::from_pkcs8_pem(&key.to_pkcs8_pem().unwrap()).unwrap();
        assert_eq!(again.spki_der(), key.spki_der());
        assert!(LeafKey::from_pkcs8_pem("no key").is_err());
    }
}
