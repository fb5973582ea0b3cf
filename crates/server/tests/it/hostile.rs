//! Invariant 8, hostile input is cheap: who sends little, or too much, does not hold a connection for long.

use std::time::Duration;

use bytes::Bytes;
use countersign_server::Timeouts;
use countersign_testkit::keys;
use http_body_util::{Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::client_certificates::certificate_of;
use crate::wire::{PATIENCE, QUICK, Site};
use crate::world::World;

const PUT: &str = "PUT /puppet-ca/v1/certificate_request/web01 HTTP/1.1\r\nhost: localhost\r\n";

async fn site() -> Site {
    Site::puppet(World::strict().await, QUICK).await
}

/// The listener is as it was.
async fn still_serves(site: &Site) {
    assert_eq!(site.client().get("/status/v1/simple").await, 200);
}

#[tokio::test]
async fn hostile_input_is_cheap_silence_before_the_handshake() {
    let site = site().await;
    let mut tcp = TcpStream::connect(site.address).await.unwrap();
    let read = timeout(PATIENCE, tcp.read(&mut [0; 1])).await;
    assert!(matches!(read.expect("closed in time"), Ok(0) | Err(_)));
    still_serves(&site).await;
}

#[tokio::test]
async fn hostile_input_is_cheap_silence_after_the_handshake() {
    let site = site().await;
    for client in [site.client(), site.client().http2()] {
        let mut connection = client.connect().await.unwrap();
        connection.rest().await;
    }
    still_serves(&site).await;
}

#[tokio::test]
async fn hostile_input_is_cheap_half_a_head() {
    let site = site().await;
    let mut connection = site.connect().await;
    connection.send(b"GET /status/v1/sim").await;
    assert_eq!(connection.rest().await, b"");

    // And after a whole one, on a connection that is kept alive.
    let mut connection = site.connect().await;
    let whole = b"GET /status/v1/simple HTTP/1.1\r\nhost: localhost\r\n\r\n";
    connection.send(whole).await;
    assert_eq!(connection.status().await, 200);
    connection.send(b"GET /status/v1/sim").await;
    connection.rest().await;
    still_serves(&site).await;
}

#[tokio::test]
async fn hostile_input_is_cheap_half_a_body() {
    let site = site().await;
    let mut connection = site.connect().await;
    let head = format!("{PUT}content-length: 1000\r\n\r\n-----BEGIN");
    connection.send(head.as_bytes()).await;
    assert_eq!(connection.status().await, 408);
    connection.rest().await;
    still_serves(&site).await;
}

#[tokio::test]
async fn hostile_input_is_cheap_a_body_that_drips() {
    let site = site().await;
    let mut connection = site.connect().await;
    let head = format!("{PUT}content-length: 1000\r\n\r\n");
    connection.send(head.as_bytes()).await;
    let begun = Instant::now();
    let (mut reader, mut writer) = tokio::io::split(connection.0);
    let drip = async {
        use tokio::io::AsyncWriteExt as _;
        while writer.write_all(b"x").await.is_ok() && writer.flush().await.is_ok() {
            tokio::time::sleep(QUICK.body / 10).await;
        }
    };
    let mut seen = [0; 12];
    tokio::select! {
        read = timeout(PATIENCE, reader.read_exact(&mut seen)) => {
            read.expect("an answer in time").unwrap();
        }
        () = drip => panic!("closed without an answer"),
    }
    assert_eq!(&seen, b"HTTP/1.1 408");
    assert!(begun.elapsed() < QUICK.body * 10, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn hostile_input_is_cheap_an_endless_head() {
    let site = site().await;
    let mut connection = site.connect().await;
    connection.send(b"GET /status/v1/simple HTTP/1.1\r\n").await;
    let (mut reader, mut writer) = tokio::io::split(connection.0);
    let endless = async {
        use tokio::io::AsyncWriteExt as _;
        let mut sent = 0usize;
        let line = format!("x: {}\r\n", "y".repeat(1000));
        while writer.write_all(line.as_bytes()).await.is_ok() {
            sent += line.len();
            assert!(sent < 64 * 1024 * 1024, "the server takes everything");
        }
    };
    let answered = async {
        let mut seen = [0; 12];
        match timeout(PATIENCE, reader.read_exact(&mut seen)).await {
            Ok(Ok(_)) => assert_eq!(&seen, b"HTTP/1.1 431"),
            // What we sent meanwhile may have overrun the answer.
            Ok(Err(_)) => {}
            Err(_) => panic!("still open"),
        }
    };
    tokio::join!(endless, answered);
    still_serves(&site).await;
}

#[tokio::test]
async fn hostile_input_is_cheap_streams_beyond_the_limit() {
    let timeouts = Timeouts {
        body: PATIENCE,
        ..QUICK
    };
    let site = Site::puppet(World::strict().await, timeouts).await;
    let mut connection = site.client().http2().connect().await.unwrap();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    sent.extend(frame(SETTINGS, ACK, 0, &[]));
    // Requests whose bodies never come.
    let head = http2_put();
    let streams: Vec<u32> = (0..40).map(|count| 2 * count + 1).collect();
    for stream in &streams {
        sent.extend(frame(HEADERS, END_HEADERS, *stream, &head));
    }
    connection.send(&sent).await;
    let mut refused = Vec::new();
    while refused.len() < 24 {
        let read = timeout(PATIENCE, read_frame(&mut connection.0));
        let (kind, stream, payload) = read.await.expect("a frame in time");
        if kind == RST_STREAM {
            assert_eq!(payload, REFUSED_STREAM.to_be_bytes());
            refused.push(stream);
        }
        assert_ne!(kind, GOAWAY, "before the last stream was refused");
    }
    assert_eq!(refused, streams[16..]);
    still_serves(&site).await;
}

#[tokio::test]
async fn hostile_input_is_cheap_pings_do_not_keep_an_idle_connection() {
    let site = site().await;
    let mut connection = site.client().http2().connect().await.unwrap();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    sent.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &http2_put()));
    connection.send(&sent).await;
    let begun = Instant::now();
    let mut is_answered = false;
    loop {
        let read = timeout(QUICK.idle / 5, read_frame(&mut connection.0)).await;
        match read {
            Ok((HEADERS, 1, _)) => is_answered = true,
            Ok((GOAWAY, ..)) => break,
            Ok((PING, _, payload)) if payload.len() == 8 => {
                connection.send(&frame(PING, ACK, 0, &payload)).await;
            }
            Ok(_) => {}
            Err(_) => connection.send(&frame(PING, 0, 0, b"are you?")).await,
        }
        assert!(begun.elapsed() < PATIENCE, "still open");
    }
    assert!(is_answered);
    connection.rest().await;
}

#[tokio::test]
async fn hostile_input_is_cheap_no_connection_lives_for_ever() {
    let timeouts = Timeouts {
        age: Duration::from_secs(1),
        ..QUICK
    };
    let site = Site::puppet(World::strict().await, timeouts).await;
    let stream = site.client().http2().connect().await.unwrap().0;
    let (mut requests, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let begun = Instant::now();
    // Busy all the time.
    let uri = "https://localhost/status/v1/simple";
    let ask = || http::Request::get(uri).body(Empty::new()).unwrap();
    while requests.ready().await.is_ok() && requests.send_request(ask()).await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "still open");
    }
    assert!(begun.elapsed() >= timeouts.age);
    let ended = timeout(PATIENCE, connection).await;
    ended.expect("closed").unwrap().ok();
}

