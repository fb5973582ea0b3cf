//! A decider for webhooks that plays a part: a real HTTPS server, well behaved or not.
//!
//! The HTTP is by hand, because most parts are about HTTP that no library would send.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use countersign_pki::{AltName, Certificate, UnixTime, oid};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use socket2::SockRef;

use crate::chain::{Ca, Leaf};
use crate::keys::{self, Key};

/// A server that runs until it is dropped.
pub struct Decider {
    address: SocketAddr,
    stage: Arc<Stage>,
    accepting: Option<JoinHandle<()>>,
}

/// What a server shows, and whom it lets in.
#[derive(Clone)]
pub struct Guard {
    /// Its certificate, then those above it.
    pub chain: Vec<Certificate>,
    /// The certificate's key.
    pub key: &'static Key,
    /// Whoever connects must show a certificate below this one.
    pub clients: Option<Certificate>,
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which request it is of this server; the first is 1.
    pub number: usize,
    /// The method.
    pub method: String,
    /// Path and query string.
    pub path: String,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The client's certificate, DER.
    pub client: Option<Vec<u8>>,
}

/// What a server does with a connection before there is any TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// The usual.
    Welcome,
    /// It reads and says nothing.
    Silence,
    /// It resets the connection.
    Reset,
    /// It speaks HTTP without TLS.
    Plain,
}

/// One step of an answer.
#[derive(Clone, Debug)]
pub enum Step {
    /// These bytes at once.
    Send(Vec<u8>),
    /// Nothing for so long.
    Pause(Duration),
    /// These bytes one by one, with a pause before each.
    Trickle(Vec<u8>, Duration),
    /// These bytes again and again.
    Forever(Vec<u8>),
    /// Nothing until the other side goes.
    Hang,
    /// The connection is reset.
    Reset,
}

/// How a server answers.
pub type Part = Box<dyn Fn(&Call) -> Vec<Step> + Send + Sync>;

/// How far a server has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Connections that were made.
    pub connections: usize,
    /// Connections that have ended.
    pub ended: usize,
    /// Requests that arrived complete.
    pub calls: usize,
}

impl Guard {
    /// A certificate for `localhost` and 127.0.0.1.
    #[must_use]
    pub fn localhost(ca: &Ca, now: UnixTime) -> Self {
        let names = [
            AltName::Dns("localhost".to_owned()),
            AltName::Ip(Ipv4Addr::LOCALHOST.into()),
        ];
        Self::named(ca, &names, now)
    }

    /// A certificate for any names.
    #[must_use]
    pub fn named(ca: &Ca, names: &[AltName], now: UnixTime) -> Self {
        let key = keys::p256_b();
        let leaf = ca.leaf(&Leaf {
            common_name: "decider",
            names,
            usage: oid::EKU_SERVER_AUTH,
            key,
            serial: 100,
            now,
        });
        Self {
            chain: vec![leaf, ca.certificate.clone()],
            key,
            clients: None,
        }
    }

    fn config(&self) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from(ca.der().to_vec()))?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let verifier =
                    verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = self.chain.iter();
        let chain = chain.map(|certificate| CertificateDer::from(certificate.der().to_vec()));
        let key = PrivateKeyDer::Pkcs8(self.key.pkcs8_der().to_vec().into());
        builder.with_single_cert(chain.collect(), key)
    }
}

impl Call {
    /// The first header of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let header = headers.find(|(key, _)| key == name);
        header.map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// A decision on this call, with the echoes that it needs and any other members.
    #[must_use]
    pub fn decision(&self, decision: &str, others: &Value) -> Value {
        let asked = self.json();
        let echo = |pointer| asked.pointer(pointer).cloned().unwrap_or_default();
        let mut said = serde_json::Map::new();
        said.insert("decision".to_owned(), decision.into());
        said.insert("request_id".to_owned(), echo("/request_id"));
        said.insert("csr_sha256".to_owned(), echo("/csr/sha256"));
        said.extend(others.as_object().cloned().unwrap_or_default());
        Value::Object(said)
    }
}

impl Step {
    /// A complete answer.
    #[must_use]
    pub fn answer(status: u16, content_type: &str, body: &str) -> Self {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} Played\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
        );
        Self::Send([head.as_bytes(), body.as_bytes()].concat())
    }

    /// A complete answer as deciders give it.
    #[must_use]
    pub fn json(body: &Value) -> Self {
        Self::answer(200, "application/json", &body.to_string())
    }

    /// A complete answer that is a status alone.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::answer(status, "text/plain", "")
    }
}

impl Decider {
    /// A server on a free port of this machine.
    ///
    /// # Errors
    /// If the certificates cannot be used or no port is to be had.
    pub fn start(
        guard: &Guard,
        part: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Self::on(listener, guard, |_| Greeting::Welcome, Box::new(part))
    }

    /// A server on a port that is open already. `greeting` is asked about every connection; the first is 1.
    ///
    /// # Errors
    /// If the certificates cannot be used.
    pub fn on(
        listener: TcpListener,
        guard: &Guard,
        greeting: impl Fn(usize) -> Greeting + Send + Sync + 'static,
        part: Part,
    ) -> io::Result<Self> {
        let config = Arc::new(guard.config().map_err(io::Error::other)?);
        let address = listener.local_addr()?;
        let stage = Arc::new(Stage {
            scene: Mutex::default(),
            changed: Condvar::new(),
            greeting: Box::new(greeting),
            part,
            config,
        });
        let accepting = thread::spawn({
            let stage = Arc::clone(&stage);
            move || stage.accept(&listener)
        });
        Ok(Self {
            address,
            stage,
            accepting: Some(accepting),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests that arrived so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.stage.scene().calls.clone()
    }

    /// How far it has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.stage.scene().progress
    }

    /// Waits until it has come so far, at most so long. Whether it has.
    #[must_use]
    pub fn wait_until(&self, reached: impl Fn(Progress) -> bool, within: Duration) -> bool {
        let scene = self.stage.scene();
        let waited = self
            .stage
            .changed
            .wait_timeout_while(scene, within, |scene| !reached(scene.progress));
        let (scene, _) = waited.unwrap_or_else(PoisonError::into_inner);
        reached(scene.progress)
    }
}

impl fmt::Debug for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Decider").field(&self.address).finish()
    }
}

