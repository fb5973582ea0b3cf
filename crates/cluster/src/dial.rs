//! Asks a node for the certificate that it serves now: one TLS handshake, nothing else.
//!
//! Where to dial is what a Node says of itself, and a node may be hostile: so only the kubelet's port, only inside the prefixes
//! of the configuration, never the machine we run on, its link, or the places where clouds keep credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use countersign_policy::{Network, ServedChain};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Where nodes may be dialled.
#[derive(Clone, Debug)]
pub struct DialSettings {
    /// The only port.
    pub port: u16,
    /// Only inside these; empty: anywhere but where it is forbidden. Loopback is dialled only where a prefix lies inside it.
    pub prefixes: Vec<Network>,
}

impl Default for DialSettings {
    fn default() -> Self {
        Self {
            port: 10250,
            prefixes: Vec::new(),
        }
    }
}

impl DialSettings {
    /// Why an address may not be dialled, in words.
    fn forbids(&self, address: SocketAddr) -> Option<String> {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        if port != self.port {
            return Some(format!(
                "port {port} is not the kubelet's port {}",
                self.port
            ));
        }
        let inside = self.prefixes.iter().any(|prefix| prefix.contains(ip));
        if !self.prefixes.is_empty() && !inside {
            return Some(format!("{ip} is outside the prefixes of the configuration"));
        }
        // Whoever lists loopback itself means it; 0.0.0.0/0 does not.
        if ip.is_loopback() {
            let loopback = self.prefixes.iter().filter(|prefix| prefix.contains(ip));
            let mut listed =
                loopback.map(|prefix| prefix.contains(FAR_AWAY_4) || prefix.contains(FAR_AWAY_6));
            let is_meant = listed.any(|reaches_far| !reaches_far);
            return (!is_meant).then(|| format!("{ip} is this machine"));
        }
        let what = match ip {
            IpAddr::V4(ip) => forbidden_4(ip),
            IpAddr::V6(ip) => forbidden_6(ip),
        };
        what.map(|what| format!("{ip} is {what}"))
    }
}

fn forbidden_4(ip: Ipv4Addr) -> Option<&'static str> {
    if ip.is_unspecified() || ip.octets().first() == Some(&0) {
        return Some("no host's address");
    }
    if ip.is_link_local() {
        return Some("link-local, where clouds keep credentials");
    }
    if ip.is_multicast() || ip.is_broadcast() {
        return Some("not one host's address");
    }
    METADATA_4
        .contains(&ip)
        .then_some("where a cloud keeps credentials")
}

fn forbidden_6(ip: Ipv6Addr) -> Option<&'static str> {
    if ip.is_unspecified() {
        return Some("no host's address");
    }
    if ip.is_unicast_link_local() {
        return Some("link-local");
    }
    if ip.is_multicast() {
        return Some("not one host's address");
    }
    METADATA_6
        .contains(&ip)
        .then_some("where a cloud keeps credentials")
}

/// Metadata services outside the link-local range: Alibaba, Azure's wire server, Oracle.
const METADATA_4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
/// Amazon's, Google's.
const METADATA_6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];
/// Documentation addresses: a prefix with one of them is not about loopback.
const FAR_AWAY_4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const FAR_AWAY_6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// Dials an address and tells what it serves.
pub(crate) async fn served(address: SocketAddr, settings: &DialSettings) -> ServedChain {
    if let Some(why) = settings.forbids(address) {
        return ServedChain::Forbidden(why);
    }
    match timeout(PATIENCE, handshake(address)).await {
        Ok(Ok(chain)) => ServedChain::Chain(chain),
        Ok(Err(fault)) => ServedChain::Nothing(fault.to_string()),
        Err(_) => {
            let patience = PATIENCE.as_secs();
            ServedChain::Nothing(format!("no answer within {patience} s"))
        }
    }
}

async fn handshake(address: SocketAddr) -> std::io::Result<Vec<Vec<u8>>> {
    let stream = TcpStream::connect(address).await?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = AnyCertificate {
        provider: Arc::clone(&provider),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name = ServerName::IpAddress(address.ip().into());
    let connected = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    let (_, session) = connected.get_ref();
    let chain = session.peer_certificates().unwrap_or_default();
    Ok(chain
        .iter()
        .map(|certificate| certificate.to_vec())
        .collect())
}

/// Takes any certificate, since rules judge it later, but only from who holds its key.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl AnyCertificate {
    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, self.algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}

