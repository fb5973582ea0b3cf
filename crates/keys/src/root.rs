//! The self-signed certificate of a new issuer.

use countersign_authority::{IssuerId, KeyStore, SignFault};
use countersign_pki::{
    CertFault, Certificate, CertificateTemplate, EncodeFault, KeyUsage, Serial, SubjectBuilder,
    UnixTime, VerifyFault, ext, seal,
};

/// What a root says about itself.
#[derive(Clone, Debug)]
pub struct RootCertificate<'a> {
    /// The whole name, for example `Puppet CA: ca.example.com`.
    pub common_name: &'a str,
    /// First second of validity.
    pub not_before: UnixTime,
    /// Last second of validity.
    pub not_after: UnixTime,
    /// Its own serial number.
    pub serial: Serial,
}

/// Makes the self-signed certificate of an issuer whose key is loaded, as PEM. Its extensions are those that RFC 5280
/// 4.2.1 demands of an authority, and no others: basicConstraints and keyUsage, critical, and both key identifiers.
///
/// # Errors
/// If the parts make no certificate, the key does not sign, or what it signed does not verify.
pub async fn create_issuer(
    keys: &dyn KeyStore,
    issuer: &IssuerId,
    root: &RootCertificate<'_>,
) -> Result<String, RootFault> {
    if root.common_name.trim().is_empty() || root.common_name.chars().any(char::is_control) {
        return Err(RootFault::CommonName);
    }
    let failed = |source| RootFault::Sign { source };
    let algorithm = keys.algorithm(issuer).map_err(failed)?;
    let spki_der = keys.public_key(issuer).map_err(failed)?;
    let name = SubjectBuilder::utf8_common_name(root.common_name);
    let tbs = to_be_signed(root, algorithm, &name, &spki_der)
        .map_err(|source| RootFault::Encode { source })?;
    let signature = keys.sign(issuer, tbs.clone()).await.map_err(failed)?;
    let der = seal(&tbs, algorithm, &signature.0).map_err(|source| RootFault::Encode { source })?;

    // A root lives for many years and is made once: it is read back and verified, whatever its key.
    let certificate = Certificate::parse(&der).map_err(|source| RootFault::Malformed { source })?;
    certificate
        .verify_signed_by(&spki_der)
        .map_err(|source| RootFault::Unverifiable { source })?;
    Ok(certificate.to_pem())
}

fn to_be_signed(
    root: &RootCertificate<'_>,
    algorithm: countersign_pki::SignatureAlgorithm,
    name: &[u8],
    spki_der: &[u8],
) -> Result<Vec<u8>, EncodeFault> {
    let extensions = [
        ext::basic_constraints_ca(),
        ext::key_usage(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN),
        ext::subject_key_id(spki_der)?,
        ext::authority_key_id(&ext::key_id(spki_der)?),
    ];
    CertificateTemplate {
        serial: root.serial,
        algorithm,
        issuer_name_der: name,
        not_before: root.not_before,
        not_after: root.not_after,
        subject_der: name,
        spki_der,
        extensions: &extensions,
    }
    .to_be_signed()
}

/// Why there is no root certificate.
#[derive(Debug, thiserror::Error)]
pub enum RootFault {
    /// An empty name, or one with control characters.
    #[error("the issuer's common name is empty or has control characters")]
    CommonName,
    /// The parts make no certificate.
    #[error("the issuer's certificate cannot be encoded")]
    Encode {
        /// Why.
        source: EncodeFault,
    },
    /// The key did not sign.
    #[error("the issuer's certificate cannot be signed")]
    Sign {
        /// Why.
        source: SignFault,
    },
    /// The result does not parse.
    #[error("the issuer's certificate is malformed; it was not released")]
    Malformed {
        /// Why.
        source: CertFault,
    },
    /// The result does not verify with the issuer's own key.
    #[error("the issuer's certificate does not verify with its own key; it was not released")]
    Unverifiable {
        /// Why.
        source: VerifyFault,
    },
}
