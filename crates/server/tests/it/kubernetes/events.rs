//! Leases and events: as much of them as there may be, and what the audit log says of them.

use std::time::Duration;

use countersign_authority::{ObjectKey, ObjectOrder, Revision};
use countersign_policy::Requester;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use serde_json::{Value, json};

use super::Api;

const EVENTS: &str = "/api/v1/namespaces/default/events";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

fn event(name: &str) -> Value {
    json!({"metadata": {"name": name}, "involvedObject": {"kind": "Node", "name": "n1"},
        "reason": "Ready", "type": "Normal"})
}

#[tokio::test]
async fn the_oldest_of_too_many_events_go() {
    let api = Api::start().await;
    let objects = &api.world.authority.objects;
    stream::iter(0..4200)
        .map(|number| async move {
            let order = ObjectOrder {
                key: ObjectKey {
                    kind: "events".to_owned(),
                    namespace: "default".to_owned(),
                    name: format!("e{number}"),
                },
                actor: Requester::authority(),
                expected: None,
                body: event("").to_string().into_bytes(),
                detail: None,
            };
            objects.create(order).await.unwrap();
        })
        .buffer_unordered(128)
        .collect::<Vec<()>>()
        .await;
    let newest = api.call("POST", EVENTS).json(&event("newest"));
    assert_eq!(newest.send().await.status, StatusCode::CREATED);
    let mut left = usize::MAX;
    for _ in 0..600 {
        let list = api.get(EVENTS).await.ok();
        left = list["items"].as_array().unwrap().len();
        if left <= 4096 - 256 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!((3000..=4096 - 256).contains(&left), "{left}");
    api.get(&format!("{EVENTS}/newest")).await.ok();
    let large = json!({"metadata": {"name": "large"}, "message": "x".repeat(20_000),
        "involvedObject": {}});
    let reply = api.call("POST", EVENTS).json(&large).send().await;
    reply.refuses(413, "RequestEntityTooLarge");
}

#[tokio::test]
async fn a_renewed_lease_leaves_nothing_in_the_audit_log() {
    let api = Api::start().await;
    let before = audit(&api).await;
    let body = json!({"metadata": {"name": "approver"}, "spec": {"holderIdentity": "a"}});
    let mut lease = api.call("POST", LEASES).json(&body).send().await.value();
    let path = format!("{LEASES}/approver");
    for number in 0..3 {
        lease["spec"]["leaseTransitions"] = json!(number);
        lease = api.call("PUT", &path).json(&lease).send().await.ok();
    }
    assert_eq!(audit(&api).await, before);
    let stale = json!({"metadata": {"name": "approver", "resourceVersion": "1"}, "spec": {}});
    let reply = api.call("PUT", &path).json(&stale).send().await;
    reply.refuses(409, "Conflict");
}

async fn audit(api: &Api) -> usize {
    let log = &api.world.authority.audit;
    log.after(Revision::default(), 1000).await.unwrap().len()
}
