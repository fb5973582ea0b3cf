//! Bodies of requests: whole, bounded in bytes and in time.
//!
//! The listener gives every body a deadline, so that no door can forget it; a door says how many bytes it takes.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// Why there is no whole body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFault {
    #[error("the request body is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("the request body did not arrive in time")]
    TooSlow,
    #[error("the request body is incomplete")]
    BrokenOff,
}

/// Reads a body to its end. Of one that is too long, the rest is read too, to a bound ([`discard`]).
pub(crate) async fn read(mut body: Body, limit: usize) -> Result<Bytes, BodyFault> {
    match Limited::new(&mut body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            discard(body).await;
            Err(BodyFault::TooLong { limit })
        }
        Err(error) if is_late(&*error) => Err(BodyFault::TooSlow),
        Err(_) => Err(BodyFault::BrokenOff),
    }
}

/// Reads what nobody wants of a body, up to [`DISCARDED`] octets: a connection that is closed on unread octets is reset, and
/// a client that is still sending loses the answer.
pub(crate) async fn discard(mut body: Body) {
    let mut left = DISCARDED;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// More than any client of a door has sent in a request that was meant.
const DISCARDED: usize = 4 << 20;

/// A body off the wire that fails if it is not whole at `deadline`, however steadily it drips.
pub(crate) fn until(deadline: Instant, body: Incoming) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    Body::new(TimedBody {
        body,
        deadline,
        alarm: None,
    })
}

struct TimedBody<B> {
    body: B,
    deadline: Instant,
    /// Set when the body first keeps its reader waiting; most never do.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<B> HttpBody for TimedBody<B>
where
    B: HttpBody + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = B::Data;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let deadline = self.deadline;
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Some(Err(Box::new(Late))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the deadline has passed")]
struct Late;

fn is_late(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source()).any(|error| error.is::<Late>())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;

    use super::*;

    fn timed(frames: impl futures_util::Stream<Item = Bytes> + Send + 'static) -> Body {
        let frames = frames.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
        Body::new(TimedBody {
            body: StreamBody::new(frames.boxed()),
            deadline: Instant::now() + Duration::from_secs(30),
            alarm: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn drips_do_not_extend_the_deadline() {
        let drips = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(7)).await;
            Some((Bytes::from_static(b"x"), ()))
        });
        let begun = Instant::now();
        assert_eq!(read(timed(drips), 100).await, Err(BodyFault::TooSlow));
        assert_eq!(begun.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn whole_bodies_pass_and_long_ones_do_not() {
        let parts = || stream::iter(["ab", "cd"]).map(|part| Bytes::from_static(part.as_bytes()));
        assert_eq!(read(timed(parts()), 4).await, Ok(Bytes::from("abcd")));
        let too_long = Err(BodyFault::TooLong { limit: 3 });
        assert_eq!(read(timed(parts()), 3).await, too_long);
        let broken = stream::iter([Ok(Bytes::from("ab")), Err(std::io::Error::other("gone"))]);
        let broken = Body::from_stream(broken);
        assert_eq!(read(broken, 4).await, Err(BodyFault::BrokenOff));
    }
}
