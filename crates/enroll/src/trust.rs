//! Whom we believe to be the authority. Nothing secret is sent before a connection was verified with what is decided here.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use countersign_pki::{Certificate, Fingerprint, UnixTime, fingerprint_sha256, pem};
use http::StatusCode;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
    WantsVerifier,
};

use crate::Door;
use crate::client::{Client, Manners};
use crate::error::{Cause, EnrolError, Result, internal};
use crate::files;

/// How the authority is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// By certificates that somebody brought.
    File(PathBuf),
    /// By the digest of one of its certificates.
    Fingerprint(Fingerprint),
    /// By what it says when it is first asked.
    FirstUse,
    /// By what an earlier run has installed.
    Installed,
}

/// The authority's certificates.
#[derive(Clone, PartialEq, Eq)]
pub struct Bundle {
    /// As they were received or read, if nothing had to be left out.
    text: Vec<u8>,
    certificates: Vec<Certificate>,
}

impl Trust {
    /// The certificates to verify the authority with, and what somebody should know if whoever answered was believed.
    pub(crate) async fn establish(
        &self,
        server: &Server,
        installed: &Path,
        now: UnixTime,
    ) -> Result<(Bundle, Option<String>)> {
        let kept = match self {
            Self::File(path) => {
                let text = files::read(path)?.ok_or_else(|| {
                    let what = format!("--ca-file {} is not there", path.display());
                    EnrolError::Arguments(what, None)
                })?;
                return Bundle::read(&text, &path.display().to_string(), now).map(|b| (b, None));
            }
            Self::Fingerprint(_) | Self::FirstUse | Self::Installed => files::read(installed)?,
        };
        let kept = kept.map(|text| Bundle::read(&text, &installed.display().to_string(), now));
        let kept = match (self, kept) {
            // What is installed and of no use is fetched anew.
            (Self::Fingerprint(_), Some(Err(_))) | (_, None) => None,
            (_, Some(kept)) => Some(kept?),
        };
        match (self, kept) {
            (Self::Fingerprint(pin), kept) => {
                if let Some(pinned) = kept.and_then(|kept| kept.pinned(*pin)) {
                    return Ok((pinned, None));
                }
                let served = server.served_bundle(now).await?;
                let pinned = served.pinned(*pin).ok_or_else(|| {
                    let what = format!(
                        "{} is not the authority that --ca-fingerprint names; nothing was sent to it: its root certificate has the fingerprint {}",
                        server.url,
                        served.top_fingerprint()
                    );
                    EnrolError::Untrusted(what, None)
                })?;
                Ok((pinned, None))
            }
            (_, Some(bundle)) => Ok((bundle, None)),
            (Self::FirstUse, None) => {
                let served = server.served_bundle(now).await?;
                let warning = format!(
                    "{} is believed to be the authority because it answered first; compare its fingerprint: {}",
                    server.url,
                    served.top_fingerprint()
                );
                Ok((served, Some(warning)))
            }
            (Self::Installed | Self::File(_), None) => {
                let what = format!(
                    "nothing says how to recognise the authority at {}: give its root certificate with --ca-file, or the SHA-256 digest of that with \
                     --ca-fingerprint (`openssl x509 -noout -fingerprint -sha256 -in ca_crt.pem` on the authority prints it), or, on a network where nobody else \
                     can answer, --trust-on-first-use",
                    server.url
                );
                Err(EnrolError::Arguments(what, None))
            }
        }
    }
}

/// Where the authority is and how it is spoken to.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where it is.
    pub url: String,
    /// The protocol that it speaks.
    pub door: Door,
}

impl Server {
    /// `HOST`, `HOST:PORT` or `https://HOST:PORT`, with the door's usual port where none is named.
    ///
    /// # Errors
    /// If the text names no server.
    pub fn new(text: &str, door: Door) -> Result<Self> {
        let bare = text.strip_prefix("https://").unwrap_or(text);
        let bare = bare.strip_suffix('/').unwrap_or(bare);
        let authority: Option<http::uri::Authority> = bare.parse().ok();
        let authority = authority.filter(|a| !a.host().is_empty() && !a.as_str().contains('@'));
        let authority = authority.ok_or_else(|| {
            let what = "--server: no server's URL, write https://HOST:PORT";
            EnrolError::Arguments(what.to_owned(), None)
        })?;
        let port = authority.port_u16().unwrap_or(match door {
            Door::Puppet => 8140,
            Door::Kubernetes => 443,
        });
        let url = format!("https://{}:{port}", authority.host());
        Ok(Self { url, door })
    }

