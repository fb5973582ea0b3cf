//! Work that nothing stops between its commits.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use tokio::runtime::Handle;

use crate::faults::EngineError;

/// Runs to its end: if the client hangs up, in a task of its own, so that nothing stops it between its commits.
pub(crate) async fn run_detached<T, E>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<EngineError> + Send + 'static,
{
    let work = AssertUnwindSafe(work).catch_unwind();
    let ended = Detached(Some(Box::pin(work))).await;
    ended.unwrap_or_else(|_panic| Err(EngineError::Defect.into()))
}

/// Work that goes on when nobody waits for it any more.
struct Detached<F: Future<Output: Send> + Send + 'static>(Option<Pin<Box<F>>>);

impl<F: Future<Output: Send> + Send + 'static> Future for Detached<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(work) = self.0.as_mut() else {
            return Poll::Pending;
        };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Detached<F> {
    fn drop(&mut self) {
        // Without a runtime the process is about to end, and recovery finishes what was begun.
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            drop(runtime.spawn(work));
        }
    }
}