/// Connecting and handshake together.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use countersign_pki::{AltName, Certificate, oid};
    use countersign_testkit::chain::{Ca, Leaf};
    use countersign_testkit::keys::{self, Key};
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    #[test]
    fn only_kubelets_inside_the_prefixes_are_dialled() {
        let everywhere: [&str; 0] = [];
        let all = ["0.0.0.0/0", "::/0"];
        let some = ["10.0.0.0/8", "fd20::/16"];
        let cases: &[(&str, &[&str], bool)] = &[
            ("10.20.0.11:10250", &everywhere, true),
            ("10.20.0.11:10250", &some, true),
            ("[fd20::11]:10250", &some, true),
            ("192.168.0.1:10250", &some, false),
            ("10.20.0.11:443", &everywhere, false),
            ("10.20.0.11:0", &some, false),
            ("127.0.0.1:10250", &everywhere, false),
            ("127.0.0.1:10250", &all, false),
            ("127.0.0.1:10250", &["127.0.0.0/8"], true),
            ("[::1]:10250", &all, false),
            ("[::1]:10250", &["::1/128"], true),
            ("[::ffff:127.0.0.1]:10250", &all, false),
            ("[::ffff:169.254.169.254]:10250", &all, false),
            ("169.254.169.254:10250", &all, false),
            ("169.254.169.254:10250", &["169.254.0.0/16"], false),
            ("[fe80::1]:10250", &all, false),
            ("[fd00:ec2::254]:10250", &everywhere, false),
            ("100.100.100.200:10250", &everywhere, false),
            ("168.63.129.16:10250", &all, false),
            ("0.0.0.0:10250", &everywhere, false),
            ("0.1.2.3:10250", &everywhere, false),
            ("[::]:10250", &everywhere, false),
            ("224.0.0.1:10250", &everywhere, false),
            ("255.255.255.255:10250", &everywhere, false),
            ("[ff02::1]:10250", &everywhere, false),
        ];
        for (address, prefixes, is_dialled) in cases {
            let settings = DialSettings {
                port: 10250,
                prefixes: prefixes
                    .iter()
                    .map(|p| Network::parse(p).unwrap())
                    .collect(),
            };
            let forbidden = settings.forbids(address.parse().unwrap());
            assert_eq!(
                forbidden.is_none(),
                *is_dialled,
                "{address} within {prefixes:?}: {forbidden:?}"
            );
        }
    }

    /// A server on loopback that shows a certificate, with its address.
    async fn kubelet(chain: &[&Certificate], key: &Key) -> SocketAddr {
        let chain = chain.iter().map(|it| it.der().to_vec().into()).collect();
        let key = PrivateKeyDer::Pkcs8(key.pkcs8_der().to_vec().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let _whatever_comes_of_it = acceptor.accept(stream).await;
            }
        });
        address
    }

    #[tokio::test]
    async fn a_node_shows_its_chain_and_whatever_else_is_there_shows_nothing() {
        let now = countersign_pki::UnixTime(1_760_000_000);
        // Long over, and of an authority that nobody knows: rules judge that.
        let ca = Ca::root("kubelets", keys::p256_a(), now);
        let leaf = ca.leaf(&Leaf {
            common_name: "system:node:worker-a",
            names: &[AltName::Dns("worker-a".to_owned())],
            usage: oid::EKU_SERVER_AUTH,
            key: keys::p256_b(),
            serial: 2,
            now,
        });
        let on = |port| DialSettings {
            port,
            prefixes: vec![Network::parse("127.0.0.0/8").unwrap()],
        };
        let address = kubelet(&[&leaf, &ca.certificate], keys::p256_b()).await;
        let chain = vec![leaf.der().to_vec(), ca.certificate.der().to_vec()];
        let served_there = served(address, &on(address.port())).await;
        assert_eq!(served_there, ServedChain::Chain(chain));

        let elsewhere = served(address, &on(10250)).await;
        assert!(
            matches!(elsewhere, ServedChain::Forbidden(_)),
            "{elsewhere:?}"
        );

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _hung_up = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            }
        });
        let not_tls = served(address, &on(address.port())).await;
        assert!(matches!(not_tls, ServedChain::Nothing(_)), "{not_tls:?}");

        let free = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let refused = served(free, &on(free.port())).await;
        let ServedChain::Nothing(why) = refused else {
            panic!("{refused:?}")
        };
        assert!(why.contains("refused"), "{why}");
    }
}
