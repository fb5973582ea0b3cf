//! Threads that do slow signatures, fed by a bounded queue.
//!
//! An RSA-4096 signature takes some 1.5 ms; on a runtime thread it would stall every connection that the thread
//! serves. A full queue is reported at once, so that load turns into "try again later" instead of memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::{io, num::NonZeroUsize};

/// One piece of work; it answers through whatever it captured.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Why a job was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The queue is full.
    Full,
    /// No thread is left to do it.
    Stopped,
}

/// The threads; dropping them finishes what is queued and waits for it.
pub(crate) struct SignerThreads {
    queue: Option<SyncSender<Job>>,
    workers: Vec<JoinHandle<()>>,
}

impl SignerThreads {
    pub(crate) fn start(threads: NonZeroUsize, depth: usize) -> io::Result<Self> {
        let (queue, jobs) = sync_channel(depth);
        let jobs = Arc::new(Mutex::new(jobs));
        // Built up in place: should one thread not start, the drop ends those that did.
        let mut pool = Self {
            queue: Some(queue),
            workers: Vec::with_capacity(threads.get()),
        };
        for number in 1..=threads.get() {
            let jobs = Arc::clone(&jobs);
            let worker = thread::Builder::new()
                .name(format!("signer-{number}"))
                .spawn(move || work(&jobs))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    pub(crate) fn submit(&self, job: Job) -> Result<(), Refused> {
        let queue = self.queue.as_ref().ok_or(Refused::Stopped)?;
        queue.try_send(job).map_err(|refusal| match refusal {
            TrySendError::Full(_) => Refused::Full,
            TrySendError::Disconnected(_) => Refused::Stopped,
        })
    }
}

impl Drop for SignerThreads {
    fn drop(&mut self) {
        self.queue = None;
        for worker in self.workers.drain(..) {
            // A worker contains its jobs' panics; there is nothing to learn from its end.
            let _ = worker.join();
        }
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        // The waiting thread holds the lock, the others wait for the lock: either way each job wakes one thread.
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a signing job panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn threads(n: usize, depth: usize) -> SignerThreads {
        SignerThreads::start(NonZeroUsize::new(n).unwrap(), depth).unwrap()
    }

    #[test]
    fn full_queue_refuses_and_drop_finishes_what_was_taken() {
        let pool = threads(1, 3);
        let done = Arc::new(AtomicUsize::new(0));
        let count = |done: &Arc<AtomicUsize>| -> Job {
            let done = Arc::clone(done);
            Box::new(move || {
                done.fetch_add(1, Ordering::SeqCst);
            })
        };
        let (started, is_started) = sync_channel(1);
        let (release, is_released) = sync_channel::<()>(1);
        pool.submit(Box::new(move || {
            started.send(()).unwrap();
            is_released.recv().unwrap();
        }))
        .unwrap();
        is_started.recv().unwrap();
        for _ in 0..3 {
            pool.submit(count(&done)).unwrap();
        }
        assert_eq!(pool.submit(count(&done)), Err(Refused::Full));
        release.send(()).unwrap();
        drop(pool);
        assert_eq!(done.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn panicking_job_does_not_stop_the_thread() {
        let pool = threads(1, 2);
        pool.submit(Box::new(|| {
            std::panic::resume_unwind(Box::new("on purpose"))
        }))
        .unwrap();
        let (answer, answered) = sync_channel(1);
        pool.submit(Box::new(move || answer.send(7).unwrap()))
            .unwrap();
        assert_eq!(answered.recv(), Ok(7));
    }

    #[test]
    fn all_threads_work_at_once() {
        let pool = threads(3, 3);
        let together = Arc::new(std::sync::Barrier::new(4));
        for _ in 0..3 {
            let together = Arc::clone(&together);
            pool.submit(Box::new(move || {
                together.wait();
            }))
            .unwrap();
        }
        // Returns only when three jobs run side by side.
        together.wait();
    }
}
