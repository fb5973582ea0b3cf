//! docs/cluster.md and the pages for those who have another approver: their policies, values and walks; and the page of
//! Kubernetes' documentation that makes a user, command by command.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use countersign_testkit::counterparts::{Counterpart, KubernetesRelease};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::helm::Helm;
use countersign_testkit::keys;
use serde_json::json;

use super::approver::scraped;
use super::signer::signer;
use super::{BASE64, CLIENT, CSRS, Stage, call, condition, node_message};
use crate::installation::run;
use crate::policy_manual::{Block, Reader, blocks};
use crate::tokens_manual::links_lead_somewhere;

const SERVING: &str = "kubernetes.io/kubelet-serving";

/// "Issue a Certificate for a Kubernetes API Client Using a CertificateSigningRequest", which was "Normal user" of
/// "Certificates and Certificate Signing Requests": its commands as they stand there, and what they print.
const NORMAL_USER: &str = r#"
```sh
openssl genrsa -out myuser.key 3072
```
```sh
openssl req -new -key myuser.key -out myuser.csr -subj "/CN=myuser"
```
```sh
cat <<EOF | kubectl apply -f -
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata:
  name: myuser
spec:
  request: $(cat myuser.csr | base64 | tr -d "\n")
  signerName: kubernetes.io/kube-apiserver-client
  expirationSeconds: 86400  # one day
  usages:
  - client auth
EOF
```
```
certificatesigningrequest.certificates.k8s.io/myuser created
```
```sh
kubectl get csr
```
```
NAME     AGE   SIGNERNAME                            REQUESTOR …REQUESTEDDURATION   CONDITION
myuser   …   kubernetes.io/kube-apiserver-client   …   24h                 Pending
```
```sh
kubectl certificate approve myuser
```
```
certificatesigningrequest.certificates.k8s.io/myuser approved
```
```sh
kubectl get csr/myuser -o yaml
```
```
  certificate: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t…
    type: Approved
```
```sh
kubectl get csr myuser -o jsonpath='{.status.certificate}'| base64 -d > myuser.crt
```
```sh
kubectl create role developer --verb=create --verb=get --verb=list --verb=update --verb=delete --resource=pods
```
```
role.rbac.authorization.k8s.io/developer created
```
```sh
kubectl create rolebinding developer-binding-myuser --role=developer --user=myuser
```
```
rolebinding.rbac.authorization.k8s.io/developer-binding-myuser created
```
```sh
kubectl config set-credentials myuser --client-key=myuser.key --client-certificate=myuser.crt --embed-certs=true
```
```
User "myuser" set.
```
```sh
kubectl config set-context myuser --cluster=kubernetes --user=myuser
```
```
Context "myuser" created.
```
```sh
kubectl --context myuser auth whoami
```
```
Username …myuser
Groups …[system:authenticated]
```
```sh
kubectl config use-context myuser
```
```
Switched to context "myuser".
```
```sh
kubectl get pods
```
```
No resources found in default namespace.
```
"#;

/// What the new user tries then, beyond the role.
const NOTHING_ELSE: [&str; 7] = [
    "kubectl get pods --all-namespaces",
    "kubectl get pods --namespace kube-system",
    "kubectl get secrets",
    "kubectl get nodes",
    "kubectl get csr",
    "kubectl certificate approve myuser",
    "kubectl create rolebinding more --clusterrole=cluster-admin --user=myuser",
];

/// A person approves, and we sign.
#[test]
fn the_commands_of_kubernetes_documentation_make_a_user() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    let controllers = signer(&stage);
    follow_normal_user(&stage, "Pending");
    drop(controllers);
}

const USERS: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: users}
spec:
  signers: [kubernetes.io/kube-apiserver-client]
  rules:
    - name: by-administrators
      approve:
        cel: '"system:masters" in requester.groups && size(request.organization) == 0'
"#;

