//! The accept loop: who gets a connection, how long it may take, and how all of them end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use countersign_authority::{Authority, IssuerId};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::connection::Reception;
use crate::connection_limit::{ConnectionLimit, OpenConnection, TooManyConnections};
use crate::metrics::Traffic;
use crate::tls::{
    ClientRules, ForeignClients, OnBadCertificate, TlsFault, TlsIdentity, server_config,
};

/// A bound address of one trust domain with the door behind it.
pub struct Listener {
    tcp: TcpListener,
    reception: Arc<Reception>,
    connections: usize,
    per_source: Option<usize>,
}

/// What a listener needs to know.
pub struct ListenerConfig<'a> {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whose certificates its clients have.
    pub issuer: IssuerId,
    /// Its own certificate.
    pub identity: &'a TlsIdentity,
    /// What it does with client certificates that do not count.
    pub on_bad_certificate: OnBadCertificate,
    /// How many connections it holds at once; one source address gets a quarter of them, but at least 64. Where there are
    /// too many, the idlest of those who are not known goes.
    pub connections: usize,
    /// How long it waits.
    pub timeouts: Timeouts,
}

/// How long a listener waits for what.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the end of the handshake.
    pub handshake: Duration,
    /// From there for the head of the first request.
    pub first_request: Duration,
    /// Between requests.
    pub idle: Duration,
    /// For the body of a request.
    pub body: Duration,
    /// For the client to take something of an answer.
    pub stall: Duration,
    /// Until a connection is ended whatever happens on it.
    pub age: Duration,
    /// For open requests when a connection, or the server, is to end.
    pub drain: Duration,
}

impl Timeouts {
    /// What fits agents, `kubectl` and their proxies.
    pub const STANDARD: Self = Self {
        handshake: Duration::from_secs(10),
        first_request: Duration::from_secs(15),
        // Longer than the four seconds for which agents keep idle connections.
        idle: Duration::from_secs(75),
        // Bodies have some kilobytes; who needs longer only holds a connection.
        body: Duration::from_secs(30),
        stall: Duration::from_secs(30),
        // HTTP/2 clients never let go of a connection by themselves.
        age: Duration::from_secs(3600),
        // Longer than the slowest policy executable may take.
        drain: Duration::from_secs(15),
    };
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
    /// Binds an address, with `door` behind it.
    pub async fn bind(
        authority: Authority,
        door: Router,
        config: ListenerConfig<'_>,
    ) -> Result<Self, ListenerFault> {
        let ListenerConfig {
            address,
            issuer,
            identity,
            on_bad_certificate,
            connections,
            timeouts,
        } = config;
        let rules = ClientRules {
            authority,
            issuer,
            foreign: None,
        };
        let tls = server_config(rules.clone(), on_bad_certificate, identity)?;
        let tcp = TcpListener::bind(address)
            .await
            .map_err(|source| ListenerFault::Bind { address, source })?;
        let reception = Reception {
            tls: ArcSwap::from_pointee(tls),
            rules,
            on_bad_certificate,
            door,
            timeouts,
            traffic: None,
        };
        Ok(Self {
            tcp,
            reception: Arc::new(reception),
            connections,
            per_source: None,
        })
    }

    /// The same listener, where one source address holds at most so many connections.
    #[must_use]
    pub fn with_connections_per_source(self, per_source: usize) -> Self {
        Self {
            per_source: Some(per_source),
            ..self
        }
    }

    /// The same listener for clients of another authority in place of the issuer's. The handshake of anybody else fails.
    ///
    /// # Errors
    /// If the listener's own certificate and key cannot be used.
    pub fn for_foreign_clients(
        mut self,
        clients: ForeignClients,
        identity: &TlsIdentity,
    ) -> Result<Self, TlsFault> {
        // As in `counted`: nobody else has it yet.
        if let Some(reception) = Arc::get_mut(&mut self.reception) {
            reception.rules.foreign = Some(clients);
            let rules = reception.rules.clone();
            let tls = server_config(rules, reception.on_bad_certificate, identity)?;
            reception.tls.store(Arc::new(tls));
        }
        Ok(self)
    }

