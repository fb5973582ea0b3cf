//! Deciders that come and go: asked again once, within the same deadline.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use countersign_policy::WebhookAnswer;
use countersign_testkit::decider::{Call, Decider, Greeting, Step};
use serde_json::json;
use socket2::{Domain, Socket, Type};
use tokio::time::Instant;

use crate::row::Expected::{Answer, Unavailable};
use crate::row::{Row, play};
use crate::world::{self, allow};

#[tokio::test]
async fn a_decider_that_could_not_look_is_asked_once_more() {
    let flapping = |status: u16| {
        move |call: &Call| match call.number {
            1 => vec![Step::status(status)],
            _ => vec![Step::json(&call.decision("allow", &json!({})))],
        }
    };
    play(vec![
        Row::new("502, then fine", Answer(allow()), flapping(502)).calls(2),
        Row::new("503, then fine", Answer(allow()), flapping(503)).calls(2),
        Row::new("504, then fine", Answer(allow()), flapping(504)).calls(2),
        Row::new(
            "503 again and again",
            Unavailable("status 503; asked again, it answered with status 503"),
            |_| vec![Step::status(503)],
        )
        .calls(2),
        Row::new(
            "503, then silence",
            Unavailable("status 503; asked again, it did not answer within 3000 ms"),
            |call| match call.number {
                1 => vec![Step::status(503)],
                _ => vec![Step::Hang],
            },
        )
        .timeout(3000)
        .calls(2),
        Row::new("500, then fine", Unavailable("status 500"), flapping(500)),
        Row::allowing("resets the first connection", Answer(allow())).greeting(
            |number| match number {
                1 => Greeting::Reset,
                _ => Greeting::Welcome,
            },
        ),
        Row::allowing("resets every connection", Unavailable("; asked again, it "))
            .greeting(|_| Greeting::Reset)
            .calls(0),
        Row::new(
            "503 when it is too late to ask again",
            Unavailable(""),
            |_| vec![Step::Pause(Duration::from_millis(1350)), Step::status(503)],
        )
        .timeout(1500),
    ])
    .await;
}

#[tokio::test]
async fn the_second_attempt_is_the_same_question() {
    let decider = Decider::start(&world::guard(), |call| match call.number {
        1 => vec![Step::status(503)],
        _ => vec![Step::json(&call.decision("allow", &json!({})))],
    })
    .unwrap();
    assert_eq!(world::ask(&world::webhook(&decider)).await, allow());
    let calls = decider.calls();
    let [first, second] = calls.as_slice() else {
        panic!("{calls:?}");
    };
    assert_eq!(first.header("x-request-id"), second.header("x-request-id"));
    let (mut before, mut after) = (first.json(), second.json());
    assert_eq!(
        (&before["attempt"], &after["attempt"]),
        (&json!(1), &json!(2))
    );
    before["attempt"].take();
    after["attempt"].take();
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_decider_that_is_being_restarted_is_reached() {
    let (socket, address) = bound();
    let webhook = world::webhook_at(address);
    let starting = async {
        // Part of the play: it listens only after the first attempt was refused.
        tokio::time::sleep(Duration::from_millis(100)).await;
        socket.listen(16).unwrap();
        let allowing = |call: &Call| vec![Step::json(&call.decision("allow", &json!({})))];
        let listener = TcpListener::from(socket);
        Decider::on(
            listener,
            &world::guard(),
            |_| Greeting::Welcome,
            Box::new(allowing),
        )
        .unwrap()
    };
    let (answer, decider) = tokio::join!(world::ask(&webhook), starting);
    assert_eq!(answer, allow());
    let attempts: Vec<_> = decider
        .calls()
        .iter()
        .map(|c| c.json()["attempt"].clone())
        .collect();
    assert_eq!(attempts, [json!(2)]);
}

#[tokio::test]
async fn a_closed_port_is_tried_twice() {
    // Bound and not listening: nobody else can have the port, and connections are refused.
    let (_socket, address) = bound();
    let answer = world::ask(&world::webhook_at(address)).await;
    let WebhookAnswer::Unavailable { reason } = answer else {
        panic!("{answer:?}");
    };
    let expected = format!(
        "https://{address}/decide cannot be reached: Connection refused (os error 111); asked again, it cannot be reached: Connection refused (os error 111)"
    );
    assert_eq!(reason, expected);
}

#[tokio::test]
async fn connecting_has_a_deadline_of_its_own() {
    // A queue of connections that nobody accepts; when it is full, Linux lets further ones wait.
    let (socket, address) = bound();
    socket.listen(0).unwrap();
    let mut filling = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        filling.push(stream);
    }
    let start = Instant::now();
    let answer = world::ask(&world::webhook_at(address)).await;
    let took = start.elapsed();
    let WebhookAnswer::Unavailable { reason } = answer else {
        panic!("{answer:?}");
    };
    assert!(
        reason.contains("was not reached within 2000 ms; asked again"),
        "{reason}"
    );
    let expected = Duration::from_secs(4)..Duration::from_secs(12);
    assert!(expected.contains(&took), "{took:?}");
}

fn bound() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
        .unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}
