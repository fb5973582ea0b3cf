//! TLS to the database by rustls.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::address::{AddressFault, Tls, TlsMode, read_secret};

/// Makes connections with the files as they are now.
#[derive(Clone)]
pub(super) struct Rustls(Arc<ClientConfig>);

impl Rustls {
    pub(super) fn new(tls: &Tls) -> Result<Self, AddressFault> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier::new(tls, provider)?));
        let config = match &tls.identity {
            Some((certificate, key)) => {
                let chain = certificates("sslcert", certificate)?;
                builder.with_client_auth_cert(chain, private_key(key)?)?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Self(Arc::new(config)))
    }
}

impl<S> MakeTlsConnect<S> for Rustls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Connect> {
        let host = ServerName::try_from(host.to_owned());
        Ok(Connect {
            host: host.map_err(io::Error::other)?,
            config: Arc::clone(&self.0),
        })
    }
}

/// To one host.
pub(super) struct Connect {
    host: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl<S> TlsConnect<S> for Connect
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connect = TlsConnector::from(self.config).connect(self.host, stream);
        Box::pin(async move { Ok(Stream(Box::new(connect.await?))) })
    }
}

/// A connection under TLS.
pub(super) struct Stream<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    /// It binds a password to a server that is not verified; one that matters is.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

/// Judges the server's certificate.
#[derive(Debug)]
struct Verifier {
    /// None: any is taken.
    trusted: Option<Arc<WebPkiServerVerifier>>,
    names_count: bool,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(tls: &Tls, provider: Arc<CryptoProvider>) -> Result<Self, AddressFault> {
        let trusted = match tls.mode {
            TlsMode::Disable | TlsMode::Require => None,
            TlsMode::VerifyCa | TlsMode::VerifyFull => {
                let roots = Arc::new(roots(tls.roots.as_deref())?);
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
                Some(
                    verifier
                        .build()
                        .map_err(|fault| Error::General(fault.to_string()))?,
                )
            }
        };
        Ok(Self {
            trusted,
            names_count: tls.mode == TlsMode::VerifyFull,
            provider,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(trusted) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        match trusted.verify_server_cert(certificate, chain, host, ocsp, now) {
            // The name is what is looked at last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.names_count => Ok(ServerCertVerified::assertion()),
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, AddressFault> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            for certificate in certificates("sslrootcert", path)? {
                roots.add(certificate)?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    Ok(roots)
}

fn certificates(
    name: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, AddressFault> {
    let text = std::fs::read(path).map_err(|source| AddressFault::File {
        name,
        path: path.to_owned(),
        source,
    })?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    found
        .ok()
        .filter(|found| !found.is_empty())
        .ok_or_else(|| AddressFault::Content {
            name,
            path: path.to_owned(),
            what: "certificate in PEM",
        })
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, AddressFault> {
    let text = read_secret("sslkey", path)?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| AddressFault::Content {
        name: "sslkey",
        path: path.to_owned(),
        what: "private key in PEM",
    })
}
