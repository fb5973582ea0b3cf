//! The policy in force, what it turned away, and what its decisions rest on.

use countersign_authority::RequestState;
use countersign_testkit::csr::CsrBuilder;
use serde_json::{Value, json};

use super::{Office, column};
use crate::exchange::Call;
use crate::world::{KUBE_CLIENT, PUPPET_AGENT, START};

const RULES: &str = r#"
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: fleet}
spec:
  signers: [countersign.dev/puppet-agent]
  rules:
    - name: reserved
      deny: {cel: 'request.commonName == "vault"', message: "reserved name"}
    - name: inventory
      approve: {machine: {}}
    - name: cmdb
      when: 'request.commonName == "unsure"'
      approve: {webhook: {url: "https://cmdb.example.com/"}}
"#;

/// One request of each end, a minute apart: denied by a rule, denied by a person, not decided, waiting, issued.
async fn busy() -> Office {
    let office = Office::open().await;
    office.world.set_policy(RULES);
    let added = office.post("machines", r#"{"name":"known"}"#).await;
    assert_eq!(added.status, 201);
    for (name, state) in [
        ("vault", RequestState::Denied),
        ("host", RequestState::Pending),
        ("unsure", RequestState::Undecided),
        ("known", RequestState::Issued),
        ("waits", RequestState::Pending),
    ] {
        assert_eq!(office.agent(name).await, state, "{name}");
        office.world.clock.advance(60);
    }
    let client = CsrBuilder::new("jane");
    office
        .submit("kubernetes", "jane", KUBE_CLIENT, &client, &["client auth"])
        .await;
    for path in ["puppet/host", "kubernetes/jane"] {
        let path = format!("requests/{path}/deny");
        let denied = office.post(&path, r#"{"reason":"ticket 7"}"#).await;
        assert_eq!(denied.status, 200, "{}", denied.text());
        office.world.clock.advance(60);
    }
    office
}

#[tokio::test]
async fn rejections_are_found_by_name_door_reason_and_time() {
    let office = busy().await;
    let page = office.get("rejections").await;
    let told = |field: &str| -> Vec<Value> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item[field].clone()).collect()
    };
    assert_eq!(
        column(&page, "certname"),
        ["jane", "unsure", "host", "vault"]
    );
    assert_eq!(
        column(&page, "state"),
        ["denied", "undecided", "denied", "denied"]
    );
    assert_eq!(
        told("rule"),
        [Value::Null, json!("cmdb"), Value::Null, json!("reserved")]
    );
    assert_eq!(
        told("policy"),
        [Value::Null, json!("fleet"), Value::Null, json!("fleet")]
    );
    assert_eq!(told("generation"), vec![json!(2); 4]);
    let vault = &page["items"][3];
    assert_eq!(vault["message"], "denied by rule reserved (reserved name)");
    assert_eq!(vault["source"], "192.0.2.9");
    assert_eq!(vault["time"], "2026-01-02T03:04:05Z");
    assert_eq!(
        column(&page, "reason"),
        ["person", "webhook_error", "person", "cel"]
    );
    for (query, names) in [
        ("certname=vault", &["vault"] as &[&str]),
        ("certname=waits", &[]),
        ("door=kubernetes", &["jane"]),
        ("door=puppet&reason=person", &["host"]),
        ("reason=webhook_error", &["unsure"]),
        ("reason=cel&certname=vault", &["vault"]),
        ("reason=none", &[]),
        ("since=2026-01-02T03:06:05Z", &["jane", "unsure"]),
        ("since=2026-01-02T04:00:00Z", &[]),
    ] {
        let page = office.get(&format!("rejections?{query}")).await;
        assert_eq!(column(&page, "certname"), names, "{query}");
    }
    // The same words find requests.
    let requests = office
        .get("requests?past=true&state=denied&reason=person")
        .await;
    assert_eq!(column(&requests, "name"), ["jane", "host"]);
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = office.get(&format!("rejections?limit=1{cursor}")).await;
        seen.extend(column(&page, "certname").into_iter().map(str::to_owned));
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["jane", "unsure", "host", "vault"]);
}

