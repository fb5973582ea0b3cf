//! Certificates of new issuers: self-signed, or signed by a root that is kept apart.

use countersign_authority::{IssuerId, KeyStore, SignFault};
use countersign_pki::{
    CertFault, Certificate, CertificateTemplate, CrlTemplate, EncodeFault, KeyUsage, Serial,
    SubjectBuilder, UnixTime, VerifyFault, ext, seal,
};

/// What a new CA's certificate says.
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
    let name = SubjectBuilder::utf8_common_name(root.common_name);
    let spki_der = keys
        .public_key(issuer)
        .map_err(|source| RootFault::Sign { source })?;
    let above = Above {
        id: issuer,
        name_der: &name,
        spki_der: &spki_der,
        key_id: ext::key_id(&spki_der).map_err(|source| RootFault::Encode { source })?,
    };
    signed(keys, &above, &spki_der, root).await
}

/// Makes the certificate of an issuer below a root, both of whose keys are loaded, as PEM; with the extensions of
/// [`create_issuer`].
///
/// # Errors
/// As [`create_issuer`].
pub async fn create_intermediate(
    keys: &dyn KeyStore,
    root: (&IssuerId, &Certificate),
    issuer: &IssuerId,
    facts: &RootCertificate<'_>,
) -> Result<String, RootFault> {
    let spki_der = keys
        .public_key(issuer)
        .map_err(|source| RootFault::Sign { source })?;
    let above = Above::of(root)?;
    signed(keys, &above, &spki_der, facts).await
}

/// Makes the first CRL of a CA that has revoked nothing, as DER: number 0, as Puppet Server's tool begins.
///
/// # Errors
/// If the parts make no list or the key does not sign.
pub async fn create_empty_crl(
    keys: &dyn KeyStore,
    root: (&IssuerId, &Certificate),
    this_update: UnixTime,
    next_update: UnixTime,
) -> Result<Vec<u8>, RootFault> {
    let above = Above::of(root)?;
    let failed = |source| RootFault::Sign { source };
    let algorithm = keys.algorithm(above.id).map_err(failed)?;
    let template = CrlTemplate {
        algorithm,
        issuer_name_der: above.name_der,
        this_update,
        next_update,
        number: 0,
        authority_key_id: &above.key_id,
        entries: &[],
    };
    let tbs = template
        .to_be_signed()
        .map_err(|source| RootFault::Encode { source })?;
    let signing = keys.sign(above.id, above.spki_der, tbs.clone());
    let signature = signing.await.map_err(failed)?;
    seal(&tbs, algorithm, &signature.0).map_err(|source| RootFault::Encode { source })
}

/// Who signs a CA certificate.
struct Above<'a> {
    id: &'a IssuerId,
    name_der: &'a [u8],
    spki_der: &'a [u8],
    key_id: Vec<u8>,
}

impl<'a> Above<'a> {
    fn of((id, certificate): (&'a IssuerId, &'a Certificate)) -> Result<Self, RootFault> {
        let key_id = match certificate.subject_key_id() {
            Some(key_id) => key_id.to_vec(),
            None => ext::key_id(certificate.spki_der())
                .map_err(|source| RootFault::Encode { source })?,
        };
        Ok(Self {
            id,
            name_der: certificate.subject().der(),
            spki_der: certificate.spki_der(),
            key_id,
        })
    }
}

async fn signed(
    keys: &dyn KeyStore,
    above: &Above<'_>,
    spki_der: &[u8],
    facts: &RootCertificate<'_>,
) -> Result<String, RootFault> {
    if facts.common_name.trim().is_empty() || facts.common_name.chars().any(char::is_control) {
        return Err(RootFault::CommonName);
    }
    let failed = |source| RootFault::Sign { source };
    let algorithm = keys.algorithm(above.id).map_err(failed)?;
    let tbs = to_be_signed(facts, algorithm, above, spki_der)
        .map_err(|source| RootFault::Encode { source })?;
    let signing = keys.sign(above.id, above.spki_der, tbs.clone());
    let signature = signing.await.map_err(failed)?;
    let der = seal(&tbs, algorithm, &signature.0).map_err(|source| RootFault::Encode { source })?;

    // A CA lives for many years and is made once: it is read back and verified, whatever the key.
    let certificate = Certificate::parse(&der).map_err(|source| RootFault::Malformed { source })?;
    certificate
        .verify_signed_by(above.spki_der)
        .map_err(|source| RootFault::Unverifiable { source })?;
    Ok(certificate.to_pem())
}

fn to_be_signed(
    facts: &RootCertificate<'_>,
    algorithm: countersign_pki::SignatureAlgorithm,
    above: &Above<'_>,
    spki_der: &[u8],
) -> Result<Vec<u8>, EncodeFault> {
    let extensions = [
        ext::basic_constraints_ca(),
        ext::key_usage(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN),
        ext::subject_key_id(spki_der)?,
        ext::authority_key_id(&above.key_id),
    ];
    CertificateTemplate {
        serial: facts.serial,
        algorithm,
        issuer_name_der: above.name_der,
        not_before: facts.not_before,
        not_after: facts.not_after,
        subject_der: &SubjectBuilder::utf8_common_name(facts.common_name),
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
    /// The result does not verify with the key that signed it.
    #[error(
        "the issuer's certificate does not verify with the key that signed it; it was not released"
    )]
    Unverifiable {
        /// Why.
        source: VerifyFault,
    },
}
