//! What people type, with kubectl of every release that Kubernetes supported lately, and with Debian's as far as it goes.

use countersign_testkit::counterparts::KubernetesRelease;
use countersign_testkit::deadline::Finished;
use countersign_testkit::keys;
use countersign_testkit::kubectl::Kubectl;
use serde_json::{Value, json};

use super::user;
use crate::site::{Site, kubernetes_request_for};

/// A command and what comes of it. `{n}` is a word of the run's own, so that runs do not meet.
struct Row {
    /// Names the row where it is said what a kubectl cannot do.
    name: &'static str,
    user: User,
    arguments: &'static [&'static str],
    input: Input,
    code: i32,
    /// All of it stands in one of the outputs.
    said: &'static [&'static str],
}

#[derive(Clone, Copy)]
enum User {
    Admin,
    /// Who may approve for `example.com/*`, by a role that an earlier row has applied.
    Approver,
}

#[derive(Clone, Copy)]
enum Input {
    Nothing,
    /// A request of this name.
    Request(&'static str),
    /// The same with a label.
    Labelled(&'static str),
    Text(&'static str),
}

const fn ok(
    name: &'static str,
    arguments: &'static [&'static str],
    input: Input,
    said: &'static [&'static str],
) -> Row {
    Row {
        name,
        user: User::Admin,
        arguments,
        input,
        code: 0,
        said,
    }
}

const fn fails(
    name: &'static str,
    arguments: &'static [&'static str],
    input: Input,
    said: &'static [&'static str],
) -> Row {
    Row {
        code: 1,
        ..ok(name, arguments, input, said)
    }
}

const fn by_approver(row: Row) -> Row {
    Row {
        user: User::Approver,
        ..row
    }
}

