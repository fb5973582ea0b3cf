//! What happens on a connection, and when it has been idle or open for too long.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::listener::Timeouts;

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    opened: Instant,
    state: Mutex<State>,
    /// The answers of which a part was handed over and nothing more was asked for, with the time since when.
    unread: Mutex<HashMap<u64, Instant>>,
    /// Counts requests.
    count: AtomicU64,
}

/// Tells an answer that goes on that its connection, or the server, is about to end.
#[derive(Clone, Debug)]
pub(crate) struct Closing(pub(crate) CancellationToken);

#[derive(Clone, Copy, Debug)]
enum State {
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
            state: Mutex::new(State::Silent),
            unread: Mutex::default(),
            count: AtomicU64::new(0),
        })
    }

    /// Notes a request; it is over when the answer's last byte, or the answer, is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match *state {
            State::Silent | State::Idle(_) => State::Busy(1),
            State::Busy(count) => State::Busy(count.saturating_add(1)),
        };
        InFlight {
            activity: Arc::clone(self),
            number: self.count.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// When the connection is next to be looked at, and what is wrong with it if nothing happens before.
    pub(crate) fn due(&self, timeouts: &Timeouts) -> (Instant, Option<Overdue>) {
        let state = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.opened + timeouts.age;
        let (due, overdue) = match state {
            State::Silent => (self.opened + timeouts.first_request, Some(Overdue::Silent)),
            State::Idle(since) => (since + timeouts.idle, Some(Overdue::Idle)),
            State::Busy(_) => {
                let unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
                match unread.values().min() {
                    Some(since) => (*since + timeouts.stall, Some(Overdue::Stalled)),
                    None => (Instant::now() + timeouts.idle.min(timeouts.stall), None),
                }
            }
        };
        if old <= due {
            (old, Some(Overdue::Old))
        } else {
            (due, overdue)
        }
    }
}

/// A request whose answer is not complete.
#[derive(Debug)]
pub(crate) struct InFlight {
    activity: Arc<Activity>,
    number: u64,
}

impl InFlight {
    /// Notes that more of the answer is asked for.
    fn asked(&self) {
        let unread = &self.activity.unread;
        let mut unread = unread.lock().unwrap_or_else(PoisonError::into_inner);
        unread.remove(&self.number);
    }

    /// Notes that a part of the answer was handed over.
    fn handed_over(&self) {
        let unread = &self.activity.unread;
        let mut unread = unread.lock().unwrap_or_else(PoisonError::into_inner);
        unread.insert(self.number, Instant::now());
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
        self.asked();
        let state = &self.activity.state;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match *state {
            State::Busy(count) if count > 1 => State::Busy(count - 1),
            State::Busy(_) | State::Silent | State::Idle(_) => State::Idle(Instant::now()),
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
        if let Poll::Ready(Some(Ok(_))) = &polled {
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

        let mut unread = activity.begin().with(Body::from("text"));
        std::future::poll_fn(|context| Pin::new(&mut unread).poll_frame(context)).await;
        tokio::time::advance(Duration::from_secs(5)).await;
        let stalled = Instant::now() - Duration::from_secs(5) + timeouts.stall;
        assert_eq!(activity.due(&timeouts), (stalled, Some(Overdue::Stalled)));
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
