//! The store on PostgreSQL: any number of processes on one database.
//!
//! A task writes (`writer`), a task hears of what others have written (`watch`), and a bounded number of sessions reads
//! (`pool`). Nothing is kept here that the database does not have.

mod address;
mod check;
mod fault;
mod names;
mod pool;
mod read;
mod schema;
mod session;
mod tls;
mod tokens;
mod value;
mod watch;
mod write;
mod writer;

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use countersign_authority::store::{
    AgeFilter, Amount, Answer, AuditReads, Change, CommitFault, Committed, InventoryReads,
    IssuerReads, LedgerReads, LiveRequest, MachineFilter, ObjectReads, Past, Rejection,
    RejectionFilter, RequestFilter, RequestReads, Store, Tally, TokenReads,
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
use tokio::sync::{mpsc, watch as tokio_watch};

pub use self::address::{Address, AddressFault};
use self::fault::Fault;
use self::pool::Pool;
pub use self::schema::PostgresOpenFault;
use self::session::Session;
use self::value::Statement;
use self::writer::Writer;
use crate::records::{
    self, ANCESTOR_CRL, BOOTSTRAP_TOKEN, CRL, DENIALS, HELD_REQUEST, INTENT, LEDGER_ENTRY,
    LISTED_CERTIFICATE, MACHINE, OBJECT, SEAL_HEAD, USE, WINDOW,
};
use crate::row::{Cells, Columns, RowFault, bound, place};
use crate::write_queue::{WAITING_WRITES, WriteJob, hand_over};

/// A store in a PostgreSQL database, which other processes use too.
///
/// A commit that was handed over is carried out even if its caller goes away. Dropping the store completes what is waiting,
/// as long as the runtime runs.
pub struct PostgresStore {
    pool: Arc<Pool>,
    writes: mpsc::Sender<WriteJob>,
    revisions: tokio_watch::Receiver<Revision>,
    telemetry: Arc<dyn Telemetry>,
}

impl PostgresStore {
    /// Opens the store in a database, and brings its schema up to date if the role may do that. `process` is a name that no
    /// other process has.
    ///
    /// # Errors
    /// If the database cannot be reached, its release is too old, or its schema is not one that this program knows or may
    /// make.
    pub async fn open(address: Address, process: String) -> Result<Self, PostgresOpenFault> {
        Self::open_observed(address, process, Arc::new(Unobserved)).await
    }

    /// The same, with somebody who counts what is committed.
    ///
    /// # Errors
    /// As [`PostgresStore::open`].
    pub async fn open_observed(
        address: Address,
        process: String,
        telemetry: Arc<dyn Telemetry>,
    ) -> Result<Self, PostgresOpenFault> {
        let session = Session::connect(&address, schema::LIMITS, None).await;
        let session = session.map_err(|fault| schema::tell(fault, &address))?;
        schema::migrate(&session, &address).await?;
        let revision = read::revision(&session).await;
        let revision = revision.map_err(|fault| schema::unusable(fault, &address))?;
        drop(session);

        let address = Arc::new(address);
        let (sender, revisions) = tokio_watch::channel(revision);
        let sender = Arc::new(sender);
        let (writes, queue) = mpsc::channel(WAITING_WRITES);
        let writer = Writer::new(
            Arc::clone(&address),
            process.clone(),
            Arc::clone(&sender),
            Arc::clone(&telemetry),
        );
        tokio::spawn(writer.run(queue));
        tokio::spawn(watch::follow(Arc::clone(&address), process, sender));
        Ok(Self {
            pool: Arc::new(Pool::new(address)),
            writes,
            revisions,
            telemetry,
        })
    }

    /// Every record of a statement.
    fn all<T: Send + 'static>(
        &self,
        statement: Statement<'static>,
        read: impl Fn(&dyn Cells) -> Result<T, RowFault> + Send + Sync + 'static,
    ) -> Answer<'_, Vec<T>> {
        let found = async move {
            let lease = self.pool.lease().await?;
            match lease.session().all(&statement, &read).await {
                // A database that was restarted has closed every session.
                Err(Fault::Database(fault)) if fault.spoils_session() => {
                    drop(lease);
                    self.pool.forget();
                    let lease = self.pool.lease().await?;
                    lease.session().all(&statement, &read).await
                }
                found => found,
            }
        };
        Box::pin(async { found.await.map_err(Fault::of_a_read) })
    }

    /// The one record of a statement.
    fn one<T: Send + 'static>(
        &self,
        statement: Statement<'static>,
        read: impl Fn(&dyn Cells) -> Result<T, RowFault> + Send + Sync + 'static,
    ) -> Answer<'_, Option<T>> {
        let all = self.all(statement, read);
        Box::pin(async { Ok(all.await?.into_iter().next()) })
    }

    /// A number, 0 where there is none.
    fn number(&self, statement: Statement<'static>, what: &'static str) -> Answer<'_, u64> {
        let number = self.one(statement, move |row| Columns::of(row, what).unsigned());
        Box::pin(async { Ok(number.await?.unwrap_or_default()) })
    }

    /// Several statements in one snapshot.
    fn snapshot<T, F>(&self, read: impl FnOnce(Arc<Session>) -> F + Send + 'static) -> Answer<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        Box::pin(async move { self.pool.snapshot(read).await.map_err(Fault::of_a_read) })
    }
}

