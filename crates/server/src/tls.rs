//! TLS: the server's own certificate, and the verification of clients' certificates.

use std::fmt;
use std::sync::Arc;

use countersign_authority::{Authority, IssuerId};
use countersign_pki::{Certificate, oid, pem};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, UnixTime as TlsTime,
};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};

/// A listener's own certificate chain and key, PEM.
pub struct TlsIdentity {
    /// The certificate and what follows it up to the root.
    pub chain_pem: Vec<u8>,
    /// The PKCS#8 private key.
    pub key_pem: zeroize::Zeroizing<Vec<u8>>,
}

/// Why a listener cannot speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsFault {
    /// The chain or key file is not PEM, or empty.
    #[error("the {what} is not readable as PEM")]
    Pem {
        /// Which file.
        what: &'static str,
    },
    /// Certificate and key do not serve together.
    #[error("the server certificate and key cannot be used")]
    Unusable(#[from] Error),
}

/// Clients whose certificates somebody else signs. The ledger does not know them, nor who of them was revoked.
#[derive(Clone)]
pub struct ForeignClients(Arc<dyn ClientCertVerifier>);

impl ForeignClients {
    /// Those below these CA certificates, PEM.
    pub fn below(ca_pem: &[u8]) -> Result<Self, TlsFault> {
        const WHAT: &str = "bundle of client CAs";
        let mut roots = RootCertStore::empty();
        for block in blocks(ca_pem, WHAT)? {
            if block.label == "CERTIFICATE" {
                roots.add(CertificateDer::from(block.der))?;
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build();
        // It fails where there is no certificate at all.
        let verifier = verifier.map_err(|_| TlsFault::Pem { what: WHAT })?;
        Ok(Self(verifier))
    }
}

/// What a client certificate that does not count costs its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBadCertificate {
    /// The connection: there is no handshake. So Puppet Server does.
    FailHandshake,
    /// Its identity: the door answers the requests of somebody it does not know. So API servers do, and what needs no
    /// identity stays within reach. Possession of the key is proven all the same.
    TreatAsUnknown,
}

/// The TLS settings of a listener for the clients that `rules` describe.
///
/// A client certificate is asked for and not required. No session is ever resumed and no ticket sent:
/// a resumed session would skip the check of the client's certificate, and a ticket that arrives after
/// an answer makes Ruby's HTTP client wait for the end of the connection before its next request.
pub(crate) fn server_config(
    rules: ClientRules,
    on_bad_certificate: OnBadCertificate,
    identity: &TlsIdentity,
) -> Result<ServerConfig, TlsFault> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = ClientVerifier {
        rules,
        on_bad_certificate,
        provider: Arc::clone(&provider),
    };
    let (chain, key) = pair(identity)?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(chain, key)?;
    Ok(as_all_listeners(config))
}

/// The same for a listener that asks nobody for a certificate.
pub(crate) fn anonymous_server_config(identity: &TlsIdentity) -> Result<ServerConfig, TlsFault> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let (chain, key) = pair(identity)?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(as_all_listeners(config))
}

fn as_all_listeners(mut config: ServerConfig) -> ServerConfig {
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn pair(identity: &TlsIdentity) -> Result<Pair, TlsFault> {
    let chain = blocks(&identity.chain_pem, "server certificate")?
        .into_iter()
        .filter(|block| block.label == "CERTIFICATE")
        .map(|block| CertificateDer::from(block.der))
        .collect();
    let key = blocks(&identity.key_pem, "server key")?
        .into_iter()
        .find_map(|block| match block.label.as_str() {
            "PRIVATE KEY" => Some(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(block.der))),
            // Keys of other authorities' making.
            "RSA PRIVATE KEY" => Some(PrivateKeyDer::Pkcs1(block.der.into())),
            "EC PRIVATE KEY" => Some(PrivateKeyDer::Sec1(block.der.into())),
            _ => None,
        })
        .ok_or(TlsFault::Pem { what: "server key" })?;
    Ok((chain, key))
}

fn blocks(text: &[u8], what: &'static str) -> Result<Vec<pem::Block>, TlsFault> {
    pem::decode_all(text, &pem::PemLimits::BUNDLE).map_err(|_| TlsFault::Pem { what })
}

/// Which client certificates count: those that one issuer signed for clients, as long as they hold and are not revoked.
/// Whether the ledger knows them is asked later, because that takes a store.
///
/// Issuers are matched by key, not by name bytes: a CA that was taken over may have written its name in
/// another string type than the certificates it issued before.
#[derive(Clone)]
pub(crate) struct ClientRules {
    pub(crate) authority: Authority,
    pub(crate) issuer: IssuerId,
    /// In their place, those that somebody else signed.
    pub(crate) foreign: Option<ForeignClients>,
}

impl ClientRules {
    /// The certificate, if it counts now.
    pub(crate) fn check(&self, der: &[u8]) -> Result<Certificate, CertificateError> {
        let certificate = Certificate::parse(der).map_err(|_| CertificateError::BadEncoding)?;
        let issuer = self
            .authority
            .issuers
            .get(&self.issuer)
            .ok_or(CertificateError::UnknownIssuer)?;
        if !issuer.has_signed(&certificate) {
            return Err(CertificateError::UnknownIssuer);
        }
        let now = self.authority.now();
        if now > certificate.not_after() {
            return Err(CertificateError::Expired);
        }
        if now < certificate.not_before() {
            return Err(CertificateError::NotValidYet);
        }
        let usages = certificate.extended_key_usages();
        let is_client = usages.is_empty()
            || usages
                .iter()
                .any(|u| *u == oid::EKU_CLIENT_AUTH || *u == oid::EKU_ANY);
        if certificate.is_ca() || !is_client {
            return Err(CertificateError::InvalidPurpose);
        }
        if self
            .authority
            .ledger
            .is_revoked(&self.issuer, &certificate.serial())
        {
            return Err(CertificateError::Revoked);
        }
        Ok(certificate)
    }
}

/// The rules, where a handshake asks for them.
struct ClientVerifier {
    rules: ClientRules,
    on_bad_certificate: OnBadCertificate,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // None: clients that compare names byte by byte would otherwise withhold their certificate.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: TlsTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(ForeignClients(verifier)) = &self.rules.foreign {
            return verifier.verify_client_cert(end_entity, intermediates, now);
        }
        match self.on_bad_certificate {
            OnBadCertificate::FailHandshake => {
                self.rules.check(end_entity)?;
            }
            // The listener applies the rules once it knows whose key it is.
            OnBadCertificate::TreatAsUnknown => {}
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // By the key alone. The library's own reading of the certificate refuses every critical extension that it
        // does not know, and agents may have critical Puppet extensions; what the certificate is worth is said above.
        let certificate =
            Certificate::parse(cert).map_err(|_| Error::from(CertificateError::BadEncoding))?;
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(certificate.spki_der()),
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl fmt::Debug for ClientVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientVerifier")
            .field("issuer", &self.rules.issuer)
            .finish_non_exhaustive()
    }
}
