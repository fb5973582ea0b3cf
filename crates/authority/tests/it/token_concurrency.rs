//! Invariant 3 with real concurrency: tasks on many threads, two authorities on one store.
#![expect(
    clippy::indexing_slicing,
    reason = "a test that looks beside its world fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use countersign_authority::store::{
    AuditReads as _, LedgerReads as _, RequestReads as _, TokenReads as _,
};
use countersign_authority::{
    Authority, Duplicate, EngineError, Limits, RequestState, Submission, SubmitFault, Submitted,
    TokenFault, TokenId, TokenOrder, TokenStatus, TokenText,
};
use countersign_keys::LeafKey;
use countersign_pki::UnixTime;
use countersign_policy::{Policy, TokenBinding, TokenUseState};
use countersign_store::SqliteStore;
use futures_util::future::{BoxFuture, join_all};
use tempfile::TempDir;

use crate::profiles;
use crate::site::{new_key, rules_of};
use crate::token_walk::Random;
use crate::tokens::{N1, TOKEN_RULE, bringing, settings};
use crate::tripwire::{Step, TripKeys, TripStore, Wire};
use crate::world::{self, TestClock, act, agent_signer, issuer_id};

const TRIES: usize = 64;

/// Others are at work on the same store, and each lets them come first before it commits or signs, now more, now less.
#[derive(Clone, Default)]
struct Shared(Arc<AtomicUsize>);

impl Wire for Shared {
    fn before(&self, step: Step) -> BoxFuture<'_, bool> {
        let number = self.0.fetch_add(7, Ordering::Relaxed);
        let turns = match step {
            Step::Commit => number % 32,
            // Long enough for a person to take back what was begun.
            Step::Sign => number % 5 * 2000,
        };
        Box::pin(async move {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            true
        })
    }

    fn after(&self, _: Step) -> bool {
        true
    }

    fn is_alone(&self) -> bool {
        false
    }
}

/// Two authorities on one store.
struct Pair {
    folder: TempDir,
    store: Arc<SqliteStore>,
    clock: Arc<TestClock>,
    authorities: [Authority; 2],
}

impl Pair {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        world::prepare(folder.path()).await;
        let store = Arc::new(world::store(folder.path()));
        let clock = TestClock::new();
        let one = authority(&folder, &store, &clock).await;
        let other = authority(&folder, &store, &clock).await;
        Self {
            folder,
            store,
            clock,
            authorities: [one, other],
        }
    }

    async fn mint(&self, order: TokenOrder) -> TokenText {
        let admin = act("").actor;
        let minted = self.authorities[0].tokens.mint(order, &admin, None);
        minted.await.unwrap().token
    }

    /// Every one on a task of its own, by turns at both.
    async fn at_once(&self, asked: Vec<Submission>) -> Vec<Result<Submitted, SubmitFault>> {
        let tasks = asked.into_iter().zip(self.authorities.iter().cycle());
        let tasks = tasks.map(|(submission, authority)| {
            let authority = authority.clone();
            tokio::spawn(async move { authority.requests.submit(submission).await })
        });
        let done = join_all(tasks).await.into_iter();
        done.map(|submitted| submitted.unwrap()).collect()
    }

    async fn told(&self, action: &str) -> usize {
        let audit = self.store.audit(Default::default(), 100_000).await.unwrap();
        audit
            .iter()
            .filter(|(_, entry)| entry.action == action)
            .count()
    }

    async fn certificates(&self, name: &str) -> usize {
        let all = self.store.certificates_of(&issuer_id(), name, UnixTime(0));
        all.await.unwrap().len()
    }
}

async fn authority(
    folder: &TempDir,
    store: &Arc<SqliteStore>,
    clock: &Arc<TestClock>,
) -> Authority {
    let folder = folder.path();
    let shared = Shared::default();
    let store = Arc::new(TripStore(Arc::clone(store), shared.clone()));
    let keys = Arc::new(TripKeys(world::keys(folder), shared));
    let profiles = vec![(agent_signer(), profiles::agent(world::settings()), true)];
    let policy = Policy {
        generation: 1,
        rules: rules_of(&folder.join("policy.yaml"), TOKEN_RULE),
        ..Policy::default()
    };
    let limits = Limits::STANDARD;
    let started =
        world::authority_limited(folder, store, keys, clock.clone(), policy, profiles, limits);
    let authority = started.await;
    authority.set_rules(authority.rules().with_tokens(settings()));
    authority
}