#[tokio::test]
async fn hostile_input_is_cheap_more_connections_than_places() {
    let site = Site::puppet(World::strict().await, Timeouts::STANDARD).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(site.connect().await);
    }
    // The idlest goes: nothing was ever asked on it.
    for (place, connection) in held.iter_mut().enumerate().skip(1) {
        let get = b"GET /status/v1/simple HTTP/1.1\r\nhost: localhost\r\n\r\n";
        connection.send(get).await;
        assert_eq!(connection.status().await, 200, "{place}");
    }
    still_serves(&site).await;
    held.remove(0).rest().await;
}

/// Whoever has shown a certificate keeps its place, whatever strangers do.
#[tokio::test]
async fn hostile_input_is_cheap_strangers_do_not_displace_known_clients() {
    let world = World::strict().await;
    let certificate = certificate_of(&world, &world.puppet_agent("web01.example.com").await);
    let site = Site::puppet(world, Timeouts::STANDARD).await;
    let agent = site.client().with(&certificate, keys::p256_d());
    let mut known = agent.connect().await.unwrap();
    let mut held = Vec::new();
    for _ in 0..200 {
        held.push(site.connect().await);
    }
    let get = b"GET /status/v1/simple HTTP/1.1\r\nhost: localhost\r\n\r\n";
    known.send(get).await;
    assert_eq!(known.status().await, 200);
}

