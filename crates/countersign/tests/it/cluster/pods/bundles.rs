//! What is published for pods to trust.

use std::fs;

use countersign_authority::{Clock as _, SystemClock};
use countersign_pki::{Certificate, fingerprint_sha256, pem};
use countersign_testkit::chain::Ca;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::{PATIENCE, SIGNER, Stage, call, put_ca, source};

const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";

impl Stage {
    /// The bundles of our signer, as soon as they are so.
    #[track_caller]
    fn bundles(&self, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let admin = self.api.admin().unwrap();
        let mut last = Vec::new();
        let found = ask_again(PATIENCE, || {
            let all = call(&admin, "GET", BUNDLES, None).1;
            last = all["items"].as_array().cloned().unwrap_or_default();
            last.retain(|bundle| bundle["spec"]["signerName"] == SIGNER);
            is_so(&last).then(|| last.clone())
        });
        found.unwrap_or_else(|| panic!("{last:#?}"))
    }
}

fn anchors(bundle: &Value) -> Vec<Vec<u8>> {
    let text = bundle["spec"]["trustBundle"].as_str().unwrap();
    let blocks = pem::decode_all(text.as_bytes(), &pem::PemLimits::BUNDLE).unwrap();
    blocks.into_iter().map(|block| block.der).collect()
}

fn name(bundle: &Value) -> &str {
    bundle["metadata"]["name"].as_str().unwrap()
}

#[test]
fn pc_26_27_28_anchors_are_published_restored_and_follow_the_issuer() {
    let stage = Stage::with_gates();
    stage.apply_pod_roles(SIGNER);
    let admin = stage.api.admin().unwrap();
    // Somebody else's bundle for the same signer.
    let foreign = Ca::root("foreign", keys::p256_b(), SystemClock.now());
    let foreign = json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "example.com:web:theirs"},
        "spec": {"signerName": SIGNER, "trustBundle": foreign.certificate.to_pem()},
    });
    assert_eq!(call(&admin, "POST", BUNDLES, Some(&foreign)).0, 201);
    // The pod of the page is one.
    stage.apply(super::block_of_the_page("kind: Pod"));
    let signer = stage.pod_signer();
    let ours = |bundles: &[Value]| -> Option<Value> {
        let mut found = bundles
            .iter()
            .filter(|it| name(it) != "example.com:web:theirs");
        let only = found.next().cloned();
        only.filter(|_| found.next().is_none())
    };
    let bundles = stage.bundles(|bundles| ours(bundles).is_some());
    let first = ours(&bundles).unwrap();
    let ca = fs::read(stage.data().join("issuers/example.com.web/ca_crt.pem")).unwrap();
    let ca = pem::decode_first(&ca, &pem::PemLimits::BUNDLE)
        .unwrap()
        .unwrap()
        .der;
    assert_eq!(anchors(&first), std::slice::from_ref(&ca));
    let text = first["spec"]["trustBundle"].as_str().unwrap();
    let hash = fingerprint_sha256(text.as_bytes()).to_hex().to_lowercase();
    assert_eq!(name(&first), format!("example.com:web:{}", &hash[..24]));

    // Deleted, then edited by somebody else.
    let path = format!("{BUNDLES}/{}", name(&first));
    assert_eq!(call(&admin, "DELETE", &path, None).0, 200);
    let is_back =
        |it: &[Value]| ours(it).is_some_and(|it| it["metadata"]["uid"] != first["metadata"]["uid"]);
    let mut edited = ours(&stage.bundles(is_back)).unwrap();
    assert_eq!(anchors(&edited), std::slice::from_ref(&ca));
    edited["spec"]["trustBundle"] = foreign["spec"]["trustBundle"].clone();
    assert_eq!(call(&admin, "PUT", &path, Some(&edited)).0, 200);
    stage.bundles(|it| ours(it).is_some_and(|it| anchors(&it) == [ca.clone()]));

    // Another CA: both are trusted, under another name; the earlier bundle goes, the foreign one stays.
    stage.ask_for_pod("before", &source("ECDSAP256"), keys::p256_a());
    let leaf = stage.issued("before");
    let next = Ca::root("next", keys::p256_c(), SystemClock.now());
    put_ca(&stage.data(), &next);
    let both = [next.certificate.der().to_vec(), ca.clone()];
    let bundles = stage.bundles(|it| ours(it).is_some_and(|it| anchors(&it) == both));
    assert_eq!(bundles.len(), 2, "{bundles:#?}\n{signer}");
    let old = Certificate::parse(&ca).unwrap();
    assert!(leaf[0].verify_signed_by(old.spki_der()).is_ok());
    stage.ask_for_pod("after", &source("ECDSAP256"), keys::p256_a());
    let leaf = stage.issued("after");
    assert!(
        leaf[0]
            .verify_signed_by(next.certificate.spki_der())
            .is_ok()
    );
}

#[test]
fn pc_30_without_the_right_to_attest_nothing_is_deleted() {
    let stage = Stage::with_gates();
    stage.apply_pod_roles(SIGNER);
    let mut signer = stage.pod_signer();
    let first = stage.bundles(|it| it.len() == 1);
    assert!(signer.stop().unwrap().success(), "{signer}");
    stage.apply_pod_roles("example.com/else");
    put_ca(
        &stage.data(),
        &Ca::root("next", keys::p256_c(), SystemClock.now()),
    );
    let signer = stage.pod_signer();
    let is_told = |log: &str| log.contains("the trust bundle is not published");
    assert!(signer.wait_for_log(is_told), "{signer}");
    let still = stage.bundles(|_| true);
    assert_eq!(still, first);
}

#[test]
fn a_cluster_without_the_gates_costs_nothing() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    let mut signer = stage.pod_signer();
    assert!(!signer.log().contains("cannot be listed"), "{signer}");
    assert!(!signer.log().contains("WARN"), "{signer}");
    assert!(signer.stop().unwrap().success(), "{signer}");
}
