//! The authority: what it is made of, how it starts, what it answers.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use countersign_pki::{Crl, Serial, UnixTime, verify};
use countersign_policy::{Policy, SignerName};
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use crate::access::{AccessReviews, NoReviews};
use crate::audit::{AuditEntry, AuditFilter, AuditOrder, AuditQuery};
use crate::clock::{Clock, Entropy};
use crate::decider::{Deciders, NoDeciders};
use crate::evidence::{Executables, LocalEvidence};
use crate::faults::Broken;
use crate::issuance::Draft;
use crate::issuer::{Issuer, IssuerId, Serials};
use crate::keystore::{KeyStore, SignFault, Signature};
use crate::model::{CrlScope, Door, LedgerEntry, Owner, RequestId, RequestRecord, Revision};
use crate::profile::ProfileFault;
use crate::recovery::Patience;
use crate::revocation::Revocations;
use crate::signer::Signer;
use crate::signing::commit_broken;
use crate::store::{
    Change, Changed, CommitFault, Committed, Past, Rejection, RejectionFilter, RequestFilter,
    Store, StoreFault, Tally, Write,
};
use crate::telemetry::{Ended, Telemetry, Unobserved};
use crate::token::TokenSettings;

/// The engine. Cheap to clone: every clone is the same authority.
#[derive(Clone)]
pub struct Authority {
    pub(crate) core: Arc<Core>,
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
    /// Its signers; each names one of the issuers.
    pub signers: Vec<Signer>,
    /// Its policy.
    pub policy: Policy,
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
    /// How long a policy executable may take.
    pub executable_seconds: u64,
    /// How many of them run at once; the others wait, and their waiting counts.
    pub executables_at_once: usize,
    /// How many requests from one address may wait for a person; 0: any number.
    pub pending_per_source: usize,
}

impl Limits {
    /// What fits a Puppet fleet: agents of version 7 never refresh a CRL they have, so it is long-lived;
    /// it is made anew daily all the same.
    pub const STANDARD: Self = Self {
        lease_seconds: 30,
        verify_one_in: 256,
        crl_lifetime_seconds: 5 * 365 * 86_400,
        crl_refresh_seconds: 86_400,
        executable_seconds: 10,
        executables_at_once: 8,
        pending_per_source: 10_000,
    };
}

type Signers = BTreeMap<SignerName, Arc<Signer>>;

/// What a request is judged by. Replaced as a whole: nobody sees the policy of one configuration with the signers of
/// another.
pub(crate) struct Rules {
    pub(crate) policy: Arc<Policy>,
    signers: Arc<Signers>,
    /// Who asks the policy's webhooks.
    pub(crate) deciders: Arc<dyn Deciders>,
    /// How enrolment tokens are handled.
    pub(crate) tokens: Arc<TokenSettings>,
}

impl Rules {
    pub(crate) fn signer(&self, name: &SignerName) -> Option<Arc<Signer>> {
        self.signers.get(name).cloned()
    }
}

pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keys: Arc<dyn KeyStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// Each may be replaced by one with another key and certificate at any time.
    pub(crate) issuers: BTreeMap<IssuerId, ArcSwap<Issuer>>,
    pub(crate) rules: ArcSwap<Rules>,
    pub(crate) limits: Limits,
    pub(crate) evidence: LocalEvidence,
    /// Who reviews access.
    pub(crate) access: ArcSwap<Arc<dyn AccessReviews>>,
    pub(crate) access_news: Notify,
    pub(crate) telemetry: Arc<dyn Telemetry>,
    pub(crate) owner: Owner,
    pub(crate) revocations: BTreeMap<IssuerId, Revocations>,
    pub(crate) patience: Mutex<BTreeMap<IssuerId, Patience>>,
    in_flight: Mutex<HashSet<(IssuerId, Serial)>>,
    /// The next serial of issuers whose serials are counted.
    serials: BTreeMap<IssuerId, AtomicU64>,
    signatures: AtomicU64,
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
    pub async fn start(config: AuthorityConfig) -> Result<Self, Broken> {
        Self::start_observed(config, Arc::new(Unobserved)).await
    }

    /// The same, with somebody who counts what happens.
    pub async fn start_observed(
        config: AuthorityConfig,
        telemetry: Arc<dyn Telemetry>,
    ) -> Result<Self, Broken> {
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
            rules: ArcSwap::from_pointee(Rules {
                policy: Arc::new(config.policy),
                signers: Arc::new(by_name(config.signers)),
                deciders: Arc::new(NoDeciders),
                tokens: Arc::new(TokenSettings::standard()),
            }),
            limits: config.limits,
            evidence: LocalEvidence::new(Executables {
                seconds: config.limits.executable_seconds,
                at_once: config.limits.executables_at_once,
                ..Executables::STANDARD
            }),
            access: ArcSwap::from_pointee(Arc::new(NoReviews)),
            access_news: Notify::new(),
            telemetry,
            owner: Owner(format!("{:016x}", u64::from_be_bytes(id))),
            revocations,
            patience: Mutex::new(BTreeMap::new()),
            in_flight: Mutex::new(HashSet::new()),
            serials,
            signatures: AtomicU64::new(0),
            sequence: AtomicU32::new(0),
            reconsidered: AtomicU64::new(0),
            latest: AtomicI64::new(i64::MIN),
        });
        core.load_revocations().await?;
        core.remember_time().await?;
        let authority = Self { core };
        // What cannot be finished now is tried again later; it is no reason not to serve the rest.
        if let Err(fault) = authority.recover().await {
            warn!(%fault, "not everything that was begun could be completed");
        }
        Ok(authority)
    }

    /// An issuer by name, as it is now.
    pub fn issuer(&self, id: &IssuerId) -> Option<Arc<Issuer>> {
        self.core.issuers.get(id).map(ArcSwap::load_full)
    }

    /// Every issuer.
    pub fn issuers(&self) -> impl Iterator<Item = Arc<Issuer>> {
        self.core.issuers.values().map(ArcSwap::load_full)
    }

    /// A signer by name.
    pub fn signer(&self, name: &SignerName) -> Option<Arc<Signer>> {
        self.core.signer(name)
    }

    /// Puts another policy and other signers in force at once, for what is judged and drafted from now on. A request
    /// that is being judged is judged anew before it is signed.
    pub fn set_rules(&self, policy: Policy, signers: Vec<Signer>, deciders: Arc<dyn Deciders>) {
        let (policy, signers) = (Arc::new(policy), Arc::new(by_name(signers)));
        self.core.rules.rcu(|rules| Rules {
            policy: Arc::clone(&policy),
            signers: Arc::clone(&signers),
            deciders: Arc::clone(&deciders),
            tokens: Arc::clone(&rules.tokens),
        });
    }

    /// Handles enrolment tokens in another way from now on.
    pub fn set_tokens(&self, tokens: TokenSettings) {
        let tokens = Arc::new(tokens);
        self.core.rules.rcu(|rules| Rules {
            policy: Arc::clone(&rules.policy),
            signers: Arc::clone(&rules.signers),
            deciders: Arc::clone(&rules.deciders),
            tokens: Arc::clone(&tokens),
        });
    }

    /// For how many seconds a token for one name may be good.
    pub fn longest_token_seconds(&self) -> u64 {
        self.core.rules.load().tokens.max_ttl
    }

    /// Puts other signers in force under the same policy. One whose issuer this authority does not have signs nothing.
    pub fn set_signers(&self, signers: Vec<Signer>) {
        let signers = Arc::new(by_name(signers));
        self.core.rules.rcu(|rules| Rules {
            policy: Arc::clone(&rules.policy),
            signers: Arc::clone(&signers),
            deciders: Arc::clone(&rules.deciders),
            tokens: Arc::clone(&rules.tokens),
        });
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.core.rules.load().policy)
    }

    /// Puts another policy in force for the same signers.
    pub fn set_policy(&self, policy: Policy) {
        let policy = Arc::new(policy);
        self.core.rules.rcu(|rules| Rules {
            policy: Arc::clone(&policy),
            signers: Arc::clone(&rules.signers),
            deciders: Arc::clone(&rules.deciders),
            tokens: Arc::clone(&rules.tokens),
        });
    }

    /// Puts another policy in force for the same signers, with those who ask its webhooks.
    pub fn set_policy_and_deciders(&self, policy: Policy, deciders: Arc<dyn Deciders>) {
        let policy = Arc::new(policy);
        self.core.rules.rcu(|rules| Rules {
            policy: Arc::clone(&policy),
            signers: Arc::clone(&rules.signers),
            deciders: Arc::clone(&deciders),
            tokens: Arc::clone(&rules.tokens),
        });
    }

    /// Puts others in charge of asking webhooks.
    pub fn set_deciders(&self, deciders: Arc<dyn Deciders>) {
        self.core.rules.rcu(|rules| Rules {
            policy: Arc::clone(&rules.policy),
            signers: Arc::clone(&rules.signers),
            deciders: Arc::clone(&deciders),
            tokens: Arc::clone(&rules.tokens),
        });
    }

    /// Who asks the webhooks of the policy in force.
    pub fn deciders(&self) -> Arc<dyn Deciders> {
        Arc::clone(&self.core.rules.load().deciders)
    }

    /// Changes how policy executables are run from now on; those that run already end as they began.
    pub fn set_executables(&self, executables: Executables) {
        self.core.evidence.set_executables(executables);
    }

    /// The authority's time.
    pub fn now(&self) -> UnixTime {
        self.core.clock.now()
    }

    /// Random bytes, for names that a door makes up.
    pub fn random(&self, bytes: &mut [u8]) -> Result<(), Broken> {
        Ok(self.core.entropy.fill(bytes)?)
    }

    /// The request that occupies a name at a door; else, if `past` allows, the newest that did.
    pub async fn request_at(
        &self,
        door: &Door,
        key: &str,
        past: Past,
    ) -> Result<Option<RequestRecord>, StoreFault> {
        self.core.store.request_at(door, key, past).await
    }

    /// A request by identity.
    pub async fn request(&self, id: RequestId) -> Result<Option<RequestRecord>, StoreFault> {
        self.core.store.request(id).await
    }

    /// A page of requests.
    pub async fn requests(&self, filter: RequestFilter) -> Result<Vec<RequestRecord>, StoreFault> {
        self.core.store.requests(filter).await
    }

    /// What was denied or could not be decided, newest first.
    pub async fn rejections(&self, filter: RejectionFilter) -> Result<Vec<Rejection>, StoreFault> {
        self.core.store.rejections(filter).await
    }

    /// Why the signer of a request could not sign it as things stand.
    pub fn unsignable(&self, record: &RequestRecord) -> Option<ProfileFault> {
        let csr = countersign_pki::CheckedCsr::trusted_from_store(&record.csr_der).ok()?;
        let signer = self.core.signer(&record.signer)?;
        signer
            .profile
            .examine(&csr, &record.key, &record.wishes)
            .err()
    }

    /// A ledger entry.
    pub async fn certificate(
        &self,
        issuer: &IssuerId,
        serial: &Serial,
    ) -> Result<Option<LedgerEntry>, StoreFault> {
        self.core.store.certificate(issuer, serial).await
    }

    /// The newest certificate of a name.
    pub async fn newest_certificate(
        &self,
        issuer: &IssuerId,
        name: &str,
    ) -> Result<Option<LedgerEntry>, StoreFault> {
        self.core.store.newest_certificate(issuer, name).await
    }

    /// The newest certificate of each name, names in order after `after`.
    pub async fn newest_certificates(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, StoreFault> {
        self.core
            .store
            .newest_certificates(issuer, after, limit)
            .await
    }

    /// Figures for monitoring: what waits, and which certificates end within so many seconds.
    pub async fn tally(&self, seconds: u64) -> Result<Tally, StoreFault> {
        let now = self.now();
        self.core.store.tally(now, now.plus_seconds(seconds)).await
    }

    /// The change feed.
    pub async fn changes(&self, since: Revision, limit: usize) -> Result<Vec<Changed>, StoreFault> {
        self.core.store.changes(since, limit).await
    }

    /// The revision of the last commit.
    pub fn revision(&self) -> Revision {
        *self.core.store.revisions().borrow()
    }

    /// Audit entries after `since`.
    pub async fn audit(
        &self,
        since: Revision,
        limit: usize,
    ) -> Result<Vec<(Revision, AuditEntry)>, StoreFault> {
        self.core.store.audit(since, limit).await
    }
}