#[test]
fn what_people_type_works_with_kubectl_of_every_release() {
    let site = Site::start(&[]);
    let approver = user(&site, "approver");
    let mut missed = Vec::new();
    for release in KubernetesRelease::ALL {
        let word = format!("v{}", release.minor().replace('.', "-"));
        let home = site.folder(&word);
        let admin = Kubectl::of(release, &site.kubeconfig(), &home).unwrap();
        let approver = Kubectl::of(release, &approver, &home).unwrap();
        for row in ROWS {
            if let Err(fault) = row.run(&word, &admin, &approver) {
                missed.push(format!("kubectl {}: {fault}", release.minor()));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n\n"));
}

/// Best effort: it is two years older than what its own project supported when API servers of today came out. What it
/// cannot do is listed with the reason, and that list is exact.
#[test]
fn what_debians_old_kubectl_can_do_it_does() {
    let site = Site::start(&[]);
    let approver = user(&site, "approver");
    let home = site.folder("debian");
    let admin = Kubectl::of_debian(&site.kubeconfig(), &home).unwrap();
    let approver = Kubectl::of_debian(&approver, &home).unwrap();
    let mut missed = Vec::new();
    for row in ROWS {
        let reason = TOO_OLD.iter().find(|(name, _)| *name == row.name);
        match (row.run("debian", &admin, &approver), reason) {
            (Ok(()), None) | (Err(_), Some(_)) => {}
            (Err(fault), None) => missed.push(fault),
            (Ok(()), Some((name, reason))) => {
                missed.push(format!("{name} works, although {reason}"))
            }
        }
    }
    for (name, _) in TOO_OLD {
        assert!(ROWS.iter().any(|row| row.name == *name), "no row {name}");
    }
    assert!(missed.is_empty(), "{}", missed.join("\n\n"));
}

impl Row {
    fn run(&self, word: &str, admin: &Kubectl, approver: &Kubectl) -> Result<(), String> {
        let kubectl = match self.user {
            User::Admin => admin,
            User::Approver => approver,
        };
        let filled: Vec<String> = self.arguments.iter().map(|text| fill(text, word)).collect();
        let arguments: Vec<&str> = filled.iter().map(String::as_str).collect();
        let finished = match self.input {
            Input::Nothing => kubectl.run(&arguments),
            Input::Request(name) => {
                let object = request(&fill(name, word));
                kubectl.run_with_input(&arguments, &object.to_string())
            }
            Input::Labelled(name) => {
                let mut object = request(&fill(name, word));
                object["metadata"]["labels"] = json!({"applied": "twice"});
                kubectl.run_with_input(&arguments, &object.to_string())
            }
            Input::Text(text) => kubectl.run_with_input(&arguments, &fill(text, word)),
        };
        let told = |said: &str| format!("{}: {arguments:?}: {said}", self.name);
        let finished = finished.map_err(|fault| told(&fault.to_string()))?;
        let Finished { stdout, stderr, .. } = &finished;
        for text in self.said {
            let text = fill(text, word);
            if !stdout.contains(&text) && !stderr.contains(&text) {
                return Err(told(&format!("no {text:?} in {finished}")));
            }
        }
        if finished.code == Some(self.code) {
            Ok(())
        } else {
            Err(told(&finished.to_string()))
        }
    }
}

/// The same each time, which with an elliptic curve it would not be: applied twice, nothing changes.
fn request(name: &str) -> Value {
    kubernetes_request_for(
        name,
        "kubernetes.io/kube-apiserver-client",
        keys::rsa2048_a(),
    )
}

fn fill(text: &str, word: &str) -> String {
    text.replace("{n}", word)
}

/// In this order, each on what the ones before it left.
const ROWS: &[Row] = &[
    ok(
        "version",
        &["version"],
        Input::Nothing,
        &["Server Version:"],
    ),
    ok(
        "api-resources",
        &["api-resources"],
        Input::Nothing,
        &[
            "certificatesigningrequests",
            "csr",
            "clusterrolebindings",
            "RoleBinding",
        ],
    ),
    ok(
        "api-versions",
        &["api-versions"],
        Input::Nothing,
        &["certificates.k8s.io/v1", "rbac.authorization.k8s.io/v1"],
    ),
    ok(
        "explain",
        &["explain", "csr"],
        Input::Nothing,
        &["CertificateSigningRequest", "spec"],
    ),
    ok(
        "explain a field",
        &["explain", "csr.spec.signerName"],
        Input::Nothing,
        &["signerName", "string"],
    ),
    ok(
        "explain a role",
        &["explain", "clusterrole.rules"],
        Input::Nothing,
        &["resourceNames"],
    ),
    ok(
        "whoami",
        &["auth", "whoami"],
        Input::Nothing,
        &["system:masters"],
    ),
    ok(
        "can-i",
        &["auth", "can-i", "create", "csr"],
        Input::Nothing,
        &["yes"],
    ),
    ok(
        "can-i approve",
        &["auth", "can-i", "approve", "signers.certificates.k8s.io/x"],
        Input::Nothing,
        &["yes"],
    ),
    by_approver(fails(
        "can-i approve, as nobody",
        &[
            "auth",
            "can-i",
            "approve",
            "signers.certificates.k8s.io/example.com/vpn",
        ],
        Input::Nothing,
        &["no"],
    )),
    by_approver(fails(
        "get, as nobody",
        &["get", "csr"],
        Input::Nothing,
        &["Error from server (Forbidden)"],
    )),
    ok(
        "apply roles",
        &["apply", "-f", "-"],
        Input::Text(ROLE),
        &[
            "clusterrole.rbac.authorization.k8s.io/{n}-approver created",
            "clusterrolebinding.rbac.authorization.k8s.io/{n}-approver created",
        ],
    ),
    ok(
        "apply roles twice",
        &["apply", "-f", "-"],
        Input::Text(ROLE),
        &[
            "clusterrole.rbac.authorization.k8s.io/{n}-approver unchanged",
            "clusterrolebinding.rbac.authorization.k8s.io/{n}-approver unchanged",
        ],
    ),
    by_approver(ok(
        "can-i approve, with a role",
        &[
            "auth",
            "can-i",
            "approve",
            "signers.certificates.k8s.io/example.com/vpn",
        ],
        Input::Nothing,
        &["yes"],
    )),
    by_approver(ok(
        "can-i --list",
        &["auth", "can-i", "--list"],
        Input::Nothing,
        &["signers.certificates.k8s.io", "[example.com/*]"],
    )),
    ok(
        "get a role",
        &["get", "clusterrole", "{n}-approver"],
        Input::Nothing,
        &["{n}-approver", "CREATED AT"],
    ),
    ok(
        "describe a role",
        &["describe", "clusterrole", "{n}-approver"],
        Input::Nothing,
        &[
            "signers.certificates.k8s.io",
            "[example.com/*]",
            "[approve]",
        ],
    ),
    ok(
        "create",
        &["create", "-f", "-"],
        Input::Request("{n}-a"),
        &["certificatesigningrequest.certificates.k8s.io/{n}-a created"],
    ),
    fails(
        "create twice",
        &["create", "-f", "-"],
        Input::Request("{n}-a"),
        &[
            "(AlreadyExists)",
            "certificatesigningrequests.certificates.k8s.io \"{n}-a\" already exists",
        ],
    ),
    ok(
        "dry run",
        &["create", "--dry-run=server", "-f", "-"],
        Input::Request("{n}-dry"),
        &["{n}-dry created (server dry run)"],
    ),
    fails(
        "nothing of a dry run",
        &["get", "csr", "{n}-dry"],
        Input::Nothing,
        &[
            "Error from server (NotFound): certificatesigningrequests.certificates.k8s.io \"{n}-dry\" not found",
        ],
    ),
    fails(
        "invalid",
        &["create", "-f", "-"],
        Input::Text(INVALID),
        &[
            "The CertificateSigningRequest \"{n}-invalid\" is invalid",
            "spec.request: Invalid value",
            "spec.signerName: Invalid value: \"nonsense\"",
            "spec.usages: Required value",
        ],
    ),
    fails(
        "unknown field",
        &["create", "-f", "-"],
        Input::Text(UNKNOWN_FIELD),
        // kubectl 1.20 finds it itself, by the document of OpenAPI version 2, and names it without its path.
        &["unknown field \"", "colour\""],
    ),
    fails(
        "invalid role",
        &["create", "-f", "-"],
        Input::Text(INVALID_ROLE),
        &[
            "The ClusterRole \"{n}-invalid\" is invalid",
            "rules[0].verbs: Required value",
        ],
    ),
    ok(
        "get",
        &["get", "csr"],
        Input::Nothing,
        &["REQUESTOR", "{n}-a", "Pending"],
    ),
    ok(
        "get as yaml",
        &["get", "csr", "{n}-a", "-o", "yaml"],
        Input::Nothing,
        &[
            "kind: CertificateSigningRequest",
            "signerName: kubernetes.io/kube-apiserver-client",
            "- client auth",
        ],
    ),
    ok(
        "get all as yaml",
        &["get", "csr", "-o", "yaml"],
        Input::Nothing,
        &["kind: List", "name: {n}-a"],
    ),
    ok(
        "get by name",
        &[
            "get",
            "csr",
            "--field-selector",
            "metadata.name={n}-a",
            "-o",
            "name",
        ],
        Input::Nothing,
        &["certificatesigningrequest.certificates.k8s.io/{n}-a"],
    ),
    ok(
        "get sorted",
        &["get", "csr", "--sort-by", ".metadata.name"],
        Input::Nothing,
        &["{n}-a", "Pending"],
    ),
    ok(
        "describe",
        &["describe", "csr", "{n}-a"],
        Input::Nothing,
        &[
            "Requesting User:",
            "Pending",
            "Common Name:",
            "{n}-a",
            "developers",
        ],
    ),
    ok(
        "apply",
        &["apply", "-f", "-"],
        Input::Request("{n}-b"),
        &["{n}-b created"],
    ),
    ok(
        "apply twice",
        &["apply", "-f", "-"],
        Input::Request("{n}-b"),
        &["{n}-b unchanged"],
    ),
    ok(
        "apply a change",
        &["apply", "-f", "-"],
        Input::Labelled("{n}-b"),
        &["{n}-b configured"],
    ),
    ok(
        "apply again without it",
        &["apply", "-f", "-"],
        Input::Request("{n}-b"),
        &["{n}-b configured"],
    ),
    ok(
        "get by label, none",
        &["get", "csr", "-l", "applied=twice"],
        Input::Nothing,
        &["No resources found"],
    ),
    ok(
        "label",
        &["label", "csr", "{n}-a", "colour=red"],
        Input::Nothing,
        &["{n}-a labeled"],
    ),
    ok(
        "get by label",
        &[
            "get",
            "csr",
            "-l",
            "colour in (red, green)",
            "--show-labels",
        ],
        Input::Nothing,
        &["{n}-a", "colour=red"],
    ),
    ok(
        "unlabel",
        &["label", "csr", "{n}-a", "colour-"],
        Input::Nothing,
        &["{n}-a"],
    ),
    ok(
        "annotate",
        &["annotate", "csr", "{n}-a", "note=old"],
        Input::Nothing,
        &["{n}-a annotated"],
    ),
    ok(
        "patch json",
        &[
            "patch",
            "csr",
            "{n}-a",
            "--type=json",
            "-p",
            r#"[{"op": "test", "path": "/metadata/annotations/note", "value": "old"}, {"op": "replace", "path": "/metadata/annotations/note", "value": "new"}]"#,
        ],
        Input::Nothing,
        &["{n}-a patched"],
    ),
    fails(
        "patch json, wrong test",
        &[
            "patch",
            "csr",
            "{n}-a",
            "--type=json",
            "-p",
            r#"[{"op": "test", "path": "/metadata/annotations/note", "value": "old"}]"#,
        ],
        Input::Nothing,
        &["is invalid"],
    ),
    ok(
        "patch merge",
        &[
            "patch",
            "csr",
            "{n}-a",
            "--type=merge",
            "-p",
            r#"{"metadata": {"labels": {"by": "merge"}}}"#,
        ],
        Input::Nothing,
        &["{n}-a patched"],
    ),
    ok(
        "patch strategic",
        &[
            "patch",
            "csr",
            "{n}-a",
            "-p",
            r#"{"metadata": {"labels": {"way": "strategic"}}}"#,
        ],
        Input::Nothing,
        &["{n}-a patched"],
    ),
    ok(
        "patches together",
        &[
            "get",
            "csr",
            "{n}-a",
            "-o",
            "jsonpath={.metadata.annotations.note} {.metadata.labels.by} {.metadata.labels.way}",
        ],
        Input::Nothing,
        &["new merge strategic"],
    ),
    by_approver(fails(
        "approve for a signer of others",
        &["certificate", "approve", "{n}-a"],
        Input::Nothing,
        &[
            "user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client\"",
        ],
    )),
    ok(
        "approve",
        &["certificate", "approve", "{n}-a"],
        Input::Nothing,
        &["certificatesigningrequest.certificates.k8s.io/{n}-a approved"],
    ),
    ok(
        "wait",
        &[
            "wait",
            "--for=condition=Approved",
            "csr/{n}-a",
            "--timeout=30s",
        ],
        Input::Nothing,
        &["{n}-a condition met"],
    ),
    ok(
        "get issued",
        &["get", "csr", "{n}-a"],
        Input::Nothing,
        &["Approved,Issued"],
    ),
    ok(
        "approve twice",
        &["certificate", "approve", "{n}-a"],
        Input::Nothing,
        &["{n}-a approved"],
    ),
    fails(
        "deny what is approved",
        &["certificate", "deny", "{n}-a"],
        Input::Nothing,
        &["{n}-a"],
    ),
    ok(
        "deny",
        &["certificate", "deny", "{n}-b"],
        Input::Nothing,
        &["{n}-b denied"],
    ),
    fails(
        "approve what is denied",
        &["certificate", "approve", "{n}-b"],
        Input::Nothing,
        &["{n}-b"],
    ),
    ok(
        "get denied",
        &["get", "csr", "{n}-b"],
        Input::Nothing,
        &["Denied"],
    ),
    ok(
        "apply on the server",
        &["apply", "--server-side", "-f", "-"],
        Input::Labelled("{n}-ssa"),
        &["{n}-ssa serverside-applied"],
    ),
    ok(
        "apply on the server again",
        &["apply", "--server-side", "-f", "-"],
        Input::Labelled("{n}-ssa"),
        &["{n}-ssa serverside-applied"],
    ),
    ok(
        "label what was applied",
        &[
            "label",
            "--overwrite",
            "csr",
            "{n}-ssa",
            "applied=otherwise",
        ],
        Input::Nothing,
        &["labeled"],
    ),
    fails(
        "apply on the server against another",
        &["apply", "--server-side", "-f", "-"],
        Input::Labelled("{n}-ssa"),
        &["Apply failed with 1 conflict", ".metadata.labels.applied"],
    ),
    ok(
        "apply on the server by force",
        &["apply", "--server-side", "--force-conflicts", "-f", "-"],
        Input::Labelled("{n}-ssa"),
        &["{n}-ssa serverside-applied"],
    ),
    ok(
        "owners of fields",
        &[
            "get",
            "csr",
            "{n}-ssa",
            "-o",
            "jsonpath={.metadata.managedFields[*].operation}",
        ],
        Input::Nothing,
        &["Apply"],
    ),
    ok(
        "roles applied on the server",
        &["apply", "--server-side", "--force-conflicts", "-f", "-"],
        Input::Text(ROLE),
        &["{n}-approver serverside-applied"],
    ),
    ok(
        "delete",
        &["delete", "csr", "{n}-a"],
        Input::Nothing,
        &["\"{n}-a\" deleted"],
    ),
    fails(
        "delete twice",
        &["delete", "csr", "{n}-a"],
        Input::Nothing,
        &["(NotFound)"],
    ),
    ok(
        "delete all",
        &["delete", "csr", "--all"],
        Input::Nothing,
        &["\"{n}-b\" deleted"],
    ),
    ok(
        "get nothing",
        &["get", "csr"],
        Input::Nothing,
        &["No resources found"],
    ),
    ok(
        "delete roles",
        &["delete", "-f", "-"],
        Input::Text(ROLE),
        &["\"{n}-approver\" deleted"],
    ),
    ok(
        "watch that ends",
        &[
            "get",
            "--raw",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests?watch=true&timeoutSeconds=1",
        ],
        Input::Nothing,
        &[],
    ),
];

/// What kubectl 1.20 cannot do, and why.
const TOO_OLD: &[(&str, &str)] = &[("whoami", "the command came with 1.26")];

const ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: '{n}-approver'}
rules:
- {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [get, list, watch]}
- {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests/approval], verbs: [update, patch]}
- {apiGroups: [certificates.k8s.io], resources: [signers], resourceNames: ['example.com/*'], verbs: [approve]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: '{n}-approver'}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: '{n}-approver'}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: approver}]
";
const INVALID_ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: '{n}-invalid'}
rules: [{apiGroups: [certificates.k8s.io], resources: [signers], verbs: []}]
";
const INVALID: &str = "
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: '{n}-invalid'}
spec: {request: bm90aGluZw==, signerName: nonsense, usages: []}
";
const UNKNOWN_FIELD: &str = "
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: '{n}-odd'}
spec: {request: bm90aGluZw==, signerName: example.com/x, usages: [client auth], colour: red}
";
