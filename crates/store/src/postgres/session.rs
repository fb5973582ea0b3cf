//! One connection to the database: how it is set up, and how statements are sent.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Notification, Row};

use super::address::{Address, TlsMode};
use super::fault::{DatabaseFault, Fault};
use super::tls::Rustls;
use super::value::Statement;
use crate::row::{Cells, RowFault};

/// A connection with its prepared statements.
pub(super) struct Session {
    client: Client,
    prepared: Mutex<HashMap<String, tokio_postgres::Statement>>,
    /// How long an answer may take: longer than the server gives itself.
    patience: Duration,
    /// A transaction that somebody left in the middle would go on with the next caller.
    in_transaction: AtomicBool,
}

/// What a session is for: how long it may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// One statement.
    pub(super) statement: Duration,
    /// To get a lock.
    pub(super) lock: Duration,
    /// Between two statements of a transaction.
    pub(super) idle: Duration,
}

impl Session {
    /// Connects, and sees to it that names are looked up in our schema alone, whatever others have put into the database.
    pub(super) async fn connect(
        address: &Address,
        limits: Limits,
        notifications: Option<mpsc::Sender<Notification>>,
    ) -> Result<Self, DatabaseFault> {
        let connected = timeout(
            PATIENCE,
            Self::connect_at_length(address, limits, notifications),
        );
        connected.await.unwrap_or(Err(DatabaseFault::Silent))
    }

    async fn connect_at_length(
        address: &Address,
        limits: Limits,
        notifications: Option<mpsc::Sender<Notification>>,
    ) -> Result<Self, DatabaseFault> {
        let config = address.config()?;
        let client = match address.tls().mode {
            TlsMode::Disable => {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(drive(connection, notifications));
                client
            }
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => {
                let (client, connection) = config.connect(Rustls::new(address.tls())?).await?;
                tokio::spawn(drive(connection, notifications));
                client
            }
        };
        client.batch_execute(&set_up(limits)).await?;
        Ok(Self {
            client,
            prepared: Mutex::default(),
            patience: limits.statement.saturating_add(GRACE),
            in_transaction: AtomicBool::new(false),
        })
    }

