//! Store, key or process fail at every step of an enrolment by token. Afterwards the key that had the token has one
//! certificate, or can get it by the same token; another key never can.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use countersign_authority::store::LedgerReads as _;
use countersign_authority::store::Store;
use countersign_authority::{
    Authority, KeyStore, RequestState, SubmitFault, TokenOrder, TokenStatus, TokenText,
};
use countersign_keys::LeafKey;
use countersign_pki::Serial;
use countersign_policy::{Identity, Policy};
use futures_util::future::BoxFuture;
use tempfile::TempDir;

use crate::kill_points::{FOLDER, PART, STEP, acknowledge, copy, run};
use crate::site::{kept, new_key, rules_of};
use crate::tokens::{N1, N2, TOKEN_RULE, bringing, enable, token_site};
use crate::tripwire::{Fuse, Step, TripKeys, TripStore, Wire};
use crate::world::{self, TestClock, World, act, issuer_id};

const THIS_TEST: &str = "token_kill_points::a_one_time_token_authorises_once_at_any_kill_point";

#[tokio::test(flavor = "multi_thread")]
async fn a_one_time_token_authorises_once_at_any_kill_point() {
    if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
        return child(&folder).await;
    }
    let prepared = prepared().await;
    let (mut step, mut second_deaths) = (0, 0);
    loop {
        let left = copy(prepared.path());
        let acknowledged = run(THIS_TEST, "life", left.path(), step);
        check(copy(left.path()).path(), &acknowledged, &format!("{step}")).await;
        for next in 0.. {
            let again = copy(left.path());
            let recovered = run(THIS_TEST, "recovery", again.path(), next).contains_key("done");
            check(again.path(), &acknowledged, &format!("{step}, then {next}")).await;
            if recovered {
                break;
            }
            second_deaths += 1;
        }
        if acknowledged.contains_key("done") {
            break;
        }
        step += 1;
    }
    // The approval (2 commits, 1 signature) and the same key once more; twice a step.
    assert_eq!(step, 8, "is the tripwire still in the path?");
    // An open intent was left at four steps; its recovery has six.
    assert_eq!(second_deaths, 4 * 6);
}

/// A folder with a token for a name, and a key that is to have it.
async fn prepared() -> TempDir {
    let World {
        folder, authority, ..
    } = World::new(false).await;
    enable(&authority);
    let admin = act("").actor;
    let minted = authority.tokens.mint(TokenOrder::exact(N1), &admin, None);
    let token = minted.await.unwrap().token;
    drop(authority);
    // It waits until the database is closed.
    drop(world::store(folder.path()));
    std::fs::write(folder.path().join("token"), token.expose()).unwrap();
    let key = new_key().to_pkcs8_pem().unwrap();
    std::fs::write(folder.path().join("leaf.pem"), key.as_bytes()).unwrap();
    folder
}

fn token_and_key(folder: &Path) -> (TokenText, LeafKey) {
    let text = |name| std::fs::read_to_string(folder.join(name)).unwrap();
    let token = TokenText::parse(&text("token")).unwrap();
    (token, LeafKey::from_pkcs8_pem(&text("leaf.pem")).unwrap())
}

async fn child(folder: &Path) {
    let step = std::env::var(STEP).unwrap().parse().unwrap();
    let fuse = Fuse::unlit();
    let store = Arc::new(TripStore(Arc::new(world::store(folder)), fuse.clone()));
    let keys = Arc::new(TripKeys(world::keys(folder), fuse.clone()));
    match std::env::var(PART).unwrap().as_str() {
        "life" => {
            let authority = start(folder, store, keys).await;
            let (token, key) = token_and_key(folder);
            fuse.light(step);
            for word in ["enrolled", "again"] {
                let serial = enrol(&authority, &token, &key).await;
                acknowledge(&format!("{word} {serial}"));
            }
        }
        "recovery" => {
            fuse.light(step);
            start(folder, store, keys).await;
        }
        other => panic!("there is no part {other}"),
    }
    acknowledge("done");
}