    /// A connection that is verified with these certificates, with ours where we have one.
    pub(crate) fn client(
        &self,
        bundle: &Bundle,
        identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    ) -> Result<Client> {
        let builder = config()?.with_root_certificates(bundle.roots()?);
        let tls = match identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|fault| {
                let what = "the client certificate and its key cannot be used together";
                EnrolError::Arguments(what.to_owned(), Some(fault.into()))
            })?,
            None => builder.with_no_client_auth(),
        };
        Ok(Client::at(&self.url, tls, &MANNERS)?)
    }

    /// The certificates that the server says are the authority's, from whoever it is.
    async fn served_bundle(&self, now: UnixTime) -> Result<Bundle> {
        let witness = Arc::new(Witness::new());
        let tls = config()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&witness) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth();
        let mut client = Client::at(&self.url, tls, &MANNERS)?;
        match self.door {
            Door::Puppet => {
                let reply = client.get(CA_PATH).await?;
                if reply.status != StatusCode::OK {
                    return Err(EnrolError::Refused(format!(
                        "{} has no Puppet CA: GET {CA_PATH} was answered {}; check --server and --door",
                        self.url, reply.status
                    )));
                }
                Bundle::read(&reply.body, &format!("the answer of {}", self.url), now)
            }
            Door::Kubernetes => {
                client.get("/version").await?;
                let sent = witness.sent();
                let chain: String = sent
                    .iter()
                    .map(|der| pem::encode(CERTIFICATE, der))
                    .collect();
                Bundle::read(chain.as_bytes(), "the server's chain", now).map_err(|_| {
                    let what = format!(
                        "{} does not send its CA's certificate when a connection is made, so there is nothing to compare: copy that certificate here and \
                         give it with --ca-file (in a kubeconfig it is certificate-authority-data)",
                        self.url
                    );
                    EnrolError::Untrusted(what, None)
                })
            }
        }
    }
}

impl Bundle {
    /// The CAs among the certificates of a PEM text that are in force; there must be one.
    ///
    /// # Errors
    /// If there is none, or the text cannot be read.
    pub fn read(text: &[u8], origin: &str, now: UnixTime) -> Result<Self> {
        let unusable = |what: &str, fault: Option<Cause>| {
            EnrolError::Untrusted(format!("{origin} {what}"), fault)
        };
        let blocks = pem::decode_all(text, &LIMITS)
            .map_err(|fault| unusable("is not PEM", Some(fault.into())))?;
        let mut certificates = Vec::new();
        let mut left_out = false;
        for block in blocks
            .into_iter()
            .filter(|block| block.label == CERTIFICATE)
        {
            let certificate = Certificate::parse(&block.der).map_err(|fault| {
                unusable(
                    "holds a certificate that cannot be read",
                    Some(fault.into()),
                )
            })?;
            let is_in_force = certificate.not_before() <= now && now <= certificate.not_after();
            match certificate.is_ca() && is_in_force {
                true => certificates.push(certificate),
                false => left_out = true,
            }
        }
        if certificates.is_empty() {
            let what = "holds no certificate of a CA that is valid today";
            return Err(unusable(what, None));
        }
        let text = match left_out {
            true => to_pem(&certificates),
            false => text.to_vec(),
        };
        Ok(Self { text, certificates })
    }

    /// The part of it that stands on the certificate with this digest: the root, or the last one. Puppet agents pin the
    /// digest of the whole text instead (their setting `ca_fingerprint`), which is taken too.
    fn pinned(&self, pin: Fingerprint) -> Option<Self> {
        if fingerprint_sha256(&self.text) == pin {
            return Some(self.clone());
        }
        let last = self.certificates.last();
        let mut candidates = self
            .certificates
            .iter()
            .filter(|one| one.is_self_issued() || Some(*one) == last);
        let anchor = candidates.find(|one| one.fingerprint() == pin)?;
        Some(self.standing_on(std::slice::from_ref(anchor)))
    }

