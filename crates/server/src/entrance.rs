//! The accept loop: who gets a connection, and how all of them end.
//!
//! A connection of a trusted load balancer counts for the client that it is made for, once its header has said which that
//! is. Until then it has a place apart: balancers that say nothing take no place from anybody whose address is known.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::connection_limit::{ConnectionLimit, OpenConnection, TooManyConnections};
use crate::proxy_protocol::{self, Header, HeaderFault, TrustedProxies};

/// Who gets a place at a listener.
pub(crate) struct Entrance {
    limit: ConnectionLimit,
    proxies: Option<Arc<Proxies>>,
    complaints: Mutex<Complaints>,
}

/// What there is to know of the load balancers in front of a listener.
struct Proxies {
    trusted: TrustedProxies,
    /// Connections whose header has not come yet.
    unread: ConnectionLimit,
    /// How long it may take.
    patience: Duration,
}

#[derive(Debug, Default)]
struct Complaints {
    crowds: Complaint,
    closings: Complaint,
}

impl Entrance {
    /// One that believes the network's addresses.
    pub(crate) fn new(limit: ConnectionLimit) -> Self {
        Self {
            limit,
            proxies: None,
            complaints: Mutex::default(),
        }
    }

    /// One of so many connections that believes load balancers, too, if they say whose connection it is in time.
    pub(crate) fn behind(
        self,
        trusted: TrustedProxies,
        connections: usize,
        patience: Duration,
    ) -> Self {
        let unread = (connections / 2).clamp(MIN_UNREAD, MAX_UNREAD);
        let proxies = Proxies {
            trusted,
            unread: ConnectionLimit::new(unread, Some(unread)),
            patience,
        };
        Self {
            proxies: Some(Arc::new(proxies)),
            ..self
        }
    }

    /// What concerns a connection from this address, if it is a load balancer's.
    fn proxies(&self, address: SocketAddr) -> Option<Arc<Proxies>> {
        let proxies = self.proxies.as_ref();
        let proxies = proxies.filter(|proxies| proxies.trusted.contains(address.ip()));
        proxies.map(Arc::clone)
    }

    /// A place for a connection of this client.
    fn admit(&self, address: SocketAddr) -> Option<Arc<OpenConnection>> {
        let open = self.limit.take(address.ip());
        let complaints = self.complaints.lock();
        let mut complaints = complaints.unwrap_or_else(PoisonError::into_inner);
        let Complaints { crowds, closings } = &mut *complaints;
        let open = match open {
            Ok(open) => open,
            Err(reason) => {
                if let Some(count) = crowds.count(Instant::now()) {
                    let limit = match reason {
                        TooManyConnections::InAll => "all",
                        TooManyConnections::FromSource => "per source",
                    };
                    warn!(%address, limit, count, "connections dropped: too many are open");
                }
                return None;
            }
        };
        if self.limit.has_made_room()
            && let Some(count) = closings.count(Instant::now())
        {
            warn!(%address, count, "idle connections closed to make room: too many are open");
        }
        Some(Arc::new(open))
    }
}

impl Proxies {
    /// The address that a load balancer's connection counts for; `None`: it is closed, and the log says why.
    async fn client(&self, stream: &mut TcpStream, proxy: SocketAddr) -> Option<SocketAddr> {
        let source = proxy.ip().to_canonical();
        let read = match self.unread.take(EVERY_PROXY) {
            Err(_) => Err(HeaderFault::Crowded),
            Ok(open) => tokio::select! {
                read = timeout(self.patience, proxy_protocol::read(stream)) => {
                    read.unwrap_or(Err(HeaderFault::Late))
                }
                () = open.lost() => Err(HeaderFault::Crowded),
            },
        };
        match read {
            Ok(Header::Client(client)) => Some(client),
            Ok(Header::Own) => Some(proxy),
            // Health checks that only connect, one every second.
            Err(error @ (HeaderFault::Ended { begun: false } | HeaderFault::Broken(_))) => {
                debug!(%source, ?error, "connection of a trusted proxy closed");
                None
            }
            Err(error) => {
                warn!(%source, %error, "connection of a trusted proxy closed");
                None
            }
        }
    }
}

/// Gives every connection that the entrance lets in, with its place there, to `receive`, until `stop` is cancelled; then
/// waits for their end. One that loses its place ends at once.
pub(crate) async fn accept<F>(
    tcp: TcpListener,
    entrance: Entrance,
    drain: Duration,
    stop: &CancellationToken,
    receive: impl Fn(TcpStream, SocketAddr, Arc<OpenConnection>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (entrance, receive) = (Arc::new(entrance), Arc::new(receive));
    let connections = TaskTracker::new();
    let mut failures = Complaint::default();
    loop {
        let accepted = tokio::select! {
            accepted = tcp.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (mut stream, address) = match accepted {
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
        if let Some(proxies) = entrance.proxies(address) {
            let (entrance, receive) = (Arc::clone(&entrance), Arc::clone(&receive));
            let stop = stop.clone();
            // A header that is there already is read as soon as its task runs, however many come at once.
            connections.spawn(async move {
                let client = tokio::select! {
                    client = proxies.client(&mut stream, address) => client,
                    () = stop.cancelled() => return,
                };
                let admitted = client.and_then(|client| Some((client, entrance.admit(client)?)));
                if let Some((client, open)) = admitted {
                    hold(client, &open, receive(stream, client, Arc::clone(&open))).await;
                }
            });
        } else if let Some(open) = entrance.admit(address) {
            let received = receive(stream, address, Arc::clone(&open));
            connections.spawn(async move { hold(address, &open, received).await });
        }
    }
    drop(tcp);
    connections.close();
    // Connections that do not end are cut: nothing acknowledged depends on them.
    let _ended = timeout(drain + CUT, connections.wait()).await;
}

/// Goes on with a connection until it ends or has lost its place.
async fn hold(address: SocketAddr, open: &OpenConnection, received: impl Future<Output = ()>) {
    tokio::select! {
        () = received => {}
        // Somebody else has got its place: what is on it ends here.
        () = open.lost() => debug!(%address, "idle connection closed to make room"),
    }
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
/// Places for connections whose header has not come, which takes a round trip at most: half as many as the others, and no
/// more than this, so that there are files left for the rest.
const MAX_UNREAD: usize = 1024;
const MIN_UNREAD: usize = 64;
/// Load balancers share those places: the connection that has waited longest goes. An address of this machine, because a
/// [`ConnectionLimit`] keeps some places from others.
const EVERY_PROXY: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

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
