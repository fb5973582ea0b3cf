//! One process after another enrols hosts by token and is killed at some moment. Two keys ask for each name; whoever was
//! told that it has the certificate has it afterwards, the other never gets one, and what was begun is carried through.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use countersign_authority::store::Store;
use countersign_authority::store::{AuditReads as _, LedgerReads as _};
use countersign_authority::{Authority, RequestState, TokenOrder, TokenText};
use countersign_keys::LeafKey;
use countersign_policy::Policy;

use crate::kill_points::{FOLDER, acknowledge};
use crate::site::{new_key, rules_of};
use crate::token_walk::Random;
use crate::tokens::{TOKEN_RULE, bringing, enable};
use crate::world::{self, TestClock, act, issuer_id};

const THIS_TEST: &str =
    "token_kills::a_one_time_token_authorises_once_whenever_the_process_is_killed";
const ROUND: &str = "COUNTERSIGN_TEST_ROUND";
const ROUNDS: u64 = 10;
const NAMES: usize = 24;
const RIVALS: [&str; 2] = ["one", "other"];

#[tokio::test(flavor = "multi_thread")]
async fn a_one_time_token_authorises_once_whenever_the_process_is_killed() {
    if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
        return child(&folder).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    world::prepare(folder).await;
    let (mut acknowledged, mut begun) = (0, 0);
    for round in 0..ROUNDS {
        mint(folder, round).await;
        let mut random = Random::seeded(round);
        let told = run_and_kill(folder, round, &mut random);
        acknowledged += told.len();
        begun += check(folder, round, &told).await;
    }
    assert!(acknowledged > 0, "nobody was told anything");
    assert!(
        begun > acknowledged,
        "nothing was cut short: {begun} of {acknowledged}"
    );
}

fn name(round: u64, number: usize) -> String {
    format!("n{round}-{number}.example.com")
}

/// A token for each name of the round, and two keys.
async fn mint(folder: &Path, round: u64) {
    let authority = start(folder, Arc::new(world::store(folder))).await;
    let admin = act("").actor;
    for number in 0..NAMES {
        let name = name(round, number);
        let minted = authority
            .tokens
            .mint(TokenOrder::exact(&name), &admin, None);
        let token = minted.await.unwrap().token;
        std::fs::write(folder.join(format!("{name}.token")), token.expose()).unwrap();
        for rival in RIVALS {
            let pem = new_key().to_pkcs8_pem().unwrap();
            std::fs::write(folder.join(format!("{name}.{rival}")), pem.as_bytes()).unwrap();
        }
    }
}

fn token(folder: &Path, name: &str) -> TokenText {
    let text = std::fs::read_to_string(folder.join(format!("{name}.token")));
    TokenText::parse(&text.unwrap()).unwrap()
}

fn key(folder: &Path, name: &str, rival: &str) -> LeafKey {
    let text = std::fs::read_to_string(folder.join(format!("{name}.{rival}")));
    LeafKey::from_pkcs8_pem(&text.unwrap()).unwrap()
}

async fn start(folder: &Path, store: Arc<dyn Store>) -> Authority {
    let keys = Arc::new(world::keys(folder));
    let authority = world::authority(folder, store, keys, TestClock::new(), false).await;
    authority.set_rules(authority.rules().with_policy(Policy {
        generation: 1,
        rules: rules_of(&folder.join("policy.yaml"), TOKEN_RULE),
        ..Policy::default()
    }));
    enable(&authority);
    authority
}

/// The child's part: both keys of every name ask at once.
async fn child(folder: &Path) {
    let round = std::env::var(ROUND).unwrap().parse().unwrap();
    let authority = start(folder, Arc::new(world::store(folder))).await;
    let mut asked = Vec::new();
    for number in 0..NAMES {
        let name = name(round, number);
        let token = token(folder, &name);
        for rival in RIVALS {
            let key = key(folder, &name, rival);
            asked.push((name.clone(), rival, bringing(&name, &key, &token)));
        }
    }
    acknowledge("ready");
    let tasks = asked.into_iter().map(|(name, rival, submission)| {
        let authority = authority.clone();
        tokio::spawn(async move {
            let submitted = authority.requests.submit(submission).await.unwrap();
            if let Some(issued) = submitted.issued {
                acknowledge(&format!("{name} {rival} {}", issued.intent().serial));
            }
        })
    });
    for task in futures_util::future::join_all(tasks).await {
        task.unwrap();
    }
}

