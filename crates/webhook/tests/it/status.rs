//! Status mode: the request as PEM, an answer by status alone, and never a second attempt.

use std::time::Duration;

use countersign_policy::WebhookMode;
use countersign_testkit::decider::{Decider, Greeting, Step};

use crate::row::Expected::{Answer, Unavailable};
use crate::row::{Row, play};
use crate::world::{self, CSR, allow, deny};

#[tokio::test]
async fn only_200_and_404_are_answers_and_nothing_is_asked_twice() {
    let answering = |name, expected, status| {
        Row::new(name, expected, move |_| vec![Step::status(status)]).in_status_mode()
    };
    let mut rows = vec![
        answering("200", Answer(allow()), 200),
        answering("404", Answer(deny()), 404),
        Row::new("200 and a body that never ends", Answer(allow()), |_| {
            let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n".to_vec();
            vec![Step::Send(head), Step::Forever(vec![b'x'; 1024])]
        })
        .in_status_mode(),
        Row::new(
            "silence",
            Unavailable("did not answer within 1500 ms"),
            |_| vec![Step::Hang],
        )
        .in_status_mode()
        .timeout(1500),
        Row::new(
            "200 too late",
            Unavailable("did not answer within 1500 ms"),
            |_| vec![Step::Pause(Duration::from_secs(60)), Step::status(200)],
        )
        .in_status_mode()
        .timeout(1500),
        Row::new("closes", Unavailable("broke the exchange off"), |_| vec![]).in_status_mode(),
        Row::allowing("resets the first connection", Unavailable(""))
            .in_status_mode()
            .greeting(|number| match number {
                1 => Greeting::Reset,
                _ => Greeting::Welcome,
            })
            .calls(0),
    ];
    for status in [201, 204, 400, 401, 403, 410, 500, 502, 503, 504] {
        rows.push(answering(
            "another status",
            Unavailable("answered with status"),
            status,
        ));
    }
    for status in [301, 302, 307, 308] {
        rows.push(answering(
            "a redirection",
            Unavailable("which is not followed"),
            status,
        ));
    }
    play(rows).await;
}

#[tokio::test]
async fn the_request_is_sent_as_the_smart_proxy_expects_it() {
    let decider = Decider::start(&world::guard(), |_| vec![Step::status(200)]).unwrap();
    let mut webhook = world::webhook(&decider);
    webhook.mode = WebhookMode::Status;
    assert_eq!(world::ask(&webhook).await, allow());
    let calls = decider.calls();
    let call = calls.first().unwrap();
    assert_eq!((&*call.method, &*call.path), ("POST", "/decide?key=s3cret"));
    assert_eq!(call.body, CSR.to_pem().into_bytes());
    assert_eq!(call.header("content-type"), Some("text/plain"));
    assert_eq!(call.header("accept"), Some("application/json,version=2"));
}
