//! One connection: TLS, who is there, then HTTP until it is idle, old, or told to stop.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use countersign_authority::{EngineError, LedgerEntry};
use countersign_pki::Certificate;
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::Service;
use tracing::{debug, info, warn};

use crate::activity::{Activity, Overdue};
use crate::body;
use crate::connection_limit::OpenConnection;
use crate::listener::Timeouts;
use crate::metrics::Traffic;
use crate::peer::{KnownClient, Peer, Presented};
use crate::refusal;
use crate::stall::Impatient;
use crate::tls::{ClientRules, OnBadCertificate};

/// What every connection of a listener meets.
pub(crate) struct Reception {
    /// For connections that begin now; those that are open keep what they began with.
    pub(crate) tls: ArcSwap<ServerConfig>,
    pub(crate) rules: ClientRules,
    pub(crate) on_bad_certificate: OnBadCertificate,
    pub(crate) door: Router,
    pub(crate) timeouts: Timeouts,
    pub(crate) traffic: Option<Traffic>,
}

type Stream = TlsStream<Impatient<TcpStream>>;

impl Reception {
    /// Serves a connection to its end.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        stream: TcpStream,
        address: SocketAddr,
        open: &Arc<OpenConnection>,
        stop: &CancellationToken,
    ) {
        let _best_effort = stream.set_nodelay(true);
        let _counted = self.traffic.as_ref().map(Traffic::open);
        let introduced = tokio::select! {
            introduced = timeout(self.timeouts.handshake, self.introduce(stream, address)) => introduced,
            () = stop.cancelled() => return,
        };
        match introduced {
            Ok(Some((stream, certificate))) => {
                if certificate.is_known() {
                    open.is_known();
                }
                let peer = Peer {
                    address,
                    certificate,
                    closing: stop.child_token(),
                };
                self.converse(stream, peer, open).await;
            }
            Ok(None) => {}
            Err(_) => debug!(%address, "handshake timed out"),
        }
    }

    /// The handshake, and who it is. `None`: there is nobody to talk to.
    async fn introduce(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Option<(Stream, Presented)> {
        let stream = Impatient::new(stream, self.timeouts.stall);
        let acceptor = TlsAcceptor::from(self.tls.load_full());
        let stream = match acceptor.accept(stream).await {
            Ok(stream) => stream,
            Err(error) if is_bad_certificate(&error) => {
                let source = address.ip().to_canonical();
                info!(%source, %error, "refused: the client's certificate does not count");
                return None;
            }
            Err(error) => {
                debug!(%address, %error, "handshake failed");
                return None;
            }
        };
        let shown = stream.get_ref().1.peer_certificates();
        let certificate = match shown.and_then(<[_]>::first) {
            None => Presented::Nothing,
            Some(der) => self.judge(der, address).await?,
        };
        Some((stream, certificate))
    }

    /// What a certificate is whose key the client holds; `None`: the ledger cannot be asked.
    async fn judge(&self, der: &[u8], address: SocketAddr) -> Option<Presented> {
        if self.rules.foreign.is_some() {
            // The handshake has verified it.
            let certificate = Certificate::parse(der).ok()?;
            return Some(Presented::Foreign(Arc::new(certificate)));
        }
        let certificate = match self.on_bad_certificate {
            // The handshake has applied the rules.
            OnBadCertificate::FailHandshake => Certificate::parse(der).ok()?,
            OnBadCertificate::TreatAsUnknown => match self.rules.check(der) {
                Ok(certificate) => certificate,
                Err(error) => {
                    debug!(%address, ?error, "client certificate does not count");
                    return Some(Presented::Unknown);
                }
            },
        };
        let ClientRules {
            authority, issuer, ..
        } = &self.rules;
        let found = match authority.ledger.get(issuer, &certificate.serial()).await {
            Ok(None) => authority.ledger.adopt(issuer, &certificate).await,
            found => found.map_err(EngineError::from),
        };
        match found {
            Ok(Some(entry)) if is_recorded(&entry, &certificate, der) => {
                Some(Presented::Known(Arc::new(KnownClient {
                    issuer: entry.issuer,
                    signer: entry.signer,
                    certificate,
                })))
            }
            Ok(_) => Some(Presented::Unknown),
            Err(error) => {
                warn!(%error, "the ledger does not answer; connection refused");
                None
            }
        }
    }

    /// HTTP of the version that the handshake agreed on.
    async fn converse(self: &Arc<Self>, stream: Stream, peer: Peer, open: &Arc<OpenConnection>) {
        let timeouts = &self.timeouts;
        let activity = Activity::new(Instant::now());
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
        let address = peer.address;
        let (door, requests, patience) = (self.door.clone(), Arc::clone(&activity), timeouts.body);
        let counting = Arc::clone(self);
        let closing = peer.closing.clone();
        let sender = Arc::new(peer.clone());
        let open = Arc::clone(open);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let in_flight = requests.begin().on(open.busy());
            let begun = Instant::now();
            let deadline = begun + patience;
            let counting = Arc::clone(&counting);
            let traffic = counting.traffic.as_ref();
            let route = traffic.map(|traffic| traffic.route(request.uri().path()));
            let mut request = request.map(|body| body::until(deadline, body));
            request.extensions_mut().insert(peer.clone());
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let sender = Arc::clone(&sender);
            let answered = door.clone().call(request);
            answered.map(move |answer| {
                answer.map(|answer| {
                    refusal::note(&sender, &method, &uri, &answer);
                    if let Some((traffic, route)) = counting.traffic.as_ref().zip(route) {
                        traffic.answered(route, answer.status(), begun.elapsed());
                    }
                    answer.map(|body: Body| in_flight.with(body))
                })
            })
        });
        let stream = TokioIo::new(stream);
        let outcome = if is_http2 {
            // The larger of the two, and for clients that stay: it has an allocation of its own, and the task of everybody
            // else is small.
            let mut connection = Box::pin(http2(timeouts).serve_connection(stream, service));
            supervise(connection.as_mut(), &activity, timeouts, &closing).await
        } else {
            let connection = pin!(http1(timeouts).serve_connection(stream, service));
            supervise(connection, &activity, timeouts, &closing).await
        };
        debug!(%address, ?outcome, "connection ended");
    }
}