fn by_name(signers: Vec<Signer>) -> Signers {
    let signers = signers.into_iter().map(Arc::new);
    signers
        .map(|signer| (signer.name.clone(), signer))
        .collect()
}

impl Core {
    pub(crate) fn signer(&self, name: &SignerName) -> Option<Arc<Signer>> {
        self.rules.load().signer(name)
    }

    pub(crate) fn issuer(&self, id: &IssuerId) -> Result<Arc<Issuer>, Broken> {
        let unknown = || SignFault::UnknownIssuer { issuer: id.clone() };
        let issuer = self.issuers.get(id).ok_or_else(unknown)?;
        Ok(issuer.load_full())
    }

    /// Takes the latest time of the last audit entries as seen: a clock that went back while nobody looked has gone back
    /// all the same.
    async fn remember_time(&self) -> Result<(), Broken> {
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
        self.store.commit(change)
    }

    pub(crate) fn new_request_id(&self, now: UnixTime) -> Result<RequestId, Broken> {
        let mut random = [0u8; 6];
        self.entropy.fill(&mut random)?;
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        Ok(RequestId::in_sequence(now, sequence, random))
    }

    /// A serial that was not given out before: the next one where serials are counted, else a random one.
    pub(crate) fn new_serial(&self, issuer: &IssuerId) -> Result<Serial, Broken> {
        if let Some(next) = self.serials.get(issuer) {
            return Ok(Serial::try_from(next.fetch_add(1, Ordering::Relaxed))?);
        }
        let mut random = [0u8; 16];
        self.entropy.fill(&mut random)?;
        Ok(Serial::random_from(random))
    }

    /// A signature by the key of the issuer's certificate, verified before release where that is due.
    pub(crate) async fn sign(&self, issuer: &Issuer, message: &[u8]) -> Result<Signature, Broken> {
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

    /// Marks an intent as being worked on, until the guard is dropped.
    pub(crate) fn in_flight(&self, draft: &Draft) -> InFlight<'_> {
        let key = (draft.intent().issuer.clone(), draft.intent().serial);
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone());
        InFlight { core: self, key }
    }

    pub(crate) fn is_in_flight(&self, issuer: &IssuerId, serial: &Serial) -> bool {
        let key = (issuer.clone(), *serial);
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&key)
    }
}

/// The next serial of an issuer whose serials are counted; `None`: they are random.
async fn counter(store: &dyn Store, issuer: &Issuer) -> Result<Option<u64>, Broken> {
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
async fn highest_serial(store: &dyn Store, issuer: &Issuer) -> Result<u64, Broken> {
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

/// Somebody is working on the intent; recovery leaves it alone.
pub(crate) struct InFlight<'a> {
    core: &'a Core,
    key: (IssuerId, Serial),
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.core
            .in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}

/// How many audit entries a start looks back.
const REMEMBERED: usize = 1000;
