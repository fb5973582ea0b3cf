//! The engine does what the model of tokens does: random walks through the model, step by step on two authorities that
//! share a store. Each waits before every commit and every signature until the walk lets it go on, or dies there.
#![expect(clippy::indexing_slicing, reason = "what the model numbers is there")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_authority::store::{
    Change, LedgerReads as _, RequestReads as _, TokenReads as _, Write,
};
use countersign_authority::{
    Authority, Duplicate, EngineError, Limits, Minted, RequestState, SubmitFault, Submitted,
    TokenFault, TokenOrder, TokenText,
};
use countersign_keys::LeafKey;
use countersign_pki::{Serial, UnixTime, fingerprint_sha256};
use countersign_policy::{Policy, ReasonCode, TokenBinding, TokenUseState};
use countersign_store::SqliteStore;
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::kill_points::copy;
use crate::profiles;
use crate::site::{new_key, rules_of};
use crate::token_model::{Action, Answer, Kind, Setting};
use crate::token_state::{IntentIs, State};
use crate::token_walk::Random;
use crate::tokens::{TOKEN_RULE, bringing, settings};
use crate::tripwire::{Step, TripKeys, TripStore, Wire};
use crate::world::{self, START, TestClock, World, act, agent_signer, issuer_id};

const WALKS: u64 = 60;
const STEPS: usize = 60;
/// How far the clock goes at each tick of the model: past every lease; past every token and retry window.
const TICKS: [i64; 2] = [31, 50_000];

#[tokio::test(start_paused = true)]
async fn the_engine_does_what_the_model_does_with_a_token_for_a_name() {
    walks(Kind::Exact).await;
}

#[tokio::test(start_paused = true)]
async fn the_engine_does_what_the_model_does_with_a_token_for_a_domain() {
    walks(Kind::Glob(2)).await;
}

async fn walks(kind: Kind) {
    let World {
        folder, authority, ..
    } = World::new(false).await;
    drop(authority);
    drop(world::store(folder.path()));
    let mut seen = BTreeSet::new();
    for seed in 0..WALKS {
        let mut setting = Setting::new(kind);
        (setting.crashes, setting.releases) = (2, 2);
        let mut state = setting.start();
        let mut random = Random::seeded(seed);
        let mut rig = Rig::new(&setting, copy(folder.path())).await;
        let mut walk = Vec::new();
        for _ in 0..STEPS {
            let likely = likely(&setting, &state, &mut random);
            let action = random.choice(&likely);
            walk.push(action);
            let (next, answer) = setting.step(&state, action);
            let heard = rig.follow(action).await;
            let told = rig.told(heard).await;
            let expected = answer.map(|answer| rig.expected(answer, &told));
            assert_eq!(
                told,
                expected.flatten(),
                "seed {seed}, after {walk:?}\n{next:?}"
            );
            rig.compare(&setting, &next, &format!("seed {seed}, after {walk:?}"))
                .await;
            seen.extend(answer.map(word));
            state = next;
        }
    }
    // The walks went to all places.
    let mut expected = BTreeSet::from([
        "issued",
        "denied",
        "in progress",
        "contended",
        "not reserved",
        "done",
    ]);
    if kind == Kind::Exact {
        expected.insert("name taken");
    }
    assert_eq!(seen, expected);
}

/// What may come next; that things go on is more likely than that something else begins.
fn likely(setting: &Setting, state: &State, random: &mut Random) -> Vec<Action> {
    let possible = setting.possible(state);
    let goes = |action: &&Action| matches!(action, Action::Go { .. });
    let going: Vec<Action> = possible.iter().filter(goes).copied().collect();
    match going.is_empty() || random.up_to(2) == 0 {
        true => possible,
        false => going,
    }
}

fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Issued(_) => "issued",
        Answer::Denied(_) => "denied",
        Answer::InProgress => "in progress",
        Answer::NameTaken => "name taken",
        Answer::Contended => "contended",
        Answer::NotReserved => "not reserved",
        Answer::Done => "done",
    }
}

/// Stops before every commit and signature until it may go on.
#[derive(Clone)]
struct Gate {
    stops: mpsc::Sender<oneshot::Sender<()>>,
    is_dead: Arc<AtomicBool>,
}

