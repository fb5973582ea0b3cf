//! The store on SQLite: its threads and the calls that reach them.

mod folder;
mod migration;

mod bootstrap;
mod change;
mod intents;
mod inventory;
mod objects;
mod states;
mod writer;

mod query;
mod reader;
mod tokens;

pub mod backup;

mod denials;
mod fault;
mod row;

use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use countersign_authority::store::{
    AgeFilter, Amount, Answer, AuditReads, Change, CommitFault, Committed, InventoryReads,
    IssuerReads, LedgerReads, LiveRequest, MachineFilter, ObjectReads, Past, Rejection,
    RejectionFilter, RequestFilter, RequestReads, Store, StoreFault, Tally, TokenReads,
};
use countersign_authority::{
    AncestorCrl, AuditEntry, AuditPage, AuditQuery, BootstrapId, BootstrapToken, CrlRecord,
    CrlScope, Door, FoundToken, Intent, IssuerId, LedgerEntry, ListedCertificate, ListedToken,
    MachineRecord, ObjectKey, ObjectRecord, PolicyVersion, RepeatedDenials, RequestId,
    RequestRecord, Revision, Revocation, Seal, SealHead, StateChange, Telemetry, TokenFilter,
    TokenId, TokenRecord, TokenUseRecord, Unobserved, inventory_name,
};
use countersign_pki::{Fingerprint, Serial, UnixTime};
use countersign_policy::BuildWindow;
use futures_util::future::BoxFuture;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use self::fault::{Fault, SharedFault};
pub use self::folder::OpenFault;
use self::folder::StoreFiles;
use self::reader::ReadJob;
use self::writer::Writer;
use crate::write_queue::{WAITING_WRITES, WriteJob, hand_over};

/// A store in one SQLite file that this process has to itself.
///
/// A commit that was handed over is carried out even if its caller goes away. Dropping the store completes what is
/// waiting and closes the files. Under load, commits are refused, except those that finish a certificate: they wait.
pub struct SqliteStore {
    files: Arc<StoreFiles>,
    revisions: watch::Receiver<Revision>,
    /// Taken only when the store is dropped, which tells the threads to end.
    queues: Option<Queues>,
    threads: Vec<JoinHandle<()>>,
    telemetry: Arc<dyn Telemetry>,
}

impl SqliteStore {
    /// Opens the store at `path`, or makes a new one, and brings its schema up to date.
    ///
    /// # Errors
    /// If another process has it, it cannot be opened, or its schema is not one this program knows.
    pub fn open(path: &Path) -> Result<Self, OpenFault> {
        Self::open_observed(path, Arc::new(Unobserved))
    }

    /// The same, with somebody who counts what is committed.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_observed(path: &Path, telemetry: Arc<dyn Telemetry>) -> Result<Self, OpenFault> {
        let files = Arc::new(StoreFiles::claim(path)?);
        let sqlite = |source| OpenFault::Sqlite {
            path: path.to_owned(),
            source,
        };
        let mut connection = files.writer().map_err(sqlite)?;
        migration::migrate(&mut connection, path)?;
        let revision = query::revision(&connection).map_err(|fault| match fault {
            Fault::Sqlite(source) => sqlite(source),
            Fault::Corrupt { .. } | Fault::Refused(_) => {
                sqlite(rusqlite::Error::QueryReturnedNoRows)
            }
        })?;
        let readers: Vec<Connection> = (0..READERS)
            .map(|_| files.reader())
            .collect::<Result<_, _>>()
            .map_err(sqlite)?;
        let identity = files.identity().ok_or_else(|| OpenFault::File {
            path: path.to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        })?;

