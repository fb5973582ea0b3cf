//! A stream whose other end must keep taking what is written to it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Fails a write that made no progress for `patience`: who asks for something large and reads nothing would otherwise
/// hold a connection for ever.
pub(crate) struct Impatient<T> {
    stream: T,
    patience: Duration,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<T> Impatient<T> {
    pub(crate) fn new(stream: T, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            alarm: None,
        }
    }

    fn watch<R>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if outcome.is_ready() {
            self.alarm = None;
            return outcome;
        }
        let patience = self.patience;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(patience)));
        match alarm.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Impatient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Impatient<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watch(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TCP has nothing to flush; an answer of its own would reset the alarm of a blocked write.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_given_up_and_who_is_slow_is_not() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Impatient::new(near, PATIENCE);
        let slow = tokio::spawn(async move {
            for _ in 0..4 {
                sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut [0; 4]).await.unwrap();
            }
            far
        });
        near.write_all(&[0; 16]).await.unwrap();
        let far = slow.await.unwrap();

        near.write_all(&[0; 4]).await.unwrap();
        let begun = Instant::now();
        let fault = near.write_all(&[0; 4]).await.unwrap_err();
        assert_eq!(fault.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), PATIENCE);
        drop(far);
    }
}
