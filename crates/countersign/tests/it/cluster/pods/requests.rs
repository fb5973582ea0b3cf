//! What is issued, and what is denied.

use countersign_authority::{Clock as _, SystemClock};
use countersign_pki::{AltName, UnixTime, oid};
use countersign_testkit::chain::Ca;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::{BASE64, CONFIG, REQUESTS, SIGNER, Stage, lifetime, merged, source, stub};
use crate::cluster::{call, condition};
use crate::installation::run;
use base64::Engine as _;

#[test]
fn pc_01_02_05_06_07_08_19_23_pods_get_certificates() {
    let stage = Stage::with_gates();
    // A right for the whole domain is enough.
    stage.apply_pod_roles("\"example.com/*\"");
    let mut signer = stage.pod_signer();
    let kinds = [
        ("p256", "ECDSAP256", keys::p256_a()),
        ("p384", "ECDSAP384", keys::p384()),
        ("p521", "ECDSAP521", keys::p521()),
        ("ed25519", "ED25519", keys::ed25519()),
        ("rsa3072", "RSA3072", keys::rsa3072()),
        ("rsa4096", "RSA4096", keys::rsa4096_a()),
    ];
    for (name, word, key) in kinds {
        stage.ask_for_pod(name, &source(word), key);
    }
    for (name, _, key) in kinds {
        let chain = stage.issued(name);
        assert_eq!(chain.len(), 1, "the issuer is a root");
        let leaf = &chain[0];
        assert_eq!(leaf.spki_der(), key.spki_der(), "{name}");
        assert!(!leaf.is_ca());
        assert_eq!(
            leaf.subject().to_string(),
            "CN=system:serviceaccount:shop:web"
        );
        let uri = "spiffe://prod.example.com/ns/shop/sa/web".to_owned();
        assert_eq!(leaf.alt_names(), [AltName::Uri(uri)]);
        let usages = leaf.extended_key_usages();
        assert!(usages.contains(&oid::EKU_SERVER_AUTH) && usages.contains(&oid::EKU_CLIENT_AUTH));
        // 86400 were asked for; the signer's longest life is 7200.
        assert_eq!(lifetime(leaf), 7200, "{name}");
        let backdated = SystemClock.now().seconds_since(leaf.not_before());
        assert!((60..300).contains(&backdated), "{backdated}");
        let request = stage.pod_request(name, |_| true);
        let refresh = request["status"]["beginRefreshAt"].as_str().unwrap();
        let refresh = UnixTime::parse_rfc3339(refresh).unwrap();
        assert!(refresh.seconds_since(leaf.not_before()) >= 600);
        assert!(leaf.not_after().seconds_since(refresh) >= 600);
    }

    // The shortest life, taken exactly.
    let mut short = source("ECDSAP256");
    short["maxExpirationSeconds"] = json!(3600);
    short["userAnnotations"] = json!({"example.com/role": "db"});
    stage.ask_for_pod("short", &short, keys::p256_b());
    assert_eq!(lifetime(&stage.issued("short")[0]), 3600);

    // After a restart nothing is written or signed again.
    let version = |request: &Value| request["metadata"]["resourceVersion"].clone();
    let before = version(&stage.pod_request("p256", |_| true));
    assert!(signer.stop().unwrap().success(), "{signer}");
    let mut signer = stage.pod_signer();
    stage.ask_for_pod("later", &source("ECDSAP256"), keys::p256_c());
    stage.issued("later");
    assert_eq!(version(&stage.pod_request("p256", |_| true)), before);
    let again = signer.log().matches("certificate issued").count();
    assert_eq!(again, 1, "{signer}");
    assert!(signer.stop().unwrap().success(), "{signer}");

    // Every one of them is in the ledger, and the log of acts holds.
    let data = stage.data();
    let data = data.to_str().unwrap();
    let verified = run(&["audit", "verify", "--offline", "--data", data]);
    assert!(verified.success(), "{verified}");
}

