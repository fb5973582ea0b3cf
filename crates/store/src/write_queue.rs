//! How changes reach whoever writes, and how their callers are answered.

use countersign_authority::store::{Change, CommitFault, Committed, StoreFault, Write};
use countersign_authority::{CommitOutcome, Telemetry};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// A change and the caller that waits for it.
pub(crate) struct WriteJob {
    pub(crate) change: Change,
    pub(crate) answer: oneshot::Sender<Result<Committed, CommitFault>>,
}

/// Hands a change to the writer and waits for its answer. When too many wait, it is refused, unless it records a finished
/// signature: the key was used for it, and a refusal would cost the serial and a second signature. There are never more of
/// those than there were intents accepted before them.
pub(crate) async fn hand_over(
    queue: Option<&mpsc::Sender<WriteJob>>,
    change: Change,
    telemetry: &dyn Telemetry,
) -> Result<Committed, CommitFault> {
    let mut waiting = Waiting::begin(telemetry);
    let queue = queue.ok_or(StoreFault::Stopped)?;
    let (answer, answered) = oneshot::channel();
    let finishes = |write: &Write| matches!(write, Write::Record { .. });
    let must_wait = change.writes.iter().any(finishes);
    let job = WriteJob { change, answer };
    if must_wait {
        queue.send(job).await.map_err(|_| StoreFault::Stopped)?;
    } else {
        queue.try_send(job).map_err(|refusal| match refusal {
            mpsc::error::TrySendError::Full(_) => StoreFault::Overloaded,
            mpsc::error::TrySendError::Closed(_) => StoreFault::Stopped,
        })?;
    }
    let stopped = || Err(CommitFault::Store(StoreFault::Stopped));
    let committed = answered.await.unwrap_or_else(|_| stopped());
    waiting.outcome = match &committed {
        Ok(_) => CommitOutcome::Durable,
        Err(CommitFault::Conflict { .. } | CommitFault::DuplicateSerial { .. }) => {
            CommitOutcome::Conflict
        }
        Err(CommitFault::Store(_)) => CommitOutcome::Failed,
    };
    committed
}

/// A fraction of a second of work: beyond it, callers had better come back later.
pub(crate) const WAITING_WRITES: usize = 4096;

/// Reports a commit when it is over, also if nobody waits for it any more.
struct Waiting<'a> {
    telemetry: &'a dyn Telemetry,
    begun: Instant,
    outcome: CommitOutcome,
}

impl<'a> Waiting<'a> {
    fn begin(telemetry: &'a dyn Telemetry) -> Self {
        telemetry.commit_waits();
        Self {
            telemetry,
            begun: Instant::now(),
            outcome: CommitOutcome::Failed,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.telemetry.committed(self.outcome, self.begun.elapsed());
    }
}
