//! Watches: where they begin, what they tell, how they end.

use std::time::Duration;

use countersign_authority::Actor;
use countersign_authority::Revision;
use countersign_kapi::CertificateSigningRequest;
use countersign_kapi::protobuf::{Envelope, read_request};
use countersign_pki::RevocationReason;
use serde_json::{Value, json};

use super::stream::{Stream, in_short, version};
use super::{Api, CSRS, manifest, path_of};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const WATCH_LIST: &str =
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

impl Api {
    async fn label(&self, object: &Value, team: Value) -> Value {
        let patch = json!({"metadata": {"labels": {"team": team}}}).to_string();
        let call = self.call("PATCH", &path_of(object));
        let call = call.body("application/merge-patch+json", patch);
        call.send().await.ok()
    }

    async fn delete(&self, name: &str) {
        let path = format!("{CSRS}/{name}");
        self.call("DELETE", &path).send().await.ok();
    }

    async fn labelled(&self, name: &str, team: &str) -> Value {
        let mut object = manifest(name);
        object["metadata"]["labels"] = json!({"team": team});
        self.create(&object).await
    }
}

fn event(kind: &str, object: &Value) -> (String, String, u64) {
    let name = object["metadata"]["name"].as_str().unwrap();
    (kind.to_owned(), name.to_owned(), version(object))
}

#[tokio::test]
async fn from_a_version_on_every_later_event_is_told_in_order() {
    let api = Api::start().await;
    api.create(&manifest("before")).await;
    let start = api.version().await;
    let created = api.create(&manifest("a")).await;
    let mut stream = api.watch(&format!("resourceVersion={start}")).await;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.headers["content-type"], "application/json");
    let labelled = api.label(&created, json!("red")).await;
    api.decide(&labelled, "Approved").await.ok();
    let issued = api.get(&path_of(&created)).await.ok();
    api.delete("a").await;

    assert_eq!(
        stream.event().await,
        json!({"type": "ADDED", "object": created})
    );
    assert_eq!(
        stream.event().await,
        json!({"type": "MODIFIED", "object": labelled})
    );
    let (mut last, mut deleted) = (version(&labelled), Value::Null);
    while deleted.is_null() {
        let told = stream.event().await;
        let (kind, name, at) = in_short(&told);
        assert!(at > last && name == "a", "{told}");
        last = at;
        if kind == "DELETED" {
            deleted = told["object"].clone();
        } else {
            assert_eq!(kind, "MODIFIED");
        }
    }
    // The last state, under the version of the deletion.
    assert!(version(&deleted) > version(&issued));
    assert_eq!(deleted["spec"], issued["spec"]);
    assert_eq!(deleted["status"], issued["status"]);
    assert!(!issued["status"]["certificate"].is_null());
    stream.is_silent().await;
}

#[tokio::test]
async fn without_a_version_or_from_0_the_objects_come_first() {
    let api = Api::start().await;
    let b = api.create(&manifest("b")).await;
    let a = api.create(&manifest("a")).await;
    for query in ["", "resourceVersion=0"] {
        let mut stream = api.watch(query).await;
        assert_eq!(
            stream.events(2).await,
            [event("ADDED", &a), event("ADDED", &b)]
        );
        let c = api.create(&manifest("c")).await;
        assert_eq!(stream.events(1).await, [event("ADDED", &c)], "{query}");
        api.delete("c").await;
    }
    // As `kubectl get csr a -w` asks.
    let query = "fieldSelector=metadata.name%3Da&resourceVersion=0";
    let mut stream = api.watch(query).await;
    assert_eq!(stream.events(1).await, [event("ADDED", &a)]);
    api.label(&b, json!("red")).await;
    let a = api.label(&a, json!("red")).await;
    assert_eq!(stream.events(1).await, [event("MODIFIED", &a)]);
}

