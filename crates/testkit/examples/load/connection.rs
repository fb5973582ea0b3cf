//! HTTP/1.1 by hand over TLS or without.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Options;

/// Where the load goes, and as whom.
pub(crate) struct Server {
    host: String,
    address: String,
    tls: Option<TlsConnector>,
}

impl Server {
    /// The server of the option, and the administrator of `cert` and `key` if they are named; or both of a `kubeconfig`.
    pub(crate) fn new(options: &Options) -> Self {
        let config = ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::aws_lc_rs::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAnyone));
        let files = options.0.get("cert").zip(options.0.get("key"));
        let (url, config) = match (options.0.get("kubeconfig"), files) {
            (Some(file), _) => {
                let text = std::fs::read_to_string(file).unwrap();
                let pem = |name| BASE64.decode(kubeconfig_field(&text, name)).unwrap();
                let chain = pem("client-certificate-data");
                let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>();
                let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data")).unwrap();
                let config = config.with_client_auth_cert(chain.unwrap(), key);
                (
                    kubeconfig_field(&text, "server").to_owned(),
                    config.unwrap(),
                )
            }
            (None, Some((certificate, key))) => {
                let chain = CertificateDer::pem_file_iter(certificate).unwrap();
                let chain = chain.collect::<Result<_, _>>().unwrap();
                let key = PrivateKeyDer::from_pem_file(key).unwrap();
                let config = config.with_client_auth_cert(chain, key).unwrap();
                (options.text("server").to_owned(), config)
            }
            (None, None) => (
                options.text("server").to_owned(),
                config.with_no_client_auth(),
            ),
        };
        let (scheme, address) = url.trim_end_matches('/').split_once("://").unwrap();
        let tls = (scheme == "https").then(|| TlsConnector::from(Arc::new(config)));
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        Self {
            host: host.to_owned(),
            address: address.to_owned(),
            tls,
        }
    }

    pub(crate) async fn connect(&self) -> Connection {
        let tcp = TcpStream::connect(&self.address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let stream = match &self.tls {
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).unwrap();
                Stream::Tls(Box::new(tls.connect(name, tcp).await.unwrap()))
            }
            None => Stream::Plain(tcp),
        };
        Connection {
            stream,
            buffer: Vec::new(),
            host: self.host.clone(),
            closed: false,
        }
    }
}

pub(crate) enum Stream {
    Tls(Box<TlsStream<TcpStream>>),
    Plain(TcpStream),
}

impl Stream {
    async fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Tls(stream) => {
                stream.write_all(bytes).await.unwrap();
                stream.flush().await.unwrap();
            }
            Self::Plain(stream) => stream.write_all(bytes).await.unwrap(),
        }
    }

    async fn read(&mut self, buffer: &mut Vec<u8>) -> usize {
        match self {
            Self::Tls(stream) => stream.read_buf(buffer).await.unwrap(),
            Self::Plain(stream) => stream.read_buf(buffer).await.unwrap(),
        }
    }

    pub(crate) async fn shutdown(&mut self) -> std::io::Result<()> {
        match self {
            Self::Tls(stream) => stream.shutdown().await,
            Self::Plain(stream) => stream.shutdown().await,
        }
    }
}

/// An open connection.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    buffer: Vec<u8>,
    host: String,
    /// Whether the server wants no more on it.
    pub(crate) closed: bool,
}

impl Connection {
    /// One request, one answer: status and body.
    pub(crate) async fn call(&mut self, method: &str, path: &str, body: &str) -> (u16, Vec<u8>) {
        self.call_as("text/plain", method, path, body).await
    }

    pub(crate) async fn call_as(
        &mut self,
        kind: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, Vec<u8>) {
        self.send(kind, method, path, body).await;
        let (status, head, length) = self.answer().await;
        let Some(length) = length else {
            return self.chunked(status, head).await;
        };
        while self.buffer.len() < head + length {
            self.more().await;
        }
        (status, self.buffer[head..head + length].to_vec())
    }

    /// A GET whose answer may be larger than memory: its status, and how long its body is.
    pub(crate) async fn measure(&mut self, path: &str) -> (u16, usize) {
        self.send("text/plain", "GET", path, "").await;
        let (status, head, length) = self.answer().await;
        self.buffer.drain(..head);
        if let Some(length) = length {
            let mut left = length;
            loop {
                left = left.saturating_sub(self.buffer.len());
                self.buffer.clear();
                if left == 0 {
                    return (status, length);
                }
                self.more().await;
            }
        }
        let mut chunks = Chunks::default();
        while !chunks.pass(&mut self.buffer) {
            self.more().await;
        }
        (status, chunks.total)
    }

    /// Status, length of the head, and length of the body unless that comes in chunks.
    async fn answer(&mut self) -> (u16, usize, Option<usize>) {
        let head = self.head().await;
        let text = String::from_utf8_lossy(&self.buffer[..head]).to_ascii_lowercase();
        let status: u16 = text[9..12].parse().unwrap();
        self.closed = text.contains("connection: close");
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        let length = match length {
            Some(length) => Some(length.trim().parse().unwrap()),
            None if text.contains("transfer-encoding: chunked") => None,
            None => Some(0),
        };
        (status, head, length)
    }

