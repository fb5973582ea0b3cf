//! One HTTPS call: a connection of its own, one request, one answer, every part of it bounded.
//!
//! Everything happens inside the caller's future. Whoever drops that future closes the connection.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::answer::AnswerFault;

/// Why a question has no answer that counts. The texts follow the decider's address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("is asked about {limit} other requests at this moment, more are not sent")]
    Busy { limit: usize },
    #[error("was not asked: the question cannot be written down")]
    Unsayable,
    #[error("was not asked: no certificate of its caBundle is in force now")]
    NoAnchor,
    #[error("was not asked: TLS cannot be set up")]
    TlsSettings { source: rustls::Error },
    #[error("was not asked: its name cannot be resolved")]
    Resolve { source: io::Error },
    #[error("was not asked: its name server has not answered {limit} earlier questions yet")]
    Resolving { limit: usize },
    #[error("cannot be reached")]
    Connect { source: io::Error },
    #[error("was not reached within {ms} ms")]
    ConnectLate { ms: u128 },
    #[error("closed the connection before it was asked")]
    Closed { source: io::Error },
    #[error("is not trusted, or does not trust us")]
    Handshake { source: io::Error },
    #[error("did not answer within {ms} ms")]
    Late { ms: u128 },
    #[error("broke the exchange off, or did not speak HTTP")]
    Broken { source: hyper::Error },
    #[error("answered with more than {limit} octets")]
    TooLarge { limit: usize },
    #[error("redirects with status {}, which is not followed", status.as_u16())]
    Redirect { status: StatusCode },
    #[error("answered with status {}", status.as_u16())]
    Status { status: StatusCode },
    #[error("did not say that its answer is application/json")]
    ContentType,
    #[error("gave an answer that does not count: it")]
    Answer { source: AnswerFault },
    #[error("{}; asked again, it {}", in_words(first), in_words(second))]
    Twice {
        first: Box<Fault>,
        second: Box<Fault>,
    },
}

impl Fault {
    pub(crate) fn tls_settings(source: rustls::Error) -> Self {
        Self::TlsSettings { source }
    }

    pub(crate) fn status(status: StatusCode) -> Self {
        match status.is_redirection() {
            true => Self::Redirect { status },
            false => Self::Status { status },
        }
    }

    /// Whether the decider has not seen the question, or says itself that it could not look at it.
    pub(crate) fn allows_another_try(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::ConnectLate { .. } | Self::Closed { .. } => true,
            Self::Status { status } => matches!(
                *status,
                StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT
            ),
            _ => false,
        }
    }
}

/// A fault and its causes in one line.
pub(crate) fn in_words(fault: &Fault) -> String {
    let mut words = fault.to_string();
    let mut cause = fault.source();
    // An answer's fault goes on with the sentence.
    let mut joint = match fault {
        Fault::Answer { .. } => " ",
        _ => ": ",
    };
    while let Some(source) = cause {
        let text = source.to_string();
        if !words.ends_with(&text) {
            words.push_str(joint);
            words.push_str(&text);
        }
        joint = ": ";
        cause = source.source();
    }
    words
}

/// Where a decider is.
pub(crate) struct Endpoint {
    /// A name or a number.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What its certificate must be for.
    pub(crate) name: ServerName<'static>,
    /// Bounds the threads that wait for a name server: they outlive the questions that started them.
    pub(crate) resolving: Arc<Semaphore>,
    /// How many there are.
    pub(crate) resolvers: usize,
}

/// When a question ends.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) total: Duration,
}

impl Deadline {
    fn late(self) -> Fault {
        Fault::Late {
            ms: self.total.as_millis(),
        }
    }
}

/// An answer's head and, if it was wanted, its body.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Which answers have a body that is worth reading.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    StatusOnly,
    BodyOf(StatusCode),
}

/// Sends one request on a connection of its own.
pub(crate) async fn call(
    endpoint: &Endpoint,
    tls: TlsConnector,
    request: Request<Full<Bytes>>,
    reading: Reading,
    deadline: Deadline,
) -> Result<Reply, Fault> {
    let stream = connect(endpoint, deadline).await?;
    let handshake = tls.connect(endpoint.name.clone(), stream);
    let stream = timeout_at(deadline.at, handshake)
        .await
        .map_err(|_| deadline.late())?
        .map_err(handshake_fault)?;
    let exchange = exchange(stream, request, reading);
    timeout_at(deadline.at, exchange)
        .await
        .map_err(|_| deadline.late())?
}

