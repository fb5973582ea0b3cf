//! A store and keys with a wire around every commit and every signature. The usual wire kills the process at the n-th step.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::sync::mpsc;

use countersign_authority::store::{
    AgeFilter, Amount, Answer, AuditReads, Change, CommitFault, Committed, InventoryReads,
    IssuerReads, LedgerReads, LiveRequest, MachineFilter, ObjectReads, Past, Rejection,
    RejectionFilter, RequestFilter, RequestReads, Store, StoreFault, Tally, TokenReads,
};
use countersign_authority::{
    AncestorCrl, AuditEntry, AuditPage, AuditQuery, BootstrapId, BootstrapToken, CrlRecord,
    CrlScope, Door, FoundToken, Intent, IssuerId, KeyStore, LedgerEntry, ListedCertificate,
    ListedToken, MachineRecord, ObjectKey, ObjectRecord, PolicyVersion, RepeatedDenials, RequestId,
    RequestRecord, Revision, Revocation, Seal, SealHead, SignFault, Signature, StateChange,
    TokenFilter, TokenId, TokenRecord, TokenUseRecord,
};
use countersign_pki::{Fingerprint, Serial, SignatureAlgorithm, UnixTime};
use countersign_policy::BuildWindow;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// What may be kept from happening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Commit,
    Sign,
}

/// What is done around every commit and every signature.
pub(crate) trait Wire: Send + Sync {
    /// Whether a commit is a step.
    fn stops_at(&self, _: &Change) -> bool {
        true
    }

    /// Before it. `false`: it does not happen; store or key has failed.
    fn before(&self, step: Step) -> BoxFuture<'_, bool>;

    /// After it. `false`: it happened, but nobody hears of it.
    fn after(&self, step: Step) -> bool;

    /// Whether no other process may be at work on the same store.
    fn is_alone(&self) -> bool {
        true
    }
}

/// Counts steps down and aborts the process at zero. Negative: never.
#[derive(Clone)]
pub(crate) struct Fuse(Arc<AtomicI64>);

impl Fuse {
    pub(crate) fn unlit() -> Self {
        Self(Arc::new(AtomicI64::new(-1)))
    }

    pub(crate) fn light(&self, steps: i64) {
        self.0.store(steps, Ordering::SeqCst);
    }

    fn step(&self) {
        if self.0.load(Ordering::SeqCst) >= 0 && self.0.fetch_sub(1, Ordering::SeqCst) == 0 {
            std::process::abort();
        }
    }
}

impl Wire for Fuse {
    fn before(&self, _: Step) -> BoxFuture<'_, bool> {
        self.step();
        Box::pin(std::future::ready(true))
    }

    fn after(&self, _: Step) -> bool {
        self.step();
        true
    }
}

/// Steps before and after every signature.
pub(crate) struct TripKeys<K, W = Fuse>(pub(crate) K, pub(crate) W);

impl<K: KeyStore, W: Wire> KeyStore for TripKeys<K, W> {
    fn algorithm(&self, issuer: &IssuerId) -> Result<SignatureAlgorithm, SignFault> {
        self.0.algorithm(issuer)
    }

    fn public_key(&self, issuer: &IssuerId) -> Result<Vec<u8>, SignFault> {
        self.0.public_key(issuer)
    }

    fn sign(
        &self,
        issuer: &IssuerId,
        public_key: &[u8],
        message: Vec<u8>,
    ) -> BoxFuture<'_, Result<Signature, SignFault>> {
        let (issuer, public_key) = (issuer.clone(), public_key.to_vec());
        Box::pin(async move {
            if !self.1.before(Step::Sign).await {
                return Err(SignFault::Failed { issuer });
            }
            let signature = self.0.sign(&issuer, &public_key, message).await;
            match self.1.after(Step::Sign) {
                true => signature,
                false => Err(SignFault::Failed { issuer }),
            }
        })
    }

    fn verify_each(&self, issuer: &IssuerId) -> bool {
        self.0.verify_each(issuer)
    }
}

/// Steps before and after every commit.
pub(crate) struct TripStore<S, W = Fuse>(pub(crate) Arc<S>, pub(crate) W);

impl<S: Store, W: Wire> Store for TripStore<S, W> {
    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Committed, CommitFault>> {
        Box::pin(async move {
            if self.1.stops_at(&change) && !self.1.before(Step::Commit).await {
                return Err(StoreFault::Stopped.into());
            }
            let committed = self.0.commit(change).await;
            match self.1.after(Step::Commit) {
                true => committed,
                false => Err(StoreFault::Stopped.into()),
            }
        })
    }

