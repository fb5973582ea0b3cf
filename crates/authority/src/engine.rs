//! The authority: what it is made of, how it starts, what it answers.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use countersign_pki::{Crl, Serial, UnixTime, verify};
use countersign_policy::SignerName;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use crate::audit::sealing::LastSeen;
use crate::audit::{Audit, AuditFilter, AuditOrder, AuditQuery};
use crate::authorisation::actor::{NoRoles, Roles};
use crate::clock::{Clock, Entropy};
use crate::evidence::access::{AccessReviews, NoReviews};
use crate::evidence::local::{LocalEvidence, NoLocalEvidence};
use crate::faults::EngineError;
use crate::inventory::Inventory;
use crate::issuer::keystore::{KeyStore, SignFault, Signature};
use crate::issuer::per_issuer::PerIssuer;
use crate::issuer::signer::Signer;
use crate::issuer::{Issuer, IssuerId, Issuers, Serials};
use crate::issuing::recovery::Patience;
use crate::issuing::{RecentCertificates, commit_broken};
use crate::ledger::Ledger;
use crate::ledger::revocation::Revocations;
use crate::model::{CrlScope, Owner, RequestId, Revision};
use crate::objects::Objects;
use crate::request::Requests;
use crate::request::claims::Claims;
use crate::request::denials::Repeats;
use crate::request::room::Waiting;
use crate::rules::Rules;
use crate::store::{Change, CommitFault, Committed, Store, StoreFault, Tally, Write};
use crate::telemetry::{Ended, Telemetry, Unobserved};
use crate::token::Tokens;

/// The engine as it is put together: it starts, it takes its rules, and it hands out what others work with, a handle per
/// domain. Cheap to clone, like its handles: every clone is the same authority.
#[derive(Clone)]
pub struct Authority {
    pub(crate) core: Arc<Core>,
    /// Requests.
    pub requests: Requests,
    /// Certificates.
    pub ledger: Ledger,
    /// Tokens.
    pub tokens: Tokens,
    /// Machine records and build windows.
    pub inventory: Inventory,
    /// The audit log.
    pub audit: Audit,
    /// What doors keep beside requests.
    pub objects: Objects,
    /// Issuers.
    pub issuers: Issuers,
}

/// What an authority is made of.
pub struct AuthorityConfig {
    /// Where it keeps what it acknowledged.
    pub store: Arc<dyn Store>,
    /// Where its keys are.
    pub keys: Arc<dyn KeyStore>,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
    /// Its randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Its issuers.
    pub issuers: Vec<Issuer>,
    /// What requests are judged by; each signer names one of the issuers.
    pub rules: Rules,
    /// Its limits.
    pub limits: Limits,
}

/// Durations and amounts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long an intent belongs to its owner alone.
    pub lease_seconds: u64,
    /// One of so many signatures of an in-process EC or Ed25519 key is verified before release; 1: all.
    pub verify_one_in: u64,
    /// How long a CRL may be relied on.
    pub crl_lifetime_seconds: u64,
    /// A CRL older than this is made anew.
    pub crl_refresh_seconds: u64,
    /// How many requests from one address may wait for a person; 0: any number.
    pub pending_per_source: usize,
    /// How many bytes the requests that wait may take, and a tenth of them those from one address; 0: any number.
    pub pending_bytes: u64,
}

impl Limits {
    /// What fits most sites. Some clients never refresh a CRL that they have, so it is long-lived; it is made anew daily all
    /// the same.
    pub const STANDARD: Self = Self {
        lease_seconds: 30,
        verify_one_in: 256,
        crl_lifetime_seconds: 5 * 365 * 86_400,
        crl_refresh_seconds: 86_400,
        pending_per_source: 10_000,
        pending_bytes: 512 * 1024 * 1024,
    };
}

pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keys: Arc<dyn KeyStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// Each may be replaced by one with another key and certificate at any time.
    pub(crate) issuers: PerIssuer<ArcSwap<Issuer>>,
    pub(crate) rules: ArcSwap<Rules>,
    pub(crate) limits: Limits,
    pub(crate) claims: Claims,
    pub(crate) denials: Repeats,
    pub(crate) replacements: Repeats,
    pub(crate) waiting: Waiting,
    /// Who reads files and runs programs.
    pub(crate) local: ArcSwap<Arc<dyn LocalEvidence>>,
    /// Who reviews access.
    pub(crate) access: ArcSwap<Arc<dyn AccessReviews>>,
    pub(crate) access_news: Notify,
    /// Who knows the roles that come with a certificate.
    pub(crate) roles: ArcSwap<Arc<dyn Roles>>,
    pub(crate) telemetry: Arc<dyn Telemetry>,
    pub(crate) owner: Owner,
    pub(crate) revocations: PerIssuer<Revocations>,
    pub(crate) patience: Mutex<BTreeMap<IssuerId, Patience>>,
    pub(crate) recent: RecentCertificates,
    pub(crate) in_flight: Mutex<HashSet<(IssuerId, Serial)>>,
    /// The next serial of issuers whose serials are counted.
    pub(crate) serials: PerIssuer<AtomicU64>,
    signatures: AtomicU64,
    pub(crate) sealed: LastSeen,
    pub(crate) reconciling: tokio::sync::Mutex<()>,
    /// Counts requests, so that those of one second keep their order.
    sequence: AtomicU32,
    /// The place of the waiting request that was judged again last.
    pub(crate) reconsidered: AtomicU64,
    /// The latest time that was seen.
    pub(crate) latest: AtomicI64,
}

impl Authority {
    /// Loads revocations, publishes CRLs that lack something, and finishes or voids what an earlier
    /// process left between intent and record. When this returns, the authority may serve.
    pub async fn start(config: AuthorityConfig) -> Result<Self, EngineError> {
        Self::start_observed(config, Arc::new(Unobserved)).await
    }

    /// The same, with somebody who counts what happens.
    pub async fn start_observed(
        config: AuthorityConfig,
        telemetry: Arc<dyn Telemetry>,
    ) -> Result<Self, EngineError> {
        let mut id = [0u8; 8];
        config.entropy.fill(&mut id)?;
        let revocations = config
            .issuers
            .iter()
            .map(|i| (i.id().clone(), Revocations::default()))
            .collect();
        let mut serials = BTreeMap::new();
        for issuer in &config.issuers {
            if let Some(next) = counter(&*config.store, issuer).await? {
                serials.insert(issuer.id().clone(), AtomicU64::new(next));
            }
        }
        let core = Arc::new(Core {
            store: config.store,
            keys: config.keys,
            clock: config.clock,
            entropy: config.entropy,
            issuers: config
                .issuers
                .into_iter()
                .map(|i| (i.id().clone(), ArcSwap::from_pointee(i)))
                .collect(),
            rules: ArcSwap::from_pointee(config.rules),
            limits: config.limits,
            claims: Claims::default(),
            denials: Repeats::of_denials(),
            replacements: Repeats::of_replacements(),
            waiting: Waiting::default(),
            local: ArcSwap::from_pointee(Arc::new(NoLocalEvidence)),
            access: ArcSwap::from_pointee(Arc::new(NoReviews)),
            access_news: Notify::new(),
            roles: ArcSwap::from_pointee(Arc::new(NoRoles)),
            telemetry,
            owner: Owner(format!("{:016x}", u64::from_be_bytes(id))),
            revocations,
            patience: Mutex::new(BTreeMap::new()),
            recent: RecentCertificates::default(),
            in_flight: Mutex::new(HashSet::new()),
            serials: serials.into_iter().collect(),
            signatures: AtomicU64::new(0),
            sealed: LastSeen::default(),
            reconciling: tokio::sync::Mutex::default(),
            sequence: AtomicU32::new(0),
            reconsidered: AtomicU64::new(0),
            latest: AtomicI64::new(i64::MIN),
        });
        core.load_revocations().await?;
        core.remember_time().await?;
        let authority = Self::of(&core);
        // What cannot be finished now is tried again later; it is no reason not to serve the rest.
        if let Err(fault) = authority.recover().await {
            warn!(%fault, "not everything that was begun could be completed");
        }
        Ok(authority)
    }

