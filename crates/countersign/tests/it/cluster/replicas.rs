//! Replicas of the controllers, what they do when one of them or the API server goes, and what they clean.

use std::process::Command;
use std::time::Duration;

use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::{ask_again, run_with_deadline};
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

use super::{CSRS, PATIENCE, Stage, call, condition};
use crate::site::COUNTERSIGN;

const EVERYTHING: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: everything}
spec:
  signers: [example.com/site]
  rules: [{name: all, approve: {always: {}}}]
"#;
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/countersign";
const SITE: &str = "example.com/site";

/// A replica that renews often, so that tests do not wait for long.
pub(super) fn replica(stage: &Stage) -> ServerProcess {
    replica_with(stage, 32)
}

/// The same with so many workers.
fn replica_with(stage: &Stage, workers: usize) -> ServerProcess {
    let policies = stage.file("policies.yaml", EVERYTHING);
    let config = stage.file(
        "cluster.yaml",
        &format!(
            "policies: [{}]\ncluster: {{workers: {workers}}}\n",
            policies.display()
        ),
    );
    stage.controllers(&[
        "--config",
        config.to_str().unwrap(),
        "--lease-namespace=kube-system",
        "--lease-duration=4s",
        "--lease-renew-deadline=3s",
        "--lease-retry-period=1s",
    ])
}

