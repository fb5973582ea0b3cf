//! The private key of a certificate that a Puppet CA issues, and the request for it.

use std::net::IpAddr;

use countersign_pki::{
    AltName, Attribute, Certificate, CheckedCsr, CsrLimits, Extension, Oid, RawValue,
    SubjectBuilder, ext, oid, pem,
};
use countersign_private_keys::{KeySpec, LeafKey, PrivateKeyFault, RequestFault};
use zeroize::Zeroizing;

/// A private key. It is never shown.
pub struct Key(LeafKey);

/// Why there is no key, or no request for it. No variant carries key material.
#[derive(Debug, thiserror::Error)]
pub enum KeyFault {
    /// The file is no PEM.
    #[error("the key is not text")]
    NotText,
    /// It cannot be read, made or used.
    #[error(transparent)]
    Key(#[from] PrivateKeyFault),
    /// The extension has no number.
    #[error("unknown extension {0:?}: use one of Puppet's short names, such as pp_cost_center")]
    UnknownExtension(String),
    /// There is no name to ask for.
    #[error("the certname is empty")]
    NoCertname,
    /// There is no request, or a CA would refuse it.
    #[error("no certificate can be requested for {certname}")]
    Request {
        /// The name.
        certname: String,
        /// Why.
        source: RequestFault,
    },
}

impl Key {
    /// A fresh key as Puppet makes them: RSA of 4096 bits. It takes seconds.
    ///
    /// # Errors
    /// If the library makes none.
    pub fn generate() -> Result<Self, KeyFault> {
        Ok(Self(LeafKey::generate_kind(KeySpec::Rsa4096)?))
    }

    /// Reads the one key of a PEM text: PKCS#1, PKCS#8 or SEC 1, and not encrypted.
    ///
    /// # Errors
    /// If there is no such key.
    pub fn read(text: &[u8]) -> Result<Self, KeyFault> {
        let text = std::str::from_utf8(text).map_err(|_| KeyFault::NotText)?;
        Ok(Self(LeafKey::from_pkcs8_pem(text)?))
    }

    /// The key as Puppet stores it.
    ///
    /// # Errors
    /// If it is no RSA key.
    pub fn to_pkcs1_pem(&self) -> Result<Zeroizing<String>, KeyFault> {
        Ok(self.0.to_pkcs1_pem()?)
    }

    /// The public half as `SubjectPublicKeyInfo` DER.
    #[must_use]
    pub fn spki_der(&self) -> &[u8] {
        self.0.spki_der()
    }

    /// Whether a certificate is for this key.
    #[must_use]
    pub fn matches(&self, certificate: &Certificate) -> bool {
        certificate.spki_der() == self.0.spki_der()
    }

