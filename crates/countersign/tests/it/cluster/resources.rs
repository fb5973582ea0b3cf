//! ApprovalPolicies, Signers and EnrollmentTokens on the real kube-apiserver: what they do, what they say of themselves, and
//! what becomes of requests while one of them is broken.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

use super::{PATIENCE, Stage, call, condition};
use crate::installation::run;

const SITE: &str = "example.com/site";
const GROUP: &str = "/apis/countersign.dev/v1alpha1";
const TOKENS: &str = "/apis/countersign.dev/v1alpha1/namespaces/default/enrollmenttokens";
/// What the tests need beside the roles of the manual: anybody asks, and the controllers decide and sign for the site's own
/// signer and mint in `default`.
const ROLES: &str = r#"
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: asker}, rules: [
  {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [create]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: asker},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: asker},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:authenticated"}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: site}, rules: [
  {apiGroups: [certificates.k8s.io], resources: [signers], resourceNames: [example.com/site], verbs: [approve, sign]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: site},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: site},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:serviceaccount:countersign:countersign"}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: tokens, namespace: default}, rules: [
  {apiGroups: [countersign.dev], resources: [enrollmenttokens], verbs: [list, watch]},
  {apiGroups: [countersign.dev], resources: [enrollmenttokens/status], verbs: [patch]},
  {apiGroups: [""], resources: [secrets], verbs: [create]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: tokens, namespace: default},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tokens},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:serviceaccount:countersign:countersign"}]}
"#;

impl Stage {
    /// A cluster that has the definitions, and the permissions of the manual.
    fn with_definitions() -> Self {
        let stage = Self::start();
        stage.define();
        stage.apply_roles_of_the_manual();
        stage.apply(ROLES);
        stage
    }

    pub(super) fn define(&self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        for file in [
            "approvalpolicies",
            "signers",
            "machines",
            "enrollmenttokens",
        ] {
            self.apply(&std::fs::read_to_string(folder.join(format!("{file}.yaml"))).unwrap());
        }
        let kubectl = self.api.kubectl().unwrap();
        let waited = kubectl
            .run(&[
                "wait",
                "--for=condition=Established",
                "crd",
                "--all",
                "--timeout=60s",
            ])
            .unwrap();
        assert!(waited.success(), "{waited}");
    }

    /// Controllers with this configuration, alone.
    fn run_with(&self, config: &str, arguments: &[&str]) -> ServerProcess {
        let config = self.file("resources.yaml", config);
        let flags = ["--config", config.to_str().unwrap(), "--leader-elect=false"];
        self.controllers(&[&flags, arguments].concat())
    }

    fn approver(&self) -> ServerProcess {
        self.run_with("{}\n", &["--controllers", "approver"])
    }

    /// Approver and signer, without the cluster's CA.
    fn approver_and_signer(&self) -> ServerProcess {
        let data = self.folder.path().join("data");
        self.run_with(
            "cluster: {resources: {token_namespaces: [default]}}\n",
            &[
                "--controllers",
                "approver,signer",
                "--data",
                data.to_str().unwrap(),
            ],
        )
    }

    /// An object of ours, as soon as it is so.
    #[track_caller]
    fn resource(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let admin = self.api.admin().unwrap();
        let mut last = Value::Null;
        let found = ask_again(PATIENCE, || {
            last = call(&admin, "GET", path, None).1;
            is_so(&last).then(|| last.clone())
        });
        found.unwrap_or_else(|| panic!("{path}: {last:#}"))
    }

    /// Its condition Ready, as soon as that is about its present generation and has this status.
    #[track_caller]
    fn ready(&self, path: &str, status: &str) -> Value {
        let is = |object: &Value| {
            condition(object, "Ready").is_some_and(|it| {
                it["status"] == status
                    && it["observedGeneration"] == object["metadata"]["generation"]
            })
        };
        condition(&self.resource(path, is), "Ready").unwrap()
    }

    fn delete(&self, path: &str) {
        let admin = self.api.admin().unwrap();
        let (status, answer) = call(&admin, "DELETE", path, None);
        assert_eq!(status, 200, "{answer:#}");
    }

    /// Whether a request stays undecided while another one, which is looked at after it, is decided.
    #[track_caller]
    fn waits_while(&self, waiting: &str, name: &str, kind: &str) {
        self.condition(name, kind);
        let request = self.request(waiting, |_| true);
        assert_eq!(request["status"], json!({}), "{request:#}");
    }

    fn ask_as(&self, user: &str, name: &str, common_name: &str) {
        self.ask(user, &[], name, SITE, &CsrBuilder::new(common_name));
    }
}

fn policy(name: &str, order: i64, rule: &str) -> String {
    format!(
        "{{apiVersion: countersign.dev/v1alpha1, kind: ApprovalPolicy, metadata: {{name: {name}}}, \
         spec: {{order: {order}, signers: [{SITE}], rules: [{rule}]}}}}\n"
    )
}