/// Whether a host that hears this comes back by itself.
fn is_busy(fault: &SubmitFault) -> bool {
    matches!(
        fault,
        SubmitFault::InProgress { .. }
            | SubmitFault::Engine(EngineError::Contended)
            | SubmitFault::Duplicate {
                duplicate: Duplicate::Requested,
                ..
            }
    )
}

fn glob(uses: u32) -> TokenOrder {
    TokenOrder {
        max_uses: Some(uses),
        ..TokenOrder::bound(TokenBinding::Glob("*.dmz.example.com".to_owned()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_one_time_token_authorises_once_whoever_asks_at_the_same_time() {
    let pair = Pair::new().await;
    let token = pair.mint(TokenOrder::exact(N1)).await;
    let asked = (0..TRIES).map(|_| bringing(N1, &new_key(), &token));
    let outcomes = pair.at_once(asked.collect()).await;
    let mut issued = 0;
    for outcome in &outcomes {
        match outcome {
            Ok(submitted) if submitted.state == RequestState::Issued => issued += 1,
            Ok(submitted) => assert_eq!(submitted.code.as_str(), "token_key_mismatch"),
            Err(fault) => assert!(
                matches!(fault, SubmitFault::Engine(EngineError::Contended)),
                "{fault}"
            ),
        }
    }
    assert_eq!(issued, 1);
    assert_eq!(pair.certificates(N1).await, 1);
    assert_eq!(pair.told("token.consumed").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_one_time_token_gives_one_key_one_serial() {
    let pair = Pair::new().await;
    let token = pair.mint(TokenOrder::exact(N1)).await;
    let key = new_key();
    let asked = (0..TRIES).map(|_| bringing(N1, &key, &token));
    let outcomes = pair.at_once(asked.collect()).await;
    let mut serials = BTreeSet::new();
    for outcome in outcomes {
        match outcome {
            Ok(submitted) => {
                assert_eq!(submitted.state, RequestState::Issued, "{}", submitted.code);
                let record = pair.store.request(submitted.id).await.unwrap().unwrap();
                serials.insert(record.certificate.unwrap().1.to_hex());
            }
            Err(fault) => assert!(is_busy(&fault), "{fault}"),
        }
    }
    assert_eq!(serials.len(), 1);
    assert_eq!(pair.certificates(N1).await, 1);
    assert_eq!(pair.told("token.consumed").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_token_for_a_domain_authorises_as_often_as_it_says() {
    let pair = Pair::new().await;
    let token = pair.mint(glob(10)).await;
    let asked = (0..TRIES).map(|n| bringing(&format!("h{n}.dmz.example.com"), &new_key(), &token));
    let outcomes = pair.at_once(asked.collect()).await;
    let mut issued = 0;
    for outcome in &outcomes {
        match outcome {
            Ok(submitted) if submitted.state == RequestState::Issued => issued += 1,
            Ok(submitted) => assert_eq!(submitted.code.as_str(), "token_exhausted"),
            Err(fault) => assert!(
                matches!(fault, SubmitFault::Engine(EngineError::Contended)),
                "{fault}"
            ),
        }
    }
    assert_eq!(issued, 10);
    assert_eq!(pair.told("token.consumed").await, 10);
    let ledger = pair.store.ledger(&issuer_id(), None, 100).await.unwrap();
    assert_eq!(ledger.len(), 10);
    assert_eq!(
        pair.authorities[1]
            .tokens
            .get(token.id())
            .await
            .unwrap()
            .unwrap()
            .listed
            .record
            .uses,
        10
    );
}

/// Mints, requests, revocations, releases and restarts at once, in an order that each seed makes and no run repeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_happens_at_the_same_time_the_books_agree() {
    let mut released = 0;
    for seed in 0..12 {
        released += mixture(seed).await;
    }
    assert!(released > 0, "nothing was ever given back in time");
}

const KEYS: usize = 6;
const ACTS: usize = 72;

/// Returns how many uses were given back.
async fn mixture(seed: u64) -> usize {
    let mut random = Random::seeded(seed);
    let mut pair = Pair::new().await;
    let keys: Vec<LeafKey> = (0..KEYS).map(|_| new_key()).collect();
    let kept = TokenOrder {
        keep_existing: true,
        ..TokenOrder::exact(N1)
    };
    let mut tokens = Vec::new();
    for order in [TokenOrder::exact(N1), kept, glob(4)] {
        tokens.push(pair.mint(order).await);
    }
    for _ in 0..3 {
        let mut tasks = Vec::new();
        for _ in 0..ACTS / 3 {
            let authority = pair.authorities[random.up_to(2)].clone();
            let (number, key) = (random.up_to(3), random.up_to(KEYS));
            let name = match number {
                2 => format!("h{key}.dmz.example.com"),
                _ => N1.to_owned(),
            };
            let asked = bringing(&name, &keys[key], &tokens[number]);
            let id = tokens[number].id().clone();
            let (what, admin) = (random.up_to(16), act("").actor);
            tasks.push(tokio::spawn(async move {
                match what {
                    0 => {
                        let order = TokenOrder::exact(N1);
                        let minted = authority.tokens.mint(order, &admin, None).await;
                        agreed(minted.map(drop), seed);
                    }
                    1 => agreed(
                        authority.tokens.revoke(&id, false, &admin).await.map(drop),
                        seed,
                    ),
                    2..=4 => release(&authority, &id, seed).await,
                    6 => drop(authority.recover().await.unwrap()),
                    _ => match authority.requests.submit(asked).await {
                        Ok(_) => {}
                        Err(fault) => assert!(is_busy(&fault), "seed {seed}: {fault}"),
                    },
                }
            }));
        }
        // One of them ends meanwhile, and what it had begun is another's.
        let which = random.up_to(2);
        pair.authorities[which] = authority(&pair.folder, &pair.store, &pair.clock).await;
        for task in join_all(tasks).await {
            task.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        }
        pair.clock.advance(31);
    }
    pair.authorities[0].recover().await.unwrap();
    check(&pair, seed).await;
    pair.told("token.released").await
}

/// Gives back whatever is reserved within a while.
async fn release(authority: &Authority, id: &TokenId, seed: u64) {
    let admin = act("").actor;
    for _ in 0..100 {
        let released = authority.tokens.release(id, &admin).await;
        let is_done = released.is_ok();
        agreed(released, seed);
        if is_done {
            break;
        }
    }
}

fn agreed(outcome: Result<(), TokenFault>, seed: u64) {
    match outcome {
        Ok(())
        | Err(TokenFault::NotReserved { .. } | TokenFault::Engine(EngineError::Contended)) => {}
        Err(fault) => panic!("seed {seed}: {fault}"),
    }
}

/// Ledger, uses and audit log tell the same story.
async fn check(pair: &Pair, seed: u64) {
    let open = pair.store.open_intents().await.unwrap();
    assert!(open.is_empty(), "seed {seed}: {open:?}");
    let mut by_token: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for (_, entry) in pair.store.ledger(&issuer_id(), None, 1000).await.unwrap() {
        let used = entry.explanation.token.clone().unwrap();
        by_token.entry(used.id).or_default().push(entry);
    }
    let audit = pair.store.audit(Default::default(), 100_000).await.unwrap();
    let now = pair.authorities[0].now();
    let filter = countersign_authority::TokenFilter::newest(now, 1000);
    for listed in pair.store.tokens(filter).await.unwrap() {
        let record = &listed.record;
        let certificates = by_token.remove(record.id.as_str()).unwrap_or_default();
        let uses = pair.store.token_uses(&record.id, 1000).await.unwrap();
        assert_eq!(
            usize::try_from(record.uses).unwrap(),
            uses.len(),
            "seed {seed}"
        );
        assert!(record.uses <= record.max_uses, "seed {seed}");
        assert_eq!(certificates.len(), uses.len(), "seed {seed}: {uses:?}");
        for used in &uses {
            assert_eq!(used.state, TokenUseState::Issued, "seed {seed}");
            let is_its = |entry: &&countersign_authority::LedgerEntry| {
                Some(entry.serial) == used.serial && entry.key_fingerprint == used.key_fingerprint
            };
            assert_eq!(certificates.iter().filter(is_its).count(), 1, "seed {seed}");
        }
        let counted = |action: &str| {
            let of_it = audit.iter().filter(|(_, entry)| {
                entry.token.as_deref() == Some(record.id.as_str()) && entry.action == action
            });
            of_it.map(|(revision, _)| *revision).collect::<Vec<_>>()
        };
        let (consumed, released) = (counted("token.consumed"), counted("token.released"));
        assert_eq!(consumed.len(), uses.len() + released.len(), "seed {seed}");
        // Nothing was consumed after the end.
        let ended = counted("token.revoked")
            .into_iter()
            .chain(counted("token.superseded"));
        let ended: Vec<_> = ended.collect();
        assert!(
            ended.len() <= 1,
            "seed {seed}: it ended {} times",
            ended.len()
        );
        assert_eq!(
            ended.len() == 1,
            listed.status == TokenStatus::Revoked,
            "seed {seed}"
        );
        for end in ended {
            assert!(consumed.iter().all(|at| *at < end), "seed {seed}");
        }
    }
    assert!(
        by_token.is_empty(),
        "seed {seed}: of no token: {by_token:?}"
    );
}
