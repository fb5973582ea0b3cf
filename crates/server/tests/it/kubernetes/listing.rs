//! Lists, tables and selectors.

use std::cell::Cell;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use countersign_authority::Submission;
use countersign_authority::store::StoreFault;
use countersign_kapi::protobuf::Envelope;
use countersign_pki::{CheckedCsr, CsrLimits};
use countersign_policy::{Requester, Wishes};
use countersign_server::kubernetes::SPEC;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Api, CSRS, bytes, manifest, path_of};
use crate::world::{KUBE_CLIENT, signer_name};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn an_empty_list_is_a_list() {
    let api = Api::start().await;
    let list = api.get(&format!("{CSRS}?limit=500")).await.ok();
    assert_eq!(
        (&list["kind"], &list["items"]),
        (&json!("CertificateSigningRequestList"), &json!([]))
    );
    let version: u64 = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(version > 0);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_hides_no_other() {
    let api = Api::start().await;
    api.create(&manifest("a")).await;
    api.create(&manifest("c")).await;
    let csr = CsrBuilder::new("jane").sign(keys::p256_b());
    let damaged = Submission {
        door: &SPEC,
        key: "b".to_owned(),
        csr: CheckedCsr::check(&csr, &CsrLimits::STANDARD).unwrap(),
        signer: signer_name(KUBE_CLIENT),
        requester: Requester::authority(),
        wishes: Wishes {
            usages: vec!["client auth".to_owned()],
            expiration_seconds: None,
        },
        attachment: b"{not an attachment".to_vec(),
        bearer: None,
        decision: None,
    };
    api.world.authority.requests.submit(damaged).await.unwrap();
    let list = api.get(CSRS).await.ok();
    assert_eq!(names(&list), ["a", "c"]);
    let one = api.get(&format!("{CSRS}/b")).await;
    one.refuses(500, "InternalError");
    // It can be deleted all the same, by whoever does not ask for a state that nobody can see.
    let unsure = json!({"preconditions": {"resourceVersion": "1"}});
    let delete = || api.call("DELETE", &format!("{CSRS}/b"));
    delete()
        .json(&unsure)
        .send()
        .await
        .refuses(500, "InternalError");
    delete().send().await.ok();
    api.get(&format!("{CSRS}/b")).await.refuses(404, "NotFound");
    assert_eq!(names(&api.get(CSRS).await.ok()), ["a", "c"]);
    // A store that does not answer is something else: what is known is still shown, the rest is not.
    api.world.store.set(Some(|| StoreFault::Stopped));
    assert_eq!(names(&api.get(CSRS).await.ok()), ["a", "c"]);
    let one = api.get(&format!("{CSRS}/a")).await;
    one.refuses(503, "ServiceUnavailable");
}

#[tokio::test]
async fn lists_select_by_labels_and_fields() {
    let api = Api::start().await;
    for (name, team, signer) in [
        ("b", "red", "example.com/x"),
        ("a", "blue", "example.com/x"),
        ("C", "red", "example.com/y"),
    ] {
        let mut object = manifest(name);
        object["metadata"]["labels"] = json!({"team": team});
        object["spec"]["signerName"] = json!(signer);
        api.create(&object).await;
    }
    let rows: [(&str, &[&str]); 8] = [
        ("", &["C", "a", "b"]),
        ("labelSelector=team%3Dred", &["C", "b"]),
        ("labelSelector=team%20notin%20(red)", &["a"]),
        ("labelSelector=team%3Dgreen", &[]),
        ("fieldSelector=metadata.name%3Da", &["a"]),
        (
            "fieldSelector=metadata.name%3Dnobody&resourceVersion=0",
            &[],
        ),
        (
            "fieldSelector=spec.signerName%3Dexample.com/x&labelSelector=team%3Dred",
            &["b"],
        ),
        ("fieldSelector=spec.signerName!%3Dexample.com/x", &["C"]),
    ];
    for (query, selected) in rows {
        let list = api.get(&format!("{CSRS}?{query}")).await.ok();
        assert_eq!(names(&list), selected, "{query}");
    }
    let rows = [
        ("fieldSelector=status.x%3Da", 400, "BadRequest"),
        ("labelSelector=team%3D(", 400, "BadRequest"),
        ("resourceVersion=abc", 400, "BadRequest"),
        ("continue=abc", 400, "BadRequest"),
        ("resourceVersion=99999999", 504, "Timeout"),
        ("resourceVersion=99999999&limit=1", 504, "Timeout"),
        (
            "resourceVersion=99999999&resourceVersionMatch=Exact",
            504,
            "Timeout",
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            422,
            "Invalid",
        ),
        ("resourceVersionMatch=Exact", 422, "Invalid"),
        (
            "resourceVersion=1&resourceVersionMatch=Older",
            422,
            "Invalid",
        ),
        ("sendInitialEvents=true", 422, "Invalid"),
    ];
    for (query, code, reason) in rows {
        println!("{query}");
        api.get(&format!("{CSRS}?{query}"))
            .await
            .refuses(code, reason);
    }
    let current = api.get(CSRS).await.ok()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let exact = format!("{CSRS}?resourceVersion={current}&resourceVersionMatch=Exact");
    assert_eq!(names(&api.get(&exact).await.ok()).len(), 3);
    let not_older = format!("{CSRS}?resourceVersion=1&resourceVersionMatch=NotOlderThan");
    assert_eq!(names(&api.get(&not_older).await.ok()).len(), 3);
    let one = format!("{CSRS}/a?resourceVersion=");
    api.get(&format!("{one}{current}")).await.ok();
    api.get(&format!("{one}0")).await.ok();
    api.get(&format!("{one}99999999"))
        .await
        .refuses(504, "Timeout");
    for query in ["", "&limit=1"] {
        let path = format!("{CSRS}?resourceVersion=99999999{query}");
        assert_eq!(api.get(&path).await.header("retry-after"), "1", "{query}");
    }
}

/// Reads a list to its end as clients do; the names on each page, and the version of each.
async fn pages(api: &Api, query: &str, accept: &str) -> (Vec<Vec<String>>, Vec<Value>) {
    let (mut pages, mut versions) = (Vec::new(), Vec::new());
    let mut rest = String::new();
    loop {
        let path = format!("{CSRS}?{query}{rest}");
        let call = api.call("GET", &path).header("accept", accept);
        let list = call.send().await.ok();
        let page: Vec<&str> = match list.get("rows") {
            Some(rows) => rows
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["cells"][0].as_str().unwrap())
                .collect(),
            None => names(&list),
        };
        pages.push(page.into_iter().map(str::to_owned).collect());
        versions.push(list["metadata"]["resourceVersion"].clone());
        match list["metadata"]["continue"].as_str() {
            Some(token) => rest = format!("&continue={token}"),
            None => return (pages, versions),
        }
    }
}