impl Wire for Gate {
    /// That a second key was turned away is noted for people, and no part of the model.
    fn stops_at(&self, change: &Change) -> bool {
        let is_note = |write: &Write| matches!(write, Write::InsertRequest(record) if record.explanation.code == ReasonCode::NameTaken);
        self.is_dead.load(Ordering::SeqCst) || !change.writes.iter().any(is_note)
    }

    fn before(&self, _: Step) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let (go, may_go) = oneshot::channel();
            !self.is_dead.load(Ordering::SeqCst)
                && self.stops.send(go).await.is_ok()
                && may_go.await.is_ok()
        })
    }

    fn after(&self, _: Step) -> bool {
        true
    }

    fn is_alone(&self) -> bool {
        false
    }
}

/// An authority of the walk, and what it does at the moment.
struct Replica {
    authority: Option<Authority>,
    gate: Gate,
    stops: mpsc::Receiver<oneshot::Sender<()>>,
    stopped: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<Heard>>,
}

impl Replica {
    fn new() -> Self {
        let (sender, stops) = mpsc::channel(1);
        let gate = Gate {
            stops: sender,
            is_dead: Arc::default(),
        };
        Self {
            authority: None,
            gate,
            stops,
            stopped: None,
            task: None,
        }
    }

    fn begin(&mut self, work: impl Future<Output = Heard> + Send + 'static) {
        self.task = Some(tokio::spawn(work));
    }

    /// Until it stops again, or has ended.
    async fn go_on(&mut self) -> Option<Heard> {
        if let Some(stopped) = self.stopped.take() {
            stopped.send(()).unwrap();
        }
        let task = self.task.as_mut().unwrap();
        let heard = tokio::select! {
            stop = self.stops.recv() => {
                self.stopped = stop;
                return None;
            }
            heard = task => heard.unwrap(),
        };
        self.task = None;
        Some(heard)
    }

    async fn die(&mut self) {
        self.gate.is_dead.store(true, Ordering::SeqCst);
        self.stopped = None;
        let task = self.task.take().unwrap();
        task.await.unwrap();
        *self = Self::new();
    }
}

/// What an authority said.
enum Heard {
    Submitted(Result<Submitted, SubmitFault>),
    Acted(Result<(), EngineError>),
    Ended(Result<(), TokenFault>),
    Minted(Result<Minted, TokenFault>),
    Started(Authority),
}

/// What it comes to; a serial is known by its number in the model.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Issued(Serial),
    Other(Answer),
}

struct Rig {
    kind: Kind,
    folder: TempDir,
    store: Arc<SqliteStore>,
    clock: Arc<TestClock>,
    ticks: usize,
    replicas: Vec<Replica>,
    tokens: Vec<TokenText>,
    keys: Vec<LeafKey>,
    serials: BTreeMap<usize, Serial>,
}

impl Rig {
    async fn new(setting: &Setting, folder: TempDir) -> Self {
        let mut rig = Self {
            kind: setting.kind,
            store: Arc::new(world::store(folder.path())),
            folder,
            clock: TestClock::new(),
            ticks: 0,
            replicas: (0..setting.replicas).map(|_| Replica::new()).collect(),
            tokens: Vec::new(),
            keys: (0..setting.keys).map(|_| new_key()).collect(),
            serials: BTreeMap::new(),
        };
        for replica in 0..setting.replicas {
            rig.start(replica);
            rig.goes_on(replica).await.unwrap();
        }
        rig.begin(Action::Mint { replica: 0 });
        while rig.goes_on(0).await.is_none() {}
        rig
    }

    fn name(&self, key: usize) -> String {
        match self.kind {
            Kind::Exact => "n1.example.com".to_owned(),
            Kind::Glob(_) => format!("k{key}.dmz.example.com"),
        }
    }

    fn order(&self) -> TokenOrder {
        match self.kind {
            Kind::Exact => TokenOrder::exact(&self.name(0)),
            Kind::Glob(uses) => TokenOrder {
                max_uses: Some(u32::from(uses)),
                ..TokenOrder::bound(TokenBinding::Glob("*.dmz.example.com".to_owned()))
            },
        }
    }

