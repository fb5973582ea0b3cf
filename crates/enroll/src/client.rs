//! An HTTPS client: one connection to one server. Plain HTTP is spoken only where it is asked for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign_pki::pem::{self, PemFault};
use countersign_private_keys::private_file::FileFault;
use http::uri::InvalidUri;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{
    CertificateDer, InvalidDnsNameError, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer,
    PrivateSec1KeyDer, ServerName,
};
use rustls::{AlertDescription, ClientConfig};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio_rustls::TlsConnector;
use tracing::debug;

use crate::error::{Cause, tls_causes, with_causes};

/// A server and the credentials for it.
pub struct Client {
    /// What the call under way is known by, if it must not be carried out twice.
    order: Option<String>,
    url: Uri,
    host: String,
    port: u16,
    /// Nothing: the connection is not encrypted.
    tls: Option<TlsConnector>,
    manners: &'static Manners,
    authorization: Option<Box<HeaderValue>>,
    connection: Option<Connection>,
}

/// How far a server is trusted with our time and memory, and what is said if there is none.
#[derive(Debug)]
pub struct Manners {
    /// For one call.
    pub deadline: Duration,
    /// Octets of one answer.
    pub max_answer: usize,
    /// Whether the next call goes over the same connection. A server may close it at any moment in between.
    pub keeps_connection: bool,
    /// What to say if nobody listens.
    pub unreachable: &'static str,
    /// What to say if our certificate is refused because it was revoked.
    pub revoked: &'static str,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL has to be corrected.
    #[error("{url:?} is no server's URL: write https://HOST:PORT")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it, if it cannot be parsed.
        source: Option<InvalidUri>,
    },
    /// A file with our certificate or key cannot be read.
    #[error(transparent)]
    File(#[from] FileFault),
    /// It can be read and not be used.
    #[error("{} {what}", path.display())]
    Credentials {
        /// The file.
        path: PathBuf,
        /// What it is or lacks.
        what: &'static str,
        /// Where it is no PEM.
        source: Option<PemFault>,
    },
    /// The server did not answer. It may answer later.
    #[error("{request}")]
    Call {
        /// Method, path and server.
        request: String,
        /// Why the call failed.
        source: CallError,
    },
    /// The answer is of another form than was expected.
    #[error("the server's answer cannot be understood; is it of another version?")]
    Answer(#[from] serde_json::Error),
}

impl ClientError {
    /// Whether the server may have received the request: a connection to it was open, or may have been.
    #[must_use]
    pub fn may_have_arrived(&self) -> bool {
        let Self::Call { source, .. } = self else {
            return false;
        };
        source.may_have_arrived()
    }
}

/// Why a server did not answer a request.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection.
    #[error("{hint}")]
    Unreachable {
        /// [`Manners::unreachable`].
        hint: &'static str,
        /// What the operating system says.
        source: io::Error,
    },
    /// No agreement on a secure connection.
    #[error("no secure connection to the server")]
    Handshake(#[source] io::Error),
    /// Our certificate was revoked.
    #[error("{hint}")]
    Revoked {
        /// [`Manners::revoked`].
        hint: &'static str,
        /// How the server said so.
        source: Box<Self>,
    },
    /// [`Manners::deadline`] passed.
    #[error("the server does not answer in time")]
    Timeout(#[from] Elapsed),
    /// The connection ended before the answer.
    #[error(transparent)]
    Exchange(#[from] hyper::Error),
    /// It ended within the answer, or the answer is too long.
    #[error("the answer broke off")]
    Incomplete(#[source] Cause),
    /// The URL's host can stand in no certificate.
    #[error(transparent)]
    Host(#[from] InvalidDnsNameError),
    /// The request cannot be written.
    #[error(transparent)]
    Request(#[from] http::Error),
}

impl CallError {
    fn may_have_arrived(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::Exchange(_) | Self::Incomplete(_) => true,
            Self::Revoked { source, .. } => source.may_have_arrived(),
            Self::Unreachable { .. } | Self::Handshake(_) | Self::Host(_) | Self::Request(_) => {
                false
            }
        }
    }
}

/// An open connection, and the task that reads from it and writes to it. It ends with the sender.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<hyper::Result<()>>,
}

impl Connection {
    async fn open<S>(stream: S) -> Result<Self, CallError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let task = tokio::spawn(connection);
        Ok(Self { sender, task })
    }

    /// Why a request was not sent. Where the connection ended first, because of an alert that came behind the handshake
    /// (RFC 8446 4.4.2.4), only its task knows.
    async fn fault(self, error: hyper::Error) -> hyper::Error {
        drop(self.sender);
        match self.task.await {
            Ok(Err(fault)) if error.is_canceled() => fault,
            Ok(_) | Err(_) => error,
        }
    }
}

/// A server's answer.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Reply {
    /// The body as text, whatever it is.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// If it is none of this form.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

impl Client {
    /// The server of a URL, with whatever certificates.
    ///
    /// # Errors
    /// If it is no URL of a server.
    pub fn at(url: &str, tls: ClientConfig, manners: &'static Manners) -> Result<Self> {
        Self::new(url, Some(TlsConnector::from(Arc::new(tls))), manners)
    }

    /// The server of an `http` URL. Whatever is sent can be read on the way, and the server can be anybody.
    ///
    /// # Errors
    /// If it is no URL of a server.
    pub fn unencrypted(url: &str, manners: &'static Manners) -> Result<Self> {
        Self::new(url, None, manners)
    }

    fn new(url: &str, tls: Option<TlsConnector>, manners: &'static Manners) -> Result<Self> {
        let scheme = match tls {
            Some(_) => "https",
            None => "http",
        };
        let wrong = |source| ClientError::Url {
            url: url.to_owned(),
            source,
        };
        let uri: Uri = url.parse().map_err(|fault| wrong(Some(fault)))?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some(scheme));
        let host = host
            .ok_or_else(|| wrong(None))?
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        Ok(Self {
            order: None,
            port: uri.port_u16().unwrap_or(DEFAULT_PORT),
            host,
            url: uri,
            tls,
            manners,
            authorization: None,
            connection: None,
        })
    }

    /// The same with credentials in a header of every request (RFC 9110 11.6.2), which no log shows.
    #[must_use]
    pub fn with_authorization(mut self, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.authorization = Some(Box::new(value));
        self
    }

    /// Asks for something.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn get(&mut self, path: &str) -> Result<Reply> {
        self.call(Method::GET, path, None).await
    }

    /// Sends a request, on the connection of the one before if it still stands.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply> {
        let content = body.map(|value| ("application/json", Bytes::from(value.to_string())));
        self.send(method, path, content).await
    }

    /// The same with a key by which the server knows the order when it comes again.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn order(&mut self, path: &str, key: &str, body: &Value) -> Result<Reply> {
        self.order = Some(key.to_owned());
        let reply = self.call(Method::POST, path, Some(body)).await;
        self.order = None;
        reply
    }

    /// Sends text.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn post_text(&mut self, path: &str, text: Vec<u8>) -> Result<Reply> {
        let content = Some(("text/plain", Bytes::from(text)));
        self.send(Method::POST, path, content).await
    }

    /// Sends text, as agents do.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn put_text(&mut self, path: &str, text: String) -> Result<Reply> {
        let content = Some(("text/plain", Bytes::from(text)));
        self.send(Method::PUT, path, content).await
    }

    /// Sends whatever there is to send.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        content: Option<(&'static str, Bytes)>,
    ) -> Result<Reply> {
        let url = self.url.clone();
        let exchange =
            tokio::time::timeout(self.manners.deadline, self.exchange(&method, path, content));
        let source = match exchange.await.unwrap_or_else(|elapsed| Err(elapsed.into())) {
            Ok(reply) => {
                debug!(%method, path, status = reply.status.as_u16(), "answered by {url}");
                return Ok(reply);
            }
            Err(error) => error,
        };
        debug!(%method, path, "not answered by {url}: {}", with_causes(&source));
        Err(self.failed(format!("{method} {path} at {url}"), source))
    }

    /// Connects for the next request and sends nothing: a server that is not the right one is noticed here.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn reach(&mut self) -> Result<()> {
        let connect = tokio::time::timeout(self.manners.deadline, self.connect());
        match connect.await.unwrap_or_else(|elapsed| Err(elapsed.into())) {
            Ok(connection) => {
                self.connection = Some(connection);
                Ok(())
            }
            Err(source) => Err(self.failed(format!("connection to {}", self.url), source)),
        }
    }

    fn failed(&self, request: String, source: CallError) -> ClientError {
        let source = match is_revoked(&source) {
            true => CallError::Revoked {
                hint: self.manners.revoked,
                source: Box::new(source),
            },
            false => source,
        };
        ClientError::Call { request, source }
    }

    async fn exchange(
        &mut self,
        method: &Method,
        path: &str,
        content: Option<(&'static str, Bytes)>,
    ) -> Result<Reply, CallError> {
        let mut connection = match self.connection.take() {
            Some(mut open) => match open.sender.ready().await {
                Ok(()) => open,
                Err(_) => self.connect().await?,
            },
            None => self.connect().await?,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(
                header::HOST,
                self.url.authority().map_or("", |a| a.as_str()),
            )
            .header(header::ACCEPT, "application/json, text/plain");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, &**authorization);
        }
        let content = match content {
            Some((kind, bytes)) => {
                request = request.header(header::CONTENT_TYPE, kind);
                bytes
            }
            None => Bytes::new(),
        };
        if let Some(key) = &self.order {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::new(content))?;
        let response = match connection.sender.send_request(request).await {
            Ok(response) => response,
            Err(error) => return Err(connection.fault(error).await.into()),
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, self.manners.max_answer).collect().await;
        let body = body.map_err(CallError::Incomplete)?.to_bytes();
        if self.manners.keeps_connection {
            self.connection = Some(connection);
        }
        Ok(Reply {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    async fn connect(&self) -> Result<Connection, CallError> {
        let hint = self.manners.unreachable;
        let unreachable = |source| CallError::Unreachable { hint, source };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let Some(tls) = &self.tls else {
            return Connection::open(stream).await;
        };
        let name = ServerName::try_from(self.host.clone())?;
        let stream = tls.connect(name, stream).await;
        Connection::open(stream.map_err(CallError::Handshake)?).await
    }
}

/// Whether the server turned our certificate away because it was revoked (RFC 8446 6.2).
fn is_revoked(error: &CallError) -> bool {
    let revoked = rustls::Error::AlertReceived(AlertDescription::CertificateRevoked);
    tls_causes(error).any(|cause| *cause == revoked)
}

/// A text as one segment of a path (RFC 3986 3.3); everything but unreserved characters is escaped.
#[must_use]
pub fn path_segment(text: &str) -> String {
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                segment.push(char::from(byte))
            }
            other => segment.push_str(&format!("%{other:02X}")),
        }
    }
    segment
}

