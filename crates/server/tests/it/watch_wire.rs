//! Watches over real connections: which are kept, and how they end.

use std::time::Duration;

use bytes::Bytes;
use countersign_authority::Submission;
use countersign_pki::{CheckedCsr, CsrLimits};
use countersign_policy::{Requester, Wishes};
use countersign_server::kubernetes::SPEC;
use countersign_server::{PeerIdentity, Timeouts};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

use crate::wire::{Client, PATIENCE, QUICK, Site};
use crate::world::{KUBE_CLIENT, World, signer_name};

const WATCH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests?watch=true";

async fn site(timeouts: Timeouts) -> Site {
    Site::kubernetes(World::strict().await, timeouts).await
}

/// The administrator of the door.
async fn admin(site: &Site) -> Client<'_> {
    let admin = site.world.kubernetes_admin().await;
    let PeerIdentity::Client(client) = admin.identity(&site.world.authority) else {
        panic!("the administrator is nobody");
    };
    // The key that the world has certificates made for.
    site.client().with(client.certificate.der(), keys::p256_d())
}

/// Has an object appear, with notes of this length.
async fn appears(world: &World, name: &str, length: usize) {
    let csr = CsrBuilder::new("jane").sign(keys::p256_a());
    let notes = serde_json::json!({"metadata": {"annotations": {"note": "x".repeat(length)}}});
    let submission = Submission {
        door: &SPEC,
        key: name.to_owned(),
        csr: CheckedCsr::check(&csr, &CsrLimits::STANDARD).unwrap(),
        signer: signer_name(KUBE_CLIENT),
        requester: Requester::authority(),
        wishes: Wishes {
            usages: vec!["client auth".to_owned()],
            expiration_seconds: None,
        },
        attachment: notes.to_string().into_bytes(),
        bearer: None,
        decision: None,
    };
    world.authority.requests.submit(submission).await.unwrap();
}

#[tokio::test]
async fn a_watch_without_events_is_kept_however_short_the_patience() {
    let site = site(QUICK).await;
    let mut connection = admin(&site).await.connect().await.unwrap();
    let head = format!("GET {WATCH} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    connection.send(head.as_bytes()).await;
    // The head comes at once: nothing else does.
    assert_eq!(connection.status().await, 200);
    let mut rest = vec![0; 4096];
    let longer = 3 * QUICK.stall.max(QUICK.idle);
    while let Ok(read) = timeout(longer, connection.0.read(&mut rest)).await {
        assert_ne!(read.unwrap(), 0, "closed");
    }
    appears(&site.world, "late", 10).await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(r#""name":"late""#) {
        let read = timeout(PATIENCE, connection.0.read_buf(&mut seen));
        assert_ne!(read.await.expect("an event in time").unwrap(), 0, "closed");
    }
}

#[tokio::test]
async fn watches_end_at_once_with_the_server() {
    let site = site(Timeouts::STANDARD).await;
    let mut connection = admin(&site).await.connect().await.unwrap();
    let head = format!("GET {WATCH} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    connection.send(head.as_bytes()).await;
    assert_eq!(connection.status().await, 200);
    let begun = Instant::now();
    drop(site);
    let rest = connection.rest().await;
    assert!(rest.ends_with(b"0\r\n\r\n"), "cut off");
    assert!(begun.elapsed() < Duration::from_secs(5), "waited for");
}

#[tokio::test]
async fn hostile_input_is_cheap_a_watch_that_is_not_read() {
    let site = site(QUICK).await;
    let connection = admin(&site).await.http2().connect().await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1024)
        .handshake(TokioIo::new(connection.0))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get(format!("https://localhost{WATCH}"));
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    for number in 0..4 {
        appears(&site.world, &format!("large-{number}"), 100_000).await;
    }
    // Pings are answered and other streams would be served, but nobody reads this one.
    let ended = timeout(PATIENCE, connection).await;
    ended.expect("the connection is ended").unwrap().ok();
    assert!(
        answer.into_body().collect().await.is_err(),
        "it was cut off"
    );
}