        let (sender, revisions) = watch::channel(revision);
        let (writes, write_queue) = mpsc::channel(WAITING_WRITES);
        let (reads, read_queue) = sync_channel(WAITING_READS);
        let mut store = Self {
            files,
            revisions,
            queues: Some(Queues { writes, reads }),
            threads: Vec::new(),
            telemetry: Arc::clone(&telemetry),
        };
        let writer =
            Writer::new(Arc::clone(&store.files), identity, connection, sender).observed(telemetry);
        store.start("store-writer".to_owned(), move || writer.run(write_queue))?;
        let read_queue: Arc<Mutex<Receiver<ReadJob>>> = Arc::new(Mutex::new(read_queue));
        for (number, connection) in (1..).zip(readers) {
            let queue = Arc::clone(&read_queue);
            store.start(format!("store-reader-{number}"), move || {
                reader::run(&connection, &queue)
            })?;
        }
        Ok(store)
    }

    fn start(
        &mut self,
        name: String,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), OpenFault> {
        let thread = thread::Builder::new()
            .name(name)
            .spawn(work)
            .map_err(|source| OpenFault::Thread { source })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Runs a query on a reading thread. A full queue is answered at once, not waited for.
    fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Answer<'_, T> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let job: ReadJob = Box::new(move |connection| {
                // Nobody waits any more: do not spend a query on it.
                if !answer.is_closed() {
                    let _ = answer.send(query(connection));
                }
            });
            let queues = self.queues.as_ref().ok_or(StoreFault::Stopped)?;
            queues.ask(job)?;
            match answered.await {
                Ok(Ok(found)) => Ok(found),
                Ok(Err(Fault::Sqlite(error))) => {
                    Err(SharedFault::new(error).as_store_fault(self.files.folder()))
                }
                Ok(Err(Fault::Corrupt { what })) => Err(StoreFault::Corrupt { what }),
                Ok(Err(Fault::Refused(_))) | Err(_) => Err(StoreFault::Stopped),
            }
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queues = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl Store for SqliteStore {
    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Committed, CommitFault>> {
        Box::pin(async move {
            let queues = self.queues.as_ref().map(|queues| &queues.writes);
            hand_over(queues, change, &*self.telemetry).await
        })
    }

    fn revisions(&self) -> watch::Receiver<Revision> {
        self.revisions.clone()
    }

    fn tally(&self, now: UnixTime, soon: UnixTime) -> Answer<'_, Tally> {
        self.read(move |connection| query::tally(connection, now, soon))
    }

    fn epoch(&self) -> Answer<'_, u64> {
        self.read(query::epoch)
    }

    fn is_exclusive(&self) -> bool {
        true
    }
}

impl RequestReads for SqliteStore {
    fn request(&self, id: RequestId) -> Answer<'_, Option<RequestRecord>> {
        self.read(move |connection| query::request(connection, id))
    }

    fn request_at(&self, door: &Door, key: &str, past: Past) -> Answer<'_, Option<RequestRecord>> {
        let (door, key) = (door.clone(), key.to_owned());
        self.read(move |connection| query::request_at(connection, &door, &key, past))
    }

    fn requests(&self, filter: RequestFilter) -> Answer<'_, Vec<RequestRecord>> {
        self.read(move |connection| query::requests(connection, &filter))
    }

    fn requests_before(&self, filter: AgeFilter) -> Answer<'_, Vec<RequestRecord>> {
        self.read(move |connection| query::requests_before(connection, &filter))
    }

    fn rejections(&self, filter: RejectionFilter) -> Answer<'_, Vec<Rejection>> {
        self.read(move |connection| query::rejections(connection, &filter))
    }

    fn worth_asking_again(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Answer<'_, Vec<(u64, RequestRecord)>> {
        self.read(move |connection| query::worth_asking_again(connection, after, limit))
    }

    fn newest_policy(&self) -> Answer<'_, Option<PolicyVersion>> {
        self.read(query::newest_policy)
    }

    fn policy_version(&self, generation: u64) -> Answer<'_, Option<PolicyVersion>> {
        self.read(move |connection| query::policy_version(connection, generation))
    }

    fn is_allowed(
        &self,
        webhook: &str,
        name: &str,
        key_fingerprint: &Fingerprint,
        now: UnixTime,
    ) -> Answer<'_, bool> {
        let (webhook, name, key) = (webhook.to_owned(), name.to_owned(), *key_fingerprint);
        self.read(move |connection| query::is_allowed(connection, &webhook, &name, &key, now))
    }

    fn pending_bytes(&self) -> Answer<'_, u64> {
        self.read(query::pending_bytes)
    }

    fn trimmable(&self, thefts_since: UnixTime) -> Answer<'_, Amount> {
        self.read(move |connection| query::trimmable(connection, thefts_since))
    }

    fn repeated_denials(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<RepeatedDenials>> {
        self.read(move |connection| denials::before(connection, before, limit))
    }

    fn pending_from(&self, source: IpAddr, at_most: usize) -> Answer<'_, Amount> {
        self.read(move |connection| query::pending_from(connection, source, at_most))
    }

    fn live_requests(
        &self,
        door: &Door,
        pages: mpsc::Sender<Vec<LiveRequest>>,
    ) -> Answer<'_, Revision> {
        let door = door.clone();
        self.read(move |connection| {
            let send = |page| pages.blocking_send(page).is_ok();
            states::live_requests(connection, &door, send)
        })
    }
}

