//! HTTP as no decider should speak it: oversized, slow, dead, redirecting, of another type.

use std::time::Duration;

use countersign_testkit::decider::{Call, Decider, Greeting, Step};
use serde_json::json;

use crate::row::Expected::{Answer, Unavailable};
use crate::row::{Row, play};
use crate::world::{self, allow};

#[tokio::test]
async fn oversized_answers_are_cut_off() {
    let too_large = "answered with more than 65536 octets";
    play(vec![
        Row::new("a body of just the limit", Answer(allow()), |call| {
            vec![Step::answer(200, JSON, &padded(call, 65_536))]
        }),
        Row::new("one octet more", Unavailable(too_large), |call| {
            vec![Step::answer(200, JSON, &padded(call, 65_537))]
        }),
        Row::new("announced, never sent", Unavailable(too_large), |_| {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n";
            vec![Step::Send(head.into()), Step::Hang]
        }),
        Row::new("chunks without end", Unavailable(too_large), |_| {
            let chunk = format!("400\r\n{}\r\n", " ".repeat(0x400));
            vec![Step::Send(CHUNKED.into()), Step::Forever(chunk.into())]
        }),
        Row::new("a body until the end, which never comes", Unavailable(too_large), |_| {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
            vec![Step::Send(head.into()), Step::Forever(vec![b' '; 1024])]
        }),
        Row::new("one long header", Unavailable("broke the exchange off"), |_| {
            let head = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(100_000));
            vec![Step::Send(head.into()), Step::Hang]
        }),
        Row::new("headers without end", Unavailable("broke the exchange off"), |_| {
            let line = b"X-Header: x\r\n".to_vec();
            vec![Step::Send(b"HTTP/1.1 200 OK\r\n".to_vec()), Step::Forever(line)]
        }),
        Row::new("a status line without end", Unavailable("broke the exchange off"), |_| {
            vec![Step::Send(b"HTTP/1.1 200 ".to_vec()), Step::Forever(vec![b'O'; 1024])]
        }),
        Row::new("interim answers without end", Unavailable("did not answer within"), |_| {
            let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec();
            vec![Step::Trickle(interim.repeat(100), Duration::from_millis(5))]
        })
        .timeout(1500),
    ])
    .await;
}

#[tokio::test]
async fn answers_of_other_types_do_not_count() {
    let said = "did not say that its answer is application/json";
    let typed = |name, expected, kind: &'static str| {
        Row::new(name, expected, move |call: &Call| {
            vec![Step::answer(200, kind, &padded(call, 0))]
        })
    };
    play(vec![
        typed(
            "with a character set",
            Answer(allow()),
            "application/json; charset=utf-8",
        ),
        typed("in capitals", Answer(allow()), "Application/JSON"),
        typed("text", Unavailable(said), "text/plain"),
        typed("nearly", Unavailable(said), "application/json-seq"),
        typed("empty", Unavailable(said), ""),
        typed(
            "two",
            Unavailable(said),
            "application/json\r\nContent-Type: text/html",
        ),
        Row::new("none", Unavailable(said), |call| {
            let body = padded(call, 0);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            vec![Step::Send([head, body].concat().into())]
        }),
    ])
    .await;
}

#[tokio::test]
async fn slow_and_dead_deciders_are_left_at_the_deadline() {
    let late = || Unavailable("did not answer within 1500 ms");
    play(vec![
        Row::new("answers after a minute", late(), |call| {
            vec![
                Step::Pause(ms(60_000)),
                Step::json(&call.decision("allow", &json!({}))),
            ]
        })
        .timeout(1500),
        Row::new("never answers", late(), |_| vec![Step::Hang]).timeout(1500),
        Row::new("never ends its answer", late(), |_| {
            vec![Step::Send(CHUNKED.into()), Step::Hang]
        })
        .timeout(1500),
        Row::new("one octet at a time", late(), |call| {
            let body = padded(call, 0);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            vec![Step::Trickle([head, body].concat().into(), ms(20))]
        })
        .timeout(1500),
        Row::new("one octet of the body at a time", late(), |call| {
            let body = padded(call, 0);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            vec![Step::Send(head.into()), Step::Trickle(body.into(), ms(20))]
        })
        .timeout(1500),
        Row::allowing("takes the connection and says nothing", late())
            .greeting(|_| Greeting::Silence)
            .timeout(1500)
            .calls(0),
    ])
    .await;
}

#[tokio::test]
async fn an_exchange_that_breaks_off_is_not_repeated() {
    let broken = || Unavailable("broke the exchange off");
    play(vec![
        Row::new("hears and closes", broken(), |_| vec![]),
        Row::new("hears and resets", broken(), |_| vec![Step::Reset]),
        Row::new("half a head", broken(), |_| {
            vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-".to_vec())]
        }),
        Row::new("half a body", broken(), |_| {
            let half =
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{";
            vec![Step::Send(half.into())]
        }),
        Row::new("another protocol", broken(), |_| {
            vec![Step::Send(b"220 smtp.example.com ready\r\n".to_vec())]
        }),
        Row::new("two lengths", broken(), |_| {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x";
            vec![Step::Send(head.into())]
        }),
    ])
    .await;
}

#[tokio::test]
async fn redirections_are_not_followed() {
    let target = Decider::start(&world::guard(), |call| {
        vec![Step::json(&call.decision("allow", &json!({})))]
    })
    .unwrap();
    let location = format!("https://{}/decide", target.address());
    let statuses = [300, 301, 302, 303, 307, 308];
    let rows = statuses.map(|status| {
        let location = location.clone();
        Row::new("redirects", Unavailable("which is not followed"), move |_| {
            let head = format!(
                "HTTP/1.1 {status} Elsewhere\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
            );
            vec![Step::Send(head.into())]
        })
    });
    play(rows.into()).await;
    assert_eq!(target.progress().connections, 0);
}

#[tokio::test]
async fn other_statuses_do_not_count() {
    let statuses = [201, 202, 204, 400, 401, 403, 404, 408, 429, 500, 501, 505];
    let rows = statuses.map(|status| {
        Row::new("status", Unavailable("answered with status"), move |call| {
            vec![Step::answer(status, JSON, &padded(call, 0))]
        })
    });
    play(rows.into()).await;
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// An answer that allows, with blanks behind it up to a length.
fn padded(call: &Call, length: usize) -> String {
    let answer = call.decision("allow", &json!({})).to_string();
    let blanks = length.saturating_sub(answer.len());
    answer + &" ".repeat(blanks)
}

const JSON: &str = "application/json";
const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
