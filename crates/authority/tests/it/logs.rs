//! What is logged of requests: why one was turned away, and from where it came. What anybody can cause names its source, so
//! that it is counted against what one source may cause.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use countersign_authority::{Act, RequestState, TokenOrder};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Metadata, Subscriber};

use crate::site::{Site, agent, new_key};
use crate::tokens::{N1, TOKEN_RULE, bringing, token_site};
use crate::world::act;

/// The lines that were logged by this thread. A test that has one runs on one thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn gather() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let guard = set_default(lines.clone());
        (lines, guard)
    }

    /// The last line with this message.
    fn last(&self, message: &str) -> String {
        let lines = self.0.lock().unwrap();
        let found = lines.iter().rev().find(|line| line.contains(message));
        found
            .unwrap_or_else(|| panic!("{message}: {lines:?}"))
            .clone()
    }
}

impl Subscriber for Lines {
    fn enabled(&self, line: &Metadata<'_>) -> bool {
        line.target().starts_with("countersign")
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

fn assert_has(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[tokio::test]
async fn a_rules_denial_of_what_waited_is_logged_with_reason_and_source() {
    let (lines, _guard) = Lines::gather();
    let site = Site::new("- {name: later, approve: {cel: 'false'}}").await;
    let key = new_key();
    let waiting = site.ask(agent(N1, &key)).await;
    assert_eq!(waiting.state, RequestState::Pending);
    site.apply(2, "- {name: nobody, deny: {cel: 'true'}}");
    let denied = site.ask(agent(N1, &key)).await;
    assert_eq!(denied.state, RequestState::Denied);
    let code = format!("code={} ", denied.explanation.code);
    let line = lines.last("judged again");
    assert_has(
        &line,
        &["outcome=\"denied\"", "source=127.0.0.1 ", &code, "nobody"],
    );
}

#[tokio::test]
async fn a_persons_denial_is_logged_with_reason_and_source() {
    let (lines, _guard) = Lines::gather();
    let site = Site::new("- {name: later, approve: {cel: 'false'}}").await;
    site.ask(agent(N1, &new_key())).await;
    let deny = Act {
        reason: "not one of ours".to_owned(),
        ..act(N1)
    };
    site.authority().requests.deny(deny).await.unwrap();
    let parts = [
        "state=\"denied\"",
        "source=127.0.0.1 ",
        "code=person ",
        "reason=\"not one of ours\"",
    ];
    assert_has(&lines.last("decided"), &parts);
    // Its name is not free: another key is decided twice.
    site.ask(agent(N1, &new_key())).await;
    assert_has(&lines.last("decided anew"), &["source=127.0.0.1 "]);
}

#[tokio::test]
async fn a_key_that_asks_again_is_logged_with_its_source() {
    let (lines, _guard) = Lines::gather();
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let key = new_key();
    for _ in 0..2 {
        let issued = site.ask(bringing(N1, &key, &token)).await;
        assert_eq!(issued.state, RequestState::Issued);
    }
    assert_has(
        &lines.last("the same key asks again"),
        &["source=127.0.0.1 "],
    );
}
