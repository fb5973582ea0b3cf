//! Controllers that agree on who of them is at work: kube-controller-manager, as it comes, with leader election.

use std::time::Duration;

use countersign_testkit::api_server::controllers;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::server_process::ServerProcess;
use serde_json::Value;

use super::{user, well};
use crate::site::Site;

const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
const EVENTS: &str = "/api/v1/namespaces/kube-system/events";
/// What it needs, and no more: leases and events of its namespace, and requests.
const ROLES: &str = r#"
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: leader, namespace: kube-system}, rules: [
  {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, update]},
  {apiGroups: [""], resources: [events], verbs: [create, patch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: leader, namespace: kube-system},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leader},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: controllers}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: cleaner}, rules: [
  {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [get, list, watch, delete]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: cleaner},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cleaner},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: controllers}]}
"#;
const ACQUIRED: &str = "uccessfully acquired lease"; // older releases begin in lower case
const PATIENCE: Duration = Duration::from_secs(60);

fn candidate(site: &Site) -> ServerProcess {
    let arguments = [
        "--controllers=certificatesigningrequest-cleaner-controller",
        "--leader-elect-lease-duration=6s",
        "--leader-elect-renew-deadline=4s",
        "--leader-elect-retry-period=1s",
    ];
    controllers(
        &site.folder("users").join("controllers"),
        &arguments.map(str::to_owned),
    )
    .unwrap()
}

/// Waits for a lease that is so.
#[track_caller]
fn lease(site: &Site, is_so: impl Fn(&Value) -> bool) -> Value {
    let admin = site.kubernetes_admin();
    let mut last = Value::Null;
    let found = ask_again(PATIENCE, || {
        last = serde_json::from_str(&admin.call("GET", LEASE, &[], b"").ok()?.text()).ok()?;
        is_so(&last["spec"]).then(|| last.clone())
    });
    found.unwrap_or_else(|| panic!("{last}"))
}

#[test]
fn controllers_elect_a_leader_and_the_next_one_follows() {
    let site = Site::start(&[]);
    user(&site, "controllers");
    // Without a right to leases it waits, as with any API server.
    let mut first = candidate(&site);
    let refused = "cannot get resource \\\"leases\\\" in API group \\\"coordination.k8s.io\\\"";
    assert!(first.wait_for_log(|log| log.contains(refused)), "{first}");
    well(&site.kubectl(), &["apply", "-f", "-"], ROLES);

    let held = lease(&site, |spec| spec["holderIdentity"].is_string());
    let leader = held["spec"]["holderIdentity"].clone();
    assert!(first.wait_for_log(|log| log.contains(ACQUIRED)), "{first}");
    let second = candidate(&site);
    let other = |spec: &Value| spec["holderIdentity"] != leader;
    let renewed = lease(&site, |spec| spec["renewTime"] != held["spec"]["renewTime"]);
    assert!(!other(&renewed["spec"]), "{renewed}");

    // The lease outlives the server, so nobody else begins in the meantime.
    let site = site.kill_and_restart_there();
    let after = lease(&site, |spec| {
        spec["renewTime"] != renewed["spec"]["renewTime"]
    });
    assert_eq!(after["spec"]["leaseTransitions"], 0, "{after}");
    assert!(!other(&after["spec"]), "{after}");

    first.kill9();
    let taken = lease(&site, other);
    assert_eq!(taken["spec"]["leaseTransitions"], 1, "{taken}");
    assert!(
        second.wait_for_log(|log| log.contains(ACQUIRED)),
        "{second}"
    );

    // They told of it, and people read it.
    let told = ask_again(PATIENCE, || {
        let answer = site.kubernetes_admin().call("GET", EVENTS, &[], b"").ok()?;
        answer.text().contains("became leader").then_some(())
    });
    assert!(told.is_some(), "{second}");
    let events = well(&site.kubectl(), &["get", "events", "-n", "kube-system"], "");
    assert!(events.stdout.contains("LeaderElection"), "{events}");
    let leases = well(&site.kubectl(), &["get", "leases", "-A"], "");
    assert!(
        leases.stdout.contains("kube-controller-manager"),
        "{leases}"
    );
}
