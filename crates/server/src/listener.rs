//! A bound address of one trust domain with its door: what it needs to know, and how long it waits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use countersign_authority::{Authority, IssuerId};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::connection::Reception;
use crate::connection_limit::{ConnectionLimit, OpenConnection};
use crate::entrance::{Entrance, accept};
use crate::metrics::Traffic;
use crate::proxy_protocol::TrustedProxies;
use crate::tls::{
    ClientRules, ForeignClients, OnBadCertificate, TlsFault, TlsIdentity, server_config,
};

/// A bound address of one trust domain with the door behind it.
pub struct Listener {
    tcp: TcpListener,
    reception: Arc<Reception>,
    connections: usize,
    per_source: Option<usize>,
    proxies: TrustedProxies,
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
            proxies: TrustedProxies::default(),
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

    /// The same listener behind load balancers, which say at the beginning of a connection whose it is.
    #[must_use]
    pub fn behind_proxies(self, proxies: TrustedProxies) -> Self {
        Self { proxies, ..self }
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
            proxies,
        } = self;
        let Timeouts {
            handshake, drain, ..
        } = reception.timeouts;
        let limit = ConnectionLimit::new(connections, per_source);
        let entrance = Entrance::new(limit).behind(proxies, connections, handshake);
        let stopping = stop.clone();
        let receive = move |stream, address, open: Arc<OpenConnection>| {
            let (reception, stop) = (Arc::clone(&reception), stopping.clone());
            async move { reception.receive(stream, address, &open, &stop).await }
        };
        accept(tcp, entrance, drain, &stop, receive).await;
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
