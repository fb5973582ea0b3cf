//! Several at once, and what is not permitted.

use countersign_testkit::deadline::ask_again;
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::{CONFIG, REQUESTS, SIGNER, Stage, source, stub};
use crate::cluster::{PATIENCE, call, condition};
use crate::installation::run;

#[test]
fn pc_21_two_replicas_issue_once_and_the_other_takes_its_certificate_back() {
    let stage = Stage::with_gates();
    stage.apply_pod_roles(SIGNER);
    let signers = ["one", "two"].map(|data| stage.pod_signer_in(CONFIG, data));
    let names: Vec<String> = (0..12).map(|number| format!("web-{number}")).collect();
    for name in &names {
        stage.ask_for_pod(name, &source("ECDSAP256"), keys::p256_a());
    }
    for name in &names {
        stage.issued(name);
    }
    let [one, two] = &signers;
    let answered = |log: &str| {
        let lines = log.lines();
        let is_answer = |line: &&str| line.contains("answered") && line.contains("issued");
        lines.filter(is_answer).count()
    };
    let all = ask_again(PATIENCE, || {
        let count = answered(&one.log()) + answered(&two.log());
        (count == names.len()).then_some(())
    });
    assert!(all.is_some(), "{one}\n{two}");
    // What both have signed, one of them has taken back.
    let issued = |log: &str| log.matches("certificate issued").count();
    let settled = ask_again(PATIENCE, || {
        let (one, two) = (one.log(), two.log());
        let taken_back = |log: &str| log.matches("it is taken back").count();
        let surplus = issued(&one) + issued(&two) - names.len();
        (taken_back(&one) + taken_back(&two) == surplus).then_some(())
    });
    assert!(settled.is_some(), "{one}\n{two}");
}

#[test]
fn pc_20_a_request_that_changes_meanwhile_is_read_again_and_issued_once() {
    let stage = Stage::with_gates();
    stage.apply_pod_roles(SIGNER);
    let admin = stage.api.admin().unwrap();
    let signer = stage.pod_signer();
    let names: Vec<String> = (0..10).map(|number| format!("web-{number}")).collect();
    for name in &names {
        stage.ask_for_pod(name, &source("ECDSAP256"), keys::p256_a());
        let path = format!("{REQUESTS}/{name}");
        let patch = json!({"metadata": {"labels": {"touched": "yes"}}}).to_string();
        let kind = [("content-type", "application/merge-patch+json")];
        let patched = admin.call("PATCH", &path, &kind, patch.as_bytes()).unwrap();
        assert_eq!(patched.status, 200);
    }
    for name in &names {
        stage.issued(name);
    }
    let issued = signer.log().matches("certificate issued").count();
    assert_eq!(issued, names.len(), "{signer}");
    assert!(!signer.log().contains("it is taken back"), "{signer}");
}

#[test]
fn pc_22_a_missing_right_to_sign_is_told_and_tried_again() {
    let stage = Stage::with_gates();
    stage.apply_pod_roles("example.com/else");
    let mut signer = stage.pod_signer();
    stage.ask_for_pod("web", &source("ECDSAP256"), keys::p256_a());
    let is_told = |log: &str| log.contains("the permission `sign` on this signer is missing");
    assert!(signer.wait_for_log(is_told), "{signer}");
    let request = stage.pod_request("web", |_| true);
    assert!(request["status"]["conditions"].is_null(), "{request:#}");
    stage.apply_pod_roles(SIGNER);
    stage.issued("web");
    // The certificate that could not be written was kept for it.
    assert_eq!(
        signer.log().matches("certificate issued").count(),
        1,
        "{signer}"
    );
    assert!(signer.stop().unwrap().success(), "{signer}");
    let data = stage.data();
    let listed = run(&[
        "audit",
        "verify",
        "--offline",
        "--data",
        data.to_str().unwrap(),
    ]);
    assert!(listed.success(), "{listed}");
}

#[test]
fn pc_25_five_hundred_at_once_are_all_issued() {
    let stage = Stage::with_gates();
    stage.apply_pod_roles(SIGNER);
    let admin = stage.api.admin().unwrap();
    let plain = source("ECDSAP256");
    stage.pod("web", "web", &json!({}), &plain);
    let request = stage.kubelets_request("web", "web", "web", &plain, &stub(keys::p256_a()));
    for number in 0..500 {
        let mut request = request.clone();
        request["metadata"]["name"] = json!(format!("web-{number}"));
        stage.post(&admin, &request);
    }
    let signer = stage.pod_signer();
    let all = ask_again(PATIENCE, || {
        let all = call(&admin, "GET", REQUESTS, None).1;
        let items = all["items"].as_array()?.iter();
        let issued = |it: &&Value| condition(it, "Issued").is_some();
        (items.filter(issued).count() == 500).then_some(())
    });
    assert!(all.is_some(), "{signer}");
}