    /// The same listener, which counts what it sees.
    #[must_use]
    pub fn counted(mut self, traffic: Traffic) -> Self {
        // Nobody else has it yet: `identity` is asked for later.
        if let Some(reception) = Arc::get_mut(&mut self.reception) {
            reception.traffic = Some(traffic);
        }
        self
    }

    /// What replaces its certificate while it serves.
    pub fn identity(&self) -> Identity {
        Identity(Arc::clone(&self.reception))
    }

    /// The address it listens on (the port, where 0 was asked for).
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until `stop` is cancelled, then lets open requests finish.
    pub async fn serve(self, stop: CancellationToken) {
        let Self {
            tcp,
            reception,
            connections,
            per_source,
        } = self;
        let limit = ConnectionLimit::new(connections, per_source);
        let drain = reception.timeouts.drain;
        accept(tcp, limit, drain, &stop, |stream, address, open| {
            let (reception, stop) = (Arc::clone(&reception), stop.clone());
            async move { reception.receive(stream, address, &open, &stop).await }
        })
        .await;
    }
}

/// The certificate of a listener. Cheap to clone.
#[derive(Clone)]
pub struct Identity(Arc<Reception>);

impl Identity {
    /// Shows another certificate to connections that begin from now on.
    ///
    /// # Errors
    /// If the certificate and key cannot be used; the one before stays.
    pub fn replace(&self, identity: &TlsIdentity) -> Result<(), TlsFault> {
        let Reception {
            tls,
            rules,
            on_bad_certificate,
            ..
        } = &*self.0;
        tls.store(Arc::new(server_config(
            rules.clone(),
            *on_bad_certificate,
            identity,
        )?));
        Ok(())
    }
}

/// Gives every connection within the limit, with its place there, to `receive`, until `stop` is cancelled; then waits for
/// their end. One that loses its place ends at once.
pub(crate) async fn accept<F>(
    tcp: TcpListener,
    limit: ConnectionLimit,
    drain: Duration,
    stop: &CancellationToken,
    receive: impl Fn(TcpStream, SocketAddr, Arc<OpenConnection>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let connections = TaskTracker::new();
    let (mut failures, mut crowds) = (Complaint::default(), Complaint::default());
    let mut closings = Complaint::default();
    loop {
        let accepted = tokio::select! {
            accepted = tcp.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, or a connection that died in the queue.
                if let Some(count) = failures.count(Instant::now()) {
                    warn!(%error, count, "connections cannot be accepted");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let open = match limit.take(address.ip()) {
            Ok(open) => open,
            Err(reason) => {
                if let Some(count) = crowds.count(Instant::now()) {
                    let limit = match reason {
                        TooManyConnections::InAll => "all",
                        TooManyConnections::FromSource => "per source",
                    };
                    warn!(%address, limit, count, "connections dropped: too many are open");
                }
                continue;
            }
        };
        if limit.has_made_room()
            && let Some(count) = closings.count(Instant::now())
        {
            warn!(%address, count, "idle connections closed to make room: too many are open");
        }
        let open = Arc::new(open);
        let received = receive(stream, address, Arc::clone(&open));
        connections.spawn(async move {
            tokio::select! {
                () = received => {}
                // Somebody else has got its place: what is on it ends here.
                () = open.lost() => debug!(%address, "idle connection closed to make room"),
            }
        });
    }
    drop(tcp);
    connections.close();
    // Connections that do not end are cut: nothing acknowledged depends on them.
    let _ended = tokio::time::timeout(drain + CUT, connections.wait()).await;
}

/// A warning that would otherwise be written for every packet of a flood.
#[derive(Debug, Default)]
struct Complaint {
    written: Option<Instant>,
    since: u64,
}

impl Complaint {
    /// Counts an event; answers with the count if it is time to write it down.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.since = self.since.saturating_add(1);
        if self
            .written
            .is_some_and(|written| now < written + COMPLAINT_PAUSE)
        {
            return None;
        }
        self.written = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);
/// How long connections whose time is up may need to notice.
const CUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_one_line_in_ten_seconds() {
        let mut complaint = Complaint::default();
        let begun = Instant::now();
        let mut written = Vec::new();
        for tenth in 0..250u64 {
            written.extend(complaint.count(begun + Duration::from_millis(tenth * 100)));
        }
        assert_eq!(written, [1, 100, 100]);
    }
}