impl Store for PostgresStore {
    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Committed, CommitFault>> {
        Box::pin(hand_over(Some(&self.writes), change, &*self.telemetry))
    }

    fn revisions(&self) -> tokio_watch::Receiver<Revision> {
        self.revisions.clone()
    }

    fn tally(&self, now: UnixTime, soon: UnixTime) -> Answer<'_, Tally> {
        self.snapshot(move |session| async move { read::tally(&session, now, soon).await })
    }

    fn epoch(&self) -> Answer<'_, u64> {
        self.snapshot(|session| async move { read::epoch(&session).await })
    }

    fn is_exclusive(&self) -> bool {
        false
    }
}

impl RequestReads for PostgresStore {
    fn request(&self, id: RequestId) -> Answer<'_, Option<RequestRecord>> {
        self.one(read::request(&id), records::request)
    }

    fn request_at(&self, door: &Door, key: &str, past: Past) -> Answer<'_, Option<RequestRecord>> {
        let occupant = read::occupant(door, key);
        match past {
            Past::Ignore => self.one(occupant, records::request),
            Past::Include => {
                let newest = read::newest_past(door, key);
                self.snapshot(move |session| async move {
                    match session.one(&occupant, records::request).await? {
                        Some(found) => Ok(Some(found)),
                        None => session.one(&newest, records::request).await,
                    }
                })
            }
        }
    }

    fn requests(&self, filter: RequestFilter) -> Answer<'_, Vec<RequestRecord>> {
        self.all(read::requests(&filter), records::request)
    }

    fn requests_before(&self, filter: AgeFilter) -> Answer<'_, Vec<RequestRecord>> {
        self.all(read::requests_before(&filter), records::request)
    }

    fn pending_from(&self, source: IpAddr, at_most: usize) -> Answer<'_, Amount> {
        let found = self.one(read::pending_from(source, at_most), records::amount);
        Box::pin(async { Ok(found.await?.unwrap_or_default()) })
    }

    fn pending_bytes(&self) -> Answer<'_, u64> {
        self.number(read::pending_bytes(), "sum")
    }

    fn trimmable(&self, thefts_since: UnixTime) -> Answer<'_, Amount> {
        let found = self.one(read::trimmable(thefts_since), records::amount);
        Box::pin(async { Ok(found.await?.unwrap_or_default()) })
    }

    fn repeated_denials(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<RepeatedDenials>> {
        let sql = format!(
            "SELECT {DENIALS} FROM repeated_denials WHERE first <= $1 ORDER BY source, door, code LIMIT $2"
        );
        let statement = Statement::new(sql).with(before.0).with(bound(limit));
        self.all(statement, records::repeated_denials)
    }

    fn rejections(&self, filter: RejectionFilter) -> Answer<'_, Vec<Rejection>> {
        self.all(read::rejections(&filter), |row| {
            let (place, request) = records::placed_request(row)?;
            Ok(Rejection { place, request })
        })
    }

    fn worth_asking_again(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Answer<'_, Vec<(u64, RequestRecord)>> {
        self.all(
            read::worth_asking_again(after, limit),
            records::placed_request,
        )
    }

    fn newest_policy(&self) -> Answer<'_, Option<PolicyVersion>> {
        let sql = "SELECT generation, digest, loaded, text FROM policies ORDER BY generation DESC LIMIT 1";
        self.one(Statement::new(sql), records::policy_version)
    }

    fn policy_version(&self, generation: u64) -> Answer<'_, Option<PolicyVersion>> {
        let sql = "SELECT generation, digest, loaded, text FROM policies WHERE generation = $1";
        let statement = Statement::new(sql).with(place(generation));
        self.one(statement, records::policy_version)
    }

    fn is_allowed(
        &self,
        webhook: &str,
        name: &str,
        asked: &Fingerprint,
        now: UnixTime,
    ) -> Answer<'_, bool> {
        let statement = Statement::new(
            "SELECT 1 FROM webhook_allows WHERE webhook = $1 AND name = $2 AND asked = $3 AND until > $4",
        );
        let statement = statement
            .with(webhook.to_owned())
            .with(name.to_owned())
            .with(asked.as_bytes().to_vec())
            .with(now.0);
        let found = self.one(statement, |_| Ok(()));
        Box::pin(async { Ok(found.await?.is_some()) })
    }

    fn live_requests(
        &self,
        door: &Door,
        pages: mpsc::Sender<Vec<LiveRequest>>,
    ) -> Answer<'_, Revision> {
        let door = door.clone();
        self.snapshot(
            move |session| async move { read::live_requests(&session, &door, pages).await },
        )
    }
}