#[tokio::test]
async fn a_version_that_is_no_number_is_400_and_one_to_come_is_silent() {
    let api = Api::start().await;
    let path = format!("{CSRS}?watch=true&resourceVersion=abc");
    let status = api.get(&path).await.refuses(400, "BadRequest");
    let text = "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
    assert_eq!(status["message"], text);

    let query = format!("resourceVersion={}", api.version().await + 1);
    let mut early = api.watch(&query).await;
    assert_eq!(early.status, 200);
    api.create(&manifest("a")).await;
    early.is_silent().await;
    let b = api.create(&manifest("b")).await;
    assert_eq!(early.events(1).await, [event("ADDED", &b)]);
}

#[tokio::test]
async fn a_watch_list_ends_its_objects_with_a_bookmark() {
    let api = Api::start().await;
    let mut empty = api.watch(WATCH_LIST).await;
    let bookmark = empty.event().await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    let a = api.create(&manifest("a")).await;
    assert_eq!(empty.events(1).await, [event("ADDED", &a)]);

    let known = format!("{WATCH_LIST}&resourceVersion={}", version(&a));
    for query in [WATCH_LIST, &known] {
        let mut stream = api.watch(query).await;
        assert_eq!(stream.event().await, json!({"type": "ADDED", "object": a}));
        let bookmark = stream.event().await;
        assert_eq!(
            bookmark["object"]["metadata"]["annotations"],
            json!({"k8s.io/initial-events-end": "true"})
        );
        assert_eq!(bookmark["object"]["kind"], "CertificateSigningRequest");
        assert!(version(&bookmark["object"]) >= version(&a));
        stream.is_silent().await;
    }
    // Without bookmarks there is none to end with.
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut stream = api.watch(query).await;
    assert_eq!(stream.events(1).await, [event("ADDED", &a)]);
    stream.is_silent().await;
    // Without initial events it begins with what comes.
    let query = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut stream = api.watch(query).await;
    let b = api.create(&manifest("b")).await;
    assert_eq!(stream.events(1).await, [event("ADDED", &b)]);

    let rows = [
        ("sendInitialEvents=true", "resourceVersionMatch"),
        ("resourceVersionMatch=NotOlderThan", "resourceVersionMatch"),
    ];
    for (query, field) in rows {
        let reply = api.get(&format!("{CSRS}?watch=true&{query}")).await;
        reply.names(&[(field, "FieldValueForbidden")]);
        assert_eq!(reply.value()["details"]["kind"], "ListOptions");
    }
    let future = format!("{WATCH_LIST}&resourceVersion=99999999&watch=true");
    let reply = api.get(&format!("{CSRS}?{future}")).await;
    reply.refuses(504, "Timeout");
}

#[tokio::test]
async fn selectors_turn_changes_into_arrivals_and_departures() {
    let api = Api::start().await;
    let a = api.labelled("a", "red").await;
    let b = api.labelled("b", "blue").await;
    let query = format!("labelSelector=team%3Dred&resourceVersion={}", version(&b));
    let mut red = api.watch(&query).await;
    let query = format!(
        "fieldSelector=spec.signerName%3Dexample.com/x&resourceVersion={}",
        version(&b)
    );
    let mut foreign = api.watch(&query).await;

    let b_red = api.label(&b, json!("red")).await;
    let a_blue = api.label(&a, json!("blue")).await;
    let b_same = api.label(&b_red, json!("red")).await;
    assert_eq!(version(&b_same), version(&b_red), "nothing changed");
    api.delete("a").await;
    api.delete("b").await;
    assert_eq!(red.event().await, json!({"type": "ADDED", "object": b_red}));
    let gone = red.event().await;
    assert_eq!(in_short(&gone), event("DELETED", &a_blue));
    assert_eq!(
        gone["object"]["metadata"]["labels"]["team"], "red",
        "as it was when it was last selected"
    );
    let (kind, name, _) = in_short(&red.event().await);
    assert_eq!((kind.as_str(), name.as_str()), ("DELETED", "b"));
    red.is_silent().await;
    foreign.is_silent().await;
}

