//! How a CA is recognised, and who we are there.

use std::fmt;
use std::sync::{Arc, LazyLock};

use countersign_pki::pem::{self, PemLimits};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};
use zeroize::Zeroizing;

use super::CaFault;
use crate::client::{certificates_among, private_key_among};
use crate::trust::{Witness, tls_builder};

/// How a CA is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaTrust {
    /// By these certificates, PEM.
    Roots(Vec<u8>),
    /// By those that this system trusts.
    System,
    /// Not at all: whoever answers is taken for the CA.
    Anybody,
}

/// A client certificate and its key.
#[derive(Clone)]
pub struct Identity(Arc<SingleCertAndKey>);

impl Identity {
    /// Reads PEM texts: a certificate, perhaps with those above it, and its key, PKCS#1, PKCS#8 or SEC 1.
    ///
    /// # Errors
    /// If they cannot be used, alone or together.
    pub fn read(certificate: &[u8], key: &[u8]) -> Result<Self, CaFault> {
        let blocks = |what, text| {
            pem::decode_all(text, &LIMITS).map_err(|source| CaFault::IdentityPem { what, source })
        };
        let missing = |what, label| CaFault::NoIdentity { what, label };
        let chain = certificates_among(blocks("certificate", certificate)?);
        if chain.is_empty() {
            return Err(missing("certificate", "CERTIFICATE"));
        }
        let key = private_key_among(blocks("key", key)?);
        let key = Zeroizing::new(key.ok_or(missing("key", "PRIVATE KEY"))?);
        let key = any_supported_type(&key).map_err(CaFault::Identity)?;
        let pair = CertifiedKey::new(chain, key);
        match pair.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                Ok(Self(Arc::new(SingleCertAndKey::from(pair))))
            }
            Err(fault) => Err(CaFault::Identity(fault)),
        }
    }
}

/// Nothing of it.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

pub(super) fn tls(trust: &CaTrust, identity: Option<&Identity>) -> Result<ClientConfig, CaFault> {
    let builder = tls_builder().map_err(CaFault::Tls)?;
    let builder = match trust {
        CaTrust::Roots(text) => builder.with_root_certificates(roots(text)?),
        CaTrust::System if SYSTEM.is_empty() => return Err(CaFault::NoSystemRoots),
        CaTrust::System => builder.with_root_certificates(Arc::clone(&SYSTEM)),
        CaTrust::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Witness::new())),
    };
    Ok(match identity {
        Some(identity) => builder.with_client_cert_resolver(Arc::clone(&identity.0) as _),
        None => builder.with_no_client_auth(),
    })
}

fn roots(text: &[u8]) -> Result<RootCertStore, CaFault> {
    let blocks = pem::decode_all(text, &LIMITS).map_err(CaFault::RootsPem)?;
    let mut roots = RootCertStore::empty();
    for (before, certificate) in certificates_among(blocks).into_iter().enumerate() {
        let position = before.saturating_add(1);
        roots
            .add(certificate)
            .map_err(|source| CaFault::Root { position, source })?;
    }
    match roots.is_empty() {
        true => Err(CaFault::NoRoots),
        false => Ok(roots),
    }
}

/// The certificates that this system trusts, as they were when they were first needed: reading them opens hundreds of files.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});
const LIMITS: PemLimits = PemLimits {
    max_text: 1024 * 1024,
    max_blocks: 1000,
};

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_pki::UnixTime;
    use countersign_testkit::chain::Ca;
    use countersign_testkit::keys;

    fn certificate() -> String {
        let now = UnixTime(1_800_000_000);
        Ca::root("root", keys::rsa2048_a(), now)
            .certificate
            .to_pem()
    }

    #[test]
    fn an_identity_is_a_certificate_and_its_own_key() {
        let certificate = certificate();
        let own = keys::rsa2048_a().pkcs8_pem();
        let pkcs1 = crate::ca::Key::read(own.as_bytes()).unwrap().to_pkcs1_pem();
        let pkcs1 = pkcs1.unwrap();
        for (case, certificate, key, expected) in [
            ("PKCS#8", certificate.as_str(), own, "Identity"),
            ("PKCS#1", &certificate, &pkcs1, "Identity"),
            (
                "another key",
                &certificate,
                keys::rsa2048_b().pkcs8_pem(),
                "together",
            ),
            (
                "no key",
                &certificate,
                &certificate,
                "the client key contains no",
            ),
            (
                "no certificate",
                own,
                own,
                "the client certificate contains no",
            ),
            (
                "no PEM",
                "-----BEGIN CERTIFICATE-----",
                own,
                "the client certificate is not PEM",
            ),
        ] {
            let read = Identity::read(certificate.as_bytes(), key.as_bytes());
            let read = read.map_or_else(|fault| fault.to_string(), |one| format!("{one:?}"));
            assert!(read.contains(expected), "{case}: {read}");
        }
    }

    #[test]
    fn roots_are_read_whole_or_not_at_all() {
        let certificate = certificate();
        let damaged = pem::encode("CERTIFICATE", b"damaged");
        for (case, text, expected) in [
            ("one", certificate.clone(), None),
            ("two", format!("{certificate}{certificate}"), None),
            ("none", String::new(), Some("no CERTIFICATE block")),
            (
                "a damaged one",
                format!("{certificate}{damaged}"),
                Some("certificate 2 of"),
            ),
            (
                "no PEM",
                "-----BEGIN CERTIFICATE-----".into(),
                Some("not PEM"),
            ),
        ] {
            let fault = tls(&CaTrust::Roots(text.into_bytes()), None).err();
            let fault = fault.map(|fault| fault.to_string());
            match expected {
                Some(part) => assert!(fault.unwrap().contains(part), "{case}"),
                None => assert_eq!(fault, None, "{case}"),
            }
        }
    }
}