async fn start(folder: &Path, store: Arc<dyn Store>, keys: Arc<dyn KeyStore>) -> Authority {
    let authority = world::authority(folder, store, keys, TestClock::new(), false).await;
    authority.set_rules(authority.rules().with_policy(Policy {
        generation: 1,
        rules: rules_of(&folder.join("policy.yaml"), TOKEN_RULE),
        ..Policy::default()
    }));
    enable(&authority);
    authority
}

/// Enrols, and returns the serial that the name has then.
async fn enrol(authority: &Authority, token: &TokenText, key: &LeafKey) -> Serial {
    let submitted = authority
        .requests
        .submit(bringing(N1, key, token))
        .await
        .unwrap();
    assert_eq!(submitted.state, RequestState::Issued, "{}", submitted.code);
    let newest = authority.ledger.newest(&issuer_id(), N1).await;
    newest.unwrap().unwrap().serial
}

async fn check(folder: &Path, acknowledged: &HashMap<String, String>, step: &str) {
    let store = Arc::new(world::store(folder));
    let authority = start(folder, store.clone(), Arc::new(world::keys(folder))).await;
    assert!(store.open_intents().await.unwrap().is_empty(), "{step}");
    let (token, key) = token_and_key(folder);
    let detail = authority.tokens.get(token.id()).await.unwrap().unwrap();
    let certificates = authority.ledger.of_name(&issuer_id(), N1).await.unwrap();
    let expected = match detail.listed.status {
        TokenStatus::Active => 0,
        TokenStatus::Issued => 1,
        other => panic!("{step}: {other:?}"),
    };
    assert_eq!(certificates.len(), expected, "{step}");
    if expected == 1 {
        is_refused(&authority, &token, step).await;
    }
    let serial = enrol(&authority, &token, &key).await;
    for word in ["enrolled", "again"] {
        if let Some(shown) = acknowledged.get(word) {
            assert_eq!(*shown, serial.to_string(), "{step}");
        }
    }
    is_refused(&authority, &token, step).await;
    enrolled_once(&authority, &*store, step).await;
}

async fn is_refused(authority: &Authority, token: &TokenText, step: &str) {
    let thief = authority
        .requests
        .submit(bringing(N1, &new_key(), token))
        .await
        .unwrap();
    assert_eq!(thief.state, RequestState::Denied, "{step}");
    assert_eq!(thief.code.as_str(), "token_key_mismatch", "{step}");
}

async fn enrolled_once(authority: &Authority, store: &dyn Store, step: &str) {
    let certificates = authority.ledger.of_name(&issuer_id(), N1).await.unwrap();
    assert_eq!(certificates.len(), 1, "{step}");
    let audit = store.audit(Default::default(), 10_000).await.unwrap();
    let consumed = audit
        .iter()
        .filter(|(_, entry)| entry.action == "token.consumed");
    assert_eq!(consumed.count(), 1, "{step}");
}

/// From a certain step on, commits and signatures fail until it is repaired.
#[derive(Clone)]
struct Outage {
    steps: Arc<AtomicI64>,
    /// Whether the first one that fails has happened all the same.
    happens: bool,
    is_on: Arc<AtomicBool>,
}

impl Outage {
    fn new(happens: bool) -> Self {
        Self {
            steps: Arc::new(AtomicI64::new(i64::MAX)),
            happens,
            is_on: Arc::default(),
        }
    }

    fn begin_after(&self, steps: i64) {
        self.steps.store(steps, Ordering::SeqCst);
    }

    fn repair(&self) {
        self.begin_after(i64::MAX);
        self.is_on.store(false, Ordering::SeqCst);
    }
}