/// What a child acknowledged until it was killed: by name, the key and its serial.
fn run_and_kill(
    folder: &Path,
    round: u64,
    random: &mut Random,
) -> BTreeMap<String, (String, String)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", THIS_TEST, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (wanted, after) = (random.up_to(NAMES / 2), random.up_to(3000));
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let (mut told, mut line, mut is_ready) = (BTreeMap::new(), String::new(), false);
    while output.read_line(&mut line).unwrap() > 0 {
        // The last line may be cut off: nobody has seen that acknowledgement.
        if let Some((_, said)) = line.trim_end().split_once("acknowledged ")
            && line.ends_with('\n')
        {
            is_ready = true;
            let words: Vec<&str> = said.split(' ').collect();
            if let [name, rival, serial] = words.as_slice() {
                let before = told.insert(
                    (*name).to_owned(),
                    ((*rival).to_owned(), (*serial).to_owned()),
                );
                assert_eq!(before, None, "{name} was issued twice");
            }
        }
        line.clear();
        if is_ready && told.len() == wanted {
            std::thread::park_timeout(Duration::from_micros(u64::try_from(after).unwrap()));
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(is_ready, "the child of round {round} did not start");
    told
}

/// Returns how many names had used their token when the process died.
async fn check(folder: &Path, round: u64, told: &BTreeMap<String, (String, String)>) -> usize {
    let store = Arc::new(world::store(folder));
    let authority = start(folder, store.clone()).await;
    assert!(
        store.open_intents().await.unwrap().is_empty(),
        "round {round}"
    );
    let mut begun = 0;
    for number in 0..NAMES {
        let name = name(round, number);
        let token = token(folder, &name);
        let before = authority.ledger.of_name(&issuer_id(), &name).await.unwrap();
        let uses = authority
            .tokens
            .get(token.id())
            .await
            .unwrap()
            .unwrap()
            .uses;
        assert_eq!(before.len(), uses.len(), "{name}");
        assert!(uses.len() <= 1, "{name}: {uses:?}");
        begun += uses.len();
        let (mut issued, mut denied) = (Vec::new(), Vec::new());
        for rival in RIVALS {
            let submission = bringing(&name, &key(folder, &name, rival), &token);
            let fingerprint = submission.csr.key_fingerprint();
            if let Some(used) = uses.first()
                && used.key_fingerprint == fingerprint
            {
                issued.push(rival);
            }
            let submitted = authority.requests.submit(submission).await.unwrap();
            match submitted.state {
                RequestState::Issued if !issued.contains(&rival) => issued.push(rival),
                RequestState::Issued => {}
                _ => denied.push((rival, submitted.code.to_string())),
            }
        }
        let after = authority.ledger.of_name(&issuer_id(), &name).await.unwrap();
        let [entry] = after.as_slice() else {
            panic!("{name}: {} certificates", after.len());
        };
        // The one that had begun, or else the one that came first, has it; the other has not.
        let ([has], [(_, code)]) = (issued.as_slice(), denied.as_slice()) else {
            panic!("{name}: {issued:?} {denied:?}");
        };
        assert_eq!(code, "token_key_mismatch", "{name}");
        if let Some((rival, serial)) = told.get(&name) {
            assert_eq!(
                (*has, entry.serial.to_string()),
                (rival.as_str(), serial.clone())
            );
        }
    }
    let audit = store.audit(Default::default(), 100_000).await.unwrap();
    let consumed = audit
        .iter()
        .filter(|(_, entry)| entry.action == "token.consumed");
    let names = NAMES * usize::try_from(round + 1).unwrap();
    assert_eq!(consumed.count(), names, "round {round}");
    begun
}
