//! What happens on a connection, and when it has been idle or open for too long.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use crate::connection_limit::Busy;
use crate::listener::Timeouts;

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    opened: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Counts requests.
    count: u64,
    /// The answers of which a part was handed over, more is to come and nothing was asked for since then.
    unread: Vec<(u64, Instant)>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Not one request yet.
    Silent,
    /// So many whose answers are not complete.
    Busy(usize),
    /// None, since then.
    Idle(Instant),
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// Its first request did not come.
    Silent,
    /// Nothing was asked for a while.
    Idle,
    /// Somebody does not read the answer that was asked for. A connection of HTTP/2 looks busy all the same.
    Stalled,
    /// It is old: clients get a new one, and with it whoever holds its streams open is gone.
    Old,
}

impl Activity {
    pub(crate) fn new(opened: Instant) -> Arc<Self> {
        Arc::new(Self {
            opened,
            state: Mutex::new(State {
                phase: Phase::Silent,
                count: 0,
                unread: Vec::new(),
            }),
        })
    }

    /// Notes a request; it is over when the answer's last byte, or the answer, is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        let mut state = self.lock();
        state.phase = match state.phase {
            Phase::Silent | Phase::Idle(_) => Phase::Busy(1),
            Phase::Busy(count) => Phase::Busy(count.saturating_add(1)),
        };
        let number = state.count;
        state.count = number.wrapping_add(1);
        InFlight {
            activity: Arc::clone(self),
            number,
            is_unread: false,
            _busy: None,
        }
    }

    /// When the connection is next to be looked at, and what is wrong with it if nothing happens before.
    pub(crate) fn due(&self, timeouts: &Timeouts) -> (Instant, Option<Overdue>) {
        let state = self.lock();
        let old = self.opened + timeouts.age;
        let (due, overdue) = match state.phase {
            Phase::Silent => (self.opened + timeouts.first_request, Some(Overdue::Silent)),
            Phase::Idle(since) => (since + timeouts.idle, Some(Overdue::Idle)),
            Phase::Busy(_) => match state.unread.iter().map(|(_, since)| *since).min() {
                Some(since) => (since + timeouts.stall, Some(Overdue::Stalled)),
                None => (Instant::now() + timeouts.idle.min(timeouts.stall), None),
            },
        };
        if old <= due {
            (old, Some(Overdue::Old))
        } else {
            (due, overdue)
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget_unread(&mut self, number: u64) {
        self.unread.retain(|(unread, _)| *unread != number);
    }
}

/// A request whose answer is not complete.
#[derive(Debug)]
pub(crate) struct InFlight {
    activity: Arc<Activity>,
    number: u64,
    is_unread: bool,
    /// Its connection is not idle either.
    _busy: Option<Busy>,
}

impl InFlight {
    /// The same request, on a connection that may lose its place while it is idle.
    pub(crate) fn on(mut self, busy: Busy) -> Self {
        self._busy = Some(busy);
        self
    }

    /// Notes that more of the answer is asked for.
    fn asked(&mut self) {
        if std::mem::take(&mut self.is_unread) {
            self.activity.lock().forget_unread(self.number);
        }
    }

    /// Notes that a part of the answer was handed over, and more is to come.
    fn handed_over(&mut self) {
        self.is_unread = true;
        let now = Instant::now();
        self.activity.lock().unread.push((self.number, now));
    }

    /// The body of the answer, which keeps the request in flight.
    pub(crate) fn with(self, body: Body) -> AnswerBody {
        AnswerBody {
            body,
            request: self,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.activity.lock();
        if self.is_unread {
            state.forget_unread(self.number);
        }
        state.phase = match state.phase {
            Phase::Busy(count) if count > 1 => Phase::Busy(count - 1),
            Phase::Busy(_) | Phase::Silent | Phase::Idle(_) => Phase::Idle(now),
        };
    }
}

/// The body of an answer that is under way.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    body: Body,
    request: InFlight,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.request.asked();
        let polled = Pin::new(&mut self.body).poll_frame(context);
        // Whoever serves the connection lets go of a body behind its last part, so most answers are never noted.
        if matches!(&polled, Poll::Ready(Some(Ok(_)))) && !self.body.is_end_stream() {
            self.request.handed_over();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn from_silence_through_work_to_old_age() {
        let timeouts = Timeouts::STANDARD;
        let opened = Instant::now();
        let activity = Activity::new(opened);
        let silent = (opened + timeouts.first_request, Some(Overdue::Silent));
        assert_eq!(activity.due(&timeouts), silent);

        let first = activity.begin();
        let second = activity.begin();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(activity.due(&timeouts).1, None);
        drop(first);
        assert_eq!(activity.due(&timeouts).1, None, "one is still in flight");
        drop(second.with(Body::empty()));
        let idle = (Instant::now() + timeouts.idle, Some(Overdue::Idle));
        assert_eq!(activity.due(&timeouts), idle);

        let mut whole = activity.begin().with(Body::from("text"));
        std::future::poll_fn(|context| Pin::new(&mut whole).poll_frame(context)).await;
        assert_eq!(activity.due(&timeouts).1, None, "nothing of it is left");
        drop(whole);

        let parts = futures_util::stream::iter(["a", "b"]).map(Ok::<_, std::io::Error>);
        let mut unread = activity.begin().with(Body::from_stream(parts));
        std::future::poll_fn(|context| Pin::new(&mut unread).poll_frame(context)).await;
        tokio::time::advance(Duration::from_secs(5)).await;
        let stalled = Instant::now() - Duration::from_secs(5) + timeouts.stall;
        assert_eq!(activity.due(&timeouts), (stalled, Some(Overdue::Stalled)));
        std::future::poll_fn(|context| Pin::new(&mut unread).poll_frame(context)).await;
        std::future::poll_fn(|context| Pin::new(&mut unread).poll_frame(context)).await;
        assert_eq!(activity.due(&timeouts).1, None, "it was read to its end");
        drop(unread);

        let endless = activity.begin();
        tokio::time::advance(timeouts.age).await;
        let old = (opened + timeouts.age, Some(Overdue::Old));
        assert_eq!(activity.due(&timeouts), old);
        drop(endless);
    }
}
