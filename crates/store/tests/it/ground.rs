//! A temporary directory with a store in it, and a new database on a server that all tests share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_authority::Store;
use countersign_store::postgres::Address;
use countersign_store::{PostgresStore, SqliteStore};
use countersign_store_suite::Ground;
use countersign_testkit::postgres::Postgres;
use futures_util::future::BoxFuture;
use tempfile::TempDir;

pub(crate) struct TemporaryFile {
    folder: TempDir,
}

impl TemporaryFile {
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::new().expect("a temporary directory"),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("countersign.db")
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.path()).expect("the store opens")
    }
}

impl Ground for TemporaryFile {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Arc::new(self.store()) as Arc<dyn Store> })
    }
}

/// A database of its own, without a schema of ours. It is used again by later tests: to make one costs more than most tests.
pub(crate) struct Database {
    pub(crate) server: Arc<Postgres>,
    pub(crate) name: String,
}

impl Database {
    pub(crate) fn new() -> Self {
        let server = Postgres::shared().expect("PostgreSQL starts");
        let free = {
            let mut free = lock(&FREE);
            let place = free.iter().position(|(port, _)| *port == server.port());
            place.map(|place| free.swap_remove(place).1)
        };
        let name = match free {
            Some(name) => name,
            None => {
                let name = format!("test_{}", next());
                server.create_database(&name).expect("a new database");
                name
            }
        };
        Self { server, name }
    }

    pub(crate) fn address(&self) -> Address {
        let url = self.server.socket_url("postgres", &self.name);
        url.parse().expect("the URL of a database")
    }

    /// A store as another process would open it.
    pub(crate) async fn store(&self) -> PostgresStore {
        let process = format!("process-{}", next());
        let store = PostgresStore::open(self.address(), process).await;
        store.expect("the store opens")
    }

    /// Runs statements as the superuser would.
    pub(crate) fn sql(&self, statements: &str) -> String {
        let schema = format!("SET search_path = countersign; {statements}");
        let said = self.server.sql(&self.name, &schema);
        said.expect("the statements run").trim().to_owned()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let emptied = self.server.sql(
            &self.name,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid();
             DROP SCHEMA IF EXISTS countersign CASCADE;",
        );
        if emptied.is_ok() {
            lock(&FREE).push((self.server.port(), self.name.clone()));
        }
    }
}

/// Databases that no test uses, by the port of their server.
static FREE: Mutex<Vec<(u16, String)>> = Mutex::new(Vec::new());

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ground for Database {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Arc::new(self.store().await) as Arc<dyn Store> })
    }
}

/// A number that no other test of this process has.
fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
