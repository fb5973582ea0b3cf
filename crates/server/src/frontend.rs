//! The way into every door: a call is judged by its head, its body is read within its bound and its deadline, and the call
//! is judged again.
//!
//! The second judgement is what counts: a head may come long before its body, and who was revoked or lost a role meanwhile
//! does nothing more. A door says how it judges ([`Admission`]); behind the [`FrontEnd`] it gets calls that are
//! [`Admitted`] and nothing else.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header;
use http::request::Parts;
use hyper::body::Body as _;
use tower::{Layer, Service, ServiceExt};
use tracing::error;

use crate::body::{self, BodyFault};
use crate::peer::Peer;

/// How a door lets calls in.
pub(crate) trait Admission: Send + Sync + 'static {
    /// Who calls, and what the door has learnt of the call.
    type Caller: Send;

    /// Judges a call by its head, before anything of its body is asked for. With the caller comes how long the body may
    /// be; `None`: the call has none, and what comes all the same is not read.
    fn judge(
        &self,
        peer: &Peer,
        head: &mut Parts,
    ) -> impl Future<Output = Result<(Self::Caller, Option<usize>), Refused>> + Send;

    /// Judges a call whose body is complete. What was counted at the head is not counted again.
    fn judge_again(
        &self,
        peer: &Peer,
        head: &Parts,
        caller: Self::Caller,
    ) -> impl Future<Output = Result<Self::Caller, Refused>> + Send;

    /// Answers a call that does not come as far as that.
    fn failed(&self, fault: CallFault) -> Response;
}

/// Why a call cannot be judged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallFault {
    /// It came without its connection.
    NoPeer,
    /// Its body is too long, too slow or cut off.
    Body(BodyFault),
}

/// A call that is let in.
pub(crate) struct Admitted<C> {
    pub(crate) peer: Peer,
    pub(crate) caller: C,
    pub(crate) head: Parts,
    /// All of it; empty if the call has none.
    pub(crate) body: Bytes,
}

/// The answer to a call that is not let in.
pub(crate) struct Refused(Box<Response>);

impl<R: IntoResponse> From<R> for Refused {
    fn from(refusal: R) -> Self {
        Self(Box::new(refusal.into_response()))
    }
}

/// Stands before what answers the calls of a door.
pub(crate) struct FrontEnd<A, S> {
    admission: Arc<A>,
    answers: S,
}

impl<A: Admission, S> FrontEnd<A, S> {
    pub(crate) fn new(admission: Arc<A>, answers: S) -> Self {
        Self { admission, answers }
    }
}

impl<A, S: Clone> Clone for FrontEnd<A, S> {
    fn clone(&self) -> Self {
        Self {
            admission: Arc::clone(&self.admission),
            answers: self.answers.clone(),
        }
    }
}

impl<A, S> Service<Request> for FrontEnd<A, S>
where
    A: Admission,
    S: Service<Admitted<A::Caller>, Response = Response, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let Self { admission, answers } = self.clone();
        Box::pin(async move {
            match admit(&*admission, request).await {
                Ok((call, unread)) => {
                    let answer = answers.oneshot(call).await;
                    unread.finish().await;
                    answer
                }
                Err(answer) => Ok(answer),
            }
        })
    }
}

async fn admit<A: Admission>(
    admission: &A,
    request: Request,
) -> Result<(Admitted<A::Caller>, Unread), Response> {
    let (mut head, body) = request.into_parts();
    let Some(peer) = head.extensions.remove::<Peer>() else {
        error!("a request arrived without its peer");
        return Err(admission.failed(CallFault::NoPeer));
    };
    let unread = Unread::new(&head, body);
    let (caller, limit) = match admission.judge(&peer, &mut head).await {
        Ok(judged) => judged,
        Err(Refused(answer)) => {
            unread.finish().await;
            return Err(*answer);
        }
    };
    let (caller, body, unread) = match limit {
        None => (caller, Bytes::new(), unread),
        Some(limit) => {
            let read = unread.read(limit).await;
            let body = read.map_err(|fault| admission.failed(CallFault::Body(fault)))?;
            let judged = admission.judge_again(&peer, &head, caller).await;
            let caller = judged.map_err(|Refused(answer)| *answer)?;
            (caller, body, Unread(None))
        }
    };
    let call = Admitted {
        peer,
        caller,
        head,
        body,
    };
    Ok((call, unread))
}

/// The body of a call that was not asked for it yet. Before the answer it is read or finished with, so that the answer
/// reaches a client that is still sending.
struct Unread(Option<Pending>);

struct Pending {
    body: Body,
    /// The client sends it only when it is told to.
    waits: bool,
}

impl Unread {
    fn new(head: &Parts, body: Body) -> Self {
        let waits = head
            .headers
            .get(header::EXPECT)
            .is_some_and(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        Self((!body.is_end_stream()).then_some(Pending { body, waits }))
    }

    async fn read(self, limit: usize) -> Result<Bytes, BodyFault> {
        match self.0 {
            None => Ok(Bytes::new()),
            Some(Pending { body, waits: true }) if is_longer(&body, limit) => {
                Err(BodyFault::TooLong { limit })
            }
            Some(Pending { body, .. }) => body::read(body, limit).await,
        }
    }

    async fn finish(self) {
        if let Some(Pending { body, waits: false }) = self.0 {
            body::discard(body).await;
        }
    }
}

/// Whether it says so of itself.
fn is_longer(body: &Body, limit: usize) -> bool {
    usize::try_from(body.size_hint().lower()).map_or(true, |length| length > limit)
}

/// The front end as a layer around handlers, or a whole router, that find the caller as an extension of their request.
pub(crate) struct FrontEndLayer<A>(Arc<A>);

impl<A: Admission> FrontEndLayer<A> {
    pub(crate) fn new(admission: A) -> Self {
        Self(Arc::new(admission))
    }
}

impl<A> Clone for FrontEndLayer<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A, S> Layer<S> for FrontEndLayer<A> {
    type Service = FrontEnd<A, Handlers<S>>;

    fn layer(&self, inner: S) -> Self::Service {
        FrontEnd {
            admission: Arc::clone(&self.0),
            answers: Handlers(inner),
        }
    }
}

/// What takes requests in place of calls.
#[derive(Clone)]
pub(crate) struct Handlers<S>(S);

impl<C, S> Service<Admitted<C>> for Handlers<S>
where
    C: Clone + Send + Sync + 'static,
    S: Service<Request>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, call: Admitted<C>) -> Self::Future {
        let Admitted {
            caller,
            mut head,
            body,
            ..
        } = call;
        head.extensions.insert(caller);
        self.0.call(Request::from_parts(head, Body::from(body)))
    }
}