#[tokio::test]
async fn timeouts_are_kept_and_bookmarks_come_before_the_end() {
    let api = Api::start().await;
    let query = "allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion=";
    let start = api.version().await;
    let mut stream = api.watch(&format!("{query}{start}")).await;
    // Another door's commit is progress too.
    let puppet = api.world.puppet_agent("web01.example.com").await;
    drop(puppet);
    let bookmark = stream.event().await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert!(version(&bookmark["object"]) > start, "{bookmark}");
    assert_eq!(
        bookmark["object"],
        json!({"kind": "CertificateSigningRequest", "apiVersion": "certificates.k8s.io/v1",
            "metadata": {"resourceVersion": bookmark["object"]["metadata"]["resourceVersion"]},
            "spec": {"request": null, "signerName": ""}, "status": {}})
    );
    assert_eq!(stream.next().await, None);

    let begun = tokio::time::Instant::now();
    let mut stream = api
        .watch(&format!("timeoutSeconds=1&resourceVersion={start}"))
        .await;
    assert_eq!(stream.next().await, None, "nobody asked for bookmarks");
    assert!(begun.elapsed() >= Duration::from_millis(990));
}

#[tokio::test]
async fn tables_define_their_columns_once() {
    let api = Api::start().await;
    let call = api.call("GET", &format!("{CSRS}?watch=true&resourceVersion=0"));
    let a = api.create(&manifest("a")).await;
    let mut stream = call.header("accept", TABLE).open().await;
    let first = stream.event().await;
    assert_eq!(first["type"], "ADDED");
    assert_eq!(first["object"]["kind"], "Table");
    assert_eq!(
        first["object"]["columnDefinitions"]
            .as_array()
            .unwrap()
            .len(),
        6
    );
    assert_eq!(version(&first["object"]), version(&a));
    api.decide(&a, "Denied").await.ok();
    let second = stream.event().await;
    assert_eq!(second["type"], "MODIFIED");
    assert_eq!(
        second["object"].get("columnDefinitions"),
        Some(&Value::Null)
    );
    let row = &second["object"]["rows"][0];
    assert_eq!(
        (&row["cells"][0], &row["cells"][5]),
        (&json!("a"), &json!("Denied"))
    );
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");

    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let call = api.call("GET", &format!("{CSRS}?watch=true&{WATCH_LIST}"));
    let mut stream = call.header("accept", metadata).open().await;
    let first = stream.event().await;
    assert_eq!(first["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(first["object"]["metadata"]["name"], "a");
    assert_eq!(first["object"].get("spec"), None);
    let bookmark = stream.event().await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
}

/// The messages of a watch in protobuf: type, and the enveloped object.
fn frames(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let (mut rest, mut frames) = (bytes, Vec::new());
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap();
        let (message, behind) = behind.split_at(length);
        rest = behind;
        // WatchEvent {1: type, 2: RawExtension {1: raw}}, with lengths of one or more bytes.
        let (kind, message) = field(message, 0x0a);
        let (extension, end) = field(message, 0x12);
        assert!(end.is_empty());
        let (raw, end) = field(extension, 0x0a);
        assert!(end.is_empty());
        frames.push((String::from_utf8(kind.to_vec()).unwrap(), raw.to_vec()));
    }
    frames
}

fn field(message: &[u8], tag: u8) -> (&[u8], &[u8]) {
    let (first, mut rest) = message.split_first().unwrap();
    assert_eq!(*first, tag);
    let (mut length, mut shift) = (0, 0);
    loop {
        let (byte, behind) = rest.split_first().unwrap();
        rest = behind;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return rest.split_at(length);
        }
    }
}