/// We approve and sign; whoever approves it then finds it approved.
#[test]
fn the_commands_of_kubernetes_documentation_make_a_user_that_a_policy_approves() {
    let stage = Stage::start();
    let roles = Stage::roles_of_the_manual();
    let names = "[kubernetes.io/kube-apiserver-client-kubelet, kubernetes.io/kubelet-serving]";
    let more = names.replace('[', "[kubernetes.io/kube-apiserver-client, ");
    assert!(roles.contains(names));
    stage.apply(&roles.replace(names, &more));
    let signing = stage.signing_flags();
    let mut flags = vec!["--controllers=approver,signer"];
    flags.extend(signing.iter().map(String::as_str));
    let controllers = stage.with_policies(USERS, &flags);
    follow_normal_user(&stage, "Approved,Issued");
    let approved = stage.condition("myuser", "Approved");
    assert_eq!(approved["reason"], "users/by-administrators", "{approved}");
    drop(controllers);
}

/// Follows the page; the request stands so when a person would approve it.
fn follow_normal_user(stage: &Stage, standing: &str) {
    let mut reader = reader(stage);
    let page = NORMAL_USER.replace(
        "                 Pending",
        &format!("                 {standing}"),
    );
    let steps = blocks(&page);
    let commands = steps
        .iter()
        .filter(|step| matches!(step, Block::Commands(_)));
    assert_eq!(commands.count(), 14, "{steps:?}");
    for step in &steps {
        reader.follow(step);
        let approving = match standing {
            "Pending" => "certificate approve",
            _ => "kubectl apply",
        };
        if let Block::Commands(text) = step
            && text.contains(approving)
        {
            // A person looks a moment later.
            stage.request("myuser", |it| !it["status"]["certificate"].is_null());
        }
    }
    for attempt in NOTHING_ELSE {
        reader.follow(&Block::Commands(attempt));
        reader.follow(&Block::Printed("…forbidden: …"));
    }
    for (what, answer) in [
        ("list pods", "yes"),
        ("delete pods", "yes"),
        ("watch pods", "no"),
    ] {
        let command = format!("kubectl auth can-i {what}");
        reader.follow(&Block::Commands(&command));
        reader.follow(&Block::Printed(answer));
    }
}

/// Somebody at a terminal with kubectl, whose cluster is called what kubeadm calls it.
fn reader(stage: &Stage) -> Reader {
    let mut reader = Reader::new();
    let kubectl = Counterpart::Kubectl(KubernetesRelease::NEWEST);
    reader.install("kubectl", &kubectl.find().unwrap());
    reader.install("openssl", &Counterpart::Openssl.find().unwrap());
    let text = fs::read_to_string(stage.api.admin_kubeconfig()).unwrap();
    let named = text
        .replace("{name: test, cluster: {", "{name: kubernetes, cluster: {")
        .replace("{cluster: test,", "{cluster: kubernetes,");
    assert_eq!(named.matches("kubernetes").count(), 2, "{named}");
    let kubeconfig = stage.file("kubeconfig", &named);
    let export = format!("export KUBECONFIG={}", kubeconfig.display());
    reader.follow(&Block::Commands(&export));
    reader
}

/// What kubeadm lets join tokens and nodes do.
pub(super) const KUBEADM: &str = r#"
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: "kubeadm:kubelet-bootstrap"},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:node-bootstrapper"},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding,
  metadata: {name: "kubeadm:node-autoapprove-bootstrap"},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole,
            name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding,
  metadata: {name: "kubeadm:node-autoapprove-certificate-rotation"},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole,
            name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: node-asker}, rules: [
  {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [create]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: node-asker},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-asker},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]}
"#;
const JOIN_TOKEN: (&str, &[&str]) = ("system:bootstrap:abcdef", &["system:bootstrappers"]);
const NODES: &[&str] = &["system:nodes"];

