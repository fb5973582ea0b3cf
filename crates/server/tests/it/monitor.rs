//! The listener for those who watch: when it says ready, and what it says else.

use axum::body::{Body, to_bytes};
use countersign_authority::Clock as _;
use countersign_authority::SystemClock;
use countersign_authority::store::StoreFault;
use countersign_server::Monitor;
use countersign_server::metrics::{Registry, StateMetrics};
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::world::World;

fn monitor() -> Monitor {
    let mut registry = Registry::default();
    let state = StateMetrics::new(&mut registry, "1.2.3", SystemClock.now());
    Monitor::new(registry, state)
}

async fn get(monitor: &Monitor, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = monitor.router().oneshot(request).await.unwrap();
    let status = answer.status();
    let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_means_started_not_stopping_and_a_store_that_answers() {
    let world = World::strict().await;
    let monitor = monitor();
    let is = |status, word: &str| (status, format!("{word}\n"));
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    assert_eq!(get(&monitor, "/livez").await, is(StatusCode::OK, "ok"));
    assert_eq!(get(&monitor, "/readyz").await, is(unavailable, "starting"));
    // Also then there is something to see.
    let (status, text) = get(&monitor, "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        text.contains("countersign_build_info{version=\"1.2.3\"} 1\n"),
        "{text}"
    );

    monitor.started(&world.authority);
    assert_eq!(get(&monitor, "/readyz").await, is(StatusCode::OK, "ok"));
    for fault in [|| StoreFault::Full, || StoreFault::Stopped] {
        world.store.set(Some(fault));
        assert_eq!(get(&monitor, "/readyz").await, is(unavailable, "store"));
        assert_eq!(get(&monitor, "/livez").await, is(StatusCode::OK, "ok"));
        // What the store cannot say is left out; the rest is shown.
        let (status, text) = get(&monitor, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(
            text.contains("countersign_crl_number{issuer=\"puppet\"} 0\n"),
            "{text}"
        );
        assert!(
            !text.contains("countersign_certificates_expiring{"),
            "{text}"
        );
    }
    world.store.set(None);
    assert_eq!(get(&monitor, "/readyz").await, is(StatusCode::OK, "ok"));
    let (_, text) = get(&monitor, "/metrics").await;
    let expiring = "countersign_certificates_expiring{issuer=\"puppet\"} 0\n";
    assert!(text.contains(expiring), "{text}");
    monitor.stopping();
    assert_eq!(get(&monitor, "/readyz").await, is(unavailable, "stopping"));
    assert_eq!(get(&monitor, "/elsewhere").await.0, StatusCode::NOT_FOUND);
}

/// Whoever opens connections and says nothing does not keep out those who watch for long, and none outlives the server.
#[tokio::test(flavor = "multi_thread")]
async fn connections_are_bounded_and_end_with_the_listener() {
    let monitor = monitor();
    let listener = monitor.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(listener.serve(stop.clone()));
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut one_more = TcpStream::connect(address).await.unwrap();
    // The idlest of the silent ones goes for it.
    let ended = silent[0].read(&mut [0; 1]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    one_more
        .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut head = [0; 15];
    one_more.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    stop.cancel();
    serving.await.unwrap();
    for mut connection in silent {
        let mut rest = Vec::new();
        let _reset_or_closed = connection.read_to_end(&mut rest).await;
    }
}

/// Whoever keeps connections open does not keep the probes of others out.
#[tokio::test(flavor = "multi_thread")]
async fn one_source_does_not_take_every_seat() {
    let listener = monitor().bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.address().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(listener.serve(stop.clone()));
    let probe = async |source: [u8; 4]| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let mut answer = [0; 12];
        // One that is not served is closed, sooner or later than the request is written.
        let answered = match stream.write_all(request).await {
            Ok(()) => stream.read_exact(&mut answer).await.is_ok(),
            Err(_) => false,
        };
        (stream, answered && answer == *b"HTTP/1.1 200")
    };
    let mut held = Vec::new();
    for _ in 0..16 {
        let (stream, is_served) = probe([127, 0, 0, 1]).await;
        assert!(is_served);
        held.push(stream);
    }
    let (other, is_served) = probe([127, 0, 0, 2]).await;
    assert!(is_served, "another is served");
    assert!(probe([127, 0, 0, 1]).await.1, "one of its own goes for it");
    let _closed_or_reset = held[0].read_to_end(&mut Vec::new()).await;
    drop(other);
    stop.cancel();
}
