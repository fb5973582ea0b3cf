//! Seals and entries in order, page by page, from a running server or from the database of a stopped one.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use countersign_api::{Checkpoint, Page, Reconciliation};
use countersign_authority::{
    AuditFilter, AuditOrder, AuditPlace, AuditQuery, AuditRecord, Clock as _, Seal, Store,
    SystemClock, reconcile,
};
use countersign_server::enrol::{reconciliation_of, record_of, seal_of};
use countersign_store::{OpenFault, SqliteStore};
use http::StatusCode;

use super::{CHECKPOINT, PAGE, page};
use crate::client::{Client, path_segment};
use crate::commands::csr::accepted;
use crate::data_folder::DataFolder;
use crate::stores;

/// A log that is read from its beginning. It ends where it ended when the reading began: of a seal that is made
/// meanwhile the entries might have been passed over already.
pub(super) struct Reading {
    source: Source,
    /// The newest seal that is read.
    newest: u64,
    seals: VecDeque<Seal>,
    records: VecDeque<AuditRecord>,
}

enum Source {
    Server {
        client: Box<Client>,
        seals: Next<String>,
        records: Next<String>,
    },
    Files {
        store: Arc<dyn Store>,
        seals: Next<u64>,
        records: Next<AuditPlace>,
    },
}

/// Where the next page begins.
enum Next<T> {
    Beginning,
    After(T),
    Nowhere,
}

impl<T> Next<T> {
    fn from(reached: Option<T>) -> Self {
        reached.map_or(Self::Nowhere, Self::After)
    }
}

impl Reading {
    pub(super) async fn of_server(mut client: Client) -> Result<Self> {
        let reply = client.get(CHECKPOINT).await?;
        let newest = match reply.status {
            StatusCode::NOT_FOUND => 0,
            _ => accepted(reply)?.json::<Checkpoint>()?.number,
        };
        Ok(Self::new(
            Source::Server {
                client: Box::new(client),
                seals: Next::Beginning,
                records: Next::Beginning,
            },
            newest,
        ))
    }

    pub(super) async fn of_files(folder: &DataFolder) -> Result<Self> {
        stores::ensure_here(folder)?;
        let database = folder.database();
        ensure!(
            database.try_exists()?,
            "{} does not exist: name the data directory of an authority with --data",
            database.display()
        );
        let store: Arc<dyn Store> = match SqliteStore::open(&database) {
            Err(fault @ OpenFault::InUse { .. }) => {
                return Err(fault)
                    .context("a server is running on it: stop it, or leave --offline away");
            }
            opened => Arc::new(opened?),
        };
        let newest = store.last_seal().await?.map_or(0, |head| head.number);
        Ok(Self::new(
            Source::Files {
                store,
                seals: Next::Beginning,
                records: Next::Beginning,
            },
            newest,
        ))
    }

    fn new(source: Source, newest: u64) -> Self {
        Self {
            source,
            newest,
            seals: VecDeque::new(),
            records: VecDeque::new(),
        }
    }

    /// Ledger, tokens and audit log held against each other.
    pub(super) async fn reconcile(&mut self, folder: &DataFolder) -> Result<Reconciliation> {
        self.source.reconcile(folder).await
    }

    pub(super) async fn next_seal(&mut self) -> Result<Option<Seal>> {
        if self.seals.is_empty() {
            self.seals = self.source.seals().await?.into();
        }
        let newest = self.newest;
        Ok(self
            .seals
            .pop_front()
            .filter(|seal| seal.head.number <= newest))
    }

    pub(super) async fn next_entry(&mut self) -> Result<Option<AuditRecord>> {
        if self.records.is_empty() {
            self.records = self.source.records().await?.into();
        }
        Ok(self.records.pop_front())
    }
}

impl Source {
    async fn reconcile(&mut self, folder: &DataFolder) -> Result<Reconciliation> {
        match self {
            Self::Server { client, .. } => Ok(accepted(client.get(RECONCILIATION).await?)?.json()?),
            Self::Files { store, .. } => {
                let issuers = folder.issuers()?;
                let found = reconcile(&**store, &issuers, SystemClock.now()).await?;
                Ok(reconciliation_of(&found))
            }
        }
    }

    /// The next page; empty at the end.
    async fn seals(&mut self) -> Result<Vec<Seal>> {
        match self {
            Self::Server { client, seals, .. } => {
                let path = format!("/enrol/v1/audit/seals?limit={SEALS}");
                let path = match seals {
                    Next::Beginning => path,
                    Next::After(cursor) => format!("{path}&cursor={}", path_segment(cursor)),
                    Next::Nowhere => return Ok(Vec::new()),
                };
                let page: Page<countersign_api::Seal> =
                    accepted(client.get(&path).await?)?.json()?;
                *seals = Next::from(page.cursor);
                let read = page.items.iter().map(seal_of);
                Ok(read.collect::<Result<_, _>>()?)
            }
            Self::Files { store, seals, .. } => {
                let after = match seals {
                    Next::Beginning => 0,
                    Next::After(number) => *number,
                    Next::Nowhere => return Ok(Vec::new()),
                };
                let page = store.seals(after, SEALS).await?;
                *seals = Next::from(page.last().map(|last| last.head.number));
                Ok(page)
            }
        }
    }

    async fn records(&mut self) -> Result<Vec<AuditRecord>> {
        match self {
            Self::Server {
                client, records, ..
            } => {
                let path = format!("/enrol/v1/audit?limit={PAGE}&stored=true");
                let cursor = match records {
                    Next::Beginning => None,
                    Next::After(cursor) => Some(cursor.as_str()),
                    Next::Nowhere => return Ok(Vec::new()),
                };
                let page = page(client, &path, cursor).await?;
                *records = Next::from(page.cursor);
                let read = page.items.iter().map(record_of);
                read.collect::<Option<_>>().context(
                    "the server's answer lacks the text of entries; is it of another version?",
                )
            }
            Self::Files { store, records, .. } => {
                let after = match records {
                    Next::Beginning => None,
                    Next::After(place) => Some(*place),
                    Next::Nowhere => return Ok(Vec::new()),
                };
                let query = AuditQuery {
                    filter: AuditFilter::default(),
                    order: AuditOrder::OldestFirst,
                    after,
                    limit: PAGE,
                    look_at: PAGE,
                };
                let page = store.audit_page(query).await?;
                *records = Next::from(page.reached);
                Ok(page.records)
            }
        }
    }
}

const RECONCILIATION: &str = "/enrol/v1/audit/reconciliation";
/// A few megabytes at once.
const SEALS: usize = 50;
