//! One row of a table: a decider's part, the answer that must come of it, how soon, and after how many calls.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use countersign_policy::{Webhook, WebhookAnswer, WebhookMode};
use countersign_testkit::decider::{Call, Decider, Greeting, Guard, Part, Step};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world;

/// What a row expects.
pub(crate) enum Expected {
    Answer(WebhookAnswer),
    /// No answer that counts, for a reason with these words in it.
    Unavailable(&'static str),
}

pub(crate) struct Row {
    name: &'static str,
    pub(crate) guard: Guard,
    pub(crate) greeting: Box<dyn Fn(usize) -> Greeting + Send + Sync>,
    part: Part,
    pub(crate) change: Box<dyn Fn(&mut Webhook) + Send + Sync>,
    expected: Expected,
    calls: usize,
    within: Duration,
}

impl Row {
    /// A well-protected decider that has ample time, of whom one call is expected.
    pub(crate) fn new(
        name: &'static str,
        expected: Expected,
        part: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            guard: world::guard(),
            greeting: Box::new(|_| Greeting::Welcome),
            part: Box::new(part),
            change: Box::new(|_| ()),
            expected,
            calls: 1,
            within: AMPLE,
        }
    }

    /// A decider that answers 200 with this text as JSON.
    pub(crate) fn saying(name: &'static str, expected: Expected, text: &'static str) -> Self {
        Self::new(name, expected, move |_| {
            vec![Step::answer(200, "application/json", text)]
        })
    }

    /// A decider that repeats what it was asked and has these members beside, which win.
    pub(crate) fn deciding(
        name: &'static str,
        expected: Expected,
        decision: &'static str,
        others: Value,
    ) -> Self {
        Self::new(name, expected, move |call| {
            vec![Step::json(&call.decision(decision, &others))]
        })
    }

    /// A decider that allows if it is heard.
    pub(crate) fn allowing(name: &'static str, expected: Expected) -> Self {
        Self::deciding(name, expected, "allow", json!({}))
    }

    pub(crate) fn calls(self, calls: usize) -> Self {
        Self { calls, ..self }
    }

    pub(crate) fn in_status_mode(self) -> Self {
        self.with(|webhook| webhook.mode = WebhookMode::Status)
    }

    /// With a deadline, which must be kept to.
    pub(crate) fn timeout(self, ms: u64) -> Self {
        let within = Duration::from_millis(ms) + SLACK;
        let row = self.with(move |webhook| webhook.timeout_ms = ms);
        Self { within, ..row }
    }

    pub(crate) fn with(self, change: impl Fn(&mut Webhook) + Send + Sync + 'static) -> Self {
        let before = self.change;
        Self {
            change: Box::new(move |webhook| {
                before(webhook);
                change(webhook);
            }),
            ..self
        }
    }

    pub(crate) fn guarded(self, guard: Guard) -> Self {
        Self { guard, ..self }
    }

    pub(crate) fn greeting(
        self,
        greeting: impl Fn(usize) -> Greeting + Send + Sync + 'static,
    ) -> Self {
        Self {
            greeting: Box::new(greeting),
            ..self
        }
    }

    /// What went otherwise than expected.
    async fn play(self) -> Option<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let decider = Decider::on(listener, &self.guard, self.greeting, self.part).unwrap();
        let mut webhook = world::webhook(&decider);
        (self.change)(&mut webhook);
        let start = Instant::now();
        let answer = world::ask(&webhook).await;
        let took = start.elapsed();
        let is_expected = match (&self.expected, &answer) {
            (Expected::Answer(expected), answer) => answer == expected,
            (Expected::Unavailable(words), WebhookAnswer::Unavailable { reason }) => {
                // A query string may hold a secret.
                reason.contains(words) && reason.starts_with("https://") && !reason.contains('?')
            }
            (Expected::Unavailable(_), _) => false,
        };
        let calls = decider.progress().calls;
        let is_fine = is_expected && calls == self.calls && took < self.within;
        (!is_fine).then(|| format!("{}: {answer:?} after {calls} calls and {took:?}", self.name))
    }
}

/// Plays all rows, side by side.
pub(crate) async fn play(rows: Vec<Row>) {
    let wrong = join_all(rows.into_iter().map(Row::play)).await;
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// For rows that need no time at all; a busy machine must not fail them.
const AMPLE: Duration = Duration::from_secs(15);
/// What a busy machine may add to a deadline.
const SLACK: Duration = Duration::from_secs(3);
