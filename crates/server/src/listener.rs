//! The accept loop: TCP, TLS, HTTP, in this order, each with its limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use countersign_authority::{Authority, IssuerId};
use countersign_pki::Certificate;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::{debug, warn};

use crate::peer::{KnownClient, Peer, Presented};
use crate::tls::{TlsFault, TlsIdentity, server_config};

/// A bound address of one trust domain with the door behind it.
pub struct Listener {
    tcp: TcpListener,
    tls: TlsAcceptor,
    authority: Authority,
    issuer: IssuerId,
    door: Router,
}

/// Why a listener cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ListenerFault {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsFault),
}

impl Listener {
    /// Binds `address`; clients' certificates come from `issuer`.
    pub async fn bind(
        address: SocketAddr,
        authority: Authority,
        issuer: IssuerId,
        identity: &TlsIdentity,
        door: Router,
    ) -> Result<Self, ListenerFault> {
        let config = server_config(&authority, &issuer, identity)?;
        let tcp = TcpListener::bind(address)
            .await
            .map_err(|source| ListenerFault::Bind { address, source })?;
        Ok(Self { tcp, tls: TlsAcceptor::from(Arc::new(config)), authority, issuer, door })
    }

    /// The address it listens on (the port, where 0 was asked for).
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until `stop` is cancelled, then lets open requests finish.
    pub async fn serve(self, stop: CancellationToken) {
        let shared = Arc::new(self);
        let graceful = Arc::new(GracefulShutdown::new());
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                accepted = shared.tcp.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, or a connection that died in the queue.
                    warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
                debug!(%address, "too many connections");
                continue;
            };
            let (shared, watcher) = (Arc::clone(&shared), graceful.watcher());
            tokio::spawn(async move {
                shared.connection(stream, address, watcher).await;
                drop(permit);
            });
        }
        if let Some(graceful) = Arc::into_inner(graceful) {
            // Connections that do not end are cut: nothing acknowledged depends on them.
            let _ended = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
        }
    }

    async fn connection(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        watcher: hyper_util::server::graceful::Watcher,
    ) {
        let _best_effort = stream.set_nodelay(true);
        let stream = match tokio::time::timeout(HANDSHAKE, self.tls.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return debug!(%address, %error, "handshake failed"),
            Err(_) => return debug!(%address, "handshake timed out"),
        };
        let presented = match stream.get_ref().1.peer_certificates().and_then(<[_]>::first) {
            None => Presented::Nothing,
            Some(der) => match self.known(der).await {
                Some(presented) => presented,
                None => return,
            },
        };
        let peer = Peer { address, certificate: presented };
        let door = self.door.clone();
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(peer.clone());
            door.clone().oneshot(request.map(axum::body::Body::new))
        });
        let mut http = Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(MAX_HEAD);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD_H2)
            .keep_alive_interval(IDLE);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            debug!(%address, error, "connection ended");
        }
    }

    /// What the ledger says of a certificate that passed the handshake; `None`: it cannot be asked.
    async fn known(&self, der: &[u8]) -> Option<Presented> {
        let certificate = Certificate::parse(der).ok()?;
        match self.authority.certificate(&self.issuer, &certificate.serial()).await {
            Ok(Some(entry)) if entry.der == der => Some(Presented::Known(Arc::new(KnownClient {
                issuer: entry.issuer,
                signer: entry.signer,
                certificate,
            }))),
            Ok(_) => Some(Presented::Unknown),
            Err(error) => {
                warn!(%error, "the ledger does not answer; connection refused");
                None
            }
        }
    }
}

/// Bounds memory; more than any fleet opens at once to one authority.
const MAX_CONNECTIONS: usize = 16_384;
/// A client that cannot finish a handshake by then is gone.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Longer than the four seconds for which agents keep idle connections.
const IDLE: Duration = Duration::from_secs(75);
/// How long open requests may take when the server stops.
const DRAIN: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const MAX_HEAD: usize = 32 * 1024;
const MAX_HEAD_H2: u32 = 32 * 1024;
const MAX_STREAMS: u32 = 128;
