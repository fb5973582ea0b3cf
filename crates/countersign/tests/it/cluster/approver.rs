//! Decisions on the requests of a real cluster.

use countersign_testkit::api_server;
use countersign_testkit::client_go::Kubelet;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::http;
use serde_json::json;

use super::{CLIENT, CSRS, PATIENCE, Stage, call, condition, node_message};

const SITE: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: site}
spec:
  signers: [example.com/site]
  rules:
    - name: reserved
      deny: {cel: 'request.commonName == "vault"', message: "reserved name"}
    - name: team
      approve: {cel: '"team" in requester.groups && request.door == "cluster"'}
    - name: writers
      approve:
        subjectAccess: {group: example.com, resource: certificates, verb: request}
"#;
pub(super) const ASKER: &str = r#"
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: asker}, rules: [
  {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [create]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: asker},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: asker},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:authenticated"}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: writer}, rules: [
  {apiGroups: [example.com], resources: [certificates], verbs: [request]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: site-approver}, rules: [
  {apiGroups: [certificates.k8s.io], resources: [signers], resourceNames: [example.com/site], verbs: [approve]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: site-approver},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: site-approver},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:serviceaccount:countersign:countersign"}]}
"#;
const WRITER: &str = r#"
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: writer},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: writer},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]}
"#;
pub(super) const KUBELETS: &str = r#"
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: bootstrap},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole,
            name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: rotation},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole,
            name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]}
"#;

#[test]
fn a_real_cluster_is_decided_by_policy_and_told_why() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    stage.apply(ASKER);
    let site = "example.com/site";
    // Asked before anybody was there to decide.
    stage.ask("joe", &["team"], "early", site, &CsrBuilder::new("early"));
    let metrics = [
        "--controllers",
        "approver",
        "--metrics-listen",
        "127.0.0.1:0",
    ];
    let mut controllers = stage.with_policies(SITE, &metrics);

    let approved = stage.condition("early", "Approved");
    assert_eq!(approved["reason"], "site/team", "{approved}");
    let message = approved["message"].as_str().unwrap();
    assert!(message.contains("approved by rule team"), "{message}");

    stage.ask("joe", &["team"], "taken", site, &CsrBuilder::new("vault"));
    let denied = stage.condition("taken", "Denied");
    assert_eq!(denied["reason"], "site/reserved", "{denied}");
    assert!(
        denied["message"]
            .as_str()
            .unwrap()
            .contains("reserved name"),
        "{denied}"
    );

    // Somebody else's signer is left alone, and somebody else's decision stands.
    stage.ask(
        "joe",
        &["team"],
        "other",
        "example.com/other",
        &CsrBuilder::new("other"),
    );

    // A right that a real review grants; until then the request says why it waits.
    stage.ask("jane", &[], "later", site, &CsrBuilder::new("later"));
    let events = stage.events("later");
    assert_eq!(events.len(), 1, "{events:?}");
    let (reason, note) = (&events[0]["reason"], events[0]["note"].as_str().unwrap());
    assert_eq!(reason, "ApprovalPending");
    assert!(note.contains("jane may not request certificates"), "{note}");
    stage.apply(WRITER);
    let approved = stage.condition("later", "Approved");
    assert_eq!(approved["reason"], "site/writers", "{approved}");
    assert_eq!(stage.events("later").len(), 1, "told once");

    let other = stage.request("other", |_| true);
    assert_eq!(other["status"], json!({}), "{other:#}");

    // Changed policies judge what waits.
    stage.ask("joan", &[], "waits", site, &CsrBuilder::new("waits"));
    stage.events("waits");
    let changed = SITE.replace(
        "\"team\" in",
        "requester.username == \"joan\" || \"team\" in",
    );
    stage.file("policies.yaml", &changed);
    let approved = stage.condition("waits", "Approved");
    assert_eq!(approved["reason"], "site/team", "{approved}");
    // Bad ones do not count.
    stage.file("policies.yaml", "kind: Nonsense\n");
    let kept = "the earlier ones stay in force";
    assert!(
        controllers.wait_for_log(|log| log.contains(kept)),
        "{controllers}"
    );
    stage.ask("joe", &["team"], "still", site, &CsrBuilder::new("still"));
    stage.condition("still", "Approved");

    let text = scraped(&controllers.addresses.metrics);
    for line in [
        "countersign_cluster_decisions_total{outcome=\"approved\",rule=\"team\",reason=\"cel\"}",
        "countersign_cluster_decisions_total{outcome=\"denied\",rule=\"reserved\",reason=\"cel\"}",
        "countersign_cluster_decisions_total{outcome=\"pending\",rule=\"writers\",reason=\"access_not_allowed\"}",
        "countersign_policy_refused 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(controllers.stop().unwrap().success(), "{controllers}");
    drop(stage);
}