#[tokio::test]
async fn clients_that_insist_on_protobuf_get_it() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let api = Api::start().await;
    let created = api.create(&manifest("a")).await;
    let expected: CertificateSigningRequest = serde_json::from_value(created).unwrap();

    let call = api.call("GET", &format!("{CSRS}?watch=true"));
    let mut stream = call
        .header("accept", "application/vnd.kubernetes.protobuf;stream=watch")
        .open()
        .await;
    assert_eq!(
        stream.headers["content-type"],
        "application/vnd.kubernetes.protobuf;stream=watch"
    );
    let frames = frames(&stream.bytes().await.unwrap());
    let [(kind, raw)] = frames.as_slice() else {
        panic!("{frames:?}");
    };
    assert_eq!(kind, "ADDED");
    let envelope = Envelope::read(raw).unwrap();
    assert_eq!(envelope.kind, "CertificateSigningRequest");
    assert_eq!(read_request(envelope.raw).unwrap(), expected);

    let rows = [
        (format!("{CSRS}/a"), 200, "CertificateSigningRequest"),
        (CSRS.to_owned(), 200, "CertificateSigningRequestList"),
        (format!("{CSRS}/b"), 404, "Status"),
        (format!("{CSRS}?limit=x"), 400, "Status"),
    ];
    for (path, code, kind) in rows {
        let reply = api
            .call("GET", &path)
            .header("accept", PROTOBUF)
            .send()
            .await;
        assert_eq!(reply.status.as_u16(), code, "{path}");
        assert_eq!(reply.header("content-type"), PROTOBUF, "{path}");
        assert_eq!(Envelope::read(&reply.body).unwrap().kind, kind, "{path}");
        // Who also takes JSON gets that.
        let both = format!("{PROTOBUF},application/json");
        let reply = api.call("GET", &path).header("accept", &both).send().await;
        assert_eq!(reply.value()["kind"], kind, "{path}");
    }
}

#[tokio::test]
async fn the_older_paths_watch_too() {
    let api = Api::start().await;
    let a = api.create(&manifest("a")).await;
    let b = api.create(&manifest("b")).await;
    let old = "/apis/certificates.k8s.io/v1/watch/certificatesigningrequests";
    let mut all = api.call("GET", old).open().await;
    assert_eq!(
        all.events(2).await,
        [event("ADDED", &a), event("ADDED", &b)]
    );
    let mut one = api.call("GET", &format!("{old}/b")).open().await;
    let a = api.label(&a, json!("red")).await;
    let b_red = api.label(&b, json!("red")).await;
    let expected = [event("ADDED", &b), event("MODIFIED", &b_red)];
    assert_eq!(one.events(2).await, expected);
    let expected = [event("MODIFIED", &a), event("MODIFIED", &b_red)];
    assert_eq!(all.events(2).await, expected);
    let path = format!("{old}/b?fieldSelector=metadata.name%3Da");
    api.get(&path).await.refuses(400, "BadRequest");
}