impl Wire for Outage {
    fn before(&self, _: Step) -> BoxFuture<'_, bool> {
        let is_first = self.steps.fetch_sub(1, Ordering::SeqCst) == 0;
        let was_on = self.is_on.fetch_or(is_first, Ordering::SeqCst);
        Box::pin(std::future::ready(!was_on && (self.happens || !is_first)))
    }

    fn after(&self, _: Step) -> bool {
        !self.is_on.load(Ordering::SeqCst)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a15_a16_the_same_token_works_when_the_store_is_back() {
    let prepared = prepared().await;
    for (step, happens, status) in [
        (0, false, TokenStatus::Active),
        (0, true, TokenStatus::Reserved),
        (1, false, TokenStatus::Reserved),
        (1, true, TokenStatus::Reserved),
        (2, false, TokenStatus::Reserved),
        (2, true, TokenStatus::Issued),
    ] {
        for dies in [false, true] {
            let case = format!("step {step}, happens {happens}, dies {dies}");
            let folder = copy(prepared.path());
            let (token, key) = token_and_key(folder.path());
            let outage = Outage::new(happens);
            let store = Arc::new(world::store(folder.path()));
            let wired = || {
                let store = Arc::new(TripStore(Arc::clone(&store), outage.clone()));
                let keys = Arc::new(TripKeys(world::keys(folder.path()), outage.clone()));
                start(folder.path(), store, keys)
            };
            let mut authority = wired().await;
            outage.begin_after(step);
            let fault = authority
                .requests
                .submit(bringing(N1, &key, &token))
                .await
                .unwrap_err();
            assert!(matches!(fault, SubmitFault::Engine(_)), "{case}: {fault}");
            // As long as it is away, nobody gets anything.
            let thief = authority
                .requests
                .submit(bringing(N1, &new_key(), &token))
                .await;
            assert!(thief.is_err(), "{case}");
            outage.repair();
            let detail = authority.tokens.get(token.id()).await.unwrap().unwrap();
            assert_eq!(detail.listed.status, status, "{case}");
            if status != TokenStatus::Active {
                is_refused(&authority, &token, &case).await;
            }
            match dies {
                true => authority = wired().await,
                false => drop(authority.recover().await.unwrap()),
            }
            assert!(store.open_intents().await.unwrap().is_empty(), "{case}");
            enrol(&authority, &token, &key).await;
            is_refused(&authority, &token, &case).await;
            enrolled_once(&authority, &*store, &case).await;
        }
    }
}

/// A clock that went back would bring expired tokens back.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_went_back_uses_nothing() {
    let site = token_site(TOKEN_RULE).await;
    let token = site.mint(TokenOrder::exact(N1)).await;
    let other = TokenOrder {
        ttl_seconds: Some(500),
        ..TokenOrder::exact(N2)
    };
    let other = site.mint(other).await;
    let shown = site
        .authority()
        .tokens
        .bearer(token.expose())
        .await
        .unwrap();
    assert!(shown.is_some());
    // Its time is over, and something was written since.
    site.world.clock.advance(1000);
    site.mint(TokenOrder::exact("n3.example.com")).await;
    site.world.clock.advance(-600);
    let key = new_key();
    for (name, token) in [(N1, &token), (N2, &other)] {
        let refused = site.ask(bringing(name, &key, token)).await;
        assert_eq!(refused.state, RequestState::Undecided);
        assert_eq!(refused.explanation.code.as_str(), "store_unavailable");
        let detail = site.token(token.id()).await.listed.record;
        assert_eq!((detail.uses, detail.failed_uses), (0, 0));
        assert_eq!(site.certificates(name).await, 0);
    }
    // Nor by who shows it as a bearer.
    let mut bearer = kept("csr-1", world::csr(&key, N1, &[]));
    bearer.requester.identity = Identity::User {
        username: format!("system:bootstrap:{}", token.id()),
        groups: Vec::new(),
        uid: String::new(),
        extra: Default::default(),
    };
    bearer.bearer = shown;
    let refused = site.ask(bearer).await;
    assert_eq!(refused.state, RequestState::Pending);
    assert_eq!(refused.explanation.code.as_str(), "store_unavailable");
    assert_eq!(site.token(token.id()).await.listed.record.uses, 0);
    // No more than what clocks are set by now and then.
    site.world.clock.advance(301);
    let taken = site.ask(bringing(N1, &key, &token)).await;
    assert_eq!(taken.state, RequestState::Issued);
    let late = site.ask(bringing(N2, &key, &other)).await;
    assert_eq!(late.explanation.code.as_str(), "token_expired");
}