impl Drop for Decider {
    fn drop(&mut self) {
        let mut scene = self.stage.scene();
        scene.is_over = true;
        for stream in scene.open.values() {
            // It may have gone by itself.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        drop(scene);
        self.stage.changed.notify_all();
        // Wakes the thread that waits for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// What a server's threads share.
struct Stage {
    scene: Mutex<Scene>,
    changed: Condvar,
    greeting: Box<dyn Fn(usize) -> Greeting + Send + Sync>,
    part: Part,
    config: Arc<ServerConfig>,
}

#[derive(Default)]
struct Scene {
    progress: Progress,
    calls: Vec<Call>,
    open: BTreeMap<usize, TcpStream>,
    is_over: bool,
}

impl Stage {
    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            while let Ok((stream, _)) = listener.accept() {
                let mut scene = self.scene();
                if scene.is_over {
                    return;
                }
                scene.progress.connections += 1;
                let number = scene.progress.connections;
                if let Ok(copy) = stream.try_clone() {
                    scene.open.insert(number, copy);
                }
                drop(scene);
                self.changed.notify_all();
                scope.spawn(move || {
                    // Whatever goes wrong here is the other side's to notice.
                    let _ = self.serve(number, stream);
                    self.scene().progress.ended += 1;
                    self.changed.notify_all();
                });
            }
        });
    }

    fn serve(&self, number: usize, mut stream: TcpStream) -> io::Result<()> {
        let served = match (self.greeting)(number) {
            Greeting::Reset => SockRef::from(&stream).set_linger(Some(Duration::ZERO)),
            Greeting::Silence => wait_for_end(&mut stream),
            Greeting::Plain => stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                .and_then(|()| wait_for_end(&mut stream)),
            Greeting::Welcome => self.talk(stream.try_clone()?),
        };
        // The last copy of the socket must be ours, otherwise nothing is closed.
        self.scene().open.remove(&number);
        served
    }

    fn talk(&self, tcp: TcpStream) -> io::Result<()> {
        let tls = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, tcp);
        let call = self.hear(&mut stream)?;
        for step in (self.part)(&call) {
            match step {
                Step::Send(bytes) => send(&mut stream, &bytes)?,
                Step::Pause(time) => self.pause(time)?,
                Step::Trickle(bytes, every) => {
                    for byte in bytes {
                        self.pause(every)?;
                        send(&mut stream, &[byte])?;
                    }
                }
                Step::Forever(bytes) => loop {
                    send(&mut stream, &bytes)?;
                },
                Step::Hang => return wait_for_end(&mut stream),
                Step::Reset => {
                    return SockRef::from(&stream.sock).set_linger(Some(Duration::ZERO));
                }
            }
        }
        stream.conn.send_close_notify();
        stream.flush()
    }

    /// Reads one request.
    fn hear(&self, stream: &mut StreamOwned<ServerConnection, TcpStream>) -> io::Result<Call> {
        let mut seen = Vec::new();
        let head = loop {
            if let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
                break end.saturating_add(4);
            }
            more(stream, &mut seen)?;
        };
        let mut body = seen.split_off(head);
        let text = String::from_utf8_lossy(&seen).into_owned();
        let mut lines = text.trim_end().lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let mut call = Call {
            number: 0,
            method: word(),
            path: word(),
            headers: lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect(),
            body: Vec::new(),
            client: None,
        };
        let length = call.header("content-length");
        let length: usize = length.and_then(|text| text.parse().ok()).unwrap_or(0);
        while body.len() < length {
            more(stream, &mut body)?;
        }
        call.body = body;
        let shown = stream.conn.peer_certificates().unwrap_or_default();
        call.client = shown.first().map(|certificate| certificate.to_vec());
        let mut scene = self.scene();
        scene.progress.calls += 1;
        call.number = scene.progress.calls;
        scene.calls.push(call.clone());
        drop(scene);
        self.changed.notify_all();
        Ok(call)
    }

    /// Waits, unless the play is over.
    fn pause(&self, time: Duration) -> io::Result<()> {
        let waited = self
            .changed
            .wait_timeout_while(self.scene(), time, |scene| !scene.is_over);
        let (scene, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match scene.is_over {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }
}

fn send(stream: &mut StreamOwned<ServerConnection, TcpStream>, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

fn more(
    stream: &mut StreamOwned<ServerConnection, TcpStream>,
    seen: &mut Vec<u8>,
) -> io::Result<()> {
    let mut buffer = [0u8; 16 * 1024];
    match stream.read(&mut buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => {
            seen.extend_from_slice(buffer.get(..count).unwrap_or_default());
            Ok(())
        }
    }
}

/// Reads and forgets until the other side goes, or the play is over.
fn wait_for_end(stream: &mut impl io::Read) -> io::Result<()> {
    io::copy(stream, &mut io::sink()).map(|_| ())
}