/// Serves a connection without TLS, for somebody of whom nothing is known.
pub(crate) async fn receive_plain(
    stream: TcpStream,
    door: Router,
    timeouts: &Timeouts,
    open: &Arc<OpenConnection>,
    stop: &CancellationToken,
) {
    let _best_effort = stream.set_nodelay(true);
    let stream = Impatient::new(stream, timeouts.stall);
    receive_unknown(stream, Protocol::Http1, door, timeouts, open, stop).await;
}

/// Which HTTP a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// The one that a handshake agreed on.
    pub(crate) fn agreed(alpn: Option<&[u8]>) -> Self {
        match alpn == Some(HTTP_2) {
            true => Self::Http2,
            false => Self::Http1,
        }
    }
}

/// Serves a connection for somebody of whom nothing is known.
pub(crate) async fn receive_unknown<S>(
    stream: S,
    protocol: Protocol,
    door: Router,
    timeouts: &Timeouts,
    open: &Arc<OpenConnection>,
    stop: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Activity::new(Instant::now());
    let (requests, patience) = (Arc::clone(&activity), timeouts.body);
    let open = Arc::clone(open);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let in_flight = requests.begin().on(open.busy());
        let deadline = Instant::now() + patience;
        let request = request.map(|body| body::until(deadline, body));
        let answered = door.clone().call(request);
        answered.map(|answer| answer.map(|answer| answer.map(|body: Body| in_flight.with(body))))
    });
    let (stream, closing) = (TokioIo::new(stream), stop.child_token());
    let outcome = match protocol {
        Protocol::Http1 => {
            let connection = pin!(http1(timeouts).serve_connection(stream, service));
            supervise(connection, &activity, timeouts, &closing).await
        }
        Protocol::Http2 => {
            let mut connection = Box::pin(http2(timeouts).serve_connection(stream, service));
            supervise(connection.as_mut(), &activity, timeouts, &closing).await
        }
    };
    debug!(?outcome, "connection ended");
}

