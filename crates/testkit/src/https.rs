//! A small blocking HTTPS client for tests: one connection, kept alive, HTTP/1.1 by hand.
//!
//! By hand, because some tests look at what else arrives on the socket.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use countersign_pki::pem::{self, PemLimits};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::{Domain, Socket, Type};

/// Whom to trust and who to be.
#[derive(Clone, Debug)]
pub struct HttpsClient {
    address: SocketAddr,
    source: Option<IpAddr>,
    config: Arc<ClientConfig>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first header of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

impl HttpsClient {
    /// Speaks to `address`, which must show a certificate for `localhost` below `ca_pem`; `client` is the
    /// certificate and key to show, both PEM.
    ///
    /// # Errors
    /// If the PEM texts do not fit.
    pub fn new(
        address: SocketAddr,
        ca_pem: &[u8],
        client: Option<(&[u8], &[u8])>,
    ) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca_pem)? {
            roots.add(certificate).map_err(io::Error::other)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        let config = match client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = pem::decode_first(key, &PemLimits::BUNDLE)
                    .ok()
                    .flatten()
                    .ok_or_else(|| io::Error::other("no key in the PEM text"))?;
                let key = match key.label.as_str() {
                    // As Puppet's programs write them.
                    "RSA PRIVATE KEY" => PrivateKeyDer::Pkcs1(key.der.into()),
                    "EC PRIVATE KEY" => PrivateKeyDer::Sec1(key.der.into()),
                    _ => PrivateKeyDer::Pkcs8(key.der.into()),
                };
                builder
                    .with_client_auth_cert(certificates(certificate)?, key)
                    .map_err(io::Error::other)?
            }
        };
        Ok(Self {
            address,
            source: None,
            config: Arc::new(config),
        })
    }

    /// The same client at another address of this machine, such as any in 127.0.0.0/8.
    #[must_use]
    pub fn at(self, source: IpAddr) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    /// A new connection.
    ///
    /// # Errors
    /// If nobody answers.
    pub fn connect(&self) -> io::Result<Connection> {
        let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, None)?;
        if let Some(source) = self.source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        socket.connect(&self.address.into())?;
        let tcp = TcpStream::from(socket);
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(DEADLINE))?;
        tcp.set_write_timeout(Some(DEADLINE))?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let tls =
            ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        Ok(Connection {
            stream: StreamOwned::new(tls, tcp),
        })
    }

    /// One call on a connection of its own.
    ///
    /// # Errors
    /// If the connection fails, or the handshake is refused.
    pub fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        self.connect()?.call(method, path, headers, body)
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

impl Connection {
    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let mut request = request.into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request)?;
        self.stream.flush()?;
        self.answer(method)
    }

    /// The certificate that the server has shown, DER; none before the first call.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<Vec<u8>> {
        let shown = self.stream.conn.peer_certificates()?;
        shown.first().map(|certificate| certificate.to_vec())
    }

    /// Whether nothing at all arrives on the socket for so long: no data, no TLS record, no end.
    ///
    /// # Errors
    /// If the socket fails otherwise.
    pub fn is_quiet_for(&mut self, time: Duration) -> io::Result<bool> {
        let socket = self.stream.get_ref();
        socket.set_read_timeout(Some(time))?;
        let quiet = match socket.peek(&mut [0u8; 1]) {
            Ok(_) => false,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                true
            }
            Err(error) => return Err(error),
        };
        socket.set_read_timeout(Some(DEADLINE))?;
        Ok(quiet)
    }

    fn answer(&mut self, method: &str) -> io::Result<Answer> {
        let mut seen = Vec::new();
        let head = loop {
            if let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            self.more(&mut seen)?;
        };
        let mut rest = seen.split_off(head.saturating_add(4));
        let text = String::from_utf8_lossy(&seen).into_owned();
        let mut lines = text.trim_end().lines();
        let status = lines
            .next()
            .and_then(|line| line.get(9..12))
            .and_then(|code| code.parse().ok());
        let status: u16 = status.ok_or_else(|| io::Error::other("no status line"))?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let value = |name: &str| {
            headers
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.as_str())
        };
        let body = if method == "HEAD" || matches!(status, 204 | 304) {
            Vec::new()
        } else if value("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            self.chunks(rest)?
        } else {
            let length = value("content-length")
                .and_then(|length| length.parse().ok())
                .unwrap_or(0usize);
            while rest.len() < length {
                self.more(&mut rest)?;
            }
            rest.truncate(length);
            rest
        };
        Ok(Answer {
            status,
            headers,
            body,
        })
    }

    fn chunks(&mut self, mut seen: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(end) = seen.windows(2).position(|window| window == b"\r\n") {
                    break end;
                }
                self.more(&mut seen)?;
            };
            let size = String::from_utf8_lossy(seen.get(..line).unwrap_or_default()).into_owned();
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            let whole = line.saturating_add(size).saturating_add(4);
            while seen.len() < whole {
                self.more(&mut seen)?;
            }
            let chunk = seen.get(line.saturating_add(2)..whole.saturating_sub(2));
            body.extend_from_slice(chunk.unwrap_or_default());
            seen.drain(..whole);
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn more(&mut self, seen: &mut Vec<u8>) -> io::Result<()> {
        let mut buffer = [0u8; 16 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                seen.extend_from_slice(buffer.get(..count).unwrap_or_default());
                Ok(())
            }
        }
    }
}

fn certificates(text: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let blocks = pem::decode_all(text, &PemLimits::BUNDLE).map_err(io::Error::other)?;
    Ok(blocks
        .into_iter()
        .filter(|block| block.label == "CERTIFICATE")
        .map(|block| CertificateDer::from(block.der))
        .collect())
}

const DEADLINE: Duration = Duration::from_secs(30);
