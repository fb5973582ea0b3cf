//! What is PostgreSQL's alone: several processes on one database, what they do when it is away, and who may do what.

mod doubt;
mod faults;
mod growth;
mod replicas;
mod roles;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use countersign_authority::store::{Change, CommitFault, Committed, Store};
use countersign_store_suite::Sample;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

use crate::ground::Database;

/// A session beside the stores, which does what no store does.
pub(crate) async fn session(ground: &Database) -> Client {
    let config = format!(
        "host={} port={} user=postgres dbname={}",
        ground.server.socket_folder().display(),
        ground.server.port(),
        ground.name
    );
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    let path = "SET search_path = countersign, pg_temp";
    client.batch_execute(path).await.unwrap();
    client
}

/// A change that says something to the audit log.
pub(crate) fn remark(sample: &Sample, text: &str) -> Change {
    Change {
        audit: vec![sample.audit("request", text)],
        ..Change::default()
    }
}

pub(crate) type Outcome = Result<Committed, CommitFault>;

/// Commits in the background.
pub(crate) fn commit<S: Store + 'static>(store: &Arc<S>, change: Change) -> JoinHandle<Outcome> {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.commit(change).await })
}

/// Long enough that what could happen would have.
pub(crate) const A_WHILE: Duration = Duration::from_millis(700);
