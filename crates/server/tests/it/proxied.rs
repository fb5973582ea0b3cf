//! Listeners behind load balancers that speak the PROXY protocol.

use std::net::Ipv4Addr;

use countersign_policy::Network;
use countersign_server::TrustedProxies;
use futures_util::future::join_all;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::wire::{Connection, PATIENCE, QUICK, Site};
use crate::world::World;

/// A site that believes load balancers on this machine, where one source may hold two connections.
async fn site(proxies: TrustedProxies) -> Site {
    let world = World::strict().await;
    let furnish = |listener: countersign_server::Listener| {
        let listener = listener.with_connections_per_source(2);
        listener.behind_proxies(proxies)
    };
    Site::puppet_with(world, QUICK, furnish).await
}

fn loopback() -> TrustedProxies {
    TrustedProxies::new(&[network("127.0.0.1")])
}

fn network(text: &str) -> Network {
    Network::parse(text).unwrap()
}

/// A header as a load balancer sends it.
fn header(client: Ipv4Addr) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    bytes.extend(client.octets());
    bytes.extend([198, 51, 100, 1, 0x9c, 0x40, 0x1f, 0xcc]);
    bytes
}

fn own_header() -> Vec<u8> {
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec()
}

async fn connect(site: &Site, host: u8) -> Connection {
    let client = site.client().after(header([192, 0, 2, host].into()));
    client.connect().await.unwrap()
}

async fn status(connection: &mut Connection) -> u16 {
    let head = b"GET /puppet-ca/v1/certificate/ca HTTP/1.1\r\nhost: localhost\r\n\r\n";
    connection.send(head).await;
    let status = connection.status().await;
    // The rest of the answer.
    let mut rest = [0; 64 * 1024];
    let _read = timeout(PATIENCE, connection.0.read(&mut rest))
        .await
        .unwrap();
    status
}

/// Until the server closes it, with or without TLS's goodbye; panics if it does not.
async fn closed(mut stream: TcpStream) {
    let mut seen = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut seen));
    let _how = read.await.expect("the connection is closed in time");
    assert!(seen.is_empty(), "nothing is said without a header");
}

#[tokio::test]
async fn a_connection_counts_for_the_client_in_its_header() {
    let site = site(loopback()).await;
    let mut first = connect(&site, 1).await;
    assert_eq!(status(&mut first).await, 200);
    let mut others = Vec::new();
    for host in [2, 2, 3, 3, 4, 4] {
        let mut other = connect(&site, host).await;
        assert_eq!(status(&mut other).await, 200, "{host}");
        others.push(other);
    }
    let mut second = connect(&site, 1).await;
    assert_eq!(status(&mut second).await, 200);
    // The third of one client: the idlest of its own goes, and nobody else's.
    let mut third = connect(&site, 1).await;
    assert_eq!(status(&mut third).await, 200);
    first.rest().await;
    for connection in others.iter_mut().chain([&mut second, &mut third]) {
        assert_eq!(status(connection).await, 200);
    }
}

#[tokio::test]
async fn a_connection_of_the_proxys_own_is_served_too() {
    let site = site(loopback()).await;
    let mut own = site.client().after(own_header()).connect().await.unwrap();
    assert_eq!(status(&mut own).await, 200);
}

#[tokio::test]
async fn a_trusted_proxy_without_a_header_is_closed() {
    let site = site(loopback()).await;
    site.client().connect().await.unwrap_err();
    let text = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 8140\r\n".to_vec();
    site.client().after(text).connect().await.unwrap_err();
    // Two of them: TLS follows the first, and the second is no TLS.
    let twice = [header([192, 0, 2, 7].into()), own_header()].concat();
    site.client().after(twice).connect().await.unwrap_err();
    // Nothing at all.
    let begun = Instant::now();
    closed(TcpStream::connect(site.address).await.unwrap()).await;
    assert!(begun.elapsed() >= QUICK.handshake, "not before its time");
}

#[tokio::test]
async fn whoever_is_not_trusted_cannot_say_whose_connection_it_is() {
    let proxies = TrustedProxies::new(&[network("127.0.0.2")]);
    let site = site(proxies.clone()).await;
    let client = || site.client().after(header([192, 0, 2, 7].into()));
    client().connect().await.unwrap_err();
    site.client().connect().await.unwrap();
    // Trusted while it runs, and no longer.
    proxies.set(&[network("127.0.0.0/8")]);
    client().connect().await.unwrap();
    site.client().connect().await.unwrap_err();
    proxies.set(&[]);
    client().connect().await.unwrap_err();
    site.client().connect().await.unwrap();
}

/// A proxy that opens connections and says nothing closes nobody's, and keeps nobody out.
#[tokio::test]
async fn hostile_input_is_cheap_where_proxies_say_nothing() {
    let site = site(loopback()).await;
    let mut held = connect(&site, 1).await;
    assert_eq!(status(&mut held).await, 200);
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(site.address).await.unwrap());
    }
    let begun = Instant::now();
    for host in 2..10 {
        let mut other = connect(&site, host).await;
        assert_eq!(status(&mut other).await, 200, "{host}");
    }
    assert_eq!(status(&mut held).await, 200);
    // Those that were there first have gone already.
    let last = silent.split_off(100);
    join_all(silent.into_iter().map(closed)).await;
    assert!(begun.elapsed() < QUICK.handshake, "{:?}", begun.elapsed());
    join_all(last.into_iter().map(closed)).await;
}
