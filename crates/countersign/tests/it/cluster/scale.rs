//! Thousands of requests at once.

use std::fs;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use countersign_testkit::deadline::ask_again;
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::approver::{ASKER, KUBELETS, scraped};
use super::{BASE64, CLIENT, CSRS, Stage, call, condition, node_message};

/// As many as a cluster whose nodes all come back at once.
const MANY: usize = 5000;
const SENDERS: usize = 8;
/// On two cores with other tests beside it; alone it takes a quarter of that.
const ALL_SIGNED: Duration = Duration::from_secs(240);
/// Of the debug build, at its highest.
const MEMORY_MIB: u64 = 400;

/// Half of them wait before anybody is there to answer; the others come while the first are worked on.
#[test]
fn five_thousand_at_once_are_approved_and_signed() {
    let stage = Stage::start();
    stage.apply_roles_of_the_manual();
    stage.apply(ASKER);
    stage.apply(KUBELETS);
    send(&stage, 0..MANY / 2);
    let signing = stage.signing_flags();
    let mut flags = vec![
        "--preset=kube-controller-manager",
        "--controllers=approver,signer,cleaner",
        "--leader-elect=false",
        "--metrics-listen=127.0.0.1:0",
    ];
    flags.extend(signing.iter().map(String::as_str));
    let mut controllers = stage.controllers(&flags);
    send(&stage, MANY / 2..MANY);

    let written = |text: &str| {
        let line = "countersign_cluster_writes_total{what=\"status\",outcome=\"written\"} ";
        let mut lines = text.lines();
        let count = lines.find_map(|it| it.strip_prefix(line)).unwrap_or("0");
        count.parse::<usize>().unwrap()
    };
    let mut signed = 0;
    let all = ask_again(ALL_SIGNED, || {
        signed = written(&scraped(&controllers.addresses.metrics));
        (signed >= MANY).then_some(())
    });
    assert!(all.is_some(), "{signed} were signed");
    let highest = highest_memory_mib(controllers.pid());
    assert!(highest < MEMORY_MIB, "{highest} MiB");

    let admin = stage.api.admin().unwrap();
    let list = call(&admin, "GET", CSRS, None).1;
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), MANY);
    for item in items {
        let name = &item["metadata"]["name"];
        assert!(item["status"]["certificate"].is_string(), "{name}");
        assert!(condition(item, "Approved").is_some(), "{name}");
    }
    // Each was decided and signed once, without a fight over any of them.
    assert!(controllers.stop().unwrap().success());
    let log = controllers.log();
    for what in ["decided", "certificate issued"] {
        assert_eq!(log.matches(what).count(), MANY, "{what}");
    }
    assert!(!log.contains("WARN"), "{log}");
}

fn send(stage: &Stage, numbers: std::ops::Range<usize>) {
    let (first, count) = (numbers.start, numbers.len());
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let client = stage
                .api
                .client("system:bootstrap:abcdef", &["system:bootstrappers"])
                .unwrap();
            scope.spawn(move || {
                let mut connection = client.connect().unwrap();
                for number in (sender..count).step_by(SENDERS) {
                    let object = request(first + number).to_string();
                    let headers = [("content-type", "application/json")];
                    let answer = connection.call("POST", CSRS, &headers, object.as_bytes());
                    let answer = answer.unwrap();
                    assert_eq!(answer.status, 201, "{}", answer.text());
                }
            });
        }
    });
}

fn request(number: usize) -> Value {
    let message = node_message(&format!("n{number}"));
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": format!("csr-{number}")},
        "spec": {
            "request": BASE64.encode(message.sign_pem(keys::p256_b())),
            "signerName": CLIENT,
            "usages": ["digital signature", "client auth"],
        },
    })
}

fn highest_memory_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kib: u64 = line
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    kib / 1024
}