/// A refusal reaches a client that is still sending when it is made: the rest is read, to a bound, before the connection
/// ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    let site = site().await;
    for (case, target, status) in [
        (
            "longer than allowed",
            "PUT /puppet-ca/v1/certificate_request/web01",
            413,
        ),
        (
            "not allowed",
            "PUT /puppet-ca/v1/certificate_status/web01",
            403,
        ),
        ("no body expected", "GET /puppet-ca/v1/certificate/ca", 200),
    ] {
        let mut connection = site.connect().await;
        let head =
            format!("{target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 400000\r\n\r\n");
        connection.send(head.as_bytes()).await;
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let sent = connection.0.write_all(&[b'x'; 50_000]).await;
            sent.unwrap_or_else(|error| panic!("{case}: {error}"));
        }
        assert_eq!(connection.status().await, status, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_a_kubernetes_client_that_is_still_sending() {
    let site = Site::kubernetes(World::strict().await, QUICK).await;
    let mut connection = site.connect().await;
    let target = "POST /apis/certificates.k8s.io/v1/certificatesigningrequests";
    let head = format!("{target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 400000\r\n\r\n");
    connection.send(head.as_bytes()).await;
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        connection.0.write_all(&[b'x'; 50_000]).await.unwrap();
    }
    assert_eq!(connection.status().await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_an_http2_client_that_is_still_sending() {
    let site = site().await;
    for (path, status) in [
        ("/puppet-ca/v1/certificate_request/web01", 413),
        ("/puppet-ca/v1/certificate_status/web01", 403),
    ] {
        let stream = site.client().http2().connect().await.unwrap().0;
        let (mut requests, connection) =
            hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .handshake(TokioIo::new(stream))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let request = http::Request::put(format!("https://localhost{path}"))
            .body(Full::new(Bytes::from(vec![b'x'; 400_000])))
            .unwrap();
        let answer = timeout(PATIENCE, requests.send_request(request)).await;
        let answer = answer
            .expect("in time")
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(answer.status(), status, "{path}");
        connection.abort();
    }
}

/// A client that asks before it sends is told at once, and sends nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_first_is_refused_before_it_sends() {
    let site = site().await;
    let mut connection = site.connect().await;
    connection
        .send(
            b"PUT /puppet-ca/v1/certificate_request/web01 HTTP/1.1\r\nhost: localhost\r\n\
              expect: 100-continue\r\ncontent-length: 400000\r\n\r\n",
        )
        .await;
    assert_eq!(connection.status().await, 413);
}

/// A frame of RFC 9113 4.1.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

async fn read_frame(stream: &mut (impl AsyncReadExt + Unpin)) -> (u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).await.unwrap();
    let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    (head[3], id, payload)
}

/// The head of a PUT, in literals that change no table (RFC 7541 6.2.2).
fn http2_put() -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in [
        (":method", "PUT"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/puppet-ca/v1/certificate_request/web01"),
    ] {
        head.push(0);
        for text in [name, value] {
            head.push(u8::try_from(text.len()).unwrap());
            head.extend(text.as_bytes());
        }
    }
    head
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const REFUSED_STREAM: u32 = 7;