/// Resolves and connects. Every address gets its share of the time, so that one that swallows packets does not hide
/// another that answers.
async fn connect(endpoint: &Endpoint, deadline: Deadline) -> Result<TcpStream, Fault> {
    let start = Instant::now();
    let end = deadline.at.min(start + CONNECT);
    let late = || Fault::ConnectLate {
        ms: end.duration_since(start).as_millis(),
    };
    let addresses = timeout_at(end, resolve(endpoint))
        .await
        .map_err(|_| late())??;
    let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let mut fault = None;
    for address in addresses {
        let now = Instant::now();
        let share = end.saturating_duration_since(now) / left.max(1);
        left = left.saturating_sub(1);
        match timeout_at(now + share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // One small request: waiting to fill a packet only costs time. A socket that refuses works all the same.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(source)) => fault = Some(Fault::Connect { source }),
            Err(_) => fault = Some(late()),
        }
    }
    let nothing = || Fault::Resolve {
        source: io::Error::other("it has no address"),
    };
    Err(fault.unwrap_or_else(nothing))
}

async fn resolve(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, Fault> {
    if let Ok(ip) = endpoint.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, endpoint.port)]);
    }
    let Ok(resolver) = Arc::clone(&endpoint.resolving).try_acquire_owned() else {
        return Err(Fault::Resolving {
            limit: endpoint.resolvers,
        });
    };
    let (host, port) = (endpoint.host.clone(), endpoint.port);
    let looking = tokio::task::spawn_blocking(move || {
        let _until_the_thread_is_done = resolver;
        let addresses = (host.as_str(), port).to_socket_addrs()?;
        io::Result::Ok(addresses.take(MAX_ADDRESSES).collect())
    });
    let found = looking
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the look-up ended early")));
    found.map_err(|source| Fault::Resolve { source })
}

/// Certificates that do not fit will not fit a moment later; a connection that was cut may stand then.
fn handshake_fault(source: io::Error) -> Fault {
    let is_tls = source
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>());
    match is_tls {
        true => Fault::Handshake { source },
        false => Fault::Closed { source },
    }
}

async fn exchange(
    stream: TlsStream<TcpStream>,
    request: Request<Full<Bytes>>,
    reading: Reading,
) -> Result<Reply, Fault> {
    let broken = |source| Fault::Broken { source };
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let talk = async move {
        let response = sender.send_request(request).await.map_err(broken)?;
        let (head, body) = response.into_parts();
        let body = match reading {
            Reading::BodyOf(status) if status == head.status => read(body).await?,
            Reading::BodyOf(_) | Reading::StatusOnly => Bytes::new(),
        };
        Ok(Reply {
            status: head.status,
            headers: head.headers,
            body,
        })
    };
    match select(pin!(talk), Box::pin(connection)).await {
        Either::Left((reply, _)) => reply,
        // The connection has ended: either all of the answer came before, or its end is the reason why nothing did.
        Either::Right((ended, talk)) => match (talk.await, ended) {
            (Err(Fault::Broken { source }), Err(end)) if source.is_canceled() => Err(broken(end)),
            (reply, _) => reply,
        },
    }
}

async fn read(body: hyper::body::Incoming) -> Result<Bytes, Fault> {
    let too_large = Fault::TooLarge { limit: MAX_BODY };
    // Said beforehand, it need not be sent.
    if body.size_hint().lower() > MAX_BODY_OCTETS {
        return Err(too_large);
    }
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large),
        Err(error) => match error.downcast::<hyper::Error>() {
            Ok(source) => Err(Fault::Broken { source: *source }),
            Err(_) => Err(too_large),
        },
    }
}

/// Whether an answer says, once, that it is JSON (RFC 9110 8.3; parameters do not matter).
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(only), None) = (types.next(), types.next()) else {
        return false;
    };
    let kind = only.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// For the name and the connection together.
const CONNECT: Duration = Duration::from_secs(2);
/// More than any host has; each gets a share of the time to connect.
const MAX_ADDRESSES: usize = 8;
/// An answer's status line and headers.
const MAX_HEAD: usize = 16 * 1024;
const MAX_BODY: usize = 64 * 1024;
const MAX_BODY_OCTETS: u64 = 64 * 1024;