#[tokio::test]
async fn long_lists_are_complete_and_sorted() {
    let api = Api::start().await;
    let mut object = manifest("x");
    let mut expected = Vec::new();
    for number in 0..520 {
        let name = format!("csr-{number}");
        object["metadata"]["name"] = json!(name);
        api.create(&object).await;
        expected.push(name);
    }
    expected.sort_unstable();
    for unbounded in ["", "limit=0", "limit=-1", "limit=520", "limit=100000"] {
        let list = api.get(&format!("{CSRS}?{unbounded}")).await.ok();
        assert_eq!(names(&list), expected, "{unbounded}");
        assert_eq!(list["metadata"].get("continue"), None, "{unbounded}");
    }
    for (query, accept, lengths) in [
        ("limit=500", "application/json", &[500, 20][..]),
        ("limit=500", TABLE, &[500, 20]),
        ("limit=260", TABLE, &[260, 260]),
        ("limit=519", "application/json", &[519, 1]),
        (
            "limit=515&fieldSelector=metadata.name!%3Dcsr-7",
            "application/json",
            &[515, 4],
        ),
    ] {
        let (pages, versions) = pages(&api, query, accept).await;
        let got: Vec<usize> = pages.iter().map(Vec::len).collect();
        assert_eq!(got, lengths, "{query}");
        let mut expected = expected.clone();
        if query.contains("csr-7") {
            expected.retain(|name| name != "csr-7");
        }
        assert_eq!(pages.concat(), expected, "{query}");
        assert!(versions.iter().all(|version| *version == versions[0]));
    }
}