    fn revisions(&self) -> watch::Receiver<Revision> {
        self.0.revisions()
    }

    fn tally(&self, now: UnixTime, soon: UnixTime) -> Answer<'_, Tally> {
        self.0.tally(now, soon)
    }

    fn epoch(&self) -> Answer<'_, u64> {
        self.0.epoch()
    }

    fn is_exclusive(&self) -> bool {
        self.0.is_exclusive() && self.1.is_alone()
    }
}

impl<S: Store, W: Wire> RequestReads for TripStore<S, W> {
    fn request(&self, id: RequestId) -> Answer<'_, Option<RequestRecord>> {
        self.0.request(id)
    }

    fn request_at(&self, door: &Door, key: &str, past: Past) -> Answer<'_, Option<RequestRecord>> {
        self.0.request_at(door, key, past)
    }

    fn requests(&self, filter: RequestFilter) -> Answer<'_, Vec<RequestRecord>> {
        self.0.requests(filter)
    }

    fn requests_before(&self, filter: AgeFilter) -> Answer<'_, Vec<RequestRecord>> {
        self.0.requests_before(filter)
    }

    fn rejections(&self, filter: RejectionFilter) -> Answer<'_, Vec<Rejection>> {
        self.0.rejections(filter)
    }

    fn worth_asking_again(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Answer<'_, Vec<(u64, RequestRecord)>> {
        self.0.worth_asking_again(after, limit)
    }

    fn newest_policy(&self) -> Answer<'_, Option<PolicyVersion>> {
        self.0.newest_policy()
    }

    fn policy_version(&self, generation: u64) -> Answer<'_, Option<PolicyVersion>> {
        self.0.policy_version(generation)
    }

    fn is_allowed(
        &self,
        webhook: &str,
        name: &str,
        key_fingerprint: &Fingerprint,
        now: UnixTime,
    ) -> Answer<'_, bool> {
        self.0.is_allowed(webhook, name, key_fingerprint, now)
    }

    fn pending_bytes(&self) -> Answer<'_, u64> {
        self.0.pending_bytes()
    }

    fn trimmable(&self, thefts_since: UnixTime) -> Answer<'_, Amount> {
        self.0.trimmable(thefts_since)
    }

    fn repeated_denials(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<RepeatedDenials>> {
        self.0.repeated_denials(before, limit)
    }

    fn pending_from(&self, source: IpAddr, at_most: usize) -> Answer<'_, Amount> {
        self.0.pending_from(source, at_most)
    }

    fn live_requests(
        &self,
        door: &Door,
        pages: mpsc::Sender<Vec<LiveRequest>>,
    ) -> Answer<'_, Revision> {
        self.0.live_requests(door, pages)
    }
}

impl<S: Store, W: Wire> LedgerReads for TripStore<S, W> {
    fn certificate(&self, issuer: &IssuerId, serial: &Serial) -> Answer<'_, Option<LedgerEntry>> {
        self.0.certificate(issuer, serial)
    }

    fn newest_certificate(&self, issuer: &IssuerId, name: &str) -> Answer<'_, Option<LedgerEntry>> {
        self.0.newest_certificate(issuer, name)
    }

    fn certificates_of(
        &self,
        issuer: &IssuerId,
        name: &str,
        alive_at: UnixTime,
    ) -> Answer<'_, Vec<LedgerEntry>> {
        self.0.certificates_of(issuer, name, alive_at)
    }

    fn newest_certificates(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<LedgerEntry>> {
        self.0.newest_certificates(issuer, after, limit)
    }

    fn listed_certificates(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<ListedCertificate>> {
        self.0.listed_certificates(issuer, after, limit)
    }

    fn ledger(
        &self,
        issuer: &IssuerId,
        after: Option<u64>,
        limit: usize,
    ) -> Answer<'_, Vec<(u64, LedgerEntry)>> {
        self.0.ledger(issuer, after, limit)
    }

    fn open_intents(&self) -> Answer<'_, Vec<Intent>> {
        self.0.open_intents()
    }
}

impl<S: Store, W: Wire> IssuerReads for TripStore<S, W> {
    fn revocations(
        &self,
        issuer: &IssuerId,
        alive_at: UnixTime,
    ) -> Answer<'_, (Revision, Vec<Revocation>)> {
        self.0.revocations(issuer, alive_at)
    }

    fn next_serial(&self, issuer: &IssuerId) -> Answer<'_, Option<u64>> {
        self.0.next_serial(issuer)
    }

    fn highest_serial(&self, issuer: &IssuerId) -> Answer<'_, Option<u64>> {
        self.0.highest_serial(issuer)
    }

    fn crl(&self, issuer: &IssuerId, scope: CrlScope) -> Answer<'_, Option<CrlRecord>> {
        self.0.crl(issuer, scope)
    }

    fn ancestor_crls(&self, issuer: &IssuerId) -> Answer<'_, Vec<AncestorCrl>> {
        self.0.ancestor_crls(issuer)
    }
}

