//! A store that stops answering when a test says so.

use std::net::IpAddr;
use std::sync::Mutex;
use tokio::sync::mpsc;

use countersign_authority::store::{
    AgeFilter, Amount, Answer, AuditReads, Change, CommitFault, Committed, InventoryReads,
    IssuerReads, LedgerReads, LiveRequest, MachineFilter, ObjectReads, Past, Rejection,
    RejectionFilter, RequestFilter, RequestReads, Store, StoreFault, Tally, TokenReads,
};
use countersign_authority::{
    AncestorCrl, AuditEntry, AuditPage, AuditQuery, BootstrapId, BootstrapToken, CrlRecord,
    CrlScope, Door, FoundToken, Intent, IssuerId, LedgerEntry, ListedCertificate, ListedToken,
    MachineRecord, ObjectKey, ObjectRecord, PolicyVersion, RepeatedDenials, RequestId,
    RequestRecord, Revision, Revocation, Seal, SealHead, StateChange, TokenFilter, TokenId,
    TokenRecord, TokenUseRecord,
};
use countersign_pki::{Fingerprint, Serial, UnixTime};
use countersign_policy::BuildWindow;
use countersign_store::SqliteStore;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// A store with a switch.
pub(crate) struct Switched {
    store: SqliteStore,
    fault: Mutex<Option<fn() -> StoreFault>>,
    /// Which reads find the store busy, every third for example, and how many reads there were; 0: none does.
    busy: Mutex<(usize, usize)>,
}

impl Switched {
    pub(crate) fn new(store: SqliteStore) -> Self {
        Self {
            store,
            fault: Mutex::new(None),
            busy: Mutex::new((0, 0)),
        }
    }

    /// From now on one read of so many finds the store busy.
    pub(crate) fn refuse_every(&self, nth: usize) {
        *self.busy.lock().unwrap() = (nth, 0);
    }

    /// From now on every call gets this fault; `None`: the truth again.
    pub(crate) fn set(&self, fault: Option<fn() -> StoreFault>) {
        *self.fault.lock().unwrap() = fault;
    }

    fn or<'a, T: Send + 'a>(&self, answer: Answer<'a, T>) -> Answer<'a, T> {
        let (nth, count) = &mut *self.busy.lock().unwrap();
        *count += 1;
        if *nth > 0 && count.is_multiple_of(*nth) {
            return Box::pin(async { Err(StoreFault::Overloaded) });
        }
        match *self.fault.lock().unwrap() {
            None => answer,
            Some(fault) => Box::pin(async move { Err(fault()) }),
        }
    }
}

impl Store for Switched {
    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Committed, CommitFault>> {
        match *self.fault.lock().unwrap() {
            None => self.store.commit(change),
            Some(fault) => Box::pin(async move { Err(CommitFault::Store(fault())) }),
        }
    }

    fn revisions(&self) -> watch::Receiver<Revision> {
        self.store.revisions()
    }

    fn tally(&self, now: UnixTime, soon: UnixTime) -> Answer<'_, Tally> {
        self.or(self.store.tally(now, soon))
    }

    fn epoch(&self) -> Answer<'_, u64> {
        self.or(self.store.epoch())
    }

    fn is_exclusive(&self) -> bool {
        self.store.is_exclusive()
    }
}

