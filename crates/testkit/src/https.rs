//! A small blocking HTTPS client for tests: one connection, kept alive, HTTP/1.1 by hand.
//!
//! By hand, because some tests look at what else arrives on the socket.

use std::io::{self, BufRead, BufReader, Chain, Cursor, Read, Write};
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
    /// Sent before the handshake.
    preface: Vec<u8>,
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

    fn is_chunked(&self) -> bool {
        self.header("transfer-encoding")
            .is_some_and(|coding| coding.contains("chunked"))
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
            preface: Vec::new(),
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

    /// The same client, which sends something before the handshake, as load balancers do.
    #[must_use]
    pub fn after(self, preface: &[u8]) -> Self {
        Self {
            preface: preface.to_vec(),
            ..self
        }
    }

    /// The same client with the same trust, which finds the server elsewhere.
    #[must_use]
    pub fn through(self, address: SocketAddr) -> Self {
        Self { address, ..self }
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
        let mut tcp = TcpStream::from(socket);
        tcp.write_all(&self.preface)?;
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
        self.send(method, path, headers, body)?;
        self.answer(method)
    }

    /// Sends a `GET` whose answer comes line by line for as long as it lasts, as a watch does.
    ///
    /// # Errors
    /// If the connection fails, or the answer is a refusal, whose text is in the error.
    pub fn follow(mut self, path: &str) -> io::Result<Lines> {
        self.send("GET", path, &[], b"")?;
        let (head, rest) = self.head()?;
        if head.status != 200 || !head.is_chunked() {
            let refusal = self.body(head, rest, "GET")?;
            let text = format!("{}: {}", refusal.status, refusal.text());
            return Err(io::Error::other(text));
        }
        let source = BufReader::new(Cursor::new(rest).chain(self.stream));
        Ok(Lines {
            body: BufReader::new(Chunks::new(source)),
        })
    }

    fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
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
        self.stream.flush()
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
        let (head, rest) = self.head()?;
        self.body(head, rest, method)
    }

    /// The head of an answer, without a body yet, and what came behind it.
    fn head(&mut self) -> io::Result<(Answer, Vec<u8>)> {
        let mut seen = Vec::new();
        let head = loop {
            if let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            self.more(&mut seen)?;
        };
        let rest = seen.split_off(head.saturating_add(4));
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
        let head = Answer {
            status,
            headers,
            body: Vec::new(),
        };
        Ok((head, rest))
    }

    fn body(&mut self, head: Answer, mut rest: Vec<u8>, method: &str) -> io::Result<Answer> {
        let body = if method == "HEAD" || matches!(head.status, 204 | 304) {
            Vec::new()
        } else if head.is_chunked() {
            self.chunks(rest)?
        } else {
            let length = head
                .header("content-length")
                .and_then(|length| length.parse().ok())
                .unwrap_or(0usize);
            while rest.len() < length {
                self.more(&mut rest)?;
            }
            rest.truncate(length);
            rest
        };
        Ok(Answer { body, ..head })
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

/// An answer that comes line by line.
#[derive(Debug)]
pub struct Lines {
    body: BufReader<Chunks<Received>>,
}

/// What came with the head, and what is still to come.
type Received = BufReader<Chain<Cursor<Vec<u8>>, StreamOwned<ClientConnection, TcpStream>>>;

impl Lines {
    /// The next line, without its end; `None` behind the last one.
    ///
    /// # Errors
    /// If the connection fails, ends in the middle of an answer, or nothing comes for long.
    pub fn read(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        match self.body.read_line(&mut line)? {
            0 => Ok(None),
            _ => {
                line.truncate(line.trim_end().len());
                Ok(Some(line))
            }
        }
    }
}

/// A body in chunks (RFC 9112 7.1), put together.
#[derive(Debug)]
struct Chunks<R> {
    source: R,
    /// What is left of the present chunk.
    left: usize,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first chunk.
    Begin,
    /// In a chunk, or just behind it.
    Chunk,
    /// Behind the last one.
    End,
}

impl<R: BufRead> Chunks<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            left: 0,
            place: Place::Begin,
        }
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        let mut line = String::new();
        if self.place == Place::Chunk {
            // The end of the line behind the last chunk.
            self.source.read_line(&mut line)?;
            line.clear();
        }
        if self.source.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        self.place = match self.left {
            0 => Place::End,
            _ => Place::Chunk,
        };
        Ok(())
    }
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && self.place != Place::End {
            self.next_chunk()?;
        }
        let wanted = self.left.min(buffer.len());
        let count = self
            .source
            .read(buffer.get_mut(..wanted).unwrap_or_default())?;
        if count == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = self.left.saturating_sub(count);
        Ok(count)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(chunks: &str) -> io::Result<String> {
        io::read_to_string(Chunks::new(chunks.as_bytes()))
    }

    #[test]
    fn chunks_are_put_together() {
        let whole = text("3\r\nabc\r\n10\r\nd\nefghijklmnopqr\r\n0\r\n\r\n");
        assert_eq!(whole.unwrap(), "abcd\nefghijklmnopqr");
        for cut in ["", "3\r\nab", "3\r\nabc\r\n", "x\r\n"] {
            assert!(text(cut).is_err(), "{cut:?}");
        }
    }
}