impl LedgerReads for PostgresStore {
    fn certificate(&self, issuer: &IssuerId, serial: &Serial) -> Answer<'_, Option<LedgerEntry>> {
        let sql = format!(
            "SELECT {LEDGER_ENTRY} FROM certificates WHERE issuer = $1 AND serial = $2 AND state = 'issued'"
        );
        let statement = of_issuer(sql, issuer).with(serial.as_bytes().to_vec());
        self.one(statement, records::ledger_entry)
    }

    fn newest_certificate(&self, issuer: &IssuerId, name: &str) -> Answer<'_, Option<LedgerEntry>> {
        let sql = format!(
            "SELECT {LEDGER_ENTRY} FROM certificates
             WHERE issuer = $1 AND name = $2 AND state = 'issued' AND retired IS NULL ORDER BY number DESC LIMIT 1"
        );
        self.one(
            of_issuer(sql, issuer).with(name.to_owned()),
            records::ledger_entry,
        )
    }

    fn certificates_of(
        &self,
        issuer: &IssuerId,
        name: &str,
        alive_at: UnixTime,
    ) -> Answer<'_, Vec<LedgerEntry>> {
        let sql = format!(
            "SELECT {LEDGER_ENTRY} FROM certificates
             WHERE issuer = $1 AND name = $2 AND state = 'issued' AND not_after >= $3 ORDER BY number DESC"
        );
        let statement = of_issuer(sql, issuer)
            .with(name.to_owned())
            .with(alive_at.0);
        self.all(statement, records::ledger_entry)
    }

    fn newest_certificates(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<LedgerEntry>> {
        let statement = read::newest(LEDGER_ENTRY, issuer, after.as_deref(), limit);
        self.all(statement, records::ledger_entry)
    }

    fn listed_certificates(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<ListedCertificate>> {
        let statement = read::newest(LISTED_CERTIFICATE, issuer, after.as_deref(), limit);
        self.all(statement, records::listed_certificate)
    }

    fn ledger(
        &self,
        issuer: &IssuerId,
        after: Option<u64>,
        limit: usize,
    ) -> Answer<'_, Vec<(u64, LedgerEntry)>> {
        let sql = format!(
            "SELECT number, {LEDGER_ENTRY} FROM certificates
             WHERE issuer = $1 AND number > $2 AND state = 'issued' ORDER BY number LIMIT $3"
        );
        let statement = of_issuer(sql, issuer)
            .with(place(after.unwrap_or(0)))
            .with(bound(limit));
        self.all(statement, records::placed_ledger_entry)
    }

    fn open_intents(&self) -> Answer<'_, Vec<Intent>> {
        let sql = format!("SELECT {INTENT}, {HELD_REQUEST} FROM intents ORDER BY number");
        self.all(Statement::new(sql), records::intent)
    }
}