impl LedgerReads for SqliteStore {
    fn certificate(&self, issuer: &IssuerId, serial: &Serial) -> Answer<'_, Option<LedgerEntry>> {
        let (issuer, serial) = (issuer.clone(), *serial);
        self.read(move |connection| query::certificate(connection, &issuer, &serial))
    }

    fn newest_certificate(&self, issuer: &IssuerId, name: &str) -> Answer<'_, Option<LedgerEntry>> {
        let (issuer, name) = (issuer.clone(), name.to_owned());
        self.read(move |connection| query::newest_certificate(connection, &issuer, &name))
    }

    fn certificates_of(
        &self,
        issuer: &IssuerId,
        name: &str,
        alive_at: UnixTime,
    ) -> Answer<'_, Vec<LedgerEntry>> {
        let (issuer, name) = (issuer.clone(), name.to_owned());
        self.read(move |connection| query::certificates_of(connection, &issuer, &name, alive_at))
    }

    fn newest_certificates(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<LedgerEntry>> {
        let issuer = issuer.clone();
        self.read(move |connection| {
            query::newest_certificates(connection, &issuer, after.as_deref(), limit)
        })
    }

    fn listed_certificates(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<ListedCertificate>> {
        let issuer = issuer.clone();
        self.read(move |connection| {
            query::listed_certificates(connection, &issuer, after.as_deref(), limit)
        })
    }

    fn ledger(
        &self,
        issuer: &IssuerId,
        after: Option<u64>,
        limit: usize,
    ) -> Answer<'_, Vec<(u64, LedgerEntry)>> {
        let issuer = issuer.clone();
        self.read(move |connection| query::ledger(connection, &issuer, after, limit))
    }

    fn open_intents(&self) -> Answer<'_, Vec<Intent>> {
        self.read(intents::open)
    }
}

impl IssuerReads for SqliteStore {
    fn revocations(
        &self,
        issuer: &IssuerId,
        alive_at: UnixTime,
    ) -> Answer<'_, (Revision, Vec<Revocation>)> {
        let issuer = issuer.clone();
        self.read(move |connection| query::revocations(connection, &issuer, alive_at))
    }

    fn next_serial(&self, issuer: &IssuerId) -> Answer<'_, Option<u64>> {
        let issuer = issuer.clone();
        self.read(move |connection| query::next_serial(connection, &issuer))
    }

    fn highest_serial(&self, issuer: &IssuerId) -> Answer<'_, Option<u64>> {
        let issuer = issuer.clone();
        self.read(move |connection| query::highest_serial(connection, &issuer))
    }

    fn crl(&self, issuer: &IssuerId, scope: CrlScope) -> Answer<'_, Option<CrlRecord>> {
        let issuer = issuer.clone();
        self.read(move |connection| query::crl(connection, &issuer, scope))
    }

    fn ancestor_crls(&self, issuer: &IssuerId) -> Answer<'_, Vec<AncestorCrl>> {
        let issuer = issuer.clone();
        self.read(move |connection| query::ancestor_crls(connection, &issuer))
    }
}