const TEAM: &str = r#"{name: team, approve: {cel: 'requester.username.startsWith("team-")'}}"#;
const VAULT: &str =
    r#"{name: vault, deny: {cel: 'request.commonName == "vault"', message: reserved}}"#;

#[test]
fn a_policy_counts_as_soon_as_it_is_there_and_not_while_it_is_broken() {
    let stage = Stage::with_definitions();
    let policies = format!("{GROUP}/approvalpolicies");
    let path = |name: &str| format!("{policies}/{name}");
    stage.ask_as("team-a", "first", "first");
    let _controllers = stage.approver();

    // Appears: what waited is approved, and the policy says that it is in force.
    stage.apply(&policy("site", 0, TEAM));
    let approved = stage.condition("first", "Approved");
    assert_eq!(approved["reason"], "site/team", "{approved}");
    let ready = stage.ready(&path("site"), "True");
    assert_eq!(ready["message"], "1 rule in force", "{ready}");
    let object = stage.resource(&path("site"), |_| true);
    assert_eq!(object["status"]["rules"], 1, "{object:#}");

    // A broken one for the same signer: it says so, and nothing is decided, since it might deny.
    let bad = VAULT.replace("request.commonName ==", "request.commonname ==");
    stage.apply(&policy("reserved", -1, &bad));
    let ready = stage.ready(&path("reserved"), "False");
    assert_eq!(ready["reason"], "Invalid", "{ready}");
    let message = ready["message"].as_str().unwrap();
    assert!(
        message.contains("commonname") && message.contains(SITE),
        "{message}"
    );
    stage.ask_as("team-a", "held", "held");
    let note = stage.events("held")[0]["note"].as_str().unwrap().to_owned();
    assert!(
        note.contains("ApprovalPolicy reserved is not in use"),
        "{note}"
    );
    let held = stage.request("held", |_| true);
    assert_eq!(held["status"], json!({}), "{held:#}");

    // Repaired: what was held back is decided, and what it denies is denied.
    stage.apply(&policy("reserved", -1, VAULT));
    stage.ready(&path("reserved"), "True");
    stage.condition("held", "Approved");
    stage.ask_as("team-a", "denied", "vault");
    let denied = stage.condition("denied", "Denied");
    assert_eq!(denied["reason"], "reserved/vault", "{denied}");

    // Broken again: its earlier version stays in force.
    stage.apply(&policy("reserved", -1, &bad));
    let ready = stage.ready(&path("reserved"), "False");
    let message = ready["message"].as_str().unwrap();
    assert!(message.contains("stays in force"), "{message}");
    stage.ask_as("team-a", "denied-too", "vault");
    stage.condition("denied-too", "Denied");

    // What reaches into the host is refused; so is a policy that the API server lets through.
    let hook = "{name: ask, approve: {webhook: {url: \"https://127.0.0.1:1/\"}}}";
    stage.apply(&policy("hook", 5, hook));
    let ready = stage.ready(&path("hook"), "False");
    assert_eq!(ready["reason"], "ReachesHost", "{ready}");
    stage.delete(&path("hook"));

    // Deleted: it stops to count.
    stage.delete(&path("reserved"));
    stage.delete(&path("site"));
    stage.apply(&policy("other", 0, &TEAM.replace("team-", "crew-")));
    stage.ready(&path("other"), "True");
    stage.ask_as("team-a", "late", "late");
    stage.ask_as("crew-a", "later", "later");
    stage.waits_while("late", "later", "Approved");
    // The status is written once, not again and again.
    let version = |it: &Value| it["metadata"]["resourceVersion"].clone();
    let before = version(&stage.resource(&path("other"), |_| true));
    stage.ask_as("crew-a", "last", "last");
    stage.condition("last", "Approved");
    assert_eq!(version(&stage.resource(&path("other"), |_| true)), before);
}

