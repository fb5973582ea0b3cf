//! Doors behind real listeners, and clients that speak to them by hand.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use countersign_authority::IssuerId;
use countersign_pki::{UnixTime, pem};
use countersign_server::kubernetes::{self, KubernetesDoor};
use countersign_server::puppet::{self, PuppetDoor};
use countersign_server::{Listener, ListenerConfig, OnBadCertificate, Timeouts, TlsIdentity};
use countersign_testkit::keys::{self, Key};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{AlertDescription, ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::world::{Forged, PUPPET_AGENT, START, World, signer_name};

/// Short enough for a test, long enough for a slow machine.
pub(crate) const QUICK: Timeouts = Timeouts {
    handshake: Duration::from_secs(2),
    first_request: Duration::from_secs(1),
    idle: Duration::from_secs(1),
    body: Duration::from_secs(1),
    stall: Duration::from_secs(1),
    age: Duration::from_secs(60),
    drain: Duration::from_millis(200),
};

/// Long after everything in [`QUICK`]; what takes longer has hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A door behind a listener; it is closed when this is dropped.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) address: SocketAddr,
    issuer: IssuerId,
    _stop: DropGuard,
}

impl Site {
    pub(crate) async fn puppet(world: World, timeouts: Timeouts) -> Self {
        Self::puppet_with(world, timeouts, |listener| listener).await
    }

    /// With a listener that is furnished otherwise.
    pub(crate) async fn puppet_with(
        world: World,
        timeouts: Timeouts,
        furnish: impl FnOnce(Listener) -> Listener,
    ) -> Self {
        let issuer = world.puppet_issuer();
        let signer = signer_name(PUPPET_AGENT);
        let door = PuppetDoor::new(world.authority.clone(), issuer.clone(), signer, START);
        let router = puppet::router(door.unwrap());
        Self::open(
            world,
            issuer,
            router,
            OnBadCertificate::FailHandshake,
            timeouts,
            furnish,
        )
        .await
    }

    pub(crate) async fn kubernetes(world: World, timeouts: Timeouts) -> Self {
        let issuer = world.kubernetes_issuer();
        let router = kubernetes::router(
            KubernetesDoor::open(world.authority.clone(), issuer.clone())
                .await
                .unwrap(),
        );
        Self::open(
            world,
            issuer,
            router,
            OnBadCertificate::TreatAsUnknown,
            timeouts,
            |listener| listener,
        )
        .await
    }

    async fn open(
        world: World,
        issuer: IssuerId,
        router: Router,
        on_bad_certificate: OnBadCertificate,
        timeouts: Timeouts,
        furnish: impl FnOnce(Listener) -> Listener,
    ) -> Self {
        let server = world
            .forge(&issuer, keys::p256_c(), &Forged::server("localhost"))
            .await;
        let identity = TlsIdentity {
            chain_pem: pem::encode("CERTIFICATE", &server).into_bytes(),
            key_pem: keys::p256_c().pkcs8_pem().as_bytes().to_vec().into(),
        };
        let config = ListenerConfig {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            issuer: issuer.clone(),
            identity: &identity,
            on_bad_certificate,
            connections: 64,
            timeouts,
        };
        let bound = Listener::bind(world.authority.clone(), router, config).await;
        let listener = furnish(bound.unwrap());
        let address = listener.address().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(listener.serve(stop.clone()));
        Self {
            world,
            address,
            issuer,
            _stop: stop.drop_guard(),
        }
    }

    /// A connection of somebody without a certificate.
    pub(crate) async fn connect(&self) -> Connection {
        self.client().connect().await.unwrap()
    }

    pub(crate) fn client(&self) -> Client<'_> {
        Client {
            site: self,
            certificate: None,
            versions: rustls::ALL_VERSIONS,
            protocol: b"http/1.1",
            preface: Vec::new(),
        }
    }
}

/// Whom a client is, and how it speaks.
#[derive(Clone)]
pub(crate) struct Client<'a> {
    site: &'a Site,
    certificate: Option<(Vec<u8>, &'static Key)>,
    versions: &'static [&'static SupportedProtocolVersion],
    protocol: &'static [u8],
    preface: Vec<u8>,
}