impl TokenReads for SqliteStore {
    fn token(
        &self,
        id: &TokenId,
        certname: &str,
        key_fingerprint: &Fingerprint,
    ) -> Answer<'_, Option<FoundToken>> {
        let id = id.clone();
        let certname = certname.to_owned();
        let key_fingerprint = *key_fingerprint;
        self.read(move |connection| tokens::token(connection, &id, &certname, &key_fingerprint))
    }

    fn listed_token(&self, id: &TokenId, now: UnixTime) -> Answer<'_, Option<ListedToken>> {
        let id = id.clone();
        self.read(move |connection| tokens::listed_token(connection, &id, now))
    }

    fn tokens(&self, filter: TokenFilter) -> Answer<'_, Vec<ListedToken>> {
        self.read(move |connection| tokens::tokens(connection, &filter))
    }

    fn token_uses(&self, id: &TokenId, limit: usize) -> Answer<'_, Vec<TokenUseRecord>> {
        let id = id.clone();
        self.read(move |connection| tokens::token_uses(connection, &id, limit))
    }

    fn active_tokens_of(&self, certname: &str, now: UnixTime) -> Answer<'_, Vec<TokenRecord>> {
        let certname = certname.to_owned();
        self.read(move |connection| tokens::active_tokens_of(connection, &certname, now))
    }

    fn token_ordered(
        &self,
        created_by: &str,
        idempotency_key: &str,
    ) -> Answer<'_, Option<TokenId>> {
        let created_by = created_by.to_owned();
        let idempotency_key = idempotency_key.to_owned();
        self.read(move |connection| {
            tokens::token_ordered(connection, &created_by, &idempotency_key)
        })
    }

    fn active_tokens(&self, now: UnixTime, at_most: usize) -> Answer<'_, usize> {
        self.read(move |connection| tokens::active_tokens(connection, now, at_most))
    }

    fn tokens_over(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<TokenId>> {
        self.read(move |connection| tokens::tokens_over(connection, before, limit))
    }

    fn bootstrap_token(&self, id: &BootstrapId) -> Answer<'_, Option<BootstrapToken>> {
        let id = id.clone();
        self.read(move |connection| bootstrap::token(connection, &id))
    }

    fn bootstrap_tokens(
        &self,
        after: Option<BootstrapId>,
        limit: usize,
    ) -> Answer<'_, Vec<BootstrapToken>> {
        self.read(move |connection| bootstrap::tokens(connection, after.as_ref(), limit))
    }

    fn bootstrap_tokens_over(
        &self,
        before: UnixTime,
        limit: usize,
    ) -> Answer<'_, Vec<BootstrapId>> {
        self.read(move |connection| bootstrap::over(connection, before, limit))
    }
}

impl InventoryReads for SqliteStore {
    fn machine(&self, name: &str) -> Answer<'_, Option<MachineRecord>> {
        let name = inventory_name(name);
        self.read(move |connection| inventory::machine(connection, &name))
    }

    fn machines(&self, filter: MachineFilter) -> Answer<'_, Vec<MachineRecord>> {
        self.read(move |connection| inventory::machines(connection, &filter))
    }

    fn window(&self, certname: &str) -> Answer<'_, Option<BuildWindow>> {
        let certname = inventory_name(certname);
        self.read(move |connection| inventory::window(connection, &certname))
    }

    fn windows(&self, after: Option<String>, limit: usize) -> Answer<'_, Vec<BuildWindow>> {
        self.read(move |connection| inventory::windows(connection, after.as_deref(), limit))
    }

    fn windows_closed(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<BuildWindow>> {
        self.read(move |connection| inventory::windows_closed(connection, before, limit))
    }
}

impl AuditReads for SqliteStore {
    fn audit(&self, since: Revision, limit: usize) -> Answer<'_, Vec<(Revision, AuditEntry)>> {
        self.read(move |connection| query::audit(connection, since, limit))
    }

    fn audit_page(&self, query: AuditQuery) -> Answer<'_, AuditPage> {
        self.read(move |connection| query::audit_page(connection, &query))
    }

    fn seals(&self, after: u64, limit: usize) -> Answer<'_, Vec<Seal>> {
        self.read(move |connection| query::seals(connection, after, limit))
    }

    fn last_seal(&self) -> Answer<'_, Option<SealHead>> {
        self.read(query::last_seal)
    }
}

impl ObjectReads for SqliteStore {
    fn objects(&self) -> Answer<'_, (Revision, Vec<ObjectRecord>)> {
        self.read(objects::objects)
    }

    fn object(&self, key: &ObjectKey) -> Answer<'_, Option<ObjectRecord>> {
        let key = key.clone();
        self.read(move |connection| objects::object(connection, &key))
    }

    fn states(&self, since: Revision, limit: usize) -> Answer<'_, Vec<StateChange>> {
        self.read(move |connection| states::states(connection, since, limit))
    }

    fn states_horizon(&self, newest: usize) -> Answer<'_, Revision> {
        self.read(move |connection| states::horizon(connection, newest))
    }
}

/// What waits for the threads.
struct Queues {
    writes: mpsc::Sender<WriteJob>,
    reads: SyncSender<ReadJob>,
}

impl Queues {
    /// Hands a query to the readers.
    fn ask(&self, job: ReadJob) -> Result<(), StoreFault> {
        self.reads.try_send(job).map_err(|refusal| match refusal {
            TrySendError::Full(_) => StoreFault::Overloaded,
            TrySendError::Disconnected(_) => StoreFault::Stopped,
        })
    }
}

const READERS: usize = 2; // reads are short; more threads would only take cores from signing
const WAITING_READS: usize = 4096;