/// Whether a handshake failed for the client's certificate.
fn is_bad_certificate(error: &std::io::Error) -> bool {
    let fault = error.get_ref().and_then(|fault| fault.downcast_ref());
    matches!(fault, Some(rustls::Error::InvalidCertificate(_)))
}

/// How a connection ended.
#[derive(Debug)]
#[expect(dead_code, reason = "the log shows it by its Debug form")]
enum Ending {
    /// By the client, or by an error of the protocol.
    Itself(Result<(), hyper::Error>),
    /// By us.
    Closed(Option<Overdue>),
    /// By us, with requests that did not end.
    Cut(Option<Overdue>),
}

/// Whether a certificate is the one of a ledger entry. Of some that were taken over from another authority the ledger
/// has no more than the line of an inventory; the issuer's signature was verified before.
fn is_recorded(entry: &LedgerEntry, certificate: &Certificate, der: &[u8]) -> bool {
    if entry.der.is_empty() {
        certificate.subject().first_common_name() == Some(entry.name.as_str())
            && certificate.not_before() == entry.not_before
            && certificate.not_after() == entry.not_after
    } else {
        entry.der == der
    }
}

async fn supervise<C>(
    mut connection: Pin<&mut C>,
    activity: &Activity,
    timeouts: &Timeouts,
    closing: &CancellationToken,
) -> Ending
where
    C: GracefulConnection<Error = hyper::Error> + Future<Output = Result<(), hyper::Error>>,
{
    let reason = loop {
        let (due, _) = activity.due(timeouts);
        tokio::select! {
            // In this order, and not at random: nearly always it is the connection that has something to do.
            biased;
            ended = connection.as_mut() => return Ending::Itself(ended),
            () = closing.cancelled() => break None,
            () = sleep_until(due) => {}
        }
        // What happened meanwhile may have put it off.
        if let (due, Some(overdue)) = activity.due(timeouts)
            && due <= Instant::now()
        {
            break Some(overdue);
        }
    };
    match reason {
        Some(Overdue::Silent) => return Ending::Closed(reason),
        Some(Overdue::Stalled) => return Ending::Cut(reason),
        Some(Overdue::Idle | Overdue::Old) | None => {}
    }
    // Answers that would go on end here, so that their clients come back over another connection.
    closing.cancel();
    connection.as_mut().graceful_shutdown();
    match timeout(timeouts.drain, connection).await {
        Ok(_) => Ending::Closed(reason),
        Err(_) => Ending::Cut(reason),
    }
}

fn http1(timeouts: &Timeouts) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(timeouts.idle)
        .max_buf_size(MAX_HEAD);
    http
}

fn http2(timeouts: &Timeouts) -> http2::Builder<TokioExecutor> {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_H2)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_SEND)
        .keep_alive_interval(timeouts.idle);
    http
}

/// RFC 7301, RFC 9113 3.1.
const HTTP_2: &[u8] = b"h2";
/// Four times what agents and `kubectl` send, cookies of proxies included.
const MAX_HEAD: usize = 32 * 1024;
const MAX_HEAD_H2: u32 = 32 * 1024;
/// `kubectl` and client-go have a handful of requests open on a connection.
const MAX_STREAMS: u32 = 16;
// Memory that one connection can take: what arrives ahead of its readers, and what waits to be sent per stream.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
const MAX_SEND: usize = 64 * 1024;