fn holder(stage: &Stage) -> String {
    let admin = stage.api.admin().unwrap();
    let lease = call(&admin, "GET", LEASE, None).1;
    lease["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[track_caller]
pub(super) fn next_holder(stage: &Stage, before: &str) -> String {
    let found = ask_again(PATIENCE, || {
        let holder = holder(stage);
        (!holder.is_empty() && holder != before).then_some(holder)
    });
    found.unwrap_or_else(|| panic!("nobody after {before:?}"))
}

pub(super) fn ask(stage: &Stage, name: &str) {
    stage.ask(
        "admin",
        &["system:masters"],
        name,
        SITE,
        &CsrBuilder::new(name),
    );
}

#[test]
fn the_next_replica_takes_over_and_one_that_lost_its_lease_ends() {
    let mut stage = Stage::start();
    stage.allow_everything();
    let mut first = replica(&stage);
    let leader = next_holder(&stage, "");
    let mut second = replica(&stage);
    assert!(
        second.wait_for_log(|log| log.contains("another replica leads")),
        "{second}"
    );
    ask(&stage, "one");
    stage.condition("one", "Approved");
    assert!(!second.log().contains("decided"), "{second}");

    // Killed in the middle of it: the other one follows when the lease has run out.
    first.kill9();
    ask(&stage, "two");
    let leader = next_holder(&stage, &leader);
    stage.condition("two", "Approved");
    assert!(
        second.wait_for_log(|log| log.contains("decided")),
        "{second}"
    );

    // A clean end gives the lease back at once.
    let mut third = replica(&stage);
    assert!(
        third.wait_for_log(|log| log.contains("another replica leads")),
        "{third}"
    );
    assert!(second.stop().unwrap().success(), "{second}");
    assert!(
        second.wait_for_log(|log| log.contains("released")),
        "{second}"
    );
    let leader = next_holder(&stage, &leader);
    ask(&stage, "three");
    stage.condition("three", "Approved");

    // The API server is gone for a moment: nobody ends, and what was asked meanwhile is decided.
    stage
        .api
        .restart()
        .unwrap_or_else(|fault| panic!("{fault}"));
    ask(&stage, "four");
    if third.wait(Duration::ZERO).is_some() {
        // It took longer than the lease lasts: ending is right, and a supervisor starts it again.
        assert_eq!(
            third.wait(Duration::ZERO).unwrap().code(),
            Some(1),
            "{third}"
        );
        third = replica(&stage);
    }
    stage.condition("four", "Approved");

    // Somebody takes the lease away: this one ends with status 1.
    let admin = stage.api.admin().unwrap();
    let taken = ask_again(PATIENCE, || {
        let mut lease = call(&admin, "GET", LEASE, None).1;
        lease["spec"]["holderIdentity"] = json!("somebody-else");
        lease["spec"]["leaseDurationSeconds"] = json!(3600);
        (call(&admin, "PUT", LEASE, Some(&lease)).0 == 200).then_some(())
    });
    assert!(taken.is_some(), "after {leader}");
    let status = third.wait(PATIENCE).unwrap_or_else(|| panic!("{third}"));
    assert_eq!(status.code(), Some(1), "{third}");
    let says_why = |log: &str| log.contains("was taken by \"somebody-else\"");
    assert!(third.wait_for_log(says_why), "{third}");
}

/// The leader dies while requests come in and it decides them: the next one does the rest, and nothing twice.
#[test]
fn what_a_killed_leader_left_is_decided_once() {
    const COUNT: usize = 200;
    let stage = Stage::start();
    stage.allow_everything();
    let mut first = replica_with(&stage, 1);
    next_holder(&stage, "");
    let second = replica(&stage);
    assert!(
        second.wait_for_log(|log| log.contains("another replica leads")),
        "{second}"
    );
    let client = stage.api.client("joe", &["system:masters"]).unwrap();
    let decided = |log: &str| log.matches(" decided ").count();
    for number in 0..COUNT {
        let name = format!("r{number}");
        stage.ask_by(&client, &name, SITE, &CsrBuilder::new(&name));
        if number == COUNT / 2 {
            assert!(first.wait_for_log(|log| decided(log) >= 3), "{first}");
            first.kill9();
        }
    }
    let early = decided(&first.log());
    let admin = stage.api.admin().unwrap();
    let mut open = COUNT;
    let all = ask_again(PATIENCE, || {
        let list = call(&admin, "GET", CSRS, None).1;
        let items = list["items"].as_array()?.clone();
        open = items
            .iter()
            .filter(|it| condition(it, "Approved").is_none())
            .count();
        (open == 0).then_some(items)
    });
    let all = all.unwrap_or_else(|| panic!("{open} are open\n{second}"));
    assert_eq!(all.len(), COUNT);
    for item in &all {
        let conditions = item["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 1, "{item:#}");
    }
    // A write whose answer the first one did not live to see is nobody's to repeat.
    let late = decided(&second.log());
    assert!(
        late >= 1 && early + late <= COUNT,
        "{early} {late}\n{second}"
    );
}

#[test]
fn outdated_requests_are_deleted_and_others_are_not() {
    let stage = Stage::start();
    stage.allow_everything();
    for name in ["old", "decided", "kept"] {
        ask(&stage, name);
    }
    for name in ["surplus-1", "surplus-2", "surplus-3"] {
        stage.ask(
            "joe",
            &["system:masters"],
            name,
            "example.com/other",
            &CsrBuilder::new(name),
        );
    }
    let admin = stage.api.admin().unwrap();
    let mut denied = call(&admin, "GET", &format!("{CSRS}/decided"), None).1;
    denied["status"] =
        json!({"conditions": [{"type": "Denied", "status": "True", "reason": "no"}]});
    let path = format!("{CSRS}/decided/approval");
    assert_eq!(call(&admin, "PUT", &path, Some(&denied)).0, 200);
    let config = stage.file(
        "cleaner.yaml",
        "cluster:\n  cleaner: {interval: 1s, pending: 1h, denied: 2s, per_requester: 2}\n",
    );
    let flags = ["--config", config.to_str().unwrap(), "--leader-elect=false"];
    let mut cleaner = stage.controllers(&[&flags[..], &["--controllers", "cleaner"]].concat());
    let names = || -> Vec<String> {
        let all = call(&admin, "GET", CSRS, None).1;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let name = |it: &Value| it["metadata"]["name"].as_str().unwrap().to_owned();
        items.iter().map(name).collect()
    };
    let expected = ["kept", "old", "surplus-2", "surplus-3"];
    let found = ask_again(PATIENCE, || (names() == expected).then_some(()));
    assert!(found.is_some(), "{:?}\n{cleaner}", names());
    let kept = stage.request("kept", |_| true);
    assert_eq!(
        condition(&kept, "Approved"),
        None,
        "a cleaner approves nothing"
    );
    assert!(cleaner.stop().unwrap().success(), "{cleaner}");
}

#[test]
fn a_cluster_that_cannot_be_found_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.kubeconfig");
    let broken = folder.path().join("broken.kubeconfig");
    std::fs::write(
        &broken,
        "apiVersion: v1\nkind: Config\ncurrent-context: nowhere\n",
    )
    .unwrap();
    for (arguments, said) in [
        (
            vec!["--kubeconfig", missing.to_str().unwrap()],
            "missing.kubeconfig",
        ),
        (
            vec!["--kubeconfig", broken.to_str().unwrap()],
            "broken.kubeconfig",
        ),
        (vec!["--lease-duration=1s"], "--lease-duration"),
    ] {
        let mut command = Command::new(COUNTERSIGN);
        command
            .arg("cluster")
            .args(&arguments)
            .env_remove("KUBECONFIG")
            .env_remove("RUST_LOG");
        let finished = run_with_deadline(command, PATIENCE).unwrap();
        assert_eq!(finished.code, Some(1), "{arguments:?} {finished}");
        assert!(finished.stderr.contains(said), "{arguments:?} {finished}");
    }
}