    /// Those of its certificates that are among `anchors` or signed, directly or not, by one of them.
    pub(crate) fn standing_on(&self, anchors: &[Certificate]) -> Self {
        let mut kept: Vec<&Certificate> = Vec::new();
        loop {
            let next = self.certificates.iter().find(|one| {
                let is_signed = kept
                    .iter()
                    .copied()
                    .chain(anchors)
                    .any(|issuer| has_signed(issuer, one));
                !kept.contains(one) && (anchors.contains(one) || is_signed)
            });
            match next {
                Some(next) => kept.push(next),
                None => break,
            }
        }
        if kept.len() == self.certificates.len() {
            return self.clone();
        }
        let in_order = self.certificates.iter().filter(|one| kept.contains(one));
        let certificates: Vec<_> = in_order.cloned().collect();
        Self {
            text: to_pem(&certificates),
            certificates,
        }
    }

    /// The CA here that has signed a certificate.
    pub(crate) fn issuer_of(&self, certificate: &Certificate) -> Option<&Certificate> {
        let mut issuers = self.certificates.iter();
        issuers.find(|issuer| has_signed(issuer, certificate))
    }

    pub(crate) fn certificates(&self) -> &[Certificate] {
        &self.certificates
    }

    /// As it is installed.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Of the root, else the last.
    fn top_fingerprint(&self) -> String {
        let root = self.certificates.iter().find(|one| one.is_self_issued());
        let top = root.or(self.certificates.last());
        top.map_or_else(String::new, |top| top.fingerprint().to_string())
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for certificate in &self.certificates {
            let der = CertificateDer::from(certificate.der().to_vec());
            roots.add(der).map_err(|fault| {
                let what = "a certificate of the authority cannot be used";
                EnrolError::Untrusted(what.to_owned(), Some(fault.into()))
            })?;
        }
        Ok(roots)
    }
}

fn has_signed(issuer: &Certificate, certificate: &Certificate) -> bool {
    issuer.is_ca()
        && issuer.subject().der() == certificate.issuer().der()
        && certificate.verify_signed_by(issuer.spki_der()).is_ok()
}

fn to_pem(certificates: &[Certificate]) -> Vec<u8> {
    let text: String = certificates.iter().map(Certificate::to_pem).collect();
    text.into_bytes()
}

fn config() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>> {
    tls_builder().map_err(internal)
}

/// TLS 1.2 and 1.3.
pub(crate) fn tls_builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Takes every certificate and remembers what was sent. For connections over which only public things are asked for, and
/// whose answers are compared with a digest, or believed because somebody said so.
pub(crate) struct Witness {
    provider: Arc<CryptoProvider>,
    sent: Mutex<Vec<Vec<u8>>>,
}

impl Witness {
    pub(crate) fn new() -> Self {
        Self {
            provider: provider(),
            sent: Mutex::default(),
        }
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        let sent = self.sent.lock();
        sent.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let all = std::iter::once(end_entity).chain(intermediates);
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        *sent = all.map(|der| der.to_vec()).collect();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
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
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
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

/// Where a Puppet CA has its own certificates.
pub(crate) const CA_PATH: &str = "/puppet-ca/v1/certificate/ca";
pub(crate) const CERTIFICATE: &str = "CERTIFICATE";
/// Longer than any chain of CAs that is in use.
const LIMITS: pem::PemLimits = pem::PemLimits {
    max_text: 1024 * 1024,
    max_blocks: 100,
};
static MANNERS: Manners = Manners {
    deadline: std::time::Duration::from_secs(60),
    // A revocation list of a million entries fits.
    max_answer: 64 * 1024 * 1024,
    // Between two calls may lie a minute.
    keeps_connection: false,
    unreachable: "nobody answers there; check --server and whether the authority runs",
    revoked: "the authority refuses our certificate, it was revoked: move certificate and key away and enrol again",
};