    fn of(core: &Arc<Core>) -> Self {
        let core = || Arc::clone(core);
        Self {
            core: core(),
            requests: Requests { core: core() },
            ledger: Ledger { core: core() },
            tokens: Tokens { core: core() },
            inventory: Inventory { core: core() },
            audit: Audit { core: core() },
            objects: Objects { core: core() },
            issuers: Issuers { core: core() },
        }
    }

    /// What is in force.
    pub fn rules(&self) -> Arc<Rules> {
        self.core.rules.load_full()
    }

    /// Puts other rules in force at once, for what is judged and drafted from now on. A request that is being judged is
    /// judged anew before it is signed.
    pub fn set_rules(&self, rules: Rules) {
        self.core.rules.store(Arc::new(rules));
    }

    /// Changes who reads files and runs programs from now on; those that run already end as they began.
    pub fn set_local_evidence(&self, local: Arc<dyn LocalEvidence>) {
        self.core.local.store(Arc::new(local));
    }

    /// The authority's time.
    pub fn now(&self) -> UnixTime {
        self.core.clock.now()
    }

    /// Random bytes, for names that a door makes up.
    pub fn random(&self, bytes: &mut [u8]) -> Result<(), EngineError> {
        Ok(self.core.entropy.fill(bytes)?)
    }

    /// Figures for monitoring: what waits, and which certificates end within so many seconds.
    pub async fn tally(&self, seconds: u64) -> Result<Tally, StoreFault> {
        let now = self.now();
        self.core.store.tally(now, now.plus_seconds(seconds)).await
    }

    /// The revision of the last commit.
    pub fn revision(&self) -> Revision {
        *self.core.store.revisions().borrow()
    }

    /// Wakes its receivers on each commit.
    pub fn revisions(&self) -> tokio::sync::watch::Receiver<Revision> {
        self.core.store.revisions()
    }
}

impl Core {
    pub(crate) fn signer(&self, name: &SignerName) -> Option<Arc<Signer>> {
        self.rules.load().signer(name)
    }

    pub(crate) fn issuer(&self, id: &IssuerId) -> Result<Arc<Issuer>, EngineError> {
        let unknown = || SignFault::UnknownIssuer { issuer: id.clone() };
        let issuer = self.issuers.get(id).ok_or_else(unknown)?;
        Ok(issuer.load_full())
    }

    /// Takes the latest time of the last audit entries as seen: a clock that went back while nobody looked has gone back
    /// all the same.
    async fn remember_time(&self) -> Result<(), EngineError> {
        let newest = AuditQuery {
            filter: AuditFilter::default(),
            order: AuditOrder::NewestFirst,
            after: None,
            limit: REMEMBERED,
            look_at: REMEMBERED,
        };
        let page = self.store.audit_page(newest).await?;
        for record in &page.records {
            if let Some(entry) = record.entry() {
                self.saw_time(entry.at);
            }
        }
        Ok(())
    }

