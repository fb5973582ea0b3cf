//! The process dies at every single step between intent, signature and record, and at every step of a
//! revocation. Whatever was acknowledged is there afterwards, and nothing else is half there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use countersign_authority::store::{Past, Store};
use countersign_authority::{Authority, RequestState};
use countersign_pki::{Crl, Serial};
use countersign_policy::Effect;

use crate::world::{self, DOOR, TestClock, issuer_id};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_at_any_kill_point() {
    let prepared = tempfile::tempdir().unwrap();
    world::prepare(prepared.path()).await;
    let mut step = 0;
    loop {
        let folder = tempfile::tempdir().unwrap();
        for file in ["key.pem", "ca.pem"] {
            std::fs::copy(prepared.path().join(file), folder.path().join(file)).unwrap();
        }
        let acknowledged = live_until(folder.path(), step);
        check(folder.path(), &acknowledged, step).await;
        if acknowledged.contains_key("done") {
            break;
        }
        step += 1;
    }
    // Each of: issuing (2 commits, 1 signature), storing, approving, revoking with its CRL; twice a step.
    assert!(
        step >= 16,
        "only {step} steps were seen; is the tripwire still in the path?"
    );
}

/// Runs the short life until its step, and returns what it acknowledged.
fn live_until(folder: &Path, step: i64) -> HashMap<String, String> {
    let output = Command::new(example("short_life"))
        .arg(folder)
        .arg(step.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "step {step}: {errors}");
    said.lines()
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .map(|(word, rest)| (word.to_owned(), rest.to_owned()))
        .collect()
}

async fn check(folder: &Path, acknowledged: &HashMap<String, String>, step: i64) {
    let store = Arc::new(world::store(folder));
    let keys = Arc::new(world::keys(folder));
    let authority = world::authority(folder, store.clone(), keys, TestClock::new(), true).await;

    let auto = current(&authority, "auto").await;
    if let Some(serial) = acknowledged.get("issued") {
        let serial = Serial::parse_hex(serial).unwrap();
        assert_eq!(
            auto,
            Some(serial),
            "step {step}: the certificate that was shown"
        );
    }
    let manual = authority
        .request_at(&DOOR, "manual", Past::Include)
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
        assert!(
            authority.is_revoked(&issuer_id(), &auto.unwrap()),
            "step {step}"
        );
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
            other => panic!("step {step}: {} is {other:?}", record.key),
        };
        assert_eq!(record.certificate.is_some(), expected, "step {step}");
    }
    for entry in authority
        .newest_certificates(&issuer_id(), None, 100)
        .await
        .unwrap()
    {
        assert_eq!(entry.explanation.effect, Effect::Approve, "step {step}");
        assert!(entry.explanation.by.is_some(), "step {step}");
    }
    let crl = authority.crl(&issuer_id()).unwrap();
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
        .newest_certificate(&issuer_id(), name)
        .await
        .unwrap()
        .map(|entry| entry.serial)
}

/// Examples are built beside the tests.
fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples").join(name)
}