#[test]
fn nothing_is_decided_before_the_policies_of_the_cluster_are_known() {
    let stage = Stage::start();
    stage.define();
    stage.apply(ROLES);
    // All roles but the one that lets policies be read.
    let roles = Stage::roles_of_the_manual();
    let part = "resources: [approvalpolicies]";
    assert!(roles.contains(part));
    stage.apply(&roles.replace(part, "resources: [nothings]"));
    let file = stage.file("site.yaml", &policy("site", 0, TEAM));
    let config = format!("policies: [{}]\n", file.display());
    stage.apply(&policy("reserved", -1, VAULT));
    stage.ask_as("team-a", "vault", "vault");
    stage.ask_as("team-a", "host", "host");
    let mut controllers = stage.run_with(&config, &["--controllers", "approver"]);

    // The file alone would approve both. What denies cannot be read: both wait, and say why.
    for name in ["vault", "host"] {
        let note = stage.events(name)[0]["note"].as_str().unwrap().to_owned();
        assert!(
            note.contains("ApprovalPolicies of the cluster cannot be read"),
            "{note}"
        );
        let request = stage.request(name, |_| true);
        assert_eq!(request["status"], json!({}), "{request:#}");
    }
    let told = |log: &str| log.contains("cannot be listed") && log.contains("ApprovalPolicy");
    assert!(controllers.wait_for_log(told), "{controllers}");
    // Permitted: both are decided.
    stage.apply(&roles);
    stage.condition("vault", "Denied");
    stage.condition("host", "Approved");
    controllers.stop().unwrap();

    // At each start the one that denies is known before anything is decided.
    for round in 0..3 {
        let (vault, host) = (format!("vault-{round}"), format!("host-{round}"));
        stage.ask_as("team-a", &vault, "vault");
        stage.ask_as("team-a", &host, "host");
        let controllers = stage.run_with(&config, &["--controllers", "approver"]);
        stage.condition(&vault, "Denied");
        stage.condition(&host, "Approved");
        drop(controllers);
    }
    // Switched off by configuration, the files count alone.
    let off = format!("{config}cluster: {{resources: {{enabled: false}}}}\n");
    let _controllers = stage.run_with(&off, &["--controllers", "approver"]);
    stage.ask_as("team-a", "vault-off", "vault");
    stage.condition("vault-off", "Approved");
}

const SIGNER: &str = "
apiVersion: countersign.dev/v1alpha1
kind: Signer
metadata: {name: example.com.site}
spec:
  signerName: example.com/site
  usages: [digital signature, client auth]
  lifetime: 1d
";

#[test]
fn a_signer_signs_while_it_is_there() {
    let stage = Stage::with_definitions();
    let path = format!("{GROUP}/signers/example.com.site");
    stage.apply(&policy("site", 0, TEAM));
    stage.ask_as("team-a", "early", "early");
    let mut controllers = stage.approver_and_signer();
    stage.condition("early", "Approved");

    stage.apply(SIGNER);
    let ready = stage.ready(&path, "True");
    assert!(
        ready["message"]
            .as_str()
            .unwrap()
            .contains("example.com.site"),
        "{ready}"
    );
    let object = stage.resource(&path, |_| true);
    assert_eq!(object["status"]["issuer"], "example.com.site", "{object:#}");
    assert!(object["status"]["notAfter"].is_string(), "{object:#}");
    let is_signed = |request: &Value| !request["status"]["certificate"].is_null();
    stage.request("early", is_signed);
    let authority = stage
        .folder
        .path()
        .join("data/issuers/example.com.site/ca_crt.pem");
    let before = std::fs::read(&authority).unwrap();

    // What the signer does not certify fails.
    stage.apply(&SIGNER.replace("lifetime: 1d", "subject: {commonNames: [other]}"));
    stage.ready(&path, "True");
    stage.ask_as("team-a", "foreign", "foreign");
    stage.condition("foreign", "Failed");

    // Names that others have.
    for (name, spec, reason) in [
        (
            "example.com.a",
            "signerName: example.com/a, issuer: kubernetes",
            "IssuerNotPermitted",
        ),
        (
            "example.com.b",
            "signerName: example.com/b, names: [ip], namePatterns: {ip: [999.0.0.0/8]}",
            "Invalid",
        ),
    ] {
        stage.apply(&format!(
            "{{apiVersion: countersign.dev/v1alpha1, kind: Signer, metadata: {{name: {name}}}, spec: {{{spec}}}}}"
        ));
        let ready = stage.ready(&format!("{GROUP}/signers/{name}"), "False");
        assert_eq!(ready["reason"], reason, "{ready}");
    }

    // Gone: what is approved is not signed any more.
    stage.delete(&path);
    let gone =
        |log: &str| log.contains("signers of the cluster in force") && log.contains("count=0");
    assert!(controllers.wait_for_log(gone), "{controllers}");
    stage.ask_as("team-a", "late", "late");
    stage.condition("late", "Approved");
    stage.ask_as("team-a", "later", "later");
    stage.condition("later", "Approved");
    let late = stage.request("late", |_| true);
    assert!(late["status"]["certificate"].is_null(), "{late:#}");
    // Back: with the key that it had, after a restart as well.
    controllers.stop().unwrap();
    stage.apply(SIGNER);
    let mut controllers = stage.approver_and_signer();
    stage.request("late", is_signed);
    assert_eq!(std::fs::read(&authority).unwrap(), before);
    controllers.stop().unwrap();
    verify_audit(&stage);
}