/// The certificates of a PEM file, of which there must be one.
///
/// # Errors
/// If there is none, or the file cannot be read.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let certificates = certificates_among(blocks(path)?);
    match certificates.is_empty() {
        true => Err(unusable(path, "holds no certificate", None)),
        false => Ok(certificates),
    }
}

/// The first private key of a PEM file.
///
/// # Errors
/// If there is none that is not encrypted, or the file cannot be read.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let key = private_key_among(blocks(path)?);
    key.ok_or_else(|| unusable(path, "holds no unencrypted private key", None))
}

pub(crate) fn certificates_among(blocks: Vec<pem::Block>) -> Vec<CertificateDer<'static>> {
    let blocks = blocks
        .into_iter()
        .filter(|block| block.label == "CERTIFICATE");
    blocks
        .map(|block| CertificateDer::from(block.der))
        .collect()
}

/// The first private key that is not encrypted.
pub(crate) fn private_key_among(blocks: Vec<pem::Block>) -> Option<PrivateKeyDer<'static>> {
    let mut keys = blocks
        .into_iter()
        .filter_map(|block| match block.label.as_str() {
            "PRIVATE KEY" => Some(PrivatePkcs8KeyDer::from(block.der).into()),
            "RSA PRIVATE KEY" if !block.headers => Some(PrivatePkcs1KeyDer::from(block.der).into()),
            "EC PRIVATE KEY" if !block.headers => Some(PrivateSec1KeyDer::from(block.der).into()),
            _ => None,
        });
    keys.next()
}

fn blocks(path: &Path) -> Result<Vec<pem::Block>> {
    let text = std::fs::read(path).map_err(|source| FileFault::Io {
        act: "read",
        path: path.to_owned(),
        source,
    })?;
    pem::decode_all(&text, &pem::PemLimits::BUNDLE)
        .map_err(|fault| unusable(path, "is not PEM", Some(fault)))
}

fn unusable(path: &Path, what: &'static str, source: Option<PemFault>) -> ClientError {
    ClientError::Credentials {
        path: path.to_owned(),
        what,
        source,
    }
}

type Result<T, E = ClientError> = std::result::Result<T, E>;

const DEFAULT_PORT: u16 = 8140;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_stay_segments() {
        for (text, segment) in [
            ("web01.example.com", "web01.example.com"),
            ("../x", "..%2Fx"),
            ("a b?c#d%", "a%20b%3Fc%23d%25"),
            ("ä", "%C3%A4"),
        ] {
            assert_eq!(path_segment(text), segment);
        }
    }
}
