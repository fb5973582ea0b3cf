//! A temporary directory with a store in it.

use std::path::PathBuf;
use std::sync::Arc;

use countersign_authority::Store;
use countersign_store::SqliteStore;
use countersign_store_suite::Ground;
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