impl RequestReads for Switched {
    fn request(&self, id: RequestId) -> Answer<'_, Option<RequestRecord>> {
        self.or(self.store.request(id))
    }

    fn request_at(&self, door: &Door, key: &str, past: Past) -> Answer<'_, Option<RequestRecord>> {
        self.or(self.store.request_at(door, key, past))
    }

    fn requests(&self, filter: RequestFilter) -> Answer<'_, Vec<RequestRecord>> {
        self.or(self.store.requests(filter))
    }

    fn requests_before(&self, filter: AgeFilter) -> Answer<'_, Vec<RequestRecord>> {
        self.or(self.store.requests_before(filter))
    }

    fn rejections(&self, filter: RejectionFilter) -> Answer<'_, Vec<Rejection>> {
        self.or(self.store.rejections(filter))
    }

    fn worth_asking_again(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Answer<'_, Vec<(u64, RequestRecord)>> {
        self.or(self.store.worth_asking_again(after, limit))
    }

    fn newest_policy(&self) -> Answer<'_, Option<PolicyVersion>> {
        self.or(self.store.newest_policy())
    }

    fn policy_version(&self, generation: u64) -> Answer<'_, Option<PolicyVersion>> {
        self.or(self.store.policy_version(generation))
    }

    fn is_allowed(
        &self,
        webhook: &str,
        name: &str,
        key_fingerprint: &Fingerprint,
        now: UnixTime,
    ) -> Answer<'_, bool> {
        self.or(self.store.is_allowed(webhook, name, key_fingerprint, now))
    }

    fn pending_bytes(&self) -> Answer<'_, u64> {
        self.or(self.store.pending_bytes())
    }

    fn trimmable(&self, thefts_since: UnixTime) -> Answer<'_, Amount> {
        self.or(self.store.trimmable(thefts_since))
    }

    fn repeated_denials(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<RepeatedDenials>> {
        self.or(self.store.repeated_denials(before, limit))
    }

    fn pending_from(&self, source: IpAddr, at_most: usize) -> Answer<'_, Amount> {
        self.or(self.store.pending_from(source, at_most))
    }

    fn live_requests(
        &self,
        door: &Door,
        pages: mpsc::Sender<Vec<LiveRequest>>,
    ) -> Answer<'_, Revision> {
        self.or(self.store.live_requests(door, pages))
    }
}

impl LedgerReads for Switched {
    fn certificate(&self, issuer: &IssuerId, serial: &Serial) -> Answer<'_, Option<LedgerEntry>> {
        self.or(self.store.certificate(issuer, serial))
    }

    fn newest_certificate(&self, issuer: &IssuerId, name: &str) -> Answer<'_, Option<LedgerEntry>> {
        self.or(self.store.newest_certificate(issuer, name))
    }

    fn certificates_of(
        &self,
        issuer: &IssuerId,
        name: &str,
        alive_at: UnixTime,
    ) -> Answer<'_, Vec<LedgerEntry>> {
        self.or(self.store.certificates_of(issuer, name, alive_at))
    }

    fn newest_certificates(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<LedgerEntry>> {
        self.or(self.store.newest_certificates(issuer, after, limit))
    }

    fn listed_certificates(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<ListedCertificate>> {
        self.or(self.store.listed_certificates(issuer, after, limit))
    }

    fn ledger(
        &self,
        issuer: &IssuerId,
        after: Option<u64>,
        limit: usize,
    ) -> Answer<'_, Vec<(u64, LedgerEntry)>> {
        self.or(self.store.ledger(issuer, after, limit))
    }

    fn open_intents(&self) -> Answer<'_, Vec<Intent>> {
        self.or(self.store.open_intents())
    }
}

impl IssuerReads for Switched {
    fn revocations(
        &self,
        issuer: &IssuerId,
        alive_at: UnixTime,
    ) -> Answer<'_, (Revision, Vec<Revocation>)> {
        self.or(self.store.revocations(issuer, alive_at))
    }

    fn next_serial(&self, issuer: &IssuerId) -> Answer<'_, Option<u64>> {
        self.or(self.store.next_serial(issuer))
    }

    fn highest_serial(&self, issuer: &IssuerId) -> Answer<'_, Option<u64>> {
        self.or(self.store.highest_serial(issuer))
    }

    fn crl(&self, issuer: &IssuerId, scope: CrlScope) -> Answer<'_, Option<CrlRecord>> {
        self.or(self.store.crl(issuer, scope))
    }

    fn ancestor_crls(&self, issuer: &IssuerId) -> Answer<'_, Vec<AncestorCrl>> {
        self.or(self.store.ancestor_crls(issuer))
    }
}