#[test]
fn a_fresh_cluster_approves_the_nodes_that_are_expected_as_the_manual_says() {
    let (_, rest) = CLUSTER
        .split_once("\n## From a fresh cluster to approved nodes\n")
        .unwrap();
    let (walk, _) = rest.split_once("\n## ").unwrap();
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    stage.apply(KUBEADM);
    stage.apply(MACHINES);
    let established = stage.api.kubectl().unwrap().run(&[
        "wait",
        "--for=condition=Established",
        "crd/machines.countersign.dev",
    ]);
    assert!(established.as_ref().unwrap().success(), "{established:?}");

    let mut reader = reader(&stage);
    let mut controllers = None;
    let mut has_joined = false;
    for block in blocks(walk) {
        match block {
            Block::File(text) => {
                let file = stage.file(name_of(text), text);
                reader.copy(&file);
            }
            Block::Commands(text) if text.starts_with("helm install") => {
                let policy = fs::read_to_string(stage.folder.path().join("nodes.yaml")).unwrap();
                let flags = ["--controllers", "approver", "--preset", "hardened"];
                controllers = Some(stage.with_policies(&policy, &flags));
            }
            Block::Commands(text) if text.starts_with("kubeadm") => {
                join(&stage, "worker-a", "10.20.0.11");
                has_joined = true;
            }
            Block::Commands(_) | Block::Printed(_) => reader.follow(&block),
            Block::Logged(text) => panic!("{text}"),
        }
    }
    let controllers = controllers.unwrap();
    assert!(has_joined);

    // It renews, and what nobody expects waits and is told why.
    let node = "system:node:worker-a";
    stage.ask(node, NODES, "renewal", CLIENT, &node_message("worker-a"));
    let approved = stage.condition("renewal", "Approved");
    assert_eq!(approved["reason"], "node-clients/renewal", "{approved}");
    let (user, groups) = JOIN_TOKEN;
    stage.ask(user, groups, "stranger", CLIENT, &node_message("worker-z"));
    let alien = node_message("worker-a").ip("10.20.0.99".parse().unwrap());
    ask_to_serve(&stage, node, "alien", &alien);
    for (name, reason) in [("stranger", "no Machine"), ("alien", "10.20.0.99")] {
        let events = stage.events(name);
        let note = events[0]["note"].as_str().unwrap();
        assert!(note.contains(reason), "{note}");
        let request = stage.request(name, |_| true);
        assert_eq!(request["status"], json!({}), "{request:#}\n{controllers}");
    }
}

/// What a kubelet asks for when it joins.
fn join(stage: &Stage, node: &str, address: &str) {
    let (user, groups) = JOIN_TOKEN;
    stage.ask(user, groups, "csr-1", CLIENT, &node_message(node));
    let approved = stage.condition("csr-1", "Approved");
    assert_eq!(approved["reason"], "node-clients/new-node", "{approved}");
    let message = node_message(node).dns(node).ip(address.parse().unwrap());
    ask_to_serve(stage, &format!("system:node:{node}"), "csr-2", &message);
    let approved = stage.condition("csr-2", "Approved");
    assert_eq!(approved["reason"], "node-servers/serving", "{approved}");
}

pub(super) fn ask_to_serve(stage: &Stage, node: &str, name: &str, message: &CsrBuilder) {
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": BASE64.encode(message.sign_pem(keys::p256_c())),
            "signerName": SERVING,
            "usages": ["digital signature", "server auth"],
        },
    });
    let client = stage.api.client(node, NODES).unwrap();
    let (status, answer) = call(&client, "POST", CSRS, Some(&object));
    assert_eq!(status, 201, "{answer:#}");
}