#[tokio::test]
async fn a_page_goes_on_behind_its_last_name_whatever_happens_meanwhile() {
    let api = Api::start().await;
    for name in ["a", "b", "c", "d"] {
        let mut object = manifest(name);
        object["metadata"]["labels"] = json!({"odd": (name == "b" || name == "d").to_string()});
        api.create(&object).await;
    }
    let (red, _) = pages(&api, "limit=1&labelSelector=odd%3Dtrue", "application/json").await;
    assert_eq!(red.concat(), ["b", "d"]);

    let first = api.get(&format!("{CSRS}?limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    let selected = format!("{CSRS}?limit=1&labelSelector=odd");
    let selected = api.get(&selected).await.ok();
    assert_eq!(selected["metadata"].get("remainingItemCount"), None);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    // The last one seen is replaced by another of its name, and one more appears behind it.
    let path = format!("{CSRS}/b");
    api.call("DELETE", &path).send().await.ok();
    api.create(&manifest("b")).await;
    api.create(&manifest("bb")).await;
    let next = format!("{CSRS}?limit=2&continue={token}");
    let second = api.get(&next).await.ok();
    assert_eq!(names(&second), ["c", "d"], "as of the first page");
    assert_eq!(
        second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"],
        "who watches from here on is told of what came between the pages"
    );
    api.get(&format!("{next}&resourceVersion=0")).await.ok();

    let form = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let rows = [
        (format!("continue={token}&resourceVersion=1"), 400),
        (
            format!("continue={token}&resourceVersion=1&resourceVersionMatch=Exact"),
            422,
        ),
        ("limit=many".to_owned(), 400),
        ("continue=%21".to_owned(), 400),
        (format!("continue={}", form("{}")), 400),
        (format!("continue={}", form("not JSON")), 400),
        (
            format!(
                "continue={}",
                form(r#"{"v":"meta.k8s.io/v0","rv":1,"start":"a"}"#)
            ),
            400,
        ),
        (
            format!(
                "continue={}",
                form(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#)
            ),
            400,
        ),
        (
            format!(
                "continue={}",
                form(r#"{"v":"meta.k8s.io/v1","rv":99999999,"start":"a"}"#)
            ),
            410,
        ),
    ];
    for (query, code) in rows {
        let reason = match code {
            400 => "BadRequest",
            410 => "Expired",
            _ => "Invalid",
        };
        println!("{query}");
        api.get(&format!("{CSRS}?{query}"))
            .await
            .refuses(code, reason);
    }
}

/// Longer than what is put together at once.
#[tokio::test]
async fn long_lists_are_whole_in_every_form() {
    let api = Api::start().await;
    let names: Vec<String> = (10..30).map(|number| format!("csr-{number}")).collect();
    for name in &names {
        let mut object = manifest(name);
        object["metadata"]["annotations"] = json!({"note": "x".repeat(10_000)});
        api.create(&object).await;
    }
    const METADATA: &str =
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
    for (accept, items, object) in [
        ("application/json", "items", ""),
        (METADATA, "items", ""),
        (TABLE, "rows", "/object"),
    ] {
        let reply = api.call("GET", CSRS).header("accept", accept).send().await;
        assert_eq!(reply.header("content-length"), "", "not known before");
        let list = reply.ok();
        let name = format!("{object}/metadata/name");
        let items = list[items].as_array().unwrap().iter();
        let told: Vec<&Value> = items.map(|item| item.pointer(&name).unwrap()).collect();
        assert_eq!(told, names.iter().collect::<Vec<_>>(), "{accept}");
    }
    for (accept, kind) in [
        (
            "application/vnd.kubernetes.protobuf",
            "CertificateSigningRequestList",
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "PartialObjectMetadataList",
        ),
    ] {
        let reply = api.call("GET", CSRS).header("accept", accept).send().await;
        let envelope = Envelope::read(&reply.body).unwrap();
        assert_eq!(envelope.kind, kind);
        // Nothing is behind it but two empty fields.
        let behind = reply.body.len() - envelope.raw.len();
        assert!(behind < 100 && envelope.raw.len() > 200_000, "{behind}");
    }
}

#[tokio::test]
async fn tables_show_what_kubectl_prints() {
    let api = Api::start().await;
    let mut object = manifest("jane");
    object["spec"]["expirationSeconds"] = json!(86_400);
    let created = api.create(&object).await;
    api.decide(&created, "Approved").await.ok();
    api.world.clock.advance(125);
    let cells = json!([
        "jane",
        "2m5s",
        "kubernetes.io/kube-apiserver-client",
        "kubernetes-admin",
        "24h",
        "Approved,Issued"
    ]);
    for path in [
        CSRS.to_owned(),
        path_of(&created),
        format!("{}/status", path_of(&created)),
    ] {
        let reply = api.call("GET", &path).header("accept", TABLE).send().await;
        assert_eq!(reply.header("content-type"), "application/json");
        let table = reply.ok();
        assert_eq!(
            (&table["kind"], &table["apiVersion"]),
            (&json!("Table"), &json!("meta.k8s.io/v1"))
        );
        assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 6);
        assert_eq!(table["rows"][0]["cells"], cells, "{path}");
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["rows"][0]["object"].get("spec"), None);
        assert!(
            !table["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .is_empty()
        );
    }
    for (include, kind) in [
        ("Object", json!("CertificateSigningRequest")),
        ("None", Value::Null),
    ] {
        let path = format!("{CSRS}?includeObject={include}");
        let table = api
            .call("GET", &path)
            .header("accept", TABLE)
            .send()
            .await
            .ok();
        assert_eq!(table["rows"][0]["object"]["kind"], kind, "{include}");
        assert_eq!(table["rows"][0]["cells"], cells, "{include}");
        if include == "Object" {
            let whole = api.get(&path_of(&created)).await.ok();
            assert_eq!(table["rows"][0]["object"], whole, "{include}");
            assert!(bytes(&whole["status"]["certificate"]).starts_with(b"-----BEGIN"));
        }
    }
    let bad = format!("{CSRS}?includeObject=Half");
    api.call("GET", &bad)
        .header("accept", TABLE)
        .send()
        .await
        .refuses(400, "BadRequest");
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = api
        .call("GET", CSRS)
        .header("accept", metadata)
        .send()
        .await
        .ok();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0].get("spec"), None);
    api.call("GET", CSRS)
        .header("accept", "text/html")
        .send()
        .await
        .refuses(406, "NotAcceptable");
}

/// After a start everybody comes at once. What has been read by then is not read again because one read was refused.
#[tokio::test]
async fn a_busy_store_does_not_make_a_restart_begin_anew() {
    let api = Api::approving(&[KUBE_CLIENT]).await;
    for number in 0..40 {
        api.create(&manifest(&format!("n{number}"))).await;
    }
    let api = api.restarted().await;
    api.world.store.refuse_every(3);
    let list = api.get(CSRS).await.ok();
    assert_eq!(names(&list).len(), 40);
    let items = list["items"].as_array().unwrap();
    let is_issued = |item: &Value| item["status"]["certificate"].is_string();
    assert!(items.iter().all(is_issued), "{list}");
}

/// An answer to one that comes early would be an error, or a list with nothing in it.
#[tokio::test]
async fn a_list_that_comes_while_the_history_is_read_waits_for_it() {
    let api = Api::start().await;
    api.create(&manifest("jane")).await;
    let api = api.restarted().await;
    api.world.store.set(Some(|| StoreFault::Overloaded));
    tokio::time::pause();
    let is_read = Cell::new(false);
    let reading = async {
        // Longer than a list waits for what is new, and than a read is repeated before all of them begin anew.
        sleep(Duration::from_secs(20)).await;
        is_read.set(true);
        api.world.store.set(None);
        tokio::time::resume();
    };
    let listing = async {
        let list = api.get(CSRS).await.ok();
        assert!(is_read.get(), "{list}");
        list
    };
    let (list, ()) = tokio::join!(listing, reading);
    assert_eq!(names(&list), ["jane"]);
}