#[test]
fn pc_03_04_10_to_18_what_does_not_fit_is_denied() {
    let stage = Stage::with_gates();
    stage.apply_pod_roles(SIGNER);
    let config = CONFIG.replace(
        "pods: {",
        "pods: {key_types: [ECDSAP256, ED25519, RSA3072], ",
    );
    let signer = stage.pod_signer_in(&config, "data");
    let admin = stage.api.admin().unwrap();
    let plain = source("ECDSAP256");
    stage.pod("web", "web", &json!({}), &plain);
    let good =
        |name: &str| stage.kubelets_request(name, "web", "web", &plain, &stub(keys::p256_a()));
    let post = |name: &str, spec: Value| stage.post(&admin, &merged(good(name), &spec));
    let encoded = |builder: CsrBuilder| json!(BASE64.encode(builder.sign(keys::p256_a())));

    // Somebody else's signer, and one of Kubernetes' own.
    post("foreign", json!({"signerName": "example.com/else"}));
    post(
        "reserved",
        json!({"signerName": "kubernetes.io/kube-apiserver-client-pod"}),
    );

    post(
        "p384",
        json!({"stubPKCS10Request": BASE64.encode(stub(keys::p384()))}),
    );
    post(
        "annotated",
        json!({"unverifiedUserAnnotations": {"example.com/x": "y"}}),
    );
    post(
        "named",
        json!({"stubPKCS10Request": encoded(CsrBuilder::new("admin"))}),
    );
    post("no-pod", json!({"podName": "missing"}));
    post("other-pod", json!({"podUID": "another"}));
    post("other-name", json!({"serviceAccountName": "other"}));
    post("other-account", json!({"serviceAccountUID": "another"}));
    post(
        "other-node",
        json!({"nodeName": "n2", "nodeUID": stage.uid("/api/v1/nodes/n2")}),
    );
    post("other-life", json!({"maxExpirationSeconds": 3600}));
    stage.pod(
        "silent",
        "web",
        &json!({}),
        &merged_source("example.com/else"),
    );
    post(
        "not-asked",
        json!({
            "podName": "silent", "podUID": stage.uid("/api/v1/namespaces/shop/pods/silent"),
        }),
    );
    stage.pod("done", "web", &json!({}), &plain);
    let path = "/api/v1/namespaces/shop/pods/done/status";
    let mut done = call(&admin, "GET", path, None).1;
    done["status"]["phase"] = json!("Succeeded");
    assert_eq!(call(&admin, "PUT", path, Some(&done)).0, 200);
    post(
        "ended",
        json!({
            "podName": "done", "podUID": stage.uid("/api/v1/namespaces/shop/pods/done"),
        }),
    );
    stage.pod("banned", "web", &json!({"banned": "yes"}), &plain);
    let banned = stage.kubelets_request("banned", "banned", "web", &plain, &stub(keys::p256_a()));
    stage.post(&stage.node("n1"), &banned);
    stage.pod("unknown", "other", &json!({}), &plain);
    let unknown =
        stage.kubelets_request("unknown", "unknown", "other", &plain, &stub(keys::p256_a()));
    stage.post(&stage.node("n1"), &unknown);

    for (name, reason) in [
        ("p384", "UnsupportedKeyType"),
        ("annotated", "InvalidUnverifiedUserAnnotations"),
        ("named", "NonEmptyRequest"),
        ("no-pod", "PodNotFound"),
        ("other-pod", "PodNotFound"),
        ("other-name", "ServiceAccountMismatch"),
        ("other-account", "ServiceAccountMismatch"),
        ("other-node", "NodeMismatch"),
        ("other-life", "PodDoesNotAsk"),
        ("not-asked", "PodDoesNotAsk"),
        ("ended", "PodNotRunning"),
        ("banned", "PolicyDenied"),
    ] {
        let expected = ("Denied".to_owned(), reason.to_owned());
        assert_eq!(stage.answer(name), expected, "{name}\n{signer}");
    }
    let denied = stage.pod_request("p384", |_| true);
    let message = &denied["status"]["conditions"][0]["message"];
    assert!(message.as_str().unwrap().contains("ECDSAP256"), "{message}");

    // Nobody says anything of this account: it waits, and says so.
    let events = "/apis/events.k8s.io/v1/namespaces/shop/events";
    let told = countersign_testkit::deadline::ask_again(super::PATIENCE, || {
        let events = call(&admin, "GET", events, None).1;
        let mut items = events["items"].as_array()?.iter();
        items
            .find(|event| event["regarding"]["name"] == "unknown")
            .cloned()
    });
    let told = told.unwrap_or_else(|| panic!("{signer}"));
    assert_eq!(told["reason"], "SigningPending");
    // The API server waits for a kubelet, which waits for one of these.
    for name in ["foreign", "reserved", "unknown"] {
        let request = call(&admin, "GET", &format!("{REQUESTS}/{name}"), None).1;
        assert_eq!(condition(&request, "Issued"), None);
        assert!(request["status"]["conditions"].is_null(), "{request:#}");
    }
    assert!(!signer.log().contains("certificate issued"), "{signer}");
}

