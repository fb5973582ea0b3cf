//! Cases of the products whose rules come with the program, live: the same rows that `policy test` judges are real objects here,
//! and the verdict is compared with what becomes of the real request.

use base64::Engine as _;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::approver::ASKER;
use super::{BASE64, CSRS, Stage, call, condition};

const CLUSTER_MACHINE_APPROVER: &str =
    include_str!("../../../../policy/tests/data/nodes/cluster-machine-approver-exact.yaml");
const KUBELET_CSR_APPROVER: &str =
    include_str!("../../../../policy/tests/data/nodes/kubelet-csr-approver.yaml");
const HARDENED: &str = include_str!("../../../../policy/tests/data/nodes/hardened.yaml");

/// Left out are rows that no API server would store (5, 10, 34), that need another time (28, 29), names that resolve (32, 37,
/// 39), a kubelet that listens (16 to 21) or a hundred others (31).
#[test]
fn cases_of_cluster_machine_approver_are_decided_live() {
    let rows = [
        "1", "2", "3", "6", "7", "8", "11", "13", "14", "15", "22", "24", "25", "27",
    ];
    live(CLUSTER_MACHINE_APPROVER, &rows);
}

#[test]
fn cases_of_kubelet_csr_approver_are_decided_live() {
    live(KUBELET_CSR_APPROVER, &["33", "35", "36", "38", "40"]);
}

#[test]
fn cases_of_the_hardened_preset_are_decided_live() {
    let rows = ["1", "9", "12", "15", "22", "23", "26", "30"];
    live(HARDENED, &rows);
}

/// Plays the numbered rows of a file one after the other, each with a cluster that has its objects and no others.
#[track_caller]
fn live(file: &str, numbers: &[&str]) {
    let file: Value = serde_saphyr::from_str(file).unwrap();
    let stage = Stage::start();
    stage.allow_everything();
    stage.apply(ASKER);
    stage.apply_foreign_kinds();
    stage.apply(include_str!("../../../../../deploy/crds/machines.yaml"));
    create(
        &stage,
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "machines"}}),
    );
    let cases = file["cases"].as_array().unwrap().iter();
    let is_chosen = |case: &&Value| {
        let number = case["name"].as_str().unwrap().split(' ').next();
        number.is_some_and(|number| numbers.contains(&number))
    };
    let chosen: Vec<&Value> = cases.filter(is_chosen).collect();
    assert!(chosen.len() >= numbers.len(), "{numbers:?}");
    for (place, case) in chosen.into_iter().enumerate() {
        let own = |key: &str| case.get(key).unwrap_or(&file[key]);
        let objects = own("objects").as_array().cloned().unwrap_or_default();
        for object in &objects {
            create(&stage, &folder_of(object), object);
        }
        play(&stage, &format!("row-{place}"), case, own("policy"));
        for object in &objects {
            let name = object["metadata"]["name"].as_str().unwrap();
            delete(&stage, &format!("{}/{name}", folder_of(object)));
        }
        delete(&stage, &format!("{CSRS}/row-{place}"));
    }
}

fn play(stage: &Stage, name: &str, case: &Value, policy: &Value) {
    let title = case["name"].as_str().unwrap();
    let controllers = stage.with_policies(&policy.to_string(), &["--controllers=approver"]);
    ask(stage, name, &case["request"]);
    match case["expect"].as_str().unwrap() {
        "approve" => {
            let request = stage.request(name, |it| !it["status"]["conditions"].is_null());
            assert!(
                condition(&request, "Approved").is_some(),
                "{title}: {request:#}\n{controllers}"
            );
        }
        "deny" => {
            let request = stage.request(name, |it| !it["status"]["conditions"].is_null());
            let denied = condition(&request, "Denied");
            assert!(denied.is_some(), "{title}: {request:#}\n{controllers}");
        }
        "pending" => {
            let code = match &case["check"] {
                Value::Array(all) => all[0].as_str().unwrap(),
                one => one.as_str().unwrap(),
            };
            let is_said = |log: &str| {
                let mut lines = log.lines();
                let is_of_it =
                    |it: &str| it.contains("waiting") && it.contains(&format!("name={name}"));
                lines.any(|it| is_of_it(it) && it.contains(code))
            };
            assert!(
                controllers.wait_for_log(is_said),
                "{title}: {code}\n{controllers}"
            );
            let request = stage.request(name, |_| true);
            assert_eq!(request["status"], json!({}), "{title}: {request:#}");
        }
        other => panic!("{title}: {other}"),
    }
}

/// Sends the request of a row as the user of that row.
fn ask(stage: &Stage, name: &str, row: &Value) {
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let csr = &row["csr"];
    let mut message = CsrBuilder::new(csr["commonName"].as_str().unwrap());
    for organization in texts(&csr["organization"]) {
        message = message.organization(&organization);
    }
    for dns in texts(&csr["dnsNames"]) {
        message = message.dns(&dns);
    }
    for ip in texts(&csr["ipAddresses"]) {
        message = message.ip(ip.parse().unwrap());
    }
    let mut object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": BASE64.encode(message.sign_pem(keys::p256_b())),
            "signerName": row["signer"],
            "usages": row["usages"],
        },
    });
    if !row["expirationSeconds"].is_null() {
        object["spec"]["expirationSeconds"] = row["expirationSeconds"].clone();
    }
    let mut headers = vec![
        ("content-type", "application/json"),
        ("impersonate-user", row["username"].as_str().unwrap()),
    ];
    let groups = texts(&row["groups"]);
    headers.extend(
        groups
            .iter()
            .map(|group| ("impersonate-group", group.as_str())),
    );
    let admin = stage.api.admin().unwrap();
    let body = object.to_string();
    let answer = admin.call("POST", CSRS, &headers, body.as_bytes()).unwrap();
    assert_eq!(answer.status, 201, "{row}: {}", answer.text());
}

/// Where objects of this kind are.
fn folder_of(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let root = match version.contains('/') {
        true => format!("/apis/{version}"),
        false => format!("/api/{version}"),
    };
    let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    }
}

fn create(stage: &Stage, path: &str, object: &Value) {
    let admin = stage.api.admin().unwrap();
    let (status, answer) = call(&admin, "POST", path, Some(object));
    assert_eq!(status, 201, "{path}: {answer:#}");
}

fn delete(stage: &Stage, path: &str) {
    let admin = stage.api.admin().unwrap();
    let (status, answer) = call(&admin, "DELETE", path, None);
    assert!(matches!(status, 200 | 202), "{path}: {answer:#}");
}