    fn start(&mut self, replica: usize) {
        let folder: PathBuf = self.folder.path().to_owned();
        let it = &mut self.replicas[replica];
        let store = Arc::new(TripStore(Arc::clone(&self.store), it.gate.clone()));
        let keys = Arc::new(TripKeys(world::keys(&folder), it.gate.clone()));
        let clock = self.clock.clone();
        it.begin(async move {
            let profiles = vec![(agent_signer(), profiles::agent(world::settings()), true)];
            let policy = Policy {
                generation: 1,
                rules: rules_of(&folder.join("policy.yaml"), TOKEN_RULE),
                ..Policy::default()
            };
            let limits = Limits::STANDARD;
            let authority =
                world::authority_limited(&folder, store, keys, clock, policy, profiles, limits);
            let authority = authority.await;
            authority.set_rules(authority.rules().with_tokens(settings()));
            Heard::Started(authority)
        });
    }

    /// Does a step of the walk.
    async fn follow(&mut self, action: Action) -> Option<Heard> {
        match action {
            Action::Tick => {
                self.clock.advance(TICKS[self.ticks]);
                self.ticks += 1;
                None
            }
            Action::Crash { replica } => {
                self.replicas[replica].die().await;
                None
            }
            Action::Restart { replica } => {
                self.start(replica);
                self.goes_on(replica).await
            }
            Action::Go { replica } => self.goes_on(replica).await,
            Action::Submit { replica, .. }
            | Action::Recover { replica }
            | Action::Release { replica, .. }
            | Action::Revoke { replica, .. }
            | Action::Mint { replica } => {
                self.begin(action);
                self.goes_on(replica).await
            }
        }
    }

    fn begin(&mut self, action: Action) {
        let admin = act("").actor;
        let (order, tokens, keys) = (self.order(), &self.tokens, &self.keys);
        let authority = |replica: usize| self.replicas[replica].authority.clone().unwrap();
        let work: (usize, BoxFuture<'static, Heard>) = match action {
            Action::Submit {
                replica,
                token,
                key,
            } => {
                let asked = bringing(&self.name(key), &keys[key], &tokens[token]);
                let authority = authority(replica);
                let work = async move { Heard::Submitted(authority.requests.submit(asked).await) };
                (replica, Box::pin(work))
            }
            Action::Recover { replica } => {
                let authority = authority(replica);
                let work = async move { Heard::Acted(authority.recover().await.map(drop)) };
                (replica, Box::pin(work))
            }
            Action::Release { replica, token } => {
                let (authority, id) = (authority(replica), tokens[token].id().clone());
                let work = async move { Heard::Ended(authority.tokens.release(&id, &admin).await) };
                (replica, Box::pin(work))
            }
            Action::Revoke { replica, token } => {
                let (authority, id) = (authority(replica), tokens[token].id().clone());
                let work = async move {
                    let revoked = authority.tokens.revoke(&id, false, &admin).await;
                    Heard::Ended(revoked.map(drop))
                };
                (replica, Box::pin(work))
            }
            Action::Mint { replica } => {
                let authority = authority(replica);
                let work =
                    async move { Heard::Minted(authority.tokens.mint(order, &admin, None).await) };
                (replica, Box::pin(work))
            }
            Action::Go { .. } | Action::Crash { .. } | Action::Restart { .. } | Action::Tick => {
                panic!("{action:?} begins nothing")
            }
        };
        self.replicas[work.0].begin(work.1);
    }

    async fn goes_on(&mut self, replica: usize) -> Option<Heard> {
        let heard = self.replicas[replica].go_on().await?;
        Some(match heard {
            Heard::Started(authority) => {
                self.replicas[replica].authority = Some(authority);
                Heard::Acted(Ok(()))
            }
            Heard::Minted(Ok(minted)) => {
                self.tokens.push(minted.token);
                Heard::Acted(Ok(()))
            }
            other => other,
        })
    }