fn verify_audit(stage: &Stage) {
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

fn order(name: &str) -> String {
    format!(
        "{{apiVersion: countersign.dev/v1alpha1, kind: EnrollmentToken, \
         metadata: {{name: {name}, namespace: default}}, \
         spec: {{certname: {name}.example.com, secretName: {name}-token}}}}"
    )
}

/// The token in a Secret, if there is one.
fn secret(stage: &Stage, name: &str) -> Option<(String, Value)> {
    let admin = stage.api.admin().unwrap();
    let path = format!("/api/v1/namespaces/default/secrets/{name}-token");
    let (status, secret) = call(&admin, "GET", &path, None);
    let encoded = secret["data"]["token"].as_str().filter(|_| status == 200)?;
    let token = String::from_utf8(BASE64.decode(encoded).unwrap()).unwrap();
    Some((token, secret))
}

/// Whether a log says that a token was revoked.
fn revoked(token: &str) -> impl Fn(&str) -> bool {
    let id = token.split('.').nth(1).unwrap().to_owned();
    move |log| {
        log.lines()
            .any(|line| line.contains("token revoked") && line.contains(&id))
    }
}

#[test]
fn a_token_is_minted_once_used_once_and_revoked_with_its_order() {
    let stage = Stage::with_definitions();
    stage.apply(SIGNER);
    stage.apply(&policy("tokens", 0, "{name: token, approve: {token: {}}}"));
    let path = |name: &str| format!("{TOKENS}/{name}");
    // Killed again and again while it mints.
    let orders: Vec<String> = (0..8).map(|number| format!("web{number}")).collect();
    let mut controllers = stage.approver_and_signer();
    for (number, name) in orders.iter().enumerate() {
        stage.apply(&order(name));
        if number % 2 == 1 {
            controllers.kill9();
            controllers = stage.approver_and_signer();
        }
    }
    let mut texts = Vec::new();
    for name in &orders {
        stage.ready(&path(name), "True");
        let object = stage.resource(&path(name), |_| true);
        let (text, secret) = secret(&stage, name).unwrap();
        let id = object["status"]["id"].as_str().unwrap();
        // The Secret has the very token that the ledger says can be used.
        assert_eq!(text.split('.').nth(1), Some(id), "{name}");
        assert_eq!(object["status"]["state"], "active", "{object:#}");
        assert_eq!(
            secret["metadata"]["ownerReferences"][0]["uid"],
            object["metadata"]["uid"]
        );
        assert!(
            !object.to_string().contains(&text),
            "it is in no field of the order"
        );
        texts.push(text);
    }

    // It approves a request for its name, once.
    let message = |name: &str, text: &str| {
        CsrBuilder::new(&format!("{name}.example.com")).challenge_password(text)
    };
    stage.ask("joe", &[], "web0", SITE, &message("web0", &texts[0]));
    let approved = stage.condition("web0", "Approved");
    assert_eq!(approved["reason"], "tokens/token", "{approved}");
    stage.request("web0", |it| !it["status"]["certificate"].is_null());
    let used = stage.resource(&path("web0"), |it| it["status"]["uses"] == 1);
    assert!(["issued", "exhausted"].contains(&used["status"]["state"].as_str().unwrap()));
    let other_key = message("web0", &texts[0]).sign_pem(countersign_testkit::keys::p256_a());
    stage.ask_pem("joe", "thief", SITE, &other_key);
    let denied = stage.condition("thief", "Denied");
    assert_eq!(denied["reason"], "tokens/token", "{denied}");
    // One for another name says no.
    stage.ask("joe", &[], "wrong", SITE, &message("web2", &texts[1]));
    stage.condition("wrong", "Denied");

    // A Secret of somebody else stays as it is.
    stage.apply(
        "{apiVersion: v1, kind: Secret, metadata: {name: taken-token, namespace: default}, stringData: {token: mine}}",
    );
    stage.apply(&order("taken"));
    let ready = stage.ready(&path("taken"), "False");
    assert_eq!(ready["reason"], "SecretExists", "{ready}");
    assert_eq!(secret(&stage, "taken").unwrap().0, "mine");

    // Its order is gone: it is good for nothing. Also where nobody was there to see that.
    stage.delete(&path("web3"));
    assert!(
        controllers.wait_for_log(revoked(&texts[3])),
        "{controllers}"
    );
    stage.ask("joe", &[], "web3", SITE, &message("web3", &texts[3]));
    stage.condition("web3", "Denied");
    controllers.kill9();
    stage.delete(&path("web4"));
    let mut controllers = stage.approver_and_signer();
    assert!(
        controllers.wait_for_log(revoked(&texts[4])),
        "{controllers}"
    );
    stage.ask("joe", &[], "web4", SITE, &message("web4", &texts[4]));
    stage.condition("web4", "Denied");
    let log = controllers.to_string();
    for text in &texts {
        let secret = text.rsplit('.').next().unwrap();
        assert!(!log.contains(secret), "no secret is logged");
    }
    controllers.stop().unwrap();
    verify_audit(&stage);
}
