//! The process dies at every single step between intent, signature and record, and at every step of a
//! revocation; then its successor dies at every step of its recovery. Whatever was acknowledged is there
//! afterwards, and nothing else is half there.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use countersign_authority::store::Past;
use countersign_authority::store::{IssuerReads as _, LedgerReads as _, RequestReads as _};
use countersign_authority::{Authority, RequestState};
use countersign_pki::{Certificate, Crl, RevocationReason, Serial, UnixTime};
use countersign_policy::Effect;
use tempfile::TempDir;

use crate::tripwire::{Fuse, TripKeys, TripStore};
use crate::world::{self, DOOR, START, TestClock, issuer_id};

const THIS_TEST: &str = "kill_points::nothing_acknowledged_is_lost_at_any_kill_point";
pub(crate) const FOLDER: &str = "COUNTERSIGN_TEST_FOLDER";
pub(crate) const PART: &str = "COUNTERSIGN_TEST_PART";
pub(crate) const STEP: &str = "COUNTERSIGN_TEST_STEP";

/// The lifetime that the person who approves `manual` chooses, in seconds.
const CHOSEN_LIFETIME: u64 = 3600;
/// How much later each successor starts, in seconds: a validity that it made up itself would show.
const LATER: i64 = 600;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_at_any_kill_point() {
    if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
        return child(&folder).await;
    }
    let prepared = tempfile::tempdir().unwrap();
    world::prepare(prepared.path()).await;
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
    // Each of: issuing (2 commits, 1 signature), storing, approving, renewing, revoking with its CRL; twice a step.
    assert!(
        step >= 22,
        "only {step} steps were seen; is the tripwire still in the path?"
    );
    // Both certificates were left with an open intent at several steps, and each recovery has at least as many.
    assert!(
        second_deaths >= 2 * 4 * 6,
        "only {second_deaths} deaths during recovery"
    );
}

/// What a process leaves behind, for one of several successors.
pub(crate) fn copy(folder: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in folder.read_dir().unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

/// Runs one test of this program as a child that dies at its step, and returns what it acknowledged.
pub(crate) fn run(test: &str, part: &str, folder: &Path, step: i64) -> HashMap<String, String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(PART, part)
        .env(STEP, step.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("running 1 test"), "{part}: {said}");
    assert!(!errors.contains("panicked"), "{part} {step}: {errors}");
    let acknowledged: HashMap<String, String> = said
        .lines()
        .filter_map(|line| line.split_once("acknowledged "))
        .map(|(_, line)| line.split_once(' ').unwrap_or((line, "")))
        .map(|(word, rest)| (word.to_owned(), rest.to_owned()))
        .collect();
    assert_eq!(
        output.status.success(),
        acknowledged.contains_key("done"),
        "{part} {step}: {errors}"
    );
    acknowledged
}

/// The child's part: an authority that dies at a chosen step of its commits and signatures.
async fn child(folder: &Path) {
    let step = std::env::var(STEP).unwrap().parse().unwrap();
    let (fuse, clock) = (Fuse::unlit(), TestClock::new());
    let store = Arc::new(TripStore(Arc::new(world::store(folder)), fuse.clone()));
    let keys = Arc::new(TripKeys(world::keys(folder), fuse.clone()));
    match std::env::var(PART).unwrap().as_str() {
        "life" => {
            let authority = world::authority(folder, store, keys, clock, true).await;
            fuse.light(step);
            short_life(&authority).await;
        }
        "recovery" => {
            clock.advance(LATER);
            fuse.light(step);
            world::authority(folder, store, keys, clock, true).await;
        }
        other => panic!("there is no part {other}"),
    }
    acknowledge("done");
}

/// Issues `auto`, stores and approves `manual`, renews and revokes `auto`, and says what was acknowledged.
async fn short_life(authority: &Authority) {
    let issued = authority
        .requests
        .submit(world::submission("auto"))
        .await
        .unwrap()
        .issued
        .unwrap();
    acknowledge(&format!("issued {}", issued.intent().serial));
    let mut manual = world::submission("manual");
    manual.signer = world::client_signer();
    manual.wishes.usages = vec!["client auth".to_owned()];
    authority.requests.submit(manual).await.unwrap();
    acknowledge("stored");
    let mut act = world::act("manual");
    act.lifetime = Some(CHOSEN_LIFETIME);
    let approved = authority.requests.approve(act).await.unwrap();
    let signed = approved.issued.unwrap();
    acknowledge(&format!("approved {}", signed.intent().serial));
    let actor = world::act("x").actor;
    let renewed = authority
        .ledger
        .renew(
            &issuer_id(),
            &issued.intent().serial,
            CHOSEN_LIFETIME,
            &actor,
        )
        .await
        .unwrap();
    acknowledge(&format!("renewed {}", renewed.serial()));
    authority
        .ledger
        .revoke_name(
            &issuer_id(),
            "auto",
            RevocationReason::KeyCompromise,
            &actor,
        )
        .await
        .unwrap();
    acknowledge("revoked");
}