impl IssuerReads for PostgresStore {
    fn next_serial(&self, issuer: &IssuerId) -> Answer<'_, Option<u64>> {
        let statement = of_issuer("SELECT next FROM serials WHERE issuer = $1", issuer);
        self.one(statement, |row| Columns::of(row, "serial").unsigned())
    }

    fn highest_serial(&self, issuer: &IssuerId) -> Answer<'_, Option<u64>> {
        let highest = self.one(read::highest_serial(issuer), |row| {
            Columns::of(row, "serial").serial()
        });
        Box::pin(async { Ok(highest.await?.and_then(|serial| serial.to_u64())) })
    }

    fn revocations(
        &self,
        issuer: &IssuerId,
        alive_at: UnixTime,
    ) -> Answer<'_, (Revision, Vec<Revocation>)> {
        let issuer = issuer.clone();
        self.snapshot(
            move |session| async move { read::revocations(&session, &issuer, alive_at).await },
        )
    }

    fn crl(&self, issuer: &IssuerId, scope: CrlScope) -> Answer<'_, Option<CrlRecord>> {
        let sql = format!("SELECT {CRL} FROM crls WHERE issuer = $1 AND scope = $2");
        self.one(of_issuer(sql, issuer).with(scope.word()), records::crl)
    }

    fn ancestor_crls(&self, issuer: &IssuerId) -> Answer<'_, Vec<AncestorCrl>> {
        let sql = format!(
            "SELECT {ANCESTOR_CRL} FROM ancestor_crls WHERE issuer = $1 ORDER BY position, key_id"
        );
        self.all(of_issuer(sql, issuer), records::ancestor_crl)
    }
}

impl TokenReads for PostgresStore {
    fn token(
        &self,
        id: &TokenId,
        certname: &str,
        key_fingerprint: &Fingerprint,
    ) -> Answer<'_, Option<FoundToken>> {
        let (id, certname, key) = (id.clone(), certname.to_owned(), *key_fingerprint);
        self.snapshot(
            move |session| async move { read::token(&session, &id, &certname, &key).await },
        )
    }

    fn listed_token(&self, id: &TokenId, now: UnixTime) -> Answer<'_, Option<ListedToken>> {
        let id = id.clone();
        self.snapshot(move |session| async move { read::listed_token(&session, &id, now).await })
    }

    fn tokens(&self, filter: TokenFilter) -> Answer<'_, Vec<ListedToken>> {
        self.snapshot(move |session| async move { read::tokens(&session, &filter).await })
    }

    fn token_uses(&self, id: &TokenId, limit: usize) -> Answer<'_, Vec<TokenUseRecord>> {
        let sql = format!("SELECT {USE} FROM token_uses WHERE token = $1 ORDER BY number LIMIT $2");
        let statement = Statement::new(sql).with(id.as_str().to_owned());
        self.all(statement.with(bound(limit)), records::use_record)
    }

    fn active_tokens_of(&self, certname: &str, now: UnixTime) -> Answer<'_, Vec<TokenRecord>> {
        self.all(read::active_tokens_of(certname, now), records::token_record)
    }

    fn token_ordered(
        &self,
        created_by: &str,
        idempotency_key: &str,
    ) -> Answer<'_, Option<TokenId>> {
        let sql = "SELECT id FROM tokens WHERE created_by = $1 AND idempotency_key = $2";
        let statement = Statement::new(sql).with(created_by.to_owned());
        self.one(
            statement.with(idempotency_key.to_owned()),
            records::token_id,
        )
    }

    fn active_tokens(&self, now: UnixTime, at_most: usize) -> Answer<'_, usize> {
        let counted = self.number(read::active_tokens(now, at_most), "count");
        Box::pin(async { Ok(usize::try_from(counted.await?).unwrap_or(usize::MAX)) })
    }

    fn tokens_over(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<TokenId>> {
        let sql = "SELECT id FROM tokens WHERE greatest(expires_at, retry_until) < $1
             ORDER BY greatest(expires_at, retry_until) LIMIT $2";
        let statement = Statement::new(sql).with(before.0).with(bound(limit));
        self.all(statement, records::token_id)
    }

    fn bootstrap_token(&self, id: &BootstrapId) -> Answer<'_, Option<BootstrapToken>> {
        let sql = format!("SELECT {BOOTSTRAP_TOKEN} FROM bootstrap_tokens WHERE id = $1");
        let statement = Statement::new(sql).with(id.as_str().to_owned());
        self.one(statement, records::bootstrap_token)
    }

    fn bootstrap_tokens(
        &self,
        after: Option<BootstrapId>,
        limit: usize,
    ) -> Answer<'_, Vec<BootstrapToken>> {
        let statement = read::bootstrap_tokens(after.as_ref(), limit);
        self.all(statement, records::bootstrap_token)
    }

    fn bootstrap_tokens_over(
        &self,
        before: UnixTime,
        limit: usize,
    ) -> Answer<'_, Vec<BootstrapId>> {
        self.all(read::bootstrap_tokens_over(before, limit), |row| {
            records::bootstrap_id(&mut Columns::of(row, "bootstrap token"))
        })
    }
}