/// Without the right to approve for a signer, requests are judged and counted, and stay as they are.
#[test]
fn a_trial_beside_another_approver_decides_nothing() {
    let stage = Stage::start();
    let roles = Stage::roles_of_the_manual();
    let kubelets = "[kubernetes.io/kube-apiserver-client-kubelet, kubernetes.io/kubelet-serving]";
    let without = roles.replace(kubelets, "[example.com/none]");
    assert_ne!(without, roles);
    stage.apply(&without);
    stage.apply(KUBEADM);
    let policies = policies_of(FROM_KUBELET_CSR_APPROVER);
    let flags = [
        "--controllers",
        "approver",
        "--metrics-listen",
        "127.0.0.1:0",
    ];
    let controllers = stage.with_policies(policies[0], &flags);
    for (name, address) in [("inside", "10.20.0.7"), ("outside", "192.0.2.7")] {
        let message = node_message("n1").ip(address.parse().unwrap());
        ask_to_serve(&stage, "system:node:n1", name, &message);
    }
    let is_refused = |log: &str| {
        let is_about = |line: &str, name: &str| line.contains("not written") && line.contains(name);
        ["inside", "outside"]
            .iter()
            .all(|name| log.lines().any(|line| is_about(line, name)))
    };
    assert!(controllers.wait_for_log(is_refused), "{controllers}");
    let text = scraped(&controllers.addresses.metrics);
    for line in [
        "countersign_cluster_decisions_total{outcome=\"approved\",rule=\"serving\",reason=\"dns\"}",
        "countersign_cluster_decisions_total{outcome=\"denied\",rule=\"serving\",reason=\"K10\"}",
        "countersign_cluster_writes_total{what=\"approval\",outcome=\"forbidden\"}",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    for name in ["inside", "outside"] {
        let request = stage.request(name, |_| true);
        assert_eq!(request["status"], json!({}), "{request:#}");
        let note = stage.events(name)[0]["note"].clone();
        assert!(note.as_str().unwrap().contains("W02: would be "), "{note}");
    }
    // The change: what waits is decided as soon as the right is there.
    stage.apply(&roles);
    for (name, kind, other) in [
        ("inside", "Approved", "Denied"),
        ("outside", "Denied", "Approved"),
    ] {
        let decided = stage.condition(name, kind);
        assert_eq!(decided["reason"], "as-kubelet-csr-approver/serving");
        assert_eq!(condition(&stage.request(name, |_| true), other), None);
    }
}

#[test]
fn the_policies_of_these_pages_are_some() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for policy in PAGES.into_iter().flat_map(policies_of) {
        let path = folder.path().join(format!("{}.yaml", files.len()));
        fs::write(&path, policy).unwrap();
        let path = path.to_str().unwrap().to_owned();
        let checked = run(&["policy", "check", &path]);
        assert!(checked.success(), "{policy}\n{checked}");
        files.push(path);
    }
    assert_eq!(files.len(), 6);
    // Nor do they stand in each other's way.
    let together: Vec<&str> = files.iter().map(String::as_str).collect();
    let checked = run(&[&["policy", "check"][..], &together].concat());
    assert!(checked.success(), "{checked}");
}

/// The values of a trial leave out the right to approve for kubelets, and to delete.
#[test]
fn the_values_of_these_pages_are_some() {
    for page in [FROM_CLUSTER_MACHINE_APPROVER, FROM_KUBELET_CSR_APPROVER] {
        let values: Vec<&str> = yaml_of(page)
            .filter(|text| text.starts_with("# values.yaml\n"))
            .collect();
        assert_eq!(values.len(), 1);
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("values.yaml");
        fs::write(&file, values[0]).unwrap();
        let chart = Path::new(ROOT).join("deploy/helm/countersign");
        let rendered = Helm::new(home.path()).unwrap().run(&[
            "template",
            "countersign",
            chart.to_str().unwrap(),
            "--kube-version=1.36.0",
            "--set=crds.install=false",
            &format!("--values={}", file.display()),
        ]);
        let rendered = rendered.unwrap();
        assert!(rendered.success(), "{rendered}");
        let text = &rendered.stdout;
        assert!(text.contains("example.com/none"), "{text}");
        assert!(!text.contains("kubernetes.io/kubelet-serving"), "{text}");
        assert!(!text.contains("delete"), "{text}");
    }
}

#[test]
fn links_of_these_pages_lead_somewhere() {
    for page in PAGES {
        links_lead_somewhere("docs", page);
    }
    for name in ["cluster-machine-approver", "kubelet-csr-approver"] {
        assert!(
            README.contains(&format!("](docs/from-{name}.md)")),
            "{name}"
        );
        assert!(CLUSTER.contains(&format!("](from-{name}.md)")), "{name}");
    }
}

/// The policy for the first nodes ends by itself, and is about them alone.
#[test]
fn the_first_nodes_are_approved_until_noon() {
    let policies = policies_of(CLUSTER);
    let policy = policies
        .iter()
        .find(|policy| policy.contains("name: first-nodes"))
        .unwrap();
    let mut cases = String::new();
    for (name, now, node, right, expected) in [
        ("in time", "11:59:59", "control-3", "approve", "approve"),
        ("at noon", "12:00:00", "control-3", "approve", "pending"),
        ("another", "11:00:00", "control-4", "approve", "pending"),
        ("no right", "11:00:00", "control-1", "decline", "pending"),
    ] {
        cases.push_str(&format!(
            "  - name: {name}\n    now: 2026-12-01T{now}Z\n    expect: {expected}\n    \
             answers: {{until-noon: {right}}}\n    request:\n      signer: {CLIENT}\n      \
             username: system:bootstrap:abcdef\n      groups: [system:bootstrappers]\n      \
             usages: [digital signature, client auth]\n      \
             csr: {{commonName: 'system:node:{node}', organization: [system:nodes]}}\n"
        ));
    }
    assert_eq!(passed(policy, "", &cases), 4);
}