    async fn told(&self, heard: Option<Heard>) -> Option<Told> {
        let told = match heard? {
            Heard::Submitted(Ok(submitted)) if submitted.state == RequestState::Issued => {
                let record = self.store.request(submitted.id).await.unwrap().unwrap();
                let (_, serial) = record.certificate.unwrap();
                let shown = submitted.issued.map(|issued| issued.intent().serial);
                assert!(shown.is_none_or(|shown| shown == serial));
                return Some(Told::Issued(serial));
            }
            Heard::Submitted(Ok(submitted)) => {
                assert_eq!(submitted.state, RequestState::Denied);
                Answer::Denied(submitted.code.to_string().leak())
            }
            Heard::Submitted(Err(SubmitFault::InProgress { .. })) => Answer::InProgress,
            Heard::Submitted(Err(SubmitFault::Duplicate {
                duplicate: Duplicate::Requested,
                ..
            })) => Answer::NameTaken,
            Heard::Submitted(Err(SubmitFault::Engine(EngineError::Contended))) => Answer::Contended,
            Heard::Ended(Err(TokenFault::NotReserved { .. })) => Answer::NotReserved,
            Heard::Acted(Ok(())) | Heard::Ended(Ok(())) => Answer::Done,
            Heard::Submitted(Err(fault)) => panic!("{fault}"),
            Heard::Acted(Err(fault)) => panic!("{fault}"),
            Heard::Ended(Err(fault)) | Heard::Minted(Err(fault)) => panic!("{fault}"),
            Heard::Minted(Ok(_)) | Heard::Started(_) => panic!("taken already"),
        };
        Some(Told::Other(told))
    }

    /// What the model says, in the serials of the engine.
    fn expected(&mut self, answer: Answer, told: &Option<Told>) -> Option<Told> {
        Some(match (answer, told) {
            (Answer::Issued(number), Some(Told::Issued(serial))) => {
                Told::Issued(self.serial(number, *serial))
            }
            (answer, _) => Told::Other(answer),
        })
    }

    /// The serial of this number; the first time that one is seen.
    fn serial(&mut self, number: usize, seen: Serial) -> Serial {
        let others = self.serials.iter().filter(|(other, _)| **other != number);
        assert!(
            others
                .map(|(_, serial)| *serial)
                .all(|serial| serial != seen)
        );
        *self.serials.entry(number).or_insert(seen)
    }

    /// What is on record is what the model has.
    async fn compare(&mut self, setting: &Setting, state: &State, walk: &str) {
        let now = UnixTime(START + TICKS.iter().take(self.ticks).sum::<i64>());
        for (number, expected) in state.tokens.iter().enumerate() {
            let id = self.tokens[number].id().clone();
            let listed = self.store.listed_token(&id, now).await.unwrap().unwrap();
            assert_eq!(listed.status, setting.status(state, number), "{walk}");
            assert_eq!(listed.record.uses, u32::from(expected.uses), "{walk}");
            let mut uses = self.store.token_uses(&id, 10).await.unwrap();
            for used in state.uses.iter().filter(|used| used.token == number) {
                let key = fingerprint_sha256(self.keys[used.key].spki_der());
                let place = uses.iter().position(|one| one.key_fingerprint == key);
                let found = uses.remove(place.unwrap_or_else(|| panic!("{walk}: {used:?}")));
                match used.serial {
                    None => assert_eq!(found.state, TokenUseState::Reserved, "{walk}"),
                    Some(number) => {
                        let serial = found.serial.unwrap();
                        assert_eq!(found.state, TokenUseState::Issued, "{walk}");
                        assert_eq!(self.serial(number, serial), serial, "{walk}");
                    }
                }
            }
            assert!(uses.is_empty(), "{walk}: {uses:?}");
        }
        for (number, key) in self.keys.iter().enumerate() {
            let (issuer, name) = (issuer_id(), self.name(number));
            let all = self
                .store
                .certificates_of(&issuer, &name, UnixTime(0))
                .await
                .unwrap();
            let key = fingerprint_sha256(key.spki_der());
            let its = all.iter().filter(|entry| entry.key_fingerprint == key);
            assert_eq!(its.count(), state.certificates_of(number), "{walk}");
        }
        let open = state
            .intents
            .iter()
            .filter(|intent| intent.state == IntentIs::Open);
        let stored = self.store.open_intents().await.unwrap();
        assert_eq!(stored.len(), open.count(), "{walk}");
    }
}