    /// Whether it can be given to the next caller.
    pub(super) fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.in_transaction.load(Ordering::Relaxed)
    }

    /// Runs statements without values.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), DatabaseFault> {
        let done = timeout(self.patience, self.client.batch_execute(sql)).await;
        Ok(done.map_err(|_| DatabaseFault::Silent)??)
    }

    /// Every row of a statement.
    pub(super) async fn rows(&self, statement: &Statement<'_>) -> Result<Vec<Row>, DatabaseFault> {
        let found = async {
            let prepared = self.prepare(&statement.sql).await?;
            if !statement.fits(prepared.params()) {
                let sql = statement.sql.clone();
                return Err(DatabaseFault::Types { sql });
            }
            let rows = self.client.query_raw(&prepared, &statement.values).await?;
            Ok(rows.try_collect().await?)
        };
        let found = timeout(self.patience, found).await;
        found.unwrap_or(Err(DatabaseFault::Silent))
    }

    /// Every record of a statement.
    pub(super) async fn all<T>(
        &self,
        statement: &Statement<'_>,
        read: impl Fn(&dyn Cells) -> Result<T, RowFault>,
    ) -> Result<Vec<T>, Fault> {
        let rows = self.rows(statement).await?;
        Ok(rows.iter().map(|row| read(row)).collect::<Result<_, _>>()?)
    }

    /// The first record of a statement.
    pub(super) async fn one<T>(
        &self,
        statement: &Statement<'_>,
        read: impl Fn(&dyn Cells) -> Result<T, RowFault>,
    ) -> Result<Option<T>, Fault> {
        let rows = self.rows(statement).await?;
        Ok(rows.first().map(|row| read(row)).transpose()?)
    }

    /// Like [`Session::all`], for what is read as a whole and cannot wait for one bad row: a record that does not decode
    /// is left out and said to the log, under the name that `named` finds in its row.
    pub(super) async fn readable<T>(
        &self,
        statement: &Statement<'_>,
        named: impl Fn(&dyn Cells) -> String,
        read: impl Fn(&dyn Cells) -> Result<T, RowFault>,
    ) -> Result<Vec<T>, Fault> {
        let rows = self.rows(statement).await?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            match read(row) {
                Ok(record) => found.push(record),
                Err(RowFault::Corrupt { what }) => {
                    let record = named(row);
                    tracing::error!(record, "a stored {what} cannot be read; skipped");
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(found)
    }

    /// Begins to see one moment.
    pub(super) async fn begin_snapshot(&self) -> Result<(), DatabaseFault> {
        self.in_transaction.store(true, Ordering::Relaxed);
        self.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .await
    }

    /// Sees what there is from now on.
    pub(super) async fn end_snapshot(&self) -> Result<(), DatabaseFault> {
        self.batch("COMMIT").await?;
        self.in_transaction.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Sends all statements at once, and answers when all are done. The server takes them in their order; what follows one
    /// that failed inside a transaction fails too.
    pub(super) async fn pipeline(
        &self,
        statements: &[Statement<'_>],
    ) -> Vec<Result<Vec<Row>, DatabaseFault>> {
        match self.prepare_all(statements).await {
            Ok(prepared) => self.send(statements, &prepared).await,
            Err(fault) => vec![Err(fault)],
        }
    }

    /// Prepares all that are not prepared yet.
    pub(super) async fn prepare_all(
        &self,
        statements: &[Statement<'_>],
    ) -> Result<Vec<tokio_postgres::Statement>, DatabaseFault> {
        let mut prepared = Vec::with_capacity(statements.len());
        for statement in statements {
            prepared.push(self.prepare(&statement.sql).await?);
        }
        Ok(prepared)
    }

    /// The second half of [`Session::pipeline`]. Nothing is sent if one of them could not be: what comes after it must not
    /// be done without it.
    pub(super) async fn send(
        &self,
        statements: &[Statement<'_>],
        prepared: &[tokio_postgres::Statement],
    ) -> Vec<Result<Vec<Row>, DatabaseFault>> {
        for (statement, prepared) in statements.iter().zip(prepared) {
            if !statement.fits(prepared.params()) {
                let sql = statement.sql.clone();
                return vec![Err(DatabaseFault::Types { sql })];
            }
        }
        let mut begun = Vec::with_capacity(statements.len());
        for (statement, prepared) in statements.iter().zip(prepared) {
            let mut rows: Rows<'_> = Box::pin(async {
                let rows = self.client.query_raw(prepared, &statement.values).await?;
                rows.try_collect().await
            });
            // A statement is sent when it is first asked for.
            let first = poll_fn(|context| Poll::Ready(rows.as_mut().poll(context))).await;
            begun.push((rows, first));
        }
        let mut answers = Vec::with_capacity(begun.len());
        for (rows, first) in begun {
            let rows = match first {
                Poll::Ready(rows) => rows,
                Poll::Pending => rows.await,
            };
            answers.push(rows.map_err(DatabaseFault::from));
        }
        answers
    }

    async fn prepare(&self, sql: &str) -> Result<tokio_postgres::Statement, DatabaseFault> {
        let known = |session: &Self| {
            let prepared = session.prepared.lock();
            let prepared = prepared.unwrap_or_else(PoisonError::into_inner);
            prepared.get(sql).cloned()
        };
        if let Some(ready) = known(self) {
            return Ok(ready);
        }
        let ready = self.client.prepare(sql).await?;
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if prepared.len() >= MAX_PREPARED {
            prepared.clear();
        }
        prepared.insert(sql.to_owned(), ready.clone());
        Ok(ready)
    }
}

type Rows<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a>>;

/// Moves octets until the client is gone or the connection breaks.
async fn drive<S, T>(
    mut connection: Connection<S, T>,
    notifications: Option<mpsc::Sender<Notification>>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notification(notification)) => {
                if let Some(notifications) = &notifications {
                    // When it is full, somebody is about to look anyway.
                    let _ = notifications.try_send(notification);
                }
            }
            Ok(AsyncMessage::Notice(notice)) => {
                tracing::debug!(notice = notice.message(), "PostgreSQL says");
            }
            Ok(_) => {}
            Err(error) => {
                let fault = DatabaseFault::from(error);
                tracing::debug!(%fault, "a connection to PostgreSQL ended");
                return;
            }
        }
    }
}

/// Whatever the role or the database has configured: `pg_temp` last, so that no temporary table stands for one of ours,
/// and nothing acknowledged that is not durable.
fn set_up(limits: Limits) -> String {
    let Limits {
        statement,
        lock,
        idle,
    } = limits;
    format!(
        "SET search_path = {SCHEMA}, pg_temp;
         SET statement_timeout = {};
         SET lock_timeout = {};
         SET idle_in_transaction_session_timeout = {};
         SET default_transaction_isolation = 'read committed';
         SET jit = off;
         SET max_parallel_workers_per_gather = 0;
         SELECT pg_catalog.set_config('synchronous_commit', 'on', false)
             WHERE pg_catalog.current_setting('synchronous_commit') = 'off';",
        statement.as_millis(),
        lock.as_millis(),
        idle.as_millis(),
    )
}

/// Where our tables are. Others may create in `public`; here only the role that migrates.
pub(super) const SCHEMA: &str = "countersign";

/// What an answer takes on its way.
const GRACE: Duration = Duration::from_secs(2);

/// Connecting, with TLS and what is set up, to all hosts that are named.
const PATIENCE: Duration = Duration::from_secs(10);

/// More than the crate has of those that every request runs; rare combinations come and go.
const MAX_PREPARED: usize = 512;