impl Client<'_> {
    pub(crate) fn with(mut self, certificate: &[u8], key: &'static Key) -> Self {
        self.certificate = Some((certificate.to_vec(), key));
        self
    }

    pub(crate) fn version(mut self, only: &'static [&'static SupportedProtocolVersion]) -> Self {
        self.versions = only;
        self
    }

    pub(crate) fn http2(mut self) -> Self {
        self.protocol = b"h2";
        self
    }

    /// Sends something before the handshake.
    pub(crate) fn after(mut self, preface: Vec<u8>) -> Self {
        self.preface = preface;
        self
    }

    /// A connection after its handshake, as far as the client can tell: in TLS 1.3 the server judges the client later.
    pub(crate) async fn connect(&self) -> Result<Connection, std::io::Error> {
        let mut roots = RootCertStore::empty();
        let issuer = self
            .site
            .world
            .authority
            .issuers
            .get(&self.site.issuer)
            .unwrap();
        let root = CertificateDer::from(issuer.certificate().der().to_vec());
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_details(provider, Arc::new(Fixed(START)))
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((der, key)) => {
                let chain = vec![CertificateDer::from(der.clone())];
                let key = PrivatePkcs8KeyDer::from(key.pkcs8_der().to_vec());
                let key = any_supported_type(&PrivateKeyDer::Pkcs8(key)).unwrap();
                // Taken as they are: a thief has the certificate and some other key.
                let pair = SingleCertAndKey::from(CertifiedKey::new(chain, key));
                builder.with_client_cert_resolver(Arc::new(pair))
            }
        };
        config.alpn_protocols = vec![self.protocol.to_vec()];
        let mut tcp = TcpStream::connect(self.site.address).await?;
        tcp.write_all(&self.preface).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await?;
        Ok(Connection(stream))
    }

    /// The alert with which the server ends the handshake.
    pub(crate) async fn alert(&self) -> AlertDescription {
        let fault = match self.connect().await {
            Err(fault) => fault,
            Ok(mut connection) => timeout(PATIENCE, connection.0.read(&mut [0; 1]))
                .await
                .expect("an alert in time")
                .expect_err("the server accepts the certificate"),
        };
        match fault.get_ref().and_then(|f| f.downcast_ref()) {
            Some(rustls::Error::AlertReceived(alert)) => *alert,
            _ => panic!("no alert: {fault:?}"),
        }
    }

    /// The status of a GET.
    pub(crate) async fn get(&self, path: &str) -> u16 {
        let mut connection = self.connect().await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        connection.send(head.as_bytes()).await;
        connection.status().await
    }
}

#[derive(Debug)]
pub(crate) struct Connection(pub(crate) TlsStream<TcpStream>);

impl Connection {
    /// Sends bytes; a server that has gone is not minded.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _gone = self.0.write_all(bytes).await;
        let _gone = self.0.flush().await;
    }

    /// The status of the next answer.
    pub(crate) async fn status(&mut self) -> u16 {
        let mut seen = Vec::new();
        while seen.len() < 12 {
            let read = timeout(PATIENCE, self.0.read_buf(&mut seen));
            let count = read.await.expect("an answer in time").unwrap();
            assert_ne!(count, 0, "closed without an answer");
        }
        let line = String::from_utf8_lossy(&seen).into_owned();
        line.get(9..12).unwrap().parse().unwrap()
    }

    /// Everything up to the end that the server makes; panics if it makes none.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut seen = Vec::new();
        // The end may come without TLS's own goodbye.
        let read = timeout(PATIENCE, self.0.read_to_end(&mut seen));
        let _how = read.await.expect("the connection is closed in time");
        seen
    }
}

#[derive(Debug)]
struct Fixed(UnixTime);

impl TimeProvider for Fixed {
    fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
        let seconds = u64::try_from(self.0.0).unwrap();
        Some(rustls::pki_types::UnixTime::since_unix_epoch(
            Duration::from_secs(seconds),
        ))
    }
}