pub(super) fn scraped(url: &str) -> String {
    let address = url.strip_prefix("http://").unwrap().parse().unwrap();
    let found = ask_again(PATIENCE, || {
        let answer = http::call(address, "GET", "/metrics").ok()?;
        (answer.status == 200).then(|| answer.text())
    });
    found.unwrap()
}

/// The preset that does what kube-controller-manager does, with its roles.
#[test]
fn kubelets_are_approved_as_by_kube_controller_manager() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    stage.apply(ASKER);
    stage.apply(KUBELETS);
    let preset = [
        "--preset",
        "kube-controller-manager",
        "--lease-namespace",
        "countersign",
    ];
    let controllers = stage.controllers(&[&preset[..], &["--controllers", "approver"]].concat());
    let bootstrap = ("system:bootstrap:abcdef", ["system:bootstrappers"]);
    stage.ask(
        bootstrap.0,
        &bootstrap.1,
        "first",
        CLIENT,
        &node_message("n1"),
    );
    let approved = stage.condition("first", "Approved");
    assert!(
        approved["reason"]
            .as_str()
            .unwrap()
            .ends_with("/node-client"),
        "{approved}"
    );
    stage.ask(
        "system:node:n1",
        &["system:nodes"],
        "renewal",
        CLIENT,
        &node_message("n1"),
    );
    let approved = stage.condition("renewal", "Approved");
    assert!(
        approved["reason"]
            .as_str()
            .unwrap()
            .ends_with("/self-node-client"),
        "{approved}"
    );

    // Of another shape, and somebody without the right: both wait.
    let odd = node_message("n2").dns("n2.example.com");
    stage.ask(bootstrap.0, &bootstrap.1, "odd", CLIENT, &odd);
    stage.ask("jane", &[], "stranger", CLIENT, &node_message("n3"));
    for (name, check) in [("odd", "C02"), ("stranger", "C06")] {
        let note = stage.events(name)[0]["note"].clone();
        assert!(note.as_str().unwrap().contains(check), "{name}: {note}");
        let request = stage.request(name, |_| true);
        assert_eq!(
            condition(&request, "Approved"),
            None,
            "{request:#}\n{controllers}"
        );
        assert_eq!(condition(&request, "Denied"), None, "{request:#}");
    }
}

#[test]
fn many_at_once_are_all_decided_once() {
    let stage = Stage::start();
    // Who may patch but not put decides as well.
    let roles = Stage::roles_of_the_manual();
    let patching = roles.replace("/approval], verbs: [update]", "/approval], verbs: [patch]");
    assert_ne!(patching, roles);
    stage.apply(&patching);
    stage.apply(ASKER);
    let policy = SITE.replace("\"team\" in requester.groups && ", "");
    let controllers = stage.with_policies(&policy, &["--controllers", "approver"]);
    let client = stage.api.client("joe", &["team"]).unwrap();
    for number in 0..200 {
        let name = format!("r{number}");
        stage.ask_by(&client, &name, "example.com/site", &CsrBuilder::new(&name));
    }
    let admin = stage.api.admin().unwrap();
    let mut left = 0;
    let done = ask_again(PATIENCE, || {
        let all = call(&admin, "GET", CSRS, None).1;
        let items = all["items"].as_array()?;
        left = items
            .iter()
            .filter(|it| condition(it, "Approved").is_none())
            .count();
        (items.len() == 200 && left == 0).then_some(())
    });
    assert!(done.is_some(), "{left} are left\n{controllers}");
    // None was written twice, and none was fought over.
    let decided = |log: &str| log.matches("decided").count();
    assert!(
        controllers.wait_for_log(|log| decided(log) >= 200),
        "{controllers}"
    );
    assert_eq!(decided(&controllers.log()), 200, "{controllers}");
}