fn merged_source(signer: &str) -> Value {
    let mut other = source("ECDSAP256");
    other["signerName"] = json!(signer);
    other
}

#[test]
fn pc_09_an_issuer_that_ends_soon_fails_requests() {
    let stage = Stage::with_gates();
    stage.apply_pod_roles(SIGNER);
    let now = SystemClock.now();
    let usual = Ca::root("usual", keys::p256_d(), now);
    let life = usual.certificate.not_after().seconds_since(now);
    let begin = UnixTime(now.0 - life + 1800);
    let ending = Ca::root("ending", keys::p256_d(), begin);
    super::put_ca(&stage.data(), &ending);
    let signer = stage.pod_signer();
    stage.ask_for_pod("web", &source("ECDSAP256"), keys::p256_a());
    let expected = ("Failed".to_owned(), "IssuerEnding".to_owned());
    assert_eq!(stage.answer("web"), expected, "{signer}");
    let request = stage.pod_request("web", |_| true);
    let status = request["status"].as_object().unwrap();
    assert_eq!(
        status.keys().collect::<Vec<_>>(),
        ["conditions"],
        "{request:#}"
    );
}

/// It might deny them.
#[test]
fn a_policy_that_cannot_be_read_holds_pods_back() {
    let stage = Stage::with_gates();
    stage.define();
    stage.apply_pod_roles(SIGNER);
    let broken = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: reserved}
spec:
  order: -1
  signers: [example.com/web]
  rules: [{name: vault, deny: {cel: 'request.commonname == "vault"', message: reserved}}]
"#;
    stage.apply(broken);
    let signer = stage.pod_signer();
    stage.ask_for_pod("held", &source("ECDSAP256"), keys::p256_a());
    let is_told = |log: &str| log.contains("ApprovalPolicy reserved is not in use");
    assert!(signer.wait_for_log(is_told), "{signer}");
    let held = stage.pod_request("held", |_| true);
    assert!(held["status"]["conditions"].is_null(), "{held:#}");
    stage.apply(&broken.replace("commonname", "commonName"));
    stage.issued("held");
}

#[test]
fn the_policy_of_the_page_decides_as_the_page_says() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["pods.yaml", "pods-test.yaml"] {
        let block = super::block_of_the_page(&format!("# {name}"));
        std::fs::write(folder.path().join(name), block).unwrap();
    }
    let test = folder.path().join("pods-test.yaml");
    let passed = run(&["policy", "test", test.to_str().unwrap()]);
    assert!(passed.success() && passed.stdout.contains('2'), "{passed}");
    let policy = folder.path().join("pods.yaml");
    let checked = run(&["policy", "check", policy.to_str().unwrap()]);
    assert!(checked.success(), "{checked}");
}
