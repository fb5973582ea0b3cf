//! The threads that read. Each has a connection of its own; they share one bounded queue.

use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;

/// One read: it gets a connection and answers its caller by itself.
pub(crate) type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// Serves until every sender is gone. The lock is held while waiting for a job, not while doing it.
pub(crate) fn run(connection: &Connection, queue: &Mutex<Receiver<ReadJob>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(connection),
            Err(_) => return,
        }
    }
}
