//! The sessions that read: a bounded number, made when they are needed.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::address::Address;
use super::fault::{DatabaseFault, Fault};
use super::session::{Limits, Session};

/// Sessions for reading.
pub(super) struct Pool {
    address: Arc<Address>,
    idle: Mutex<Vec<Arc<Session>>>,
    places: Semaphore,
}

/// A session for one caller.
pub(super) struct Lease<'p> {
    pool: &'p Pool,
    session: Arc<Session>,
    _place: SemaphorePermit<'p>,
}

impl Pool {
    pub(super) fn new(address: Arc<Address>) -> Self {
        Self {
            address,
            idle: Mutex::default(),
            places: Semaphore::new(SESSIONS),
        }
    }

    /// Waits for a session, and makes one if there is none. Who would have to wait too long hears that others do.
    pub(super) async fn lease(&self) -> Result<Lease<'_>, DatabaseFault> {
        let place = timeout(PATIENCE, self.places.acquire());
        let place = place.await.map_err(|_| DatabaseFault::Busy)?;
        let place = place.map_err(|_| DatabaseFault::Busy)?;
        let session = match self.take() {
            Some(session) => session,
            None => Arc::new(Session::connect(&self.address, LIMITS, None).await?),
        };
        Ok(Lease {
            pool: self,
            session,
            _place: place,
        })
    }

    /// Reads in one snapshot.
    pub(super) async fn snapshot<T, F>(
        &self,
        read: impl FnOnce(Arc<Session>) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let mut lease = self.lease().await?;
        if let Err(fault) = lease.session.begin_snapshot().await {
            // A database that was restarted has closed every session.
            if !fault.spoils_session() {
                return Err(fault.into());
            }
            drop(lease);
            self.forget();
            lease = self.lease().await?;
            lease.session.begin_snapshot().await?;
        }
        let found = read(Arc::clone(&lease.session)).await?;
        lease.session.end_snapshot().await?;
        Ok(found)
    }

    /// Closes what nobody uses.
    pub(super) fn forget(&self) {
        self.sessions().clear();
    }

    fn take(&self) -> Option<Arc<Session>> {
        let mut idle = self.sessions();
        while let Some(session) = idle.pop() {
            if session.is_usable() {
                return Some(session);
            }
        }
        None
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Session>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease<'_> {
    pub(super) fn session(&self) -> &Session {
        &self.session
    }
}

impl Drop for Lease<'_> {
    /// One that is in the middle of a transaction is closed: its caller went away.
    fn drop(&mut self) {
        if self.session.is_usable() {
            self.pool.sessions().push(Arc::clone(&self.session));
        }
    }
}

/// Reads are short; more sessions would only take cores from those that write.
const SESSIONS: usize = 8;

/// Beyond it, callers had better come back later.
const PATIENCE: Duration = Duration::from_secs(2);

const LIMITS: Limits = Limits {
    // Some look through the whole ledger, once.
    statement: Duration::from_secs(30),
    lock: Duration::from_secs(5),
    // A watch that begins takes its pages in its own time.
    idle: Duration::from_secs(60),
};
