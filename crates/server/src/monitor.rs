//! The listener for those who watch: metrics and health over plain HTTP, nothing else.
//!
//! It may listen before the authority is there, so that somebody who waits for it is told what is missing.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use countersign_authority::Authority;
use http::{HeaderValue, StatusCode, header};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::connection::receive_plain;
use crate::connection_limit::{ConnectionLimit, OpenConnection};
use crate::entrance::{Entrance, accept};
use crate::listener::{ListenerFault, Timeouts};
use crate::metrics::StateMetrics;
use crate::readiness;

/// A bound address with metrics and health behind it.
pub struct MonitorListener {
    tcp: TcpListener,
    door: Router,
    timeouts: Timeouts,
}

/// What the monitoring listener shows. Cheap to clone.
#[derive(Clone)]
pub struct Monitor {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Registry,
    state: Option<StateMetrics>,
    /// Says whether it is ready, in the place of an authority.
    is_ready: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    authority: OnceLock<Authority>,
    stopping: AtomicBool,
}

impl Monitor {
    /// Shows what was registered. Not ready until [`Monitor::started`].
    pub fn new(registry: Registry, state: StateMetrics) -> Self {
        Self {
            shared: Arc::new(Shared {
                registry,
                state: Some(state),
                is_ready: None,
                authority: OnceLock::new(),
                stopping: AtomicBool::new(false),
            }),
        }
    }

    /// Shows what was registered by a process that is no authority, which says itself whether it is ready.
    pub fn without_authority(
        registry: Registry,
        is_ready: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                registry,
                state: None,
                is_ready: Some(Box::new(is_ready)),
                authority: OnceLock::new(),
                stopping: AtomicBool::new(false),
            }),
        }
    }

    /// Keys, store and revocations are loaded, and every listener is bound: from now on it is ready while the store
    /// answers.
    pub fn started(&self, authority: &Authority) {
        let _the_first_stays = self.shared.authority.set(authority.clone());
    }

    /// It is not ready any more: open requests are finished, new ones belong elsewhere.
    pub fn stopping(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }

    /// The paths it answers.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/livez", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .with_state(self.clone())
    }

    /// Binds an address for it.
    ///
    /// # Errors
    /// If the address is taken or not ours.
    pub async fn bind(&self, address: SocketAddr) -> Result<MonitorListener, ListenerFault> {
        let tcp = TcpListener::bind(address)
            .await
            .map_err(|source| ListenerFault::Bind { address, source })?;
        Ok(MonitorListener {
            tcp,
            door: self.router(),
            timeouts: Timeouts::STANDARD,
        })
    }

    /// Why it is not ready, in a word.
    async fn missing(&self) -> Option<&'static str> {
        if self.shared.stopping.load(Ordering::Relaxed) {
            return Some("stopping");
        }
        if let Some(is_ready) = &self.shared.is_ready {
            return (!is_ready()).then_some("starting");
        }
        let Some(authority) = self.shared.authority.get() else {
            return Some("starting");
        };
        match timeout(PATIENCE, readiness::probe(&authority.requests)).await {
            Ok(Ok(())) => None,
            Ok(Err(_)) | Err(_) => Some("store"),
        }
    }
}

impl MonitorListener {
    /// The address it listens on (the port, where 0 was asked for).
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until `stop` is cancelled, then lets open requests finish.
    pub async fn serve(self, stop: CancellationToken) {
        let Self {
            tcp,
            door,
            timeouts,
        } = self;
        let entrance = Entrance::new(ConnectionLimit::new(CONNECTIONS, Some(PER_SOURCE)));
        let stopping = stop.clone();
        let receive = move |stream, _, open: Arc<OpenConnection>| {
            let (door, stop) = (door.clone(), stopping.clone());
            async move { receive_plain(stream, door, &timeouts, &open, &stop).await }
        };
        accept(tcp, entrance, timeouts.drain, &stop, receive).await;
    }
}

async fn metrics(State(monitor): State<Monitor>) -> Response {
    let shared = &monitor.shared;
    if let Some(state) = &shared.state {
        state.refresh(shared.authority.get()).await;
    }
    let mut text = String::new();
    if let Err(error) = encode(&mut text, &shared.registry) {
        error!(%error, "the metrics cannot be written");
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let kind = HeaderValue::from_static(OPEN_METRICS);
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn ready(State(monitor): State<Monitor>) -> Response {
    match monitor.missing().await {
        None => "ok\n".into_response(),
        Some(word) => (StatusCode::SERVICE_UNAVAILABLE, format!("{word}\n")).into_response(),
    }
}

/// OpenMetrics 1.0, which Prometheus reads beside its own text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// A few who watch.
const CONNECTIONS: usize = 64;
/// So that one who keeps connections open does not keep the others out.
const PER_SOURCE: usize = 16;
/// A store that takes longer does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