impl<S: Store, W: Wire> TokenReads for TripStore<S, W> {
    fn token(
        &self,
        id: &TokenId,
        certname: &str,
        key_fingerprint: &Fingerprint,
    ) -> Answer<'_, Option<FoundToken>> {
        self.0.token(id, certname, key_fingerprint)
    }

    fn listed_token(&self, id: &TokenId, now: UnixTime) -> Answer<'_, Option<ListedToken>> {
        self.0.listed_token(id, now)
    }

    fn tokens(&self, filter: TokenFilter) -> Answer<'_, Vec<ListedToken>> {
        self.0.tokens(filter)
    }

    fn token_uses(&self, id: &TokenId, limit: usize) -> Answer<'_, Vec<TokenUseRecord>> {
        self.0.token_uses(id, limit)
    }

    fn active_tokens_of(&self, certname: &str, now: UnixTime) -> Answer<'_, Vec<TokenRecord>> {
        self.0.active_tokens_of(certname, now)
    }

    fn token_ordered(
        &self,
        created_by: &str,
        idempotency_key: &str,
    ) -> Answer<'_, Option<TokenId>> {
        self.0.token_ordered(created_by, idempotency_key)
    }

    fn active_tokens(&self, now: UnixTime, at_most: usize) -> Answer<'_, usize> {
        self.0.active_tokens(now, at_most)
    }

    fn tokens_over(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<TokenId>> {
        self.0.tokens_over(before, limit)
    }

    fn bootstrap_token(&self, id: &BootstrapId) -> Answer<'_, Option<BootstrapToken>> {
        self.0.bootstrap_token(id)
    }

    fn bootstrap_tokens(
        &self,
        after: Option<BootstrapId>,
        limit: usize,
    ) -> Answer<'_, Vec<BootstrapToken>> {
        self.0.bootstrap_tokens(after, limit)
    }

    fn bootstrap_tokens_over(
        &self,
        before: UnixTime,
        limit: usize,
    ) -> Answer<'_, Vec<BootstrapId>> {
        self.0.bootstrap_tokens_over(before, limit)
    }
}

impl<S: Store, W: Wire> InventoryReads for TripStore<S, W> {
    fn machine(&self, name: &str) -> Answer<'_, Option<MachineRecord>> {
        self.0.machine(name)
    }

    fn machines(&self, filter: MachineFilter) -> Answer<'_, Vec<MachineRecord>> {
        self.0.machines(filter)
    }

    fn window(&self, certname: &str) -> Answer<'_, Option<BuildWindow>> {
        self.0.window(certname)
    }

    fn windows(&self, after: Option<String>, limit: usize) -> Answer<'_, Vec<BuildWindow>> {
        self.0.windows(after, limit)
    }

    fn windows_closed(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<BuildWindow>> {
        self.0.windows_closed(before, limit)
    }
}

impl<S: Store, W: Wire> AuditReads for TripStore<S, W> {
    fn audit(&self, since: Revision, limit: usize) -> Answer<'_, Vec<(Revision, AuditEntry)>> {
        self.0.audit(since, limit)
    }

    fn audit_page(&self, query: AuditQuery) -> Answer<'_, AuditPage> {
        self.0.audit_page(query)
    }

    fn seals(&self, after: u64, limit: usize) -> Answer<'_, Vec<Seal>> {
        self.0.seals(after, limit)
    }

    fn last_seal(&self) -> Answer<'_, Option<SealHead>> {
        self.0.last_seal()
    }
}

impl<S: Store, W: Wire> ObjectReads for TripStore<S, W> {
    fn objects(&self) -> Answer<'_, (Revision, Vec<ObjectRecord>)> {
        self.0.objects()
    }

    fn object(&self, key: &ObjectKey) -> Answer<'_, Option<ObjectRecord>> {
        self.0.object(key)
    }

    fn states(&self, since: Revision, limit: usize) -> Answer<'_, Vec<StateChange>> {
        self.0.states(since, limit)
    }

    fn states_horizon(&self, newest: usize) -> Answer<'_, Revision> {
        self.0.states_horizon(newest)
    }
}
