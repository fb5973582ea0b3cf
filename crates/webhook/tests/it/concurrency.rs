//! A slow decider holds up no more than its share.

use std::sync::Arc;
use std::time::Duration;

use countersign_authority::{Deciders as _, Question};
use countersign_policy::{Requester, Webhook, WebhookAnswer};
use countersign_testkit::decider::{Decider, Progress, Step};
use countersign_webhook::{Settings, Webhooks};
use serde_json::json;
use tokio::time::Instant;

use crate::world::{self, allow};

/// Questions in excess are answered at once; a question that nobody waits for any more closes its connection and
/// frees its place.
#[tokio::test(flavor = "multi_thread")]
async fn questions_beyond_the_limit_are_not_asked() {
    let decider = Decider::start(&world::guard(), |call| match call.number {
        1 | 2 => vec![Step::Hang],
        _ => vec![Step::json(&call.decision("allow", &json!({})))],
    })
    .unwrap();
    let webhook = Arc::new(world::webhook(&decider));
    let settings = Settings {
        concurrency: 2,
        ..Settings::default()
    };
    let webhooks = Webhooks::load([&*webhook].into_iter(), &settings).unwrap();
    let webhooks = Arc::new(webhooks);
    let ask = || {
        let (webhooks, webhook) = (Arc::clone(&webhooks), Arc::clone(&webhook));
        async move { webhooks.ask(&webhook, world::question()).await }
    };
    let open = [tokio::spawn(ask()), tokio::spawn(ask())];
    assert!(reached(&decider, |progress| progress.calls == 2));

    let start = Instant::now();
    let WebhookAnswer::Unavailable { reason } = ask().await else {
        panic!("a third question was asked");
    };
    assert!(reason.contains("2 other requests"), "{reason}");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(decider.progress().connections, 2);

    for question in &open {
        question.abort();
    }
    assert!(reached(&decider, |progress| progress.ended == 2));
    for question in open {
        assert!(question.await.unwrap_err().is_cancelled());
    }
    assert_eq!(ask().await, allow());
}

/// Whoever asks much leaves places to others.
#[tokio::test(flavor = "multi_thread")]
async fn places_are_shared_fairly_among_sources() {
    let decider = Decider::start(&world::guard(), |call| match call.number {
        1..=3 => vec![Step::Hang],
        _ => vec![Step::json(&call.decision("allow", &json!({})))],
    })
    .unwrap();
    let webhook = Arc::new(world::webhook(&decider));
    let settings = Settings {
        concurrency: 4,
        ..Settings::default()
    };
    let webhooks = Arc::new(Webhooks::load([&*webhook].into_iter(), &settings).unwrap());
    let ask = |source: [u8; 4]| {
        let (webhooks, webhook) = (Arc::clone(&webhooks), Arc::clone(&webhook));
        let requester = Requester {
            source: Some(source.into()),
            ..world::question().requester.clone()
        };
        async move {
            let question = Question {
                requester: &requester,
                ..world::question()
            };
            webhooks.ask(&webhook, question).await
        }
    };
    let loud = [192, 0, 2, 7];
    let open = [(); 3].map(|()| tokio::spawn(ask(loud)));
    assert!(reached(&decider, |progress| progress.calls == 3));
    let WebhookAnswer::Unavailable { .. } = ask(loud).await else {
        panic!("one source got all places");
    };
    assert_eq!(ask([192, 0, 2, 8]).await, allow());
    for question in open {
        question.abort();
    }
}

/// Webhooks do not share places.
#[tokio::test(flavor = "multi_thread")]
async fn one_decider_does_not_hold_up_another() {
    let dead = Decider::start(&world::guard(), |_| vec![Step::Hang]).unwrap();
    let well = Decider::start(&world::guard(), |call| {
        vec![Step::json(&call.decision("allow", &json!({})))]
    })
    .unwrap();
    let hooks: [Webhook; 2] = [world::webhook(&dead), world::webhook(&well)];
    let settings = Settings {
        concurrency: 1,
        ..Settings::default()
    };
    let webhooks = Arc::new(Webhooks::load(hooks.iter(), &settings).unwrap());
    let [first, second] = hooks;
    let waiting = tokio::spawn({
        let webhooks = Arc::clone(&webhooks);
        async move { webhooks.ask(&first, world::question()).await }
    });
    assert!(reached(&dead, |progress| progress.calls == 1));
    assert_eq!(webhooks.ask(&second, world::question()).await, allow());
    waiting.abort();
}

#[tokio::test]
async fn a_webhook_that_was_not_loaded_is_not_asked() {
    let decider = Decider::start(&world::guard(), |_| vec![Step::status(200)]).unwrap();
    let webhooks = Webhooks::load([].into_iter(), &Settings::default()).unwrap();
    let answer = webhooks
        .ask(&world::webhook(&decider), world::question())
        .await;
    assert!(matches!(answer, WebhookAnswer::Unavailable { .. }));
    assert_eq!(decider.progress().connections, 0);
}

fn reached(decider: &Decider, progress: impl Fn(Progress) -> bool) -> bool {
    tokio::task::block_in_place(|| decider.wait_until(progress, Duration::from_secs(30)))
}