    async fn send(&mut self, kind: &str, method: &str, path: &str, body: &str) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.stream.write(request.as_bytes()).await;
    }

    /// Reads until the end of the head, and says where that is.
    async fn head(&mut self) -> usize {
        self.buffer.clear();
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                return end + 4;
            }
            self.more().await;
        }
    }

    async fn chunked(&mut self, status: u16, head: usize) -> (u16, Vec<u8>) {
        while !self.buffer[head..].ends_with(b"\r\n0\r\n\r\n") {
            self.more().await;
        }
        let mut lines = Lines {
            seen: self.buffer.split_off(head),
            body: Vec::new(),
        };
        lines.put_together();
        (status, lines.body)
    }

    /// Begins a watch, whose answer comes line by line.
    pub(crate) async fn follow(mut self, path: &str) -> Follower {
        self.send("application/json", "GET", path, "").await;
        let head = self.head().await;
        let text = String::from_utf8_lossy(&self.buffer[..head]).to_ascii_lowercase();
        assert!(text.starts_with("http/1.1 200"), "{path}: {text}");
        assert!(text.contains("transfer-encoding: chunked"), "{text}");
        let lines = Lines {
            seen: self.buffer.split_off(head),
            body: Vec::new(),
        };
        Follower {
            connection: self,
            lines,
        }
    }

    async fn more(&mut self) {
        self.buffer.reserve(READ);
        let count = self.stream.read(&mut self.buffer).await;
        assert_ne!(count, 0, "the server hung up");
    }
}

/// How far a body in chunks has come of which only the length matters.
#[derive(Default)]
struct Chunks {
    total: usize,
    /// Of the present chunk, with the end of its line.
    left: usize,
    is_last: bool,
}

impl Chunks {
    /// Takes what has come out of the buffer; whether that was the end.
    fn pass(&mut self, buffer: &mut Vec<u8>) -> bool {
        let mut done = 0;
        loop {
            let taken = self.left.min(buffer.len() - done);
            self.left -= taken;
            done += taken;
            if self.left > 0 || self.is_last {
                break;
            }
            let Some(line) = find(&buffer[done..], b"\r\n") else {
                break;
            };
            let size = std::str::from_utf8(&buffer[done..done + line]).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            done += line + 2;
            self.total += size;
            self.left = size + 2;
            self.is_last = size == 0;
        }
        buffer.drain(..done);
        self.is_last && self.left == 0
    }
}

/// A watch under way.
pub(crate) struct Follower {
    connection: Connection,
    lines: Lines,
}

impl Follower {
    /// The next line.
    pub(crate) async fn line(&mut self) -> String {
        loop {
            self.lines.put_together();
            if let Some(end) = self.lines.body.iter().position(|byte| *byte == b'\n') {
                let rest = self.lines.body.split_off(end + 1);
                let line = std::mem::replace(&mut self.lines.body, rest);
                return String::from_utf8(line).unwrap();
            }
            let count = self.connection.stream.read(&mut self.lines.seen).await;
            assert_ne!(count, 0, "the server hung up");
        }
    }
}

/// A body in chunks.
struct Lines {
    /// As it came.
    seen: Vec<u8>,
    /// Put together, as far as whole chunks have come.
    body: Vec<u8>,
}

impl Lines {
    fn put_together(&mut self) {
        let mut done = 0;
        while let Some(line) = find(&self.seen[done..], b"\r\n") {
            let size = std::str::from_utf8(&self.seen[done..done + line]).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let begin = done + line + 2;
            if self.seen.len() < begin + size + 2 {
                break;
            }
            self.body.extend_from_slice(&self.seen[begin..begin + size]);
            done = begin + size + 2;
        }
        self.seen.drain(..done);
    }
}

/// What stands behind a name in a kubeconfig, as this project writes them: in one piece, quoted or not.
fn kubeconfig_field<'a>(text: &'a str, name: &str) -> &'a str {
    let at = text
        .match_indices(name)
        .map(|(at, _)| &text[at + name.len()..]);
    let value = at.map(|rest| rest.trim_start_matches(['"', '\'', ' ']));
    let mut value = value.filter_map(|rest| rest.strip_prefix(':'));
    let value = value
        .next()
        .unwrap_or_else(|| panic!("no {name} in the kubeconfig"));
    let value = value.trim_start_matches(['"', '\'', ' ']);
    value
        .split(['"', '\'', '\n', ',', '}'])
        .next()
        .unwrap()
        .trim()
}

const READ: usize = 64 * 1024; // several TLS records

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// The benchmark measures a server that it started itself, or was pointed to; it proves nothing about it.
#[derive(Debug)]
struct TrustAnyone;

impl ServerCertVerifier for TrustAnyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