impl TokenReads for Switched {
    fn token(
        &self,
        id: &TokenId,
        certname: &str,
        key_fingerprint: &Fingerprint,
    ) -> Answer<'_, Option<FoundToken>> {
        self.or(self.store.token(id, certname, key_fingerprint))
    }

    fn listed_token(&self, id: &TokenId, now: UnixTime) -> Answer<'_, Option<ListedToken>> {
        self.or(self.store.listed_token(id, now))
    }

    fn tokens(&self, filter: TokenFilter) -> Answer<'_, Vec<ListedToken>> {
        self.or(self.store.tokens(filter))
    }

    fn token_uses(&self, id: &TokenId, limit: usize) -> Answer<'_, Vec<TokenUseRecord>> {
        self.or(self.store.token_uses(id, limit))
    }

    fn active_tokens_of(&self, certname: &str, now: UnixTime) -> Answer<'_, Vec<TokenRecord>> {
        self.or(self.store.active_tokens_of(certname, now))
    }

    fn token_ordered(
        &self,
        created_by: &str,
        idempotency_key: &str,
    ) -> Answer<'_, Option<TokenId>> {
        self.or(self.store.token_ordered(created_by, idempotency_key))
    }

    fn active_tokens(&self, now: UnixTime, at_most: usize) -> Answer<'_, usize> {
        self.or(self.store.active_tokens(now, at_most))
    }

    fn tokens_over(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<TokenId>> {
        self.or(self.store.tokens_over(before, limit))
    }

    fn bootstrap_token(&self, id: &BootstrapId) -> Answer<'_, Option<BootstrapToken>> {
        self.or(self.store.bootstrap_token(id))
    }

    fn bootstrap_tokens(
        &self,
        after: Option<BootstrapId>,
        limit: usize,
    ) -> Answer<'_, Vec<BootstrapToken>> {
        self.or(self.store.bootstrap_tokens(after, limit))
    }

    fn bootstrap_tokens_over(
        &self,
        before: UnixTime,
        limit: usize,
    ) -> Answer<'_, Vec<BootstrapId>> {
        self.or(self.store.bootstrap_tokens_over(before, limit))
    }
}

impl InventoryReads for Switched {
    fn machine(&self, name: &str) -> Answer<'_, Option<MachineRecord>> {
        self.or(self.store.machine(name))
    }

    fn machines(&self, filter: MachineFilter) -> Answer<'_, Vec<MachineRecord>> {
        self.or(self.store.machines(filter))
    }

    fn window(&self, certname: &str) -> Answer<'_, Option<BuildWindow>> {
        self.or(self.store.window(certname))
    }

    fn windows(&self, after: Option<String>, limit: usize) -> Answer<'_, Vec<BuildWindow>> {
        self.or(self.store.windows(after, limit))
    }

    fn windows_closed(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<BuildWindow>> {
        self.or(self.store.windows_closed(before, limit))
    }
}

impl AuditReads for Switched {
    fn audit(&self, since: Revision, limit: usize) -> Answer<'_, Vec<(Revision, AuditEntry)>> {
        self.or(self.store.audit(since, limit))
    }

    fn audit_page(&self, query: AuditQuery) -> Answer<'_, AuditPage> {
        self.or(self.store.audit_page(query))
    }

    fn seals(&self, after: u64, limit: usize) -> Answer<'_, Vec<Seal>> {
        self.or(self.store.seals(after, limit))
    }

    fn last_seal(&self) -> Answer<'_, Option<SealHead>> {
        self.or(self.store.last_seal())
    }
}

impl ObjectReads for Switched {
    fn objects(&self) -> Answer<'_, (Revision, Vec<ObjectRecord>)> {
        self.or(self.store.objects())
    }

    fn object(&self, key: &ObjectKey) -> Answer<'_, Option<ObjectRecord>> {
        self.or(self.store.object(key))
    }

    fn states(&self, since: Revision, limit: usize) -> Answer<'_, Vec<StateChange>> {
        self.or(self.store.states(since, limit))
    }

    fn states_horizon(&self, newest: usize) -> Answer<'_, Revision> {
        self.or(self.store.states_horizon(newest))
    }
}