    /// A signed request, PEM, for a name, host names and IP addresses besides, and extensions by short name in their order. An
    /// extension may be a password. The certname is not added to the names.
    ///
    /// # Errors
    /// If there is no certname, an extension is unknown or requested twice, or a name cannot be in a certificate.
    pub fn request(
        &self,
        certname: &str,
        names: &[String],
        extensions: &[(String, String)],
    ) -> Result<Zeroizing<String>, KeyFault> {
        if certname.is_empty() {
            return Err(KeyFault::NoCertname);
        }
        let mut requested = Vec::new();
        if !names.is_empty() {
            let names: Vec<_> = names.iter().map(|name| alt_name(name)).collect();
            requested.push(ext::subject_alt_name(&names, false));
        }
        for (name, text) in extensions {
            let oid = extension_oid(name);
            let oid = oid.ok_or_else(|| KeyFault::UnknownExtension(name.clone()))?;
            requested.push(text_extension(oid, text));
        }
        let refused = |source| KeyFault::Request {
            certname: certname.to_owned(),
            source,
        };
        let subject = SubjectBuilder::utf8_common_name(certname);
        let der = self.0.signed_request(&subject, &requested, &[]);
        let der = Zeroizing::new(der.map_err(refused)?);
        CheckedCsr::check(&der, &CsrLimits::STANDARD)
            .map_err(|source| refused(RequestFault::Refused { source }))?;
        Ok(Zeroizing::new(pem::encode("CERTIFICATE REQUEST", &der)))
    }
}

/// The number of an extension that openvox-operator knows by this name. It calls `pp_auth_token` what Puppet calls
/// `pp_auth_auto_renew`, and has the challenge password as an extension.
#[must_use]
pub fn extension_oid(name: &str) -> Option<Oid> {
    match name {
        "pp_auth_token" => Some(oid::PP_AUTH_AUTO_RENEW),
        "challengePassword" => Some(oid::CHALLENGE_PASSWORD),
        registered => oid::registered_oid(registered),
    }
}

fn alt_name(name: &str) -> AltName {
    match name.parse::<IpAddr>() {
        Ok(address) => AltName::Ip(address),
        Err(_) => AltName::Dns(name.to_owned()),
    }
}

/// An extension that holds a text, in the same form as an attribute.
fn text_extension(oid: Oid, text: &str) -> Extension {
    let values = Attribute::of_text(oid, text).values;
    Extension {
        oid,
        critical: false,
        value: values.iter().flat_map(RawValue::der).copied().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_testkit::keys;

    fn key() -> Key {
        Key::read(keys::rsa2048_a().pkcs8_pem().as_bytes()).unwrap()
    }

    fn pairs(extensions: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        extensions.iter().map(owned).collect()
    }

    /// Name, further names, and each extension with the tag of its string.
    fn contents(names: &[&str], extensions: &[(&str, &str)]) -> Result<String, KeyFault> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let text = key().request("web01.example.com", &names, &pairs(extensions))?;
        let csr = CheckedCsr::from_pem(text.as_bytes(), &CsrLimits::STANDARD).unwrap();
        assert_eq!(csr.spki_der(), keys::rsa2048_a().spki_der());
        let subject: Vec<_> = csr.subject().attributes().collect();
        assert_eq!(subject.len(), 1);
        assert!(csr.extensions().iter().all(|one| !one.critical));
        let extensions = csr.extensions().iter().map(|one| match one.text_value() {
            Some(text) => format!(" {}={:#04x}:{text}", one.oid, one.value[0]),
            None => format!(" {}", one.oid),
        });
        let common_name = csr.subject().first_common_name().unwrap();
        Ok(format!(
            "{common_name} {:?}{}",
            csr.alt_names(),
            extensions.collect::<String>()
        ))
    }

    #[test]
    fn a_request_holds_what_was_ordered_in_its_order() {
        let web = "web01.example.com";
        for (case, names, extensions, expected) in [
            ("nothing besides", &[][..], &[][..], format!("{web} []")),
            (
                "names and addresses",
                &["web", "10.0.0.1", "2001:db8::1"],
                &[],
                format!("{web} [Dns(\"web\"), Ip(10.0.0.1), Ip(2001:db8::1)] 2.5.29.17"),
            ),
            (
                "the example of the documentation",
                &[],
                &[
                    ("pp_cli_auth", "true"),
                    ("pp_role", "compiler"),
                    ("pp_environment", "production"),
                    ("pp_cost_center", "IT"),
                    ("pp_department", "Engineering"),
                ],
                format!(
                    "{web} [] 1.3.6.1.4.1.34380.1.3.39=0x13:true 1.3.6.1.4.1.34380.1.1.13=0x13:compiler \
                     1.3.6.1.4.1.34380.1.1.12=0x13:production 1.3.6.1.4.1.34380.1.1.5=0x13:IT \
                     1.3.6.1.4.1.34380.1.1.15=0x13:Engineering"
                ),
            ),
            (
                "names before extensions, other alphabets, other names",
                &["web"],
                &[
                    ("pp_project", "a_b"),
                    ("pp_zone", "Zürich"),
                    ("pp_owner", "A '()+,-./:=?9"),
                    ("pp_auth_token", "x"),
                    ("challengePassword", "y"),
                ],
                format!(
                    "{web} [Dns(\"web\")] 2.5.29.17 1.3.6.1.4.1.34380.1.1.7=0x0c:a_b 1.3.6.1.4.1.34380.1.1.20=0x0c:Zürich \
                     1.3.6.1.4.1.34380.1.1.26=0x13:A '()+,-./:=?9 1.3.6.1.4.1.34380.1.3.2=0x13:x \
                     1.2.840.113549.1.9.7=0x13:y"
                ),
            ),
        ] {
            assert_eq!(contents(names, extensions).unwrap(), expected, "{case}");
        }
    }

    #[test]
    fn requests_that_nobody_could_grant_are_not_made() {
        assert!(matches!(
            contents(&[], &[("bogus", "x")]),
            Err(KeyFault::UnknownExtension(name)) if name == "bogus"
        ));
        for (names, extensions) in [
            (&[][..], &[("pp_role", "a"), ("pp_role", "b")][..]),
            (&["käse.example"], &[]),
            (&[""], &[]),
        ] {
            let fault = contents(names, extensions).unwrap_err();
            assert!(matches!(fault, KeyFault::Request { .. }), "{fault}");
        }
        assert!(matches!(
            key().request("", &[], &[]),
            Err(KeyFault::NoCertname)
        ));
    }

    #[test]
    fn a_key_is_the_same_in_every_form() {
        let pkcs1 = key().to_pkcs1_pem().unwrap();
        assert!(pkcs1.starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
        let again = Key::read(pkcs1.as_bytes()).unwrap();
        assert_eq!(again.spki_der(), keys::rsa2048_a().spki_der());
        assert_eq!(again.to_pkcs1_pem().unwrap(), pkcs1);
        let pkcs8 = again.0.to_pkcs8_pem().unwrap();
        assert!(pkcs8.contains("-----BEGIN PRIVATE KEY-----"));
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_shown() {
        let secret = pem::encode("RSA PRIVATE KEY", b"hunter2");
        for text in [&b""[..], b"\xff\xfe", b"no key", secret.as_bytes()] {
            let fault = Key::read(text).err().unwrap();
            assert!(
                !format!("{fault:?} {fault}").contains("aHVudGVyMg"),
                "{fault}"
            );
        }
        let curve = Key::read(keys::p256_a().pkcs8_pem().as_bytes()).unwrap();
        assert!(matches!(
            curve.to_pkcs1_pem(),
            Err(KeyFault::Key(PrivateKeyFault::NotRsa))
        ));
    }
}