/// There are only so many Events in a second: whoever comes too late for one is told a little later.
#[test]
fn everybody_who_waits_is_told_why_in_the_end() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    stage.apply(ASKER);
    let only = SITE.split("    - name: writers").next().unwrap();
    let client = stage.api.client("joe", &[]).unwrap();
    for number in 0..125 {
        let name = format!("r{number}");
        stage.ask_by(&client, &name, "example.com/site", &CsrBuilder::new(&name));
    }
    let metrics = ["--controllers=approver", "--metrics-listen", "127.0.0.1:0"];
    let controllers = stage.with_policies(only, &metrics);
    let admin = stage.api.admin().unwrap();
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let mut told = 0;
    let all = ask_again(PATIENCE, || {
        let events = call(&admin, "GET", path, None).1;
        let of_requests = |event: &&serde_json::Value| event["reason"] == "ApprovalPending";
        told = events["items"]
            .as_array()?
            .iter()
            .filter(of_requests)
            .count();
        (told == 125).then_some(())
    });
    assert!(all.is_some(), "{told}\n{controllers}");
    let waiting = |log: &str| log.matches(" waiting ").count() == 125;
    assert!(controllers.wait_for_log(waiting), "{controllers}");
    let text = scraped(&controllers.addresses.metrics);
    let suppressed = text
        .lines()
        .find_map(|line| line.strip_prefix("countersign_cluster_events_suppressed_total "));
    let suppressed: u32 = suppressed.unwrap().parse().unwrap();
    assert!(suppressed > 0, "{text}");
}

/// client-go's certificate manager with us as the approver, and kube-controller-manager as the signer alone.
#[test]
fn a_kubelet_bootstraps_and_renews() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    stage.apply(ASKER);
    stage.apply(KUBELETS);
    stage.apply(
        r#"
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: bootstrappers},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:node-bootstrapper"},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]}
"#,
    );
    let file = |name: &str| {
        stage
            .folder
            .path()
            .join("api")
            .join(name)
            .display()
            .to_string()
    };
    let signer = api_server::controllers(
        &stage.api.admin_kubeconfig(),
        &[
            "--controllers=certificatesigningrequest-signing-controller".to_owned(),
            format!("--cluster-signing-cert-file={}", file("ca.pem")),
            format!("--cluster-signing-key-file={}", file("ca-key.pem")),
            "--leader-elect=false".to_owned(),
        ],
    );
    let signer = signer.unwrap();
    let preset = [
        "--preset",
        "kube-controller-manager",
        "--leader-elect=false",
    ];
    let approver = stage.controllers(&preset);
    let bootstrap = stage
        .api
        .kubeconfig("system:bootstrap:abcdef", &["system:bootstrappers"]);
    let kubelet = Kubelet {
        node: "n1".to_owned(),
        bootstrap_kubeconfig: bootstrap.unwrap(),
        folder: stage.folder.path().join("n1"),
    };
    std::fs::create_dir(&kubelet.folder).unwrap();
    let certificates = kubelet
        .certificate_manager(&["--count", "2", "--aged"])
        .unwrap();
    let (certificates, status) = certificates.read_to_end().unwrap();
    assert!(status.success(), "{certificates:?}\n{approver}\n{signer}");
    assert_eq!(certificates.len(), 2, "{certificates:?}");
    assert_eq!(certificates[1]["user"], "system:node:n1");
    let log = approver.log();
    for rule in ["node-client", "self-node-client"] {
        let said = format!("rule=preset.kube-controller-manager.client/{rule}");
        assert!(log.contains(&said), "{said}\n{log}");
    }
}
