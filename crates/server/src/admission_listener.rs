//! The listener for an API server that asks before it stores an object: AdmissionReviews over HTTPS.
//!
//! An API server shows no certificate here, so anybody who reaches the address may ask. What is asked is bounded: in size, in
//! time, and in how many reviews are read and answered at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, StatusCode, header};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::body::{self, BodyFault};
use crate::connection::{Protocol, receive_unknown};
use crate::connection_limit::{ConnectionLimit, OpenConnection};
use crate::entrance::{Entrance, accept};
use crate::listener::{ListenerFault, Timeouts};
use crate::stall::Impatient;
use crate::tls::{TlsFault, TlsIdentity, anonymous_server_config};

/// Answers a review, as JSON; or says why it cannot, for the log of the API server.
pub type Reviewer = Arc<dyn Fn(Bytes) -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync>;

/// A bound address with reviewers behind it.
pub struct AdmissionListener {
    tcp: TcpListener,
    tls: Arc<ArcSwap<ServerConfig>>,
    door: Router,
}

/// The certificate of an [`AdmissionListener`]. Cheap to clone.
#[derive(Clone)]
pub struct AdmissionIdentity(Arc<ArcSwap<ServerConfig>>);

impl AdmissionIdentity {
    /// Shows another certificate to connections that begin from now on.
    ///
    /// # Errors
    /// If the certificate and key cannot be used; the one before stays.
    pub fn replace(&self, identity: &TlsIdentity) -> Result<(), TlsFault> {
        self.0.store(Arc::new(anonymous_server_config(identity)?));
        Ok(())
    }
}

impl AdmissionListener {
    /// Binds an address, with a reviewer at each path.
    ///
    /// # Errors
    /// If the address is taken or not ours, or the certificate and key cannot be used.
    pub async fn bind(
        address: SocketAddr,
        identity: &TlsIdentity,
        reviewers: Vec<(&'static str, Reviewer)>,
    ) -> Result<Self, ListenerFault> {
        let tls = anonymous_server_config(identity)?;
        let tcp = TcpListener::bind(address)
            .await
            .map_err(|source| ListenerFault::Bind { address, source })?;
        Ok(Self {
            tcp,
            tls: Arc::new(ArcSwap::from_pointee(tls)),
            door: door(reviewers),
        })
    }

    /// What replaces its certificate while it serves.
    pub fn identity(&self) -> AdmissionIdentity {
        AdmissionIdentity(Arc::clone(&self.tls))
    }

    /// The address it listens on (the port, where 0 was asked for).
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until `stop` is cancelled, then lets open requests finish.
    pub async fn serve(self, stop: CancellationToken) {
        let Self { tcp, tls, door } = self;
        let limit = ConnectionLimit::new(CONNECTIONS, Some(PER_SOURCE));
        let stopping = stop.clone();
        let receive = move |stream, address, open: Arc<OpenConnection>| {
            let (tls, door, stop) = (tls.load_full(), door.clone(), stopping.clone());
            async move { receive(stream, address, tls, door, &open, &stop).await }
        };
        accept(tcp, Entrance::new(limit), TIMEOUTS.drain, &stop, receive).await;
    }
}

async fn receive(
    stream: TcpStream,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    door: Router,
    open: &Arc<OpenConnection>,
    stop: &CancellationToken,
) {
    let _best_effort = stream.set_nodelay(true);
    let stream = Impatient::new(stream, TIMEOUTS.stall);
    let handshake = timeout(TIMEOUTS.handshake, TlsAcceptor::from(tls).accept(stream));
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = stop.cancelled() => return,
    };
    match shaken {
        Ok(Ok(stream)) => {
            let protocol = Protocol::agreed(stream.get_ref().1.alpn_protocol());
            receive_unknown(stream, protocol, door, &TIMEOUTS, open, stop).await;
        }
        Ok(Err(error)) => debug!(%address, %error, "handshake failed"),
        Err(_) => debug!(%address, "handshake timed out"),
    }
}

/// What all reviewers share: how many of them work at once.
#[derive(Clone)]
struct Desk {
    places: Arc<Semaphore>,
    reviewer: Reviewer,
}