#[tokio::test]
async fn a_watch_goes_on_in_the_next_process() {
    let api = Api::start().await;
    let a = api.labelled("a", "red").await;
    let b = api.labelled("b", "red").await;
    let start = version(&b);
    let a_blue = api.label(&a, json!("blue")).await;
    api.delete("b").await;
    let c = api.labelled("c", "red").await;
    let list = api.get(CSRS).await.ok();
    let api = api.restarted().await;
    assert_eq!(api.get(CSRS).await.ok()["items"], list["items"]);

    let mut stream = api.watch(&format!("resourceVersion={start}")).await;
    assert_eq!(
        stream.event().await,
        json!({"type": "MODIFIED", "object": a_blue})
    );
    let (kind, name, _) = in_short(&stream.event().await);
    assert_eq!((kind.as_str(), name.as_str()), ("DELETED", "b"));
    assert_eq!(stream.event().await, json!({"type": "ADDED", "object": c}));
    let d = api.create(&manifest("d")).await;
    assert_eq!(stream.events(1).await, [event("ADDED", &d)]);
    // What each was before is in the history, too.
    let query = format!("labelSelector=team%3Dred&resourceVersion={start}");
    let mut red = api.watch(&query).await;
    assert_eq!(red.events(1).await, [event("DELETED", &a_blue)]);
    let exact = format!("{CSRS}?resourceVersion={start}&resourceVersionMatch=Exact");
    let names: Vec<Value> = api.get(&exact).await.ok()["items"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(names, [a, b]);
}

#[tokio::test]
async fn what_the_history_no_longer_has_is_410() {
    let api = Api::start().await;
    let a = api.labelled("a", "red").await;
    let first = api.get(&format!("{CSRS}?limit=1")).await.ok();
    let b = api.labelled("b", "red").await;
    let page = api.get(&format!("{CSRS}?limit=1")).await.ok();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    let a_blue = api.label(&a, json!("blue")).await;
    let trimmed = api.world.authority.objects.trim(Revision(version(&a_blue)));
    trimmed.await.unwrap();
    let api = api.restarted().await;

    let mut old = api
        .watch(&format!("resourceVersion={}", version(&first)))
        .await;
    assert_eq!(old.status, 200);
    let error = old.event().await;
    assert_eq!(
        (
            &error["type"],
            &error["object"]["code"],
            &error["object"]["reason"]
        ),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    let text = error["object"]["message"].as_str().unwrap();
    assert!(text.starts_with("too old resource version: "), "{text}");
    assert_eq!(old.next().await, None);

    // From here on everything is known but what a was before.
    let mut all = api.watch(&format!("resourceVersion={}", version(&b))).await;
    assert_eq!(all.events(1).await, [event("MODIFIED", &a_blue)]);
    let query = format!("labelSelector=team%3Dred&resourceVersion={}", version(&b));
    let mut red = api.watch(&query).await;
    assert_eq!(red.event().await["object"]["code"], 410);
    assert_eq!(red.next().await, None);

    let exact = format!(
        "{CSRS}?resourceVersion={}&resourceVersionMatch=Exact",
        version(&first)
    );
    api.get(&exact).await.refuses(410, "Expired");
    let status = api.get(&format!("{CSRS}?limit=1&continue={token}")).await;
    let status = status.refuses(410, "Expired");
    // The rest as it is now can be had all the same.
    let token = status["metadata"]["continue"].as_str().unwrap();
    let rest = api
        .get(&format!("{CSRS}?limit=1&continue={token}"))
        .await
        .ok();
    assert_eq!(rest["items"], json!([b]));
}

#[tokio::test]
async fn who_falls_behind_is_told_so_and_holds_up_nobody() {
    let api = Api::start().await;
    let mut a = api.create(&manifest("a")).await;
    let query = format!("resourceVersion={}", version(&a));
    let mut slow = api.watch(&query).await;
    let mut quick = api.watch(&query).await;
    // More than the ring holds, in few and large objects.
    let long = "x".repeat(200_000);
    for number in 0..180 {
        let patch = json!({"metadata": {"annotations": {"a": format!("{number}{long}")}}});
        let call = api.call("PATCH", &path_of(&a));
        let call = call.body("application/merge-patch+json", patch.to_string());
        a = call.send().await.ok();
        assert_eq!(quick.events(1).await, [event("MODIFIED", &a)]);
    }
    let error = slow.event().await;
    assert_eq!(error["object"]["code"], 410, "{}", error["type"]);
    assert_eq!(slow.next().await, None);
    quick.is_silent().await;
}

async fn ends(stream: &mut Stream) -> bool {
    stream.next().await.is_none()
}

#[tokio::test]
async fn revoked_stays_out_of_a_watch_under_way() {
    let api = Api::start().await;
    let (authority, issuer) = (&api.world.authority, api.world.kubernetes_issuer());
    let other = api.world.kubernetes_admin().await;
    let path = format!("{CSRS}?watch=true");
    let mut stream = api.call("GET", &path).from(&other).open().await;
    let a = api.create(&manifest("a")).await;
    assert_eq!(stream.events(1).await, [event("ADDED", &a)]);
    let countersign_server::PeerIdentity::Client(client) = other.identity(authority) else {
        panic!("no client");
    };
    let serial = client.certificate.serial();
    let (actor, reason) = (Actor::authority(), RevocationReason::KeyCompromise);
    let revoked = authority
        .ledger
        .revoke_serial(&issuer, &serial, reason, &actor);
    assert_eq!(revoked.await.unwrap(), 1);
    api.create(&manifest("b")).await;
    assert!(
        ends(&mut stream).await,
        "told what happened after its revocation"
    );
}
