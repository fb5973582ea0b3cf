//! The HTTPS client of the commands: one connection to one server, mostly with an administrator's certificate on our side.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use countersign_pki::pem;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
    ServerName,
};
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tracing::debug;

use crate::cli::ServerArgs;
use crate::config::Config;
use crate::data_folder::DataFolder;

/// A server and the credentials for it.
pub(crate) struct Client {
    /// What the call under way is known by, if it must not be carried out twice.
    order: Option<HeaderValue>,
    url: Uri,
    host: String,
    port: u16,
    tls: TlsConnector,
    manners: &'static Manners,
    authorization: Option<Box<HeaderValue>>,
    connection: Option<Connection>,
}

/// How far a server is trusted with our time and memory, and what is said if there is none.
#[derive(Debug)]
pub(crate) struct Manners {
    /// For one call.
    pub(crate) deadline: Duration,
    /// Octets of one answer.
    pub(crate) max_answer: usize,
    /// Whether the next call goes over the same connection. A server may close it at any moment in between.
    pub(crate) keeps_connection: bool,
    /// What to say if nobody listens.
    pub(crate) unreachable: &'static str,
    /// What to say if our certificate is refused because it was revoked.
    pub(crate) revoked: &'static str,
}

impl Manners {
    /// Towards the authority that the caller administers.
    const ADMINISTRATOR: Manners = Manners {
        // A listing of a million certificates takes a while.
        deadline: Duration::from_secs(120),
        // A million entries of a listing fit.
        max_answer: 1 << 30,
        keeps_connection: true,
        unreachable: "the server cannot be reached; start it with `countersign serve`",
        revoked: REVOKED,
    };
}

/// The call that a fault belongs to. Its presence among the causes says that the fault is the network's or the server's.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path} at {url}")]
pub(crate) struct Call {
    method: Method,
    path: String,
    url: Uri,
}

/// An open connection, and the task that reads from it and writes to it. It ends with the sender.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<hyper::Result<()>>,
}

impl Connection {
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
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    /// The body as text, whatever it is.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body)
            .context("the server's answer cannot be understood; is it of another version?")
    }
}

impl Client {
    /// The server that the arguments name: by address, or by the data directory it serves from.
    pub(crate) fn new(args: &ServerArgs) -> Result<Self> {
        let (url, files) = match (&args.server, &args.cert, &args.key, &args.cacert) {
            (Some(url), Some(cert), Some(key), Some(cacert)) => {
                let files = CredentialFiles {
                    cert: cert.clone(),
                    key: key.clone(),
                    cacert: cacert.clone(),
                };
                (url.clone(), files)
            }
            _ => of_folder(args.data.dir())?,
        };
        Self::at(&url, files.tls()?, &Manners::ADMINISTRATOR)
    }

    /// The server of a URL, with whatever certificates.
    pub(crate) fn at(url: &str, tls: ClientConfig, manners: &'static Manners) -> Result<Self> {
        let wrong = || format!("{url:?} is no server's URL: write https://HOST:PORT");
        let uri: Uri = url.parse().with_context(wrong)?;
        ensure!(uri.scheme_str() == Some("https"), wrong());
        let host = uri.host().ok_or_else(|| anyhow!(wrong()))?;
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        Ok(Self {
            order: None,
            port: uri.port_u16().unwrap_or(DEFAULT_PORT),
            host,
            url: uri,
            tls: TlsConnector::from(Arc::new(tls)),
            manners,
            authorization: None,
            connection: None,
        })
    }

    /// The same with credentials in a header of every request (RFC 9110 11.6.2), which no log shows.
    pub(crate) fn with_authorization(mut self, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.authorization = Some(Box::new(value));
        self
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Reply> {
        self.call(Method::GET, path, None).await
    }

    /// Sends a request, on the connection of the one before if it still stands.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply> {
        let content = match body {
            Some(value) => Some(("application/json", Bytes::from(serde_json::to_vec(value)?))),
            None => None,
        };
        self.send(method, path, content).await
    }

    /// The same with a key by which the server knows the order when it comes again.
    pub(crate) async fn order(&mut self, path: &str, key: &str, body: &Value) -> Result<Reply> {
        self.order = Some(HeaderValue::from_str(key)?);
        let reply = self.call(Method::POST, path, Some(body)).await;
        self.order = None;
        reply
    }

    /// Sends text.
    pub(crate) async fn post_text(&mut self, path: &str, text: Vec<u8>) -> Result<Reply> {
        let content = Some(("text/plain", Bytes::from(text)));
        self.send(Method::POST, path, content).await
    }

    /// Sends text, as agents do.
    pub(crate) async fn put_text(&mut self, path: &str, text: String) -> Result<Reply> {
        let content = Some(("text/plain", Bytes::from(text)));
        self.send(Method::PUT, path, content).await
    }

