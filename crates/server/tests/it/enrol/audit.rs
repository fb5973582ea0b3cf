//! The audit log over the native interface.

use countersign_api::Checkpoint;
use countersign_authority::SealKey as _;
use countersign_authority::sealing::verification::{Verifier, Wants};
use countersign_keys::{AuditKey, FileKeys, KeySpec};
use countersign_server::enrol::{head_of, record_of, seal_of};
use serde_json::{Value, json};

use super::{Office, column};

/// An authority where two names were asked for, one of which was approved.
async fn busy() -> Office {
    let office = Office::open().await;
    office.agent("web01").await;
    office.agent("web02").await;
    let approved = office.post("requests/puppet/web01/approve", "").await;
    assert_eq!(approved.status, 200);
    office
}

/// Every page of a list.
async fn all(office: &Office, path: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = office.get(&format!("{path}{cursor}")).await;
        let here = page.get("items").and_then(Value::as_array);
        items.extend(here.unwrap().clone());
        match page.get("cursor") {
            Some(next) => cursor = format!("&cursor={}", next.as_str().unwrap()),
            None => return items,
        }
    }
}

#[tokio::test]
async fn entries_have_every_member_and_are_found_by_each_filter() {
    let office = busy().await;
    let approval = office.get("audit?event=approve").await;
    let entry = &approval["items"][0];
    for member in ["time", "request_id", "spki_sha256", "csr_sha256", "replica"] {
        assert!(entry[member].is_string(), "{member}: {entry}");
    }
    for member in ["token_id", "serial"] {
        assert_eq!(entry[member], Value::Null, "{member}");
    }
    assert_eq!(
        [&entry["event"], &entry["certname"], &entry["verdict"]],
        [&json!("approve"), &json!("web01"), &json!("approve")]
    );
    let (id, actor) = (
        entry["request_id"].as_str().unwrap(),
        entry["actor"].as_str().unwrap(),
    );
    for (filter, events) in [
        ("certname=web02".to_owned(), vec!["request"]),
        (format!("request={id}"), vec!["request", "approve", "issue"]),
        (format!("actor={actor}&certname=web01"), vec!["approve"]),
        (
            "certname=web01&newest_first=true".to_owned(),
            vec!["issue", "approve", "request"],
        ),
        ("certname=web01&reason=nonsense".to_owned(), vec![]),
        ("since=2200-01-01T00:00:00Z".to_owned(), vec![]),
        ("until=1980-01-01T00:00:00Z".to_owned(), vec![]),
        (
            "certname=web02&since=1980-01-01T00:00:00Z&until=2200-01-01T00:00:00Z".to_owned(),
            vec!["request"],
        ),
    ] {
        let page = office.get(&format!("audit?{filter}")).await;
        assert_eq!(column(&page, "event"), events, "{filter}");
        assert!(page["looked_at"].as_u64().unwrap() >= 5, "{filter}");
    }
    let whole = office.get("audit").await["items"].clone();
    let paged = all(&office, "audit?limit=2").await;
    assert_eq!(whole, json!(paged));
    for wrong in ["since=yesterday", "limit=0", "cursor=x", "name=web01"] {
        let refused = office.call(&format!("GET /enrol/v1/audit?{wrong}")).await;
        assert_eq!(refused.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn seals_and_entries_are_verified_from_outside() {
    let office = busy().await;
    let refused = office.call("GET /enrol/v1/audit/checkpoint").await;
    assert_eq!(refused.status, 404, "nothing is sealed yet");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    FileKeys::generate_file(&path, KeySpec::P256).unwrap();
    let key = AuditKey::load(&path).unwrap();
    office.world.authority.audit.seal(&key).await.unwrap();
    office.agent("web03").await;
    office.world.authority.audit.seal(&key).await.unwrap();

    let checkpoint = office.get("audit/checkpoint").await;
    let checkpoint: Checkpoint = serde_json::from_value(checkpoint).unwrap();
    let verifier = Verifier::new(vec![key.spki_der().to_vec()]);
    let mut verifier = verifier
        .with_checkpoint(head_of(&checkpoint).unwrap())
        .unwrap();
    let mut seals = all(&office, "audit/seals?limit=1").await.into_iter();
    let mut entries = all(&office, "audit?limit=3&stored=true").await.into_iter();
    loop {
        match verifier.wants() {
            Wants::Seal => {
                let item = seals.next().map(serde_json::from_value);
                let seal = item.map(|item| seal_of(&item.unwrap()).unwrap());
                verifier.seal(seal).unwrap();
            }
            Wants::Entry => {
                let item = entries.next().map(serde_json::from_value);
                let record = item.map(|item| record_of(&item.unwrap()).unwrap());
                verifier.entry(record).unwrap();
            }
            Wants::Nothing => break,
        }
    }
    let intact = verifier.finish();
    assert_eq!((intact.seals, intact.unsealed), (2, 0));
    assert!(intact.entries >= 6);
}