    /// Commits a change whose audit entries say which process made it. When that was is remembered, for a clock that goes
    /// back.
    pub(crate) fn commit(
        &self,
        mut change: Change,
    ) -> BoxFuture<'_, Result<Committed, CommitFault>> {
        self.saw_time(self.clock.now());
        for entry in &mut change.audit {
            entry.stamp(&self.owner);
        }
        if !self.recent.forget(&change) {
            return self.store.commit(change);
        }
        Box::pin(async move {
            let committed = self.store.commit(change).await;
            self.recent.forget_all();
            committed
        })
    }

    pub(crate) fn new_request_id(&self, now: UnixTime) -> Result<RequestId, EngineError> {
        let mut random = [0u8; 6];
        self.entropy.fill(&mut random)?;
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        Ok(RequestId::in_sequence(now, sequence, random))
    }

    /// A serial that was not given out before: the next one where serials are counted, else a random one.
    pub(crate) fn new_serial(&self, issuer: &IssuerId) -> Result<Serial, EngineError> {
        if let Some(next) = self.serials.get(issuer) {
            return Ok(Serial::try_from(next.fetch_add(1, Ordering::Relaxed))?);
        }
        let mut random = [0u8; 11];
        self.entropy.fill(&mut random)?;
        Ok(serial_after(self.clock.now(), random))
    }

    /// A signature by the key of the issuer's certificate, verified before release where that is due.
    pub(crate) async fn sign(
        &self,
        issuer: &Issuer,
        message: &[u8],
    ) -> Result<Signature, EngineError> {
        let id = issuer.id();
        let spki = issuer.certificate().spki_der();
        let begun = Instant::now();
        let signed = self.keys.sign(id, spki, message.to_vec()).await;
        let ended = match signed {
            Ok(_) => Ended::Well,
            Err(_) => Ended::Failed,
        };
        self.telemetry.signed(id, ended, begun.elapsed());
        let signature = signed?;
        let count = self.signatures.fetch_add(1, Ordering::Relaxed);
        if self.keys.verify_each(id) || count.is_multiple_of(self.limits.verify_one_in.max(1)) {
            verify(issuer.algorithm(), spki, message, &signature.0)
                .map_err(|_| SignFault::Unverifiable { issuer: id.clone() })?;
        }
        Ok(signature)
    }
}

/// A serial of 16 bytes: 88 random bits behind the time, so that serials of one time stand together in the ledger's index
/// and a long ledger is no slower to write than a short one.
fn serial_after(now: UnixTime, random: [u8; 11]) -> Serial {
    let seconds = u32::try_from(now.0).unwrap_or(u32::MAX).to_be_bytes();
    let [t0, t1, t2, t3] = seconds;
    let [r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10] = random;
    Serial::random_from([
        // Neither zero nor negative in DER, so that every serial is as long.
        0x40, t0, t1, t2, t3, r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10,
    ])
}

/// The next serial of an issuer whose serials are counted; `None`: they are random.
pub(crate) async fn counter(
    store: &dyn Store,
    issuer: &Issuer,
) -> Result<Option<u64>, EngineError> {
    match issuer.serials() {
        Serials::Random => Ok(None),
        Serials::AsRecorded => Ok(store.next_serial(issuer.id()).await?),
        Serials::Sequential => {
            if let Some(next) = store.next_serial(issuer.id()).await? {
                return Ok(Some(next));
            }
            let highest = highest_serial(store, issuer).await?;
            let count = Write::CountSerials {
                issuer: issuer.id().clone(),
                next: highest.saturating_add(1),
            };
            let change = Change {
                writes: vec![count],
                ..Change::default()
            };
            store.commit(change).await.map_err(commit_broken)?;
            Ok(store.next_serial(issuer.id()).await?)
        }
    }
}

/// The highest serial that a counter of the issuer must pass: of what it has signed here or elsewhere, as far as is known,
/// its own certificate included if it has signed that.
async fn highest_serial(store: &dyn Store, issuer: &Issuer) -> Result<u64, EngineError> {
    let in_ledger = store.highest_serial(issuer.id()).await?;
    let record = store.crl(issuer.id(), CrlScope::Full).await?;
    let list = record.and_then(|record| Crl::parse(&record.der).ok());
    let on_list = list.iter().flat_map(Crl::serials);
    let is_root = issuer.ancestors().is_empty();
    let own = is_root.then(|| issuer.certificate().serial());
    let elsewhere = on_list.chain(own).filter_map(|serial| serial.to_u64());
    // The store's counter is a signed number; what is beyond was not counted.
    let limit = u64::MAX >> 1;
    let elsewhere = elsewhere.filter(|serial| *serial < limit);
    Ok(elsewhere.chain(in_ledger).max().unwrap_or(0))
}

/// How many audit entries a start looks back.
const REMEMBERED: usize = 1000;