    /// Sends whatever there is to send.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        content: Option<(&'static str, Bytes)>,
    ) -> Result<Reply> {
        let url = self.url.clone();
        let call = Call {
            method: method.clone(),
            path: path.to_owned(),
            url: url.clone(),
        };
        let exchange =
            tokio::time::timeout(self.manners.deadline, self.exchange(&method, path, content));
        let exchanged = match exchange.await {
            Ok(exchanged) => exchanged,
            Err(elapsed) => Err(anyhow!(elapsed).context("the server does not answer in time")),
        };
        match &exchanged {
            Ok(reply) => debug!(%method, path, status = reply.status.as_u16(), "answered by {url}"),
            Err(error) => debug!(%method, path, "not answered by {url}: {error:#}"),
        }
        exchanged
            .map_err(|error| match is_revoked(&error) {
                true => error.context(self.manners.revoked),
                false => error,
            })
            .context(call)
    }

    async fn exchange(
        &mut self,
        method: &Method,
        path: &str,
        content: Option<(&'static str, Bytes)>,
    ) -> Result<Reply> {
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
        let mut request = request.body(Full::new(content))?;
        if let Some(key) = &self.order {
            request.headers_mut().insert(IDEMPOTENCY_KEY, key.clone());
        }
        let response = match connection.sender.send_request(request).await {
            Ok(response) => response,
            Err(error) => return Err(connection.fault(error).await.into()),
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, self.manners.max_answer).collect().await;
        let body = body
            .map_err(|error| anyhow!(error).context("the answer broke off"))?
            .to_bytes();
        if self.manners.keeps_connection {
            self.connection = Some(connection);
        }
        Ok(Reply {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .context(self.manners.unreachable)?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(self.host.clone())?;
        let stream = self
            .tls
            .connect(name, stream)
            .await
            .context("no secure connection to the server")?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let task = tokio::spawn(connection);
        Ok(Connection { sender, task })
    }
}

/// Whether the server turned our certificate away because it was revoked (RFC 8446 6.2).
fn is_revoked(error: &anyhow::Error) -> bool {
    let revoked = rustls::Error::AlertReceived(AlertDescription::CertificateRevoked);
    error.chain().any(|cause| {
        let inner = cause.downcast_ref::<std::io::Error>();
        let inner = inner.and_then(std::io::Error::get_ref);
        let tls = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        tls == Some(&revoked)
    })
}

/// A text as one segment of a path (RFC 3986 3.3); everything but unreserved characters is escaped.
pub(crate) fn path_segment(text: &str) -> String {
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

struct CredentialFiles {
    cert: PathBuf,
    key: PathBuf,
    cacert: PathBuf,
}

impl CredentialFiles {
    fn tls(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.cacert)? {
            let unusable = || {
                format!(
                    "{} holds a certificate that cannot be used",
                    self.cacert.display()
                )
            };
            roots.add(certificate).with_context(unusable)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates(&self.cert)?, private_key(&self.key)?)
            .with_context(|| {
                format!(
                    "{} and {} cannot be used together",
                    self.cert.display(),
                    self.key.display()
                )
            })
    }
}

/// The server that was last started on a data directory.
fn of_folder(dir: Option<&PathBuf>) -> Result<(String, CredentialFiles)> {
    let dir = dir.cloned().unwrap_or_else(|| Config::default().data);
    let folder = DataFolder::new(dir);
    let Some(server) = folder.server()? else {
        bail!(
            "no server was ever started on {}: name its directory with --data, or a server with --server, --cert, --key and --cacert, or start it: countersign serve",
            folder.root().display()
        );
    };
    let files = CredentialFiles {
        cert: folder.admin("admin.pem"),
        key: folder.admin("admin-key.pem"),
        cacert: folder.admin("ca.pem"),
    };
    Ok((server.puppet, files))
}

/// The certificates of a PEM file, of which there must be one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let blocks = blocks(path)?
        .into_iter()
        .filter(|block| block.label == "CERTIFICATE");
    let certificates: Vec<_> = blocks
        .map(|block| CertificateDer::from(block.der))
        .collect();
    ensure!(
        !certificates.is_empty(),
        "{} holds no certificate",
        path.display()
    );
    Ok(certificates)
}

/// The first private key of a PEM file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    for block in blocks(path)? {
        match block.label.as_str() {
            "PRIVATE KEY" => return Ok(PrivatePkcs8KeyDer::from(block.der).into()),
            "RSA PRIVATE KEY" if !block.headers => {
                return Ok(PrivatePkcs1KeyDer::from(block.der).into());
            }
            "EC PRIVATE KEY" if !block.headers => {
                return Ok(PrivateSec1KeyDer::from(block.der).into());
            }
            _ => {}
        }
    }
    bail!("{} holds no unencrypted private key", path.display())
}

fn blocks(path: &Path) -> Result<Vec<pem::Block>> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    pem::decode_all(&text, &pem::PemLimits::BUNDLE)
        .with_context(|| format!("{} is not PEM", path.display()))
}

const REVOKED: &str = "the server refuses this administrator's certificate, it was revoked: reload or restart the server, \
                       which then makes new credentials in its data directory";
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
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