impl InventoryReads for PostgresStore {
    fn machine(&self, name: &str) -> Answer<'_, Option<MachineRecord>> {
        let sql = format!("SELECT {MACHINE} FROM machines WHERE name = $1");
        let statement = Statement::new(sql).with(inventory_name(name));
        self.one(statement, records::machine_record)
    }

    fn machines(&self, filter: MachineFilter) -> Answer<'_, Vec<MachineRecord>> {
        self.all(read::machines(&filter), records::machine_record)
    }

    fn window(&self, certname: &str) -> Answer<'_, Option<BuildWindow>> {
        let sql = format!("SELECT {WINDOW} FROM windows WHERE certname = $1");
        let statement = Statement::new(sql).with(inventory_name(certname));
        self.one(statement, records::build_window)
    }

    fn windows(&self, after: Option<String>, limit: usize) -> Answer<'_, Vec<BuildWindow>> {
        // No name is empty: every one comes after the empty text.
        let after = inventory_name(after.as_deref().unwrap_or_default());
        let sql =
            format!("SELECT {WINDOW} FROM windows WHERE certname > $1 ORDER BY certname LIMIT $2");
        let statement = Statement::new(sql).with(after).with(bound(limit));
        self.all(statement, records::build_window)
    }

    fn windows_closed(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<BuildWindow>> {
        let sql = format!(
            "SELECT {WINDOW} FROM windows WHERE closes_at < $1 ORDER BY closes_at, certname LIMIT $2"
        );
        let statement = Statement::new(sql).with(before.0).with(bound(limit));
        self.all(statement, records::build_window)
    }
}

impl AuditReads for PostgresStore {
    fn audit(&self, since: Revision, limit: usize) -> Answer<'_, Vec<(Revision, AuditEntry)>> {
        self.all(read::audit(since, limit), |row| {
            let mut columns = Columns::of(row, "audit entry");
            Ok((columns.revision()?, columns.document()?))
        })
    }

    fn audit_page(&self, query: AuditQuery) -> Answer<'_, AuditPage> {
        let entries = self.all(read::audit_page(&query), records::audit_record);
        Box::pin(async move {
            let mut page = AuditPage::default();
            for record in entries.await? {
                if records::add_to_page(&mut page, record, &query) {
                    break;
                }
            }
            Ok(page)
        })
    }

    fn seals(&self, after: u64, limit: usize) -> Answer<'_, Vec<Seal>> {
        let sql = format!(
            "SELECT {SEAL_HEAD}, hashes FROM audit_seals WHERE number > $1 ORDER BY number LIMIT $2"
        );
        let statement = Statement::new(sql).with(place(after)).with(bound(limit));
        self.all(statement, records::seal)
    }

    fn last_seal(&self) -> Answer<'_, Option<SealHead>> {
        let sql = format!("SELECT {SEAL_HEAD} FROM audit_seals ORDER BY number DESC LIMIT 1");
        self.one(Statement::new(sql), records::seal_head)
    }
}

impl ObjectReads for PostgresStore {
    fn objects(&self) -> Answer<'_, (Revision, Vec<ObjectRecord>)> {
        self.snapshot(|session| async move { read::objects(&session).await })
    }

    fn object(&self, key: &ObjectKey) -> Answer<'_, Option<ObjectRecord>> {
        let sql = format!(
            "SELECT {OBJECT} FROM objects WHERE kind = $1 AND namespace = $2 AND name = $3"
        );
        let statement = Statement::new(sql)
            .with(key.kind.clone())
            .with(key.namespace.clone())
            .with(key.name.clone());
        self.one(statement, records::object)
    }

    fn states(&self, since: Revision, limit: usize) -> Answer<'_, Vec<StateChange>> {
        self.snapshot(move |session| async move { read::states(&session, since, limit).await })
    }

    fn states_horizon(&self, newest: usize) -> Answer<'_, Revision> {
        let horizon = self.number(read::states_horizon(newest), "horizon");
        Box::pin(async { Ok(Revision(horizon.await?)) })
    }
}

fn of_issuer(sql: impl Into<String>, issuer: &IssuerId) -> Statement<'static> {
    Statement::new(sql).with(issuer.as_str().to_owned())
}