#[tokio::test]
async fn decisions_come_with_their_evidence_and_without_secrets() {
    let office = busy().await;
    let secret = CsrBuilder::new("secret").challenge_password("correct-horse-battery-staple");
    office
        .submit("puppet", "secret", PUPPET_AGENT, &secret, &[])
        .await;
    let answer = office.call("GET /enrol/v1/decisions?door=puppet").await;
    assert!(!answer.text().contains("correct-horse"));
    let page = answer.json();
    let of = |name: &str| {
        let mut items = page["items"].as_array().unwrap().iter();
        items.find(|item| item["name"] == name).unwrap().clone()
    };
    assert_eq!(of("vault")["evidence"], json!({}));
    assert_eq!(
        of("known")["evidence"]["machine"],
        json!({"name": "known", "created": "2026-01-02T03:04:05Z"})
    );
    let waits = of("waits");
    assert_eq!(waits["evidence"], json!({"machine": null}));
    assert_eq!(waits["explanation"]["effect"], "pending");
    assert_eq!(
        column(&json!({"items": waits["explanation"]["steps"]}), "rule"),
        ["reserved", "inventory", "cmdb"]
    );
    assert_eq!(
        of("unsure")["evidence"]["webhooks"]["https://cmdb.example.com/"]["decision"],
        "unavailable"
    );
    let message = of("secret")["csr"].as_str().unwrap().to_owned();
    assert!(message.starts_with("-----BEGIN CERTIFICATE REQUEST-----\n"));
    let whole = office.get("requests/puppet/secret").await;
    assert!(message.len() < whole["csr"].as_str().unwrap().len());
    for (query, names) in [
        ("name=vault", &["vault"] as &[&str]),
        (
            "state=undecided,denied&door=puppet",
            &["host", "unsure", "vault"],
        ),
        ("door=kubernetes", &["jane"]),
        (
            "since=2026-01-02T03:08:05Z&door=puppet",
            &["secret", "waits"],
        ),
    ] {
        let page = office.get(&format!("decisions?{query}")).await;
        assert_eq!(column(&page, "name"), names, "{query}");
    }
}

#[tokio::test]
async fn the_policy_in_force_is_shown_and_so_is_why_a_change_is_not() {
    let office = Office::open().await;
    office.world.set_policy(RULES);
    let authority = &office.world.authority;
    let files = vec!["/etc/countersign/fleet.yaml".to_owned()];
    office
        .policy
        .set(&authority.rules().policy, START, files.clone(), Vec::new());
    let shown = office.get("policy").await;
    assert_eq!(
        (&shown["generation"], &shown["loaded"], &shown["files"]),
        (&json!(2), &json!("2026-01-02T03:04:05Z"), &json!(files))
    );
    assert_eq!(shown["refused"], Value::Null);
    let rules = json!({"items": shown["rules"]});
    assert_eq!(column(&rules, "name"), ["reserved", "inventory", "cmdb"]);
    assert_eq!(column(&rules, "policy"), ["fleet"; 3]);
    assert!(column(&rules, "rule")[0].contains("reserved name"));
    let fault = "fleet.yaml:3:1: what is this".to_owned();
    office
        .policy
        .refused(START.plus_seconds(60), vec![fault.clone()]);
    let refused = json!({"time": "2026-01-02T03:05:05Z", "faults": [fault]});
    let after = office.get("policy").await;
    assert_eq!(after["refused"], refused);
    assert_eq!(after["rules"], shown["rules"], "what was in force stays");
    office.policy.settled();
    assert_eq!(office.get("policy").await, shown);

    let version = authority.policy_version("the text").await.unwrap();
    let line = format!("policy/{}", version.generation);
    assert_eq!(office.get(&line).await["text"], "the text");
    let missing = Call::new(&office.admin, "GET /enrol/v1/policy/99");
    let missing = missing.send(&office.interface).await;
    assert_eq!(
        (missing.status, &missing.json()["error"]["message"]),
        (404, &json!("there is no policy of this generation"))
    );
}
