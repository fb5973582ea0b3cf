//! The cluster's store hangs for longer than a request may take.

use std::time::Duration;

use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::ask_again;
use serde_json::Value;

use super::replicas::{ask, next_holder, replica};
use super::{CSRS, PATIENCE, Stage, call, condition};
use crate::installation::run;

const CLIENTS: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: clients}
spec:
  signers: [kubernetes.io/kube-apiserver-client]
  rules:
    - {name: reserved, deny: {cel: 'request.commonName.startsWith("reserved")'}}
    - {name: all, approve: {always: {}}}
"#;
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const COUNT: usize = 60;

/// Every fifth is of the kind that is denied.
fn is_reserved(number: usize) -> bool {
    number.is_multiple_of(5)
}

#[test]
fn nothing_is_lost_or_decided_twice_while_the_clusters_store_hangs() {
    let mut stage = Stage::start_with(&["--request-timeout=6s"]);
    stage.allow_everything();
    let signing = stage.signing_flags();
    let mut flags = vec!["--controllers=approver,signer"];
    flags.extend(signing.iter().map(String::as_str));
    let mut controllers = stage.with_policies(CLIENTS, &flags);
    let mut leader = replica(&stage);
    let first = next_holder(&stage, "");

    for number in 0..COUNT {
        let common_name = match is_reserved(number) {
            true => format!("reserved-{number}"),
            false => format!("user-{number}"),
        };
        let message = CsrBuilder::new(&common_name);
        stage.ask(
            "admin",
            &["system:masters"],
            &format!("r{number}"),
            CLIENT,
            &message,
        );
    }
    ask(&stage, "before");
    assert!(
        controllers.wait_for_log(|log| log.contains("decided")),
        "{controllers}"
    );
    stage.api.pause_store();
    // Whoever leads by a Lease that it cannot renew must end, before another one could take over.
    let status = leader.wait(PATIENCE).unwrap_or_else(|| panic!("{leader}"));
    assert_eq!(status.code(), Some(1), "{leader}");
    let is_told = |log: &str| log.contains("could not be renewed");
    assert!(leader.wait_for_log(is_told), "{leader}");
    assert!(controllers.wait(Duration::ZERO).is_none(), "{controllers}");
    stage.api.resume_store();

    let admin = stage.api.admin().unwrap();
    let mut open = COUNT;
    let settled = ask_again(PATIENCE, || {
        let list = call(&admin, "GET", CSRS, None).1;
        let items: Vec<Value> = list["items"].as_array()?.clone();
        let of_clients: Vec<Value> = items
            .into_iter()
            .filter(|it| it["spec"]["signerName"] == CLIENT)
            .collect();
        let is_settled = |it: &&Value| {
            it["status"]["certificate"].is_string() || condition(it, "Denied").is_some()
        };
        open = COUNT - of_clients.iter().filter(is_settled).count();
        (open == 0).then_some(of_clients)
    });
    let settled = settled.unwrap_or_else(|| panic!("{open} are open\n{controllers}"));
    assert_eq!(settled.len(), COUNT);
    for item in &settled {
        let name = item["metadata"]["name"].as_str().unwrap();
        let number: usize = name.strip_prefix('r').unwrap().parse().unwrap();
        let kinds: Vec<&Value> = item["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|condition| &condition["type"])
            .collect();
        let expected = match is_reserved(number) {
            true => "Denied",
            false => "Approved",
        };
        assert_eq!(kinds, [expected], "{name}");
    }
    // The next leader goes on.
    let next = replica(&stage);
    assert_ne!(next_holder(&stage, &first), first);
    ask(&stage, "after");
    for name in ["before", "after"] {
        stage.condition(name, "Approved");
    }
    drop(next);

    // One certificate for each, however often its answer was lost.
    assert!(controllers.stop().unwrap().success(), "{controllers}");
    let issued = controllers.log().matches("certificate issued").count();
    let reserved = (0..COUNT).filter(|number| is_reserved(*number)).count();
    assert_eq!(issued, COUNT - reserved, "{controllers}");
    let data = stage.folder.path().join("data");
    let verified = run(&[
        "audit",
        "verify",
        "--offline",
        "--data",
        data.to_str().unwrap(),
    ]);
    assert!(verified.success(), "{verified}");
}