fn door(reviewers: Vec<(&'static str, Reviewer)>) -> Router {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let at = |door: Router, (path, reviewer)| {
        let places = Arc::clone(&places);
        let desk = Desk { places, reviewer };
        door.route(path, post(review).with_state(desk))
    };
    reviewers.into_iter().fold(Router::new(), at)
}

async fn review(State(desk): State<Desk>, request: Request) -> Response {
    let Ok(_place) = desk.places.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let body = match body::read(request.into_body(), MAX_REVIEW).await {
        Ok(body) => body,
        Err(fault) => {
            let status = match fault {
                BodyFault::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
                BodyFault::TooSlow => StatusCode::REQUEST_TIMEOUT,
                BodyFault::BrokenOff => StatusCode::BAD_REQUEST,
            };
            return (status, format!("{fault}\n")).into_response();
        }
    };
    match (desk.reviewer)(body).await {
        Ok(answer) => {
            let kind = HeaderValue::from_static("application/json");
            ([(header::CONTENT_TYPE, kind)], answer).into_response()
        }
        Err(fault) => (StatusCode::BAD_REQUEST, format!("{fault}\n")).into_response(),
    }
}

const TIMEOUTS: Timeouts = Timeouts {
    // An API server has the whole review when it asks, and waits for seconds.
    body: Duration::from_secs(5),
    ..Timeouts::STANDARD
};
/// An object and what it was before have 1.5 MiB each, where etcd is as it is delivered. One that is too long for us could
/// not be finalized.
const MAX_REVIEW: usize = 4 << 20;
/// Bounds memory: so many times the longest review. The others wait.
const AT_ONCE: usize = 24;
/// A few API servers.
const CONNECTIONS: usize = 512;
/// All of them may come through one translated address.
const PER_SOURCE: usize = 256;

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt as _;

    use super::*;

    fn echo() -> Router {
        let reviewer: Reviewer = Arc::new(|body: Bytes| {
            Box::pin(async move {
                match body.is_empty() {
                    true => Err("there is nothing".to_owned()),
                    false => Ok(body.to_vec()),
                }
            })
        });
        door(vec![("/validate-a", reviewer)])
    }

    #[tokio::test]
    async fn reviews_are_bounded_and_other_calls_refused() {
        let (long, too_long) = (vec![b'x'; MAX_REVIEW], vec![b'x'; MAX_REVIEW + 1]);
        for (method, path, body, status) in [
            ("POST", "/validate-a", b"x".to_vec(), 200),
            ("POST", "/validate-a", long, 200),
            ("POST", "/validate-a", too_long, 413),
            ("POST", "/validate-a", Vec::new(), 400),
            ("GET", "/validate-a", Vec::new(), 405),
            ("POST", "/validate-b", b"x".to_vec(), 404),
        ] {
            let length = body.len();
            let request = Request::builder().method(method).uri(path);
            let request = request.body(Body::from(body)).unwrap();
            let answer = echo().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), status, "{method} {path} {length}");
        }
    }

    #[tokio::test]
    async fn only_so_many_reviews_are_read_at_once() {
        let (begun, end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (telling, waiting) = (Arc::clone(&begun), Arc::clone(&end));
        let reviewer: Reviewer = Arc::new(move |body: Bytes| {
            let (begun, end) = (Arc::clone(&telling), Arc::clone(&waiting));
            Box::pin(async move {
                begun.add_permits(1);
                let _ended = end.acquire().await;
                Ok(body.to_vec())
            })
        });
        let door = door(vec![("/validate-a", reviewer)]);
        let calls = (0..=AT_ONCE).map(|_| {
            let request = Request::post("/validate-a").body(Body::from("x")).unwrap();
            tokio::spawn(door.clone().oneshot(request))
        });
        let calls: Vec<_> = calls.collect();
        let places = u32::try_from(AT_ONCE).unwrap();
        begun.acquire_many(places).await.unwrap().forget();
        tokio::task::yield_now().await;
        assert_eq!(begun.available_permits(), 0);
        end.add_permits(1);
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap().status(), 200);
        }
    }
}