pub(crate) fn acknowledge(what: &str) {
    let line = format!("acknowledged {what}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

async fn check(folder: &Path, acknowledged: &HashMap<String, String>, step: &str) {
    let store = Arc::new(world::store(folder));
    let keys = Arc::new(world::keys(folder));
    let clock = TestClock::new();
    clock.advance(2 * LATER);
    let authority = world::authority(folder, store.clone(), keys, clock, true).await;

    let auto = store
        .certificates_of(&issuer_id(), "auto", UnixTime(0))
        .await
        .unwrap();
    let auto: Vec<Serial> = auto.into_iter().map(|entry| entry.serial).collect();
    for shown in ["issued", "renewed"] {
        if let Some(serial) = acknowledged.get(shown) {
            let serial = Serial::parse_hex(serial).unwrap();
            assert!(
                auto.contains(&serial),
                "step {step}: the certificate that was {shown}"
            );
        }
    }
    assert!(auto.len() <= 2, "step {step}: {auto:?}");
    let manual = authority
        .requests
        .at(&DOOR, "manual", Past::Include)
        .await
        .unwrap();
    if acknowledged.contains_key("stored") {
        assert!(manual.is_some(), "step {step}: the stored request");
    }
    if let Some(serial) = acknowledged.get("approved") {
        let serial = Serial::parse_hex(serial).unwrap();
        assert_eq!(
            current(&authority, "manual").await,
            Some(serial),
            "step {step}"
        );
    }
    if acknowledged.contains_key("revoked") {
        for serial in &auto {
            assert!(
                authority.ledger.is_revoked(&issuer_id(), serial),
                "step {step}"
            );
        }
    }

    // Nothing is half there: no approval without its certificate, no certificate without its decision.
    assert!(
        store.open_intents().await.unwrap().is_empty(),
        "step {step}"
    );
    for record in store.requests(Default::default()).await.unwrap() {
        let expected = match record.state {
            RequestState::Issued => true,
            RequestState::Pending => false,
            // Nobody was promised the certificate of a renewal that was cut short.
            RequestState::Failed if record.explanation.to_string().contains("rule renewal") => {
                assert!(!acknowledged.contains_key("renewed"), "step {step}");
                false
            }
            other => panic!("step {step}: {} is {other:?}", record.key),
        };
        assert_eq!(record.certificate.is_some(), expected, "step {step}");
    }
    for entry in authority
        .ledger
        .newest_of_each(&issuer_id(), None, 100)
        .await
        .unwrap()
    {
        assert_eq!(entry.explanation.effect, Effect::Approve, "step {step}");
        assert!(entry.explanation.by.is_some(), "step {step}");
        let every = store
            .certificates_of(&issuer_id(), &entry.name, UnixTime(0))
            .await
            .unwrap();
        let renewals = usize::from(entry.name == "auto" && every.len() == 2);
        assert_eq!(
            every.len(),
            1 + renewals,
            "step {step}: {} twice",
            entry.name
        );
        if entry.name == "manual" {
            let end = UnixTime(START).plus_seconds(CHOSEN_LIFETIME);
            let certificate = Certificate::parse(&entry.der).unwrap();
            assert_eq!(entry.not_after, end, "step {step}: as approved");
            assert_eq!(certificate.not_after(), end, "step {step}: as approved");
        }
    }
    let crl = authority.issuers.crl(&issuer_id()).unwrap();
    let listed: Vec<Serial> = Crl::parse(&crl.record.der).unwrap().serials().collect();
    let (_, revoked) = store
        .revocations(&issuer_id(), authority.now())
        .await
        .unwrap();
    for revocation in &revoked {
        assert!(
            listed.contains(&revocation.serial),
            "step {step}: the CRL is complete"
        );
    }
    assert_eq!(
        listed.len(),
        revoked.len(),
        "step {step}: the CRL lists nothing else"
    );
}

async fn current(authority: &Authority, name: &str) -> Option<Serial> {
    authority
        .ledger
        .newest(&issuer_id(), name)
        .await
        .unwrap()
        .map(|entry| entry.serial)
}
