//! `kill -9` at random moments: nothing acknowledged is lost, and nothing is half there.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use countersign_authority::store::RequestFilter;
use countersign_authority::store::{AuditReads as _, LedgerReads as _, RequestReads as _};
use countersign_authority::{RequestState, Revision, Store};
use countersign_pki::Serial;
use countersign_store::SqliteStore;
use countersign_store_suite::Sample;

use crate::child;
use crate::ground::TemporaryFile;

const ROUNDS: u64 = 20;
const CALLERS: usize = 16;
pub(crate) const ROUND: &str = "COUNTERSIGN_TEST_ROUND"; // makes the names of each child different
const THIS_TEST: &str = "crash::nothing_acknowledged_is_lost_when_the_process_is_killed";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    if let Some(path) = child::store_path() {
        return commit_until_killed(&path).await;
    }
    let ground = TemporaryFile::new();
    let mut acknowledged: Vec<Acknowledged> = Vec::new();
    for round in 0..ROUNDS {
        let before = acknowledged.len();
        acknowledged.extend(run_and_kill(THIS_TEST, &ground, round, Acknowledged::parse));
        assert!(
            acknowledged.len() > before,
            "the child of round {round} acknowledged something"
        );
        let store = ground.store();
        check(&store, &acknowledged).await;
    }
}

/// Starts a child that runs its part of a test, and kills it after it has reported a number of commits that differs by round.
pub(crate) fn run_and_kill<T>(
    test: &str,
    ground: &TemporaryFile,
    round: u64,
    parse: impl Fn(&str) -> Option<T>,
) -> Vec<T> {
    let mut child = child::command(&[], test, &ground.path())
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let mut output = BufReader::new(child.stdout.take().expect("the child's output"));
    // Scatters the moments: a linear congruential step (Knuth's MMIX constants).
    let scattered = (round + 1)
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    let wanted = 1 + usize::try_from(scattered >> 55).expect("nine bits");
    let mut lines = Vec::new();
    let mut line = String::new();
    while output.read_line(&mut line).expect("readable output") > 0 {
        // The last line may be cut off: the acknowledgement was then not seen by anybody.
        if line.ends_with('\n') {
            lines.extend(parse(line.trim_end()));
        }
        line.clear();
        if lines.len() == wanted {
            child.kill().expect("the child can be killed");
        }
    }
    let ended = child.wait().expect("the child ends");
    assert_eq!(ended.signal(), Some(9), "it did not end by itself: {ended}");
    lines
}

async fn check(store: &SqliteStore, acknowledged: &[Acknowledged]) {
    let last = *store.revisions().borrow();
    for Acknowledged {
        revision,
        key,
        serial,
        recorded,
    } in acknowledged
    {
        assert!(*revision <= last);
        let request = store
            .request_at(
                &Sample::door(),
                key,
                countersign_authority::store::Past::Include,
            )
            .await
            .unwrap()
            .unwrap_or_else(|| panic!("the request {key} of revision {revision} was lost"));
        assert!(request.version >= *revision);
        if *recorded {
            assert_eq!(request.state, RequestState::Issued);
            let entry = store.certificate(&Sample::issuer(), serial).await.unwrap();
            assert_eq!(
                entry.expect("the certificate is in the ledger").request,
                request.id
            );
        }
    }
    // Nothing half: every issued request has its certificate, every other one its open intent, and each its audit entry.
    let requests = store.requests(RequestFilter::default()).await.unwrap();
    let open = store.open_intents().await.unwrap();
    for request in &requests {
        match &request.certificate {
            Some((issuer, serial)) => {
                assert_eq!(request.state, RequestState::Issued);
                assert!(store.certificate(issuer, serial).await.unwrap().is_some());
            }
            None => assert!(open.iter().any(|intent| intent.request == request.id)),
        }
    }
    let issued = requests
        .iter()
        .filter(|request| request.state == RequestState::Issued)
        .count();
    assert_eq!(issued + open.len(), requests.len());
    let audit = store.audit(Revision::default(), usize::MAX).await.unwrap();
    assert_eq!(audit.len(), requests.len() + issued);
}

/// The child's part: many callers who enrol until the process dies.
async fn commit_until_killed(path: &Path) {
    let round = std::env::var(ROUND).expect("the round");
    let store = Arc::new(SqliteStore::open(path).unwrap());
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            tokio::spawn(enrol_for_ever(
                Arc::clone(&store),
                format!("{round}-{caller}"),
            ))
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

async fn enrol_for_ever(store: Arc<SqliteStore>, prefix: String) {
    let sample = Sample::default();
    for number in 0_u64.. {
        let key = format!("{prefix}-{number}");
        let mut enrolment = sample.enrolment(&key);
        let digest = countersign_pki::fingerprint_sha256(key.as_bytes());
        let [random @ .., _, _, _, _, _, _] = *digest.as_bytes();
        enrolment.request.id = {
            let [ten @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = random;
            countersign_authority::RequestId::new(enrolment.request.created, ten)
        };
        enrolment.intent.request = enrolment.request.id;
        enrolment.intent.serial = Serial::from_be_bytes(&random[..16]).unwrap();
        for (recorded, change) in [
            (false, enrolment.intend(&sample)),
            (true, enrolment.record(&sample)),
        ] {
            let revision = store.commit(change).await.unwrap().revision;
            let serial = enrolment.intent.serial;
            let line = Acknowledged {
                revision,
                key: key.clone(),
                serial,
                recorded,
            }
            .line();
            std::io::stdout().write_all(line.as_bytes()).unwrap();
        }
    }
}

/// What the child reports of one commit.
struct Acknowledged {
    revision: Revision,
    key: String,
    serial: Serial,
    recorded: bool,
}

impl Acknowledged {
    fn line(&self) -> String {
        format!(
            "acknowledged {} {} {} {}\n",
            self.revision, self.key, self.serial, self.recorded
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [.., "acknowledged", revision, key, serial, recorded] = words.as_slice() else {
            return None;
        };
        Some(Self {
            revision: Revision(revision.parse().ok()?),
            key: (*key).to_owned(),
            serial: Serial::parse_hex(serial).ok()?,
            recorded: recorded.parse().ok()?,
        })
    }
}