/// A row of a page: the case, its DNS names, addresses and usages, then what is decided with `compat: exact` and without.
type Row = [&'static str; 6];

const SERVER: &str = "digital signature, server auth";
const CLIENT_ONLY: &str = "client auth";
const DIFFERENCES: [Row; 6] = [
    [
        "as before",
        "a.lab.example.com",
        "10.20.0.1",
        SERVER,
        "approve",
        "approve",
    ],
    [
        "resolver fails",
        "a.slow.lab.example.com",
        "",
        SERVER,
        "deny",
        "pending",
    ],
    [
        "begins with the name",
        "ab.lab.example.com",
        "10.20.0.2",
        SERVER,
        "approve",
        "deny",
    ],
    [
        "a part matches",
        "a.lab.example.com.other.example",
        "10.20.0.3",
        SERVER,
        "approve",
        "deny",
    ],
    [
        "address alone",
        "",
        "10.20.0.4",
        SERVER,
        "approve",
        "pending",
    ],
    [
        "wrong usages",
        "a.lab.example.com",
        "10.20.0.1",
        CLIENT_ONLY,
        "approve",
        "pending",
    ],
];
const ZONE: &str = "
dns:
  a.lab.example.com: [10.20.0.1]
  a.slow.lab.example.com: timeout
  ab.lab.example.com: [10.20.0.2]
  a.lab.example.com.other.example: [10.20.0.3]
";

#[test]
fn kubelet_csr_approver_is_left_behind_where_the_page_says_so() {
    let policies = policies_of(FROM_KUBELET_CSR_APPROVER);
    let anchored = r"'^[\w-]+\.lab\.example\.com$'";
    let exact = policies[0].replace(anchored, r"'\w+(\.slow)?\.lab\.example\.com'");
    let closed = exact.replace("          compat: exact\n", "");
    assert_ne!(exact, policies[0]);
    assert_ne!(exact, closed);
    for (policy, decision) in [(exact, 4), (closed, 5)] {
        let mut cases = String::new();
        for row in DIFFERENCES {
            let [name, dns, ip, usages, ..] = row;
            let names = format!("dnsNames: [{dns}], ipAddresses: [{ip}]");
            cases.push_str(&serving_case(name, row[decision], "a", usages, &names));
        }
        assert_eq!(passed(&policy, ZONE, &cases), DIFFERENCES.len());
    }
}

/// A Machine of a node: its name, the node's, its address, and more of its metadata.
type MachineRow = [&'static str; 4];

const MACHINES_OF_NODES: [MachineRow; 6] = [
    ["plain", "plain", "10.20.0.1", ""],
    ["spelled", "spelled", "fd20:0:0::1", ""],
    [
        "going",
        "going",
        "10.20.0.2",
        ", deletionTimestamp: 2026-11-01T00:00:00Z",
    ],
    ["twin-1", "twin", "10.20.0.3", ""],
    ["twin-2", "twin", "10.20.0.3", ""],
    ["upper", "UPPER", "10.20.0.4", ""],
];
/// As above, with the node in place of DNS names.
const MACHINE_DIFFERENCES: [Row; 8] = [
    [
        "as before",
        "plain",
        "10.20.0.1",
        SERVER,
        "approve",
        "approve",
    ],
    [
        "another address",
        "plain",
        "10.20.0.9",
        SERVER,
        "pending",
        "pending",
    ],
    [
        "spelled differently",
        "spelled",
        "fd20::1",
        SERVER,
        "pending",
        "approve",
    ],
    [
        "deleted",
        "going",
        "10.20.0.2",
        SERVER,
        "approve",
        "pending",
    ],
    [
        "two Machines",
        "twin",
        "10.20.0.3",
        SERVER,
        "approve",
        "pending",
    ],
    [
        "upper case",
        "UPPER",
        "10.20.0.4",
        SERVER,
        "approve",
        "pending",
    ],
    [
        "third usage",
        "plain",
        "10.20.0.1",
        "digital signature, server auth, client auth",
        "approve",
        "pending",
    ],
    ["no names", "plain", "", SERVER, "approve", "pending"],
];

#[test]
fn cluster_machine_approver_is_left_behind_where_the_page_says_so() {
    let policies = policies_of(FROM_CLUSTER_MACHINE_APPROVER);
    let exact = policies[0].to_owned();
    let closed = exact.replace(", compat: exact", "");
    assert_ne!(exact, closed);
    let mut objects = "objects:\n".to_owned();
    for [name, node, address, more] in MACHINES_OF_NODES {
        objects.push_str(&format!(
            "  - apiVersion: machine.openshift.io/v1beta1\n    kind: Machine\n    metadata: \
             {{name: {name}, creationTimestamp: 2026-01-01T00:00:00Z{more}}}\n    status:\n      \
             nodeRef: {{name: {node}}}\n      addresses: \
             [{{type: InternalIP, address: '{address}'}}]\n"
        ));
    }
    for (policy, decision) in [(exact, 4), (closed, 5)] {
        let mut cases = String::new();
        for row in MACHINE_DIFFERENCES {
            let [name, node, ip, usages, ..] = row;
            let quoted = match ip {
                "" => String::new(),
                ip => format!("'{ip}'"),
            };
            let names = format!("ipAddresses: [{quoted}]");
            cases.push_str(&serving_case(name, row[decision], node, usages, &names));
        }
        assert_eq!(passed(&policy, &objects, &cases), MACHINE_DIFFERENCES.len());
    }
}

/// A case of a policy test: a node asks for a serving certificate.
fn serving_case(name: &str, expected: &str, node: &str, usages: &str, names: &str) -> String {
    format!(
        "  - name: {name}\n    expect: {expected}\n    request:\n      signer: {SERVING}\n      \
         username: system:node:{node}\n      groups: [system:nodes, system:authenticated]\n      \
         usages: [{usages}]\n      csr: {{commonName: 'system:node:{node}', \
         organization: [system:nodes], {names}}}\n"
    )
}

/// How many cases a policy passes; all must.
fn passed(policy: &str, scene: &str, cases: &str) -> usize {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.yaml"), policy).unwrap();
    let tests = folder.path().join("test.yaml");
    let text = format!("policy: policy.yaml\n{scene}cases:\n{cases}");
    fs::write(&tests, text).unwrap();
    let tested = run(&["policy", "test", tests.to_str().unwrap()]);
    assert!(tested.success(), "{tested}");
    let last = tested.stdout.lines().last().unwrap();
    let (count, rest) = last.split_once(' ').unwrap();
    assert_eq!(rest, "passed, 0 failed");
    count.parse().unwrap()
}

/// The blocks of a page that are policies.
pub(super) fn policies_of(page: &'static str) -> Vec<&'static str> {
    yaml_of(page)
        .filter(|text| text.contains("kind: ApprovalPolicy\n"))
        .collect()
}

fn yaml_of(page: &'static str) -> impl Iterator<Item = &'static str> {
    let blocks = page.split("\n```yaml\n").skip(1);
    blocks.filter_map(|rest| Some(rest.split_once("```")?.0))
}

/// The name of a file, which is the comment that it begins with.
fn name_of(text: &str) -> &str {
    let (first, _) = text.split_once('\n').unwrap();
    first.strip_prefix("# ").unwrap()
}

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const MACHINES: &str = include_str!("../../../../../deploy/crds/machines.yaml");
const README: &str = include_str!("../../../../../README.md");
pub(super) const CLUSTER: &str = include_str!("../../../../../docs/cluster.md");
const FROM_CLUSTER_MACHINE_APPROVER: &str =
    include_str!("../../../../../docs/from-cluster-machine-approver.md");
const FROM_KUBELET_CSR_APPROVER: &str =
    include_str!("../../../../../docs/from-kubelet-csr-approver.md");
const PAGES: [&str; 3] = [
    CLUSTER,
    FROM_CLUSTER_MACHINE_APPROVER,
    FROM_KUBELET_CSR_APPROVER,
];
